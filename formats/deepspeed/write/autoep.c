/* SPDX-License-Identifier: Apache-2.0 */
/*
 * autoep.c: writes mixtures of experts under AutoEP: distributes experts over expert-parallel
 * ranks, and writes the entries of the files that describe it.
 *
 * In the map each expert is a separate parameter ("<prefix>.w1.5").  DeepSpeed fuses the experts of
 * one expert-parallel rank into one parameter ("<prefix>.w1"), and partitions, pads and names the
 * fused parameter (layout/autoep.h).  Keys are those of deepspeed/runtime/engine.py
 * (_save_moe_checkpoint) and runtime/zero/stage3.py (_zero3_partition_group_metadata), 0.19.8.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/layout/layout.h"
#include "formats/deepspeed/write/write.h"

/* ---- the source's layers ---- */

/* A number of a layer's entry, which the reader has checked. */
static uint32_t dwa_int(const ckpt_value *layer, const char *key)
{
    int64_t n = 0;

    return ckpt_value_as_int(ckpt_value_get(layer, key), &n) && n > 0 && n <= UINT32_MAX
               ? (uint32_t)n
               : 0;
}

/* List the possible expert-parallel sizes, e.g. "1, 2, 4"; NULL: no memory. */
static const char *dwa_sizes(const ckpt_train_job *job, uint32_t world)
{
    const char *text = "1";

    for (uint32_t ep = 2; text && ep <= world && strlen(text) < 200; ep++) {
        if (ckpt_dsw_autoep_fits(job->state, world, ep))
            text = ckpt_arena_printf(job->to->arena, "%s, %" PRIu32, text, ep);
    }
    return text;
}

/* Refuse --ep-size if it does not divide the world and every layer's experts. */
static int dwa_asked(const ckpt_train_job *job, const ckpt_dsw_how *how)
{
    uint32_t ep = job->target->ep_size;
    const char *sizes;

    if (ckpt_dsw_autoep_fits(job->state, how->world, ep))
        return CKPT_OK;
    sizes = dwa_sizes(job, how->world);
    return sizes ? ckpt_fail(job->err, CKPT_EUSAGE,
                             "%s: an expert-parallel size of %" PRIu32 " (--ep-size) does not "
                             "divide the world of %" PRIu32 " and the experts of every layer; "
                             "sizes that do: %s",
                             job->from->path, ep, how->world, sizes)
                 : ckpt_fail_memory(job->err);
}

/* Choose the expert-parallel size: the source's, or the largest that world and experts allow. */
static int dwa_size(const ckpt_train_job *job, ckpt_dsw_how *how)
{
    uint32_t was = ckpt_train_autoep(job->state);

    how->ep = job->target->ep_size ? job->target->ep_size : was;
    if (job->target->ep_size)
        return dwa_asked(job, how);
    while (how->ep > 1 && !ckpt_dsw_autoep_fits(job->state, how->world, how->ep))
        how->ep--;
    if (how->ep == was)
        return CKPT_OK;
    return ckpt_map_note(job->to, CKPT_INFO, job->err,
                         "experts are distributed over %" PRIu32
                         " expert-parallel rank%s instead of %" PRIu32 ", as a world of %" PRIu32
                         " allows: set expert_parallel.autoep_size to that",
                         how->ep, how->ep == 1 ? "" : "s", was, how->world);
}

/* ---- groups ---- */

/* Copy a group's settings with the name for another size ("ep_size_2"); NULL: no memory. */
static ckpt_value *dwa_fields(ckpt_arena *arena, ckpt_value *fields, uint32_t ep)
{
    ckpt_value *made = ckpt_value_new(arena, CKPT_V_DICT);
    const char *name = ckpt_arena_printf(arena, "ep_size_%" PRIu32, ep);
    ckpt_value *text = name ? ckpt_value_cstr(arena, name) : NULL;
    ckpt_dict from = ckpt_value_map(fields);
    bool fits = made && text;

    // in universal checkpoints, groups have no name
    if (fits && !ckpt_value_get(fields, "name"))
        fits = ckpt_dict_add_cstr(arena, &made->as.map, "name", text);
    for (uint64_t i = 0; fits && i < from.n; i++)
        fits = ckpt_dict_add(arena, &made->as.map, from.at[i].key,
                             ckpt_value_is(from.at[i].key, "name") ? text : from.at[i].value);
    return fits ? made : NULL;
}

/* Adapt the settings of such a group to its new size, and report the change. */
static int dwa_rename(const ckpt_train_job *job, const ckpt_dsw_how *how, size_t g, ckpt_group *to)
{
    bool named = ckpt_value_get(to->fields, "name") != NULL;

    if (!to->fields || (named && how->ep == ckpt_train_autoep(job->state)))
        return CKPT_OK;
    to->fields = dwa_fields(job->to->arena, to->fields, how->ep);
    if (!to->fields)
        return ckpt_fail_memory(job->err);
    return named ? ckpt_map_note(job->to, CKPT_INFO, job->err,
                                 "rewritten: param_groups[%zu].name ep_size_%" PRIu32
                                 " -> ep_size_%" PRIu32,
                                 g, ckpt_train_autoep(job->state), how->ep)
                 : CKPT_OK;
}

/* Copy the state with all groups of experts redistributed. */
static int dwa_state(const ckpt_train_job *job, uint32_t ep, ckpt_state **out)
{
    const ckpt_state *all = job->state;
    ckpt_state *to = ckpt_arena_copy(job->to->arena, all, sizeof *all);

    *out = to;
    if (!to)
        return ckpt_fail_memory(job->err);
    to->param.at = ckpt_arena_array(job->to->arena, all->param.n, sizeof *to->param.at);
    to->group.at = ckpt_arena_array(job->to->arena, all->group.n, sizeof *to->group.at);
    if (!to->param.at || !to->group.at)
        return ckpt_fail_memory(job->err);
    for (size_t g = 0; g < all->group.n; g++) {
        const ckpt_group *from = &all->group.at[g];
        to->group.at[g] = *from;
        if (from->n && ckpt_dsw_autoep_prefix(all, all->param.at[from->first]))
            ckpt_dsw_autoep_lanes(all, from, ep, &to->group.at[g], to->param.at + from->first);
        else
            memcpy(to->param.at + from->first, all->param.at + from->first,
                   from->n * sizeof(ckpt_tensor *));
    }
    return CKPT_OK;
}

/* Refuse frozen experts, because DeepSpeed cannot load them at every stage. */
static int dwa_refuse(const ckpt_train_job *job)
{
    for (size_t i = 0; i < job->from->tensors.n; i++) {
        const ckpt_tensor *t = job->from->tensors.at[i];
        if (t->role == CKPT_ROLE_FROZEN && ckpt_dsw_autoep_prefix(job->state, t))
            return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                             "%s: %.200s is a frozen expert of AutoEP: written as weights only "
                             "(ckpt convert --to hf)",
                             job->from->path, t->name);
    }
    return CKPT_OK;
}

int ckpt_dsw_autoep_deal(ckpt_train_job *job, ckpt_dsw_how *how)
{
    ckpt_state *to = NULL;
    int rc = dwa_refuse(job);

    if (rc == CKPT_OK && how->release < CKPT_DS_RELEASE(0, 19, 2))
        rc = ckpt_fail(job->err, job->target->version ? CKPT_EUSAGE : CKPT_EUNSUPPORTED,
                       "AutoEP needs DeepSpeed 0.19.2 or later");
    if (rc == CKPT_OK)
        rc = dwa_size(job, how);
    if (rc == CKPT_OK)
        rc = dwa_state(job, how->ep, &to);
    for (size_t g = 0; rc == CKPT_OK && g < to->group.n; g++) {
        const ckpt_group *group = &to->group.at[g];
        if (group->n && ckpt_dsw_autoep_prefix(to, to->param.at[group->first]))
            rc = dwa_rename(job, how, g, &to->group.at[g]);
    }
    if (rc == CKPT_OK)
        job->state = to;
    return rc;
}

int ckpt_dsw_autoep_whole(ckpt_train_job *job)
{
    ckpt_state *to = NULL;
    int rc = dwa_refuse(job);

    if (rc == CKPT_OK)
        rc = dwa_state(job, 1, &to);
    if (rc == CKPT_OK)
        job->state = to;
    return rc;
}

/* ---- files of experts ---- */

/* Write the file of one expert with its w1, w2 and w3. */
static int dwa_file(const ckpt_train_job *job, const ckpt_dsw_how *how, const ckpt_value *layer,
                    uint32_t id, uint32_t expert)
{
    const ckpt_value *prefix = ckpt_value_get(layer, "expert_key_prefix");
    const char *file = ckpt_arena_printf(job->to->arena,
                                         "layer_%" PRIu32 "_expert_%" PRIu32 "_mp_rank_%02" PRIu32
                                         "_model_states.pt",
                                         id, expert, job->state->mp);
    ckpt_torch_tree t = {0};
    ckpt_value *root;

    if (!file)
        return ckpt_fail_memory(job->err);
    if (ckpt_tt_begin(&t, job->to, job->from, file, job->err) == CKPT_OK)
        job->to->files.at[t.file].rank = UINT32_MAX;
    root = t.rc == CKPT_OK ? ckpt_tt_new(&t, CKPT_V_DICT) : NULL;
    for (int w = 1; t.rc == CKPT_OK && w <= 3; w++) {
        const char *name =
            ckpt_arena_printf(t.scratch, "%s.w%d.%" PRIu32, prefix->as.text.at, w, expert);
        size_t at = name ? ckpt_map_index(job->from, name, strlen(name)) : SIZE_MAX;
        if (at == SIZE_MAX) {
            t.rc = name ? ckpt_fail(job->err, CKPT_EMISSING, "%s: no tensor for parameter %s",
                                    job->from->path, name)
                        : ckpt_fail_memory(job->err);
            break;
        }
        ckpt_tt_put_at(
            &t, root, ckpt_tt_str(&t, name),
            ckpt_tt_whole(&t, ckpt_dsw_donor(job->from->tensors.at[at], how->dtype), how->dtype));
    }
    return ckpt_tt_end(&t, root);
}

int ckpt_dsw_autoep_files(const ckpt_train_job *job, const ckpt_dsw_how *how)
{
    ckpt_seq layers = ckpt_train_autoep_layers(job->state);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < layers.n; i++) {
        uint32_t n = dwa_int(layers.at[i], "num_experts");
        for (uint32_t e = 0; rc == CKPT_OK && e < n; e++)
            rc = dwa_file(job, how, layers.at[i], (uint32_t)i, e);
    }
    return rc;
}

/* ---- entries that describe the layout ---- */

/* Make a list of n numbers from `first` on, `step` apart. */
static ckpt_value *dwa_range(ckpt_torch_tree *t, uint32_t first, uint32_t n, uint32_t step)
{
    ckpt_value *list = ckpt_tt_new(t, CKPT_V_LIST);

    for (uint32_t i = 0; i < n; i++)
        ckpt_tt_add(t, list, ckpt_tt_int(t, (int64_t)first + (int64_t)i * step));
    return list;
}

/* Make expert_placement: the experts of each rank. */
static ckpt_value *dwa_placement(ckpt_torch_tree *t, uint32_t n_experts, uint32_t ep)
{
    ckpt_value *v = ckpt_tt_new(t, CKPT_V_DICT), *ranks = ckpt_tt_new(t, CKPT_V_LIST);
    uint32_t each = n_experts / ep;

    for (uint32_t e = 0; t->rc == CKPT_OK && e < ep; e++) {
        ckpt_value *rank = ckpt_tt_new(t, CKPT_V_DICT);
        ckpt_tt_put(t, rank, "rank", ckpt_tt_int(t, e));
        ckpt_tt_put(t, rank, "experts", dwa_range(t, e * each, each, 1));
        ckpt_tt_add(t, ranks, rank);
    }
    ckpt_tt_put(t, v, "version", ckpt_tt_int(t, 1));
    ckpt_tt_put(t, v, "num_experts", ckpt_tt_int(t, n_experts));
    ckpt_tt_put(t, v, "ep_size", ckpt_tt_int(t, ep));
    ckpt_tt_put(t, v, "ranks", ranks);
    return v;
}

/* Make the shape [n, a, b] of n stacked expert matrices. */
static ckpt_value *dwa_shape(ckpt_torch_tree *t, const ckpt_tensor *one, uint32_t n)
{
    ckpt_value *list = ckpt_tt_new(t, CKPT_V_LIST);

    ckpt_tt_add(t, list, ckpt_tt_int(t, n));
    for (uint32_t i = 0; i < one->ndim; i++)
        ckpt_tt_add(t, list, ckpt_tt_int(t, (int64_t)one->shape[i]));
    return list;
}

/* Make [offset, strides] of a run of whole matrices. */
static ckpt_value *dwa_place(ckpt_torch_tree *t, const ckpt_tensor *one, uint64_t first)
{
    ckpt_value *place = ckpt_tt_new(t, CKPT_V_LIST), *strides = ckpt_tt_new(t, CKPT_V_LIST);

    ckpt_tt_add(t, strides, ckpt_tt_int(t, (int64_t)one->n_elems));
    ckpt_tt_add(t, strides, ckpt_tt_int(t, one->ndim > 1 ? (int64_t)one->shape[1] : 1));
    ckpt_tt_add(t, strides, ckpt_tt_int(t, 1));
    ckpt_tt_add(t, place, ckpt_tt_int(t, (int64_t)(first * one->n_elems)));
    ckpt_tt_add(t, place, strides);
    return place;
}

/* Make one parameter's affine map: the placement as strides (deepspeed/checkpoint/affine.py). */
static ckpt_value *dwa_affine(ckpt_torch_tree *t, const ckpt_tensor *one, uint32_t n_experts,
                              uint32_t ep)
{
    ckpt_value *v = ckpt_tt_new(t, CKPT_V_DICT), *ranks = ckpt_tt_new(t, CKPT_V_DICT);
    uint32_t each = n_experts / ep;

    for (uint32_t e = 0; t->rc == CKPT_OK && e < ep; e++) {
        ckpt_value *rank = ckpt_tt_new(t, CKPT_V_DICT), *pieces = ckpt_tt_new(t, CKPT_V_LIST),
                   *piece = ckpt_tt_new(t, CKPT_V_DICT);
        ckpt_tt_put(t, piece, "shape", dwa_shape(t, one, each));
        ckpt_tt_put(t, piece, "source", dwa_place(t, one, (uint64_t)e * each));
        ckpt_tt_put(t, piece, "dest", dwa_place(t, one, 0));
        ckpt_tt_put(t, piece, "locations", dwa_range(t, e, 1, 1));
        ckpt_tt_add(t, pieces, piece);
        ckpt_tt_put(t, rank, "shard_shape", dwa_shape(t, one, each));
        ckpt_tt_put(t, rank, "pieces", pieces);
        ckpt_tt_put_at(t, ranks, ckpt_tt_int(t, e), rank);
    }
    ckpt_tt_put(t, v, "logical_shape", dwa_shape(t, one, n_experts));
    ckpt_tt_put(t, v, "ranks", ranks);
    return v;
}

/* Make affine_maps of a layer. */
static ckpt_value *dwa_maps(ckpt_dsw_file *f, const ckpt_value *layer, uint32_t ep)
{
    const ckpt_value *prefix = ckpt_value_get(layer, "expert_key_prefix");
    ckpt_value *v = ckpt_tt_new(&f->t, CKPT_V_DICT), *params = ckpt_tt_new(&f->t, CKPT_V_DICT);

    for (int w = 1; f->t.rc == CKPT_OK && w <= 3; w++) {
        const char *name = ckpt_arena_printf(f->t.scratch, "%s.w%d", prefix->as.text.at, w),
                   *first = name ? ckpt_arena_printf(f->t.scratch, "%s.0", name) : NULL;
        size_t at = first ? ckpt_map_index(f->job->from, first, strlen(first)) : SIZE_MAX;
        if (!first)
            f->t.rc = ckpt_fail_memory(f->job->err);
        else if (at != SIZE_MAX)
            ckpt_tt_put(
                &f->t, params, name,
                dwa_affine(&f->t, f->job->from->tensors.at[at], dwa_int(layer, "num_experts"), ep));
    }
    ckpt_tt_put(&f->t, v, "version", ckpt_tt_int(&f->t, 1));
    ckpt_tt_put(&f->t, v, "params", params);
    return v;
}

/* Make a layer's entry for rank f->rank; entries of other releases are copied. */
static ckpt_value *dwa_layer(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_torch_tree *t = &f->t;
    const uint32_t ep = f->how->ep, n = dwa_int(old, "num_experts"), rank = f->rank % ep;
    const bool parted = f->how->stage == 3;
    const char *name = ckpt_arena_printf(t->scratch, "ep_size_%" PRIu32, ep);
    ckpt_value *v = ckpt_tt_copy(t, old);

    ckpt_tt_put(t, v, "num_local_experts", ckpt_tt_int(t, n / ep));
    ckpt_tt_put(t, v, "ep_size", ckpt_tt_int(t, ep));
    if (ckpt_value_get(old, "expert_placement"))
        ckpt_tt_put(t, v, "expert_placement", dwa_placement(t, n, ep));
    if (ckpt_value_get(old, "affine_maps"))
        ckpt_tt_put(t, v, "affine_maps", dwa_maps(f, old, ep));
    ckpt_tt_put(t, v, "checkpoint_format",
                ckpt_tt_str(t, parted ? "zero3_partitioned" : "per_expert_files"));
    ckpt_tt_put(t, v, "checkpoint_format_version",
                parted ? ckpt_tt_int(t, 1) : ckpt_tt_new(t, CKPT_V_NONE));
    ckpt_tt_put(t, v, "ep_group_name", name ? ckpt_tt_str(t, name) : NULL);
    ckpt_tt_put(t, v, "ep_rank", ckpt_tt_int(t, rank));
    ckpt_tt_put(t, v, "expert_data_parallel_rank", ckpt_tt_int(t, f->rank / ep));
    ckpt_tt_put(t, v, "expert_data_parallel_world_size", ckpt_tt_int(t, f->how->world / ep));
    ckpt_tt_put(t, v, "global_expert_start", ckpt_tt_int(t, (int64_t)rank * (n / ep)));
    ckpt_tt_put(t, v, "global_expert_end", ckpt_tt_int(t, (int64_t)(rank + 1) * (n / ep)));
    return v;
}

ckpt_value *ckpt_dsw_autoep_layers(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_seq from = ckpt_value_seq(old);
    ckpt_value *list;
    uint32_t was = ckpt_train_autoep(f->job->state);

    if (!f->how->ep || from.n == 0)
        return old ? ckpt_tt_copy(&f->t, old) : NULL;
    list = ckpt_tt_new(&f->t, CKPT_V_LIST);
    for (uint64_t i = 0; f->t.rc == CKPT_OK && i < from.n; i++)
        ckpt_tt_add(&f->t, list, dwa_layer(f, from.at[i]));
    if (was != f->how->ep || f->how->stage != f->job->state->stage ||
        f->how->world != f->job->state->world)
        ckpt_dsw_say(f,
                     "ds_autoep_layers: expert-parallel size %" PRIu32 " -> %" PRIu32
                     ", stage %d, %" PRIu32 " ranks",
                     was, f->how->ep, f->how->stage, f->how->world);
    return list;
}

ckpt_value *ckpt_dsw_autoep_info(ckpt_dsw_file *f, const ckpt_value *old)
{
    const ckpt_value *layers = ckpt_value_get(old, "ds_autoep_layers");
    ckpt_value *v = old ? ckpt_tt_copy(&f->t, old) : NULL;

    if (v && layers && f->how->ep)
        ckpt_tt_put(&f->t, v, "ds_autoep_layers", ckpt_dsw_autoep_layers(f, layers));
    if (v && layers && f->how->ep)
        ckpt_dsw_say(f, "universal_checkpoint_info.ds_autoep_layers as ds_autoep_layers");
    return v;
}

ckpt_value *ckpt_dsw_autoep_groups(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_torch_tree *t = &f->t;
    ckpt_value *list;
    int64_t number = 0;
    uint32_t index;

    (void)old;
    if (!f->how->ep)
        return NULL;
    list = ckpt_tt_new(t, CKPT_V_LIST);
    for (size_t k = 0; t->rc == CKPT_OK && k < f->layout->part.n; k++) {
        const ckpt_dsw_part *p = &f->layout->part.at[k];
        const ckpt_group *g = &f->job->state->group.at[p->group];
        bool experts = p->n && ckpt_dsw_autoep_prefix(f->job->state, p->param[0]);
        ckpt_value *one, *family, *name;
        if (!ckpt_dsw_holds(p, g, f->rank, &index))
            continue;
        const char *size = ckpt_arena_printf(t->scratch, "ep_size_%" PRIu32, f->how->ep);
        one = ckpt_tt_new(t, CKPT_V_DICT);
        family = ckpt_tt_new(t, CKPT_V_LIST);
        name = ckpt_tt_new(t, CKPT_V_LIST);
        ckpt_tt_add(t, family, ckpt_tt_str(t, experts ? "autoep_expert" : "replicated"));
        ckpt_tt_add(t, name, ckpt_tt_str(t, experts && size ? size : "replicated"));
        ckpt_tt_put(t, one, "sub_group", ckpt_tt_int(t, number++));
        ckpt_tt_put(t, one, "partition_count", ckpt_tt_int(t, p->world));
        ckpt_tt_put(t, one, "partition_rank", ckpt_tt_int(t, index));
        ckpt_tt_put(t, one, "partition_ranks",
                    dwa_range(t, p->lane, p->world, g->n_lanes ? g->n_lanes : 1));
        ckpt_tt_put(t, one, "families", family);
        ckpt_tt_put(t, one, "group_names", name);
        ckpt_tt_add(t, list, one);
    }
    return list;
}
