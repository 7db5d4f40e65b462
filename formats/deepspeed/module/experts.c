/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.c: adds the entries of the expert files to the `module` dict of the model file.
 *
 * `module` lacks the experts, because DeepSpeed writes one file per expert, numbered over all
 * ranks. Without ZeRO each expert-parallel rank has an optimizer file of its own as well.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/module/experts.h"
#include "formats/deepspeed/module/module.h"
#include "formats/training/same_value.h"
#include "libckpt/base/number.h"

/* ---- files ---- */

/* Returns num_experts of a layer by the model file; 0 if the file lacks it. */
static uint64_t dse_expected(const ckpt_ds_head *head, const ckpt_ds_part *part)
{
    const ckpt_value *v = ckpt_value_get(head->model.root, "num_experts");
    ckpt_seq list = ckpt_value_seq(v);
    int64_t n = 0;

    if (list.n == 1)
        v = list.at[0];
    else if (list.n)
        v = part->has_layer && part->layer < list.n ? list.at[part->layer] : NULL;
    return ckpt_value_as_int(v, &n) && n > 0 ? (uint64_t)n : 0;
}

/* Reports the missing or surplus expert file of a layer. */
static int dse_wrong(ckpt_ds_job *job, const ckpt_ds_part *near, uint64_t want, uint64_t expected)
{
    if (expected && want >= expected)
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: holds expert %" PRIu32 " of a layer with only %" PRIu64
                               " experts: left behind by another run; move it away",
                               near->path, near->rank, expected);
    return ckpt_ds_problem(job, CKPT_EMISSING,
                           "%s: missing: the file of expert %" PRIu64
                           " of the layer of %s: a process did not save, or it was not copied",
                           job->map->path, want, near->path);
}

/* Checks that each layer has the experts 0 .. num_experts - 1, each once. */
static int dse_check_files(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head)
{
    const ckpt_ds_parts *parts = &dir->experts;
    int rc = CKPT_OK;

    for (size_t i = 0, end; rc == CKPT_OK && i < parts->n; i = end) {
        const ckpt_ds_part *first = &parts->at[i];
        uint64_t expected = dse_expected(head, first);
        for (end = i; end < parts->n && parts->at[end].layer == first->layer &&
                      parts->at[end].has_layer == first->has_layer;
             end++) {
            const ckpt_ds_part *p = &parts->at[end];
            // The first gap is enough, because every later file then has the wrong number.
            if (p->rank != end - i || (expected && p->rank >= expected))
                return dse_wrong(job, p, end - i, expected);
        }
        if (rc == CKPT_OK && expected > end - i)
            rc = dse_wrong(job, first, end - i, expected);
    }
    return rc;
}

/* Entries collected while the expert files are read. */
typedef struct dse_taking {
    ckpt_ds_job *job;
    ckpt_ds_head *head;
    ckpt_ds_pairs pairs;
} dse_taking;

/* Collects the entries of one expert's file. */
static int dse_take(void *ctx, ckpt_ds_shard *s)
{
    dse_taking *t = ctx;
    ckpt_dict dict = ckpt_value_map(s->root);

    for (uint64_t i = 0; i < dict.n; i++) {
        const ckpt_value *key = dict.at[i].key;
        uint64_t number = 0;
        size_t at = 0, n = 0;
        if (key->kind != CKPT_V_STR)
            continue;
        if (!ckpt_train_expert_number(key->as.text.at, &at, &n, &number) || number != s->rank)
            return ckpt_ds_problem(t->job, CKPT_EMISMATCH,
                                   "%s: holds %.200s, which is not a parameter of expert %" PRIu32,
                                   s->path, key->as.text.at, s->rank);
        ckpt_pair *p = ckpt_vec_push(&t->pairs);
        if (!p)
            return ckpt_fail_memory(t->job->err);
        *p = dict.at[i];
    }
    return ckpt_ds_shard_merge(t->job, &t->head->model, s);
}

/*
 * Returns whether a file belongs to the current expert-parallel rank; stage 0 is read one such rank
 * at a time.
 */
static bool dse_is_mine(const ckpt_ds_folder *dir, const ckpt_ds_part *part)
{
    const ckpt_ds_parts *all = &dir->experts;
    uint64_t n = 0;

    if (dir->ep < 2)
        return true;
    for (size_t i = 0; i < all->n; i++)
        n += all->at[i].layer == part->layer && all->at[i].has_layer == part->has_layer;
    return part->rank / (n / dir->ep ? n / dir->ep : 1) == dir->ep_rank;
}

int ckpt_ds_moe_module(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head)
{
    dse_taking t = {.job = job, .head = head};
    const ckpt_value *num = ckpt_value_get(head->model.root, "num_experts");
    ckpt_ds_parts mine = {0};

    if (!num || num->kind == CKPT_V_NONE)
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: the model file beside it has no num_experts, so the run has no "
                               "experts: left behind by another run; move it away",
                               dir->experts.at[0].path);
    int rc = dse_check_files(job, dir, head);
    for (size_t i = 0; rc == CKPT_OK && i < dir->experts.n; i++) {
        bool is_mine = dse_is_mine(dir, &dir->experts.at[i]);
        ckpt_ds_part *p = is_mine ? ckpt_vec_push(&mine) : NULL;
        if (p)
            *p = dir->experts.at[i];
        else if (is_mine)
            rc = ckpt_fail_memory(job->err);
    }
    if (rc == CKPT_OK)
        rc = ckpt_ds_shard_each(job, &mine, 0, CKPT_DS_SHARDS, dse_take, &t);
    ckpt_vec_free(&mine);
    if (rc == CKPT_OK)
        rc = ckpt_ds_module_set(job, head, &t.pairs, true);
    ckpt_vec_free(&t.pairs);
    return rc;
}

/* ---- stage 0 ---- */

/* Returns the N of a parameter group named "ep_size_N"; 0 if no group has such a name. */
static uint64_t dse_size(const ckpt_value *optimizer)
{
    const ckpt_value *inner = ckpt_value_get(optimizer, "optimizer_state_dict");
    ckpt_seq groups = ckpt_value_seq(ckpt_value_get(inner ? inner : optimizer, "param_groups"));
    static const char mark[] = "ep_size_";

    for (uint64_t g = 0; g < groups.n; g++) {
        const ckpt_value *name = ckpt_value_get(groups.at[g], "name");
        uint64_t n = 0;
        if (name && name->kind == CKPT_V_STR &&
            strncmp(name->as.text.at, mark, sizeof mark - 1) == 0)
            return ckpt_parse_u64(name->as.text.at + sizeof mark - 1, &n) ? n : 0;
    }
    return 0;
}

/* Warns about members of the optimizer file that nothing reads. */
static int dse_others(const ckpt_ds_job *job, const ckpt_ds_shard *s)
{
    ckpt_dict all = ckpt_value_map(s->root);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        const ckpt_value *key = all.at[i].key;
        if (!ckpt_value_is(key, "optimizer"))
            rc = ckpt_map_note(job->map, CKPT_WARNING, job->err,
                               "%s: %.100s: a member that DeepSpeed does not write; it is left out",
                               s->path, key->kind == CKPT_V_STR ? key->as.text.at : "another key");
    }
    return rc;
}

/* Warns if the optimizer in the model file, which is rank 0's, is not that of its own file. */
static int dse_replaced(const ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s,
                        const ckpt_value *own)
{
    const ckpt_value *old = ckpt_ds_head_get(head, "optimizer");
    ckpt_train_side x = {head->model.map, head->model.reader}, y = {s->map, s->reader};
    bool same = !old || s->rank > 0 || ckpt_train_same_value(&x, old, &y, own);

    head->model.reader = x.reader;
    s->reader = y.reader;
    return same ? CKPT_OK
                : ckpt_map_note(job->map, CKPT_WARNING, job->err,
                                "%s: its optimizer differs from the one in %s, which is used: the "
                                "model file's is left out",
                                head->model.path, s->path);
}

int ckpt_ds_moe_optimizer(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head)
{
    ckpt_dict root = ckpt_value_map(head->model.root);
    ckpt_ds_part part = {.path = dir->optimizer, .rank = dir->ep_rank};
    ckpt_ds_shard s;
    int rc = ckpt_ds_shard_open(job, &s, &part);

    if (rc != CKPT_OK || !s.map)
        return rc;
    ckpt_value *optimizer = ckpt_value_get(s.root, "optimizer");
    uint64_t size = dse_size(optimizer);
    if (!optimizer)
        rc = ckpt_ds_problem(job, CKPT_EFORMAT, "%s: holds no optimizer", s.path);
    else if (size && size != dir->ep)
        rc = ckpt_ds_problem(job, size > dir->ep ? CKPT_EMISSING : CKPT_EMISMATCH,
                             "%s: the run had %" PRIu64 " expert-parallel ranks, but %" PRIu32
                             " have files here (expp_rank_*): %s",
                             s.path, size, dir->ep,
                             size > dir->ep
                                 ? "missing: a process did not save, or its files were not "
                                   "copied"
                                 : "those of an earlier, larger run were left behind");
    if (rc == CKPT_OK)
        rc = dse_others(job, &s);
    if (rc == CKPT_OK && optimizer && job->opts->with_optimizer)
        rc = dse_replaced(job, head, &s, optimizer);
    if (rc == CKPT_OK && optimizer)
        rc = ckpt_ds_shard_merge(job, &head->model, &s);
    head->optimizer = part.path;
    for (uint64_t i = 0; rc == CKPT_OK && optimizer && i < root.n; i++) {
        if (ckpt_value_is(root.at[i].key, "optimizer"))
            root.at[i].value = optimizer;
    }
    ckpt_ds_shard_close(&s);
    return rc;
}
