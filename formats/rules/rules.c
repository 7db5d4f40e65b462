/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.c: reads universal_checkpoint_info, and finds the rule for a parameter.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/rules/entry.h"
#include "formats/rules/pattern.h"
#include "formats/rules/rules.h"
#include "libckpt/base/index.h"
#include "libckpt/base/vec.h"
#include "libckpt/codec/json/json.h"

enum { RU_MAX_JSON = 64 << 20 }; /* bytes of rules given as text */

/* The lists of patterns, in the order of reading. */
typedef enum ru_list {
    RU_REFUSED,
    RU_AFFINE,
    RU_SAME,
    RU_MEAN,
    RU_TWO,
    RU_SUB,
    RU_ROW,
    RU_VOCABULARY,
    RU_PIPELINE,
    RU_N_LISTS
} ru_list;

static const char *const ru_keys[RU_N_LISTS] = {
    [RU_REFUSED] = "autotp_unsupported_parameter_patterns",
    [RU_AFFINE] = "affine_map",
    [RU_SAME] = "tp_replicated_parameter_patterns",
    [RU_MEAN] = "parameter_to_average_patterns",
    [RU_TWO] = "parameter_with_2_sub_params_cat_dim_0",
    [RU_SUB] = "parameter_with_sub_params",
    [RU_ROW] = "parameter_with_row_parallelism_patterns",
    [RU_VOCABULARY] = "vocabulary_parameter_patterns",
    [RU_PIPELINE] = "pipeline_replicated_parameter_patterns",
};

/* One pattern of a list, with the list's data for it. */
typedef struct ru_entry {
    uint32_t pattern;
    bool twice; /* the list has the same text more than once */
    /* REFUSED: reason; AFFINE: the parameter's map; SUB: the list's entry */
    const ckpt_value *value;
    const ckpt_value *width;     /* SUB: its sub_param_shard_widths, or NULL */
    const ckpt_affine *affine;   /* AFFINE: made on first use */
    const ckpt_slice_rule *rule; /* SUB: made on first use */
} ru_entry;

CKPT_VEC(ru_entries, ru_entry);
CKPT_VEC(ru_numbers, uint32_t);

typedef struct ru_table {
    ru_entries entry;
    ckpt_index exact; /* entries that match a single name, by that name */
    ru_numbers open;  /* entries to be matched as patterns */
} ru_table;

struct ckpt_uni_rules {
    ckpt_arena *arena;
    ckpt_arena *text; /* holds values parsed from JSON; else NULL */
    ckpt_uni_patterns *patterns;
    ru_table list[RU_N_LISTS];
    ckpt_bytes used;    /* per pattern: 1 once it matched in a list whose patterns must all match */
    ckpt_bytes counted; /* per pattern: 1 if it is in such a list */
    double version;
    uint64_t vocabulary;
};

/* ---- the lists ---- */

typedef struct ru_key {
    const ckpt_uni_rules *rules;
    const ru_table *list;
    const char *name;
    uint64_t n;
} ru_key;

/* True if entry `number` matches exactly the key's name. */
static bool ru_same(const void *ctx, uint32_t number, const void *key)
{
    const ru_key *k = key;
    uint64_t n = 0;
    const char *text =
        ckpt_uni_patterns_exact(k->rules->patterns, k->list->entry.at[number].pattern, &n);

    (void)ctx;
    return text && n == k->n && memcmp(text, k->name, (size_t)n) == 0;
}

/* Append a pattern to a list. */
static int ru_add(ckpt_uni_rules *r, ru_list which, const ckpt_value *text, const ckpt_value *value,
                  ckpt_err *err)
{
    ru_table *list = &r->list[which];
    ru_entry *e;
    ru_key key = {.rules = r, .list = list};
    uint32_t pattern, number = (uint32_t)list->entry.n, hash, *open, before;
    int rc;

    if (text->kind != CKPT_V_STR)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: a pattern is not a string", ru_keys[which]);
    rc = ckpt_uni_patterns_add(r->patterns, text->as.text.at, text->as.text.n, &pattern, err);
    if (rc != CKPT_OK)
        return rc;
    while (r->used.n <= pattern) {
        if (!ckpt_bytes_add(&r->used, NULL, 1) || !ckpt_bytes_add(&r->counted, NULL, 1))
            return ckpt_fail_memory(err);
    }
    r->counted.at[pattern] |= which >= RU_SAME && which <= RU_VOCABULARY;
    e = ckpt_vec_push(&list->entry);
    if (!e)
        return ckpt_fail_memory(err);
    *e = (ru_entry){.pattern = pattern, .value = value};
    key.name = ckpt_uni_patterns_exact(r->patterns, pattern, &key.n);
    if (!key.name) {
        open = ckpt_vec_push(&list->open);
        if (!open)
            return ckpt_fail_memory(err);
        *open = number;
        return CKPT_OK;
    }
    hash = ckpt_hash_bytes(key.name, (size_t)key.n, 0);
    before = ckpt_index_find(&list->exact, hash, ru_same, NULL, &key);
    if (before != CKPT_INDEX_NONE) {
        list->entry.at[before].twice = true;
        return CKPT_OK;
    }
    return ckpt_index_add(&list->exact, hash, number) ? CKPT_OK : ckpt_fail_memory(err);
}

/* Append the patterns of a value, which must be a list if present. */
static int ru_read_list(ckpt_uni_rules *r, ru_list which, const ckpt_value *v,
                        const ckpt_value *value, ckpt_err *err)
{
    ckpt_seq seq = ckpt_value_seq(v);
    int rc = CKPT_OK;

    if (!v || v->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (v->kind != CKPT_V_LIST && v->kind != CKPT_V_TUPLE && v->kind != CKPT_V_SET)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: not a list of patterns", ru_keys[which]);
    for (uint64_t i = 0; rc == CKPT_OK && i < seq.n; i++)
        rc = ru_add(r, which, seq.at[i], value, err);
    return rc;
}

/* Append the patterns of a value, which must be a dict if present. */
static int ru_read_dict(ckpt_uni_rules *r, ru_list which, const ckpt_value *v, ckpt_err *err)
{
    ckpt_dict map = ckpt_value_map(v);
    int rc = CKPT_OK;

    if (!v || v->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (v->kind != CKPT_V_DICT && v->kind != CKPT_V_ODICT)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: not a dict of patterns", ru_keys[which]);
    for (uint64_t i = 0; rc == CKPT_OK && i < map.n; i++)
        rc = ru_add(r, which, map.at[i].key, map.at[i].value, err);
    return rc;
}

/* affine_map: {'version': 1, 'params': {pattern: map}}. */
static int ru_read_affine(ckpt_uni_rules *r, const ckpt_value *v, ckpt_err *err)
{
    const ckpt_value *version = ckpt_value_get(v, "version");
    int64_t n = 1;

    if (!v || v->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (v->kind != CKPT_V_DICT && v->kind != CKPT_V_ODICT)
        return ckpt_fail(err, CKPT_EFORMAT, "affine_map: not a dict");
    if (version && !ckpt_value_as_int(version, &n))
        return ckpt_fail(err, CKPT_EFORMAT, "affine_map: its version is not an integer");
    if (n > 1)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "affine_map: version %" PRId64 " is not supported: expected version 1", n);
    return ru_read_dict(r, RU_AFFINE, ckpt_value_get(v, "params"), err);
}

/* The fields of a SubparamShape, which is a dict or a pickled object. */
static const ckpt_value *ru_fields(const ckpt_value *entry)
{
    return entry->kind == CKPT_V_OBJECT ? entry->as.object->state : entry;
}

/* Set the widths of sub-parameters from sub_param_shard_widths: {pattern: widths}. */
static int ru_read_widths(ckpt_uni_rules *r, const ckpt_value *v, ckpt_err *err)
{
    ru_entries *entry = &r->list[RU_SUB].entry;
    const ckpt_value **of = ckpt_alloc((r->used.n + 1) * sizeof *of); // by pattern
    ckpt_dict map = ckpt_value_map(v);
    uint32_t pattern;
    int rc = of ? CKPT_OK : ckpt_fail_memory(err);

    for (uint64_t i = 0; rc == CKPT_OK && i < map.n; i++) {
        const ckpt_value *key = map.at[i].key;

        if (key->kind != CKPT_V_STR)
            continue;
        rc = ckpt_uni_patterns_add(r->patterns, key->as.text.at, key->as.text.n, &pattern, err);
        if (rc == CKPT_OK && pattern < r->used.n)
            of[pattern] = map.at[i].value;
    }
    for (size_t i = 0; rc == CKPT_OK && i < entry->n; i++)
        entry->at[i].width = of[entry->at[i].pattern];
    ckpt_free(of);
    return rc;
}

/* Read parameter_with_sub_params, with their widths. */
static int ru_read_subs(ckpt_uni_rules *r, const ckpt_value *info, ckpt_err *err)
{
    const ckpt_value *v = ckpt_value_get(info, ru_keys[RU_SUB]);
    const ckpt_value *widths = ckpt_value_get(info, "sub_param_shard_widths");
    ckpt_seq seq = ckpt_value_seq(v);
    int rc = CKPT_OK;

    if (v && v->kind != CKPT_V_NONE && v->kind != CKPT_V_LIST && v->kind != CKPT_V_TUPLE)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: not a list", ru_keys[RU_SUB]);
    for (uint64_t i = 0; rc == CKPT_OK && i < seq.n; i++) {
        const ckpt_value *patterns = ckpt_value_get(ru_fields(seq.at[i]), "patterns");

        if (!patterns)
            return ckpt_fail(err, CKPT_EFORMAT, "%s: entry %" PRIu64 " has no patterns",
                             ru_keys[RU_SUB], i);
        rc = ru_read_list(r, RU_SUB, patterns, seq.at[i], err);
    }
    return rc == CKPT_OK ? ru_read_widths(r, widths, err) : rc;
}

/* universal_checkpoint_version and original_vocab_size. */
static int ru_read_numbers(ckpt_uni_rules *r, const ckpt_value *info, ckpt_err *err)
{
    const ckpt_value *version = ckpt_value_get(info, "universal_checkpoint_version");
    const ckpt_value *rows = ckpt_value_get(info, "original_vocab_size");
    int64_t n = 0;

    if (version && version->kind == CKPT_V_FLOAT)
        r->version = version->as.f;
    else if (version && ckpt_value_as_int(version, &n))
        r->version = (double)n;
    if (!rows || rows->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (!ckpt_value_as_int(rows, &n) || n <= 0)
        return ckpt_fail(err, CKPT_EFORMAT, "original_vocab_size: not a positive integer");
    r->vocabulary = (uint64_t)n;
    return CKPT_OK;
}

/* Read all lists. */
static int ru_read(ckpt_uni_rules *r, const ckpt_value *info, ckpt_err *err)
{
    static const ru_list plain[] = {RU_SAME, RU_MEAN, RU_TWO, RU_ROW, RU_VOCABULARY, RU_PIPELINE};
    int rc = CKPT_OK;

    if (!info)
        return CKPT_OK;
    if (info->kind != CKPT_V_DICT && info->kind != CKPT_V_ODICT)
        return ckpt_fail(err, CKPT_EFORMAT, "universal_checkpoint_info: not a dict");
    for (size_t i = 0; rc == CKPT_OK && i < sizeof plain / sizeof *plain; i++)
        rc = ru_read_list(r, plain[i], ckpt_value_get(info, ru_keys[plain[i]]), NULL, err);
    if (rc == CKPT_OK)
        rc = ru_read_dict(r, RU_REFUSED, ckpt_value_get(info, ru_keys[RU_REFUSED]), err);
    if (rc == CKPT_OK)
        rc = ru_read_affine(r, ckpt_value_get(info, ru_keys[RU_AFFINE]), err);
    if (rc == CKPT_OK)
        rc = ru_read_subs(r, info, err);
    return rc == CKPT_OK ? ru_read_numbers(r, info, err) : rc;
}

int ckpt_uni_rules_new(ckpt_uni_rules **out, const ckpt_value *info, ckpt_err *err)
{
    assert(out);
    ckpt_uni_rules *r = ckpt_alloc(sizeof *r);
    int rc;

    *out = NULL;
    if (!r)
        return ckpt_fail_memory(err);
    r->arena = ckpt_arena_new(0);
    rc = r->arena ? ckpt_uni_patterns_new(&r->patterns, err) : ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ru_read(r, info, err);
    if (rc == CKPT_OK)
        *out = r;
    else
        ckpt_uni_rules_free(r);
    return rc;
}

int ckpt_uni_rules_parse(ckpt_uni_rules **out, const char *text, ckpt_err *err)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    const ckpt_json_text json = {
        .name = "rules for joining slices", .at = text, .n = strlen(text), .max = RU_MAX_JSON};
    ckpt_value *info = NULL;
    int rc;

    *out = NULL;
    if (!arena)
        return ckpt_fail_memory(err);
    rc = ckpt_json_parse(&info, arena, &json, err);
    if (rc == CKPT_OK)
        rc = ckpt_uni_rules_new(out, info, err);
    if (rc != CKPT_OK) {
        ckpt_arena_free(arena);
        return rc;
    }
    (*out)->text = arena;
    return CKPT_OK;
}

void ckpt_uni_rules_free(ckpt_uni_rules *r)
{
    if (!r)
        return;
    for (unsigned i = 0; i < RU_N_LISTS; i++) {
        ckpt_vec_free(&r->list[i].entry);
        ckpt_vec_free(&r->list[i].open);
        ckpt_index_free(&r->list[i].exact);
    }
    ckpt_vec_free(&r->used);
    ckpt_vec_free(&r->counted);
    ckpt_uni_patterns_free(r->patterns);
    ckpt_arena_free(r->arena);
    ckpt_arena_free(r->text);
    ckpt_free(r);
}

/* ---- look-up ---- */

/* A parameter's name. */
typedef struct ru_name {
    const char *at;
    uint64_t n;
} ru_name;

static int ru_two(const ckpt_uni_rules *r, ru_list which, ru_name name, const ru_entry *a,
                  const ru_entry *b, ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EFORMAT, "%s: both '%.100s' and '%.100s' match %.*s", ru_keys[which],
                     ckpt_uni_patterns_text(r->patterns, a->pattern),
                     ckpt_uni_patterns_text(r->patterns, b->pattern),
                     (int)(name.n < 150 ? name.n : 150), name.at);
}

/*
 * Find the entry of a list that matches a name, or NULL.  Several matches are an error, except for
 * sub-parameters and pipeline patterns, where the first match wins.
 */
static int ru_match(const ckpt_uni_rules *r, ru_list which, ru_name name, ru_entry **out,
                    ckpt_err *err)
{
    const ru_table *list = &r->list[which];
    const ru_key key = {r, list, name.at, name.n};
    bool strict = which != RU_SUB && which != RU_PIPELINE;
    uint32_t exact = ckpt_index_find(&list->exact, ckpt_hash_bytes(name.at, (size_t)name.n, 0),
                                     ru_same, NULL, &key);

    *out = exact != CKPT_INDEX_NONE ? &list->entry.at[exact] : NULL;
    if (strict && *out && (*out)->twice)
        return ru_two(r, which, name, *out, *out, err);
    for (size_t i = 0; i < list->open.n; i++) {
        ru_entry *e = &list->entry.at[list->open.at[i]];
        bool yes = false;
        int rc = ckpt_uni_patterns_match(r->patterns, e->pattern, name.at, name.n, &yes, err);

        if (rc != CKPT_OK)
            return rc;
        if (yes && strict && *out)
            return ru_two(r, which, name, *out, e, err);
        if (yes && (!*out || e < *out))
            *out = e;
        if (yes && !strict)
            break;
    }
    return CKPT_OK;
}

/* Like ru_match, and mark the pattern as used. */
static int ru_use(ckpt_uni_rules *r, ru_list which, ru_name name, ru_entry **out, ckpt_err *err)
{
    int rc = ru_match(r, which, name, out, err);

    if (rc == CKPT_OK && *out && which >= RU_SAME && which <= RU_VOCABULARY)
        r->used.at[(*out)->pattern] = 1;
    return rc;
}

/* Fail, because the checkpoint declares that this parameter cannot be converted. */
static int ru_refuse(ru_name name, const ru_entry *e, ckpt_err *err)
{
    bool said = e->value->kind == CKPT_V_STR;

    return ckpt_fail(
        err, CKPT_EUNSUPPORTED,
        "tensor %.*s: the run that saved it declares that its slices cannot be joined%s%.200s",
        (int)(name.n < 150 ? name.n : 150), name.at, said ? ": " : "",
        said ? e->value->as.text.at : "");
}

/* Apply an affine map.  It replaces the other lists, so their matching patterns count as used. */
static int ru_affine(ckpt_uni_rules *r, ru_name name, ru_entry *e, ckpt_slice_rule *rule,
                     ckpt_err *err)
{
    static const ru_list others[] = {RU_SAME, RU_MEAN, RU_ROW, RU_TWO, RU_SUB};
    const char *text = ckpt_uni_patterns_text(r->patterns, e->pattern);
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < sizeof others / sizeof *others; i++) {
        ru_entry *ignored;

        rc = ru_use(r, others[i], name, &ignored, err);
    }
    if (rc == CKPT_OK && !e->affine)
        rc = ckpt_uni_affine_read(&e->affine, r->arena, e->value, text, err);
    rule->kind = CKPT_SLICE_AFFINE;
    rule->affine = e->affine;
    rule->pattern = text;
    return rc;
}

/* Apply a sub-parameter entry; its rule is made on first use. */
static int ru_sub(ckpt_uni_rules *r, ru_entry *e, ckpt_slice_rule *rule, ckpt_err *err)
{
    const char *text = ckpt_uni_patterns_text(r->patterns, e->pattern);
    ckpt_slice_rule *made = NULL;
    int rc = CKPT_OK;

    if (!e->rule && r->version >= 0.4 && !e->width)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "sub_param_shard_widths has no entry for '%.150s', which "
                         "universal_checkpoint_version %g requires",
                         text, r->version);
    if (!e->rule) {
        made = ckpt_arena_alloc(r->arena, sizeof *made);
        if (!made)
            return ckpt_fail_memory(err);
        made->pattern = text;
        made->entry = e->value;
        rc = ckpt_uni_sub_read(made, r->arena, ru_fields(e->value), e->width, err);
        if (rc != CKPT_OK)
            return rc;
        e->rule = made;
    }
    *rule = *e->rule;
    return CKPT_OK;
}

/* Try the lists in the order of their precedence. */
static int ru_lists(ckpt_uni_rules *r, ru_name name, ckpt_slice_rule *rule, ckpt_err *err)
{
    static const struct {
        ru_list list;
        ckpt_slice_rule rule;
    } step[] = {{RU_SAME, {.kind = CKPT_SLICE_SAME}},
                {RU_MEAN, {.kind = CKPT_SLICE_MEAN}},
                {RU_TWO, {.kind = CKPT_SLICE_SUB, .n_subs = 2}}};
    ru_entry *sub, *e = NULL;
    int rc = ru_use(r, RU_SUB, name, &sub, err);

    for (size_t i = 0; rc == CKPT_OK && i < sizeof step / sizeof *step; i++) {
        rc = ru_use(r, step[i].list, name, &e, err);
        if (rc == CKPT_OK && e) {
            *rule = step[i].rule;
            rule->pattern = ckpt_uni_patterns_text(r->patterns, e->pattern);
            return CKPT_OK;
        }
    }
    if (rc == CKPT_OK && sub)
        return ru_sub(r, sub, rule, err);
    if (rc == CKPT_OK)
        rc = ru_use(r, RU_ROW, name, &e, err);
    if (rc == CKPT_OK && e) {
        rule->axis = 1;
        rule->pattern = ckpt_uni_patterns_text(r->patterns, e->pattern);
    }
    return rc;
}

int ckpt_uni_rules_find(ckpt_uni_rules *rules, const char *name, uint64_t n_name,
                        ckpt_slice_rule *rule, ckpt_err *err)
{
    assert(rules && name && rule);
    const ru_name key = {name, n_name};
    ru_entry *e = NULL;
    int rc = ru_match(rules, RU_REFUSED, key, &e, err);

    *rule = (ckpt_slice_rule){0};
    if (rc == CKPT_OK && e)
        return ru_refuse(key, e, err);
    if (rc == CKPT_OK)
        rc = ru_match(rules, RU_AFFINE, key, &e, err);
    if (rc == CKPT_OK)
        rc = e ? ru_affine(rules, key, e, rule, err) : ru_lists(rules, key, rule, err);
    if (rc == CKPT_OK)
        rc = ru_use(rules, RU_VOCABULARY, key, &e, err);
    if (rc != CKPT_OK || !e)
        return rc;
    if (rules->vocabulary == 0)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "vocabulary_parameter_patterns: '%.100s' matches %.*s, but there is no "
                         "original_vocab_size",
                         ckpt_uni_patterns_text(rules->patterns, e->pattern),
                         (int)(n_name < 150 ? n_name : 150), name);
    rule->keep_rows = rules->vocabulary;
    return CKPT_OK;
}

const char *ckpt_uni_rules_unused(const ckpt_uni_rules *rules, size_t *cursor)
{
    for (size_t i = *cursor; i < rules->used.n; i++) {
        if (rules->counted.at[i] && !rules->used.at[i]) {
            *cursor = i + 1;
            return ckpt_uni_patterns_text(rules->patterns, (uint32_t)i);
        }
    }
    *cursor = rules->used.n;
    return NULL;
}
