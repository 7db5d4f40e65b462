/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.c: computes CRC-32 and SHA-256; the only file that uses libdeflate, zlib's crc32_combine
 * and OpenSSL's EVP.
 *
 * libdeflate computes CRC-32 at memory speed (carry-less multiplication) but cannot join two of
 * them; zlib can.
 */
#include <assert.h>

#include "libckpt/base/digest.h"

#include <libdeflate.h>
#include <openssl/evp.h>
#include <zlib.h>

#include "libckpt/base/mem.h"

/* One SHA-256 in progress; OpenSSL keeps its own state on its own heap. */
struct ckpt_sha256 {
    EVP_MD_CTX *ctx;
};

uint32_t ckpt_crc32(uint32_t crc, const void *p, size_t n)
{
    assert(p || n == 0);
    // for libdeflate p == NULL means "return the initial value"
    return n == 0 ? crc : libdeflate_crc32(crc, p, n);
}

uint32_t ckpt_crc32_join(uint32_t crc_a, uint32_t crc_b, uint64_t n_b)
{
    // z_off_t is signed, and 32 bits wide on some systems, so a long B is joined in steps.
    // crc32_combine(a, 0, n) is the CRC of A followed by n bytes with CRC 0, that is A moved up by
    // n bytes. CRCs are linear, so moving in parts and adding B at the end is the same.
    const uint64_t step = 1u << 30;

    while (n_b > step) {
        crc_a = (uint32_t)crc32_combine(crc_a, 0, (z_off_t)step);
        n_b -= step;
    }
    return (uint32_t)crc32_combine(crc_a, crc_b, (z_off_t)n_b);
}

/* Report an EVP failure; OpenSSL fails here only without memory or without a provider. */
static int sha_fail(ckpt_err *err)
{
    return ckpt_fail(err, CKPT_ELIMIT, "SHA-256: OpenSSL failed (no memory, or no such algorithm)");
}

int ckpt_sha256_new(ckpt_sha256 **out, ckpt_err *err)
{
    ckpt_sha256 *s = ckpt_alloc(sizeof *s);

    *out = NULL;
    if (!s)
        return ckpt_fail_memory(err);
    s->ctx = EVP_MD_CTX_new();
    if (!s->ctx || EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL) != 1) {
        ckpt_sha256_free(s);
        return sha_fail(err);
    }
    *out = s;
    return CKPT_OK;
}

int ckpt_sha256_add(ckpt_sha256 *s, const void *p, size_t n, ckpt_err *err)
{
    assert(s && (p || n == 0));
    return n == 0 || EVP_DigestUpdate(s->ctx, p, n) == 1 ? CKPT_OK : sha_fail(err);
}

int ckpt_sha256_end(ckpt_sha256 *s, uint8_t out[32], ckpt_err *err)
{
    assert(s);
    // the second call prepares s for the next digest
    if (EVP_DigestFinal_ex(s->ctx, out, NULL) != 1 ||
        EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL) != 1)
        return sha_fail(err);
    return CKPT_OK;
}

void ckpt_sha256_free(ckpt_sha256 *s)
{
    if (s) {
        EVP_MD_CTX_free(s->ctx);
        ckpt_free(s);
    }
}

void ckpt_sha256_hex(const uint8_t digest[32], char out[65])
{
    static const char digits[] = "0123456789abcdef";

    for (unsigned i = 0; i < 32; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[64] = '\0';
}

/* The value of a hexadecimal digit, or 16. */
static unsigned sha_digit(char c)
{
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0');
    if (c >= 'a' && c <= 'f')
        return (unsigned)(c - 'a') + 10;
    return c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10 : 16;
}

bool ckpt_sha256_parse(uint8_t digest[32], const char *hex)
{
    for (unsigned i = 0; i < 32; i++) {
        unsigned high = sha_digit(hex[2 * i]);
        unsigned low = high < 16 ? sha_digit(hex[2 * i + 1]) : 16;

        if (low == 16)
            return false;
        digest[i] = (uint8_t)(high << 4 | low);
    }
    return hex[64] == '\0';
}
