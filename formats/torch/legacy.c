/* SPDX-License-Identifier: Apache-2.0 */
/*
 * legacy.c: reads torch.save's older container, a sequence of pickles followed by the storages.
 * DeepSpeed still writes it if checkpoint_serialization is off.
 *
 *     pickle  the integer 0x1950A86A20F9469CFC6C
 *     pickle  the integer 1001, the protocol's version
 *     pickle  {"protocol_version": 1001, "little_endian": True, "type_sizes": {...}}
 *     pickle  the object
 *     pickle  the list of storage keys
 *     per key of that list: i64 number of elements, then the elements
 *
 * Nothing is aligned or has a checksum.  The tar layout of torch 0.1 is refused here, and a plain
 * pickle is read as a tree without tensors.  Every file that begins like a pickle goes through the
 * pickle reader, so that malicious code in it is reported as such.  Checked against torch 1.4 to
 * 2.15.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/torch/torch.h"
#include "libckpt/format.h"

/* The first pickle: PROTO 2, LONG1 of ten bytes, the ten bytes, STOP. */
static const uint8_t leg_head[14] = {0x80, 0x02, 0x8A, 0x0A, 0x6C, 0xFC, 0x9C,
                                     0x46, 0xF9, 0x20, 0x6A, 0xA8, 0x50, 0x19};

enum { LEG_PROTOCOL = 1001, LEG_TAR_AT = 257, LEG_TAR_BLOCK = 512, LEG_WINDOW = 4096 };

/* Largest pickle in bytes; the object's has some hundred bytes per tensor. */
#define LEG_MAX_PICKLE (UINT64_C(256) << 20)

typedef struct leg_file {
    ckpt_map *map;
    ckpt_io *io;
    uint32_t file;
    ckpt_err *err;
    uint64_t at, end; /* offsets: next byte to read; end of the readable range */
    bool big;         /* the file states little_endian: False */
    bool swap;        /* and its counts really are big-endian */
    uint64_t window_at, n_window;
    uint8_t window[LEG_WINDOW];
} leg_file;

static bool leg_is_tar(const uint8_t *head, size_t n)
{
    return n >= LEG_TAR_AT + 5 && memcmp(head + LEG_TAR_AT, "ustar", 5) == 0;
}

/* Only the magic number gives a high score; other pickles score low. */
static int leg_probe(const uint8_t *head, size_t n, uint64_t size)
{
    (void)size;
    if (n >= sizeof leg_head && memcmp(head, leg_head, sizeof leg_head) == 0)
        return 100;
    if (leg_is_tar(head, n))
        return 60;
    if (n >= 2 && head[0] == 0x80 && head[1] >= 1 && head[1] <= 5)
        return 30;
    return n > 0 && memchr("(c}])", head[0], 5) != NULL ? 10 : 0;
}

/* ---- the end of a pickle ---- */

/*
 * The form of each opcode's argument.  Digits: number of bytes; 'a', 'b', 'd': a length of 1, 4 or
 * 8 bytes, then that many bytes; 'l', 'm': one line, two lines; '.': the end; 0: unknown opcode.
 * Only lengths are checked here; the pickle reader checks everything else.
 */
static const char leg_argument[256] = {
    ['('] = '0',  ['0'] = '0',  ['1'] = '0',  ['2'] = '0',  ['N'] = '0',  ['Q'] = '0',
    ['R'] = '0',  ['a'] = '0',  ['b'] = '0',  ['d'] = '0',  ['}'] = '0',  ['e'] = '0',
    ['l'] = '0',  [']'] = '0',  ['o'] = '0',  ['s'] = '0',  ['t'] = '0',  [')'] = '0',
    ['u'] = '0',  [0x81] = '0', [0x85] = '0', [0x86] = '0', [0x87] = '0', [0x88] = '0',
    [0x89] = '0', [0x8F] = '0', [0x90] = '0', [0x91] = '0', [0x92] = '0', [0x93] = '0',
    [0x94] = '0', [0x97] = '0', [0x98] = '0', ['.'] = '.',  ['K'] = '1',  ['q'] = '1',
    ['h'] = '1',  [0x80] = '1', [0x82] = '1', ['M'] = '2',  [0x83] = '2', ['J'] = '4',
    ['r'] = '4',  ['j'] = '4',  [0x84] = '4', ['G'] = '8',  [0x95] = '8', ['U'] = 'a',
    ['C'] = 'a',  [0x8A] = 'a', [0x8C] = 'a', ['X'] = 'b',  ['B'] = 'b',  ['T'] = 'b',
    [0x8B] = 'b', [0x8D] = 'd', [0x8E] = 'd', [0x96] = 'd', ['I'] = 'l',  ['L'] = 'l',
    ['F'] = 'l',  ['S'] = 'l',  ['V'] = 'l',  ['P'] = 'l',  ['p'] = 'l',  ['g'] = 'l',
    ['c'] = 'm',  ['i'] = 'm',
};

/* Get n bytes at offset `at`, below f->end; n is at most LEG_WINDOW. */
static int leg_peek(leg_file *f, const uint8_t **out, uint64_t at, uint64_t n)
{
    if (at < f->window_at || !ckpt_within(at - f->window_at, n, f->n_window)) {
        uint64_t room = f->end - at < LEG_WINDOW ? f->end - at : LEG_WINDOW;
        int rc;

        f->n_window = 0;
        rc = ckpt_io_read(f->io, f->window, room, at, f->err);
        if (rc != CKPT_OK)
            return rc;
        f->window_at = at;
        f->n_window = room;
    }
    *out = f->window + (at - f->window_at);
    return CKPT_OK;
}

/* Move *at past a line, or to f->end if the line does not end. */
static int leg_skip_line(leg_file *f, uint64_t *at)
{
    while (*at < f->end) {
        uint64_t n = f->end - *at < 64 ? f->end - *at : 64;
        const uint8_t *p, *newline;
        int rc = leg_peek(f, &p, *at, n);

        if (rc != CKPT_OK)
            return rc;
        newline = memchr(p, '\n', (size_t)n);
        if (newline) {
            *at += (uint64_t)(newline - p) + 1;
            return CKPT_OK;
        }
        *at += n;
    }
    return CKPT_OK;
}

/* Move *at past a length of `width` bytes and that many bytes; UINT64_MAX if these do not fit. */
static int leg_skip_counted(leg_file *f, uint64_t *at, unsigned width)
{
    const uint8_t *p;
    uint64_t n = 0;
    unsigned i;
    int rc;

    if (!ckpt_within(*at, width, f->end)) {
        *at = UINT64_MAX;
        return CKPT_OK;
    }
    rc = leg_peek(f, &p, *at, width);
    if (rc != CKPT_OK)
        return rc;
    for (i = 0; i < width; i++)
        n |= (uint64_t)p[i] << 8 * i;
    if (!ckpt_add(*at, n, at) || !ckpt_add(*at, width, at))
        *at = UINT64_MAX;
    return CKPT_OK;
}

/* Move *at past the argument of an opcode; beyond f->end if it does not fit. */
static int leg_skip_argument(leg_file *f, uint64_t *at, char kind)
{
    int rc;

    switch (kind) {
    case 'a':
        return leg_skip_counted(f, at, 1);
    case 'b':
        return leg_skip_counted(f, at, 4);
    case 'd':
        return leg_skip_counted(f, at, 8);
    case 'l':
        return leg_skip_line(f, at);
    case 'm':
        rc = leg_skip_line(f, at);
        return rc == CKPT_OK ? leg_skip_line(f, at) : rc;
    default:
        *at += (uint64_t)(kind - '0');
        return CKPT_OK;
    }
}

/*
 * Find the end of the pickle at f->at, so the storages after it are not read.  For a malformed
 * pickle the end is just after the bad opcode, so that the pickle reader fails there with the
 * reason.
 */
static int leg_find_end(leg_file *f, uint64_t *end)
{
    uint64_t at = f->at;
    bool done = false;

    while (!done && at < f->end && at - f->at <= LEG_MAX_PICKLE) {
        uint64_t op = at++;
        const uint8_t *p;
        char kind;
        int rc = leg_peek(f, &p, op, 1);

        if (rc != CKPT_OK)
            return rc;
        kind = leg_argument[*p];
        done = kind == 0 || kind == '.';
        if (!done)
            rc = leg_skip_argument(f, &at, kind);
        if (rc != CKPT_OK)
            return rc;
        if (kind == 0 || at > f->end) {
            at = f->end - op < 16 ? f->end : op + 16;
            done = true;
        }
    }
    *end = at;
    if (at - f->at > LEG_MAX_PICKLE)
        return ckpt_fail(f->err, CKPT_ELIMIT,
                         "%s: offset %" PRIu64 ": a pickle of more than %" PRIu64 " bytes",
                         f->io->name, f->at, LEG_MAX_PICKLE);
    return CKPT_OK;
}

/* Read the pickle at f->at, and move past it. */
static int leg_pickle(leg_file *f, ckpt_pickle *out)
{
    ckpt_pickle_opts opts = {.legacy_storages = true};
    uint8_t *bytes = NULL;
    uint64_t end = 0, n;
    int rc = leg_find_end(f, &end);

    if (rc != CKPT_OK)
        return rc;
    n = end - f->at;
    opts.name =
        ckpt_arena_printf(f->map->arena, "%s: pickle at offset %" PRIu64, f->io->name, f->at);
    bytes = ckpt_alloc((size_t)n + 1);
    rc = bytes && opts.name ? ckpt_io_read(f->io, bytes, n, f->at, f->err)
                            : ckpt_fail_memory(f->err);
    if (rc == CKPT_OK)
        rc = ckpt_pickle_read(out, f->map->arena, bytes, n, &opts, f->err);
    ckpt_free(bytes);
    f->at = end;
    return rc;
}

/* ---- the tar layout ---- */

/* Parse an octal number of at most n digits; UINT64_MAX if there is none. */
static uint64_t leg_octal(const uint8_t *p, unsigned n)
{
    uint64_t v = 0;
    unsigned i;

    for (i = 0; i < n && p[i] >= '0' && p[i] <= '7'; i++)
        v = v * 8 + (uint64_t)(p[i] - '0');
    return i == 0 ? UINT64_MAX : v;
}

/* Scan the pickles at the start of a tar member for unsafe content; other errors do not matter. */
static int leg_scan_member(leg_file *f, uint64_t at, uint64_t n)
{
    ckpt_err *const err = f->err;
    ckpt_err why = {0};
    int rc = CKPT_OK;

    f->at = at;
    f->end = at + n;
    f->err = &why;
    while (rc == CKPT_OK && f->at < f->end) {
        ckpt_pickle pickle = {0};

        rc = leg_pickle(f, &pickle);
        ckpt_pickle_free(&pickle);
    }
    f->err = err;
    // raw storages follow the pickles, and they fail to parse as pickles
    return rc == CKPT_EUNSAFE ? ckpt_fail(err, rc, "%s", why.text) : CKPT_OK;
}

/* Refuse the tar file of torch 0.1: torch itself runs its pickles unchecked, and no release writes
 * it any more. */
static int leg_refuse_tar(leg_file *f)
{
    uint64_t at = 0, size = f->io->size;

    while (ckpt_within(at, LEG_TAR_BLOCK, size)) {
        uint8_t header[LEG_TAR_BLOCK];
        uint64_t n;
        int rc = ckpt_io_read(f->io, header, sizeof header, at, f->err);

        if (rc != CKPT_OK)
            return rc;
        n = leg_octal(header + 124, 12);
        at += LEG_TAR_BLOCK;
        if (n > size - at)
            break;
        rc = leg_scan_member(f, at, n);
        if (rc != CKPT_OK)
            return rc;
        at += (n + LEG_TAR_BLOCK - 1) / LEG_TAR_BLOCK * LEG_TAR_BLOCK;
    }
    return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                     "%s: the tar layout of torch 0.1 (2016) is not read: load it with a torch of "
                     "its time and save it again",
                     f->io->name);
}

/* ---- plain pickles ---- */

static bool leg_is_magic(const ckpt_value *v)
{
    return v->kind == CKPT_V_LONG && v->as.text.n == 10 &&
           memcmp(v->as.text.at, leg_head + 4, 10) == 0;
}

/* Read a pickle that fills the whole file as a tree of values; refuse anything else. */
static int leg_plain(leg_file *f, const ckpt_pickle *pickle)
{
    int rc;

    if (pickle->storages.n > 0)
        return ckpt_fail(
            f->err, CKPT_EFORMAT,
            "%s: the pickle names %zu storages, but the file has none: torch.save did not write it",
            f->io->name, pickle->storages.n);
    if (f->at != f->io->size)
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: a pickle without torch's magic number, and %" PRIu64
                         " bytes follow it: torch.save did not write the file",
                         f->io->name, f->io->size - f->at);
    rc = ckpt_map_fact(f->map, f->err, "container", "pickle");
    if (rc == CKPT_OK)
        rc = ckpt_torch_list(f->map, f->io, pickle->root, false, f->err);
    if (rc == CKPT_OK)
        rc = ckpt_torch_remark(f->map, f->io, pickle, f->err);
    if (rc == CKPT_OK)
        f->map->values = pickle->root;
    return rc;
}

/* ---- the stream ---- */

/* Read the second and third pickle: the protocol's version and the writing machine's properties. */
static int leg_read_system(leg_file *f)
{
    ckpt_pickle version = {0}, system = {0};
    const ckpt_value *v;
    int64_t number = 0;
    int rc = leg_pickle(f, &version);

    if (rc == CKPT_OK && (!ckpt_value_as_int(version.root, &number) || number != LEG_PROTOCOL))
        rc = ckpt_fail(f->err, CKPT_EFORMAT,
                       "%s: protocol version %" PRId64 " is not supported: expected %d",
                       f->io->name, number, LEG_PROTOCOL);
    if (rc == CKPT_OK)
        rc = leg_pickle(f, &system);
    if (rc == CKPT_OK && system.root->kind != CKPT_V_DICT)
        rc = ckpt_fail(f->err, CKPT_EFORMAT,
                       "%s: the third pickle is not a description of a machine", f->io->name);
    if (rc == CKPT_OK) {
        v = ckpt_value_get(system.root, "little_endian");
        f->big = v && v->kind == CKPT_V_BOOL && v->as.i == 0;
    }
    ckpt_pickle_free(&version);
    ckpt_pickle_free(&system);
    return rc;
}

static int leg_compare_keys(const ckpt_text *a, const ckpt_text *b)
{
    uint64_t n = a->n < b->n ? a->n : b->n;
    int d = n > 0 ? memcmp(a->at, b->at, (size_t)n) : 0;

    return d != 0 ? d : a->n < b->n ? -1 : a->n > b->n;
}

static int leg_by_key(const void *a, const void *b)
{
    return leg_compare_keys(&(*(ckpt_storage *const *)a)->key, &(*(ckpt_storage *const *)b)->key);
}

/* Find the storage of a key among n sorted ones, or NULL. */
static ckpt_storage *leg_find(ckpt_storage *const *sorted, size_t n, const ckpt_text *key)
{
    size_t lo = 0, hi = n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int d = leg_compare_keys(key, &sorted[mid]->key);

        if (d == 0)
            return sorted[mid];
        if (d < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

/*
 * Check that the count before a storage equals the pickle's.  If the file states big-endian, the
 * count also shows the real byte order, because newer torch releases write little-endian data
 * there.
 */
static int leg_check_count(leg_file *f, const ckpt_storage *s)
{
    uint64_t little = 0, big = 0;
    const uint8_t *p;
    unsigned i;
    int rc;

    if (!ckpt_within(f->at, 8, f->end))
        return ckpt_fail(f->err, CKPT_EFORMAT, "%s: the file ends before storage %.100s",
                         f->io->name, s->key.at);
    rc = leg_peek(f, &p, f->at, 8);
    if (rc != CKPT_OK)
        return rc;
    for (i = 0; i < 8; i++) {
        little |= (uint64_t)p[i] << 8 * i;
        big = big << 8 | p[i];
    }
    if (s->n_elems > 0 && f->big && big == s->n_elems) {
        f->swap = true;
        return CKPT_OK;
    }
    if (little != s->n_elems || (s->n_elems > 0 && f->swap))
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: offset %" PRIu64 ": storage %.100s has %" PRIu64
                         " elements there, but %" PRIu64 " in the pickle",
                         f->io->name, f->at, s->key.at, little, s->n_elems);
    f->big = f->big && s->n_elems == 0; // one little-endian count decides for all
    return CKPT_OK;
}

/* Bind the storage of the next key; its count and bytes are next in the file. */
static int leg_bind_one(leg_file *f, ckpt_storage *const *sorted, size_t n, const ckpt_value *key)
{
    ckpt_storage *s = key->kind == CKPT_V_STR ? leg_find(sorted, n, &key->as.text) : NULL;
    ckpt_source source = {.kind = CKPT_SOURCE_FILE, .coding = CKPT_RAW, .file = f->file};
    int rc;

    if (!s || s->source != UINT32_MAX)
        return ckpt_fail(f->err, CKPT_EFORMAT, "%s: the list of storages names a storage %s",
                         f->io->name, !s ? "that no tensor uses" : "twice");
    rc = leg_check_count(f, s);
    if (rc != CKPT_OK)
        return rc;
    f->at += 8;
    if (!ckpt_within(f->at, s->n_bytes, f->end))
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: storage %.100s: %" PRIu64 " bytes from offset %" PRIu64
                         " go beyond the end of the file of %" PRIu64 " bytes",
                         f->io->name, s->key.at, s->n_bytes, f->at, f->end);
    source.at = f->at;
    source.n_stored = source.n_bytes = s->n_bytes;
    source.name = ckpt_arena_printf(f->map->arena, "storage %.100s", s->key.at);
    f->at += s->n_bytes;
    return source.name ? ckpt_map_add_source(f->map, &source, &s->source, f->err)
                       : ckpt_fail_memory(f->err);
}

/* Read the list of keys and bind the storages.  They must be exactly those of the pickle, and end
 * at the file's end. */
static int leg_bind(leg_file *f, const ckpt_storages *storages)
{
    size_t n = storages->n, i;
    ckpt_storage **sorted = ckpt_alloc((n + 1) * sizeof(ckpt_storage *));
    ckpt_pickle keys = {0};
    ckpt_seq list = {0};
    int rc = sorted ? leg_pickle(f, &keys) : ckpt_fail_memory(f->err);

    if (rc == CKPT_OK) {
        list = ckpt_value_seq(keys.root);
        if (keys.root->kind != CKPT_V_LIST || list.n != n)
            rc = ckpt_fail(f->err, CKPT_EFORMAT,
                           "%s: the list has %" PRIu64 " storages, but the pickle names %zu",
                           f->io->name, list.n, n);
    }
    if (rc == CKPT_OK && n > 0) {
        memcpy(sorted, storages->at, n * sizeof(ckpt_storage *));
        qsort(sorted, n, sizeof(ckpt_storage *), leg_by_key);
    }
    for (i = 0; rc == CKPT_OK && i < n; i++)
        rc = leg_bind_one(f, sorted, n, list.at[i]);
    if (rc == CKPT_OK && f->at != f->end)
        rc = ckpt_fail(f->err, CKPT_EFORMAT, "%s: %" PRIu64 " bytes follow the last storage",
                       f->io->name, f->end - f->at);
    ckpt_pickle_free(&keys);
    ckpt_free(sorted);
    return rc;
}

static int leg_stream(leg_file *f)
{
    ckpt_pickle pickle = {0};
    int rc = leg_read_system(f);

    if (rc == CKPT_OK)
        rc = leg_pickle(f, &pickle);
    if (rc == CKPT_OK)
        rc = leg_bind(f, &pickle.storages);
    if (rc == CKPT_OK)
        rc = ckpt_torch_list(f->map, f->io, pickle.root, f->swap, f->err);
    if (rc == CKPT_OK)
        rc = ckpt_map_fact(f->map, f->err, "container", "legacy stream");
    if (rc == CKPT_OK && f->swap)
        rc = ckpt_map_fact(f->map, f->err, "byte order", "big");
    if (rc == CKPT_OK)
        rc = ckpt_torch_remark(f->map, f->io, &pickle, f->err);
    if (rc == CKPT_OK && pickle.storages.n > 0)
        rc = ckpt_map_note(f->map, CKPT_WARNING, f->err,
                           "%s: no checksum in %zu of %zu storages: damage to them would not be "
                           "noticed",
                           f->io->name, pickle.storages.n, pickle.storages.n);
    if (rc == CKPT_OK)
        f->map->values = pickle.root;
    ckpt_pickle_free(&pickle);
    return rc;
}

static int leg_read(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err)
{
    leg_file f = {.map = map, .io = io, .file = file, .err = err, .end = io->size};
    ckpt_pickle first = {0};
    const uint8_t *head;
    uint64_t n = io->size < LEG_TAR_BLOCK ? io->size : LEG_TAR_BLOCK;
    int rc;

    if (n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: the file is empty", io->name);
    rc = leg_peek(&f, &head, 0, n);
    if (rc != CKPT_OK)
        return rc;
    if (leg_is_tar(head, (size_t)n))
        return leg_refuse_tar(&f);
    rc = leg_pickle(&f, &first);
    if (rc == CKPT_OK)
        rc = leg_is_magic(first.root) ? leg_stream(&f) : leg_plain(&f, &first);
    ckpt_pickle_free(&first);
    return rc;
}

const ckpt_format ckpt_format_torch_legacy = {
    .is =
        {
            .name = "torch-legacy",
            .suffixes = ".pt .pth .bin",
            .note = "torch.save before 1.6, and with the zip container switched off; plain pickles",
            .caps = CKPT_CAN_READ | CKPT_KEEPS_ORDER,
        },
    .probe = leg_probe,
    .read = leg_read,
};
