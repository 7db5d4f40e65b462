/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept_values.c: keeps a DeepSpeed run's own values in an FSDP folder, and restores them on the way
 * back.
 *
 * FSDP cannot store the loss scale, the counters and the configuration.  A program loads only the
 * keys that it knows, so an additional dict "deepspeed" next to model and optimizer does no harm.
 *
 *     deepspeed / dtype      the training dtype: "BF16"
 *               / steps      the optimizer's step count when the folder was written
 *               / model      members of the model file
 *               / optim      members of the optimizer's file
 *               / optimizer  members of its optimizer_state_dict
 *
 * The names of buffers are among them, because FSDP's files do not distinguish buffers from frozen
 * parameters.  torch turns every dict key into a string, so a dict with numbers as keys is stored
 * as {"(items)": [[0, ...], ...]}.
 *
 * torch unpickles all values when it converts a folder into a single file; objects of DeepSpeed's
 * classes would fail there.  They are stored as dicts instead: {"(class)":
 * "deepspeed.runtime.fp16.loss_scaler.LossScaler", "(state)": {...}}.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "ckpt.h"
#include "formats/training/deepspeed_keys.h"
#include "formats/training/kept_values.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/map.h"

enum { DKP_DEPTH = 16 }; /* limit of nesting in a kept value */

static const char dkp_root[] = "deepspeed", dkp_class[] = "(class)", dkp_state[] = "(state)",
                  dkp_items[] = "(items)";

/* ---- members that FSDP can store ---- */

bool ckpt_train_fsdp_stores(const ckpt_state *state, const ckpt_pair *p)
{
    assert(state && p && p->key);
    if (p->key->kind != CKPT_V_STR || p->value->kind == CKPT_V_NONE)
        return false;
    // belongs to DeepSpeed, although the user's program sets it
    if (!state->foreign && ckpt_value_is(p->key, "universal_checkpoint_info"))
        return false;
    return state->foreign || ckpt_value_is(p->key, "lr_scheduler") ||
           !ckpt_train_is_deepspeed_key(p->key->as.text.at);
}

/*
 * True for members that describe the layout of DeepSpeed's own files.  They are dropped, because
 * the output has another layout; weights and moments in them are written elsewhere.
 */
bool ckpt_train_is_layout(const ckpt_pair *p)
{
    assert(p && p->key);
    static const char *const names[] = {
        "module",
        "param_shapes",
        "frozen_param_shapes",
        "frozen_param_fragments",
        "shared_params",
        "dp_world_size",
        "mp_world_size",
        "checkpoint_parallel_dimensions",
        "zero_stage",
        "partition_count",
        "optimizer_state_dict",
        "base_optimizer_state",
        "fp32_flat_groups",
        "single_partition_of_fp32_groups",
        "group_paddings",
        "param_alignment_paddings",
        "param_slice_mappings",
    };
    bool is = false;

    for (size_t i = 0; !is && i < sizeof names / sizeof *names; i++)
        is = ckpt_value_is(p->key, names[i]);
    return is;
}

/* ---- to plain values ---- */

static ckpt_value *dkp_plain(ckpt_arena *arena, ckpt_value *v, unsigned depth);

/* Convert a dict with keys other than strings to a list of pairs; NULL if a value is not plain
 * data. */
static ckpt_value *dkp_pairs(ckpt_arena *arena, ckpt_dict map, unsigned depth)
{
    ckpt_value *out = ckpt_value_new(arena, CKPT_V_DICT),
               *list = ckpt_value_new(arena, CKPT_V_LIST);
    bool ok = out && list;

    for (uint64_t i = 0; ok && i < map.n; i++) {
        ckpt_value *pair = ckpt_value_new(arena, CKPT_V_LIST),
                   *one = dkp_plain(arena, map.at[i].value, depth);
        ok = pair && one && !ckpt_value_has_children(map.at[i].key) &&
             ckpt_seq_add(arena, &pair->as.seq, map.at[i].key) &&
             ckpt_seq_add(arena, &pair->as.seq, one) && ckpt_seq_add(arena, &list->as.seq, pair);
    }
    return ok && ckpt_dict_add_cstr(arena, &out->as.map, dkp_items, list) ? out : NULL;
}

/* Convert the members of a dict or list; NULL if one is not plain data. */
static ckpt_value *dkp_children(ckpt_arena *arena, const ckpt_value *v, unsigned depth)
{
    ckpt_value *out = ckpt_value_new(arena, v->kind);
    ckpt_dict map = ckpt_value_map(v);
    ckpt_seq seq = ckpt_value_seq(v);
    bool ok = out != NULL;

    for (uint64_t i = 0; ok && i < map.n; i++) {
        if (map.at[i].key->kind != CKPT_V_STR)
            return dkp_pairs(arena, map, depth);
        ckpt_value *one = dkp_plain(arena, map.at[i].value, depth);
        ok = one && ckpt_dict_add(arena, &out->as.map, map.at[i].key, one);
    }
    for (uint64_t i = 0; ok && i < seq.n; i++) {
        ckpt_value *one = dkp_plain(arena, seq.at[i], depth);
        ok = one && ckpt_seq_add(arena, &out->as.seq, one);
    }
    return ok ? out : NULL;
}

/* Convert an object of a DeepSpeed class that consists of its class and a dict of attributes. */
static ckpt_value *dkp_of_object(ckpt_arena *arena, const ckpt_object *o, unsigned depth)
{
    const ckpt_value *cls = o->cls;
    ckpt_value *out = ckpt_value_new(arena, CKPT_V_DICT), *state = NULL, *name = NULL;

    if (o->form != CKPT_BY_NEWOBJ || !cls || cls->kind != CKPT_V_GLOBAL ||
        ckpt_value_seq(o->args).n || o->kwargs || o->items.n || o->pairs.n || !o->state ||
        o->state->kind != CKPT_V_DICT ||
        strncmp(cls->as.global.module.at, "deepspeed.", sizeof "deepspeed." - 1) != 0)
        return NULL;
    name = ckpt_value_cstr(
        arena, ckpt_arena_printf(arena, "%s.%s", cls->as.global.module.at, cls->as.global.name.at));
    state = dkp_plain(arena, o->state, depth);
    return out && name && state && ckpt_dict_add_cstr(arena, &out->as.map, dkp_class, name) &&
                   ckpt_dict_add_cstr(arena, &out->as.map, dkp_state, state)
               ? out
               : NULL;
}

/* Convert a value to plain data; NULL if it cannot be. */
static ckpt_value *dkp_plain(ckpt_arena *arena, ckpt_value *v, unsigned depth)
{
    bool list = v->kind == CKPT_V_LIST || v->kind == CKPT_V_TUPLE,
         dict = v->kind == CKPT_V_DICT || v->kind == CKPT_V_ODICT;

    if (v->kind == CKPT_V_NONE || v->kind == CKPT_V_BOOL || v->kind == CKPT_V_INT ||
        v->kind == CKPT_V_FLOAT || v->kind == CKPT_V_STR || v->kind == CKPT_V_DTYPE)
        return v;
    if (depth > 0 && (list || dict) && !v->state)
        return dkp_children(arena, v, depth - 1);
    return depth > 0 && v->kind == CKPT_V_OBJECT ? dkp_of_object(arena, v->as.object, depth - 1)
                                                 : NULL;
}

/* ---- writing ---- */

/* Convert a member of a file; NULL if it is not kept. */
static ckpt_value *dkp_member(ckpt_arena *arena, const ckpt_pair *p)
{
    // without ZeRO the loss scale is in `optimizer`, next to moments and masters
    bool full = ckpt_value_is(p->key, "optimizer") && p->value->kind == CKPT_V_DICT;
    ckpt_dict all = ckpt_value_map(full ? p->value : NULL);
    ckpt_value *out = full ? ckpt_value_new(arena, CKPT_V_DICT) : NULL;

    if (p->key->kind != CKPT_V_STR || ckpt_train_is_layout(p))
        return NULL;
    if (!full)
        return dkp_plain(arena, p->value, DKP_DEPTH);
    for (uint64_t i = 0; out && i < all.n; i++) {
        bool state = ckpt_value_is(all.at[i].key, "state") ||
                     ckpt_value_is(all.at[i].key, "param_groups") ||
                     ckpt_train_is_layout(&all.at[i]);
        ckpt_value *one = state ? NULL : dkp_plain(arena, all.at[i].value, DKP_DEPTH);
        if (one && !ckpt_dict_add(arena, &out->as.map, all.at[i].key, one))
            return NULL;
    }
    return out;
}

bool ckpt_train_kept_plain(ckpt_arena *arena, const ckpt_pair *p)
{
    assert(arena && p && p->value);
    return dkp_member(arena, p) != NULL;
}

/* Collect the members of a dict that FSDP cannot store, under a key of `out`. */
static bool dkp_part(ckpt_arena *arena, ckpt_value *out, const char *key, const ckpt_state *state,
                     const ckpt_value *from)
{
    ckpt_value *part = ckpt_value_new(arena, CKPT_V_DICT);
    ckpt_dict all = ckpt_value_map(from);
    bool ok = part != NULL;

    for (uint64_t i = 0; ok && i < all.n; i++) {
        bool elsewhere = from == state->model && ckpt_train_fsdp_stores(state, &all.at[i]);
        ckpt_value *kept = elsewhere ? NULL : dkp_member(arena, &all.at[i]);
        if (kept)
            ok = ckpt_dict_add(arena, &part->as.map, all.at[i].key, kept);
    }
    return ok && (part->as.map.n == 0 || ckpt_dict_add_cstr(arena, &out->as.map, key, part));
}

/* The optimizer's step count: the maximum over parameter groups, as readers of the folder compute
 * it. */
static int dkp_steps(const ckpt_map *from, const ckpt_state *state, int64_t *most, ckpt_err *err)
{
    ckpt_reader *reader = NULL;
    int rc = ckpt_reader_new(&reader, from, err);

    *most = 0;
    for (size_t g = 0; rc == CKPT_OK && g < state->group.n; g++) {
        const ckpt_tensor *t = NULL;
        int64_t n = 0;
        double step = 0;
        for (size_t i = 0; !t && i < state->group.at[g].n; i++)
            t = ckpt_state_moment(from, state, "step",
                                  state->param.at[state->group.at[g].first + i]);
        if (t && t->n_elems == 1)
            rc = ckpt_reader_read(reader, t, 0, 1, CKPT_F64, &step, err);
        else if (ckpt_value_as_int(ckpt_value_get(state->group.at[g].entry, "step"), &n))
            step = (double)n;
        *most = step > (double)*most && step < 1e15 ? (int64_t)step : *most;
    }
    ckpt_reader_free(reader);
    return rc;
}

int ckpt_train_keep(ckpt_value *values, ckpt_arena *arena, const ckpt_map *from,
                    const ckpt_state *state, ckpt_err *err)
{
    assert(values && arena && from && state);
    ckpt_value *out = ckpt_value_new(arena, CKPT_V_DICT);
    int64_t steps;

    if (state->foreign || !state->model)
        return CKPT_OK;
    if (dkp_steps(from, state, &steps, err) != CKPT_OK)
        return err->code;
    bool ok = out &&
              ckpt_dict_add_cstr(arena, &out->as.map, "dtype",
                                 ckpt_value_cstr(arena, ckpt_dtype_name(state->dtype))) &&
              ckpt_dict_add_cstr(arena, &out->as.map, "steps", ckpt_value_int(arena, steps)) &&
              dkp_part(arena, out, "model", state, state->model) &&
              dkp_part(arena, out, "optim", state, state->optim) &&
              dkp_part(arena, out, "optimizer", state,
                       ckpt_value_get(state->optim, "optimizer_state_dict")) &&
              ckpt_dict_add_cstr(arena, &values->as.map, dkp_root, out);
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

/* ---- the way back ---- */

static ckpt_value *dkp_object(ckpt_arena *arena, const char *cls, ckpt_value *state)
{
    const char *dot = strrchr(cls, '.');
    ckpt_value *v = ckpt_value_new(arena, CKPT_V_OBJECT),
               *of = ckpt_value_new(arena, CKPT_V_GLOBAL),
               *args = ckpt_value_new(arena, CKPT_V_TUPLE);
    ckpt_object *o = ckpt_arena_alloc(arena, sizeof *o);
    size_t n = dot ? (size_t)(dot - cls) : 0;

    if (!v || !of || !args || !o || !n)
        return NULL;
    of->as.global.module = (ckpt_text){ckpt_arena_string(arena, cls, n), n};
    of->as.global.name =
        (ckpt_text){ckpt_arena_string(arena, dot + 1, strlen(dot + 1)), strlen(dot + 1)};
    if (!of->as.global.module.at || !of->as.global.name.at)
        return NULL;
    *o = (ckpt_object){.form = CKPT_BY_NEWOBJ, .cls = of, .args = args, .state = state};
    v->as.object = o;
    return v;
}

static ckpt_value *dkp_back(ckpt_arena *arena, ckpt_value *v, unsigned depth);

/* Restore a dict from its list of pairs; NULL: no memory. */
static ckpt_value *dkp_dict(ckpt_arena *arena, ckpt_seq pairs, unsigned depth)
{
    ckpt_value *out = ckpt_value_new(arena, CKPT_V_DICT);

    for (uint64_t i = 0; out && i < pairs.n; i++) {
        ckpt_seq pair = ckpt_value_seq(pairs.at[i]);
        ckpt_value *one = pair.n == 2 ? dkp_back(arena, pair.at[1], depth) : NULL;
        if (pair.n == 2 && (!one || !ckpt_dict_add(arena, &out->as.map, pair.at[0], one)))
            return NULL;
    }
    return out;
}

/* Restore a value: dicts that represent DeepSpeed objects become objects; others stay dicts. */
static ckpt_value *dkp_back(ckpt_arena *arena, ckpt_value *v, unsigned depth)
{
    const ckpt_value *cls = ckpt_value_get(v, dkp_class);
    ckpt_value *state = ckpt_value_get(v, dkp_state), *out;
    ckpt_dict map = ckpt_value_map(v);
    ckpt_seq seq = ckpt_value_seq(v);

    if ((map.n == 0 && seq.n == 0) || depth == 0)
        return v;
    if (map.n == 2 && cls && cls->kind == CKPT_V_STR && state && state->kind == CKPT_V_DICT &&
        strncmp(cls->as.text.at, "deepspeed.", sizeof "deepspeed." - 1) == 0)
        return dkp_object(arena, cls->as.text.at, dkp_back(arena, state, depth - 1));
    if (map.n == 1 && ckpt_value_is(map.at[0].key, dkp_items))
        return dkp_dict(arena, ckpt_value_seq(map.at[0].value), depth - 1);
    out = ckpt_value_new(arena, v->kind);
    for (uint64_t i = 0; out && i < map.n; i++) {
        ckpt_value *one = dkp_back(arena, map.at[i].value, depth - 1);
        if (!one || !ckpt_dict_add(arena, &out->as.map, map.at[i].key, one))
            return NULL;
    }
    for (uint64_t i = 0; out && i < seq.n; i++) {
        ckpt_value *one = dkp_back(arena, seq.at[i], depth - 1);
        if (!one || !ckpt_seq_add(arena, &out->as.seq, one))
            return NULL;
    }
    return out;
}

/* True if ckpt wrote this dict. */
static bool dkp_is_ours(const ckpt_value *kept)
{
    const ckpt_value *dtype = ckpt_value_get(kept, "dtype"), *model = ckpt_value_get(kept, "model");
    int64_t steps;

    return dtype && dtype->kind == CKPT_V_STR && model && model->kind == CKPT_V_DICT &&
           ckpt_value_as_int(ckpt_value_get(kept, "steps"), &steps);
}

/* Restore the optimizer's file: its own members, and optimizer_state_dict. */
static ckpt_value *dkp_optim(ckpt_arena *arena, const ckpt_value *kept)
{
    ckpt_value *out = ckpt_value_new(arena, CKPT_V_DICT),
               *inner = ckpt_value_get(kept, "optimizer");
    ckpt_dict root = ckpt_value_map(ckpt_value_get(kept, "optim"));
    bool ok =
        out && (!inner || ckpt_dict_add_cstr(arena, &out->as.map, "optimizer_state_dict", inner));

    for (uint64_t i = 0; ok && i < root.n; i++)
        ok = ckpt_dict_add(arena, &out->as.map, root.at[i].key, root.at[i].value);
    return ok ? out : NULL;
}

/* Add the kept members.  They replace members of the same name, because the writer made those for
 * the program only. */
static bool dkp_join(ckpt_arena *arena, ckpt_value *root, const ckpt_value *from)
{
    ckpt_dict all = ckpt_value_map(from), *to = &root->as.map;
    bool ok = true;

    for (uint64_t i = 0; ok && i < all.n; i++) {
        uint64_t k = 0;
        if (all.at[i].key->kind != CKPT_V_STR)
            continue;
        while (k < to->n && !ckpt_value_is(to->at[k].key, all.at[i].key->as.text.at))
            k++;
        if (k < to->n)
            to->at[k].value = all.at[i].value;
        else
            ok = ckpt_dict_add(arena, to, all.at[i].key, all.at[i].value);
    }
    return ok;
}

/* Give buffers their role, by the kept list of names. */
static void dkp_buffers(ckpt_map *map, const ckpt_value *names)
{
    ckpt_seq list = ckpt_value_seq(names);

    for (uint64_t i = 0; i < list.n; i++) {
        const ckpt_value *name = list.at[i];
        size_t at = name->kind == CKPT_V_STR
                        ? ckpt_map_index(map, name->as.text.at, (size_t)name->as.text.n)
                        : SIZE_MAX;
        if (at != SIZE_MAX && map->tensors.at[at]->role == CKPT_ROLE_FROZEN)
            map->tensors.at[at]->role = CKPT_ROLE_BUFFER;
    }
}

bool ckpt_train_is_kept(const ckpt_pair *p)
{
    assert(p && p->key);
    return ckpt_value_is(p->key, dkp_root) && dkp_is_ours(p->value);
}

int ckpt_train_take_back(ckpt_map *map, ckpt_state *state, ckpt_value *root, int64_t steps,
                         ckpt_err *err)
{
    assert(map && state && root);
    ckpt_value *kept = ckpt_value_get(map->values, dkp_root), *whole;
    const ckpt_value *version;
    ckpt_dtype dtype;
    int64_t then = 0;

    if (!kept || !dkp_is_ours(kept))
        return CKPT_OK;
    (void)ckpt_value_as_int(ckpt_value_get(kept, "steps"), &then);
    if (then != steps)
        return ckpt_map_note(
            map, CKPT_WARNING, err,
            "left out: the values kept from a DeepSpeed run: its optimizer had made %" PRId64
            " steps when they were stored, and has now made %" PRId64,
            then, steps);
    whole = dkp_back(map->arena, kept, DKP_DEPTH + 3);
    if (ckpt_value_get(whole, "optimizer"))
        state->optim = dkp_optim(map->arena, whole);
    if (!whole || !dkp_join(map->arena, root, ckpt_value_get(whole, "model")))
        return ckpt_fail_memory(err);
    dkp_buffers(map, ckpt_value_get(root, "buffer_names"));
    version = ckpt_value_get(root, "ds_version");
    if (version && version->kind == CKPT_V_STR)
        state->version = version->as.text.at;
    dtype = ckpt_dtype_parse(ckpt_value_get(whole, "dtype")->as.text.at);
    if (dtype == CKPT_F16 || dtype == CKPT_BF16)
        state->dtype = dtype;
    state->foreign = false;
    return CKPT_OK;
}
