/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_doctor.c: the health of tags and of `latest`, and what may be done to it.
 */
#include "libckpt/base/mem.h"
#include "libckpt/include/ckpt.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"

enum { SEEN_MAX = 8 };

static const char optim[] = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt";

/* What the callbacks got, copied. */
typedef struct seen {
    struct {
        char name[64], reason[512];
        ckpt_tag is;
    } tag[SEEN_MAX];
    struct {
        char name[64], latest[64], newest[64], fixed[64], pointer[32], reason[512];
        int code;
    } run[SEEN_MAX];
    unsigned n_tags, n_runs, n_problems, n_notes, n_calls;
    char note[256];
    unsigned stop_at; /* stop at this call; 0: never */
} seen;

static void copy(char *out, size_t room, const char *text)
{
    (void)snprintf(out, room, "%s", text ? text : "-");
}

static int see_tag(void *ctx, const ckpt_tag *tag)
{
    seen *s = ctx;

    assert_true(s->n_tags < SEEN_MAX);
    s->tag[s->n_tags].is = *tag;
    copy(s->tag[s->n_tags].name, 64, tag->name);
    copy(s->tag[s->n_tags].reason, 512, tag->reason);
    s->n_tags++;
    return ++s->n_calls == s->stop_at;
}

static int see_problem(void *ctx, const char *tag, int code, const char *text)
{
    seen *s = ctx;

    assert_true(text && *text);
    if (tag)
        assert_string_equal(tag, s->tag[s->n_tags - 1].name);
    s->n_problems += tag && code != CKPT_OK;
    s->n_notes += !tag;
    if (!tag)
        copy(s->note, sizeof s->note, text);
    return ++s->n_calls == s->stop_at;
}

static int see_run(void *ctx, const ckpt_run_health *run)
{
    seen *s = ctx;

    assert_true(s->n_runs < SEEN_MAX);
    copy(s->run[s->n_runs].name, 64, run->name);
    copy(s->run[s->n_runs].latest, 64, run->latest);
    copy(s->run[s->n_runs].newest, 64, run->newest);
    copy(s->run[s->n_runs].fixed, 64, run->fixed);
    copy(s->run[s->n_runs].pointer, 32, run->pointer);
    copy(s->run[s->n_runs].reason, 512, run->reason);
    s->run[s->n_runs].code = run->code;
    s->n_runs++;
    return ++s->n_calls == s->stop_at;
}

static int doctor(const char *path, seen *s, bool deep, bool fix)
{
    const ckpt_doctor_opts opts = {.deep = deep,
                                   .fix_latest = fix,
                                   .run = &(ckpt_run_opts){.jobs = 2, .memory = 1 << 22},
                                   .tag = see_tag,
                                   .problem = see_problem,
                                   .health = see_run,
                                   .ctx = s};
    ckpt_err err = {0};
    unsigned stop_at = s->stop_at;

    memset(s, 0, sizeof *s);
    s->stop_at = stop_at;
    int rc = ckpt_doctor(path, &opts, &err);
    assert_int_equal(rc, err.code);
    assert_true((rc != CKPT_OK) == (err.text[0] != 0));
    return rc;
}

/* ---- folders to look at ---- */

static int folder_setup(void **state)
{
    char *path = malloc(FOLDER_PATH);

    folder_new(path);
    *state = path;
    return 0;
}

static int folder_teardown(void **state)
{
    folder_remove(*state);
    free(*state);
    return 0;
}

/* A copy of a fixture as FOLDER/run. */
static const char *run_of(const char *folder, const char *fixture)
{
    const char *fixtures = getenv("CKPT_FIXTURES");
    static char path[FOLDER_PATH];

    if (!fixtures)
        skip();
    folder_join(path, folder, "run");
    folder_copy(folder_at(fixtures, fixture), path);
    return path;
}

static void expect_latest(const char *run, const char *tag)
{
    char text[64] = "";

    folder_read(folder_at(run, "latest"), text, sizeof text - 1);
    assert_string_equal(text, tag);
}

/* ---- tests ---- */

static void whole_run(void **state)
{
    const char *run = run_of(*state, "z1_bf16_w2_tags/ckpt");
    static const int steps[] = {1, 2, 4};
    seen s = {0};

    assert_int_equal(doctor(run, &s, false, false), CKPT_OK);
    assert_true(s.n_tags == 3 && s.n_problems == 0 && s.n_runs == 1 && s.n_notes == 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(s.tag[i].is.health, CKPT_TAG_WHOLE);
        assert_int_equal(s.tag[i].is.step, steps[i]);
        assert_true(s.tag[i].is.stage == 1 && s.tag[i].is.world == 2);
        assert_true(s.tag[i].is.n_bytes > 30000 && s.tag[i].is.n_bytes < 50000);
        assert_string_equal(s.tag[i].reason, "");
        assert_int_equal(s.tag[i].is.is_latest, i == 1);
    }
    assert_string_equal(s.run[0].name, "");
    assert_string_equal(s.run[0].pointer, "latest");
    assert_string_equal(s.run[0].latest, "global_step2");
    assert_string_equal(s.run[0].newest, s.tag[2].name);
    assert_string_equal(s.run[0].fixed, "-");
    assert_int_equal(doctor(run, &s, true, false), CKPT_OK);
    assert_int_equal(s.n_problems, 0);
}

/* Without callbacks it is a question with a yes or a no. */
static void without_options(void **state)
{
    const char *run = run_of(*state, "z1_bf16_w2_tags/ckpt");

    assert_int_equal(ckpt_doctor(run, NULL, NULL), CKPT_OK);
    assert_int_equal(unlink(folder_at(run, "latest")), 0);
    assert_int_equal(ckpt_doctor(run, NULL, NULL), CKPT_EMISSING);
}

static void missing_rank(void **state)
{
    const char *run = run_of(*state, "z1_bf16_w2_tags/ckpt");
    seen s = {0};

    assert_int_equal(unlink(folder_at(folder_at(run, "global_step2"), optim)), 0);
    assert_int_equal(doctor(run, &s, false, false), CKPT_EMISSING);
    assert_int_equal(s.tag[1].is.health, CKPT_TAG_PARTIAL);
    assert_int_equal(s.tag[1].is.code, CKPT_EMISSING);
    // what is left is said, and the file is named
    assert_non_null(strstr(s.tag[1].reason, "weights: whole; optimizer: 1 of 2 shards"));
    assert_non_null(strstr(s.tag[1].reason, optim));
    assert_true(s.tag[0].is.health == CKPT_TAG_WHOLE && s.tag[2].is.health == CKPT_TAG_WHOLE);
    assert_int_equal(s.run[0].code, CKPT_EMISSING);
    assert_non_null(strstr(s.run[0].reason, "global_step2, which is partial"));
}

/* A tag that `latest` does not name may be anything. */
static void damage_elsewhere(void **state)
{
    const char *run = run_of(*state, "z1_bf16_w2_tags/ckpt");
    seen s = {0};

    folder_text(folder_at(run, "first"), optim, "");
    assert_int_equal(doctor(run, &s, false, false), CKPT_OK);
    assert_int_equal(s.n_problems, 1);
    // its model file was read, so that its place is known
    assert_string_equal(s.tag[0].name, "first");
    assert_int_equal(s.tag[0].is.health, CKPT_TAG_DAMAGED);
    assert_int_equal(s.tag[0].is.step, 1);
    assert_non_null(strstr(s.tag[0].reason, "0 bytes"));
}

/* The gravest of several problems decides; all are told. */
static void several_problems(void **state)
{
    const char *run = run_of(*state, "bad/ds/ds_x_optim");
    seen s = {0};

    assert_int_equal(doctor(run, &s, false, false), CKPT_EUNSAFE);
    assert_true(s.tag[0].is.health == CKPT_TAG_DAMAGED && s.tag[0].is.code == CKPT_EUNSAFE);
    assert_int_equal(strncmp(s.tag[0].reason, "unsafe: ", 8), 0);
    // rank 2 is missing, rank 3 is empty, rank 1 asks to run code
    folder_text(folder_at(run, "global_step4"), "bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt",
                "");
    assert_int_equal(doctor(run, &s, false, false), CKPT_EUNSAFE);
    assert_int_equal(s.tag[0].is.n_problems, 3);
    assert_int_equal(s.n_problems, 3);
    assert_int_equal(strncmp(s.tag[0].reason, "unsafe: ", 8), 0);
}

static void other_states(void **state)
{
    static const struct {
        const char *name;
        int code;
        ckpt_tag_health health;
        const char *reason;
    } bad[] = {
        {"bad/ds/ds_extra_ranks", CKPT_EMISMATCH, CKPT_TAG_MIXED,
         "rank_2_mp_rank_00_optim_states.pt: left over"},
        {"bad/ds/ds_mixed_steps", CKPT_EMISMATCH, CKPT_TAG_MIXED, "step"},
        {"bad/ds/ds_mixed_world", CKPT_EMISMATCH, CKPT_TAG_MIXED, "a run of 4 ranks"},
        {"bad/ds/ds_trunc_shard", CKPT_EFORMAT, CKPT_TAG_DAMAGED, "cut short"},
        {"bad/ds/ds3_missing_model", CKPT_EMISSING, CKPT_TAG_PARTIAL,
         "zero_pp_rank_1_mp_rank_00_model_states.pt: missing"},
    };
    const char *fixtures = getenv("CKPT_FIXTURES");
    seen s = {0};

    (void)state;
    if (!fixtures)
        skip();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(doctor(folder_at(fixtures, bad[i].name), &s, false, false), bad[i].code);
        assert_int_equal(s.n_tags, 1);
        assert_int_equal(s.tag[0].is.health, bad[i].health);
        assert_non_null(strstr(s.tag[0].reason, bad[i].reason));
    }
}

/* Only reading everything shows a changed bit of a tensor. */
static void changed_bit(void **state)
{
    const char *run = run_of(*state, "bad/ds/ds_bitflip");
    seen s = {0};

    assert_int_equal(doctor(run, &s, false, false), CKPT_OK);
    assert_int_equal(doctor(run, &s, true, false), CKPT_EFORMAT);
    assert_int_equal(s.tag[0].is.health, CKPT_TAG_DAMAGED);
    assert_non_null(strstr(s.tag[0].reason, "CRC-32"));
}

/* ---- latest ---- */

static void expect_pointer(const char *run, int code, const char *reason)
{
    seen s = {0};

    assert_int_equal(doctor(run, &s, false, false), code);
    assert_int_equal(s.run[0].code, code);
    assert_non_null(strstr(s.run[0].reason, reason));
    assert_string_equal(s.run[0].fixed, "-");
    for (unsigned i = 0; i < s.n_tags; i++)
        assert_true(s.tag[i].is.health == CKPT_TAG_WHOLE || s.tag[i].is.is_latest);
}

static void bad_pointers(void **state)
{
    const char *run = run_of(*state, "z1_bf16_w2_tags/ckpt");
    char long_text[5000];

    folder_text(run, "latest", " \r\n");
    expect_pointer(run, CKPT_EMISSING, "empty");
    folder_text(run, "latest", "global_step9");
    expect_pointer(run, CKPT_EMISSING, "names global_step9, which is not there");
    folder_text(run, "latest", "../run/first");
    expect_pointer(run, CKPT_EUNSAFE, "unsafe");
    folder_write(folder_at(run, "latest"), "first\0", 6);
    expect_pointer(run, CKPT_EUNSAFE, "unsafe");
    memset(long_text, 'a', sizeof long_text);
    folder_write(folder_at(run, "latest"), long_text, sizeof long_text);
    expect_pointer(run, CKPT_EFORMAT, "not a file that names a tag");
    assert_int_equal(mkdir(folder_at(run, "empty"), 0777), 0);
    folder_text(run, "latest", "empty\n");
    expect_pointer(run, CKPT_EMISSING, "holds no files of a checkpoint");
    assert_int_equal(unlink(folder_at(run, "latest")), 0);
    expect_pointer(run, CKPT_EMISSING, "is missing");
    assert_int_equal(mkdir(folder_at(run, "latest"), 0777), 0);
    expect_pointer(run, CKPT_EFORMAT, "not a file");
}

static void fixing(void **state)
{
    const char *run = run_of(*state, "z1_bf16_w2_tags/ckpt");
    const char *newest = "\xc3\xa9tape 4 \xe2\x80\x93 \xe6\x9c\x80\xe7\xb5\x82"; // of step 4
    struct stat st;
    seen s = {0};

    folder_text(run, "latest", "global_step9");
    assert_int_equal(chmod(folder_at(run, "latest"), 0640), 0);
    assert_int_equal(doctor(run, &s, false, true), CKPT_OK);
    expect_latest(run, newest);
    assert_string_equal(s.run[0].fixed, newest);
    assert_string_equal(s.run[0].latest, "global_step9");
    assert_true(s.n_tags == 3 && s.tag[2].is.is_latest && !s.tag[1].is.is_latest);
    assert_true(stat(folder_at(run, "latest"), &st) == 0 && (st.st_mode & 0777) == 0640);
    // nothing is left to be done, and no temporary file was left
    assert_int_equal(doctor(run, &s, false, true), CKPT_OK);
    assert_true(s.n_notes == 0 && strcmp(s.run[0].fixed, "-") == 0);
    // the newest whole one is not always the newest
    folder_text(folder_at(run, newest), optim, "");
    assert_int_equal(doctor(run, &s, false, true), CKPT_OK);
    expect_latest(run, "global_step2");
    assert_int_equal(unlink(folder_at(run, "latest")), 0);
    assert_int_equal(doctor(run, &s, false, true), CKPT_OK);
    expect_latest(run, "global_step2");
}

/* Damage that only a deep look finds keeps a tag from being chosen. */
static void fixing_deep(void **state)
{
    const char *run = run_of(*state, "bad/ds/ds_bitflip");
    seen s = {0};

    folder_copy(folder_at(getenv("CKPT_FIXTURES"), "bad/ds/ds_ok_z2/global_step4"),
                folder_at(run, "older"));
    assert_int_equal(doctor(run, &s, true, true), CKPT_OK);
    expect_latest(run, "older");
}

static void not_fixing(void **state)
{
    const char *run = run_of(*state, "bad/ds/ds_zero_shard"), *tag = folder_at(run, "global_step4");
    seen s = {0};

    // no tag is whole
    folder_text(run, "latest", "elsewhere");
    assert_int_equal(doctor(run, &s, false, true), CKPT_EMISSING);
    assert_non_null(strstr(s.run[0].reason, "left as it is"));
    expect_latest(run, "elsewhere");
    folder_text(run, "latest", "global_step4");
    assert_int_equal(ckpt_err_status(doctor(run, &s, false, true)), 5);
    expect_latest(run, "global_step4");
    // a tag folder has no `latest`
    assert_int_equal(doctor(tag, &s, false, true), CKPT_EUSAGE);
}

/* What could not be judged may be whole: `latest` is not moved away from it. */
static void not_fixing_unknown(void **state)
{
    const char *run = run_of(*state, "z1_bf16_w2_tags/ckpt");
    seen s = {0};

    // as if torch.distributed.checkpoint had written into the same folder: a layout that is not
    // read
    folder_text(run, "global_step2/.metadata", "");
    assert_int_equal(doctor(run, &s, false, true), CKPT_EUNSUPPORTED);
    assert_int_equal(s.tag[0].is.health, CKPT_TAG_UNKNOWN);
    assert_non_null(strstr(s.run[0].reason, "left as it is"));
    expect_latest(run, "global_step2");
}

/* A tag of equal step: the one that was written last. */
static void newest_by_time(void **state)
{
    const char *run = run_of(*state, "bad/ds/ds_ok_z2"), *fixtures = getenv("CKPT_FIXTURES");
    seen s = {0};

    sleep(1);
    folder_copy(folder_at(fixtures, "bad/ds/ds_ok_z2/global_step4"), folder_at(run, "again"));
    assert_int_equal(doctor(run, &s, false, false), CKPT_OK);
    assert_string_equal(s.run[0].newest, "again");
    assert_string_equal(s.tag[0].name, "global_step4");
}

/* ---- other folders ---- */

static void folder_of_runs(void **state)
{
    const char *top = *state;
    char path[FOLDER_PATH];
    seen s = {0};

    (void)run_of(top, "z3_bf16_w5_odd/ckpt");
    folder_join(path, top, "run");
    assert_int_equal(rename(path, folder_at(top, "checkpoint-9")), 0);
    (void)run_of(top, "z1_bf16_w2_tags/ckpt");
    assert_int_equal(rename(path, folder_at(top, "checkpoint-10")), 0);
    assert_int_equal(mkdir(folder_at(top, "logs"), 0777), 0);
    assert_int_equal(doctor(top, &s, false, false), CKPT_OK);
    assert_true(s.n_runs == 2 && s.n_tags == 4);
    assert_string_equal(s.run[0].name, "checkpoint-9");
    assert_string_equal(s.run[1].name, "checkpoint-10");
    assert_int_equal(strncmp(s.tag[0].name, "checkpoint-9/", 13), 0);
    // the last one is what a resume takes
    assert_int_equal(unlink(folder_at(top, "checkpoint-9/latest")), 0);
    assert_int_equal(doctor(top, &s, false, false), CKPT_OK);
    assert_int_equal(s.run[0].code, CKPT_EMISSING);
    folder_text(top, "checkpoint-10/latest", "x");
    assert_int_equal(doctor(top, &s, false, false), CKPT_EMISSING);
    assert_int_equal(doctor(top, &s, false, true), CKPT_OK);
    assert_true(strcmp(s.run[0].fixed, "-") != 0 && strcmp(s.run[1].fixed, "-") != 0);
}

static void one_tag(void **state)
{
    const char *run = run_of(*state, "z1_bf16_w2_tags/ckpt");
    seen s = {0};

    assert_int_equal(doctor(folder_at(run, "first//"), &s, false, false), CKPT_OK);
    assert_true(s.n_tags == 1 && s.tag[0].is.step == 1 && !s.tag[0].is.is_latest);
    assert_string_equal(s.tag[0].name, "first");
    folder_text(folder_at(run, "first"), optim, "no zip");
    assert_int_equal(doctor(folder_at(run, "first"), &s, false, false), CKPT_EFORMAT);
    assert_int_equal(s.run[0].code, CKPT_EFORMAT);
}

static void universal_pointer(void **state)
{
    const char *run = run_of(*state, "z1_bf16_w2_tags/ckpt");
    seen s = {0};

    // a universal folder that nothing can be said for: its parameters are missing
    assert_int_equal(mkdir(folder_at(run, "uni"), 0777), 0);
    assert_int_equal(mkdir(folder_at(run, "uni/zero"), 0777), 0);
    folder_text(run, "uni/zero/optimizer_state.pt", "no pickle");
    folder_text(run, "latest_universal", "uni");
    assert_int_equal(doctor(run, &s, false, false), CKPT_OK);
    assert_true(s.n_tags == 4 && s.n_notes == 1 && strstr(s.note, "latest_universal"));
    for (unsigned i = 0; i < s.n_tags; i++) {
        assert_int_equal(s.tag[i].is.is_universal, strcmp(s.tag[i].name, "uni") == 0);
        assert_true(!s.tag[i].is.is_universal || s.tag[i].is.health != CKPT_TAG_WHOLE);
    }
    // `latest` is for the others
    folder_text(run, "latest", "uni");
    assert_int_not_equal(doctor(run, &s, false, false), CKPT_OK);
    folder_text(run, "latest", "global_step2");
    folder_text(run, "latest_universal", "first");
    assert_int_equal(doctor(run, &s, false, false), CKPT_OK);
    assert_non_null(strstr(s.note, "not a universal checkpoint"));
    // alone, it is the pointer that counts
    assert_int_equal(unlink(folder_at(run, "latest")), 0);
    assert_int_equal(doctor(run, &s, false, false), CKPT_EMISSING);
    assert_string_equal(s.run[0].pointer, "latest");
}

static void leftovers(void **state)
{
    const char *run = run_of(*state, "bad/ds/ds_ok_z2");
    seen s = {0};

    assert_int_equal(mkdir(folder_at(run, ".global_step8.ckpt-partial"), 0777), 0);
    folder_copy(folder_at(run, "global_step4"), folder_at(run, ".global_step8.ckpt-partial"));
    folder_text(run, ".latest.ckpt-0a0a0a.tmp", "");
    assert_int_equal(doctor(run, &s, false, false), CKPT_OK);
    assert_true(s.n_tags == 1 && s.n_notes == 2 && strstr(s.note, "ckpt clean"));
}

static void failures(void **state)
{
    const char *folder = *state;
    seen s = {0};

    assert_int_equal(doctor(folder, &s, false, false), CKPT_EMISSING);
    assert_int_equal(doctor(folder_at(folder, "absent"), &s, false, false), CKPT_EMISSING);
    // an interrupted run may be all there is
    assert_int_equal(mkdir(folder_at(folder, ".t.ckpt-partial"), 0777), 0);
    ckpt_err err = {0};
    assert_int_equal(ckpt_doctor(folder, NULL, &err), CKPT_EMISSING);
    assert_non_null(strstr(err.text, ".t.ckpt-partial is what a run of ckpt has not completed"));
    folder_text(folder, "file", "");
    assert_int_equal(doctor(folder_at(folder, "file"), &s, false, false), CKPT_EUSAGE);
}

static int no_further(void *ctx, uint64_t done, uint64_t total)
{
    unsigned *left = ctx;

    (void)done;
    (void)total;
    return *left == 0 || (*left)-- == 0;
}

static void stops_when_told(void **state)
{
    const char *run = run_of(*state, "z1_bf16_w2_tags/ckpt");
    seen s = {0};

    for (unsigned i = 1; i <= 4; i++) {
        s.stop_at = i;
        assert_int_equal(doctor(run, &s, false, false), CKPT_ECANCELED);
    }
    s.stop_at = 5;
    assert_int_equal(doctor(run, &s, false, false), CKPT_OK);
    for (unsigned i = 0; i < 4; i++) {
        unsigned left = i;
        const ckpt_doctor_opts opts = {
            .run = &(ckpt_run_opts){.progress = no_further, .progress_ctx = &left}};
        assert_int_equal(ckpt_doctor(run, &opts, NULL), i < 3 ? CKPT_ECANCELED : CKPT_OK);
    }
    unsigned left = 1;
    const ckpt_doctor_opts opts = {
        .deep = true, .run = &(ckpt_run_opts){.progress = no_further, .progress_ctx = &left}};
    assert_int_equal(ckpt_doctor(run, &opts, NULL), CKPT_ECANCELED);
}

/* Whatever allocation fails, `latest` names what it named or what it should. */
static void memory_runs_out(void **state)
{
    const char *run = run_of(*state, "bad/ds/ds_ok_z2");
    const ckpt_doctor_opts opts = {.fix_latest = true};
    int rc = CKPT_ELIMIT;
    uint64_t n = 0;

    folder_text(run, "latest", "elsewhere");
    for (; rc != CKPT_OK && n < 100000; n += 1 + n / 100) {
        ckpt_err err = {0};
        ckpt_alloc_fail_at(n);
        rc = ckpt_doctor(run, &opts, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
        char text[64] = "";
        folder_read(folder_at(run, "latest"), text, sizeof text - 1);
        assert_true(strcmp(text, "global_step4") == 0 ||
                    (rc == CKPT_ELIMIT && strcmp(text, "elsewhere") == 0));
    }
    assert_int_equal(rc, CKPT_OK);
    assert_true(n > 50);
}

int main(void)
{
#define WITH_FOLDER(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(whole_run),        WITH_FOLDER(without_options),
        WITH_FOLDER(missing_rank),     WITH_FOLDER(damage_elsewhere),
        WITH_FOLDER(several_problems), cmocka_unit_test(other_states),
        WITH_FOLDER(changed_bit),      WITH_FOLDER(bad_pointers),
        WITH_FOLDER(fixing),           WITH_FOLDER(fixing_deep),
        WITH_FOLDER(not_fixing),       WITH_FOLDER(not_fixing_unknown),
        WITH_FOLDER(newest_by_time),   WITH_FOLDER(folder_of_runs),
        WITH_FOLDER(one_tag),          WITH_FOLDER(universal_pointer),
        WITH_FOLDER(leftovers),        WITH_FOLDER(failures),
        WITH_FOLDER(stops_when_told),  WITH_FOLDER(memory_runs_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
