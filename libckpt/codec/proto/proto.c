/* SPDX-License-Identifier: Apache-2.0 */
/* proto.c: reads the fields of a protobuf message.  Source: protobuf's encoding. */
#include "libckpt/codec/proto/proto.h"

#include <assert.h>
#include <string.h>

static bool proto_varint(ckpt_proto *s, uint64_t *out)
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
static bool proto_take(ckpt_proto *s, uint64_t n, ckpt_proto *out)
{
    assert(s->at <= s->end);
    if (n > (uint64_t)(s->end - s->at))
        return false;
    *out = (ckpt_proto){s->at, s->at + n};
    s->at += n;
    return true;
}

bool ckpt_proto_next(ckpt_proto *s, ckpt_proto_field *out)
{
    uint64_t n = 0;

    *out = (ckpt_proto_field){0};
    if (!proto_varint(s, &out->tag))
        return false;
    switch (out->tag & 7) {
    case CKPT_PROTO_VARINT:
        return proto_varint(s, &out->value);
    case CKPT_PROTO_64:
        return proto_take(s, 8, &out->body);
    case CKPT_PROTO_32:
        if (!proto_take(s, 4, &out->body))
            return false;
        for (unsigned i = 0; i < 4; i++)
            out->value |= (uint64_t)out->body.at[i] << (8 * i);
        return true;
    case CKPT_PROTO_BYTES:
        return proto_varint(s, &n) && proto_take(s, n, &out->body);
    default:
        return false;
    }
}

float ckpt_proto_float(const ckpt_proto_field *f)
{
    const uint32_t bits = (uint32_t)f->value;
    float out;

    memcpy(&out, &bits, sizeof out);
    return out;
}
