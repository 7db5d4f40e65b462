/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_io.c: files, memory, slurping, and the pool that notices changed files.
 */
#include <pthread.h>
#include <utime.h>

#include "libckpt/base/digest.h"
#include "libckpt/io/io_digest.h"
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

static void test_open_refuses(void **state)
{
    ckpt_err err = {0};
    ckpt_io *io = NULL;

    (void)state;
    assert_int_equal(ckpt_io_open(&io, help_join(&dir, "absent"), &err), CKPT_EMISSING);
    assert_null(io);
    assert_non_null(strstr(err.text, "absent"));
    err = (ckpt_err){0};
    assert_int_equal(ckpt_io_open(&io, dir.path, &err), CKPT_EFORMAT);
    err = (ckpt_err){0};
    // a FIFO without a writer must not block
    assert_int_equal(mkfifo(help_join(&dir, "fifo"), 0600), 0);
    assert_int_equal(ckpt_io_open(&io, help_join(&dir, "fifo"), &err), CKPT_EFORMAT);
    err = (ckpt_err){0};
    assert_int_equal(ckpt_io_open(&io, "/dev/zero", &err), CKPT_EFORMAT);
    assert_null(io);
}

static void test_read_ranges(void **state)
{
    uint8_t bytes[5000], got[5000];
    ckpt_err err = {0};
    ckpt_io *io[2] = {0};
    ckpt_map_file id = {0};

    (void)state;
    help_noise(bytes, sizeof bytes, 1);
    help_write(help_join(&dir, "f"), bytes, sizeof bytes);
    assert_int_equal(ckpt_io_open(&io[0], help_join(&dir, "f"), &err), CKPT_OK);
    assert_int_equal(ckpt_io_memory(&io[1], "mem", bytes, sizeof bytes, &err), CKPT_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(io[i]->size, sizeof bytes);
        assert_int_equal(ckpt_io_read(io[i], got, 5000, 0, &err), CKPT_OK);
        assert_memory_equal(got, bytes, 5000);
        assert_int_equal(ckpt_io_read(io[i], got, 17, 4983, &err), CKPT_OK);
        assert_memory_equal(got, bytes + 4983, 17);
        assert_int_equal(ckpt_io_read(io[i], got, 0, 5000, &err), CKPT_OK);
        assert_int_equal(ckpt_io_read(io[i], got, 18, 4983, &err), CKPT_EFORMAT);
        err = (ckpt_err){0};
        assert_int_equal(ckpt_io_read(io[i], got, 1, UINT64_MAX, &err), CKPT_EFORMAT);
        err = (ckpt_err){0};
    }
    ckpt_io_identify(io[0], &id);
    assert_int_equal(id.size, 5000);
    assert_true(id.ino != 0);
    // a file that shrinks below us is an error, not a crash or silence
    assert_int_equal(truncate(help_join(&dir, "f"), 100), 0);
    assert_int_equal(ckpt_io_read(io[0], got, 200, 0, &err), CKPT_EIO);
    ckpt_io_close(io[0]);
    ckpt_io_close(io[1]);
    ckpt_io_close(NULL);
}

/* More than one block, and no byte: against sha256sum's results. */
static void test_sha256(void **state)
{
    static uint8_t zeros[300000];
    static const struct {
        uint64_t n;
        const char *hex;
    } cases[] = {
        {0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {sizeof zeros, "886715e4051e827f4fe215df3053af3f85ad0d352db2c829c7487af6d78efe30"},
    };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        ckpt_err err = {0};
        ckpt_io *io = NULL;
        uint8_t digest[32];
        char hex[65];

        assert_int_equal(ckpt_io_memory(&io, "mem", zeros, cases[i].n, &err), CKPT_OK);
        assert_int_equal(ckpt_io_sha256(digest, io, NULL, &err), CKPT_OK);
        ckpt_sha256_hex(digest, hex);
        assert_string_equal(hex, cases[i].hex);
        ckpt_io_close(io);
    }
}

static void test_slurp(void **state)
{
    ckpt_err err = {0};
    char *p = NULL;
    uint64_t n = 0;

    (void)state;
    help_write(help_join(&dir, "small"), "tag\n", 4);
    assert_int_equal(ckpt_io_slurp(&p, &n, help_join(&dir, "small"), 4, &err), CKPT_OK);
    assert_int_equal(n, 4);
    assert_string_equal(p, "tag\n");
    ckpt_free(p);
    assert_int_equal(ckpt_io_slurp(&p, &n, help_join(&dir, "small"), 3, &err), CKPT_ELIMIT);
    assert_null(p);
    for (unsigned i = 0;; i++) {
        int rc;

        err = (ckpt_err){0};
        ckpt_alloc_fail_at(i);
        rc = ckpt_io_slurp(&p, &n, help_join(&dir, "small"), 4, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc == CKPT_OK)
            break;
        assert_int_equal(rc, CKPT_ELIMIT);
        assert_null(p);
    }
    ckpt_free(p);
}

enum { N_FILES = 7, FILE_BYTES = 1000 };

typedef struct reads {
    ckpt_io_pool *pool;
    unsigned seed;
    int bad;
} reads;

static void *read_many(void *arg)
{
    reads *r = arg;
    uint8_t expect[FILE_BYTES], got[FILE_BYTES];

    for (unsigned i = 0; i < 300; i++) {
        ckpt_err err = {0};
        uint32_t file = (r->seed + i * 5) % N_FILES;

        help_noise(expect, FILE_BYTES, file);
        if (ckpt_io_pool_read(r->pool, file, got, FILE_BYTES - i, i, &err) != CKPT_OK ||
            memcmp(got, expect + i, FILE_BYTES - i) != 0)
            r->bad++;
    }
    return NULL;
}

static void test_pool_shares_few_descriptors(void **state)
{
    uint8_t bytes[FILE_BYTES];
    char name[16];
    ckpt_map *map = help_map();
    ckpt_io_pool *pool = NULL;
    ckpt_err err = {0};
    pthread_t thread[4];
    reads r[4];

    (void)state;
    for (unsigned i = 0; i < N_FILES; i++) {
        (void)snprintf(name, sizeof name, "f%u", i);
        help_noise(bytes, FILE_BYTES, i);
        help_write(help_join(&dir, name), bytes, FILE_BYTES);
        (void)help_input(map, help_join(&dir, name));
    }
    assert_int_equal(ckpt_io_pool_new(&pool, map, 2, &err), CKPT_OK);
    for (unsigned i = 0; i < 4; i++) {
        r[i] = (reads){pool, i, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, read_many, &r[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(r[i].bad, 0);
    }
    assert_int_equal(ckpt_io_pool_check(pool, &err), CKPT_OK);
    assert_int_equal(ckpt_io_pool_read(pool, N_FILES, bytes, 1, 0, &err), CKPT_EUSAGE);
    ckpt_io_pool_free(pool);
    ckpt_map_free(map);
}

static void test_pool_notices_changes(void **state)
{
    uint8_t bytes[FILE_BYTES] = {0};
    const struct utimbuf past = {1000, 1000};
    ckpt_map *map = help_map();
    ckpt_io_pool *pool = NULL;
    ckpt_err err = {0};
    const char *a = help_join(&dir, "a"), *b = help_join(&dir, "b"), *c = help_join(&dir, "c");

    (void)state;
    help_write(a, bytes, FILE_BYTES);
    help_write(b, bytes, FILE_BYTES);
    help_write(c, bytes, FILE_BYTES);
    (void)help_input(map, a);
    (void)help_input(map, b);
    (void)help_input(map, c);
    assert_int_equal(ckpt_io_pool_new(&pool, map, 0, &err), CKPT_OK);
    assert_int_equal(ckpt_io_pool_read(pool, 0, bytes, 10, 0, &err), CKPT_OK);
    // b changes before it is opened again, c is never looked at
    help_write(b, bytes, FILE_BYTES - 1);
    help_write(c, bytes, FILE_BYTES - 1);
    assert_int_equal(ckpt_io_pool_read(pool, 1, bytes, 10, 0, &err), CKPT_EIO);
    assert_non_null(strstr(err.text, "changed"));
    err = (ckpt_err){0};
    assert_int_equal(ckpt_io_pool_check(pool, &err), CKPT_OK);
    // same size, other time
    assert_int_equal(ckpt_io_pool_read(pool, 0, bytes, 10, 0, &err), CKPT_OK);
    assert_int_equal(utime(a, &past), 0);
    assert_int_equal(ckpt_io_pool_check(pool, &err), CKPT_EIO);
    ckpt_io_pool_free(pool);
    ckpt_map_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_open_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_read_ranges, setup, teardown),
        cmocka_unit_test(test_sha256),
        cmocka_unit_test_setup_teardown(test_slurp, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pool_shares_few_descriptors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pool_notices_changes, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
