/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.h: computes CRC-32 (zip's polynomial; libdeflate, joined by zlib) and SHA-256 (OpenSSL
 * EVP).
 */
#ifndef CKPT_BASE_DIGEST_H
#define CKPT_BASE_DIGEST_H

#include "libckpt/base/err.h"

/* CRC-32 of n bytes continuing from crc (0 to begin). */
uint32_t ckpt_crc32(uint32_t crc, const void *p, size_t n);

/* CRC-32 of A followed by B, from their CRCs and the length of B in bytes. */
uint32_t ckpt_crc32_join(uint32_t crc_a, uint32_t crc_b, uint64_t n_b);

typedef struct ckpt_sha256 ckpt_sha256;

/* Start a digest. Errors: CKPT_ELIMIT (memory), CKPT_EIO (OpenSSL has no SHA-256). */
int ckpt_sha256_new(ckpt_sha256 **out, ckpt_err *err);

/* Add n bytes. */
int ckpt_sha256_add(ckpt_sha256 *s, const void *p, size_t n, ckpt_err *err);

/* Finish the digest of all bytes so far; s can then be used again. */
int ckpt_sha256_end(ckpt_sha256 *s, uint8_t out[32], ckpt_err *err);
void ckpt_sha256_free(ckpt_sha256 *s); /* NULL is fine */

/* Write a digest as 64 hexadecimal digits and a terminator. */
void ckpt_sha256_hex(const uint8_t digest[32], char out[65]);

/* Read 64 hexadecimal digits, of either case; false: the text is not that. */
bool ckpt_sha256_parse(uint8_t digest[32], const char *hex);

#endif
