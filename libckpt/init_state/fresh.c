/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fresh.c: makes the initial training state of a run from a map that holds only weights.
 *
 * The result is one ckpt_state: the parameters in the optimizer's order and groups, and the entries
 * of a new AdamW without moments, which DeepSpeed reads as zeros. Tensors that are not trained
 * become frozen parameters or buffers. If the order of the parameters is uncertain, the function
 * fails, because a training program would load a wrong order without any error.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt_extra.h"
#include "libckpt/base/opts.h"
#include "libckpt/format.h"
#include "libckpt/init_state/groups.h"
#include "libckpt/init_state/relist.h"
#include "libckpt/map/map.h"
#include "libckpt/map/order.h"
#include "libckpt/map/savepoint.h"
#include "libckpt/map/state.h"

typedef struct fr_maker {
    ckpt_map *map;
    const ckpt_target *target;
    ckpt_err *err;
    ckpt_state *state;
    uint8_t *trained; /* for each tensor of the map: 1 if it is a parameter */
    size_t n;         /* number of parameters */
} fr_maker;

/* ---- the order ---- */

/* Append a parameter to the last group. */
static int fr_add(fr_maker *m, size_t at)
{
    ckpt_tensor **slot = ckpt_vec_push(&m->state->param);

    if (!slot)
        return ckpt_fail_memory(m->err);
    *slot = m->map->tensors.at[at];
    m->trained[at] = 1;
    m->state->group.at[m->state->group.n - 1].n++;
    return CKPT_OK;
}

/* Begin a group, unless the last one is still empty. */
static int fr_group(fr_maker *m)
{
    ckpt_group *g = m->state->group.n ? &m->state->group.at[m->state->group.n - 1] : NULL;

    if (g && g->n == 0)
        return CKPT_OK;
    g = ckpt_vec_push(&m->state->group);
    if (!g)
        return ckpt_fail_memory(m->err);
    g->first = m->state->param.n;
    g->n_lanes = 1;
    return CKPT_OK;
}

/*
 * Handle a line '*': add every parameter that no line names, before or after it, in the order of
 * the file.
 */
static int fr_rest(fr_maker *m, const uint8_t *named)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < m->map->tensors.n; i++) {
        if (!m->trained[i] && !named[i] && ckpt_order_trains(m->map, m->map->tensors.at[i]))
            rc = fr_add(m, i);
    }
    return rc;
}

/* Fail with the reason why a listed tensor cannot be a parameter. */
static int fr_refuse(fr_maker *m, uint64_t line, const ckpt_tensor *t)
{
    if (t->owner)
        return ckpt_fail(m->err, CKPT_EUSAGE,
                         "order, line %" PRIu64 ": %s is tied to %s: name that one instead", line,
                         t->name, t->owner->name);
    if (t->n_elems == 0)
        return ckpt_fail(m->err, CKPT_EUSAGE,
                         "order, line %" PRIu64 ": %s has no elements: leave it out", line,
                         t->name);
    return ckpt_fail(m->err, CKPT_EUSAGE,
                     "order, line %" PRIu64
                     ": %s is %s: only F32, F16, BF16 and F64 can be trained",
                     line, t->name, ckpt_dtype_name(t->dtype));
}

/* Mark the tensor named by a line. It must be in the map, have bytes of its own, and be named
 * once. */
static int fr_named(fr_maker *m, uint8_t *named, uint64_t line, const char *name, size_t n)
{
    size_t at = ckpt_map_index(m->map, name, n);

    if (at == SIZE_MAX)
        return ckpt_fail(m->err, CKPT_EUSAGE, "order, line %" PRIu64 ": %s has no tensor %.*s",
                         line, m->map->path, (int)(n < 200 ? n : 200), name);
    const ckpt_tensor *t = m->map->tensors.at[at];
    if (named[at])
        return ckpt_fail(m->err, CKPT_EUSAGE, "order, line %" PRIu64 ": %s is named twice", line,
                         t->name);
    named[at] = 1;
    // a listed tensor may have the name of a buffer, because the caller knows the model
    if (t->owner || t->n_elems == 0 ||
        (t->dtype != CKPT_F64 && t->dtype != CKPT_F32 && t->dtype != CKPT_F16 &&
         t->dtype != CKPT_BF16))
        return fr_refuse(m, line, t);
    return CKPT_OK;
}

/* Context for the two passes over the list: the first marks the names, the second adds them. */
typedef struct fr_walk {
    fr_maker *m;
    uint8_t *named;
    bool rest; /* a line was '*' */
} fr_walk;

static int fr_mark(void *ctx, uint64_t number, const char *line, size_t n)
{
    fr_walk *w = ctx;

    if (n == 1 && *line == '*') {
        if (w->rest)
            return ckpt_fail(w->m->err, CKPT_EUSAGE, CKPT_ORDER_STARS, number);
        w->rest = true;
        return CKPT_OK;
    }
    return n == 0 ? CKPT_OK : fr_named(w->m, w->named, number, line, n);
}

/* Add the parameters of one line; the first pass has checked all names. */
static int fr_line(void *ctx, uint64_t number, const char *line, size_t n)
{
    const fr_walk *w = ctx;

    (void)number;
    if (n == 0)
        return fr_group(w->m);
    if (n == 1 && *line == '*')
        return fr_rest(w->m, w->named);
    return fr_add(w->m, ckpt_map_index(w->m->map, line, n));
}

/* Add the parameters in the order of the caller's list. */
static int fr_listed(fr_maker *m)
{
    fr_walk w = {m, ckpt_alloc(m->map->tensors.n + 1), false};
    int rc =
        w.named ? ckpt_order_lines(m->target->order_text, fr_mark, &w) : ckpt_fail_memory(m->err);

    if (rc == CKPT_OK)
        rc = ckpt_order_lines(m->target->order_text, fr_line, &w);
    ckpt_free(w.named);
    return rc;
}

/* ---- the order of the file ---- */

/* List all trainable tensors in the file's order; the caller frees the list. */
static int fr_trains(ckpt_tensors *out, const ckpt_map *map, ckpt_err *err)
{
    for (size_t i = 0; i < map->tensors.n; i++) {
        ckpt_tensor **slot;
        if (!ckpt_order_trains(map, map->tensors.at[i]))
            continue;
        slot = ckpt_vec_push(out);
        if (!slot)
            return ckpt_fail_memory(err);
        *slot = map->tensors.at[i];
    }
    return CKPT_OK;
}

/* True if the names are sorted, because the file then does not show the model's order. */
static bool fr_sorted(const ckpt_map *map)
{
    const ckpt_tensor *last = NULL;
    size_t n = 0;

    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        if (!ckpt_order_trains(map, t))
            continue;
        if (last && strcmp(last->name, t->name) >= 0)
            return false;
        last = t;
        n++;
    }
    return n > 2;
}

/*
 * Find a bias before its weight, or NULL. Modules register the weight first, so such a file does
 * not have the model's order.
 */
static const char *fr_bias_first(const ckpt_map *map)
{
    char weight[512];

    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        size_t n = strlen(t->name);
        if (n < 5 || n + 2 >= sizeof weight || strcmp(t->name + n - 5, ".bias") != 0 ||
            !ckpt_order_trains(map, t))
            continue;
        memcpy(weight, t->name, n - 5);
        memcpy(weight + n - 5, ".weight", sizeof ".weight");
        size_t at = ckpt_map_index(map, weight, n + 2);
        if (at != SIZE_MAX && at > i)
            return t->name;
    }
    return NULL;
}

/* Add all parameters in the file's order, if the format keeps the order of the model. */
static int fr_stored(fr_maker *m)
{
    const char *odd = NULL, *path = m->map->path;
    ckpt_tensors all = {0};
    int rc = fr_trains(&all, m->map, m->err);

    if (rc == CKPT_OK)
        rc = ckpt_order_twice(all.at, all.n, &odd, m->err);
    ckpt_vec_free(&all);
    if (rc != CKPT_OK)
        return rc;
    odd = odd ? odd : fr_bias_first(m->map);
    if (odd)
        return ckpt_fail(
            m->err, CKPT_EUSAGE,
            "%.100s: its tensors are not in the order of a model (%.80s)" CKPT_ORDER_HELP, path,
            odd);
    if (fr_sorted(m->map))
        return ckpt_fail(
            m->err, CKPT_EUSAGE,
            "%.100s: its names are sorted: the order of the model is not known" CKPT_ORDER_HELP,
            path);
    for (size_t i = 0; rc == CKPT_OK && i < m->map->tensors.n; i++) {
        if (ckpt_order_trains(m->map, m->map->tensors.at[i]))
            rc = fr_add(m, i);
    }
    return rc;
}

/* ---- choosing ---- */

/* Add the parameters in the order of the model that config.json names; otherwise set *known to
 * false. */
static int fr_known(fr_maker *m, bool *known, const ckpt_tensor **odd)
{
    ckpt_tensors order = {0};
    int rc = ckpt_order_known(&order, m->map, known, odd, m->err);

    for (size_t i = 0; rc == CKPT_OK && *known && i < order.n; i++)
        rc = fr_add(m, ckpt_map_index(m->map, order.at[i]->name, strlen(order.at[i]->name)));
    ckpt_vec_free(&order);
    return rc;
}

/* Choose the most certain order available; *how describes it for the report. */
static int fr_order(fr_maker *m, const char **how)
{
    const ckpt_tensor *odd = NULL;
    bool known = false;

    *how = "of the list";
    if (m->target->order_text)
        return fr_listed(m);
    *how = "of this model type";
    int rc = fr_known(m, &known, &odd);
    if (rc != CKPT_OK || known)
        return rc;
    *how = "of the file";
    if (m->map->in_order)
        return fr_stored(m);
    const char *path = m->map->path, *type = m->map->known.model_type;
    if (odd)
        return ckpt_fail(
            m->err, CKPT_EUSAGE,
            "%.100s: the order of its parameters is not known: %.80s is not a parameter "
            "of a plain model of type %.40s" CKPT_ORDER_HELP,
            path, odd->name, type);
    return ckpt_fail(
        m->err, CKPT_EUSAGE,
        "%.100s: the order of its parameters is not known: %s, and %s%.40s" CKPT_ORDER_HELP, path,
        m->map->no_order ? m->map->no_order : "safetensors sorts them",
        type ? "no order is known for model type " : "no config.json names a ",
        type ? type : "model type");
}

/* ---- the optimizer ---- */

/* Append to a dict in the map's arena; false if memory is exhausted. */
static bool fr_put(fr_maker *m, ckpt_value *dict, const char *key, ckpt_value *value)
{
    return value && ckpt_dict_add_cstr(m->map->arena, &dict->as.map, key, value);
}

static ckpt_value *fr_none(fr_maker *m)
{
    return ckpt_value_new(m->map->arena, CKPT_V_NONE);
}

/* (0.9, 0.999) */
static ckpt_value *fr_betas(fr_maker *m)
{
    ckpt_arena *a = m->map->arena;
    ckpt_value *v = ckpt_value_new(a, CKPT_V_TUPLE);
    bool ok = v && ckpt_seq_add(a, &v->as.seq, ckpt_value_float(a, 0.9)) &&
              ckpt_seq_add(a, &v->as.seq, ckpt_value_float(a, 0.999)) && v->as.seq.at[0] &&
              v->as.seq.at[1];

    return ok ? v : NULL;
}

/* Make the entry of group g in param_groups, with the defaults of torch 2.15's AdamW. */
static ckpt_value *fr_fields(fr_maker *m, size_t g)
{
    static const char *const flags[] = {"amsgrad", "maximize"};
    ckpt_arena *a = m->map->arena;
    ckpt_value *v = ckpt_value_new(a, CKPT_V_DICT), *params = ckpt_value_new(a, CKPT_V_LIST);
    bool ok = v && params && fr_put(m, v, "lr", ckpt_value_float(a, 0.001)) &&
              fr_put(m, v, "betas", fr_betas(m)) &&
              fr_put(m, v, "eps", ckpt_value_float(a, 1e-8)) &&
              fr_put(m, v, "weight_decay", ckpt_value_float(a, 0.0));

    for (size_t i = 0; ok && i < 2; i++)
        ok = fr_put(m, v, flags[i], ckpt_value_bool(a, false));
    ok = ok && fr_put(m, v, "foreach", fr_none(m)) &&
         fr_put(m, v, "capturable", ckpt_value_bool(a, false)) &&
         fr_put(m, v, "differentiable", ckpt_value_bool(a, false)) &&
         fr_put(m, v, "fused", fr_none(m)) &&
         fr_put(m, v, "decoupled_weight_decay", ckpt_value_bool(a, true));
    ckpt_value *number = ok ? ckpt_value_int(a, (int64_t)g) : NULL;
    ok = number && ckpt_seq_add(a, &params->as.seq, number) && fr_put(m, v, "params", params);
    return ok ? v : NULL;
}

/* Make the state of a group at step 0; None stands for zero moments. */
static ckpt_value *fr_entry(fr_maker *m)
{
    ckpt_value *v = ckpt_value_new(m->map->arena, CKPT_V_DICT);
    bool ok = v && fr_put(m, v, "step", ckpt_value_int(m->map->arena, 0)) &&
              fr_put(m, v, "exp_avg", fr_none(m)) && fr_put(m, v, "exp_avg_sq", fr_none(m));

    return ok ? v : NULL;
}

/* Give groups their entries. An empty line at the end of the list must not leave an empty group. */
static int fr_groups(fr_maker *m)
{
    ckpt_groups *groups = &m->state->group;

    if (groups->n > 0 && groups->at[groups->n - 1].n == 0)
        groups->n--;
    if (groups->n == 0)
        return ckpt_fail(m->err, CKPT_EMISSING, "%s: none of its tensors can be trained",
                         m->map->path);
    for (size_t g = 0; g < groups->n; g++) {
        groups->at[g].fields = fr_fields(m, g);
        groups->at[g].entry = fr_entry(m);
        if (!groups->at[g].fields || !groups->at[g].entry)
            return ckpt_fail_memory(m->err);
    }
    return CKPT_OK;
}

/* ---- the rest of the state ---- */

/* Take the run's dtype from the target, otherwise from the parameters, which must all have the
 * same. */
static int fr_dtype(fr_maker *m)
{
    ckpt_dtype d = m->target->dtype;

    for (size_t i = 0; d == CKPT_DTYPE_NONE && i < m->state->param.n; i++) {
        if (m->state->param.at[i]->dtype != m->state->param.at[0]->dtype)
            return ckpt_fail(
                m->err, CKPT_EUSAGE,
                "%s: %s is %s and %s is %s: choose the training dtype with --dtype", m->map->path,
                m->state->param.at[0]->name, ckpt_dtype_name(m->state->param.at[0]->dtype),
                m->state->param.at[i]->name, ckpt_dtype_name(m->state->param.at[i]->dtype));
    }
    d = d == CKPT_DTYPE_NONE ? m->state->param.at[0]->dtype : d;
    if (d != CKPT_F32 && d != CKPT_F16 && d != CKPT_BF16)
        return ckpt_fail(m->err, CKPT_EUSAGE, "%s: runs train in fp32, fp16 or bf16, not in %s",
                         m->map->path, ckpt_dtype_name(d));
    m->state->dtype = d;
    return CKPT_OK;
}

/* Set the roles: listed parameters are trained, other trainable tensors frozen, the rest are
 * buffers. */
static int fr_roles(fr_maker *m)
{
    uint64_t frozen = 0, buffers = 0;
    const char *first = "";

    for (size_t i = 0; i < m->map->tensors.n; i++) {
        ckpt_tensor *t = m->map->tensors.at[i];
        if (t->owner)
            continue;
        bool may = ckpt_order_trains(m->map, t);
        t->role = m->trained[i] ? CKPT_ROLE_WEIGHT : may ? CKPT_ROLE_FROZEN : CKPT_ROLE_BUFFER;
        buffers += t->role == CKPT_ROLE_BUFFER;
        if (t->role == CKPT_ROLE_FROZEN && frozen++ == 0)
            first = t->name;
    }
    int rc = CKPT_OK;
    if (frozen)
        rc =
            ckpt_map_note(m->map, CKPT_INFO, m->err,
                          "%" PRIu64 " tensor%s that the order does not list %s frozen, such as %s",
                          frozen, frozen == 1 ? "" : "s", frozen == 1 ? "is" : "are", first);
    if (rc == CKPT_OK && buffers)
        rc = ckpt_map_note(m->map, CKPT_INFO, m->err, "%" PRIu64 " tensor%s taken for buffers",
                           buffers, buffers == 1 ? " is" : "s are");
    return rc;
}

/* Aliases have the role of their owner. */
static void fr_alias_roles(ckpt_map *map)
{
    for (size_t i = 0; i < map->tensors.n; i++) {
        ckpt_tensor *t = map->tensors.at[i];
        t->role = t->owner ? t->owner->role : t->role;
    }
}

/* Fail if the file has moments, because it lacks the step count that Adam needs for bias
 * correction. */
static int fr_no_moments(const fr_maker *m)
{
    for (size_t i = 0; i < m->map->tensors.n; i++) {
        const char *name = m->map->tensors.at[i]->name, *slash = strchr(name, '/');
        if (slash && strncmp(name, "exp_avg", 7) == 0 &&
            ckpt_map_index(m->map, slash + 1, strlen(slash + 1)) != SIZE_MAX)
            return ckpt_fail(m->err, CKPT_EUNSUPPORTED,
                             "%s: it holds optimizer state (%s), but not its step count; take the "
                             "weights alone (ckpt convert --exclude 'exp_avg*/*')",
                             m->map->path, name);
    }
    return CKPT_OK;
}

/* Make the state; *how describes the order, for the report. */
static int fr_make(fr_maker *m, const char **how)
{
    int rc = fr_no_moments(m);

    // this comes first, because it adds tensors to the map, and `trained` has a byte for each
    if (rc == CKPT_OK)
        rc = ckpt_order_ties(m->map, m->err);
    m->trained = rc == CKPT_OK ? ckpt_alloc(m->map->tensors.n + 1) : NULL;
    if (rc == CKPT_OK && !m->trained)
        rc = ckpt_fail_memory(m->err);
    if (rc == CKPT_OK)
        rc = fr_group(m);
    if (rc == CKPT_OK)
        rc = fr_order(m, how);
    if (rc == CKPT_OK)
        rc = fr_groups(m);
    if (rc == CKPT_OK)
        rc = fr_dtype(m);
    if (rc == CKPT_OK)
        rc = fr_roles(m);
    if (rc == CKPT_OK)
        fr_alias_roles(m->map);
    return rc;
}

/* Report the choices that the user did not make: order, groups and settings. */
static int fr_say(fr_maker *m, const char *how)
{
    return ckpt_map_note(
        m->map, CKPT_INFO, m->err,
        "the training state is new: %zu parameters in %zu group%s, in the order %s; "
        "AdamW at step 0 with lr 0.001, betas (0.9, 0.999), weight decay 0; "
        "DeepSpeed takes these settings from the checkpoint",
        m->state->param.n, m->state->group.n, m->state->group.n == 1 ? "" : "s", how);
}

/* Find an optimizer file beside a folder's weights; NULL if there is none. */
static int fr_optimizer(const char **name, ckpt_map *map, ckpt_err *err)
{
    ckpt_listing list = {0};
    int rc = CKPT_OK;

    *name = NULL;
    // if the user gave the path of a file, an optimizer in its folder is not meant
    if (map->path && map->format && (ckpt_format_caps(map->format) & CKPT_IS_FOLDER))
        rc = ckpt_listing_read(&list, map, map->path, err);
    for (size_t i = 0; rc == CKPT_OK && i < list.n && !*name; i++) {
        const char *at = list.entry[i].name, *dot = strrchr(at, '.');
        if (!list.entry[i].is_dir && strncmp(at, "optimizer", 9) == 0 && dot &&
            (strcmp(dot, ".pt") == 0 || strcmp(dot, ".bin") == 0 || strcmp(dot, ".pth") == 0))
            *name = at;
    }
    return rc;
}

/* Fail if the run has an optimizer that cannot be read, unless the user asks for a new one, because
 * the optimizer's state would be lost unnoticed. */
static int fr_check_optimizer(ckpt_map *map, const ckpt_target *target, ckpt_err *err)
{
    const char *name = NULL;
    int rc = fr_optimizer(&name, map, err);

    if (rc == CKPT_OK && !name && map->no_state && !target->fresh_optimizer)
        return ckpt_fail(err, CKPT_EMISSING,
                         "%s: %s; copy it, or --drop-optimizer begins a new run at step 0 with the "
                         "weights",
                         map->path, map->no_state);
    if (rc != CKPT_OK || !name)
        return rc;
    if (target->fresh_optimizer)
        return ckpt_map_note(map, CKPT_INFO, err, "%s/%s: left out, as --drop-optimizer asks",
                             map->path, name);
    // formats that store weights by name do not need a new training state
    const char *how = !(ckpt_format_caps(target->format) & CKPT_TAKES_WEIGHTS)
                          ? "--drop-optimizer begins a new run at step 0 with the weights"
                      : map->files.n == 1
                          ? "to write the weights alone, name their file: "
                          : "to write the weights alone, first give them a folder of their own "
                            "(ckpt convert --to hf)";
    bool file = map->files.n == 1 && ckpt_format_caps(target->format) & CKPT_TAKES_WEIGHTS;
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "%s: the optimizer in %s numbers the parameters, but the files of the weights "
                     "do not contain these numbers; %s%s",
                     map->path, name, how, file ? map->files.at[0].path : "");
}

/* Require the stage and world size that a training format needs, because weights have neither. */
static int fr_check(const ckpt_map *map, const ckpt_target *target, ckpt_err *err)
{
    bool ranks = ckpt_format_caps(target->format) & CKPT_HAS_RANKS;

    if (map->known.training)
        return ckpt_state_none(map, err);
    if (ranks && target->stage == 0)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: the source has no ZeRO stage: choose one with --stage 1, 2 or 3",
                         map->path);
    if (ranks && target->world == 0)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: the source has no world size: choose one with --world N", map->path);
    return CKPT_OK;
}

/* Write weights without a new state, for formats whose loaders find every tensor by its name. */
static int fr_weights(ckpt_map *map, const ckpt_target *target, bool dropped, ckpt_err *err)
{
    int rc;

    if (map->known.training && !map->no_optimizer)
        return ckpt_state_none(map, err);
    // a run without an optimizer is only weights in such a format
    rc = map->known.training || dropped ? CKPT_OK : fr_check_optimizer(map, target, err);
    if (rc != CKPT_OK)
        return rc;
    if (target->order_text)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s contains weights only, and %s stores tensors by name: --order has no "
                         "effect; omit it",
                         map->path, target->format);
    rc = ckpt_order_ties(map, err);
    return rc == CKPT_OK
               ? ckpt_map_note(map, CKPT_INFO, err,
                               "%s: contains weights only, and so does the output", map->path)
               : rc;
}

static bool fr_is_weight(const ckpt_tensor *t)
{
    return t->role != CKPT_ROLE_STATE && t->role != CKPT_ROLE_OTHER;
}

/*
 * Remove all tensors but the weights from the map of a run whose optimizer state could not be read.
 * The user has asked for a new optimizer.
 */
static int fr_drop(ckpt_map *map, ckpt_err *err)
{
    size_t kept = 0;

    for (size_t i = 0; i < map->tensors.n; i++) {
        ckpt_tensor *t = map->tensors.at[i];
        if (!fr_is_weight(t))
            continue;
        if (t->owner && !fr_is_weight(t->owner))
            ckpt_extent_own(t, map->tensors.at, map->tensors.n);
        map->tensors.at[kept++] = t;
    }
    if (map->waiting)
        ckpt_state_free(map->waiting);
    map->waiting = NULL;
    size_t n = map->tensors.n - kept;
    map->tensors.n = kept;
    int rc = ckpt_map_reindex(map, err);
    if (rc == CKPT_OK)
        rc = ckpt_map_note(map, CKPT_INFO, err,
                           "%s: left out the optimizer, with %zu tensor%s of its state or beside "
                           "the model, because the training state cannot be read: %.200s",
                           map->path, n, n == 1 ? "" : "s", ckpt_state_why_none(map));
    map->known.training = false;
    map->no_state = NULL;
    return rc;
}

/* Put a run's parameters into the caller's order, and drop empty groups, which training formats
 * cannot store. */
static int fr_run(ckpt_map *map, const ckpt_target *target, ckpt_err *err)
{
    int rc = target->order_text ? ckpt_order_run(map, target->order_text, err) : CKPT_OK;

    return rc == CKPT_OK && !(ckpt_format_caps(target->format) & CKPT_TAKES_WEIGHTS)
               ? ckpt_groups_drop_empty(map, err)
               : rc;
}

/* Add the state; a failure leaves the map half changed. */
static int fr_change(ckpt_map *map, const ckpt_target *target, ckpt_err *err)
{
    fr_maker m = {.map = map, .target = target, .err = err};
    const bool dropped = map->states.n == 0 && map->known.training && target->fresh_optimizer;
    const char *how = "";
    int rc = dropped ? fr_drop(map, err) : CKPT_OK;

    if (rc != CKPT_OK)
        return rc;
    if (map->states.n > 0)
        return fr_run(map, target, err);
    if (ckpt_format_caps(target->format) & CKPT_TAKES_WEIGHTS)
        return fr_weights(map, target, dropped, err);
    rc = fr_check(map, target, err);
    if (rc == CKPT_OK && !dropped)
        rc = fr_check_optimizer(map, target, err);
    if (rc == CKPT_OK)
        rc = ckpt_state_new(&m.state, map, "", err);
    if (rc == CKPT_OK)
        rc = fr_make(&m, &how);
    ckpt_free(m.trained);
    return rc == CKPT_OK ? fr_say(&m, how) : rc;
}

int ckpt_map_warm_start(ckpt_map *map, const ckpt_target *target, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_target own;
    ckpt_savepoint *saved = NULL;
    int rc = ckpt_opts_take(&own, sizeof own, target, "ckpt_target", err);

    if (rc == CKPT_OK && (!map || !own.format))
        rc = ckpt_fail(err, CKPT_EUSAGE, "no map, or no format, to make a training state for");
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_new(&saved, map, err);
    return rc == CKPT_OK ? ckpt_savepoint_end(saved, fr_change(map, &own, err)) : rc;
}
