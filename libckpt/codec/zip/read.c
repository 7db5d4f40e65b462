/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.c: reads zip containers: end records, directory, local headers.
 *
 * Every rule here prevents a known attack in which a scanner and a loader read one file
 * differently: two end records, hidden or overlapping records, differing names.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/digest.h"
#include "libckpt/codec/zip/names.h"
#include "libckpt/io/inflate.h"

#define ZIP_END     UINT64_C(22)
#define ZIP_END64   UINT64_C(56)
#define ZIP_LOCATOR UINT64_C(20)
#define ZIP_ENTRY   UINT64_C(46)
#define ZIP_LOCAL   UINT64_C(30)
#define ZIP_TAIL    (UINT64_C(65535) + ZIP_END + ZIP_LOCATOR + ZIP_END64)

#define ZIP_MAX_DIRECTORY (UINT64_C(128) << 20) /* bytes: about two million records */
#define ZIP_DEFLATE_RATIO UINT64_C(1032)        /* the most that deflate can shrink by */

/*
 * Flag bits that do not change the meaning of the bytes: 1, 2 (effort), 3 (descriptor), 11 (UTF-8).
 */
enum { ZIP_FLAG_DESCRIPTOR = 0x0008, ZIP_FLAGS = 0x080E };

/* Ids of extra fields. */
enum { ZIP_EXTRA_64 = 0x0001, ZIP_EXTRA_NAME = 0x7075 };

/* A part of the file in memory. */
typedef struct zip_window {
    uint8_t *bytes;
    uint64_t at, n, room;
} zip_window;

/* The location of the directory, as the end records give it. */
typedef struct zip_directory {
    uint64_t n; /* entries */
    uint64_t at, size;
} zip_directory;

/* The arena for names, and the archive with known names (or NULL). */
typedef struct zip_places {
    ckpt_arena *arena;
    const ckpt_zip *like;
} zip_places;

/* One entry of the directory, not decoded yet. */
typedef struct zip_entry {
    const uint8_t *fixed, *name, *extra;
    uint64_t n_name, n_extra;
    uint64_t n_all; /* bytes of the entry, comment included */
} zip_entry;

static uint16_t zip_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t zip_u32(const uint8_t *p)
{
    return (uint32_t)zip_u16(p) | (uint32_t)zip_u16(p + 2) << 16;
}

static uint64_t zip_u64(const uint8_t *p)
{
    return (uint64_t)zip_u32(p) | (uint64_t)zip_u32(p + 4) << 32;
}

static bool zip_signature(const uint8_t *p, uint8_t a, uint8_t b)
{
    return p[0] == 'P' && p[1] == 'K' && p[2] == a && p[3] == b;
}

/* Make n bytes at offset at available; a read fetches up to `ahead` more bytes. */
static int zip_need(zip_window *w, ckpt_io *io, uint64_t at, uint64_t n, uint64_t ahead,
                    ckpt_err *err)
{
    if (at >= w->at && ckpt_within(at - w->at, n, w->n))
        return CKPT_OK;
    if (!ckpt_within(at, n, io->size))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: %" PRIu64 " bytes at offset %" PRIu64
                         " lie beyond the end of the file at %" PRIu64,
                         io->name, n, at, io->size);
    if (ahead < n)
        ahead = n;
    if (ahead > io->size - at)
        ahead = io->size - at;
    if (ahead > w->room) {
        ckpt_free(w->bytes);
        w->room = w->n = 0;
        w->bytes = ckpt_alloc((size_t)ahead);
        if (!w->bytes)
            return ckpt_fail_memory(err);
        w->room = ahead;
    }
    w->at = at;
    w->n = ahead;
    return ckpt_io_read(io, w->bytes, ahead, at, err);
}

/* ---- the end records ---- */

/*
 * Find the classic end record in the file's tail.
 *
 * Readers disagree on which one to take when there are several, and on whether to search its
 * comment.  Therefore exactly one must end at the end of the file, and none may follow it.
 */
static int zip_find_end(const zip_window *tail, const ckpt_io *io, uint64_t *at, ckpt_err *err)
{
    const uint8_t *p = tail->bytes, *end = tail->bytes + tail->n;
    uint64_t n_found = 0, n_behind = 0;

    for (; (size_t)(end - p) >= 4; p++) {
        p = memchr(p, 'P', (size_t)(end - p) - 3);
        if (!p)
            break;
        if (!zip_signature(p, 5, 6))
            continue;
        n_behind += n_found;
        if ((uint64_t)(end - p) >= ZIP_END && ZIP_END + zip_u16(p + 20) == (uint64_t)(end - p)) {
            if (n_found++ == 0)
                *at = tail->at + (uint64_t)(p - tail->bytes);
        }
    }
    if (n_found == 0)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: no zip end record at the end of the file: it was cut short, or bytes "
                         "were appended",
                         io->name);
    if (n_found > 1 || n_behind > 0)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: offset %" PRIu64 ": a second zip end record follows this one",
                         io->name, *at);
    return CKPT_OK;
}

/*
 * True if a field of the classic record agrees with the zip64 record: equal, or saturated, which
 * refers to zip64.
 */
static bool zip_agrees(uint64_t plain, uint64_t saturated, uint64_t wide)
{
    return plain == wide || plain == saturated;
}

/*
 * Read the zip64 end record that the locator before offset *start points to, if there is one.
 *
 * dir   filled from the classic record; replaced
 * start in: start of the end records; out: moved before the zip64 record
 */
static int zip_read_end64(zip_directory *dir, uint64_t *start, zip_window *tail, ckpt_io *io,
                          ckpt_err *err)
{
    uint64_t end_at = *start, at, size;
    zip_directory wide;
    const uint8_t *p;
    int rc;

    if (end_at < ZIP_LOCATOR + ZIP_END64)
        return CKPT_OK;
    p = tail->bytes + (end_at - ZIP_LOCATOR - tail->at);
    if (!zip_signature(p, 6, 7))
        return CKPT_OK;
    at = zip_u64(p + 8);
    if (zip_u32(p + 4) != 0 || zip_u32(p + 16) > 1)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: zip archives in several parts are not supported",
                         io->name);
    if (!ckpt_within(at, ZIP_END64, end_at - ZIP_LOCATOR))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: the zip64 locator refers to an end record at offset %" PRIu64
                         ", which does not fit in a file of %" PRIu64 " bytes",
                         io->name, at, io->size);
    rc = zip_need(tail, io, at, ZIP_END64, 0, err);
    if (rc != CKPT_OK)
        return rc;
    p = tail->bytes + (at - tail->at);
    size = zip_u64(p + 4);
    // The record's size field leaves out its first 12 bytes; the record must reach the locator.
    if (!zip_signature(p, 6, 6) || size != end_at - ZIP_LOCATOR - at - 12)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: offset %" PRIu64
                         ": expected a zip64 end record that ends at its locator",
                         io->name, at);
    wide = (zip_directory){zip_u64(p + 32), zip_u64(p + 48), zip_u64(p + 40)};
    if (zip_u32(p + 16) != 0 || zip_u32(p + 20) != 0 || zip_u64(p + 24) != wide.n ||
        !zip_agrees(dir->n, UINT16_MAX, wide.n) || !zip_agrees(dir->at, UINT32_MAX, wide.at) ||
        !zip_agrees(dir->size, UINT32_MAX, wide.size))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: the zip64 and the classic end record disagree",
                         io->name);
    *dir = wide;
    *start = at;
    return CKPT_OK;
}

/*
 * Find the directory from the end records.  It must end exactly at their start, so that no bytes
 * hide between them.
 */
static int zip_locate(zip_directory *dir, zip_window *tail, ckpt_io *io, ckpt_err *err)
{
    uint64_t n = io->size < ZIP_TAIL ? io->size : ZIP_TAIL, start = 0, end;
    const uint8_t *p;
    int rc = zip_need(tail, io, io->size - n, n, 0, err);

    if (rc == CKPT_OK)
        rc = zip_find_end(tail, io, &start, err);
    if (rc != CKPT_OK)
        return rc;
    p = tail->bytes + (start - tail->at);
    *dir = (zip_directory){zip_u16(p + 10), zip_u32(p + 16), zip_u32(p + 12)};
    if (zip_u16(p + 4) != 0 || zip_u16(p + 6) != 0 || zip_u16(p + 8) != dir->n)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: zip archives in several parts are not supported",
                         io->name);
    rc = zip_read_end64(dir, &start, tail, io, err);
    if (rc != CKPT_OK)
        return rc;
    if (!ckpt_add(dir->at, dir->size, &end) || end != start)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: the zip directory (offset %" PRIu64 ", %" PRIu64
                         " bytes) does not end at offset %" PRIu64 ", where the end records start",
                         io->name, dir->at, dir->size, start);
    if (dir->n > dir->size / ZIP_ENTRY || dir->n >= UINT32_MAX)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: %" PRIu64 " records are too many for a zip directory of %" PRIu64
                         " bytes",
                         io->name, dir->n, dir->size);
    if (dir->size > ZIP_MAX_DIRECTORY)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "%s: a zip directory of %" PRIu64 " bytes is over the limit of %" PRIu64,
                         io->name, dir->size, ZIP_MAX_DIRECTORY);
    return CKPT_OK;
}

/* ---- the directory ---- */

/*
 * Find the extra field `id` among n bytes of fields; false when the fields do not fit their
 * lengths.
 */
static bool zip_extra(const uint8_t *p, uint64_t n, uint16_t id, const uint8_t **field,
                      uint64_t *n_field)
{
    bool found = false;

    *field = NULL;
    *n_field = 0;
    while (n >= 4) {
        uint64_t n_this = zip_u16(p + 2);

        if (n_this > n - 4)
            return false;
        if (zip_u16(p) == id) {
            if (found)
                return false; // readers would disagree on which of the two counts
            found = true;
            *field = p + 4;
            *n_field = n_this;
        }
        p += 4 + n_this;
        n -= 4 + n_this;
    }
    return n == 0;
}

/* Cut one entry from the rest of the directory. */
static bool zip_cut(zip_entry *e, const uint8_t *p, uint64_t n)
{
    uint64_t n_all;

    if (n < ZIP_ENTRY || !zip_signature(p, 1, 2))
        return false;
    e->fixed = p;
    e->name = p + ZIP_ENTRY;
    e->n_name = zip_u16(p + 28);
    e->extra = e->name + e->n_name;
    e->n_extra = zip_u16(p + 30);
    n_all = ZIP_ENTRY + e->n_name + e->n_extra + zip_u16(p + 32);
    e->n_all = n_all;
    return n_all <= n;
}

/*
 * Check that every part of a name is harmless as a file name, because another program may unpack
 * the archive.
 */
static int zip_check_name(const ckpt_io *io, const ckpt_zip_record *r, ckpt_err *err)
{
    uint64_t n = r->is_folder ? r->n_name - 1 : r->n_name;
    const char *part = r->name, *end = r->name + n;

    if (memchr(r->name, 0, (size_t)r->n_name) || !ckpt_utf8_ok(r->name, r->n_name))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: record name \"%.*s\" is not text", io->name,
                         zip_show(r->n_name), r->name);
    for (;;) {
        const char *slash = memchr(part, '/', (size_t)(end - part));
        const char *stop = slash ? slash : end;

        if (!ckpt_path_part_ok(part, (uint64_t)(stop - part)))
            return ckpt_fail(err, CKPT_EUNSAFE,
                             "%s: record name \"%.*s\" could leave the folder it is unpacked in",
                             io->name, zip_show(r->n_name), r->name);
        if (!slash)
            return CKPT_OK;
        part = slash + 1;
    }
}

/* Read sizes and offset: 32-bit fields, and a saturated one refers to the zip64 field. */
static int zip_sizes(const ckpt_io *io, ckpt_zip_record *r, const zip_entry *e, ckpt_err *err)
{
    uint64_t *const value[3] = {&r->n_bytes, &r->n_stored, &r->header_at};
    static const unsigned place[3] = {24, 20, 42};
    const uint8_t *wide, *unicode;
    uint64_t n_wide, n_unicode;
    unsigned i;

    if (!zip_extra(e->extra, e->n_extra, ZIP_EXTRA_64, &wide, &n_wide) ||
        !zip_extra(e->extra, e->n_extra, ZIP_EXTRA_NAME, &unicode, &n_unicode) || unicode)
        return ckpt_fail(
            err, zip_odd(r->name, r->n_name),
            "%s: record \"%.*s\": its extra field is malformed, or gives a second name", io->name,
            zip_show(r->n_name), r->name);
    for (i = 0; i < 3; i++) {
        *value[i] = zip_u32(e->fixed + place[i]);
        if (*value[i] != UINT32_MAX)
            continue;
        if (n_wide < 8)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "%s: record \"%.*s\": its zip64 field is missing or too short",
                             io->name, zip_show(r->n_name), r->name);
        *value[i] = zip_u64(wide);
        wide += 8;
        n_wide -= 8;
    }
    return CKPT_OK;
}

/* Check the other fields of a directory entry. */
static int zip_check_entry(const ckpt_io *io, const ckpt_zip_record *r, const zip_entry *e,
                           ckpt_err *err)
{
    unsigned flags = zip_u16(e->fixed + 8), disk = zip_u16(e->fixed + 34);
    uint32_t attributes = zip_u32(e->fixed + 38);
    int n = zip_show(r->n_name);

    if ((flags & ~(unsigned)ZIP_FLAGS) != 0)
        return ckpt_fail(err, zip_odd(r->name, r->n_name),
                         "%s: record \"%.*s\": it is encrypted, or has unknown flags (0x%04x)",
                         io->name, n, r->name, flags);
    if (r->method != CKPT_ZIP_STORED && r->method != CKPT_ZIP_DEFLATED)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: record \"%.*s\": compression method %u; only stored and deflated "
                         "records are read, which is all that torch and NumPy write",
                         io->name, n, r->name, r->method);
    if (r->method == CKPT_ZIP_STORED && r->n_stored != r->n_bytes)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: record \"%.*s\": it is not compressed, but has %" PRIu64
                         " bytes in the archive and %" PRIu64 " as a file",
                         io->name, n, r->name, r->n_stored, r->n_bytes);
    if (disk != 0 && disk != UINT16_MAX)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: record \"%.*s\": it lies in another part of a split archive",
                         io->name, n, r->name);
    // The upper half holds Unix modes if the writer ran on Unix: 0xA is a symbolic link.
    if (attributes >> 28 == 0xA)
        return ckpt_fail(err, CKPT_EUNSAFE, "%s: record \"%.*s\" is a symbolic link", io->name, n,
                         r->name);
    if (r->is_folder && r->n_bytes != 0)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: record \"%.*s\": it is a folder, but has bytes of its own", io->name,
                         n, r->name);
    return CKPT_OK;
}

/* Read all entries; they must fill the directory exactly, so that no bytes hide after them. */
static int zip_read_entries(ckpt_zip *zip, const zip_places *at, const uint8_t *p,
                            const zip_directory *dir, ckpt_err *err)
{
    uint64_t left = dir->size, i;
    zip_entry e;

    for (i = 0; i < dir->n; i++) {
        ckpt_zip_record *r;
        int rc;

        if (!zip_cut(&e, p, left))
            return ckpt_fail(err, CKPT_EFORMAT,
                             "%s: entry %" PRIu64 " of %" PRIu64 " of the zip directory is damaged",
                             zip->io->name, i, dir->n);
        r = ckpt_vec_push(&zip->records);
        if (!r)
            return ckpt_fail_memory(err);
        r->name = ckpt_arena_string(at->arena, (const char *)e.name, e.n_name);
        if (!r->name)
            return ckpt_fail_memory(err);
        r->n_name = e.n_name;
        r->is_folder = e.n_name > 1 && r->name[e.n_name - 1] == '/';
        r->method = zip_u16(e.fixed + 10);
        r->crc = zip_u32(e.fixed + 16);
        rc = ckpt_zip_name_known(zip, at->like) ? CKPT_OK : zip_check_name(zip->io, r, err);
        if (rc == CKPT_OK)
            rc = zip_sizes(zip->io, r, &e, err);
        if (rc == CKPT_OK)
            rc = zip_check_entry(zip->io, r, &e, err);
        if (rc != CKPT_OK)
            return rc;
        r->has_crc = r->crc != 0 || r->n_bytes == 0;
        p += e.n_all;
        left -= e.n_all;
    }
    if (left != 0)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: %" PRIu64 " bytes of the zip directory belong to none of its %" PRIu64
                         " records",
                         zip->io->name, left, dir->n);
    return CKPT_OK;
}

/* ---- local headers ---- */

/* True if a local size field equals the directory's, or is 0 because a descriptor follows. */
static bool zip_local_ok(uint64_t local, uint64_t central, bool descriptor)
{
    return local == central || (descriptor && local == 0);
}

/*
 * Check the sizes in a local header.  The zip64 field counts for a saturated 32-bit field.  torch
 * leaves the 32-bit fields 0 and keeps an offset in the zip64 field, which is then ignored.
 */
static bool zip_local_sizes_ok(const ckpt_zip_record *r, const uint8_t *h, bool descriptor)
{
    uint64_t n_bytes = zip_u32(h + 22), n_stored = zip_u32(h + 18), n_wide;
    const uint8_t *wide;

    if (n_bytes == UINT32_MAX || n_stored == UINT32_MAX) {
        if (!zip_extra(h + ZIP_LOCAL + r->n_name, zip_u16(h + 28), ZIP_EXTRA_64, &wide, &n_wide))
            return false;
        if (n_wide < (n_bytes == UINT32_MAX ? 8u : 0u) + (n_stored == UINT32_MAX ? 8u : 0u))
            return false;
        if (n_bytes == UINT32_MAX) {
            n_bytes = zip_u64(wide);
            wide += 8;
        }
        if (n_stored == UINT32_MAX)
            n_stored = zip_u64(wide);
    }
    return zip_local_ok(n_bytes, r->n_bytes, descriptor) &&
           zip_local_ok(n_stored, r->n_stored, descriptor) &&
           zip_local_ok(zip_u32(h + 14), r->crc, descriptor);
}

/* Compare a local header with the directory's entry, and compute the offset of the payload. */
static int zip_check_local(ckpt_zip_record *r, const ckpt_io *io, const uint8_t *h, ckpt_err *err)
{
    bool descriptor = (zip_u16(h + 6) & ZIP_FLAG_DESCRIPTOR) != 0;
    int n = zip_show(r->n_name);

    if (memcmp(h + ZIP_LOCAL, r->name, (size_t)r->n_name) != 0)
        return ckpt_fail(err, zip_odd(r->name, r->n_name),
                         "%s: record \"%.*s\" has another name in its local header: \"%.*s\"",
                         io->name, n, r->name, n, (const char *)h + ZIP_LOCAL);
    if ((zip_u16(h + 6) & ~(unsigned)ZIP_FLAGS) != 0)
        return ckpt_fail(err, zip_odd(r->name, r->n_name),
                         "%s: record \"%.*s\": its local header has flags 0x%04x: it is encrypted, "
                         "or they are unknown",
                         io->name, n, r->name, zip_u16(h + 6));
    if (zip_u16(h + 8) != r->method || !zip_local_sizes_ok(r, h, descriptor))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: record \"%.*s\": local header and directory disagree on method, size "
                         "or CRC",
                         io->name, n, r->name);
    return CKPT_OK;
}

/*
 * Check the record with its header at r->header_at.  All of its bytes must lie below `end`, the
 * start of the next record or of the directory.
 */
static int zip_read_local(ckpt_zip_record *r, ckpt_io *io, zip_window *w, uint64_t end,
                          ckpt_err *err)
{
    // Small records are close together, so one larger read fetches several headers.
    uint64_t ahead = r->n_stored < 16384 ? 65536 : 4096, need = ZIP_LOCAL + r->n_name;
    const uint8_t *h;
    int rc, pass;

    for (pass = 0; pass < 2; pass++) { // first fixed part and name, then also the extra field
        uint64_t before = need;

        if (!ckpt_within(r->header_at, need, end))
            return ckpt_fail(err, CKPT_EFORMAT,
                             "%s: record \"%.*s\": header at offset %" PRIu64
                             " overlaps the next record or the directory at offset %" PRIu64,
                             io->name, zip_show(r->n_name), r->name, r->header_at, end);
        rc = zip_need(w, io, r->header_at, need, ahead, err);
        if (rc != CKPT_OK)
            return rc;
        h = w->bytes + (r->header_at - w->at);
        if (!zip_signature(h, 3, 4) || zip_u16(h + 26) != r->n_name)
            return ckpt_fail(err, zip_odd(r->name, r->n_name),
                             "%s: record \"%.*s\": its local header is missing at offset %" PRIu64,
                             io->name, zip_show(r->n_name), r->name, r->header_at);
        need = ZIP_LOCAL + r->n_name + zip_u16(h + 28);
        if (pass == 1 && need != before)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "%s: record \"%.*s\": the header at offset %" PRIu64
                             " changed while it was read: is another process writing the file?",
                             io->name, zip_show(r->n_name), r->name, r->header_at);
    }
    r->at = r->header_at + need;
    if (!ckpt_within(r->at, r->n_stored, end))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: record \"%.*s\": %" PRIu64 " bytes from offset %" PRIu64
                         " overlap the next record or the directory at offset %" PRIu64,
                         io->name, zip_show(r->n_name), r->name, r->n_stored, r->at, end);
    return zip_check_local(r, io, h, err);
}

static int zip_by_place(const void *a, const void *b)
{
    const ckpt_zip_record *x = *(ckpt_zip_record *const *)a, *y = *(ckpt_zip_record *const *)b;

    return x->header_at < y->header_at ? -1 : x->header_at > y->header_at;
}

/*
 * Sort the records by offset.  The first must start at the beginning of the file, so that no data
 * hide before it.  The last must start before the directory; then each other record, which must end
 * before the next one starts, also lies in the file.
 */
static int zip_sort_places(ckpt_zip_record **order, const ckpt_zip *zip, const zip_directory *dir,
                           ckpt_err *err)
{
    size_t n = zip->records.n, i;
    bool sorted = true;
    const ckpt_zip_record *last;

    for (i = 0; i < n; i++) {
        order[i] = &zip->records.at[i];
        sorted = sorted && (i == 0 || order[i - 1]->header_at < order[i]->header_at);
    }
    if (!sorted)
        qsort(order, n, sizeof(ckpt_zip_record *), zip_by_place);
    if (order[0]->header_at != 0)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: the zip directory has no record for the first %" PRIu64 " bytes",
                         zip->io->name, order[0]->header_at);
    last = order[n - 1];
    if (last->header_at >= dir->at)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: record \"%.*s\": header at offset %" PRIu64
                         " overlaps the directory at offset %" PRIu64,
                         zip->io->name, zip_show(last->n_name), last->name, last->header_at,
                         dir->at);
    return CKPT_OK;
}

/* Check all local headers in the order of the file. */
static int zip_read_locals(ckpt_zip *zip, const zip_directory *dir, zip_window *w, ckpt_err *err)
{
    size_t n = zip->records.n, i;
    ckpt_zip_record **order = ckpt_alloc(n * sizeof *order);
    int rc;

    if (!order)
        return ckpt_fail_memory(err);
    rc = zip_sort_places(order, zip, dir, err);
    for (i = 0; rc == CKPT_OK && i < n; i++)
        rc = zip_read_local(order[i], zip->io, w, i + 1 < n ? order[i + 1]->header_at : dir->at,
                            err);
    ckpt_free(order);
    return rc;
}

/* ---- opening ---- */

/*
 * Read the directory at the end of the file, which counts, then compare the local headers with it:
 * otherwise two readers could see two different archives.
 */
static int zip_open(ckpt_zip *zip, const zip_places *at, zip_window *w, ckpt_err *err)
{
    zip_directory dir = {0};
    uint8_t head[4];
    int rc;

    if (zip->io->size < ZIP_LOCAL + ZIP_ENTRY + ZIP_END)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: %" PRIu64 " bytes are too few for a zip archive",
                         zip->io->name, zip->io->size);
    rc = ckpt_io_read(zip->io, head, sizeof head, 0, err);
    if (rc == CKPT_OK && !zip_signature(head, 3, 4))
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: does not begin with a zip record", zip->io->name);
    if (rc == CKPT_OK)
        rc = zip_locate(&dir, w, zip->io, err);
    if (rc == CKPT_OK && dir.n == 0)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: the zip archive contains no records", zip->io->name);
    if (rc == CKPT_OK)
        rc = zip_need(w, zip->io, dir.at, dir.size, 0, err);
    if (rc == CKPT_OK)
        rc = zip_read_entries(zip, at, w->bytes + (dir.at - w->at), &dir, err);
    if (rc == CKPT_OK)
        rc = ckpt_zip_sort_names(zip, at->like, err);
    if (rc == CKPT_OK)
        rc = zip_read_locals(zip, &dir, w, err);
    return rc;
}

int ckpt_zip_open(ckpt_zip *out, ckpt_arena *arena, ckpt_io *io, ckpt_err *err)
{
    return ckpt_zip_open_like(out, arena, io, NULL, err);
}

int ckpt_zip_open_like(ckpt_zip *out, ckpt_arena *arena, ckpt_io *io, const ckpt_zip *like,
                       ckpt_err *err)
{
    assert(out && arena && io);
    const zip_places at = {arena, like};
    zip_window window = {0};
    int rc;

    *out = (ckpt_zip){.io = io};
    rc = zip_open(out, &at, &window, err);
    ckpt_free(window.bytes);
    if (rc != CKPT_OK)
        ckpt_zip_close(out);
    return rc;
}

void ckpt_zip_close(ckpt_zip *zip)
{
    ckpt_vec_free(&zip->records);
    ckpt_free(zip->by_name);
    *zip = (ckpt_zip){0};
}

/* ---- small records ---- */

/* Decode a record into `out`, which has room for exactly n_bytes.  The caller checks the CRC. */
static int zip_decode(uint8_t *out, const ckpt_zip *zip, const ckpt_zip_record *r, ckpt_err *err)
{
    ckpt_err why = {0};
    uint8_t *packed;
    int rc, n = zip_show(r->n_name);

    if (r->method == CKPT_ZIP_STORED)
        return ckpt_io_read(zip->io, out, r->n_bytes, r->at, err);
    packed = ckpt_alloc((size_t)r->n_stored);
    if (!packed)
        return ckpt_fail_memory(err);
    rc = ckpt_io_read(zip->io, packed, r->n_stored, r->at, err);
    if (rc == CKPT_OK)
        rc = ckpt_inflate_all(out, r->n_bytes, packed, r->n_stored, &why);
    if (why.code != CKPT_OK)
        rc = ckpt_fail(err, rc, "%s: record \"%.*s\": %s", zip->io->name, n, r->name, why.text);
    ckpt_free(packed);
    return rc;
}

int ckpt_zip_read(uint8_t **out, const ckpt_zip *zip, const ckpt_zip_record *record, uint64_t max,
                  ckpt_err *err)
{
    assert(out && record >= zip->records.at && record < zip->records.at + zip->records.n);
    int rc, n = zip_show(record->n_name);
    uint8_t *bytes;

    *out = NULL;
    if (record->n_bytes > max)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "%s: record \"%.*s\" has %" PRIu64 " bytes; expected at most %" PRIu64,
                         zip->io->name, n, record->name, record->n_bytes, max);
    if (record->method == CKPT_ZIP_DEFLATED &&
        record->n_bytes / ZIP_DEFLATE_RATIO > record->n_stored)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: record \"%.*s\": %" PRIu64
                         " bytes cannot be decompressed from %" PRIu64,
                         zip->io->name, n, record->name, record->n_bytes, record->n_stored);
    // deflate makes incompressible data only a few bytes larger for each block
    if (record->method == CKPT_ZIP_DEFLATED &&
        record->n_stored > record->n_bytes + record->n_bytes / 128 + 64)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: record \"%.*s\": %" PRIu64 " compressed bytes for %" PRIu64
                         ": more than deflate makes of them",
                         zip->io->name, n, record->name, record->n_stored, record->n_bytes);
    bytes = ckpt_alloc((size_t)record->n_bytes + 1);
    if (!bytes)
        return ckpt_fail_memory(err);
    rc = zip_decode(bytes, zip, record, err);
    if (rc == CKPT_OK && record->has_crc &&
        ckpt_crc32(0, bytes, (size_t)record->n_bytes) != record->crc)
        rc = ckpt_fail(err, CKPT_EFORMAT,
                       "%s: record \"%.*s\": CRC-32 does not match: the file is damaged",
                       zip->io->name, n, record->name);
    if (rc != CKPT_OK) {
        ckpt_free(bytes);
        return rc;
    }
    *out = bytes;
    return CKPT_OK;
}
