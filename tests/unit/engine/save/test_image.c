/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_image.c: what a save copies of a run's memory.  A device whose memory the host can read says
 * that it is far away: what is not copied must come through its get.
 */
#include "ckpt_extra.h"
#include "engine/save/live.h"
#include "libckpt/map/map.h"
#include "tests/unit/engine/save/help.h"
#include "tests/unit/unit.h"

/* ---- a device that is far away ---- */

static const zt_device_ops *near_ops;
static uint64_t n_gets, bytes_got, fail_at;

static void far_get(zt_device *d, void *host, const void *from, uint64_t n)
{
    if (n_gets++ >= fail_at)
        zt_device_fail(d, CKPT_EIO, "gone");
    bytes_got += n;
    near_ops->get(d, host, from, n);
}

typedef struct look {
    bool copy;
    uint64_t n_own, n_far, got; /* buffers; sources; bytes that taking the image has got */
} look;

static int first_value(void *ctx, uint32_t param, uint64_t first, uint64_t count, float *out,
                       ckpt_err *err)
{
    (void)ctx;
    (void)err;
    for (uint64_t i = 0; i < count; i++)
        out[i] = (float)((param + 1) * 1000 + first + i);
    return CKPT_OK;
}

/* Every element of every tensor as the runtime has it: masters are the values rounded to bf16. */
static int read_all(const ckpt_map *map, const zt_zero *z, ckpt_err *err)
{
    ckpt_reader *r = NULL;
    int rc = ckpt_reader_new(&r, map, err);
    uint64_t bad = 0;

    for (uint32_t p = 0; rc == CKPT_OK && p < z->model->params.n; p++) {
        const zt_param *param = &z->model->params.at[p];
        const ckpt_tensor *t = ckpt_map_find(map, param->name);
        float *got = ckpt_alloc((size_t)param->n_elems * sizeof *got);
        rc = ckpt_reader_read(r, t, 0, t->n_elems, CKPT_F32, got, err);
        for (uint64_t i = 0; rc == CKPT_OK && i < t->n_elems; i++) {
            float want = (float)((p + 1) * 1000 + i);
            bad += !(fabsf(got[i] - want) <= want / 256);
        }
        ckpt_free(got);
    }
    ckpt_reader_free(r);
    return rc == CKPT_OK && bad ? ckpt_fail(err, CKPT_EDIFFERS, "%d differ", (int)bad) : rc;
}

static int look_at(zt_zero *z, look *l, ckpt_err *err)
{
    zt_image image;
    ckpt_map *map = NULL;
    int rc = zt_image_take(&image, z, true, l->copy, err);

    if (rc != CKPT_OK)
        return rc;
    l->got = bytes_got;
    l->n_own = image.n_own;
    rc = zt_live_map(&map, &image, NULL, err);
    if (rc == CKPT_OK)
        rc = ckpt_map_check(map, err);
    for (size_t i = 0; rc == CKPT_OK && i < map->sources.n; i++)
        l->n_far += map->sources.at[i].kind == CKPT_SOURCE_FAR;
    if (rc == CKPT_OK)
        rc = read_all(map, z, err);
    ckpt_map_free(map);
    zt_image_drop(&image);
    return rc;
}

static int act_look(zt_zero *z, void *ctx, ckpt_err *err)
{
    zt_device_ops far = *z->device->ops;
    int rc = zt_zero_fill(z, first_value, NULL, err);

    near_ops = z->device->ops;
    far.get = far_get;
    n_gets = bytes_got = 0;
    z->device->ops = &far;
    z->device->host = false;
    if (rc == CKPT_OK)
        rc = look_at(z, ctx, err);
    z->device->ops = near_ops;
    z->device->host = true;
    return rc;
}

static save_case case_of(int stage, look *l)
{
    static char text[512];

    snprintf(text, sizeof text,
             "train_micro_batch_size_per_gpu: 1, bf16: {enabled: true},"
             "optimizer: {type: \"AdamW\", params: {lr: 0.01}},"
             "zero_optimization: {stage: %d, sub_group_size: 300}",
             stage);
    return (save_case){.world = 1,
                       .config = text,
                       .model = save_top,
                       .grouping = "single",
                       .act = act_look,
                       .ctx = l};
}

/* ---- tests ---- */

/* Neither weights nor optimizer state come to the host before they are written. */
static void nothing_is_copied_of_what_is_far(void **state)
{
    (void)state;
    fail_at = UINT64_MAX;
    for (int stage = 0; stage < 4; stage++) {
        look l = {0};
        save_case run = case_of(stage, &l);
        save_run_well(&run);
        assert_int_equal(l.n_own, 0);
        assert_int_equal(l.got, 0);
        assert_true(l.n_far >= 3 && n_gets > 3);
    }
}

/* Frozen parameters are cut over the ranks in stage 3: those alone are copied. */
static void frozen_parameters_of_stage_3_are_gathered(void **state)
{
    (void)state;
    fail_at = UINT64_MAX;
    for (int stage = 2; stage < 4; stage++) {
        look l = {0};
        save_case run = case_of(stage, &l);
        run.freeze = "*.mlp.c_fc.weight";
        save_run_well(&run);
        assert_int_equal(l.n_own, stage == 3 ? 2 : 0);
        assert_int_equal(l.got, stage == 3 ? 2 * 6 * 10 * 2 : 0);
    }
}

/* An asynchronous save has a copy of all, and nothing of it is read from the device later. */
static void an_asynchronous_save_copies_everything_at_once(void **state)
{
    (void)state;
    fail_at = UINT64_MAX;
    for (int stage = 0; stage < 4; stage++) {
        look l = {.copy = true};
        save_case run = case_of(stage, &l);
        save_run_well(&run);
        assert_true(l.n_own >= 3);
        assert_int_equal(l.n_far, 0);
        assert_true(l.got > 0 && l.got == bytes_got);
    }
}

static void a_device_that_fails_is_told(void **state)
{
    (void)state;
    for (unsigned k = 0; k < 6; k++) {
        look l = {.copy = k % 2};
        save_case run = case_of((int)k % 3 + 1, &l);
        fail_at = k / 2;
        save_run(&run);
        assert_int_equal(run.rc[0], CKPT_EIO);
        assert_non_null(strstr(run.err[0].text, "gone"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_copied_of_what_is_far),
        cmocka_unit_test(frozen_parameters_of_stage_3_are_gathered),
        cmocka_unit_test(an_asynchronous_save_copies_everything_at_once),
        cmocka_unit_test(a_device_that_fails_is_told),
    };

    return cmocka_run_group_tests(tests, save_top_make, save_top_remove);
}
