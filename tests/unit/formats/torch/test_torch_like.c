/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_torch_like.c: archives that are read beside another: one tree where the pickles are equal,
 * and every check of what is each archive's own.
 */
#include "libckpt/base/digest.h"
#include "libckpt/codec/zip/zip.h"
#include "libckpt/format.h"
#include "tests/unit/unit.h"

extern const ckpt_format ckpt_format_torch;

typedef struct record {
    const char *name;
    const void *bytes;
    size_t n;
} record;

/* {"w": float tensor of 3 elements in storage "0"}, protocol 2. */
static const char one_float[] =
    "\x80\x02}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\n"
    "X\1\0\0\0000X\3\0\0\0cpuK\3tQK\0K\3\x85K\1\x85\x89"
    "ccollections\nOrderedDict\n)RtRs.";

static const float three[3] = {1.0f, 2.0f, 3.0f}, others[3] = {4.0f, 5.0f, 6.0f};

/* An archive of these records, until a NULL name, in a folder. */
static void pack(ckpt_bytes *out, const char *top, const record *r)
{
    ckpt_zip_item item[8];
    char name[8][64];
    uint64_t at = 0;
    size_t n;

    memset(out, 0, sizeof *out);
    for (n = 0; r[n].name; n++) {
        snprintf(name[n], sizeof name[n], "%s/%s", top, r[n].name);
        item[n] = (ckpt_zip_item){.name = name[n], .n_name = strlen(name[n]), .n_bytes = r[n].n};
        item[n].crc = ckpt_crc32(0, r[n].bytes, r[n].n);
        assert_int_equal(ckpt_zip_place(&item[n], &at, NULL), CKPT_OK);
        assert_true(ckpt_zip_put_header(out, &item[n]));
        assert_true(ckpt_bytes_add(out, r[n].bytes, r[n].n));
        assert_true(ckpt_zip_put_descriptor(out, &item[n]));
    }
    assert_true(ckpt_zip_put_directory(out, item, n, at));
}

/* Read an archive, beside another where there is one. */
static int read_beside(ckpt_map **out, const char *top, const record *r, const ckpt_map *like,
                       ckpt_err *err)
{
    ckpt_bytes b;
    pack(&b, top, r);
    ckpt_map_file file = {.path = "t.pt", .format = &ckpt_format_torch, .size = b.n};
    uint32_t index = 0;
    ckpt_io *io = NULL;

    assert_int_equal(ckpt_map_create(out, 0, err), CKPT_OK);
    (*out)->keep_header = like == NULL;
    (*out)->like = like;
    assert_int_equal(ckpt_io_memory(&io, "t.pt", b.at, b.n, err), CKPT_OK);
    assert_int_equal(ckpt_map_add_file(*out, &file, &index, err), CKPT_OK);
    int rc = ckpt_format_torch.read(*out, io, index, err);
    ckpt_io_close(io);
    ckpt_vec_free(&b);
    return rc;
}

#define PICKLE                                                                                     \
    {                                                                                              \
        "data.pkl", one_float, sizeof one_float - 1                                                \
    }
#define VERSION                                                                                    \
    {                                                                                              \
        "version", "3\n", 2                                                                        \
    }
#define OTHERS                                                                                     \
    {                                                                                              \
        "data/0", others, sizeof others                                                            \
    }
#define END                                                                                        \
    {                                                                                              \
        NULL, NULL, 0                                                                              \
    }

static int begin(void **state)
{
    static const record first[] = {PICKLE, {"data/0", three, sizeof three}, VERSION, END};
    ckpt_map *map = NULL;

    if (read_beside(&map, "first", first, NULL, NULL) != CKPT_OK)
        return -1;
    *state = map;
    return 0;
}

static int end(void **state)
{
    ckpt_map_free(*state);
    return 0;
}

/* The tree is the first one's, the bytes are the archive's own. */
static void expect_shared(const ckpt_map *like, const char *top, const record *r)
{
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    if (read_beside(&map, top, r, like, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    assert_ptr_equal(map->values, like->values);
    assert_int_equal(map->tensors.n, 0);
    assert_int_equal(map->sources.n, 1);
    assert_int_equal(map->sources.at[0].crc, ckpt_crc32(0, others, sizeof others));
    ckpt_map_free(map);
}

static void alike(void **state)
{
    const ckpt_map *like = *state;
    const record same[] = {PICKLE, OTHERS, VERSION, END}, moved[] = {VERSION, PICKLE, OTHERS, END},
                 more[] = {PICKLE, {"byteorder", "little", 6}, OTHERS, VERSION, END},
                 behind[] = {PICKLE, OTHERS, VERSION, {"more", "x", 1}, END};

    assert_non_null(like->header);
    assert_int_equal(like->tensors.n, 1);
    expect_shared(like, "first", same);
    expect_shared(like, "the second has a longer name", same);
    expect_shared(like, "b", moved);
    expect_shared(like, "b", more);
    expect_shared(like, "b", behind);
}

/* An archive that is not like the first has a tree of its own. */
static void expect_own(const ckpt_map *like, const record *r, const char *tensor)
{
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    if (read_beside(&map, "b", r, like, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    assert_ptr_not_equal(map->values, like->values);
    assert_int_equal(map->tensors.n, 1);
    assert_string_equal(map->tensors.at[0]->name, tensor);
    ckpt_map_free(map);
}

static void different(void **state)
{
    char renamed[sizeof one_float];
    memcpy(renamed, one_float, sizeof renamed);
    *(char *)memchr(renamed, 'w', sizeof renamed) = 'v';
    const record other[] = {{"data.pkl", renamed, sizeof renamed - 1}, OTHERS, VERSION, END},
                 big[] = {PICKLE, OTHERS, {"byteorder", "big", 3}, VERSION, END};

    expect_own(*state, other, "v");
    expect_own(*state, big, "w");
}

/* The same pickle excuses nothing of what the archive is. */
static void expect_refused(const ckpt_map *like, const char *top, const record *r, int code,
                           const char *text)
{
    ckpt_map *map = NULL;
    ckpt_err err = {0};
    int rc = read_beside(&map, top, r, like, &err);

    if (rc != code || !strstr(err.text, text))
        fail_msg("expected %d \"%s\", got %d \"%s\"", code, text, rc, err.text);
    ckpt_map_free(map);
}

static void refused(void **state)
{
    const record same[] = {PICKLE, OTHERS, VERSION, END}, lost[] = {PICKLE, VERSION, END},
                 small[] = {PICKLE, {"data/0", others, 8}, VERSION, END},
                 twice[] = {PICKLE, OTHERS, VERSION, VERSION, END},
                 leaves[] = {PICKLE, OTHERS, VERSION, {"../x", "x", 1}, END},
                 newer[] = {PICKLE, OTHERS, {"version", "99", 2}, END};

    expect_refused(*state, "b", lost, CKPT_EFORMAT, "needs record data/0");
    expect_refused(*state, "b", small, CKPT_EFORMAT, "holds 8 bytes, but its tensors need 12");
    expect_refused(*state, "b", twice, CKPT_EFORMAT, "appears twice");
    expect_refused(*state, "b", leaves, CKPT_EUNSAFE, "could leave the folder");
    expect_refused(*state, "..", same, CKPT_EUNSAFE, "could leave the folder");
    expect_refused(*state, "b", newer, CKPT_EFORMAT, "format version \"99\"");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(alike, begin, end),
        cmocka_unit_test_setup_teardown(different, begin, end),
        cmocka_unit_test_setup_teardown(refused, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
