/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spm.c: reads the pieces of a SentencePiece model.
 *
 * The file is a protobuf message; the repeated field 1 is a piece: 1 text, 2 score (float), 3 type.
 * Other fields are skipped.  Source: sentencepiece_model.proto; protobuf's encoding.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/gguf/model.h"

/* Position of the reader in a protobuf message. */
typedef struct spm_at {
    const uint8_t *at, *end;
} spm_at;

/* Wire types. */
enum { SPM_VARINT = 0, SPM_64 = 1, SPM_BYTES = 2, SPM_32 = 5 };

static bool spm_varint(spm_at *s, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && s->at < s->end; shift += 7) {
        uint8_t b = *s->at++;

        *out |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80)
            return true;
    }
    return false;
}

/* Take n bytes as a nested message. */
static bool spm_take(spm_at *s, uint64_t n, spm_at *out)
{
    assert(s->at <= s->end);
    if (n > (uint64_t)(s->end - s->at))
        return false;
    *out = (spm_at){s->at, s->at + n};
    s->at += n;
    return true;
}

/* Read the next field: its tag; *value for a varint, *body for other wire types. */
static bool spm_field(spm_at *s, uint64_t *tag, uint64_t *value, spm_at *body)
{
    uint64_t n = 0;

    if (!spm_varint(s, tag))
        return false;
    switch (*tag & 7) {
    case SPM_VARINT:
        return spm_varint(s, value);
    case SPM_64:
        return spm_take(s, 8, body);
    case SPM_32:
        return spm_take(s, 4, body);
    case SPM_BYTES:
        return spm_varint(s, &n) && spm_take(s, n, body);
    default:
        return false;
    }
}

static bool spm_piece(spm_at s, ckpt_gguf_token *out)
{
    uint64_t tag, value = 0;
    spm_at body = {0};
    uint32_t bits;

    *out = (ckpt_gguf_token){.text = "", .type = 1};
    while (s.at < s.end) {
        if (!spm_field(&s, &tag, &value, &body))
            return false;
        if (tag == (1 << 3 | SPM_BYTES)) {
            out->text = (const char *)body.at;
            out->n = (uint64_t)(body.end - body.at);
        } else if (tag == (2 << 3 | SPM_32)) {
            bits = (uint32_t)body.at[0] | (uint32_t)body.at[1] << 8 | (uint32_t)body.at[2] << 16 |
                   (uint32_t)body.at[3] << 24;
            memcpy(&out->score, &bits, sizeof bits);
        } else if (tag == (3 << 3 | SPM_VARINT)) {
            if (value < 1 || value > 6)
                return false;
            out->type = (uint8_t)value;
        }
    }
    return ckpt_utf8_ok(out->text, out->n);
}

int ckpt_gguf_spm(ckpt_gguf_tokens *out, const char *name, const char *bytes, uint64_t n,
                  ckpt_err *err)
{
    assert(out && name && (bytes || n == 0) && out->n == 0);
    const uint8_t *begin = (const uint8_t *)bytes;
    spm_at s = {begin, begin + n}, body = {0};
    uint64_t tag, value;

    while (s.at < s.end) {
        uint64_t where = (uint64_t)(s.at - begin);
        ckpt_gguf_token *t;

        if (!spm_field(&s, &tag, &value, &body))
            return ckpt_fail(err, CKPT_EFORMAT,
                             "%s: not a SentencePiece model: invalid field at byte %" PRIu64, name,
                             where);
        if (tag != (1 << 3 | SPM_BYTES))
            continue;
        t = ckpt_vec_push(out);
        if (!t)
            return ckpt_fail_memory(err);
        if (!spm_piece(body, t))
            return ckpt_fail(err, CKPT_EFORMAT, "%s: a damaged piece at byte %" PRIu64, name,
                             where);
        // user-defined pieces become normal ones, because llama.cpp's converter does the same
        t->type = t->type == 4 ? 1 : t->type;
    }
    return out->n ? CKPT_OK
                  : ckpt_fail(err, CKPT_EFORMAT, "%s: a SentencePiece model without pieces", name);
}
