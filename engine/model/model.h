/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h: declares a transformer as a chain of layers with hand-written forward and backward
 * passes.
 *
 * A model is a list of parameters (in the order of named_parameters() of transformers, which is
 * the order of ZeRO's flat groups) and a chain of layers: an embedding, blocks, a head that ends
 * in the loss.  Models of an encoder and a decoder are one chain too (t5.c).  Each layer lists the
 * parameters that it uses.  A layer never sees how they are stored: the code that runs the chain
 * (zero/pass.c) sets `w` and `g` of its parameters before each call and may invalidate them after
 * it.  Tied weights are one parameter that two layers use.
 *
 *     model.c    the list of parameters, names, aliases, groups; sizes
 *     config.c   config.json of a Hugging Face folder; config_rotary.c positions and windows in it
 *     linear.c   linear maps of layers, with or without a LoRA adapter
 *     head.c     the head of language models: rows that count, logits in chunks, the loss
 *     ends.c     first and last layer of GPT-2 and Llama
 *     bert.c gpt2.c llama.c (also Qwen2, Qwen3, Mistral, OLMo-2, Gemma, Phi-3) opt.c neox.c bloom.c
 *     decoder.c  blocks of OPT, GPT-NeoX and BLOOM
 *     rope.c     rotary positions
 *     t5.c       T5; t5_ends.c: its bridge between encoder and decoder, its head
 *     cache.c    keys and values of earlier tokens, for generation
 *     init.c     initial values with transformers' distributions (not its random numbers)
 *     lora.c     adapters: adding them, and their names in a PEFT folder
 */
#ifndef ZT_MODEL_MODEL_H
#define ZT_MODEL_MODEL_H

#include "engine/device/device.h"
#include "libckpt/base/mem.h"
#include "libckpt/base/vec.h"
#include "libckpt/map/value.h"

/* ZT_LLAMA includes Qwen2, Qwen3, Mistral, OLMo-2, Gemma 2 and 3, and Phi-3, which are Llama with
 * other settings. */
typedef enum zt_arch {
    ZT_BERT_CLASSIFIER,
    ZT_BERT_MLM,
    ZT_GPT2,
    ZT_LLAMA,
    ZT_OPT,
    ZT_NEOX,
    ZT_BLOOM,
    ZT_T5
} zt_arch;

/* True for language models that predict the next token. */
static inline bool zt_arch_causal(zt_arch a)
{
    return a != ZT_BERT_CLASSIFIER && a != ZT_BERT_MLM && a != ZT_T5;
}

/* True if positions have no table, so samples may have any length. */
static inline bool zt_arch_any_length(zt_arch a)
{
    return a == ZT_LLAMA || a == ZT_NEOX || a == ZT_BLOOM || a == ZT_T5;
}

/* Scaling of rotary positions: rope_type of a config.json. */
typedef enum zt_rope_kind {
    ZT_ROPE_DEFAULT,
    ZT_ROPE_LINEAR,
    ZT_ROPE_LLAMA3,
    ZT_ROPE_LONG
} zt_rope_kind;

/* The checked settings of a config.json; sizes are elements. */
typedef struct zt_model_config {
    zt_arch arch;
    const char *class_name; /* "BertForSequenceClassification" */
    const char *model_type; /* as in config.json: "bert", "gpt2", "llama", "gpt_neox" */
    uint64_t vocab, positions, hidden, layers, heads, kv_heads, head_width, inner, types;
    uint64_t embed_width; /* of word embeddings: OPT's word_embed_proj_dim; 0: hidden */
    uint64_t labels;      /* classifier: classes; 1: regression */
    bool multi_label;
    float norm_eps, init_range;
    zt_act act;
    bool tied; /* input and output embeddings are one parameter */
    /* Whether there are biases: of q, k, v; of attention's output; of the MLP. */
    bool attention_bias, output_bias, mlp_bias;
    /* Norms before each branch (OPT: otherwise after the sum with it), and one before the head.
     * Llama's family: also norms of each branch's output, before the sum (OLMo-2: only these) */
    bool norm_first, final_norm, norm_branch;
    bool norm_once, norm_plus_one; /* zt_norm's `once` and `plus_one`, for all norms */
    bool alibi;                    /* BLOOM: attention has linear biases instead of positions */
    /* GPT-NeoX: both branches read the block's input; q, k, v of a head are rows of one map
     * (BLOOM too).  Phi-3 has one map for all of q, k, v, and one for gate and up */
    bool parallel, fused;
    uint64_t rotated; /* elements of a head that positions rotate; 0: all */
    /* RMS norm of q and k before rotation: of each head (Qwen3), or with qk_whole of all heads of a
     * token together (OLMo-2) */
    bool qk_norm, qk_whole;
    bool embed_scaled;          /* Gemma: embeddings are multiplied by the root of `hidden` */
    float score_cap, logit_cap; /* Gemma: zt_attention's cap, and the same for logits; 0: none */
    float score_width;          /* scores are divided by its root; 0: head_width */
    /* keys that a query sees, itself the last; 0: all before it */
    uint64_t window;
    const bool *slides; /* [layers], true: the layer uses `window`; NULL: no layer does */
    /* GPT-2: scale_attn_weights, scale_attn_by_inverse_layer_idx */
    bool scale_attention, scale_by_layer;
    int64_t padding; /* BERT: pad_token_id; -1: none */
    /* T5: blocks of the decoder (`layers`: of the encoder); relative positions; the inner layer has
     * a gate; the head's input is multiplied by hidden^-0.5; tokens of zt_model_shift */
    uint64_t decoder_layers, buckets, max_distance;
    bool gated, scale_outputs;
    uint64_t decoder_start, decoder_pad;
    double rope_theta;
    zt_rope_kind rope_kind;
    bool rope_exact; /* OLMo-2: cosines and sines are not rounded to the model's dtype */
    double rope_factor, rope_low, rope_high, rope_old;
    /* Gemma 3: the base of layers with a window, which have no scaling; 0: as in the others */
    double rope_local;
    /* ZT_ROPE_LONG: divisors of the frequencies, [rotated / 2], for samples of up to rope_old
     * tokens and for longer ones; rope_factor multiplies cosines and sines */
    const double *rope_short, *rope_long;
    /* as config.json has them */
    float dropout_embed, dropout_attention, dropout_hidden, dropout_classifier;
    const ckpt_value *json; /* the whole file, for writing a model folder */
} zt_model_config;

/* A parameter. */
typedef struct zt_param {
    const char *name; /* "transformer.h.0.attn.c_attn.weight" */
    const char *hub;  /* its name in model folders, if that is another; or NULL */
    uint32_t ndim;
    uint64_t shape[4], n_elems;
    uint32_t layer; /* the first layer that uses it */
    bool frozen;    /* not trained, so g stays NULL */
    bool no_decay;  /* one axis at most: the `decay` grouping sets no weight decay */
    enum { ZT_INIT_NORMAL, ZT_INIT_ZERO, ZT_INIT_ONE } init;
    float init_std;

    /* Set by the code that runs the chain; valid while a layer that uses it is held. */
    const void *w; /* [shape] in the model's dtype */
    void *g;       /* address of its gradient, model's dtype; NULL: frozen */
    bool g_add;    /* true: add to g; false: overwrite it, then set (zt_param_written) */
} zt_param;
CKPT_VEC(zt_params, zt_param);

/* Another name of a parameter in checkpoints ("lm_head.weight" for the embedding). */
typedef struct zt_alias {
    const char *name;
    uint32_t param;
} zt_alias;
CKPT_VEC(zt_aliases, zt_alias);

/* Keys and values of earlier tokens (cache.c). */
typedef struct zt_cache zt_cache;

/* One micro batch on the device, [batch, seq]; NULL: absent. */
typedef struct zt_batch {
    uint64_t batch, seq;
    const int32_t *input_ids, *attention_mask, *token_type_ids;
    const int32_t *labels; /* [batch, seq], or [batch] for classes; ZT_IGNORE is left out */
    const float *targets;  /* regression, several labels: [batch, labels] */
    /* T5: tokens of a target (else 0), for labels too, and the decoder's input (zt_model_shift) */
    uint64_t decoder_seq;
    const int32_t *decoder_input_ids;
    /* evaluation: this rank has no sample left; it takes part, but its result must not count */
    bool spare;
    /* generation: the batch continues these samples (zt_cache_new); NULL: it stands alone */
    zt_cache *cache;
} zt_batch;

/* Rows of the state between two layers: of the source and, with a decoder, of the target. */
static inline uint64_t zt_batch_state(const zt_batch *b)
{
    return b->batch * (b->seq + b->decoder_seq);
}

/* Rows with logits, and with labels if tokens have some: those of the target, or of the source. */
static inline uint64_t zt_batch_answers(const zt_batch *b)
{
    return b->batch * (b->decoder_seq > 0 ? b->decoder_seq : b->seq);
}

/* One run of the chain over one micro batch. */
typedef struct zt_pass {
    zt_batch in;
    bool train; /* apply dropout, and store values for the backward pass */
    /* for dropout: differs by step, micro step and rank; layers add their index */
    uint64_t seed;
    /*
     * The factor of the loss' gradient: scale / accumulation, with each step rounded as torch does
     * in the dtype of the loss (BERT and T5 in fp16: a scale over 65504 makes every gradient not
     * finite). accumulation 0: use loss_factor.
     */
    double scale;
    int64_t accumulation;
    float loss_factor;
    /*
     * Mean over this micro batch, in the precision of transformers.  The head sets it: in fw for
     * evaluation, in bw for training, so logits exist for one chunk of rows only.
     */
    double loss;
    void *scratch; /* workspace for one call, zt_model_scratch() bytes */
    /* evaluation: output for logits, model's dtype; NULL: none.  With a cache: [batch, vocab], of
     * each sample's last row */
    void *logits;
} zt_pass;

typedef struct zt_model zt_model;
typedef struct zt_layer zt_layer;

/*
 * One kind of layer.  x [batch * seq, hidden] is the input (NULL for the embedding), y the output
 * of the same shape (NULL for the head).  T5's state has zt_batch_state() rows, see t5.c.  A
 * classifier's last block outputs only the first row of each sample, [batch, hidden], and gets
 * only their gradients.  tape: tape() bytes that fw fills and bw reads (evaluation passes one
 * too); x is still valid in bw.  bw turns dy into dx (NULL for the embedding) and writes the
 * parameters' gradients.  The head has dy NULL and begins from the loss.  dx may be dy.  The
 * device keeps failures.
 */
typedef struct zt_layer_ops {
    /* bytes; NULL: no tape */
    uint64_t (*tape)(const zt_model *m, const zt_layer *l, const zt_batch *b);
    /* bytes, for fw and bw */
    uint64_t (*scratch)(const zt_model *m, const zt_layer *l, const zt_batch *b);
    void (*fw)(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x, void *y);
    void (*bw)(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
               const void *dy, void *dx);
} zt_layer_ops;

struct zt_layer {
    const zt_layer_ops *ops;
    const char *name;      /* "transformer.h.3" */
    uint32_t number;       /* position in the chain */
    uint32_t block;        /* position among the blocks */
    const uint32_t *param; /* n_params indices of the model's parameters, adapters included */
    uint32_t n_params;
};
CKPT_VEC(zt_layers, zt_layer);

/* LoRA (Hu et al. 2021): y += alpha / rank * (x a') b', a [rank, in] normal, b [out, rank] zero. */
typedef struct zt_lora {
    uint64_t rank; /* 0: none */
    double alpha;
    float dropout;
    /* "query,value": last parts of names of linear maps; NULL: PEFT's default for this model */
    const char *targets;
} zt_lora;

struct zt_model {
    zt_device *device;
    ckpt_dtype dtype;
    zt_model_config config;
    zt_params params;
    zt_aliases aliases;
    zt_layers layers;
    zt_lora lora;
    uint64_t max_logits; /* bytes of logits that a training pass holds at a time; 0: 256 MiB */
    ckpt_arena *arena;
    void *own; /* zt_own: tables on the device, indices of parameters */
};

/*
 * Read a config.json (path of the file or of its folder).  It honours every setting that changes
 * results, or refuses it by name.
 *
 * Errors  CKPT_EMISSING, CKPT_EFORMAT (key, found), CKPT_EUNSUPPORTED (architecture or setting),
 *         CKPT_EIO
 */
int zt_model_config_read(zt_model_config *out, ckpt_arena *arena, const char *path, ckpt_err *err);

/*
 * Tokens of the longest sample for which the model's positions are made: max_position_embeddings,
 * which a linear scaling of Llama's family multiplies, as in vLLM; UINT64_MAX: ALiBi and relative
 * positions have no limit.
 */
uint64_t zt_model_config_reach(const zt_model_config *c);

/*
 * Read only the settings that determine parameters; settings that change results but no shape
 * (activations, rotary positions, windows) are ignored.
 */
int zt_model_config_sizes(zt_model_config *out, ckpt_arena *arena, const char *path, ckpt_err *err);

/* A name of an activation in config.json. */
const char *zt_act_name(zt_act act);

/*
 * Make the chain and its parameters, without memory for weights.  lora NULL: no adapters; otherwise
 * all other parameters are frozen.  device NULL: the layers cannot be run.
 */
int zt_model_new(zt_model **out, zt_device *device, ckpt_dtype dtype, const zt_model_config *config,
                 const zt_lora *lora, ckpt_err *err);
void zt_model_free(zt_model *m);

/* Bytes of workspace, enough for any layer. */
uint64_t zt_model_scratch(const zt_model *m, const zt_batch *b);

/*
 * Freeze the parameters with names that match one of the globs (separated by commas); *n: their
 * number.
 */
int zt_model_freeze(zt_model *m, const char *globs, size_t *n, ckpt_err *err);

/* Number of elements of all parameters, or of trained ones. */
uint64_t zt_model_count(const zt_model *m, bool trained);

/*
 * Check a batch against the model: vocabulary, positions, kinds, classes.  The inputs must be in
 * host memory.
 */
int zt_model_check_batch(const zt_model *m, const zt_batch *host, ckpt_err *err);

/*
 * Make the decoder's input from labels [batch, seq]: each row moves to the right by one, begins
 * with config->decoder_start, and has config->decoder_pad for ZT_IGNORE.
 */
void zt_model_shift(const zt_model_config *config, const int32_t *labels, uint64_t batch,
                    uint64_t seq, int32_t *out);

/*
 * Draw the initial value of one parameter, elements first .. first+count, fp32, into host memory.
 * It depends on (seed, name, index) alone, by Philox, so any rank can draw its own part.
 */
void zt_model_draw(const zt_model *m, uint32_t param, uint64_t seed, uint64_t first, uint64_t count,
                   float *out);

/* ---- generation ---- */

/*
 * Make a cache for `batch` samples of up to `room` tokens each (of the target, for T5).  *out is
 * set even on failure; free it before the model.
 *
 * The first batch with a cache has the prompts [batch, seq], shorter ones with masked tokens at
 * their begin; T5: the sources, masked at their end, and one token of decoder_input_ids.  Later
 * batches have one token of each sample in input_ids, seq 1; T5: in decoder_input_ids, seq 0.
 *
 * Errors  CKPT_ELIMIT; CKPT_EUNSUPPORTED: longrope beyond the positions of its first divisors
 */
int zt_cache_new(zt_cache **out, zt_model *m, uint64_t batch, uint64_t room, ckpt_err *err);
void zt_cache_free(zt_cache *c); /* NULL is fine */

/*
 * Around a pass, by the code that runs the chain: begin reads the batch's masks, which must be in
 * host memory.  The pass begins with zt_cache_first_layer: T5 encodes its sources once.
 *
 * Errors  CKPT_EUSAGE: the batch does not fit the cache; CKPT_ELIMIT
 */
int zt_cache_begin(zt_cache *c, const zt_batch *host, ckpt_err *err);
void zt_cache_end(zt_cache *c, const zt_batch *host);
uint32_t zt_cache_first_layer(const zt_cache *c);

/* The first layer of a later pass. */
uint32_t zt_model_later(const zt_model *m);

/* ---- adapters as PEFT folders: adapter_config.json and adapter_model.safetensors ---- */

/*
 * adapter_config.json of an adapted model, in PEFT's form; base: path of the model, or NULL.  NULL:
 * no memory.
 */
const ckpt_value *zt_lora_config(const zt_model *m, ckpt_arena *arena, const char *base);

/*
 * The tensors of adapter_model.safetensors: their names there, and their parameters.  NULL: no
 * memory.
 */
const zt_alias *zt_lora_saved(const zt_model *m, ckpt_arena *arena, size_t *n);

/* Note that g holds a gradient, so the next layer which uses the parameter adds to it. */
static inline void zt_param_written(zt_param *p)
{
    p->g_add = true;
}

#endif
