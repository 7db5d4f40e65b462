/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.c: reads files of torch.save since torch 1.6: a zip archive with a pickle and one record
 * per storage.
 *
 *     <top>/data.pkl             the pickle
 *     <top>/data/<key>           bytes of one storage (torch 1.4: tensors/<key>)
 *     <top>/version              "3" (1.4: "1", 1.5: "2")
 *     <top>/byteorder            "little" or "big" (since 2.1)
 *     <top>/.format_version, .storage_alignment, .data/serialization_id: not needed
 *     <top>/constants.pkl        only in TorchScript archives, which are refused
 *
 * All records have the same <top>.  Checked against torch 1.4 to 2.15.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/torch/torch.h"
#include "libckpt/base/dtype.h"
#include "libckpt/codec/zip/zip.h"
#include "libckpt/format.h"

/*
 * Limits of data.pkl in bytes, stored and inflated.  Its values take up to 64 times its size, so a
 * small file must not inflate to a large pickle: above 4 MiB at most 16 times the stored size is
 * accepted (pickles of real checkpoints compress to a fifth or sixth).
 */
#define TORCH_MAX_PICKLE    (UINT64_C(1) << 30)
#define TORCH_MAX_INFLATED  (UINT64_C(256) << 20)
#define TORCH_FREE_INFLATED (UINT64_C(4) << 20)
#define TORCH_PICKLE_RATIO  UINT64_C(16)

/* Limits of small text records, in bytes, and of a version, in digits. */
enum { TORCH_MAX_TEXT = 64, TORCH_MAX_VERSION = 10 };

typedef struct torch_file {
    ckpt_map *map;
    ckpt_io *io;
    bool inner;  /* the archive is one of many inside a file */
    uint64_t at; /* offset of the archive in the file */
    uint32_t file;
    ckpt_err *err;
    ckpt_zip zip;
    uint64_t n_top;                  /* length of the top folder's name */
    ckpt_bytes name;                 /* scratch for a record's name */
    bool swap;                       /* byteorder is "big" */
    uint64_t n_no_crc;               /* number of storages whose record has no CRC */
    const struct torch_header *like; /* header of an archive with perhaps the same pickle; NULL */
} torch_file;

/* The header of an archive, kept for comparison with similar archives (ckpt_map.header). */
typedef struct torch_header {
    const uint8_t *pickle; /* n_pickle bytes of data.pkl */
    uint64_t n_pickle;
    ckpt_zip zip; /* the zip directory */
    bool swap;
    ckpt_storage *const *storage; /* n_storages of them, bound to sources 0, 1, 2 ... */
    const uint32_t *record;       /* by storage: its index in the directory */
    size_t n_storages;
} torch_header;

static int torch_probe(const uint8_t *head, size_t n, uint64_t size)
{
    size_t n_name;

    (void)size;
    if (n < 4 || memcmp(head, "PK\3\4", 4) != 0)
        return 0;
    // All records of torch are in a folder; other zip files usually have records at the top.
    n_name = n < 30 ? 0 : (size_t)(head[26] | head[27] << 8);
    if (n_name == 0 || n_name > n - 30)
        return 40;
    return memchr(head + 30, '/', n_name) ? 90 : 40;
}

/* ---- records ---- */

/*
 * Find the record <top>/<folder><key>; *out is NULL if there is none.  The look-up is
 * case-sensitive: torch's is not, and can be led to another record.
 */
static int torch_find(torch_file *f, const ckpt_zip_record **out, const char *folder,
                      const ckpt_text *key)
{
    f->name.n = 0;
    if (!ckpt_bytes_add(&f->name, f->zip.records.at[0].name, (size_t)f->n_top + 1) ||
        !ckpt_bytes_add(&f->name, folder, strlen(folder)) ||
        (key && !ckpt_bytes_add(&f->name, key->at, (size_t)key->n)))
        return ckpt_fail_memory(f->err);
    *out = ckpt_zip_find(&f->zip, (const char *)f->name.at, f->name.n);
    return CKPT_OK;
}

/* Read a short text record without trailing blanks; text[0] is 0 if there is no such record. */
static int torch_text(torch_file *f, char text[TORCH_MAX_TEXT + 1], const char *name)
{
    const ckpt_zip_record *r = NULL;
    uint8_t *bytes;
    uint64_t n;
    int rc = torch_find(f, &r, name, NULL);

    text[0] = '\0';
    if (rc != CKPT_OK || !r)
        return rc;
    rc = ckpt_zip_read(&bytes, &f->zip, r, TORCH_MAX_TEXT, f->err);
    if (rc != CKPT_OK)
        return rc;
    for (n = r->n_bytes;
         n > 0 && (bytes[n - 1] == '\n' || bytes[n - 1] == '\r' || bytes[n - 1] == ' ');)
        n--;
    if (n == 0 || memchr(bytes, 0, (size_t)n))
        rc = ckpt_fail(f->err, CKPT_EFORMAT, "%s: record %s is empty or not text", f->io->name,
                       r->name);
    else
        memcpy(text, bytes, (size_t)n);
    text[rc == CKPT_OK ? n : 0] = '\0';
    ckpt_free(bytes);
    return rc;
}

/* Read the format version, 1 to 10; torch prefers a record .data/version to version. */
static int torch_version(torch_file *f)
{
    char text[TORCH_MAX_TEXT + 1];
    unsigned version = 0;
    const char *p;
    int rc = torch_text(f, text, ".data/version");

    if (rc == CKPT_OK && text[0] == '\0')
        rc = torch_text(f, text, "version");
    if (rc != CKPT_OK)
        return rc;
    if (text[0] == '\0')
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: no record 'version': a zip archive, but not one of torch.save",
                         f->io->name);
    for (p = text; *p >= '0' && *p <= '9' && version <= TORCH_MAX_VERSION; p++)
        version = version * 10 + (unsigned)(*p - '0');
    if (*p != '\0' || version < 1 || version > TORCH_MAX_VERSION)
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: unknown format version \"%s\": expected 1 to %d", f->io->name, text,
                         TORCH_MAX_VERSION);
    return f->inner ? CKPT_OK
                    : ckpt_map_fact_int(f->map, "format version", (int64_t)version, f->err);
}

static int torch_byteorder(torch_file *f)
{
    char text[TORCH_MAX_TEXT + 1];
    int rc = torch_text(f, text, "byteorder");

    if (rc != CKPT_OK || text[0] == '\0') // before torch 2.1: little-endian on every machine
        return rc;
    f->swap = strcmp(text, "big") == 0;
    if (!f->swap && strcmp(text, "little") != 0)
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: unknown byte order \"%s\": expected \"little\" or \"big\"",
                         f->io->name, text);
    return f->inner ? CKPT_OK : ckpt_map_fact(f->map, f->err, "byte order", "%s", text);
}

/* Check the kind of archive by its records, and find the pickle. */
static int torch_kind(torch_file *f, const ckpt_zip_record **pickle)
{
    const ckpt_zip_record *constants = NULL, *version = NULL;
    int rc = torch_find(f, pickle, "data.pkl", NULL);

    if (rc == CKPT_OK)
        rc = torch_find(f, &constants, "constants.pkl", NULL);
    if (rc == CKPT_OK)
        rc = torch_find(f, &version, "version", NULL);
    if (rc != CKPT_OK)
        return rc;
    if (constants)
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: a TorchScript archive (it holds constants.pkl): a program, not a "
                         "checkpoint; save its state_dict() with torch.save",
                         f->io->name);
    if (!*pickle && version)
        return ckpt_fail(
            f->err, CKPT_EMISSING,
            "%s: a torch archive without data.pkl: the save died half-way; use another "
            "checkpoint",
            f->io->name);
    if (!*pickle)
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: no data.pkl: a zip archive, but not one of torch.save", f->io->name);
    return CKPT_OK;
}

/* ---- storages ---- */

/* Make a source for a record's bytes. */
static ckpt_source torch_source(const torch_file *f, const ckpt_zip_record *r)
{
    return (ckpt_source){
        .kind = CKPT_SOURCE_FILE,
        .coding = r->method == CKPT_ZIP_DEFLATED ? CKPT_DEFLATE : CKPT_RAW,
        .has_crc = r->has_crc,
        .crc = r->crc,
        .file = f->file,
        .at = f->at + r->at,
        .n_stored = r->n_stored,
        .n_bytes = r->n_bytes,
        .name = r->name,
    };
}

/* Check that a record has the size that the pickle gives its storage. */
static int torch_check_size(torch_file *f, const ckpt_storage *s, const ckpt_zip_record *r)
{
    bool bomb = r->method == CKPT_ZIP_DEFLATED && r->n_bytes > s->n_bytes;

    if (r->n_bytes == s->n_bytes)
        return CKPT_OK;
    return ckpt_fail(f->err, bomb ? CKPT_ELIMIT : CKPT_EFORMAT,
                     "%s: record %.200s holds %" PRIu64 " bytes, but its tensors need %" PRIu64,
                     f->io->name, r->name, r->n_bytes, s->n_bytes);
}

/* Find the record of a storage. */
static int torch_record(torch_file *f, const ckpt_storage *s, const ckpt_zip_record **out)
{
    const ckpt_zip_record *r = NULL;
    int rc;

    // The key is part of a record's name, so it must not lead out of the folder.
    if (!ckpt_path_part_ok(s->key.at, s->key.n))
        return ckpt_fail(f->err, CKPT_EUNSAFE,
                         "%s: storage key \"%.200s\" could leave the archive's folder", f->io->name,
                         s->key.at);
    rc = torch_find(f, &r, "data/", &s->key);
    if (rc == CKPT_OK && !r)
        rc = torch_find(f, &r, "tensors/", &s->key);
    if (rc == CKPT_OK && !r)
        rc = ckpt_fail(f->err, CKPT_EFORMAT,
                       "%s: the pickle needs record data/%.200s, which is missing: the save died "
                       "half-way, or the file was changed",
                       f->io->name, s->key.at);
    *out = r;
    return rc;
}

/* Bind one storage to its record; *to is the number of the source. */
static int torch_bind_one(torch_file *f, const ckpt_storage *s, const ckpt_zip_record *r,
                          uint32_t *to)
{
    ckpt_source source = torch_source(f, r);
    int rc = torch_check_size(f, s, r);

    f->n_no_crc += !r->has_crc;
    return rc == CKPT_OK ? ckpt_map_add_source(f->map, &source, to, f->err) : rc;
}

/* Warn that some of n storages have no checksum. */
static int torch_note_crc(torch_file *f, size_t n)
{
    if (f->n_no_crc == 0)
        return CKPT_OK;
    return ckpt_map_note(f->map, CKPT_WARNING, f->err,
                         "%s: no checksum in %" PRIu64 " of %zu storages: damage to them would "
                         "not be noticed",
                         f->io->name, f->n_no_crc, n);
}

static int torch_bind(torch_file *f, const ckpt_storages *storages)
{
    const ckpt_zip_record *r = NULL;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < storages->n; i++) {
        rc = torch_record(f, storages->at[i], &r);
        if (rc == CKPT_OK)
            rc = torch_bind_one(f, storages->at[i], r, &storages->at[i]->source);
    }
    return rc == CKPT_OK ? torch_note_crc(f, storages->n) : rc;
}

/* ---- archives with the same pickle ---- */

/* Keep the header for comparison with later archives; bytes: the pickle. */
static int torch_keep(torch_file *f, const ckpt_pickle *pickle, const uint8_t *bytes, uint64_t n)
{
    ckpt_arena *arena = f->map->arena;
    const size_t n_storages = pickle->storages.n;
    torch_header *h = ckpt_arena_alloc(arena, sizeof *h);
    uint32_t *record = ckpt_arena_array(arena, n_storages, sizeof *record);
    const ckpt_zip_record *r = NULL;

    if (!h || !record)
        return ckpt_fail_memory(f->err);
    h->pickle = ckpt_arena_copy(arena, bytes, n);
    h->n_pickle = n;
    h->swap = f->swap;
    h->record = record;
    h->n_storages = n_storages;
    h->storage = ckpt_arena_copy(arena, pickle->storages.at, n_storages * sizeof *h->storage);
    if (!h->pickle || !h->storage)
        return ckpt_fail_memory(f->err);
    int rc = ckpt_zip_keep(&h->zip, arena, &f->zip, f->err);
    for (size_t i = 0; rc == CKPT_OK && i < n_storages; i++) {
        rc = torch_record(f, pickle->storages.at[i], &r);
        record[i] = rc == CKPT_OK ? (uint32_t)(r - f->zip.records.at) : 0;
    }
    f->map->header = rc == CKPT_OK ? h : NULL;
    return rc;
}

/* True if an archive has the same pickle and byte order as f->like. */
static bool torch_is_like(const torch_file *f, const uint8_t *bytes, uint64_t n)
{
    const torch_header *h = f->like;

    return h && h->swap == f->swap && h->n_pickle == n && memcmp(h->pickle, bytes, (size_t)n) == 0;
}

/* Share the other archive's tree, and bind its storages to this archive's records. */
static int torch_share(torch_file *f)
{
    const torch_header *h = f->like;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < h->n_storages; i++) {
        const ckpt_storage *s = h->storage[i];
        const ckpt_zip_record *r = f->zip.same_names ? &f->zip.records.at[h->record[i]] : NULL;
        uint32_t source = 0;

        if (!r)
            rc = torch_record(f, s, &r);
        if (rc == CKPT_OK)
            rc = torch_bind_one(f, s, r, &source);
        if (rc == CKPT_OK)
            f->map->sources.at[source].swap = f->map->like->sources.at[s->source].swap;
        assert(rc != CKPT_OK || source == s->source);
    }
    f->map->values = f->map->like->values;
    return rc == CKPT_OK ? torch_note_crc(f, h->n_storages) : rc;
}

/* ---- the file ---- */

/* Add tensors, values and notes from the pickle. */
static int torch_adopt(torch_file *f, const ckpt_pickle *pickle)
{
    // no root: the archive has the pickle of f->like
    if (!pickle->root)
        return torch_share(f);
    int rc = torch_bind(f, &pickle->storages);

    if (rc == CKPT_OK)
        rc = ckpt_torch_list(f->map, f->io, pickle->root, f->swap, f->err);
    if (rc == CKPT_OK)
        rc = ckpt_torch_remark(f->map, f->io, pickle, f->err);
    if (rc == CKPT_OK && f->zip.n_case_twins > 0)
        rc = ckpt_map_note(
            f->map, CKPT_WARNING, f->err,
            "%s: names of records differ by case only: torch itself may read the wrong one",
            f->io->name);
    if (rc == CKPT_OK)
        f->map->values = pickle->root;
    return rc;
}

/* The size limit for the record of the pickle. */
static uint64_t torch_max_pickle(const ckpt_zip_record *record)
{
    if (record->method == CKPT_ZIP_STORED)
        return TORCH_MAX_PICKLE;
    if (record->n_stored > (TORCH_MAX_INFLATED - TORCH_FREE_INFLATED) / TORCH_PICKLE_RATIO)
        return TORCH_MAX_INFLATED;
    return TORCH_FREE_INFLATED + record->n_stored * TORCH_PICKLE_RATIO;
}

/* Read data.pkl into the map's arena without binding storages.  No root: it equals f->like's. */
static int torch_pickle(ckpt_pickle *out, torch_file *f, const ckpt_zip_record *record)
{
    uint64_t max = torch_max_pickle(record);
    ckpt_pickle_opts opts = {0};
    uint8_t *bytes;
    int rc = ckpt_zip_read(&bytes, &f->zip, record, max, f->err);

    if (rc != CKPT_OK)
        return rc;
    opts.name = ckpt_arena_printf(f->map->arena, "%s: %s", f->io->name, record->name);
    if (!opts.name)
        rc = ckpt_fail_memory(f->err);
    else if (!torch_is_like(f, bytes, record->n_bytes))
        rc = ckpt_pickle_read(out, f->map->arena, bytes, record->n_bytes, &opts, f->err);
    if (rc == CKPT_OK && out->root && f->map->keep_header)
        rc = torch_keep(f, out, bytes, record->n_bytes);
    ckpt_free(bytes);
    return rc;
}

static int torch_open(torch_file *f)
{
    int rc =
        ckpt_zip_open_like(&f->zip, f->map->arena, f->io, f->like ? &f->like->zip : NULL, f->err);

    return rc == CKPT_OK ? ckpt_zip_top(&f->zip, &f->n_top, f->err) : rc;
}

static void torch_close(torch_file *f)
{
    ckpt_zip_close(&f->zip);
    ckpt_vec_free(&f->name);
}

/* Check the archive's kind, version and byte order, then read the pickle. */
static int torch_head(ckpt_pickle *out, torch_file *f)
{
    const ckpt_zip_record *record = NULL;
    int rc = torch_open(f);

    if (rc == CKPT_OK)
        rc = torch_kind(f, &record);
    if (rc == CKPT_OK && !f->inner)
        rc = ckpt_map_fact(f->map, f->err, "container", "zip");
    if (rc == CKPT_OK)
        rc = torch_version(f);
    if (rc == CKPT_OK)
        rc = torch_byteorder(f);
    return rc == CKPT_OK ? torch_pickle(out, f, record) : rc;
}

static int torch_read(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err)
{
    torch_file f = {.map = map, .io = io, .file = file, .err = err};
    ckpt_pickle pickle = {0};

    // only a header made by this driver can be used
    if (map->like && map->like->files.n > 0 && map->like->files.at[0].format == &ckpt_format_torch)
        f.like = map->like->header;
    int rc = torch_head(&pickle, &f);

    if (rc == CKPT_OK)
        rc = torch_adopt(&f, &pickle);
    ckpt_pickle_free(&pickle);
    torch_close(&f);
    return rc;
}

/* Set the unit of byte reversal for the sources of a big-endian archive. */
static void torch_swap(const torch_file *f, const ckpt_pickle *pickle)
{
    for (size_t i = 0; f->swap && i < pickle->storages.n; i++) {
        const ckpt_storage *s = pickle->storages.at[i];
        if (s->dtype != CKPT_DTYPE_NONE)
            f->map->sources.at[s->source].swap = ckpt_dtype_get(s->dtype)->swap;
    }
}

int ckpt_torch_inner(ckpt_value **root, ckpt_map *map, const ckpt_torch_range *range, ckpt_err *err)
{
    assert(root && map && range->io);
    torch_file f = {.map = map, .inner = true, .at = range->at, .file = range->file, .err = err};
    ckpt_pickle pickle = {0};
    int rc = ckpt_io_part(&f.io, range->io, range->at, range->n, err);

    *root = NULL;
    if (rc == CKPT_OK)
        rc = torch_head(&pickle, &f);
    if (rc == CKPT_OK)
        rc = torch_bind(&f, &pickle.storages);
    if (rc == CKPT_OK) {
        torch_swap(&f, &pickle);
        *root = pickle.root;
    }
    ckpt_pickle_free(&pickle);
    torch_close(&f);
    ckpt_io_close(f.io);
    return rc;
}

/* Add every record as a source, even if no tensor uses it; has_crc shows which have a CRC. */
static int torch_records(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err)
{
    torch_file f = {.map = map, .io = io, .file = file, .err = err};
    int rc = torch_open(&f);
    uint32_t index;
    size_t i;

    for (i = 0; rc == CKPT_OK && i < f.zip.records.n; i++) {
        ckpt_source source = torch_source(&f, &f.zip.records.at[i]);

        if (!f.zip.records.at[i].is_folder)
            rc = ckpt_map_add_source(map, &source, &index, err);
    }
    torch_close(&f);
    return rc;
}

const ckpt_format ckpt_format_torch = {
    .is =
        {
            .name = "torch",
            .aliases = "pytorch pt",
            .suffixes = ".pt .pth .bin",
            .note = "torch.save, zip container: read 1.4 to 2.15, written as 2.7 and later do",
            .caps = CKPT_CAN_READ | CKPT_CAN_WRITE | CKPT_KEEPS_ORDER,
        },
    .probe = torch_probe,
    .read = torch_read,
    .records = torch_records,
    .place = ckpt_torch_place,
    .seal = ckpt_torch_seal,
    .bare = true, // torch omits the CRC after torch.serialization.set_crc32_options(False)
};
