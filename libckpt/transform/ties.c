/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ties.c: ties and unties names that share their bytes; if a head becomes another name of its
 * table, the run checks that both are equal.
 */
#include <inttypes.h>
#include <string.h>

#include "ckpt_shape.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/map.h"
#include "libckpt/map/savepoint.h"
#include "libckpt/transform/keymap/expr.h"
#include "libckpt/transform/keymap/head.h"

static ckpt_tensor *ts_at(const ckpt_map *map, const char *name)
{
    size_t i = ckpt_map_index(map, name, strlen(name));

    return i == SIZE_MAX ? NULL : map->tensors.at[i];
}

/* ---- untying ---- */

/* Set *ties if the configuration explicitly ties the head. */
static int ts_config_ties(ckpt_map *map, bool *ties, ckpt_err *err)
{
    ckpt_remap none = {0};
    const ckpt_remap_how how = {0};
    ckpt_rm_facts facts;
    int64_t value = 0;
    int rc = ckpt_rm_facts_open(&facts, &none, map, &how, err);

    *ties = rc == CKPT_OK &&
            ckpt_value_as_int(ckpt_rm_fact(&facts, "tie_word_embeddings"), &value) && value != 0;
    return rc;
}

/* Give a tensor the values of its former owner. */
static void ts_share(ckpt_tensor *t, const ckpt_tensor *owner)
{
    t->owner = NULL;
    ckpt_extent_share(t, owner);
    t->twin = owner->twin;
    t->addend = owner->addend;
    t->flags |= owner->flags & (CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG);
}

/*
 * True if lm_head.weight is the model's only head tensor. Heads of several tensors (BERT's) and of
 * other programs have names that this file does not know.
 */
static bool ts_plain_head(const ckpt_map *map, const ckpt_tensor *table)
{
    const char *arch = map->known.architecture;

    for (size_t i = 0; i < map->tensors.n; i++) {
        const char *name = map->tensors.at[i]->name;
        if (strncmp(name, "cls.", 4) == 0 || strncmp(name, "lm_head.", 8) == 0)
            return false;
    }
    return !arch || strstr(arch, "ForCausalLM") || strstr(arch, "LMHead") ||
           (strstr(arch, "ForConditionalGeneration") && strstr(table->name, "language_model"));
}

/* True if the caller has left out a tensor of this name. */
static bool ts_is_left_out(const ckpt_map *map, const char *name)
{
    for (size_t i = 0; i < map->n_left_out; i++) {
        if (strcmp(map->left_out[i]->name, name) == 0)
            return true;
    }
    return false;
}

/* Add the head that its folder omits because it is tied. */
static int ts_add_head(ckpt_map *map, ckpt_err *err)
{
    const ckpt_tensor *table = ckpt_head_of(map) ? NULL : ckpt_head_table(map);
    ckpt_tensor like, *head = NULL;

    if (table && !ts_plain_head(map, table))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "--untie: the name of the head of %s is unknown: give it in a layout map "
                         "with the lines others stay and tie left HEAD = %.200s (--map)",
                         map->path, table->name);

    if (!table)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "--untie: the head of %s is not tied to its embedding, or it has none",
                         map->path);
    if (ts_is_left_out(map, "lm_head.weight"))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "--untie writes lm_head.weight, which --include and --exclude leave out: "
                         "leave --untie out, or select the head");
    like = *(table->owner ? table->owner : table);
    like.owner = NULL;
    int rc = ckpt_map_add(map, "lm_head.weight", 14, &like, &head, err);
    if (rc == CKPT_OK)
        ts_share(head, table->owner ? table->owner : table);
    return rc;
}

/* Untie all names; a failure leaves the map half changed. */
static int ts_untie(ckpt_map *map, ckpt_err *err)
{
    uint64_t n = 0;
    const char *name = "lm_head.weight";
    bool ties = false;
    int rc = CKPT_OK;

    // the file has a head with values; only the configuration ties it
    if (ckpt_head_of(map))
        rc = ts_config_ties(map, &ties, err);
    if (ties) {
        name = ckpt_head_of(map)->name;
        n = 1;
    }
    for (size_t i = 0; i < map->tensors.n; i++) {
        ckpt_tensor *t = map->tensors.at[i];

        if (!t->owner || t->role == CKPT_ROLE_STATE)
            continue;
        ts_share(t, t->owner);
        name = t->name;
        n++;
    }
    if (rc == CKPT_OK && n == 0) {
        rc = ts_add_head(map, err);
        n = 1;
    }
    map->untied = true;
    return rc == CKPT_OK ? ckpt_map_fact(map, err, "untied", "%" PRIu64 " name%s%s%.200s", n,
                                         n == 1 ? ": " : "s, such as ", "", name)
                         : rc;
}

int ckpt_map_untie(ckpt_map *map, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_savepoint *saved = NULL;

    if (!map)
        return ckpt_fail(err, CKPT_EUSAGE, "no map whose names could be taken apart");
    if (map->untied)
        return CKPT_OK;
    int rc = ckpt_savepoint_new(&saved, map, err);
    return rc == CKPT_OK ? ckpt_savepoint_end(saved, ts_untie(map, err)) : rc;
}

/* ---- tying ---- */

/* The table that a head may repeat: the only other tensor of its shape outside of layers. */
static ckpt_tensor *ts_table(const ckpt_map *map, const ckpt_tensor *head, ckpt_err *err)
{
    ckpt_tensor *found = NULL;

    for (size_t i = 0; i < map->tensors.n; i++) {
        ckpt_tensor *t = map->tensors.at[i];

        if (t == head || t->owner || t->role == CKPT_ROLE_STATE || !ckpt_head_same_shape(t, head) ||
            strpbrk(t->name, "0123456789"))
            continue;
        if (found) {
            ckpt_fail(err, CKPT_EUSAGE,
                      "tie: %.200s and %.200s both have the shape of %.200s: choose one, "
                      "HEAD=EMBEDDING",
                      found->name, t->name, head->name);
            return NULL;
        }
        found = t;
    }
    if (!found)
        ckpt_fail(err, CKPT_EMISSING,
                  "tie: no other tensor outside of layers has the shape of %.200s", head->name);
    return found;
}

/* Find the tensors of HEAD or HEAD=EMBEDDING. */
static int ts_pair(ckpt_map *map, const char *names, ckpt_tensor **head, ckpt_tensor **table,
                   ckpt_err *err)
{
    size_t n = strcspn(names, "=");
    size_t at = ckpt_map_index(map, names, n);
    const char *missing = NULL;

    *head = at == SIZE_MAX ? NULL : map->tensors.at[at];
    *table = NULL;
    if (!*head)
        missing = ckpt_arena_string(map->arena, names, n);
    else if (!names[n])
        *table = (*head)->owner ? NULL : ts_table(map, *head, err);
    else if (!(*table = ts_at(map, names + n + 1)))
        missing = names + n + 1;
    if (missing)
        return ckpt_fail(err, CKPT_EMISSING, "tie: %s has no tensor %.200s", map->path, missing);
    if ((*head)->owner)
        return ckpt_fail(err, CKPT_EUSAGE, "tie: %.200s is tied to %.200s already", (*head)->name,
                         (*head)->owner->name);
    return *table ? CKPT_OK : err ? err->code : CKPT_EUSAGE;
}

/* Tie the head to the embedding if the configuration ties them and both are stored. */
static int ts_tie_stated(ckpt_map *map, ckpt_err *err)
{
    ckpt_tensor *head = ckpt_head_of(map), *table = ckpt_head_table(map);
    bool ties = false;
    int rc = CKPT_OK;

    if (!head || !table || map->untied || map->tied || !ckpt_head_same_shape(head, table))
        return CKPT_OK;
    rc = ts_config_ties(map, &ties, err);
    return rc == CKPT_OK && ties ? ckpt_head_tie(map, head, table, err) : rc;
}

/* Tie the tensors of HEAD or HEAD=EMBEDDING. */
static int ts_tie_named(ckpt_map *map, const char *names, ckpt_err *err)
{
    ckpt_tensor *head, *table;
    int rc = ts_pair(map, names, &head, &table, err);

    return rc == CKPT_OK ? ckpt_head_tie(map, head, table, err) : rc;
}

/* True for the name of a parameter of an embedding, by the name of its module. */
static bool ts_is_table(const char *name)
{
    return strstr(name, "embeddings.") || strstr(name, "embed_tokens.") || strstr(name, "wte.") ||
           strstr(name, "embed_in.");
}

/* True for a name of an output head, in the classes that are tied to an embedding. */
static bool ts_is_head(const char *name)
{
    static const char *const heads[] = {"lm_head.",
                                        "cls.",
                                        "predictions.",
                                        "generator_lm_head.",
                                        "vocab_projector.",
                                        "pred_layer.",
                                        "embed_out.",
                                        "output_layer.",
                                        NULL};
    bool is = false;

    for (size_t i = 0; !is && heads[i]; i++)
        is = strncmp(name, heads[i], strlen(heads[i])) == 0;
    return is;
}

/*
 * Let the embedding own the values that a head shares with it, because save_pretrained stores a
 * shared tensor under the embedding's name, and a model without the head has no other name for it.
 * A module may list its head first (XLM-RoBERTa).
 */
static void ts_tables_own(ckpt_map *map)
{
    for (size_t i = 0; i < map->tensors.n; i++) {
        ckpt_tensor *table = map->tensors.at[i];
        const ckpt_tensor *owner = table->owner;

        if (!owner || table->role == CKPT_ROLE_STATE || !ckpt_head_same_shape(table, owner) ||
            !ts_is_head(owner->name) || !ts_is_table(table->name))
            continue;
        ts_share(table, owner);
        for (size_t k = 0; k < map->tensors.n; k++) {
            ckpt_tensor *t = map->tensors.at[k];

            if (t != owner && t->owner != owner)
                continue;
            t->owner = table;
            t->twin = NULL;
        }
    }
}

int ckpt_map_tie(ckpt_map *map, const char *names, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_savepoint *saved = NULL;

    if (!map)
        return ckpt_fail(err, CKPT_EUSAGE, "no map whose head could be tied");
    int rc = ckpt_savepoint_new(&saved, map, err);
    if (rc != CKPT_OK)
        return rc;
    if (!names && !map->untied)
        ts_tables_own(map);
    rc = names ? ts_tie_named(map, names, err) : ts_tie_stated(map, err);
    return ckpt_savepoint_end(saved, rc);
}
