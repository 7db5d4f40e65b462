/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whole.c: checks that no rank's file is missing.
 *
 * No file records the number of ranks.  The size of the whole model comes from params.json;
 * otherwise from the norms, because every rank has them complete.  Source: model.py of Meta's llama
 * and llama3 repositories: wq, wk, wv and output are split by rows, wo by columns, the embedding by
 * columns (Llama 2) or rows (Llama 3).
 */
#include "formats/consolidated/whole.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/number.h"
#include "libckpt/codec/json/json.h"

#define CONW_PARAMS (UINT64_C(1) << 20) /* largest params.json, in bytes */

typedef struct conw_model {
    ckpt_map *map;
    const ckpt_listing *list;
    uint32_t n; /* ranks */
    ckpt_err *err;
    const ckpt_value *params; /* NULL without params.json */
} conw_model;

/* A tensor of the first rank with ndim axes, or NULL. */
static const ckpt_tensor *conw_find(const conw_model *m, const char *name, uint32_t ndim)
{
    assert(m->map && name && ndim > 0);
    char full[128];
    int n = snprintf(full, sizeof full, "%s%s", m->n > 1 ? "mp_rank_00/" : "", name);
    size_t at = ckpt_map_index(m->map, full, (size_t)n);
    const ckpt_tensor *t = at != SIZE_MAX ? m->map->tensors.at[at] : NULL;

    return t && t->ndim == ndim ? t : NULL;
}

/* A positive number of params.json, or 0 (Meta writes -1 for an unknown one). */
static uint64_t conw_said(const conw_model *m, const char *key)
{
    int64_t n = 0;

    return ckpt_value_as_int(ckpt_value_get(m->params, key), &n) && n > 0 && n < INT32_MAX
               ? (uint64_t)n
               : 0;
}

/*
 * Compare the slices' sum with the whole: n ranks of `each` elements along an axis that has `all`
 * elements according to `says`.
 */
static int conw_slices(const conw_model *m, const char *name, uint64_t each, uint64_t all,
                       const char *says)
{
    uint64_t here = each * m->n; // no overflow: each < 2^31, and at most 10^4 ranks

    if (each == 0 || each >= INT32_MAX || all == 0 || here == all)
        return CKPT_OK;
    if (here < all && all % each == 0)
        return ckpt_map_problem(
            m->map, CKPT_EMISSING, m->err,
            "%s: found %" PRIu32 " of %" PRIu64 " files: each has %s with %" PRIu64 " of %" PRIu64
            " rows or columns, by %s; copy all files from consolidated.00.pth to "
            "consolidated.%02" PRIu64 ".pth%s",
            m->list->folder, m->n, all / each, name, each, all, says, all / each - 1,
            m->params ? "" : ", and params.json, which says how large the model is");
    if (!m->params)
        return CKPT_OK; // not an error: attention heads may be wider or narrower than the model
    return ckpt_map_problem(m->map, CKPT_EMISMATCH, m->err,
                            "%s: %s has %" PRIu64 " in each of %" PRIu32 " files, %s says %" PRIu64
                            " in all: the files may be from two models",
                            m->list->folder, name, each, m->n, says, all);
}

/* Count the ranks by wq, because every Llama splits it by rows. */
static int conw_heads(const conw_model *m, uint64_t dim)
{
    static const char name[] = "layers.0.attention.wq.weight";
    const ckpt_tensor *wq = conw_find(m, name, 2);
    uint64_t heads = conw_said(m, "n_heads"), wide = conw_said(m, "head_dim"), all = dim;

    if (!wq || dim == 0)
        return CKPT_OK;
    if (heads && wide)
        all = heads * wide;
    return conw_slices(m, name, wq->shape[0], all,
                       m->params ? "n_heads and dim in params.json" : "the size of its input");
}

/* Count the ranks by the embedding, split along one of its axes, and by the output layer. */
static int conw_table(const conw_model *m, uint64_t dim)
{
    static const char name[] = "tok_embeddings.weight";
    const ckpt_tensor *table = conw_find(m, name, 2), *head = conw_find(m, "output.weight", 2);
    uint64_t vocab = conw_said(m, "vocab_size");
    int rc = CKPT_OK;

    if (table && dim && table->shape[1] < dim)
        rc = conw_slices(m, name, table->shape[1], dim,
                         m->params ? "dim in params.json" : "the size of the norms");
    else if (table && vocab)
        rc = conw_slices(m, name, table->shape[0], vocab, "vocab_size in params.json");
    return rc == CKPT_OK && head && vocab
               ? conw_slices(m, "output.weight", head->shape[0], vocab, "vocab_size in params.json")
               : rc;
}

/* Report layers that the first rank lacks, also those between other layers. */
static int conw_layers(const conw_model *m)
{
    uint64_t said = conw_said(m, "n_layers"), most = 0, seen = 0;
    size_t skip = m->n > 1 ? strlen("mp_rank_00/") : 0;
    uint8_t *is = ckpt_alloc(said + 1);

    if (!is)
        return ckpt_fail_memory(m->err);
    for (size_t i = 0; i < m->map->tensors.n; i++) {
        const char *name = m->map->tensors.at[i]->name;
        const char *end;
        uint64_t layer = 0;
        if (strlen(name) < skip || strncmp(name + skip, "layers.", 7) != 0)
            continue;
        end = ckpt_scan_u64(name + skip + 7, &layer);
        if (!end || *end != '.')
            continue;
        most = layer + 1 > most ? layer + 1 : most;
        seen += layer < said && !is[layer];
        if (layer < said)
            is[layer] = 1;
    }
    ckpt_free(is);
    if (said == 0 || most == 0 || seen == said)
        return CKPT_OK;
    return ckpt_map_problem(m->map, CKPT_EMISSING, m->err,
                            "%s: the files hold tensors of %" PRIu64
                            " layers, but params.json says %" PRIu64
                            ": a file is incomplete or from another model",
                            m->list->folder, seen, said);
}

/* Read params.json into m->params; if it is unreadable, only warn. */
static int conw_params(conw_model *m, ckpt_arena *arena)
{
    const char *path = ckpt_path_join(arena, m->list->folder, "params.json");
    ckpt_err local = {0};
    ckpt_value *v = NULL;

    if (!path)
        return ckpt_fail_memory(m->err);
    if (!ckpt_listing_has(m->list, "params.json", false))
        return m->map->collect
                   ? ckpt_map_note(
                         m->map, CKPT_WARNING, m->err,
                         "%s: params.json is missing: no other file says how large the model is, "
                         "and Meta's code cannot load the model without it; copy it",
                         m->list->folder)
                   : CKPT_OK;
    if (ckpt_json_read(&v, arena, path, CONW_PARAMS, &local) != CKPT_OK)
        return ckpt_map_note(m->map, CKPT_WARNING, m->err,
                             "%s; ckpt cannot tell whether files are missing", local.text);
    m->params = v;
    return CKPT_OK;
}

int ckpt_con_whole(ckpt_map *map, const ckpt_listing *list, uint32_t n, ckpt_err *err)
{
    assert(map && list);
    conw_model m = {.map = map, .list = list, .n = n, .err = err};
    ckpt_arena *arena = ckpt_arena_new(0);
    int rc = arena ? conw_params(&m, arena) : ckpt_fail_memory(err);
    const ckpt_tensor *norm = conw_find(&m, "norm.weight", 1);
    uint64_t dim = norm ? norm->shape[0] : conw_said(&m, "dim");

    if (rc == CKPT_OK && norm && conw_said(&m, "dim") && conw_said(&m, "dim") != dim)
        rc = ckpt_map_problem(map, CKPT_EMISMATCH, err,
                              "%s: norm.weight has %" PRIu64
                              " elements, dim in params.json is %" PRIu64
                              ": params.json may be from another model",
                              list->folder, dim, conw_said(&m, "dim"));
    if (rc == CKPT_OK)
        rc = conw_heads(&m, dim);
    if (rc == CKPT_OK)
        rc = conw_table(&m, dim);
    if (rc == CKPT_OK)
        rc = conw_layers(&m);
    ckpt_arena_free(arena);
    return rc;
}
