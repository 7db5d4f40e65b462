/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c: writes torch files: one dict {name: tensor} in the form of torch 2.7 and later, so that
 * torch.load accepts it with weights_only and with mmap.
 *
 * Records, in this order: data.pkl, .format_version, .storage_alignment, byteorder, data/0 ...,
 * version, .data/serialization_id.  The bytes up to byteorder follow from names, dtypes and shapes.
 * The other headers need the checksums of the data, so they are made last.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch/torch.h"
#include "libckpt/base/cast.h"
#include "libckpt/base/digest.h"
#include "libckpt/base/dtype.h"
#include "libckpt/codec/zip/zip.h"
#include "libckpt/format.h"

/* Numbers of records before and after the storages; digits of the serialization id; previous files
 * that are searched for an equal pickle. */
enum { TW_FRONT = 4, TW_BACK = 2, TW_ID = 40, TW_ALIKE = 3 };

typedef struct tw_text {
    const char *name, *text; /* text NULL: computed */
} tw_text;

static const tw_text tw_front[TW_FRONT] = {
    {"data.pkl", NULL},
    {".format_version", "1"},
    {".storage_alignment", "64"},
    {"byteorder", "little"},
};
static const tw_text tw_back[TW_BACK] = {
    {"version", "3\n"},
    {".data/serialization_id", NULL},
};

/*
 * An archive that is placed but not sealed yet.  The file's `state` points to it; it lives in the
 * map's arena.  Usually it is the whole file, but a data file of a distributed checkpoint has many.
 * Offsets in it count from its beginning.
 */
typedef struct tw_plan {
    struct tw_plan *next; /* the next archive in the file, or NULL */
    struct tw_plan *last; /* in the first archive: the last one */
    uint64_t base;        /* offset of the archive in the file */
    ckpt_zip_item *item;  /* n_items, in file order */
    uint32_t *source;     /* per storage: its index in the map's sources */
    uint64_t n_items, n_storages;
    uint64_t directory_at;
    uint64_t n_begun;     /* number of storages with their headers in literals */
    bool sealed;          /* all its literals are made */
    struct tw_plan *open; /* in the first archive: the first unsealed one */
} tw_plan;

/* A storage to write, and its tensor (NULL: it belongs to a given tree). */
typedef struct tw_slot {
    ckpt_storage *storage;
    ckpt_tensor *owner;
} tw_slot;

CKPT_VEC(tw_slots, tw_slot);

/* The layout of one file. */
typedef struct tw_file {
    ckpt_map *map;
    uint32_t file;
    ckpt_err *err;
    ckpt_arena *scratch;    /* for the tree that is pickled */
    ckpt_value **node;      /* by tensor of the map: the node of an owner, or NULL */
    ckpt_storage **storage; /* by tensor of the map: its own storage, or NULL */
    tw_slots slots;         /* in the order of keys */
    ckpt_bytes pickle;
    tw_plan *plan;
} tw_file;

/* ---- the tree ---- */

/* Compute row-major strides as torch does: an axis without elements counts as one. */
static bool tw_strides(const ckpt_tensor *t, uint64_t *stride)
{
    uint64_t by = 1;
    uint32_t k;

    for (k = t->ndim; k-- > 0;) {
        stride[k] = by;
        if (t->shape[k] > INT64_MAX || !ckpt_mul(by, t->shape[k] > 0 ? t->shape[k] : 1, &by))
            return false;
    }
    return by <= INT64_MAX;
}

/* Check that torch can hold the tensor. */
static int tw_check(const tw_file *f, const ckpt_tensor *t)
{
    const ckpt_dtype_info *d = ckpt_dtype_get(t->dtype);

    if (!d->torch)
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED, "tensor %.200s: torch has no dtype for %s%s",
                         t->name, d->name,
                         ckpt_cast_find(CKPT_BF16, t->dtype) ? "; --dtype bf16 converts it" : "");
    // torch's float4 stores pairs along the last axis; torch has no other packed dtype.
    if (d->per > 1 && (t->ndim == 0 || t->shape[t->ndim - 1] % 2 != 0))
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "tensor %.200s: torch holds %s only in pairs along the last axis", t->name,
                         d->name);
    return CKPT_OK;
}

/* Find or make the storage of an owner; storages are numbered in the order of first use, which may
 * be by a tied name. */
static int tw_storage(tw_file *f, ckpt_storage **out, const ckpt_tensor *like)
{
    size_t at = ckpt_map_index(f->map, like->name, strlen(like->name));
    const ckpt_dtype_info *d = ckpt_dtype_get(like->dtype);
    tw_slot *slot;
    ckpt_storage *s;

    if (at == SIZE_MAX || like->file != f->file)
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "tensor %.200s: its tied name is in another file, but torch.save shares "
                         "storage within one file only",
                         like->name);
    *out = f->storage[at];
    if (*out)
        return CKPT_OK;
    s = ckpt_arena_alloc(f->scratch, sizeof *s);
    slot = s ? ckpt_vec_push(&f->slots) : NULL;
    if (!slot)
        return ckpt_fail_memory(f->err);
    *slot = (tw_slot){s, f->map->tensors.at[at]};
    if (!ckpt_dtype_bytes(like->dtype, like->n_elems, &s->n_bytes))
        return ckpt_fail(f->err, CKPT_ELIMIT, "tensor %.200s: its size overflows", like->name);
    s->key.at = ckpt_arena_printf(f->scratch, "%zu", f->slots.n - 1);
    s->location = (ckpt_text){"cpu", 3};
    if (!s->key.at)
        return ckpt_fail_memory(f->err);
    s->key.n = strlen(s->key.at);
    // Newer dtypes have no storage class, so their storages count bytes.
    s->dtype = d->torch_storage ? like->dtype : CKPT_DTYPE_NONE;
    s->n_elems = d->torch_storage ? like->n_elems : s->n_bytes;
    s->source = UINT32_MAX;
    *out = f->storage[at] = s;
    return CKPT_OK;
}

/* Make a tensor's node without its storage. */
static int tw_node(tw_file *f, ckpt_value **out, const ckpt_tensor *t)
{
    ckpt_value *v = ckpt_value_new(f->scratch, CKPT_V_TENSOR);
    uint64_t *stride = ckpt_arena_array(f->scratch, t->ndim, sizeof *stride);
    ckpt_tensor_value *tensor = ckpt_arena_alloc(f->scratch, sizeof *tensor);

    if (!v || !stride || !tensor)
        return ckpt_fail_memory(f->err);
    if (!tw_strides(t, stride))
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED, "tensor %.200s: too large for torch", t->name);
    *tensor = (ckpt_tensor_value){
        .dtype = t->dtype,
        .ndim = t->ndim,
        .shape = t->shape,
        .stride = stride,
        // keep flags that affect values; requires_grad is dropped
        .flags = t->flags & (CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG),
    };
    v->as.tensor = tensor;
    *out = v;
    return CKPT_OK;
}

/* True if one node can represent both, because torch.load gives tied names the same tensor. */
static bool tw_same(const ckpt_tensor_value *v, const ckpt_tensor *t)
{
    return v->dtype == t->dtype && v->ndim == t->ndim &&
           v->flags == (t->flags & (CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG)) &&
           (t->ndim == 0 || memcmp(v->shape, t->shape, t->ndim * sizeof *t->shape) == 0);
}

/* Get the node of a tensor: an equal one of its owner or of an earlier tied name, or a new one. */
static int tw_value(tw_file *f, ckpt_value **out, const ckpt_tensor *t)
{
    const ckpt_tensor *owner = t->owner ? t->owner : t;
    size_t at = ckpt_map_index(f->map, owner->name, strlen(owner->name));
    int rc;

    if (at != SIZE_MAX && f->node[at] && tw_same(f->node[at]->as.tensor, t)) {
        *out = f->node[at];
        return CKPT_OK;
    }
    rc = tw_node(f, out, t);
    if (rc == CKPT_OK)
        rc = tw_storage(f, &(*out)->as.tensor->storage, owner);
    if (rc == CKPT_OK && !f->node[at])
        f->node[at] = *out;
    return rc;
}

/* Add one entry to the dict. */
static int tw_entry(tw_file *f, ckpt_value *root, const ckpt_tensor *t)
{
    ckpt_value *key, *v = NULL;
    int rc = tw_check(f, t);

    if (rc == CKPT_OK)
        rc = tw_value(f, &v, t);
    if (rc != CKPT_OK)
        return rc;
    key = ckpt_value_str(f->scratch, t->name, strlen(t->name));
    if (!key || !ckpt_dict_add(f->scratch, &root->as.map, key, v))
        return ckpt_fail_memory(f->err);
    return CKPT_OK;
}

/* Give the storages of a given tree their keys, then pickle the tree unchanged. */
static int tw_pickle_tree(tw_file *f)
{
    const ckpt_map_file *file = &f->map->files.at[f->file];
    size_t i;

    for (i = 0; i < file->storages.n; i++) {
        tw_slot *slot = ckpt_vec_push(&f->slots);
        ckpt_storage *s = file->storages.at[i];

        s->key.at = ckpt_arena_printf(f->map->arena, "%zu", i);
        if (!slot || !s->key.at)
            return ckpt_fail_memory(f->err);
        s->key.n = strlen(s->key.at);
        slot->storage = s;
    }
    return ckpt_pickle_write(&f->pickle, file->tree, f->err);
}

/* Pickle the dict of all tensors of the file. */
static int tw_pickle(tw_file *f)
{
    ckpt_value *root = ckpt_value_new(f->scratch, CKPT_V_DICT);
    int rc = root ? CKPT_OK : ckpt_fail_memory(f->err);
    size_t i;

    for (i = 0; rc == CKPT_OK && i < f->map->tensors.n; i++) {
        if (f->map->tensors.at[i]->file == f->file)
            rc = tw_entry(f, root, f->map->tensors.at[i]);
    }
    return rc == CKPT_OK ? ckpt_pickle_write(&f->pickle, root, f->err) : rc;
}

/* ---- records ---- */

/*
 * The archive's top folder.  torch takes the base name of the path without its last extension, or
 * "archive" if it must open the path as a stream (names that are not ASCII).
 */
static const char *tw_prefix(tw_file *f)
{
    const ckpt_map_file *file = &f->map->files.at[f->file];
    const char *base = file->path, *p, *dot = NULL;
    size_t n, i;

    if (file->prefix)
        return file->prefix;
    for (p = base; *p != '\0'; p++) {
        if (*p == '/' || *p == '\\')
            base = p + 1;
    }
    dot = strrchr(base, '.');
    n = dot ? (size_t)(dot - base) : strlen(base);
    for (i = 0; i < n; i++) {
        if ((unsigned char)base[i] < ' ' || (unsigned char)base[i] > '~')
            return "archive";
    }
    return ckpt_path_part_ok(base, n) ? ckpt_arena_string(f->map->arena, base, n) : "archive";
}

static int tw_item(tw_file *f, ckpt_zip_item *item, const char *name, uint64_t n_bytes)
{
    if (!name)
        return ckpt_fail_memory(f->err);
    *item = (ckpt_zip_item){.name = name, .n_name = strlen(name), .n_bytes = n_bytes};
    return CKPT_OK;
}

/* Set name and size of every record. */
static int tw_items(tw_file *f)
{
    ckpt_arena *a = f->map->arena;
    const char *prefix = tw_prefix(f);
    ckpt_zip_item *item = f->plan->item;
    int rc = prefix ? CKPT_OK : ckpt_fail_memory(f->err);
    size_t i;

    for (i = 0; rc == CKPT_OK && i < TW_FRONT; i++) {
        const char *text = tw_front[i].text;

        rc = tw_item(f, item++, ckpt_arena_printf(a, "%s/%s", prefix, tw_front[i].name),
                     text ? strlen(text) : f->pickle.n);
    }
    for (i = 0; rc == CKPT_OK && i < f->slots.n; i++)
        rc = tw_item(f, item++, ckpt_arena_printf(a, "%s/data/%zu", prefix, i),
                     f->slots.at[i].storage->n_bytes);
    for (i = 0; rc == CKPT_OK && i < TW_BACK; i++) {
        const char *text = tw_back[i].text;

        rc = tw_item(f, item++, ckpt_arena_printf(a, "%s/%s", prefix, tw_back[i].name),
                     text ? strlen(text) : TW_ID);
    }
    return rc;
}

/* Append a small record: header, payload, descriptor. */
static bool tw_put_small(ckpt_bytes *out, ckpt_zip_item *item, const void *bytes)
{
    item->crc = ckpt_crc32(0, bytes, (size_t)item->n_bytes);
    return ckpt_zip_put_header(out, item) && ckpt_bytes_add(out, bytes, (size_t)item->n_bytes) &&
           ckpt_zip_put_descriptor(out, item);
}

/*
 * Add the pickle as a literal.  Ranks of a run have equal pickles in successive files, so that a
 * literal of a previous file is shared; thousands of ranks then need one copy.
 */
static int tw_put_pickle(tw_file *f, uint64_t at)
{
    ckpt_map *map = f->map;
    uint32_t oldest = f->file > TW_ALIKE ? f->file - TW_ALIKE : 0;

    for (uint32_t i = f->file; i-- > oldest;) {
        const ckpt_literals *had = &map->files.at[i].literals;
        for (size_t k = 0; k < had->n; k++) {
            const ckpt_literal same = had->at[k];
            if (same.n != f->pickle.n || memcmp(same.bytes, f->pickle.at, f->pickle.n) != 0)
                continue;
            ckpt_literal *l = ckpt_vec_push(&map->files.at[f->file].literals);
            if (!l)
                return ckpt_fail_memory(f->err);
            *l = (ckpt_literal){at, same.n, same.bytes};
            return CKPT_OK;
        }
    }
    return ckpt_map_add_literal(map, f->file, at, f->pickle.at, f->pickle.n, f->err);
}

/* Add the bytes before the first storage's header, which do not depend on the data. */
static int tw_put_front(tw_file *f)
{
    ckpt_zip_item *pickle = &f->plan->item[0];
    ckpt_bytes out = {0};
    bool ok;

    pickle->crc = ckpt_crc32(0, f->pickle.at, f->pickle.n);
    ok = ckpt_zip_put_header(&out, pickle);
    int rc = ok ? ckpt_map_add_literal(f->map, f->file, f->plan->base, out.at, out.n, f->err)
                : ckpt_fail_memory(f->err);
    size_t i;

    if (rc == CKPT_OK)
        rc = tw_put_pickle(f, f->plan->base + pickle->at);
    out.n = 0;
    ok = ckpt_zip_put_descriptor(&out, pickle);
    for (i = 1; ok && i < TW_FRONT; i++)
        ok = tw_put_small(&out, &f->plan->item[i], tw_front[i].text);
    if (rc == CKPT_OK)
        rc =
            ok ? ckpt_map_add_literal(f->map, f->file, f->plan->base + pickle->at + pickle->n_bytes,
                                      out.at, out.n, f->err)
               : ckpt_fail_memory(f->err);
    ckpt_vec_free(&out);
    return rc;
}

/*
 * Make the source of a storage, and the extent of its tensor. If the tree is a given one, only fill
 * in the source that the storage has.
 */
static int tw_back_slot(tw_file *f, const tw_slot *slot, const ckpt_zip_item *item, uint32_t *index)
{
    ckpt_source source = {
        .kind = CKPT_SOURCE_FILE,
        .coding = CKPT_RAW,
        .file = f->file,
        .at = f->plan->base + item->at,
        .n_stored = item->n_bytes,
        .n_bytes = item->n_bytes,
        .name = item->name,
    };
    int rc;

    if (!slot->owner) {
        *index = slot->storage->source;
        f->map->sources.at[*index] = source;
        return CKPT_OK;
    }
    rc = ckpt_map_add_source(f->map, &source, index, f->err);
    if (rc == CKPT_OK && item->n_bytes > 0)
        rc = ckpt_map_back_whole(f->map, slot->owner, *index, 0, f->err);
    return rc;
}

/* Make the sources of all storages, and the extents of their tensors. */
static int tw_back_tensors(tw_file *f)
{
    int rc = CKPT_OK;
    size_t i;

    for (i = 0; rc == CKPT_OK && i < f->slots.n; i++)
        rc = tw_back_slot(f, &f->slots.at[i], &f->plan->item[TW_FRONT + i], &f->plan->source[i]);
    return rc;
}

/*
 * Append an archive to the file's list.  The first one points to the last, so that a file of a
 * million archives takes linear time.
 */
static void tw_chain(ckpt_map_file *file, tw_plan *plan)
{
    tw_plan *first = file->state;

    if (!first)
        file->state = plan->open = plan;
    else
        first->last->next = plan;
    ((tw_plan *)file->state)->last = plan;
}

/* Compute the offsets of all records, and the file's size. */
static int tw_offsets(tw_file *f)
{
    tw_plan *plan = f->plan;
    uint64_t at = 0, size, i;
    int rc = CKPT_OK;

    for (i = 0; rc == CKPT_OK && i < plan->n_items; i++)
        rc = ckpt_zip_place(&plan->item[i], &at, f->err);
    if (rc != CKPT_OK)
        return rc;
    plan->directory_at = at;
    size = at + CKPT_ZIP_END_SIZE;
    for (i = 0; i < plan->n_items; i++)
        size += ckpt_zip_entry_size(&plan->item[i]);
    if (size < at || !ckpt_add(size, plan->base, &size) || size > INT64_MAX)
        return ckpt_fail(f->err, CKPT_ELIMIT, "%s: a file of more than 2^63 bytes",
                         f->map->files.at[f->file].path);
    f->map->files.at[f->file].size = size;
    tw_chain(&f->map->files.at[f->file], plan);
    return CKPT_OK;
}

static int tw_plan_new(tw_file *f)
{
    ckpt_arena *a = f->map->arena;
    tw_plan *plan = ckpt_arena_alloc(a, sizeof *plan);

    if (!plan)
        return ckpt_fail_memory(f->err);
    plan->n_storages = f->slots.n;
    plan->n_items = TW_FRONT + f->slots.n + TW_BACK;
    plan->item = ckpt_arena_array(a, plan->n_items, sizeof *plan->item);
    plan->source = ckpt_arena_array(a, plan->n_storages, sizeof *plan->source);
    plan->base = f->map->files.at[f->file].size;
    f->plan = plan;
    return plan->item && plan->source ? CKPT_OK : ckpt_fail_memory(f->err);
}

/* Place the archive, whose pickle and storages are known. */
static int tw_place(tw_file *f)
{
    int rc = tw_plan_new(f);

    if (rc == CKPT_OK)
        rc = tw_items(f);
    if (rc == CKPT_OK)
        rc = tw_offsets(f);
    if (rc == CKPT_OK)
        rc = tw_put_front(f);
    return rc == CKPT_OK ? tw_back_tensors(f) : rc;
}

/* Take the pickle and storages of file `like`; they stay owned by that file. */
static int tw_take(tw_file *f, uint32_t like, uint32_t shift)
{
    const ckpt_map_file *other = &f->map->files.at[like];
    const tw_plan *plan = other->state;
    ckpt_storage *s = ckpt_arena_array(f->scratch, plan->n_storages, sizeof *s);

    assert(!plan->next && other->literals.n > 1 && other->literals.at[1].at == plan->item[0].at);
    f->pickle.at = (uint8_t *)(uintptr_t)other->literals.at[1].bytes;
    f->pickle.n = other->literals.at[1].n;
    for (uint64_t i = 0; s && i < plan->n_storages; i++) {
        tw_slot *slot = ckpt_vec_push(&f->slots);

        if (!slot)
            return ckpt_fail_memory(f->err);
        s[i].n_bytes = plan->item[TW_FRONT + i].n_bytes;
        s[i].source = plan->source[i] + shift;
        slot->storage = &s[i];
    }
    return s ? CKPT_OK : ckpt_fail_memory(f->err);
}

int ckpt_torch_place_like(ckpt_map *to, uint32_t file, uint32_t like, uint32_t shift, ckpt_err *err)
{
    assert(file < to->files.n && like < to->files.n && file != like);
    tw_file f = {.map = to, .file = file, .err = err, .scratch = ckpt_arena_new(0)};
    int rc = f.scratch ? tw_take(&f, like, shift) : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = tw_place(&f);
    ckpt_vec_free(&f.slots);
    ckpt_arena_free(f.scratch);
    return rc;
}

int ckpt_torch_place(ckpt_map *to, uint32_t file, ckpt_err *err)
{
    assert(file < to->files.n);
    tw_file f = {.map = to, .file = file, .err = err};
    int rc = CKPT_OK;

    f.scratch = ckpt_arena_new(0);
    f.storage = ckpt_alloc((to->tensors.n + 1) * sizeof(ckpt_storage *));
    f.node = ckpt_alloc((to->tensors.n + 1) * sizeof(ckpt_value *));
    if (!f.scratch || !f.storage || !f.node)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = to->files.at[file].tree ? tw_pickle_tree(&f) : tw_pickle(&f);
    if (rc == CKPT_OK)
        rc = tw_place(&f);
    ckpt_vec_free(&f.pickle);
    ckpt_vec_free(&f.slots);
    ckpt_free(f.storage);
    ckpt_free(f.node);
    ckpt_arena_free(f.scratch);
    return rc;
}

/* ---- parts that depend on the data ---- */

/* The sealing of a file, all or part of whose data are written. */
typedef struct tw_seal {
    ckpt_map *to;
    uint32_t file;
    tw_plan *plan;  /* the current archive */
    ckpt_bytes out; /* bytes between two payloads */
    uint64_t at;    /* offset of `out` in the archive */
    ckpt_err *err;
} tw_seal;

/*
 * Compute the serialization id: two numbers of 20 digits.  torch hashes the records' names for the
 * first (with its C++ library's hash; FNV-1a here) and all checksums for the second.  No reader
 * checks them.
 */
static void tw_id(const tw_plan *plan, char out[TW_ID + 1])
{
    uint64_t names = UINT64_C(0xCBF29CE484222325), sums = 0, i, k;

    for (i = 0; i + 1 < plan->n_items; i++) {
        const ckpt_zip_item *item = &plan->item[i];

        for (k = 0; k < item->n_name; k++)
            names = (names ^ (unsigned char)item->name[k]) * UINT64_C(0x100000001B3);
        if (item->n_bytes > 0) // only records with bytes have a descriptor
            sums ^= item->crc + UINT64_C(0x9E3779B9) + (sums << 6) + (sums >> 2);
    }
    snprintf(out, TW_ID + 1, "%020" PRIu64 "%020" PRIu64, names, sums);
}

/* Add the collected bytes as a literal. */
static int tw_flush(tw_seal *s)
{
    int rc =
        ckpt_map_add_literal(s->to, s->file, s->plan->base + s->at, s->out.at, s->out.n, s->err);

    s->out.n = 0;
    return rc;
}

/* True if the data of the last begun storage end within the `known` bytes. */
static bool tw_is_known(const tw_plan *plan, uint64_t known)
{
    const ckpt_zip_item *item = &plan->item[TW_FRONT + plan->n_begun - 1];

    return plan->n_begun == 0 || plan->base + item->at + item->n_bytes <= known;
}

/* Add the records after the storages, and the directory. */
static int tw_put_back(tw_seal *s)
{
    tw_plan *plan = s->plan;
    ckpt_zip_item *back = &plan->item[plan->n_items - TW_BACK];
    char id[TW_ID + 1];

    if (!tw_put_small(&s->out, &back[0], tw_back[0].text))
        return ckpt_fail_memory(s->err);
    tw_id(plan, id); // needs the checksum of the version record above
    if (!tw_put_small(&s->out, &back[1], id) ||
        !ckpt_zip_put_directory(&s->out, plan->item, plan->n_items, plan->directory_at))
        return ckpt_fail_memory(s->err);
    plan->sealed = true;
    return tw_flush(s);
}

/*
 * Add the bytes between two payloads, or after the last: the descriptor of the previous storage,
 * and headers up to the next storage with bytes.
 */
static int tw_put_gap(tw_seal *s)
{
    tw_plan *plan = s->plan;
    uint64_t i = plan->n_begun;

    s->at = plan->item[TW_FRONT].header_at;
    if (i > 0) {
        ckpt_zip_item *item = &plan->item[TW_FRONT + i - 1];

        s->at = item->at + item->n_bytes;
        item->crc = s->to->sources.at[plan->source[i - 1]].crc;
        if (!ckpt_zip_put_descriptor(&s->out, item))
            return ckpt_fail_memory(s->err);
    }
    while (i < plan->n_storages) {
        ckpt_zip_item *item = &plan->item[TW_FRONT + i++];

        if (!ckpt_zip_put_header(&s->out, item))
            return ckpt_fail_memory(s->err);
        if (item->n_bytes > 0) {
            plan->n_begun = i;
            return tw_flush(s);
        }
    }
    return tw_put_back(s);
}

int ckpt_torch_seal(ckpt_map *to, uint32_t file, uint64_t known, ckpt_err *err)
{
    assert(file < to->files.n);
    tw_plan *first = to->files.at[file].state;
    tw_seal s = {.to = to, .file = file, .err = err};
    int rc = CKPT_OK;

    for (s.plan = first ? first->open : NULL; rc == CKPT_OK && s.plan; s.plan = s.plan->next) {
        first->open = s.plan;
        while (rc == CKPT_OK && !s.plan->sealed && tw_is_known(s.plan, known))
            rc = tw_put_gap(&s);
        if (!s.plan->sealed)
            break;
    }
    ckpt_vec_free(&s.out);
    return rc;
}
