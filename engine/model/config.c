/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c: owns reading a config.json of transformers: the keys of each architecture, their
 * defaults, and what would change results and is not supported.
 *
 * Source: BertConfig, GPT2Config and LlamaConfig of transformers 5.23 and what their models read;
 * older spellings (rope_scaling, position_embedding_type, num_labels) as earlier releases wrote
 * them.  Keys that no model reads, or that only choose how results are returned, are not looked at.
 */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/config/config.h"
#include "engine/model/model.h"
#include "libckpt/codec/json/json.h"

/* Sizes are at most this: tokens and positions are int32. */
#define CF_MAX_SIZE   INT32_MAX
#define CF_MAX_LAYERS 65536

/* Elements of a model, at most: so that bytes of weights, gradients and state cannot overflow. */
#define CF_MAX_ELEMS (UINT64_C(1) << 56)

typedef enum cf_kind { CF_SIZE, CF_BOOL, CF_RATE, CF_REAL } cf_kind;

/* A key of the file, and where it goes. */
typedef struct cf_field {
    const char *key, *other; /* other: a second spelling that wins over the first; or NULL */
    cf_kind kind;
    size_t at;        /* in zt_model_config: uint64_t, bool, float, float */
    double otherwise; /* when the key is absent; below 0: null counts as absent, decided later */
} cf_field;

/* A key that must be absent, null, false, 0, empty, or the word `only`. */
typedef struct cf_refusal {
    const char *key, *only, *why;
} cf_refusal;

typedef struct cf_class {
    const char *class_name, *model_type;
    zt_arch arch;
    const cf_field *fields;
    const cf_refusal *refusals;
} cf_class;

/* What one reading needs everywhere. */
typedef struct cf_file {
    zt_model_config *out;
    const ckpt_value *json;
    const char *name;
    ckpt_err *err;
} cf_file;

#define CF_AT(member) offsetof(zt_model_config, member)

/* Sizes that have no default of their own are set to 0 and filled in later. */
enum { CF_LATER = -1 };

static const cf_field bert_fields[] = {
    {"vocab_size", NULL, CF_SIZE, CF_AT(vocab), 30522},
    {"hidden_size", NULL, CF_SIZE, CF_AT(hidden), 768},
    {"num_hidden_layers", NULL, CF_SIZE, CF_AT(layers), 12},
    {"num_attention_heads", NULL, CF_SIZE, CF_AT(heads), 12},
    {"intermediate_size", NULL, CF_SIZE, CF_AT(inner), 3072},
    {"max_position_embeddings", NULL, CF_SIZE, CF_AT(positions), 512},
    {"type_vocab_size", NULL, CF_SIZE, CF_AT(types), 2},
    {"hidden_dropout_prob", NULL, CF_RATE, CF_AT(dropout_hidden), 0.1},
    {"attention_probs_dropout_prob", NULL, CF_RATE, CF_AT(dropout_attention), 0.1},
    {"classifier_dropout", NULL, CF_RATE, CF_AT(dropout_classifier), CF_LATER},
    {"initializer_range", NULL, CF_REAL, CF_AT(init_range), 0.02},
    {"layer_norm_eps", NULL, CF_REAL, CF_AT(norm_eps), 1e-12},
    {"tie_word_embeddings", NULL, CF_BOOL, CF_AT(tied), 1},
    {NULL, NULL, CF_SIZE, 0, 0},
};

static const cf_field gpt2_fields[] = {
    {"vocab_size", NULL, CF_SIZE, CF_AT(vocab), 50257},
    {"n_positions", "max_position_embeddings", CF_SIZE, CF_AT(positions), 1024},
    {"n_embd", "hidden_size", CF_SIZE, CF_AT(hidden), 768},
    {"n_layer", "num_hidden_layers", CF_SIZE, CF_AT(layers), 12},
    {"n_head", "num_attention_heads", CF_SIZE, CF_AT(heads), 12},
    {"n_inner", NULL, CF_SIZE, CF_AT(inner), CF_LATER},
    {"embd_pdrop", NULL, CF_RATE, CF_AT(dropout_embed), 0.1},
    {"attn_pdrop", NULL, CF_RATE, CF_AT(dropout_attention), 0.1},
    {"resid_pdrop", NULL, CF_RATE, CF_AT(dropout_hidden), 0.1},
    {"initializer_range", NULL, CF_REAL, CF_AT(init_range), 0.02},
    {"layer_norm_epsilon", NULL, CF_REAL, CF_AT(norm_eps), 1e-5},
    {"tie_word_embeddings", NULL, CF_BOOL, CF_AT(tied), 1},
    {"scale_attn_weights", NULL, CF_BOOL, CF_AT(scale_attention), 1},
    {"scale_attn_by_inverse_layer_idx", NULL, CF_BOOL, CF_AT(scale_by_layer), 0},
    {NULL, NULL, CF_SIZE, 0, 0},
};

static const cf_field llama_fields[] = {
    {"vocab_size", NULL, CF_SIZE, CF_AT(vocab), 32000},
    {"hidden_size", NULL, CF_SIZE, CF_AT(hidden), 4096},
    {"num_hidden_layers", NULL, CF_SIZE, CF_AT(layers), 32},
    {"num_attention_heads", NULL, CF_SIZE, CF_AT(heads), 32},
    {"num_key_value_heads", NULL, CF_SIZE, CF_AT(kv_heads), CF_LATER},
    {"head_dim", NULL, CF_SIZE, CF_AT(head_width), CF_LATER},
    {"intermediate_size", NULL, CF_SIZE, CF_AT(inner), 11008},
    {"max_position_embeddings", NULL, CF_SIZE, CF_AT(positions), 2048},
    {"attention_dropout", NULL, CF_RATE, CF_AT(dropout_attention), 0},
    {"initializer_range", NULL, CF_REAL, CF_AT(init_range), 0.02},
    {"rms_norm_eps", NULL, CF_REAL, CF_AT(norm_eps), 1e-6},
    {"tie_word_embeddings", NULL, CF_BOOL, CF_AT(tied), 0},
    {"attention_bias", NULL, CF_BOOL, CF_AT(attention_bias), 0},
    {"mlp_bias", NULL, CF_BOOL, CF_AT(mlp_bias), 0},
    {NULL, NULL, CF_SIZE, 0, 0},
};

static const cf_refusal common_refusals[] = {
    {"is_encoder_decoder", NULL, "models of an encoder and a decoder are not supported"},
    {"add_cross_attention", NULL, "cross-attention is not supported"},
    {"quantization_config", NULL, "quantized weights cannot be trained here"},
    {"per_layer_config", NULL, "layers that differ from each other are not supported"},
    {"pruned_heads", NULL, "pruned heads are not supported"},
    {NULL, NULL, NULL},
};

static const cf_refusal bert_refusals[] = {
    {"is_decoder", NULL, "BERT is supported as an encoder only"},
    {"position_embedding_type", "absolute", "only absolute positions are supported"},
    {"embedding_size", NULL, "embeddings of another width than hidden_size are not supported"},
    {NULL, NULL, NULL},
};

static const cf_refusal no_refusals[] = {
    {NULL, NULL, NULL},
};

static const cf_class classes[] = {
    {"BertForSequenceClassification", "bert", ZT_BERT_CLASSIFIER, bert_fields, bert_refusals},
    {"BertForMaskedLM", "bert", ZT_BERT_MLM, bert_fields, bert_refusals},
    {"GPT2LMHeadModel", "gpt2", ZT_GPT2, gpt2_fields, no_refusals},
    {"LlamaForCausalLM", "llama", ZT_LLAMA, llama_fields, no_refusals},
};

enum { CF_CLASSES = sizeof classes / sizeof *classes };

/* Names of activations in transformers: some are the same function computed in another way. */
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

/* ---- values ------------------------------------------------------------------------------ */

static bool cf_null(const ckpt_value *v)
{
    return !v || v->kind == CKPT_V_NONE;
}

/* A member that is not null; else NULL. */
static const ckpt_value *cf_get(const ckpt_value *dict, const char *key)
{
    const ckpt_value *v = ckpt_value_get(dict, key);

    return cf_null(v) ? NULL : v;
}

static const char *cf_kind_name(const ckpt_value *v)
{
    switch ((int)v->kind) {
    case CKPT_V_NONE:
        return "null";
    case CKPT_V_BOOL:
        return v->as.i != 0 ? "true" : "false";
    case CKPT_V_STR:
        return v->as.text.at;
    case CKPT_V_LIST:
        return "a list";
    case CKPT_V_DICT:
        return "an object";
    default:
        return "a number";
    }
}

/* INT or FLOAT; false: no number. */
static bool cf_number(const ckpt_value *v, double *out)
{
    *out = v->kind == CKPT_V_FLOAT ? v->as.f : (double)v->as.i;
    return v->kind == CKPT_V_FLOAT || v->kind == CKPT_V_INT;
}

static int cf_fail(const cf_file *f, const char *key, const ckpt_value *v, const char *expected)
{
    double x;

    if (cf_number(v, &x))
        return ckpt_fail(f->err, CKPT_EFORMAT, "%s: %s is %.15g; expected %s", f->name, key, x,
                         expected);
    return ckpt_fail(f->err, CKPT_EFORMAT, "%s: %s is %s; expected %s", f->name, key,
                     cf_kind_name(v), expected);
}

/* A positive whole number. */
static int cf_size(const cf_file *f, const char *key, const ckpt_value *v, uint64_t *out)
{
    if (v->kind != CKPT_V_INT || v->as.i < 1 || v->as.i > CF_MAX_SIZE)
        return cf_fail(f, key, v, "a whole number from 1 to 2147483647");
    *out = (uint64_t)v->as.i;
    return CKPT_OK;
}

/* A finite number in least .. most. */
static int cf_real(const cf_file *f, const char *key, const ckpt_value *v, double most, double *out)
{
    if (!cf_number(v, out) || !(*out >= 0 && *out <= most))
        return cf_fail(f, key, v, most <= 1 ? "a number from 0 to 1" : "a number, 0 or more");
    return CKPT_OK;
}

static int cf_store(const cf_file *f, const cf_field *d, const char *key, const ckpt_value *v)
{
    char *to = (char *)f->out + d->at;
    double x = 0;
    float narrow;
    int rc;

    if (d->kind == CF_SIZE) {
        uint64_t n = 0;

        rc = cf_size(f, key, v, &n);
        memcpy(to, &n, sizeof n);
        return rc;
    }
    if (d->kind == CF_BOOL) {
        const bool b = v->as.i != 0;

        if (v->kind != CKPT_V_BOOL)
            return cf_fail(f, key, v, "true or false");
        memcpy(to, &b, sizeof b);
        return CKPT_OK;
    }
    rc = cf_real(f, key, v, d->kind == CF_RATE ? 1 : 1e30, &x);
    narrow = (float)x;
    memcpy(to, &narrow, sizeof narrow);
    return rc;
}

static void cf_default(const cf_file *f, const cf_field *d)
{
    char *to = (char *)f->out + d->at;
    const uint64_t n = d->otherwise < 0 ? 0 : (uint64_t)d->otherwise;
    const bool b = d->otherwise > 0;
    const float x = (float)d->otherwise;

    if (d->kind == CF_SIZE)
        memcpy(to, &n, sizeof n);
    else if (d->kind == CF_BOOL)
        memcpy(to, &b, sizeof b);
    else
        memcpy(to, &x, sizeof x);
}

/* null stands for a default only where transformers has it so. */
static int cf_field_read(const cf_file *f, const cf_field *d)
{
    const char *key = d->other && ckpt_value_get(f->json, d->other) ? d->other : d->key;
    const ckpt_value *v = ckpt_value_get(f->json, key);
    const bool may_be_null = d->otherwise < 0 || strcmp(key, "attention_dropout") == 0;

    if (!v || (may_be_null && cf_null(v))) {
        cf_default(f, d);
        return CKPT_OK;
    }
    return cf_store(f, d, key, v);
}

/* Whether a value says nothing: null, false, 0, empty. */
static bool cf_idle(const ckpt_value *v)
{
    switch ((int)v->kind) {
    case CKPT_V_NONE:
        return true;
    case CKPT_V_BOOL:
    case CKPT_V_INT:
        return v->as.i == 0;
    case CKPT_V_STR:
        return v->as.text.n == 0;
    case CKPT_V_LIST:
        return v->as.seq.n == 0;
    case CKPT_V_DICT:
        return v->as.map.n == 0;
    default:
        return false;
    }
}

static int cf_refuse(const cf_file *f, const cf_refusal *table)
{
    for (; table->key != NULL; table++) {
        const ckpt_value *v = ckpt_value_get(f->json, table->key);

        if (v && !cf_idle(v) && !(table->only && ckpt_value_is(v, table->only)))
            return ckpt_fail(f->err, CKPT_EUNSUPPORTED, "%s: %s is %s: %s", f->name, table->key,
                             cf_kind_name(v), table->why);
    }
    return CKPT_OK;
}

/* ---- the architecture -------------------------------------------------------------------- */

/* A class by name; NULL: not one of ours. */
static const cf_class *cf_class_named(const ckpt_value *name)
{
    for (size_t i = 0; i < CF_CLASSES; i++) {
        if (ckpt_value_is(name, classes[i].class_name))
            return &classes[i];
    }
    return NULL;
}

/*
 * The class of a file that names none.  BERT counts as a classifier if the file says anything about
 * labels (two of them are written whatever the model), else as a masked language model.
 */
static const cf_class *cf_class_of_type(const ckpt_value *json)
{
    const ckpt_value *type = ckpt_value_get(json, "model_type");
    const ckpt_value *names = cf_get(json, "id2label");
    const bool labels = cf_get(json, "problem_type") || cf_get(json, "num_labels") ||
                        (names && ckpt_value_map(names).n != 2);

    for (size_t i = 0; i < CF_CLASSES; i++) {
        if (ckpt_value_is(type, classes[i].model_type) &&
            (labels || classes[i].arch != ZT_BERT_CLASSIFIER))
            return &classes[i];
    }
    return NULL;
}

/* "architectures", or else "model_type". */
static int cf_choose(const cf_file *f, const cf_class **out)
{
    const ckpt_value *named = cf_get(f->json, "architectures");
    const ckpt_value *type = cf_get(f->json, "model_type");
    const ckpt_seq list = ckpt_value_seq(named);
    const char *found = "";

    *out = NULL;
    if (named && named->kind != CKPT_V_LIST)
        return cf_fail(f, "architectures", named, "a list of class names");
    if (type && type->kind != CKPT_V_STR)
        return cf_fail(f, "model_type", type, "a name");
    for (uint64_t i = 0; i < list.n && !*out; i++) {
        *out = cf_class_named(list.at[i]);
        found = list.at[i]->kind == CKPT_V_STR ? list.at[i]->as.text.at : "no name";
    }
    if (list.n == 0) {
        *out = cf_class_of_type(f->json);
        found = type ? type->as.text.at : "neither architectures nor model_type";
    }
    if (!*out)
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: found %s; the models that can be trained are "
                         "BertForSequenceClassification, BertForMaskedLM, GPT2LMHeadModel and "
                         "LlamaForCausalLM",
                         f->name, found);
    if (type && !ckpt_value_is(type, (*out)->model_type))
        return ckpt_fail(f->err, CKPT_EFORMAT, "%s: %s does not go with model_type %s", f->name,
                         (*out)->class_name, type->as.text.at);
    return CKPT_OK;
}

/* ---- keys of their own kind -------------------------------------------------------------- */

static int cf_act(const cf_file *f, const char *key, zt_act otherwise)
{
    const ckpt_value *v = ckpt_value_get(f->json, key);
    const bool gated = f->out->arch == ZT_LLAMA;

    f->out->act = otherwise;
    if (!v)
        return CKPT_OK;
    for (size_t i = 0; i < CF_ACTIVATIONS; i++) {
        if (ckpt_value_is(v, activations[i].name) && (!gated || activations[i].act == ZT_SILU)) {
            f->out->act = activations[i].act;
            return CKPT_OK;
        }
    }
    return ckpt_fail(f->err, CKPT_EUNSUPPORTED, "%s: %s is %s; supported: %s", f->name, key,
                     cf_kind_name(v),
                     gated ? "silu" : "gelu, gelu_new, gelu_pytorch_tanh, relu, silu, tanh");
}

/* The row of the word embedding that is never trained; counted from the end when negative. */
static int cf_padding(const cf_file *f, int64_t otherwise)
{
    const ckpt_value *v = ckpt_value_get(f->json, "pad_token_id");
    const int64_t vocab = (int64_t)f->out->vocab;
    int64_t row = otherwise;

    if (v && v->kind == CKPT_V_INT) {
        row = v->as.i < 0 && v->as.i >= -vocab ? v->as.i + vocab : v->as.i;
        if (row < 0 || row >= vocab)
            return cf_fail(f, "pad_token_id", v, "a token of the vocabulary");
    } else if (v && v->kind != CKPT_V_NONE) {
        return cf_fail(f, "pad_token_id", v, "a token, or null");
    } else if (v) {
        row = -1;
    }
    if (row >= vocab)
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: pad_token_id is absent and %" PRId64
                         " by default, beyond the vocabulary of %" PRId64,
                         f->name, row, vocab);
    f->out->padding = row;
    return CKPT_OK;
}

/* How many classes: id2label, or num_labels of old files, or 2. */
static int cf_labels(const cf_file *f)
{
    const ckpt_value *names = cf_get(f->json, "id2label");
    const ckpt_value *number = cf_get(f->json, "num_labels");

    f->out->labels = 2;
    if (names && names->kind != CKPT_V_DICT)
        return cf_fail(f, "id2label", names, "an object");
    if (names)
        f->out->labels = names->as.map.n;
    else if (number)
        return cf_size(f, "num_labels", number, &f->out->labels);
    if (f->out->labels == 0)
        return cf_fail(f, "id2label", names, "at least one label");
    return CKPT_OK;
}

/* The loss of the classifier.  Without problem_type it follows from the number of labels. */
static int cf_problem(const cf_file *f)
{
    const ckpt_value *v = cf_get(f->json, "problem_type");
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
    return cf_fail(f, "problem_type", v,
                   c->labels == 1 ? "regression or multi_label_classification for one label"
                                  : "regression, single_label_classification or "
                                    "multi_label_classification");
}

/* ---- rotary positions -------------------------------------------------------------------- */

/* A positive number of the block of rotary positions. */
static int cf_rope_number(const cf_file *f, const ckpt_value *rope, const char *key, double *out)
{
    const ckpt_value *v = cf_get(rope, key);

    if (!v)
        return ckpt_fail(f->err, CKPT_EFORMAT, "%s: rope_type llama3 without %s", f->name, key);
    if (!cf_number(v, out) || !(*out > 0 && *out < 1e30))
        return cf_fail(f, key, v, "a number above 0");
    return CKPT_OK;
}

static int cf_rope_llama3(const cf_file *f, const ckpt_value *rope)
{
    zt_model_config *c = f->out;
    int rc = cf_rope_number(f, rope, "factor", &c->rope_factor);

    if (rc == CKPT_OK)
        rc = cf_rope_number(f, rope, "low_freq_factor", &c->rope_low);
    if (rc == CKPT_OK)
        rc = cf_rope_number(f, rope, "high_freq_factor", &c->rope_high);
    c->rope_old = (double)c->positions;
    if (rc == CKPT_OK && cf_get(rope, "original_max_position_embeddings"))
        rc = cf_rope_number(f, rope, "original_max_position_embeddings", &c->rope_old);
    if (rc == CKPT_OK && !(c->rope_high > c->rope_low))
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: high_freq_factor %g must be above low_freq_factor %g", f->name,
                         c->rope_high, c->rope_low);
    c->rope_llama3 = true;
    return rc;
}

/* The frequencies' base: in the block, or beside it in old files. */
static int cf_rope_theta(const cf_file *f, const ckpt_value *rope)
{
    const ckpt_value *v = cf_get(rope, "rope_theta");

    if (!v)
        v = cf_get(f->json, "rope_theta");
    f->out->rope_theta = 10000;
    if (v && (!cf_number(v, &f->out->rope_theta) ||
              !(f->out->rope_theta > 0 && f->out->rope_theta < 1e30)))
        return cf_fail(f, "rope_theta", v, "a number above 0");
    return CKPT_OK;
}

/* All of the head turns. */
static int cf_rope_whole(const cf_file *f, const ckpt_value *dict)
{
    const ckpt_value *v = cf_get(dict, "partial_rotary_factor");
    double x;

    if (v && !(cf_number(v, &x) && x == 1))
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: partial_rotary_factor other than 1 is not supported", f->name);
    return CKPT_OK;
}

/* rope_scaling, which files before release 5 have, wins over rope_parameters. */
static int cf_rope(const cf_file *f)
{
    const char *key = "rope_scaling";
    const ckpt_value *rope = cf_get(f->json, key), *type;
    int rc;

    if (!rope || cf_idle(rope)) {
        key = "rope_parameters";
        rope = cf_get(f->json, key);
    }
    if (rope && rope->kind != CKPT_V_DICT)
        return cf_fail(f, key, rope, "an object");
    for (uint64_t i = 0; i < ckpt_value_map(rope).n; i++) {
        if (rope->as.map.at[i].value->kind == CKPT_V_DICT)
            return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                             "%s: %s differs from layer to layer, which is not supported", f->name,
                             key);
    }
    type = cf_get(rope, "rope_type");
    type = type ? type : cf_get(rope, "type");
    rc = cf_rope_theta(f, rope);
    if (rc == CKPT_OK)
        rc = cf_rope_whole(f, rope);
    if (rc == CKPT_OK)
        rc = cf_rope_whole(f, f->json);
    if (rc != CKPT_OK || !type || ckpt_value_is(type, "default"))
        return rc;
    if (!ckpt_value_is(type, "llama3"))
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: rope_type %s is not supported; default and llama3 are", f->name,
                         cf_kind_name(type));
    return cf_rope_llama3(f, rope);
}

/* Slices of the projections, an option of releases before 5, add up to other roundings. */
static int cf_slices(const cf_file *f)
{
    const ckpt_value *v = cf_get(f->json, "pretraining_tp");

    if (v && v->kind != CKPT_V_INT)
        return cf_fail(f, "pretraining_tp", v, "a whole number");
    if (v && v->as.i > 1)
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: pretraining_tp is %" PRId64 "; only 1 is supported", f->name,
                         v->as.i);
    return CKPT_OK;
}

/* ---- each architecture ------------------------------------------------------------------- */

static int cf_bert(const cf_file *f)
{
    zt_model_config *c = f->out;
    int rc = cf_act(f, "hidden_act", ZT_GELU);

    c->scale_attention = c->attention_bias = c->mlp_bias = true;
    c->dropout_embed = c->dropout_hidden;
    if (c->dropout_classifier < 0)
        c->dropout_classifier = c->dropout_hidden;
    if (rc == CKPT_OK)
        rc = cf_padding(f, 0);
    if (rc == CKPT_OK && c->arch == ZT_BERT_CLASSIFIER) {
        rc = cf_labels(f);
        if (rc == CKPT_OK)
            rc = cf_problem(f);
    }
    return rc;
}

static int cf_gpt2(const cf_file *f)
{
    zt_model_config *c = f->out;

    c->attention_bias = c->mlp_bias = true;
    c->padding = -1;
    if (c->inner == 0)
        c->inner = 4 * c->hidden;
    return cf_act(f, "activation_function", ZT_GELU_TANH);
}

static int cf_llama(const cf_file *f)
{
    int rc = cf_act(f, "hidden_act", ZT_SILU);

    f->out->scale_attention = true;
    if (rc == CKPT_OK)
        rc = cf_padding(f, -1);
    if (rc == CKPT_OK)
        rc = cf_slices(f);
    return rc == CKPT_OK ? cf_rope(f) : rc;
}

/* ---- sizes together ---------------------------------------------------------------------- */

/* Elements of all weights, roughly and not too few; false: more than can be counted. */
static bool cf_elems(const zt_model_config *c, uint64_t *out)
{
    const uint64_t tables = 2 * c->vocab + c->positions + c->types + c->labels;
    uint64_t width, per_layer, layers, ends;

    // sizes are below 2^31, so these sums of a few of them do not overflow
    return ckpt_mul(2 * (c->heads + c->kv_heads), c->head_width, &width) &&
           ckpt_add(width, 3 * c->inner + 16, &width) && ckpt_mul(width, c->hidden, &per_layer) &&
           ckpt_mul(per_layer, c->layers, &layers) &&
           ckpt_mul(tables + 2 * c->hidden + 16, c->hidden, &ends) && ckpt_add(layers, ends, out);
}

static int cf_check(const cf_file *f)
{
    zt_model_config *c = f->out;
    uint64_t n;

    if (c->hidden % c->heads != 0)
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
    if (c->layers > CF_MAX_LAYERS || !cf_elems(c, &n) || n > CF_MAX_ELEMS)
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: %" PRIu64 " layers of width %" PRIu64 ", %" PRIu64
                         " tokens: larger than any model can be",
                         f->name, c->layers, c->hidden, c->vocab);
    return CKPT_OK;
}

static int cf_read(const cf_file *f)
{
    const cf_class *class = NULL;
    zt_model_config *c = f->out;
    int rc = CKPT_OK;

    if (f->json->kind != CKPT_V_DICT)
        return ckpt_fail(f->err, CKPT_EFORMAT, "%s: not an object but %s", f->name,
                         cf_kind_name(f->json));
    rc = cf_choose(f, &class);
    if (rc != CKPT_OK)
        return rc;
    c->arch = class->arch;
    c->class_name = class->class_name;
    c->model_type = class->model_type;
    c->json = f->json;
    rc = cf_refuse(f, common_refusals);
    if (rc == CKPT_OK)
        rc = cf_refuse(f, class->refusals);
    for (const cf_field *d = class->fields; rc == CKPT_OK && d->key; d++)
        rc = cf_field_read(f, d);
    if (rc == CKPT_OK)
        rc = c->arch == ZT_LLAMA ? cf_llama(f) : c->arch == ZT_GPT2 ? cf_gpt2(f) : cf_bert(f);
    return rc == CKPT_OK ? cf_check(f) : rc;
}

int zt_model_config_read(zt_model_config *out, ckpt_arena *arena, const char *path, ckpt_err *err)
{
    cf_file f = {.out = out, .name = path, .err = err};
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
