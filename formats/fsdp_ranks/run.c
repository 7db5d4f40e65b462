/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c: makes weights, named optimizer state and the tree of values from the files of a run.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "ckpt_extra.h"
#include "formats/fsdp_ranks/ranks.h"
#include "formats/torch/torch.h"
#include "formats/training/same_value.h"
#include "formats/training/torch_state.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/number.h"

enum { RRU_NODES = 10000000 }; /* limit of nodes for the comparison of two ranks' values */

/* ---- files ---- */

/* Read a file's object into `of`, which is the output map for the first rank. */
static int rru_object(ckpt_ranks_run *r, ckpt_map *of, ckpt_io *io, uint32_t number,
                      ckpt_value **root)
{
    const ckpt_torch_range range = {
        .io = io, .file = number, .at = 0, .n = r->map->files.at[number].size};

    return ckpt_torch_inner(root, of, &range, r->err);
}

int ckpt_ranks_use(ckpt_ranks_run *r, ckpt_ranks_file *file, ckpt_ranks_file_kind kind,
                   ckpt_value *root, ckpt_ranks_take *take)
{
    assert(kind < CKPT_RANKS_KINDS && root && take);
    size_t n = file->of->sources.n;
    uint32_t *source = ckpt_alloc((n + 1) * sizeof *source);
    int rc;

    if (!source)
        return ckpt_fail_memory(r->err);
    for (size_t i = 0; i < n; i++)
        source[i] = file->of == r->map ? (uint32_t)i : UINT32_MAX;
    file->source = source;
    if (file->where.rank == 0)
        r->root[kind] = root;
    rc = take(r, file, root);
    ckpt_free(source);
    return rc;
}

int ckpt_ranks_read(ckpt_ranks_run *r, const char *name, ckpt_ranks_file_kind kind, uint32_t rank,
                    ckpt_ranks_take *take)
{
    assert(kind < CKPT_RANKS_KINDS && rank < r->world && take);
    const char *path = ckpt_path_join(r->map->arena, r->path, name);
    ckpt_ranks_file file = {.map = r->map,
                            .where = {.file = path, .rank = rank, .world = r->world}};
    ckpt_map_file entry = {.format = &ckpt_format_torch};
    ckpt_map *scratch = NULL;
    ckpt_value *root = NULL;
    ckpt_io *io = NULL;
    uint32_t number;
    int rc = path ? ckpt_io_open(&io, path, r->err) : ckpt_fail_memory(r->err);

    if (rc == CKPT_OK) {
        ckpt_io_identify(io, &entry);
        rc = ckpt_map_add_file(r->map, &entry, &number, r->err);
    }
    if (rc == CKPT_OK && rank > 0)
        rc = ckpt_map_create(&scratch, 0, r->err);
    if (rc == CKPT_OK) {
        ckpt_map *of = scratch ? scratch : r->map;
        file.of = of;
        rc = rru_object(r, of, io, number, &root);
    }
    if (rc == CKPT_OK)
        rc = ckpt_ranks_use(r, &file, kind, root, take);
    ckpt_map_free(scratch);
    ckpt_io_close(io);
    return rc;
}

/* ---- model ---- */

int ckpt_ranks_take_model(ckpt_ranks_run *r, const ckpt_ranks_file *file, ckpt_value *root)
{
    const ckpt_value *first = r->root[CKPT_RANKS_MODEL];
    ckpt_dict dict = ckpt_value_map(root);
    int rc = CKPT_OK;

    if (root->kind != CKPT_V_DICT && root->kind != CKPT_V_ODICT)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: holds no dict of tensors", file->where.file);
    for (uint64_t i = 0; rc == CKPT_OK && i < dict.n; i++) {
        ckpt_ranks_file one = *file;
        if (dict.at[i].key->kind != CKPT_V_STR)
            return ckpt_fail(
                r->err, CKPT_EFORMAT,
                "%s: a key of the model's dict is not a string; expected names of tensors",
                file->where.file);
        one.where.key = dict.at[i].key->as.text.at;
        if (strstr(one.where.key, "_flat_param"))
            return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                             "%s: %.200s is a flat parameter (FSDP1, LOCAL_STATE_DICT), and the "
                             "files do not say which parameters are in it and with which shapes; "
                             "save with SHARDED_STATE_DICT or FULL_STATE_DICT",
                             file->where.file, one.where.key);
        if (!ckpt_ranks_is_part(dict.at[i].value) && dict.at[i].value->kind != CKPT_V_OBJECT) {
            // a module's extra state is no tensor: the first rank's is kept as a value
            const ckpt_value *key = dict.at[i].key, *own = ckpt_value_get(first, key->as.text.at);
            bool same = file->where.rank == 0;
            if (!same && own)
                rc = ckpt_value_compare(&same, own, dict.at[i].value, RRU_NODES, r->err);
            if (rc == CKPT_OK && !same && !ckpt_ranked_add(r->map->arena, &r->client, key, false))
                rc = ckpt_fail_memory(r->err);
            continue;
        }
        rc = ckpt_ranks_add(&r->model, &one, one.where.key, dict.at[i].value, r->err);
    }
    return rc;
}

/* Check that every rank has every tensor, with the same shape. */
static int rru_check_model(ckpt_ranks_run *r)
{
    for (size_t i = 0; i < r->model.item.n; i++) {
        const ckpt_ranks_item *item = &r->model.item.at[i];
        if (item->n_held != r->world)
            return ckpt_fail(r->err, CKPT_EMISMATCH,
                             "%s: %.200s is in the files of only %" PRIu32 " of %" PRIu32
                             " ranks: the files may be from different saves",
                             r->path, item->name, item->n_held, r->world);
        if (item->uneven)
            return ckpt_fail(r->err, CKPT_EMISMATCH,
                             "%s: %.200s is a plain tensor of another shape in each rank's file",
                             r->path, item->name);
    }
    return CKPT_OK;
}

/* The tensor of an earlier name with the same bytes, or NULL. */
static const ckpt_tensor *rru_owner(const ckpt_ranks_run *r, size_t item)
{
    for (size_t i = 0; i < item; i++) {
        size_t at;
        if (!ckpt_ranks_same(&r->model.item.at[i], &r->model.item.at[item]))
            continue;
        at = ckpt_map_index(r->map, r->model.item.at[i].name, strlen(r->model.item.at[i].name));
        return at == SIZE_MAX ? NULL : r->map->tensors.at[at];
    }
    return NULL;
}

/*
 * If some tensors are sharded, plain ones are buffers; of the sharded ones, those in the optimizer
 * are trained.
 */
static uint32_t rru_role(const ckpt_ranks_run *r, const ckpt_ranks_item *item, bool parts)
{
    bool known = r->numbers.groups && !r->numbers.why;

    if ((parts && item->kind == CKPT_RANKS_PLAIN) || ckpt_ranks_is_buffer(&r->model, item))
        return CKPT_ROLE_BUFFER;
    for (size_t i = 0; known && i < r->numbers.param.n; i++) {
        if (strcmp(r->numbers.param.at[i].name, item->name) == 0)
            return CKPT_ROLE_WEIGHT;
    }
    if (!known)
        return CKPT_ROLE_WEIGHT;
    return ckpt_dtype_get(item->dtype)->kind == CKPT_IS_FLOAT ? CKPT_ROLE_FROZEN : CKPT_ROLE_BUFFER;
}

static int rru_weights(ckpt_ranks_run *r)
{
    bool parts = false;
    int rc = CKPT_OK;

    for (size_t i = 0; i < r->model.item.n; i++)
        parts |= r->model.item.at[i].kind != CKPT_RANKS_PLAIN;
    for (size_t i = 0; rc == CKPT_OK && i < r->model.item.n; i++) {
        ckpt_ranks_item *item = &r->model.item.at[i];
        const ckpt_tensor *owner = rru_owner(r, i);
        const ckpt_ranks_name as = {item->name, rru_role(r, item, parts), NULL};
        ckpt_tensor *t;
        if (!owner) {
            rc = ckpt_ranks_emit(NULL, r->map, item, &as, r->err);
            continue;
        }
        const ckpt_tensor like = {
            .dtype = item->dtype, .ndim = item->ndim, .shape = item->shape, .role = as.role};
        rc = ckpt_map_add(r->map, item->name, strlen(item->name), &like, &t, r->err);
        if (rc == CKPT_OK)
            t->owner = owner->owner ? owner->owner : owner;
    }
    return rc;
}

/* ---- optimizer ---- */

/* True for digits: a distributed checkpoint turns integer keys into strings. */
static bool rru_is_number(const ckpt_value *key)
{
    return key->kind == CKPT_V_STR && key->as.text.n > 0 &&
           strspn(key->as.text.at, "0123456789") == key->as.text.n;
}

/* True for a number or string that an optimizer keeps per parameter. */
static bool rru_is_plain(const ckpt_value *v)
{
    return v->kind == CKPT_V_INT || v->kind == CKPT_V_FLOAT || v->kind == CKPT_V_BOOL ||
           v->kind == CKPT_V_STR;
}

/* Check such a value against the first rank's, which is used. */
static int rru_check_plain(ckpt_ranks_run *r, const ckpt_ranks_file *file, const ckpt_value *key,
                           const ckpt_pair *p)
{
    ckpt_dict first = ckpt_value_map(ckpt_value_get(r->root[CKPT_RANKS_OPTIM], "state"));
    const ckpt_value *had = NULL;

    for (uint64_t i = 0; file->where.rank > 0 && !had && i < first.n; i++) {
        if (ckpt_value_equal(first.at[i].key, key, 1))
            had = ckpt_value_get(first.at[i].value, p->key->as.text.at);
    }
    if (file->where.rank == 0 || (had && ckpt_value_equal(had, p->value, 1)))
        return CKPT_OK;
    return ckpt_fail(r->err, CKPT_EMISMATCH,
                     "%s: the optimizer's %.100s of a parameter differs from rank 0's: the files "
                     "may be from different saves",
                     file->where.file, p->key->as.text.at);
}

/* Add one kind of a parameter's state. */
static int rru_take_kind(ckpt_ranks_run *r, const ckpt_ranks_file *file, const ckpt_value *key,
                         const ckpt_pair *pair)
{
    const ckpt_value *kind = pair->key, *v = pair->value;
    ckpt_ranks_file one = *file;

    if (kind->kind != CKPT_V_STR || strchr(kind->as.text.at, '/'))
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: a key of a parameter's state is not a string without '/'",
                         file->where.file);
    if (v->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (rru_is_plain(v))
        return rru_check_plain(r, file, key, pair);
    if (!ckpt_ranks_is_part(v) && v->kind != CKPT_V_OBJECT)
        return ckpt_fail(
            r->err, CKPT_EUNSUPPORTED,
            "%s: the optimizer's %.100s is neither a tensor nor a number, and ckpt reads only "
            "those from files of each rank; save with torch.distributed.checkpoint",
            file->where.file, kind->as.text.at);
    one.where.key =
        key->kind == CKPT_V_STR
            ? ckpt_arena_printf(r->map->arena, "%s/%s", kind->as.text.at, key->as.text.at)
            : ckpt_arena_printf(r->map->arena, "%s/%" PRId64, kind->as.text.at, key->as.i);
    return one.where.key ? ckpt_ranks_add(&r->optim, &one, one.where.key, v, r->err)
                         : ckpt_fail_memory(r->err);
}

/* Add a rank's state of one parameter; bitsandbytes keeps some of it in a dict of its own. */
static int rru_take_state(ckpt_ranks_run *r, const ckpt_ranks_file *file, const ckpt_value *key,
                          const ckpt_value *state)
{
    ckpt_dict dict = ckpt_value_map(state),
              inner = ckpt_value_map(ckpt_value_get(state, CKPT_BNB_KEY));
    int rc = CKPT_OK;

    // the groups decide, because a parameter's name may consist of digits
    r->by_name |= key->kind == CKPT_V_STR && !rru_is_number(key);
    if (key->kind != CKPT_V_STR && (key->kind != CKPT_V_INT || key->as.i < 0))
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: the optimizer's state has a key that is neither a number nor a name",
                         file->where.file);
    for (uint64_t i = 0; rc == CKPT_OK && i < dict.n; i++) {
        if (inner.n == 0 || !ckpt_value_is(dict.at[i].key, CKPT_BNB_KEY))
            rc = rru_take_kind(r, file, key, &dict.at[i]);
    }
    for (uint64_t i = 0; rc == CKPT_OK && i < inner.n; i++)
        rc = rru_take_kind(r, file, key, &inner.at[i]);
    return rc;
}

/* Warn once about a value of the optimizer that belongs to no parameter. */
static int rru_left(const ckpt_ranks_run *r, const ckpt_value *key)
{
    return ckpt_map_note_once(
        r->map, CKPT_WARNING, r->err,
        "%s: optimizer state '%.100s' belongs to no parameter and is left out", r->path,
        key->as.text.at);
}

/* Report the optimizer's values beside the dicts of parameters and groups. */
static int rru_take_others(const ckpt_ranks_run *r, const ckpt_value *root)
{
    ckpt_dict all = ckpt_value_map(root), state = ckpt_value_map(ckpt_value_get(root, "state"));
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        const ckpt_value *key = all.at[i].key;
        if (key->kind == CKPT_V_STR && !ckpt_value_is(key, "state") &&
            !ckpt_value_is(key, "param_groups") && all.at[i].value->kind != CKPT_V_NONE)
            rc = rru_left(r, key);
    }
    for (uint64_t i = 0; rc == CKPT_OK && i < state.n; i++) {
        const ckpt_value *v = state.at[i].value;
        if (state.at[i].key->kind == CKPT_V_STR && v->kind != CKPT_V_DICT &&
            v->kind != CKPT_V_ODICT)
            rc = rru_left(r, state.at[i].key);
    }
    return rc;
}

int ckpt_ranks_take_optim(ckpt_ranks_run *r, const ckpt_ranks_file *file, ckpt_value *root)
{
    const ckpt_value *groups = ckpt_value_get(root, "param_groups"),
                     *first = ckpt_value_get(r->root[CKPT_RANKS_OPTIM], "param_groups");
    ckpt_dict state = ckpt_value_map(ckpt_value_get(root, "state"));
    bool same = file->where.rank == 0;
    int rc = CKPT_OK;

    if (ckpt_value_map(root).n == 0 && (file->where.rank == 0 || !first))
        return CKPT_OK; // {} means that no optimizer was saved
    if (!groups)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: holds no optimizer with param_groups",
                         file->where.file);
    if (file->where.rank > 0 && first)
        rc = ckpt_value_compare(&same, groups, first, RRU_NODES, r->err);
    if (rc == CKPT_OK && !same)
        return ckpt_fail(r->err, CKPT_EMISMATCH,
                         "%s: the optimizer's groups differ from rank 0's: the files may be from "
                         "different saves",
                         file->where.file);
    if (rc == CKPT_OK)
        rc = rru_take_others(r, root);
    for (uint64_t i = 0; rc == CKPT_OK && i < state.n; i++)
        rc = rru_take_state(r, file, state.at[i].key, state.at[i].value);
    return rc;
}

/* The kind of state: an item's name up to the slash. */
static const char *rru_kind_of(ckpt_ranks_run *r, const ckpt_ranks_item *item)
{
    return ckpt_arena_string(r->map->arena, item->name,
                             (size_t)(strchr(item->name, '/') - item->name));
}

/* Make the state tensor of one parameter from an item, or from its part of a flat item. */
static int rru_moment(ckpt_ranks_run *r, ckpt_ranks_item *item, const char *kind,
                      const ckpt_ranks_param *p)
{
    ckpt_ranks_name as = {.role = CKPT_ROLE_STATE};
    ckpt_ranks_item flat;
    uint64_t n = 1;
    int rc;

    as.name = ckpt_arena_printf(r->map->arena, "%s/%s", kind, p->name);
    if (!as.name)
        return ckpt_fail_memory(r->err);
    if (item->ndim == 0 || r->numbers.form == CKPT_RANKS_WHOLE)
        return ckpt_ranks_emit(NULL, r->map, item, &as, r->err);
    for (uint32_t k = 0; k < p->model->ndim; k++)
        n *= p->model->shape[k]; // no overflow: the map has checked this product
    as.like = p->model;
    rc = ckpt_ranks_flat(&flat, item, r->map->arena,
                         &(ckpt_ranks_range){p->first, n, r->numbers.group}, r->err);
    if (rc == CKPT_OK)
        rc = ckpt_ranks_emit(NULL, r->map, &flat, &as, r->err);
    ckpt_vec_free(&flat.piece);
    return rc;
}

/* Keep state of an unknown parameter under its number. */
static int rru_unnamed(ckpt_ranks_run *r, ckpt_ranks_item *item, const char *kind)
{
    const ckpt_ranks_name as = {ckpt_arena_printf(r->map->arena, "optimizer.state.%s.%s",
                                                  strchr(item->name, '/') + 1, kind),
                                CKPT_ROLE_OTHER, NULL};
    ckpt_ranks_item flat;
    int rc;

    if (!as.name)
        return ckpt_fail_memory(r->err);
    if (item->kind != CKPT_RANKS_PLAIN || item->ndim != 1 || r->numbers.form == CKPT_RANKS_WHOLE)
        return ckpt_ranks_emit(NULL, r->map, item, &as, r->err);
    const ckpt_ranks_range all = {0, ckpt_ranks_flat_n(item, r->numbers.group), r->numbers.group};
    rc = ckpt_ranks_flat(&flat, item, r->map->arena, &all, r->err);
    if (rc == CKPT_OK)
        rc = ckpt_ranks_emit(NULL, r->map, &flat, &as, r->err);
    ckpt_vec_free(&flat.piece);
    return rc;
}

static int rru_moments_of(ckpt_ranks_run *r, ckpt_ranks_item *item)
{
    const char *kind = rru_kind_of(r, item), *of = strchr(item->name, '/') + 1;
    uint64_t number = UINT64_MAX;
    bool found = false;
    int rc = kind ? CKPT_OK : ckpt_fail_memory(r->err);

    if (rc != CKPT_OK)
        return rc;
    if (r->by_name) {
        const ckpt_ranks_name as = {item->name, CKPT_ROLE_STATE, NULL};
        return ckpt_ranks_emit(NULL, r->map, item, &as, r->err);
    }
    if (r->numbers.why)
        return rru_unnamed(r, item, kind);
    bool is = ckpt_parse_u64(of, &number);
    for (size_t i = 0; rc == CKPT_OK && is && i < r->numbers.param.n; i++) {
        if (r->numbers.param.at[i].number == number) {
            rc = rru_moment(r, item, kind, &r->numbers.param.at[i]);
            found = true;
        }
    }
    return found ? rc
                 : ckpt_fail(r->err, CKPT_EFORMAT,
                             "%s: state of parameter %s, which is in no group of the optimizer",
                             r->path, of);
}

/* ---- values ---- */

/* The parameter of a number; parameters are sorted by number. */
static const ckpt_ranks_param *rru_param(const ckpt_ranks_run *r, const ckpt_value *value)
{
    const ckpt_ranks_param *all = r->numbers.param.at;
    size_t low = 0, high = r->numbers.param.n;
    int64_t number;

    if (!ckpt_value_as_int(value, &number))
        return NULL;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (all[mid].number < (uint64_t)number)
            low = mid + 1;
        else
            high = mid;
    }
    return low < r->numbers.param.n && all[low].number == (uint64_t)number ? &all[low] : NULL;
}

/*
 * The names of a group's parameters in the order of the group; for flat parameters those inside, in
 * the model's order.  NULL: no memory.
 */
static ckpt_value *rru_names(ckpt_ranks_run *r, const ckpt_value *group, uint64_t number)
{
    ckpt_arena *arena = r->map->arena;
    ckpt_seq params = ckpt_value_seq(ckpt_value_get(group, "params"));
    const ckpt_ranks_param *all = r->numbers.param.at;
    ckpt_value *names = ckpt_value_new(arena, CKPT_V_LIST);
    bool ok = names != NULL, units = r->numbers.form == CKPT_RANKS_UNITS;

    for (size_t k = 0; ok && units && k < r->numbers.param.n; k++) {
        if (all[k].group == number)
            ok = ckpt_seq_add(arena, &names->as.seq, ckpt_value_cstr(arena, all[k].name));
    }
    for (uint64_t i = 0; ok && !units && i < params.n; i++) {
        const ckpt_ranks_param *p = rru_param(r, params.at[i]);
        ok = p && ckpt_seq_add(arena, &names->as.seq, ckpt_value_cstr(arena, p->name));
    }
    return ok ? names : NULL;
}

/* Copy a group's settings with names instead of numbers. */
static ckpt_value *rru_group(ckpt_ranks_run *r, const ckpt_value *group, uint64_t number)
{
    ckpt_arena *arena = r->map->arena;
    ckpt_dict from = ckpt_value_map(group);
    bool named = !r->by_name && !r->numbers.why;
    ckpt_value *to = ckpt_value_new(arena, CKPT_V_DICT),
               *names = named ? rru_names(r, group, number) : to;
    bool ok = to && names;

    for (uint64_t i = 0; ok && i < from.n; i++) {
        const ckpt_value *key = from.at[i].key;
        if (!named || !ckpt_value_is(key, "param_names"))
            ok = ckpt_dict_add(arena, &to->as.map, from.at[i].key,
                               named && ckpt_value_is(key, "params") ? names : from.at[i].value);
    }
    return ok ? to : NULL;
}

/* Enter a parameter's values under its name; for a flat parameter under the names of its
 * members. */
static bool rru_put_plain(ckpt_ranks_run *r, ckpt_value *state, ckpt_value *key, ckpt_value *of)
{
    ckpt_arena *arena = r->map->arena;
    uint64_t number = key->kind == CKPT_V_INT ? (uint64_t)key->as.i : 0;
    bool ok = true;

    if (r->by_name || r->numbers.why)
        return ckpt_dict_add(arena, &state->as.map, key, of);
    if (key->kind == CKPT_V_STR && !ckpt_parse_u64(key->as.text.at, &number))
        return true; // the number of no parameter
    for (size_t k = 0; ok && k < r->numbers.param.n; k++) {
        const ckpt_ranks_param *p = &r->numbers.param.at[k];
        if (p->number == number)
            ok = ckpt_dict_add_cstr(arena, &state->as.map, p->name, of);
    }
    return ok;
}

/* Collect the optimizer's values per parameter that are not tensors: {name: {kind: value}}. */
static ckpt_value *rru_plain(ckpt_ranks_run *r)
{
    ckpt_arena *arena = r->map->arena;
    ckpt_dict all = ckpt_value_map(ckpt_value_get(r->root[CKPT_RANKS_OPTIM], "state"));
    ckpt_value *state = ckpt_value_new(arena, CKPT_V_DICT);
    bool ok = state != NULL;

    for (uint64_t i = 0; ok && i < all.n; i++) {
        ckpt_dict from = ckpt_value_map(all.at[i].value);
        ckpt_value *of = ckpt_value_new(arena, CKPT_V_DICT);
        ok = of != NULL;
        for (uint64_t k = 0; ok && k < from.n; k++) {
            if (rru_is_plain(from.at[k].value))
                ok = ckpt_dict_add(arena, &of->as.map, from.at[k].key, from.at[k].value);
        }
        if (ok && of->as.map.n > 0)
            ok = rru_put_plain(r, state, all.at[i].key, of);
    }
    return ok ? state : NULL;
}

static ckpt_value *rru_optimizer(ckpt_ranks_run *r)
{
    ckpt_seq groups = ckpt_value_seq(r->numbers.groups);
    ckpt_value *out = ckpt_value_new(r->map->arena, CKPT_V_DICT),
               *list = ckpt_value_new(r->map->arena, CKPT_V_LIST);

    for (uint64_t i = 0; list && i < groups.n; i++) {
        ckpt_value *group = rru_group(r, groups.at[i], i);
        if (!group || !ckpt_seq_add(r->map->arena, &list->as.seq, group))
            return NULL;
    }
    ckpt_value *state = rru_plain(r);
    bool ok = out && list && state;
    if (ok && state->as.map.n > 0)
        ok = ckpt_dict_add_cstr(r->map->arena, &out->as.map, "state", state);
    return ok && ckpt_dict_add_cstr(r->map->arena, &out->as.map, "param_groups", list) ? out : NULL;
}

/* Make the tree of values from the first rank: optimizer settings, non-tensors, extra state. */
static int rru_values(ckpt_ranks_run *r)
{
    ckpt_arena *arena = r->map->arena;
    ckpt_value *root = ckpt_value_new(arena, CKPT_V_DICT), *optimizer = NULL;
    ckpt_dict model = ckpt_value_map(r->root[CKPT_RANKS_MODEL]),
              extra = ckpt_value_map(r->root[CKPT_RANKS_EXTRA]);
    ckpt_value *beside = ckpt_value_new(arena, CKPT_V_DICT);
    bool ok = root && beside;

    for (uint64_t i = 0; ok && i < model.n; i++) {
        if (!ckpt_ranks_find(&r->model, model.at[i].key->as.text.at))
            ok = ckpt_dict_add(arena, &beside->as.map, model.at[i].key, model.at[i].value);
    }
    if (ok && beside->as.map.n > 0)
        ok = ckpt_dict_add_cstr(arena, &root->as.map, "model", beside);
    if (ok && r->numbers.groups) {
        optimizer = rru_optimizer(r);
        ok = optimizer && ckpt_dict_add_cstr(arena, &root->as.map, "optimizer", optimizer);
    }
    for (uint64_t i = 0; ok && i < extra.n; i++)
        ok = ckpt_dict_add(arena, &root->as.map, extra.at[i].key, extra.at[i].value);
    r->map->values = root;
    return ok ? CKPT_OK : ckpt_fail_memory(r->err);
}

/* Record the values of a dict that another rank's dict lacks, or that differ there. */
static int rru_differ(ckpt_ranks_run *r, ckpt_train_side *x, const ckpt_value *of,
                      ckpt_train_side *y, const ckpt_value *than)
{
    ckpt_dict all = ckpt_value_map(of), other = ckpt_value_map(than);
    uint64_t hint = 0;
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        const ckpt_value *key = all.at[i].key;
        if (key->kind != CKPT_V_STR || ckpt_value_is(key, "lr_scheduler"))
            continue;
        if (!ckpt_train_same_value(x, all.at[i].value, y, ckpt_train_member(other, key, &hint)) &&
            !ckpt_ranked_add(r->map->arena, &r->client, key, false))
            rc = ckpt_fail_memory(r->err);
    }
    return rc;
}

/* Check that ranks agree on the schedule; other values may differ. */
int ckpt_ranks_take_extra(ckpt_ranks_run *r, const ckpt_ranks_file *file, ckpt_value *root)
{
    const ckpt_value *all = r->root[CKPT_RANKS_EXTRA], *mine = ckpt_value_get(root, "lr_scheduler"),
                     *first = ckpt_value_get(all, "lr_scheduler");
    // the first rank's trees are in the output map, which `of` is then, too
    ckpt_train_side x = {.map = r->map}, y = {.map = file->of};
    int rc = CKPT_OK;

    if (root->kind != CKPT_V_DICT && root->kind != CKPT_V_ODICT)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: holds no dict", file->where.file);
    if (file->where.rank > 0) {
        rc = rru_differ(r, &x, all, &y, root);
        rc = rc == CKPT_OK ? rru_differ(r, &y, root, &x, all) : rc;
    }
    ckpt_reader_free(x.reader);
    ckpt_reader_free(y.reader);
    if (rc != CKPT_OK || (!mine && !first))
        return rc;
    bool same = false;
    rc = mine && first ? ckpt_value_compare(&same, mine, first, RRU_NODES, r->err) : CKPT_OK;
    return rc != CKPT_OK || same
               ? rc
               : ckpt_fail(r->err, CKPT_EMISMATCH,
                           "%s: its lr_scheduler differs from rank 0's: the files may be from "
                           "different saves",
                           file->where.file);
}

/* ---- all together ---- */

/* The number of ranks that together hold one copy: all, except in HSDP. */
static uint32_t rru_group_size(const ckpt_ranks_run *r)
{
    for (size_t i = 0; i < r->model.item.n; i++) {
        uint32_t copies = r->model.item.at[i].copies;
        if (copies > 1 && copies <= r->world && r->world % copies == 0 && r->root[CKPT_RANKS_OPTIM])
            return r->world / copies;
    }
    return r->world;
}

/* Read groups that list parameters by name. */
static int rru_named(ckpt_ranks_run *r)
{
    ckpt_seq groups = ckpt_value_seq(r->numbers.groups);

    for (uint64_t g = 0; g < groups.n; g++) {
        ckpt_seq params = ckpt_value_seq(ckpt_value_get(groups.at[g], "params"));
        for (uint64_t i = 0; i < params.n; i++) {
            ckpt_ranks_param *slot = NULL;
            if (params.at[i]->kind != CKPT_V_STR)
                return ckpt_fail(
                    r->err, CKPT_EFORMAT,
                    "%s: the optimizer names some parameters by name and others by number",
                    r->path);
            slot = ckpt_vec_push(&r->numbers.param);
            if (!slot)
                return ckpt_fail_memory(r->err);
            slot->name = params.at[i]->as.text.at;
        }
    }
    return CKPT_OK;
}

static int rru_optim(ckpt_ranks_run *r)
{
    ckpt_seq groups;

    r->numbers.groups = ckpt_value_get(r->root[CKPT_RANKS_OPTIM], "param_groups");
    if (!r->numbers.groups)
        return CKPT_OK;
    groups = ckpt_value_seq(r->numbers.groups);
    for (uint64_t g = 0; g < groups.n; g++) {
        ckpt_seq params = ckpt_value_seq(ckpt_value_get(groups.at[g], "params"));
        r->by_name |= params.n > 0 && params.at[0]->kind == CKPT_V_STR;
    }
    r->numbers.model = &r->model;
    r->numbers.optim = &r->optim;
    r->numbers.order = r->order;
    r->numbers.group = rru_group_size(r);
    r->numbers.why = r->by_name ? NULL : r->no_order;
    if (r->numbers.why)
        return CKPT_OK;
    return r->by_name ? rru_named(r)
                      : ckpt_ranks_number(&r->numbers, r->map->arena, r->path, r->err);
}

/* Check that all ranks have the same step counts, for unknown parameters too. */
static int rru_same_steps(ckpt_ranks_run *r)
{
    static const char head[] = "optimizer.state.", tail[] = ".step";
    ckpt_reader *reader = NULL;
    int rc = ckpt_reader_new(&reader, r->map, r->err);

    for (size_t i = 0; rc == CKPT_OK && i < r->map->tensors.n; i++) {
        const ckpt_tensor *t = r->map->tensors.at[i];
        size_t n = strlen(t->name);
        double step = 0, copy = 0;
        if (t->n_elems != 1 || !t->twin || strncmp(t->name, head, sizeof head - 1) != 0 ||
            n < sizeof tail || strcmp(t->name + n - (sizeof tail - 1), tail) != 0)
            continue;
        rc = ckpt_reader_read(reader, t, 0, 1, CKPT_F64, &step, r->err);
        for (const ckpt_tensor *c = t->twin; rc == CKPT_OK && c; c = c->twin) {
            rc = ckpt_reader_read(reader, c, 0, 1, CKPT_F64, &copy, r->err);
            if (rc == CKPT_OK && (copy < step || copy > step))
                rc = ckpt_fail(r->err, CKPT_EMISMATCH,
                               "%s: %s is %.0f in one rank's file and %.0f in another's: the files "
                               "are from different saves",
                               r->path, t->name, step, copy);
        }
    }
    ckpt_reader_free(reader);
    return rc;
}

/* torch's numbers are positions; FSDP1's units and its rekeyed numbers follow the model. */
static ckpt_train_order rru_order(const ckpt_ranks_run *r)
{
    bool positions = r->numbers.groups && !r->by_name && r->numbers.positions;

    return positions ? CKPT_TRAIN_BY_NUMBER : CKPT_TRAIN_BY_MODEL;
}

static int rru_state(ckpt_ranks_run *r)
{
    int rc;

    if (r->by_name || !r->numbers.groups || !r->numbers.why) {
        rc = ckpt_train_torch_state(r->map, rru_order(r), r->ignore_copies, r->err);
        return rc == CKPT_OK && !r->by_name && r->numbers.assumed
                   ? ckpt_map_note(r->map, CKPT_INFO, r->err,
                                   "%s: the optimizer names its parameters by number and keeps no "
                                   "state whose shapes tell them apart: assuming the model's order "
                                   "(--order FILE sets another one)",
                                   r->path)
                   : rc;
    }
    r->map->no_state = r->numbers.why;
    rc = rru_same_steps(r);
    if (rc != CKPT_OK)
        return rc;
    return ckpt_map_note(r->map, CKPT_WARNING, r->err, "%s: %s: its state is listed by number",
                         r->path, r->numbers.why);
}

static int rru_facts(ckpt_ranks_run *r)
{
    const char *device = NULL;
    int rc = ckpt_map_fact_int(r->map, "world size", (int64_t)r->world, r->err);

    for (size_t i = 0; !device && i < r->model.item.n; i++)
        device = r->model.item.at[i].device;
    if (rc == CKPT_OK && device)
        rc = ckpt_map_fact(r->map, r->err, CKPT_RANKS_DEVICE, "%s", device);

    r->map->known.training = true;
    r->map->known.world = r->world;
    const char *names = "";

    for (const ckpt_ranked *c = r->client; names && c; c = c->next)
        names = ckpt_arena_printf(r->map->arena, "%s%s%.80s", names, *names ? ", " : "",
                                  c->key->as.text.n ? c->key->as.text.at : "''");
    if (!names)
        return ckpt_fail_memory(r->err);
    if (rc == CKPT_OK && *names)
        rc = ckpt_map_note(r->map, CKPT_INFO, r->err,
                           "%s: %s: the ranks have different values; only those of rank 0 are read",
                           r->path, names);
    return rc;
}

int ckpt_ranks_finish(ckpt_ranks_run *r)
{
    assert(r->map && r->world > 0);
    int rc = rru_check_model(r);

    if (rc == CKPT_OK)
        rc = rru_optim(r);
    if (rc == CKPT_OK)
        rc = rru_weights(r);
    for (size_t i = 0; rc == CKPT_OK && i < r->optim.item.n; i++)
        rc = rru_moments_of(r, &r->optim.item.at[i]);
    if (rc == CKPT_OK)
        rc = rru_values(r);
    if (rc == CKPT_OK)
        rc = rru_facts(r);
    if (rc == CKPT_OK)
        rc = ckpt_map_check(r->map, r->err);
    return rc == CKPT_OK && r->with_optimizer ? rru_state(r) : rc;
}

void ckpt_ranks_run_free(ckpt_ranks_run *r)
{
    ckpt_ranks_set_free(&r->model);
    ckpt_ranks_set_free(&r->optim);
    ckpt_vec_free(&r->numbers.param);
}
