/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_together.c: whole conversions, proofs and comparisons by processes that work as one, against
 * one process alone.  Under ThreadSanitizer it shows what the threads of such a process do to each
 * other.
 */
#define _GNU_SOURCE // MAP_ANONYMOUS
#include "ckpt_extra.h"
#include "tests/unit/copy/help_mail.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"

/* What each process of a test does; result: an output, or where rank 0 writes what it was told. */
typedef struct job {
    int (*fn)(const struct job *job, ckpt_err *err);
    char source[FOLDER_PATH], other[FOLDER_PATH];
    ckpt_target target;
    char result[FOLDER_PATH];
} job;

static char folder[FOLDER_PATH];

static void fixture(char out[FOLDER_PATH], const char *name)
{
    const char *fixtures = getenv("CKPT_FIXTURES");

    folder_join(out, fixtures ? fixtures : "tests/fixtures", name);
}

/* What a process does, from joining to leaving. */
static int life(void *ctx)
{
    const job *j = ctx;
    const ckpt_mail mail = mail_mine();
    ckpt_err err = {0};
    int rc = ckpt_team_join(&mail, 30, &err);

    if (rc == CKPT_OK)
        rc = j->fn(j, &err);
    rc = ckpt_team_leave(rc, &err);
    if (rc != CKPT_OK && rc != CKPT_EDIFFERS)
        (void)fprintf(stderr, "rank %u: %s\n", mail.rank, err.text);
    return ckpt_err_status(rc);
}

/* Files of two folders, or two files: the same bytes under the same names. */
static void same(const char *a, const char *b)
{
    static char in_a[1 << 20], in_b[1 << 20];
    struct stat st;
    struct dirent *e;
    DIR *dir;
    int n_a = 0, n_b = 0;

    assert_int_equal(stat(a, &st), 0);
    if (S_ISREG(st.st_mode)) {
        size_t n = folder_read(a, in_a, sizeof in_a);

        assert_true(n > 0 && n < sizeof in_a);
        assert_int_equal(folder_read(b, in_b, sizeof in_b), n);
        assert_memory_equal(in_a, in_b, n);
        return;
    }
    dir = opendir(a);
    assert_non_null(dir);
    while ((e = readdir(dir))) {
        char sub_a[FOLDER_PATH], sub_b[FOLDER_PATH];

        n_a++;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        folder_join(sub_a, a, e->d_name);
        folder_join(sub_b, b, e->d_name);
        same(sub_a, sub_b);
    }
    (void)closedir(dir);
    dir = opendir(b);
    assert_non_null(dir);
    while (readdir(dir))
        n_b++;
    (void)closedir(dir);
    assert_int_equal(n_a, n_b);
}

/* A job by one process and by three: all end with the same status, and what it leaves is the same. */
static void compare(job *j, int status)
{
    char one[FOLDER_PATH];
    int ends[MAIL_MAX];

    // of one name: that of an archive's folder is made of it
    assert_int_equal(mkdir(folder_at(folder, "1"), 0777), 0);
    assert_int_equal(mkdir(folder_at(folder, "3"), 0777), 0);
    folder_join(one, folder, "1/out");
    for (unsigned n = 1; n <= 3; n += 2) {
        folder_join(j->result, folder, n == 1 ? "1/out" : "3/out");
        j->target.path = j->result;
        mail_run(n, life, j, ends);
        for (unsigned i = 0; i < n; i++)
            assert_int_equal(ends[i], status);
    }
    same(one, j->result);
    folder_remove(folder_at(folder, "1"));
    folder_remove(folder_at(folder, "3"));
}

/* ---- conversions ---- */

static int convert(const job *j, ckpt_err *err)
{
    const ckpt_open_opts opts = {.with_optimizer = true};
    const ckpt_run_opts run = {.jobs = 2};
    ckpt_run_report report = {.size = sizeof report};
    ckpt_map *map = NULL;
    int rc = ckpt_open(&map, j->source, &opts, err);

    if (rc == CKPT_OK)
        rc = ckpt_convert(map, &j->target, &run, &report, err);
    if (rc == CKPT_OK && ckpt_team_size() > 1 && report.n_written < report.n_elems)
        rc = CKPT_EFORMAT; // not the sum of all
    ckpt_map_free(map);
    return rc;
}

static void conversions(void **state)
{
    static const struct {
        const char *source;
        ckpt_target target;
    } all[] = {
        {"z3_bf16_w5_odd/ckpt", {.format = "safetensors"}},
        {"z3_bf16_w5_odd/ckpt", {.format = "hf", .dtype = CKPT_BF16, .max_shard_size = 8000}},
        {"z3_bf16_w5_odd/ckpt", {.format = "zero", .world = 3}},
        {"z1_bf16_w3_groups/ckpt", {.format = "torch"}},
        {"z2_bf16_w2_aligned/ckpt", {.format = "universal"}},
        {"dcp_plain_w2/ckpt", {.format = "dcp", .world = 3}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        job j = {.fn = convert, .target = all[i].target};

        fixture(j.source, all[i].source);
        compare(&j, 0);
    }
}

/* ---- proofs and comparisons ---- */

static int heard(void *ctx, int severity, int code, const char *text)
{
    FILE *f = ctx;

    return f && fprintf(f, "%d %d %s\n", severity, code, text) < 0;
}

/* Where rank 0 writes what it is told; the others are told the same. */
static FILE *ear(const job *j)
{
    return ckpt_team_rank() == 0 ? fopen(j->result, "w") : NULL;
}

static int verify(const job *j, ckpt_err *err)
{
    FILE *f = ear(j);
    ckpt_run_report report = {.size = sizeof report};
    const ckpt_verify_opts opts = {.finding = heard, .finding_ctx = f};
    int rc = ckpt_verify(j->source, &opts, &report, err);

    if (f)
        (void)fprintf(f, "%d: %llu elements, %llu records\n", rc,
                      (unsigned long long)report.n_elems,
                      (unsigned long long)report.n_records_checked);
    if (f)
        (void)fclose(f);
    return rc;
}

static int differs(void *ctx, const ckpt_difference *d)
{
    FILE *f = ctx;

    return f &&
           fprintf(f, "%s %s %llu\n", d->what, d->name, (unsigned long long)d->n_different) < 0;
}

static int group(void *ctx, const ckpt_diff_group *g)
{
    FILE *f = ctx;

    // sums are equal to the last bit
    return f && fprintf(f, "%s %llu %llu %a %a %a\n", g->name, (unsigned long long)g->n_tensors,
                        (unsigned long long)g->n_different, g->relative_error, g->cosine,
                        g->max_abs) < 0;
}

static int diff_as(const job *j, ckpt_diff_group_fn fn, ckpt_err *err)
{
    const ckpt_diff_opts opts = {.size = sizeof opts, .ignore_dtype = true, .group = fn};
    ckpt_map *a = NULL, *b = NULL;
    FILE *f = ear(j);
    int rc = ckpt_open(&a, j->source, NULL, err);

    if (rc == CKPT_OK)
        rc = ckpt_open(&b, j->other, NULL, err);
    if (rc == CKPT_OK)
        rc = ckpt_diff(a, b, &opts, differs, f, err);
    if (f)
        (void)fprintf(f, "%d\n", rc);
    if (f)
        (void)fclose(f);
    ckpt_map_free(a);
    ckpt_map_free(b);
    return rc;
}

static int diff(const job *j, ckpt_err *err)
{
    return diff_as(j, NULL, err);
}

static int diff_sums(const job *j, ckpt_err *err)
{
    return diff_as(j, group, err);
}

static void proofs(void **state)
{
    job j = {.fn = verify};

    (void)state;
    fixture(j.source, "z3_bf16_w5_odd/ckpt");
    compare(&j, 0);
    fixture(j.source, "bad/ds/ds_bitflip");
    compare(&j, ckpt_err_status(CKPT_EFORMAT));
    fixture(j.source, "bad/ds/ds_nan");
    compare(&j, 0);
}

static void comparisons(void **state)
{
    job j = {.fn = diff};

    (void)state;
    fixture(j.source, "z3_bf16_w5_odd/ckpt");
    fixture(j.other, "z3_bf16_w5_odd/ckpt");
    compare(&j, 0);
    fixture(j.other, "z2_bf16_w2_aligned/ckpt");
    compare(&j, ckpt_err_status(CKPT_EDIFFERS));
    // sums of tensors with other values
    j.fn = diff_sums;
    fixture(j.source, "z1_bf16_w2_tags/ckpt/first");
    fixture(j.other, "z1_bf16_w2_tags/ckpt/global_step2");
    compare(&j, ckpt_err_status(CKPT_EDIFFERS));
}

static int set_up(void **state)
{
    (void)state;
    folder_new(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(conversions), cmocka_unit_test(proofs),
                                       cmocka_unit_test(comparisons)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
