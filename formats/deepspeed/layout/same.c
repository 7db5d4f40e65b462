/* SPDX-License-Identifier: Apache-2.0 */
/*
 * same.c: compares the values that the ranks of a checkpoint must have in common: settings of the
 * optimizer, loss scale, schedule, configuration.
 *
 * Ranks with different values were trained separately, or belong to different runs.  Each rank is
 * compared with rank 0, because readers use rank 0's values for all.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/layout/same.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

enum {
    SAME_TEXT = 64,
    SAME_MAX_NODES = 1 << 24 /* limit of nodes compared between two ranks */
};

int ckpt_ds_same(const ckpt_ds_job *job, const ckpt_value *a, const ckpt_value *b, bool *same)
{
    assert(job && same);
    return ckpt_value_compare(same, a, b, SAME_MAX_NODES, job->err);
}

/* The first entry in which two param_shapes differ. */
static const char *same_difference(const ckpt_value *a, const ckpt_value *b)
{
    ckpt_seq la = ckpt_value_seq(a), lb = ckpt_value_seq(b);
    uint64_t n = la.n < lb.n ? la.n : lb.n;

    for (uint64_t g = 0; g < (n ? n : 1); g++) {
        ckpt_dict ma = ckpt_value_map(n ? la.at[g] : a), mb = ckpt_value_map(n ? lb.at[g] : b);
        for (uint64_t i = 0; i < ma.n && i < mb.n; i++) {
            const ckpt_pair *x = &ma.at[i], *y = &mb.at[i];
            if (x->key->kind == CKPT_V_STR && (!ckpt_value_equal(x->key, y->key, 8) ||
                                               !ckpt_value_equal(x->value, y->value, 256)))
                return x->key->as.text.at;
        }
    }
    return "the number of parameters";
}

int ckpt_ds_params_check(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_shard *s)
{
    static const char *const key[] = {"param_shapes", "frozen_param_shapes"};
    const ckpt_value *of = s->optim ? head->optim.root : head->model.root;
    bool same = true;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < 2; i++) {
        const ckpt_value *a = ckpt_value_get(of, key[i]), *b = ckpt_value_get(s->root, key[i]);
        rc = ckpt_ds_same(job, a, b, &same);
        if (rc == CKPT_OK && !same)
            rc = ckpt_ds_problem(
                job, CKPT_EMISMATCH,
                "%s: %s of rank %" PRIu32
                " differs from rank 0's at %.200s: the shards are from different runs",
                s->path, key[i], s->rank, a && b ? same_difference(a, b) : "its presence");
    }
    return rc;
}

/* The compared ranks, for messages. */
typedef struct same_ranks {
    const char *path;
    const char *first; /* "rank 0" */
    char own[40];      /* "rank 3" */
    /* set for data-parallel ranks, to read tensors with one element; else NULL */
    ckpt_ds_head *head;
    ckpt_ds_shard *shard;
    ckpt_group *group; /* model-parallel ranks: the groups of the first rank */
} same_ranks;

static same_ranks same_data_ranks(const ckpt_ds_shard *s)
{
    same_ranks r = {.path = s->path, .first = "rank 0"};

    (void)snprintf(r.own, sizeof r.own, "rank %" PRIu32, s->rank);
    return r;
}

/* A value as text for a message. */
static const char *same_text(const ckpt_value *v, char *to)
{
    if (!v)
        return "absent";
    if (v->kind == CKPT_V_INT)
        (void)snprintf(to, SAME_TEXT, "%" PRId64, v->as.i);
    else if (v->kind == CKPT_V_FLOAT)
        (void)snprintf(to, SAME_TEXT, "%.10g", v->as.f);
    else if (v->kind == CKPT_V_STR)
        (void)snprintf(to, SAME_TEXT, "%.60s", v->as.text.at);
    else if (v->kind == CKPT_V_BOOL)
        return v->as.i ? "True" : "False";
    else
        return v->kind == CKPT_V_NONE ? "None" : "another value";
    return to;
}

/* Descend to the first difference of two dicts, and append its keys to the name in `what`. */
static void same_deeper(char *what, size_t room, const ckpt_value **first, const ckpt_value **own)
{
    for (unsigned depth = 0; depth < 4; depth++) {
        ckpt_dict a = ckpt_value_map(*first);
        const ckpt_value *b = NULL;
        size_t n = strlen(what);
        uint64_t i = 0;

        for (; i < a.n && ckpt_value_map(*own).n; i++) {
            const ckpt_value *key = a.at[i].key;
            b = key->kind == CKPT_V_STR ? ckpt_value_get(*own, key->as.text.at) : a.at[i].value;
            if (!ckpt_value_equal(a.at[i].value, b, 1 << 16))
                break;
        }
        if (i >= a.n || !ckpt_value_map(*own).n)
            return;
        (void)snprintf(what + n, room - n, ".%.60s", a.at[i].key->as.text.at);
        *first = a.at[i].value;
        *own = b;
    }
}

/* Compare one value of the first rank and of another; name: for messages. */
static int same_value(ckpt_ds_job *job, const same_ranks *r, const char *name,
                      const ckpt_value *first, const ckpt_value *own)
{
    char what[400], a[SAME_TEXT], b[SAME_TEXT];
    bool same = true;
    int rc = CKPT_OK;

    // Tensors are not compared, because their bytes are in each rank's own record.
    if (first && own && first->kind == CKPT_V_TENSOR && own->kind == CKPT_V_TENSOR)
        return rc;
    rc = ckpt_ds_same(job, first, own, &same);
    if (rc != CKPT_OK || same)
        return rc;
    (void)snprintf(what, sizeof what, "%.100s", name);
    same_deeper(what, sizeof what, &first, &own);
    return ckpt_ds_problem(job, CKPT_EMISMATCH,
                           "%s: %s is %s on %s and %s on %s: the ranks were trained with "
                           "different settings, or are from different runs",
                           r->path, what, same_text(own, b), r->own, same_text(first, a), r->first);
}

/* ---- settings of parameter groups ---- */

/*
 * True for settings given by a user or a schedule, and for counts, which are equal on all ranks.
 */
static bool same_is_setting(const ckpt_value *key)
{
    static const char *const name[] = {"lr",
                                       "initial_lr",
                                       "max_lr",
                                       "min_lr",
                                       "base_momentum",
                                       "momentum",
                                       "betas",
                                       "max_momentum",
                                       "eps",
                                       "weight_decay",
                                       "beta1",
                                       "beta2",
                                       "beta3",
                                       "alpha",
                                       "dampening",
                                       "rho",
                                       "lambd",
                                       "t0",
                                       "lr_decay",
                                       "d0",
                                       "d_coef",
                                       "k",
                                       "step",
                                       "decay_rate",
                                       "growth_rate",
                                       "clip_threshold",
                                       "weight_lr_power",
                                       "scheduled_lr",
                                       "trust_coefficient"};

    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        if (ckpt_value_is(key, name[i]))
            return true;
    }
    return false;
}

/* True for a float, a list of floats, or a tensor. */
static bool same_is_number(const ckpt_value *v)
{
    ckpt_seq list = ckpt_value_seq(v);
    bool all = list.n > 0;

    for (uint64_t i = 0; all && i < list.n; i++)
        all = list.at[i]->kind == CKPT_V_FLOAT;
    return all || v->kind == CKPT_V_FLOAT || v->kind == CKPT_V_TENSOR;
}

/*
 * True if a group's value may differ between ranks.  Optimizers that estimate their step size
 * (Prodigy's d_numerator, D-Adaptation's d) keep statistics of gradients, and under ZeRO each rank
 * sees only its own partition; some optimizers store such a value only when they need it.
 */
static bool same_may_differ(const ckpt_value *key, const ckpt_value *first, const ckpt_value *own)
{
    if (same_is_setting(key))
        return false;
    if (!first || !own)
        return true;
    return same_is_number(first) || same_is_number(own);
}

/* Record a value that may differ by rank. */
static int same_differs(ckpt_ds_job *job, const same_ranks *r, const ckpt_ds_pair *p)
{
    ckpt_ranked *made;

    if (r->shard)
        return ckpt_ds_ranked_note(job, r->head, r->shard, p);
    made = ckpt_ranked_add(job->map->arena, &r->group[p->group].ranked, p->key, p->in_entry);
    if (!made)
        return ckpt_fail_memory(job->err);
    made->model = made->model || !made->at;
    return CKPT_OK;
}

/* Compare one setting of a group on the first rank and on another; NULL: absent. */
static int same_field(ckpt_ds_job *job, const same_ranks *r, uint64_t g, const ckpt_value *key,
                      const ckpt_value *first, const ckpt_value *own)
{
    bool tensors = first && own && first->kind == CKPT_V_TENSOR && own->kind == CKPT_V_TENSOR;
    char what[160];
    bool same = true;
    int rc = CKPT_OK;

    if (key->kind != CKPT_V_STR || ckpt_value_is(key, "params"))
        return CKPT_OK;
    (void)snprintf(what, sizeof what, "%.80s of parameter group %" PRIu64, key->as.text.at, g);
    if (tensors && r->shard)
        rc = ckpt_ds_value_same(job, r->head, r->shard, own, first, &same);
    else if (!tensors)
        rc = ckpt_ds_same(job, first, own, &same);
    if (rc != CKPT_OK || same)
        return rc;
    if (same_may_differ(key, first, own))
        return same_differs(
            job, r, &(ckpt_ds_pair){.group = (size_t)g, .key = key, .first = first, .own = own});
    return tensors ? ckpt_ds_problem(job, CKPT_EMISMATCH,
                                     "%s: %s has another value on %s than on %s: the ranks were "
                                     "trained with different settings, or are from different runs",
                                     r->path, what, r->own, r->first)
                   : same_value(job, r, what, first, own);
}

/* Compare the settings of a group; its parameters are compared by param_shapes. */
static int same_group(ckpt_ds_job *job, const same_ranks *r, uint64_t g, ckpt_dict first,
                      const ckpt_value *own)
{
    const ckpt_value of_first = {.kind = CKPT_V_DICT, .as.map = first};
    ckpt_dict other = ckpt_value_map(own);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < first.n; i++) {
        const ckpt_value *key = first.at[i].key;
        if (key->kind == CKPT_V_STR)
            rc =
                same_field(job, r, g, key, first.at[i].value, ckpt_value_get(own, key->as.text.at));
    }
    for (uint64_t i = 0; rc == CKPT_OK && i < other.n; i++) {
        const ckpt_value *key = other.at[i].key;
        if (key->kind == CKPT_V_STR && !ckpt_value_get(&of_first, key->as.text.at))
            rc = same_field(job, r, g, key, NULL, other.at[i].value);
    }
    return rc;
}

static int same_groups(ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s)
{
    ckpt_seq first = ckpt_value_seq(
                 ckpt_value_get(ckpt_ds_optim_base(head, head->optim.optim), "param_groups")),
             own =
                 ckpt_value_seq(ckpt_value_get(ckpt_ds_optim_base(head, s->optim), "param_groups"));
    same_ranks r = same_data_ranks(s);
    int rc = CKPT_OK;

    r.head = head;
    r.shard = s;
    if (first.n != own.n)
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: %" PRIu64 " param_groups on rank %" PRIu32 ", %" PRIu64
                               " on rank 0: the shards are from different runs",
                               s->path, own.n, s->rank, first.n);
    for (uint64_t g = 0; rc == CKPT_OK && g < first.n; g++)
        rc = same_group(job, &r, g, ckpt_value_map(first.at[g]), own.at[g]);
    return rc;
}

/* Compare the entries of ds_config that affect training; paths may differ between nodes. */
static int same_config(ckpt_ds_job *job, const ckpt_ds_shard *s, const ckpt_value *first)
{
    static const char *const key[] = {"train_batch_size",
                                      "train_micro_batch_size_per_gpu",
                                      "gradient_accumulation_steps",
                                      "gradient_clipping",
                                      "optimizer",
                                      "scheduler",
                                      "fp16",
                                      "bf16"};
    const ckpt_value *a = ckpt_value_get(first, "ds_config"),
                     *b = ckpt_value_get(s->root, "ds_config");
    same_ranks r = same_data_ranks(s);
    char what[64];
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && a && b && i < sizeof key / sizeof *key; i++) {
        (void)snprintf(what, sizeof what, "ds_config.%s", key[i]);
        rc = same_value(job, &r, what, ckpt_value_get(a, key[i]), ckpt_value_get(b, key[i]));
    }
    return rc;
}

int ckpt_ds_same_optim(ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s)
{
    static const char *const key[] = {"clip_grad", "dynamic_loss_scale", "loss_scaler"};
    same_ranks r = same_data_ranks(s);
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < sizeof key / sizeof *key; i++)
        rc = same_value(job, &r, key[i], ckpt_value_get(head->optim.optim, key[i]),
                        ckpt_value_get(s->optim, key[i]));
    if (rc == CKPT_OK)
        rc = same_groups(job, head, s);
    return rc == CKPT_OK ? same_config(job, s, head->optim.root) : rc;
}

int ckpt_ds_same_model(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_shard *s)
{
    same_ranks r = same_data_ranks(s);
    int rc = same_value(job, &r, "lr_scheduler", ckpt_value_get(head->model.root, "lr_scheduler"),
                        ckpt_value_get(s->root, "lr_scheduler"));

    return rc == CKPT_OK ? same_config(job, s, head->model.root) : rc;
}

int ckpt_ds_same_slices(ckpt_ds_job *job, const ckpt_map *first, const ckpt_map *own, uint32_t mp)
{
    same_ranks r = {.path = job->map->path, .first = "the first of its stage"};
    ckpt_groups *a;
    const ckpt_groups *b;
    int rc = CKPT_OK;

    if (first->states.n != 1 || own->states.n != 1)
        return rc;
    (void)snprintf(r.own, sizeof r.own, "model-parallel rank %02" PRIu32, mp);
    a = &first->states.at[0]->group;
    b = &own->states.at[0]->group;
    r.group = a->at;
    if (a->n != b->n)
        return ckpt_ds_problem(job, CKPT_EMISMATCH, "%s: %s has %zu parameter groups, %s %zu",
                               r.path, r.own, b->n, r.first, a->n);
    for (size_t g = 0; rc == CKPT_OK && g < a->n; g++)
        rc = same_group(job, &r, g, ckpt_value_map(a->at[g].fields), b->at[g].fields);
    return rc;
}
