/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipe.c: assigns layers to pipeline stages, and builds a stage's module from its layer files.
 *
 * A stage's model file has no module. Weights and buffers are in one file per layer
 * (deepspeed/runtime/pipe/module.py, save_state_dict) and their names there lack the layer number,
 * which all other files prepend: "weight" of layer 3 is "3.weight". Stages hold layers in ascending
 * order. With ZeRO, param_shapes show the first layer of each stage. Without ZeRO, masters and
 * moments have no names, so their shapes are matched to the layers in order; a note reports a
 * mismatch. Every stage that uses a tied layer has its parameters ("tied_modules.KEY.weight"), but
 * only the first stage has them in a layer file.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/module/module.h"
#include "formats/deepspeed/module/pipe_inside.h"

enum { DSI_MAX_LOANS = 4096 };

/* ---- reading the model files ---- */

static bool dsi_is_tied(const ckpt_value *name)
{
    return name->kind == CKPT_V_STR &&
           strncmp(name->as.text.at, CKPT_DS_TIED, strlen(CKPT_DS_TIED)) == 0;
}

/* Returns the first stage that lists a tied name; UINT32_MAX if none does. */
static uint32_t dsi_lister(const ckpt_ds_pipe *pipe, const char *name)
{
    for (size_t i = 0; i < pipe->tie.n; i++) {
        if (strcmp(pipe->tie.at[i].name, name) == 0)
            return pipe->tie.at[i].stage;
    }
    return UINT32_MAX;
}

/* Records the name of a tied layer. Stages are read in ascending order. */
static bool dsi_add_tie(ckpt_ds_pipe *pipe, uint32_t stage, const ckpt_value *name)
{
    if (!dsi_is_tied(name) || dsi_lister(pipe, name->as.text.at) != UINT32_MAX)
        return true;
    dsi_tie *tie = ckpt_vec_push(&pipe->tie);
    if (tie)
        *tie = (dsi_tie){name->as.text.at, stage};
    return tie != NULL;
}

/* Collects the names of one param_shapes dict that begin with a layer number, and of tied layers.
 */
static bool dsi_add_names(ckpt_ds_pipe *pipe, uint32_t stage, const ckpt_value *shapes)
{
    ckpt_dict dict = ckpt_value_map(shapes);
    uint64_t layer = 0;

    for (uint64_t i = 0; i < dict.n; i++) {
        if (!dsi_add_tie(pipe, stage, dict.at[i].key))
            return false;
        if (dict.at[i].key->kind != CKPT_V_STR ||
            !ckpt_ds_pipe_layer(&dict.at[i].key->as.text, &layer))
            continue;
        dsi_name *name = ckpt_vec_push(&pipe->name);
        if (!name)
            return false;
        *name = (dsi_name){dict.at[i].key->as.text, layer, stage};
    }
    return true;
}

/* Returns a state's first tensor except the step count, because it has the parameter's shape. */
static const ckpt_value *dsi_moment(ckpt_dict states, int64_t number)
{
    for (uint64_t i = 0; i < states.n; i++) {
        // States are written in ascending order, so the first look usually succeeds.
        const ckpt_pair *p = &states.at[((uint64_t)number + i) % states.n];
        ckpt_dict state = ckpt_value_map(p->value);
        if (p->key->kind != CKPT_V_INT || p->key->as.i != number)
            continue;
        for (uint64_t k = 0; k < state.n; k++) {
            if (state.at[k].value->kind == CKPT_V_TENSOR && !ckpt_value_is(state.at[k].key, "step"))
                return state.at[k].value;
        }
    }
    return NULL;
}

/* Without ZeRO: collects one tensor per parameter of the only group; none if the optimizer has
 * several groups. */
static bool dsi_masters(dsi_stage *st, const ckpt_value *optimizer)
{
    ckpt_seq groups = ckpt_value_seq(ckpt_value_get(optimizer, "fp32_groups"));
    ckpt_seq fields = ckpt_value_seq(ckpt_value_get(optimizer, "param_groups"));
    ckpt_dict states = ckpt_value_map(ckpt_value_get(optimizer, "state"));
    ckpt_seq list = {0};

    if (groups.n == 1)
        list = ckpt_value_seq(groups.at[0]);
    else if (groups.n == 0 && fields.n == 1)
        list = ckpt_value_seq(ckpt_value_get(fields.at[0], "params"));
    for (uint64_t i = 0; i < list.n; i++) {
        const ckpt_value *v = list.at[i];
        v = v->kind == CKPT_V_INT ? dsi_moment(states, v->as.i) : v;
        if (!v || v->kind != CKPT_V_TENSOR) {
            st->master.n = 0;
            return true;
        }
        const ckpt_tensor_value **slot = ckpt_vec_push(&st->master);
        if (!slot)
            return false;
        *slot = v->as.tensor;
    }
    return true;
}

/* Reads the names or masters of one stage's model file. */
static int dsi_survey(ckpt_ds_pipe *pipe, const ckpt_ds_job *job, uint32_t stage, const char *path)
{
    dsi_stage *st = &pipe->stage[stage];
    const ckpt_value *root = NULL;
    int rc = ckpt_ds_pipe_open(pipe, job, path, &root);
    const ckpt_value *shapes = ckpt_value_get(root, "param_shapes");
    const ckpt_value *optimizer = ckpt_value_get(root, "optimizer");
    const ckpt_value *inner = ckpt_value_get(optimizer, "optimizer_state_dict");
    ckpt_seq list = ckpt_value_seq(shapes);
    ckpt_seq buffers = ckpt_value_seq(ckpt_value_get(root, "buffer_names"));
    bool fits = true;

    st->has_buffers = ckpt_value_get(root, "buffer_names") != NULL;
    st->buffers = buffers;
    st->first = UINT64_MAX;
    st->whole = shapes && shapes->kind != CKPT_V_NONE;
    for (uint64_t i = 0; fits && i < list.n; i++)
        fits = dsi_add_names(pipe, stage, list.at[i]);
    fits = fits && dsi_add_names(pipe, stage, shapes);
    for (uint64_t i = 0; fits && i < buffers.n; i++)
        fits = dsi_add_tie(pipe, stage, buffers.at[i]);
    if (fits && root && !st->whole)
        fits =
            dsi_masters(st, ckpt_value_get(optimizer, "fp32_groups") || !inner ? optimizer : inner);
    return rc == CKPT_OK && !fits ? ckpt_fail_memory(job->err) : rc;
}

/* Records an entry of an earlier stage's layer that a stage trains too. */
static int dsi_lend(ckpt_ds_pipe *pipe, const ckpt_ds_job *job, const dsi_loan *loan)
{
    dsi_loan *slot = pipe->loan.n < DSI_MAX_LOANS ? ckpt_vec_push(&pipe->loan) : NULL;

    if (pipe->loan.n == DSI_MAX_LOANS && !slot)
        return ckpt_fail(job->err, CKPT_ELIMIT, "%s: more than %d tied parameters", job->map->path,
                         DSI_MAX_LOANS);
    if (!slot)
        return ckpt_fail_memory(job->err);
    *slot = *loan;
    return CKPT_OK;
}

/* ---- stages from names ---- */

/* Sorts by length, then bytes, then stage. */
static int dsi_by_name(const void *a, const void *b)
{
    const dsi_name *x = a, *y = b;

    if (x->text.n != y->text.n)
        return x->text.n < y->text.n ? -1 : 1;
    int order = memcmp(x->text.at, y->text.at, x->text.n);
    if (order)
        return order;
    return x->stage == y->stage ? 0 : x->stage < y->stage ? -1 : 1;
}

/* Finds the lowest layer of each stage. A name that an earlier stage also lists belongs to a tied
 * layer of that stage. */
static int dsi_lowest(ckpt_ds_pipe *pipe, const ckpt_ds_job *job)
{
    int rc = CKPT_OK;

    if (pipe->name.n)
        qsort(pipe->name.at, pipe->name.n, sizeof *pipe->name.at, dsi_by_name);
    for (size_t i = 0; rc == CKPT_OK && i < pipe->name.n; i++) {
        const dsi_name *name = &pipe->name.at[i], *before = i ? name - 1 : NULL;
        dsi_stage *st = &pipe->stage[name->stage];
        if (before && before->text.n == name->text.n &&
            memcmp(before->text.at, name->text.at, name->text.n) == 0) {
            size_t dot = strcspn(name->text.at, ".") + 1;
            rc = dsi_lend(
                pipe, job,
                &(dsi_loan){{name->text.at + dot, name->text.n - dot}, name->layer, name->stage});
        } else if (name->layer < st->first) {
            st->first = name->layer;
        }
    }
    return rc;
}

/*
 * Ends each stage at the first layer of the next; a layer that no stage names joins the preceding
 * stage.
 */
static int dsi_by_names(ckpt_ds_pipe *pipe, ckpt_ds_job *job)
{
    uint64_t next = UINT64_MAX;
    int rc = dsi_lowest(pipe, job);

    if (rc != CKPT_OK)
        return rc;
    for (uint32_t s = pipe->n; s-- > 0;) {
        dsi_stage *st = &pipe->stage[s];
        if (st->first != UINT64_MAX && st->first >= next)
            return ckpt_ds_problem(job, CKPT_EMISMATCH,
                                   "%s: param_shapes of pipeline stage %" PRIu32
                                   " begin at layer %" PRIu64 ", those of the next at %" PRIu64
                                   ": the files are from different runs",
                                   job->map->path, s, st->first, next);
        st->to = next;
        next = st->from = s == 0 ? 0 : st->first == UINT64_MAX ? next : st->first;
    }
    return CKPT_OK;
}

/* ---- stages from shapes ---- */

static bool dsi_same_shape(const ckpt_tensor_value *a, const ckpt_tensor_value *b)
{
    return a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/* Finds the only entry before `end` with a master's shape, at or after *at; false if none or
 * several have it. */
static bool dsi_only(const ckpt_ds_pipe *pipe, const ckpt_tensor_value *master, size_t end,
                     size_t *at)
{
    size_t found = SIZE_MAX, n = 0;

    for (size_t i = 0; i < end; i++) {
        if (dsi_same_shape(pipe->entry.at[i].value, master)) {
            found = i;
            n++;
        }
    }
    if (n != 1 || found < *at)
        return false;
    *at = found;
    return true;
}

/*
 * Returns whether a stage's masters match the layers from entry `begin` on, after its first `tied`
 * masters, which belong to earlier layers. *end is the entry after the stage's last.
 */
static bool dsi_fits(const ckpt_ds_pipe *pipe, const dsi_stage *st, size_t begin, size_t tied,
                     size_t *end)
{
    size_t n = st->master.n - tied, at = 0;

    *end = begin + n;
    if (n == 0 || n > pipe->entry.n - begin)
        return false;
    // A stage cannot end within a layer.
    if (*end < pipe->entry.n && pipe->entry.at[*end].layer == pipe->entry.at[*end - 1].layer)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!dsi_same_shape(pipe->entry.at[begin + i].value, st->master.at[tied + i]))
            return false;
    }
    for (size_t i = 0; i < tied; i++, at++) {
        if (!dsi_only(pipe, st->master.at[i], begin, &at))
            return false;
    }
    return true;
}

/* Records the entries of earlier layers that a stage trains too. */
static int dsi_borrow(ckpt_ds_pipe *pipe, const ckpt_ds_job *job, uint32_t stage, size_t begin,
                      size_t tied)
{
    size_t at = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < tied; i++, at++) {
        // dsi_fits() has found it, so this cannot fail.
        (void)dsi_only(pipe, pipe->stage[stage].master.at[i], begin, &at);
        const dsi_entry *e = &pipe->entry.at[at];
        rc = dsi_lend(pipe, job, &(dsi_loan){*e->name, e->layer, stage});
    }
    return rc;
}

/* Without a unique split into stages, the first stage gets all layers and the masters remain
 * unnamed. */
static int dsi_unsure(ckpt_ds_pipe *pipe, const ckpt_ds_job *job)
{
    for (uint32_t s = 0; s < pipe->n; s++) {
        pipe->stage[s].from = s == 0 ? 0 : UINT64_MAX;
        pipe->stage[s].to = UINT64_MAX;
    }
    pipe->loan.n = 0;
    pipe->unsure = true;
    size_t trained = 0;
    for (uint32_t s = 0; s < pipe->n; s++)
        trained += pipe->stage[s].master.n;
    // Two stages' optimizers hold tied layers, so a wrong count alone proves no file missing.
    if (trained > pipe->entry.n)
        return ckpt_map_note(
            job->map, CKPT_WARNING, job->err,
            "%s: the optimizers have %zu tensors, the layers' files %zu: unless stages share "
            "layers, a layer_*-model_states.pt is missing",
            job->map->path, trained, pipe->entry.n);
    return ckpt_map_note(job->map, CKPT_INFO, job->err,
                         "%s: pipeline stages without ZeRO: the optimizers' tensors do not show to "
                         "which layers they belong; weights are taken from the layers' files",
                         job->map->path);
}

static int dsi_by_shapes(ckpt_ds_pipe *pipe, const ckpt_ds_job *job, const ckpt_ds_folder *dir)
{
    size_t begin = 0, end = 0;
    int rc = ckpt_ds_pipe_entries(pipe, job, dir);

    for (uint32_t s = 0; rc == CKPT_OK && s < pipe->n; s++) {
        dsi_stage *st = &pipe->stage[s];
        size_t tied = 0, most = s == 0 ? 0 : st->master.n;
        bool fits = st->master.n > 0 && dsi_fits(pipe, st, begin, 0, &end);
        while (!fits && tied < most)
            fits = dsi_fits(pipe, st, begin, ++tied, &end);
        if (!fits || (s + 1 == pipe->n && end != pipe->entry.n))
            return dsi_unsure(pipe, job);
        st->from = s == 0 ? 0 : pipe->entry.at[begin].layer;
        st->to = UINT64_MAX;
        if (s > 0)
            pipe->stage[s - 1].to = st->from;
        rc = dsi_borrow(pipe, job, s, begin, tied);
        begin = end;
    }
    return rc;
}

/* ---- creation ---- */

int ckpt_ds_pipe_new(ckpt_ds_pipe **out, ckpt_ds_job *job, const ckpt_ds_folder *dir,
                     const char *const *model, uint32_t n)
{
    assert(out && dir && n > 0);
    ckpt_ds_pipe *pipe = ckpt_alloc(sizeof *pipe);
    bool whole = true;

    *out = pipe;
    if (!pipe)
        return ckpt_fail_memory(job->err);
    pipe->stage = ckpt_alloc(n * sizeof *pipe->stage);
    if (!pipe->stage)
        return ckpt_fail_memory(job->err);
    pipe->n = n;
    pipe->tp = dir->n_mp / n;
    int rc = CKPT_OK;
    for (uint32_t s = 0; rc == CKPT_OK && s < n; s++) {
        rc = dsi_survey(pipe, job, s, model[s]);
        whole = whole && pipe->stage[s].whole;
    }
    if (rc == CKPT_OK)
        rc = whole ? dsi_by_names(pipe, job) : dsi_by_shapes(pipe, job, dir);
    if (rc == CKPT_OK)
        rc = ckpt_ds_pipe_gap(pipe, job, dir);
    return rc;
}

void ckpt_ds_pipe_free(ckpt_ds_pipe *pipe)
{
    if (!pipe)
        return;
    for (size_t i = 0; i < pipe->open.n; i++)
        ckpt_map_free(pipe->open.at[i]);
    for (uint32_t s = 0; s < pipe->n; s++)
        ckpt_vec_free(&pipe->stage[s].master);
    ckpt_vec_free(&pipe->open);
    ckpt_vec_free(&pipe->entry);
    ckpt_vec_free(&pipe->name);
    ckpt_vec_free(&pipe->loan);
    ckpt_vec_free(&pipe->tie);
    ckpt_free(pipe->stage);
    ckpt_free(pipe);
}

/* ---- the module of a stage ---- */

/* Returns whether the stage needs this entry of a layer file. */
static bool dsi_wants(const ckpt_ds_pipe *pipe, uint32_t stage, uint64_t layer,
                      const ckpt_text *name)
{
    const dsi_stage *st = &pipe->stage[stage];

    if (layer >= st->from && layer < st->to)
        return true;
    for (size_t i = 0; i < pipe->loan.n; i++) {
        const dsi_loan *l = &pipe->loan.at[i];
        if (l->stage == stage && l->layer == layer &&
            (!name || (l->name.n == name->n && memcmp(l->name.at, name->at, name->n) == 0)))
            return true;
    }
    return false;
}

/* Entries collected while a stage's layer files are read. */
typedef struct dsi_taking {
    ckpt_ds_job *job;
    ckpt_ds_head *head;
    const ckpt_ds_pipe *pipe;
    uint32_t stage;
    ckpt_ds_pairs pairs;
} dsi_taking;

/* Adds the entries of one layer file to the module, prefixed with the layer number. */
static int dsi_take(void *ctx, ckpt_ds_shard *s)
{
    dsi_taking *t = ctx;
    ckpt_dict dict = ckpt_value_map(s->root);
    ckpt_arena *arena = t->head->model.map->arena;

    for (uint64_t i = 0; i < dict.n; i++) {
        const ckpt_value *key = dict.at[i].key;
        if (key->kind != CKPT_V_STR || !dsi_wants(t->pipe, t->stage, s->rank, &key->as.text))
            continue;
        const char *name = ckpt_arena_printf(arena, "%" PRIu32 ".%s", s->rank, key->as.text.at);
        ckpt_value *full = name ? ckpt_value_cstr(arena, name) : NULL;
        ckpt_pair *p = full ? ckpt_vec_push(&t->pairs) : NULL;
        if (!p)
            return ckpt_fail_memory(t->job->err);
        *p = (ckpt_pair){full, dict.at[i].value};
    }
    return ckpt_ds_shard_merge(t->job, &t->head->model, s);
}

/* Returns a name's shape from any dict of param_shapes. */
static const ckpt_value *dsi_shape(const ckpt_ds_head *head, const ckpt_text *name)
{
    const ckpt_value *shapes = ckpt_value_get(head->model.root, "param_shapes");
    ckpt_seq list = ckpt_value_seq(shapes);
    const ckpt_value *found = NULL;

    for (uint64_t i = 0; !found && i < list.n; i++)
        found = ckpt_value_get(list.at[i], name->at);
    return found;
}

/* Returns whether a tensor has the shape that param_shapes gives as a list of ints. */
static bool dsi_is_of(const ckpt_value *v, const ckpt_value *shape)
{
    ckpt_seq sizes = ckpt_value_seq(shape);
    const ckpt_tensor_value *t = v->kind == CKPT_V_TENSOR ? v->as.tensor : NULL;
    bool same = t && t->ndim == sizes.n;

    for (uint64_t i = 0; same && i < sizes.n; i++)
        same = sizes.at[i]->kind == CKPT_V_INT && sizes.at[i]->as.i >= 0 &&
               (uint64_t)sizes.at[i]->as.i == t->shape[i];
    return same;
}

/* Returns whether the name is in buffer_names. */
static bool dsi_is_buffer(const ckpt_ds_head *head, const ckpt_text *name)
{
    ckpt_seq list = ckpt_value_seq(ckpt_value_get(head->model.root, "buffer_names"));
    bool found = false;

    for (uint64_t i = 0; !found && i < list.n; i++)
        found = ckpt_value_is(list.at[i], name->at);
    return found;
}

/*
 * Renames the entry of a tied layer to its name in the model file. The entry must be the only
 * unlisted one with the same name after the number and the same shape; NULL, for a buffer, allows
 * any shape. Returns the number of such entries.
 */
static unsigned dsi_tied_entry(const ckpt_ds_head *head, ckpt_ds_pairs *pairs, ckpt_value *tied,
                               const ckpt_value *shape)
{
    const char *dot = NULL;
    ckpt_pair *found = NULL;
    unsigned n = 0;

    if (dsi_is_tied(tied))
        dot = strchr(tied->as.text.at + strlen(CKPT_DS_TIED), '.');
    for (size_t i = 0; dot && i < pairs->n; i++) {
        ckpt_pair *p = &pairs->at[i];
        const char *own = strchr(p->key->as.text.at, '.');
        if (own && strcmp(own, dot) == 0 && (!shape || dsi_is_of(p->value, shape)) &&
            !dsi_shape(head, &p->key->as.text) && !dsi_is_buffer(head, &p->key->as.text)) {
            found = p;
            n++;
        }
    }
    if (n == 1)
        found->key = tied;
    return n;
}

/* Returns whether a layer file has an unlisted entry that a tied name may belong to. */
static bool dsi_may_hold(const ckpt_ds_pipe *pipe, const ckpt_ds_job *job, const ckpt_ds_part *part,
                         const char *suffix, const ckpt_value *shape)
{
    ckpt_map *map = NULL;
    ckpt_err err = {0};
    int rc = job->read(&map, part->path, NULL, &err);
    const ckpt_value *v = rc == CKPT_OK ? ckpt_value_get(map->values, suffix + 1) : NULL;
    // The damage of an unreadable file is reported where its entries are taken.
    bool may = rc != CKPT_OK || (v && (!shape || dsi_is_of(v, shape)) &&
                                 !ckpt_ds_pipe_names(pipe, part->rank, suffix + 1));

    ckpt_map_free(map);
    return may;
}

/*
 * Reports a tied name that no layer file holds. Only the first stage that lists the name is asked.
 * The file may count as one of the preceding stage, if no stage names its layer, so all files are
 * searched.
 */
static int dsi_tied_lost(const dsi_taking *t, const ckpt_ds_folder *dir, const ckpt_value *tied,
                         const ckpt_value *shape)
{
    const char *dot = strchr(tied->as.text.at + strlen(CKPT_DS_TIED), '.');

    if (!dot || t->pipe->unsure || dsi_lister(t->pipe, tied->as.text.at) != t->stage)
        return CKPT_OK;
    for (size_t i = 0; i < dir->layers.n; i++) {
        if (dsi_may_hold(t->pipe, t->job, &dir->layers.at[i], dot, shape))
            return CKPT_OK;
    }
    return ckpt_ds_problem(t->job, CKPT_EMISSING,
                           "%s: missing: no file of a layer holds %.200s, which %s lists: a "
                           "layer_*-model_states.pt was not copied, or is of another run",
                           t->job->map->path, tied->as.text.at,
                           shape ? "param_shapes" : "buffer_names");
}

/* Renames all tied parameters and buffers, and reports those that have no entry. */
static int dsi_tied(dsi_taking *t, const ckpt_ds_folder *dir)
{
    ckpt_seq shapes = ckpt_value_seq(ckpt_value_get(t->head->model.root, "param_shapes"));
    ckpt_seq buffers = ckpt_value_seq(ckpt_value_get(t->head->model.root, "buffer_names"));
    int rc = CKPT_OK;

    for (uint64_t g = 0; g < shapes.n; g++) {
        ckpt_dict dict = ckpt_value_map(shapes.at[g]);
        for (uint64_t i = 0; rc == CKPT_OK && i < dict.n; i++) {
            const ckpt_pair *p = &dict.at[i];
            if (dsi_is_tied(p->key) && dsi_tied_entry(t->head, &t->pairs, p->key, p->value) == 0)
                rc = dsi_tied_lost(t, dir, p->key, p->value);
        }
    }
    for (uint64_t i = 0; rc == CKPT_OK && i < buffers.n; i++) {
        if (dsi_is_tied(buffers.at[i]) &&
            dsi_tied_entry(t->head, &t->pairs, buffers.at[i], NULL) == 0)
            rc = dsi_tied_lost(t, dir, buffers.at[i], NULL);
    }
    return rc;
}

int ckpt_ds_pipe_module(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head,
                        const ckpt_ds_pipe *pipe)
{
    dsi_taking t = {.job = job, .head = head, .pipe = pipe};
    ckpt_ds_parts parts = {0};
    bool fits = true;

    if (!pipe)
        return ckpt_ds_problem(job, CKPT_EMISSING,
                               "%s: missing: module is None, as pipeline stages have it, but no "
                               "layer_*-model_states.pt stands beside it: they were not copied",
                               head->model.path);
    t.stage = dir->mp / pipe->tp < pipe->n ? dir->mp / pipe->tp : 0;
    for (size_t i = 0; fits && i < dir->layers.n; i++) {
        const ckpt_ds_part *part = &dir->layers.at[i];
        ckpt_ds_part *p = dsi_wants(pipe, t.stage, part->rank, NULL) ? ckpt_vec_push(&parts) : NULL;
        if (p)
            *p = *part;
        fits = p || !dsi_wants(pipe, t.stage, part->rank, NULL);
    }
    int rc = fits ? ckpt_ds_shard_each(job, &parts, 0, CKPT_DS_SHARDS, dsi_take, &t)
                  : ckpt_fail_memory(job->err);
    ckpt_vec_free(&parts);
    if (rc == CKPT_OK)
        rc = dsi_tied(&t, dir);
    if (rc == CKPT_OK)
        rc = ckpt_ds_module_set(job, head, &t.pairs, false);
    ckpt_vec_free(&t.pairs);
    return rc;
}
