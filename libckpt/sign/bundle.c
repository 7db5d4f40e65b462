/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bundle.c: reads and writes a Sigstore bundle.
 *
 * A bundle comes from anywhere and is read before its signature is checked, so it gets no second
 * meaning: one JSON value with each key once, one signature, one kind of signer, base64 in its one
 * spelling.
 */
#include <string.h>

#include "libckpt/base/digest.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/sign/bundle.h"

static const char bn_media[] = "application/vnd.dev.sigstore.bundle.v0.3+json",
                  bn_payload[] = "application/vnd.in-toto+json";

/* The bundle that is being read. */
typedef struct bn_reader {
    const char *name;
    ckpt_bundle *out;
    ckpt_err *err;
} bn_reader;

static int bn_missing(const bn_reader *r, const char *what)
{
    return ckpt_fail(r->err, CKPT_EFORMAT, "%s: the bundle has no %s", r->name, what);
}

/* Check that a member is this text. */
static int bn_expect(const bn_reader *r, const ckpt_value *in, const char *key, const char *text)
{
    const ckpt_value *v = ckpt_value_get(in, key);

    if (!v || v->kind != CKPT_V_STR)
        return bn_missing(r, key);
    return ckpt_value_is(v, text) ? CKPT_OK
                                  : ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                                              "%s: the bundle's %s is '%.100s': expected %s",
                                              r->name, key, v->as.text.at, text);
}

/* Decode a member in base64. */
static int bn_bytes(const bn_reader *r, const ckpt_value *in, const char *key, ckpt_bytes *out)
{
    const ckpt_value *v = ckpt_value_get(in, key);

    if (!v || v->kind != CKPT_V_STR || v->as.text.n == 0)
        return bn_missing(r, key);
    int rc = ckpt_base64_read(out, v->as.text.at, v->as.text.n);
    if (rc == CKPT_EFORMAT)
        return ckpt_fail(r->err, rc, "%s: the bundle's %s is not base64", r->name, key);
    return rc == CKPT_OK ? rc : ckpt_fail_memory(r->err);
}

/* Read the hint of a key; bundles of the first releases have none. */
static int bn_key(const bn_reader *r, const ckpt_value *key)
{
    const ckpt_value *hint = ckpt_value_get(key, "hint");
    uint8_t digest[32];

    if (key->kind != CKPT_V_DICT)
        return bn_missing(r, "publicKey");
    if (!hint || hint->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (hint->kind == CKPT_V_STR && hint->as.text.n == 0)
        return CKPT_OK;
    if (hint->kind != CKPT_V_STR || !ckpt_sha256_parse(digest, hint->as.text.at))
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: the hint of the bundle's publicKey is not a SHA-256", r->name);
    ckpt_sha256_hex(digest, r->out->hint);
    return CKPT_OK;
}

static int bn_chain(const bn_reader *r, const ckpt_value *chain)
{
    const ckpt_seq certs = ckpt_value_seq(ckpt_value_get(chain, "certificates"));
    int rc = certs.n ? ckpt_certs_new(&r->out->chain, r->err) : bn_missing(r, "certificates");

    for (uint64_t i = 0; rc == CKPT_OK && i < certs.n; i++) {
        ckpt_bytes der = {0};

        rc = bn_bytes(r, certs.at[i], "rawBytes", &der);
        if (rc == CKPT_OK)
            rc = ckpt_certs_add(r->out->chain, r->name, &der, r->err);
        ckpt_vec_free(&der);
    }
    return rc;
}

/* Read the key or certificate of the signer. */
static int bn_signer(const bn_reader *r, const ckpt_value *material)
{
    const ckpt_value *key = ckpt_value_get(material, "publicKey");
    const ckpt_value *chain = ckpt_value_get(material, "x509CertificateChain");

    if (ckpt_value_get(material, "certificate"))
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                         "%s: is signed by an identity of Sigstore, which only its services on the "
                         "network can confirm: use model_signing verify sigstore",
                         r->name);
    if (key && chain)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: the bundle names a key and certificates: expected one of them",
                         r->name);
    if (!key && !chain)
        return bn_missing(r, "publicKey or x509CertificateChain");
    return key ? bn_key(r, key) : bn_chain(r, chain);
}

static int bn_envelope(const bn_reader *r, const ckpt_value *envelope)
{
    const ckpt_seq signatures = ckpt_value_seq(ckpt_value_get(envelope, "signatures"));
    int rc = CKPT_OK;

    if (!envelope)
        return bn_missing(r, "dsseEnvelope");
    if (signatures.n != 1)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: the bundle has %llu signatures: expected one",
                         r->name, (unsigned long long)signatures.n);
    rc = bn_expect(r, envelope, "payloadType", bn_payload);
    if (rc == CKPT_OK)
        rc = bn_bytes(r, envelope, "payload", &r->out->payload);
    return rc == CKPT_OK ? bn_bytes(r, signatures.at[0], "sig", &r->out->signature) : rc;
}

int ckpt_bundle_parse(ckpt_bundle *out, const char *name, const char *text, uint64_t n,
                      ckpt_err *err)
{
    const bn_reader r = {name, out, err};
    const ckpt_json_text json = {.name = name, .at = text, .n = n, .max = CKPT_BUNDLE_MAX};
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_value *root = NULL;

    *out = (ckpt_bundle){0};
    int rc = arena ? ckpt_json_parse(&root, arena, &json, err) : ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = bn_expect(&r, root, "mediaType", bn_media);
    if (rc == CKPT_OK)
        rc = bn_signer(&r, ckpt_value_get(root, "verificationMaterial"));
    if (rc == CKPT_OK)
        rc = bn_envelope(&r, ckpt_value_get(root, "dsseEnvelope"));
    ckpt_arena_free(arena);
    return rc;
}

void ckpt_bundle_free(ckpt_bundle *b)
{
    ckpt_certs_free(b->chain);
    ckpt_vec_free(&b->payload);
    ckpt_vec_free(&b->signature);
    *b = (ckpt_bundle){0};
}

/* DSSE's pre-authentication encoding: the bytes that the signature covers. */
static int bn_encode(ckpt_bytes *out, const ckpt_bundle *b, ckpt_err *err)
{
    return ckpt_bytes_printf(out, "DSSEv1 %zu %s %zu ", sizeof bn_payload - 1, bn_payload,
                             b->payload.n) &&
                   ckpt_bytes_add(out, b->payload.at, b->payload.n)
               ? CKPT_OK
               : ckpt_fail_memory(err);
}

/* Explain a signature that the key did not make, if the bundle names another key. */
static int bn_other_key(const ckpt_bundle *b, const char *name, const ckpt_key *key, int rc,
                        ckpt_err *err)
{
    char hint[65];

    if (rc != CKPT_EDIGEST || !b->hint[0] || ckpt_key_hint(key, hint, NULL) != CKPT_OK ||
        strcmp(hint, b->hint) == 0)
        return rc;
    ckpt_err_clear(err);
    return ckpt_fail(err, CKPT_EDIGEST,
                     "%s: was signed with another key: the SHA-256 of the signer's public key is "
                     "%s, of this one %s",
                     name, b->hint, hint);
}

int ckpt_bundle_check(const ckpt_bundle *b, const char *name, const ckpt_key *key,
                      const ckpt_certs *trusted, ckpt_err *err)
{
    ckpt_bytes text = {0};
    ckpt_key *own = NULL;
    int rc = CKPT_OK;

    if (!b->chain == (trusted != NULL))
        return ckpt_fail(err, CKPT_EDIGEST, "%s: is signed with a %s: use --%s", name,
                         b->chain ? "certificate" : "key", b->chain ? "cert" : "key");
    if (trusted)
        rc = ckpt_certs_check(b->chain, trusted, name, &own, err);
    if (rc == CKPT_OK)
        rc = bn_encode(&text, b, err);
    if (rc == CKPT_OK)
        rc = ckpt_key_check(own ? own : key, text.at, text.n, &b->signature, name, err);
    if (key)
        rc = bn_other_key(b, name, key, rc, err);
    ckpt_vec_free(&text);
    ckpt_key_free(own);
    return rc;
}

int ckpt_bundle_sign(ckpt_bundle *b, const ckpt_key *key, ckpt_err *err)
{
    ckpt_bytes text = {0};
    int rc = b->chain ? CKPT_OK : ckpt_key_hint(key, b->hint, err);

    if (rc == CKPT_OK)
        rc = bn_encode(&text, b, err);
    if (rc == CKPT_OK)
        rc = ckpt_key_sign(key, text.at, text.n, &b->signature, err);
    ckpt_vec_free(&text);
    return rc;
}

/* Append the certificates of the chain. */
static int bn_put_chain(ckpt_bytes *out, const ckpt_certs *chain, ckpt_err *err)
{
    bool ok = ckpt_bytes_printf(out, "\"x509CertificateChain\":{\"certificates\":[");
    int rc = CKPT_OK;

    for (size_t i = 0; ok && rc == CKPT_OK && i < ckpt_certs_count(chain); i++) {
        ckpt_bytes der = {0};

        rc = ckpt_certs_der(chain, i, &der, err);
        ok = rc != CKPT_OK ||
             (ckpt_bytes_printf(out, "%s{\"rawBytes\":\"", i ? "," : "") &&
              ckpt_base64_write(out, der.at, der.n) && ckpt_bytes_printf(out, "\"}"));
        ckpt_vec_free(&der);
    }
    ok = ok && ckpt_bytes_printf(out, "]}");
    return ok ? rc : ckpt_fail_memory(err);
}

int ckpt_bundle_write(ckpt_bytes *out, const ckpt_bundle *b, ckpt_err *err)
{
    bool ok = ckpt_bytes_printf(out, "{\"mediaType\":\"%s\",\"verificationMaterial\":{", bn_media);
    int rc = CKPT_OK;

    if (ok && b->chain)
        rc = bn_put_chain(out, b->chain, err);
    else
        ok = ok && ckpt_bytes_printf(out, "\"publicKey\":{\"hint\":\"%s\"}", b->hint);
    if (rc != CKPT_OK)
        return rc;
    ok = ok && ckpt_bytes_printf(out, ",\"tlogEntries\":[]},\"dsseEnvelope\":{\"payload\":\"") &&
         ckpt_base64_write(out, b->payload.at, b->payload.n) &&
         ckpt_bytes_printf(out, "\",\"payloadType\":\"%s\",\"signatures\":[{\"sig\":\"",
                           bn_payload) &&
         ckpt_base64_write(out, b->signature.at, b->signature.n) &&
         ckpt_bytes_printf(out, "\",\"keyid\":\"\"}]}}");
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}
