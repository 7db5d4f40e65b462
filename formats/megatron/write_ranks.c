/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_ranks.c: writes the weights of a model with a torch file for each model-parallel rank, as
 * Megatron-LM (--ckpt-format torch) and NeMo 1 load them.
 *
 *     release/mp_rank_<tp>[_<pipeline stage>][_<expert rank>]/model_optim_rng.pt
 *         args                a Namespace with the model's and the parallel sizes
 *         checkpoint_version  3.0: query, key and value of a group follow each other
 *         iteration           0
 *         model               the rank's slices; layers and experts are numbered within the rank
 *
 * The folders of stages and expert ranks have their numbers only if there are several, by
 * get_checkpoint_name of megatron/training/checkpointing.py.  Linear layers have an empty
 * _extra_state, which modules of Transformer Engine expect.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/write_ranks.h"
#include "formats/torch/tree.h"
#include "formats/training/to_fsdp.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/extent.h"

enum { MWR_MAX_RANKS = 65536 };

/* ---- one rank's file ---- */

/* The name of a rank's file. */
static const char *mwr_path(const ckpt_meg_division *d, uint32_t tp, uint32_t pp, uint32_t ep)
{
    ckpt_arena *arena = d->job->to->arena;
    const char *stage = d->size.pp > 1 ? ckpt_arena_printf(arena, "_%03" PRIu32, pp) : "",
               *expert = d->size.ep > 1 ? ckpt_arena_printf(arena, "_%03" PRIu32, ep) : "";

    return stage && expert ? ckpt_arena_printf(arena, "mp_rank_%02" PRIu32 "%s%s/%s", tp, stage,
                                               expert, "model_optim_rng.pt")
                           : NULL;
}

static bool mwr_ends(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);

    return n >= k && strcmp(name + n - k, end) == 0;
}

/* Add a name with an empty extra state; the caller gives each name once. */
static void mwr_none(ckpt_torch_tree *t, ckpt_value *model, const char *name)
{
    ckpt_tt_put_at(t, model, name ? ckpt_tt_str(t, name) : NULL, ckpt_tt_new(t, CKPT_V_NONE));
}

/*
 * Add the empty extra state of a weight's module, and of the attention of its layer.  A module of
 * several experts gets it with its first weight.
 */
static void mwr_extra(ckpt_torch_tree *t, const ckpt_meg_division *d, ckpt_value *model,
                      const ckpt_meg_entry *e)
{
    static const char projection[] = ".self_attention.linear_proj.weight";
    const char *local = e->local, *dot = strrchr(local, '.'), *last = dot;
    ckpt_arena *arena = d->job->to->arena;

    while (last && last > local && last[-1] != '.')
        last--;
    if (!dot || strcmp(dot, e->expert && !d->size.local ? ".weight0" : ".weight") != 0 ||
        (strncmp(last, "linear_", 7) != 0 && strncmp(local, "output_", 7) != 0))
        return;
    mwr_none(t, model, ckpt_arena_printf(arena, "%.*s._extra_state", (int)(dot - local), local));
    if (!d->size.local && mwr_ends(local, projection))
        mwr_none(t, model,
                 ckpt_arena_printf(arena, "%.*s.self_attention.core_attention._extra_state",
                                   (int)(strlen(local) - (sizeof projection - 1)), local));
}

/* Make the dict of a rank's tensors. */
static ckpt_value *mwr_model(ckpt_torch_tree *t, ckpt_meg_division *d, uint32_t tp, uint32_t pp,
                             uint32_t ep)
{
    ckpt_value *model = ckpt_tt_new(t, CKPT_V_ODICT);

    for (size_t i = 0; t->rc == CKPT_OK && i < d->entry.n; i++) {
        ckpt_meg_entry *e = &d->entry.at[i];
        ckpt_value *v;
        if (e->stage != pp || (e->expert && e->ep != ep))
            continue;
        v = ckpt_tt_zeros(t, ckpt_train_written(d->job->target, e->tensor), e->shape,
                          e->tensor->ndim);
        if (v)
            e->source[ep * d->size.tp + tp] = v->as.tensor->storage->source;
        ckpt_tt_put_at(t, model, ckpt_tt_str(t, e->local), v);
        mwr_extra(t, d, model, e);
    }
    return model;
}

static int mwr_file(ckpt_meg_division *d, uint32_t tp, uint32_t pp, uint32_t ep)
{
    const ckpt_train_job *job = d->job;
    const char *path = mwr_path(d, tp, pp, ep);
    ckpt_torch_tree t;
    ckpt_value *root;
    int rc =
        path ? ckpt_tt_begin(&t, job->to, job->from, path, job->err) : ckpt_fail_memory(job->err);

    if (rc != CKPT_OK)
        return rc;
    root = ckpt_tt_new(&t, CKPT_V_DICT);
    ckpt_tt_put(&t, root, "args", ckpt_meg_args(&t, job, &d->size));
    ckpt_tt_put(&t, root, "checkpoint_version", ckpt_tt_float(&t, 3.0));
    ckpt_tt_put(&t, root, "iteration", ckpt_tt_int(&t, 0));
    ckpt_tt_put(&t, root, "model", mwr_model(&t, d, tp, pp, ep));
    return ckpt_tt_end(&t, root);
}

static int mwr_files(ckpt_meg_division *d)
{
    int rc = CKPT_OK;

    for (uint32_t pp = 0; rc == CKPT_OK && pp < d->size.pp; pp++) {
        for (uint32_t ep = 0; rc == CKPT_OK && ep < d->size.ep; ep++) {
            for (uint32_t tp = 0; rc == CKPT_OK && tp < d->size.tp; tp++)
                rc = mwr_file(d, tp, pp, ep);
        }
    }
    return rc;
}

/* ---- values ---- */

/* Make the extent of a box: elements `to` of the whole are elements `from` of a rank's slice. */
static ckpt_extent mwr_extent(const ckpt_meg_entry *e, const uint32_t *source,
                              const ckpt_slice_box *box, unsigned bytes, ckpt_axis *axis)
{
    ckpt_extent x = {.source = source[box->rank], .ndim = e->tensor->ndim, .axis = axis};
    uint64_t by = bytes;

    for (uint32_t k = e->tensor->ndim; k-- > 0; by *= e->shape[k]) {
        axis[k] = (ckpt_axis){box->to[k], box->count[k], (int64_t)by};
        x.at += box->from[k] * by;
    }
    return x;
}

/* Divide a tensor among the tensor-parallel ranks of one expert rank. */
static int mwr_cut(const ckpt_meg_division *d, const ckpt_meg_entry *e, const uint32_t *source,
                   const ckpt_torch_fill *fill)
{
    const uint32_t tp = d->size.tp, ndim = e->tensor->ndim;
    ckpt_tensor like = *e->tensor, *one = &like;
    const ckpt_tensor **slice = ckpt_alloc(tp * sizeof *slice);
    ckpt_slices cut = {0};
    ckpt_axis *axis = NULL;
    ckpt_extent *extent = NULL;
    int rc = slice ? CKPT_OK : ckpt_fail_memory(d->job->err);

    like.shape = e->shape;
    like.n_elems = e->tensor->n_elems / tp;
    for (uint32_t i = 0; rc == CKPT_OK && i < tp; i++)
        slice[i] = one;
    if (rc == CKPT_OK)
        rc = ckpt_slices_new(&cut, &e->rule,
                             &(ckpt_slice_set){.name = e->local, .slice = slice, .n = tp},
                             d->job->err);
    if (rc == CKPT_OK) {
        axis = ckpt_alloc((cut.n_boxes * ndim + 1) * sizeof *axis);
        extent = ckpt_alloc((cut.n_boxes + 1) * sizeof *extent);
        rc = axis && extent ? CKPT_OK : ckpt_fail_memory(d->job->err);
    }
    for (uint64_t i = 0; rc == CKPT_OK && i < cut.n_boxes; i++)
        extent[i] = mwr_extent(e, source, &cut.box[i], ckpt_dtype_get(fill->dtype)->bits / 8,
                               &axis[i * ndim]);
    // a box with one axis is an interval, and intervals ascend
    if (rc == CKPT_OK && ndim == 1)
        ckpt_extent_sort(extent, (uint32_t)cut.n_boxes);
    if (rc == CKPT_OK)
        rc = ckpt_tt_fill(d->job->to, fill, extent, (uint32_t)cut.n_boxes, d->job->err);
    ckpt_slices_free(&cut);
    ckpt_free(extent);
    ckpt_free(axis);
    ckpt_free(slice);
    return rc;
}

/* Give a tensor's values to all ranks that have it, or a slice of it. */
static int mwr_fill(const ckpt_meg_division *d, const ckpt_meg_entry *e)
{
    const uint32_t tp = d->size.tp, first = e->expert ? e->ep : 0,
                   end = e->expert ? e->ep + 1 : d->size.ep;
    const ckpt_torch_fill fill = {"weight", e->tensor,
                                  ckpt_train_written(d->job->target, e->tensor)};
    ckpt_axis all = {0, e->tensor->n_elems, ckpt_dtype_get(fill.dtype)->bits / 8};
    int rc = CKPT_OK;

    for (uint32_t ep = first; rc == CKPT_OK && e->tensor->n_elems > 0 && ep < end; ep++) {
        const uint32_t *source = &e->source[ep * tp];
        if (e->rule.kind != CKPT_SLICE_SAME)
            rc = mwr_cut(d, e, source, &fill);
        for (uint32_t i = 0; rc == CKPT_OK && e->rule.kind == CKPT_SLICE_SAME && i < tp; i++)
            rc = ckpt_tt_fill(d->job->to, &fill,
                              &(ckpt_extent){.source = source[i], .ndim = 1, .axis = &all}, 1,
                              d->job->err);
    }
    return rc;
}

/* ---- the folder ---- */

/* Choose the names: of Transformer Engine's layers, unless the caller wants the others. */
static int mwr_layout(ckpt_meg_division *d)
{
    const char *layout = d->job->target->layout;

    d->size.local = layout && strcmp(layout, "local") == 0;
    if (!layout || d->size.local || strcmp(layout, "transformer_engine") == 0)
        return CKPT_OK;
    return ckpt_fail(d->job->err, CKPT_EUSAGE,
                     "layout '%.100s': expected transformer_engine or local, for the layers of "
                     "Megatron's --transformer-impl",
                     layout);
}

static int mwr_write(ckpt_meg_division *d)
{
    const ckpt_meg_sizes *n = &d->size;
    int rc = mwr_layout(d);

    if (rc == CKPT_OK && (uint64_t)n->tp * n->pp > MWR_MAX_RANKS / n->ep)
        rc =
            ckpt_fail(d->job->err, CKPT_EUSAGE, "more than %d model-parallel ranks", MWR_MAX_RANKS);
    if (rc == CKPT_OK)
        rc = ckpt_meg_divide(d);
    if (rc == CKPT_OK)
        rc = ckpt_meg_foreign(d->job);
    d->size.grouped = d->experts > 0 && !d->size.local;
    if (rc == CKPT_OK)
        rc = ckpt_meg_name_folder(d->job);
    if (rc == CKPT_OK)
        rc = mwr_files(d);
    for (size_t i = 0; rc == CKPT_OK && i < d->entry.n; i++)
        rc = mwr_fill(d, &d->entry.at[i]);
    return rc == CKPT_OK ? ckpt_meg_missing(d->job, "model_optim_rng.pt") : rc;
}

int ckpt_meg_scatter_ranks(ckpt_map *to, const ckpt_map *from, const ckpt_target *target,
                           ckpt_err *err)
{
    assert(to && from && target);
    const ckpt_train_job job = {
        .from = from, .to = to, .target = target, .program = "Megatron-LM", .err = err};
    ckpt_meg_division d = {.job = &job,
                           .size = {.tp = target->tp_size ? target->tp_size : 1,
                                    .pp = target->pp_size ? target->pp_size : 1,
                                    .ep = target->ep_size ? target->ep_size : 1}};
    int rc = mwr_write(&d);

    ckpt_vec_free(&d.entry);
    return rc;
}
