/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h: signs bytes, and checks signatures and chains of certificates, by OpenSSL.
 *
 * The only keys are those of the elliptic curves P-256, P-384 and P-521, and the key alone decides
 * the hash (SHA-256, SHA-384, SHA-512): nothing in a signed file chooses an algorithm. They are the
 * keys of the package model-signing.
 */
#ifndef CKPT_BASE_KEYS_H
#define CKPT_BASE_KEYS_H

#include "libckpt/base/vec.h"

typedef struct ckpt_key ckpt_key;
typedef struct ckpt_certs ckpt_certs;

/*
 * Read a private or a public key from PEM text; name is for messages.
 *
 * Errors   CKPT_EFORMAT: no such key in the text; CKPT_EUNSUPPORTED: an encrypted key, or not one
 *          of the three curves; CKPT_ELIMIT
 */
int ckpt_key_private(ckpt_key **out, const char *name, const char *pem, ckpt_err *err);
int ckpt_key_public(ckpt_key **out, const char *name, const char *pem, ckpt_err *err);
void ckpt_key_free(ckpt_key *k); /* NULL is fine */

/* SHA-256 of the public key as PEM text, in hexadecimal: how a bundle names its key. */
int ckpt_key_hint(const ckpt_key *k, char out[65], ckpt_err *err);

/* Append the signature (ECDSA, DER) of n bytes by a private key. */
int ckpt_key_sign(const ckpt_key *k, const void *p, size_t n, ckpt_bytes *out, ckpt_err *err);

/* Compare a signature: CKPT_EDIGEST, with the name of the bundle, if the key did not make it. */
int ckpt_key_check(const ckpt_key *k, const void *p, size_t n, const ckpt_bytes *signature,
                   const char *name, ckpt_err *err);

/*
 * Read all certificates of a PEM text, at least one.
 *
 * Errors   CKPT_EFORMAT, CKPT_ELIMIT (also: more than CKPT_CERTS_MAX)
 */
int ckpt_certs_read(ckpt_certs **out, const char *name, const char *pem, ckpt_err *err);
void ckpt_certs_free(ckpt_certs *c); /* NULL is fine */
enum { CKPT_CERTS_MAX = 1024 };      /* a system's list of roots has about 150 */

/* An empty list, to which ckpt_certs_add adds a certificate in DER. */
int ckpt_certs_new(ckpt_certs **out, ckpt_err *err);
int ckpt_certs_add(ckpt_certs *c, const char *name, const ckpt_bytes *der, ckpt_err *err);

/* The number of certificates; append the i-th in DER. */
size_t ckpt_certs_count(const ckpt_certs *c);
int ckpt_certs_der(const ckpt_certs *c, size_t i, ckpt_bytes *out, ckpt_err *err);

/*
 * Check the first certificate: it may sign, it is valid now, and the others lead from it to a
 * self-signed one in trusted. Set *out to its key.
 *
 * trusted  NULL: the signer checks its own chain: only the certificates' usages, and whether the
 *          first is valid now
 * name     of the file with the chain
 * Errors   CKPT_EDIGEST: it must not be trusted; CKPT_EUNSUPPORTED: its key; CKPT_ELIMIT
 */
int ckpt_certs_check(const ckpt_certs *chain, const ckpt_certs *trusted, const char *name,
                     ckpt_key **out, ckpt_err *err);

/* CKPT_EUSAGE if the first certificate is not for the public part of the key. */
int ckpt_certs_match(const ckpt_certs *chain, const ckpt_key *key, const char *name, ckpt_err *err);

/* Append the subject of the first certificate, in one line: "CN=release, O=Example". */
int ckpt_certs_subject(const ckpt_certs *chain, ckpt_bytes *out, ckpt_err *err);

/* Append base64 (RFC 4648, with padding) without a terminator; false: no memory. */
bool ckpt_base64_write(ckpt_bytes *out, const void *p, size_t n);

/*
 * Append the bytes of a base64 text. CKPT_EFORMAT: not exactly the text that ckpt_base64_write
 * makes; CKPT_ELIMIT.
 */
int ckpt_base64_read(ckpt_bytes *out, const char *text, size_t n);

#endif
