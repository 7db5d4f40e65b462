/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.c: owns the reading of universal_checkpoint_info, and finding a parameter's rule in it.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/rules/entry.h"
#include "formats/rules/pattern.h"
#include "formats/rules/rules.h"
#include "libckpt/base/index.h"
#include "libckpt/base/vec.h"
#include "libckpt/codec/json/json.h"

enum { UR_MAX_JSON = 64 << 20 }; /* bytes of rules given as text */

/* The lists of patterns, in the order in which they are read. */
typedef enum ur_list {
    UR_REFUSED,
    UR_AFFINE,
    UR_SAME,
    UR_MEAN,
    UR_TWO,
    UR_SUB,
    UR_ROW,
    UR_VOCABULARY,
    UR_PIPELINE,
    UR_N_LISTS
} ur_list;

static const char *const ur_keys[UR_N_LISTS] = {
    [UR_REFUSED] = "autotp_unsupported_parameter_patterns",
    [UR_AFFINE] = "affine_map",
    [UR_SAME] = "tp_replicated_parameter_patterns",
    [UR_MEAN] = "parameter_to_average_patterns",
    [UR_TWO] = "parameter_with_2_sub_params_cat_dim_0",
    [UR_SUB] = "parameter_with_sub_params",
    [UR_ROW] = "parameter_with_row_parallelism_patterns",
    [UR_VOCABULARY] = "vocabulary_parameter_patterns",
    [UR_PIPELINE] = "pipeline_replicated_parameter_patterns",
};

/* One pattern of a list, with what the list says about it. */
typedef struct ur_entry {
    uint32_t pattern;
    bool twice; /* the list holds the text once more */
    const ckpt_value
        *value; /* REFUSED: reason; AFFINE: the parameter's map; SUB: the list's entry */
    const ckpt_value *width;     /* SUB: of sub_param_shard_widths, or NULL */
    const ckpt_affine *affine;   /* AFFINE: made when first needed */
    const ckpt_slice_rule *rule; /* SUB: made when first needed */
} ur_entry;

CKPT_VEC(ur_entries, ur_entry);
CKPT_VEC(ur_numbers, uint32_t);

typedef struct ur_table {
    ur_entries entry;
    ckpt_index exact; /* entries that match one name, by that name */
    ur_numbers open;  /* entries that must be tried */
} ur_table;

struct ckpt_uni_rules {
    ckpt_arena *arena;
    ckpt_arena *text; /* values parsed from JSON, or NULL */
    ckpt_uni_patterns *patterns;
    ur_table list[UR_N_LISTS];
    ckpt_bytes used;    /* per pattern: 1 once it has matched in a list that must be used up */
    ckpt_bytes counted; /* per pattern: 1 if it stands in such a list */
    double version;
    uint64_t vocabulary;
};

/* ---- the lists ---- */

typedef struct ur_key {
    const ckpt_uni_rules *rules;
    const ur_table *list;
    const char *name;
    uint64_t n;
} ur_key;

/* Entry `number` matches exactly the key's name. */
static bool ur_same(const void *ctx, uint32_t number, const void *key)
{
    const ur_key *k = key;
    uint64_t n = 0;
    const char *text =
        ckpt_uni_patterns_exact(k->rules->patterns, k->list->entry.at[number].pattern, &n);

    (void)ctx;
    return text && n == k->n && memcmp(text, k->name, (size_t)n) == 0;
}

/* Append a pattern to a list. */
static int ur_add(ckpt_uni_rules *r, ur_list which, const ckpt_value *text, const ckpt_value *value,
                  ckpt_err *err)
{
    ur_table *list = &r->list[which];
    ur_entry *e;
    ur_key key = {.rules = r, .list = list};
    uint32_t pattern, number = (uint32_t)list->entry.n, hash, *open, before;
    int rc;

    if (text->kind != CKPT_V_STR)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: a pattern that is no string", ur_keys[which]);
    rc = ckpt_uni_patterns_add(r->patterns, text->as.text.at, text->as.text.n, &pattern, err);
    if (rc != CKPT_OK)
        return rc;
    while (r->used.n <= pattern) {
        if (!ckpt_bytes_add(&r->used, NULL, 1) || !ckpt_bytes_add(&r->counted, NULL, 1))
            return ckpt_fail_memory(err);
    }
    r->counted.at[pattern] |= which >= UR_SAME && which <= UR_VOCABULARY;
    e = ckpt_vec_push(&list->entry);
    if (!e)
        return ckpt_fail_memory(err);
    *e = (ur_entry){.pattern = pattern, .value = value};
    key.name = ckpt_uni_patterns_exact(r->patterns, pattern, &key.n);
    if (!key.name) {
        open = ckpt_vec_push(&list->open);
        if (!open)
            return ckpt_fail_memory(err);
        *open = number;
        return CKPT_OK;
    }
    hash = ckpt_hash_bytes(key.name, (size_t)key.n, 0);
    before = ckpt_index_find(&list->exact, hash, ur_same, NULL, &key);
    if (before != CKPT_INDEX_NONE) {
        list->entry.at[before].twice = true;
        return CKPT_OK;
    }
    return ckpt_index_add(&list->exact, hash, number) ? CKPT_OK : ckpt_fail_memory(err);
}

/* A value that must be a list of patterns, if it is there. */
static int ur_read_list(ckpt_uni_rules *r, ur_list which, const ckpt_value *v,
                        const ckpt_value *value, ckpt_err *err)
{
    ckpt_seq seq = ckpt_value_seq(v);
    int rc = CKPT_OK;

    if (!v || v->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (v->kind != CKPT_V_LIST && v->kind != CKPT_V_TUPLE && v->kind != CKPT_V_SET)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: not a list of patterns", ur_keys[which]);
    for (uint64_t i = 0; rc == CKPT_OK && i < seq.n; i++)
        rc = ur_add(r, which, seq.at[i], value, err);
    return rc;
}

/* A value that must be a dict of patterns, if it is there. */
static int ur_read_dict(ckpt_uni_rules *r, ur_list which, const ckpt_value *v, ckpt_err *err)
{
    ckpt_dict map = ckpt_value_map(v);
    int rc = CKPT_OK;

    if (!v || v->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (v->kind != CKPT_V_DICT && v->kind != CKPT_V_ODICT)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: not a dict of patterns", ur_keys[which]);
    for (uint64_t i = 0; rc == CKPT_OK && i < map.n; i++)
        rc = ur_add(r, which, map.at[i].key, map.at[i].value, err);
    return rc;
}

/* affine_map: {'version': 1, 'params': {pattern: map}}. */
static int ur_read_affine(ckpt_uni_rules *r, const ckpt_value *v, ckpt_err *err)
{
    const ckpt_value *version = ckpt_value_get(v, "version");
    int64_t n = 1;

    if (!v || v->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (v->kind != CKPT_V_DICT && v->kind != CKPT_V_ODICT)
        return ckpt_fail(err, CKPT_EFORMAT, "affine_map: not a dict");
    if (version && !ckpt_value_as_int(version, &n))
        return ckpt_fail(err, CKPT_EFORMAT, "affine_map: its version is no integer");
    if (n > 1)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "affine_map: version %" PRId64 "; this program knows version 1", n);
    return ur_read_dict(r, UR_AFFINE, ckpt_value_get(v, "params"), err);
}

/* The fields of a SubparamShape: an entry is a dict of them or an object with such a state. */
static const ckpt_value *ur_fields(const ckpt_value *entry)
{
    return entry->kind == CKPT_V_OBJECT ? entry->as.object->state : entry;
}

/* sub_param_shard_widths: {pattern: widths}, for entries of the list of sub-parameters. */
static int ur_read_widths(ckpt_uni_rules *r, const ckpt_value *v, ckpt_err *err)
{
    ur_entries *entry = &r->list[UR_SUB].entry;
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

/* parameter_with_sub_params, with the widths that stand beside it. */
static int ur_read_subs(ckpt_uni_rules *r, const ckpt_value *info, ckpt_err *err)
{
    const ckpt_value *v = ckpt_value_get(info, ur_keys[UR_SUB]);
    const ckpt_value *widths = ckpt_value_get(info, "sub_param_shard_widths");
    ckpt_seq seq = ckpt_value_seq(v);
    int rc = CKPT_OK;

    if (v && v->kind != CKPT_V_NONE && v->kind != CKPT_V_LIST && v->kind != CKPT_V_TUPLE)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: not a list", ur_keys[UR_SUB]);
    for (uint64_t i = 0; rc == CKPT_OK && i < seq.n; i++) {
        const ckpt_value *patterns = ckpt_value_get(ur_fields(seq.at[i]), "patterns");

        if (!patterns)
            return ckpt_fail(err, CKPT_EFORMAT, "%s: entry %" PRIu64 " has no patterns",
                             ur_keys[UR_SUB], i);
        rc = ur_read_list(r, UR_SUB, patterns, seq.at[i], err);
    }
    return rc == CKPT_OK ? ur_read_widths(r, widths, err) : rc;
}

/* universal_checkpoint_version and original_vocab_size. */
static int ur_read_numbers(ckpt_uni_rules *r, const ckpt_value *info, ckpt_err *err)
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

/* All lists. */
static int ur_read(ckpt_uni_rules *r, const ckpt_value *info, ckpt_err *err)
{
    static const ur_list plain[] = {UR_SAME, UR_MEAN, UR_TWO, UR_ROW, UR_VOCABULARY, UR_PIPELINE};
    int rc = CKPT_OK;

    if (!info)
        return CKPT_OK;
    if (info->kind != CKPT_V_DICT && info->kind != CKPT_V_ODICT)
        return ckpt_fail(err, CKPT_EFORMAT, "universal_checkpoint_info: not a dict");
    for (size_t i = 0; rc == CKPT_OK && i < sizeof plain / sizeof *plain; i++)
        rc = ur_read_list(r, plain[i], ckpt_value_get(info, ur_keys[plain[i]]), NULL, err);
    if (rc == CKPT_OK)
        rc = ur_read_dict(r, UR_REFUSED, ckpt_value_get(info, ur_keys[UR_REFUSED]), err);
    if (rc == CKPT_OK)
        rc = ur_read_affine(r, ckpt_value_get(info, ur_keys[UR_AFFINE]), err);
    if (rc == CKPT_OK)
        rc = ur_read_subs(r, info, err);
    return rc == CKPT_OK ? ur_read_numbers(r, info, err) : rc;
}

int ckpt_uni_rules_new(ckpt_uni_rules **out, const ckpt_value *info, ckpt_err *err)
{
    ckpt_uni_rules *r = ckpt_alloc(sizeof *r);
    int rc;

    *out = NULL;
    if (!r)
        return ckpt_fail_memory(err);
    r->arena = ckpt_arena_new(0);
    rc = r->arena ? ckpt_uni_patterns_new(&r->patterns, err) : ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ur_read(r, info, err);
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
        .name = "rules for joining slices", .at = text, .n = strlen(text), .max = UR_MAX_JSON};
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
    for (unsigned i = 0; i < UR_N_LISTS; i++) {
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

/* ---- finding ---- */

/* A parameter's name. */
typedef struct ur_name {
    const char *at;
    uint64_t n;
} ur_name;

static int ur_two(const ckpt_uni_rules *r, ur_list which, ur_name name, const ur_entry *a,
                  const ur_entry *b, ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EFORMAT, "%s: both '%.100s' and '%.100s' match %.*s", ur_keys[which],
                     ckpt_uni_patterns_text(r->patterns, a->pattern),
                     ckpt_uni_patterns_text(r->patterns, b->pattern),
                     (int)(name.n < 150 ? name.n : 150), name.at);
}

/*
 * The entry of a list that matches a name, or NULL.  More than one is an error, but for
 * sub-parameters and pipeline patterns, where the first one counts.
 */
static int ur_match(const ckpt_uni_rules *r, ur_list which, ur_name name, ur_entry **out,
                    ckpt_err *err)
{
    const ur_table *list = &r->list[which];
    const ur_key key = {r, list, name.at, name.n};
    bool strict = which != UR_SUB && which != UR_PIPELINE;
    uint32_t exact = ckpt_index_find(&list->exact, ckpt_hash_bytes(name.at, (size_t)name.n, 0),
                                     ur_same, NULL, &key);

    *out = exact != CKPT_INDEX_NONE ? &list->entry.at[exact] : NULL;
    if (strict && *out && (*out)->twice)
        return ur_two(r, which, name, *out, *out, err);
    for (size_t i = 0; i < list->open.n; i++) {
        ur_entry *e = &list->entry.at[list->open.at[i]];
        bool yes = false;
        int rc = ckpt_uni_patterns_match(r->patterns, e->pattern, name.at, name.n, &yes, err);

        if (rc != CKPT_OK)
            return rc;
        if (yes && strict && *out)
            return ur_two(r, which, name, *out, e, err);
        if (yes && (!*out || e < *out))
            *out = e;
        if (yes && !strict)
            break;
    }
    return CKPT_OK;
}

/* The same, and the pattern has been of use. */
static int ur_use(ckpt_uni_rules *r, ur_list which, ur_name name, ur_entry **out, ckpt_err *err)
{
    int rc = ur_match(r, which, name, out, err);

    if (rc == CKPT_OK && *out && which >= UR_SAME && which <= UR_VOCABULARY)
        r->used.at[(*out)->pattern] = 1;
    return rc;
}

/* Failure: what the checkpoint itself says cannot be converted. */
static int ur_refuse(ur_name name, const ur_entry *e, ckpt_err *err)
{
    bool said = e->value->kind == CKPT_V_STR;

    return ckpt_fail(
        err, CKPT_EUNSUPPORTED,
        "tensor %.*s: the run that saved it declares that its slices cannot be joined%s%.200s",
        (int)(name.n < 150 ? name.n : 150), name.at, said ? ": " : "",
        said ? e->value->as.text.at : "");
}

/* An affine map was found: it stands instead of the lists, whose patterns are used up by it. */
static int ur_affine(ckpt_uni_rules *r, ur_name name, ur_entry *e, ckpt_slice_rule *rule,
                     ckpt_err *err)
{
    static const ur_list others[] = {UR_SAME, UR_MEAN, UR_ROW, UR_TWO, UR_SUB};
    const char *text = ckpt_uni_patterns_text(r->patterns, e->pattern);
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < sizeof others / sizeof *others; i++) {
        ur_entry *ignored;

        rc = ur_use(r, others[i], name, &ignored, err);
    }
    if (rc == CKPT_OK && !e->affine)
        rc = ckpt_uni_affine_read(&e->affine, r->arena, e->value, text, err);
    rule->kind = CKPT_SLICE_AFFINE;
    rule->affine = e->affine;
    rule->pattern = text;
    return rc;
}

/* Sub-parameters: the entry's rule, made when first needed. */
static int ur_sub(ckpt_uni_rules *r, ur_entry *e, ckpt_slice_rule *rule, ckpt_err *err)
{
    const char *text = ckpt_uni_patterns_text(r->patterns, e->pattern);
    ckpt_slice_rule *made = NULL;
    int rc = CKPT_OK;

    if (!e->rule && r->version >= 0.4 && !e->width)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "sub_param_shard_widths: nothing about '%.150s', which "
                         "universal_checkpoint_version %g wants",
                         text, r->version);
    if (!e->rule) {
        made = ckpt_arena_alloc(r->arena, sizeof *made);
        if (!made)
            return ckpt_fail_memory(err);
        made->pattern = text;
        made->entry = e->value;
        rc = ckpt_uni_sub_read(made, r->arena, ur_fields(e->value), e->width, err);
        if (rc != CKPT_OK)
            return rc;
        e->rule = made;
    }
    *rule = *e->rule;
    return CKPT_OK;
}

/* The lists in the order of their precedence. */
static int ur_lists(ckpt_uni_rules *r, ur_name name, ckpt_slice_rule *rule, ckpt_err *err)
{
    static const struct {
        ur_list list;
        ckpt_slice_rule rule;
    } step[] = {{UR_SAME, {.kind = CKPT_SLICE_SAME}},
                {UR_MEAN, {.kind = CKPT_SLICE_MEAN}},
                {UR_TWO, {.kind = CKPT_SLICE_SUB, .n_subs = 2}}};
    ur_entry *sub, *e = NULL;
    int rc = ur_use(r, UR_SUB, name, &sub, err);

    for (size_t i = 0; rc == CKPT_OK && i < sizeof step / sizeof *step; i++) {
        rc = ur_use(r, step[i].list, name, &e, err);
        if (rc == CKPT_OK && e) {
            *rule = step[i].rule;
            rule->pattern = ckpt_uni_patterns_text(r->patterns, e->pattern);
            return CKPT_OK;
        }
    }
    if (rc == CKPT_OK && sub)
        return ur_sub(r, sub, rule, err);
    if (rc == CKPT_OK)
        rc = ur_use(r, UR_ROW, name, &e, err);
    if (rc == CKPT_OK && e) {
        rule->axis = 1;
        rule->pattern = ckpt_uni_patterns_text(r->patterns, e->pattern);
    }
    return rc;
}

int ckpt_uni_rules_find(ckpt_uni_rules *rules, const char *name, uint64_t n_name,
                        ckpt_slice_rule *rule, ckpt_err *err)
{
    const ur_name key = {name, n_name};
    ur_entry *e = NULL;
    int rc = ur_match(rules, UR_REFUSED, key, &e, err);

    *rule = (ckpt_slice_rule){0};
    if (rc == CKPT_OK && e)
        return ur_refuse(key, e, err);
    if (rc == CKPT_OK)
        rc = ur_match(rules, UR_AFFINE, key, &e, err);
    if (rc == CKPT_OK)
        rc = e ? ur_affine(rules, key, e, rule, err) : ur_lists(rules, key, rule, err);
    if (rc == CKPT_OK)
        rc = ur_use(rules, UR_VOCABULARY, key, &e, err);
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
