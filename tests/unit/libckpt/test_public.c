/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_public.c: the public header as programs use it: values, slices, arrays in memory, inputs of
 * the caller's own, and one map for many threads, of every layout.  Includes nothing but ckpt.h.
 */
#include <pthread.h>

#include "ckpt_extra.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"

static const char *fixture(const char *name)
{
    const char *fixtures = getenv("CKPT_FIXTURES");

    return folder_at(fixtures ? fixtures : "tests/fixtures", name);
}

static ckpt_map *opened(const char *path)
{
    const ckpt_open_opts opts = {.with_optimizer = true};
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    if (ckpt_open(&map, path, &opts, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    return map;
}

/* ---- errors and defaults ---- */

/* One ckpt_err for many calls: each reports its own failure, or none. */
static void errors_are_cleared(void **state)
{
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_open(&map, "/nonexistent", NULL, &err), CKPT_EMISSING);
    int rc = ckpt_open(&map, folder_at("tests", "fast_tmp.sh"), NULL, &err);
    assert_int_not_equal(rc, CKPT_EMISSING);
    assert_int_equal(rc, err.code);
    assert_non_null(strstr(err.text, "fast_tmp.sh"));
    assert_int_equal(ckpt_open(&map, fixture("numpy_npz/plain.npz"), NULL, &err), CKPT_OK);
    assert_int_equal(err.code, CKPT_OK);
    assert_string_equal(err.text, "");
    ckpt_map_free(map);
}

/* A handle is NULL after a failure, whatever was wrong, so a program can free it in any case. */
static void failed_handles_are_null(void **state)
{
    const ckpt_run_opts bad = {.size = 3};
    char other = 0;
    ckpt_map *map = (void *)&other;
    ckpt_plan *plan = (void *)&other;
    ckpt_reader *reader = (void *)&other;
    ckpt_remap *remap = (void *)&other;
    ckpt_attested *attested = (void *)&other;

    (void)state;
    assert_int_equal(ckpt_open(&map, NULL, NULL, NULL), CKPT_EUSAGE);
    assert_null(map);
    map = (void *)&other;
    assert_int_equal(ckpt_open_input(&map, "x", NULL, NULL, NULL), CKPT_EUSAGE);
    assert_null(map);
    map = (void *)&other;
    assert_int_equal(ckpt_layout(&map, NULL, NULL, NULL), CKPT_EUSAGE);
    assert_null(map);
    assert_int_equal(ckpt_plan_new(&plan, NULL, NULL, NULL, NULL), CKPT_EUSAGE);
    assert_null(plan);
    plan = (void *)&other;
    assert_int_equal(ckpt_plan_new(&plan, NULL, NULL, &bad, NULL), CKPT_EUSAGE);
    assert_null(plan);
    assert_int_equal(ckpt_reader_new(&reader, NULL, NULL), CKPT_EUSAGE);
    assert_null(reader);
    assert_int_equal(ckpt_remap_new(&remap, NULL, NULL, NULL), CKPT_EUSAGE);
    assert_null(remap);
    assert_int_equal(ckpt_attest_read(&attested, NULL, NULL), CKPT_EUSAGE);
    assert_null(attested);
}

/* Zeroed options refuse what the command refuses: a value beyond the range of its new dtype. */
static void overflow_is_refused(void **state)
{
    const uint64_t shape[] = {3};
    const float big[] = {1.0F, 1e30F, 7e4F};
    const ckpt_array a = {.name = "w", .dtype = CKPT_F32, .ndim = 1, .shape = shape, .data = big};
    char folder[FOLDER_PATH];
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    (void)state;
    folder_new(folder);
    const ckpt_target target = {
        .format = "safetensors", .path = folder_at(folder, "w.safetensors"), .dtype = CKPT_F16};
    ckpt_run_opts opts = {.skip_fsync = true};
    assert_int_equal(ckpt_map_new(&map, "here", &err), CKPT_OK);
    assert_int_equal(ckpt_map_put(map, &a, &err), CKPT_OK);
    assert_int_equal(ckpt_convert(map, &target, &opts, NULL, &err), CKPT_EDOUBT);
    assert_null(fopen(target.path, "rb"));
    opts.allow_overflow = true;
    assert_int_equal(ckpt_convert(map, &target, &opts, NULL, &err), CKPT_OK);
    ckpt_map_free(map);
    folder_remove(folder);
}

/* The sample at the head of ckpt.h writes a folder that transformers loads. */
static void folders_are_whole(void **state)
{
    const ckpt_run_opts opts = {.skip_fsync = true};
    char folder[FOLDER_PATH];
    ckpt_err err = {0};

    (void)state;
    folder_new(folder);
    for (unsigned without = 0; without < 2; without++) {
        ckpt_target target = {.format = "hf",
                              .path = folder_at(folder, without ? "weights" : "whole"),
                              .skip_side_files = without};
        char config[FOLDER_PATH + 32];
        ckpt_map *map = NULL;
        if (ckpt_open(&map, fixture("hf_bert_sharded"), NULL, &err) != CKPT_OK ||
            ckpt_convert(map, &target, &opts, NULL, &err) != CKPT_OK)
            fail_msg("%s", err.text);
        (void)snprintf(config, sizeof config, "%s/config.json", target.path);
        FILE *f = fopen(config, "rb");
        assert_true((f != NULL) == !without);
        if (f)
            (void)fclose(f);
        ckpt_map_free(map);
    }
    folder_remove(folder);
}

/* ---- values ---- */

static void values(void **state)
{
    ckpt_map *map = opened(fixture("z2_bf16_w2_aligned/ckpt"));
    const ckpt_value *root = ckpt_map_values(map), *v;
    ckpt_training_info known = {.size = sizeof known};
    const char *text = "x";
    int64_t step = 0;
    double d = 0;
    size_t n = 1;

    (void)state;
    ckpt_map_training_info(map, &known);
    assert_int_equal(ckpt_value_type(root), CKPT_KIND_DICT);
    assert_true(ckpt_value_count(root) > 0);
    for (size_t i = 0; i < ckpt_value_count(root); i++) {
        assert_true(ckpt_value_to_text(ckpt_value_key_at(root, i), &text, &n));
        assert_int_equal(strlen(text), n);
        assert_ptr_equal(ckpt_value_find(root, text), ckpt_value_at(root, i));
    }
    assert_null(ckpt_value_at(root, ckpt_value_count(root)));
    assert_null(ckpt_value_key_at(root, SIZE_MAX));
    v = ckpt_value_find(ckpt_value_find(root, "model_states"), "global_steps");
    assert_int_equal(ckpt_value_type(v), CKPT_KIND_INT);
    assert_true(ckpt_value_to_int(v, &step) && ckpt_value_to_float(v, &d));
    assert_true(step == known.step && (double)step == d);
    // what a value is not, it is not read as
    assert_false(ckpt_value_to_text(v, &text, &n));
    assert_true(!text && n == 0);
    assert_false(ckpt_value_to_int(root, &step));
    assert_int_equal(step, 0);
    assert_int_equal(ckpt_value_count(v), 0);
    ckpt_map_free(map);
}

static void values_of_nothing(void **state)
{
    (void)state;
    assert_null(ckpt_map_values(NULL));
    assert_int_equal(ckpt_value_type(NULL), CKPT_KIND_NONE);
    assert_false(ckpt_value_to_int(NULL, NULL));
    assert_false(ckpt_value_to_float(NULL, NULL));
    assert_false(ckpt_value_to_text(NULL, NULL, NULL));
    assert_int_equal(ckpt_value_count(NULL), 0);
    assert_null(ckpt_value_at(NULL, 0));
    assert_null(ckpt_value_key_at(NULL, 0));
    assert_null(ckpt_value_find(NULL, "x"));
}

/* ---- arrays in memory ---- */

enum { SIDE = 7 };

static float box[SIDE][SIDE + 1][SIDE + 2];
static const uint64_t box_shape[] = {SIDE, SIDE + 1, SIDE + 2};

static void put(ckpt_map *map, const char *name, const uint64_t *shape, uint32_t ndim,
                const void *data)
{
    const ckpt_array a = {
        .name = name, .dtype = CKPT_F32, .ndim = ndim, .shape = shape, .data = data};

    assert_int_equal(ckpt_map_put(map, &a, NULL), CKPT_OK);
}

/* A map of a box of numbers, a number and an empty array. */
static ckpt_map *memory(void)
{
    static const uint64_t none[] = {3, 0};
    ckpt_map *map = NULL;

    for (size_t i = 0; i < sizeof box / sizeof(float); i++)
        (&box[0][0][0])[i] = (float)i;
    assert_int_equal(ckpt_map_new(&map, "here", NULL), CKPT_OK);
    put(map, "w.weight", box_shape, 3, box);
    put(map, "scale", NULL, 0, &box[1][1][1]);
    put(map, "empty", none, 2, NULL);
    assert_int_equal(ckpt_map_put_metadata(map, "by", "hand", NULL), CKPT_OK);
    assert_int_equal(ckpt_map_check(map, NULL), CKPT_OK);
    return map;
}

/* Both have the same tensors; every value of a's is b's. */
static void same_tensors(const ckpt_map *a, const ckpt_map *b)
{
    const ckpt_diff_opts opts = {.tolerance = 0};
    ckpt_err err = {0};

    if (ckpt_diff(a, b, &opts, NULL, NULL, &err) != CKPT_OK)
        fail_msg("%s", err.text);
}

/* Arrays in memory are written to each format that takes any tensors, and are read back. */
static void memory_to_any_format(void **state)
{
    char folder[FOLDER_PATH];
    const ckpt_format_info *f;
    size_t n = 0;

    (void)state;
    folder_new(folder);
    for (size_t i = 0; (f = ckpt_format_at(i)); i++) {
        const ckpt_run_opts opts = {.skip_fsync = true};
        ckpt_map *map = memory();
        ckpt_err err = {0};
        ckpt_target target = {.format = f->name, .path = folder_at(folder, f->name)};
        // a vision tower is more than tensors, and ranks have parts of a known model: a layout map
        // must have made both
        if ((f->layout && strcmp(f->layout, "mmproj") == 0) || (f->caps & CKPT_TAKES_GRID))
            assert_int_equal(ckpt_convert(map, &target, &opts, NULL, NULL), CKPT_EUNSUPPORTED);
        else if ((f->caps & CKPT_CAN_WRITE) && !(f->caps & CKPT_WRITES_STATE)) {
            if (ckpt_convert(map, &target, &opts, NULL, &err) != CKPT_OK)
                fail_msg("%s: %s", f->name, err.text);
            ckpt_map *back = opened(target.path);
            same_tensors(map, back);
            ckpt_map_free(back);
            n++;
        }
        ckpt_map_free(map);
    }
    assert_true(n >= 5);
    folder_remove(folder);
}

/* As the state of a run that has not begun, too. */
static void memory_to_a_run(void **state)
{
    const ckpt_run_opts opts = {.skip_fsync = true};
    char folder[FOLDER_PATH];
    ckpt_target target = {
        .format = "zero", .path = folder, .stage = 2, .world = 2, .order_text = "*"};
    ckpt_map *map = memory(), *back;
    ckpt_training_info known = {0};
    ckpt_err err = {0};

    (void)state;
    folder_new(folder);
    if (ckpt_map_warm_start(map, &target, &err) != CKPT_OK ||
        ckpt_convert(map, &target, &opts, NULL, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    back = opened(folder);
    ckpt_map_training_info(back, &known);
    assert_true(known.training && known.stage == 2 && known.world == 2 && known.step == 0);
    assert_string_equal(known.tag, "global_step0");
    assert_non_null(ckpt_map_find(back, "exp_avg/w.weight"));
    ckpt_map_free(back);
    ckpt_map_free(map);
    folder_remove(folder);
}

static void memory_refuses(void **state)
{
    const uint64_t shape[] = {2};
    const ckpt_array good = {
        .name = "a", .dtype = CKPT_F32, .ndim = 1, .shape = shape, .data = box};
    ckpt_array bad[] = {good, good, good, good, good, {0}};
    ckpt_map *map = NULL, *other = opened(fixture("numpy_npz/plain.npz"));
    ckpt_err err = {0};

    (void)state;
    bad[0].name = NULL;
    bad[1].dtype = CKPT_DTYPE_NONE;
    bad[2].shape = NULL;
    bad[3].data = NULL;
    bad[4].ndim = CKPT_MAX_DIM + 1;
    assert_int_equal(ckpt_map_new(NULL, "x", NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_map_new(&map, NULL, NULL), CKPT_EUSAGE);
    assert_null(map);
    assert_int_equal(ckpt_map_new(&map, "x", NULL), CKPT_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(ckpt_map_put(map, &bad[i], NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_map_put(map, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_map_put(NULL, &good, NULL), CKPT_EUSAGE);
    // what was read from a file is not added to
    assert_int_equal(ckpt_map_put(other, &good, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_map_put_metadata(other, "a", "b", NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_map_put_metadata(NULL, "a", "b", NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_map_put_metadata(map, "a", "\xff", NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_map_tensor_count(map), 0);
    assert_int_equal(ckpt_map_put(map, &good, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_put(map, &good, &err), CKPT_EFORMAT);
    assert_string_equal(err.text, "x: two tensors are named 'a'");
    ckpt_map_free(map);
    ckpt_map_free(other);
}

/* ---- whole tensors ---- */

static void tensor_is_read_whole(void **state)
{
    static double wide[SIDE * (SIDE + 1) * (SIDE + 2)];
    static float own[SIDE * (SIDE + 1) * (SIDE + 2)];
    ckpt_map *map = memory();
    const ckpt_tensor *t = ckpt_map_find(map, "w.weight");

    (void)state;
    assert_int_equal(t->n_elems, sizeof own / sizeof *own);
    assert_int_equal(ckpt_tensor_read(map, t, CKPT_F64, wide, NULL), CKPT_OK);
    assert_int_equal(ckpt_tensor_read(map, t, CKPT_DTYPE_NONE, own, NULL), CKPT_OK);
    assert_int_equal(ckpt_tensor_bytes(t), sizeof own);
    assert_memory_equal(own, box, sizeof own);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        assert_true(wide[i] == (double)own[i]);
    ckpt_map_free(map);
}

static void whole_tensor_is_refused(void **state)
{
    ckpt_map *map = memory();
    const ckpt_tensor *t = ckpt_map_find(map, "w.weight");
    ckpt_err err = {0};
    float x = 0;

    (void)state;
    assert_int_equal(ckpt_tensor_read(NULL, t, CKPT_F32, &x, &err), CKPT_EUSAGE);
    assert_int_equal(ckpt_tensor_read(map, NULL, CKPT_F32, &x, &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "the tensor is NULL"));
    assert_int_equal(ckpt_tensor_read(map, t, CKPT_F32, NULL, &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "w.weight: the buffer is NULL"));
    assert_int_equal(ckpt_tensor_read(map, t, CKPT_N_DTYPES, &x, &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "is not a dtype"));
    assert_int_equal(ckpt_tensor_read(map, t, CKPT_F4, &x, &err), CKPT_EUNSUPPORTED);
    assert_int_equal(err.code, CKPT_EUNSUPPORTED);
    // a tensor without axes has one element
    assert_int_equal(ckpt_tensor_read(map, ckpt_map_find(map, "scale"), CKPT_F32, &x, &err),
                     CKPT_OK);
    assert_int_equal(err.code, CKPT_OK);
    assert_true(x == box[1][1][1]);
    ckpt_map_free(map);
}

/* ---- slices ---- */

/* Read a slice of the box in a dtype, and compare it with what three loops give. */
static void slice_is_right(ckpt_reader *r, const ckpt_tensor *t, const ckpt_slice part[3],
                           bool as_double)
{
    static double wide[SIDE * (SIDE + 1) * (SIDE + 2)];
    static float got[SIDE * (SIDE + 1) * (SIDE + 2)];
    uint64_t s[3], n = 0;
    ckpt_err err = {0};

    if (ckpt_reader_read_slice(r, t, part, as_double ? CKPT_F64 : CKPT_DTYPE_NONE,
                               as_double ? (void *)wide : (void *)got, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    for (unsigned k = 0; k < 3; k++)
        s[k] = part[k].step ? part[k].step : 1;
    for (uint64_t i = 0; i < part[0].count; i++) {
        for (uint64_t j = 0; j < part[1].count; j++) {
            for (uint64_t k = 0; k < part[2].count; k++, n++) {
                float want = box[part[0].start + i * s[0]][part[1].start + j * s[1]]
                                [part[2].start + k * s[2]];
                double is = as_double ? wide[n] : (double)got[n];
                if (is != (double)want)
                    fail_msg("element %d of a slice is %g, not %g", (int)n, is, (double)want);
            }
        }
    }
}

static void slices(void **state)
{
    ckpt_map *map = memory();
    const ckpt_tensor *t = ckpt_map_find(map, "w.weight");
    ckpt_reader *r = NULL;
    uint32_t seed = 1;

    (void)state;
    assert_int_equal(ckpt_reader_new(&r, map, NULL), CKPT_OK);
    slice_is_right(r, t, (ckpt_slice[]){{0, SIDE, 1}, {0, SIDE + 1, 0}, {0, SIDE + 2, 1}}, false);
    for (int turn = 0; turn < 2000; turn++) {
        ckpt_slice part[3];
        for (unsigned k = 0; k < 3; k++) {
            seed = seed * 1664525u + 1013904223u;
            part[k].start = (seed >> 8) % box_shape[k];
            part[k].step = (seed >> 16) % 4;
            uint64_t step = part[k].step ? part[k].step : 1;
            part[k].count = 1 + (seed >> 20) % (1 + (box_shape[k] - 1 - part[k].start) / step);
        }
        slice_is_right(r, t, part, turn % 2);
    }
    ckpt_reader_free(r);
    ckpt_map_free(map);
}

/* Gaps that are read over, in several windows, and gaps that are not. */
static void long_slices(void **state)
{
    enum { N = 60000 };
    const uint64_t shape[] = {N};
    float *data = malloc(N * sizeof *data), *got = malloc(N * sizeof *got);
    ckpt_map *map = NULL;
    ckpt_reader *r = NULL;

    (void)state;
    assert_true(data && got);
    for (unsigned i = 0; i < N; i++)
        data[i] = (float)i;
    assert_int_equal(ckpt_map_new(&map, "here", NULL), CKPT_OK);
    put(map, "x", shape, 1, data);
    assert_int_equal(ckpt_reader_new(&r, map, NULL), CKPT_OK);
    for (uint64_t step = 1; step < 5000; step = step * 3 + 1) {
        const ckpt_slice part = {1, (N - 2) / step + 1, step};
        assert_int_equal(ckpt_reader_read_slice(r, ckpt_map_tensor_at(map, 0), &part, 0, got, NULL),
                         CKPT_OK);
        for (uint64_t i = 0; i < part.count; i++)
            assert_true(got[i] == data[1 + i * step]);
    }
    ckpt_reader_free(r);
    ckpt_map_free(map);
    free(data);
    free(got);
}

static void slices_refused(void **state)
{
    static const ckpt_slice bad[][3] = {
        {{0, SIDE + 1, 1}, {0, 1, 1}, {0, 1, 1}},       {{0, 1, 1}, {SIDE + 1, 1, 1}, {0, 1, 1}},
        {{0, 1, 1}, {SIDE + 2, 0, 1}, {0, 1, 1}},       {{0, 2, UINT64_MAX}, {0, 1, 1}, {0, 1, 1}},
        {{0, 3, UINT64_MAX / 2}, {0, 1, 1}, {0, 1, 1}}, {{UINT64_MAX, 1, 1}, {0, 1, 1}, {0, 1, 1}},
    };
    const ckpt_slice none[] = {{0, 1, 1}, {SIDE + 1, 0, 1}, {0, 1, 1}};
    ckpt_map *map = memory();
    const ckpt_tensor *t = ckpt_map_find(map, "w.weight");
    ckpt_reader *r = NULL;
    float x = 0;

    (void)state;
    assert_int_equal(ckpt_reader_new(&r, map, NULL), CKPT_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(ckpt_reader_read_slice(r, t, bad[i], 0, &x, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_reader_read_slice(r, t, none, 0, NULL, NULL), CKPT_OK);
    assert_int_equal(ckpt_reader_read_slice(r, t, NULL, 0, &x, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_reader_read_slice(r, NULL, none, 0, &x, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_reader_read_slice(NULL, t, none, 0, &x, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_reader_read_slice(r, t, none, CKPT_F4, NULL, NULL), CKPT_EUNSUPPORTED);
    // a tensor without axes needs no part
    assert_int_equal(ckpt_reader_read_slice(r, ckpt_map_find(map, "scale"), NULL, 0, &x, NULL),
                     CKPT_OK);
    assert_true(x == box[1][1][1]);
    ckpt_reader_free(r);
    ckpt_map_free(map);
}

/* ---- inputs of the caller's own ---- */

typedef struct bytes {
    uint8_t *at;
    size_t n;
    int fails; /* errno, or 0 */
} bytes;

static int bytes_read(void *ctx, void *buf, uint64_t n, uint64_t at)
{
    const bytes *b = ctx;

    assert_true(at <= b->n && n <= b->n - at);
    if (!b->fails)
        memcpy(buf, b->at + at, (size_t)n);
    return b->fails;
}

static bytes slurp(const char *path)
{
    FILE *f = fopen(path, "rb");
    bytes b = {.at = malloc(1 << 24)};

    assert_true(f && b.at);
    b.n = fread(b.at, 1, 1 << 24, f);
    assert_int_equal(fclose(f), 0);
    return b;
}

/* A file read through the caller's functions is the file; each kind of file that is read. */
static void inputs(void **state)
{
    static const char *const files[] = {"torch_views/zip.pt", "torch_views/legacy.pt",
                                        "numpy_npz/deflated.npz", "numpy_npz/one.npy",
                                        "safetensors_dtypes/model.safetensors"};
    char folder[FOLDER_PATH];

    (void)state;
    folder_new(folder);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        bytes b = slurp(fixture(files[i]));
        const ckpt_input input = {.n_bytes = b.n, .read_at = bytes_read, .ctx = &b};
        const ckpt_target target = {.format = "torch",
                                    .path = folder_at(folder, strrchr(files[i], '/') + 1)};
        const ckpt_run_opts run = {.skip_fsync = true};
        ckpt_map *map = NULL, *file = opened(fixture(files[i]));
        ckpt_err err = {0};
        if (ckpt_open_input(&map, strrchr(files[i], '/') + 1, &input, NULL, &err) != CKPT_OK)
            fail_msg("%s", err.text);
        assert_string_equal(ckpt_map_format(map), ckpt_map_format(file));
        same_tensors(file, map);
        if (ckpt_convert(map, &target, &run, NULL, &err) != CKPT_OK)
            fail_msg("%s", err.text);
        ckpt_map *made = opened(target.path);
        same_tensors(file, made);
        ckpt_map_free(made);
        // and it fails as a file would
        ckpt_reader *r = NULL;
        char buf[64];
        b.fails = 5;
        assert_int_equal(ckpt_reader_new(&r, map, NULL), CKPT_OK);
        assert_int_equal(ckpt_reader_read(r, ckpt_map_tensor_at(map, 0), 0, 1, 0, buf, &err),
                         CKPT_EIO);
        assert_int_equal(err.sys, 5);
        ckpt_reader_free(r);
        ckpt_map_free(map);
        ckpt_map_free(file);
        free(b.at);
    }
    folder_remove(folder);
}

static void inputs_refused(void **state)
{
    bytes b = {.at = (uint8_t *)box, .n = sizeof box};
    const ckpt_input good = {.n_bytes = b.n, .read_at = bytes_read, .ctx = &b}, zero = {0};
    const ckpt_open_opts tag = {.tag = "x"};
    ckpt_map *map = NULL;

    (void)state;
    assert_int_equal(ckpt_open_input(NULL, "x", &good, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_open_input(&map, NULL, &good, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_open_input(&map, "x", NULL, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_open_input(&map, "x", &zero, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_open_input(&map, "x", &good, &tag, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_open_input(&map, "x", &good, NULL, NULL), CKPT_EFORMAT);
    assert_null(map);
}

/* A file in memory that keeps count of what is read of it. */
typedef struct counted {
    bytes file;
    uint64_t n_read;
} counted;

static int counted_read(void *ctx, void *buf, uint64_t n, uint64_t at)
{
    counted *c = ctx;

    c->n_read += n;
    return bytes_read(&c->file, buf, n, at);
}

/* Of a box, a column of a matrix too, nothing is read but its elements. */
static void boxes_read_little(void **state)
{
    enum { ROWS = 500, COLUMNS = 300 };
    static const char head[] = "{\"m\":{\"dtype\":\"F32\",\"shape\":[500,300],"
                               "\"data_offsets\":[0,600000]}}";
    static uint8_t file[8 + sizeof head - 1 + ROWS * COLUMNS * 4];
    static const uint64_t box_of[][2][2] = {
        {{100, 0}, {40, 300}}, {{0, 100}, {500, 50}}, {{7, 299}, {490, 1}}, {{499, 0}, {1, 3}}};
    counted c = {.file = {.at = file, .n = sizeof file}};
    const ckpt_input input = {.n_bytes = sizeof file, .read_at = counted_read, .ctx = &c};
    static float got[ROWS * COLUMNS];
    ckpt_map *map = NULL;
    ckpt_reader *r = NULL;

    (void)state;
    file[0] = sizeof head - 1;
    memcpy(file + 8, head, sizeof head - 1);
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
        float v = (float)i;
        memcpy(file + 8 + sizeof head - 1 + i * sizeof v, &v, sizeof v);
    }
    assert_int_equal(ckpt_open_input(&map, "m.safetensors", &input, NULL, NULL), CKPT_OK);
    assert_int_equal(ckpt_reader_new(&r, map, NULL), CKPT_OK);
    for (size_t i = 0; i < sizeof box_of / sizeof *box_of; i++) {
        const uint64_t *start = box_of[i][0], *count = box_of[i][1], n = count[0] * count[1];
        // as it lies, and turned
        for (unsigned turned = 0; turned < 2; turned++) {
            const int64_t stride[2] = {4, (int64_t)count[0] * 4};
            c.n_read = 0;
            assert_int_equal(ckpt_reader_read_box(r, ckpt_map_tensor_at(map, 0), start, count, 0,
                                                  got, turned ? stride : NULL, NULL),
                             CKPT_OK);
            assert_int_equal(c.n_read, n * 4);
            for (uint64_t k = 0; k < n; k++) {
                uint64_t at = turned ? k % count[1] * count[0] + k / count[1] : k;
                uint64_t want = (start[0] + k / count[1]) * COLUMNS + start[1] + k % count[1];
                assert_int_equal((uint64_t)got[at], want);
            }
        }
    }
    ckpt_reader_free(r);
    ckpt_map_free(map);
}

/* ---- threads ---- */

static int no_text(void *ctx, const char *text, size_t n)
{
    (void)ctx;
    return !text || n > SIZE_MAX / 2;
}

/* All that a map can be asked, and a few elements of each tensor. */
static void *ask(void *ctx)
{
    const ckpt_map *map = ctx;
    const char *key, *text;
    ckpt_reader *r = NULL;
    ckpt_training_info known = {0};
    double x = 0;

    if (ckpt_reader_new(&r, map, NULL) != CKPT_OK || ckpt_map_check(map, NULL) != CKPT_OK ||
        (ckpt_map_values(map) && ckpt_tree_print(map, NULL, no_text, NULL, NULL) != CKPT_OK))
        return ctx;
    ckpt_map_training_info(map, &known);
    for (size_t i = 0; ckpt_map_fact_at(map, i, &key, &text, NULL); i++)
        known.world += text[0] == 0;
    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);
        bool as_double = ckpt_dtype_converts(CKPT_F64, t->dtype);
        if (ckpt_map_find(map, t->name) != t)
            return ctx;
        if (as_double && t->n_elems > 0 &&
            ckpt_reader_read(r, t, t->n_elems / 2, 1, CKPT_F64, &x, NULL) != CKPT_OK)
            return ctx;
    }
    ckpt_reader_free(r);
    return NULL;
}

/* One map of every layout, asked by four threads at once. */
static void threads(void **state)
{
    static const char *const all[] = {
        "z0_fp16_w2_fused/ckpt",
        "z1_bf16_w3_groups/ckpt",
        "z2_bf16_w2_aligned/ckpt",
        "z3_bf16_w5_odd/ckpt",
        "tp2_pp2_z1_w4/ckpt",
        "pipe2_z1_w4_tied/ckpt",
        "moe_ep2_z1_w4/ckpt",
        "hf_bert_sharded",
        "old_hf_bert_bin",
        "torch_views/legacy.pt",
        "torch_dtypes/zip.pt",
        "numpy_npz/deflated.npz",
        "safetensors_dtypes/model.safetensors",
    };

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const ckpt_open_opts opts = {.with_optimizer = true, .join_first_axis = true};
        pthread_t thread[4];
        ckpt_map *map = NULL;
        void *failed;
        if (ckpt_open(&map, fixture(all[i]), &opts, NULL) != CKPT_OK)
            fail_msg("%s does not open", all[i]);
        for (size_t k = 0; k < 4; k++)
            assert_int_equal(pthread_create(&thread[k], NULL, ask, map), 0);
        for (size_t k = 0; k < 4; k++) {
            assert_int_equal(pthread_join(thread[k], &failed), 0);
            if (failed)
                fail_msg("%s", all[i]);
        }
        ckpt_map_free(map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_cleared),
        cmocka_unit_test(failed_handles_are_null),
        cmocka_unit_test(overflow_is_refused),
        cmocka_unit_test(folders_are_whole),
        cmocka_unit_test(values),
        cmocka_unit_test(values_of_nothing),
        cmocka_unit_test(memory_refuses),
        cmocka_unit_test(memory_to_any_format),
        cmocka_unit_test(memory_to_a_run),
        cmocka_unit_test(tensor_is_read_whole),
        cmocka_unit_test(whole_tensor_is_refused),
        cmocka_unit_test(slices),
        cmocka_unit_test(long_slices),
        cmocka_unit_test(slices_refused),
        cmocka_unit_test(boxes_read_little),
        cmocka_unit_test(inputs),
        cmocka_unit_test(inputs_refused),
        cmocka_unit_test(threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
