/* SPDX-License-Identifier: Apache-2.0 */
/*
 * averages.c: makes averaged weights (EMA and others), which a program saved beside its model, the
 * weights of the model.
 *
 * The copy is found by the path of keys that leads to it ("model_ema", "ema"). Each of its tensors
 * takes the place and the name of the model's tensor with the same name and shape.
 */
#include <inttypes.h>
#include <string.h>

#include "ckpt_shape.h"
#include "libckpt/base/dtype.h"
#include "libckpt/drivers.h"
#include "libckpt/map/copies.h"
#include "libckpt/map/map.h"
#include "libckpt/map/savepoint.h"
#include "libckpt/map/whole.h"
#include "libckpt/transform/schedule_free.h"

enum {
    AVG_PATHS = 256, /* maximum copies, and modules with similar names, in a file */
    AVG_LISTED = 6,  /* maximum names in a message */
    AVG_NONE = -1
};

/* A tensor of the map. */
typedef struct avg_item {
    ckpt_tensor *t;
    size_t owner;      /* the item of the tensor that t is tied to; SIZE_MAX: none */
    const char *bare;  /* its name inside the model or the copy, without wrappers; NULL: neither */
    int copy;          /* the number of its copy; AVG_NONE: none */
    size_t pair;       /* copies: the model's tensor; SIZE_MAX: none */
    bool taken;        /* model: there is a copy of it */
    ckpt_tensor *heir; /* model: the tensor that takes its place: t itself, or the copy's */
} avg_item;

/* A copy. */
typedef struct avg_path {
    const char *at;
    size_t n;                        /* bytes of its path, without the last dot */
    uint64_t n_weights, n_equal;     /* its weights, and those with a pair */
    bool own;                        /* it belongs to the model */
    const char *stranger, *reshaped; /* first weight without a pair; with one of another shape */
} avg_path;

typedef struct avg_work {
    ckpt_map *map;
    const char *which;
    ckpt_whole whole;
    avg_item *item; /* [tensors] */
    avg_path path[AVG_PATHS];
    int n_paths;
    ckpt_index bare; /* of the model's tensors, by their bare names */
    ckpt_err *err;
} avg_work;

/* ---- which tensors are copies ---- */

static bool avg_is_ema(const avg_work *w)
{
    return strcmp(w->which, "ema") == 0;
}

static bool avg_is_weight(const ckpt_tensor *t)
{
    return t->ndim > 0 && ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT;
}

/* Bytes of the path of keys that makes a name one of a copy; 0: it is none. */
static size_t avg_path_of(const avg_work *w, const char *name)
{
    const size_t n_which = strlen(w->which);
    char path[256];

    if (strncmp(name, w->which, n_which) == 0 && name[n_which] == '.')
        return n_which;
    if (!avg_is_ema(w))
        return 0;

    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t n = (size_t)(dot - name);
        if (n >= sizeof path)
            break;
        memcpy(path, name, n);
        path[n] = 0;
        if (ckpt_copies_is_average(path))
            return n;
    }
    return 0;
}

/* The number of a path, which is added if it is new; AVG_NONE: too many. */
static int avg_number(avg_work *w, const char *name, size_t n)
{
    for (int i = 0; i < w->n_paths; i++) {
        if (w->path[i].n == n && strncmp(w->path[i].at, name, n) == 0)
            return i;
    }
    if (w->n_paths == AVG_PATHS)
        return AVG_NONE;
    w->path[w->n_paths] = (avg_path){.at = name, .n = n};
    return w->n_paths++;
}

/* True if a tensor is part of an optimizer. */
static bool avg_is_state(const avg_work *w, const ckpt_tensor *t)
{
    bool state = t->role == CKPT_ROLE_STATE;

    for (size_t i = 0; !state && i < w->whole.part.n; i++)
        state = w->whole.part.at[i].kind == CKPT_WHOLE_OPTIMIZER &&
                ckpt_whole_below(&w->whole.part.at[i], t->name) != SIZE_MAX;
    return state;
}

/* The model of a saved dict; NULL: the map has only a model. */
static const ckpt_whole_part *avg_model(const avg_work *w)
{
    return w->whole.model == SIZE_MAX ? NULL : &w->whole.part.at[w->whole.model];
}

/* A name without wrappers, in the arena; NULL: no memory. */
static const char *avg_bare(avg_work *w, const char *name)
{
    char *out = ckpt_arena_alloc(w->map->arena, strlen(name) + 1);

    if (out)
        ckpt_wrapper_strip(out, name);
    return out ? ckpt_copies_bare(out) : NULL;
}

/* Set the name that an item of the model has in it; items of other parts have none. */
static int avg_of_model(avg_work *w, avg_item *item)
{
    const ckpt_whole_part *model = avg_model(w);
    bool part = model && (*model->path || model->direct);
    size_t below = part ? ckpt_whole_below(model, item->t->name) : 0;

    item->copy = AVG_NONE;
    if (below == SIZE_MAX || item->t->role == CKPT_ROLE_OTHER)
        return CKPT_OK;
    item->bare = avg_bare(w, item->t->name + below);
    return item->bare ? CKPT_OK : ckpt_fail_memory(w->err);
}

/* Sort the map's tensors into the model, its copies and the rest. */
static int avg_sort(avg_work *w)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->map->tensors.n; i++) {
        avg_item *item = &w->item[i];
        size_t n = avg_path_of(w, item->t->name);

        if (avg_is_state(w, item->t))
            continue;
        if (n == 0) {
            rc = avg_of_model(w, item);
            continue;
        }
        item->copy = avg_number(w, item->t->name, n);
        if (item->copy == AVG_NONE)
            return ckpt_fail(w->err, CKPT_ELIMIT, "%s: it holds more than %d copies", w->map->path,
                             AVG_PATHS);
        item->bare = avg_bare(w, item->t->name + n + 1);
        rc = item->bare ? CKPT_OK : ckpt_fail_memory(w->err);
    }
    return rc;
}

/* ---- pairs ---- */

static bool avg_same(const void *ctx, uint32_t number, const void *key)
{
    const avg_item *item = ctx;

    return strcmp(item[number].bare, key) == 0;
}

static uint32_t avg_hash(const char *name)
{
    return ckpt_hash_bytes(name, strlen(name), 0);
}

/* Add one of the model's tensors to the index, which has no other one of its name. */
static int avg_index_one(avg_work *w, size_t i, bool average)
{
    avg_item *item = &w->item[i];
    uint32_t at = ckpt_index_find(&w->bare, avg_hash(item->bare), avg_same, w->item, item->bare);

    // another copy of the model, which stays beside it
    if (at != CKPT_INDEX_NONE && average) {
        item->bare = NULL;
        return CKPT_OK;
    }
    if (at != CKPT_INDEX_NONE)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "%s: without wrappers, %.150s and %.150s have one name: select the copy "
                         "with --include",
                         w->map->path, w->item[at].t->name, item->t->name);
    return ckpt_index_add(&w->bare, avg_hash(item->bare), (uint32_t)i) ? CKPT_OK
                                                                       : ckpt_fail_memory(w->err);
}

/* Index the model's tensors; last those that may be of another copy, by their names. */
static int avg_index(avg_work *w)
{
    int rc = CKPT_OK;

    for (unsigned pass = 0; pass < 2; pass++) {
        for (size_t i = 0; rc == CKPT_OK && i < w->map->tensors.n; i++) {
            bool average = ckpt_copies_is_average(w->item[i].t->name);
            if (w->item[i].copy == AVG_NONE && w->item[i].bare && average == (pass == 1))
                rc = avg_index_one(w, i, average);
        }
    }
    return rc;
}

/* True for the trained weights that ema-pytorch saves beside its average ("online_model."). */
static bool avg_is_online(const char *bare)
{
    return strncmp(bare, "online_model.", 13) == 0;
}

/* Find the model's tensor for each tensor of the copies. */
static void avg_pair(avg_work *w)
{
    for (size_t i = 0; i < w->map->tensors.n; i++) {
        const ckpt_tensor *t = w->map->tensors.at[i];
        avg_item *item = &w->item[i];
        avg_path *path = item->copy == AVG_NONE ? NULL : &w->path[item->copy];
        const ckpt_tensor *of;
        uint32_t at;

        if (!path || avg_is_online(item->bare))
            continue;
        at = ckpt_index_find(&w->bare, avg_hash(item->bare), avg_same, w->item, item->bare);
        of = at == CKPT_INDEX_NONE ? NULL : w->map->tensors.at[at];
        path->n_weights += avg_is_weight(t);
        if (!of) {
            if (avg_is_weight(t) && !path->stranger)
                path->stranger = t->name;
            continue;
        }
        if (of->ndim != t->ndim || avg_is_weight(of) != avg_is_weight(t) ||
            (t->ndim && memcmp(of->shape, t->shape, t->ndim * sizeof *t->shape) != 0)) {
            if (!path->reshaped)
                path->reshaped = t->name;
            continue;
        }
        item->pair = at;
        path->n_equal += avg_is_weight(t);
    }
}

/* True if most weights of a copy are like the model's. */
static bool avg_is_like(const avg_path *p)
{
    return 2 * p->n_equal > p->n_weights;
}

/*
 * Find the pairs. A module of the model may have a name like a copy's ("enc.avg_pool"): if none of
 * its tensors has a pair, it belongs to the model, and the second pass compares the copies with it.
 */
static int avg_pairs(avg_work *w)
{
    bool own[AVG_PATHS] = {false}, any = false;
    int rc = avg_index(w);

    if (rc == CKPT_OK)
        avg_pair(w);
    for (int i = 0; rc == CKPT_OK && avg_is_ema(w) && i < w->n_paths; i++) {
        own[i] = w->path[i].n_equal == 0 && w->path[i].n_weights > 0;
        any = any || own[i];
    }
    if (rc != CKPT_OK || !any)
        return rc;
    for (size_t i = 0; rc == CKPT_OK && i < w->map->tensors.n; i++) {
        avg_item *item = &w->item[i];
        item->pair = SIZE_MAX;
        if (item->copy != AVG_NONE && own[item->copy])
            rc = avg_of_model(w, item);
    }
    for (int i = 0; i < w->n_paths; i++) {
        w->path[i].own = own[i];
        if (!own[i])
            w->path[i] = (avg_path){.at = w->path[i].at, .n = w->path[i].n};
    }
    ckpt_index_free(&w->bare);
    if (rc == CKPT_OK)
        rc = avg_index(w);
    if (rc == CKPT_OK)
        avg_pair(w);
    return rc;
}

/* ---- the choice ---- */

/* "'model_ema' (12 of 12 weights like the model's), ..."; NULL: no memory. */
static const char *avg_text(avg_work *w)
{
    const char *text = "";

    for (int i = 0; text && i < w->n_paths && i < AVG_LISTED; i++)
        text = ckpt_arena_printf(w->map->arena,
                                 "%s%s'%.*s' (%" PRIu64 " of %" PRIu64 " weights like the model's)",
                                 text, i > 0 ? ", " : "", (int)w->path[i].n, w->path[i].at,
                                 w->path[i].n_equal, w->path[i].n_weights);
    return text;
}

/* Choose the only copy that has the model's weights; *out: its number. */
static int avg_choose(avg_work *w, int *out)
{
    int n = 0;

    for (int i = 0; i < w->n_paths; i++) {
        if (!w->path[i].own && avg_is_like(&w->path[i])) {
            *out = i;
            n++;
        }
    }
    const char *text = n == 1 ? "" : avg_text(w);
    if (!text)
        return ckpt_fail_memory(w->err);
    if (n > 1)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "%s: it holds several copies of the model, %s: name one (--weights KEY)",
                         w->map->path, text);
    if (n == 0 && w->n_paths > 0)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "%s: no copy has the names and shapes of the model: %s; --include selects "
                         "tensors by their names",
                         w->map->path, text);
    if (n == 0)
        return ckpt_fail(w->err, CKPT_EMISSING,
                         "%s: --weights %.100s: no tensors beside the model have this key: `ckpt "
                         "ls -a` lists their names",
                         w->map->path, w->which);
    const avg_path *p = &w->path[*out];
    if (p->reshaped || p->stranger)
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "%s: %.200s has %s in the model, so '%.*s' is the average of another "
                         "model",
                         w->map->path, p->reshaped ? p->reshaped : p->stranger,
                         p->reshaped ? "another shape" : "no counterpart", (int)p->n, p->at);
    return CKPT_OK;
}

/*
 * True if the file's model is the average itself: by its path, in a file of Lightning's
 * WeightAveraging, or in one of mmengine's EMAHook, which exchange the two when they save.
 */
static bool avg_is_model(const avg_work *w)
{
    const ckpt_whole_part *model = avg_model(w);
    const ckpt_value *root = w->map->values;

    if (!model)
        return false;
    if (strcmp(model->path, w->which) == 0)
        return true;
    if (!avg_is_ema(w))
        return false;
    return ckpt_copies_is_average(model->path) ||
           (strcmp(model->path, "state_dict") == 0 &&
            ((ckpt_value_get(root, "averaging_state") &&
              ckpt_value_get(root, "current_model_state")) ||
             (ckpt_value_get(root, "message_hub") && ckpt_value_get(root, "ema_state_dict"))));
}

/* ---- taking the copy ---- */

/* The kinds of tensors that stay as they are, or are left out. */
typedef enum avg_rest {
    AVG_KEPT,  /* weights of the model without a copy */
    AVG_OTHER, /* other tensors of the model without a copy */
    AVG_LEFT   /* tensors of the copy without a counterpart */
} avg_rest;

static bool avg_is_rest(const avg_work *w, size_t i, int copy, avg_rest rest)
{
    const avg_item *item = &w->item[i];

    if (rest == AVG_LEFT)
        return item->copy == copy && item->pair == SIZE_MAX;
    // a tensor that is tied to one with a copy has that copy's values
    if (item->copy != AVG_NONE || !item->bare || item->taken ||
        (item->owner != SIZE_MAX && w->item[item->owner].taken))
        return false;
    return avg_is_weight(item->t) == (rest == AVG_KEPT);
}

/* A list of tensors of such a kind; *n: their number. NULL: no memory. */
static const char *avg_list_of(const avg_work *w, int copy, avg_rest rest, uint64_t *n)
{
    const char *text = "";

    *n = 0;
    for (size_t i = 0; text && i < w->map->tensors.n; i++) {
        if (!avg_is_rest(w, i, copy, rest))
            continue;
        if (++*n <= AVG_LISTED)
            text = ckpt_arena_printf(w->map->arena, "%s%s%.100s", text, *n > 1 ? ", " : "",
                                     w->item[i].t->name);
    }
    return text && *n > AVG_LISTED ? ckpt_arena_printf(w->map->arena, "%s ...", text) : text;
}

/* Report a kind of tensors, if there are any. */
static int avg_say(avg_work *w, int copy, avg_rest rest)
{
    static const char *const what[] = {
        "the copy lacks these weights, which keep the model's values",
        "the copy lacks these tensors, which keep the model's values",
        "left out, because the model has no such tensor",
    };
    uint64_t n;
    const char *text = avg_list_of(w, copy, rest, &n);

    if (!text)
        return ckpt_fail_memory(w->err);
    if (n == 0)
        return CKPT_OK;
    return ckpt_map_note(w->map, rest == AVG_KEPT ? CKPT_WARNING : CKPT_INFO, w->err,
                         "%s: '%.*s': %s: %s", w->map->path, (int)w->path[copy].n, w->path[copy].at,
                         what[rest], text);
}

/* Refuse a copy of less than half of the model, and one that tears tied tensors apart. */
static int avg_check(avg_work *w, int copy, uint64_t n)
{
    const avg_path *p = &w->path[copy];
    uint64_t n_kept;

    if (!avg_list_of(w, copy, AVG_KEPT, &n_kept))
        return ckpt_fail_memory(w->err);
    if (n_kept > n)
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "%s: '%.*s' has copies of only %" PRIu64 " of the model's tensors, and "
                         "lacks %" PRIu64 " of its weights: --include selects tensors by their "
                         "names",
                         w->map->path, (int)p->n, p->at, n, n_kept);
    for (size_t i = 0; i < w->map->tensors.n; i++) {
        const avg_item *item = &w->item[i];
        if (!item->taken || item->heir == item->t || item->owner == SIZE_MAX ||
            w->item[item->owner].taken || w->item[item->owner].copy != AVG_NONE)
            continue;
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "%s: '%.150s' and '%.150s' share one tensor, but '%.*s' has an average of "
                         "the first alone: separate the two first (ckpt convert --untie)",
                         w->map->path, item->t->name, w->item[item->owner].t->name, (int)p->n,
                         p->at);
    }
    return CKPT_OK;
}

/* Note the tensor of each pair's copy as the heir of the model's. */
static int avg_inherit(avg_work *w, int copy, uint64_t *n)
{
    const avg_path *p = &w->path[copy];

    for (size_t i = 0; i < w->map->tensors.n; i++) {
        avg_item *item = &w->item[i], *of = item->pair == SIZE_MAX ? NULL : &w->item[item->pair];
        if (item->copy != copy || !of)
            continue;
        if (of->taken)
            return ckpt_fail(w->err, CKPT_EMISMATCH, "%s: two tensors of '%.*s' stand for %.200s",
                             w->map->path, (int)p->n, p->at, of->t->name);
        of->taken = true;
        // a copy that shares the model's values has equal ones
        of->heir = item->t->owner == of->t ? of->t : item->t;
        ++*n;
    }
    return CKPT_OK;
}

/* Replace the map's list: without the copy, and with the heirs in the places of their pairs. */
static void avg_list(avg_work *w, int copy)
{
    ckpt_tensors *all = &w->map->tensors;
    size_t n = all->n, kept = 0;

    for (size_t i = 0; i < n; i++) {
        avg_item *item = &w->item[i];
        if (item->copy == copy)
            continue;
        ckpt_tensor *t = item->heir ? item->heir : item->t;
        t->name = item->t->name;
        t->role = item->t->role;
        all->at[kept++] = t;
    }
    all->n = kept;
}

/* Tensors that were tied to one that has left the list get its heir, or values of their own. */
static void avg_ties(avg_work *w, int copy, size_t n)
{
    const ckpt_tensors *all = &w->map->tensors;

    for (size_t i = 0; i < n; i++) {
        const avg_item *item = &w->item[i], *of;
        ckpt_tensor *t = item->t;
        bool is_copy = item->copy == copy;

        if (item->owner == SIZE_MAX || (item->heir && item->heir != t) ||
            (is_copy && (item->pair == SIZE_MAX || w->item[item->pair].heir != t)))
            continue;
        of = &w->item[item->owner];
        bool listed = of->copy == copy ? of->pair != SIZE_MAX && w->item[of->pair].heir == of->t
                                       : !of->heir || of->heir == of->t;
        if (listed || t->owner != of->t)
            continue;
        if (of->heir && !is_copy)
            t->owner = of->heir;
        else
            ckpt_extent_own(t, all->at, all->n);
    }
}

/* True for a count of the updates that an average has: torch's AveragedModel, ExponentialMoving-
 * Average of several programs. */
static bool avg_is_count(const char *name)
{
    const char *dot = strrchr(name, '.'), *leaf = dot ? dot + 1 : name;

    return strcmp(leaf, "n_averaged") == 0 || strcmp(leaf, "num_updates") == 0;
}

static int avg_empty(const avg_work *w, const char *count)
{
    return ckpt_fail(w->err, CKPT_EMISMATCH,
                     "%s: %.200s is 0: no weights have been averaged, so the averaged copy is "
                     "the weights at the start of the run; leave --weights out to convert the "
                     "trained weights",
                     w->map->path, count);
}

/* The value of a path of keys in the file's tree; NULL: it has none. */
static const ckpt_value *avg_value(const ckpt_value *v, const char *path, size_t n)
{
    ckpt_dict all = ckpt_value_map(v);

    if (n == 0)
        return v;
    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_text key = all.at[i].key->as.text;
        const ckpt_value *found = NULL;
        if (all.at[i].key->kind != CKPT_V_STR || key.n > n || memcmp(key.at, path, key.n) != 0)
            continue;
        if (key.n == n)
            found = all.at[i].value;
        else if (path[key.n] == '.')
            found = avg_value(all.at[i].value, path + key.n + 1, n - key.n - 1);
        if (found)
            return found;
    }
    return NULL;
}

/* True in *zero if an integer of one element is 0, whatever its dtype. */
static int avg_is_zero(const avg_work *w, const ckpt_tensor *t, bool *zero)
{
    uint8_t bytes[16] = {0};
    int rc = CKPT_OK;

    *zero = ckpt_tensor_bytes(t) <= sizeof bytes;
    if (*zero)
        rc = ckpt_tensor_read(w->map, t, t->dtype, bytes, w->err);
    for (size_t i = 0; i < sizeof bytes; i++)
        *zero = *zero && bytes[i] == 0;
    return rc;
}

/* Refuse a copy that counts its updates and has none, as a tensor or as a number. */
static int avg_counts(const avg_work *w, int copy)
{
    const avg_path *p = &w->path[copy];
    const ckpt_value *of = avg_value(w->map->values, p->at, p->n);
    const ckpt_dict all = ckpt_value_map(of);
    bool zero = false;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->map->tensors.n; i++) {
        const ckpt_tensor *t = w->item[i].t;
        const ckpt_kind_of kind = ckpt_dtype_get(t->dtype)->kind;
        if (w->item[i].copy != copy || t->n_elems != 1 || !avg_is_count(t->name) ||
            (kind != CKPT_IS_INT && kind != CKPT_IS_UINT))
            continue;
        rc = avg_is_zero(w, t, &zero);
        if (rc == CKPT_OK && zero)
            rc = avg_empty(w, t->name);
    }
    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        const ckpt_pair *pair = &all.at[i];
        if (pair->key->kind == CKPT_V_STR && avg_is_count(pair->key->as.text.at) &&
            pair->value->kind == CKPT_V_INT && pair->value->as.i == 0)
            rc = avg_empty(w, pair->key->as.text.at);
    }
    return rc;
}

static int avg_replace(avg_work *w, int copy)
{
    const avg_path *p = &w->path[copy];
    size_t n_all = w->map->tensors.n;
    uint64_t n = 0;
    int rc = avg_counts(w, copy);

    if (rc == CKPT_OK)
        rc = avg_inherit(w, copy, &n);
    if (rc == CKPT_OK)
        rc = avg_check(w, copy, n);
    if (rc == CKPT_OK)
        rc = ckpt_map_note(w->map, CKPT_INFO, w->err,
                           "%s: the weights are %" PRIu64 " tensor%s of '%.*s'", w->map->path, n,
                           n == 1 ? "" : "s", (int)p->n, p->at);
    for (unsigned rest = AVG_KEPT; rc == CKPT_OK && rest <= AVG_LEFT; rest++)
        rc = avg_say(w, copy, (avg_rest)rest);
    if (rc != CKPT_OK)
        return rc;
    avg_list(w, copy);
    avg_ties(w, copy, n_all);
    return ckpt_map_reindex(w->map, w->err);
}

/* Fill the list of items: the map's tensors, and the numbers of their owners. */
static void avg_items(avg_work *w)
{
    const ckpt_map *map = w->map;

    for (size_t i = 0; i < map->tensors.n; i++) {
        ckpt_tensor *t = map->tensors.at[i];
        size_t at =
            t->owner ? ckpt_map_index(map, t->owner->name, strlen(t->owner->name)) : SIZE_MAX;
        if (at != SIZE_MAX && map->tensors.at[at] != t->owner)
            at = SIZE_MAX;
        w->item[i] = (avg_item){.t = t, .owner = at, .copy = AVG_NONE, .pair = SIZE_MAX};
    }
}

static int avg_change(avg_work *w)
{
    int copy = AVG_NONE, rc = CKPT_OK;

    if (ckpt_is_dict(w->map))
        rc = ckpt_whole_of(&w->whole, w->map->values, w->map->arena, w->err);
    if (rc == CKPT_OK && avg_is_model(w))
        return ckpt_map_note(w->map, CKPT_INFO, w->err,
                             "%s: the file's model (%.80s) has these weights already", w->map->path,
                             avg_model(w)->path);
    if (rc == CKPT_OK) {
        avg_items(w);
        rc = avg_sort(w);
    }
    if (rc == CKPT_OK)
        rc = avg_pairs(w);
    if (rc == CKPT_OK)
        rc = avg_choose(w, &copy);
    return rc == CKPT_OK ? avg_replace(w, copy) : rc;
}

/* Drop the optimizer's state, which belongs to the trained weights. */
static int avg_drop_state(ckpt_map *map, ckpt_err *err)
{
    size_t kept = 0;

    for (size_t i = 0; i < map->tensors.n; i++) {
        ckpt_tensor *t = map->tensors.at[i];
        if (t->role == CKPT_ROLE_STATE)
            continue;
        if (t->owner && t->owner->role == CKPT_ROLE_STATE)
            ckpt_extent_own(t, map->tensors.at, map->tensors.n);
        map->tensors.at[kept++] = t;
    }
    map->tensors.n = kept;
    map->states.n = 0;
    map->averaged = true;
    return ckpt_map_reindex(map, err);
}

int ckpt_map_take_weights(ckpt_map *map, const char *which, ckpt_err *err)
{
    ckpt_err_clear(err);
    avg_work w = {.map = map, .which = which, .whole = {.model = SIZE_MAX}, .err = err};
    ckpt_savepoint *saved = NULL;

    if (!map || !which || !*which)
        return ckpt_fail(err, CKPT_EUSAGE, "no map, or no weights, to take are given");
    int rc = ckpt_savepoint_new(&saved, map, err);
    if (rc != CKPT_OK)
        return rc;
    if (strcmp(which, CKPT_SCHEDULE_FREE) == 0) {
        rc = ckpt_schedule_free(map, err);
    } else {
        w.item = ckpt_alloc((map->tensors.n + 1) * sizeof *w.item);
        rc = w.item ? avg_change(&w) : ckpt_fail_memory(err);
    }
    if (rc == CKPT_OK)
        rc = avg_drop_state(map, err);
    ckpt_free(w.item);
    ckpt_index_free(&w.bare);
    ckpt_whole_free(&w.whole);
    return ckpt_savepoint_end(saved, rc);
}
