/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_source_reader.c: deflated records: decoded into memory or a file, refused when size, CRC or
 * stream are wrong.
 */
#include "ckpt.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

static help_dir dir;

static int setup(void **state)
{
    (void)state;
    help_dir_make(&dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    help_remove(dir.path);
    return 0;
}

/* What the archive says of a record. */
typedef struct claim {
    uint64_t n_stored, n_bytes;
    uint32_t crc;
    uint64_t memory; /* of the run */
} claim;

/* Convert a record that holds the stream. */
static int convert_deflated(const ckpt_bytes *b, const claim *c, float *got, ckpt_err *err)
{
    const uint64_t shape[1] = {50000};
    const ckpt_run_opts opts = {.memory = c->memory, .jobs = 2};
    ckpt_map *from = help_map(), *to = help_memory(got, 200000);
    int rc;

    help_write(help_join(&dir, "z"), b->at, b->n);
    (void)help_source(from, help_input(from, help_join(&dir, "z")), 0, c->n_bytes);
    from->sources.at[0].coding = CKPT_DEFLATE;
    from->sources.at[0].n_stored = c->n_stored;
    from->sources.at[0].has_crc = 1;
    from->sources.at[0].crc = c->crc;
    help_whole(from, help_tensor(from, "a", CKPT_F32, 1, shape), 0, 0);
    help_whole(to, help_tensor(to, "a", CKPT_F32, 1, shape), 0, 0);
    rc = help_convert(&dir, from, to, &opts, NULL, err);
    ckpt_map_free(to);
    ckpt_map_free(from);
    return rc;
}

static void test_deflated(void **state)
{
    float *in = help_values(50000, 5), *got = ckpt_alloc(200000);
    ckpt_bytes b = help_deflate((const uint8_t *)in, 200000);
    uint32_t crc = ckpt_crc32(0, in, 200000);
    ckpt_err err = {0};

    (void)state;
    // decoded into memory, and through a file because an eighth of the memory is too little
    for (unsigned i = 0; i < 2; i++) {
        memset(got, 0, 200000);
        assert_int_equal(
            convert_deflated(&b, &(claim){b.n, 200000, crc, i == 0 ? 0 : 1000000}, got, &err),
            CKPT_OK);
        assert_memory_equal(got, in, 200000);
    }
    assert_int_equal(convert_deflated(&b, &(claim){b.n, 200000, crc ^ 1, 0}, got, &err),
                     CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "CRC-32"));
    err = (ckpt_err){0};
    assert_int_equal(convert_deflated(&b, &(claim){b.n, 200004, crc, 0}, got, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "ends before"));
    err = (ckpt_err){0};
    assert_int_equal(convert_deflated(&b, &(claim){b.n - 7, 200000, crc, 0}, got, &err),
                     CKPT_EFORMAT);
    err = (ckpt_err){0};
    // a size that this stream could never reach reserves nothing
    assert_int_equal(convert_deflated(&b, &(claim){b.n, UINT64_C(1) << 50, crc, 0}, got, &err),
                     CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "too short"));
    err = (ckpt_err){0};
    assert_true(ckpt_bytes_add(&b, "tail", 4));
    assert_int_equal(convert_deflated(&b, &(claim){b.n, 200000, crc, 0}, got, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "left over"));
    err = (ckpt_err){0};
    b.at[0] = 0x07; // no such block type
    assert_int_equal(convert_deflated(&b, &(claim){b.n, 200000, crc, 0}, got, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "z: record 'rec'"));
    ckpt_vec_free(&b);
    ckpt_free(got);
    ckpt_free(in);
}

/* A record that yields more than it should is stopped at the first byte too many. */
static void test_deflated_too_long(void **state)
{
    float *in = help_values(50001, 5), *got = ckpt_alloc(200000);
    ckpt_bytes b = help_deflate((const uint8_t *)in, 200004);
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(
        convert_deflated(&b, &(claim){b.n, 200000, ckpt_crc32(0, in, 200000), 0}, got, &err),
        CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "more than"));
    ckpt_vec_free(&b);
    ckpt_free(got);
    ckpt_free(in);
}

/* A record that was refused is decoded anew, and refused again, each time it is asked for. */
static void test_deflated_again(void **state)
{
    const uint64_t shape[1] = {50000};
    float *in = help_values(50000, 5), got[4];
    ckpt_bytes b = help_deflate((const uint8_t *)in, 200000);
    ckpt_map *map = help_map();
    ckpt_reader *r = NULL;
    ckpt_source *s;

    (void)state;
    help_write(help_join(&dir, "z"), b.at, b.n);
    (void)help_source(map, help_input(map, help_join(&dir, "z")), 0, 200000);
    s = &map->sources.at[0];
    s->coding = CKPT_DEFLATE;
    s->n_stored = b.n;
    s->has_crc = 1;
    s->crc = ckpt_crc32(0, in, 200000) ^ 1;
    help_whole(map, help_tensor(map, "a", CKPT_F32, 1, shape), 0, 0);
    assert_int_equal(ckpt_reader_new(&r, map, NULL), CKPT_OK);
    for (unsigned i = 0; i < 2; i++) {
        ckpt_err err = {0};

        assert_int_equal(ckpt_reader_read(r, map->tensors.at[0], 0, 4, CKPT_F32, got, &err),
                         CKPT_EFORMAT);
        assert_non_null(strstr(err.text, "CRC-32"));
    }
    s->crc ^= 1;
    assert_int_equal(ckpt_reader_read(r, map->tensors.at[0], 0, 4, CKPT_F32, got, NULL), CKPT_OK);
    assert_memory_equal(got, in, sizeof got);
    ckpt_reader_free(r);
    ckpt_map_free(map);
    ckpt_vec_free(&b);
    ckpt_free(in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_deflated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deflated_too_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deflated_again, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
