/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c: loads any checkpoint that libckpt reads into this rank's partitions.
 *
 * Names are matched first, in the same way on every rank; the run is not changed before all names
 * and shapes are known to fit.  Then each rank reads only the runs that it holds, so world size and
 * stage of the checkpoint do not matter.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "ckpt_extra.h"
#include "engine/save/restore.h"
#include "engine/save/same.h"
#include "libckpt/base/cast.h"
#include "libckpt/base/dtype.h"
#include "libckpt/include/ckpt_shape.h"

enum {
    LD_NAME = 1024,
    LD_LIST = 360,     /* length of a list of names in a message */
    LD_PIECE = 1 << 20 /* elements copied to a device at a time: 4 MiB */
};

typedef struct ld_loader {
    zt_zero *zero;
    ckpt_map *map;
    ckpt_reader *reader;
    const ckpt_tensor **from; /* per parameter of the model; NULL: missing */
    float **kept;             /* per parameter, if missing: values before the load; or NULL */
    float *piece;             /* LD_PIECE elements, if masters are not in host memory */
    uint8_t *used;            /* per tensor of the map */
    size_t n_missing, n_frozen, n_unknown;
    bool initial; /* accept names with prefixes, or without the model's own */
    char missing[LD_LIST], unknown[LD_LIST];
} ld_loader;

/* ---- names ---- */

/* Append a name to a list in a message. */
static void ld_list(char *list, const char *name)
{
    size_t n = strlen(list);

    if (n + strlen(name) + 8 < LD_LIST)
        (void)snprintf(list + n, LD_LIST - n, "%s%s", n ? ", " : "", name);
    else if (n + 5 < LD_LIST && (n < 3 || strcmp(list + n - 3, "...") != 0))
        (void)snprintf(list + n, LD_LIST - n, ", ...");
}

/* Find a tensor by a prefix and a name. */
static const ckpt_tensor *ld_prefixed(const ckpt_map *map, const char *prefix, const char *name)
{
    char full[LD_NAME];
    int n = snprintf(full, sizeof full, "%s%s", prefix, name);

    return n > 0 && n < LD_NAME ? ckpt_map_find(map, full) : NULL;
}

/*
 * Find a parameter under the names that files use: its own name, or with the prefix of a wrapper.
 * For initial weights also below "w0/", and, for a bare model's file, without the first part
 * ("bert.", "transformer.", "model.").
 */
static const ckpt_tensor *ld_spelled(const ld_loader *l, const char *name)
{
    static const char *const prefix[] = {"", "module.", "w0/", "base_model.model."};
    const char *dot = strchr(name, '.');
    const ckpt_tensor *t = NULL;

    for (size_t i = 0; !t && i < (l->initial ? 4 : 2); i++)
        t = ld_prefixed(l->map, prefix[i], name);
    // T5's "encoder." and "decoder." are not the prefix of a bare model
    if (!t && l->initial && dot && l->zero->model->config.arch != ZT_T5)
        t = ckpt_map_find(l->map, dot + 1);
    return t;
}

/* Find a parameter by its own name, its name in model folders, or an alias. */
static const ckpt_tensor *ld_find(const ld_loader *l, uint32_t param)
{
    const zt_model *model = l->zero->model;
    const ckpt_tensor *t = ld_spelled(l, model->params.at[param].name);

    if (!t && model->params.at[param].hub)
        t = ld_spelled(l, model->params.at[param].hub);
    for (size_t i = 0; !t && i < model->aliases.n; i++) {
        if (model->aliases.at[i].param == param)
            t = ld_spelled(l, model->aliases.at[i].name);
    }
    return t;
}

/* Mark a tensor and its owner as used; the name must be in the map's table. */
static void ld_use(ld_loader *l, const ckpt_tensor *t)
{
    size_t at = ckpt_map_index(l->map, t->name, strlen(t->name));

    if (at != SIZE_MAX)
        l->used[at] = 1;
    if (t->owner)
        ld_use(l, t->owner);
}

static int ld_check_shape(const ld_loader *l, const zt_param *p, const ckpt_tensor *t,
                          ckpt_err *err)
{
    bool same = t->ndim == p->ndim;

    for (uint32_t i = 0; same && i < p->ndim; i++)
        same = t->shape[i] == p->shape[i];
    if (same && ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT)
        return CKPT_OK;
    return ckpt_fail(
        err, CKPT_EMISMATCH,
        "%s: %s is %s with %u axes and %llu elements, but the model expects %u axes and %llu",
        l->map->path, t->name, ckpt_dtype_name(t->dtype), t->ndim, (unsigned long long)t->n_elems,
        p->ndim, (unsigned long long)p->n_elems);
}

/*
 * True for buffers that old releases of transformers saved, and for tensors that are not weights.
 */
static bool ld_is_buffer(const ckpt_tensor *t)
{
    static const char *const end[] = {".attn.bias", ".attn.masked_bias", ".attention.bias",
                                      ".attention.masked_bias", "rotary_emb.inv_freq",
                                      "position_ids",
                                      // saved by old releases for T5, and used by none
                                      ".layer.1.EncDecAttention.relative_attention_bias.weight"};
    size_t n = strlen(t->name);

    if (t->role == CKPT_ROLE_STATE || t->role == CKPT_ROLE_BUFFER || t->role == CKPT_ROLE_OTHER ||
        ckpt_dtype_get(t->dtype)->kind != CKPT_IS_FLOAT)
        return true;
    for (size_t i = 0; i < sizeof end / sizeof *end; i++) {
        size_t m = strlen(end[i]);
        if (n >= m && strcmp(t->name + n - m, end[i]) == 0)
            return true;
    }
    return false;
}

/*
 * Check that a tied weight which the file stores twice has the same values: transformers would
 * untie it.
 */
static int ld_same_alias(const ld_loader *l, const zt_alias *a, const ckpt_tensor *t, ckpt_err *err)
{
    enum { AT_ONCE = 1 << 16 };
    const ckpt_tensor *first = l->from[a->param];
    float *x;
    int rc = CKPT_OK;
    bool same;

    t = t->owner ? t->owner : t;
    if (!first || t == first || t == first->owner)
        return CKPT_OK;
    x = ckpt_alloc(2 * (size_t)AT_ONCE * sizeof *x);
    if (!x)
        return ckpt_fail_memory(err);
    same = t->n_elems == first->n_elems;
    for (uint64_t at = 0; rc == CKPT_OK && same && at < t->n_elems; at += AT_ONCE) {
        uint64_t n = t->n_elems - at < AT_ONCE ? t->n_elems - at : AT_ONCE;

        rc = ckpt_reader_read(l->reader, first, at, n, CKPT_F32, x, err);
        if (rc == CKPT_OK)
            rc = ckpt_reader_read(l->reader, t, at, n, CKPT_F32, x + AT_ONCE, err);
        same = rc != CKPT_OK || memcmp(x, x + AT_ONCE, (size_t)n * sizeof *x) == 0;
    }
    ckpt_free(x);
    if (rc != CKPT_OK || same)
        return rc;
    return ckpt_fail(
        err, CKPT_EMISMATCH,
        "%.200s: %s differs from %s, but the model ties them; set tie_word_embeddings to "
        "false in config.json, or remove one",
        l->map->path, t->name, first->name);
}

/* Mark the aliases of tied weights as used, because some files store tied weights twice. */
static int ld_use_aliases(ld_loader *l, ckpt_err *err)
{
    const zt_aliases *a = &l->zero->model->aliases;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < a->n; i++) {
        const ckpt_tensor *t = ld_spelled(l, a->at[i].name);

        if (!t)
            continue;
        ld_use(l, t);
        rc = ld_same_alias(l, &a->at[i], t, err);
    }
    return rc;
}

/* Find every parameter's tensor, and report missing and unknown names. */
static int ld_match(ld_loader *l, ckpt_err *err)
{
    const zt_params *params = &l->zero->model->params;
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < params->n; i++) {
        const ckpt_tensor *t = ld_find(l, i);
        if (!t) {
            l->n_missing++;
            l->n_frozen += params->at[i].frozen;
            ld_list(l->missing, params->at[i].name);
            continue;
        }
        ld_use(l, t);
        rc = ld_check_shape(l, &params->at[i], t, err);
        l->from[i] = t->owner ? t->owner : t;
    }
    if (rc == CKPT_OK)
        rc = ld_use_aliases(l, err);
    for (size_t i = 0; i < l->map->tensors.n; i++) {
        const ckpt_tensor *t = l->map->tensors.at[i];
        if (l->used[i] || ld_is_buffer(t) ||
            (t->owner && l->used[ckpt_map_index(l->map, t->owner->name, strlen(t->owner->name))]))
            continue;
        l->n_unknown++;
        ld_list(l->unknown, t->name);
    }
    return rc;
}

static int ld_strict(const ld_loader *l, bool unknown, ckpt_err *err)
{
    if (l->n_missing && l->map->format && strcmp(l->map->format, "gguf") == 0)
        return ckpt_fail(err, CKPT_EMISSING,
                         "%.200s: a GGUF file has other names for parameters than the model (%zu "
                         "are missing): make a folder with the model's names by `ckpt convert "
                         "%.200s DIR --to hf`, and use that",
                         l->map->path, l->n_missing, l->map->path);
    if (l->n_missing)
        return ckpt_fail(err, CKPT_EMISSING,
                         "%.80s: %zu parameters of the model are missing: %s%s%s", l->map->path,
                         l->n_missing, l->missing, l->n_unknown ? "; other tensors in it: " : "",
                         l->unknown);
    if (unknown && l->n_unknown)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "%.80s: has %zu tensors that the model does not have: %s", l->map->path,
                         l->n_unknown, l->unknown);
    return CKPT_OK;
}

/* ---- opening ---- */

/*
 * If no parameter's name is in the file, reduce a complete training dict, or names with wrapper
 * prefixes, to the model alone.
 */
static int ld_unwrap(ld_loader *l, ckpt_err *err)
{
    bool found = l->map->states.n > 0;

    for (uint32_t i = 0; !found && i < l->zero->model->params.n; i++)
        found = ld_find(l, i) != NULL;
    return found ? CKPT_OK : ckpt_map_keep_model(l->map, NULL, err);
}

/* Where a message of the library names ckpt's option for a tag, name zerotrain's. */
static void ld_name_option(ckpt_err *err, const char *option)
{
    static const char theirs[] = "-t/--tag";
    char *at = strstr(err->text, theirs), rest[sizeof err->text];

    if (!at)
        return;
    (void)snprintf(rest, sizeof rest, "%s", at + sizeof theirs - 1);
    (void)snprintf(at, sizeof err->text - (size_t)(at - err->text), "%s%s", option, rest);
}

static int ld_open(ld_loader *l, const char *path, const ckpt_open_opts *opts, ckpt_err *err)
{
    size_t n = l->zero->model->params.n + 1;
    int rc = ckpt_open(&l->map, path, opts, err);

    if (rc != CKPT_OK)
        ld_name_option(err, l->initial ? "--init FOLDER/TAG" : "--load-tag");
    else
        rc = ld_unwrap(l, err);
    if (rc == CKPT_OK)
        rc = ckpt_reader_new(&l->reader, l->map, err);
    if (rc != CKPT_OK)
        return rc;
    // masters and 16-bit weights of different saves must not become one run
    ckpt_reader_compare(l->reader);
    l->from = ckpt_alloc(n * sizeof *l->from);
    l->kept = ckpt_alloc(n * sizeof *l->kept);
    l->used = ckpt_alloc(l->map->tensors.n + 1);
    if (!l->from || !l->kept || !l->used)
        return ckpt_fail_memory(err);
    return ld_match(l, err);
}

static void ld_free(ld_loader *l)
{
    for (size_t i = 0; l->kept && i < l->zero->model->params.n; i++)
        ckpt_free(l->kept[i]);
    ckpt_free(l->kept);
    ckpt_free(l->from);
    ckpt_free(l->used);
    if (l->piece)
        zt_zero_home(l->zero)->ops->release_host(zt_zero_home(l->zero), l->piece);
    ckpt_reader_free(l->reader);
    ckpt_map_free(l->map);
}

/* ---- weights by zt_zero_fill ---- */

/* Callback of zt_zero_fill: elements of a parameter in fp32. */
static int ld_value(void *ctx, uint32_t param, uint64_t first, uint64_t count, float *out,
                    ckpt_err *err)
{
    ld_loader *l = ctx;

    if (l->from[param])
        return ckpt_reader_read(l->reader, l->from[param], first, count, CKPT_F32, out, err);
    if (l->kept[param])
        memcpy(out, l->kept[param] + first, (size_t)count * sizeof *out);
    return CKPT_OK;
}

/* Keep one parameter's present values in fp32; all ranks must call it. */
static int ld_keep_one(ld_loader *l, uint32_t i, void *raw, ckpt_err *err)
{
    ckpt_dtype d = l->zero->config->dtype;
    uint64_t n = l->zero->model->params.at[i].n_elems;
    int rc = zt_zero_gather(l->zero, i, raw, err);

    if (rc != CKPT_OK)
        return rc;
    if (d == CKPT_F32)
        memcpy(l->kept[i], raw, (size_t)n * sizeof(float));
    else
        ckpt_cast_find(CKPT_F32, d)(l->kept[i], raw, (size_t)n);
    return CKPT_OK;
}

/* Keep the present values of missing parameters. */
static int ld_keep(ld_loader *l, ckpt_err *err)
{
    const zt_params *params = &l->zero->model->params;
    uint64_t longest = 1;
    void *raw = NULL;
    int rc = CKPT_OK;

    if (l->n_missing == 0)
        return CKPT_OK;
    for (uint32_t i = 0; rc == CKPT_OK && i < params->n; i++) {
        uint64_t n = params->at[i].n_elems;
        longest = n > longest ? n : longest;
        if (!l->from[i] && !(l->kept[i] = ckpt_alloc((size_t)(n + 1) * sizeof **l->kept)))
            rc = ckpt_fail_memory(err);
    }
    raw = ckpt_alloc((size_t)longest * sizeof(float));
    if (rc == CKPT_OK && !raw)
        rc = ckpt_fail_memory(err);
    rc = zt_comm_agree(l->zero->comm, rc, err);
    for (uint32_t i = 0; rc == CKPT_OK && i < params->n; i++) {
        if (!l->from[i])
            rc = ld_keep_one(l, i, raw, err);
    }
    ckpt_free(raw);
    return rc;
}

/* Fill working weights and masters, or only frozen parameters, which have no masters. */
static int ld_fill(ld_loader *l, bool frozen, ckpt_err *err)
{
    int rc = zt_comm_agree(l->zero->comm, ld_keep(l, err), err);

    if (rc == CKPT_OK)
        rc = frozen ? zt_zero_fill_frozen(l->zero, ld_value, l, err)
                    : zt_zero_fill(l->zero, ld_value, l, err);
    return zt_comm_agree(l->zero->comm, rc, err);
}

/* ---- masters and moments ---- */

/* Find a moment under the names that optimizer classes use; NULL: the checkpoint has none. */
static const ckpt_tensor *ld_moment(const ld_loader *l, const char *kind, const ckpt_tensor *param)
{
    static const char *const same[][2] = {{"sum", "exp_avg_sq"}, {"exp_avg_sq", "sum"}};
    bool adagrad = l->zero->config->optim.type == ZT_OPT_ADAGRAD;
    char full[LD_NAME];
    int n = snprintf(full, sizeof full, "%s/%s", kind, param->name);
    const ckpt_tensor *t = n > 0 && n < LD_NAME ? ckpt_map_find(l->map, full) : NULL;

    // if there is an exp_avg too, exp_avg_sq is Adam's, not the sum of Adagrad
    if (adagrad && snprintf(full, sizeof full, "exp_avg/%s", param->name) < LD_NAME &&
        ckpt_map_find(l->map, full))
        return NULL;
    for (size_t i = 0; !t && adagrad && i < 2; i++) {
        if (strcmp(kind, same[i][0]) == 0 &&
            snprintf(full, sizeof full, "%s/%s", same[i][1], param->name) < LD_NAME)
            t = ckpt_map_find(l->map, full);
    }
    return t && t->n_elems == param->n_elems ? t : NULL;
}

/* True if the checkpoint has element-wise state of a parameter, of any optimizer. */
static bool ld_has_any(const ld_loader *l, const ckpt_tensor *param)
{
    const ckpt_state *state = l->map->states.at[0];

    for (size_t g = 0; g < state->group.n; g++) {
        ckpt_dict entry = ckpt_value_map(state->group.at[g].entry);
        for (uint64_t i = 0; i < entry.n; i++) {
            const ckpt_value *key = entry.at[i].key;
            if (key->kind == CKPT_V_STR && entry.at[i].value->kind == CKPT_V_TENSOR &&
                !ckpt_value_is(key, "step") &&
                ckpt_state_moment(l->map, state, key->as.text.at, param))
                return true;
        }
    }
    return false;
}

/* Check that a group (with Muon, its half) has the state of this optimizer. */
static int ld_check_group(const ld_loader *l, const zt_group *g, ckpt_err *err)
{
    const zt_optim *o = &l->zero->config->optim;
    const char *kind, *other = NULL;

    for (unsigned k = 0; (kind = zt_optim_state(o, g->muon, k)) != NULL; k++) {
        size_t found = 0;
        for (uint32_t i = 0; i < g->n && !other; i++) {
            const ckpt_tensor *t = l->from[l->zero->order[g->first + i]];
            bool has = t && ld_moment(l, kind, t);
            found += has;
            if (t && !has && ld_has_any(l, t))
                other = t->name;
        }
        if (!found || other)
            return ckpt_fail(
                err, CKPT_EMISSING,
                "%.200s: it has no %s%s%.100s, which the optimizer %s needs: load only the weights "
                "(--module-only), or configure the optimizer of the saved run",
                l->map->path, kind, other ? " of " : "", other ? other : "",
                o->name ? o->name : "of this run");
    }
    return CKPT_OK;
}

/* True if no group has optimizer state of any kind. */
static bool ld_no_state(const ckpt_state *state)
{
    bool any = false;

    for (size_t g = 0; g < state->group.n; g++)
        any = any || ckpt_value_map(state->group.at[g].entry).n;
    return !any;
}

/*
 * After its first update a checkpoint must have this optimizer's state, because a resume with zero
 * moments would train differently.  A parameter may lack state (experts that were never used), but
 * not all of a group, and none may have another optimizer's state.  If every step was skipped (fp16
 * overflow), the optimizer has not created its state yet.
 */
static int ld_check_moments(const ld_loader *l, ckpt_err *err)
{
    const ckpt_state *state = l->map->states.at[0];
    int64_t steps = 0, skipped = 0;
    int rc = CKPT_OK;

    (void)ckpt_value_as_int(ckpt_value_get(state->model, "global_steps"), &steps);
    (void)ckpt_value_as_int(ckpt_value_get(state->model, "skipped_steps"), &skipped);
    if (skipped >= steps && ld_no_state(state))
        return CKPT_OK;
    for (uint32_t g = 0; rc == CKPT_OK && steps > 0 && g < l->zero->n_groups; g++)
        rc = ld_check_group(l, &l->zero->group[g], err);
    return rc;
}

/*
 * Read a run of masters or of one state into host memory, or piece by piece to a device.  t NULL:
 * fill it with zeros.
 */
static int ld_column(ld_loader *l, const ckpt_tensor *t, const zt_owned *o, float *column,
                     ckpt_err *err)
{
    assert(column && o->count > 0);
    zt_device *home = zt_zero_home(l->zero);
    float *to = column + o->at;
    int rc = CKPT_OK;

    if (t && home->host)
        return ckpt_reader_read(l->reader, t, o->first, o->count, CKPT_F32, to, err);
    if (!t)
        home->ops->zero(home, to, o->count * sizeof *to);
    for (uint64_t at = 0; t && rc == CKPT_OK && at < o->count; at += LD_PIECE) {
        uint64_t n = o->count - at < LD_PIECE ? o->count - at : LD_PIECE;
        rc = ckpt_reader_read(l->reader, t, o->first + at, n, CKPT_F32, l->piece, err);
        if (rc == CKPT_OK)
            home->ops->put(home, to + at, l->piece, n * sizeof *to);
    }
    return rc;
}

/* Read one run of a partition: master, then moments; missing moments become zero. */
static int ld_run(ld_loader *l, const zt_owned *o, ckpt_err *err)
{
    zt_partition *p = &l->zero->part[o->partition];
    const zt_optim *optim = &l->zero->config->optim;
    const ckpt_tensor *from = l->from[o->param];
    int rc;

    if (!from)
        return CKPT_OK; // missing in the checkpoint: keep the present values
    rc = ld_column(l, from, o, p->master, err);
    for (unsigned k = 0; rc == CKPT_OK && k < optim->n_state; k++) {
        const char *kind = zt_optim_state(optim, l->zero->group[p->group].muon, k);
        if (p->state[k] && kind)
            rc = ld_column(l, ld_moment(l, kind, from), o, p->state[k], err);
    }
    return rc;
}

static int ld_partition(ld_loader *l, uint32_t part, ckpt_err *err)
{
    size_t n = 0;
    const zt_owned *owned = zt_zero_owned(l->zero, &n);
    int rc = zt_zero_hold(l->zero, part, err), let;

    if (rc != CKPT_OK)
        return rc;
    for (size_t i = 0; rc == CKPT_OK && i < n; i++) {
        if (owned[i].partition == part)
            rc = ld_run(l, &owned[i], err);
    }
    if (rc == CKPT_OK)
        rc = zt_device_check(zt_zero_home(l->zero), err);
    let = zt_zero_let_go(l->zero, part, true, rc == CKPT_OK ? err : NULL);
    return rc == CKPT_OK ? let : rc;
}

/* Find the highest step count, because FusedAdam stores it with a group's last parameter only.  -1:
 * none. */
static int ld_step(ld_loader *l, int64_t *step, ckpt_err *err)
{
    char full[LD_NAME];
    int rc = CKPT_OK;

    *step = -1;
    for (uint32_t i = 0; rc == CKPT_OK && i < l->zero->n_order; i++) {
        const ckpt_tensor *p = l->from[l->zero->order[i]], *t = NULL;
        float value = 0;
        int n = p ? snprintf(full, sizeof full, "step/%s", p->name) : 0;
        if (n > 0 && n < LD_NAME)
            t = ckpt_map_find(l->map, full);
        if (!t || t->n_elems != 1)
            continue;
        rc = ckpt_reader_read(l->reader, t, 0, 1, CKPT_F32, &value, err);
        if (value >= 0 && value < 9e15f && (int64_t)value > *step)
            *step = (int64_t)value;
    }
    return rc;
}

/*
 * Allocate pinned memory for values on their way to a device, because copies from it are fastest.
 */
static int ld_make_room(ld_loader *l, ckpt_err *err)
{
    zt_device *home = zt_zero_home(l->zero);

    if (!home->host)
        l->piece = home->ops->alloc_host(home, LD_PIECE * sizeof *l->piece);
    return zt_device_check(home, err);
}

/* True if the checkpoint has state of this optimizer. */
static bool ld_has_moments(const ld_loader *l)
{
    bool has = false;

    for (uint32_t i = 0; !has && i < l->zero->n_groups; i++) {
        const zt_group *g = &l->zero->group[i];
        const char *kind = zt_optim_state(&l->zero->config->optim, g->muon, 0);

        for (uint32_t k = g->first; kind && !has && k < g->first + g->n; k++) {
            const ckpt_tensor *t = l->from[l->zero->order[k]];
            has = t && ld_moment(l, kind, t);
        }
    }
    return has;
}

/* Load masters, moments and the values that are not tensors. */
static int ld_state(ld_loader *l, zt_loaded *out, ckpt_err *err)
{
    int64_t step = -1;
    int rc = ld_step(l, &step, err);

    if (rc == CKPT_OK)
        rc = ld_make_room(l, err);
    for (uint32_t i = 0; rc == CKPT_OK && i < l->zero->n_parts; i++)
        rc = ld_partition(l, i, err);
    rc = zt_comm_agree(l->zero->comm, rc, err);
    if (rc != CKPT_OK)
        return rc;
    rc = zt_restore(l->zero, l->map->states.at[0], l->from, step, out, err);
    rc = zt_comm_agree(l->zero->comm, rc, err);
    out->optimizer_updates = step;
    out->updates = l->zero->global_steps - l->zero->skipped;
    // SGD counts no steps; a count of 1 shows that the next step is not the first, which would
    // reset the buffers
    if (rc == CKPT_OK && l->zero->config->optim.type == ZT_OPT_SGD && l->zero->updates == 0 &&
        ld_has_moments(l))
        l->zero->updates = 1;
    return rc == CKPT_OK ? zt_comm_agree(l->zero->comm, zt_zero_refresh(l->zero, err), err) : rc;
}

/* ---- loading ---- */

static bool ld_has_frozen(const zt_model *model)
{
    for (size_t i = 0; i < model->params.n; i++) {
        if (model->params.at[i].frozen)
            return true;
    }
    return false;
}

/* Get the tag of the folder that was read, as in `latest`. */
static void ld_tag(const ckpt_map *map, zt_loaded *out)
{
    (void)snprintf(out->tag, sizeof out->tag, "%.255s", map->known.tag ? map->known.tag : "");
}

/*
 * Refuse a checkpoint whose format has training state if its optimizer is missing or ambiguous,
 * because loading only its weights must be the user's choice.
 */
static int ld_check_state(const ld_loader *l, ckpt_err *err)
{
    if (l->map->states.n == 1 || !l->map->known.training)
        return CKPT_OK;
    if (l->map->states.n > 1)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%.200s: has training state of %zu model-parallel ranks, which zerotrain "
                         "cannot resume: use --module-only to start a run from its weights",
                         l->map->path, l->map->states.n);
    return ckpt_fail(err, CKPT_EMISSING,
                     "%.200s: no training state was read (%.400s): use --module-only to start a "
                     "run from its weights",
                     l->map->path, ckpt_state_why_none(l->map));
}

int zt_load(zt_zero *z, const zt_load_opts *opts, zt_loaded *loaded, ckpt_err *err)
{
    const ckpt_open_opts open = {
        .tag = opts->tag, .whole_checkpoint = true, .with_optimizer = !opts->module_only};
    ld_loader l = {.zero = z};
    zt_loaded out = {.global_steps = z->global_steps, .optimizer_updates = -1};
    int rc = ld_open(&l, opts->path, &open, err);

    if (rc == CKPT_OK && !opts->not_strict)
        rc = ld_strict(&l, true, err);
    if (rc == CKPT_OK && !opts->not_strict && !opts->module_only)
        rc = ld_check_state(&l, err);
    out.with_optimizer = rc == CKPT_OK && !opts->module_only && l.map->states.n == 1;
    if (out.with_optimizer && !opts->not_strict)
        rc = ld_check_moments(&l, err);
    rc = zt_comm_agree(z->comm, rc, err);
    if (rc == CKPT_OK) {
        ld_tag(l.map, &out);
        out.n_missing = l.n_missing;
        rc = zt_same_checkpoint(z->comm, l.map, &out, err);
    }
    if (rc == CKPT_OK) {
        // without an optimizer, weights are rounded as at a start; frozen ones have no master
        if (!out.with_optimizer || ld_has_frozen(z->model))
            rc = ld_fill(&l, out.with_optimizer, err);
    }
    if (rc == CKPT_OK && out.with_optimizer)
        rc = ld_state(&l, &out, err);
    out.global_steps = z->global_steps;
    out.n_unknown = l.n_unknown;
    ld_free(&l);
    if (rc == CKPT_OK && loaded)
        *loaded = out;
    return rc;
}

int zt_load_initial(zt_zero *z, const char *path, bool strict, zt_lacking *lacking, ckpt_err *err)
{
    const ckpt_open_opts open = {.whole_checkpoint = true};
    ld_loader l = {.zero = z, .initial = true};
    int rc = ld_open(&l, path, &open, err);

    *lacking = (zt_lacking){0};
    if (rc == CKPT_OK)
        *lacking = (zt_lacking){l.n_missing, l.n_frozen, l.n_unknown};
    if (rc == CKPT_OK && strict)
        rc = ld_strict(&l, false, err);
    if (rc == CKPT_OK && l.n_missing == z->model->params.n)
        rc = ckpt_fail(err, CKPT_EMISSING,
                       "%.80s: none of its tensors has the name of a parameter of the model (%s)",
                       path, l.missing);
    rc = zt_comm_agree(z->comm, rc, err);
    if (rc == CKPT_OK)
        rc = zt_same_checkpoint(z->comm, l.map, &(zt_loaded){.n_missing = l.n_missing}, err);
    if (rc == CKPT_OK)
        rc = ld_fill(&l, false, err);
    ld_free(&l);
    return rc;
}
