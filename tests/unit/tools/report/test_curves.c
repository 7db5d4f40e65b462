/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_curves.c: checks the records of metrics files, their limits, and how the picture reduces
 * many points.
 */
#include <math.h>

#include "tests/unit/libckpt/help.h"
#include "tests/unit/tools/report/help.h"
#include "tools/report/draw.h"

static char folder[FOLDER_PATH];
static curves c;
static ckpt_err err;

static int read_text(const char *text)
{
    curves_free(&c);
    err = (ckpt_err){0};
    folder_text(folder, "metrics.jsonl", text);
    return curves_read(&c, folder_at(folder, "metrics.jsonl"), &err);
}

static void reads(const char *text)
{
    if (read_text(text) != CKPT_OK)
        fail_msg("%s: %s", text, err.text);
}

static void refuses(const char *text, const char *why)
{
    assert_int_equal(read_text(text), CKPT_EFORMAT);
    has(err.text, why);
    has(err.text, "metrics.jsonl");
}

static void test_lines(void **state)
{
    const curve *loss = &c.of[CURVE_LOSS];

    (void)state;
    reads("{\"step\": 1, \"loss\": 2.5, \"lr\": 1e-3, \"extra\": {\"step\": 9, \"loss\": [1]}}\n"
          "{\"loss\": 1.5, \"step\": 2, \"skipped\": true, \"loss_scale\": 65536}\n"
          "{\"note\": \"no number\"}\n"
          "{\"step\": 3, \"eval_loss\": -1, \"grad_norm\": 0}\n");
    assert_int_equal(c.n_records, 3);
    assert_int_equal(c.n_skipped, 1);
    assert_int_equal(c.first, 1);
    assert_int_equal(c.last, 3);
    assert_int_equal(loss->n, 2);
    assert_int_equal(loss->at[1].step, 2);
    assert_true(loss->at[0].value == 2.5 && loss->least == 1.5 && loss->most == 2.5);
    assert_int_equal(c.of[CURVE_LR].n, 1);
    assert_int_equal(c.of[CURVE_LOSS_SCALE].n, 1);
    assert_true(c.of[CURVE_EVAL_LOSS].most == -1);
    assert_true(c.of[CURVE_GRAD_NORM].least == 0);
}

static void test_trainer(void **state)
{
    (void)state;
    reads(
        "{\"best\": null, \"log_history\": [\n {\"step\": 10, \"learning_rate\": 0.5},\n 7, [1],\n"
        " {\"step\": 20, \"loss\": 1, \"log_history\": [{\"loss\": 3}]}\n], \"step\": 30}");
    assert_int_equal(c.n_records, 2);
    assert_int_equal(c.of[CURVE_LR].n, 1);
    assert_int_equal(c.of[CURVE_LOSS].n, 1); // a record has no list of records
    assert_int_equal(c.last, 20);
}

static void test_gaps(void **state)
{
    const curve *loss = &c.of[CURVE_LOSS];

    (void)state;
    reads("{\"step\": 1, \"loss\": null}{\"step\": 2, \"loss\": NaN}\n"
          "{\"step\": 3, \"loss\": -5}{\"step\": 4, \"loss\": Infinity}{\"step\": 5, \"loss\": 7}");
    assert_int_equal(loss->n, 5);
    assert_int_equal(loss->n_gaps, 3);
    assert_true(loss->least == -5 && loss->most == 7);
    reads("{\"step\": 1, \"loss\": 1e999}"); // beyond a double
    assert_int_equal(loss->n_gaps, 1);
}

static void test_resumed(void **state)
{
    (void)state;
    reads("{\"step\": 1, \"loss\": 1}{\"step\": 5, \"loss\": 1}{\"step\": 3, \"loss\": 1}"
          "{\"step\": 4, \"loss\": 1}{\"step\": 2, \"lr\": 1}");
    assert_int_equal(c.n_back, 2); // steps below 5; only those with a loss count
    assert_int_equal(c.first, 1);
    assert_int_equal(c.last, 5);
    reads("{\"step\": -3, \"loss\": 1}{\"step\": -3, \"loss\": 1}");
    assert_int_equal(c.n_back, 0);
    assert_int_equal(c.first, -3);
    assert_int_equal(c.last, -3);
}

static void test_refused(void **state)
{
    (void)state;
    refuses("", "no record has a loss");
    refuses("{\"step\": 1}", "no record has a loss");
    refuses("[{\"step\": 1, \"loss\": 1}]", "line 1: expected an object, found a list");
    refuses("7", "expected an object, found a number");
    refuses("\n\n{\"loss\": 1}", "line 3: a record has a loss, but no \"step\"");
    refuses("{\"step\": 1.5, \"loss\": 1}", "no \"step\" that is a whole number");
    refuses("{\"step\": \"1\", \"loss\": 1}", "no \"step\" that is a whole number");
    refuses("{\"step\": 1e16, \"loss\": 1}", "no \"step\" that is a whole number");
    refuses("{\"step\": NaN, \"loss\": 1}", "no \"step\" that is a whole number");
    refuses("{\"step\": 1,\n \"loss\": \"1\"}", "the value of \"loss\" is a string, not a number");
    refuses("{\"step\": 1, \"lr\": [1]}", "is a list, not a number");
    refuses("{\"step\": 1, \"lr\": true}", "is true, not a number");
    refuses("{\"log_history\": 7}", "\"log_history\" is a number, not a list");
    refuses("{\"step\": 1, \"loss\": 1}\n{\"step\": 2, \"loss\"", "line 2: the file ends");
    refuses("{\"step\": 1, \"loss\": 1}\n{\"step\" 2}", "line 2: not JSON");
    refuses("{\"step\": 1, \"loss\": 01}", "not JSON");
    refuses("{\"step\": 1, \"loss\": 1,}", "expected a key");
    curves_free(&c);
    err = (ckpt_err){0};
    assert_int_equal(curves_read(&c, folder_at(folder, "none"), &err), CKPT_EMISSING);
    curves_free(&c);
}

/* JSON values nested deeper than the limit. */
static void test_depth(void **state)
{
    char text[400] = "{\"step\": 1, \"loss\": 1, \"x\": ";

    (void)state;
    size_t n = strlen(text), deep = 63; // the record itself is the first level
    memset(text + n, '[', deep);
    memset(text + n + deep, ']', deep);
    strcpy(text + n + 2 * deep, "}");
    reads(text);
    deep = 64;
    memset(text + n, '[', deep);
    memset(text + n + deep, ']', deep);
    strcpy(text + n + 2 * deep, "}");
    assert_int_equal(read_text(text), CKPT_ELIMIT);
}

static void test_beside(void **state)
{
    char *path;

    (void)state;
    folder_text(folder, "metrics.jsonl", "x");
    assert_int_equal(mkdir(folder_at(folder, "tag"), 0700), 0);
    folder_text(folder, "tag/file", "x");
    path = curves_beside(folder);
    has(path, "/metrics.jsonl");
    free(path);
    // the folder above, of a folder or of a file
    path = curves_beside(folder_at(folder, "tag"));
    has(path, "/tag/../metrics.jsonl");
    free(path);
    path = curves_beside(folder_at(folder, "tag/file"));
    has(path, "/tag/../metrics.jsonl");
    free(path);
    // the trainer's file comes first
    folder_text(folder, "tag/trainer_state.json", "x");
    path = curves_beside(folder_at(folder, "tag/"));
    has(path, "/tag/trainer_state.json");
    free(path);
    folder_remove(folder_at(folder, "tag"));
    (void)unlink(folder_at(folder, "metrics.jsonl"));
    assert_null(curves_beside(folder));
}

/* ---- the picture ---- */

/* Draw n losses, of which one is much higher and one much lower than the others. */
static char *drawn(size_t n)
{
    sheet_memory m;
    curve_point *at = calloc(n, sizeof *at);

    assert_non_null(at);
    for (size_t i = 0; i < n; i++)
        at[i] = (curve_point){(int64_t)i, i == n / 3 ? 90 : i == n / 2 ? -10 : 5};
    curves all = {.first = 0, .last = (int64_t)n - 1, .n_records = n};
    all.of[CURVE_LOSS] = (curve){.at = at, .n = n, .least = -10, .most = 90};
    sheet_memory_begin(&m);
    draw_curves(&m.s, &all, false);
    free(at);
    return sheet_memory_end(&m);
}

/* Points of the line, and the lowest and the highest of its vertical positions. */
static size_t points(const char *text, double *top, double *foot)
{
    const char *p = strstr(text, "class=\"curve\" d=\"");
    size_t n = 0;

    assert_non_null(p);
    *top = 1e9;
    *foot = -1e9;
    for (p += strlen("class=\"curve\" d=\""); *p == 'M' || *p == 'L'; n++) {
        char *end;
        (void)strtod(p + 1, &end);
        double y = strtod(end, &end);
        *top = y < *top ? y : *top;
        *foot = y > *foot ? y : *foot;
        p = end;
    }
    assert_int_equal(*p, '"');
    return n;
}

static void test_reduction(void **state)
{
    double top[2], foot[2];
    char *all = drawn(800), *many = drawn(100003);

    (void)state;
    assert_int_equal(points(all, &top[0], &foot[0]), 800); // each point by itself
    // two for each bucket, and the peaks stay
    size_t n = points(many, &top[1], &foot[1]);
    assert_true(n > 800 && n <= 1600);
    assert_true(foot[0] - top[0] > 100);
    assert_true(fabs(top[0] - top[1]) < 0.11 && fabs(foot[0] - foot[1]) < 0.11);
    free(all);
    free(many);
}

static void test_single_point(void **state)
{
    curve_point at[] = {{4, 1}, {5, (double)NAN}};
    curves one = {.first = 4, .last = 5, .n_records = 2};
    sheet_memory m;
    char *text;

    (void)state;
    one.of[CURVE_LOSS] = (curve){.at = at, .n = 2, .n_gaps = 1, .least = 1, .most = 1};
    sheet_memory_begin(&m);
    draw_curves(&m.s, &one, false);
    text = sheet_memory_end(&m);
    has(text, "<circle"); // one point makes no line
    has(text, "red: 1 step is not finite");
    has(text, "step 5: not finite");
    assert_null(strstr(text, "nan"));
    free(text);
}

static int setup(void **state)
{
    (void)state;
    folder_new(folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    curves_free(&c);
    folder_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),        cmocka_unit_test(test_trainer),
        cmocka_unit_test(test_gaps),         cmocka_unit_test(test_resumed),
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_depth),
        cmocka_unit_test(test_beside),       cmocka_unit_test(test_reduction),
        cmocka_unit_test(test_single_point),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
