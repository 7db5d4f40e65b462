/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buffer.c: reads the flat buffers of the distributed optimizer: computes each parameter's position
 * in the buffers of its model-parallel rank, and makes tensors of the model from the state in them.
 *
 *     optimizer.distributed.dp_group_idx_<g>.gbuf_idx_0.dtype_(...).bucket_idx_<k>.<kind>
 *
 * g counts tensor-parallel ranks first, then pipeline stages.  Experts that are spread over ranks
 * have a separate optimizer ("chained_1." before the name; the other one is "chained_0."), whose g
 * counts tensor-parallel ranks, then expert-parallel ranks, then stages.
 *
 * A buffer has a stage's parameters in the reverse order of named_parameters(), each at a multiple
 * of 64 elements; a bucket ends with a parameter.  The order is that of Megatron-Core's GPTModel.
 * With modules of Transformer Engine the first norm of a layer belongs to linear_qkv, which then
 * comes after linear_proj, and experts may be grouped by matrix.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/megatron.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/number.h"

enum { MGB_ALIGN = 64, MGB_MAX_RANKS = 65536, MGB_MAX_BUCKETS = 65536, MGB_KINDS = 16 };

#define MGB_PREFIX "optimizer.distributed.dp_group_idx_"

/* ---- places of parameters ---- */

bool ckpt_meg_layout(ckpt_meg_param *param, size_t n, const uint64_t *size, size_t n_buckets)
{
    assert((param || n == 0) && (size || n_buckets == 0));
    size_t bucket = 0;
    uint64_t at = 0;

    for (size_t i = n; i-- > 0;) {
        uint64_t start, end;
        if (bucket >= n_buckets || !ckpt_add(at, MGB_ALIGN - 1, &start))
            return false;
        start -= start % MGB_ALIGN;
        if (!ckpt_add(start, param[i].n, &end) || end > size[bucket])
            return false;
        param[i].bucket = bucket;
        param[i].at = start;
        at = end;
        if (end == size[bucket]) {
            bucket++;
            at = 0;
        }
    }
    return n > 0 && bucket == n_buckets;
}

int ckpt_meg_cut(ckpt_map *map, const ckpt_tensor *bucket, const ckpt_meg_param *param,
                 ckpt_tensor **out, ckpt_err *err)
{
    assert(map && bucket && param && out);
    const int64_t width = (int64_t)(ckpt_dtype_get(bucket->dtype)->bits / 8);
    const uint64_t end = param->at + param->n;
    ckpt_tensor like = {.dtype = bucket->dtype,
                        .ndim = param->ndim,
                        .shape = param->shape,
                        .role = CKPT_ROLE_STATE};
    ckpt_slice_extents cut = {.flat = true};
    int rc = ckpt_map_add_hidden(map, param->name, strlen(param->name), &like, out, err);

    for (uint32_t i = 0; rc == CKPT_OK && i < bucket->n_extents; i++) {
        ckpt_box room;
        const ckpt_extent *e = ckpt_extent_of(bucket, i, &room);
        uint64_t low = e->axis->start, high = low + e->axis->count;
        low = low > param->at ? low : param->at;
        high = high < end ? high : end;
        if (low >= high)
            continue;
        ckpt_axis *axis = ckpt_vec_push(&cut.axis);
        ckpt_extent *to = ckpt_vec_push(&cut.extent);
        if (!axis || !to) {
            rc = ckpt_fail_memory(err);
            break;
        }
        *axis = (ckpt_axis){low - param->at, high - low, width};
        *to = *e;
        to->ndim = 1;
        to->at += (low - e->axis->start) * (uint64_t)width;
    }
    for (size_t i = 0; i < cut.extent.n && i < cut.axis.n; i++)
        cut.extent.at[i].axis = &cut.axis.at[i];
    if (rc == CKPT_OK)
        rc = ckpt_map_back(map, *out, cut.extent.at, (uint32_t)cut.extent.n, err);
    ckpt_vec_free(&cut.extent);
    ckpt_vec_free(&cut.axis);
    return rc;
}

/* ---- buckets ---- */

/* One bucket of one rank. */
typedef struct mgb_bucket {
    uint32_t optimizer, group, number;
    const char *kind;
    ckpt_tensor *tensor;
} mgb_bucket;

CKPT_VEC(mgb_buckets, mgb_bucket);

typedef struct mgb_reader {
    ckpt_meg_job *job;
    ckpt_map *map;
    mgb_buckets bucket; /* sorted by group, kind, number */
    const char *kind[MGB_KINDS];
    size_t n_kinds;
    uint32_t tp, pp, ep;   /* degrees of the current optimizer; ep 1: experts are on one rank */
    uint32_t optimizer;    /* number of the current optimizer */
    bool spread;           /* experts belong to the second optimizer */
    bool grouped;          /* the first matrices of all experts come before the second ones */
    uint64_t layers;       /* in all stages */
    ckpt_meg_params stage; /* the parameters of one rank */
    bool engine;           /* use the module order of Transformer Engine */
    const char *why;       /* why the buffers cannot be used, or NULL */
    ckpt_err *err;
} mgb_reader;

static int mgb_order(const void *pa, const void *pb)
{
    const mgb_bucket *a = pa, *b = pb;
    int by_kind = strcmp(a->kind, b->kind);

    if (a->optimizer != b->optimizer)
        return a->optimizer < b->optimizer ? -1 : 1;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    return by_kind ? by_kind : (a->number > b->number) - (a->number < b->number);
}

/* Parse a bucket's name; false for other names. */
static bool mgb_parse(const char *name, mgb_bucket *out)
{
    const char *at, *dtypes, *after;
    const char *end;
    uint64_t number = 0;

    if (strncmp(name, "chained_0.", 10) == 0 || strncmp(name, "chained_1.", 10) == 0) {
        out->optimizer = name[8] == '1';
        name += 10;
    }
    if (strncmp(name, MGB_PREFIX, sizeof MGB_PREFIX - 1) != 0)
        return false;
    at = name + sizeof MGB_PREFIX - 1;
    end = ckpt_scan_u64(at, &number);
    if (!end || end - at > 6 || strncmp(end, ".gbuf_idx_0.dtype_(", 19) != 0)
        return false;
    out->group = (uint32_t)number;
    dtypes = end + 19;
    after = strstr(dtypes, ").bucket_idx_");
    if (!after)
        return false;
    at = after + 13;
    end = ckpt_scan_u64(at, &number);
    if (!end || end - at > 6 || *end != '.' || !end[1] || strchr(end + 1, '.'))
        return false;
    out->number = (uint32_t)number;
    out->kind = end + 1;
    return true;
}

/* Collect all buckets.  r->why is set if one has an unknown form. */
static int mgb_collect(mgb_reader *r)
{
    for (size_t i = 0; i < r->map->tensors.n; i++) {
        ckpt_tensor *t = r->map->tensors.at[i];
        mgb_bucket b = {.tensor = t}, *slot;
        if (t->role != CKPT_ROLE_OTHER || !strstr(t->name, "optimizer."))
            continue;
        if (!mgb_parse(t->name, &b) || t->ndim != 1 || b.group >= MGB_MAX_RANKS ||
            b.number >= MGB_MAX_BUCKETS) {
            r->why = t->name;
            return CKPT_OK;
        }
        slot = ckpt_vec_push(&r->bucket);
        if (!slot)
            return ckpt_fail_memory(r->err);
        *slot = b;
    }
    if (r->bucket.n > 0)
        qsort(r->bucket.at, r->bucket.n, sizeof *r->bucket.at, mgb_order);
    for (size_t i = 0; i < r->bucket.n; i++) {
        const mgb_bucket *b = &r->bucket.at[i];
        r->spread = r->spread || b->optimizer;
        if (b->group > 0 || b->number > 0 || b->optimizer > 0)
            continue;
        if (r->n_kinds == MGB_KINDS) {
            r->why = b->tensor->name;
            break;
        }
        r->kind[r->n_kinds++] = b->kind;
    }
    return CKPT_OK;
}

/* Find the buckets of a rank and kind: *first and their number, or 0 if a bucket is missing. */
static size_t mgb_of(const mgb_reader *r, uint32_t group, const char *kind, size_t *first)
{
    size_t n = 0;

    for (size_t i = 0; i < r->bucket.n; i++) {
        const mgb_bucket *b = &r->bucket.at[i];
        if (b->optimizer != r->optimizer || b->group != group || strcmp(b->kind, kind) != 0)
            continue;
        *first = n ? *first : i;
        if (b->number != n++)
            return 0;
    }
    return n;
}

/* ---- the order of parameters ---- */

enum { MGB_PLACES = 32 }; /* larger than the number of known names */

/* The position of a parameter in its layer, by its name; 0 if unknown. */
static unsigned mgb_place(const char *name, bool engine)
{
    static const char *const known[] = {
        "self_attention.linear_qkv.layer_norm_weight",
        "self_attention.linear_qkv.layer_norm_bias",
        "self_attention.linear_proj.weight",
        "self_attention.linear_proj.bias",
        "",
        "",
        "self_attention.linear_qkv.weight",
        "self_attention.linear_qkv.bias",
        "self_attention.q_layernorm.weight",
        "self_attention.q_layernorm.bias",
        "self_attention.k_layernorm.weight",
        "self_attention.k_layernorm.bias",
        "mlp.linear_fc1.layer_norm_weight",
        "mlp.linear_fc1.layer_norm_bias",
        "pre_mlp_layernorm.weight",
        "pre_mlp_layernorm.bias",
        "mlp.router.weight",
        "mlp.experts.experts.linear_fc1.weight",
        "mlp.experts.experts.linear_fc2.weight",
        "mlp.shared_experts.gate_weight",
        "mlp.shared_experts.linear_fc1.weight",
        "mlp.shared_experts.linear_fc2.weight",
        "mlp.linear_fc1.weight",
        "mlp.linear_fc1.bias",
        "mlp.linear_fc2.weight",
        "mlp.linear_fc2.bias",
    };

    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i], name) == 0)
            return 1 + (engine && i < 2 ? i + 4 : i);
    }
    return 0;
}

/* The part of a stacked name after "decoder.layers."; NULL for other names. */
static const char *mgb_in_layer(const char *name)
{
    static const char layers[] = "decoder.layers.";

    return strncmp(name, layers, sizeof layers - 1) == 0 ? name + sizeof layers - 1 : NULL;
}

/*
 * Append one parameter of a rank: layer `layer` of weight t, or all of it.  For experts `layer`
 * counts layers and experts.
 *
 * lead  axes of the weight that number layers and experts
 */
static int mgb_push(mgb_reader *r, const ckpt_tensor *t, uint64_t layer, uint32_t lead)
{
    ckpt_meg_param *p = ckpt_vec_push(&r->stage);
    uint64_t *shape = ckpt_arena_array(r->map->arena, t->ndim + 1, sizeof *shape);
    ckpt_slice_rule rule = {0};

    if (!p || !shape)
        return ckpt_fail_memory(r->err);
    *p = (ckpt_meg_param){.name = t->name,
                          .weight = t,
                          .layer = layer,
                          .ndim = t->ndim - lead,
                          .shape = shape,
                          .n = 1};
    memcpy(shape, t->shape + lead, p->ndim * sizeof *shape);
    bool known = r->tp == 1 || ckpt_meg_rule(&rule, r->map, t->name, lead);
    if (!known || (rule.axis >= p->ndim && rule.kind != CKPT_SLICE_SAME)) {
        r->why = t->name;
    } else if (r->tp > 1 && rule.kind != CKPT_SLICE_SAME) {
        r->why = shape[rule.axis] % r->tp ? t->name : r->why;
        shape[rule.axis] /= r->tp;
    }
    for (uint32_t k = 0; k < p->ndim; k++)
        p->n *= shape[k]; // no overflow, because the whole tensor's size fits
    return CKPT_OK;
}

/* Append a weight by name, if the model has it. */
static int mgb_push_named(mgb_reader *r, const char *name)
{
    size_t at = ckpt_map_index(r->map, name, strlen(name));

    return at == SIZE_MAX ? CKPT_OK : mgb_push(r, r->map->tensors.at[at], 0, 0);
}

/* The weight at a position in a layer; NULL: the model has none. */
static const ckpt_tensor *mgb_at(const mgb_reader *r, unsigned place)
{
    for (size_t i = 0; i < r->map->tensors.n; i++) {
        const ckpt_tensor *t = r->map->tensors.at[i];
        const char *name = t->role == CKPT_ROLE_WEIGHT ? mgb_in_layer(t->name) : NULL;
        if (name && mgb_place(name, r->engine) == place)
            return t;
    }
    return NULL;
}

/* Append a rank's experts of a layer, one expert after another or grouped by matrix. */
static int mgb_push_experts(mgb_reader *r, const ckpt_tensor *first, const ckpt_tensor *second,
                            uint64_t layer, uint32_t ep)
{
    uint64_t all = first->shape[1], n = all / r->ep, from = n * ep;
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < 2 * n; i++) {
        uint64_t expert = from + (r->grouped ? i % n : i / 2);
        bool is_first = r->grouped ? i < n : i % 2 == 0;
        rc = mgb_push(r, is_first ? first : second, layer * all + expert, 2);
    }
    return rc;
}

/* Append the current optimizer's parameters of one layer, in the order of its modules. */
static int mgb_push_layer(mgb_reader *r, uint64_t layer, uint32_t ep)
{
    const unsigned experts = mgb_place("mlp.experts.experts.linear_fc1.weight", r->engine);
    int rc = CKPT_OK;

    for (unsigned place = 1; rc == CKPT_OK && place < MGB_PLACES; place++) {
        const ckpt_tensor *t = mgb_at(r, place),
                          *second = place == experts ? mgb_at(r, place + 1) : NULL;
        bool other = place == experts || place == experts + 1;
        if (t && second && r->spread == (r->optimizer == 1))
            rc = mgb_push_experts(r, t, second, layer, ep);
        else if (t && !other && r->optimizer == 0)
            rc = mgb_push(r, t, layer, 1);
    }
    return rc;
}

/* Append the current optimizer's parameters of a pipeline stage. */
static int mgb_stage(mgb_reader *r, uint32_t stage, uint32_t ep)
{
    static const char *const first[] = {"embedding.word_embeddings.weight",
                                        "embedding.position_embeddings.weight"};
    static const char *const last[] = {"decoder.final_layernorm.weight",
                                       "decoder.final_layernorm.bias", "output_layer.weight"};
    uint64_t per = r->layers / r->pp;
    bool ends = r->optimizer == 0;
    int rc = CKPT_OK;

    r->stage.n = 0;
    for (size_t i = 0; rc == CKPT_OK && ends && stage == 0 && i < 2; i++)
        rc = mgb_push_named(r, first[i]);
    for (uint64_t l = per * stage; rc == CKPT_OK && l < per * (stage + 1); l++)
        rc = mgb_push_layer(r, l, ep);
    for (size_t i = 0; rc == CKPT_OK && ends && stage + 1 == r->pp && i < 3; i++)
        rc = mgb_push_named(r, last[i]);
    // if the last stage shares the embedding with the first, both have it as a parameter
    if (rc == CKPT_OK && ends && r->pp > 1 && stage + 1 == r->pp &&
        ckpt_map_index(r->map, last[2], strlen(last[2])) == SIZE_MAX)
        rc = mgb_push_named(r, first[0]);
    return rc;
}

/* Check that every weight has a known position and all stacks have the same number of layers. */
static void mgb_known(mgb_reader *r)
{
    static const char *const outside[] = {
        "embedding.word_embeddings.weight", "embedding.position_embeddings.weight",
        "decoder.final_layernorm.weight", "decoder.final_layernorm.bias", "output_layer.weight"};

    for (size_t i = 0; !r->why && i < r->map->tensors.n; i++) {
        const ckpt_tensor *t = r->map->tensors.at[i];
        const char *name = mgb_in_layer(t->name);
        bool known = t->role != CKPT_ROLE_WEIGHT;
        for (size_t k = 0; !known && k < sizeof outside / sizeof *outside; k++)
            known = strcmp(t->name, outside[k]) == 0;
        if (!known && name && mgb_place(name, false) && t->ndim > ckpt_meg_stacked(t->name) &&
            (r->layers == 0 || r->layers == t->shape[0])) {
            r->layers = t->shape[0];
            known = true;
        }
        r->why = known ? NULL : t->name;
    }
}

/* ---- fitting ---- */

/* True if a parameter begins and ends at the bounds of data-parallel ranks' pieces. */
static bool mgb_bounds(const ckpt_tensor *bucket, const ckpt_meg_param *p)
{
    bool begins = false, ends = false;

    for (uint32_t i = 0; i < bucket->n_extents && !(begins && ends); i++) {
        ckpt_box room;
        const ckpt_axis *a = ckpt_extent_of(bucket, i, &room)->axis;
        begins = begins || a->start == p->at;
        ends = ends || a->start + a->count == p->at + p->n;
    }
    return begins && ends;
}

/* Place a rank's parameters in the buckets of a kind; false if they do not fit. */
static bool mgb_fits(mgb_reader *r, uint32_t group, const char *kind, size_t *first)
{
    uint64_t *size;
    size_t n = mgb_of(r, group, kind, first);
    bool ok = n > 0;

    size = ok ? ckpt_alloc(n * sizeof *size) : NULL;
    for (size_t i = 0; size && i < n; i++)
        size[i] = r->bucket.at[*first + i].tensor->n_elems;
    ok = size && ckpt_meg_layout(r->stage.at, r->stage.n, size, n);
    ckpt_free(size);
    for (size_t i = 0; ok && i < r->stage.n; i++) {
        const ckpt_meg_param *p = &r->stage.at[i];
        ok = mgb_bounds(r->bucket.at[*first + p->bucket].tensor, p);
    }
    return ok;
}

/* The number of model-parallel ranks with buffers of the current optimizer. */
static uint32_t mgb_groups(const mgb_reader *r)
{
    return r->tp * r->ep * r->pp;
}

static int mgb_rank(mgb_reader *r, uint32_t group)
{
    return mgb_stage(r, group / (r->tp * r->ep), group / r->tp % r->ep);
}

/* Check that the parameters of all ranks fit their buckets. */
static int mgb_all_fit(mgb_reader *r, bool *fit)
{
    size_t first = 0;
    int rc = CKPT_OK;

    *fit = r->n_kinds > 0;
    for (uint32_t g = 0; rc == CKPT_OK && *fit && g < mgb_groups(r); g++) {
        rc = mgb_rank(r, g);
        for (size_t k = 0; *fit && k < r->n_kinds; k++)
            *fit = mgb_fits(r, g, r->kind[k], &first);
        *fit = *fit && !r->why;
    }
    return rc;
}

/* ---- state as tensors of the model ---- */

/* Cut one kind of a rank's state into hidden tensors, and append them to `parts`. */
static int mgb_pieces(mgb_reader *r, uint32_t group, const char *kind, ckpt_meg_parts *parts)
{
    size_t first = 0;
    int rc = mgb_rank(r, group);

    if (rc == CKPT_OK && !mgb_fits(r, group, kind, &first))
        return CKPT_OK; // cannot happen: checked before
    for (size_t i = 0; rc == CKPT_OK && i < r->stage.n; i++) {
        const ckpt_meg_param *p = &r->stage.at[i];
        ckpt_meg_part *part;
        // skip the last stage's copy of a shared embedding, because the first stage has it too
        if (r->pp > 1 && group / (r->tp * r->ep) + 1 == r->pp &&
            strncmp(p->name, "embedding.", 10) == 0)
            continue;
        part = ckpt_vec_push(parts);
        if (!part)
            return ckpt_fail_memory(r->err);
        *part = (ckpt_meg_part){.weight = p->weight, .layer = p->layer, .tp = group % r->tp};
        rc = ckpt_meg_cut(r->map, r->bucket.at[first + p->bucket].tensor, p, &part->slice, r->err);
    }
    return rc;
}

static int mgb_kind(mgb_reader *r, const char *kind)
{
    ckpt_meg_parts parts = {0};
    int rc = CKPT_OK;

    for (uint32_t g = 0; rc == CKPT_OK && g < mgb_groups(r); g++)
        rc = mgb_pieces(r, g, kind, &parts);
    if (rc == CKPT_OK)
        rc = ckpt_meg_stack(r->map, kind, &parts, r->tp, r->err);
    ckpt_vec_free(&parts);
    return rc;
}

/* Remove the buckets from the list, because the parameters' tensors now hold their elements. */
static int mgb_drop(mgb_reader *r)
{
    ckpt_tensors *list = &r->map->tensors;
    size_t n = 0;

    for (size_t i = 0; i < list->n; i++) {
        mgb_bucket b;
        if (list->at[i]->role != CKPT_ROLE_OTHER || !mgb_parse(list->at[i]->name, &b))
            list->at[n++] = list->at[i];
    }
    list->n = n;
    return ckpt_map_reindex(r->map, r->err);
}

/* ---- the checkpoint ---- */

/* A parallel degree from the run's arguments. */
static uint32_t mgb_size(const mgb_reader *r, const char *name)
{
    int64_t n = ckpt_meg_arg(r->job, name);

    return n > 0 && n < MGB_MAX_RANKS ? (uint32_t)n : 1;
}

/* Set the parallel degrees of an optimizer. */
static void mgb_grid(mgb_reader *r, uint32_t optimizer)
{
    uint32_t own = mgb_size(r, "expert_tensor_parallel_size"), groups;

    r->optimizer = optimizer;
    r->tp = mgb_size(r, "tensor_model_parallel_size");
    r->pp = mgb_size(r, "pipeline_model_parallel_size");
    r->ep = optimizer ? mgb_size(r, "expert_model_parallel_size") : 1;
    if (optimizer && ckpt_meg_arg(r->job, "expert_tensor_parallel_size") > 0)
        r->tp = own;
    if (ckpt_meg_arg(r->job, "virtual_pipeline_model_parallel_size") > 1)
        r->why = "of a virtual pipeline";
    else if (r->layers % r->pp || (uint64_t)r->tp * r->ep * r->pp > MGB_MAX_RANKS)
        r->why = "of uneven pipeline stages";
    groups = r->why ? 0 : mgb_groups(r);
    for (size_t i = 0; !r->why && i < r->bucket.n; i++) {
        const mgb_bucket *b = &r->bucket.at[i];
        r->why = b->optimizer != optimizer || b->group < groups ? NULL : b->tensor->name;
    }
    for (size_t i = 0; !r->why && r->ep > 1 && i < r->map->tensors.n; i++) {
        const ckpt_tensor *t = r->map->tensors.at[i];
        r->why = ckpt_meg_stacked(t->name) == 2 && t->shape[1] % r->ep ? t->name : NULL;
    }
}

/* Two if experts are spread over ranks, because these have a separate optimizer. */
static uint32_t mgb_optimizers(const mgb_reader *r)
{
    return r->spread ? 2 : 1;
}

/* Try one order of modules: *fit if the parameters of all optimizers fit their buckets. */
static int mgb_try(mgb_reader *r, unsigned order, bool *fit)
{
    int rc = CKPT_OK;

    r->engine = order & 1;
    r->grouped = order & 2;
    *fit = true;
    for (uint32_t o = 0; rc == CKPT_OK && *fit && o < mgb_optimizers(r); o++) {
        mgb_grid(r, o);
        *fit = !r->why;
        if (*fit)
            rc = mgb_all_fit(r, fit);
    }
    return rc;
}

static int mgb_read(mgb_reader *r)
{
    bool fit = false;
    int rc = mgb_collect(r);

    if (rc != CKPT_OK || r->bucket.n == 0 || r->why)
        return rc;
    mgb_known(r);
    for (unsigned order = 0; rc == CKPT_OK && !r->why && !fit && order < 4; order++)
        rc = mgb_try(r, order, &fit);
    if (rc == CKPT_OK && !fit && !r->why)
        r->why = "no known order of the parameters fills them";
    for (uint32_t o = 0; rc == CKPT_OK && fit && o < mgb_optimizers(r); o++) {
        mgb_grid(r, o);
        for (size_t k = 0; rc == CKPT_OK && k < r->n_kinds; k++)
            rc = mgb_kind(r, r->kind[k]);
    }
    return rc == CKPT_OK && fit ? mgb_drop(r) : rc;
}

int ckpt_meg_buffers(ckpt_meg_job *job, const char **why)
{
    mgb_reader r = {.job = job, .map = job->map, .err = job->err};
    int rc = mgb_read(&r);

    ckpt_vec_free(&r.bucket);
    ckpt_vec_free(&r.stage);
    *why = r.why;
    return rc;
}
