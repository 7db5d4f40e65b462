/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_evaluate.c: a whole run in one process: means of an evaluation whatever the micro batch,
 * predictions, labels that count for nothing, saving and going on.
 */
#include <math.h>
#include <unistd.h>

#include "engine/inside.h"
#include "tests/unit/unit.h"
#include "tools/zerotrain/zerotrain.h"

#define FIXTURE "tests/fixtures/sentiment"

static char folder[] = "/tmp/ckpt_evaluate_XXXXXX";
static ckpt_arena *arena;
static zt_comm *comm;
static ckpt_err err;

static told last;

/* An engine from a command line in one text. */
static int engine_of(zt_engine **e, zt_options *o, const char *line)
{
    char *argv[32] = {ckpt_arena_string(arena, "zerotrain", 9)};
    int argc = 1, rc;

    while (*line && argc < 32) {
        size_t n = strcspn(line, " ");
        argv[argc++] = ckpt_arena_string(arena, line, n);
        line += n + (line[n] == ' ');
    }
    *e = NULL;
    err = (ckpt_err){0};
    rc = options_read(&last, arena, argc, argv, &err);
    *o = last.run;
    return rc == CKPT_OK ? zt_engine_new(e, o, comm, &err) : rc;
}

static const char *config_of(int64_t micro)
{
    char *path = ckpt_arena_printf(arena, "%s/ds%d.json", folder, (int)micro);
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fprintf(f,
            "{train_batch_size: 24, train_micro_batch_size_per_gpu: %d, zero_optimization: {stage: "
            "2}, optimizer: {type: \"AdamW\", params: {lr: 0.001}}}\n",
            (int)micro);
    assert_int_equal(fclose(f), 0);
    return path;
}

static const char *line_of(int64_t micro, const char *more)
{
    return ckpt_arena_printf(
        arena, "--deepspeed_config %s --model " FIXTURE " --threads 1 --quiet --seq 24 %s",
        config_of(micro), more);
}

static zt_score score_of(int64_t micro, const char *data)
{
    const char *more =
        ckpt_arena_printf(arena, "--evaluate --eval-data %s --init %s/first", data, folder);
    zt_options o;
    zt_engine *e;
    zt_score s;

    assert_int_equal(engine_of(&e, &o, line_of(micro, more)), CKPT_OK);
    assert_int_equal(zt_engine_evaluate(e, &s, &err), CKPT_OK);
    zt_engine_free(e);
    return s;
}

/* The last batch is smaller: the mean is that over samples, not over batches. */
static void test_means(void **state)
{
    zt_score all = score_of(24, FIXTURE "/eval.tsv");

    (void)state;
    assert_int_equal(all.samples, 166);
    for (int64_t micro = 1; micro <= 8; micro += 7) {
        zt_score s = score_of(micro, FIXTURE "/eval.tsv");
        assert_int_equal(s.samples, 166);
        assert_true(fabs(s.loss - all.loss) < 1e-6);
        assert_true(fabs(s.accuracy - all.accuracy) < 1e-12);
    }
}

static void test_unlabelled(void **state)
{
    const char *path = ckpt_arena_printf(arena, "%s/text.tsv", folder);
    FILE *f = fopen(path, "w");
    zt_options o;
    zt_engine *e;

    (void)state;
    assert_non_null(f);
    fputs("text\n天气好\n下雨了\n", f);
    assert_int_equal(fclose(f), 0);
    path = ckpt_arena_printf(arena, "--evaluate --data %s", path);
    assert_int_equal(engine_of(&e, &o, line_of(24, path)), CKPT_EMISSING);
    assert_non_null(strstr(err.text, "labels"));
}

/* Labels of the file, in order. */
static size_t classes_of(const zt_engine *e, int32_t *out, size_t room)
{
    size_t n = 0;

    for (uint64_t i = 0; i < zt_data_batches(e->data); i++) {
        zt_batch b;
        assert_int_equal(zt_data_batch(e->data, i, &b, &err), CKPT_OK);
        for (uint64_t k = 0; k < b.batch && n < room; k++)
            out[n++] = b.labels[k];
    }
    return n;
}

/* Every sample has its line, in order; the classes are right as often as the evaluation says. */
static void test_predictions(void **state)
{
    zt_score all = score_of(24, FIXTURE "/eval.tsv");
    const char *path = ckpt_arena_printf(arena, "%s/p.jsonl", folder);
    const char *more = ckpt_arena_printf(
        arena, "--predict %s --data " FIXTURE "/eval.tsv --init %s/first", path, folder);
    int32_t label[200];
    char text[1024];
    size_t n, at = 0, right = 0;
    zt_options o;
    zt_engine *e;
    FILE *f;

    (void)state;
    assert_int_equal(engine_of(&e, &o, line_of(8, more)), CKPT_OK);
    n = classes_of(e, label, 200);
    assert_int_equal(zt_engine_predict(e, path, &err), CKPT_OK);
    zt_engine_free(e);
    f = fopen(path, "r");
    assert_non_null(f);
    for (; fgets(text, sizeof text, f); at++) {
        int sample = -1, class = -1;
        assert_int_equal(sscanf(text, "{\"sample\": %d, \"class\": %d,", &sample, &class), 2);
        assert_int_equal(sample, at);
        assert_true(at < n);
        right += class == label[at];
        assert_non_null(strstr(text, "\"name\": \"")); // of id2label
    }
    fclose(f);
    assert_int_equal(n, 166);
    assert_int_equal(at, n);
    assert_true(fabs((double)right / (double)n - all.accuracy) < 1e-12);
}

/* Losses of a run's metrics. */
static size_t losses_of(const char *path, double *out, size_t room)
{
    FILE *f = fopen(path, "r");
    char text[1024];
    size_t n = 0;

    assert_non_null(f);
    while (n < room && fgets(text, sizeof text, f)) {
        const char *at = strstr(text, "\"loss\": ");
        assert_non_null(at);
        out[n++] = strtod(at + 8, NULL);
    }
    fclose(f);
    return n;
}

static void train(int64_t micro, const char *more)
{
    zt_options o;
    zt_engine *e;

    assert_int_equal(engine_of(&e, &o, line_of(micro, more)), CKPT_OK);
    assert_int_equal(run_train(e, &last, &err), CKPT_OK);
    zt_engine_free(e);
}

/* Stopped after 4 of 8 updates, over the end of an epoch, and gone on with another accumulation. */
static void test_resume(void **state)
{
    const char *whole = ckpt_arena_printf(arena, "%s/whole", folder);
    const char *parts = ckpt_arena_printf(arena, "%s/parts", folder);
    double a[16], b[16];

    (void)state;
    train(24, ckpt_arena_printf(arena, "--data " FIXTURE "/eval.tsv --max-steps 8 --metrics %s",
                                whole));
    train(8, ckpt_arena_printf(
                 arena, "--data " FIXTURE "/eval.tsv --max-steps 4 --metrics %s --save %s/run",
                 parts, folder));
    train(24, ckpt_arena_printf(
                  arena, "--data " FIXTURE "/eval.tsv --max-steps 8 --metrics %s --load %s/run",
                  parts, folder));
    assert_int_equal(losses_of(whole, a, 16), 8);
    assert_int_equal(losses_of(parts, b, 16), 8);
    for (size_t i = 0; i < 8; i++)
        assert_true(fabs(a[i] - b[i]) < 1e-5);
}

/* --epochs counts samples, not what fills batches of each epoch. */
static void test_epochs(void **state)
{
    const char *path = ckpt_arena_printf(arena, "%s/epochs", folder);
    double a[32];

    (void)state;
    train(24,
          ckpt_arena_printf(arena, "--data " FIXTURE "/eval.tsv --epochs 2 --metrics %s", path));
    assert_int_equal(losses_of(path, a, 32), 2 * 166 / 24);
}

static int setup(void **state)
{
    (void)state;
    arena = ckpt_arena_new(0);
    if (!arena || !mkdtemp(folder) || zt_comm_self(&comm, &err) != CKPT_OK)
        return -1;
    // weights to evaluate
    train(24, ckpt_arena_printf(arena,
                                "--data " FIXTURE "/eval.tsv --max-steps 1 --save-model %s/first",
                                folder));
    return 0;
}

static int teardown(void **state)
{
    char command[300];

    (void)state;
    zt_comm_free(comm);
    ckpt_arena_free(arena);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_means),       cmocka_unit_test(test_unlabelled),
        cmocka_unit_test(test_predictions), cmocka_unit_test(test_resume),
        cmocka_unit_test(test_epochs),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
