/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsdp.c: reads checkpoints of Megatron-FSDP (--ckpt-format fsdp_dtensor), and of PyTorch's FSDP in
 * Megatron-LM (torch_dcp).
 *
 * They are distributed checkpoints of a nested dict, without common.pt and metadata.json:
 *
 *     args, checkpoint_version, iteration, opt_param_scheduler, rng_state ...
 *     model.module.<parameter>              one tensor per layer and expert, not stacked
 *     optimizer.state.module.module.module.<parameter>.{exp_avg,exp_avg_sq}
 *     optimizer.param_to_group_meta.module.module.module.<parameter>.<setting of its group>
 *
 * How many modules are around the model depends on the run, so all of them are dropped.  The first
 * layer of a gated MLP is saved as two tensors, gate "..weight_w" and the other half "..weight_v",
 * which are joined here.
 *
 * Source  megatron/training/checkpointing.py (preprocess_fsdp_dtensor_state_dict),
 *         megatron/core/transformer/fsdp_dtensor_checkpoint.py and
 *         megatron/core/optimizer/distrib_optimizer.py of Megatron-Core 0.16
 */
#define _GNU_SOURCE // memmem
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/megatron.h"
#include "libckpt/base/index.h"

static const char mgy_model[] = "model.", mgy_state[] = "optimizer.state.",
                  mgy_meta[] = "param_to_group_meta";

enum { MGY_BLOCK = 1 << 20, MGY_OVERLAP = 64 }; /* bytes of .metadata that are searched at once */

/* A parameter's own name: without the modules around the model. */
static const char *mgy_inner(const char *name)
{
    static const char module[] = "module.";

    while (strncmp(name, module, sizeof module - 1) == 0)
        name += sizeof module - 1;
    return name;
}

static bool mgy_begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* ---- roles ---- */

typedef struct mgy_reader {
    ckpt_dcp_role *out;
    const ckpt_dcp_metadata *m;
    ckpt_arena *arena;
    ckpt_index weight; /* the model's items by their own names */
    ckpt_err *err;
} mgy_reader;

static uint32_t mgy_hash(const char *name, size_t n)
{
    return ckpt_hash_bytes(name, n, 0);
}

static bool mgy_same(const void *ctx, uint32_t number, const void *key)
{
    const mgy_reader *r = ctx;
    const ckpt_text *name = key;
    const char *own = r->out[number].name;

    return strlen(own) == name->n && memcmp(own, name->at, (size_t)name->n) == 0;
}

/* Mark an item as the state of a weight: "<parameter>.<kind>". */
static int mgy_moment(mgy_reader *r, size_t i)
{
    const char *name = mgy_inner(r->m->item.at[i].name.at + sizeof mgy_state - 1);
    const char *dot = strrchr(name, '.');
    ckpt_text of = {name, dot ? (uint64_t)(dot - name) : 0};
    uint32_t at;

    if (!dot || dot == name || !dot[1])
        return CKPT_OK;
    at = ckpt_index_find(&r->weight, mgy_hash(of.at, (size_t)of.n), mgy_same, r, &of);
    if (at == CKPT_INDEX_NONE)
        return CKPT_OK;
    r->out[i] = (ckpt_dcp_role){.what = CKPT_DCP_MOMENT, .name = r->out[at].name, .key = dot + 1};
    r->out[at].trained = true;
    return CKPT_OK;
}

/* True if .metadata has names of Megatron-LM's, anywhere: torch does not sort them. */
static bool mgy_is_megatron(ckpt_io *io)
{
    static const char version[] = "checkpoint_version";
    uint8_t *block = ckpt_alloc(MGY_BLOCK + MGY_OVERLAP);
    bool has_version = false, has_model = false;

    // blocks overlap, so that a name at the end of one is found, too
    for (uint64_t at = 0; block && at < io->size && !(has_version && has_model); at += MGY_BLOCK) {
        uint64_t left = io->size - at;
        size_t n = left < MGY_BLOCK + MGY_OVERLAP ? (size_t)left : MGY_BLOCK + MGY_OVERLAP;
        if (ckpt_io_read(io, block, n, at, NULL) != CKPT_OK)
            break;
        has_version = has_version || memmem(block, n, version, sizeof version - 1);
        has_model = has_model || memmem(block, n, mgy_model, sizeof mgy_model - 1);
    }
    ckpt_free(block);
    return has_version && has_model;
}

bool ckpt_meg_is_fsdp(const ckpt_listing *list)
{
    assert(list);
    const char *slash = strrchr(list->folder, '/'), *name = slash ? slash + 1 : list->folder;
    const char *path;
    ckpt_io *io = NULL;
    bool is = false;

    if ((!ckpt_meg_is_iter(name) && strcmp(name, "release") != 0) ||
        !ckpt_listing_has(list, CKPT_DCP_METADATA, false) ||
        ckpt_listing_find(list, CKPT_MEG_COMMON) || ckpt_listing_find(list, CKPT_MEG_DONE))
        return false;
    path = ckpt_path_join(list->map->arena, list->folder, CKPT_DCP_METADATA);
    if (path && ckpt_io_open(&io, path, NULL) == CKPT_OK)
        is = mgy_is_megatron(io);
    ckpt_io_close(io);
    return is;
}

int ckpt_meg_fsdp_roles(ckpt_dcp_role *out, const ckpt_dcp_metadata *m, ckpt_arena *arena,
                        ckpt_err *err)
{
    assert(m && arena && (out || m->item.n == 0));
    mgy_reader r = {.out = out, .m = m, .arena = arena, .err = err};
    bool ok = true;
    int rc = CKPT_OK;

    for (size_t i = 0; ok && i < m->item.n; i++) {
        const ckpt_dcp_item *item = &m->item.at[i];
        const char *name = item->name.at;
        out[i] = (ckpt_dcp_role){.what = CKPT_DCP_OTHER, .name = name};
        if (item->is_tensor && mgy_begins(name, "optimizer."))
            out[i].what = CKPT_DCP_FLAT;
        if (!item->is_tensor || !mgy_begins(name, mgy_model))
            continue;
        out[i] = (ckpt_dcp_role){.what = CKPT_DCP_WEIGHT,
                                 .name = mgy_inner(name + sizeof mgy_model - 1)};
        ok = ckpt_index_add(&r.weight, mgy_hash(out[i].name, strlen(out[i].name)), (uint32_t)i);
    }
    if (!ok)
        rc = ckpt_fail_memory(err);
    for (size_t i = 0; rc == CKPT_OK && i < m->item.n; i++) {
        if (m->item.at[i].is_tensor && mgy_begins(m->item.at[i].name.at, mgy_state))
            rc = mgy_moment(&r, i);
    }
    ckpt_index_free(&r.weight);
    return rc;
}

/* ---- halves of gated layers ---- */

/* True for a half of a gated layer: "...linear_fc1.weight_w", "...weight3_v", "...bias_w". */
static bool mgy_is_half(const char *name, char which)
{
    size_t n = strlen(name);

    return n > 2 && name[n - 2] == '_' && name[n - 1] == which && strstr(name, ".linear_fc1.");
}

/* Make the halves one tensor: the gate's rows, then those of the other half, in tensor w. */
static int mgy_join(ckpt_map *map, ckpt_tensor *w, const ckpt_tensor *v, ckpt_err *err)
{
    uint32_t n = w->n_extents + v->n_extents;
    uint64_t *shape = ckpt_arena_copy(map->arena, w->shape, w->ndim * sizeof *shape);
    uint64_t rows = w->shape[0];
    ckpt_extent *extent = ckpt_arena_array(map->arena, n ? n : 1, sizeof *extent);

    if (!shape || !extent)
        return ckpt_fail_memory(err);
    if (rows > UINT64_MAX / 2 || w->n_elems > INT64_MAX / 16)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: too many elements", w->name);
    shape[0] = 2 * rows;
    for (uint32_t i = 0; i < n; i++) {
        bool first = i < w->n_extents;
        extent[i] = first ? w->extent[i] : v->extent[i - w->n_extents];
        // in place, because ckpt_dcp_settle changes the strides of these axes
        const ckpt_dcp_inner *inner = map->sources.at[extent[i].source].inner;
        if (!first && (!inner || inner->axis != extent[i].axis))
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: %s packs its rows", v->name,
                             ckpt_dtype_name(v->dtype));
        if (!first)
            inner->axis[0].start += rows;
    }
    w->shape = shape;
    w->n_elems *= 2;
    w->extent = extent;
    w->n_extents = n;
    w->name = ckpt_arena_string(map->arena, w->name, strlen(w->name) - 2);
    return w->name ? CKPT_OK : ckpt_fail_memory(err);
}

/* Find the other half of a gate, which must fit. */
static int mgy_other(const ckpt_map *map, const ckpt_tensor *w, size_t *at, ckpt_err *err)
{
    char *name = ckpt_arena_string(map->arena, w->name, strlen(w->name));
    const ckpt_tensor *v;

    if (!name)
        return ckpt_fail_memory(err);
    name[strlen(name) - 1] = 'v';
    *at = ckpt_map_index(map, name, strlen(name));
    if (*at == SIZE_MAX)
        return ckpt_fail(err, CKPT_EMISSING,
                         "%s: %s is there, but not %s, the other half of the gated layer: it was "
                         "not saved whole",
                         map->path, w->name, name);
    v = map->tensors.at[*at];
    if (v->dtype == w->dtype && v->ndim == w->ndim && w->ndim > 0 &&
        memcmp(v->shape, w->shape, w->ndim * sizeof *w->shape) == 0)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EMISMATCH,
                     "%s: %s and %s differ in dtype or shape: expected two halves of a gated layer",
                     map->path, w->name, name);
}

/* Join the halves of gated layers, and of their state. */
static int mgy_halves(ckpt_map *map, ckpt_err *err)
{
    ckpt_tensors *list = &map->tensors;
    bool *gone = ckpt_alloc((list->n + 1) * sizeof *gone);
    size_t n = 0;
    int rc = gone ? CKPT_OK : ckpt_fail_memory(err);

    for (size_t i = 0; rc == CKPT_OK && i < list->n; i++) {
        size_t at = 0;
        if (!mgy_is_half(list->at[i]->name, 'w'))
            continue;
        rc = mgy_other(map, list->at[i], &at, err);
        if (rc == CKPT_OK)
            rc = mgy_join(map, list->at[i], list->at[at], err);
        if (rc == CKPT_OK)
            gone[at] = true;
    }
    for (size_t i = 0; rc == CKPT_OK && i < list->n; i++) {
        if (!gone[i] && mgy_is_half(list->at[i]->name, 'v'))
            rc = ckpt_fail(err, CKPT_EMISSING,
                           "%s: %s is there, but not the gate of its layer: it was not saved whole",
                           map->path, list->at[i]->name);
        else if (!gone[i])
            list->at[n++] = list->at[i];
    }
    ckpt_free(gone);
    if (rc != CKPT_OK)
        return rc;
    list->n = n;
    return ckpt_map_reindex(map, err);
}

/* ---- the optimizer ---- */

/* A parameter of the optimizer, and the settings of its group. */
typedef struct mgy_param {
    const char *name;
    const ckpt_value *settings;
    size_t group;
} mgy_param;

static int mgy_by_name(const void *a, const void *b)
{
    return strcmp(((const mgy_param *)a)->name, ((const mgy_param *)b)->name);
}

/* The number of the group with these settings, which is new or known; SIZE_MAX: an error. */
static size_t mgy_group(ckpt_meg_groups *out, ckpt_meg_job *job, ckpt_value *settings)
{
    ckpt_value *one[] = {settings};
    ckpt_value list = {.kind = CKPT_V_LIST, .as.seq = {.at = one, .n = 1}};

    for (size_t i = 0; i < out->n; i++) {
        bool same;
        if (ckpt_value_compare(&same, out->at[i].settings, settings, 1 << 16, job->err) != CKPT_OK)
            return SIZE_MAX;
        if (same)
            return i;
    }
    return ckpt_meg_groups_add(out, job, &list, NULL) == CKPT_OK ? out->n - 1 : SIZE_MAX;
}

/* Give each group the sorted names of its parameters. */
static int mgy_members(ckpt_meg_groups *out, ckpt_arena *arena, const mgy_param *param, size_t n,
                       ckpt_err *err)
{
    for (size_t g = 0; g < out->n; g++) {
        ckpt_meg_group *group = &out->at[g];
        group->name = ckpt_arena_array(arena, n ? n : 1, sizeof *group->name);
        if (!group->name)
            return ckpt_fail_memory(err);
        for (size_t i = 0; i < n; i++) {
            if (param[i].group == g)
                group->name[group->n_names++] = param[i].name;
        }
    }
    return CKPT_OK;
}

/* A parameter of the dict of settings.  Converted checkpoints name the halves of gated layers. */
static int mgy_of(mgy_param *out, const ckpt_meg_job *job, const ckpt_pair *from)
{
    const char *name = mgy_inner(from->key->as.text.at);

    if (mgy_is_half(name, 'w'))
        name = ckpt_arena_string(job->map->arena, name, strlen(name) - 2);
    *out = (mgy_param){.name = name, .settings = from->value};
    return name ? CKPT_OK : ckpt_fail_memory(job->err);
}

/* Read the groups: each parameter has the settings of its own. */
static int mgy_groups(ckpt_meg_groups *out, ckpt_meg_job *job)
{
    ckpt_dict all =
        ckpt_value_map(ckpt_value_get(ckpt_value_get(job->root, "optimizer"), mgy_meta));
    mgy_param *param = ckpt_alloc((size_t)(all.n + 1) * sizeof *param);
    int rc = param ? CKPT_OK : ckpt_fail_memory(job->err);

    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        if (all.at[i].key->kind != CKPT_V_STR || all.at[i].value->kind != CKPT_V_DICT)
            rc = ckpt_fail(job->err, CKPT_EFORMAT,
                           "%s: optimizer.%s: expected a dict of settings for each parameter",
                           job->map->path, mgy_meta);
        else
            rc = mgy_of(&param[i], job, &all.at[i]);
        if (rc == CKPT_OK && (param[i].group = mgy_group(out, job, all.at[i].value)) == SIZE_MAX)
            rc = job->err && job->err->code ? job->err->code : ckpt_fail_memory(job->err);
    }
    if (rc == CKPT_OK) {
        qsort(param, (size_t)all.n, sizeof *param, mgy_by_name);
        rc = mgy_members(out, job->map->arena, param, (size_t)all.n, job->err);
    }
    ckpt_free(param);
    return rc;
}

/* The name of a tensor of the optimizer without a known parameter, or NULL. */
static const char *mgy_nobodys(const ckpt_map *map)
{
    for (size_t i = 0; i < map->tensors.n; i++) {
        if (map->tensors.at[i]->role == CKPT_ROLE_OTHER &&
            mgy_begins(map->tensors.at[i]->name, "optimizer."))
            return map->tensors.at[i]->name;
    }
    return NULL;
}

/*
 * The name of a parameter in a group that the model lacks, or that has no moments although others
 * have; or NULL.  A frozen parameter is in no group.
 */
static const char *mgy_without(const ckpt_map *map, const ckpt_meg_groups *groups)
{
    for (size_t g = 0; g < groups->n; g++) {
        const ckpt_meg_group *group = &groups->at[g];
        for (size_t i = 0; i < group->n_names; i++) {
            size_t at = ckpt_map_index(map, group->name[i], strlen(group->name[i]));
            bool other = at == SIZE_MAX && mgy_is_half(group->name[i], 'v');
            if (!other && (at == SIZE_MAX || map->tensors.at[at]->role != CKPT_ROLE_WEIGHT))
                return group->name[i];
        }
    }
    return NULL;
}

static int mgy_train(ckpt_meg_job *job)
{
    const char *nobodys = mgy_nobodys(job->map), *without;
    ckpt_meg_groups group = {0};
    int rc;

    if (!ckpt_value_get(job->root, "optimizer"))
        return ckpt_meg_none(job->map, "it was saved without its optimizer", NULL, job->err);
    if (nobodys)
        return ckpt_meg_none(job->map, "the optimizer's state does not name its parameters",
                             nobodys, job->err);
    rc = mgy_groups(&group, job);
    without = rc == CKPT_OK ? mgy_without(job->map, &group) : NULL;
    if (without)
        rc = ckpt_meg_none(job->map,
                           "the optimizer's groups have a parameter without its weight or moments",
                           without, job->err);
    else if (rc == CKPT_OK)
        rc = ckpt_meg_state(job, &group);
    ckpt_vec_free(&group);
    return rc;
}

/* ---- the checkpoint ---- */

/* Make the values of the run: all but the model and the optimizer. */
static int mgy_rest(ckpt_meg_job *job)
{
    ckpt_arena *arena = job->map->arena;
    ckpt_dict all = ckpt_value_map(job->root);
    ckpt_value *rest = ckpt_value_new(arena, CKPT_V_DICT);
    bool ok = rest != NULL;

    for (uint64_t i = 0; ok && i < all.n; i++) {
        if (!ckpt_value_is(all.at[i].key, "model") && !ckpt_value_is(all.at[i].key, "optimizer"))
            ok = ckpt_dict_add(arena, &rest->as.map, all.at[i].key, all.at[i].value);
    }
    job->rest = rest;
    return ok ? CKPT_OK : ckpt_fail_memory(job->err);
}

int ckpt_meg_fsdp(ckpt_meg_job *job)
{
    assert(job && job->map);
    ckpt_value *root = job->map->values;
    int rc = CKPT_OK;

    if (!root && job->map->collect)
        return CKPT_OK; // a data file is missing, which is a finding
    if (!root || root->kind != CKPT_V_DICT)
        return ckpt_fail(job->err, CKPT_EFORMAT, "%s: expected a dict, as Megatron-LM saves it",
                         job->map->path);
    job->root = root;
    rc = mgy_halves(job->map, job->err);
    if (rc == CKPT_OK)
        rc = ckpt_meg_trainer(job, root);
    if (rc == CKPT_OK)
        rc = ckpt_meg_facts(job, ckpt_value_is(ckpt_meg_value(job, "ckpt_format"), "torch_dcp")
                                     ? "Megatron-LM torch_dcp"
                                     : "Megatron-FSDP fsdp_dtensor");
    if (rc == CKPT_OK)
        rc = mgy_rest(job);
    return rc == CKPT_OK && job->opts->with_optimizer ? mgy_train(job) : rc;
}
