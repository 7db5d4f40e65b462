/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwrap.c: finds and removes the parts of tensor names that wrappers have added.
 */
#include "libckpt/transform/unwrap.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/map/order.h"
#include "libckpt/map/whole.h"

enum {
    UNW_WORDS = 8,  /* limit of common prefix words */
    UNW_CHECKED = 4 /* with fewer names an architecture cannot be recognised */
};

typedef struct unw_names {
    size_t *tensor;    /* per name: its tensor's index in the map */
    const char **name; /* without torch's wrappers */
    size_t n;
    size_t end[UNW_WORDS + 1]; /* length of the first k words of the common prefix */
    unsigned n_words;
    uint64_t n_inner; /* names that had a wrapper of torch */
} unw_names;

/* ---- names ---- */

/* Bytes before the parameter's name: the kind of a moment. */
static size_t unw_moment(const ckpt_tensor *t)
{
    const char *slash = t->role == CKPT_ROLE_STATE ? strchr(t->name, '/') : NULL;

    return slash ? (size_t)(slash - t->name) + 1 : 0;
}

static bool unw_is_weight(const ckpt_tensor *t)
{
    return t->role != CKPT_ROLE_STATE && t->role != CKPT_ROLE_OTHER;
}

static void unw_free(unw_names *w)
{
    ckpt_free(w->tensor);
    ckpt_free(w->name);
}

/* Find the words of the common prefix, each with its dot. */
static void unw_words(unw_names *w)
{
    const char *first = w->n > 0 ? w->name[0] : "";

    for (const char *dot = strchr(first, '.'); dot && w->n_words < UNW_WORDS;
         dot = strchr(dot + 1, '.')) {
        size_t n = (size_t)(dot - first) + 1;
        for (size_t i = 1; i < w->n; i++) {
            if (strncmp(w->name[i], first, n) != 0)
                return;
        }
        w->end[++w->n_words] = n;
    }
}

/* Collect the names of weights; false: out of memory. */
static bool unw_of(unw_names *w, const ckpt_map *map)
{
    *w = (unw_names){.tensor = ckpt_alloc((map->tensors.n + 1) * sizeof *w->tensor),
                     .name = ckpt_alloc((map->tensors.n + 1) * sizeof *w->name)};
    for (size_t i = 0; w->tensor && w->name && i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        if (!unw_is_weight(t))
            continue;
        size_t n = strlen(t->name);
        char *bare = ckpt_arena_alloc(map->arena, n + 1);
        if (!bare)
            return false;
        ckpt_wrapper_strip(bare, t->name);
        // a name must not become empty
        if (!*bare)
            memcpy(bare, t->name, n + 1);
        w->n_inner += strlen(bare) != n;
        w->tensor[w->n] = i;
        w->name[w->n++] = bare;
    }
    if (w->tensor && w->name)
        unw_words(w);
    return w->tensor && w->name;
}

/* True if word k (from 0) of the common prefix is one of these. */
static bool unw_word_is(const unw_names *w, unsigned k, const char *const *words)
{
    for (; k < w->n_words && *words; words++) {
        size_t n = strlen(*words);
        if (w->end[k + 1] - w->end[k] == n + 1 && strncmp(w->name[0] + w->end[k], *words, n) == 0)
            return true;
    }
    return false;
}

/* ---- the rule ---- */

/*
 * True if after the first k words a name begins with a part that only a model's root has: its head,
 * or its base.
 */
static bool unw_has_head(const unw_names *w, unsigned k)
{
    static const char *const heads[] = {"lm_head.",  "score.",    "classifier.", "qa_outputs.",
                                        "cls.",      "bert.",     "roberta.",    "distilbert.",
                                        "gpt_neox.", "embed_out."};

    for (size_t i = 0; i < w->n; i++) {
        for (size_t h = 0; h < sizeof heads / sizeof *heads; h++) {
            if (strncmp(w->name[i] + w->end[k], heads[h], strlen(heads[h])) == 0)
                return true;
        }
    }
    return false;
}

/*
 * The smallest number of words that must be removed until most names fit an architecture, and many
 * more than before; 0 words if they already fit, or never do. *fits: whether they do.
 */
static unsigned unw_by_fit(const unw_names *w, const char *type, unsigned from, bool *fits)
{
    // never remove these words: they name a part of a larger model, even if the file lacks other
    // parts
    static const char *const parts[] = {"language_model", "text_model", "vision_model", "visual",
                                        "encoder",        "decoder",    "thinker",      NULL};
    size_t plain = ckpt_order_fit(type, w->name, w->n, w->end[from]);

    *fits = 2 * plain > w->n;
    // skip types that the table lacks, and models with few names, because these may fit an
    // architecture by chance
    if ((type && !ckpt_order_has(type)) || w->n < UNW_CHECKED)
        return from;
    for (unsigned k = from + 1; !*fits && k <= w->n_words && !unw_word_is(w, k - 1, parts); k++) {
        size_t fit = ckpt_order_fit(type, w->name, w->n, w->end[k]);
        if (2 * fit <= w->n || fit <= 2 * plain)
            continue;
        *fits = true;
        return k;
    }
    return from;
}

/* The number of words in the common prefix that belong to wrappers. */
static unsigned unw_shared(const unw_names *w, const char *type, bool raw)
{
    static const char *const always[] = {"module", "state_dict", "model_state_dict", NULL};
    static const char *const attribute[] = {"model", "net", "network", NULL};
    static const char *const peft[] = {"base_model", NULL};
    unsigned k = 0;
    bool fits = false;

    while (unw_word_is(w, k, always))
        k++;
    // leave an adapter's names unchanged, because they depend on its own format
    if (unw_word_is(w, k, peft) || k == w->n_words)
        return k;
    k = unw_by_fit(w, type, k, &fits);
    while (!fits && k < w->n_words && !unw_word_is(w, k, peft) &&
           (unw_has_head(w, k + 1) || (raw && unw_word_is(w, k, attribute))))
        k++;
    return k;
}

bool ckpt_unwrap_asks(const ckpt_map *map)
{
    unw_names w;
    bool asks = unw_of(&w, map) && w.n_words > 0;

    unw_free(&w);
    return asks;
}

bool ckpt_unwrap_would(const ckpt_map *map, const char *type, bool raw)
{
    unw_names w;
    bool would = unw_of(&w, map) && (w.n_inner > 0 || unw_shared(&w, type, raw) > 0);

    unw_free(&w);
    return would;
}

/* ---- renaming ---- */

/* Rename all tensors; false in *done: two names would be equal. */
static int unw_rename(ckpt_map *map, const char *shared, bool *done, ckpt_err *err)
{
    size_t n_shared = strlen(shared), n = map->tensors.n;
    const char **old = ckpt_alloc((n + 1) * sizeof *old);
    ckpt_err why = {0};
    int rc = old ? CKPT_OK : ckpt_fail_memory(err);

    for (size_t i = 0; rc == CKPT_OK && i < n; i++) {
        ckpt_tensor *t = map->tensors.at[i];
        size_t moment = unw_moment(t);
        char *name = ckpt_arena_string(map->arena, t->name, strlen(t->name));
        if (!name) {
            rc = ckpt_fail_memory(err);
            break;
        }
        old[i] = t->name;
        if (t->role == CKPT_ROLE_OTHER)
            continue;
        ckpt_wrapper_strip(name + moment, t->name + moment);
        if (strncmp(name + moment, shared, n_shared) == 0 && name[moment + n_shared])
            memmove(name + moment, name + moment + n_shared, strlen(name + moment + n_shared) + 1);
        if (name[moment])
            t->name = name;
    }
    *done = rc == CKPT_OK && ckpt_map_reindex(map, &why) == CKPT_OK;
    for (size_t i = 0; !*done && old && i < n && old[i]; i++)
        map->tensors.at[i]->name = old[i];
    ckpt_free(old);
    if (*done || rc != CKPT_OK)
        return rc;
    return why.code == CKPT_EMISMATCH ? ckpt_map_reindex(map, err)
                                      : ckpt_fail(err, why.code, "%s", why.text);
}

/*
 * Drop metadata about ties by name, because it would be wrong after names changed: the ties stay.
 */
static void unw_drop_ties(ckpt_map *map)
{
    uint64_t kept = 0;

    for (uint64_t i = 0; i < map->metadata.n; i++) {
        const ckpt_text key = map->metadata.at[i].key->as.text;
        if (ckpt_map_index(map, key.at, key.n) == SIZE_MAX)
            map->metadata.at[kept++] = map->metadata.at[i];
    }
    map->metadata.n = kept;
}

/* Report the removed prefixes. */
static int unw_say(ckpt_map *map, const unw_names *w, const char *shared, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (w->n_inner > 0)
        rc = ckpt_map_note(
            map, CKPT_INFO, err,
            "%s: removed the parts that torch's wrappers add (such as _orig_mod.) from %" PRIu64
            " of %zu tensor names",
            map->path, w->n_inner, w->n);
    if (rc == CKPT_OK && *shared)
        rc = ckpt_map_note(map, CKPT_INFO, err,
                           "%s: removed the wrapper prefix '%.200s' from every tensor name",
                           map->path, shared);
    return rc;
}

int ckpt_unwrap(ckpt_map *map, const char *type, bool raw, ckpt_err *err)
{
    unw_names w;
    bool done = true;
    int rc = unw_of(&w, map) ? CKPT_OK : ckpt_fail_memory(err);
    unsigned k = rc == CKPT_OK ? unw_shared(&w, type, raw) : 0;
    const char *shared =
        rc == CKPT_OK ? ckpt_arena_string(map->arena, k > 0 ? w.name[0] : "", w.end[k]) : "";

    if (!shared)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK && (*shared || w.n_inner > 0)) {
        unw_drop_ties(map);
        rc = unw_rename(map, shared, &done, err);
        if (rc == CKPT_OK && done)
            rc = unw_say(map, &w, shared, err);
        else if (rc == CKPT_OK)
            rc = ckpt_map_note(map, CKPT_WARNING, err,
                               "%s: without their wrappers' prefixes two tensors would have one "
                               "name: all keep the names that they have",
                               map->path);
    }
    unw_free(&w);
    return rc;
}

/*
 * Find a prefix that only the names of this architecture have, so that a pattern can select them
 * from a file with other tensors. Returns its length, with the dot; 0: there is none, or other
 * names contain it too. *odd: a name that does not fit.
 */
static size_t unw_one_of(const unw_names *w, const char *type, const char **odd, const char **sub)
{
    size_t first = 0, n = 0, others = 0;

    while (first < w->n && ckpt_order_fit(type, &w->name[first], 1, 0) > 0)
        first++;
    *odd = w->name[first < w->n ? first : 0];
    const char *dot = strchr(*odd, '.');
    size_t len = dot ? (size_t)(dot - *odd) + 1 : 0;
    for (size_t i = 0; len > 0 && i < w->n; i++) {
        if (strncmp(w->name[i], *odd, len) == 0)
            sub[n++] = w->name[i];
    }
    for (size_t i = 0; len > 0 && i < w->n; i++) {
        const char *s = w->name[i];
        if (strncmp(s, *odd, len) == 0)
            continue;
        while ((s = strchr(s, **odd)) && strncmp(s, *odd, len) != 0)
            s++;
        others += s != NULL;
    }
    return n >= UNW_CHECKED && n < w->n && others == 0 && 2 * ckpt_order_fit(type, sub, n, len) > n
               ? len
               : 0;
}

int ckpt_unwrap_check(ckpt_map *to, const ckpt_map *map, const char *type, ckpt_err *err)
{
    unw_names w = {0};
    const char **sub = ckpt_alloc((map->tensors.n + 1) * sizeof *sub), *odd = "";
    int rc = CKPT_OK;

    if (!ckpt_order_has(type))
        rc = CKPT_OK;
    else if (!sub || !unw_of(&w, map))
        rc = ckpt_fail_memory(err);
    else if (w.n >= UNW_CHECKED && strncmp(w.name[0], "base_model.", 11) != 0 &&
             2 * ckpt_order_fit(type, w.name, w.n, 0) < w.n) {
        int len = (int)unw_one_of(&w, type, &odd, sub);
        rc = len > 0 && len < 80
                 ? ckpt_map_note(to, CKPT_WARNING, err,
                                 "names such as '%.150s' are not those of a model of type %.60s, "
                                 "which its config.json states, but those behind '%.*s' are: "
                                 "--include '*%.*s*' takes that model alone",
                                 odd, type, len, odd, len, odd)
                 : ckpt_map_note(
                       to, CKPT_WARNING, err,
                       "names such as '%.150s' are not those of a model of type %.60s, "
                       "which its config.json states: loaders will not find them; check that "
                       "config.json belongs to this model",
                       odd, type);
    }
    ckpt_free((void *)sub);
    unw_free(&w);
    return rc;
}
