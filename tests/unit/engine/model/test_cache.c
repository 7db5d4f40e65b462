/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cache.c: generation with a cache gives the logits of a pass over the whole sample, for every
 * architecture, with prompts of different lengths in one batch.
 */
#include "tests/unit/engine/model/help.h"
#include "tests/unit/unit.h"

enum { BATCH = 3, PROMPT = 7, STEPS = 6, ALL = PROMPT + STEPS, MOST_VOCAB = 128 };

/* Tokens without meaning, which differ. */
static int32_t token(const zt_model *m, uint64_t sample, uint64_t at)
{
    return (int32_t)(1 + (sample * 37 + at * at * 11 + at * 5) % (m->config.vocab - 1));
}

/* Run the layers from `first` over a batch, with memory of its own. */
static void pass(zt_model *m, const zt_batch *b, uint32_t first, float *logits)
{
    const uint64_t n = (zt_batch_state(b) + 1) * m->config.hidden * sizeof(float);
    uint64_t most = 64;
    void *x[2] = {calloc(1, n), calloc(1, n)}, *tape;
    void *scratch = calloc(1, zt_model_scratch(m, b) + 64);
    zt_pass p = {.in = *b, .scratch = scratch, .logits = logits};
    ckpt_err err = {0};

    for (size_t i = 0; i < m->layers.n; i++) {
        const zt_layer *l = &m->layers.at[i];
        const uint64_t tape_bytes = l->ops->tape ? l->ops->tape(m, l, b) : 0;

        most = tape_bytes > most ? tape_bytes : most;
    }
    tape = aligned_alloc(64, (most + 63) & ~UINT64_C(63));
    for (size_t i = first; i < m->layers.n; i++) {
        const zt_layer *l = &m->layers.at[i];

        l->ops->fw(m, l, &p, tape, x[(i + 1) % 2], x[i % 2]);
    }
    if (zt_device_check(m->device, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    free(x[0]);
    free(x[1]);
    free(tape);
    free(scratch);
}

/* A prompt's length: the first one fills its row. */
static uint64_t length(uint64_t sample)
{
    return PROMPT - 2 * sample;
}

/* Logits of all positions of one sample alone; T5: of its target. */
static void alone(zt_model *m, uint64_t sample, float *logits)
{
    const bool t5 = m->config.arch == ZT_T5;
    int32_t ids[ALL], target[STEPS + 1] = {(int32_t)m->config.decoder_start};
    zt_batch b = {.batch = 1, .seq = length(sample) + (t5 ? 0 : STEPS), .input_ids = ids};

    for (uint64_t t = 0; t < b.seq; t++)
        ids[t] = token(m, sample, t);
    for (uint64_t t = 1; t <= STEPS; t++)
        target[t] = token(m, sample, PROMPT + t - 1);
    if (t5) {
        b.decoder_seq = STEPS + 1;
        b.decoder_input_ids = target;
    }
    pass(m, &b, 0, logits);
}

/* Compare the logits of step t with those of a whole sample. */
static void compare(zt_model *m, const char *name, const float *got, uint64_t t)
{
    const uint64_t vocab = m->config.vocab;
    static float want[(size_t)ALL * MOST_VOCAB];

    for (uint64_t i = 0; i < BATCH; i++) {
        const uint64_t row = m->config.arch == ZT_T5 ? t : length(i) - 1 + t;
        float top = 0;

        alone(m, i, want);
        for (uint64_t k = 0; k < vocab; k++)
            top = fmaxf(top, fabsf(want[row * vocab + k]));
        for (uint64_t k = 0; k < vocab; k++) {
            if (!(fabsf(got[i * vocab + k] - want[row * vocab + k]) <= 3e-6F * top))
                fail_msg("%s, sample %d, step %d, token %d: %.9g, not %.9g", name, (int)i, (int)t,
                         (int)k, (double)got[i * vocab + k], (double)want[row * vocab + k]);
        }
    }
}

/* The batch of the prompts, in which shorter ones begin later; T5's sources end earlier. */
static zt_batch prompts(zt_model *m, int32_t *ids, int32_t *mask, int32_t *last)
{
    const bool t5 = m->config.arch == ZT_T5;
    zt_batch b = {.batch = BATCH, .seq = PROMPT, .input_ids = ids, .attention_mask = mask};

    for (uint64_t i = 0; i < BATCH; i++) {
        const uint64_t from = t5 ? 0 : PROMPT - length(i);

        for (uint64_t t = 0; t < PROMPT; t++) {
            const bool is = t >= from && t < from + length(i);

            mask[i * PROMPT + t] = is;
            ids[i * PROMPT + t] = is ? token(m, i, t - from) : 0;
        }
        last[i] = (int32_t)m->config.decoder_start;
    }
    b.decoder_seq = t5 ? 1 : 0;
    b.decoder_input_ids = t5 ? last : NULL;
    return b;
}

/* A later batch: one token of each sample. */
static zt_batch one_more(const zt_model *m, int32_t *last, uint64_t t)
{
    const bool t5 = m->config.arch == ZT_T5;
    zt_batch b = {.batch = BATCH, .seq = t5 ? 0 : 1, .input_ids = last};

    for (uint64_t i = 0; i < BATCH; i++)
        last[i] = token(m, i, t5 ? PROMPT + t - 1 : length(i) + t - 1);
    b.decoder_seq = t5 ? 1 : 0;
    b.decoder_input_ids = t5 ? last : NULL;
    return b;
}

static void same_logits(const char *folder, const char *name)
{
    int32_t ids[BATCH * PROMPT], mask[BATCH * PROMPT], last[BATCH];
    static float logits[BATCH * MOST_VOCAB];
    const mc_opts opts = {.dtype = CKPT_F32};
    zt_cache *cache = NULL;
    ckpt_err err = {0};
    mc_case c;

    if (mc_open(&c, folder, name, &opts) != CKPT_OK)
        fail_msg("%s: %s", name, c.err.text);
    assert_true(c.model->config.vocab <= MOST_VOCAB);
    assert_int_equal(zt_cache_new(&cache, c.model, BATCH, ALL, &err), CKPT_OK);
    for (uint64_t t = 0; t <= STEPS; t++) {
        zt_batch b = t == 0 ? prompts(c.model, ids, mask, last) : one_more(c.model, last, t);

        b.cache = cache;
        assert_int_equal(zt_cache_begin(cache, &b, &err), CKPT_OK);
        pass(c.model, &b, zt_cache_first_layer(cache), logits);
        zt_cache_end(cache, &b);
        compare(c.model, name, logits, t);
    }
    zt_cache_free(cache);
    mc_close(&c);
}

static void cached_logits(void **state)
{
    static const char *const kin[] = {
        "qwen2",    "qwen2_tied",    "qwen3",  "mistral", "opt",          "opt_after",
        "opt_gelu", "qwen2_windows", "neox",   "bloom",   "neox_serial",  "bloom_untied",
        "olmo2",    "phi3",          "gemma2", "gemma3",  "gemma3_linear"};

    (void)state;
    same_logits(GOLDEN, "gpt2_masked");
    same_logits(GOLDEN, "llama_gqa");
    for (size_t i = 0; i < sizeof kin / sizeof *kin; i++)
        same_logits(KIN, kin[i]);
    same_logits("tests/fixtures/models_t5", "t5");
    same_logits("tests/fixtures/models_t5", "t5_gated");
}

/* A cache that is full, and batches that do not continue it, are refused. */
static void refused(void **state)
{
    int32_t ids[BATCH * PROMPT], mask[BATCH * PROMPT], last[BATCH];
    zt_cache *cache = NULL;
    ckpt_err err = {0};
    zt_batch b;
    mc_case c;

    (void)state;
    open_case(&c, "llama_gqa", &(mc_opts){.dtype = CKPT_F32});
    assert_int_equal(zt_cache_new(&cache, c.model, BATCH, UINT64_MAX / 2, NULL), CKPT_ELIMIT);
    zt_cache_free(cache);
    assert_int_equal(zt_cache_new(&cache, c.model, BATCH, PROMPT, &err), CKPT_OK);
    b = prompts(c.model, ids, mask, last);
    b.batch--;
    assert_int_equal(zt_cache_begin(cache, &b, NULL), CKPT_EUSAGE);
    b.batch++;
    assert_int_equal(zt_cache_begin(cache, &b, &err), CKPT_OK);
    zt_cache_end(cache, &b);
    assert_int_equal(zt_cache_begin(cache, &b, NULL), CKPT_EUSAGE);
    b = one_more(c.model, last, 1);
    assert_int_equal(zt_cache_begin(cache, &b, &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "does not fit"));
    zt_cache_free(cache);
    mc_close(&c);
}

/* Without memory for any part of it, a cache is refused and freed. */
static void no_memory(void **state)
{
    zt_cache *cache = NULL;
    ckpt_err err = {0};
    mc_case c;

    (void)state;
    open_case(&c, "llama_gqa", &(mc_opts){.dtype = CKPT_F32});
    for (uint64_t i = 0; i < 4; i++) {
        ckpt_alloc_fail_at(i);
        assert_int_equal(zt_cache_new(&cache, c.model, BATCH, PROMPT, &err), CKPT_ELIMIT);
        ckpt_alloc_fail_at(UINT64_MAX);
        zt_cache_free(cache);
    }
    mc_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_logits),
        cmocka_unit_test(refused),
        cmocka_unit_test(no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
