/* SPDX-License-Identifier: Apache-2.0 */
/* events.c: encodes TensorBoard's event files (events.h). */
#include "tools/zerotrain/events.h"

#include <string.h>

/* Keys of fields: number << 3 | wire type (0 varint, 1 eight bytes, 2 length, 5 four bytes). */
enum {
    EV_WALL = 1 << 3 | 1,    /* Event.wall_time */
    EV_STEP = 2 << 3 | 0,    /* Event.step */
    EV_VERSION = 3 << 3 | 2, /* Event.file_version */
    EV_SUMMARY = 5 << 3 | 2, /* Event.summary */
    EV_VALUE = 1 << 3 | 2,   /* Summary.value */
    EV_TAG = 1 << 3 | 2,     /* Summary.Value.tag */
    EV_SIMPLE = 2 << 3 | 5   /* Summary.Value.simple_value */
};

/* CRC-32C (Castagnoli; RFC 3720, B.4) of n bytes. */
static uint32_t tb_crc32c(const void *bytes, size_t n)
{
    const uint8_t *b = bytes;
    uint32_t crc = 0xFFFFFFFFU;

    for (size_t i = 0; i < n; i++) {
        crc ^= b[i];
        for (int k = 0; k < 8; k++)
            crc = (crc >> 1) ^ (0x82F63B78U & (0U - (crc & 1U)));
    }
    return ~crc;
}

/* The masked CRC of TFRecord, because a CRC over bytes that contain CRCs would be weak. */
static uint32_t tb_masked(const void *bytes, size_t n)
{
    const uint32_t crc = tb_crc32c(bytes, n);

    return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

/* Append the lowest n bytes of v, the lowest first. */
static bool tb_little(ckpt_bytes *to, uint64_t v, unsigned n)
{
    uint8_t b[8];

    for (unsigned i = 0; i < n; i++)
        b[i] = (uint8_t)(v >> (8 * i));
    return ckpt_bytes_add(to, b, n);
}

static bool tb_varint(ckpt_bytes *to, uint64_t v)
{
    uint8_t b[10];
    size_t n = 0;

    for (; v >= 0x80; v >>= 7)
        b[n++] = (uint8_t)(v | 0x80);
    b[n++] = (uint8_t)v;
    return ckpt_bytes_add(to, b, n);
}

/* Append a field of bytes, with their length in front. */
static bool tb_field(ckpt_bytes *to, unsigned key, const void *bytes, size_t n)
{
    return tb_varint(to, key) && tb_varint(to, n) && ckpt_bytes_add(to, bytes, n);
}

static bool tb_wall(ckpt_bytes *to, double wall)
{
    uint64_t bits;

    memcpy(&bits, &wall, sizeof bits);
    return tb_varint(to, EV_WALL) && tb_little(to, bits, 8);
}

static bool tb_record(ckpt_bytes *to, const ckpt_bytes *message)
{
    const size_t at = to->n;

    return tb_little(to, message->n, 8) && tb_little(to, tb_masked(to->at + at, 8), 4) &&
           ckpt_bytes_add(to, message->at, message->n) &&
           tb_little(to, tb_masked(message->at, message->n), 4);
}

bool events_version(ckpt_bytes *to, double wall)
{
    static const char version[] = "brain.Event:2";
    ckpt_bytes event = {0};
    const bool ok = tb_wall(&event, wall) &&
                    tb_field(&event, EV_VERSION, version, sizeof version - 1) &&
                    tb_record(to, &event);

    ckpt_vec_free(&event);
    return ok;
}

bool events_scalar(ckpt_bytes *to, double wall, int64_t x, const char *name, double value)
{
    const float narrow = (float)value;
    ckpt_bytes event = {0}, summary = {0}, entry = {0};
    uint32_t bits;
    bool ok;

    memcpy(&bits, &narrow, sizeof bits);
    ok = tb_field(&entry, EV_TAG, name, strlen(name)) && tb_varint(&entry, EV_SIMPLE) &&
         tb_little(&entry, bits, 4) && tb_field(&summary, EV_VALUE, entry.at, entry.n) &&
         tb_wall(&event, wall) && tb_varint(&event, EV_STEP) && tb_varint(&event, (uint64_t)x) &&
         tb_field(&event, EV_SUMMARY, summary.at, summary.n) && tb_record(to, &event);
    ckpt_vec_free(&entry);
    ckpt_vec_free(&summary);
    ckpt_vec_free(&event);
    return ok;
}
