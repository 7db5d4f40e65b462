/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bundle.h: reads and writes a Sigstore bundle: a DSSE envelope with one signed text, its
 * signature, and the hint of a key or the signer's certificates.
 *
 *     {"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
 *      "verificationMaterial": {"publicKey": {"hint": SHA-256 of the key's PEM text}}
 *                          or  {"x509CertificateChain": {"certificates": [{"rawBytes": DER}...]}},
 *      "dsseEnvelope": {"payload": BASE64, "payloadType": "application/vnd.in-toto+json",
 *                       "signatures": [{"sig": BASE64, "keyid": ""}]}}
 *
 * Source: sign_ec_key.py and sign_certificate.py of model-signing 1.1.1;
 * github.com/secure-systems-lab/dsse, protocol.md.
 */
#ifndef CKPT_SIGN_BUNDLE_H
#define CKPT_SIGN_BUNDLE_H

#include "libckpt/base/keys.h"

enum { CKPT_BUNDLE_MAX = 64 << 20 }; /* bytes of a bundle; 100 000 files take about 30 MB */

typedef struct ckpt_bundle {
    char hint[65];     /* of the key; "": unknown, or signed with a certificate */
    ckpt_certs *chain; /* the signer's certificate and its issuers; NULL: signed with a key alone */
    ckpt_bytes payload; /* the signed text: not to be read before ckpt_bundle_check */
    ckpt_bytes signature;
} ckpt_bundle;

/*
 * Parse a bundle; name is that of its file. Free out with ckpt_bundle_free, also on failure.
 *
 * Errors   CKPT_EFORMAT; CKPT_EUNSUPPORTED: another version or kind of bundle; CKPT_ELIMIT
 */
int ckpt_bundle_parse(ckpt_bundle *out, const char *name, const char *text, uint64_t n,
                      ckpt_err *err);
void ckpt_bundle_free(ckpt_bundle *b);

/*
 * Check the signature of the payload, by a key (trusted NULL) or by the bundle's certificates,
 * which must lead to trusted.
 *
 * Errors   CKPT_EDIGEST: the signature, the key or a certificate does not match, or the bundle is
 *          signed in the other way
 */
int ckpt_bundle_check(const ckpt_bundle *b, const char *name, const ckpt_key *key,
                      const ckpt_certs *trusted, ckpt_err *err);

/* Sign b->payload: sets the signature, and without a chain the hint. */
int ckpt_bundle_sign(ckpt_bundle *b, const ckpt_key *key, ckpt_err *err);

/* Append the bundle as JSON. */
int ckpt_bundle_write(ckpt_bytes *out, const ckpt_bundle *b, ckpt_err *err);

#endif
