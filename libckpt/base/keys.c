/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.c: the only file that uses OpenSSL's keys, certificates and base64.
 *
 * OpenSSL keeps its failures in a queue of each thread; each function empties it.
 */
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/digest.h"
#include "libckpt/base/keys.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
#include <openssl/core_names.h>
#else
#include <openssl/ec.h>
#endif

struct ckpt_key {
    EVP_PKEY *key;
    const EVP_MD *hash; /* the hash for its curve */
};

CKPT_VEC(ec_x509s, X509 *);

struct ckpt_certs {
    ec_x509s all;
};

enum { EC_CHAIN = 32 /* certificates of a bundle at most */, EC_NAME = 192 };

/* Report a failed call of OpenSSL: it fails so only without memory or without an algorithm. */
static int ec_fail(ckpt_err *err, const char *what)
{
    ERR_clear_error();
    return ckpt_fail(err, CKPT_ELIMIT, "%s: OpenSSL failed (no memory, or no such algorithm)",
                     what);
}

/* ---- keys ---- */

#if OPENSSL_VERSION_NUMBER >= 0x30000000L
/* The name of a key's type, such as "RSA"; NULL: a type without a name. */
static const char *ec_type(const EVP_PKEY *key)
{
    return EVP_PKEY_get0_type_name(key);
}

/* OpenSSL's number (NID) of the curve of a key; NID_undef: not an elliptic curve with a name. */
static int ec_curve(EVP_PKEY *key)
{
    char curve[64] = "";
    size_t n;
    bool named =
        EVP_PKEY_is_a(key, "EC") && EVP_PKEY_get_group_name(key, curve, sizeof curve, &n) == 1;

    return named ? OBJ_txt2nid(curve) : NID_undef;
}

/*
 * Give the key the form with the curve's name and an uncompressed point.  Other verifiers hash this
 * form, so the hint in a signature must be its hash, whatever form the key's file has.
 */
static bool ec_usual(EVP_PKEY *key)
{
    return EVP_PKEY_set_utf8_string_param(key, OSSL_PKEY_PARAM_EC_ENCODING,
                                          OSSL_PKEY_EC_ENCODING_GROUP) == 1 &&
           EVP_PKEY_set_utf8_string_param(key, OSSL_PKEY_PARAM_EC_POINT_CONVERSION_FORMAT,
                                          OSSL_PKEY_EC_POINT_CONVERSION_FORMAT_UNCOMPRESSED) == 1;
}

static bool ec_same(const EVP_PKEY *a, const EVP_PKEY *b)
{
    return EVP_PKEY_eq(a, b) == 1;
}
#else
/* The same four functions for OpenSSL 1.1.1, which Debian 11, Ubuntu 20.04 and RHEL 8 have. */
static const char *ec_type(const EVP_PKEY *key)
{
    const char *name = NULL;

    EVP_PKEY_asn1_get0_info(NULL, NULL, NULL, NULL, &name, EVP_PKEY_get0_asn1(key));
    return name;
}

static int ec_curve(EVP_PKEY *key)
{
    bool ec = EVP_PKEY_base_id(key) == EVP_PKEY_EC;

    return ec ? EC_GROUP_get_curve_name(EC_KEY_get0_group(EVP_PKEY_get0_EC_KEY(key))) : NID_undef;
}

static bool ec_usual(EVP_PKEY *key)
{
    EC_KEY_set_asn1_flag(EVP_PKEY_get0_EC_KEY(key), OPENSSL_EC_NAMED_CURVE);
    EC_KEY_set_conv_form(EVP_PKEY_get0_EC_KEY(key), POINT_CONVERSION_UNCOMPRESSED);
    return true;
}

static bool ec_same(const EVP_PKEY *a, const EVP_PKEY *b)
{
    return EVP_PKEY_cmp(a, b) == 1;
}
#endif

/* The hash for the curve of a key; NULL: not one of the three curves. */
static const EVP_MD *ec_hash(EVP_PKEY *key)
{
    switch (ec_curve(key)) {
    case NID_X9_62_prime256v1:
        return EVP_sha256();
    case NID_secp384r1:
        return EVP_sha384();
    case NID_secp521r1:
        return EVP_sha512();
    default:
        return NULL;
    }
}

/* Take a key of OpenSSL, which the new key owns also on failure. */
static int ec_take(ckpt_key **out, EVP_PKEY *pkey, const char *name, ckpt_err *err)
{
    const EVP_MD *hash = ec_hash(pkey);
    const char *type = ec_type(pkey);
    int rc = CKPT_OK;

    if (!hash)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED,
                       "%s: is a key of type %s: expected an elliptic curve P-256, P-384 or P-521 "
                       "(openssl ecparam -name prime256v1 -genkey -noout)",
                       name, type && strcmp(type, "EC") != 0 ? type : "EC with another curve");
    if (rc == CKPT_OK && !ec_usual(pkey))
        rc = ec_fail(err, name);
    *out = rc == CKPT_OK ? ckpt_alloc(sizeof **out) : NULL;
    if (rc == CKPT_OK && !*out)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        **out = (ckpt_key){.key = pkey, .hash = hash};
    else
        EVP_PKEY_free(pkey);
    ERR_clear_error();
    return rc;
}

/* Instead of asking at the terminal: no passphrase, and a note that one was needed. */
static int ec_passphrase(char *buf, int room, int writing, void *ctx)
{
    (void)buf;
    (void)room;
    (void)writing;
    *(bool *)ctx = true;
    return -1;
}

int ckpt_key_private(ckpt_key **out, const char *name, const char *pem, ckpt_err *err)
{
    bool locked = false;

    *out = NULL;
    BIO *bio = BIO_new_mem_buf(pem, -1);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, ec_passphrase, &locked) : NULL;

    BIO_free(bio);
    ERR_clear_error();
    if (key)
        return ec_take(out, key, name, err);
    if (locked)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: the key is encrypted: decrypt it for this command only, as in "
                         "--key <(openssl pkey -in %s)",
                         name, name);
    return ckpt_fail(err, CKPT_EFORMAT, "%s: has no private key in PEM form", name);
}

int ckpt_key_public(ckpt_key **out, const char *name, const char *pem, ckpt_err *err)
{
    *out = NULL;
    BIO *bio = BIO_new_mem_buf(pem, -1);
    EVP_PKEY *key = bio ? PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL) : NULL;

    BIO_free(bio);
    ERR_clear_error();
    if (key)
        return ec_take(out, key, name, err);
    return ckpt_fail(err, CKPT_EFORMAT, "%s: has no public key in PEM form%s", name,
                     strstr(pem, "PRIVATE KEY") ? ": this is a private key (openssl pkey -pubout)"
                     : strstr(pem, "BEGIN CERTIFICATE") ? ": this is a certificate (use --cert)"
                                                        : "");
}

void ckpt_key_free(ckpt_key *k)
{
    if (k) {
        EVP_PKEY_free(k->key);
        ckpt_free(k);
    }
}

int ckpt_key_hint(const ckpt_key *k, char out[65], ckpt_err *err)
{
    BIO *bio = BIO_new(BIO_s_mem());
    ckpt_sha256 *sha = NULL;
    uint8_t digest[32];
    char *text;

    if (!bio || PEM_write_bio_PUBKEY(bio, k->key) != 1) {
        BIO_free(bio);
        return ec_fail(err, "public key");
    }
    long n = BIO_get_mem_data(bio, &text);
    int rc = ckpt_sha256_new(&sha, err);

    if (rc == CKPT_OK)
        rc = ckpt_sha256_add(sha, text, (size_t)n, err);
    if (rc == CKPT_OK)
        rc = ckpt_sha256_end(sha, digest, err);
    if (rc == CKPT_OK)
        ckpt_sha256_hex(digest, out);
    ckpt_sha256_free(sha);
    BIO_free(bio);
    return rc;
}

int ckpt_key_sign(const ckpt_key *k, const void *p, size_t n, ckpt_bytes *out, ckpt_err *err)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    size_t had = out->n, room = 0;
    bool ok = ctx && EVP_DigestSignInit(ctx, NULL, k->hash, NULL, k->key) == 1 &&
              EVP_DigestSign(ctx, NULL, &room, p, n) == 1;

    if (ok && !ckpt_bytes_add(out, NULL, room)) {
        EVP_MD_CTX_free(ctx);
        return ckpt_fail_memory(err);
    }
    // the signature may be shorter than the room it asked for
    ok = ok && EVP_DigestSign(ctx, out->at + had, &room, p, n) == 1;
    out->n = ok ? had + room : had;
    EVP_MD_CTX_free(ctx);
    return ok ? CKPT_OK : ec_fail(err, "signing");
}

int ckpt_key_check(const ckpt_key *k, const void *p, size_t n, const ckpt_bytes *signature,
                   const char *name, ckpt_err *err)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    int fits = -1;

    if (!ctx || EVP_DigestVerifyInit(ctx, NULL, k->hash, NULL, k->key) != 1) {
        EVP_MD_CTX_free(ctx);
        return ec_fail(err, "checking a signature");
    }
    // 0 and negative values: another key, changed bytes, or no signature at all
    fits = EVP_DigestVerify(ctx, signature->at, signature->n, p, n);
    EVP_MD_CTX_free(ctx);
    ERR_clear_error();
    if (fits == 1)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EDIGEST,
                     "%s: the signature does not match: the signed list was changed, or another "
                     "key made the signature",
                     name);
}

/* ---- certificates ---- */

int ckpt_certs_new(ckpt_certs **out, ckpt_err *err)
{
    *out = ckpt_alloc(sizeof **out);
    return *out ? CKPT_OK : ckpt_fail_memory(err);
}

/* Add a certificate, which the list owns also on failure. */
static int ec_add(ckpt_certs *c, X509 *cert, ckpt_err *err)
{
    X509 **at = c->all.n < CKPT_CERTS_MAX ? ckpt_vec_push(&c->all) : NULL;

    if (at) {
        *at = cert;
        return CKPT_OK;
    }
    X509_free(cert);
    return c->all.n < CKPT_CERTS_MAX
               ? ckpt_fail_memory(err)
               : ckpt_fail(err, CKPT_ELIMIT, "more than %d certificates", CKPT_CERTS_MAX);
}

int ckpt_certs_read(ckpt_certs **out, const char *name, const char *pem, ckpt_err *err)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *cert;
    int rc = ckpt_certs_new(out, err);

    if (rc == CKPT_OK && !bio)
        rc = ec_fail(err, name);
    while (rc == CKPT_OK && (cert = PEM_read_bio_X509(bio, NULL, NULL, NULL)))
        rc = ec_add(*out, cert, err);
    // the end of the text is the failure "no start line"; any other one is damage
    unsigned long last = ERR_peek_last_error();
    BIO_free(bio);
    ERR_clear_error();
    if (rc == CKPT_OK && last && ERR_GET_REASON(last) != PEM_R_NO_START_LINE)
        rc =
            ckpt_fail(err, CKPT_EFORMAT, "%s: certificate %zu is damaged", name, (*out)->all.n + 1);
    if (rc == CKPT_OK && (*out)->all.n == 0)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: has no certificate in PEM form", name);
    if (rc != CKPT_OK) {
        ckpt_certs_free(*out);
        *out = NULL;
    }
    return rc;
}

void ckpt_certs_free(ckpt_certs *c)
{
    for (size_t i = 0; c && i < c->all.n; i++)
        X509_free(c->all.at[i]);
    if (c)
        ckpt_vec_free(&c->all);
    ckpt_free(c);
}

int ckpt_certs_add(ckpt_certs *c, const char *name, const ckpt_bytes *der, ckpt_err *err)
{
    const unsigned char *p = der->at;
    X509 *cert = der->n <= LONG_MAX ? d2i_X509(NULL, &p, (long)der->n) : NULL;

    ERR_clear_error();
    if (!cert || p != der->at + der->n || c->all.n >= EC_CHAIN) {
        X509_free(cert);
        return ckpt_fail(err, CKPT_EFORMAT, "%s: certificate %zu %s", name, c->all.n + 1,
                         c->all.n >= EC_CHAIN ? "is one too many" : "is not X.509 in DER form");
    }
    return ec_add(c, cert, err);
}

size_t ckpt_certs_count(const ckpt_certs *c)
{
    return c->all.n;
}

int ckpt_certs_der(const ckpt_certs *c, size_t i, ckpt_bytes *out, ckpt_err *err)
{
    assert(i < c->all.n);
    unsigned char *der = NULL;
    int n = i2d_X509(c->all.at[i], &der);
    bool ok = n > 0 && ckpt_bytes_add(out, der, (size_t)n);

    OPENSSL_free(der);
    return ok ? CKPT_OK : ec_fail(err, "certificate");
}

int ckpt_certs_subject(const ckpt_certs *c, ckpt_bytes *out, ckpt_err *err)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *text = NULL;
    bool ok = bio && X509_NAME_print_ex(bio, X509_get_subject_name(c->all.at[0]), 0,
                                        XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB) >= 0;
    long n = ok ? BIO_get_mem_data(bio, &text) : 0;

    ok = ok && ckpt_bytes_add(out, text, (size_t)n);
    BIO_free(bio);
    return ok ? CKPT_OK : ec_fail(err, "certificate");
}

/* The subject of a certificate in a buffer, cut to its size. */
static const char *ec_name(char buf[EC_NAME], const X509 *cert)
{
    BIO *bio = BIO_new(BIO_s_mem());

    buf[0] = '\0';
    if (bio && X509_NAME_print_ex(bio, X509_get_subject_name(cert), 0, XN_FLAG_RFC2253) >= 0) {
        int n = BIO_read(bio, buf, EC_NAME - 1);
        buf[n > 0 ? n : 0] = '\0';
    }
    BIO_free(bio);
    return buf;
}

/* A point in time of a certificate: "Jan  1 00:00:00 2026 GMT". */
static const char *ec_time(char buf[64], const ASN1_TIME *at)
{
    BIO *bio = BIO_new(BIO_s_mem());
    int n = bio && ASN1_TIME_print(bio, at) == 1 ? BIO_read(bio, buf, 63) : 0;

    buf[n > 0 ? n : 0] = '\0';
    BIO_free(bio);
    return buf;
}

/* Say why a chain must not be trusted. */
static int ec_refuse(ckpt_err *err, const char *name, int why, const X509 *cert)
{
    char subject[EC_NAME], at[64];

    switch (why) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return ckpt_fail(err, CKPT_EDIGEST, "%s: certificate %s expired at %s", name,
                         ec_name(subject, cert), ec_time(at, X509_get0_notAfter(cert)));
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return ckpt_fail(err, CKPT_EDIGEST, "%s: certificate %s is not valid before %s", name,
                         ec_name(subject, cert), ec_time(at, X509_get0_notBefore(cert)));
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        return ckpt_fail(err, CKPT_EDIGEST,
                         "%s: certificate %s does not lead to a root certificate of --cert", name,
                         ec_name(subject, cert));
    default:
        return ckpt_fail(err, CKPT_EDIGEST, "%s: certificate %s is refused: %s", name,
                         ec_name(subject, cert), X509_verify_cert_error_string(why));
    }
}

/* The rest of a chain, and the trusted certificates, in OpenSSL's containers. */
static bool ec_fill(STACK_OF(X509) * rest, X509_STORE *store, const ckpt_certs *chain,
                    const ckpt_certs *trusted)
{
    bool ok = rest && store;

    for (size_t i = 1; ok && i < chain->all.n; i++)
        ok = sk_X509_push(rest, chain->all.at[i]) > 0;
    for (size_t i = 0; ok && i < trusted->all.n; i++)
        ok = X509_STORE_add_cert(store, trusted->all.at[i]) == 1;
    return ok;
}

/* Whether the signature is of a SHA-1 or MD5 hash; ec_chain accepts SHA-1 with OpenSSL 1.1.1. */
static bool ec_weak(X509 *cert)
{
    int hash = NID_undef;

    return X509_get_signature_info(cert, &hash, NULL, NULL, NULL) == 1 &&
           (hash == NID_sha1 || hash == NID_md5 || hash == NID_md5_sha1);
}

/*
 * Check that certificate i of a chain may sign, or issue certificates that sign. A root that is
 * trusted may. One without extensions allows everything for OpenSSL, but model-signing wants one of
 * them in the signer's; it takes either, where RFC 5280 (4.2.1.12) asks for both to agree.
 */
static int ec_for_signing(X509 *cert, int i, const char *name, ckpt_err *err)
{
    const uint32_t flags = X509_get_extension_flags(cert);
    char subject[EC_NAME];

    if (i > 0 && (flags & EXFLAG_SS))
        return CKPT_OK;
    if (ec_weak(cert))
        return ec_refuse(err, name, X509_V_ERR_CA_MD_TOO_WEAK, cert);
    if ((flags & EXFLAG_XKUSAGE) && !(X509_get_extended_key_usage(cert) & XKU_CODE_SIGN))
        return ckpt_fail(err, CKPT_EDIGEST,
                         "%s: certificate %s is not for signing code: its extended key usage lacks "
                         "codeSigning",
                         name, ec_name(subject, cert));
    if (i == 0 && (flags & EXFLAG_KUSAGE ? !(X509_get_key_usage(cert) & KU_DIGITAL_SIGNATURE)
                                         : !(flags & EXFLAG_XKUSAGE)))
        return ckpt_fail(err, CKPT_EDIGEST,
                         "%s: certificate %s is not for signing: its key usage lacks "
                         "digitalSignature",
                         name, ec_name(subject, cert));
    return CKPT_OK;
}

/* Lead from the first certificate of the chain to a trusted one; now is the time that counts. */
static int ec_chain(const ckpt_certs *chain, const ckpt_certs *trusted, const char *name,
                    ckpt_err *err)
{
    STACK_OF(X509) *rest = sk_X509_new_null();
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    int rc = CKPT_OK;

    if (!ctx || !ec_fill(rest, store, chain, trusted) ||
        X509_STORE_CTX_init(ctx, store, chain->all.at[0], rest) != 1) {
        X509_STORE_CTX_free(ctx);
        ctx = NULL;
        rc = ec_fail(err, "certificates");
    } else {
        // no issuer's signature by SHA-1 or MD5
        X509_VERIFY_PARAM_set_auth_level(X509_STORE_CTX_get0_param(ctx), 1);
    }
    if (ctx && X509_verify_cert(ctx) != 1) {
        const X509 *at = X509_STORE_CTX_get_current_cert(ctx);

        rc = ec_refuse(err, name, X509_STORE_CTX_get_error(ctx), at ? at : chain->all.at[0]);
    } else if (ctx) {
        const STACK_OF(X509) *all = X509_STORE_CTX_get0_chain(ctx);

        for (int i = 0; rc == CKPT_OK && i < sk_X509_num(all); i++)
            rc = ec_for_signing(sk_X509_value(all, i), i, name, err);
    }
    X509_STORE_CTX_free(ctx);
    X509_STORE_free(store);
    sk_X509_free(rest);
    ERR_clear_error();
    return rc;
}

/* Check the times of the first certificate, and the usages of all. */
static int ec_own(const ckpt_certs *chain, const char *name, ckpt_err *err)
{
    const X509 *cert = chain->all.at[0];
    int rc = CKPT_OK;

    if (X509_cmp_current_time(X509_get0_notAfter(cert)) < 0)
        return ec_refuse(err, name, X509_V_ERR_CERT_HAS_EXPIRED, cert);
    if (X509_cmp_current_time(X509_get0_notBefore(cert)) > 0)
        return ec_refuse(err, name, X509_V_ERR_CERT_NOT_YET_VALID, cert);
    for (size_t i = 0; rc == CKPT_OK && i < chain->all.n; i++)
        rc = ec_for_signing(chain->all.at[i], (int)i, name, err);
    return rc;
}

int ckpt_certs_check(const ckpt_certs *chain, const ckpt_certs *trusted, const char *name,
                     ckpt_key **out, ckpt_err *err)
{
    assert(chain->all.n > 0);
    X509 *cert = chain->all.at[0];
    char subject[EC_NAME];

    *out = NULL;
    int rc = trusted ? ec_chain(chain, trusted, name, err) : ec_own(chain, name, err);
    if (rc != CKPT_OK)
        return rc;
    EVP_PKEY *key = X509_get_pubkey(cert);
    ERR_clear_error();
    if (!key)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: certificate %s has no usable key", name,
                         ec_name(subject, cert));
    return ec_take(out, key, name, err);
}

int ckpt_certs_match(const ckpt_certs *chain, const ckpt_key *key, const char *name, ckpt_err *err)
{
    char subject[EC_NAME];
    bool same = ec_same(X509_get0_pubkey(chain->all.at[0]), key->key);

    ERR_clear_error();
    if (same)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EUSAGE,
                     "%s: the first certificate, %s, is for another key: put the signer's first",
                     name, ec_name(subject, chain->all.at[0]));
}

/* ---- base64 ---- */

bool ckpt_base64_write(ckpt_bytes *out, const void *p, size_t n)
{
    size_t had = out->n;

    // OpenSSL's size is an int, and it writes a terminator
    if (n > INT_MAX / 2 || !ckpt_bytes_add(out, NULL, (n + 2) / 3 * 4 + 1))
        return false;
    out->n = had + (size_t)EVP_EncodeBlock(out->at + had, p, (int)n);
    return true;
}

int ckpt_base64_read(ckpt_bytes *out, const char *text, size_t n)
{
    size_t had = out->n;
    ckpt_bytes again = {0};

    if (n % 4 != 0 || n > INT_MAX / 2)
        return CKPT_EFORMAT;
    if (n == 0)
        return CKPT_OK;
    if (!ckpt_bytes_add(out, NULL, n / 4 * 3))
        return CKPT_ELIMIT;
    // OpenSSL skips white space and takes '=' anywhere, so the bytes must give the same text
    int got = EVP_DecodeBlock(out->at + had, (const unsigned char *)text, (int)n);
    int rc = got < 0 ? CKPT_EFORMAT : CKPT_OK;
    out->n -= (size_t)(text[n - 1] == '=') + (text[n - 2] == '=');
    if (rc == CKPT_OK && !ckpt_base64_write(&again, out->at + had, out->n - had))
        rc = CKPT_ELIMIT;
    if (rc == CKPT_OK && (again.n != n || memcmp(again.at, text, n) != 0))
        rc = CKPT_EFORMAT;
    ERR_clear_error();
    ckpt_vec_free(&again);
    if (rc != CKPT_OK)
        out->n = had;
    return rc;
}
