/* SPDX-License-Identifier: Apache-2.0 */
/* proto.h: reads the fields of a protobuf message (SentencePiece models), without a schema. */
#ifndef CKPT_CODEC_PROTO_H
#define CKPT_CODEC_PROTO_H

#include <stdbool.h>
#include <stdint.h>

/* The rest of a message. */
typedef struct ckpt_proto {
    const uint8_t *at, *end;
} ckpt_proto;

/* Wire types. */
enum { CKPT_PROTO_VARINT = 0, CKPT_PROTO_64 = 1, CKPT_PROTO_BYTES = 2, CKPT_PROTO_32 = 5 };

typedef struct ckpt_proto_field {
    uint64_t tag;    /* number << 3 | wire type */
    uint64_t value;  /* VARINT; 32: its bits */
    ckpt_proto body; /* other wire types */
} ckpt_proto_field;

#define CKPT_PROTO_TAG(number, wire) ((uint64_t)(number) << 3 | (wire))

/* Read the next field; false: the message is damaged.  Call it only while at < end. */
bool ckpt_proto_next(ckpt_proto *s, ckpt_proto_field *out);

/* The bits of a 32-bit field as a number. */
float ckpt_proto_float(const ckpt_proto_field *f);

#endif
