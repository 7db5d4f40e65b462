/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c: turns a tree of values into a list of named tensors.
 *
 * A tensor's name is the path of keys to it: {"model": {"w": t}} gives "model.w".  The tree is a
 * graph, possibly with cycles: each container is visited once, on the first path to it, with an
 * explicit stack, so that the time is linear in the nodes.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch/torch.h"
#include "formats/torch/wrapped.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/index.h"
#include "libckpt/codec/pickle/trust.h"
#include "libckpt/map/view.h"

/* Limit in bytes for expanded tensors (stride 0) beyond the size of their storages. */
#define TN_MAX_EXPANDED (UINT64_C(1) << 30)

/* Names listed in a note. */
enum { TN_MAX_NAMES = 64 };

/* Flags that change the meaning of the stored bytes. */
enum { TN_LAZY = CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG };

/* A container on the path to the current node. */
typedef struct tn_frame {
    ckpt_value *v;
    uint64_t i;    /* index of the next child */
    size_t n_path; /* bytes of the container's own path */
    bool named;    /* the path has at least one part, even if it is empty */
} tn_frame;

/* A child of a container, and its part of the path. */
typedef struct tn_child {
    ckpt_value *v;         /* may be NULL */
    const ckpt_value *key; /* NULL: the part is the index, or there is none */
    uint64_t index;
    bool named; /* false: an object's state, because its keys count as the object's */
} tn_child;

/* A listed tensor, for detecting tied ones. */
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
    ckpt_values marked; /* visited containers, to reset their marks */
    tn_seens seen;
    ckpt_index same;   /* index of seen */
    ckpt_slots suffix; /* by tensor of the map: last number appended to a copy of its name */
    uint64_t n_meta;   /* tensors without bytes */
    uint64_t n_parts;  /* number of tensors of which the file has only one rank's part */
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

/* A child of an object: constructor arguments, state, then appended and set items. */
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

/* Get child number i of a container; false if there are no more. */
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

/* Append a child's part of the path; a key that is not a text counts by its index. */
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
 * Make the path unique: {"a.b": t, "a": {"b": u}} gives "a.b" and "a.b#2".  The last number is
 * remembered per name, so that many collisions stay cheap.
 */
static int tn_unique(tn_walk *w)
{
    size_t n = w->path.n, first;
    uint32_t number;

    if (!ckpt_bytes_add(&w->path, NULL, 1)) // NUL-terminate it for look-ups and messages
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

/* Hash index callback: two tensors with the same view of the same storage are tied. */
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

/* Tie a tensor to an equal one listed before, or enter it as an owner. */
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
 * Set the unit in which a source of the other byte order is reversed: the element of the dtype, one
 * per storage.  Dtypes without a storage class use storages of bytes, which torch 2.15 does not
 * reverse (torch.load, UntypedStorage.byteswap); so does ckpt, to read the same values.
 */
static int tn_set_swap(tn_walk *w, const ckpt_tensor *t, uint32_t source)
{
    ckpt_source *s = &w->map->sources.at[source];
    uint8_t unit = ckpt_dtype_get(t->dtype)->swap;

    if (!w->swap || s->swap == unit || !ckpt_dtype_get(t->dtype)->torch_storage)
        return CKPT_OK;
    if (s->swap != 0)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "%s: tensor %.200s: its big-endian storage is read as two dtypes",
                         w->io->name, t->name);
    s->swap = unit;
    return CKPT_OK;
}

/* Limit expanded tensors, the only ones larger than their storage, because a small file could
 * otherwise cause an endless output. */
static int tn_check_expanded(tn_walk *w, const ckpt_tensor *t, const ckpt_storage *s)
{
    uint64_t n_bytes = 0;

    (void)ckpt_dtype_bytes(t->dtype, t->n_elems, &n_bytes); // checked by the map
    if (n_bytes <= s->n_bytes)
        return CKPT_OK;
    if (n_bytes > TN_MAX_EXPANDED - w->expanded)
        return ckpt_fail(w->err, CKPT_ELIMIT,
                         "%s: tensor %.200s: %" PRIu64 " bytes expanded from a storage of %" PRIu64
                         " exceed the limit",
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

/* List a tensor at the current path; alone: even if it is tied to one before. */
static int tn_add(tn_walk *w, const ckpt_tensor_value *v, bool alone)
{
    ckpt_tensor like = {.dtype = v->dtype, .ndim = v->ndim, .shape = v->shape, .flags = v->flags};
    ckpt_tensor *t;
    int rc;

    if (!v->storage) {
        w->n_meta++;
        return CKPT_OK;
    }
    if (w->stack.n == 0 && !ckpt_bytes_add(&w->path, "tensor", 6)) // the root has an empty path
        return ckpt_fail_memory(w->err);
    rc = tn_unique(w);
    if (rc == CKPT_OK)
        rc = ckpt_map_add(w->map, (const char *)w->path.at, w->path.n, &like, &t, w->err);
    if (rc != CKPT_OK || t->n_elems == 0)
        return rc;
    rc = tn_tie(w, t, v);
    t->owner = alone ? NULL : t->owner;
    if (rc == CKPT_OK && !t->owner)
        rc = tn_back(w, t, v);
    return rc;
}

/* List a part of a wrapped tensor, under a name like torchao's in safetensors: X._weight_scale. */
static int tn_add_part(tn_walk *w, const char *part, const ckpt_tensor_value *v, bool alone)
{
    size_t n = w->path.n, last = n;
    char *name = ckpt_alloc(n + 1);
    int rc = CKPT_OK;

    if (!name)
        return ckpt_fail_memory(w->err);
    memcpy(name, w->path.at, n);
    while (last > 0 && name[last - 1] != '.')
        last--;
    w->path.n = last;
    if (!ckpt_bytes_add(&w->path, "_", 1) || !ckpt_bytes_add(&w->path, name + last, n - last) ||
        !ckpt_bytes_printf(&w->path, "_%s", part))
        rc = ckpt_fail_memory(w->err);
    if (rc == CKPT_OK)
        rc = tn_add(w, v, alone);
    w->path.n = 0;
    if (!ckpt_bytes_add(&w->path, name, n) && rc == CKPT_OK)
        rc = ckpt_fail_memory(w->err);
    ckpt_free(name);
    return rc;
}

/*
 * List the parts of a tensor of torchao's classes at the current path, and its attributes. Two
 * parameters are tied if they are the same object: other ones may share only some parts.
 */
static int tn_wrapped(tn_walk *w, ckpt_value *v)
{
    ckpt_value **slot = v->mark ? NULL : ckpt_vec_push(&w->marked);
    ckpt_torch_wrapped parts;
    ckpt_value *key, *text;
    const char *name;
    bool alone = !v->mark;
    int rc;

    if ((alone && !slot) || (w->path.n == 0 && !ckpt_bytes_add(&w->path, "tensor", 6)))
        return ckpt_fail_memory(w->err);
    if (alone) {
        *slot = v;
        v->mark = 1;
    }
    name = ckpt_arena_string(w->map->arena, (const char *)w->path.at, w->path.n);
    if (!name)
        return ckpt_fail_memory(w->err);
    rc = ckpt_torch_unwrap(&parts, w->map->arena, v, w->io->name, name, w->err);
    if (rc == CKPT_EUNSUPPORTED && w->map->collect)
        return ckpt_map_problem(w->map, rc, w->err, "%s", w->err ? w->err->text : name);
    if (rc == CKPT_OK && w->swap)
        rc = ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                       "%s: %.200s is a tensor of torchao in a file of the other byte order",
                       w->io->name, name);
    if (rc != CKPT_OK)
        return rc;
    key = ckpt_value_cstr(w->map->arena, name);
    text = ckpt_value_cstr(w->map->arena, parts.text);
    if (!key || !text || !ckpt_dict_add(w->map->arena, &w->map->metadata, key, text))
        return ckpt_fail_memory(w->err);
    w->map->wrapped = true;
    for (uint32_t i = 0; rc == CKPT_OK && i < parts.n_parts; i++)
        rc = tn_add_part(w, parts.name[i], parts.part[i], alone);
    return rc;
}

/* True for the classes whose objects are one rank's part of a tensor. */
static bool tn_part_class(const ckpt_value *v)
{
    static const char place[] = "torch.distributed.";

    return v && v->kind == CKPT_V_GLOBAL &&
           strncmp(v->as.global.module.at, place, sizeof place - 1) == 0 &&
           (strcmp(v->as.global.name.at, "DTensor") == 0 ||
            strcmp(v->as.global.name.at, "ShardedTensor") == 0);
}

/*
 * True for an object of such a class, or one made by a function with the class as an argument
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

/* Report a rank's part of a tensor.  The tensors inside are not listed, because they would look
 * like the model's. */
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

/* Visit a node at the current path: list a tensor, push a container. */
static int tn_visit(tn_walk *w, ckpt_value *v, bool named)
{
    size_t n_path = w->path.n;
    ckpt_value **slot;
    tn_frame *frame;

    if (v->kind == CKPT_V_TENSOR) {
        int rc = tn_add(w, v->as.tensor, false);

        w->path.n = n_path; // drop the number added by tn_unique
        if (rc != CKPT_OK || !v->as.tensor->state)
            return rc;
    }
    // one of two tied parameters is the same object
    if (ckpt_torch_is_wrapped(v))
        return tn_wrapped(w, v);
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
    assert(map && io && root);
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

/* ---- notes ---- */

/* True for names beyond those in every file of tensors. */
static bool tn_remarkable(const ckpt_value *global)
{
    return global->kind == CKPT_V_GLOBAL &&
           ckpt_name_find(&global->as.global, NULL) < CKPT_NAME_ODICT;
}

/* Join names: "argparse.Namespace, my.package.Config ... and 3 more". */
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
                          "%s: %" PRIu64 " tensors are of a kind that ckpt does not list or export "
                          "(sparse, nested ...): their values stay in the tree",
                          io->name, pickle->n_special);
    if (rc == CKPT_OK && pickle->n_objects > 0)
        rc = ckpt_map_note(map, CKPT_WARNING, err,
                           "%s: %" PRIu64
                           " objects have unknown classes: they are kept as they are and never run",
                           io->name, pickle->n_objects);
    if (rc == CKPT_OK && !tn_join_names(&names, &pickle->globals))
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK && names.n > 0)
        rc = ckpt_map_note(map, CKPT_INFO, err, "%s: classes and functions it names: %.*s",
                           io->name, (int)names.n, (const char *)names.at);
    ckpt_vec_free(&names);
    return rc;
}

int ckpt_torch_say_others(ckpt_map *file, const char *path, ckpt_err *err)
{
    assert(file && path);
    enum { MOST = 3 };
    ckpt_dict all = ckpt_value_map(file->values);
    const char *names = "";
    uint64_t n = 0;

    for (uint64_t i = 0; names && i < all.n; i++) {
        const ckpt_value_kind kind = all.at[i].value->kind;
        const ckpt_value *key = all.at[i].key;

        // dicts hold further tensors; programs leave None in place of an absent value
        if (kind == CKPT_V_TENSOR || kind == CKPT_V_DICT || kind == CKPT_V_ODICT ||
            kind == CKPT_V_NONE || ckpt_torch_is_wrapped(all.at[i].value) || n++ >= MOST)
            continue;
        names = ckpt_arena_printf(file->arena, "%s%s%.100s", names, *names ? ", " : "",
                                  key->kind == CKPT_V_STR ? key->as.text.at : "another key");
    }
    if (!names)
        return ckpt_fail_memory(err);
    return n == 0 ? CKPT_OK
                  : ckpt_map_note(file, CKPT_WARNING, err,
                                  "%s: %s%s: values beside the tensors of this file are left out",
                                  path, names, n > MOST ? " and others" : "");
}
