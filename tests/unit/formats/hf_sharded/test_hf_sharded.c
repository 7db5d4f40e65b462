/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hf_sharded.c: names of ranks' files, and boxes of several files joined into whole tensors.
 *
 * Each byte of a file's data is the number of the element in the whole tensor, so the bytes that the
 * map's extents name show whether every element is in its place.
 */
#include "formats/hf_sharded/hf_sharded.h"
#include "libckpt/drivers.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"

extern const ckpt_directory ckpt_directory_hf_sharded;

/* ---- names ---- */

static void reads_names(void **state)
{
    static const struct {
        const char *name;
        ckpt_hfs_name is;
    } cases[] = {
        {"shard-00001-model-00001-of-00001.safetensors", {1, 1, 1}},
        {"shard-00012-model-00002-of-00003.safetensors", {12, 2, 3}},
        {"shard-123456-model-000007-of-1234567.safetensors", {123456, 7, 1234567}},
        {"shard-4294967295-model-00001-of-4294967295.safetensors", {UINT32_MAX, 1, UINT32_MAX}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_hfs_name is = {0};

        if (!ckpt_hfs_parse(cases[i].name, &is))
            fail_msg("%s", cases[i].name);
        assert_int_equal(is.rank, cases[i].is.rank);
        assert_int_equal(is.file, cases[i].is.file);
        assert_int_equal(is.of, cases[i].is.of);
    }
}

static void refuses_names(void **state)
{
    static const char *const cases[] = {
        "",
        "model-00001-of-00002.safetensors",
        "shard-1-model-00001-of-00001.safetensors",
        "shard-0001-model-00001-of-00001.safetensors",
        "shard-00000-model-00001-of-00001.safetensors",
        "shard-00001-model-00000-of-00001.safetensors",
        "shard-00001-model-00002-of-00001.safetensors",
        "shard-00001-model-00001-of-00000.safetensors",
        "shard-00001-model-00001-of-.safetensors",
        "shard--0001-model-00001-of-00001.safetensors",
        "shard-4294967296-model-00001-of-00001.safetensors",
        "shard-18446744073709551617-model-00001-of-00001.safetensors",
        "shard-00001-model-00001-of-00001.safetensors.tmp",
        "shard-00001-model-00001-of-00001.bin",
        "xshard-00001-model-00001-of-00001.safetensors",
    };
    ckpt_hfs_name is;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (ckpt_hfs_parse(cases[i], &is))
            fail_msg("'%s' is taken for a rank's file", cases[i]);
        assert_int_equal(ckpt_directory_hf_sharded.part(cases[i]), 0);
    }
}

/* ---- folders ---- */

/* A box of tensor "w", or of another one. */
typedef struct box {
    const char *name;
    uint32_t ndim;
    uint64_t start[3], count[3];
    const char *offsets; /* text instead of those of `start`; "": no entry; NULL: start's */
} box;

static bool list_of(ckpt_bytes *b, const uint64_t *n, uint32_t ndim)
{
    bool ok = ckpt_bytes_add(b, "[", 1);

    for (uint32_t k = 0; ok && k < ndim; k++)
        ok = ckpt_bytes_printf(b, k ? ",%llu" : "%llu", (unsigned long long)n[k]);
    return ok && ckpt_bytes_add(b, "]", 1);
}

static uint64_t elems(const box *x)
{
    uint64_t n = 1;

    for (uint32_t k = 0; k < x->ndim; k++)
        n *= x->count[k];
    return n;
}

/* The number of the box's element i in a whole tensor of this shape. */
static uint8_t number_of(const box *x, uint64_t i, const uint64_t *shape)
{
    uint64_t flat = 0, by = 1;

    for (uint32_t k = x->ndim; k-- > 0; by *= shape[k], i /= x->count[k])
        flat += by * (x->start[k] + i % x->count[k]);
    return (uint8_t)flat;
}

/* Write a file with n boxes of U8 tensors; info: their places are in the metadata. */
static void write_file(const char *path, const box *all, size_t n, const uint64_t *shape, bool info)
{
    ckpt_bytes head = {0}, file = {0};
    uint64_t at = 0;
    bool ok = ckpt_bytes_printf(&head, "{\"__metadata__\":{\"DCP_VERSION\":\"1.0\"");

    if (info)
        ok = ok && ckpt_bytes_printf(&head, ",\"DCP_SHARDING_INFO\":\"{");
    for (size_t i = 0, k = 0; info && i < n; i++) {
        if (all[i].offsets && !*all[i].offsets)
            continue;
        ok = ok && ckpt_bytes_printf(&head, "%s\\\"%s\\\":{\\\"saved_offsets\\\":", k++ ? "," : "",
                                     all[i].name);
        ok = ok && (all[i].offsets ? ckpt_bytes_add(&head, all[i].offsets, strlen(all[i].offsets))
                                   : list_of(&head, all[i].start, all[i].ndim));
        ok = ok && ckpt_bytes_add(&head, "}", 1);
    }
    ok = ok && ckpt_bytes_printf(&head, info ? "}\"}" : "}");
    for (size_t i = 0; i < n; i++) {
        ok = ok && ckpt_bytes_printf(&head, ",\"%s\":{\"dtype\":\"U8\",\"shape\":", all[i].name) &&
             list_of(&head, all[i].count, all[i].ndim) &&
             ckpt_bytes_printf(&head, ",\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                               (unsigned long long)(at + elems(&all[i])));
        at += elems(&all[i]);
    }
    ok = ok && ckpt_bytes_add(&head, "}", 1);
    for (unsigned k = 0; ok && k < 8; k++)
        ok = ckpt_bytes_add(&file, &(uint8_t){(uint8_t)((uint64_t)head.n >> 8 * k)}, 1);
    ok = ok && ckpt_bytes_add(&file, head.at, head.n);
    for (size_t i = 0; i < n; i++) {
        for (uint64_t k = 0; ok && k < elems(&all[i]); k++)
            ok = ckpt_bytes_add(&file, &(uint8_t){number_of(&all[i], k, shape)}, 1);
    }
    assert_true(ok);
    folder_write(path, file.at, file.n);
    ckpt_vec_free(&head);
    ckpt_vec_free(&file);
}

static int gather(ckpt_map **out, const char *folder, ckpt_err *err)
{
    static const ckpt_open_opts opts = {0};
    ckpt_listing list;
    int rc = ckpt_map_create(out, 0, err);

    if (rc == CKPT_OK)
        rc = ckpt_listing_read(&list, *out, folder, err);
    if (rc == CKPT_OK) {
        list.read = ckpt_format_read;
        rc = ckpt_directory_hf_sharded.probe(&list) > 0
                 ? ckpt_directory_hf_sharded.gather(*out, &list, &opts, err)
                 : CKPT_EUSAGE;
    }
    return rc;
}

/* Compare every byte that a tensor's extents name with the number of its element. */
static void check_bytes(const ckpt_map *map, const ckpt_tensor *t)
{
    ckpt_box room;
    uint64_t seen = 0;

    for (uint32_t i = 0; i < t->n_extents; i++) {
        const ckpt_extent *e = ckpt_extent_of(t, i, &room);
        const ckpt_source *s = &map->sources.at[e->source];
        uint64_t n = 1;
        uint8_t bytes[4096];

        assert_true(folder_read(map->files.at[s->file].path, bytes, sizeof bytes) < sizeof bytes);
        for (uint32_t k = 0; k < e->ndim; k++)
            n *= e->axis[k].count;
        for (uint64_t j = 0; j < n; j++) {
            uint64_t rest = j, flat = 0, by = 1;
            int64_t at = (int64_t)(s->at + e->at);

            for (uint32_t k = e->ndim; k-- > 0;) {
                uint64_t x = rest % e->axis[k].count;

                rest /= e->axis[k].count;
                flat += by * (e->axis[k].start + x);
                at += (int64_t)x * e->axis[k].stride;
                by *= e->ndim == 1 ? 1 : t->shape[k];
            }
            assert_int_equal(bytes[at], (uint8_t)flat);
        }
        seen += n;
    }
    assert_int_equal(seen, t->n_elems);
}

static const char *file_name(unsigned rank, unsigned file, unsigned of)
{
    static char name[100];

    snprintf(name, sizeof name, "shard-%05u-model-%05u-of-%05u.safetensors", rank + 1, file, of);
    return name;
}

/* A tensor of two axes, one of which is cut over all ranks like torch.chunk. */
static void joins(void **state)
{
    (void)state;
    for (unsigned ranks = 1; ranks <= 4; ranks++) {
        for (unsigned axis = 0; axis < 2; axis++) {
            const uint64_t shape[3] = {7, 5};
            char folder[FOLDER_PATH];
            ckpt_map *map = NULL;
            ckpt_err err = {0};

            folder_new(folder);
            for (unsigned r = 0; r < ranks; r++) {
                uint64_t each = (shape[axis] + ranks - 1) / ranks, from = r * each;
                box x = {.name = "w", .ndim = 2, .count = {shape[0], shape[1]}};

                from = from < shape[axis] ? from : shape[axis];
                x.start[axis] = from;
                x.count[axis] = shape[axis] - from < each ? shape[axis] - from : each;
                write_file(folder_at(folder, file_name(r, 1, 1)), &x, 1, shape, true);
            }
            if (gather(&map, folder, &err) != CKPT_OK)
                fail_msg("%s", err.text);
            assert_int_equal(map->tensors.n, 1);
            assert_memory_equal(map->tensors.at[0]->shape, shape, 2 * sizeof *shape);
            assert_int_equal(map->metadata.n, 0); // that of pieces is dropped
            check_bytes(map, map->tensors.at[0]);
            ckpt_map_free(map);
            folder_remove(folder);
        }
    }
}

/* Boxes in a grid, scalars, tensors without elements; the order is that of the places. */
static void joins_grids(void **state)
{
    const uint64_t shape[3] = {4, 4, 3};
    const box first[] = {{.name = "w", .ndim = 3, .start = {0, 0, 0}, .count = {2, 3, 3}},
                         {.name = "s", .ndim = 0, .count = {1}},
                         {.name = "empty", .ndim = 2, .count = {0, 5}}},
              second[] = {{.name = "w", .ndim = 3, .start = {0, 3, 0}, .count = {4, 1, 3}}},
              third[] = {{.name = "w", .ndim = 3, .start = {2, 0, 0}, .count = {2, 3, 3}}};
    char folder[FOLDER_PATH];
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    (void)state;
    folder_new(folder);
    write_file(folder_at(folder, file_name(0, 1, 1)), first, 3, shape, true);
    write_file(folder_at(folder, file_name(1, 1, 1)), second, 1, shape, true);
    write_file(folder_at(folder, file_name(2, 1, 1)), third, 1, shape, true);
    if (gather(&map, folder, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(map->tensors.n, 3);
    assert_string_equal(map->tensors.at[0]->name, "w");
    assert_string_equal(map->tensors.at[1]->name, "s");
    assert_int_equal(map->tensors.at[1]->ndim, 0);
    assert_int_equal(map->tensors.at[2]->n_elems, 0);
    assert_int_equal(map->tensors.at[2]->shape[1], 5);
    check_bytes(map, map->tensors.at[0]);
    check_bytes(map, map->tensors.at[1]);
    ckpt_map_free(map);
    folder_remove(folder);
}

/* A folder of two ranks, the second of which has `x`; the outcome and its message. */
static int with_second(const box *x, ckpt_err *err)
{
    const uint64_t shape[3] = {4, 2};
    const box first = {.name = "w", .ndim = 2, .count = {2, 2}};
    char folder[FOLDER_PATH];
    ckpt_map *map = NULL;

    *err = (ckpt_err){0};
    folder_new(folder);
    write_file(folder_at(folder, file_name(0, 1, 1)), &first, 1, shape, true);
    write_file(folder_at(folder, file_name(1, 1, 1)), x, 1, shape, true);
    int rc = gather(&map, folder, err);
    ckpt_map_free(map);
    folder_remove(folder);
    return rc;
}

static void refuses_boxes(void **state)
{
    static const struct {
        box is;
        int code;
        const char *says;
    } cases[] = {
        {{"w", 2, {2, 0}, {2, 2}, NULL}, CKPT_OK, ""},
        {{"w", 2, {1, 0}, {2, 2}, NULL}, CKPT_EMISMATCH, ""}, // overlaps
        {{"w", 2, {3, 0}, {1, 2}, NULL}, CKPT_EMISMATCH, ""}, // leaves a hole
        {{"w", 2, {0, 0}, {2, 2}, NULL}, CKPT_EMISMATCH, ""}, // the same box
        {{"w", 1, {2}, {2}, NULL}, CKPT_EMISMATCH, "axes"},
        {{"w", 2, {0}, {2, 2}, "[2]"}, CKPT_EFORMAT, "saved_offsets"},
        {{"w", 2, {0}, {2, 2}, "[2,0,0]"}, CKPT_EFORMAT, "saved_offsets"},
        {{"w", 2, {0}, {2, 2}, "[-2,0]"}, CKPT_EFORMAT, "saved_offsets"},
        {{"w", 2, {0}, {2, 2}, "[2.0,0]"}, CKPT_EFORMAT, "saved_offsets"},
        {{"w", 2, {0}, {2, 2}, "2"}, CKPT_EFORMAT, "saved_offsets"},
        {{"w", 2, {0}, {2, 2}, "[18446744073709551615,0]"}, CKPT_EFORMAT, ""},
        {{"w", 2, {0}, {2, 2}, "[9223372036854775807,9223372036854775807]"}, CKPT_EFORMAT, ""},
        {{"w", 2, {0}, {2, 2}, "[1152921504606846976,0]"}, CKPT_EMISMATCH, ""},
        {{"w", 2, {2, 0}, {2, 2}, ""}, CKPT_EMISMATCH, "places"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_err err;
        int rc = with_second(&cases[i].is, &err);

        if (rc != cases[i].code || !strstr(err.text, cases[i].says))
            fail_msg("case %zu: %d (%s)", i, rc, err.text);
    }
}

static void refuses_folders(void **state)
{
    static const struct {
        struct {
            unsigned rank, file, of;
        } name[3];
        int code;
    } cases[] = {
        {{{0, 1, 1}}, CKPT_OK},
        {{{0, 1, 2}}, CKPT_EMISSING},             // one of the files of each rank
        {{{1, 1, 1}}, CKPT_EMISSING},             // the first rank
        {{{0, 1, 1}, {2, 1, 1}}, CKPT_EMISSING},  // a rank between
        {{{0, 1, 1}, {0, 1, 2}}, CKPT_EMISMATCH}, // two saves
        {{{0, 1, 1}, {4294967293u, 1, 1}}, CKPT_EMISSING},
        {{{0, 1, 4294967295u}}, CKPT_EMISSING},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const box x = {.name = "w", .ndim = 1, .count = {3}};
        char folder[FOLDER_PATH];
        ckpt_map *map = NULL;
        ckpt_err err = {0};

        folder_new(folder);
        for (unsigned k = 0; k < 3 && cases[i].name[k].of; k++)
            write_file(folder_at(folder, file_name(cases[i].name[k].rank, cases[i].name[k].file,
                                                   cases[i].name[k].of)),
                       &x, 1, (const uint64_t[]){3}, true);
        if (gather(&map, folder, &err) != cases[i].code)
            fail_msg("case %zu: %d (%s)", i, err.code, err.text);
        ckpt_map_free(map);
        folder_remove(folder);
    }
}

/* torch's reader lets a tensor without a place begin at 0; so each file needs other tensors. */
static void reads_without_places(void **state)
{
    const uint64_t shape[3] = {2, 2};
    const box a = {.name = "a", .ndim = 2, .count = {2, 2}},
              b = {.name = "b", .ndim = 2, .count = {2, 2}};
    char folder[FOLDER_PATH];
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    (void)state;
    folder_new(folder);
    write_file(folder_at(folder, file_name(0, 1, 1)), &b, 1, shape, false);
    write_file(folder_at(folder, file_name(1, 1, 1)), &a, 1, shape, false);
    if (gather(&map, folder, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(map->tensors.n, 2);
    assert_false(map->in_order);
    assert_non_null(map->no_order);
    check_bytes(map, map->tensors.at[0]);
    ckpt_map_free(map);
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_names),
        cmocka_unit_test(refuses_names),
        cmocka_unit_test(joins),
        cmocka_unit_test(joins_grids),
        cmocka_unit_test(refuses_boxes),
        cmocka_unit_test(refuses_folders),
        cmocka_unit_test(reads_without_places),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
