/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c: writes zip archives in the form of torch 2.7 and later.
 *
 * Records are stored, payloads start at multiples of 64, and a descriptor after the payload holds
 * the checksum, so that every offset is fixed before any byte is known.  Source: measured on torch
 * 2.7 to 2.15, beyond 4 GiB as well.
 */
#include <assert.h>

#include "libckpt/codec/zip/zip.h"

enum { ZW_FLAG_DESCRIPTOR = 0x0008, ZW_FLAG_UTF8 = 0x0800 };

/* The content of one header's zip64 field: at most size, stored size, offset. */
typedef struct zw_wide {
    uint64_t value[3];
    unsigned n;
} zw_wide;

static bool zw_is_big(const ckpt_zip_item *item)
{
    return item->n_bytes >= UINT32_MAX;
}

static bool zw_is_far(const ckpt_zip_item *item)
{
    return item->header_at >= UINT32_MAX;
}

/*
 * The values in the zip64 field of the local header (or of the directory's entry).  torch never
 * fills in the local stored size.
 */
static zw_wide zw_wide_of(const ckpt_zip_item *item, bool local)
{
    zw_wide w = {{0}, 0};

    if (zw_is_big(item)) {
        w.value[w.n++] = item->n_bytes;
        w.value[w.n++] = local ? 0 : item->n_bytes;
    }
    if (zw_is_far(item))
        w.value[w.n++] = item->header_at;
    return w;
}

static uint64_t zw_wide_size(const ckpt_zip_item *item)
{
    unsigned n = zw_wide_of(item, true).n;

    return n == 0 ? 0 : 4 + 8 * (uint64_t)n;
}

/* Bytes of a local header without the padding that aligns the payload. */
static uint64_t zw_bare_header(const ckpt_zip_item *item)
{
    return 30 + item->n_name + zw_wide_size(item) + 4;
}

/* Bytes of an item's descriptor; 0: there is none. */
static uint64_t zw_descriptor_size(const ckpt_zip_item *item)
{
    if (item->n_bytes == 0)
        return 0;
    return zw_is_big(item) || zw_is_far(item) ? 24 : 16;
}

uint64_t ckpt_zip_entry_size(const ckpt_zip_item *item)
{
    assert(item && item->name && item->n_name <= UINT16_MAX);
    return 46 + item->n_name + zw_wide_size(item);
}

int ckpt_zip_place(ckpt_zip_item *item, uint64_t *at, ckpt_err *err)
{
    assert(item && item->name && at);
    uint64_t payload, end;

    if (item->n_name > 60000) // header fields count up to 65535, padding included
        return ckpt_fail(err, CKPT_ELIMIT, "a record name of %zu bytes is too long for a zip file",
                         (size_t)item->n_name);
    item->header_at = *at;
    if (!ckpt_add(*at, zw_bare_header(item) + CKPT_ZIP_ALIGN - 1, &payload))
        return ckpt_fail(err, CKPT_ELIMIT, "the archive would have more than 2^64 bytes");
    payload -= payload % CKPT_ZIP_ALIGN;
    if (!ckpt_add(payload, item->n_bytes, &end) || !ckpt_add(end, zw_descriptor_size(item), &end))
        return ckpt_fail(err, CKPT_ELIMIT, "the archive would have more than 2^64 bytes");
    item->at = payload;
    *at = end;
    return CKPT_OK;
}

/* Append the n low bytes of v, little-endian. */
static bool zw_put(ckpt_bytes *out, uint64_t v, unsigned n)
{
    uint8_t b[8];
    unsigned i;

    for (i = 0; i < n; i++)
        b[i] = (uint8_t)(v >> 8 * i);
    return ckpt_bytes_add(out, b, n);
}

/* Append "PK" and two more bytes. */
static bool zw_put_signature(ckpt_bytes *out, uint8_t a, uint8_t b)
{
    const uint8_t s[4] = {'P', 'K', a, b};

    return ckpt_bytes_add(out, s, sizeof s);
}

static bool zw_put_wide(ckpt_bytes *out, const zw_wide *w)
{
    bool ok = w->n == 0 || (zw_put(out, 1, 2) && zw_put(out, 8 * (uint64_t)w->n, 2));
    unsigned i;

    for (i = 0; ok && i < w->n; i++)
        ok = zw_put(out, w->value[i], 8);
    return ok;
}

/* The value of a field, or its saturated form if the value needs the zip64 field. */
static uint64_t zw_narrow(uint64_t v, uint64_t most)
{
    return v >= most ? most : v;
}

static uint64_t zw_flags(const ckpt_zip_item *item)
{
    return item->n_bytes > 0 ? ZW_FLAG_UTF8 | ZW_FLAG_DESCRIPTOR : ZW_FLAG_UTF8;
}

/*
 * Append version, flags, method 0, time 0, date 0: the ten bytes that both kinds of headers share.
 */
static bool zw_put_common(ckpt_bytes *out, const ckpt_zip_item *item)
{
    return zw_put(out, 0, 2) && zw_put(out, zw_flags(item), 2) && zw_put(out, 0, 6);
}

bool ckpt_zip_put_header(ckpt_bytes *out, const ckpt_zip_item *item)
{
    assert(out && item && item->at % CKPT_ZIP_ALIGN == 0);
    zw_wide wide = zw_wide_of(item, true);
    uint64_t pad = item->at - item->header_at - zw_bare_header(item);
    bool ok = zw_put_signature(out, 3, 4) && zw_put_common(out, item);

    // CRC and both sizes stay 0, even where no descriptor follows.
    ok = ok && zw_put(out, 0, 8) && zw_put(out, 0, 4) && zw_put(out, item->n_name, 2) &&
         zw_put(out, zw_wide_size(item) + 4 + pad, 2) &&
         ckpt_bytes_add(out, item->name, (size_t)item->n_name) && zw_put_wide(out, &wide);
    // The padding is an extra field of its own, which is written even if it is empty.
    ok = ok && ckpt_bytes_add(out, "FB", 2) && zw_put(out, pad, 2);
    for (; ok && pad > 0; pad--)
        ok = zw_put(out, 'Z', 1);
    return ok;
}

bool ckpt_zip_put_descriptor(ckpt_bytes *out, const ckpt_zip_item *item)
{
    assert(out && item);
    uint64_t size = zw_descriptor_size(item);
    unsigned width = size == 24 ? 8 : 4;

    if (size == 0)
        return true;
    return zw_put_signature(out, 7, 8) && zw_put(out, item->crc, 4) &&
           zw_put(out, item->n_bytes, width) && zw_put(out, item->n_bytes, width);
}

static bool zw_put_entry(ckpt_bytes *out, const ckpt_zip_item *item)
{
    zw_wide wide = zw_wide_of(item, false);
    uint64_t size = zw_narrow(item->n_bytes, UINT32_MAX);

    return zw_put_signature(out, 1, 2) && zw_put(out, 0, 2) && // made by version 0
           zw_put_common(out, item) && zw_put(out, item->crc, 4) && zw_put(out, size, 4) &&
           zw_put(out, size, 4) && zw_put(out, item->n_name, 2) &&
           zw_put(out, zw_wide_size(item), 2) && zw_put(out, 0, 8) &&
           zw_put(out, 0, 2) && // comment, disk, attributes
           zw_put(out, zw_narrow(item->header_at, UINT32_MAX), 4) &&
           ckpt_bytes_add(out, item->name, (size_t)item->n_name) && zw_put_wide(out, &wide);
}

bool ckpt_zip_put_directory(ckpt_bytes *out, const ckpt_zip_item *item, uint64_t n, uint64_t at)
{
    assert(out && (item || n == 0));
    size_t before = out->n;
    uint64_t size, i;
    bool ok = true;

    for (i = 0; ok && i < n; i++)
        ok = zw_put_entry(out, &item[i]);
    size = out->n - before;
    // The zip64 record: its size without these 12 bytes, versions, disks, counts, size, offset.
    ok = ok && zw_put_signature(out, 6, 6) && zw_put(out, 56 - 12, 8) && zw_put(out, 0x031E, 2) &&
         zw_put(out, 0x002D, 2) && zw_put(out, 0, 8) && zw_put(out, n, 8) && zw_put(out, n, 8) &&
         zw_put(out, size, 8) && zw_put(out, at, 8);
    // Its locator: disk, offset, number of disks.
    ok = ok && zw_put_signature(out, 6, 7) && zw_put(out, 0, 4) && zw_put(out, at + size, 8) &&
         zw_put(out, 1, 4);
    // The classic record: disks, counts, size, offset, no comment.
    return ok && zw_put_signature(out, 5, 6) && zw_put(out, 0, 4) &&
           zw_put(out, zw_narrow(n, UINT16_MAX), 2) && zw_put(out, zw_narrow(n, UINT16_MAX), 2) &&
           zw_put(out, zw_narrow(size, UINT32_MAX), 4) &&
           zw_put(out, zw_narrow(at, UINT32_MAX), 4) && zw_put(out, 0, 2);
}
