/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.h: declares the parts that architectures share: building the list of parameters, dividing
 * tapes, linear maps, norms, the head of language models.  Internal to engine/model.
 */
#ifndef ZT_MODEL_LAYERS_H
#define ZT_MODEL_LAYERS_H

#include <assert.h>

#include "engine/model/model.h"

#define ZT_NO_PARAM UINT32_MAX

/* Weight and bias of a norm; b ZT_NO_PARAM: RMS norm. */
typedef struct zt_affine {
    uint32_t w, b;
} zt_affine;

/* A linear map of a layer: indices of parameters; ZT_NO_PARAM if it has none. */
typedef struct zt_map {
    uint64_t in, out;
    uint32_t w, b;
    uint32_t lora_a, lora_b;
    bool w_in_out;
    uint32_t site; /* part of its dropout key */
} zt_map;

enum { ZT_MAPS = 7 };

enum { ZT_NORMS = 6 };

/* Maps of the blocks in decoder.c; with `fused`, Q is that of q, k and v together. */
enum { ZT_DECODER_Q, ZT_DECODER_K, ZT_DECODER_V, ZT_DECODER_O, ZT_DECODER_UP, ZT_DECODER_DOWN };

typedef struct zt_block {
    zt_affine norm[ZT_NORMS]; /* indexed like map */
    zt_map map[ZT_MAPS];      /* indexed by the architecture's own enum */
} zt_block;

/* Cosines and sines of rotary positions on the device (rope.c): [rows, rotated width / 2]. */
typedef struct zt_rope_table {
    float *cos, *sin;
    uint64_t rows;
    bool local, far; /* of rope_local; with rope_long's divisors */
} zt_rope_table;

/* zt_model.own of every architecture. */
struct zt_lm_body;
typedef struct zt_own {
    uint32_t word, position, type;
    zt_affine norm;       /* after the embedding (BERT), before the head (the others) */
    zt_affine embed_norm; /* BLOOM: after the embedding */
    zt_block *block;
    zt_map transform;               /* BERT: pooler, or transform of the masked LM head */
    zt_affine transform_norm;       /* BERT; T5: the encoder's last norm */
    zt_map project_in, project_out; /* OPT: word embeddings -> hidden, and back */
    zt_map out;                     /* hidden (OPT: embed_width) -> classes or vocabulary */
    const struct zt_lm_body *lm;    /* language models: the computation before `out` */
    zt_rope_table rope[2];          /* Gemma 3: the second one is of layers with a window */
    /* T5, for the encoder and the decoder: tables of biases; on the device: the bucket of each
     * distance, for sequences of up to `reach` tokens */
    uint32_t bias[2];
    int32_t *bucket[2];
    uint64_t reach[2];
} zt_own;

static inline zt_own *zt_own_of(const zt_model *m)
{
    return m->own;
}

/* The parameters of a layer that is a block. */
static inline const zt_block *zt_block_of(const zt_model *m, const zt_layer *l)
{
    return &zt_own_of(m)->block[l->block];
}

/* ---- building ---- */

/*
 * A model under construction.  After the first failure, kept in rc and err, later calls do nothing.
 */
typedef struct zt_build {
    zt_model *m;
    zt_own *own;
    const char *layer; /* name of the open layer, the prefix of its parameters' names */
    uint32_t *used;    /* parameters of the open layer */
    size_t n_used, room_used;
    uint32_t n_blocks, n_maps;
    int rc;
    ckpt_err *err;
} zt_build;

/* Open a layer of the chain.  Parameters belong to it until the next one opens.  is_block: give it
 * a block number. */
void zt_build_layer(zt_build *b, const zt_layer_ops *ops, bool is_block, const char *name);
void zt_build_close(zt_build *b);

/* Add parameters to the open layer.  name is the complete name (in the arena or static). */
uint32_t zt_build_matrix(zt_build *b, const char *name, uint64_t rows, uint64_t columns, float std);
uint32_t zt_build_vector(zt_build *b, const char *name, uint64_t n, bool ones);
zt_affine zt_build_norm(zt_build *b, const char *module, bool bias);

/* Let the open layer use a parameter of another layer too. */
void zt_build_use(zt_build *b, uint32_t param);
void zt_build_alias(zt_build *b, const char *name, uint32_t param);

/* Make a name in the model's arena. */
const char *zt_build_name(zt_build *b, const char *prefix, const char *suffix);

/* Shape of a linear map: the weight is [out, in], or [in, out] with w_in_out. */
typedef struct zt_map_shape {
    uint64_t in, out;
    bool bias, w_in_out;
    float std;
} zt_map_shape;
/* A map without parameters, for the places that an architecture does not use. */
extern const zt_map zt_no_map;
zt_map zt_build_map(zt_build *b, const char *module, const zt_map_shape *shape);

/* The first layer of GPT-2, Llama and T5 (ends.c). */
extern const zt_layer_ops zt_stem_ops;

/* The blocks of OPT, GPT-NeoX and BLOOM (decoder.c); their maps are ZT_DECODER_Q to
 * ZT_DECODER_DOWN. */
extern const zt_layer_ops zt_decoder_ops;

/* Build the map to the vocabulary under this name: the embedding itself if tied, else a matrix. */
void zt_build_lm_out(zt_build *b, const char *name);

/* T5's bridge between encoder and decoder, and its head, whose body is zt_t5_final (t5_ends.c). */
extern const zt_layer_ops zt_t5_bridge_ops, zt_t5_head_ops;

/* Add the parameters and layers of an architecture, in the order of named_parameters(). */
int zt_bert_build(zt_build *b);
int zt_gpt2_build(zt_build *b);
int zt_llama_build(zt_build *b);
int zt_opt_build(zt_build *b);
int zt_neox_build(zt_build *b);
int zt_bloom_build(zt_build *b);
int zt_t5_build(zt_build *b);

/* ---- adapters (lora.c) ---- */

/* Check and keep the settings; must come before building. */
int zt_lora_begin(zt_model *m, const zt_lora *lora, ckpt_err *err);
/* True if this linear module gets an adapter; the builder asks for each one. */
bool zt_lora_targets(const zt_model *m, const char *module);
/* Standard deviation of the initial values of lora_A with `in` columns. */
float zt_lora_std(uint64_t in);
/*
 * Freeze the parameters that an adapter does not train, and refuse targets without a match; must
 * come after building.
 */
int zt_lora_finish(zt_model *m, ckpt_err *err);
/* ---- dividing a tape or the scratch ---- */

/* Cuts aligned pieces off a buffer; with base NULL it only counts bytes. */
typedef struct zt_room {
    char *base;
    uint64_t used; /* bytes */
} zt_room;
void *zt_room_take(zt_room *r, uint64_t n_bytes);

static inline uint64_t zt_elem(const zt_model *m)
{
    assert(m->dtype == CKPT_F32 || m->dtype == CKPT_F16 || m->dtype == CKPT_BF16);
    return m->dtype == CKPT_F32 ? 4 : 2;
}

static inline uint64_t zt_batch_rows(const zt_batch *b)
{
    return b->batch * b->seq;
}

/* Take n elements of the model's dtype (zt_room_elems), or n fp32 values. */
static inline void *zt_room_elems(zt_room *r, const zt_model *m, uint64_t n)
{
    return zt_room_take(r, n * zt_elem(m));
}

static inline float *zt_room_floats(zt_room *r, uint64_t n)
{
    return zt_room_take(r, n * sizeof(float));
}

/* Address of element i of a device buffer of the model's dtype. */
static inline void *zt_at(const zt_model *m, void *p, uint64_t i)
{
    return (char *)p + i * zt_elem(m);
}

static inline const void *zt_at_const(const zt_model *m, const void *p, uint64_t i)
{
    return (const char *)p + i * zt_elem(m);
}

/* ---- running ---- */

/* One call of a layer. */
typedef struct zt_call {
    zt_model *m;
    zt_pass *p;
    uint32_t layer; /* index in the chain */
    uint64_t rows;
} zt_call;

/* Sites of dropout in a layer; maps with adapters count up from ZT_SITE_MAP. */
enum {
    ZT_SITE_EMBED,
    ZT_SITE_ATTENTION,
    ZT_SITE_HIDDEN_1,
    ZT_SITE_HIDDEN_2,
    ZT_SITE_POOLED,
    ZT_SITE_MAP
};

/* Key of a dropout mask.  Pass, layer and site are part of it, so masks differ. */
uint64_t zt_seed(const zt_call *c, uint32_t site);

/* y = dropout(x) [+ add] over n elements with rate p; without dropout in evaluation. */
void zt_drop(const zt_call *c, uint32_t site, float p, const zt_dropout *a);

static inline const void *zt_weight(const zt_model *m, uint32_t param)
{
    assert(param == ZT_NO_PARAM || param < m->params.n);
    return param == ZT_NO_PARAM ? NULL : m->params.at[param].w;
}

/* Address for a gradient (NULL: frozen) and whether to add to it; marks it as written. */
void *zt_grad(zt_model *m, uint32_t param, bool *add);

/* False if neither this layer nor any layer below it has trained parameters. */
bool zt_wants_backward(const zt_model *m, const zt_layer *l);

/*
 * Forward of a linear map with its adapter.
 *
 * x       input [rows, in], dense
 * y       output [rows, out] with ldy (0: dense)
 * pre     with act: output for act's input
 * low     adapter: [rows, rank], kept for the backward pass
 * spare   scratch of zt_map_spare() bytes
 */
typedef struct zt_map_fw {
    uint64_t ldx, ldy; /* ldx only without an adapter */
    bool y_add;
    zt_act act;
    const void *x;
    void *y, *pre, *low, *spare;
} zt_map_fw;
void zt_map_forward(const zt_call *c, const zt_map *l, const zt_map_fw *f);

/* Gradients of a linear map.  dx (NULL: not needed) must be dense when the map has an adapter. */
typedef struct zt_map_bw {
    uint64_t ldx, lddy, lddx;
    bool dx_add;
    const void *x, *dy;
    void *dx, *low, *spare;
} zt_map_bw;
void zt_map_backward(const zt_call *c, const zt_map *l, const zt_map_bw *g);

/* Bytes of `low` and `spare` for a map (0 without an adapter). */
uint64_t zt_map_low(const zt_model *m, const zt_map *l, uint64_t rows);
uint64_t zt_map_spare(const zt_model *m, const zt_map *l, uint64_t rows);

/* The largest `spare` of the first n_maps maps of a block. */
uint64_t zt_block_spare(const zt_model *m, const zt_block *k, int n_maps, uint64_t rows);

/*
 * Run a norm with its parameters.  The caller sets x, add, sum, y, mean, rstd (for gradients x, dy,
 * mean, rstd, dx, dx_add), and rows and width if they are not the call's rows and the hidden size.
 */
void zt_affine_forward(const zt_call *c, const zt_affine *n, zt_norm *a);
void zt_affine_backward(const zt_call *c, const zt_affine *n, zt_norm_grad *a);

/*
 * Residual: y = x + dropout(branch), where zt_map_forward computes the branch from `f` (this sets
 * y, y_add).  `site` is part of the dropout key.
 */
void zt_map_residual(const zt_call *c, const zt_map *l, zt_map_fw *f, const void *x, uint32_t site);

/* Gradient of a branch below dropout: dy itself without dropout, or its masked copy in `spare`
 * (rows * width elements). */
const void *zt_branch_grad(const zt_call *c, uint32_t site, const void *dy, uint64_t width,
                           void *spare);

/*
 * Rotate heads by their positions, with the model's frequencies (rope.c).  The caller sets heads,
 * ld, inverse and x.
 */
void zt_rotate(const zt_call *c, zt_rope *a);

/* ---- generation (cache.c) ---- */

/*
 * Run the attention of a decoder over its own tokens, those in the cache too, if there is one.  a
 * is that of an ordinary pass, and changes.
 */
void zt_attend(const zt_call *c, zt_attention *a);

/* The same for cross-attention; k and v are read in the first pass alone. */
void zt_attend_source(const zt_call *c, zt_attention *a);

uint64_t zt_cache_filled(const zt_cache *c); /* tokens of earlier passes */
uint64_t zt_cache_room(const zt_cache *c);

/* Positions of the pass's rows, on the device; place: that of one row. */
const int32_t *zt_cache_positions(const zt_cache *c);
int32_t zt_cache_place(const zt_cache *c, uint64_t row);

/*
 * Look up one row of a table of cosines (which 0) or sines (1) for each of `rows` rows.  table: its
 * rows, width and memory.
 */
const float *zt_cache_turns(zt_cache *c, int which, const zt_rows *table, uint64_t rows);

/* ---- the head of language models ---- */

/* The computation between the blocks and the map to the vocabulary, over n rows.  h has the width
 * of that map's input. */
typedef struct zt_lm_body {
    uint64_t (*kept)(const zt_model *m, uint64_t n); /* bytes that fw stores for bw */
    void (*fw)(const zt_call *c, void *kept, const void *x, void *h);
    void (*bw)(const zt_call *c, void *kept, const void *x, const void *dh,
               void *dx); /* dx must not be dh */
    bool shifted;         /* row t predicts token t + 1 */
    bool loss_in_dt;      /* the loss has the model's dtype (BERT, T5), else fp32 */
} zt_lm_body;

/*
 * The head of a language model: x [rows, hidden] to logits and loss, in chunks of rows so that all
 * logits never exist at once.  Rows without a label cost nothing.
 */
extern const zt_layer_ops zt_lm_ops; /* with zt_own.lm */

/* Only the final norm: GPT-2 and Llama (ends.c). */
extern const zt_lm_body zt_final_norm;

/* T5: the final norm, dropout and a scale. */
extern const zt_lm_body zt_t5_final;

/* The factor of the loss' gradient, rounded as in torch. */
float zt_loss_factor(const zt_call *c, bool loss_in_dt);

/* Round v to a dtype. */
double zt_round_to(ckpt_dtype dt, double v);

#endif
