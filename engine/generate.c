/* SPDX-License-Identifier: Apache-2.0 */
/*
 * generate.c: continues prompts, token by token, with sharded weights.
 *
 * Batches are consecutive prompts; rank r has the batches r, r + world, ...  So a batch has the
 * same prompts on any number of ranks.  All ranks run the same number of passes, because a pass of
 * stage 3 needs all of them: a rank whose texts have ended, or that has no batch, runs passes whose
 * results do not count (transformers: synced_gpus).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/inside.h"
#include "libckpt/codec/json/json.h"

enum { GN_PATH = 4096, GN_TRIES = 64 };

/* ---- prompts ---- */

/* Numbers of elements of the largest batch. */
typedef struct gn_size {
    uint64_t room; /* samples */
    uint64_t tokens, logits, results;
    uint64_t longest; /* tokens of a prompt */
} gn_size;

static int gn_sizes(gn_size *s, const zt_engine *e, ckpt_err *err)
{
    const zt_prompts *p = &e->prompts;
    const uint64_t fresh = (uint64_t)e->opts->max_new_tokens;

    *s = (gn_size){.room = (uint64_t)e->config.micro_batch};
    if (s->room > zt_prompts_count(p))
        s->room = zt_prompts_count(p);
    for (size_t i = 0; i < zt_prompts_count(p); i++) {
        if (s->longest < zt_prompts_length(p, i))
            s->longest = zt_prompts_length(p, i);
    }
    if (!ckpt_mul(s->room, s->longest + fresh + 1, &s->results) || s->results > INT32_MAX)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "a batch of %" PRIu64 " texts of %" PRIu64
                         " tokens is too large: use a smaller --max-new-tokens, or a smaller "
                         "train_micro_batch_size_per_gpu",
                         s->room, s->longest + fresh);
    s->results = s->room * (fresh + 1);
    s->tokens = s->room * s->longest;
    if (!ckpt_mul(s->room, e->model_config.vocab, &s->logits) || s->logits > UINT32_MAX)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "a batch of %" PRIu64 " texts, with a vocabulary of %" PRIu64
                         ", is too large: use a smaller train_micro_batch_size_per_gpu",
                         s->room, e->model_config.vocab);
    return CKPT_OK;
}

/* LongRoPE divides frequencies by other numbers in longer texts. */
static int gn_longrope(const zt_engine *e, ckpt_err *err)
{
    const zt_model_config *m = &e->model_config;
    const uint64_t fresh = (uint64_t)e->opts->max_new_tokens;

    for (size_t i = 0; m->rope_kind == ZT_ROPE_LONG && i < zt_prompts_count(&e->prompts); i++) {
        const uint64_t n = zt_prompts_length(&e->prompts, i) + fresh;

        if ((double)n > m->rope_old)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: line %zu: longrope: prompt and new tokens together must not "
                             "exceed original_max_position_embeddings = %.0f, found %" PRIu64
                             "; use a smaller --max-new-tokens or shorter prompts",
                             e->opts->data, i + 1, m->rope_old, n);
    }
    return CKPT_OK;
}

/* Check that tokens can become text, or with --json do without it. */
static int gn_decoder(zt_engine *e, ckpt_err *err)
{
    ckpt_bytes none = {0};
    ckpt_err why = {0};
    int rc;

    if (!e->prompts.tokenizer && e->opts->tokens)
        return CKPT_OK;
    if (!e->prompts.tokenizer)
        return ckpt_fail(err, CKPT_EMISSING,
                         "tokens become text by a tokenizer, but the model's folder has none: give "
                         "one with --vocab, or use --json to write tokens");
    rc = zt_tokenizer_decode(e->prompts.tokenizer, NULL, 0, &none, &why);
    ckpt_vec_free(&none);
    if (rc == CKPT_EUNSUPPORTED && e->opts->tokens) {
        zt_tokenizer_free(e->prompts.tokenizer);
        e->prompts.tokenizer = NULL;
        return CKPT_OK;
    }
    return rc == CKPT_OK ? rc : ckpt_fail(err, rc, "%s", why.text);
}

/* Check that the output may be made. */
static int gn_target(const zt_options *o, ckpt_err *err)
{
    const char *path = o->generate;
    struct stat st;

    if (strcmp(path, "-") == 0 || stat(path, &st) != 0)
        return CKPT_OK;
    if (!S_ISREG(st.st_mode))
        return ckpt_fail(err, CKPT_EUSAGE, "%s: is not a regular file", path);
    if (!o->force && st.st_size > 0)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: exists already; choose another name, or use --force to replace it",
                         path);
    return CKPT_OK;
}

/* Tokens of the longest prompt; 0: --max-new-tokens leaves none. */
static uint64_t gn_prompt_room(const zt_engine *e)
{
    const zt_model_config *m = &e->model_config;
    const uint64_t fresh = (uint64_t)e->opts->max_new_tokens;

    if (m->arch == ZT_BLOOM || m->arch == ZT_T5)
        return UINT32_MAX;
    return m->positions > fresh ? m->positions - fresh : 0;
}

int zt_generate_open(zt_engine *e, ckpt_err *err)
{
    const zt_options *o = e->opts;
    const zt_model_config *m = &e->model_config;
    const uint64_t room = gn_prompt_room(e);
    gn_size size;
    int rc;

    if (m->arch == ZT_BERT_CLASSIFIER || m->arch == ZT_BERT_MLM)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "--generate is for models that predict the next token, not for %s",
                         m->class_name);
    if (!o->data)
        return ckpt_fail(err, CKPT_EUSAGE, "--data is missing: give the file of prompts");
    if (room == 0)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "--max-new-tokens %" PRId64 " leaves nothing of the model's %" PRIu64
                         " positions for a prompt",
                         o->max_new_tokens, m->positions);
    rc = e->comm->rank == 0 ? gn_target(o, err) : CKPT_OK;
    if (rc == CKPT_OK)
        rc = zt_generate_settings(e, err);
    if (rc == CKPT_OK)
        rc = zt_prompts_read(&e->prompts, o->data, e->vocab, m, room, err);
    if (rc == CKPT_OK)
        rc = gn_longrope(e, err);
    if (rc == CKPT_OK)
        rc = gn_sizes(&size, e, err);
    return rc == CKPT_OK ? gn_decoder(e, err) : rc;
}

/* ---- one batch ---- */

/* A batch under way. */
typedef struct gn_run {
    zt_engine *e;
    zt_sampling how;
    uint64_t first, n; /* prompts; n 0: this rank has none, and runs the first prompt */
    uint64_t samples;  /* of the passes */
    uint64_t room;     /* samples of the largest batch */
    uint64_t fresh;    /* most tokens of a text */
    zt_cache *cache;
    int32_t *ids, *mask, *last; /* inputs */
    /* results of this rank, then of all: for each sample, the number of tokens and the tokens */
    int32_t *own, *all;
    bool *done; /* [room] */
    void *device, *wide;
    float *logits;
    zt_candidate *candidates;
} gn_run;

static bool gn_is_t5(const gn_run *g)
{
    return g->e->model_config.arch == ZT_T5;
}

static size_t gn_prompt(const gn_run *g, uint64_t i)
{
    return (size_t)(g->n > 0 ? g->first + i : 0);
}

static int32_t *gn_result(const gn_run *g, int32_t *of, uint64_t i)
{
    return of + i * (g->fresh + 1);
}

static int gn_new(gn_run *g, zt_engine *e, ckpt_err *err)
{
    gn_size s;
    int rc = gn_sizes(&s, e, err);

    if (rc != CKPT_OK)
        return rc;
    *g = (gn_run){.e = e,
                  .room = s.room,
                  .fresh = (uint64_t)e->opts->max_new_tokens,
                  .how = {e->opts->temperature, (uint64_t)e->opts->top_k, e->opts->top_p,
                          (uint64_t)e->opts->seed}};
    g->ids = ckpt_alloc(s.tokens * sizeof *g->ids);
    g->mask = ckpt_alloc(s.tokens * sizeof *g->mask);
    g->last = ckpt_alloc(s.room * sizeof *g->last);
    g->done = ckpt_alloc(s.room * sizeof *g->done);
    g->own = ckpt_alloc(s.results * sizeof *g->own);
    g->all = ckpt_alloc(s.results * (size_t)e->comm->world * sizeof *g->all);
    g->logits = ckpt_alloc(s.logits * sizeof *g->logits);
    g->candidates = ckpt_alloc(e->model_config.vocab * sizeof *g->candidates);
    g->device = e->device->ops->alloc(e->device, s.logits * sizeof(float));
    g->wide = e->device->ops->alloc(e->device, s.logits * sizeof(float));
    return g->ids && g->mask && g->last && g->done && g->own && g->all && g->logits &&
                   g->candidates && g->device && g->wide
               ? CKPT_OK
               : ckpt_fail_memory(err);
}

static void gn_free(gn_run *g)
{
    if (!g->e)
        return;
    zt_cache_free(g->cache);
    g->e->device->ops->release(g->e->device, g->device);
    g->e->device->ops->release(g->e->device, g->wide);
    ckpt_free(g->ids);
    ckpt_free(g->mask);
    ckpt_free(g->last);
    ckpt_free(g->done);
    ckpt_free(g->own);
    ckpt_free(g->all);
    ckpt_free(g->logits);
    ckpt_free(g->candidates);
}

/* Fill the first pass's inputs: prompts are at the end of their rows; T5: at the begin. */
static zt_batch gn_first(gn_run *g, uint64_t longest)
{
    const zt_prompts *p = &g->e->prompts;
    zt_batch b = {.batch = g->samples, .seq = longest, .cache = g->cache};

    for (uint64_t i = 0; i < g->samples; i++) {
        const size_t at = gn_prompt(g, i), n = zt_prompts_length(p, at);
        const uint64_t from = gn_is_t5(g) ? 0 : longest - n;

        memset(g->ids + i * longest, 0, longest * sizeof *g->ids);
        memset(g->mask + i * longest, 0, longest * sizeof *g->mask);
        memcpy(g->ids + i * longest + from, p->ids.at + p->start.at[at], n * sizeof *g->ids);
        for (uint64_t t = from; t < from + n; t++)
            g->mask[i * longest + t] = 1;
        g->last[i] = (int32_t)g->e->model_config.decoder_start;
    }
    b.input_ids = g->ids;
    b.attention_mask = g->mask;
    if (gn_is_t5(g)) {
        b.decoder_seq = 1;
        b.decoder_input_ids = g->last;
    }
    return b;
}

/* A later pass has the last token of each text. */
static zt_batch gn_later(gn_run *g)
{
    zt_batch b = {.batch = g->samples, .cache = g->cache};

    b.seq = gn_is_t5(g) ? 0 : 1;
    b.decoder_seq = gn_is_t5(g) ? 1 : 0;
    b.input_ids = g->last;
    b.decoder_input_ids = gn_is_t5(g) ? g->last : NULL;
    return b;
}

static bool gn_ends_text(const zt_engine *e, int32_t token)
{
    for (size_t i = 0; i < e->ends.n; i++) {
        if (e->ends.at[i] == token)
            return true;
    }
    return false;
}

/* Choose the next token of each text by the pass's logits. */
static int gn_choose(gn_run *g, uint64_t step, ckpt_err *err)
{
    zt_engine *e = g->e;
    const uint64_t vocab = e->model_config.vocab, n = g->samples * vocab;
    const bool low = e->model->dtype != CKPT_F32;

    if (low)
        e->device->ops->cast(e->device, n, g->wide, CKPT_F32, g->device, e->model->dtype);
    e->device->ops->get(e->device, g->logits, low ? g->wide : g->device, n * sizeof(float));
    for (uint64_t i = 0; i < g->n; i++) {
        const uint32_t place[2] = {(uint32_t)gn_prompt(g, i), (uint32_t)step};
        int32_t *to = gn_result(g, g->own, i);

        if (g->done[i])
            continue;
        g->last[i] = zt_sample(&g->how, g->logits + i * vocab, vocab, place, g->candidates);
        if (g->last[i] < 0)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "the model's output for prompt %zu is not a number: are its weights "
                             "damaged, or its values too large for this dtype?",
                             gn_prompt(g, i) + 1);
        to[1 + to[0]++] = g->last[i];
        g->done[i] = gn_ends_text(e, g->last[i]);
    }
    return zt_device_check(e->device, err);
}

/* True if a text of any rank goes on. */
static int gn_goes_on(gn_run *g, bool *on, ckpt_err *err)
{
    int32_t most = 0;
    int rc = CKPT_OK;

    for (uint64_t i = 0; i < g->n; i++)
        most = g->done[i] ? most : 1;
    if (g->e->comm->world > 1)
        rc = g->e->comm->ops->all_reduce(g->e->comm, &most, 1, CKPT_I32, ZT_MAX, err);
    *on = most != 0;
    return rc;
}

/* Begin a batch: its prompts, and an empty cache. */
static int gn_begin(gn_run *g, uint64_t batch, uint64_t *longest, ckpt_err *err)
{
    const zt_prompts *p = &g->e->prompts;
    const uint64_t count = zt_prompts_count(p);

    g->first = batch * g->room;
    g->n = g->first >= count ? 0 : count - g->first < g->room ? count - g->first : g->room;
    g->samples = g->n > 0 ? g->n : 1;
    *longest = 0;
    for (uint64_t i = 0; i < g->samples; i++) {
        const size_t n = zt_prompts_length(p, gn_prompt(g, i));

        *longest = n > *longest ? n : *longest;
        g->done[i] = false;
    }
    memset(g->own, 0, g->room * (g->fresh + 1) * sizeof *g->own);
    zt_cache_free(g->cache);
    return zt_cache_new(&g->cache, g->e->model, g->samples, g->fresh + (gn_is_t5(g) ? 1 : *longest),
                        err);
}

/* Generate the texts of one batch, on all ranks together. */
static int gn_batch(gn_run *g, uint64_t batch, ckpt_err *err)
{
    zt_engine *e = g->e;
    uint64_t longest = 0;
    bool on = true;
    int rc = zt_comm_agree(e->comm, gn_begin(g, batch, &longest, err), err);

    for (uint64_t step = 0; rc == CKPT_OK && on && step < g->fresh; step++) {
        const zt_batch b = step == 0 ? gn_first(g, longest) : gn_later(g);
        double loss = 0;

        rc = zt_zero_evaluate(e->zero, &b, g->device, &loss, err);
        if (rc == CKPT_OK)
            rc = zt_comm_agree(e->comm, gn_choose(g, step, err), err);
        if (rc == CKPT_OK)
            rc = gn_goes_on(g, &on, err);
    }
    return rc;
}

/* ---- output ---- */

/* A file that gets its name at the end, or standard output. */
typedef struct gn_out {
    FILE *file;
    const char *path;
    char temp[GN_PATH];
} gn_out;

/*
 * Open a new file beside the output, with a name that `ckpt clean` recognises if this process is
 * killed.
 */
static int gn_temp(gn_out *o, ckpt_err *err)
{
    const char *slash = strrchr(o->path, '/'), *name = slash ? slash + 1 : o->path;
    int fd = -1;

    for (unsigned k = 0; fd < 0 && k < GN_TRIES; k++) {
        const int n =
            snprintf(o->temp, sizeof o->temp, "%.*s.%s.ckpt-%06x.tmp", (int)(name - o->path),
                     o->path, name, ((unsigned)getpid() * GN_TRIES + k) & 0xffffff);

        if (n < 0 || n >= (int)sizeof o->temp)
            return ckpt_fail(err, CKPT_EUSAGE, "%.200s: the path is too long", o->path);
        fd = open(o->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST && errno != EINTR)
            break;
    }
    if (fd < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", o->path);
    o->file = fdopen(fd, "w");
    if (o->file)
        return CKPT_OK;
    (void)close(fd);
    (void)unlink(o->temp);
    return ckpt_fail_memory(err);
}

static int gn_open(gn_out *o, const zt_options *opts, ckpt_err *err)
{
    int rc = gn_target(opts, err);

    *o = (gn_out){.path = opts->generate};
    if (strcmp(o->path, "-") != 0)
        return rc == CKPT_OK ? gn_temp(o, err) : rc;
    o->path = "standard output";
    o->file = stdout;
    return rc;
}

/* Close the file, and give it its name if all went well. */
static int gn_close(gn_out *o, int rc, ckpt_err *err)
{
    bool ok;

    if (!o->file)
        return rc;
    if (o->file == stdout)
        ok = fflush(stdout) == 0;
    else {
        ok = fflush(o->file) == 0 && fsync(fileno(o->file)) == 0;
        ok = fclose(o->file) == 0 && ok;
        ok = ok && (rc != CKPT_OK || rename(o->temp, o->path) == 0);
    }
    if (rc == CKPT_OK && !ok)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", o->path);
    if (rc != CKPT_OK && o->file != stdout)
        (void)unlink(o->temp);
    return rc;
}

/* Append a text, or its line of JSON. */
static int gn_text(const gn_run *g, uint64_t prompt, const int32_t *result, ckpt_bytes *to,
                   ckpt_err *err)
{
    const zt_engine *e = g->e;
    const zt_tokenizer *t = e->prompts.tokenizer;
    const size_t n = (size_t)result[0];
    ckpt_bytes text = {0};
    int rc = t ? zt_tokenizer_decode(t, result + 1, n, &text, err) : CKPT_OK;
    bool ok = true;

    if (rc == CKPT_OK && !e->opts->tokens) {
        ok = (text.n == 0 || ckpt_bytes_add(to, text.at, text.n)) && ckpt_bytes_add(to, "\n", 1);
    } else if (rc == CKPT_OK) {
        ok = ckpt_bytes_printf(to, "{\"prompt\": %" PRIu64 ", \"ids\": [", prompt);
        for (size_t i = 0; ok && i < n; i++)
            ok = ckpt_bytes_printf(to, "%s%" PRId32, i ? ", " : "", result[1 + i]);
        ok = ok && ckpt_bytes_add(to, "]", 1);
        if (t)
            ok = ok && ckpt_bytes_printf(to, ", \"text\": ") &&
                 ckpt_json_string(to, (const char *)text.at, text.n, false);
        ok = ok && ckpt_bytes_add(to, "}\n", 2);
    }
    ckpt_vec_free(&text);
    return rc == CKPT_OK && !ok ? ckpt_fail_memory(err) : rc;
}

/* Write all ranks' texts of one round, in order. */
static int gn_write(const gn_run *g, uint64_t round, const gn_out *o, ckpt_err *err)
{
    const uint64_t n = g->room * (uint64_t)g->e->comm->world, first = round * n;
    const uint64_t count = zt_prompts_count(&g->e->prompts);
    ckpt_bytes text = {0};
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < n && first + i < count; i++)
        rc = gn_text(g, first + i, gn_result(g, g->all, i), &text, err);
    if (rc == CKPT_OK && text.n > 0)
        (void)fwrite(text.at, 1, text.n, o->file);
    if (rc == CKPT_OK && (ferror(o->file) || fflush(o->file) != 0))
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", o->path);
    ckpt_vec_free(&text);
    return rc;
}

/* One batch of every rank, and the output of all. */
static int gn_round(gn_run *g, uint64_t round, const gn_out *o, ckpt_err *err)
{
    zt_comm *comm = g->e->comm;
    int rc = gn_batch(g, round * (uint64_t)comm->world + (uint64_t)comm->rank, err);

    if (rc == CKPT_OK)
        rc = comm->ops->all_gather(comm, g->all, g->own, g->room * (g->fresh + 1), CKPT_I32, err);
    if (rc == CKPT_OK)
        rc = zt_comm_agree(comm, comm->rank == 0 ? gn_write(g, round, o, err) : CKPT_OK, err);
    return rc;
}

int zt_engine_generate(zt_engine *e, ckpt_err *err)
{
    const double start = zt_now();
    gn_run g = {0};
    gn_out o = {0};
    uint64_t each, rounds;
    int rc = gn_new(&g, e, err);

    if (rc == CKPT_OK && e->comm->rank == 0)
        rc = gn_open(&o, e->opts, err);
    rc = zt_comm_agree(e->comm, rc, err);
    each = rc == CKPT_OK ? g.room * (uint64_t)e->comm->world : 1;
    rounds = (zt_prompts_count(&e->prompts) + each - 1) / each;
    for (uint64_t i = 0; rc == CKPT_OK && i < rounds; i++)
        rc = gn_round(&g, i, &o, err);
    rc = gn_close(&o, rc, err);
    gn_free(&g);
    e->seconds[ZT_T_EVAL] += zt_now() - start;
    return zt_comm_agree(e->comm, rc, err);
}
