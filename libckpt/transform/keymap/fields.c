/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fields.c: finds the fields of the source's configuration that the target does not express.
 *
 * A field such as attention_multiplier changes what a model computes. A GGUF file without a key for
 * it describes another model, although every tensor is right. A field is fine if the layout map
 * reads it, if a line `neutral` or `only` accepts its value, or if it is known not to change what a
 * model computes; of all others nobody knows, so the user is told.
 */
#include <string.h>

#include "libckpt/transform/keymap/expr.h"

/*
 * Fields of any model that change no result of a model with given weights: those of transformers'
 * base class, of its text generation, and of training. ckpt-maps(7) lists them.
 */
static const char *const rf_common[] = {
    // description, and how programs load the model
    "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_name_or_path",
    "_num_labels", "architectures", "attn_implementation", "custom_pipelines", "dtype",
    "finetuning_task", "id2label", "is_llama_config", "label2id", "language", "license",
    "model_type", "name_or_path", "num_labels", "output_past", "predict_special_tokens",
    "problem_type", "quantization", "quantization_config", "task_specific_params",
    "tokenizer_class", "torch_dtype", "torchscript", "transformers.js_config",
    "transformers_version", "unsloth_fixed", "unsloth_version", "use_bfloat16", "use_cache",
    // the outputs of a call, and how they are computed
    "chunk_size_feed_forward", "output_attentions", "output_hidden_states", "return_dict",
    "return_dict_in_generate", "tf_legacy_loss",
    // text generation and special tokens, which the tokenizer's files state
    "bad_words_ids", "begin_suppress_tokens", "bos_token_id", "cls_token_id",
    "decoder_start_token_id", "diversity_penalty", "do_sample", "early_stopping",
    "encoder_no_repeat_ngram_size", "eos_token_id", "exponential_decay_length_penalty",
    "forced_bos_token_id", "forced_eos_token_id", "length_penalty", "mask_token_id", "max_length",
    "max_new_tokens", "min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams",
    "num_return_sequences", "output_scores", "pad_token_id", "prefix", "remove_invalid_values",
    "repetition_penalty", "sep_token_id", "suppress_tokens", "temperature", "top_k", "top_p",
    "typical_p", "unk_token_id",
    // the tensors' shapes state it, or another field
    "max_sequence_length", "vocab_size",
    // training
    "gradient_checkpointing", "initializer_range", "output_router_logits", "router_aux_loss_coef",
    "router_jitter_noise", "router_z_loss_coef"};

/* Ends of names of fields that only training reads. */
static const char *const rf_dropout[] = {"dropout", "pdrop", "dropout_prob", "dropout_rate",
                                         "layerdrop"};

bool ckpt_rm_common_field(const char *name)
{
    const size_t n = strlen(name);

    for (size_t i = 0; i < sizeof rf_common / sizeof *rf_common; i++) {
        if (strcmp(rf_common[i], name) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof rf_dropout / sizeof *rf_dropout; i++) {
        const size_t m = strlen(rf_dropout[i]);
        if (n >= m && strcmp(name + n - m, rf_dropout[i]) == 0)
            return true;
    }
    return false;
}

static bool rf_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

/* True if an expression contains a name, or with `below` a longer one that begins with it. */
static bool rf_names(const char *text, const char *name, bool below)
{
    const size_t n = strlen(name);
    const char *at = text ? strstr(text, name) : NULL;

    for (; at; at = strstr(at + 1, name)) {
        if ((at == text || !rf_name_char(at[-1])) && (below ? at[n] == '.' : !rf_name_char(at[n])))
            return true;
    }
    return false;
}

static bool rf_lines_name(const ckpt_rm_lines *lines, const char *name, bool below)
{
    for (size_t i = 0; i < lines->n; i++) {
        if (rf_names(lines->at[i].text, name, below))
            return true;
    }
    return false;
}

/*
 * True if sizes, keys or conditions of the layout map, or the target's configuration, look the name
 * up, or one below it.
 */
static bool rf_read(const ckpt_rm_facts *f, const char *name, bool below)
{
    const ckpt_remap *r = f->r;
    bool found = rf_lines_name(&r->sizes, name, below) || rf_lines_name(&r->keys, name, below) ||
                 rf_lines_name(&r->config[f->how->backwards ? 0 : 1], name, below);

    for (size_t i = 0; !found && i < r->whens.n; i++)
        found = r->whens.at[i].key && rf_names(r->whens.at[i].key, name, below);
    for (size_t i = 0; !found && i < r->only.n; i++)
        found = r->only.at[i].key && rf_names(r->only.at[i].key, name, below);
    return found;
}

/* The search for fields without a place in the target. */
typedef struct rf_work {
    ckpt_map *map;
    const ckpt_rm_facts *f;
    const ckpt_rm_lines *lines; /* `neutral` and `only` */
    ckpt_rm_listed lost;
    ckpt_err *err;
} rf_work;

/* The verdict of the lines about one field. */
typedef struct rf_verdict {
    bool neutral, only;       /* such lines exist for this model */
    bool is_neutral, is_only; /* one of them accepts the value */
    bool optional;            /* the field may be missing */
    const ckpt_value *want;   /* the first value that `only` accepts */
} rf_verdict;

static bool rf_applies(const rf_work *w, const ckpt_rm_line *line, const char *name)
{
    bool known;

    return strcmp(line->key, name) == 0 &&
           (!line->when || ckpt_rm_holds(w->f, &w->f->r->only.at[line->when - 1], &known));
}

/* Compare the value of a field with the lines for it; v may be NULL: the field is missing. */
static int rf_judge(rf_verdict *out, const rf_work *w, const char *name, const ckpt_value *v)
{
    int rc = CKPT_OK;

    *out = (rf_verdict){.optional = true};
    for (size_t i = 0; rc == CKPT_OK && i < w->lines->n; i++) {
        const ckpt_rm_line *line = &w->lines->at[i];
        const ckpt_value *accepted = NULL;
        if (line->fallback || !rf_applies(w, line, name))
            continue;
        if (line->text)
            rc = ckpt_rm_expr(&accepted, w->f, line, NULL, w->err);
        const bool same = !line->text || (v && accepted && ckpt_rm_same(CKPT_KEY_F64, accepted, v));
        if (line->only) {
            out->only = true;
            out->is_only |= same;
            out->optional &= line->optional;
            out->want = out->want ? out->want : accepted;
        } else {
            out->neutral = true;
            out->is_neutral |= same;
        }
    }
    return rc;
}

/* Fail: programs that load the target compute with another value than the field has. */
static int rf_refuse(const rf_work *w, const char *name, const ckpt_value *v,
                     const ckpt_value *want)
{
    ckpt_rm_listed has = {0}, other = {0};
    int rc = v ? ckpt_rm_list_value(&has, w->f->arena, name, v, w->err) : CKPT_OK;

    if (rc == CKPT_OK && want)
        rc = ckpt_rm_list_value(&other, w->f->arena, name, want, w->err);
    if (rc != CKPT_OK)
        return rc;
    return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                     "config.json: %s%.100s is not supported by the target, whose loaders always "
                     "compute with %s: the model would give other results; to convert the weights "
                     "anyway and accept this, give --config FILE with a copy of config.json that "
                     "has %s",
                     v ? "" : "there is no ", v ? has.text : name,
                     other.text ? other.text : "another value",
                     other.text ? other.text : "another value");
}

static int rf_field(rf_work *w, const char *name, const ckpt_value *v)
{
    rf_verdict is;
    int rc = rf_judge(&is, w, name, v);

    if (rc != CKPT_OK || is.is_neutral || v->kind == CKPT_V_NONE)
        return rc;
    if (is.only && !is.is_only)
        return rf_refuse(w, name, v, is.want);
    if (is.only || is.neutral
            ? !is.neutral
            : ckpt_rm_unset(v) || (v->kind == CKPT_V_DICT && ckpt_value_map(v).n == 0) ||
                  rf_read(w->f, name, false) || ckpt_rm_common_field(name))
        return CKPT_OK;
    return ckpt_rm_list_value(&w->lost, w->f->arena, name, v, w->err);
}

/* True if a line makes this field neutral with each value, and all fields below it. */
static bool rf_all_neutral(const rf_work *w, const char *name)
{
    for (size_t i = 0; i < w->lines->n; i++) {
        const ckpt_rm_line *line = &w->lines->at[i];
        if (!line->only && !line->fallback && !line->text && rf_applies(w, line, name))
            return true;
    }
    return false;
}

/*
 * True if the map speaks of fields below this one ("rope_scaling.factor"), and does not say that
 * all of them are neutral.
 */
static bool rf_has_parts(const rf_work *w, const char *name)
{
    const size_t n = strlen(name);

    if (rf_all_neutral(w, name))
        return false;
    for (size_t i = 0; i < w->lines->n; i++) {
        const char *key = w->lines->at[i].key;
        if (strncmp(key, name, n) == 0 && key[n] == '.')
            return true;
    }
    return rf_read(w->f, name, true);
}

/* True if the map speaks of a field itself. */
static bool rf_has_own(const rf_work *w, const char *name)
{
    for (size_t i = 0; i < w->lines->n; i++) {
        if (strcmp(w->lines->at[i].key, name) == 0)
            return true;
    }
    return rf_read(w->f, name, false);
}

/* Refuse a value where the map expects a dict, whose fields it would take for absent. */
static int rf_no_dict(const rf_work *w, const char *name, const ckpt_value *v)
{
    ckpt_rm_listed has = {0};
    int rc = ckpt_rm_list_value(&has, w->f->arena, name, v, w->err);

    return rc == CKPT_OK ? ckpt_fail(w->err, CKPT_EFORMAT,
                                     "config.json: %s: expected an object with fields, or null; "
                                     "correct config.json, or give another one with --config",
                                     has.text)
                         : rc;
}

/* Look at all fields of a dict whose name is `above`, "" for the configuration itself. */
static int rf_dict(rf_work *w, const ckpt_value *config, const char *above, unsigned depth)
{
    const ckpt_dict all = ckpt_value_map(config);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        const ckpt_value *key = all.at[i].key, *v = all.at[i].value;
        if (key->kind != CKPT_V_STR)
            continue;
        // the language model's values, where names without a prefix are looked up, too
        const bool text = v->kind == CKPT_V_DICT && !*above &&
                          (ckpt_value_is(key, "text_config") || ckpt_value_is(key, "model"));
        const char *name =
            ckpt_arena_printf(w->f->arena, "%s%s%s", above, *above ? "." : "", key->as.text.at);
        if (!name)
            rc = ckpt_fail_memory(w->err);
        else if (text && !rf_all_neutral(w, name))
            rc = rf_dict(w, v, "", depth + 1);
        else if (v->kind == CKPT_V_DICT && depth < 4 && rf_has_parts(w, name))
            rc = rf_dict(w, v, name, depth + 1);
        else if (v->kind != CKPT_V_DICT && v->kind != CKPT_V_NONE && !ckpt_rm_unset(v) &&
                 rf_has_parts(w, name) && !rf_has_own(w, name))
            rc = rf_no_dict(w, name, v);
        else
            rc = rf_field(w, name, v);
    }
    return rc;
}

/* Judge the value that a field has which the configuration does not state. */
static int rf_fallback(rf_work *w, const ckpt_rm_line *line)
{
    const ckpt_value *v = NULL;
    int rc = ckpt_rm_expr(&v, w->f, line, NULL, w->err);

    return rc == CKPT_OK && v ? rf_field(w, line->key, v) : rc;
}

/*
 * Refuse a configuration without a field whose default differs from the target's value; `default`
 * lines state other defaults.
 */
static int rf_missing(rf_work *w, const ckpt_value *config)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->lines->n; i++) {
        const ckpt_rm_line *line = &w->lines->at[i];
        const ckpt_value *v = ckpt_rm_in(config, line->key);
        rf_verdict is;
        if (!rf_applies(w, line, line->key))
            continue;
        if (line->fallback && !v)
            rc = rf_fallback(w, line);
        if (!line->only || line->optional || (v && v->kind != CKPT_V_NONE))
            continue;
        rc = rf_judge(&is, w, line->key, NULL);
        if (rc == CKPT_OK)
            rc = rf_refuse(w, line->key, NULL, is.want);
    }
    return rc;
}

int ckpt_rm_fields(ckpt_map *map, const ckpt_rm_facts *f, ckpt_err *err)
{
    const ckpt_value *config = f->how->model       ? f->how->model
                               : map->config.value ? map->config.value
                                                   : f->beside[0];
    rf_work w = {.map = map, .f = f, .lines = &f->r->fields[f->how->backwards ? 1 : 0], .err = err};

    if (w.lines->n == 0 || !config)
        return CKPT_OK;
    int rc = rf_missing(&w, config);
    if (rc == CKPT_OK)
        rc = rf_dict(&w, config, "", 0);
    if (rc == CKPT_OK && w.lost.text)
        rc = ckpt_map_note(map, CKPT_WARNING, err,
                           "config.json: fields that may change what the model computes have no "
                           "place in the target, which describes a model without them: %s",
                           w.lost.text);
    return rc;
}
