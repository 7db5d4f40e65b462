/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip.h: the zip container as torch uses it: a strict reader, and a writer that fixes every offset
 * before any data are known.
 *
 * Layout of an archive, all numbers little-endian (PKWARE APPNOTE 6.3; torch 1.4 to 2.15 by
 * measurement):
 *
 *     per record   local header: 30 bytes, name, extra; payload; descriptor of 16 or 24 bytes
 *     directory    per record 46 bytes, name, extra, comment
 *     end          zip64 end record (56) and its locator (20), then the classic end record (22)
 *
 * The reader trusts the directory for sizes and the local header for the payload's place, and
 * refuses an archive in which two readers could see different things.
 */
#ifndef CKPT_CODEC_ZIP_H
#define CKPT_CODEC_ZIP_H

#include "libckpt/base/vec.h"
#include "libckpt/copy/io.h"

enum { CKPT_ZIP_STORED = 0, CKPT_ZIP_DEFLATED = 8 };

/* One record of an archive that was read. */
typedef struct ckpt_zip_record {
    const char *name;   /* whole, terminated, in the arena: "archive/data/0" */
    uint64_t n_name;    /* bytes */
    uint64_t header_at; /* offset of its local header */
    uint64_t at;        /* offset of its payload */
    uint64_t n_stored;  /* bytes in the file */
    uint64_t n_bytes;   /* bytes when decoded */
    uint32_t crc;       /* of the decoded bytes */
    uint16_t method;    /* CKPT_ZIP_STORED or CKPT_ZIP_DEFLATED */
    bool has_crc;       /* false: the writer left the field 0 on a record that is not empty */
    bool is_folder;     /* its name ends in '/' and it holds nothing */
} ckpt_zip_record;

CKPT_VEC(ckpt_zip_records, ckpt_zip_record);

typedef struct ckpt_zip {
    ckpt_io *io;              /* borrowed */
    ckpt_zip_records records; /* in the order of the directory */
    uint32_t *by_name;        /* indexes of records, sorted by name */
    uint64_t n_common;        /* bytes that all names begin with */
    uint64_t n_case_twins;    /* names that differ from another one by upper and lower case only */
    uint64_t n_top; /* bytes of the first record's folder, its slash included; 0: it lies in none */
    bool same_names; /* behind their folder, names and order are those of the archive it is like */
} ckpt_zip;

/*
 * Read and check an archive's directory and all local headers; payload is not read.
 *
 * arena    receives the names
 * Errors   CKPT_EFORMAT (malformed; ambiguous), CKPT_EUNSAFE (a name that leaves its folder, a
 *          link, a pickle that is there twice or hides from other readers), CKPT_ELIMIT, CKPT_EIO.
 *          On failure nothing is left in out
 */
int ckpt_zip_open(ckpt_zip *out, ckpt_arena *arena, ckpt_io *io, ckpt_err *err);
void ckpt_zip_close(ckpt_zip *zip);

/*
 * The same beside an archive whose names were found to be in order (ckpt_zip_keep; NULL: none):
 * where each name is that one's but for the top folder, they are neither checked nor sorted again.
 */
int ckpt_zip_open_like(ckpt_zip *out, ckpt_arena *arena, ckpt_io *io, const ckpt_zip *like,
                       ckpt_err *err);

/* The directory of an open archive in the arena that has its names: never closed, not readable. */
int ckpt_zip_keep(ckpt_zip *out, ckpt_arena *arena, const ckpt_zip *zip, ckpt_err *err);

/* The one folder that holds every record: its name's length in bytes.  CKPT_EFORMAT if there is
 * none. */
int ckpt_zip_top(const ckpt_zip *zip, uint64_t *n_top, ckpt_err *err);

/* A record by its whole name (case counts), or NULL. */
const ckpt_zip_record *ckpt_zip_find(const ckpt_zip *zip, const char *name, uint64_t n_name);

/*
 * The decoded bytes of a record, with its CRC checked, and a terminator that is not counted.
 *
 * out     *out to be released with ckpt_free
 * max     bytes it may have
 * Errors  CKPT_EFORMAT, CKPT_ELIMIT, CKPT_EIO
 */
int ckpt_zip_read(uint8_t **out, const ckpt_zip *zip, const ckpt_zip_record *record, uint64_t max,
                  ckpt_err *err);

/*
 * A second opinion: what libzip reads in the directory and the local headers of an archive is what
 * ckpt_zip_open does: entries, names, sizes, methods, checksums.  Files that are no archive pass.
 *
 * Errors   CKPT_EFORMAT: the two disagree; those of ckpt_zip_open
 */
int ckpt_zip_second(ckpt_io *io, ckpt_err *err);

/* One record of an archive to be written. */
typedef struct ckpt_zip_item {
    const char *name;   /* whole; borrowed */
    uint64_t n_name;    /* bytes, at most 65535 */
    uint64_t header_at; /* set by ckpt_zip_place */
    uint64_t at;        /* the same: payload, a multiple of CKPT_ZIP_ALIGN */
    uint64_t n_bytes;
    uint32_t crc; /* by the caller, before its descriptor or the directory is put */
} ckpt_zip_item;

enum { CKPT_ZIP_ALIGN = 64 };

/* Give an item its place; *at is where the archive ends so far, and is advanced past its
 * descriptor. */
int ckpt_zip_place(ckpt_zip_item *item, uint64_t *at, ckpt_err *err);

/* Bytes of an item's entry in the directory. */
uint64_t ckpt_zip_entry_size(const ckpt_zip_item *item);

/* Bytes of the three end records together. */
#define CKPT_ZIP_END_SIZE UINT64_C(98)

/* Append what stands before and after an item's payload; false when memory is exhausted. */
bool ckpt_zip_put_header(ckpt_bytes *out, const ckpt_zip_item *item);
bool ckpt_zip_put_descriptor(ckpt_bytes *out, const ckpt_zip_item *item);

/* Append the directory of n items and the end records, for a directory at offset at. */
bool ckpt_zip_put_directory(ckpt_bytes *out, const ckpt_zip_item *item, uint64_t n, uint64_t at);

/* An archive that was written so, and where its deflated form goes. */
typedef struct ckpt_zip_deflate_job {
    ckpt_io *from;
    const ckpt_zip_item *item; /* n > 0 of them; checksums are not looked at */
    uint64_t n;
    /* receives n bytes for an offset; some offsets come twice */
    int (*write)(void *ctx, const void *bytes, uint64_t n, uint64_t at, ckpt_err *err);
    void *ctx;
} ckpt_zip_deflate_job;

/*
 * Write the same members deflated, one after another, by libzip: memory for a buffer and for the
 * directory, whatever their sizes.
 *
 * Errors  those of from and write; CKPT_ENOMEM; CKPT_EIO: what libzip says
 */
int ckpt_zip_deflate(const ckpt_zip_deflate_job *job, ckpt_err *err);

#endif
