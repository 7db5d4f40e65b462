/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c: makes the tree of a model file: 16-bit weights or placeholders, buffers, shapes, frozen
 * parameters, counters.
 *
 * The source's model file is the template: the new tree has its entries in their order. Without a
 * template (weights of other formats) all entries come from the table of keys.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/layout/layout.h"
#include "formats/deepspeed/write/write.h"
#include "libckpt/base/dtype.h"

/* The module of the current file. */
typedef struct dwm_module {
    ckpt_dsw_file *f;
    ckpt_value *dict;
    ckpt_storage **storage;              /* for each part: storage of its 16-bit weights, or NULL */
    ckpt_storage *hollow[CKPT_N_DTYPES]; /* stage 3, for each dtype: the placeholders' storage */
    ckpt_value **node;                   /* for each tensor of the map: its value, or NULL */
    bool *tied;                          /* for each tensor of the map: it has several names */
    const ckpt_ranked *client;           /* the last buffer found in the rank's own ones */
} dwm_module;

/* ---- parameters ---- */

/* Make a shape, of the kind (torch.Size, tuple, list) that the template uses. */
static ckpt_value *dwm_shape(ckpt_dsw_file *f, const ckpt_tensor *t, ckpt_value_kind kind)
{
    ckpt_value *v = ckpt_tt_new(&f->t, kind);

    for (uint32_t i = 0; i < t->ndim; i++)
        ckpt_tt_add(&f->t, v, ckpt_tt_int(&f->t, (int64_t)t->shape[i]));
    return v;
}

/*
 * The dtype of a parameter in the module: the template's, unless the run gets a new dtype.  The
 * placeholders that stage 3 wrote up to 0.5.10 are F32 in every run, so they do not show it.
 */
static ckpt_dtype dwm_dtype(const ckpt_train_job *job, const ckpt_dsw_how *how,
                            const ckpt_value *old)
{
    bool hollow = job->state->stage == 3 && how->from_release < CKPT_DS_RELEASE(0, 6, 0);

    if (!how->new_dtype && !hollow && old && old->kind == CKPT_V_TENSOR)
        return old->as.tensor->dtype;
    return how->dtype;
}

/* Stages 1 and 2: make a view of the group's flat storage, as in DeepSpeed's module. */
static ckpt_value *dwm_view(dwm_module *m, size_t at, const ckpt_value *old)
{
    ckpt_dsw_file *f = m->f;
    uint32_t k = f->layout->home[at] - 1;
    const ckpt_dsw_part *p = &f->layout->part.at[k];
    const ckpt_tensor *t = f->job->from->tensors.at[at];
    ckpt_dtype d = dwm_dtype(f->job, f->how, old);
    uint64_t offset = p->flat.start[f->layout->home_at[at]], item = ckpt_dtype_get(d)->bits / 8;

    if (!m->storage[k])
        m->storage[k] = ckpt_tt_storage(&f->t, d, p->flat.total);
    // a parameter with another dtype than its group's storage gets a record of its own
    if (m->storage[k] && m->storage[k]->dtype != d)
        return ckpt_tt_whole(&f->t, ckpt_dsw_donor(t, d), d);
    ckpt_value *v = ckpt_tt_view(&f->t, m->storage[k], offset, t->shape, t->ndim);
    if (v && t->n_elems) {
        ckpt_axis axis = {0, t->n_elems, (int64_t)item};
        ckpt_extent e = {
            .source = m->storage[k]->source, .ndim = 1, .at = offset * item, .axis = &axis};
        f->t.rc = ckpt_tt_fill(f->job->to, &(ckpt_torch_fill){"module", ckpt_dsw_donor(t, d), d},
                               &e, 1, f->job->err);
    }
    return v;
}

/*
 * Stage 3: make a placeholder, a tensor without elements (up to 0.5.10: with one unused element).
 * All placeholders of a file share one record, because torch would write thousands of empty ones.
 * Placeholders of tied names share a record of their own, which shows that they are tied: some
 * releases do not list tied names elsewhere.
 */
static ckpt_value *dwm_placeholder(dwm_module *m, size_t at, const ckpt_value *old)
{
    const ckpt_tensor *t = m->f->job->from->tensors.at[at];
    ckpt_dsw_file *f = m->f;
    const uint64_t n = f->how->release < CKPT_DS_RELEASE(0, 6, 0);
    ckpt_dtype d = dwm_dtype(f->job, f->how, old);

    if (t->role == CKPT_ROLE_FROZEN && f->job->state->stage != 3)
        d = t->dtype;
    if (m->tied[at])
        return ckpt_tt_flat(&f->t, ckpt_tt_storage(&f->t, d, n), 0, n);
    if (!m->hollow[d])
        m->hollow[d] = ckpt_tt_storage(&f->t, d, n);
    return ckpt_tt_flat(&f->t, m->hollow[d], 0, n);
}

/* Make a second tensor that has the same elements, for a tied name. */
static ckpt_value *dwm_again(ckpt_dsw_file *f, const ckpt_value *v)
{
    ckpt_value *twin = ckpt_tt_new(&f->t, CKPT_V_TENSOR);

    if (!twin)
        return NULL;
    twin->as.tensor = ckpt_arena_copy(f->t.scratch, v->as.tensor, sizeof *v->as.tensor);
    if (!twin->as.tensor)
        f->t.rc = ckpt_fail_memory(f->t.err);
    return twin->as.tensor ? twin : NULL;
}

static bool dwm_is_buffer(const ckpt_ranked *r, const char *name)
{
    return r && r->in_entry && strcmp(r->key->as.text.at, name) == 0;
}

/* A buffer's value on this rank; both lists are mostly in the module's order. */
static const ckpt_value *dwm_buffer(dwm_module *m, const ckpt_tensor *t, const ckpt_value *old)
{
    const char *name = ckpt_state_name(m->f->job->state, t);
    const ckpt_ranked *r = m->client ? m->client->next : NULL;

    if (!m->f->how->client)
        return old;
    if (!dwm_is_buffer(r, name)) {
        r = m->f->job->state->client;
        while (r && !dwm_is_buffer(r, name))
            r = r->next;
    }
    m->client = r ? r : m->client;
    return r && r->at && r->at[m->f->rank] ? r->at[m->f->rank] : old;
}

/* The value of a tensor in this file; tied names share its elements. */
static ckpt_value *dwm_tensor(dwm_module *m, size_t at, const ckpt_value *old)
{
    const ckpt_tensor *t = m->f->job->from->tensors.at[at];

    if (t->owner) {
        at = ckpt_map_index(m->f->job->from, t->owner->name, strlen(t->owner->name));
        t = t->owner;
    }
    if (m->node[at])
        return dwm_again(m->f, m->node[at]);
    if (m->f->how->stage == 3 && (m->f->layout->home[at] || t->role == CKPT_ROLE_FROZEN))
        m->node[at] = dwm_placeholder(m, at, old);
    else if (m->f->layout->home[at] &&
             (m->f->how->stage > 0 || ckpt_dsw_form_of(m->f->job, m->f->how) == CKPT_DSW_FLAT))
        m->node[at] = dwm_view(m, at, old);
    else if (m->f->layout->home[at])
        m->node[at] =
            ckpt_tt_whole(&m->f->t, ckpt_dsw_donor(t, dwm_dtype(m->f->job, m->f->how, old)),
                          dwm_dtype(m->f->job, m->f->how, old));
    else if (t->role == CKPT_ROLE_BUFFER && old && !m->f->job->state->joined)
        m->node[at] = ckpt_tt_copy(&m->f->t, dwm_buffer(m, t, old));
    else
        m->node[at] = ckpt_tt_whole(&m->f->t, t, t->dtype);
    return m->node[at];
}

/* ---- the module ---- */

/* True if two tensors of a module have the same elements, because old releases do not list tied
 * names. */
static bool dwm_same(const ckpt_value *a, const ckpt_value *b)
{
    const ckpt_tensor_value *x = a->as.tensor, *y = b->as.tensor;

    return b->kind == CKPT_V_TENSOR && x->storage && x->storage == y->storage &&
           x->dtype == y->dtype && x->offset == y->offset && x->ndim == y->ndim &&
           (x->ndim == 0 || memcmp(x->shape, y->shape, x->ndim * sizeof *x->shape) == 0);
}

/* True if the source lists a name as tied to another. */
static bool dwm_is_alias(const ckpt_train_job *job, const ckpt_text *name)
{
    return ckpt_value_get(ckpt_value_get(job->state->model, "shared_params"), name->at) != NULL;
}

size_t ckpt_dsw_second(const ckpt_train_job *job, ckpt_dict module, uint64_t self)
{
    assert(self < module.n);
    const ckpt_value *value = module.at[self].value;
    size_t kept = SIZE_MAX, n_kept = 0;

    for (uint64_t i = 0; n_kept < 2 && i < module.n; i++) {
        if (i == self || !dwm_same(value, module.at[i].value))
            continue;
        size_t at = ckpt_state_index(job->from, job->state, module.at[i].key);
        kept = n_kept == 0 ? at : kept;
        n_kept += at != SIZE_MAX;
    }
    // stage 3's placeholders share a storage without being tied (formats/deepspeed/module/module.c)
    return n_kept == 1 || job->state->stage < 3 ? kept : SIZE_MAX;
}

/*
 * True for a placeholder of stage 3.  Up to 0.5.10 placeholders have one element, and an empty
 * tensor is a buffer.  Later placeholders have none, and buffer_names lists buffers, empty ones
 * too.
 */
static bool dwm_is_hollow(const ckpt_dsw_file *f, const ckpt_text *name, const ckpt_tensor_value *v)
{
    ckpt_seq buffers = ckpt_value_seq(ckpt_value_get(f->job->state->model, "buffer_names"));
    bool one = v->ndim == 1 && v->shape[0] == 1;
    bool none = v->ndim == 1 && v->shape[0] == 0;

    if (f->how->from_release < CKPT_DS_RELEASE(0, 6, 0))
        return one;
    for (uint64_t i = 0; none && i < buffers.n; i++) {
        if (ckpt_value_is(buffers.at[i], name->at))
            return false;
    }
    return none;
}

/* The value of a tensor that the source's module has but the map lacks: the elements of the tensor
 * to which it is tied, or a copy.  NULL: stage 3 stored it without values. */
static ckpt_value *dwm_unnamed(dwm_module *m, ckpt_dict from, uint64_t self)
{
    const ckpt_value *value = from.at[self].value;
    uint64_t n = value->as.tensor->ndim ? value->as.tensor->shape[0] : 1;
    size_t kept = ckpt_dsw_second(m->f->job, from, self);

    if (kept != SIZE_MAX)
        return dwm_tensor(m, kept, value);
    // a second name of a frozen parameter that was not saved (exclude_frozen_parameters)
    if (m->f->how->stage == 3 && n > 0 && dwm_is_alias(m->f->job, &from.at[self].key->as.text)) {
        m->f->t.rc =
            ckpt_train_left_out(m->f->job, CKPT_WARNING,
                                "module.%.300s: it is tied to a frozen parameter that was not "
                                "saved, and stage 3 stores no values for tied names: the training "
                                "program must supply them",
                                from.at[self].key->as.text.at);
        return ckpt_tt_flat(&m->f->t, ckpt_tt_storage(&m->f->t, value->as.tensor->dtype, 0), 0, 0);
    }
    if (m->f->how->stage < 3 && m->f->job->state->stage == 3 &&
        dwm_is_hollow(m->f, &from.at[self].key->as.text, value->as.tensor))
        return NULL;
    return ckpt_tt_copy(&m->f->t, value);
}

/* True for experts of deepspeed/moe, which have their own files. */
static bool dwm_is_expert(const ckpt_dsw_how *how, const char *name)
{
    uint64_t number;
    size_t at, n;

    return how->ep ? ckpt_train_expert_number(name, &at, &n, &number)
                   : strstr(name, "deepspeed_moe.experts.deepspeed_experts.") != NULL;
}

/* Mark the tensors that have a second name in the map, or only in the source's module. */
static void dwm_ties(dwm_module *m, const ckpt_value *old)
{
    ckpt_dict from = ckpt_value_map(old);
    size_t at;

    for (size_t i = 0; i < m->f->job->from->tensors.n; i++) {
        const ckpt_tensor *owner = m->f->job->from->tensors.at[i]->owner;
        if (owner &&
            (at = ckpt_map_index(m->f->job->from, owner->name, strlen(owner->name))) != SIZE_MAX)
            m->tied[at] = true;
    }
    for (uint64_t i = 0; i < from.n; i++) {
        if (from.at[i].key->kind != CKPT_V_STR || from.at[i].value->kind != CKPT_V_TENSOR ||
            ckpt_state_index(m->f->job->from, m->f->job->state, from.at[i].key) != SIZE_MAX)
            continue;
        if ((at = ckpt_dsw_second(m->f->job, from, i)) != SIZE_MAX)
            m->tied[at] = true;
    }
}

/* Enter all names of the source's module, in its order. */
static void dwm_like(dwm_module *m, const ckpt_value *old)
{
    ckpt_torch_tree *t = &m->f->t;
    ckpt_dict from = ckpt_value_map(old);

    for (uint64_t i = 0; t->rc == CKPT_OK && i < from.n; i++) {
        const ckpt_value *key = from.at[i].key, *value = from.at[i].value;
        bool named = key->kind == CKPT_V_STR && value->kind == CKPT_V_TENSOR;
        if (named && m->f->how->experts && dwm_is_expert(m->f->how, key->as.text.at))
            continue;
        size_t at = named ? ckpt_state_index(m->f->job->from, m->f->job->state, key) : SIZE_MAX;
        ckpt_value *v = at != SIZE_MAX ? dwm_tensor(m, at, value)
                        : named        ? dwm_unnamed(m, from, i)
                                       : ckpt_tt_copy(t, value);
        if (v || t->rc != CKPT_OK)
            ckpt_tt_put_at(t, m->dict, ckpt_tt_copy(t, key), v);
        else
            t->rc = ckpt_train_left_out(m->f->job, CKPT_WARNING,
                                        "module.%.300s: stage 3 stored it without values, and the "
                                        "source does not show to which parameter it is tied",
                                        key->as.text.at);
    }
    if (m->dict && old->state)
        m->dict->state = ckpt_tt_copy(t, old->state);
}

/*
 * Enter the map's weights and buffers that are not entered yet.  Without a template these are all
 * of them; after a join of model-parallel ranks, the template has only the names of the first rank.
 */
static void dwm_rest(dwm_module *m)
{
    const ckpt_map *from = m->f->job->from;

    for (size_t i = 0; m->f->t.rc == CKPT_OK && i < from->tensors.n; i++) {
        const ckpt_tensor *t = from->tensors.at[i];
        const char *name = ckpt_state_name(m->f->job->state, t);
        if (t->role != CKPT_ROLE_STATE && t->role != CKPT_ROLE_OTHER && !m->node[i] &&
            !(m->f->how->experts && dwm_is_expert(m->f->how, name)))
            ckpt_tt_put_at(&m->f->t, m->dict, ckpt_tt_str(&m->f->t, name), dwm_tensor(m, i, NULL));
    }
}

/* A file and its module: frozen_param_fragments stores the module's tensors a second time. */
typedef struct dwm_file {
    ckpt_dsw_file f;
    dwm_module module;
} dwm_file;

static ckpt_value *dwm_module_make(ckpt_dsw_file *f, const ckpt_value *old)
{
    dwm_module *m = &((dwm_file *)f)->module;

    if (f->how->layers)
        return ckpt_tt_new(&f->t, CKPT_V_NONE);
    m->dict = ckpt_tt_new(&f->t, CKPT_V_ODICT);
    dwm_ties(m, old);
    if (old && ckpt_value_map(old).n)
        dwm_like(m, old);
    if (!old || f->job->state->joined)
        dwm_rest(m);
    return m->dict;
}

/* ---- shapes ---- */

/* Make the shape of n stacked tensors. */
static ckpt_value *dwm_stacked(ckpt_dsw_file *f, const ckpt_tensor *t, uint32_t n,
                               ckpt_value_kind kind)
{
    uint64_t shape[CKPT_MAX_DIM + 1] = {n};
    const ckpt_tensor whole = {.ndim = t->ndim + 1, .shape = shape};

    memcpy(shape + 1, t->shape, t->ndim * sizeof *shape);
    return dwm_shape(f, &whole, kind);
}

/* Make a dict of a part's names and shapes, in layout order. */
static ckpt_value *dwm_part_shapes(ckpt_dsw_file *f, const ckpt_dsw_part *p, const ckpt_value *like)
{
    ckpt_value *dict = ckpt_tt_new(&f->t, CKPT_V_ODICT);
    ckpt_dict from = ckpt_value_map(like);
    ckpt_value_kind kind = from.n ? from.at[0].value->kind : CKPT_V_SIZE;

    for (size_t i = 0; i < p->n; i++) {
        ckpt_value *shape = NULL;
        if (ckpt_dsw_one(p, i) == 0)
            continue;
        if (ckpt_dsw_autoep_is(f->job, p, i))
            shape = dwm_stacked(f, p->param[i], ckpt_dsw_one(p, i), kind);
        else
            shape = dwm_shape(f, p->param[i], kind);
        ckpt_tt_put_at(&f->t, dict,
                       ckpt_tt_str(&f->t, ckpt_dsw_stored_name(f->job, f->layout, p, i)), shape);
    }
    return dict;
}

ckpt_value *ckpt_dsw_param_shapes(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_seq from = ckpt_value_seq(old);
    ckpt_value *list;

    if (f->how->stage == 0)
        return ckpt_tt_new(&f->t, CKPT_V_NONE);
    // 0.3.14 to 0.5.3 wrote one dict for all groups, in the module's order: the layout does not
    // change it
    if (old && (old->kind == CKPT_V_DICT || old->kind == CKPT_V_ODICT))
        return ckpt_tt_copy(&f->t, old);
    list = ckpt_tt_new(&f->t, CKPT_V_LIST);
    for (size_t k = 0; k < f->layout->part.n; k++) {
        const ckpt_dsw_part *p = &f->layout->part.at[k];
        // expert-parallel ranks list the same names, so those of the first one (lane 0) are enough
        if (p->lane == 0)
            ckpt_tt_add(&f->t, list,
                        dwm_part_shapes(f, p, p->group < from.n ? from.at[p->group] : NULL));
    }
    return list;
}

/* ---- frozen parameters ---- */

/*
 * True if the output must list frozen parameters: stage 1 has no such list, and a run may have been
 * saved without them.  A source of stage 0 or 1 does not show whether the model has frozen
 * parameters.  Without a list DeepSpeed leaves them as they are, but with an empty list it fails at
 * the first one; so an empty list is not written.
 */
static bool dwm_lists_frozen(const ckpt_train_job *job, const ckpt_dsw_how *how,
                             const ckpt_dsw_layout *layout, const ckpt_value *old)
{
    bool any = false;

    if (how->stage < 2)
        return false;
    if (job->state->stage >= 2)
        return old && old->kind != CKPT_V_NONE;
    // a parameter without elements may be a trained one, and stage 2 does not require its entry
    for (size_t i = 0; i < layout->frozen.n; i++)
        any = any || layout->frozen.at[i]->n_elems || how->stage == 3;
    return any;
}

static ckpt_value *dwm_frozen_shapes(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_dict from = ckpt_value_map(old);
    ckpt_value *dict;

    if (!dwm_lists_frozen(f->job, f->how, f->layout, old))
        return ckpt_tt_new(&f->t, CKPT_V_NONE);
    dict = ckpt_tt_new(&f->t, CKPT_V_ODICT);
    for (size_t i = 0; i < f->layout->frozen.n; i++)
        ckpt_tt_put_at(
            &f->t, dict,
            ckpt_tt_str(&f->t, ckpt_state_name(f->job->state, f->layout->frozen.at[i])),
            dwm_shape(f, f->layout->frozen.at[i], from.n ? from.at[0].value->kind : CKPT_V_SIZE));
    return dict;
}

/*
 * Make a frozen parameter's entry in frozen_param_fragments.  Stage 2: all elements, shared with
 * the module.  Stage 3: this rank's padded partition.
 */
static ckpt_value *dwm_fragment(ckpt_dsw_file *f, size_t i)
{
    const ckpt_tensor *t = f->layout->frozen.at[i];
    size_t at = ckpt_map_index(f->job->from, t->name, strlen(t->name));

    if (f->how->stage != 3)
        return dwm_tensor(&((dwm_file *)f)->module, at, NULL);
    uint64_t n = ckpt_zero_partition(t->n_elems, f->how->world);
    ckpt_storage *s = ckpt_tt_storage(&f->t, t->dtype, n);
    if (s && n)
        f->records->fragment[f->rank * f->layout->frozen.n + i] = s->source;
    return ckpt_tt_flat(&f->t, s, 0, n);
}

static ckpt_value *dwm_fragments(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_value *dict;

    if (!dwm_lists_frozen(f->job, f->how, f->layout, old))
        return ckpt_tt_new(&f->t, CKPT_V_NONE);
    dict = ckpt_tt_new(&f->t, CKPT_V_ODICT);
    for (size_t i = 0; i < f->layout->frozen.n; i++)
        ckpt_tt_put_at(&f->t, dict,
                       ckpt_tt_str(&f->t, ckpt_state_name(f->job->state, f->layout->frozen.at[i])),
                       dwm_fragment(f, i));
    return dict;
}

/* ---- other entries ---- */

/* Make shared_params, the list of tied names; only the first rank's file has entries.  The map
 * gives them if the source's release did not write this list. */
static ckpt_value *dwm_shared(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_value *dict = ckpt_tt_new(&f->t, f->how->stage ? CKPT_V_DICT : CKPT_V_NONE);
    const ckpt_map *from = f->job->from;

    if (f->how->stage == 0)
        return dict;
    // without ZeRO tied names share their storage, and DeepSpeed does not read this list
    bool listed = old && old->kind != CKPT_V_NONE && f->job->state->stage > 0;

    if (listed && f->rank == 0)
        return ckpt_tt_copy(&f->t, old);
    for (size_t i = 0; !listed && f->rank == 0 && i < from->tensors.n; i++) {
        const ckpt_tensor *t = from->tensors.at[i];
        if (t->owner && t->role != CKPT_ROLE_STATE)
            ckpt_tt_put_at(&f->t, dict, ckpt_tt_str(&f->t, ckpt_state_name(f->job->state, t)),
                           ckpt_tt_str(&f->t, ckpt_state_name(f->job->state, t->owner)));
    }
    return dict;
}

static ckpt_value *dwm_world(ckpt_dsw_file *f, const ckpt_value *old)
{
    int64_t was = 0;

    if (ckpt_value_as_int(old, &was) && was != (int64_t)f->how->world)
        ckpt_dsw_say(f, "dp_world_size %" PRId64 " -> %" PRIu32, was, f->how->world);
    return ckpt_tt_int(&f->t, f->how->world);
}

/* Make buffer_names from the map. */
static ckpt_value *dwm_buffers(ckpt_dsw_file *f, const ckpt_value *old)
{
    const ckpt_map *from = f->job->from;
    ckpt_value *list;

    if (old)
        return ckpt_tt_copy(&f->t, old);
    list = ckpt_tt_new(&f->t, CKPT_V_LIST);
    for (size_t i = 0; i < from->tensors.n; i++) {
        if (from->tensors.at[i]->role == CKPT_ROLE_BUFFER && !from->tensors.at[i]->owner)
            ckpt_tt_add(&f->t, list,
                        ckpt_tt_str(&f->t, ckpt_state_name(f->job->state, from->tensors.at[i])));
    }
    return list;
}

/* A counter: the source's, or 0 for a new run. */
static ckpt_value *dwm_zero(ckpt_dsw_file *f, const ckpt_value *old)
{
    return old ? ckpt_tt_copy(&f->t, old) : ckpt_tt_int(&f->t, 0);
}

/* The number of model-parallel ranks; 1 if they were joined. */
static ckpt_value *dwm_mp_world(ckpt_dsw_file *f, const ckpt_value *old)
{
    int64_t was = 1;

    if (f->job->state->joined && ckpt_value_as_int(old, &was) && was != 1)
        ckpt_dsw_say(f, "mp_world_size %" PRId64 " -> 1", was);
    return old && !f->job->state->joined ? ckpt_tt_copy(&f->t, old) : ckpt_tt_int(&f->t, 1);
}

static ckpt_value *dwm_sparse_names(ckpt_dsw_file *f, const ckpt_value *old)
{
    return old ? ckpt_tt_copy(&f->t, old) : ckpt_tt_new(&f->t, CKPT_V_SET);
}

static ckpt_value *dwm_degrees(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_value *dict;

    if (old && !f->job->state->joined)
        return ckpt_tt_copy(&f->t, old);
    if (old)
        ckpt_dsw_say(f, "checkpoint_parallel_dimensions -> 1: the ranks were joined");
    dict = ckpt_tt_new(&f->t, CKPT_V_DICT);
    ckpt_tt_put(&f->t, dict, "pp_degree", ckpt_tt_int(&f->t, 1));
    ckpt_tt_put(&f->t, dict, "tp_degree", ckpt_tt_int(&f->t, 1));
    return dict;
}

/* Fill a table with the keys of a model file and the functions that make their values; it ends with
 * a NULL key. */
static void dwm_keys(ckpt_dsw_key table[CKPT_TRAIN_MODEL_KEYS + 1])
{
    static const struct {
        const char *key;
        ckpt_dsw_make make;
    } makers[] = {
        {"module", dwm_module_make},
        {"buffer_names", dwm_buffers},
        {"optimizer", ckpt_dsw_stage0},
        {"param_shapes", ckpt_dsw_param_shapes},
        {"frozen_param_shapes", dwm_frozen_shapes},
        {"shared_params", dwm_shared},
        {"frozen_param_fragments", dwm_fragments},
        {"csr_tensor_module_names", dwm_sparse_names},
        {"sparse_tensor_module_names", dwm_sparse_names},
        {"skipped_steps", dwm_zero},
        {"global_steps", dwm_zero},
        {"global_samples", dwm_zero},
        {"dp_world_size", dwm_world},
        {"mp_world_size", dwm_mp_world},
        {"checkpoint_parallel_dimensions", dwm_degrees},
        {"ds_config", ckpt_dsw_config},
        {"ds_version", ckpt_dsw_version},
        {"ds_autoep_layers", ckpt_dsw_autoep_layers},
        {"universal_checkpoint_info", ckpt_dsw_autoep_info},
    };

    for (size_t i = 0; i < CKPT_TRAIN_MODEL_KEYS; i++) {
        const ckpt_train_key *k = &ckpt_train_model_keys[i];
        table[i] = (ckpt_dsw_key){.key = k->key, .since = k->since, .until = k->until};
        for (size_t m = 0; m < sizeof makers / sizeof *makers; m++) {
            if (strcmp(makers[m].key, k->key) == 0)
                table[i].make = makers[m].make;
        }
    }
    table[CKPT_TRAIN_MODEL_KEYS] = (ckpt_dsw_key){0};
}

/* Stage 3: add the file of a rank from 2 on.  It has the tree of rank 1's file, so only the records
 * of its fragments of frozen parameters are new. */
static int dwm_like_second(const ckpt_train_job *job, const ckpt_dsw_layout *layout,
                           const ckpt_dsw_records *records, uint32_t rank, const char *name)
{
    const uint32_t *second = records->fragment + layout->frozen.n;
    ckpt_torch_made made;
    int rc = ckpt_tt_again(job->to, &records->second, name, &made, job->err);

    if (rc != CKPT_OK)
        return rc;
    job->to->files.at[made.file].rank = rank;
    for (size_t i = 0; i < layout->frozen.n; i++) {
        if (second[i] != UINT32_MAX)
            records->fragment[rank * layout->frozen.n + i] =
                second[i] + (uint32_t)(made.source - records->second.source);
    }
    return CKPT_OK;
}

/* The source's model file as the rank wrote it: rank 0's, with the rank's own values. */
static const ckpt_value *dwm_of_rank(ckpt_dsw_file *f)
{
    const ckpt_state *state = f->job->state;
    ckpt_dict from = ckpt_value_map(state->model);
    ckpt_value *own;

    if (!f->how->client)
        return state->model;
    own = ckpt_tt_new(&f->t, CKPT_V_DICT);
    for (uint64_t i = 0; own && i < from.n; i++) {
        const ckpt_ranked *r = ckpt_ranked_find(state->client, from.at[i].key, false);
        ckpt_value *v = r && r->at ? r->at[f->rank] : from.at[i].value;
        if (v)
            ckpt_tt_put_at(&f->t, own, from.at[i].key, v);
    }
    for (const ckpt_ranked *r = state->client; own && r; r = r->next) {
        if (!r->in_entry && r->at && r->at[f->rank] &&
            !ckpt_value_get(state->model, r->key->as.text.at))
            ckpt_tt_put(&f->t, own, r->key->as.text.at, r->at[f->rank]);
    }
    return own;
}

int ckpt_dsw_model_file(const ckpt_train_job *job, const ckpt_dsw_how *how,
                        const ckpt_dsw_layout *layout, ckpt_dsw_records *records, uint32_t rank,
                        const char *name)
{
    assert(records && rank < how->world && name);
    dwm_file d = {
        .f = {.job = job, .how = how, .layout = layout, .records = records, .rank = rank}};
    ckpt_torch_made made = {(uint32_t)job->to->files.n, job->to->sources.n, 0, job->to->tensors.n,
                            0};
    ckpt_dsw_key keys[CKPT_TRAIN_MODEL_KEYS + 1];
    ckpt_value *root = NULL;

    // rank 0's file lists tied names, too, so rank 1's file is the model for the others
    if (how->stage == 3 && rank > 1 && !how->ep && !how->client)
        return dwm_like_second(job, layout, records, rank, name);
    int rc = ckpt_tt_begin(&d.f.t, job->to, job->from, name, job->err);
    if (rc == CKPT_OK)
        job->to->files.at[d.f.t.file].rank = how->stage < 3 ? UINT32_MAX : rank;
    d.f.t.drop_objects = job->target->drop_objects;
    dwm_keys(keys);
    d.module.f = &d.f;
    d.module.storage = ckpt_alloc((layout->part.n + 1) * sizeof(ckpt_storage *));
    d.module.node = ckpt_alloc((job->from->tensors.n + 1) * sizeof(ckpt_value *));
    d.module.tied = ckpt_alloc((job->from->tensors.n + 1) * sizeof(bool));
    if (rc == CKPT_OK && (!d.module.storage || !d.module.node || !d.module.tied))
        d.f.t.rc = ckpt_fail_memory(job->err);
    if (d.f.t.rc == CKPT_OK)
        root = ckpt_dsw_dict(&d.f, dwm_of_rank(&d.f), keys, ckpt_dsw_follows(job, how));
    if (d.f.t.rc == CKPT_OK && how->made && !ckpt_value_get(root, "num_experts"))
        ckpt_tt_put(&d.f.t, root, "num_experts", ckpt_dsw_num_experts(&d.f));
    rc = ckpt_tt_end(&d.f.t, root);
    made.n_sources = job->to->sources.n - made.source;
    made.n_tensors = job->to->tensors.n - made.tensor;
    records->second = made;
    ckpt_free(d.module.storage);
    ckpt_free(d.module.node);
    ckpt_free(d.module.tied);
    return rc;
}
