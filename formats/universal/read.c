/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.c: reads a universal checkpoint into a map.
 *
 * Names, order, shapes and roles come from the model file (param_shapes, buffer_names ...), trained
 * values and optimizer state from zero/.  DeepSpeed 0.19.8 also stores every other tensor of
 * `module` in zero/, as float32.  For buffers and tied names the model file is read instead,
 * because float32 cannot hold integers above 2^24.  Checked against folders that DeepSpeed 0.19.8
 * made from stages 1, 2 and 3, and from tensor-parallel runs.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/universal/universal.h"

#include "formats/deepspeed/layout/autoep.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/index.h"

/* ---- the model files ---- */

/* A value of the model file; NULL if it is absent or None. */
static const ckpt_value *ur_get(const ckpt_uni *u, const char *key)
{
    const ckpt_value *v = ckpt_value_get(u->head.model.root, key);

    return v && v->kind != CKPT_V_NONE ? v : NULL;
}

/* The run's ZeRO stage, from the kind of its model file and from optimizer_state.pt. */
static int ur_stage(const ckpt_uni *u)
{
    int stage = 0;

    if (u->dir.whole.n == 0)
        return u->dir.parts.n ? 3 : 0;
    // ckpt writes model files of both kinds: prefer the one with a complete module.
    if (!ckpt_ds_stage(ckpt_value_get(u->head.optim.root, "zero_stage"), &stage) || stage == 3 ||
        stage == 0)
        return 1;
    return stage;
}

static int ur_open(ckpt_uni *u)
{
    const ckpt_ds_parts *models = u->dir.whole.n ? &u->dir.whole : &u->dir.parts;
    ckpt_ds_part optim = {.path = u->dir.optim};
    int rc = CKPT_OK;

    if (u->dir.optim)
        rc = ckpt_ds_shard_open(&u->job, &u->head.optim, &optim);
    else
        rc =
            ckpt_map_note(u->job.map, CKPT_WARNING, u->job.err,
                          "%s: no zero/optimizer_state.pt: parameter groups and loss scale are not "
                          "known, and DeepSpeed will not resume from it",
                          u->job.map->path);
    if (rc == CKPT_OK && models->n)
        rc = ckpt_ds_shard_open(&u->job, &u->head.model, &models->at[0]);
    else if (rc == CKPT_OK)
        rc = ckpt_map_note(u->job.map, CKPT_WARNING, u->job.err,
                           "%s: no model file (*_model_states.pt): the order of the parameters and "
                           "the buffers are not known, and DeepSpeed will not resume from it",
                           u->job.map->path);
    // stages 1 and 2 cannot resume without a complete module
    int stage = 0;
    bool lost = u->dir.whole.n == 0 && u->dir.parts.n > 0 && u->head.optim.map &&
                ckpt_ds_stage(ckpt_value_get(u->head.optim.root, "zero_stage"), &stage) &&
                (stage == 1 || stage == 2);
    if (rc == CKPT_OK && lost)
        rc = ckpt_map_note(u->job.map, CKPT_WARNING, u->job.err,
                           "%s: no mp_rank_00_model_states.pt, and the run was of stage %d: "
                           "DeepSpeed will not resume it at stages 1 and 2",
                           u->job.map->path, stage);
    if (rc == CKPT_OK)
        rc = ckpt_uni_ranks(u);
    if (rc == CKPT_OK && u->job.map->collect && !u->job.broken)
        rc = ckpt_uni_models(u);
    u->head.stage = ur_stage(u);
    u->head.world = u->dir.whole.n ? 1 : (uint32_t)u->dir.parts.n;
    u->shapes_whole = u->dir.n_mp <= 1;
    return rc;
}

/* ---- parameters ---- */

/* Hash index callback: compare a name with that of entry `number` of u->param. */
static bool ur_same(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_uni *u = ctx;

    return strcmp(u->param.at[number].shape.name, key) == 0;
}

/* True if u->param has a parameter of this name. */
static bool ur_known(const ckpt_uni *u, const ckpt_index *ix, const char *name)
{
    uint32_t hash = ckpt_hash_bytes(name, strlen(name), 0);

    return ckpt_index_find(ix, hash, ur_same, u, name) != CKPT_INDEX_NONE;
}

/* The folder of a parameter below zero/; all experts of an AutoEP layer share one. */
static const char *ur_folder(const ckpt_uni *u, const ckpt_ds_param *p)
{
    size_t n = 0;
    const char *whole = ckpt_ds_autoep_whole(p, &n);

    return ckpt_arena_string(u->job.map->arena, whole, n);
}

/* Append a parameter unless its name is known: pipeline stages repeat tied parameters, and
 * tensor-parallel ranks repeat names. */
static int ur_param(ckpt_uni *u, ckpt_index *ix, const ckpt_ds_param *like, bool trained)
{
    uint32_t hash = ckpt_hash_bytes(like->name, strlen(like->name), 0);
    char *name;

    if (ur_known(u, ix, like->name))
        return CKPT_OK;
    ckpt_uni_param *p = ckpt_vec_push(&u->param);
    const char *folder = ur_folder(u, like);
    name = ckpt_arena_string(u->job.map->arena, like->name, like->n_name);
    if (!p || !name || !folder || !ckpt_index_add(ix, hash, (uint32_t)(u->param.n - 1)))
        return ckpt_fail_memory(u->job.err);
    p->shape = *like;
    p->shape.name = name;
    p->trained = trained;
    p->entry = ckpt_uni_entry_find(&u->dir, folder);
    return CKPT_OK;
}

/* Append param_shapes of one model file, which is a list of dicts or one dict. */
static int ur_shapes_of(ckpt_uni *u, ckpt_ds_params *out, const ckpt_value *shapes)
{
    ckpt_seq list = ckpt_value_seq(shapes);
    int rc = CKPT_OK;

    bool one = shapes->kind != CKPT_V_LIST && shapes->kind != CKPT_V_TUPLE;

    if ((one ? 1 : list.n) > u->n_parts)
        u->n_parts = one ? 1 : list.n;
    if (one)
        return ckpt_ds_params_add(&u->job, out, shapes, 0, "param_shapes");
    for (uint64_t i = 0; rc == CKPT_OK && i < list.n && i < UINT32_MAX; i++)
        rc = ckpt_ds_params_add(&u->job, out, list.at[i], (uint32_t)i, "param_shapes");
    return rc;
}

/*
 * Append the parameters of later pipeline stages; tensor-parallel ranks add no new names.  Each
 * rank's file must belong to the same save as the first.
 */
static int ur_shapes_more(ckpt_uni *u, ckpt_ds_params *out)
{
    int rc = CKPT_OK;

    for (size_t i = 1; rc == CKPT_OK && i < u->dir.whole.n; i++) {
        ckpt_ds_shard s;
        size_t from = out->n;
        rc = ckpt_ds_shard_open(&u->job, &s, &u->dir.whole.at[i]);
        if (rc == CKPT_OK && s.map)
            rc = ckpt_uni_same_save(u, &s);
        if (rc == CKPT_OK && s.map)
            rc = ckpt_ds_client_beside(&u->job, &u->head, &s);
        const ckpt_value *shapes = s.map ? ckpt_value_get(s.root, "param_shapes") : NULL;
        if (rc == CKPT_OK && shapes && shapes->kind != CKPT_V_NONE)
            rc = ur_shapes_of(u, out, shapes);
        // Copy the names into the map, because the shard is closed below.
        for (size_t k = from; rc == CKPT_OK && k < out->n; k++) {
            out->at[k].name =
                ckpt_arena_string(u->job.map->arena, out->at[k].name, out->at[k].n_name);
            rc = out->at[k].name ? CKPT_OK : ckpt_fail_memory(u->job.err);
        }
        ckpt_ds_shard_close(&s);
    }
    return rc;
}

/* Enter the parameters of the n_parts dicts group by group, and count them. */
static int ur_shapes(ckpt_uni *u, ckpt_index *ix, const ckpt_ds_params *all)
{
    int rc = CKPT_OK;

    u->n_part = ckpt_alloc((u->n_parts + 1) * sizeof *u->n_part);
    if (!u->n_part)
        return ckpt_fail_memory(u->job.err);
    // A single model file lists them in order already, so one pass is enough.
    for (size_t g = 0, from = 0; rc == CKPT_OK && g < u->n_parts; g++) {
        bool sorted = u->dir.whole.n <= 1;
        size_t before = u->param.n;
        for (size_t i = sorted ? from : 0; rc == CKPT_OK && i < all->n; i++) {
            if (all->at[i].group == g)
                rc = ur_param(u, ix, &all->at[i], true);
            else if (sorted)
                break;
            from = i + 1;
        }
        u->n_part[g] = u->param.n - before;
    }
    u->n_shapes = u->param.n;
    return rc;
}

/* True if an entry has files besides fp32.pt; only trained parameters have such files. */
static bool ur_has_states(const ckpt_uni *u, const ckpt_uni_entry *e)
{
    return e->n > 1 || (e->n == 1 && strcmp(u->dir.file.at[e->first], "fp32") != 0);
}

/* Report folders of zero/ that are left out: unknown parameters, and slices. */
static int ur_tell(ckpt_uni *u, size_t n_strange, const char *strange, size_t n_cut,
                   const char *cut)
{
    int rc = CKPT_OK;

    if (n_strange)
        rc = ckpt_map_note(u->job.map, CKPT_WARNING, u->job.err,
                           "%s/zero: left out %zu folders of parameters that the model file does "
                           "not list (%.200s): an earlier conversion left them behind",
                           u->job.map->path, n_strange, strange);
    if (rc == CKPT_OK && n_cut)
        rc = ckpt_map_note(u->job.map, CKPT_WARNING, u->job.err,
                           "%s/zero: %zu tensors that are not trained (%.200s) are left out: the "
                           "converter keeps one tensor-parallel slice of them",
                           u->job.map->path, n_cut, cut);
    return rc;
}

/* True if p belongs to AutoEP: it has a second name, or shares one folder with other experts. */
static bool ur_is_autoep(const ckpt_uni *u, const ckpt_ds_param *p)
{
    bool is = ckpt_ds_autoep_of(&u->head, p->name, p->n_name) != NULL;

    for (size_t i = 0; !is && i < u->module.tie.n; i++)
        is = strcmp(u->module.tie.at[i].key->as.text.at, p->name) == 0;
    return is;
}

/*
 * Enter the entries of zero/ that param_shapes does not list, unless the model file holds a better
 * copy.  Without param_shapes every entry with optimizer state is a trained parameter; such entries
 * come first.
 */
static int ur_others(ckpt_uni *u, ckpt_index *ix, bool trained)
{
    const ckpt_value *shared = ur_get(u, "shared_params");
    const char *strange = "", *cut = "";
    size_t n_strange = 0, n_cut = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < u->dir.entry.n; i++) {
        const ckpt_uni_entry *e = &u->dir.entry.at[i];
        ckpt_ds_param like = {.name = e->name, .n_name = strlen(e->name)};
        const ckpt_pair *held = ckpt_ds_index_find(&u->module.by_name, like.name, like.n_name);
        bool states = ur_has_states(u, e);
        if (ckpt_value_get(shared, e->name) || ur_is_autoep(u, &like) ||
            ckpt_map_index(u->job.map, like.name, like.n_name) != SIZE_MAX ||
            ur_known(u, ix, e->name) || (trained && !states))
            continue;
        if (!trained && u->job.opts->skip_frozen) {
            u->job.map->effects |= CKPT_USED_FROZEN;
            continue;
        }
        if (!trained && (states || (!held && u->module.dict.n))) {
            strange = e->name;
            n_strange++;
        } else if (!trained && held && u->head.stage != 3) {
            // The module of stage 3 has placeholders for parameters, so zero/ is their only source.
            cut = u->shapes_whole ? cut : e->name;
            n_cut += !u->shapes_whole;
        } else {
            rc = ur_param(u, ix, &like, trained);
        }
    }
    return rc == CKPT_OK ? ur_tell(u, n_strange, strange, n_cut, cut) : rc;
}

/* ---- contents of the model file ---- */

/*
 * Read the module and its lists.  Entries about model-parallel ranks and expert files are ignored,
 * because the tensors of zero/ are whole.
 */
static int ur_module(ckpt_uni *u)
{
    int rc = ckpt_ds_autoep_read(&u->job, &u->head);

    return rc == CKPT_OK ? ckpt_ds_module_begin(&u->job, &u->head, &u->module) : rc;
}

/* Stage 3: read one rank's fragments of frozen parameters, its client state and buffers. */
static int ur_rank_model(void *ctx, ckpt_ds_shard *s)
{
    ckpt_uni *u = ctx;
    int rc = u->module.frozen.n && u->shapes_whole
                 ? ckpt_ds_frozen_read(&u->job, &u->head, &u->module, s)
                 : CKPT_OK;

    return rc == CKPT_OK && !u->dir.whole.n ? ckpt_ds_client_note(&u->job, &u->head, s) : rc;
}

/* Read the model files of all ranks; fragments need every rank's file. */
static int ur_parts(ckpt_uni *u)
{
    int rc = CKPT_OK;

    if (u->module.frozen.n && u->shapes_whole) {
        rc = ckpt_ds_folder_check(&u->job, &u->dir.parts, "model");
        if (rc == CKPT_OK && !u->job.broken)
            rc = ckpt_ds_frozen_read(&u->job, &u->head, &u->module, &u->head.model);
    }
    if (rc == CKPT_OK && !u->job.broken)
        rc = ckpt_ds_shard_each(&u->job, &u->dir.parts, 1, CKPT_DS_SHARDS, ur_rank_model, u);
    return rc;
}

/* Add buffers and frozen parameters.  With tensor parallelism a frozen parameter is left out and
 * reported, because the module holds only one slice of it. */
static int ur_held(ckpt_uni *u, const ckpt_ds_params *trained)
{
    ckpt_ds_module *module = &u->module;
    int rc = ckpt_ds_module_sort(&u->job, &u->head, module, trained);

    if (rc == CKPT_OK)
        rc = ckpt_ds_module_add_buffers(&u->job, &u->head, module);
    if (rc == CKPT_OK && u->head.stage == 3 && u->dir.parts.n)
        rc = ur_parts(u);
    return rc == CKPT_OK && !u->job.broken && u->shapes_whole
               ? ckpt_ds_module_add_frozen(&u->job, &u->head, module)
               : rc;
}

/* Copy the parameters into the list type of the functions for model files. */
static int ur_trained(const ckpt_uni *u, ckpt_ds_params *out)
{
    for (size_t i = 0; i < u->param.n; i++) {
        ckpt_ds_param *p = ckpt_vec_push(out);
        if (!p)
            return ckpt_fail_memory(u->job.err);
        *p = u->param.at[i].shape;
    }
    return CKPT_OK;
}

/* Decide which parameters exist, and read everything else from the model file. */
static int ur_model(ckpt_uni *u, ckpt_index *ix)
{
    const ckpt_value *shapes = ur_get(u, "param_shapes");
    ckpt_ds_params all = {0}, trained = {0};
    bool module = ur_get(u, "module") != NULL;
    int rc = module ? ur_module(u) : CKPT_OK;

    if (rc == CKPT_OK && shapes)
        rc = ur_shapes_of(u, &all, shapes);
    if (rc == CKPT_OK && shapes)
        rc = ur_shapes_more(u, &all);
    if (rc == CKPT_OK)
        rc = ckpt_ds_autoep_expand(&u->job, &u->head, &all, true);
    if (rc == CKPT_OK)
        rc = ur_shapes(u, ix, &all);
    ckpt_vec_free(&all);
    // Without param_shapes, enter parameters with optimizer state first: otherwise they count as
    // frozen.
    if (rc == CKPT_OK && !shapes)
        rc = ur_others(u, ix, true);
    if (rc == CKPT_OK && module)
        rc = ur_trained(u, &trained);
    if (rc == CKPT_OK && module)
        rc = ur_held(u, &trained);
    ckpt_vec_free(&trained);
    return rc == CKPT_OK ? ur_others(u, ix, false) : rc;
}

/* ---- values ---- */

/* The tensor of a file: the root itself, or its entry 'param'. */
static const ckpt_tensor_value *ur_tensor(const ckpt_value *root)
{
    const ckpt_value *v = root;

    if (v->kind == CKPT_V_DICT || v->kind == CKPT_V_ODICT)
        v = ckpt_value_get(v, "param");
    return v && v->kind == CKPT_V_TENSOR ? v->as.tensor : NULL;
}

static bool ur_shape_is(const ckpt_tensor_value *v, const uint64_t *shape, uint32_t ndim)
{
    return v->ndim == ndim && (ndim == 0 || memcmp(v->shape, shape, ndim * sizeof *shape) == 0);
}

/* Map a tensor to a file's tensor of the same shape, or to a flat one as stage 3 writes it. */
static int ur_back(ckpt_uni *u, ckpt_uni_file *f, const ckpt_tensor_value *v, ckpt_tensor *t)
{
    ckpt_value wrapped = {.kind = CKPT_V_TENSOR};
    ckpt_ds_flat flat;

    if (ur_shape_is(v, t->shape, t->ndim))
        return ckpt_ds_shard_back(&u->job, f->shard, v, t);
    wrapped.as.tensor = (ckpt_tensor_value *)(uintptr_t)v;
    int rc = ckpt_ds_shard_flat(&u->job, f->shard, &wrapped, t->name, &flat);
    return rc == CKPT_OK && t->n_elems
               ? ckpt_map_back_whole(u->job.map, t, flat.source, flat.at, u->job.err)
               : rc;
}

/* Check that a file's tensor has the shape of `like`, or is flat with as many elements. */
static int ur_fits(ckpt_uni *u, const ckpt_uni_file *f, const ckpt_tensor_value *v,
                   const ckpt_tensor *like, bool *fits)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < like->ndim; i++)
        n *= like->shape[i]; // cannot overflow: checked when the shape was read
    *fits = ur_shape_is(v, like->shape, like->ndim) || (v->ndim == 1 && v->shape[0] == n);
    if (*fits)
        return CKPT_OK;
    return ckpt_ds_problem(&u->job, CKPT_EMISMATCH,
                           "%s: the shape of the tensor (%" PRIu32
                           " axes) differs from %s: the file is from another parameter or run",
                           f->want->path, v->ndim,
                           f->want->state && strcmp(f->want->state, "fp32") == 0 ? "param_shapes"
                                                                                 : "fp32.pt");
}

/* Add the tensor of a file as the master of parameter `at`, or as one kind of its state. */
static int ur_add_tensor(ckpt_uni *u, ckpt_uni_file *f, size_t at, const ckpt_tensor_value *v)
{
    ckpt_uni_param *p = &u->param.at[at];
    bool master = strcmp(f->want->state, "fp32") == 0, fits = false;
    const char *name = p->shape.name;
    ckpt_tensor like = {0}, *t = NULL;

    if (p->trained && ckpt_dtype_get(v->dtype)->kind != CKPT_IS_FLOAT)
        return ckpt_ds_problem(&u->job, CKPT_EFORMAT,
                               "%s: the tensor is %s, expected float32 masters or moments",
                               f->want->path, ckpt_dtype_name(v->dtype));
    if (p->trained && master && v->dtype != CKPT_F32 && u->n_narrow++ == 0)
        u->narrow = f->want->path;
    like.dtype = v->dtype;
    like.ndim = v->ndim;
    like.shape = v->shape;
    like.flags = v->flags & (CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG);
    like.role = !master ? CKPT_ROLE_STATE : p->trained ? CKPT_ROLE_WEIGHT : CKPT_ROLE_FROZEN;
    if (!master && p->t) {
        like.ndim = p->t->ndim;
        like.shape = p->t->shape;
    } else if (master && at < u->n_shapes && u->shapes_whole) {
        like.ndim = p->shape.ndim;
        like.shape = p->shape.shape;
    }
    int rc = ur_fits(u, f, v, &like, &fits);
    if (rc != CKPT_OK || !fits)
        return rc;
    if (!master)
        name = ckpt_arena_printf(u->job.map->arena, "%s/%s", f->want->state, name);
    rc = name ? ckpt_map_add(u->job.map, name, strlen(name), &like, &t, u->job.err)
              : ckpt_fail_memory(u->job.err);
    if (rc == CKPT_OK)
        rc = ur_back(u, f, v, t);
    if (rc != CKPT_OK || !master)
        return rc;
    p->t = t;
    // The model file has a second copy, except of experts, because no release stores those there.
    bool copy = p->trained && u->shapes_whole && u->head.stage < 3 && u->n_shapes &&
                ckpt_ds_index_find(&u->module.by_name, p->shape.name, strlen(p->shape.name));
    return copy ? ckpt_ds_module_twin(&u->job, &u->head, &u->module, t) : CKPT_OK;
}

/* Split the file of an AutoEP layer, one tensor of all experts, into its parameters. */
static int ur_add_experts(ckpt_uni *u, ckpt_uni_file *f, const ckpt_tensor_value *v)
{
    const ckpt_ds_param *p = &u->param.at[f->want->param].shape;
    int rc = CKPT_OK;

    if (v->ndim != p->ndim + 1 || v->shape[0] != p->fused)
        return ckpt_ds_problem(
            &u->job, CKPT_EMISMATCH,
            "%s: the tensor has %" PRIu32 " axes, the first of size %" PRIu64 "; expected %" PRIu32
            " axes, the first of size %" PRIu32 " (all experts): the file is from another run",
            f->want->path, v->ndim, v->ndim ? v->shape[0] : 0, p->ndim + 1, p->fused);
    for (uint32_t i = 0; rc == CKPT_OK && i < p->fused; i++) {
        ckpt_tensor_value one = *v;
        uint64_t from = 0;
        one.ndim--;
        one.shape++;
        one.stride++;
        if (!ckpt_mul((uint64_t)v->stride[0], i, &from) || !ckpt_add(v->offset, from, &one.offset))
            return ckpt_fail(u->job.err, CKPT_EFORMAT, "%s: the size of the tensor overflows",
                             f->want->path);
        rc = ur_add_tensor(u, f, f->want->param + i, &one);
    }
    return rc;
}

/* Add the tensor of one file. */
static int ur_add(ckpt_uni *u, ckpt_uni_file *f)
{
    const ckpt_tensor_value *v = ur_tensor(f->shard->root);
    int rc = ckpt_uni_beside(u, f);

    if (rc != CKPT_OK)
        return rc;
    if (!v)
        return ckpt_ds_problem(&u->job, CKPT_EFORMAT,
                               "%s: expected a tensor, bare or as 'param' in a dict",
                               f->want->path);
    return u->param.at[f->want->param].shape.fused ? ur_add_experts(u, f, v)
                                                   : ur_add_tensor(u, f, f->want->param, v);
}

/* Store a parameter's step count and its tree. */
static int ur_step(ckpt_uni *u, ckpt_uni_file *f)
{
    ckpt_uni_param *p = &u->param.at[f->want->param];
    ckpt_value *copy = NULL;

    if (!f->shard->has_step)
        return ckpt_ds_problem(&u->job, CKPT_EFORMAT, "%s: expected a number, or a tensor of one",
                               f->want->path);
    p->has_step = true;
    p->step = f->shard->step;
    // Step counts are nearly always equal, so equal neighbours share one tree.
    ckpt_uni_param *last = &u->param.at[u->last_step];
    if (last->step_tree && last->has_step && !(last->step < p->step) && !(last->step > p->step)) {
        copy = last->step_tree;
    } else {
        int rc = ckpt_ds_tree_copy(&u->job, f->shard, &copy);
        if (rc != CKPT_OK)
            return rc;
        u->last_step = f->want->param;
    }
    p->step_tree = copy;
    int rc = ckpt_ds_state_scalar(&u->job, f->shard, f->shard->root, &p->scalar);
    for (uint32_t i = 1; i < p->shape.fused; i++) {
        p[i].has_step = true;
        p[i].step = p->step;
        p[i].step_tree = p->step_tree;
        p[i].scalar = p->scalar;
    }
    return rc;
}

/* List the files of one kind of state. */
static int ur_wants(ckpt_uni *u, ckpt_uni_wants *wants, const char *state)
{
    wants->n = 0;
    for (size_t i = 0; i < u->param.n; i++) {
        const ckpt_uni_param *p = &u->param.at[i];
        const ckpt_uni_entry *e =
            p->entry != SIZE_MAX && p->shape.in == 0 ? &u->dir.entry.at[p->entry] : NULL;
        for (size_t k = 0; e && k < e->n; k++) {
            if (strcmp(u->dir.file.at[e->first + k], state) != 0)
                continue;
            ckpt_uni_want *want = ckpt_vec_push(wants);
            const char *path = ckpt_arena_printf(u->job.map->arena, "%s/%s.pt", e->path, state);
            if (!want || !path)
                return ckpt_fail_memory(u->job.err);
            *want = (ckpt_uni_want){path, state, i};
        }
    }
    return CKPT_OK;
}

static int ur_read_state(ckpt_uni *u, ckpt_uni_wants *wants, const char *state, ckpt_uni_file_fn fn)
{
    int rc = ur_wants(u, wants, state);

    return rc == CKPT_OK ? ckpt_uni_files_each(u, wants, fn) : rc;
}

/* Report trained parameters without a master. */
static int ur_check_weights(ckpt_uni *u)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < u->param.n; i++) {
        const ckpt_uni_param *p = &u->param.at[i];
        if (!p->t && !u->job.broken)
            rc = ckpt_ds_problem(
                &u->job, CKPT_EMISSING,
                "%s/zero: no file fp32.pt for the parameter %.200s, which the model "
                "file lists: the conversion did not finish, or it was not copied",
                u->job.map->path, p->shape.name);
    }
    return rc;
}

/* Warn about masters in 16 bits: the run kept them so, or a tool converted the files. */
static int ur_say_narrow(ckpt_uni *u)
{
    if (u->n_narrow == 0)
        return CKPT_OK;
    return ckpt_map_note(
        u->job.map, CKPT_WARNING, u->job.err,
        "%s/zero: %zu master weights are not float32 (%.300s): they are used as they are",
        u->job.map->path, u->n_narrow, u->narrow);
}

/*
 * Check the redundant fp32.pt of a buffer or of a tied name.  The model file's value is used,
 * because float32 cannot hold every buffer exactly; but the file must be readable and of the right
 * shape.
 */
static int ur_again(ckpt_uni *u, ckpt_uni_file *f)
{
    const ckpt_tensor *t = u->job.map->tensors.at[f->want->param];
    const ckpt_tensor_value *v = ur_tensor(f->shard->root);
    uint32_t source = 0;

    if (!v)
        return ckpt_ds_problem(&u->job, CKPT_EFORMAT,
                               "%s: expected a tensor, bare or as 'param' in a dict",
                               f->want->path);
    if (v->ndim != t->ndim ||
        (v->ndim && memcmp(v->shape, t->shape, v->ndim * sizeof *v->shape) != 0))
        return ckpt_ds_problem(&u->job, CKPT_EMISMATCH,
                               "%s: the tensor has another shape than %.200s in the model file",
                               f->want->path, t->name);
    // Add the file as a source, so that verify checks its record too.
    return v->storage ? ckpt_ds_shard_source(&u->job, f->shard, v->storage->source, &source)
                      : CKPT_OK;
}

/* Check fp32.pt of all buffers and tied names. */
static int ur_redundant(ckpt_uni *u, ckpt_uni_wants *wants)
{
    const ckpt_map *map = u->job.map;

    wants->n = 0;
    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        size_t at = t->owner || t->role == CKPT_ROLE_BUFFER ? ckpt_uni_entry_find(&u->dir, t->name)
                                                            : SIZE_MAX;
        const ckpt_uni_entry *e = at != SIZE_MAX ? &u->dir.entry.at[at] : NULL;
        for (size_t k = 0; e && k < e->n; k++) {
            if (strcmp(u->dir.file.at[e->first + k], "fp32") != 0)
                continue;
            ckpt_uni_want *want = ckpt_vec_push(wants);
            const char *path = ckpt_arena_printf(u->job.map->arena, "%s/fp32.pt", e->path);
            if (!want || !path)
                return ckpt_fail_memory(u->job.err);
            *want = (ckpt_uni_want){path, "fp32", i};
        }
    }
    return ckpt_uni_files_each(u, wants, ur_again);
}

/* Collect the kinds of state in zero/, sorted by name. */
static int ur_kinds(ckpt_uni *u, ckpt_uni_names *kinds)
{
    for (size_t i = 0; i < u->dir.file.n; i++) {
        const char *name = u->dir.file.at[i];
        size_t k = 0;
        int order = 1;
        while (k < kinds->n && (order = strcmp(kinds->at[k], name)) < 0)
            k++;
        if (order == 0 || strcmp(name, "fp32") == 0 || strcmp(name, "step") == 0)
            continue;
        const char **last = ckpt_vec_push(kinds);
        if (!last)
            return ckpt_fail_memory(u->job.err);
        memmove(&kinds->at[k + 1], &kinds->at[k], (kinds->n - 1 - k) * sizeof *kinds->at);
        kinds->at[k] = name;
    }
    return CKPT_OK;
}

/* Read the masters and tied names; with with_optimizer the states and step counts too. */
static int ur_values(ckpt_uni *u)
{
    ckpt_uni_wants wants = {0};
    ckpt_uni_names kinds = {0};
    int rc = ur_read_state(u, &wants, "fp32", ur_add);

    if (rc == CKPT_OK)
        rc = ur_check_weights(u);
    if (rc == CKPT_OK && u->module.dict.n && !u->job.broken)
        rc = ckpt_ds_module_add_aliases(&u->job, &u->head, &u->module);
    if (rc == CKPT_OK)
        rc = ur_say_narrow(u);
    // Redundant files give no values, so only a check of the whole checkpoint reads them.
    if (rc == CKPT_OK && u->job.map->collect && !u->job.broken)
        rc = ur_redundant(u, &wants);
    if (rc == CKPT_OK)
        rc = ckpt_uni_complete(u);
    if (rc == CKPT_OK && u->job.opts->with_optimizer)
        rc = ur_kinds(u, &kinds);
    for (size_t i = 0; rc == CKPT_OK && i < kinds.n; i++)
        rc = ur_read_state(u, &wants, kinds.at[i], ur_add);
    if (rc == CKPT_OK)
        rc = ur_read_state(u, &wants, "step", ur_step);
    if (rc == CKPT_OK)
        rc = ckpt_uni_say_beside(u);
    ckpt_vec_free(&wants);
    ckpt_vec_free(&kinds);
    return rc;
}

/* ---- trees ---- */

/* Copy one of the two trees into the map. */
static int ur_tree(ckpt_uni *u, ckpt_value *root, const char *key, ckpt_ds_shard *s)
{
    ckpt_value *tree = NULL;
    int rc = s->map ? ckpt_ds_tree_copy(&u->job, s, &tree) : CKPT_OK;

    if (rc == CKPT_OK && tree && !ckpt_dict_add_cstr(u->job.map->arena, &root->as.map, key, tree))
        rc = ckpt_fail_memory(u->job.err);
    return rc;
}

/* Copy both trees into the map under the keys of the deepspeed driver. */
static int ur_trees(ckpt_uni *u)
{
    ckpt_value *root = ckpt_value_new(u->job.map->arena, CKPT_V_DICT);
    int rc = root ? ur_tree(u, root, "model_states", &u->head.model) : ckpt_fail_memory(u->job.err);

    if (rc == CKPT_OK)
        rc = ur_tree(u, root, "optim_states", &u->head.optim);
    u->job.map->values = root;
    return rc;
}

/* ---- the driver ---- */

static void ur_free(ckpt_uni *u)
{
    ckpt_ds_module_free(&u->module);
    ckpt_vec_free(&u->head.autoep);
    ckpt_ds_shard_close(&u->head.model);
    ckpt_ds_shard_close(&u->head.optim);
    ckpt_uni_folder_free(&u->dir);
    ckpt_vec_free(&u->param);
    ckpt_free(u->n_part);
}

static int ur_gather(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                     ckpt_err *err)
{
    static const ckpt_open_opts defaults = {0};
    ckpt_uni u = {
        .job = {.map = map, .opts = opts ? opts : &defaults, .read = list->read, .err = err}};
    ckpt_index ix = {0};
    int rc = ckpt_uni_folder_find(&u, list);

    if (rc == CKPT_OK) {
        map->format = "universal";
        rc = ur_open(&u);
    }
    if (rc == CKPT_OK)
        rc = ur_model(&u, &ix);
    ckpt_index_free(&ix);
    if (rc == CKPT_OK)
        rc = ur_values(&u);
    if (rc == CKPT_OK && !u.job.broken && !u.job.opts->with_optimizer)
        rc = ckpt_ds_autoep_hub(&u.job, &u.head, &u.module);
    if (rc == CKPT_OK)
        rc = ur_trees(&u);
    if (rc == CKPT_OK)
        rc = ckpt_uni_common_step(&u);
    if (rc == CKPT_OK && !u.job.broken && u.job.opts->with_optimizer)
        rc = ckpt_uni_state_make(&u);
    if (rc == CKPT_OK)
        rc = ckpt_uni_facts(&u);
    ur_free(&u);
    return rc;
}

/* If the path is a `latest_universal`, open its folder. */
static int ur_part(const char *file_name)
{
    return strcmp(file_name, "latest_universal") == 0 ? 2 : 0;
}

const ckpt_directory ckpt_directory_universal = {
    .is =
        {
            .name = "universal",
            .signs = "'latest_universal' (universal checkpoints)",
            .note = "DeepSpeed universal checkpoints (a folder per parameter); written so that "
                    "stages 1, 2 "
                    "and 3 of any world load them",
            .caps = CKPT_CAN_READ | CKPT_CAN_WRITE | CKPT_WRITES_STATE | CKPT_HAS_TAGS |
                    CKPT_READS_STATE | CKPT_IS_FOLDER,
            .dtypes = ckpt_ds_dtypes,
        },
    .probe = ckpt_uni_probe,
    .gather = ur_gather,
    .scatter = ckpt_uni_scatter,
    .part = ur_part,
};
