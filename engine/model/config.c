/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c: reads a config.json of transformers: the settings of each architecture, and refusals of
 * those that would change results and are not supported.  config_classes.c has the table of keys.
 */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/config/config.h"
#include "engine/model/config_classes.h"
#include "engine/model/config_file.h"
#include "libckpt/codec/json/json.h"

#define CF_MAX_LAYERS 65536

/* Maximum elements of a model, so bytes of weights, gradients and state cannot overflow. */
#define CF_MAX_ELEMS (UINT64_C(1) << 56)

/* Names of activations in transformers; some are the same function, computed in another way. */
static const struct {
    const char *name;
    zt_act act;
} activations[] = {
    {"gelu", ZT_GELU},
    {"gelu_python", ZT_GELU},
    {"gelu_new", ZT_GELU_TANH},
    {"gelu_pytorch_tanh", ZT_GELU_TANH},
    {"gelu_python_tanh", ZT_GELU_TANH},
    {"gelu_fast", ZT_GELU_TANH},
    {"gelu_accurate", ZT_GELU_TANH},
    {"relu", ZT_RELU},
    {"tanh", ZT_TANH},
    {"silu", ZT_SILU},
    {"swish", ZT_SILU},
};

enum { CF_ACTIVATIONS = sizeof activations / sizeof *activations };

const char *zt_act_name(zt_act act)
{
    size_t i = 0;

    while (i < CF_ACTIVATIONS && activations[i].act != act)
        i++;
    return i < CF_ACTIVATIONS ? activations[i].name : "none";
}

/* ---- values ------------------------------------------------------------------------------ */

static bool cf_null(const ckpt_value *v)
{
    return !v || v->kind == CKPT_V_NONE;
}

/* Read a finite number from 0 to most. */
static int cf_real(const zt_config_file *f, const char *key, const ckpt_value *v, double most,
                   double *out)
{
    if (!zt_config_number(v, out) || !(*out >= 0 && *out <= most))
        return zt_config_fail(f, key, v,
                              most <= 1 ? "a number from 0 to 1" : "a number, 0 or more");
    return CKPT_OK;
}

static int cf_store(const zt_config_file *f, const zt_config_field *d, const char *key,
                    const ckpt_value *v)
{
    char *to = (char *)f->out + d->at;
    double x = 0;
    float narrow;
    int rc;

    if (d->kind == ZT_CF_SIZE || d->kind == ZT_CF_HEADS) {
        uint64_t n = 0;

        rc = zt_config_size(f, key, v, &n);
        memcpy(to, &n, sizeof n);
        return rc;
    }
    if (d->kind == ZT_CF_BOOL) {
        const bool b = v->as.i != 0;

        if (v->kind != CKPT_V_BOOL)
            return zt_config_fail(f, key, v, "true or false");
        memcpy(to, &b, sizeof b);
        return CKPT_OK;
    }
    rc = cf_real(f, key, v, d->kind == ZT_CF_RATE ? 1 : 1e30, &x);
    narrow = (float)x;
    if (rc == CKPT_OK && (d->kind == ZT_CF_ABOVE || d->kind == ZT_CF_CAP) && !(narrow > 0.0F))
        return zt_config_fail(f, key, v, "a number above 0");
    memcpy(to, &narrow, sizeof narrow);
    return rc;
}

static void cf_default(const zt_config_file *f, const zt_config_field *d)
{
    char *to = (char *)f->out + d->at;
    const uint64_t n = d->otherwise < 0 ? 0 : (uint64_t)d->otherwise;
    const bool b = d->otherwise > 0;
    const float x = (float)d->otherwise;

    if (d->kind == ZT_CF_SIZE || d->kind == ZT_CF_HEADS)
        memcpy(to, &n, sizeof n);
    else if (d->kind == ZT_CF_BOOL)
        memcpy(to, &b, sizeof b);
    else
        memcpy(to, &x, sizeof x);
}

/* Treat null as an absent key only where transformers does so. */
static int cf_field_read(const zt_config_file *f, const zt_config_field *d)
{
    const char *key = d->other && ckpt_value_get(f->json, d->other) ? d->other : d->key;
    const ckpt_value *v = ckpt_value_get(f->json, key);
    const bool may_be_null = d->otherwise < 0 || strcmp(key, "attention_dropout") == 0;

    if (!v || (may_be_null && cf_null(v))) {
        cf_default(f, d);
        return CKPT_OK;
    }
    if ((d->kind == ZT_CF_HEADS || d->kind == ZT_CF_CAP) && cf_null(v))
        return CKPT_OK; // 0: heads are filled in later, caps are off
    return cf_store(f, d, key, v);
}

static int cf_refuse(const zt_config_file *f, const zt_config_refusal *table)
{
    for (; table->key != NULL; table++) {
        const ckpt_value *v = ckpt_value_get(f->json, table->key);

        if (v && !zt_config_idle(v) && !(table->only && ckpt_value_is(v, table->only)))
            return ckpt_fail(f->err, CKPT_EUNSUPPORTED, "%s: %s is %s: %s", f->name, table->key,
                             zt_config_kind(v), table->why);
    }
    return CKPT_OK;
}

/* ---- the architecture -------------------------------------------------------------------- */

/* Find a class by name; NULL: not supported. */
static const zt_config_class *cf_class_named(const ckpt_value *name)
{
    for (size_t i = 0; i < ZT_CONFIG_CLASSES; i++) {
        if (ckpt_value_is(name, zt_config_classes[i].class_name))
            return &zt_config_classes[i];
    }
    return NULL;
}

/*
 * The class of a file without "architectures".  BERT counts as a classifier if the file has any
 * setting about labels (except two labels, which every file has), else as a masked language model.
 */
static const zt_config_class *cf_class_of_type(const ckpt_value *json)
{
    const ckpt_value *type = ckpt_value_get(json, "model_type");
    const ckpt_value *names = zt_config_get(json, "id2label");
    const bool labels = zt_config_get(json, "problem_type") || zt_config_get(json, "num_labels") ||
                        (names && ckpt_value_map(names).n != 2);

    for (size_t i = 0; i < ZT_CONFIG_CLASSES; i++) {
        if (ckpt_value_is(type, zt_config_classes[i].model_type) &&
            (labels || zt_config_classes[i].arch != ZT_BERT_CLASSIFIER))
            return &zt_config_classes[i];
    }
    return NULL;
}

/* The names of all classes, for a message. */
static const char *cf_known(ckpt_arena *arena)
{
    const char *text = zt_config_classes[0].class_name;

    for (size_t i = 1; i < ZT_CONFIG_CLASSES && text; i++)
        text = ckpt_arena_printf(arena, "%s%s%s", text, i + 1 < ZT_CONFIG_CLASSES ? ", " : " and ",
                                 zt_config_classes[i].class_name);
    return text ? text : "in zerotrain(1)";
}

/* Choose the class from "architectures", or else from "model_type". */
static int cf_choose(const zt_config_file *f, const zt_config_class **out)
{
    const ckpt_value *named = zt_config_get(f->json, "architectures");
    const ckpt_value *type = zt_config_get(f->json, "model_type");
    const ckpt_seq list = ckpt_value_seq(named);
    const char *found = "", *of = type && type->kind == CKPT_V_STR ? type->as.text.at : "absent";

    *out = NULL;
    if (named && named->kind != CKPT_V_LIST)
        return zt_config_fail(f, "architectures", named, "a list of class names");
    if (type && type->kind != CKPT_V_STR)
        return zt_config_fail(f, "model_type", type, "a name");
    for (uint64_t i = 0; i < list.n && !*out; i++) {
        *out = cf_class_named(list.at[i]);
        found =
            list.at[i]->kind == CKPT_V_STR ? list.at[i]->as.text.at : "an entry that is not a name";
    }
    if (list.n == 0) {
        *out = cf_class_of_type(f->json);
        found = "no architectures";
    }
    if (!*out)
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: found %.80s (model_type %.80s); the known models are %s", f->name,
                         found, of, cf_known(f->arena));
    if (type && !ckpt_value_is(type, (*out)->model_type))
        return ckpt_fail(f->err, CKPT_EFORMAT, "%s: architecture %s does not match model_type %s",
                         f->name, (*out)->class_name, type->as.text.at);
    return CKPT_OK;
}

/* ---- keys that need code of their own ------------------------------------------------------ */

static int cf_act(const zt_config_file *f, const char *key, zt_act otherwise)
{
    const ckpt_value *v = ckpt_value_get(f->json, key);

    f->out->act = otherwise;
    if (!v)
        return CKPT_OK;
    for (size_t i = 0; i < CF_ACTIVATIONS; i++) {
        if (ckpt_value_is(v, activations[i].name)) {
            f->out->act = activations[i].act;
            return CKPT_OK;
        }
    }
    return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                     "%s: %s is %s; supported: gelu, gelu_new, gelu_pytorch_tanh, relu, silu, tanh",
                     f->name, key, zt_config_kind(v));
}

/* Read the row of the word embedding that is never trained; negative values count from the end. */
static int cf_padding(const zt_config_file *f, int64_t otherwise)
{
    const ckpt_value *v = ckpt_value_get(f->json, "pad_token_id");
    const int64_t vocab = (int64_t)f->out->vocab;
    int64_t row = otherwise;

    if (v && v->kind == CKPT_V_INT) {
        row = v->as.i < 0 && v->as.i >= -vocab ? v->as.i + vocab : v->as.i;
        if (row < 0 || row >= vocab)
            return zt_config_fail(f, "pad_token_id", v, "a token of the vocabulary");
    } else if (v && v->kind != CKPT_V_NONE) {
        return zt_config_fail(f, "pad_token_id", v, "a token, or null");
    } else if (v) {
        row = -1;
    }
    if (row >= vocab)
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: pad_token_id is absent, and its default %" PRId64
                         " is outside the vocabulary of %" PRId64 " tokens",
                         f->name, row, vocab);
    f->out->padding = row;
    return CKPT_OK;
}

/* Read the number of classes: id2label, or num_labels of old files, or 2. */
static int cf_labels(const zt_config_file *f)
{
    const ckpt_value *names = zt_config_get(f->json, "id2label");
    const ckpt_value *number = zt_config_get(f->json, "num_labels");

    f->out->labels = 2;
    if (names && names->kind != CKPT_V_DICT)
        return zt_config_fail(f, "id2label", names, "an object");
    if (names)
        f->out->labels = names->as.map.n;
    else if (number)
        return zt_config_size(f, "num_labels", number, &f->out->labels);
    if (f->out->labels == 0)
        return zt_config_fail(f, "id2label", names, "at least one label");
    return CKPT_OK;
}

/* Choose the classifier's loss.  Without problem_type the number of labels decides. */
static int cf_problem(const zt_config_file *f)
{
    const ckpt_value *v = zt_config_get(f->json, "problem_type");
    zt_model_config *c = f->out;

    if (!v || (ckpt_value_is(v, "regression") && c->labels == 1) ||
        (ckpt_value_is(v, "single_label_classification") && c->labels > 1))
        return CKPT_OK;
    if (ckpt_value_is(v, "multi_label_classification")) {
        c->multi_label = true;
        return CKPT_OK;
    }
    if (ckpt_value_is(v, "regression"))
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: problem_type is regression with %" PRIu64
                         " labels; only one is supported",
                         f->name, c->labels);
    return zt_config_fail(f, "problem_type", v,
                          c->labels == 1 ? "regression or multi_label_classification for one label"
                                         : "regression, single_label_classification or "
                                           "multi_label_classification");
}

/*
 * Refuse pretraining_tp above 1 (an option of releases before 5), because its slices add up with
 * other roundings.
 */
static int cf_slices(const zt_config_file *f)
{
    const ckpt_value *v = zt_config_get(f->json, "pretraining_tp");

    if (v && v->kind != CKPT_V_INT)
        return zt_config_fail(f, "pretraining_tp", v, "a whole number");
    if (v && v->as.i > 1)
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: pretraining_tp is %" PRId64 "; only 1 is supported", f->name,
                         v->as.i);
    return CKPT_OK;
}

/* ---- each architecture ------------------------------------------------------------------- */

static int cf_bert(const zt_config_file *f)
{
    zt_model_config *c = f->out;
    int rc = f->sizes ? CKPT_OK : cf_act(f, "hidden_act", ZT_GELU);

    c->scale_attention = c->attention_bias = c->output_bias = c->mlp_bias = true;
    c->dropout_embed = c->dropout_hidden;
    if (c->dropout_classifier < 0)
        c->dropout_classifier = c->dropout_hidden;
    if (rc == CKPT_OK && !f->sizes)
        rc = cf_padding(f, 0);
    if (rc == CKPT_OK && c->arch == ZT_BERT_CLASSIFIER) {
        rc = cf_labels(f);
        if (rc == CKPT_OK && !f->sizes)
            rc = cf_problem(f);
    }
    return rc;
}

static int cf_gpt2(const zt_config_file *f)
{
    zt_model_config *c = f->out;

    c->attention_bias = c->output_bias = c->mlp_bias = true;
    c->padding = -1;
    if (c->inner == 0)
        c->inner = 4 * c->hidden;
    return f->sizes ? CKPT_OK : cf_act(f, "activation_function", ZT_GELU_TANH);
}

/* True if the file's model_type is this one. */
static bool cf_is(const zt_config_file *f, const char *type)
{
    return strcmp(f->out->model_type, type) == 0;
}

static int cf_llama(const zt_config_file *f)
{
    zt_model_config *c = f->out;
    const bool olmo2 = cf_is(f, "olmo2"), gemma = strncmp(c->model_type, "gemma", 5) == 0;
    const bool phi3 = cf_is(f, "phi3");
    int rc;

    c->fused = phi3;
    c->scale_attention = c->final_norm = true;
    c->output_bias = c->attention_bias;
    c->attention_bias = c->attention_bias || cf_is(f, "qwen2");
    c->qk_norm = cf_is(f, "qwen3") || cf_is(f, "gemma3_text") || olmo2;
    c->qk_whole = c->rope_exact = olmo2;
    c->norm_branch = c->norm_once = olmo2 || gemma;
    c->norm_plus_one = c->embed_scaled = gemma;
    c->norm_first = !olmo2;
    if (f->sizes)
        return CKPT_OK;
    rc = gemma ? cf_act(f, "hidden_activation", ZT_GELU_TANH) : cf_act(f, "hidden_act", ZT_SILU);
    if (rc == CKPT_OK)
        rc = cf_padding(f, olmo2 ? 1 : gemma ? 0 : phi3 ? 32000 : -1);
    if (rc == CKPT_OK)
        rc = cf_slices(f);
    return rc == CKPT_OK ? zt_config_rope(f) : rc;
}

/* Read true or false. */
static int cf_flag(const zt_config_file *f, const char *key, bool otherwise, bool *out)
{
    const ckpt_value *v = ckpt_value_get(f->json, key);

    *out = v ? v->as.i != 0 : otherwise;
    return v && v->kind != CKPT_V_BOOL ? zt_config_fail(f, key, v, "true or false") : CKPT_OK;
}

static int cf_opt(const zt_config_file *f)
{
    zt_model_config *c = f->out;
    bool affine = true, removed = false;
    int rc = cf_flag(f, "layer_norm_elementwise_affine", true, &affine);

    if (rc == CKPT_OK)
        rc = cf_flag(f, "_remove_final_layer_norm", false, &removed);
    if (rc == CKPT_OK && !affine)
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: layer_norm_elementwise_affine is false; norms without weights are "
                         "not supported",
                         f->name);
    c->scale_attention = true;
    c->output_bias = c->mlp_bias = c->attention_bias;
    c->norm_eps = 1e-5F; // LayerNorm's default
    c->final_norm = c->norm_first && !removed;
    if (c->embed_width == 0)
        c->embed_width = c->hidden;
    if (rc == CKPT_OK && !f->sizes)
        rc = cf_act(f, "activation_function", ZT_RELU);
    return rc == CKPT_OK && !f->sizes ? cf_padding(f, 1) : rc;
}

static int cf_neox(const zt_config_file *f)
{
    zt_model_config *c = f->out;
    int rc;

    c->scale_attention = c->norm_first = c->final_norm = c->fused = c->mlp_bias = true;
    c->output_bias = c->attention_bias;
    c->dropout_embed = c->dropout_hidden;
    c->padding = -1;
    if (f->sizes)
        return CKPT_OK;
    rc = cf_act(f, "hidden_act", ZT_GELU);
    return rc == CKPT_OK ? zt_config_rope(f) : rc;
}

/* Keys that BLOOM lacks have fixed values: 4 * hidden_size, and GELU by tanh. */
static int cf_bloom(const zt_config_file *f)
{
    zt_model_config *c = f->out;

    c->scale_attention = c->norm_first = c->final_norm = c->fused = c->alibi = true;
    c->attention_bias = c->output_bias = c->mlp_bias = true;
    c->inner = 4 * c->hidden;
    c->positions = 2048; // no table; the default length of samples
    c->act = ZT_GELU_TANH;
    c->padding = -1;
    return CKPT_OK;
}

/*
 * Read feed_forward_proj: an activation, or "gated-" and one.  "gated-gelu" is GELU by tanh, as in
 * transformers.
 */
static int cf_t5_act(const zt_config_file *f)
{
    const ckpt_value *v = ckpt_value_get(f->json, "feed_forward_proj");
    const char *name = v && v->kind == CKPT_V_STR ? v->as.text.at : "relu";

    f->out->gated = strncmp(name, "gated-", 6) == 0;
    name += f->out->gated ? 6 : 0;
    f->out->act = ZT_GELU_TANH;
    if (f->sizes || (f->out->gated && strcmp(name, "gelu") == 0))
        return CKPT_OK;
    for (size_t i = 0; i < CF_ACTIVATIONS && (!v || v->kind == CKPT_V_STR); i++) {
        f->out->act = activations[i].act;
        if (strcmp(activations[i].name, name) == 0)
            return CKPT_OK;
    }
    return ckpt_fail(
        f->err, CKPT_EUNSUPPORTED,
        "%s: feed_forward_proj is %s; supported: relu, gelu, gelu_new, silu, tanh, and "
        "these after gated-",
        f->name, zt_config_kind(v));
}

/* Refuse keys that contradict feed_forward_proj, because transformers follows them instead. */
static int cf_t5_same(const zt_config_file *f)
{
    const ckpt_value *act = zt_config_get(f->json, "dense_act_fn");
    const ckpt_value *gate = zt_config_get(f->json, "is_gated_act");
    bool same = !act || f->sizes;

    for (size_t i = 0; !same && i < CF_ACTIVATIONS; i++)
        same = ckpt_value_is(act, activations[i].name) && activations[i].act == f->out->act;
    if (same && (!gate || (gate->kind == CKPT_V_BOOL && (gate->as.i != 0) == f->out->gated)))
        return CKPT_OK;
    return ckpt_fail(f->err, CKPT_EUNSUPPORTED, "%s: %s is %s, which contradicts feed_forward_proj",
                     f->name, same ? "is_gated_act" : "dense_act_fn",
                     zt_config_kind(same ? gate : act));
}

/* Read a token of the vocabulary. */
static int cf_token(const zt_config_file *f, const char *key, uint64_t otherwise, uint64_t *out)
{
    const ckpt_value *v = zt_config_get(f->json, key);

    *out = otherwise;
    if (v && (v->kind != CKPT_V_INT || v->as.i < 0 || (uint64_t)v->as.i >= f->out->vocab))
        return zt_config_fail(f, key, v, "a token of the vocabulary");
    if (v)
        *out = (uint64_t)v->as.i;
    return CKPT_OK;
}

/*
 * T5 1.1 has its own map to the vocabulary and does not scale the decoder's output.
 * tie_word_embeddings says so, or, in files of transformers 5, scale_decoder_outputs.
 */
static int cf_t5(const zt_config_file *f)
{
    zt_model_config *c = f->out;
    const bool body = strcmp(c->class_name, ZT_CONFIG_T5_BODY) == 0;
    const bool given = zt_config_get(f->json, "scale_decoder_outputs") != NULL;
    const bool scale = given ? c->scale_outputs : c->tied;
    int rc = cf_t5_act(f);

    if (rc == CKPT_OK)
        rc = cf_t5_same(f);
    if (body && !f->sizes)
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: " ZT_CONFIG_T5_BODY " has no map to the vocabulary and so no loss; "
                         "T5ForConditionalGeneration has one",
                         f->name);
    c->positions = INT32_MAX; // relative positions have no limit
    c->dropout_embed = c->dropout_attention = c->dropout_hidden;
    c->decoder_layers = c->decoder_layers != 0 ? c->decoder_layers : c->layers;
    c->tied = body || (c->tied && c->scale_outputs);
    c->scale_outputs = scale;
    if (rc == CKPT_OK && c->buckets < 4)
        rc = ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                       "%s: relative_attention_num_buckets is %" PRIu64 "; at least 4 are needed",
                       f->name, c->buckets);
    if (rc != CKPT_OK || f->sizes)
        return rc;
    if (c->max_distance <= c->buckets / 2)
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: relative_attention_max_distance is %" PRIu64 "; with %" PRIu64
                         " buckets it must be above %" PRIu64,
                         f->name, c->max_distance, c->buckets, c->buckets / 2);
    rc = cf_token(f, "pad_token_id", 0, &c->decoder_pad);
    return rc == CKPT_OK ? cf_token(f, "decoder_start_token_id", c->decoder_pad, &c->decoder_start)
                         : rc;
}

/* ---- checks of all sizes ------------------------------------------------------------------- */

/* Estimate the elements of all weights, rounded up; false: overflow. */
static bool cf_elems(const zt_model_config *c, uint64_t *out)
{
    const uint64_t positions = c->arch == ZT_T5 ? c->buckets : c->positions;
    const uint64_t tables = 2 * c->vocab + positions + c->types + c->labels;
    const uint64_t wide = c->embed_width > c->hidden ? c->embed_width : c->hidden;
    uint64_t width, per_layer, layers, ends;

    // cannot overflow, because sizes are below 2^31
    return ckpt_mul(2 * (c->heads + c->kv_heads), c->head_width, &width) &&
           ckpt_add(width, 3 * c->inner + 16, &width) && ckpt_mul(width, c->hidden, &per_layer) &&
           ckpt_mul(per_layer, c->layers + 2 * c->decoder_layers, &layers) &&
           ckpt_mul(tables + 2 * c->hidden + 16, wide, &ends) && ckpt_add(layers, ends, out);
}

static int cf_check(const zt_config_file *f)
{
    zt_model_config *c = f->out;
    uint64_t n;

    // with head_dim set, Qwen3's and Mistral's heads need not add up to the hidden size
    if (c->hidden % c->heads != 0 && (c->head_width == 0 || strcmp(c->model_type, "llama") == 0))
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: hidden size %" PRIu64 " is not a multiple of the %" PRIu64
                         " attention heads",
                         f->name, c->hidden, c->heads);
    c->head_width = c->head_width != 0 ? c->head_width : c->hidden / c->heads;
    c->kv_heads = c->kv_heads != 0 ? c->kv_heads : c->heads;
    if (c->heads % c->kv_heads != 0)
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: %" PRIu64 " attention heads are not a multiple of %" PRIu64
                         " key heads (num_key_value_heads)",
                         f->name, c->heads, c->kv_heads);
    if (c->arch == ZT_LLAMA && c->head_width % 2 != 0)
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: heads of width %" PRIu64
                         " cannot be rotated by halves (head_dim must be even)",
                         f->name, c->head_width);
    if (c->layers > CF_MAX_LAYERS || c->decoder_layers > CF_MAX_LAYERS || !cf_elems(c, &n) ||
        n > CF_MAX_ELEMS)
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: the model is too large: %" PRIu64 " layers of width %" PRIu64
                         ", %" PRIu64 " tokens",
                         f->name, c->layers, c->hidden, c->vocab);
    return CKPT_OK;
}

static int cf_read(const zt_config_file *f)
{
    const zt_config_class *class = NULL;
    zt_model_config *c = f->out;
    int rc = CKPT_OK;

    if (f->json->kind != CKPT_V_DICT)
        return ckpt_fail(f->err, CKPT_EFORMAT, "%s: expected an object, found %s", f->name,
                         zt_config_kind(f->json));
    rc = cf_choose(f, &class);
    if (rc != CKPT_OK)
        return rc;
    c->arch = class->arch;
    c->class_name = class->class_name;
    c->model_type = class->model_type;
    c->json = f->json;
    rc = cf_refuse(f, zt_config_common_refusals);
    if (rc == CKPT_OK && c->arch != ZT_T5)
        rc = cf_refuse(f, zt_config_stack_refusals);
    if (rc == CKPT_OK)
        rc = cf_refuse(f, class->refusals);
    for (const zt_config_field *d = class->fields; rc == CKPT_OK && d->key; d++)
        rc = cf_field_read(f, d);
    if (rc == CKPT_OK)
        rc = c->arch == ZT_LLAMA   ? cf_llama(f)
             : c->arch == ZT_GPT2  ? cf_gpt2(f)
             : c->arch == ZT_OPT   ? cf_opt(f)
             : c->arch == ZT_NEOX  ? cf_neox(f)
             : c->arch == ZT_BLOOM ? cf_bloom(f)
             : c->arch == ZT_T5    ? cf_t5(f)
                                   : cf_bert(f);
    if (rc == CKPT_OK)
        rc = cf_check(f);
    return rc == CKPT_OK && !f->sizes ? zt_config_windows(f, class->windows) : rc;
}

static int cf_file(zt_model_config *out, ckpt_arena *arena, const char *path, bool sizes,
                   ckpt_err *err)
{
    zt_config_file f = {.out = out, .name = path, .sizes = sizes, .arena = arena, .err = err};
    ckpt_value *json = NULL;
    struct stat st;
    int rc;

    *out = (zt_model_config){.padding = -1};
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        f.name = ckpt_arena_printf(arena, "%s/config.json", path);
    if (!f.name)
        return ckpt_fail_memory(err);
    rc = ckpt_json_read(&json, arena, f.name, ZT_JSON_BYTES, err);
    if (rc != CKPT_OK)
        return rc;
    f.json = json;
    return cf_read(&f);
}

int zt_model_config_read(zt_model_config *out, ckpt_arena *arena, const char *path, ckpt_err *err)
{
    return cf_file(out, arena, path, false, err);
}

int zt_model_config_sizes(zt_model_config *out, ckpt_arena *arena, const char *path, ckpt_err *err)
{
    return cf_file(out, arena, path, true, err);
}
