/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip.h: handles the zip container of torch files: a strict reader, and a writer that fixes every
 * offset before any data are known.
 *
 * Layout of an archive, all numbers little-endian (PKWARE APPNOTE 6.3; torch 1.4 to 2.15 by
 * measurement):
 *
 *   per record   local header: 30 bytes, name, extra; payload; descriptor of 16 or 24 bytes
 *   directory    per record 46 bytes, name, extra, comment
 *   end          zip64 end record (56) and its locator (20), then the classic end record (22)
 *
 * The reader takes sizes from the directory and the payload's offset from the local header, and
 * refuses an archive that two readers could understand differently.
 */
#ifndef CKPT_CODEC_ZIP_H
#define CKPT_CODEC_ZIP_H

#include "libckpt/base/vec.h"
#include "libckpt/io/io.h"

enum { CKPT_ZIP_STORED = 0, CKPT_ZIP_DEFLATED = 8 };

/* One record of an archive that is open for reading. */
typedef struct ckpt_zip_record {
    const char *name;   /* the full name, terminated, in the arena: "archive/data/0" */
    uint64_t n_name;    /* bytes */
    uint64_t header_at; /* offset of its local header */
    uint64_t at;        /* offset of its payload */
    uint64_t n_stored;  /* bytes in the file */
    uint64_t n_bytes;   /* bytes when decoded */
    uint32_t crc;       /* CRC-32 of the decoded bytes */
    uint16_t method;    /* CKPT_ZIP_STORED or CKPT_ZIP_DEFLATED */
    bool has_crc;       /* false: the writer left the field 0 even though the record is not empty */
    bool is_folder;     /* a folder's entry: its name ends in '/' and it has no bytes */
} ckpt_zip_record;

CKPT_VEC(ckpt_zip_records, ckpt_zip_record);

typedef struct ckpt_zip {
    ckpt_io *io;              /* borrowed */
    ckpt_zip_records records; /* in the order of the directory */
    uint32_t *by_name;        /* indexes of records, sorted by name */
    uint64_t n_common;        /* length of the prefix that all names share */
    uint64_t n_case_twins;    /* names that differ from another one only by upper and lower case */
    uint64_t n_top;  /* bytes of the first record's folder with its slash; 0: it is in no folder */
    bool same_names; /* names and order below the top folder equal those of `like` */
} ckpt_zip;

/*
 * Open an archive: read and check its directory and all local headers, but no payload.
 *
 * arena receives the names
 * Errors   CKPT_EFORMAT (malformed; ambiguous), CKPT_EUNSAFE (a name that leaves its folder, a
 *          link, a pickle that exists twice or is hidden from other readers), CKPT_ELIMIT,
 *          CKPT_EIO. On failure `out` holds nothing to release
 */
int ckpt_zip_open(ckpt_zip *out, ckpt_arena *arena, ckpt_io *io, ckpt_err *err);
void ckpt_zip_close(ckpt_zip *zip);

/*
 * Open an archive that probably has the same names as another one (from ckpt_zip_keep; NULL: none).
 * If all names are the same except for the top folder, they are neither checked nor sorted again,
 * because the other archive's were.
 */
int ckpt_zip_open_like(ckpt_zip *out, ckpt_arena *arena, ckpt_io *io, const ckpt_zip *like,
                       ckpt_err *err);

/*
 * Copy the directory of an open archive into the arena with its names, to compare later archives
 * with it.  The copy cannot be read from and needs no close.
 */
int ckpt_zip_keep(ckpt_zip *out, ckpt_arena *arena, const ckpt_zip *zip, ckpt_err *err);

/*
 * Find the single folder that holds every record: returns the length of its name in bytes.
 * CKPT_EFORMAT if there is none.
 */
int ckpt_zip_top(const ckpt_zip *zip, uint64_t *n_top, ckpt_err *err);

/* Find a record by its full name (case counts), or NULL. */
const ckpt_zip_record *ckpt_zip_find(const ckpt_zip *zip, const char *name, uint64_t n_name);

/*
 * Read the decoded bytes of a record, check its CRC, and add a terminator that does not count.
 *
 * out  release *out with ckpt_free
 * max  bytes that the record may have
 * Errors  CKPT_EFORMAT, CKPT_ELIMIT, CKPT_EIO
 */
int ckpt_zip_read(uint8_t **out, const ckpt_zip *zip, const ckpt_zip_record *record, uint64_t max,
                  ckpt_err *err);

/*
 * Check that libzip reads the same directory and local headers as ckpt_zip_open: entries, names,
 * sizes, methods, checksums.  A file that is not an archive passes.
 *
 * Errors   CKPT_EFORMAT: the two disagree; those of ckpt_zip_open
 */
int ckpt_zip_second(ckpt_io *io, ckpt_err *err);

/* One record of an archive to write. */
typedef struct ckpt_zip_item {
    const char *name;   /* the full name; borrowed */
    uint64_t n_name;    /* bytes, at most 65535 */
    uint64_t header_at; /* set by ckpt_zip_place */
    /* set by ckpt_zip_place: offset of the payload, a multiple of CKPT_ZIP_ALIGN */
    uint64_t at;
    uint64_t n_bytes;
    uint32_t crc; /* set by the caller before it appends the descriptor or the directory */
} ckpt_zip_item;

enum { CKPT_ZIP_ALIGN = 64 };

/*
 * Assign an item its offsets.  *at is the current end of the archive; it moves past the item's
 * descriptor.
 */
int ckpt_zip_place(ckpt_zip_item *item, uint64_t *at, ckpt_err *err);

/* Bytes of an item's entry in the directory. */
uint64_t ckpt_zip_entry_size(const ckpt_zip_item *item);

/* Bytes of the three end records together. */
#define CKPT_ZIP_END_SIZE UINT64_C(98)

/* Append the bytes before or after an item's payload; false when memory is exhausted. */
bool ckpt_zip_put_header(ckpt_bytes *out, const ckpt_zip_item *item);
bool ckpt_zip_put_descriptor(ckpt_bytes *out, const ckpt_zip_item *item);

/* Append the directory of n items and the end records, for a directory at offset at. */
bool ckpt_zip_put_directory(ckpt_bytes *out, const ckpt_zip_item *item, uint64_t n, uint64_t at);

/* A stored archive of this writer, and the callback that receives its deflated form. */
typedef struct ckpt_zip_deflate_job {
    ckpt_io *from;
    const ckpt_zip_item *item; /* n > 0 of them; their checksums are not used */
    uint64_t n;
    /* receives n bytes for an offset; some offsets are written twice */
    int (*write)(void *ctx, const void *bytes, uint64_t n, uint64_t at, ckpt_err *err);
    void *ctx;
} ckpt_zip_deflate_job;

/*
 * Write the same members deflated, one after another, by libzip. The memory is a buffer and the
 * directory, so it does not grow with the sizes of the members.
 *
 * Errors  those of from and write; CKPT_ELIMIT: out of memory; CKPT_EIO: libzip failed
 */
int ckpt_zip_deflate(const ckpt_zip_deflate_job *job, ckpt_err *err);

#endif
