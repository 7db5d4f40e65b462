/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.c: builds maps: files, sources, tensors, their names, facts and findings.
 *
 * Small data live in the map's arena; growing lists are vectors. A hash table with open addressing
 * finds names, so that a folder of 100 000 tensors is read in linear time.
 */
#include <assert.h>

#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/map/extent.h"

/* The bytes of a name that a message shows. */
enum { MAP_SHOWN = 200 };

/* Length for %.*s: names from files can be 64 KiB long. */
static int map_shown(uint64_t n)
{
    return n < MAP_SHOWN ? (int)n : MAP_SHOWN;
}

/*
 * The struct is on the heap instead of its own arena, so that the order of freeing never matters.
 */
int ckpt_map_create(ckpt_map **out, uint64_t limit, ckpt_err *err)
{
    assert(out);
    ckpt_map *map = ckpt_alloc(sizeof *map);

    *out = NULL;
    if (!map)
        return ckpt_fail_memory(err);
    map->arena = ckpt_arena_new(limit);
    if (!map->arena) {
        ckpt_free(map);
        return ckpt_fail_memory(err);
    }
    map->known = (ckpt_training_info){.size = sizeof map->known, .stage = -1, .step = -1};
    *out = map;
    return CKPT_OK;
}

/* Literals and storages are the only vectors inside other entries. */
void ckpt_map_free(ckpt_map *map)
{
    if (!map)
        return;
    for (size_t i = 0; i < map->files.n; i++) {
        ckpt_vec_free(&map->files.at[i].literals);
        ckpt_vec_free(&map->files.at[i].storages);
    }
    for (size_t i = 0; i < map->sources.n; i++) {
        ckpt_make *m =
            map->sources.at[i].kind == CKPT_SOURCE_MADE ? map->sources.at[i].memory : NULL;

        if (m && m->release)
            m->release(m);
    }
    ckpt_vec_free(&map->files);
    ckpt_vec_free(&map->sources);
    ckpt_vec_free(&map->tensors);
    ckpt_index_free(&map->names);
    ckpt_vec_free(&map->findings);
    ckpt_vec_free(&map->facts);
    ckpt_vec_free(&map->keys);
    for (size_t i = 0; i < map->states.n; i++)
        ckpt_state_free(map->states.at[i]);
    ckpt_vec_free(&map->states);
    if (map->waiting)
        ckpt_state_free(map->waiting);
    // Adopted maps may have adopted others. The recursion is a few levels deep, because drivers
    // decide it, never files.
    for (size_t i = 0; i < map->children.n; i++)
        ckpt_map_free(map->children.at[i]);
    ckpt_vec_free(&map->children);
    ckpt_arena_free(map->arena);
    ckpt_free(map);
}

/* Replace *text, unless it is NULL, by a copy in the map's arena; false when that is exhausted. */
static bool map_keep(ckpt_map *map, const char **text)
{
    if (!*text)
        return true;
    *text = ckpt_arena_string(map->arena, *text, strlen(*text));
    return *text != NULL;
}

/*
 * Copies come first and the push last, so that a failure leaves no half-made entry behind. The
 * arena's bytes are then unused until the map is freed. The same order holds below.
 */
int ckpt_map_add_file(ckpt_map *map, const ckpt_map_file *file, uint32_t *index, ckpt_err *err)
{
    assert(map && file && index);
    ckpt_map_file copy = *file;
    ckpt_map_file *slot;

    // The vectors have one owner, so the new entry begins with empty ones.
    memset(&copy.literals, 0, sizeof copy.literals);
    memset(&copy.storages, 0, sizeof copy.storages);
    if (map->files.n >= UINT32_MAX)
        return ckpt_fail(err, CKPT_ELIMIT, "the checkpoint has more than 2^32 files");
    if (!map_keep(map, &copy.path) || !map_keep(map, &copy.prefix))
        return ckpt_fail_memory(err);
    slot = ckpt_vec_push(&map->files);
    if (!slot)
        return ckpt_fail_memory(err);
    *slot = copy;
    *index = (uint32_t)(map->files.n - 1);
    return CKPT_OK;
}

int ckpt_map_push_source(ckpt_map *map, const ckpt_source *source, uint32_t *index, ckpt_err *err)
{
    assert(map && source && index);
    ckpt_source *slot;

    // UINT32_MAX itself means "not bound yet" in storages.
    if (map->sources.n >= UINT32_MAX)
        return ckpt_fail(err, CKPT_ELIMIT, "the checkpoint has more than 2^32 records");
    slot = ckpt_vec_push(&map->sources);
    if (!slot)
        return ckpt_fail_memory(err);
    *slot = *source;
    *index = (uint32_t)(map->sources.n - 1);
    return CKPT_OK;
}

/* One file may have many records (one per tensor); their names are only kept for messages. */
int ckpt_map_add_source(ckpt_map *map, const ckpt_source *source, uint32_t *index, ckpt_err *err)
{
    assert(map && source && index);
    ckpt_source copy = *source;

    if (!map_keep(map, &copy.name))
        return ckpt_fail_memory(err);
    return ckpt_map_push_source(map, &copy, index, err);
}

/* The bytes are copied, so that a driver can free its own buffer at once. */
int ckpt_map_add_literal(ckpt_map *map, uint32_t file, uint64_t at, const void *bytes, uint64_t n,
                         ckpt_err *err)
{
    assert(map);
    void *copy = NULL;
    ckpt_literal *slot;

    if (file >= map->files.n)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "a literal refers to file %" PRIu32 ", but the map has only %zu", file,
                         map->files.n);
    copy = ckpt_arena_copy(map->arena, n > 0 ? bytes : "", n);
    slot = copy ? ckpt_vec_push(&map->files.at[file].literals) : NULL;
    if (!slot)
        return ckpt_fail_memory(err);
    *slot = (ckpt_literal){.at = at, .n = n, .bytes = copy};
    return CKPT_OK;
}

/* ---- names ---- */

typedef struct map_name {
    const char *at;
    size_t n;
} map_name;

/*
 * Seeded with the map's address, so that a file cannot choose names whose hashes collide. No
 * visible order depends on it.
 */
static uint32_t map_hash(const ckpt_map *map, const map_name *name)
{
    return ckpt_hash_bytes(name->at, name->n, ckpt_hash_u64((uint64_t)(uintptr_t)map));
}

static bool map_same(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_map *map = ctx;
    const map_name *name = key;
    const char *other = map->tensors.at[number]->name;

    return strlen(other) == name->n && memcmp(other, name->at, name->n) == 0;
}

size_t ckpt_map_index(const ckpt_map *map, const char *name, size_t n)
{
    const map_name key = {name, n};
    uint32_t found = ckpt_index_find(&map->names, map_hash(map, &key), map_same, map, &key);

    return found != CKPT_INDEX_NONE ? found : SIZE_MAX;
}

/* Enter the name of tensor i; false when memory is exhausted. */
static bool map_enter(ckpt_map *map, size_t i)
{
    const char *name = map->tensors.at[i]->name;
    const map_name key = {name, strlen(name)};

    return i < INT32_MAX && ckpt_index_add(&map->names, map_hash(map, &key), (uint32_t)i);
}

int ckpt_map_reindex(ckpt_map *map, ckpt_err *err)
{
    ckpt_index_free(&map->names);
    for (size_t i = 0; i < map->tensors.n; i++) {
        const char *name = map->tensors.at[i]->name;
        size_t n = strlen(name);

        if (ckpt_map_index(map, name, n) != SIZE_MAX)
            return ckpt_fail(err, CKPT_EMISMATCH, "two tensors are named '%.*s'", map_shown(n),
                             name);
        if (!map_enter(map, i))
            return ckpt_fail_memory(err);
    }
    return CKPT_OK;
}

/* ---- tensors ---- */

/* The source of a map's tensors, for messages: its only file, or the first of several. */
static const char *map_file(const ckpt_map *map)
{
    return map->files.n > 0 ? map->files.at[0].path : map->path ? map->path : "checkpoint";
}

/* Check the name and sizes of a new tensor, before anything is allocated. */
static int map_check_new(const ckpt_map *map, const char *name, uint64_t n_name,
                         const ckpt_tensor *like, uint64_t *n_elems, ckpt_err *err)
{
    const char *file = map_file(map);
    uint64_t n_bytes;

    if (!ckpt_name_ok(name, n_name))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: name of %" PRIu64 " bytes, '%.*s': must be UTF-8 without NUL, at "
                         "most 64 KiB",
                         file, n_name, map_shown(n_name), name);
    if (like->ndim > CKPT_MAX_DIM)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: tensor '%.*s': %" PRIu32 " axes, at most %u", file,
                         map_shown(n_name), name, like->ndim, CKPT_MAX_DIM);
    if (like->dtype <= CKPT_DTYPE_NONE || like->dtype >= CKPT_N_DTYPES)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: tensor '%.*s': unknown dtype", file,
                         map_shown(n_name), name);
    if (!ckpt_shape_elems(like->shape, like->ndim, n_elems))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: tensor '%.*s': its shape has more than 2^64 "
                         "elements",
                         file, map_shown(n_name), name);
    if (!ckpt_dtype_bytes(like->dtype, *n_elems, &n_bytes))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: tensor '%.*s': %" PRIu64 " elements of %s are more than 2^64 bytes, "
                         "or end inside a byte",
                         file, map_shown(n_name), name, *n_elems, ckpt_dtype_name(like->dtype));
    return CKPT_OK;
}

/*
 * All of `like` is copied, except the members that the map must control: its own copies of name and
 * shape, a checked product, and no extents yet.
 */
int ckpt_map_add_hidden(ckpt_map *map, const char *name, uint64_t n_name, const ckpt_tensor *like,
                        ckpt_tensor **out, ckpt_err *err)
{
    assert(name && like && out);
    uint64_t n_elems;
    ckpt_tensor *t;
    uint64_t *shape;
    int rc = map_check_new(map, name, n_name, like, &n_elems, err);

    *out = NULL;
    if (rc != CKPT_OK)
        return rc;
    t = ckpt_arena_array(map->arena, 1, sizeof *t);
    shape = ckpt_arena_array(map->arena, like->ndim, sizeof *shape);
    if (!t || !shape)
        return ckpt_fail_memory(err);
    *t = *like;
    t->name = ckpt_arena_string(map->arena, n_name > 0 ? name : "", n_name);
    if (!t->name)
        return ckpt_fail_memory(err);
    if (like->ndim > 0)
        memcpy(shape, like->shape, like->ndim * sizeof *shape);
    t->shape = shape;
    t->n_elems = n_elems;
    t->n_extents = 0;
    t->extent = NULL;
    t->cut = NULL;
    *out = t;
    return CKPT_OK;
}

int ckpt_map_hide(ckpt_map *map, const ckpt_tensor *t, const ckpt_tensor **out, ckpt_err *err)
{
    ckpt_tensor *hidden;
    int rc = ckpt_map_add_hidden(map, t->name, strlen(t->name), t, &hidden, err);

    if (rc == CKPT_OK)
        ckpt_extent_share(hidden, t);
    *out = hidden;
    return rc;
}

int ckpt_map_append(ckpt_map *map, ckpt_tensor *t, ckpt_err *err)
{
    assert(map && t);
    size_t n = strlen(t->name);
    ckpt_tensor **slot;

    if (ckpt_map_index(map, t->name, n) != SIZE_MAX)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: two tensors are named '%.*s'", map_file(map),
                         map_shown(n), t->name);
    slot = ckpt_vec_push(&map->tensors);
    if (!slot)
        return ckpt_fail_memory(err);
    *slot = t;
    if (!map_enter(map, map->tensors.n - 1)) {
        map->tensors.n--;
        return ckpt_fail_memory(err);
    }
    return CKPT_OK;
}

/*
 * A refused duplicate stays in the arena, unreachable, because the refusal ends the reading of the
 * file anyway.
 */
int ckpt_map_add(ckpt_map *map, const char *name, uint64_t n_name, const ckpt_tensor *like,
                 ckpt_tensor **out, ckpt_err *err)
{
    assert(name && like);
    ckpt_tensor *t;
    int rc = ckpt_map_add_hidden(map, name, n_name, like, &t, err);

    *out = NULL;
    if (rc == CKPT_OK)
        rc = ckpt_map_append(map, t, err);
    if (rc == CKPT_OK)
        *out = t;
    return rc;
}

/*
 * Check the preconditions of later arithmetic: an existing source and as many axes as the tensor
 * has.
 */
static int map_check_extents(const ckpt_map *map, const ckpt_tensor *t, const ckpt_extent *extent,
                             uint32_t n, uint64_t *n_axes, ckpt_err *err)
{
    *n_axes = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (extent[i].ndim != 1 && (extent[i].ndim != t->ndim || t->ndim == 0))
            return ckpt_fail(err, CKPT_EFORMAT,
                             "tensor '%.*s': an extent has %" PRIu32
                             " axes, expected 1 or %" PRIu32,
                             MAP_SHOWN, t->name, extent[i].ndim, t->ndim);
        if (extent[i].source >= map->sources.n)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "tensor '%.*s': an extent refers to record %" PRIu32
                             ", but there are only %zu",
                             MAP_SHOWN, t->name, extent[i].source, map->sources.n);
        *n_axes += extent[i].ndim; // n * 64 fits easily
    }
    return CKPT_OK;
}

/* All axes are in one array, in the order of their extents, so a tensor needs two allocations. */
int ckpt_map_back(ckpt_map *map, ckpt_tensor *t, const ckpt_extent *extent, uint32_t n,
                  ckpt_err *err)
{
    assert(t && (extent || n == 0));
    uint64_t n_axes;
    uint32_t kept = 0;
    ckpt_extent *copy;
    ckpt_axis *axis;
    int rc = map_check_extents(map, t, extent, n, &n_axes, err);

    if (rc != CKPT_OK)
        return rc;
    copy = ckpt_arena_array(map->arena, n, sizeof *copy);
    axis = ckpt_arena_array(map->arena, n_axes, sizeof *axis);
    if (!copy || !axis)
        return ckpt_fail_memory(err);
    for (uint32_t i = 0; i < n; i++) {
        // Ranks without elements of a tensor leave empty boxes, which are useless.
        if (t->n_elems > 0 && ckpt_extent_is_empty(&extent[i]))
            continue;
        copy[kept] = extent[i];
        copy[kept++].axis = axis;
        memcpy(axis, extent[i].axis, extent[i].ndim * sizeof *axis);
        axis += extent[i].ndim;
    }
    t->extent = copy;
    t->cut = NULL;
    t->n_extents = kept;
    return CKPT_OK;
}

int ckpt_map_parts(ckpt_map *map, const ckpt_part *part, uint32_t n, const ckpt_parts **out,
                   ckpt_err *err)
{
    ckpt_parts *made = ckpt_arena_alloc(map->arena, sizeof *made);

    for (uint32_t i = 0; i < n; i++) {
        if (part[i].source >= map->sources.n)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "a part refers to record %" PRIu32 ", but there are only %zu",
                             part[i].source, map->sources.n);
    }
    if (made)
        *made = (ckpt_parts){n, ckpt_arena_copy(map->arena, part, n * sizeof *part)};
    if (!made || !made->part)
        return ckpt_fail_memory(err);
    *out = made;
    return CKPT_OK;
}

int ckpt_map_cut(ckpt_map *map, ckpt_tensor *t, const ckpt_cut *cut, ckpt_err *err)
{
    assert(t && cut && cut->parts && cut->count > 0);
    uint64_t n = t->n_elems / cut->count + (t->n_elems % cut->count > 0);

    if (n > cut->parts->n)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "tensor '%.*s': %" PRIu64 " elements are more than %" PRIu32
                         " parts of %" PRIu64,
                         MAP_SHOWN, t->name, t->n_elems, cut->parts->n, cut->count);
    t->cut = ckpt_arena_copy(map->arena, cut, sizeof *cut);
    if (!t->cut)
        return ckpt_fail_memory(err);
    t->extent = NULL;
    t->n_extents = (uint32_t)n;
    return CKPT_OK;
}

/* A tensor without elements also gets an extent, an empty one, so that it has an offset. */
int ckpt_map_back_whole(ckpt_map *map, ckpt_tensor *t, uint32_t source, uint64_t at, ckpt_err *err)
{
    assert(t);
    // Packed dtypes have no byte stride: bits / 8 is 0 for them, as ckpt_extent demands.
    ckpt_axis axis = {0, t->n_elems, ckpt_dtype_get(t->dtype)->bits / 8};
    ckpt_extent extent = {.source = source, .ndim = 1, .at = at, .axis = &axis};

    return ckpt_map_back(map, t, &extent, 1, err);
}

/* ---- facts and findings ---- */

/*
 * Make text safe to print, because it quotes unchecked names from files: control characters become
 * '?', those of C1 in their two-byte UTF-8 form too, and all bytes but ASCII if the text is not
 * UTF-8.
 */
static void map_tame(char *text)
{
    unsigned char *p = (unsigned char *)text;
    bool utf8 = ckpt_utf8_ok(text, strlen(text));

    for (; *p != 0; p++) {
        if (*p < 0x20 || *p == 0x7F || (*p >= 0x80 && !utf8))
            *p = '?';
        else if (p[0] == 0xC2 && p[1] < 0xA0)
            p[0] = p[1] = '?';
    }
}

/* vprintf into the map's arena; NULL when it is exhausted. */
CKPT_PRINTF(2, 0) static char *map_vprintf(ckpt_map *map, const char *fmt, va_list args)
{
    va_list again;
    char *text = NULL;
    int n;

    va_copy(again, args);
    n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n >= 0)
        text = ckpt_arena_alloc(map->arena, (uint64_t)n + 1);
    if (text) {
        (void)vsnprintf(text, (size_t)n + 1, fmt, args);
        map_tame(text);
    }
    return text;
}

/*
 * Copy a fact that programs act on into its member, found by the fact's key; the first fact of a
 * key counts.
 */
static void map_known(ckpt_training_info *k, const ckpt_fact *f)
{
    const struct {
        const char *key, **text;
    } texts[] = {
        {"tag", &k->tag},
        {"DeepSpeed version", &k->version},
        {"model type", &k->model_type},
        {"architecture", &k->architecture},
        {"quantized", &k->quantized},
    };

    for (size_t i = 0; !f->is_number && i < sizeof texts / sizeof *texts; i++) {
        if (!*texts[i].text && strcmp(f->key, texts[i].key) == 0)
            *texts[i].text = f->text;
    }
    if (!f->is_number || f->number < 0)
        return;
    if (k->stage < 0 && strcmp(f->key, "stage") == 0)
        k->stage = f->number <= 3 ? (int)f->number : -1;
    else if (k->step < 0 && strcmp(f->key, "step") == 0)
        k->step = f->number;
    else if (k->world == 0 && strcmp(f->key, "world size") == 0)
        k->world = f->number <= UINT32_MAX ? (uint32_t)f->number : 0;
}

/* text NULL: the arena was exhausted when the caller made the text. */
static int map_put_fact(ckpt_map *map, const char *key, char *text, const int64_t *number,
                        ckpt_err *err)
{
    ckpt_fact fact = {.text = text, .is_number = number != NULL};
    ckpt_fact *slot;

    fact.number = number ? *number : 0;
    fact.key = text ? ckpt_arena_string(map->arena, key, strlen(key)) : NULL;
    slot = fact.key ? ckpt_vec_push(&map->facts) : NULL;
    if (!slot)
        return ckpt_fail_memory(err);
    *slot = fact;
    map_known(&map->known, slot);
    return CKPT_OK;
}

/* Facts are few and are shown in the order of these calls. */
int ckpt_map_fact(ckpt_map *map, ckpt_err *err, const char *key, const char *fmt, ...)
{
    assert(key && fmt);
    va_list args;
    char *text;

    va_start(args, fmt);
    text = map_vprintf(map, fmt, args);
    va_end(args);
    return map_put_fact(map, key, text, NULL, err);
}

int ckpt_map_fact_int(ckpt_map *map, const char *key, int64_t number, ckpt_err *err)
{
    char *text = ckpt_arena_printf(map->arena, "%" PRId64, number);

    return map_put_fact(map, key, text, &number, err);
}

/* text is in the arena already; NULL: the arena was exhausted. */
static int map_put_finding(ckpt_map *map, ckpt_severity severity, int code, const char *text,
                           ckpt_err *err)
{
    ckpt_finding *slot = text ? ckpt_vec_push(&map->findings) : NULL;

    if (!slot)
        return ckpt_fail_memory(err);
    *slot = (ckpt_finding){.severity = severity, .code = code, .text = text};
    return CKPT_OK;
}

/* A note of severity ERROR has no code; errors with a code go through ckpt_map_problem. */
int ckpt_map_note(ckpt_map *map, ckpt_severity severity, ckpt_err *err, const char *fmt, ...)
{
    assert(fmt);
    va_list args;
    char *text;

    va_start(args, fmt);
    text = map_vprintf(map, fmt, args);
    va_end(args);
    return map_put_finding(map, severity, severity == CKPT_ERROR ? CKPT_EFORMAT : CKPT_OK, text,
                           err);
}

int ckpt_map_note_once(ckpt_map *map, ckpt_severity severity, ckpt_err *err, const char *fmt, ...)
{
    assert(fmt && severity != CKPT_ERROR);
    va_list args;
    const char *text;

    va_start(args, fmt);
    text = map_vprintf(map, fmt, args);
    va_end(args);
    for (size_t i = 0; text && i < map->findings.n; i++) {
        if (strcmp(map->findings.at[i].text, text) == 0)
            return CKPT_OK;
    }
    return map_put_finding(map, severity, CKPT_OK, text, err);
}

/* One call whether errors are collected or not, so that drivers have a single path for both. */
int ckpt_map_problem(ckpt_map *map, int code, ckpt_err *err, const char *fmt, ...)
{
    assert(code != CKPT_OK && fmt);
    va_list args;
    int rc;

    va_start(args, fmt);
    if (map->collect) {
        rc = map_put_finding(map, CKPT_ERROR, code, map_vprintf(map, fmt, args), err);
    } else {
        char text[sizeof err->text]; // as long as the error can hold

        (void)vsnprintf(text, sizeof text, fmt, args);
        rc = ckpt_fail(err, code, "%s", text);
    }
    va_end(args);
    return rc;
}
