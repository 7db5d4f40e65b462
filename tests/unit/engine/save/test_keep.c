/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_keep.c: checks which checkpoints of a folder belong to a run, which ones it may replace, and
 * which ones --keep removes.
 */
#include <fcntl.h>

#include "engine/save/keep.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"

static char dir[FOLDER_PATH];
static int fd = -1;
static ckpt_err err;

/* Make a tag's folder; a time, so that the order does not depend on the clock. */
static void tag_new(const char *name, int seconds)
{
    const char *path = folder_at(dir, name);
    const struct timespec times[] = {{.tv_sec = seconds}, {.tv_sec = seconds}};

    assert_int_equal(mkdir(path, 0700), 0);
    folder_text(path, "mp_rank_00_model_states.pt", "x");
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Write .zerotrain of a tag, and keep the folder's time. */
static void tag_mark(const char *name, const char *text)
{
    struct stat st;
    const char *path = folder_at(dir, name);

    assert_int_equal(stat(path, &st), 0);
    folder_text(path, ".zerotrain", text);
    const struct timespec times[] = {st.st_atim, st.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void tag_of(const char *name, int seconds, const zt_lineage *l, int64_t step)
{
    char line[64];

    tag_new(name, seconds);
    (void)snprintf(line, sizeof line, "%016jx %jd\n", (uintmax_t)l->id, (intmax_t)step);
    tag_mark(name, line);
}

/* ---- .zerotrain ---- */

static void test_mark(void **state)
{
    zt_lineage_step from[] = {{0xabc, 5}, {UINT64_MAX, INT64_MAX}};
    zt_lineage l, other;
    char text[256] = "";

    (void)state;
    zt_lineage_begin(&l);
    zt_lineage_begin(&other);
    assert_true(l.id != other.id);
    l.id = 0x1f;
    l.from = (zt_lineage_steps){.at = from, .n = 2};
    tag_new("t1", 1);
    int folder = open(folder_at(dir, "t1"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(zt_lineage_mark(&l, folder, "t1", 7, &err), CKPT_OK);
    (void)close(folder);
    size_t n = folder_read(folder_at(dir, "t1/.zerotrain"), text, sizeof text - 1);
    text[n] = 0;
    assert_string_equal(text, "0000000000000abc 5\nffffffffffffffff 9223372036854775807\n"
                              "000000000000001f 7\n");
    assert_true(zt_lineage_has(&l, fd, "t1"));
    assert_false(zt_lineage_has(&other, fd, "t1"));
}

/* Facts follow the runs, and come back as they were; a damaged file has fewer or none. */
static void test_facts(void **state)
{
    static const char facts[] = "heads\t4\nempty\t\n";
    zt_lineage l;
    char *got;

    (void)state;
    zt_lineage_begin(&l);
    l.id = 0x1f;
    l.facts = facts;
    tag_new("f", 1);
    int folder = open(folder_at(dir, "f"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(zt_lineage_mark(&l, folder, "f", 7, &err), CKPT_OK);
    (void)close(folder);
    assert_true(zt_lineage_has(&l, fd, "f"));
    got = zt_lineage_facts(dir, "f");
    assert_string_equal(got, facts);
    ckpt_free(got);
    tag_mark("f", "000000000000001f 7\n- a\tb\nx\n-\n- cut");
    assert_true(zt_lineage_has(&l, fd, "f"));
    got = zt_lineage_facts(dir, "f");
    assert_string_equal(got, "a\tb\nx\n-\ncut");
    ckpt_free(got);
    tag_mark("f", "- heads\t4\n");
    assert_false(zt_lineage_has(&l, fd, "f"));
    assert_null(zt_lineage_facts(dir, "none"));
}

static void test_ancestors(void **state)
{
    zt_lineage_step from[] = {{0xabc, 5}};
    zt_lineage l;

    (void)state;
    zt_lineage_begin(&l);
    l.from = (zt_lineage_steps){.at = from, .n = 1};
    tag_new("a4", 1);
    tag_mark("a4", "0000000000000abc 4\n");
    tag_new("a5", 1);
    tag_mark("a5", "0000000000000abc 5\n");
    tag_new("a6", 1);
    tag_mark("a6", "0000000000000abc 6\n"); // after the successor had left
    tag_new("b", 1);
    tag_mark("b", "0000000000000abc 5\n0000000000000def 6\n"); // of another descendant
    assert_true(zt_lineage_has(&l, fd, "a4") && zt_lineage_has(&l, fd, "a5"));
    assert_false(zt_lineage_has(&l, fd, "a6") || zt_lineage_has(&l, fd, "b"));
    assert_false(zt_lineage_has(&l, fd, "none"));
}

static void test_bad_marks(void **state)
{
    static const char *const bad[] = {"",
                                      "000000000000001f 7",
                                      "000000000000001f\n",
                                      "000000000000001f  7\n",
                                      "000000000000001f -7\n",
                                      "000000000000001f 7x\n",
                                      "00000000000001f 7\n",
                                      "0000000000000001f 7\n",
                                      "000000000000001F 7\n",
                                      "000000000000001f 9223372036854775808\n",
                                      "x\n000000000000001f 7\n"};
    zt_lineage l;

    (void)state;
    zt_lineage_begin(&l);
    l.id = 0x1f;
    tag_new("t", 1);
    tag_mark("t", "000000000000001f 7\n");
    assert_true(zt_lineage_has(&l, fd, "t"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tag_mark("t", bad[i]);
        if (zt_lineage_has(&l, fd, "t"))
            fail_msg("'%s' is accepted", bad[i]);
    }
    // a link could name the mark of another run
    assert_int_equal(unlink(folder_at(dir, "t/.zerotrain")), 0);
    folder_text(dir, "mark", "000000000000001f 7\n");
    assert_int_equal(symlink("../mark", folder_at(dir, "t/.zerotrain")), 0);
    assert_false(zt_lineage_has(&l, fd, "t"));
}

static void test_resume(void **state)
{
    zt_lineage l;

    (void)state;
    zt_lineage_begin(&l);
    tag_new("plain", 1); // without a mark, as of DeepSpeed
    tag_new("other", 1);
    zt_lineage_resume(&l, dir, "plain", false, 3);
    assert_true(l.resumed && !l.chosen);
    assert_int_equal(l.from.n, 0);
    assert_true(zt_lineage_has(&l, fd, "plain"));
    assert_false(zt_lineage_has(&l, fd, "other"));
    // the run resumed from `latest` of this folder, so it goes on there
    assert_true(zt_lineage_may_replace(&l, fd, "other"));
    zt_lineage_free(&l);
    // the user chose a tag: others in the folder are a branch
    zt_lineage_begin(&l);
    zt_lineage_resume(&l, dir, "plain", true, 3);
    assert_true(zt_lineage_may_replace(&l, fd, "plain"));
    assert_false(zt_lineage_may_replace(&l, fd, "other"));
    zt_lineage_free(&l);
    // the path itself is a tag, or a file of one
    zt_lineage_begin(&l);
    zt_lineage_resume(&l, folder_at(dir, "plain/mp_rank_00_model_states.pt"), "", false, 3);
    assert_true(l.chosen && zt_lineage_has(&l, fd, "plain"));
    zt_lineage_free(&l);
    tag_mark("plain", "0000000000000abc 2\n0000000000000def 3\n");
    zt_lineage_begin(&l);
    zt_lineage_resume(&l, dir, "plain", false, 3);
    assert_int_equal(l.from.n, 2);
    assert_int_equal(l.from.at[1].id, 0xdef);
    zt_lineage_free(&l);
}

static int check(const zt_lineage *l, const char *where, const char *tag, bool force,
                 ckpt_err *remark)
{
    const zt_lineage_place to = {where, tag, force};

    return zt_lineage_check(l, &to, remark, &err);
}

/* A folder that has the name of a checkpoint, but is none. */
static void test_foreign(void **state)
{
    zt_lineage l;
    ckpt_err remark = {0};

    (void)state;
    zt_lineage_begin(&l);
    assert_int_equal(mkdir(folder_at(dir, "global_step5"), 0777), 0);
    assert_int_equal(zt_lineage_spare(fd, dir, "global_step5", &err), CKPT_OK); // nothing is lost
    assert_int_equal(zt_lineage_spare(fd, dir, "none", &err), CKPT_OK);
    folder_text(dir, "global_step5/notes.txt", "mine");
    assert_int_equal(zt_lineage_spare(fd, dir, "global_step5", &err), CKPT_EUSAGE);
    for (int force = 0; force < 2; force++) {
        err = (ckpt_err){0};
        assert_int_equal(check(&l, dir, NULL, force, &remark), CKPT_EUSAGE);
        assert_non_null(strstr(err.text, "global_step5 would be replaced"));
        assert_null(strstr(err.text, "--load"));
        assert_int_equal(check(&l, dir, "mine", force, &remark), CKPT_OK);
    }
    // a run that resumes after this step never saves under the name
    tag_new("global_step9", 1);
    zt_lineage_resume(&l, dir, "global_step9", false, 9);
    assert_int_equal(check(&l, dir, NULL, false, &remark), CKPT_OK);
    zt_lineage_free(&l);
    folder_text(dir, "global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt", "");
    assert_int_equal(zt_lineage_spare(fd, dir, "global_step5", &err), CKPT_OK);
}

static void test_check(void **state)
{
    zt_lineage l;
    ckpt_err remark = {0};

    (void)state;
    zt_lineage_begin(&l);
    assert_int_equal(check(&l, folder_at(dir, "none"), NULL, false, &remark), CKPT_OK);
    assert_int_equal(check(&l, dir, NULL, false, &remark), CKPT_OK); // empty
    tag_new("global_step9", 1);
    tag_new("global_step10", 1);
    assert_int_equal(check(&l, dir, NULL, false, &remark), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "global_step10")); // the latest of them
    // a run that resumed from 10 replaces neither
    zt_lineage_resume(&l, dir, "global_step10", false, 10);
    err = (ckpt_err){0};
    assert_int_equal(check(&l, dir, NULL, false, &remark), CKPT_OK);
    assert_int_equal(remark.code, 0);
    assert_int_equal(check(&l, dir, "global_step10", false, &remark), CKPT_OK);
    zt_lineage_free(&l);
}

/* ---- --keep ---- */

static void test_keep(void **state)
{
    char gone[ZT_KEEP_GONE] = "";
    zt_lineage l, other;
    zt_keep k = {.dir = dir, .tag = "global_step40", .n = 2, .lineage = &l};

    (void)state;
    zt_lineage_begin(&l);
    zt_lineage_begin(&other);
    tag_of("global_step40", 1, &l, 40); // its time does not matter
    tag_of("global_step30", 30, &l, 30);
    tag_of("global_step20", 20, &l, 20);
    tag_of("global_step100", 10, &l, 10); // an older one, whatever its number says
    tag_of("global_step5", 5, &other, 5);
    tag_of("best7", 7, &l, 7);
    tag_of("global_step", 8, &l, 8);
    tag_of("global_step3b", 9, &l, 9);
    assert_int_equal(mkdir(folder_at(dir, "global_step1"), 0700), 0); // without states
    folder_text(dir, "global_step2", "a file");
    assert_int_equal(zt_keep_newest(&k, gone, &err), CKPT_OK);
    assert_string_equal(gone, "global_step20, global_step100");
    assert_true(folder_has(dir, "global_step40") && folder_has(dir, "global_step30"));
    assert_false(folder_has(dir, "global_step20") || folder_has(dir, "global_step100"));
    assert_true(folder_has(dir, "global_step5") && folder_has(dir, "best7"));
    assert_true(folder_has(dir, "global_step") && folder_has(dir, "global_step3b"));
    assert_true(folder_has(dir, "global_step1") && folder_has(dir, "global_step2"));
    // one: the tag itself stays, and the spared one
    k.n = 1;
    k.spare = "global_step30";
    gone[0] = 0;
    assert_int_equal(zt_keep_newest(&k, gone, &err), CKPT_OK);
    assert_string_equal(gone, "");
    k.spare = NULL;
    assert_int_equal(zt_keep_newest(&k, gone, &err), CKPT_OK);
    assert_string_equal(gone, "global_step30");
    assert_true(folder_has(dir, "global_step40"));
}

/* Tags of the same second: the higher number is newer. */
static void test_keep_order(void **state)
{
    char gone[ZT_KEEP_GONE] = "";
    zt_lineage l;
    const zt_keep k = {.dir = dir, .tag = "s100", .n = 3, .lineage = &l};

    (void)state;
    zt_lineage_begin(&l);
    tag_of("s9", 5, &l, 9);
    tag_of("s10", 5, &l, 10);
    tag_of("s8", 5, &l, 8);
    tag_of("s100", 5, &l, 100);
    assert_int_equal(zt_keep_newest(&k, gone, &err), CKPT_OK);
    assert_string_equal(gone, "s8");
}

static void test_keep_many(void **state)
{
    char gone[ZT_KEEP_GONE] = "", name[32];
    zt_lineage l;
    const zt_keep k = {.dir = dir, .tag = "long_series_of_steps_1", .n = 1, .lineage = &l};

    (void)state;
    zt_lineage_begin(&l);
    for (int i = 1; i <= 40; i++) {
        (void)snprintf(name, sizeof name, "long_series_of_steps_%d", i);
        tag_of(name, i, &l, i);
    }
    assert_int_equal(zt_keep_newest(&k, gone, &err), CKPT_OK);
    size_t n = strlen(gone);
    assert_true(n < ZT_KEEP_GONE && n > 5);
    assert_string_equal(gone + n - 5, ", ..."); // once
    assert_null(strstr(gone, "..., "));
    for (int i = 2; i <= 40; i++) {
        (void)snprintf(name, sizeof name, "long_series_of_steps_%d", i);
        assert_false(folder_has(dir, name));
    }
}

static int setup(void **state)
{
    (void)state;
    err = (ckpt_err){0};
    folder_new(dir);
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    (void)close(fd);
    folder_remove(dir);
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_mark),       TEST(test_facts),     TEST(test_ancestors), TEST(test_bad_marks),
        TEST(test_resume),     TEST(test_foreign),   TEST(test_check),     TEST(test_keep),
        TEST(test_keep_order), TEST(test_keep_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
