/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c: owns the way from a tree of values to a list of named tensors.
 *
 * A tensor's name is the path of keys that leads to it: {"model": {"w": t}} gives "model.w".  The
 * tree is a graph, possibly cyclic: each container is walked once, by the path met first, with an
 * explicit stack.  The time is linear in the nodes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch/torch.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/index.h"
#include "libckpt/codec/pickle/trust.h"
#include "libckpt/map/view.h"

/* Bytes that expanded tensors (stride 0) may have in all beyond what the file holds. */
#define TN_MAX_EXPANDED (UINT64_C(1) << 30)

/* Names that a note lists. */
enum { TN_MAX_NAMES = 64 };

/* Flags that change what the stored bytes mean. */
enum { TN_LAZY = CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG };

/* A container on the way to the current node. */
typedef struct tn_frame {
    ckpt_value *v;
    uint64_t i;    /* its next child */
    size_t n_path; /* bytes of its own path */
    bool named;    /* the path has at least one part, be it empty */
} tn_frame;

/* A child of a container, and which part of the path leads to it. */
typedef struct tn_child {
    ckpt_value *v;         /* may be NULL: nothing there */
    const ckpt_value *key; /* by key; NULL: by index, or not named at all */
    uint64_t index;
    bool named; /* false: an object's state, whose keys count as the object's own */
} tn_child;

/* A tensor that was listed, for finding tied ones. */
typedef struct tn_seen {
    const ckpt_tensor_value *value;
    const ckpt_tensor *tensor;
} tn_seen;

CKPT_VEC(tn_frames, tn_frame);
CKPT_VEC(tn_seens, tn_seen);

typedef struct tn_walk {
    ckpt_map *map;
    ckpt_io *io;
    ckpt_err *err;
    bool swap;
    tn_frames stack;
    ckpt_bytes path;
    ckpt_values marked; /* containers visited: their marks go back to 0 */
    tn_seens seen;
    ckpt_index same;   /* into seen */
    ckpt_slots suffix; /* per tensor of the map: last number given to a name like its own */
    uint64_t n_meta;   /* tensors without bytes */
    uint64_t n_parts;  /* one rank's parts of tensors */
    uint64_t expanded; /* bytes */
} tn_walk;

/* ---- children of containers ---- */

static tn_child tn_by_index(const ckpt_seq *seq, uint64_t i)
{
    return (tn_child){seq->at[i], NULL, i, true};
}

static tn_child tn_by_key(const ckpt_dict *map, uint64_t i)
{
    return (tn_child){map->at[i].value, map->at[i].key, i, true};
}

/* An object: what it was made from, its state, then what was appended or set. */
static bool tn_object_child(const ckpt_object *o, uint64_t i, tn_child *out)
{
    ckpt_value *const inner[3] = {o->args, o->kwargs, o->state};

    if (i < 3)
        *out = (tn_child){inner[i], NULL, 0, false};
    else if (i - 3 < o->items.n)
        *out = tn_by_index(&o->items, i - 3);
    else if (i - 3 - o->items.n < o->pairs.n)
        *out = tn_by_key(&o->pairs, i - 3 - o->items.n);
    else
        return false;
    return true;
}

/* Child number i of a container; false when there are no more. */
static bool tn_child_at(const ckpt_value *v, uint64_t i, tn_child *out)
{
    ckpt_seq seq = ckpt_value_seq(v);
    ckpt_dict map = ckpt_value_map(v);

    if (v->kind == CKPT_V_OBJECT)
        return tn_object_child(v->as.object, i, out);
    if (v->kind == CKPT_V_TENSOR) {
        *out = (tn_child){v->as.tensor->state, NULL, 0, false};
        return i == 0;
    }
    if (i < seq.n)
        *out = tn_by_index(&seq, i);
    else if (i < map.n)
        *out = tn_by_key(&map, i);
    else if (i == seq.n + map.n)
        *out = (tn_child){v->state, NULL, 0, false};
    else
        return false;
    return true;
}

/* ---- names ---- */

/* Append the part of the path that leads to a child; keys that are no text count by their place. */
static bool tn_push_part(tn_walk *w, const tn_frame *from, const tn_child *c)
{
    const ckpt_value *key = c->key;

    if (from->named && !ckpt_bytes_add(&w->path, ".", 1))
        return false;
    if (!key)
        return ckpt_bytes_printf(&w->path, "%" PRIu64, c->index);
    switch (key->kind) {
    case CKPT_V_STR:
    case CKPT_V_BYTES:
        return ckpt_bytes_add(&w->path, key->as.text.at, (size_t)key->as.text.n);
    case CKPT_V_INT:
        return ckpt_bytes_printf(&w->path, "%" PRId64, key->as.i);
    case CKPT_V_NONE:
    case CKPT_V_BOOL:
        return ckpt_bytes_printf(&w->path, "%s",
                                 key->kind == CKPT_V_NONE ? "None"
                                 : key->as.i              ? "True"
                                                          : "False");
    case CKPT_V_LONG:
    case CKPT_V_FLOAT:
    case CKPT_V_BYTEARRAY:
    case CKPT_V_LIST:
    case CKPT_V_TUPLE:
    case CKPT_V_SIZE:
    case CKPT_V_SET:
    case CKPT_V_FROZENSET:
    case CKPT_V_DICT:
    case CKPT_V_ODICT:
    case CKPT_V_GLOBAL:
    case CKPT_V_DTYPE:
    case CKPT_V_STORAGE:
    case CKPT_V_TENSOR:
    case CKPT_V_OBJECT:
        break;
    }
    return ckpt_bytes_printf(&w->path, "%" PRIu64, c->index);
}

/*
 * Make the path a name that is free: {"a.b": t, "a": {"b": u}} gives "a.b" and "a.b#2".  The last
 * number is kept beside the first of them, so that many collisions stay cheap.
 */
static int tn_unique(tn_walk *w)
{
    size_t n = w->path.n, first;
    uint32_t number;

    if (!ckpt_bytes_add(&w->path, NULL, 1)) // terminated: for look-ups and messages alike
        return ckpt_fail_memory(w->err);
    w->path.n = n;
    first = ckpt_map_index(w->map, (const char *)w->path.at, n);
    if (first == SIZE_MAX)
        return CKPT_OK;
    while (w->suffix.n <= first) {
        if (ckpt_vec_push(&w->suffix) == NULL)
            return ckpt_fail_memory(w->err);
    }
    number = w->suffix.at[first] == 0 ? 1 : w->suffix.at[first];
    do {
        w->path.n = n;
        if (!ckpt_bytes_printf(&w->path, "#%" PRIu32, ++number))
            return ckpt_fail_memory(w->err);
    } while (ckpt_map_index(w->map, (const char *)w->path.at, w->path.n) != SIZE_MAX);
    w->suffix.at[first] = number;
    return CKPT_OK;
}

/* ---- tied tensors ---- */

static uint32_t tn_hash(const ckpt_tensor_value *v)
{
    uint64_t h = (uint64_t)(uintptr_t)v->storage ^ v->offset * 31 ^ (uint64_t)v->dtype << 48;
    uint32_t seed = ckpt_hash_u64(h);

    seed = ckpt_hash_bytes(v->shape, v->ndim * sizeof *v->shape, seed);
    return ckpt_hash_bytes(v->stride, v->ndim * sizeof *v->stride, seed);
}

/* The same values from the same bytes: one tensor under two names. */
static bool tn_same(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_tensor_value *a = ((const tn_seen *)ctx)[number].value, *b = key;
    size_t n = a->ndim * sizeof *a->shape;

    if (a == b)
        return true;
    return a->storage == b->storage && a->offset == b->offset && a->dtype == b->dtype &&
           a->ndim == b->ndim && (a->flags & TN_LAZY) == (b->flags & TN_LAZY) &&
           (n == 0 || (memcmp(a->shape, b->shape, n) == 0 && memcmp(a->stride, b->stride, n) == 0));
}

/* Enter a tensor as an owner, or find the one it is tied to. */
static int tn_tie(tn_walk *w, ckpt_tensor *t, const ckpt_tensor_value *v)
{
    uint32_t hash = tn_hash(v);
    uint32_t found = ckpt_index_find(&w->same, hash, tn_same, w->seen.at, v);
    tn_seen *seen;

    if (found != CKPT_INDEX_NONE) {
        t->owner = w->seen.at[found].tensor;
        return CKPT_OK;
    }
    seen = ckpt_vec_push(&w->seen);
    if (!seen)
        return ckpt_fail_memory(w->err);
    *seen = (tn_seen){v, t};
    if (!ckpt_index_add(&w->same, hash, (uint32_t)(w->seen.n - 1)))
        return ckpt_fail_memory(w->err);
    return CKPT_OK;
}

/* ---- extents ---- */

/*
 * Files of the other byte order: the unit to reverse is the dtype's, and one per storage.  Dtypes
 * without a storage class of their own lie in storages of bytes, which torch 2.15 (torch.load,
 * UntypedStorage.byteswap) leaves as they are: a value is then the same here and there.
 */
static int tn_set_swap(tn_walk *w, const ckpt_tensor *t, uint32_t source)
{
    ckpt_source *s = &w->map->sources.at[source];
    uint8_t unit = ckpt_dtype_get(t->dtype)->swap;

    if (!w->swap || s->swap == unit || !ckpt_dtype_get(t->dtype)->torch_storage)
        return CKPT_OK;
    if (s->swap != 0)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "%s: tensor %.200s: a big-endian storage that is read as two dtypes",
                         w->io->name, t->name);
    s->swap = unit;
    return CKPT_OK;
}

/* Only an expanded tensor can be larger than its storage; a file must not make us write for ever.
 */
static int tn_check_expanded(tn_walk *w, const ckpt_tensor *t, const ckpt_storage *s)
{
    uint64_t n_bytes = 0;

    (void)ckpt_dtype_bytes(t->dtype, t->n_elems, &n_bytes); // the map has checked it
    if (n_bytes <= s->n_bytes)
        return CKPT_OK;
    if (n_bytes > TN_MAX_EXPANDED - w->expanded)
        return ckpt_fail(w->err, CKPT_ELIMIT,
                         "%s: tensor %.200s: %" PRIu64 " bytes expanded from a storage of %" PRIu64
                         ": over the limit",
                         w->io->name, t->name, n_bytes, s->n_bytes);
    w->expanded += n_bytes;
    return CKPT_OK;
}

static int tn_back(tn_walk *w, ckpt_tensor *t, const ckpt_tensor_value *v)
{
    int rc = tn_check_expanded(w, t, v->storage);

    if (rc == CKPT_OK && v->storage->source != UINT32_MAX)
        rc = tn_set_swap(w, t, v->storage->source);
    return rc == CKPT_OK ? ckpt_view_back(w->map, t, v, v->storage->source, w->io->name, w->err)
                         : rc;
}

/* ---- the walk ---- */

static int tn_add(tn_walk *w, const ckpt_tensor_value *v)
{
    ckpt_tensor like = {.dtype = v->dtype, .ndim = v->ndim, .shape = v->shape, .flags = v->flags};
    ckpt_tensor *t;
    int rc;

    if (!v->storage) {
        w->n_meta++;
        return CKPT_OK;
    }
    if (w->stack.n == 0 && !ckpt_bytes_add(&w->path, "tensor", 6)) // the root has no path
        return ckpt_fail_memory(w->err);
    rc = tn_unique(w);
    if (rc == CKPT_OK)
        rc = ckpt_map_add(w->map, (const char *)w->path.at, w->path.n, &like, &t, w->err);
    if (rc != CKPT_OK || t->n_elems == 0)
        return rc;
    rc = tn_tie(w, t, v);
    if (rc == CKPT_OK && !t->owner)
        rc = tn_back(w, t, v);
    return rc;
}

/* The class whose objects are one rank's part of a tensor. */
static bool tn_part_class(const ckpt_value *v)
{
    static const char place[] = "torch.distributed.";

    return v && v->kind == CKPT_V_GLOBAL &&
           strncmp(v->as.global.module.at, place, sizeof place - 1) == 0 &&
           (strcmp(v->as.global.name.at, "DTensor") == 0 ||
            strcmp(v->as.global.name.at, "ShardedTensor") == 0);
}

/*
 * An object of it, or one that is made by a function that is given the class
 * (torch._tensor._rebuild_from_type_v2).
 */
static bool tn_part(const ckpt_value *v)
{
    const ckpt_object *o = v->as.object;
    ckpt_seq args = ckpt_value_seq(o->args);
    bool is = tn_part_class(o->cls);

    for (uint64_t i = 0; !is && i < args.n; i++)
        is = tn_part_class(args.at[i]);
    return is;
}

/* The tensors in it under names of their own would pass for the model: they are not listed. */
static int tn_tell_part(tn_walk *w)
{
    if (w->n_parts++ > 0 && w->map->collect)
        return CKPT_OK;
    return ckpt_map_problem(w->map, CKPT_EUNSUPPORTED, w->err,
                            "%s: %.*s is a DTensor or ShardedTensor of torch.distributed, and this "
                            "file holds one rank's part of it: name the folder that has the files "
                            "of all ranks (model_world_size_*_rank_*.pt), or save whole tensors "
                            "(full_tensor(), FULL_STATE_DICT)",
                            w->io->name, (int)(w->path.n > 200 ? 200 : w->path.n),
                            w->path.n > 0 ? (const char *)w->path.at : "");
}

/* Meet a node whose path is ready: list it if it is a tensor, enter it if it is a container. */
static int tn_visit(tn_walk *w, ckpt_value *v, bool named)
{
    size_t n_path = w->path.n;
    ckpt_value **slot;
    tn_frame *frame;

    if (v->kind == CKPT_V_TENSOR) {
        int rc = tn_add(w, v->as.tensor);

        w->path.n = n_path; // without the number that made it unique
        if (rc != CKPT_OK || !v->as.tensor->state)
            return rc;
    }
    if (v->mark != 0)
        return CKPT_OK;
    if (v->kind == CKPT_V_OBJECT && tn_part(v))
        return tn_tell_part(w);
    slot = ckpt_vec_push(&w->marked);
    if (!slot)
        return ckpt_fail_memory(w->err);
    *slot = v;
    v->mark = 1;
    frame = ckpt_vec_push(&w->stack);
    if (!frame)
        return ckpt_fail_memory(w->err);
    *frame = (tn_frame){v, 0, n_path, named};
    return CKPT_OK;
}

static int tn_run(tn_walk *w, ckpt_value *root)
{
    int rc = ckpt_value_has_children(root) ? tn_visit(w, root, false) : CKPT_OK;

    while (rc == CKPT_OK && w->stack.n > 0) {
        tn_frame *top = &w->stack.at[w->stack.n - 1];
        tn_child c;

        if (!tn_child_at(top->v, top->i++, &c)) {
            w->stack.n--;
            continue;
        }
        if (!c.v || !ckpt_value_has_children(c.v))
            continue;
        w->path.n = top->n_path;
        if (c.named && !tn_push_part(w, top, &c))
            return ckpt_fail_memory(w->err);
        rc = tn_visit(w, c.v, top->named || c.named);
    }
    return rc;
}

int ckpt_torch_list(ckpt_map *map, ckpt_io *io, ckpt_value *root, bool swap, ckpt_err *err)
{
    tn_walk w = {.map = map, .io = io, .err = err, .swap = swap};
    int rc = tn_run(&w, root);
    size_t i;

    for (i = 0; i < w.marked.n; i++)
        w.marked.at[i]->mark = 0;
    if (rc == CKPT_OK && w.n_meta > 0)
        rc = ckpt_map_note(map, CKPT_INFO, err,
                           "%s: %" PRIu64 " meta tensors, which have no values, are not listed",
                           io->name, w.n_meta);
    ckpt_vec_free(&w.stack);
    ckpt_vec_free(&w.path);
    ckpt_vec_free(&w.marked);
    ckpt_vec_free(&w.seen);
    ckpt_vec_free(&w.suffix);
    ckpt_index_free(&w.same);
    return rc;
}

/* ---- remarks ---- */

/* True for names that are more than what every file of tensors has: worth a look. */
static bool tn_remarkable(const ckpt_value *global)
{
    return global->kind == CKPT_V_GLOBAL &&
           ckpt_name_find(&global->as.global, NULL) < CKPT_NAME_ODICT;
}

/* "argparse.Namespace, my.package.Config ... and 3 more" */
static bool tn_join_names(ckpt_bytes *out, const ckpt_values *globals)
{
    size_t n = 0, i;
    bool ok = true;

    for (i = 0; ok && i < globals->n; i++) {
        const ckpt_global *g = &globals->at[i]->as.global;

        if (tn_remarkable(globals->at[i]) && n++ < TN_MAX_NAMES)
            ok = ckpt_bytes_printf(out, "%s%.100s.%.100s", n > 1 ? ", " : "", g->module.at,
                                   g->name.at);
    }
    if (ok && n > TN_MAX_NAMES)
        ok = ckpt_bytes_printf(out, " and %zu more", n - TN_MAX_NAMES);
    return ok;
}

int ckpt_torch_remark(ckpt_map *map, const ckpt_io *io, const ckpt_pickle *pickle, ckpt_err *err)
{
    ckpt_bytes names = {0};
    int rc = CKPT_OK;

    if (pickle->n_special > 0)
        rc =
            ckpt_map_note(map, CKPT_WARNING, err,
                          "%s: %" PRIu64
                          " tensors of a kind that is not listed or exported (sparse, nested ...): "
                          "their values stay in the tree",
                          io->name, pickle->n_special);
    if (rc == CKPT_OK && pickle->n_objects > 0)
        rc = ckpt_map_note(map, CKPT_WARNING, err,
                           "%s: %" PRIu64 " objects of classes that are unknown here: kept as they "
                           "are, never run",
                           io->name, pickle->n_objects);
    if (rc == CKPT_OK && !tn_join_names(&names, &pickle->globals))
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK && names.n > 0)
        rc = ckpt_map_note(map, CKPT_INFO, err, "%s: classes and functions it names: %.*s",
                           io->name, (int)names.n, (const char *)names.at);
    ckpt_vec_free(&names);
    return rc;
}
