/* SPDX-License-Identifier: Apache-2.0 */
/*
 * params.c: reads the parameters, their groups and their order.
 *
 * param_shapes has the order of the flat buffers.  Since 0.6.0 it is in the model file, one dict
 * per group (stage 3: per sub-group, which the flat groups show too).  From 0.3.14 to 0.5.10 it is
 * in every optimizer file, at first as one dict for all groups in the module's order.  Groups of
 * such files are recognised by the storages that the module's tensors view.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/layout/autoep.h"
#include "libckpt/map/extent.h"

/* ---- shapes ---- */

/* Read a shape: a torch.Size, or a plain tuple of MoE runs and old releases. */
static int dsp_shape(const ckpt_ds_job *job, ckpt_ds_param *p, const ckpt_value *v,
                     const char *what)
{
    ckpt_seq seq = ckpt_value_seq(v);
    bool is_shape =
        v && (v->kind == CKPT_V_SIZE || v->kind == CKPT_V_TUPLE || v->kind == CKPT_V_LIST);

    if (!is_shape || seq.n > CKPT_MAX_DIM)
        return ckpt_fail(job->err, CKPT_EFORMAT,
                         "%s: %s of %.200s: expected a shape of at most %u axes", job->map->path,
                         what, p->name, CKPT_MAX_DIM);
    uint64_t *shape = ckpt_arena_array(job->map->arena, seq.n, sizeof *shape);
    if (!shape)
        return ckpt_fail_memory(job->err);
    for (uint64_t i = 0; i < seq.n; i++) {
        const ckpt_value *size = seq.at[i];
        if (!size || size->kind != CKPT_V_INT || size->as.i < 0)
            return ckpt_fail(job->err, CKPT_EFORMAT,
                             "%s: %s of %.200s: axis %" PRIu64 " is not a size", job->map->path,
                             what, p->name, i);
        shape[i] = (uint64_t)size->as.i;
    }
    p->ndim = (uint32_t)seq.n;
    p->shape = shape;
    if (!ckpt_shape_elems(shape, p->ndim, &p->numel))
        return ckpt_fail(job->err, CKPT_EFORMAT, "%s: %s of %.200s: the size overflows",
                         job->map->path, what, p->name);
    return CKPT_OK;
}

int ckpt_ds_params_add(const ckpt_ds_job *job, ckpt_ds_params *out, const ckpt_value *dict,
                       uint32_t group, const char *what)
{
    assert(job && out && what);
    ckpt_dict map = ckpt_value_map(dict);
    int rc = CKPT_OK;

    if (!dict || (dict->kind != CKPT_V_DICT && dict->kind != CKPT_V_ODICT))
        return ckpt_fail(job->err, CKPT_EFORMAT, "%s: %s: expected names and shapes in a dict",
                         job->map->path, what);
    for (uint64_t i = 0; rc == CKPT_OK && i < map.n; i++) {
        const ckpt_value *key = map.at[i].key;
        if (!key || key->kind != CKPT_V_STR)
            return ckpt_fail(job->err, CKPT_EFORMAT, "%s: %s: a key is not a name", job->map->path,
                             what);
        ckpt_ds_param *p = ckpt_vec_push(out);
        if (!p)
            return ckpt_fail_memory(job->err);
        p->name = key->as.text.at;
        p->n_name = key->as.text.n;
        p->group = group;
        rc = dsp_shape(job, p, map.at[i].value, what);
    }
    return rc;
}

/* ---- one dict for several groups ---- */

/* A parameter, and where its 16-bit copy is stored. */
typedef struct dsp_place {
    const ckpt_storage *storage;
    uint64_t offset; /* elements */
    ckpt_ds_param param;
} dsp_place;

/* Sort by group, then by offset in the group's flat buffer. */
static int dsp_by_place(const void *a, const void *b)
{
    const dsp_place *x = a, *y = b;

    if (x->param.group != y->param.group)
        return x->param.group < y->param.group ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return 0;
}

/* The only group with a flat buffer of n elements; UINT32_MAX if there are none or several. */
static uint32_t dsp_group_of(const ckpt_ds_layout *layout, uint64_t n)
{
    uint32_t found = UINT32_MAX;

    for (uint32_t g = 0; g < layout->group.n; g++) {
        const ckpt_ds_group *group = &layout->group.at[g];
        // rank 0's first slice is never shortened if later slices exist
        if (layout->column.at[0].at[group->part].n * group->n_parts != n)
            continue;
        if (found != UINT32_MAX)
            return UINT32_MAX;
        found = g;
    }
    return found;
}

/* Fail instead of guessing a parameter's group. */
static int dsp_unsure(const ckpt_ds_job *job, const ckpt_ds_layout *layout, const ckpt_ds_param *p)
{
    return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                     "%s: param_shapes of this release do not say to which of %zu parameter groups "
                     "%.200s belongs, "
                     "and the module's storages do not show it either",
                     job->map->path, layout->group.n, p->name);
}

/* Assign parameters to groups by the storages of their 16-bit copies. */
static int dsp_scattered(const ckpt_ds_job *job, const ckpt_ds_index *names, ckpt_ds_layout *layout)
{
    int rc = CKPT_OK;
    dsp_place *place = ckpt_alloc((layout->params.n + 1) * sizeof *place);

    if (!place)
        return ckpt_fail_memory(job->err);
    for (size_t i = 0; rc == CKPT_OK && i < layout->params.n; i++) {
        ckpt_ds_param *p = &layout->params.at[i];
        const ckpt_pair *e = ckpt_ds_index_find(names, p->name, p->n_name);
        const ckpt_tensor_value *t =
            e && e->value->kind == CKPT_V_TENSOR ? e->value->as.tensor : NULL;
        p->group = t && t->storage ? dsp_group_of(layout, t->storage->n_elems) : UINT32_MAX;
        if (p->group == UINT32_MAX) {
            rc = dsp_unsure(job, layout, p);
            break;
        }
        place[i] = (dsp_place){t->storage, t->offset, *p};
    }
    if (rc == CKPT_OK && layout->params.n)
        qsort(place, layout->params.n, sizeof *place, dsp_by_place);
    for (size_t i = 0; rc == CKPT_OK && i < layout->params.n; i++) {
        const dsp_place *before = i ? &place[i - 1] : NULL;
        layout->params.at[i] = place[i].param;
        if (before && before->param.group == place[i].param.group &&
            before->storage != place[i].storage)
            rc = dsp_unsure(job, layout, &layout->params.at[i]);
    }
    ckpt_free(place);
    if (rc == CKPT_OK)
        rc = ckpt_map_note(job->map, CKPT_INFO, job->err,
                           "%s: param_shapes of this release mix %zu parameter groups; sorted by "
                           "the storages of the module",
                           job->map->path, layout->group.n);
    return rc;
}

/* ---- reading ---- */

/* Find param_shapes in the model or the optimizer file; NULL if there are none. */
static const ckpt_value *dsp_find(const ckpt_ds_shard *model, const ckpt_ds_shard *optim)
{
    const ckpt_value *v = ckpt_value_get(model->root, "param_shapes");

    if (!v || v->kind == CKPT_V_NONE)
        v = ckpt_value_get(optim->root, "param_shapes");
    return v && v->kind != CKPT_V_NONE ? v : NULL;
}

/* Count the parameters of each group; their group numbers ascend. */
static void dsp_count(ckpt_ds_layout *layout)
{
    for (size_t i = layout->params.n; i-- > 0;) {
        ckpt_ds_group *g = &layout->group.at[layout->params.at[i].group];
        g->first = i;
        g->n++;
    }
}

/* Read one dict per group, or one dict for all. */
static int dsp_groups(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_index *names,
                      ckpt_ds_layout *layout, const ckpt_value *shapes)
{
    ckpt_seq list = ckpt_value_seq(shapes);
    int rc = CKPT_OK;

    if (shapes->kind == CKPT_V_LIST) {
        for (uint64_t i = 0; rc == CKPT_OK && i < list.n; i++)
            rc = ckpt_ds_params_add(job, &layout->params, list.at[i], (uint32_t)i, "param_shapes");
        if (rc == CKPT_OK && head->stage < 3 && list.n != layout->group.n)
            rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                                 "%s: param_shapes has %" PRIu64
                                 " groups, the optimizer file of rank 0 has %zu",
                                 job->map->path, list.n, layout->group.n);
        return rc;
    }
    rc = ckpt_ds_params_add(job, &layout->params, shapes, 0, "param_shapes");
    if (rc == CKPT_OK && head->stage < 3 && layout->group.n == 0 && layout->params.n > 0)
        rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                             "%s: param_shapes list %zu parameters, but the optimizer file of rank "
                             "0 has no group",
                             job->map->path, layout->params.n);
    if (rc == CKPT_OK && head->stage < 3 && layout->group.n > 1)
        rc = dsp_scattered(job, names, layout);
    return rc;
}

/* The number of parameter groups in the optimizer at stage 3. */
static uint64_t dsp_optimizer_groups(const ckpt_ds_head *head)
{
    return ckpt_value_seq(ckpt_value_get(ckpt_value_get(head->optim.optim, "optimizer_state_dict"),
                                         "param_groups"))
        .n;
}

/* Fail, because the parameters of the flat groups are unknown. */
static int dsp_no_shapes(const ckpt_ds_job *job, const ckpt_ds_head *head)
{
    // A run without ZeRO has overwritten the model file of a ZeRO run.
    if (ckpt_value_map(ckpt_value_get(head->model.root, "optimizer")).n)
        return ckpt_fail(job->err, CKPT_EMISMATCH,
                         "%s: the model file is of a run without ZeRO and holds the optimizer "
                         "itself, but optimizer files of a ZeRO run (*_optim_states.pt) stand "
                         "beside it: they were left behind by another run; move them away",
                         job->map->path);
    return ckpt_fail(
        job->err, CKPT_EUNSUPPORTED,
        "%s: neither the model file nor the optimizer file holds param_shapes, so nothing says "
        "which parameters the flat groups hold (DeepSpeed before 0.3.14, or a shard of another "
        "kind)",
        job->map->path);
}

int ckpt_ds_params_read(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_index *names,
                        ckpt_ds_layout *layout)
{
    assert(head && layout);
    const ckpt_value *shapes = dsp_find(&head->model, &head->optim);

    if (!shapes)
        return dsp_no_shapes(job, head);
    bool one = ckpt_value_map(shapes).n > 0 || shapes->kind != CKPT_V_LIST;
    if (head->stage == 3 && one && dsp_optimizer_groups(head) > 1 &&
        !ckpt_ds_version_at_least(ckpt_ds_version(&head->optim), 0, 4, 3))
        return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                         "%s: stage 3 of a release before 0.4.3 with %" PRIu64
                         " parameter groups: its files list the parameters in another order than "
                         "they store them, and ckpt cannot match the two",
                         job->map->path, dsp_optimizer_groups(head));
    int rc = dsp_groups(job, head, names, layout, shapes);
    if (rc == CKPT_OK)
        rc = ckpt_ds_autoep_expand(job, head, &layout->params, false);
    // With AutoEP stage 3 has a dict for each sub-group in all releases.
    if (rc == CKPT_OK && head->stage == 3 && head->autoep.n &&
        ckpt_value_seq(shapes).n != layout->group.n)
        rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                             "%s: param_shapes has %" PRIu64
                             " sub-groups, the optimizer file of rank 0 has %zu",
                             job->map->path, ckpt_value_seq(shapes).n, layout->group.n);
    if (rc == CKPT_OK && (head->stage < 3 || head->autoep.n) && !job->broken)
        dsp_count(layout);
    return rc;
}

void ckpt_ds_layout_free(ckpt_ds_layout *layout)
{
    for (size_t i = 0; i < layout->group.n; i++) {
        ckpt_zero_flat_free(&layout->group.at[i].flat);
        ckpt_zero_flat_free(&layout->group.at[i].shuffled);
        ckpt_free(layout->group.at[i].order);
    }
    for (size_t i = 0; i < layout->column.n; i++)
        ckpt_free(layout->column.at[i].at);
    ckpt_vec_free(&layout->column);
    ckpt_vec_free(&layout->group);
    ckpt_vec_free(&layout->params);
}
