/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_digest.c: CRC-32 and SHA-256 against published values, in parts and as a whole.
 */
#include "libckpt/base/digest.h"
#include "libckpt/base/mem.h"
#include "tests/unit/unit.h"

static unsigned char bytes[100003];

static void fill_bytes(void)
{
    uint32_t x = 12345;

    for (size_t i = 0; i < sizeof bytes; i++) {
        x = x * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(x >> 24);
    }
}

static void crc_known_values(void **state)
{
    (void)state;
    assert_int_equal(ckpt_crc32(0, "", 0), 0);
    assert_int_equal(ckpt_crc32(0, NULL, 0), 0);
    assert_int_equal(ckpt_crc32(0x1234, NULL, 0), 0x1234);
    assert_int_equal(ckpt_crc32(0, "123456789", 9),
                     0xcbf43926u); // the check value of the catalogues
    assert_int_equal(ckpt_crc32(0, "\0\0\0\0", 4), 0x2144df1cu);
}

static void crc_in_parts(void **state)
{
    uint32_t whole;

    (void)state;
    fill_bytes();
    whole = ckpt_crc32(0, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut += 4999) {
        size_t rest = sizeof bytes - cut;
        uint32_t a = ckpt_crc32(0, bytes, cut), b = ckpt_crc32(0, bytes + cut, rest);

        assert_int_equal(ckpt_crc32(a, bytes + cut, rest), whole);
        assert_int_equal(ckpt_crc32_join(a, b, rest), whole);
    }
    assert_int_equal(ckpt_crc32_join(whole, 0, 0), whole);
    assert_int_equal(ckpt_crc32_join(0, whole, sizeof bytes), whole);
}

/* Lengths above 2^30 are joined in steps: compare with the real CRC of that many bytes. */
static void crc_join_beyond_a_step(void **state)
{
    uint32_t a, b = 0, all;
    uint64_t n = 0;

    (void)state;
    fill_bytes();
    a = ckpt_crc32(0, "head", 4);
    all = a;
    while (n < (5ull << 28)) {
        b = ckpt_crc32(b, bytes, sizeof bytes);
        all = ckpt_crc32(all, bytes, sizeof bytes);
        n += sizeof bytes;
    }
    assert_int_equal(ckpt_crc32_join(a, b, n), all);
}

static void assert_sha(ckpt_sha256 *s, const char *hex)
{
    uint8_t digest[32];
    char text[65];
    ckpt_err err = {0};

    assert_int_equal(ckpt_sha256_end(s, digest, &err), CKPT_OK);
    ckpt_sha256_hex(digest, text);
    assert_string_equal(text, hex);
}

/* FIPS 180-4 examples; one struct serves digest after digest. */
static void sha_known_values(void **state)
{
    ckpt_sha256 *s = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_sha256_new(&s, &err), CKPT_OK);
    assert_sha(s, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_int_equal(ckpt_sha256_add(s, "abc", 3, &err), CKPT_OK);
    assert_sha(s, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (int i = 0; i < 1000; i++) {
        char block[1000];

        memset(block, 'a', sizeof block);
        assert_int_equal(ckpt_sha256_add(s, block, sizeof block, &err), CKPT_OK);
        assert_int_equal(ckpt_sha256_add(s, NULL, 0, &err), CKPT_OK);
    }
    assert_sha(s, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    ckpt_sha256_free(s);
    ckpt_sha256_free(NULL);
}

/* A digest is read back from its text; a text that is shorter, longer or not hexadecimal is not. */
static void sha_reads_text(void **state)
{
    char text[66] = "00ff10Ab5555555555555555555555555555555555555555555555555555fE9a";
    uint8_t digest[32];
    char again[65];

    (void)state;
    assert_true(ckpt_sha256_parse(digest, text));
    assert_int_equal(digest[1], 0xff);
    assert_int_equal(digest[31], 0x9a);
    ckpt_sha256_hex(digest, again);
    assert_string_equal(again, "00ff10ab5555555555555555555555555555555555555555555555555555fe9a");
    for (size_t i = 0; i < 64; i++) {
        char was = text[i];

        text[i] = i % 2 ? 'g' : '\0';
        assert_false(ckpt_sha256_parse(digest, text));
        text[i] = was;
    }
    text[64] = '0';
    assert_false(ckpt_sha256_parse(digest, text));
}

static void sha_without_memory(void **state)
{
    ckpt_sha256 *s = (ckpt_sha256 *)bytes;
    ckpt_err err = {0};

    (void)state;
    ckpt_alloc_fail_at(0);
    assert_int_equal(ckpt_sha256_new(&s, &err), CKPT_ELIMIT);
    ckpt_alloc_fail_at(UINT64_MAX);
    assert_null(s);
    assert_int_equal(err.code, CKPT_ELIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc_known_values),       cmocka_unit_test(crc_in_parts),
        cmocka_unit_test(crc_join_beyond_a_step), cmocka_unit_test(sha_known_values),
        cmocka_unit_test(sha_reads_text),         cmocka_unit_test(sha_without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
