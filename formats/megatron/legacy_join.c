/* SPDX-License-Identifier: Apache-2.0 */
/*
 * legacy_join.c: joins the tensors of model-parallel ranks into the model's: converts names with
 * their layer and expert numbers, joins slices, and chains copies as twins.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/legacy.h"
#include "formats/rules/rules.h"
#include "libckpt/base/number.h"

enum { MGJ_CHUNKS = 64, MGJ_NUMBER = 1 << 20, MGJ_DEPTH = 16 };

typedef struct mgj_lister {
    ckpt_meg_job *job;
    ckpt_meg_grid *grid;
    unsigned n_chunks;         /* virtual pipeline stages of a rank */
    uint64_t base[MGJ_CHUNKS]; /* by chunk: number of layers before it, in the current stage */
    uint64_t experts;          /* experts per rank */
    const char *extra;         /* the first tensor of Transformer Engine's state */
    size_t n_extra;
    ckpt_err *err;
} mgj_lister;

/* ---- numbers in names ---- */

/* Find the number after a word of a name ("layers."); returns its position, or NULL. */
static const char *mgj_number(const char *name, const char *word, uint64_t *n)
{
    const char *at = strstr(name, word);
    const char *end;

    if (!at || (at > name && at[-1] != '.' && word[0] != '.'))
        return NULL;
    at += strlen(word);
    end = ckpt_scan_u64(at, n);
    return end && end - at <= 6 && (!*end || *end == '.') ? at : NULL;
}

/*
 * Find the number of an expert: that of its module, or the one after the name of grouped experts.
 */
static const char *mgj_expert(const char *name, uint64_t *n)
{
    static const char *const words[] = {
        ".local_experts.",          ".experts.linear_fc1.weight", ".experts.linear_fc2.weight",
        ".experts.linear_fc1.bias", ".experts.linear_fc2.bias",
    };
    const char *at = NULL;

    for (size_t i = 0; !at && i < sizeof words / sizeof *words; i++)
        at = mgj_number(name, words[i], n);
    return at;
}

/* Replace the number at `at`; NULL: no memory. */
static const char *mgj_renumber(ckpt_arena *arena, const char *name, const char *at, uint64_t n)
{
    return ckpt_arena_printf(arena, "%.*s%" PRIu64 "%s", (int)(at - name), name, n,
                             at + strspn(at, "0123456789"));
}

/* ---- one rank ---- */

/* Cut a rank's name to the module's name, and get its chunk; NULL: not part of the model. */
static const char *mgj_module(const char *name, unsigned *chunk)
{
    const char *end;
    uint64_t n = 0;

    if (strncmp(name, "model", 5) != 0)
        return NULL;
    name += 5;
    end = *name == '.' ? name : ckpt_scan_u64(name, &n);
    if (!end || end - name > 2 || *end != '.' || n >= MGJ_CHUNKS)
        return NULL;
    *chunk = (unsigned)n;
    return end + 1;
}

/* True for Transformer Engine's fused state, which is not a tensor of the model. */
static bool mgj_is_extra(const char *name)
{
    return strstr(name, "_extra_state") != NULL;
}

/* Count the layers of each chunk of a rank, and its experts. */
static void mgj_count(mgj_lister *l, const ckpt_meg_rank *rank, uint64_t layers[MGJ_CHUNKS])
{
    for (size_t i = 0; i < rank->map->tensors.n; i++) {
        unsigned chunk;
        uint64_t n;
        const char *name = mgj_module(rank->map->tensors.at[i]->name, &chunk);
        if (!name)
            continue;
        l->n_chunks = chunk >= l->n_chunks ? chunk + 1 : l->n_chunks;
        if (mgj_number(name, "layers.", &n) && n >= layers[chunk])
            layers[chunk] = n + 1;
        if (mgj_expert(name, &n) && n >= l->experts)
            l->experts = n + 1;
    }
}

/* List a tensor of a rank under the model's name. */
static int mgj_add(mgj_lister *l, ckpt_meg_rank *rank, ckpt_tensor *t)
{
    unsigned chunk;
    uint64_t n;
    const char *name = mgj_module(t->name, &chunk), *at;
    ckpt_meg_slice *s;

    if (!name)
        return CKPT_OK;
    if (mgj_is_extra(name)) {
        l->extra = l->extra ? l->extra : t->name;
        l->n_extra++;
        return CKPT_OK;
    }
    s = ckpt_vec_push(&rank->slice);
    if (!s)
        return ckpt_fail_memory(l->err);
    *s = (ckpt_meg_slice){.local = t->name, .name = name, .tensor = t};
    at = mgj_number(name, "layers.", &n);
    if (at)
        s->name = mgj_renumber(l->job->map->arena, name, at, n + l->base[chunk]);
    at = s->name ? mgj_expert(s->name, &n) : NULL;
    s->expert = at != NULL;
    if (at)
        s->name = mgj_renumber(l->job->map->arena, s->name, at, n + l->experts * rank->ep);
    return s->name ? CKPT_OK : ckpt_fail_memory(l->err);
}

/* The name of the first value in a module that is not a tensor, or NULL. */
static const char *mgj_no_tensor(const ckpt_value *module, unsigned depth)
{
    ckpt_dict all = ckpt_value_map(module);
    const char *found = NULL;

    for (uint64_t i = 0; depth > 0 && !found && i < all.n; i++) {
        const ckpt_value *key = all.at[i].key, *v = all.at[i].value;
        if (v->kind == CKPT_V_TENSOR || v->kind == CKPT_V_NONE || key->kind != CKPT_V_STR ||
            mgj_is_extra(key->as.text.at))
            continue;
        found = v->kind == CKPT_V_DICT || v->kind == CKPT_V_ODICT ? mgj_no_tensor(v, depth - 1)
                                                                  : key->as.text.at;
    }
    return found;
}

/* Warn about a rank's values in modules that are not tensors. */
static int mgj_values(const mgj_lister *l, const ckpt_meg_rank *rank)
{
    ckpt_dict root = ckpt_value_map(rank->root);
    const char *found = NULL;

    for (uint64_t i = 0; !found && i < root.n; i++) {
        if (root.at[i].key->kind == CKPT_V_STR &&
            strncmp(root.at[i].key->as.text.at, "model", 5) == 0)
            found = mgj_no_tensor(root.at[i].value, MGJ_DEPTH);
    }
    return found ? ckpt_map_note(l->job->map, CKPT_WARNING, l->err,
                                 "%s: '%.200s' of the model is left out: it is not a tensor",
                                 rank->path, found)
                 : CKPT_OK;
}

static int mgj_list_rank(mgj_lister *l, ckpt_meg_rank *rank)
{
    int rc = mgj_values(l, rank);

    for (size_t i = 0; rc == CKPT_OK && i < rank->map->tensors.n; i++)
        rc = mgj_add(l, rank, rank->map->tensors.at[i]);
    if (rc == CKPT_OK && rank->slice.n == 0)
        rc = ckpt_fail(l->err, CKPT_EFORMAT, "%s: holds no tensors under \"model\"", rank->path);
    return rc;
}

/* Check that a rank has the names of the first rank of its stage. */
static int mgj_same_names(const mgj_lister *l, const ckpt_meg_rank *a, const ckpt_meg_rank *b)
{
    const char *differs = NULL;

    for (size_t i = 0; !differs && (i < a->slice.n || i < b->slice.n); i++) {
        if (i >= a->slice.n || i >= b->slice.n)
            differs = i < a->slice.n ? a->slice.at[i].local : b->slice.at[i].local;
        else if (strcmp(a->slice.at[i].local, b->slice.at[i].local) != 0)
            differs = b->slice.at[i].local;
    }
    return differs ? ckpt_fail(l->err, CKPT_EMISMATCH,
                               "%s: its tensors differ from those in %s of the same stage: %.200s",
                               b->path, a->name, differs)
                   : CKPT_OK;
}

/* Report the tensors left out. */
static int mgj_tell_extra(const mgj_lister *l)
{
    if (l->n_extra == 0)
        return CKPT_OK;
    return ckpt_map_note(l->job->map, CKPT_WARNING, l->err,
                         "%s: %zu tensors of Transformer Engine's own state (_extra_state) are not "
                         "weights and are left out; the first is %.200s",
                         l->job->map->path, l->n_extra, l->extra);
}

int ckpt_meg_slices_list(ckpt_meg_job *job, ckpt_meg_grid *grid)
{
    assert(job && grid->rank.n > 0);
    mgj_lister l = {.job = job, .grid = grid, .n_chunks = 1, .err = job->err};
    uint64_t(*layers)[MGJ_CHUNKS] = ckpt_arena_array(job->map->arena, grid->pp, sizeof *layers);
    int rc = layers ? CKPT_OK : ckpt_fail_memory(job->err);
    uint64_t all = 0;

    for (uint32_t pp = 0; rc == CKPT_OK && pp < grid->pp; pp++)
        mgj_count(&l, ckpt_meg_at(grid, 0, pp, 0), layers[pp]);
    // replace each count by the number of layers before it
    for (unsigned c = 0; rc == CKPT_OK && c < l.n_chunks; c++) {
        for (uint32_t pp = 0; pp < grid->pp; pp++) {
            uint64_t n = layers[pp][c];
            layers[pp][c] = all;
            all += n;
        }
    }
    int64_t known = ckpt_meg_arg(job, "num_layers");
    if (rc == CKPT_OK && known > 0 && (uint64_t)known != all)
        rc = ckpt_fail(job->err, CKPT_EMISMATCH,
                       "%s: its ranks have %" PRIu64 " layers, but the run had %" PRId64,
                       job->map->path, all, known);
    for (size_t i = 0; rc == CKPT_OK && i < grid->rank.n; i++) {
        ckpt_meg_rank *r = &grid->rank.at[i];
        memcpy(l.base, layers[r->pp], sizeof l.base);
        rc = mgj_list_rank(&l, r);
        if (rc == CKPT_OK)
            rc = mgj_same_names(&l, ckpt_meg_at(grid, 0, r->pp, 0), r);
    }
    return rc == CKPT_OK ? mgj_tell_extra(&l) : rc;
}

/* ---- joining ---- */

typedef struct mgj_joiner {
    ckpt_meg_job *job;
    ckpt_meg_grid *grid;
    ckpt_uni_rules *rules; /* rules of --slice-rules, or NULL */
    const char *kind;
    const ckpt_tensor **slice; /* by tensor-parallel rank: the slices of one tensor */
    ckpt_err *err;
} mgj_joiner;

/* Append a copy to a tensor's chain of twins. */
static void mgj_chain(ckpt_tensor *t, const ckpt_tensor *copy)
{
    while (t->twin)
        t = (ckpt_tensor *)(uintptr_t)t->twin;
    t->twin = copy;
}

/* Find the rule for a tensor: the caller's, or Megatron's. */
static int mgj_rule(mgj_joiner *j, const ckpt_meg_rank *first, const ckpt_meg_slice *s,
                    ckpt_slice_rule *rule)
{
    double version = 3;
    const ckpt_value *v = ckpt_value_get(j->job->root, "checkpoint_version");
    int rc = CKPT_OK;

    if (j->rules)
        rc = ckpt_uni_rules_find(j->rules, s->name, strlen(s->name), rule, j->err);
    if (rc != CKPT_OK || (j->rules && rule->pattern))
        return rc;
    if (!ckpt_meg_rule(rule, first->map, s->local, 0))
        return ckpt_fail(j->err, CKPT_EUNSUPPORTED,
                         "%s: ckpt does not know how to join the tensor-parallel slices of "
                         "'%.200s'; give the rule with --slice-rules",
                         j->job->map->path, s->name);
    if (v && (v->kind == CKPT_V_FLOAT || v->kind == CKPT_V_INT))
        version = v->kind == CKPT_V_FLOAT ? v->as.f : (double)v->as.i;
    // before version 1 a rank's rows are its queries, then its keys, then its values, so these
    // three are joined separately
    if (version < 1 && strstr(s->name, "query_key_value."))
        *rule = (ckpt_slice_rule){.kind = CKPT_SLICE_SUB, .n_subs = 3};
    return CKPT_OK;
}

/* Compare shapes, because Megatron cuts evenly. */
static bool mgj_same_shape(const ckpt_tensor *a, const ckpt_tensor *b)
{
    return a->ndim == b->ndim && a->dtype == b->dtype &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/* Join tensor number i of a stage, of one expert-parallel rank. */
static int mgj_join_one(mgj_joiner *j, uint32_t pp, uint32_t ep, size_t i)
{
    const ckpt_meg_rank *first = ckpt_meg_at(j->grid, 0, pp, ep);
    const ckpt_meg_slice *s = &first->slice.at[i];
    const char *name =
        j->kind ? ckpt_arena_printf(j->job->map->arena, "%s/%s", j->kind, s->name) : s->name;
    ckpt_slice_rule rule = {.kind = CKPT_SLICE_SAME};
    ckpt_slice_set set = {.name = name, .slice = j->slice, .n = 0};
    ckpt_tensor *whole;
    int rc = name ? CKPT_OK : ckpt_fail_memory(j->err);

    for (uint32_t tp = 0; tp < j->grid->tp; tp++) {
        ckpt_tensor *t = ckpt_meg_at(j->grid, tp, pp, ep)->slice.at[i].tensor;
        if (!t)
            continue;
        if (set.n > 0 && !mgj_same_shape(j->slice[0], t))
            return ckpt_fail(j->err, CKPT_EMISMATCH,
                             "%s: '%.200s' has another shape on tensor-parallel rank %" PRIu32
                             " than on the first",
                             j->job->map->path, name, tp);
        j->slice[set.n++] = t;
    }
    if (rc != CKPT_OK || set.n == 0)
        return rc;
    if (set.n < j->grid->tp)
        return ckpt_fail(j->err, CKPT_EMISMATCH, "%s: '%.200s' is not on every rank of its stage",
                         j->job->map->path, name);
    if (set.n > 1)
        rc = mgj_rule(j, first, s, &rule);
    if (rc == CKPT_OK)
        rc = ckpt_slices_join(&whole, j->job->map, &rule, &set, j->err);
    if (rc == CKPT_OK)
        whole->role = j->kind                    ? CKPT_ROLE_STATE
                      : ckpt_meg_is_buffer(name) ? CKPT_ROLE_BUFFER
                                                 : CKPT_ROLE_WEIGHT;
    return rc;
}

/* Chain the copies of expert-parallel ranks as twins; they must be equal on all of them. */
static void mgj_copies(const mgj_joiner *j, uint32_t pp, size_t i)
{
    for (uint32_t ep = 1; ep < j->grid->ep; ep++) {
        for (uint32_t tp = 0; tp < j->grid->tp; tp++) {
            ckpt_tensor *t = ckpt_meg_at(j->grid, tp, pp, 0)->slice.at[i].tensor,
                        *copy = ckpt_meg_at(j->grid, tp, pp, ep)->slice.at[i].tensor;
            if (t && copy)
                mgj_chain(t, copy);
        }
    }
}

/* The first stage's slice of the embedding, if `name` is the last stage's copy of it; else NULL. */
static ckpt_meg_slice *mgj_table(const mgj_joiner *j, uint32_t tp, const char *name)
{
    const ckpt_meg_rank *r = ckpt_meg_at(j->grid, tp, 0, 0);

    if (strcmp(name, "output_layer.weight") != 0 &&
        strcmp(name, "word_embeddings_for_head.weight") != 0)
        return NULL;
    for (size_t i = 0; i < r->slice.n; i++) {
        const char *at = strstr(r->slice.at[i].name, "embedding.word_embeddings.weight");
        if (at)
            return &r->slice.at[i];
    }
    return NULL;
}

/*
 * Check for a shared embedding, which the first and the last stage both store.  *shared: this
 * tensor is the last stage's copy, so it needs no joining.
 */
static void mgj_shared(const mgj_joiner *j, uint32_t pp, size_t i, bool *shared)
{
    const char *name = ckpt_meg_at(j->grid, 0, pp, 0)->slice.at[i].name;

    *shared = pp > 0 && !ckpt_meg_flag(j->job, "untie_embeddings_and_output_weights") &&
              mgj_table(j, 0, name);
}

static int mgj_stage(mgj_joiner *j, uint32_t pp)
{
    const ckpt_meg_rank *first = ckpt_meg_at(j->grid, 0, pp, 0);
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < first->slice.n; i++) {
        bool shared = false;
        mgj_shared(j, pp, i, &shared);
        if (shared)
            continue;
        if (!first->slice.at[i].expert)
            mgj_copies(j, pp, i);
        for (uint32_t ep = 0; rc == CKPT_OK && ep < (first->slice.at[i].expert ? j->grid->ep : 1);
             ep++)
            rc = mgj_join_one(j, pp, ep, i);
    }
    return rc;
}

/* Chain the last stage's copies of shared embeddings to the first stage's, before those are
 * joined. */
static void mgj_chain_tables(const mgj_joiner *j)
{
    for (uint32_t pp = 1; pp < j->grid->pp; pp++) {
        const ckpt_meg_rank *first = ckpt_meg_at(j->grid, 0, pp, 0);
        for (size_t i = 0; i < first->slice.n; i++) {
            bool shared = false;
            mgj_shared(j, pp, i, &shared);
            for (uint32_t tp = 0; shared && tp < j->grid->tp; tp++) {
                ckpt_meg_slice *table = mgj_table(j, tp, first->slice.at[i].name);
                const ckpt_tensor *copy = ckpt_meg_at(j->grid, tp, pp, 0)->slice.at[i].tensor;
                if (table && table->tensor && copy)
                    mgj_chain(table->tensor, copy);
            }
        }
    }
}

int ckpt_meg_join(ckpt_meg_job *job, ckpt_meg_grid *grid, const char *kind)
{
    assert(job && grid->rank.n > 0);
    mgj_joiner j = {.job = job, .grid = grid, .kind = kind, .err = job->err};
    int rc = CKPT_OK;

    if (job->opts->slice_rules)
        rc = ckpt_uni_rules_parse(&j.rules, job->opts->slice_rules, job->err);
    j.slice = ckpt_arena_array(job->map->arena, grid->tp, sizeof *j.slice);
    if (rc == CKPT_OK && !j.slice)
        rc = ckpt_fail_memory(job->err);
    if (rc == CKPT_OK)
        mgj_chain_tables(&j);
    for (uint32_t pp = 0; rc == CKPT_OK && pp < grid->pp; pp++)
        rc = mgj_stage(&j, pp);
    ckpt_uni_rules_free(j.rules);
    return rc;
}
