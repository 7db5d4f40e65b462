/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spm.c: reads the pieces of a SentencePiece model.
 *
 * The file is a protobuf message; the repeated field 1 is a piece: 1 text, 2 score (float), 3 type.
 * Other fields are skipped.  Source: sentencepiece_model.proto.
 */
#include <assert.h>
#include <inttypes.h>

#include "formats/gguf/model.h"
#include "libckpt/codec/proto/proto.h"

static bool spm_piece(ckpt_proto s, ckpt_gguf_token *out)
{
    ckpt_proto_field f;

    *out = (ckpt_gguf_token){.text = "", .type = 1};
    while (s.at < s.end) {
        if (!ckpt_proto_next(&s, &f))
            return false;
        if (f.tag == CKPT_PROTO_TAG(1, CKPT_PROTO_BYTES)) {
            out->text = (const char *)f.body.at;
            out->n = (uint64_t)(f.body.end - f.body.at);
        } else if (f.tag == CKPT_PROTO_TAG(2, CKPT_PROTO_32)) {
            out->score = ckpt_proto_float(&f);
        } else if (f.tag == CKPT_PROTO_TAG(3, CKPT_PROTO_VARINT)) {
            if (f.value < 1 || f.value > 6)
                return false;
            out->type = (uint8_t)f.value;
        }
    }
    return ckpt_utf8_ok(out->text, out->n);
}

int ckpt_gguf_spm(ckpt_gguf_tokens *out, const char *name, const char *bytes, uint64_t n,
                  ckpt_err *err)
{
    assert(out && name && (bytes || n == 0) && out->n == 0);
    const uint8_t *begin = (const uint8_t *)bytes;
    ckpt_proto s = {begin, begin + n};
    ckpt_proto_field f;

    while (s.at < s.end) {
        uint64_t where = (uint64_t)(s.at - begin);
        ckpt_gguf_token *t;

        if (!ckpt_proto_next(&s, &f))
            return ckpt_fail(err, CKPT_EFORMAT,
                             "%s: not a SentencePiece model: invalid field at byte %" PRIu64, name,
                             where);
        if (f.tag != CKPT_PROTO_TAG(1, CKPT_PROTO_BYTES))
            continue;
        t = ckpt_vec_push(out);
        if (!t)
            return ckpt_fail_memory(err);
        if (!spm_piece(f.body, t))
            return ckpt_fail(err, CKPT_EFORMAT, "%s: a damaged piece at byte %" PRIu64, name,
                             where);
        // user-defined pieces become normal ones, because llama.cpp's converter does the same
        t->type = t->type == 4 ? 1 : t->type;
    }
    return out->n ? CKPT_OK
                  : ckpt_fail(err, CKPT_EFORMAT, "%s: a SentencePiece model without pieces", name);
}
