/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_options.c: what a run is told: the command line, files of options, what goes together.
 */
#include <unistd.h>

#include "tests/unit/unit.h"
#include "tools/zerotrain/zerotrain.h"

#define MAX_ARGS 16

static ckpt_arena *arena;
static ckpt_err err;

static told last;

/* Options from a command line in one text, split at blanks. */
static int read_line(zt_options *o, const char *line)
{
    char *argv[MAX_ARGS] = {ckpt_arena_string(arena, "zerotrain", 9)};
    int argc = 1;

    while (*line && argc < MAX_ARGS) {
        size_t n = strcspn(line, " ");
        argv[argc++] = ckpt_arena_string(arena, line, n);
        line += n + (line[n] == ' ');
    }
    err = (ckpt_err){0};
    int rc = options_read(&last, arena, argc, argv, &err);
    *o = last.run;
    return rc;
}

static void refused(const char *line, const char *why)
{
    zt_options o;

    assert_int_equal(read_line(&o, line), CKPT_EUSAGE);
    if (!strstr(err.text, why))
        fail_msg("'%s': '%s' lacks '%s'", line, err.text, why);
}

static void test_defaults(void **state)
{
    zt_options o;

    (void)state;
    assert_int_equal(read_line(&o, ""), CKPT_OK);
    assert_string_equal(o.groups, "single");
    assert_string_equal(o.device, "cpu");
    assert_int_equal(o.seed, 42);
    assert_int_equal(last.local_rank, -1);
    assert_true(o.lora_alpha > 15.9 && o.lora_alpha < 16.1);
    assert_int_equal(o.args.per_device_train_batch_size, 8);
    for (size_t i = 0; i < sizeof o.args.given; i++)
        assert_false(o.args.given[i]);
}

static void test_spellings(void **state)
{
    zt_options o;

    (void)state;
    assert_int_equal(read_line(&o, "--max_steps=7 --deepspeed-config a=b --save d --save_every 2 "
                                   "--seed -3 --learning-rate 1e-3 --bf16 --warmup_steps 0.1"),
                     CKPT_OK);
    assert_int_equal(o.max_steps, 7);
    assert_string_equal(o.config, "a=b");
    assert_int_equal(o.save_every, 2);
    assert_int_equal(o.seed, -3);
    assert_true(o.args.given[ZT_ARG_LR] && o.args.given[ZT_ARG_BF16] && o.args.bf16);
    assert_true(o.args.given[ZT_ARG_WARMUP]);
    assert_false(o.args.given[ZT_ARG_FP16] || o.args.given[ZT_ARG_MICRO_BATCH]);
}

static void test_refused(void **state)
{
    (void)state;
    refused("--nothing 1", "unknown option '--nothing'");
    refused("model", "unexpected argument 'model'");
    refused("--max-steps", "needs a value");
    refused("--max-steps 1e3", "whole number");
    refused("--max-steps 99999999999999999999", "whole number");
    refused("--max-steps -2", "at least 1 update, or -1");
    refused("--save-every -1", "of at least 0");
    refused("--epochs 1 --num_train_epochs 2", "the same setting");
    refused("--keep=-2 --save d", "of at least 0");
    refused("--lora-alpha x", "is not a number");
    refused("--lora-alpha inf", "is not a number");
    refused("--profile=1", "takes no value");
    refused("--max", "ambiguous option '--max'");
    refused("--max-step 3", "did you mean --max-steps?");
    refused("--max-step=3", "unknown option '--max-step'");
    refused("--deepspeed_conf f", "unknown option '--deepspeed-conf'");
}

/* Options that would do nothing. */
static void test_together(void **state)
{
    zt_options o;

    (void)state;
    refused("--save-every 2", "--save-every needs --save");
    refused("--keep 2", "--save");
    refused("--async-save", "--save");
    refused("--tag a", "--save");
    refused("--load-tag a", "--load");
    refused("--module-only", "--load");
    refused("--eval-every 5 --data d", "--eval-data");
    refused("--lora-targets query", "--lora-rank");
    refused("--lora-dropout 0.1", "--lora-rank");
    refused("--evaluate --predict p", "--evaluate");
    assert_int_equal(read_line(&o, "--not-strict --init i --lora-rank 2 --lora-targets q"),
                     CKPT_OK);
    assert_int_equal(read_line(&o, "--keep 0 --help --tag a"), CKPT_OK); // help comes first
}

static const char *file_of(const char *text)
{
    static char path[] = "/tmp/ckpt_options_XXXXXX";
    static bool made;
    FILE *f;

    if (!made) {
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        close(fd);
        made = true;
    }
    f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    return path;
}

static int read_args(zt_options *o, const char *text)
{
    char line[128];

    snprintf(line, sizeof line, "--args %s", file_of(text));
    return read_line(o, line);
}

static void test_files(void **state)
{
    static const char *const bad[] = {"{\"bogus\": 1}",      "{\"args\": \"x\"}", "{\"bf16\": 1}",
                                      "{\"data\": true}",    "{\"tag\": [1]}",    "{\"keep\": 1.5}",
                                      "{\"save_every\": -2}"};
    zt_options o;

    (void)state;
    assert_int_equal(read_args(&o, "{\"max_steps\": 9, \"learning-rate\": 3e-4, \"bf16\": true,\n"
                                   " \"profile\": false, \"tag\": 12, \"save\": \"d\",\n"
                                   " \"metrics\": null}"),
                     CKPT_OK);
    assert_int_equal(o.max_steps, 9);
    assert_true(o.args.learning_rate > 2.9e-4 && o.args.learning_rate < 3.1e-4);
    assert_true(o.args.bf16 && !o.profile && !last.metrics);
    assert_string_equal(o.tag, "12");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(read_args(&o, bad[i]), CKPT_EUSAGE);
        assert_non_null(strstr(err.text, "ckpt_options_")); // says which file
    }
    assert_int_equal(read_args(&o, "[]"), CKPT_EFORMAT);
    assert_int_equal(read_line(&o, "--args /nonexistent/a.json"), CKPT_EMISSING);
    unlink(file_of(""));
}

static int setup(void **state)
{
    (void)state;
    arena = ckpt_arena_new(0);
    return arena ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    ckpt_arena_free(arena);
    return 0;
}

/* The lines of a command line. */
static const char *lines_of(const char *line)
{
    zt_options o;

    assert_int_equal(read_line(&o, line), CKPT_OK);
    return o.alike;
}

/* What must be the same on all ranks shows in the lines; a rank's own paths and devices do not. */
static void test_lines(void **state)
{
    static const char *const counts[] = {"--seed 3",
                                         "--max-steps 3",
                                         "--epochs 2",
                                         "--save d --keep 2",
                                         "--save d --async-save",
                                         "--save d --save-every 2",
                                         "--save d",
                                         "--load d",
                                         "--load d --load-tag t",
                                         "--load d --module-only",
                                         "--init f --not-strict",
                                         "--init f",
                                         "--data f",
                                         "--eval-data f",
                                         "--eval-data f --eval-every 2",
                                         "--evaluate",
                                         "--predict f",
                                         "--save-weights f",
                                         "--save-model d",
                                         "--param-groups decay",
                                         "--freeze x",
                                         "--lora-rank 2",
                                         "--lora-alpha 2",
                                         "--lora-rank 2 --lora-dropout 0.5",
                                         "--dropout",
                                         "--activation-checkpointing",
                                         "--seq 9",
                                         "--cased",
                                         "--token-dtype uint32",
                                         "--no-shuffle",
                                         "--deterministic",
                                         "--print-config",
                                         "--wait-limit 9",
                                         "--learning_rate 0.5",
                                         "--bf16"};
    static const char *const own[] = {
        "--deepspeed_config f", "--model f",      "--vocab f", "--metrics f", "--threads 3",
        "--device cuda",        "--local_rank 1", "--quiet",   "--profile",   "--hostfile h"};
    const char *none = lines_of("");

    (void)state;
    assert_string_equal(lines_of("--data f --seed 3"), lines_of("--seed=3 --data g"));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (strcmp(lines_of(counts[i]), none) == 0)
            fail_msg("%s does not count", counts[i]);
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        assert_string_equal(lines_of(own[i]), none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_together),
        cmocka_unit_test(test_files),    cmocka_unit_test(test_lines),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
