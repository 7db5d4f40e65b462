/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trained.c: decides which weights of a whole dict the optimizer trains.
 *
 * A dict may hold an average of the weights, and float32 masters of a 16-bit model. A run that
 * continues from an average, or from rounded weights, differs from the run that was saved.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_ranks/ranks.h"
#include "libckpt/map/copies.h"

enum {
    RTR_DEPTH = 8,       /* maximum depth of the search for masters */
    RTR_VALUES = 1 << 24 /* maximum values that the search visits */
};

/* ---- sizes ---- */

static uint64_t rtr_elems(const ckpt_tensor_value *t)
{
    uint64_t n = t->ndim > 0;

    for (uint32_t i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

/* The number of elements of a model's tensors with 16-bit floats. */
static uint64_t rtr_halves(const ckpt_value *model)
{
    ckpt_dict map = ckpt_value_map(model);
    uint64_t n = 0;

    for (uint64_t i = 0; i < map.n; i++) {
        const ckpt_value *v = map.at[i].value;
        if (v->kind == CKPT_V_TENSOR &&
            (v->as.tensor->dtype == CKPT_F16 || v->as.tensor->dtype == CKPT_BF16))
            n += rtr_elems(v->as.tensor);
    }
    return n;
}

/* ---- masters ---- */

/* The search for the float32 masters of a 16-bit model. */
typedef struct rtr_search {
    const ckpt_whole *whole;
    ckpt_arena *arena;
    uint64_t n_model; /* 16-bit elements of the model */
    uint32_t visited;
    const char *found; /* path of the masters, or NULL */
    bool failed;       /* out of memory */
} rtr_search;

static uint64_t rtr_float32(rtr_search *s, const ckpt_value *v, const char *path, unsigned depth);

/* True for a model, a copy or an optimizer, which the caller judges by other rules. */
static bool rtr_is_part(const ckpt_whole *whole, const ckpt_value *v)
{
    for (size_t i = 0; i < whole->part.n; i++) {
        if (whole->part.at[i].value == v)
            return true;
    }
    return false;
}

/* Record a container whose float32 elements are about as many as the model's. */
static void rtr_judge(rtr_search *s, const char *path, uint64_t n)
{
    // more elements than the model's have the masters of flat partitions, which are padded
    if (!s->found && n >= s->n_model - s->n_model / 2 && n / 2 <= s->n_model)
        s->found = path;
}

/* Count the float32 elements in one member of a container. */
static uint64_t rtr_member(rtr_search *s, const ckpt_value *v, const char *path,
                           const ckpt_value *key, uint64_t i, unsigned depth)
{
    const char *dot = *path ? "." : "", *below;

    if (v->kind == CKPT_V_TENSOR)
        return v->as.tensor->dtype == CKPT_F32 ? rtr_elems(v->as.tensor) : 0;
    if (ckpt_value_map(v).n + ckpt_value_seq(v).n == 0)
        return 0;
    below = key && key->kind == CKPT_V_STR
                ? ckpt_arena_printf(s->arena, "%s%s%.100s", path, dot, key->as.text.at)
                : ckpt_arena_printf(s->arena, "%s%s%" PRIu64, path, dot, i);
    s->failed = s->failed || !below;
    return below && depth > 0 && !rtr_is_part(s->whole, v) && !ckpt_copies_is_average(below)
               ? rtr_float32(s, v, below, depth - 1)
               : 0;
}

/* Count the float32 elements in a container, and judge it. */
static uint64_t rtr_float32(rtr_search *s, const ckpt_value *v, const char *path, unsigned depth)
{
    ckpt_dict map = ckpt_value_map(v);
    ckpt_seq seq = ckpt_value_seq(v);
    uint64_t n = 0;

    for (uint64_t i = 0; i < map.n + seq.n && s->visited < RTR_VALUES && !s->failed; i++) {
        s->visited++;
        n += i < map.n ? rtr_member(s, map.at[i].value, path, map.at[i].key, i, depth)
                       : rtr_member(s, seq.at[i - map.n], path, NULL, i - map.n, depth);
    }
    if (*path && n > 0)
        rtr_judge(s, path, n);
    return n;
}

/* Search the optimizer's own dict: members beside its state, and masters of each parameter. */
static void rtr_optimizer(rtr_search *s, const ckpt_whole_part *p)
{
    ckpt_dict all = ckpt_value_map(p->value),
              state = ckpt_value_map(ckpt_value_get(p->value, "state"));

    for (uint64_t i = 0; i < all.n; i++) {
        if (!ckpt_value_is(all.at[i].key, "state") && !ckpt_value_is(all.at[i].key, "param_groups"))
            (void)rtr_member(s, all.at[i].value, p->path, all.at[i].key, i, RTR_DEPTH);
    }
    for (uint64_t i = 0; !s->found && i < state.n; i++) {
        ckpt_dict of = ckpt_value_map(state.at[i].value);
        for (uint64_t k = 0; !s->found && k < of.n; k++) {
            const ckpt_value *key = of.at[k].key, *v = of.at[k].value;
            if (key->kind == CKPT_V_STR && v->kind == CKPT_V_TENSOR &&
                v->as.tensor->dtype == CKPT_F32 && rtr_elems(v->as.tensor) > 0 &&
                ckpt_copies_is_master(key->as.text.at))
                s->found =
                    ckpt_arena_printf(s->arena, "%s.state.*.%.100s", p->path, key->as.text.at);
        }
    }
}

/* Refuse a 16-bit model if the file also holds float32 weights that may be its masters. */
static int rtr_check_masters(ckpt_map *map, const ckpt_whole *whole, const ckpt_value *root,
                             const char *file, ckpt_err *err)
{
    const ckpt_whole_part *model = &whole->part.at[whole->model];
    rtr_search s = {.whole = whole, .arena = map->arena, .n_model = rtr_halves(model->value)};

    if (s.n_model == 0)
        return CKPT_OK;
    for (size_t i = 0; i < whole->part.n; i++) {
        const ckpt_whole_part *p = &whole->part.at[i];
        if (p->kind == CKPT_WHOLE_OPTIMIZER)
            rtr_optimizer(&s, p);
        else if (p != model && !ckpt_copies_is_average(p->path) && rtr_halves(p->value) == 0)
            s.found = p->path;
    }
    if (!s.found)
        (void)rtr_float32(&s, root, "", RTR_DEPTH);
    if (s.failed)
        return ckpt_fail_memory(err);
    if (!s.found)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "%s: the model '%.80s' has 16-bit weights, and '%.160s' holds float32 weights "
                     "of its size: if these are the masters that the optimizer trains, a run from "
                     "the model would begin with rounded weights; save the float32 weights as the "
                     "model, by name, or remove '%.160s' from the file",
                     file, model->path, s.found, s.found);
}

/* ---- averages ---- */

/*
 * In a file of Lightning's WeightAveraging, `state_dict` is the average and `current_model_state`
 * has the trained weights: make the latter the model.
 */
static void rtr_lightning(ckpt_whole *whole, const ckpt_value *root)
{
    if (!ckpt_value_get(root, "averaging_state"))
        return;
    for (size_t i = 0; i < whole->part.n; i++) {
        ckpt_whole_part *p = &whole->part.at[i];
        if (p->kind != CKPT_WHOLE_COPY || strcmp(p->path, CKPT_RANKS_AVERAGED) != 0)
            continue;
        whole->part.at[whole->model].kind = CKPT_WHOLE_COPY;
        p->kind = CKPT_WHOLE_MODEL;
        whole->model = i;
        return;
    }
}

/* Refuse a model that is an average, by its key or by its program. */
static int rtr_check_average(const ckpt_whole *whole, const ckpt_value *root, const char *file,
                             ckpt_err *err)
{
    const char *path = whole->part.at[whole->model].path;

    if (ckpt_copies_is_average(path))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: the run's only model is '%.80s', which is an average of the weights "
                         "by its name, but a run needs the weights that its optimizer trains; save "
                         "those too, or rename the key to 'model' if these are the trained weights",
                         file, path);
    // the EMAHook of mmengine exchanges the two when it saves, and again when it resumes
    if (strcmp(path, "state_dict") == 0 && ckpt_value_get(root, "message_hub") &&
        ckpt_value_get(root, "ema_state_dict"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: mmengine saved this run with its EMAHook, so 'state_dict' is the "
                         "average and 'ema_state_dict' has the trained weights; save the trained "
                         "weights as 'state_dict', and the average under another key",
                         file);
    return CKPT_OK;
}

/* List the copies of the model, which stay values of the run. */
static int rtr_copies(ckpt_map *map, const ckpt_whole *whole, const char *file, ckpt_err *err)
{
    const char *model = whole->part.at[whole->model].path, *text = "";
    unsigned n = 0;

    for (size_t i = 0; text && i < whole->part.n; i++) {
        if (whole->part.at[i].kind == CKPT_WHOLE_COPY && n++ < 6)
            text = ckpt_arena_printf(map->arena, "%s%s'%.80s'", text, n > 1 ? ", " : "",
                                     whole->part.at[i].path);
    }
    if (!text)
        return ckpt_fail_memory(err);
    if (n == 0)
        return CKPT_OK;
    return ckpt_map_note(map, CKPT_INFO, err,
                         "%s: the run continues from the weights in %s%.80s%s; %s%s %s the model's "
                         "names and shapes and %s taken as %s",
                         file, *model ? "'" : "the file's own tensors", model, *model ? "'" : "",
                         text, n > 6 ? " ..." : "", n > 1 ? "have" : "has", n > 1 ? "are" : "is",
                         n > 1 ? "copies" : "a copy");
}

int ckpt_ranks_trained(ckpt_map *map, ckpt_whole *whole, const ckpt_value *root, const char *file,
                       ckpt_err *err)
{
    rtr_lightning(whole, root);
    int rc = rtr_check_average(whole, root, file, err);
    if (rc == CKPT_OK)
        rc = rtr_check_masters(map, whole, root, file, err);
    return rc == CKPT_OK ? rtr_copies(map, whole, file, err) : rc;
}
