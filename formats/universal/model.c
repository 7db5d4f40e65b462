/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c: writes the model files of a universal checkpoint: the source's tree with every entry
 * rebuilt that refers to tensors.
 *
 * DeepSpeed reads counters, schedules and client state from these files, and the weights from
 * zero/. `module` is written because ckpt and other readers use it. The stage 3 file holds
 * placeholders instead, as a rank's native model file does.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/universal/universal.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/index.h"

/* One model file. */
typedef struct um_file {
    ckpt_uni_write *w;
    ckpt_dsw_file f; /* f.t is the output tree; f.job and f.how are w's */
    bool parts;
    ckpt_storage *empty; /* shared by all placeholders */
    ckpt_value **made;   /* by tensor of the source map: its value in the module, or NULL */
} um_file;

/* ---- module ---- */

/* The tensor to read for a module entry of dtype d: a copy of that dtype in the source, or else the
 * master. */
static const ckpt_tensor *um_donor(const ckpt_tensor *t, ckpt_dtype d)
{
    // an average over tensor-parallel slices has no stored copy
    for (const ckpt_tensor *c = t; c && !t->addend; c = c->twin) {
        if (c->dtype == d)
            return c;
    }
    return t;
}

/* The module value of a tensor; tied names share one value. */
static ckpt_value *um_tensor(um_file *m, size_t at)
{
    static const uint64_t none = 0;
    const ckpt_tensor *t = m->w->job.from->tensors.at[at];
    ckpt_torch_tree *tree = &m->f.t;
    ckpt_dtype d = t->dtype;

    if (t->owner) {
        size_t owner = ckpt_map_index(m->w->job.from, t->owner->name, strlen(t->owner->name));
        if (owner != SIZE_MAX && owner != at && !m->w->job.from->tensors.at[owner]->owner)
            return um_tensor(m, owner);
    }
    if (m->made[at])
        return m->made[at];
    if (t->role == CKPT_ROLE_WEIGHT || (t->role == CKPT_ROLE_FROZEN && m->w->how.new_dtype &&
                                        ckpt_dtype_get(d)->kind == CKPT_IS_FLOAT))
        d = m->w->how.dtype;
    if (m->parts && t->role != CKPT_ROLE_BUFFER) {
        if (!m->empty)
            m->empty = ckpt_tt_storage(tree, m->w->how.dtype, 0);
        m->made[at] = ckpt_tt_view(tree, m->empty, 0, &none, 1);
    } else {
        m->made[at] = ckpt_tt_whole(tree, um_donor(t, d), d);
    }
    return m->made[at];
}

/* The value of entry i of the source's module. NULL for a tensor that the map does not know: it is
 * left out and reported, because a reader could not tell what it means. */
static ckpt_value *um_entry(um_file *m, ckpt_dict module, uint64_t i, size_t *at)
{
    const ckpt_value *key = module.at[i].key, *v = module.at[i].value;

    *at = ckpt_state_index(m->w->job.from, m->w->job.state, key);
    if (*at == SIZE_MAX && v->kind == CKPT_V_TENSOR)
        *at = ckpt_dsw_second(&m->w->job, module, i);
    if (*at != SIZE_MAX)
        return um_tensor(m, *at);
    if (v->kind != CKPT_V_TENSOR)
        return ckpt_tt_copy(&m->f.t, v);
    m->f.t.rc = ckpt_train_left_out(
        &m->w->job, CKPT_WARNING,
        "module.%.300s: it is not listed as a parameter or buffer, and is not another name of one",
        key->kind == CKPT_V_STR ? key->as.text.at : "?");
    return NULL;
}

/* True for experts of AutoEP, which no module contains. */
static bool um_is_expert(const um_file *m, const ckpt_tensor *t)
{
    return ckpt_train_autoep(m->w->job.state) && ckpt_dsw_autoep_prefix(m->w->job.state, t) > 0;
}

/* Make `module`: the source's names in their order, then the map's other tensors (joined pipeline
 * stages, renamed tensors). */
static ckpt_value *um_module(um_file *m)
{
    const ckpt_value *old = ckpt_value_get(m->w->job.state->model, "module");
    const ckpt_tensors *all = &m->w->job.from->tensors;
    ckpt_torch_tree *t = &m->f.t;
    ckpt_value *module = ckpt_tt_new(t, CKPT_V_ODICT);
    ckpt_dict from = ckpt_value_map(old);
    uint8_t *named = ckpt_alloc(all->n + 1);

    if (!named)
        return NULL;
    for (uint64_t i = 0; i < from.n && t->rc == CKPT_OK; i++) {
        size_t at = ckpt_state_index(m->w->job.from, m->w->job.state, from.at[i].key);
        if (at != SIZE_MAX && um_is_expert(m, all->at[at]))
            continue;
        ckpt_value *v = um_entry(m, from, i, &at);
        if (at != SIZE_MAX)
            named[at] = 1;
        if (v)
            ckpt_tt_put_at(t, module, ckpt_tt_copy(t, from.at[i].key), v);
    }
    for (size_t i = 0; i < all->n && t->rc == CKPT_OK; i++) {
        const ckpt_tensor *one = all->at[i];
        if (named[i] || one->role == CKPT_ROLE_STATE || um_is_expert(m, one))
            continue;
        ckpt_tt_put_at(t, module, ckpt_tt_str(t, ckpt_state_name(m->w->job.state, one)),
                       um_tensor(m, i));
    }
    ckpt_free(named);
    if (module && old && old->state && old->kind == CKPT_V_ODICT)
        module->state = ckpt_tt_copy(t, old->state);
    return module;
}

/* ---- descriptions of the module ---- */

static ckpt_value *um_size(ckpt_torch_tree *t, const ckpt_tensor *of)
{
    ckpt_value *v = ckpt_tt_new(t, CKPT_V_SIZE);

    for (uint32_t i = 0; i < of->ndim; i++)
        ckpt_tt_add(t, v, ckpt_tt_int(t, (int64_t)of->shape[i]));
    return v;
}

/* A tensor's name without the prefix of its state, as a value. */
static ckpt_value *um_name(um_file *m, const ckpt_tensor *t)
{
    return ckpt_tt_str(&m->f.t, ckpt_state_name(m->w->job.state, t));
}

/*
 * Enter one AutoEP layer's experts, which start at index i of group g, as one parameter, because
 * the run's ranks hold them fused.  Returns the index of the last of them.
 */
static size_t um_experts(um_file *m, ckpt_value *dict, size_t g, size_t i)
{
    const ckpt_state *s = m->w->job.state;
    const ckpt_tensor *first = s->param.at[s->group.at[g].first + i];
    size_t n = ckpt_dsw_autoep_run(s, &s->group.at[g], i);
    uint64_t shape[CKPT_MAX_DIM + 1] = {n / ckpt_train_autoep(s)};
    const ckpt_tensor whole = {.ndim = first->ndim + 1, .shape = shape};
    const char *name = ckpt_dsw_autoep_name(m->f.t.scratch, ckpt_state_name(s, first));

    memcpy(shape + 1, first->shape, first->ndim * sizeof *shape);
    ckpt_tt_put(&m->f.t, dict, name ? name : "", um_size(&m->f.t, &whole));
    if (!name)
        m->f.t.rc = ckpt_fail_memory(m->w->job.err);
    return i + n - 1;
}

/*
 * param_shapes: one dict per group.  A run with round_robin_gradients lists its parameters in
 * round-robin order; readers undo that order because ds_config sets the option.
 */
static ckpt_value *um_shapes(um_file *m)
{
    const ckpt_state *s = m->w->job.state;
    ckpt_value *list = ckpt_tt_new(&m->f.t, CKPT_V_LIST);
    size_t by = !m->parts && s->round_robin && s->world ? s->world : 1;

    for (size_t g = 0; g < s->group.n && m->f.t.rc == CKPT_OK; g++) {
        ckpt_value *dict = ckpt_tt_new(&m->f.t, CKPT_V_ODICT);
        for (size_t j = 0; j < by && j < s->group.at[g].n; j++) {
            for (size_t i = j; i < s->group.at[g].n; i += by) {
                const ckpt_tensor *p = s->param.at[s->group.at[g].first + i];
                if (um_is_expert(m, p))
                    i = um_experts(m, dict, g, i);
                else
                    ckpt_tt_put_at(&m->f.t, dict, um_name(m, p), um_size(&m->f.t, p));
            }
        }
        ckpt_tt_add(&m->f.t, list, dict);
    }
    return list;
}

/* buffer_names: the names of all buffers. */
static ckpt_value *um_buffers(um_file *m)
{
    const ckpt_tensors *all = &m->w->job.from->tensors;
    ckpt_value *list = ckpt_tt_new(&m->f.t, CKPT_V_LIST);

    for (size_t i = 0; i < all->n; i++) {
        if (all->at[i]->role == CKPT_ROLE_BUFFER)
            ckpt_tt_add(&m->f.t, list, um_name(m, all->at[i]));
    }
    return list;
}

static ckpt_value *um_shared(um_file *m)
{
    const ckpt_tensors *all = &m->w->job.from->tensors;
    ckpt_value *dict = ckpt_tt_new(&m->f.t, CKPT_V_DICT);

    for (size_t i = 0; i < all->n; i++) {
        if (all->at[i]->owner && all->at[i]->role != CKPT_ROLE_STATE)
            ckpt_tt_put_at(&m->f.t, dict, um_name(m, all->at[i]), um_name(m, all->at[i]->owner));
    }
    return dict;
}

/* Make the value of a frozen parameter with all its elements.  Stage 3 stores fragments, so it
 * becomes the flat fragment of a run with one rank. */
static ckpt_value *um_fragment(um_file *m, size_t at)
{
    const ckpt_tensor *t = m->w->job.from->tensors.at[at];
    ckpt_value *v;

    if (!m->parts)
        return um_tensor(m, at);
    v = ckpt_tt_whole(&m->f.t, t, t->dtype);
    return v && t->n_elems ? ckpt_tt_flat(&m->f.t, v->as.tensor->storage, 0, t->n_elems) : v;
}

/* Make frozen_param_shapes and frozen_param_fragments. */
static void um_frozen(um_file *m, ckpt_value *root)
{
    const ckpt_tensors *all = &m->w->job.from->tensors;
    ckpt_torch_tree *t = &m->f.t;
    ckpt_value *shapes = ckpt_tt_new(t, CKPT_V_ODICT), *values = ckpt_tt_new(t, CKPT_V_ODICT);

    for (size_t i = 0; i < all->n && t->rc == CKPT_OK; i++) {
        if (!ckpt_dsw_is_frozen(&m->w->job, all->at[i]))
            continue;
        ckpt_tt_put_at(t, shapes, um_name(m, all->at[i]), um_size(t, all->at[i]));
        ckpt_tt_put_at(t, values, um_name(m, all->at[i]), um_fragment(m, i));
    }
    ckpt_tt_put(t, root, "frozen_param_shapes", shapes);
    ckpt_tt_put(t, root, "frozen_param_fragments", values);
}

/* universal_checkpoint_info: the source's, or the version number of the target release. */
static ckpt_value *um_info(um_file *m)
{
    ckpt_torch_tree *t = &m->f.t;
    int release = m->w->how.release;
    ckpt_value *dict;

    if (ckpt_value_map(m->w->info).n)
        return ckpt_tt_copy(t, m->w->info);
    dict = ckpt_tt_new(t, CKPT_V_DICT);
    ckpt_tt_put(t, dict, "universal_checkpoint_version",
                ckpt_tt_float(t, release >= CKPT_DS_RELEASE(0, 19, 6)   ? 0.4
                                 : release >= CKPT_DS_RELEASE(0, 19, 2) ? 0.3
                                                                        : 0.2));
    return dict;
}

/* ---- the tree ---- */

/* The rebuilt keys in DeepSpeed's order.  UM_ZERO and UM_ONE give the value if the source lacks
 * one. */
static const struct {
    const char *key;
    enum { UM_MADE, UM_NONE, UM_ZERO, UM_ONE } what;
} um_keys[] = {
    {"module", UM_MADE},
    {"buffer_names", UM_MADE},
    {"optimizer", UM_MADE},
    {"param_shapes", UM_MADE},
    {"frozen_param_shapes", UM_MADE},
    {"shared_params", UM_MADE},
    {"frozen_param_fragments", UM_MADE},
    {"lr_scheduler", UM_NONE},
    {"data_sampler", UM_NONE},
    {"random_ltd", UM_NONE},
    {"skipped_steps", UM_ZERO},
    {"global_steps", UM_ZERO},
    {"global_samples", UM_ZERO},
    {"dp_world_size", UM_ONE},
    {"mp_world_size", UM_MADE},
};

enum { UM_KEYS = sizeof um_keys / sizeof *um_keys };

static bool um_is_made(const ckpt_value *key)
{
    bool made = ckpt_value_is(key, "universal_checkpoint_info") ||
                ckpt_value_is(key, "ds_version") ||
                ckpt_value_is(key, "checkpoint_parallel_dimensions");

    for (size_t i = 0; i < UM_KEYS && !made; i++)
        made = um_keys[i].what == UM_MADE && ckpt_value_is(key, um_keys[i].key);
    return made;
}

/* Make the dict with all keys; rebuilt ones are None until um_tree sets them. */
static ckpt_value *um_root(um_file *m)
{
    ckpt_torch_tree *t = &m->f.t;
    ckpt_value *root = ckpt_tt_new(t, CKPT_V_DICT);
    const ckpt_value *old = m->w->job.state->model;
    ckpt_dict from = ckpt_value_map(old);

    for (size_t i = 0; i < UM_KEYS; i++) {
        const ckpt_value *had = ckpt_value_get(old, um_keys[i].key);
        ckpt_value *v = um_keys[i].what == UM_ZERO  ? ckpt_tt_int(t, 0)
                        : um_keys[i].what == UM_ONE ? ckpt_tt_int(t, 1)
                                                    : ckpt_tt_new(t, CKPT_V_NONE);
        if (had && um_keys[i].what != UM_MADE)
            v = ckpt_tt_copy(t, had);
        ckpt_tt_put_at(t, root, ckpt_tt_str(t, um_keys[i].key), v);
    }
    for (uint64_t i = 0; i < from.n && t->rc == CKPT_OK; i++) {
        const ckpt_pair *p = &from.at[i];
        if (um_is_made(p->key) ||
            (p->key->kind == CKPT_V_STR && strlen(p->key->as.text.at) == p->key->as.text.n &&
             ckpt_value_get(root, p->key->as.text.at)))
            continue;
        ckpt_tt_put_at(t, root, ckpt_tt_copy(t, p->key), ckpt_tt_copy(t, p->value));
    }
    return root;
}

/* Report the parallel degrees that become 1 because model-parallel ranks were joined. */
static void um_say_joined(um_file *m, const ckpt_value *old)
{
    const ckpt_value *degrees = ckpt_value_get(old, "checkpoint_parallel_dimensions");
    int64_t ranks = 1, tp = 1, pp = 1;

    if (ckpt_value_as_int(ckpt_value_get(old, "mp_world_size"), &ranks) && ranks != 1)
        ckpt_dsw_say(&m->f, "mp_world_size %" PRId64 " -> 1", ranks);
    (void)ckpt_value_as_int(ckpt_value_get(degrees, "tp_degree"), &tp);
    (void)ckpt_value_as_int(ckpt_value_get(degrees, "pp_degree"), &pp);
    if (tp != 1 || pp != 1)
        ckpt_dsw_say(&m->f, "checkpoint_parallel_dimensions: %" PRId64 " x %" PRId64 " ranks -> 1",
                     tp, pp);
}

/* Build the tree of one model file. */
static ckpt_value *um_tree(um_file *m)
{
    ckpt_torch_tree *t = &m->f.t;
    const ckpt_value *old = m->w->job.state->model;
    ckpt_value *root = um_root(m), *degrees;
    int64_t ranks = 1;

    ckpt_tt_put(t, root, "module", um_module(m));
    ckpt_tt_put(t, root, "buffer_names", um_buffers(m));
    ckpt_tt_put(t, root, "param_shapes", um_shapes(m));
    ckpt_tt_put(t, root, "shared_params", um_shared(m));
    um_frozen(m, root);
    um_say_joined(m, old);
    ckpt_tt_put(t, root, "mp_world_size", ckpt_tt_int(t, 1));
    if (ckpt_value_as_int(ckpt_value_get(old, "mp_world_size"), &ranks) && ranks != 1)
        ckpt_dsw_say(&m->f, "mp_world_size %" PRId64 " -> 1", ranks);
    if (m->w->job.state->round_robin && m->w->job.state->world)
        ckpt_tt_put(t, root, "dp_world_size", ckpt_tt_int(t, m->w->job.state->world));
    if (ckpt_value_get(old, "checkpoint_parallel_dimensions")) {
        degrees = ckpt_tt_new(t, CKPT_V_DICT);
        ckpt_tt_put(t, degrees, "pp_degree", ckpt_tt_int(t, 1));
        ckpt_tt_put(t, degrees, "tp_degree", ckpt_tt_int(t, 1));
        ckpt_tt_put(t, root, "checkpoint_parallel_dimensions", degrees);
        if (ranks != 1)
            ckpt_dsw_say(&m->f, "checkpoint_parallel_dimensions -> 1: the ranks were joined");
    }
    ckpt_tt_put(t, root, "ds_version", ckpt_dsw_version(&m->f, ckpt_value_get(old, "ds_version")));
    ckpt_tt_put(t, root, "universal_checkpoint_info", um_info(m));
    return root;
}

int ckpt_uni_model_file(ckpt_uni_write *w, bool parts, const char *name)
{
    assert(w && name);
    um_file m = {.w = w, .f = {.job = &w->job, .how = &w->how}, .parts = parts};
    int rc = ckpt_tt_begin(&m.f.t, w->job.to, w->job.from, name, w->job.err);

    m.f.t.drop_objects = w->job.target->drop_objects;
    m.made = ckpt_alloc((w->job.from->tensors.n + 1) * sizeof(ckpt_value *));
    if (rc == CKPT_OK && !m.made)
        m.f.t.rc = ckpt_fail_memory(w->job.err);
    ckpt_value *root = rc == CKPT_OK && m.made ? um_tree(&m) : NULL;
    int ended = ckpt_tt_end(&m.f.t, root);
    ckpt_free(m.made);
    return rc != CKPT_OK ? rc : ended;
}
