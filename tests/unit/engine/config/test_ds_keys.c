/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ds_keys.c: every key of the tables, arguments for "auto", base64, and memory that runs out.
 */
#include "tests/unit/engine/config/help.h"
#include "tests/unit/unit.h"

/* ---- arguments ---- */

static void only_given_arguments_disagree(void **state)
{
    static const char text[] = "{train_batch_size: 12, train_micro_batch_size_per_gpu: 3\n"
                               "gradient_clipping: 0.5, optimizer: {type: \"AdamW\", params: "
                               "{lr: 1e-3, betas: [0.9, 0.99]}}, fp16: {enabled: true}}";
    zt_arguments a;
    zt_config c;

    (void)state;
    zt_arguments_default(&a);
    c = accepted(text, &a, 2);
    assert_true(c.optim.h.lr == 1e-3 && c.clipping == 0.5);
    assert_int_equal(c.accumulation, 2);
    a.given[ZT_ARG_CLIPPING] = a.given[ZT_ARG_LR] = a.given[ZT_ARG_BETA2] = true;
    a.given[ZT_ARG_FP16] = a.given[ZT_ARG_MICRO_BATCH] = true;
    refused_args(text, &a, CKPT_EUSAGE,
                 "train_batch_size is 12|train_micro_batch_size_per_gpu is 3|"
                 "gradient_clipping is 0.5, but --max_grad_norm gives 1|optimizer.params.lr|"
                 "optimizer.params.betas|fp16.enabled is true");
    a.max_grad_norm = 0.5;
    a.learning_rate = 1e-3;
    a.adam_beta2 = 0.99;
    a.fp16 = true;
    a.per_device_train_batch_size = 3;
    a.gradient_accumulation_steps = 2;
    c = accepted(text, &a, 2);
    assert_int_equal(c.dtype, CKPT_F16);
}

static void arguments_stand_for_missing_keys(void **state)
{
    zt_arguments a;
    zt_config c;

    (void)state;
    zt_arguments_default(&a);
    c = accepted("{}", &a, 2); // the defaults of the arguments make a batch
    assert_int_equal(c.micro_batch, 8);
    assert_int_equal(c.train_batch, 16);
    assert_true(c.optim.h.lr == 5e-5 && c.optim.h.beta2 == 0.999 && c.clipping == 1.0);
    assert_true(noted(&c, "the optimizer block is missing"));
    a.given[ZT_ARG_MICRO_BATCH] = a.given[ZT_ARG_ACCUMULATION] = a.given[ZT_ARG_CLIPPING] = true;
    a.given[ZT_ARG_BF16] = a.given[ZT_ARG_LR] = a.given[ZT_ARG_WEIGHT_DECAY] = true;
    a.per_device_train_batch_size = 3;
    a.gradient_accumulation_steps = 2;
    a.max_grad_norm = 0.25;
    a.bf16 = true;
    a.learning_rate = 7e-4;
    a.weight_decay = 0.1;
    c = accepted("{optimizer: {type: \"AdamW\", params: {weight_decay: 0.1}}}", &a, 2);
    assert_int_equal(c.train_batch, 12);
    assert_true(c.clipping == 0.25 && c.optim.h.lr == 7e-4 && c.optim.h.weight_decay == 0.1);
    assert_int_equal(c.dtype, CKPT_BF16);
    c = accepted("{train_batch_size: 12}", &a, 2);
    assert_int_equal(c.accumulation, 2);
    a.given[ZT_ARG_ACCUMULATION] = false;
    a.gradient_accumulation_steps = 1;
    refused_args("{train_batch_size: 12, train_micro_batch_size_per_gpu: 6}", &a, CKPT_EUSAGE,
                 "train_micro_batch_size_per_gpu is 6");
    a.per_device_train_batch_size = 0;
    refused_args("{}", &a, CKPT_EUSAGE, "--per_device_train_batch_size");
}

static void auto_needs_what_it_is_made_of(void **state)
{
    static const char steps[] = "{scheduler: {type: \"WarmupDecayLR\", params: {total_num_steps: "
                                "\"auto\", warmup_num_steps: \"auto\"}}}";
    static const char part[] =
        "{scheduler: {type: \"WarmupLR\", params: {warmup_num_steps: \"auto\"}}}";
    static const char width[] = "{zero_optimization: {stage: 2, reduce_bucket_size: \"auto\", "
                                "stage3_prefetch_bucket_size: \"auto\"}}";
    zt_arguments a;
    zt_config c;

    (void)state;
    zt_arguments_default(&a);
    refused_args(steps, &a, CKPT_EUSAGE, "scheduler.params.total_num_steps|--max_steps");
    refused_args(width, &a, CKPT_EUSAGE, "zero_optimization.reduce_bucket_size|hidden_size");
    a.warmup_steps = 0.1;
    refused_args(part, &a, CKPT_EUSAGE, "warmup_num_steps|--max_steps");
    a.total_steps = 105;
    a.hidden_size = 50;
    assert_int_equal(accepted(steps, &a, 1).schedule.total, 105);
    assert_int_equal(accepted(part, &a, 1).schedule.warmup, 11);
    a.warmup_steps = 7.9;
    assert_int_equal(accepted(part, &a, 1).schedule.warmup, 7);
    c = accepted(width, &a, 1);
    assert_int_equal(c.reduce_bucket, 2500);
    assert_int_equal(c.prefetch_bucket, 50000000); // filled in stage 3 only
    assert_true(noted(&c, "stage3_prefetch_bucket_size is \"auto\""));
    refused("{train_batch_size: \"auto\"}", CKPT_EUSAGE, "train_batch_size|auto");
    refused("{train_batch_size: 2, optimizer: {type: \"Adam\", params: {lr: \"auto\"}}}",
            CKPT_EUSAGE, "optimizer.params.lr");
}

/* ---- every key of the tables ---- */

/* A configuration with one key of a block: world 2, and what the key may need around it. */
static const char *with_key(const ds_block *b, const char *key, const char *value)
{
    static char text[512];
    const char *dot = strchr(b->name, '.');

    if (dot) {
        (void)snprintf(text, sizeof text, "{train_batch_size: 4, \"%.*s\": {\"%s\": {\"%s\": %s}}}",
                       (int)(dot - b->name), b->name, dot + 1, key, value);
    } else if (b->name[0] != '\0') {
        (void)snprintf(text, sizeof text, "{train_batch_size: 4, \"%s\": {\"%s\": %s}}", b->name,
                       key, value);
    } else {
        const char *size = strcmp(key, "train_batch_size") == 0 ? "train_micro_batch_size_per_gpu"
                                                                : "train_batch_size";

        (void)snprintf(text, sizeof text, "{%s: 4, \"%s\": %s}", size, key, value);
    }
    return text;
}

static const char *fitting(ds_kind kind)
{
    return kind == DS_BOOL ? "true" : kind == DS_TREE ? "{\"a\": 1}" : "1";
}

static void check_off(const ds_block *b, const ds_key *k)
{
    char value[64] = "true";

    if (k->kind == DS_SWITCH) {
        (void)snprintf(value, sizeof value, "{\"%s\": true}", k->other);
        if (k->fate == DS_IDLE) {
            zt_config on = accepted(with_key(b, k->name, value), NULL, 2);
            assert_true(noted(&on, k->name) && noted(&on, k->why));
        } else {
            refused(with_key(b, k->name, value), CKPT_EUNSUPPORTED, k->name);
        }
        (void)snprintf(value, sizeof value, "{\"%s\": \"some\"}", k->other);
        refused(with_key(b, k->name, value), CKPT_EUSAGE, k->other);
        (void)snprintf(value, sizeof value, "{\"%s\": false}", k->other);
        zt_config c = accepted(with_key(b, k->name, value), NULL, 2);
        assert_true(noted(&c, k->name));
        return;
    }
    if (k->kind == DS_INT) {
        refused(with_key(b, k->name, "2"), CKPT_EUNSUPPORTED, k->name);
        (void)accepted(with_key(b, k->name, "1"), NULL, 2);
    } else if (k->kind == DS_BOOL) {
        refused(with_key(b, k->name, k->min > 0 ? "false" : "true"), CKPT_EUNSUPPORTED, k->name);
        (void)accepted(with_key(b, k->name, k->min > 0 ? "true" : "false"), NULL, 2);
    } else {
        refused(with_key(b, k->name, "{\"a\": 1}"), CKPT_EUNSUPPORTED, k->name);
        (void)accepted(with_key(b, k->name, "null"), NULL, 2);
    }
}

/* Wrong kinds are refused by name. */
static void check_kind(const ds_block *b, const ds_key *k)
{
    if (k->kind != DS_ANY)
        refused(with_key(b, k->name, "[1]"), CKPT_EUSAGE, k->name);
    if (k->kind == DS_INT || k->kind == DS_SIZE) {
        refused(with_key(b, k->name, "1.5"), CKPT_EUSAGE, k->name);
        refused(with_key(b, k->name, "true"), CKPT_EUSAGE, k->name);
        refused(with_key(b, k->name, "1e19"), CKPT_EUSAGE, k->name);
    }
    if (k->kind == DS_SIZE)
        refused(with_key(b, k->name, "-1"), CKPT_EUSAGE, k->name);
    if (k->kind == DS_REAL)
        refused(with_key(b, k->name, "Infinity"), CKPT_EUSAGE, k->name);
    if (k->kind == DS_BOOL || k->kind == DS_CHOICE)
        refused(with_key(b, k->name, "\"maybe\""), CKPT_EUSAGE, k->name);
}

static void check_block(const ds_block *b)
{
    for (size_t i = 0; i < b->n; i++) {
        const ds_key *k = &b->key[i];

        if (k->fate == DS_GONE) {
            refused(with_key(b, k->name, "false"), CKPT_EUNSUPPORTED, k->name);
            refused(with_key(b, k->name, "{}"), CKPT_EUNSUPPORTED, k->name);
        } else if (k->fate == DS_OFF || k->kind == DS_SWITCH) {
            check_off(b, k);
        } else {
            check_kind(b, k);
        }
        if (k->fate <= DS_IDLE && k->kind != DS_SWITCH && k->why) {
            zt_config c = accepted(with_key(b, k->name, fitting(k->kind)), NULL, 2);

            if (!noted(&c, k->name) || !noted(&c, k->why))
                fail_msg("%s: no note", k->name);
        }
        if (k->kind == DS_BLOCK)
            check_block(k->block);
    }
}

static void no_key_is_ignored_silently(void **state)
{
    zt_config c;

    (void)state;
    check_block(&ds_file);
    c = accepted("{train_batch_size: 2, gradient_cliping: 1, no_such: 2, aio: {thread_count: 1}}",
                 NULL, 2);
    assert_true(noted(&c, "gradient_cliping is not a known key"));
    assert_true(noted(&c, "did you mean gradient_clipping?"));
    assert_true(noted(&c, "no_such is not a known key"));
    assert_true(noted(&c, "aio.thread_count"));
    refused("{train_batch_size: 2, zero_optimization: {stagee: 1}}", CKPT_EUNSUPPORTED,
            "zero_optimization.stagee|did you mean stage?");
    refused("{train_batch_size: 2, zero_optimization: {offload_param: {pin: 1}}}",
            CKPT_EUNSUPPORTED, "zero_optimization.offload_param.pin");
}

/* Thousands of unknown keys cost a bounded number of notes. */
static void notes_are_bounded(void **state)
{
    static char text[200000];
    size_t n = (size_t)snprintf(text, sizeof text, "{\"train_batch_size\": 1");
    size_t notes = 0;
    zt_config c;

    (void)state;
    for (int i = 0; i < 10000; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, ",\"key%d\":0", i);
    (void)snprintf(text + n, sizeof text - n, "}");
    c = accepted(text, NULL, 1);
    while (c.notes[notes])
        notes++;
    assert_int_equal(notes, DS_NOTES);
}

/* ---- base64 ---- */

static void base64_is_read(void **state)
{
    static const struct {
        const char *plain, *coded;
    } cases[] = {{"f", "Zg=="},          {"fo", "Zm8="},           {"foo", "Zm9v"},
                 {"foobar", "Zm9vYmFy"}, {"\xfb\xff\xfe", "-__-"}, {"\xfb\xff\xfe", "+//+"}};
    static const char *const wrong[] = {"",         "Zg=",      "Zg",     "Zm9*",
                                        "Z===",     "====",     "Zm9v\n", "Zm9v  \n ",
                                        " Zm9vYg=", "Zg==Zm9v", "Z=g=",   "Zm9v\xc3\xa4YQ"};
    size_t n = 99;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t length = strlen(cases[i].plain);

        const char *plain = ds_unbase64(arena, cases[i].coded, &n);

        assert_int_equal(n, length);
        assert_memory_equal(plain, cases[i].plain, length);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_null(ds_unbase64(arena, wrong[i], &n));
}

/* ---- memory ---- */

static void memory_runs_out(void **state)
{
    static const char text[] =
        "{train_batch_size: \"auto\", no_such: 1, optimizer: {type: \"Adam\", params: {lr: "
        "\"auto\", betas: \"auto\"}}, zero_optimization: {stage: 2, overlap_comm: null}}";
    zt_arguments a;
    uint64_t n = 0;
    int rc = CKPT_ELIMIT;

    (void)state;
    zt_arguments_default(&a);
    a.save_on_each_node = true;
    for (; rc != CKPT_OK; n++) {
        ckpt_arena *own = ckpt_arena_new(0);
        ckpt_value *json = NULL;
        ckpt_err err = {0};
        zt_config c;

        ckpt_alloc_fail_at(n);
        rc = zt_hjson_parse(&json, own, text, sizeof text - 1, "t", &err);
        rc = rc == CKPT_OK ? zt_config_parse(&c, own, json, &a, 2, &err) : rc;
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
        ckpt_arena_free(own);
        assert_true(n < 200);
    }
    assert_true(n > 3);
}

/* The arena runs out: every allocation of the configuration itself, one after the other. */
static void arenas_run_out(void **state)
{
    int rc = CKPT_ELIMIT;

    (void)state;
    for (uint64_t limit = 4096; rc != CKPT_OK; limit += 512) {
        ckpt_arena *own = ckpt_arena_new(limit);
        ckpt_err err = {0};
        ckpt_value *json = NULL;
        zt_arguments a;
        zt_config c;

        zt_arguments_default(&a);
        rc = zt_hjson_parse(&json, own, "{x: 1}", 6, "t", &err);
        rc = rc == CKPT_OK ? zt_config_parse(&c, own, json, &a, 1, &err) : rc;
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
        ckpt_arena_free(own);
        assert_true(limit < (UINT64_C(1) << 24));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_given_arguments_disagree),
        TEST(arguments_stand_for_missing_keys),
        TEST(auto_needs_what_it_is_made_of),
        TEST(no_key_is_ignored_silently),
        TEST(notes_are_bounded),
        TEST(base64_is_read),
        TEST(memory_runs_out),
        TEST(arenas_run_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
