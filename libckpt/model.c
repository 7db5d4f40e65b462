/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c: reduces a checkpoint to its model, under the model's own names.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt_extra.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/opts.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/drivers.h"
#include "libckpt/format.h"
#include "libckpt/map/copies.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/savepoint.h"
#include "libckpt/map/whole.h"
#include "libckpt/transform/keymap/expr.h"
#include "libckpt/transform/unwrap.h"

enum {
    MDL_LISTED = 6, /* most names in a list of parts that are left out */
    MDL_PARTS = 32  /* most parts */
};

typedef struct mdl_work {
    ckpt_map *map;
    const ckpt_model_opts *opts;
    ckpt_whole whole;
    bool raw; /* names are those of a program's dict, not of a model */
    ckpt_err *err;
} mdl_work;

/* ---- finding the model ---- */

/* True if a tensor belongs to the part. */
static bool mdl_has(const ckpt_whole_part *p, const ckpt_tensor *t)
{
    return ckpt_whole_below(p, t->name) != SIZE_MAX;
}

/* The path of a part, and the part's place. */
typedef struct mdl_path {
    const char *path;
    size_t n, at;
} mdl_path;

/* For qsort and bsearch. */
static int mdl_by_path(const void *pa, const void *pb)
{
    const mdl_path *a = pa, *b = pb;
    const int order = memcmp(a->path, b->path, a->n < b->n ? a->n : b->n);

    return order != 0 ? order : (a->n > b->n) - (a->n < b->n);
}

/* The parts' numbers of tensors in the map. */
typedef struct mdl_counts {
    uint64_t *of;      /* for each part */
    const char *other; /* the first tensor in no part; NULL: none */
} mdl_counts;

/* Count a tensor in the parts whose path has these n bytes; false: there are none. */
static bool mdl_count_in(mdl_counts *c, const ckpt_whole *all, const mdl_path *path,
                         const ckpt_tensor *t, size_t n)
{
    const mdl_path key = {.path = t->name, .n = n};
    const mdl_path *p = bsearch(&key, path, all->part.n, sizeof *path, mdl_by_path);
    bool found = false;

    while (p && p > path && mdl_by_path(p - 1, &key) == 0)
        p--;
    for (; p && p < path + all->part.n && mdl_by_path(p, &key) == 0; p++) {
        const bool has = mdl_has(&all->part.at[p->at], t);
        c->of[p->at] += has;
        found = found || has;
    }
    return found;
}

/* Count the tensors of each part; the caller frees c->of. */
static int mdl_count(mdl_counts *c, const mdl_work *w)
{
    const ckpt_whole *all = &w->whole;
    mdl_path *path = ckpt_alloc((all->part.n + 1) * sizeof *path);

    *c = (mdl_counts){.of = ckpt_alloc((all->part.n + 1) * sizeof *c->of)};
    for (size_t i = 0; path && i < all->part.n; i++) {
        const char *text = all->part.at[i].path;
        path[i] = (mdl_path){.path = text, .n = strlen(text), .at = i};
    }
    if (path && all->part.n > 1)
        qsort(path, all->part.n, sizeof *path, mdl_by_path);
    for (size_t i = 0; path && c->of && all->part.n > 0 && i < w->map->tensors.n; i++) {
        const ckpt_tensor *t = w->map->tensors.at[i];
        bool found = mdl_count_in(c, all, path, t, 0);
        for (const char *dot = strchr(t->name, '.'); dot; dot = strchr(dot + 1, '.'))
            found = mdl_count_in(c, all, path, t, (size_t)(dot - t->name)) || found;
        c->other = found || c->other ? c->other : t->name;
    }
    const bool fits = path && c->of;
    ckpt_free(path);
    if (!fits) {
        ckpt_free(c->of);
        c->of = NULL;
    }
    return fits ? CKPT_OK : ckpt_fail_memory(w->err);
}

/* Drop parts that have no tensors in the map, because the caller has left them out. */
static int mdl_present(mdl_work *w)
{
    mdl_counts c;
    size_t kept = 0;
    int rc = mdl_count(&c, w);

    if (rc != CKPT_OK)
        return rc;
    for (size_t i = 0; i < w->whole.part.n; i++) {
        const ckpt_whole_part p = w->whole.part.at[i];
        if (c.of[i] > 0 || (p.kind == CKPT_WHOLE_OPTIMIZER && p.n > 0))
            w->whole.part.at[kept++] = p;
    }
    ckpt_free(c.of);
    w->whole.part.n = kept;
    return ckpt_whole_choose(&w->whole, w->err);
}

/* A list of the file's other contents, by kind; *n: the number of their tensors. */
static const char *mdl_left(const mdl_work *w, uint64_t *n)
{
    const ckpt_whole_part *model = &w->whole.part.at[w->whole.model];
    const char *text = "";
    uint64_t listed = 0, more = 0, n_parts = 0;
    mdl_counts c;

    *n = 0;
    if (mdl_count(&c, w) != CKPT_OK)
        return NULL;
    for (size_t i = 0; i < w->map->tensors.n; i++)
        *n += !mdl_has(model, w->map->tensors.at[i]);
    for (size_t i = 0; text && i < w->whole.part.n; i++) {
        const ckpt_whole_part *p = &w->whole.part.at[i];
        if (p == model || c.of[i] == 0)
            continue;
        listed += c.of[i];
        if (n_parts++ >= MDL_PARTS)
            more += c.of[i];
        else
            text = ckpt_arena_printf(w->map->arena, "%s%s%.80s (%s, %" PRIu64 " tensor%s)", text,
                                     *text ? ", " : "", p->path, ckpt_whole_kind_text(p->kind),
                                     c.of[i], c.of[i] == 1 ? "" : "s");
    }
    if (text && more > 0)
        text = ckpt_arena_printf(w->map->arena,
                                 "%s, %" PRIu64 " more such members (%" PRIu64 " tensors)", text,
                                 n_parts - MDL_PARTS, more);
    if (text && *n > listed)
        text = ckpt_arena_printf(w->map->arena, "%s%s%" PRIu64 " other tensor%s (%.80s%s)", text,
                                 *text ? ", " : "", *n - listed, *n - listed == 1 ? "" : "s",
                                 c.other ? c.other : "", *n - listed == 1 ? "" : " ...");
    ckpt_free(c.of);
    return text;
}

/* Keep the model's tensors, and remove its path from their names. */
static int mdl_take(mdl_work *w)
{
    ckpt_map *map = w->map;
    const ckpt_whole_part *model = &w->whole.part.at[w->whole.model];
    size_t kept = 0;

    map->effects |= w->opts->keep_names ? CKPT_USED_NAMES : 0;
    for (size_t i = 0; i < map->tensors.n; i++) {
        ckpt_tensor *t = map->tensors.at[i];
        if (!mdl_has(model, t))
            continue;
        // weights that are tied to a copy of the model
        if (t->owner && !mdl_has(model, t->owner))
            ckpt_extent_own(t, map->tensors.at, map->tensors.n);
        map->tensors.at[kept++] = t;
    }
    map->tensors.n = kept;
    for (size_t i = 0; !w->opts->keep_names && i < kept; i++)
        map->tensors.at[i]->name += ckpt_whole_below(model, map->tensors.at[i]->name);
    return ckpt_map_reindex(map, w->err);
}

/* Refuse several models without a certain choice. */
static int mdl_unsure(const mdl_work *w)
{
    const char *text = ckpt_whole_text(&w->whole, w->map->arena);

    if (!text)
        return ckpt_fail_memory(w->err);
    return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                     "%s: it holds %s: choose one model (--include '%.80s.*')", w->map->path, text,
                     w->whole.part.at[0].path);
}

/*
 * If the caller wants a run, refuse a file with several models, or with an optimizer that was not
 * read because the file was opened as a folder's weights.
 */
static int mdl_check_run(const mdl_work *w)
{
    const char *text = ckpt_whole_text(&w->whole, w->map->arena);

    if (!w->opts->run || (w->whole.n_models + w->whole.n_copies == 1 && w->whole.n_optimizers == 0))
        return CKPT_OK;
    if (!text)
        return ckpt_fail_memory(w->err);
    if (w->whole.n_optimizers > 0)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "%s: its file of weights holds %s: name the file (%s), which is then read "
                         "as a run",
                         w->map->path, text, w->map->files.at[0].path);
    return ckpt_fail(
        w->err, CKPT_EUNSUPPORTED,
        "%s: it holds %s, but a run has one model: first write that model to a file of its "
        "own (ckpt convert --include '%.80s.*')",
        w->map->path, text, w->whole.part.at[0].path);
}

/*
 * Refuse an optimizer beside tensors that are no dict of weights, e.g. a pickled module: the
 * optimizer's state would become part of the model.
 */
static int mdl_no_model(const mdl_work *w)
{
    uint64_t n_state = 0;
    size_t at = 0;
    mdl_counts c;
    int rc = mdl_count(&c, w);

    if (rc != CKPT_OK)
        return rc;
    for (size_t i = 0; i < w->whole.part.n; i++) {
        at = c.of[i] > 0 ? i : at;
        n_state += c.of[i];
    }
    ckpt_free(c.of);
    if (n_state == 0 || n_state >= w->map->tensors.n)
        return CKPT_OK;
    return ckpt_fail(
        w->err, CKPT_EUNSUPPORTED,
        "%s: it holds an optimizer (%.80s), but no dict of weights: expected a model's "
        "state_dict, found %" PRIu64 " other tensors, e.g. of a pickled module; save "
        "model.state_dict(), or leave the optimizer out (--exclude '%.80s.*')",
        w->map->path, w->whole.part.at[at].path, w->map->tensors.n - n_state,
        w->whole.part.at[at].path);
}

/* Keep only the model of a saved dict; a dict without a recognised part stays unchanged. */
static int mdl_narrow(mdl_work *w)
{
    const ckpt_whole *all = &w->whole;
    uint64_t n;
    int rc = mdl_present(w);

    if (rc == CKPT_OK && all->n_models == 0)
        return mdl_no_model(w);
    if (rc == CKPT_OK)
        rc = mdl_check_run(w);
    if (rc != CKPT_OK)
        return rc;
    if (all->model == SIZE_MAX && (all->n_optimizers > 0 || all->n_copies > 0))
        return mdl_unsure(w);
    if (all->model == SIZE_MAX ||
        (!*all->part.at[all->model].path && !all->part.at[all->model].direct) ||
        (!all->named && all->n_optimizers + all->n_copies == 0 && !w->opts->run))
        return CKPT_OK;
    w->raw = true;
    const char *left = mdl_left(w, &n), *path = all->part.at[all->model].path;
    if (!left)
        return ckpt_fail_memory(w->err);
    if (n > 0)
        rc = ckpt_map_note(w->map, all->n_models > 1 ? CKPT_WARNING : CKPT_INFO, w->err,
                           "%s: the model is %s%.80s%s; ckpt leaves out %s", w->map->path,
                           *path ? "'" : "the file's own tensors", path, *path ? "'" : "", left);
    return rc == CKPT_OK ? mdl_take(w) : rc;
}

/* ---- tensors beside the model ---- */

/* Count the tensors that are beside the model, and say if the map has a tensor of the model. */
static size_t mdl_others(const ckpt_map *map, bool *has_model)
{
    size_t n = 0;

    *has_model = false;
    for (size_t i = 0; i < map->tensors.n; i++) {
        uint32_t role = map->tensors.at[i]->role;
        n += role == CKPT_ROLE_OTHER;
        *has_model = *has_model || (role != CKPT_ROLE_OTHER && role != CKPT_ROLE_STATE);
    }
    return n;
}

/* List the first part of each name beside the model, once, and at most MDL_LISTED of them. */
static const char *mdl_other_names(const ckpt_map *map)
{
    const char *text = "", *last = NULL;
    size_t n_last = 0;
    unsigned listed = 0;

    for (size_t i = 0; text && i < map->tensors.n && listed <= MDL_LISTED; i++) {
        const char *name = map->tensors.at[i]->name;
        size_t n = strcspn(name, ".");
        if (map->tensors.at[i]->role != CKPT_ROLE_OTHER ||
            (last && n == n_last && strncmp(name, last, n) == 0))
            continue;
        last = name;
        n_last = n;
        const char *dot = *text ? ", " : "";
        text = listed++ == MDL_LISTED
                   ? ckpt_arena_printf(map->arena, "%s%s...", text, dot)
                   : ckpt_arena_printf(map->arena, "%s%s%.*s%s", text, dot, n < 80 ? (int)n : 80,
                                       name, name[n] ? ".*" : "");
    }
    return text;
}

/*
 * Give averaged copies of the weights the role of tensors beside the model, where a program saved
 * both under the root ("w" and "ema.w").  A run has its roles from its optimizer, if that was read.
 */
static int mdl_mark_copies(mdl_work *w)
{
    ckpt_map *map = w->map;
    bool trained = w->opts->run && (map->states.n > 0 || map->waiting);
    ckpt_copies_name *at = trained ? NULL : ckpt_alloc((map->tensors.n + 1) * sizeof *at);
    int rc = CKPT_OK;

    for (size_t i = 0; at && i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        bool model = t->role != CKPT_ROLE_STATE && t->role != CKPT_ROLE_OTHER;
        bool floats = ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT;
        at[i] = (ckpt_copies_name){.name = model ? t->name : "",
                                   .shape = t->shape,
                                   .ndim = t->ndim,
                                   .weight = model && floats && t->ndim > 0};
    }
    if (at)
        rc = ckpt_copies_mark(at, map->tensors.n, w->err);
    for (size_t i = 0; at && rc == CKPT_OK && i < map->tensors.n; i++) {
        if (at[i].copy)
            map->tensors.at[i]->role = CKPT_ROLE_OTHER;
    }
    ckpt_free(at);
    return at || trained ? rc : ckpt_fail_memory(w->err);
}

/*
 * Drop tensors that a program saved beside the model: averaged weights, a second model, random
 * states, counters.  Weights that begin a run have none of these, but a saved run keeps them.  So
 * does a map without a tensor of the model, because the caller has selected them.
 */
static int mdl_drop_others(mdl_work *w)
{
    ckpt_map *map = w->map;
    bool saved = map->states.n > 0 || map->waiting || map->known.training;
    bool has_model, keep = w->opts->run ? saved : w->opts->keep_others;
    size_t n = mdl_others(map, &has_model), kept = 0;

    if (n == 0 || !has_model || keep)
        return CKPT_OK;
    const char *names = mdl_other_names(map);
    int rc = names ? ckpt_map_note(map, CKPT_INFO, w->err,
                                   "%s: left out %zu tensor%s that %s not part of the model (%s); "
                                   "--include selects them",
                                   map->path, n, n == 1 ? "" : "s", n == 1 ? "is" : "are", names)
                   : ckpt_fail_memory(w->err);
    if (rc != CKPT_OK)
        return rc;
    for (size_t i = 0; i < map->tensors.n; i++) {
        ckpt_tensor *t = map->tensors.at[i];
        if (t->role == CKPT_ROLE_OTHER)
            continue;
        if (t->owner && t->owner->role == CKPT_ROLE_OTHER)
            ckpt_extent_own(t, map->tensors.at, map->tensors.n);
        map->tensors.at[kept++] = t;
    }
    map->tensors.n = kept;
    return ckpt_map_reindex(map, w->err);
}

/* ---- naming its tensors ---- */

/* Store the caller's configuration, for facts and for a model folder. */
static int mdl_config(mdl_work *w)
{
    ckpt_map_config *config = &w->map->config;
    const char *given = w->opts->config_text;
    const ckpt_json_text text = {.name = w->opts->config_name ? w->opts->config_name
                                                              : "the configuration",
                                 .at = given,
                                 .n = given ? strlen(given) : 0,
                                 .max = 1 << 24};
    ckpt_value *value = NULL;

    if (!given || config->file)
        return CKPT_OK;
    int rc = ckpt_json_parse(&value, w->map->arena, &text, w->err);
    if (rc == CKPT_OK && value->kind != CKPT_V_DICT)
        rc = ckpt_fail(w->err, CKPT_EFORMAT, "%s: expected a JSON object, as config.json is",
                       text.name);
    if (rc != CKPT_OK)
        return rc;
    *config = (ckpt_map_config){.file = "config.json",
                                .value = value,
                                .text = ckpt_arena_string(w->map->arena, given, text.n)};
    return config->text ? CKPT_OK : ckpt_fail_memory(w->err);
}

/*
 * The model_type of config.json, from the folder or the caller; a malformed file counts as none
 * here.
 */
static const char *mdl_type(mdl_work *w)
{
    ckpt_remap none = {0};
    ckpt_remap_how how = {0};
    ckpt_rm_facts facts;
    const ckpt_value *v;

    if (w->map->known.model_type)
        return w->map->known.model_type;
    // for a remote address this costs a request: make it only if the answer matters
    if (ckpt_path_is_remote(w->map->path ? w->map->path : "") && !ckpt_unwrap_asks(w->map))
        return NULL;
    if (ckpt_rm_facts_open(&facts, &none, w->map, &how, NULL) != CKPT_OK)
        return NULL;
    v = ckpt_rm_fact(&facts, "model_type");
    return v && v->kind == CKPT_V_STR ? v->as.text.at : NULL;
}

/*
 * Read the tree of values of the only torch file in a model folder, because the folder's map does
 * not keep it; *read: the map that holds it, which the caller frees.
 */
static int mdl_values(ckpt_map **read, ckpt_value **out, mdl_work *w)
{
    const ckpt_map_file *file = w->map->files.n == 1 ? &w->map->files.at[0] : NULL;

    *out = ckpt_is_dict(w->map) ? w->map->values : NULL;
    if (*out || w->map->states.n > 0 || !file || !file->format || file->input ||
        !(file->format->is.caps & CKPT_KEEPS_ORDER) || strcmp(w->map->format, "hf") != 0)
        return CKPT_OK;
    int rc = ckpt_format_read(read, file->path, NULL, w->err);
    if (rc == CKPT_OK)
        *out = (*read)->values;
    return rc;
}

/* Warn about weights that are trained ones and not those of evaluation. */
static int mdl_check_mode(mdl_work *w)
{
    ckpt_map *map = w->map;

    for (size_t i = 0; i < w->whole.part.n; i++) {
        const ckpt_whole_part *p = &w->whole.part.at[i];
        if (p->kind == CKPT_WHOLE_OPTIMIZER)
            ckpt_state_look_mode(map, ckpt_value_get(p->value, "param_groups"));
    }
    // a run continues from the trained weights
    if (map->mode == CKPT_MODE_PLAIN || w->opts->run || map->averaged)
        return CKPT_OK;
    return ckpt_map_note_once(
        map, CKPT_WARNING, w->err,
        "%s: %s: these weights are not the averaged ones for evaluation, which --weights "
        "schedule-free computes",
        map->path,
        map->mode == CKPT_MODE_TRAINS
            ? "saved while its schedule-free optimizer was in training mode"
            : "if its schedule-free optimizer was not switched with eval() before the save");
}

/* Keep the tensors of the model. */
static int mdl_keep(mdl_work *w)
{
    ckpt_map *read = NULL;
    ckpt_value *values = NULL;
    int rc = mdl_values(&read, &values, w);

    if (rc == CKPT_OK && values)
        rc = ckpt_whole_of(&w->whole, values, w->map->arena, w->err);
    if (rc == CKPT_OK && values)
        rc = mdl_narrow(w);
    if (rc == CKPT_OK)
        rc = mdl_mark_copies(w);
    if (rc == CKPT_OK)
        rc = mdl_drop_others(w);
    if (rc == CKPT_OK)
        rc = mdl_check_mode(w);
    ckpt_whole_free(&w->whole);
    ckpt_map_free(read);
    return rc;
}

/* Keep the model and shorten its names; a failure leaves the map half changed. */
static int mdl_change(mdl_work *w)
{
    ckpt_map *map = w->map;
    int rc = mdl_config(w);

    if (rc == CKPT_OK)
        rc = mdl_keep(w);
    if (rc != CKPT_OK)
        return rc;
    map->dicts = NULL;
    w->raw = w->raw || (map->format && strcmp(map->format, "full-state") == 0);
    map->model_type = mdl_type(w);
    // ranks that are kept apart, and parameters that wait for a layout map, keep their names
    if (map->states.n > 1 || map->waiting)
        return CKPT_OK;
    if (!w->opts->keep_names)
        return ckpt_unwrap(map, map->model_type, w->raw, w->err);
    if (ckpt_unwrap_would(map, map->model_type, w->raw))
        map->effects |= CKPT_USED_NAMES;
    return CKPT_OK;
}

int ckpt_map_keep_model(ckpt_map *map, const ckpt_model_opts *opts, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_model_opts own;
    mdl_work w = {.map = map, .opts = &own, .err = err};
    ckpt_savepoint *saved = NULL;
    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_model_opts", err);

    if (rc == CKPT_OK && !map)
        rc = ckpt_fail(err, CKPT_EUSAGE, "no map to take a model from");
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_new(&saved, map, err);
    return rc == CKPT_OK ? ckpt_savepoint_end(saved, mdl_change(&w)) : rc;
}
