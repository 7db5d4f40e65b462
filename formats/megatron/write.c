/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c: writes a torch_dist checkpoint of Megatron-Core: a folder of one iteration with its
 * model and optimizer, and the tracker file beside it.
 *
 *     <weight>                            of the model, layers stacked
 *     <module>._extra_state/shard_<i>_<n>  state of FP8 modules, None; without these items
 *                                         Megatron-Core does not load the module
 *     optimizer.state.<kind>.<weight>     masters (param) and moments, in the model's shapes
 *
 * Megatron cuts tensors into any layout when it loads, so an entry is one layer of a weight, or one
 * expert of a layer.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/megatron/write.h"
#include "formats/training/to_fsdp.h"
#include "formats/training/write_job.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/number.h"

#define MGW_STATE "optimizer.state."

typedef struct mgw_writer {
    ckpt_train_job job;
    ckpt_dcp_pack pack;
    uint64_t limit, used; /* bytes of one data file; bytes of all entries so far */
    uint64_t in_file;     /* bytes in the current file */
    uint32_t files;       /* number of files, if total is not 0 */
    uint64_t total;       /* bytes of all files, if their number is fixed; 0: it is not */
    uint32_t rank;        /* the current file */
    size_t extra;         /* number of the item with an empty extra state; SIZE_MAX: none yet */
    bool counts;          /* place nothing, only count files */
    ckpt_err *err;
} mgw_writer;

/* ---- the folder ---- */

/* Refuse to write a run in a folder from which Megatron-LM would not resume it. */
static int mgw_resumes(const ckpt_train_job *job, const char *own, const char *folder)
{
    if (ckpt_meg_iteration(job) == 0)
        return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                         "%s: the run has not counted a step, and Megatron-LM resumes from "
                         "iteration 1 or later: name the iteration (--to-tag iter_0000001), or "
                         "convert the weights alone, by way of ckpt convert --to hf",
                         job->from->path);
    if (strcmp(own, folder) != 0)
        return ckpt_fail(job->err, CKPT_EUSAGE,
                         "--to-tag %.100s: the run is at iteration %" PRId64
                         ", and Megatron-LM resumes it only from the folder %s",
                         folder, ckpt_meg_iteration(job), own);
    return CKPT_OK;
}

/*
 * Name the folder and the tracker's text: the tag, or the run's iteration.  Weights alone are a
 * release, from which Megatron-LM begins at iteration 0 without an optimizer.  It looks for the
 * number of the tracker with seven digits, and asserts that the number is above 0.
 */
int ckpt_meg_name_folder(const ckpt_train_job *job)
{
    assert(job && job->to);
    char text[CKPT_RUN_NAME], own[CKPT_RUN_NAME], again[CKPT_RUN_NAME];
    const char *tag = job->target->tag, *folder = tag ? tag : own;
    ckpt_map *to = job->to;
    int rc;

    (void)snprintf(text, sizeof text, "%" PRId64, ckpt_meg_iteration(job));
    if (!ckpt_meg_folder(own, job->state ? text : "release"))
        return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                         "%s: iteration %s: expected at most %d digits", job->from->path, text,
                         CKPT_MEG_DIGITS);
    if (!ckpt_meg_text(text, folder) || !ckpt_meg_folder(again, text) ||
        strcmp(again, folder) != 0 || (tag && strcmp(text, "0") == 0))
        return ckpt_fail(
            job->err, CKPT_EUSAGE,
            "'%.100s' is not the name of an iteration's folder: expected 'release', or "
            "'iter_' and seven digits of a number above 0, as in iter_0000005",
            folder);
    rc = job->state ? mgw_resumes(job, own, folder) : CKPT_OK;
    if (rc != CKPT_OK)
        return rc;
    to->folder = ckpt_arena_string(to->arena, folder, strlen(folder));
    to->pointer = CKPT_MEG_TRACKER;
    to->pointer_text = ckpt_arena_string(to->arena, text, strlen(text));
    return to->folder && to->pointer_text ? CKPT_OK : ckpt_fail_memory(job->err);
}

static int mgw_done(const ckpt_train_job *job)
{
    static const char text[] = "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": "
                               "1, \"common_backend\": \"torch\", \"common_backend_version\": 1}";
    ckpt_map_file file = {
        .path = CKPT_MEG_DONE, .placed = true, .rank = UINT32_MAX, .size = sizeof text - 1};
    uint32_t index = 0;
    int rc = ckpt_map_add_file(job->to, &file, &index, job->err);

    return rc == CKPT_OK ? ckpt_map_add_literal(job->to, index, 0, text, sizeof text - 1, job->err)
                         : rc;
}

/* ---- entries ---- */

/* Choose the file of the next n bytes. */
static uint32_t mgw_file(mgw_writer *w, uint64_t n)
{
    if (w->in_file > 0 && n > w->limit - (w->in_file < w->limit ? w->in_file : w->limit)) {
        w->rank++;
        w->in_file = 0;
    }
    // with a number of files: each gets its share, and none is empty
    if (w->total > 0 && w->rank + 1 < w->files &&
        (double)w->used * w->files >= (double)w->total * (w->rank + 1)) {
        w->rank++;
        w->in_file = 0;
    }
    w->in_file += n;
    w->used += n;
    return w->rank;
}

/* The number of axes of layers and experts. */
static uint32_t mgw_lead(const char *name, const ckpt_tensor *t)
{
    uint32_t n = ckpt_meg_stacked(name);

    return n < t->ndim ? n : t->ndim;
}

/* Make the boxes of a tensor: one for each layer and expert. */
static int mgw_boxes(mgw_writer *w, ckpt_dcp_packed *what, uint32_t lead, ckpt_dcp_box *box)
{
    const ckpt_tensor *t = what->tensor;
    uint64_t each = ckpt_dtype_get(what->dtype)->bits;
    uint64_t *at = ckpt_alloc((uint64_t)what->n * 2 * (t->ndim + 1) * sizeof *at);
    int rc = CKPT_OK;

    if (!at)
        return ckpt_fail_memory(w->err);
    for (uint32_t k = lead; k < t->ndim; k++)
        each *= t->shape[k];
    for (uint32_t i = 0; i < what->n; i++) {
        uint64_t *start = &at[(uint64_t)i * 2 * (t->ndim + 1)], *count = start + t->ndim + 1;
        uint64_t rest = i;
        for (uint32_t k = t->ndim; k-- > 0;) {
            start[k] = k < lead ? rest % t->shape[k] : 0;
            count[k] = k < lead ? 1 : t->shape[k];
            rest = k < lead ? rest / t->shape[k] : rest;
        }
        box[i] = (ckpt_dcp_box){.start = start, .count = count, .rank = mgw_file(w, each / 8)};
    }
    what->box = box;
    if (!w->counts)
        rc = ckpt_dcp_pack_tensor(&w->pack, what);
    ckpt_free(at);
    return rc;
}

/* Write a tensor under a name; of: the name of the weight that it belongs to. */
static int mgw_tensor(mgw_writer *w, ckpt_dcp_packed what, const char *of)
{
    uint32_t lead = mgw_lead(of, what.tensor);
    uint64_t n = 1;
    ckpt_dcp_box *box;
    int rc;

    for (uint32_t k = 0; k < lead; k++)
        n *= what.tensor->shape[k];
    if (n > UINT32_MAX)
        return ckpt_fail(w->err, CKPT_ELIMIT, "%s: too many layers and experts", of);
    what.n = (uint32_t)n;
    box = ckpt_alloc((n + 1) * sizeof *box);
    rc = box ? mgw_boxes(w, &what, lead, box) : ckpt_fail_memory(w->err);
    ckpt_free(box);
    return rc;
}

/* ---- second names ---- */

static bool mgw_has(const mgw_writer *w, const char *name)
{
    return ckpt_map_index(w->job.from, name, strlen(name)) != SIZE_MAX;
}

/* Find whether the layer of n bytes, which end with a dot, has a weight of this name. */
static int mgw_beside(bool *has, const mgw_writer *w, const char *layer, size_t n, const char *name)
{
    const char *all = ckpt_arena_printf(w->job.to->arena, "%.*s%s", (int)n, layer, name);

    *has = all && mgw_has(w, all);
    return all ? CKPT_OK : ckpt_fail_memory(w->err);
}

/*
 * Find whether Megatron-Core may look for a norm by its second name: its local layers and those of
 * Transformer Engine differ before experts, and everywhere with multi-latent attention.
 */
static int mgw_twice(bool *out, const mgw_writer *w, const char *weight)
{
    static const char *const part[] = {"pre_mlp_layernorm.", "mlp.", "self_attention."};
    const char *at = NULL;
    size_t i = 0;
    int rc;

    while (i < 3 && !(at = strstr(weight, part[i])))
        i++;
    *out = at && i == 0; // layers that are all dense have the norm by its other name
    if (!at || *out)
        return CKPT_OK;
    const size_t n = (size_t)(at - weight);
    rc = mgw_beside(out, w, weight, n,
                    i == 1 ? "mlp.router.weight" : "self_attention.linear_kv_down_proj.weight");
    if (rc == CKPT_OK && i == 1 && !*out)
        rc = mgw_beside(out, w, weight, n, "self_attention.linear_kv_down_proj.weight");
    return rc;
}

/* Find the second name of a weight, if it has one and no tensor of the source has it. */
static int mgw_second(mgw_writer *w, const char *weight, const char **out)
{
    bool twice = false;
    int rc;

    if (!ckpt_meg_second(out, w->job.to->arena, weight))
        return ckpt_fail_memory(w->err);
    if (!*out)
        return CKPT_OK;
    rc = mgw_twice(&twice, w, weight);
    if (!twice || mgw_has(w, *out))
        *out = NULL;
    return rc;
}

/* Write a tensor of a weight, with its second name; prefix: "" or "optimizer.state.exp_avg.". */
static int mgw_named(mgw_writer *w, ckpt_dcp_packed what, const char *prefix, const char *weight)
{
    ckpt_arena *arena = w->job.to->arena;
    const char *second = NULL;
    int rc = mgw_second(w, weight, &second);

    what.name = ckpt_arena_printf(arena, "%s%s", prefix, weight);
    if (rc == CKPT_OK && !what.name)
        rc = ckpt_fail_memory(w->err);
    if (rc == CKPT_OK)
        rc = mgw_tensor(w, what, weight);
    if (rc != CKPT_OK || !second)
        return rc;
    what.name = ckpt_arena_printf(arena, "%s%s", prefix, second);
    what.kind = ckpt_arena_printf(arena, "second-%s", what.kind ? what.kind : "");
    return what.name && what.kind ? mgw_tensor(w, what, second) : ckpt_fail_memory(w->err);
}

/* ---- extra states ---- */

/* True for an extra state without content. */
static bool mgw_is_empty(const ckpt_value *v)
{
    return !v || v->kind == CKPT_V_NONE ||
           (v->kind == CKPT_V_LIST && v->as.seq.n == 1 && v->as.seq.at[0]->kind == CKPT_V_NONE);
}

/* Write the extra state of the source, or an empty one; all others share its entry. */
static int mgw_none(mgw_writer *w, const char *name)
{
    ckpt_value none = {.kind = CKPT_V_NONE}, *one = &none,
               list = {.kind = CKPT_V_LIST, .as.seq = {.n = 1, .at = &one}};
    const ckpt_value *had;

    if (!name)
        return ckpt_fail_memory(w->err);
    had = ckpt_value_get(w->job.state ? w->job.state->model : w->job.from->values, name);
    if (!mgw_is_empty(had))
        return ckpt_dcp_pack_object(&w->pack, name, NULL, had);
    if (w->extra != SIZE_MAX)
        return ckpt_dcp_pack_again(&w->pack, name, w->extra);
    w->extra = w->pack.meta.item.n;
    return ckpt_dcp_pack_object(&w->pack, name, NULL, &list);
}

/* Write the extra states of a module, one for each layer and expert of its weight t. */
static int mgw_module(mgw_writer *w, const char *module, const ckpt_tensor *t, uint32_t lead)
{
    ckpt_arena *arena = w->job.to->arena;
    uint64_t layers = lead > 0 ? t->shape[0] : 1, experts = lead > 1 ? t->shape[1] : 1;
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < layers; i++) {
        for (uint64_t e = 0; rc == CKPT_OK && e < experts; e++)
            rc = mgw_none(
                w, lead > 1 ? ckpt_arena_printf(arena,
                                                "%s._extra_state/shard_%" PRIu64 ".%" PRIu64
                                                "_%" PRIu64 ".%" PRIu64,
                                                module, i, e, layers, experts)
                            : ckpt_arena_printf(arena, "%s._extra_state/shard_%" PRIu64 "_%" PRIu64,
                                                module, i, layers));
    }
    return rc;
}

/*
 * Write the extra states that belong to a weight: of its module, and of the attention, which has no
 * weights.  They exist for modules of Transformer Engine, and for parallel linear layers.
 */
static int mgw_extra(mgw_writer *w, const ckpt_tensor *t)
{
    static const char end[] = ".weight", out[] = ".self_attention.linear_proj";
    size_t n = strlen(t->name);
    uint32_t lead = mgw_lead(t->name, t);
    const char *module, *projection;
    int rc;

    if (strncmp(t->name, "decoder.", 8) != 0 || n < sizeof end ||
        strcmp(t->name + n - sizeof end + 1, end) != 0 || strstr(t->name, ".router."))
        return CKPT_OK;
    module = ckpt_arena_string(w->job.to->arena, t->name, n - sizeof end + 1);
    if (!module)
        return ckpt_fail_memory(w->err);
    rc = mgw_module(w, module, t, lead);
    projection = strstr(module, out);
    // a norm behind the projection is a module of its own
    if (rc != CKPT_OK || !projection || projection[sizeof out - 1])
        return rc;
    module = ckpt_arena_printf(w->job.to->arena, "%.*s.self_attention.core_attention",
                               (int)(projection - module), module);
    return module ? mgw_module(w, module, t, lead) : ckpt_fail_memory(w->err);
}

/* ---- the content ---- */

/* The tensor that holds a tensor's values. */
static const ckpt_tensor *mgw_holder(const ckpt_tensor *t)
{
    return t->owner ? t->owner : t;
}

/* True if the model's arguments say that its head has values of its own. */
static bool mgw_is_untied(const ckpt_train_job *job)
{
    return ckpt_meg_argument(job, "untie_embeddings_and_output_weights") > 0;
}

bool ckpt_meg_is_tied_head(const ckpt_train_job *job, const ckpt_tensor *t)
{
    assert(job && t);
    static const char table[] = "embedding.word_embeddings.weight";
    size_t at;

    if (strcmp(t->name, "output_layer.weight") != 0 || mgw_is_untied(job))
        return false;
    at = ckpt_map_index(job->from, table, sizeof table - 1);
    return at != SIZE_MAX && mgw_holder(job->from->tensors.at[at]) == mgw_holder(t);
}

int ckpt_meg_check_head(const ckpt_train_job *job)
{
    assert(job);
    static const char head[] = "output_layer.weight";

    if (ckpt_map_index(job->from, head, sizeof head - 1) != SIZE_MAX || !mgw_is_untied(job))
        return CKPT_OK;
    return ckpt_fail(job->err, CKPT_EMISSING,
                     "%s: expected '%s', because untie_embeddings_and_output_weights is true, "
                     "found no such tensor: copy the complete model",
                     job->from->path, head);
}

/* The dtype of a weight: that of training if its master is written too. */
static ckpt_dtype mgw_dtype(const mgw_writer *w, const ckpt_tensor *t)
{
    const ckpt_state *s = w->job.state;

    if (!s || t->role != CKPT_ROLE_WEIGHT || w->job.target->dtype != CKPT_DTYPE_NONE)
        return ckpt_train_written(w->job.target, t);
    return s->dtype != CKPT_DTYPE_NONE ? s->dtype : t->dtype;
}

static int mgw_model(mgw_writer *w)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->job.from->tensors.n; i++) {
        const ckpt_tensor *t = w->job.from->tensors.at[i];
        if (t->role == CKPT_ROLE_STATE || t->role == CKPT_ROLE_OTHER ||
            ckpt_meg_is_tied_head(&w->job, t))
            continue;
        rc = mgw_named(w, (ckpt_dcp_packed){.tensor = t, .dtype = mgw_dtype(w, t)}, "", t->name);
        if (rc == CKPT_OK && !w->counts)
            rc = mgw_extra(w, t);
    }
    return rc;
}

/* Write the masters of trained parameters. */
static int mgw_masters(mgw_writer *w)
{
    const ckpt_state *s = w->job.state;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && s && i < s->param.n; i++) {
        const ckpt_tensor *t = s->param.at[i];
        rc = mgw_named(w, (ckpt_dcp_packed){.tensor = t, .kind = "master", .dtype = CKPT_F32},
                       MGW_STATE "param.", t->name);
    }
    return rc;
}

/* Write moments: "<kind>/<parameter>"; step counts are in the groups. */
static int mgw_moments(mgw_writer *w)
{
    int rc = mgw_masters(w);

    for (size_t i = 0; rc == CKPT_OK && i < w->job.from->tensors.n; i++) {
        const ckpt_tensor *t = w->job.from->tensors.at[i];
        const char *slash = strchr(t->name, '/'), *prefix;
        int n = slash ? (int)(slash - t->name) : 0;
        if (t->role != CKPT_ROLE_STATE || !slash || strncmp(t->name, "step/", 5) == 0)
            continue;
        prefix = ckpt_arena_printf(w->job.to->arena, MGW_STATE "%.*s.", n, t->name);
        if (!prefix)
            return ckpt_fail_memory(w->err);
        rc = mgw_named(w, (ckpt_dcp_packed){.tensor = t, .dtype = CKPT_F32}, prefix, slash + 1);
    }
    return rc;
}

/*
 * True for an extra state that mgw_extra has written.  Modules of multi-token prediction, and
 * modules without a weight, have extra states too, which only a run of Megatron has.
 */
static bool mgw_is_written(const mgw_writer *w, const char *name)
{
    static const char mark[] = "._extra_state/", attention[] = ".self_attention.core_attention";
    const char *at = strstr(name, mark);
    size_t n = at ? (size_t)(at - name) : 0, k = sizeof attention - 1;
    char weight[CKPT_RUN_NAME];

    if (!at || strncmp(name, "decoder.", 8) != 0 || n + sizeof ".weight" > sizeof weight)
        return false;
    if (n > k && strncmp(name + n - k, attention, k) == 0)
        (void)snprintf(weight, sizeof weight, "%.*s.self_attention.linear_proj.weight",
                       (int)(n - k), name);
    else
        (void)snprintf(weight, sizeof weight, "%.*s.weight", (int)n, name);
    return !strstr(weight, ".router.") && mgw_has(w, weight);
}

/* Write the other objects that Megatron saves for each rank, such as states of random numbers. */
static int mgw_objects(mgw_writer *w)
{
    // a run's values are without the extra states that are None
    ckpt_dict all = ckpt_value_map(w->job.from->values),
              run = ckpt_value_map(w->job.state ? w->job.state->model : w->job.from->values);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && !w->counts && i < run.n; i++) {
        const ckpt_value *key = run.at[i].key;
        if (key->kind == CKPT_V_STR && strstr(key->as.text.at, "/shard_") &&
            !mgw_is_empty(run.at[i].value) && !mgw_is_written(w, key->as.text.at))
            rc = ckpt_dcp_pack_object(&w->pack, key->as.text.at, NULL, run.at[i].value);
    }
    for (uint64_t i = 0; rc == CKPT_OK && !w->counts && i < all.n; i++) {
        const ckpt_value *key = all.at[i].key;
        if (key->kind == CKPT_V_STR && strstr(key->as.text.at, "._extra_state/") &&
            mgw_is_empty(all.at[i].value) && !mgw_is_written(w, key->as.text.at))
            rc = mgw_none(w, key->as.text.at);
    }
    return rc;
}

/* Write everything into data files, or count the files. */
static int mgw_content(mgw_writer *w)
{
    int rc;

    w->used = w->in_file = 0;
    w->rank = 0;
    rc = mgw_model(w);
    if (rc == CKPT_OK)
        rc = mgw_moments(w);
    return rc == CKPT_OK ? mgw_objects(w) : rc;
}

/* Count the data files: as many as there are ranks, or as the largest size demands. */
static int mgw_count(mgw_writer *w, uint32_t ranks)
{
    const ckpt_target *target = w->job.target;
    int rc;

    w->counts = true;
    w->limit = target->max_shard_size ? target->max_shard_size : UINT64_MAX;
    rc = mgw_content(w);
    if (rc == CKPT_OK && target->world > 0 && w->rank < ranks) {
        w->total = w->used;
        w->files = ranks;
        rc = mgw_content(w);
    }
    w->counts = false;
    w->pack.ranks = w->rank + 1;
    return rc;
}

/*
 * Refuse a stack that lacks layers: if layers differ, Megatron-Core saves all of them under their
 * numbers (TransformerBlock.sharded_state_dict: non_homogeneous_layers).
 */
static int mgw_layers(const ckpt_train_job *job)
{
    const ckpt_tensor *first = NULL, *other = NULL;
    bool numbered;

    for (size_t i = 0; !other && i < job->from->tensors.n; i++) {
        const ckpt_tensor *t = job->from->tensors.at[i];
        if (t->role == CKPT_ROLE_STATE || strncmp(t->name, "decoder.layers.", 15) != 0)
            continue;
        numbered = t->name[15] >= '0' && t->name[15] <= '9';
        if (first && (numbered || t->ndim == 0 || t->shape[0] != first->shape[0]))
            other = t;
        else if (!numbered && t->ndim > 0)
            first = t;
    }
    if (!other)
        return CKPT_OK;
    return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                     "%s: layers differ (%.200s has %" PRIu64 " layers, and %.200s has not), and "
                     "Megatron-Core then expects every layer under its own number: a layout map "
                     "must not stack them",
                     job->from->path, first->name, first->shape[0], other->name);
}

int ckpt_meg_check_vocab(const ckpt_train_job *job)
{
    assert(job);
    static const char table[] = "embedding.word_embeddings.weight";
    size_t at = ckpt_map_index(job->from, table, sizeof table - 1);
    const ckpt_tensor *t = at == SIZE_MAX ? NULL : job->from->tensors.at[at];
    int64_t said = ckpt_meg_argument(job, "vocab_size");

    if (!t || t->ndim == 0 || said <= 0 || (uint64_t)said <= t->shape[0])
        return CKPT_OK;
    return ckpt_fail(job->err, CKPT_EMISMATCH,
                     "%s: '%s' has %" PRIu64 " rows, but vocab_size is %" PRId64
                     ": the arguments are of another model",
                     job->from->path, table, t->shape[0], said);
}

enum { MGW_LAYERS = 1 << 16 }; /* more layers than any real model has */

/* Count the layers, under their own numbers or stacked; 0: none. */
static int mgw_count_layers(const ckpt_train_job *job, uint64_t *here)
{
    uint8_t *is = ckpt_alloc(MGW_LAYERS);
    uint64_t numbered = 0, stacked = 0, k = 0;

    if (!is)
        return ckpt_fail_memory(job->err);
    for (size_t i = 0; i < job->from->tensors.n; i++) {
        const ckpt_tensor *t = job->from->tensors.at[i];
        if (t->role == CKPT_ROLE_STATE || strncmp(t->name, "decoder.layers.", 15) != 0)
            continue;
        const char *end = ckpt_scan_u64(t->name + 15, &k);
        if (!end || *end != '.') {
            stacked = t->ndim > 0 && t->shape[0] > stacked ? t->shape[0] : stacked;
        } else if (k < MGW_LAYERS) {
            numbered += !is[k];
            is[k] = 1;
        }
    }
    ckpt_free(is);
    *here = numbered > stacked ? numbered : stacked;
    return CKPT_OK;
}

/* Fail if a model with layers lacks a tensor that every GPTModel with these arguments has. */
static int mgw_need(const ckpt_train_job *job, const char *name)
{
    if (ckpt_map_index(job->from, name, strlen(name)) != SIZE_MAX)
        return CKPT_OK;
    return ckpt_fail(job->err, CKPT_EMISSING,
                     "%s: expected '%s', found no such tensor: copy the complete model",
                     job->from->path, name);
}

int ckpt_meg_check_whole(const ckpt_train_job *job)
{
    assert(job);
    const int64_t said = ckpt_meg_argument(job, "num_layers");
    uint64_t here = 0;
    int rc = job->from->selected ? CKPT_OK : mgw_count_layers(job, &here);

    if (rc != CKPT_OK || here == 0)
        return rc;
    rc = mgw_need(job, "decoder.final_layernorm.weight");
    if (rc == CKPT_OK)
        rc = mgw_need(job, "embedding.word_embeddings.weight");
    if (rc == CKPT_OK && ckpt_meg_argument_is(job, "position_embedding_type", "learned_absolute"))
        rc = mgw_need(job, "embedding.position_embeddings.weight");
    if (rc != CKPT_OK || said <= 0 || (uint64_t)said == here)
        return rc;
    return ckpt_fail(job->err, (uint64_t)said > here ? CKPT_EMISSING : CKPT_EMISMATCH,
                     "%s: tensors of %" PRIu64 " layers are here, but num_layers is %" PRId64
                     ": a part of the model is missing, or the arguments are of another model",
                     job->from->path, here, said);
}

/* Refuse tensors of other layouts, which no model of Megatron-Core would load. */
static int mgw_check(const ckpt_train_job *job)
{
    static const char *const roots[] = {"decoder.", "embedding.", "output_layer.", "mtp.",
                                        "rotary_pos_emb."};
    int rc;

    for (size_t i = 0; i < job->from->tensors.n; i++) {
        const ckpt_tensor *t = job->from->tensors.at[i];
        bool state = t->role == CKPT_ROLE_STATE && strncmp(t->name, "exp_avg/", 8) != 0 &&
                     strncmp(t->name, "exp_avg_sq/", 11) != 0 && strncmp(t->name, "step/", 5) != 0;
        bool known = t->role == CKPT_ROLE_STATE || t->role == CKPT_ROLE_OTHER;
        if (state)
            return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                             "%s: '%.200s' is not a moment of Adam, and Megatron's distributed "
                             "optimizer stores no other; ckpt convert --to hf writes the weights",
                             job->from->path, t->name);
        for (size_t k = 0; !known && k < sizeof roots / sizeof *roots; k++)
            known = strncmp(t->name, roots[k], strlen(roots[k])) == 0;
        if (!known)
            return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                             "%s: '%.200s' is not a tensor of Megatron-Core's GPTModel; rename it "
                             "by a layout map (--map hf:megatron:torch_dist)",
                             job->from->path, t->name);
    }
    rc = ckpt_meg_check_head(job);
    if (rc == CKPT_OK)
        rc = ckpt_meg_check_vocab(job);
    if (rc == CKPT_OK)
        rc = ckpt_meg_check_whole(job);
    return rc == CKPT_OK ? mgw_layers(job) : rc;
}

int ckpt_meg_foreign(const ckpt_train_job *job)
{
    assert(job && job->to);
    for (size_t i = 0; i < job->from->tensors.n; i++) {
        const ckpt_tensor *t = job->from->tensors.at[i];
        if (t->role != CKPT_ROLE_STATE && strstr(t->name, ".post_layernorm."))
            return ckpt_map_note(job->to, CKPT_WARNING, job->err,
                                 "'%.200s': Megatron-Core's GPTModel has no norms behind attention "
                                 "and MLP: a model of Megatron-Bridge's Gemma modules loads them",
                                 t->name);
    }
    return CKPT_OK;
}

static int mgw_write(mgw_writer *w, uint32_t ranks)
{
    int rc = mgw_check(&w->job);

    if (rc == CKPT_OK)
        rc = ckpt_meg_foreign(&w->job);
    if (rc == CKPT_OK)
        rc = ckpt_meg_name_folder(&w->job);
    if (rc == CKPT_OK)
        rc = mgw_count(w, ranks);
    if (rc == CKPT_OK)
        rc = ckpt_meg_write_common(&w->job);
    if (rc == CKPT_OK)
        rc = ckpt_dcp_pack_files(&w->pack, "");
    if (rc == CKPT_OK)
        rc = mgw_content(w);
    if (rc == CKPT_OK)
        rc = ckpt_dcp_pack_metadata(&w->pack, "");
    return rc == CKPT_OK ? mgw_done(&w->job) : rc;
}

int ckpt_meg_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    assert(to && from && target);
    mgw_writer w = {
        .job = {.from = from, .to = to, .target = target, .program = "Megatron", .err = err},
        .pack = {.to = to, .from = from, .drop_objects = target->drop_objects, .err = err},
        .extra = SIZE_MAX,
        .err = err};
    uint32_t ranks = 1;
    int rc = ckpt_train_fsdp_begin(&w.job, &ranks);

    if (rc == CKPT_OK)
        rc = mgw_write(&w, target->world ? ranks : 1);
    to->claim.regroups = true;
    ckpt_dcp_metadata_free(&w.pack.meta);
    return rc;
}
