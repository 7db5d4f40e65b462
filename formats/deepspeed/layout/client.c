/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.c: records the values in model files that differ by rank.
 *
 * At stage 3 each rank writes a model file, with the client_state that its process passed (states
 * of random number generators, positions in the data), and with its own buffers, which differ if
 * the ranks compute them from their own samples (BatchNorm).  Lower stages have one model file for
 * each model-parallel rank, of whose values a target without these ranks has only the first's.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/layout/layout.h"
#include "formats/training/deepspeed_keys.h"
#include "formats/training/kept_values.h"
#include "formats/training/same_value.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

/* A member of the model file, or a buffer in its module. */
typedef struct dcl_member {
    const ckpt_value *key;
    bool in_module;
    const ckpt_value *first, *own; /* value on rank 0 and on the other rank; NULL: none */
} dcl_member;

/* True for members that may differ by rank: the program's, and the positions in the data. */
static bool dcl_is_client(const ckpt_value *key)
{
    return key->kind != CKPT_V_STR || ckpt_value_is(key, "data_sampler") ||
           ckpt_value_is(key, "random_ltd") || !ckpt_train_is_deepspeed_key(key->as.text.at);
}

/* ---- the ranks of stage 3 ---- */

/* The entry of a member; its values are rank 0's until others are known.  NULL: no memory. */
static ckpt_ranked *dcl_entry(const ckpt_ds_job *job, ckpt_ds_head *head, const dcl_member *m)
{
    ckpt_ranked *r = head->client_last ? head->client_last->next : NULL;
    ckpt_value *first = NULL;

    // ranks mostly differ in the same members, in one order
    if (!r || r->in_entry != m->in_module || !ckpt_value_is(m->key, r->key->as.text.at))
        r = ckpt_ranked_add(job->map->arena, &head->client, m->key, m->in_module);
    head->client_last = r;
    if (!r || r->at)
        return r;
    r->at = ckpt_arena_array(job->map->arena, head->world, sizeof(ckpt_value *));
    if (!r->at || ckpt_ds_value_copy(job, &head->model, m->first, &first) != CKPT_OK)
        return NULL;
    for (uint32_t i = 0; i < head->world; i++)
        r->at[i] = first;
    return r;
}

/* Record the name of a value of which the output has only rank 0's: `at` stays NULL. */
static int dcl_lost(const ckpt_ds_job *job, ckpt_ranked **list, const ckpt_value *key)
{
    ckpt_arena *arena = job->map->arena;

    if (key->kind != CKPT_V_STR)
        key = ckpt_value_cstr(arena, key->kind == CKPT_V_INT
                                         ? ckpt_arena_printf(arena, "[%" PRId64 "]", key->as.i)
                                         : "[another key]");
    return key && ckpt_ranked_add(arena, list, key, false) ? CKPT_OK : ckpt_fail_memory(job->err);
}

/* Record a member if the rank has another value than rank 0. */
static int dcl_note(const ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s,
                    const dcl_member *m)
{
    ckpt_train_side first = {head->model.map, head->model.reader}, own = {s->map, s->reader};
    bool same = ckpt_train_same_value(&first, m->first, &own, m->own);
    ckpt_ranked *r;

    head->model.reader = first.reader;
    s->reader = own.reader;
    if (same)
        return CKPT_OK;
    if (m->key->kind != CKPT_V_STR)
        return dcl_lost(job, &head->client, m->key);
    r = dcl_entry(job, head, m);
    if (!r)
        return ckpt_fail_memory(job->err);
    return s->rank < head->world ? ckpt_ds_value_copy(job, s, m->own, &r->at[s->rank]) : CKPT_OK;
}

/* Warn once that a member of the ranks' files (of: "optimizer", "model") differs by rank. */
static int dcl_used(const ckpt_ds_job *job, const char *of, const ckpt_value *key)
{
    return ckpt_map_note_once(job->map, CKPT_WARNING, job->err,
                              "%s: %.100s: the ranks' %s files have different values; only rank "
                              "0's is used",
                              job->map->path, key->as.text.at, of);
}

/* The files of two ranks, and the place to record their differences. */
typedef struct dcl_pair {
    const ckpt_ds_job *job;
    ckpt_train_side *first, *own;
    ckpt_state *to; /* record the name there; NULL: warn */
} dcl_pair;

static int dcl_apart(const dcl_pair *p, const ckpt_value *key)
{
    if (p->to)
        return dcl_lost(p->job, &p->to->client, key);
    return key->kind == CKPT_V_STR ? dcl_used(p->job, "model", key) : CKPT_OK;
}

/*
 * Report a rank's module members that rank 0 lacks or has otherwise.  Of tensors there may be parts
 * or placeholders only, so their values are not compared; if the module's tensors are joined from
 * all ranks (p->to), they are not reported either.
 */
static int dcl_module(const dcl_pair *p, const ckpt_value *first, const ckpt_value *own)
{
    ckpt_dict a = ckpt_value_map(ckpt_value_get(first, "module")),
              b = ckpt_value_map(ckpt_value_get(own, "module"));
    uint64_t hint = 0;
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < b.n; i++) {
        const ckpt_value *key = b.at[i].key, *v = b.at[i].value, *of;
        bool tensor = v->kind == CKPT_V_TENSOR;
        if (key->kind != CKPT_V_STR || v->kind == CKPT_V_NONE || (tensor && p->to))
            continue;
        of = ckpt_train_member(a, key, &hint);
        if (!of || (!tensor && !ckpt_train_same_value(p->first, of, p->own, v)))
            rc = dcl_apart(p, key);
    }
    return rc;
}

/* Compare the buffers, which are listed in the module's order. */
static int dcl_buffers(ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s)
{
    ckpt_seq names = ckpt_value_seq(ckpt_value_get(head->model.root, "buffer_names"));
    ckpt_dict first = ckpt_value_map(ckpt_value_get(head->model.root, "module")),
              own = ckpt_value_map(ckpt_value_get(s->root, "module"));
    uint64_t at_first = 0, at_own = 0;
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < names.n; i++) {
        dcl_member m = {.key = names.at[i], .in_module = true};
        if (m.key->kind != CKPT_V_STR)
            continue;
        m.first = ckpt_train_member(first, m.key, &at_first);
        m.own = ckpt_train_member(own, m.key, &at_own);
        if (!m.first || m.first->kind != CKPT_V_TENSOR)
            continue;
        bool same = false;
        rc = m.own ? ckpt_value_compare(&same, m.first, m.own, 256, job->err) : CKPT_OK;
        if (rc != CKPT_OK)
            return rc;
        if (!same)
            return ckpt_ds_problem(job, CKPT_EMISMATCH,
                                   "%s: the buffer %.200s is missing on rank %" PRIu32
                                   ", or has another shape or dtype than on rank 0: the shards "
                                   "are from different runs",
                                   s->path, m.key->as.text.at, s->rank);
        rc = dcl_note(job, head, s, &m);
    }
    return rc;
}

int ckpt_ds_client_note(ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s)
{
    assert(head && s && s->map);
    ckpt_dict first = ckpt_value_map(head->model.root), own = ckpt_value_map(s->root);
    ckpt_train_side x, y;
    uint64_t hint = 0;
    int rc = CKPT_OK;

    if (!job->opts->with_optimizer)
        return rc;
    head->client_last = NULL;
    rc = dcl_buffers(job, head, s);
    x = (ckpt_train_side){head->model.map, head->model.reader};
    y = (ckpt_train_side){s->map, s->reader};
    if (rc == CKPT_OK)
        rc = dcl_module(&(dcl_pair){job, &x, &y, NULL}, head->model.root, s->root);
    head->model.reader = x.reader;
    s->reader = y.reader;
    for (uint64_t i = 0; rc == CKPT_OK && i < first.n; i++) {
        const ckpt_value *key = first.at[i].key;
        if (dcl_is_client(key))
            rc = dcl_note(
                job, head, s,
                &(dcl_member){key, false, first.at[i].value, ckpt_train_member(own, key, &hint)});
    }
    hint = 0;
    for (uint64_t i = 0; rc == CKPT_OK && i < own.n; i++) {
        const ckpt_value *key = own.at[i].key;
        if (dcl_is_client(key) && !ckpt_train_member(first, key, &hint))
            rc = dcl_note(job, head, s, &(dcl_member){key, false, NULL, own.at[i].value});
    }
    return rc;
}

/* ---- optimizer files ---- */

/* True for members that differ by rank (slices), or that other checks compare. */
static bool dcl_optim_checked(const ckpt_pair *p)
{
    static const char *const key[] = {"state",
                                      "param_groups",
                                      "ds_config",
                                      "ds_version",
                                      "clip_grad",
                                      "dynamic_loss_scale",
                                      "loss_scaler",
                                      "overflow",
                                      "groups_padding",
                                      "base_optimizer_state_step",
                                      "num_comm_intervals_per_group",
                                      "local_sub_partitions_of_fp32_groups",
                                      "ds_zero_partition_groups"};
    bool is = p->key->kind != CKPT_V_STR || ckpt_train_is_layout(p);

    for (size_t i = 0; !is && i < sizeof key / sizeof *key; i++)
        is = ckpt_value_is(p->key, key[i]);
    return is;
}

/* Compare the members of a dict of a rank's optimizer file with rank 0's. */
static int dcl_optim_dict(const ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s,
                          const ckpt_value *first, const ckpt_value *own)
{
    ckpt_dict all = ckpt_value_map(own);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        ckpt_train_side x = {head->optim.map, head->optim.reader}, y = {s->map, s->reader};
        const ckpt_value *key = all.at[i].key;
        if (dcl_optim_checked(&all.at[i]))
            continue;
        if (!ckpt_train_same_value(&x, ckpt_value_get(first, key->as.text.at), &y, all.at[i].value))
            rc = dcl_used(job, "optimizer", key);
        head->optim.reader = x.reader;
        s->reader = y.reader;
    }
    return rc;
}

int ckpt_ds_client_optim(const ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s)
{
    assert(head && s);
    int rc = dcl_optim_dict(job, head, s, head->optim.root, s->root);

    if (rc == CKPT_OK)
        rc = dcl_optim_dict(job, head, s, head->optim.optim, s->optim);
    return rc == CKPT_OK ? dcl_optim_dict(job, head, s, ckpt_ds_optim_base(head, head->optim.optim),
                                          ckpt_ds_optim_base(head, s->optim))
                         : rc;
}

/* ---- model-parallel ranks ---- */

/* True for members of a model-parallel rank's files that the rank alone has: parts, and numbers. */
static bool dcl_is_part(const ckpt_pair *p)
{
    static const char *const key[] = {"state",
                                      "param_groups",
                                      "fp32_groups",
                                      "fp32_groups_flat",
                                      "optimizer",
                                      "buffer_names",
                                      "ds_config",
                                      "ds_version",
                                      "overflow",
                                      "groups_padding",
                                      "num_comm_intervals_per_group",
                                      "local_sub_partitions_of_fp32_groups",
                                      "ds_zero_partition_groups"};
    bool is = p->key->kind == CKPT_V_STR && ckpt_train_is_layout(p);

    for (size_t i = 0; !is && i < sizeof key / sizeof *key; i++)
        is = ckpt_value_is(p->key, key[i]);
    return is;
}

static int dcl_compare(const dcl_pair *p, const ckpt_value *first, const ckpt_value *own)
{
    ckpt_dict a = ckpt_value_map(first), b = ckpt_value_map(own);
    uint64_t hint = 0;
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < a.n; i++) {
        if (!dcl_is_part(&a.at[i]) &&
            !ckpt_train_same_value(p->first, a.at[i].value, p->own,
                                   ckpt_train_member(b, a.at[i].key, &hint)))
            rc = dcl_apart(p, a.at[i].key);
    }
    hint = 0;
    for (uint64_t i = 0; rc == CKPT_OK && i < b.n; i++) {
        if (!dcl_is_part(&b.at[i]) && !ckpt_train_member(a, b.at[i].key, &hint))
            rc = dcl_apart(p, b.at[i].key);
    }
    return rc;
}

/* Compare the dicts of two files, of the optimizer in them, and of the optimizer that it wraps. */
static int dcl_files(const dcl_pair *p, const ckpt_value *first, const ckpt_value *own,
                     const char *optimizer, const char *wrapped)
{
    int rc = dcl_compare(p, first, own);

    first = ckpt_value_get(first, optimizer);
    own = ckpt_value_get(own, optimizer);
    if (rc == CKPT_OK)
        rc = dcl_compare(p, first, own);
    return rc == CKPT_OK
               ? dcl_compare(p, ckpt_value_get(first, wrapped), ckpt_value_get(own, wrapped))
               : rc;
}

/* Record a value of a parameter group that the joined ranks have differently. */
static int dcl_group_value(const dcl_pair *p, ckpt_group *group, const ckpt_value *key,
                           bool in_entry)
{
    ckpt_ranked *made = ckpt_ranked_add(p->job->map->arena, &group->ranked, key, in_entry);

    if (!made)
        return ckpt_fail_memory(p->job->err);
    made->model = false; // the joined ranks have one state
    return CKPT_OK;
}

/*
 * Record the values in the settings of a group (or in its state, in_entry) that a rank lacks or has
 * otherwise.  Other code compares step counts and joins the state's tensors.
 */
static int dcl_group(const dcl_pair *p, ckpt_group *group, const ckpt_value *first,
                     const ckpt_value *own, bool in_entry)
{
    const ckpt_value *side[2] = {first, own};
    const char *checked = in_entry ? "step" : "params";
    int rc = CKPT_OK;

    for (size_t k = 0; first && own && k < 2; k++) {
        ckpt_dict all = ckpt_value_map(side[k]), others = ckpt_value_map(side[1 - k]);
        uint64_t hint = 0;
        for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
            const ckpt_value *key = all.at[i].key, *v = all.at[i].value, *of;
            if (key->kind != CKPT_V_STR || ckpt_value_is(key, checked) ||
                (in_entry && v->kind == CKPT_V_TENSOR))
                continue;
            of = ckpt_train_member(others, key, &hint);
            // the first pass has compared members that both have
            if (!of || (k == 0 && !ckpt_train_same_value(p->first, v, p->own, of)))
                rc = dcl_group_value(p, group, key, in_entry);
        }
    }
    return rc;
}

static int dcl_groups(const dcl_pair *p, const ckpt_state *first, const ckpt_state *own)
{
    int rc = CKPT_OK;

    for (size_t g = 0;
         rc == CKPT_OK && g < p->to->group.n && g < first->group.n && g < own->group.n; g++) {
        const ckpt_group *a = &first->group.at[g], *b = &own->group.at[g];
        rc = dcl_group(p, &p->to->group.at[g], a->fields, b->fields, false);
        if (rc == CKPT_OK)
            rc = dcl_group(p, &p->to->group.at[g], a->entry, b->entry, true);
    }
    return rc;
}

int ckpt_ds_client_join(const ckpt_ds_job *job, ckpt_state *to, const ckpt_state *first,
                        const ckpt_state *own)
{
    assert(to && first && own);
    ckpt_train_side side = {.map = job->map}; // both trees refer to its sources
    const dcl_pair pair = {job, &side, &side, to};
    int rc = dcl_files(&pair, first->model, own->model, "optimizer", "optimizer_state_dict");

    if (rc == CKPT_OK)
        rc = dcl_module(&pair, first->model, own->model);
    if (rc == CKPT_OK)
        rc = dcl_files(&pair, first->optim, own->optim, "optimizer_state_dict",
                       "base_optimizer_state");
    if (rc == CKPT_OK)
        rc = dcl_groups(&pair, first, own);
    ckpt_reader_free(side.reader);
    return rc;
}

int ckpt_ds_client_beside(const ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s)
{
    assert(head && s && s->map);
    ckpt_train_side first = {head->model.map, head->model.reader}, own = {s->map, s->reader};
    const dcl_pair pair = {job, &first, &own, NULL};
    int rc = job->opts->with_optimizer ? dcl_compare(&pair, head->model.root, s->root) : CKPT_OK;

    if (rc == CKPT_OK && job->opts->with_optimizer)
        rc = dcl_module(&pair, head->model.root, s->root);
    head->model.reader = first.reader;
    s->reader = own.reader;
    return rc;
}
