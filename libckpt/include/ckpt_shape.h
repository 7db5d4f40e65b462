/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_shape.h: changes a map's tensors between opening and writing.
 *
 * Selecting and renaming, layout maps, quantized weights, vocabularies and ties, adapters, merges.
 * A function that fails leaves the map as it was, with the same tensors at the same addresses; the
 * memory that the attempt has used is returned when the map is freed.
 * A part of ckpt_extra.h: it is not stable yet and may change in any release.
 */
#ifndef CKPT_SHAPE_H
#define CKPT_SHAPE_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- selecting and renaming ---- */

typedef struct ckpt_filter {
    size_t size;                /* sizeof this struct, or 0: see ckpt.h */
    const char *const *include; /* NULL-terminated globs; NULL: everything */
    const char *const *exclude; /* NULL-terminated globs */
    /*
     * a layout map (ckpt-maps(7)), whose rules are mostly names, one per line: PATTERN REPLACEMENT.
     * '*' matches any run of characters; a tensor without a rule keeps its name; or NULL
     */
    const char *rename_text;
    bool skip_state; /* drop CKPT_ROLE_STATE */
} ckpt_filter;

/*
 * Keep and rename tensors of a map, in place. A kept name that is tied to a dropped one becomes the
 * owner of the values.
 *
 * Errors   CKPT_EUSAGE: a bad rule; CKPT_EMISMATCH: two tensors would get one name; CKPT_EMISSING:
 *          no tensor is left
 */
CKPT_API int ckpt_map_select(ckpt_map *map, const ckpt_filter *filter, ckpt_err *err);

typedef struct ckpt_model_opts {
    size_t size;     /* sizeof this struct, or 0: see ckpt.h */
    bool keep_names; /* keep the checkpoint's names unchanged */
    bool run;        /* the map will become a training run: refuse a file with several models */
    /*
     * text of a config.json to use instead of the one in the source's folder (it is also copied
     * into a model folder), and the file's name for messages; NULL: none
     */
    const char *config_text, *config_name;
    /* keep the tensors with CKPT_ROLE_OTHER; without this, only a saved run keeps them */
    bool keep_others;
} ckpt_model_opts;

/*
 * Keep only the model of a file that holds more ({"model": ..., "optimizer": ...}), in place, drop
 * tensors with CKPT_ROLE_OTHER (a map without a tensor of the model keeps them), and
 * remove wrapper prefixes from its tensors' names: the keys that lead to the model, the parts that
 * torch's wrappers add ("_orig_mod."), and prefixes of all names ("module.", Lightning's "model.")
 * if the shorter names are those of the architecture. Findings of the map list everything that was
 * dropped and removed.
 *
 * Errors   CKPT_EUNSUPPORTED: several models, and no hint which one to keep; CKPT_EFORMAT:
 *          config_text is malformed; CKPT_ELIMIT
 */
CKPT_API int ckpt_map_keep_model(ckpt_map *map, const ckpt_model_opts *opts, ckpt_err *err);

/*
 * Make other weights of a saved run the weights of its model, in place, before ckpt_map_keep_model.
 *
 * which    "ema": the only averaged copy of the model that a program saved beside it; any other
 *          word: the copy below this path of keys ("model_ema"). Each tensor of the copy takes the
 *          name and the place of the model's tensor with its name and shape; weights without a copy
 *          stay and are listed. The map must have the tensors beside the model (with_optimizer).
 *          "schedule-free": compute the weights that a schedule-free optimizer evaluates, from a
 *          map that was opened as a run (training, with_optimizer); the map keeps no optimizer
 *          state
 * Errors   CKPT_EMISSING: no such weights; CKPT_EUNSUPPORTED: several copies, or a state of another
 *          form; CKPT_EMISMATCH: names or shapes differ from the model's; CKPT_EFORMAT; CKPT_ELIMIT
 */
CKPT_API int ckpt_map_take_weights(ckpt_map *map, const char *which, ckpt_err *err);

/*
 * Set the folder with the configuration and the tokenizer of the map's model, if they are not in
 * the checkpoint's folder or the caller wants others. ckpt reads the folder when a layout map, ties
 * or a target need it.
 */
CKPT_API int ckpt_map_set_model_folder(ckpt_map *map, const char *folder, ckpt_err *err);

/* ---- layout maps ---- */

/* The rules that turn the tensors of one layout into those of another: see ckpt-maps(7). */
typedef struct ckpt_remap ckpt_remap;

/*
 * Parse a layout map. name begins messages: "my.map".
 *
 * Errors   CKPT_EUSAGE: a line that is not a rule, with its number; CKPT_ELIMIT
 */
CKPT_API int ckpt_remap_new(ckpt_remap **out, const char *name, const char *text, ckpt_err *err);
CKPT_API void ckpt_remap_free(ckpt_remap *r);

/* The names of its two layouts, "hf" and "megatron", and its description; "": none. */
CKPT_API const char *ckpt_remap_side(const ckpt_remap *r, bool right);
CKPT_API const char *ckpt_remap_description(const ckpt_remap *r);

/*
 * The models that it is for on one side, as that side's configuration names them ("llama", for
 * `left when model_type in llama mistral`); NULL after the last.
 */
CKPT_API const char *ckpt_remap_model(const ckpt_remap *r, bool right, size_t i);

/*
 * True if the layout map declares this size, or its expressions look it up: ckpt_remap_opts.sizes
 * may then set it.
 */
CKPT_API bool ckpt_remap_has_size(const ckpt_remap *r, const char *name);

/* True if it can recognise checkpoints of its right side by their names (`right has`). */
CKPT_API bool ckpt_remap_recognizes(const ckpt_remap *r);

/*
 * True if it joins the slices of model-parallel ranks itself: open with ckpt_open_opts.keep_slices.
 */
CKPT_API bool ckpt_remap_keeps_slices(const ckpt_remap *r, bool right);

/*
 * True if its rules take weights of this side in the blocks that ckpt_map_repack makes.
 */
CKPT_API bool ckpt_remap_keeps_blocks(const ckpt_remap *r, bool right);

/*
 * A rule of a layout map, and its results in the last ckpt_map_remap, even if that failed.
 */
typedef struct ckpt_remap_rule {
    unsigned line;
    char what;        /* '=', 'd' drop, 't' tie, 'f' fill */
    const char *left; /* the first pattern of the side; NULL: the rule has none */
    const char *right;
    size_t n_left, n_right; /* patterns */
    bool optional;          /* a model may lack its tensors */
    bool off;               /* its condition is for other models */
    uint64_t n_tensors;     /* tensors of the source that it took */
} ckpt_remap_rule;

/* Get the i-th rule, in the order of the text; false after the last. */
CKPT_API bool ckpt_remap_rule_at(const ckpt_remap *r, size_t i, ckpt_remap_rule *out);

/*
 * Receives a tensor that becomes no part of the other layout, and why. line: the `drop` rule that
 * names it; 0: no rule takes it. A non-zero return ends the application.
 */
typedef int (*ckpt_remap_left_fn)(void *ctx, const char *tensor, unsigned line, const char *why);

typedef struct ckpt_remap_opts {
    size_t size;    /* sizeof this struct, or 0: see ckpt.h */
    bool backwards; /* translates from the right layout to the left one */
    /*
     * the model's config.json, which takes precedence over those in the source's folder, and its
     * name for messages; or NULL
     */
    const char *config_text, *config_name;
    /*
     * "heads=32", "rope_theta=500000", NULL-terminated: values of sizes and of names in its
     * expressions, which override all other sources; or NULL
     */
    const char *const *sizes;
    /*
     * a map of the same model, or NULL: its configuration gives the values that no other source
     * has. It must live as long as the changed map
     */
    ckpt_map *like;
    /*
     * called with each tensor that is dropped, and with each that no rule takes, which is left
     * out; NULL: the latter is an error
     */
    ckpt_remap_left_fn left;
    void *left_ctx;
} ckpt_remap_opts;

/*
 * Set *yes if the map has the architecture that the layout map is for. Errors: CKPT_EFORMAT,
 * CKPT_ELIMIT
 */
CKPT_API int ckpt_remap_matches(ckpt_map *map, ckpt_remap *r, const ckpt_remap_opts *opts,
                                bool *yes, ckpt_err *err);

/*
 * Apply a layout map to a map, in place: its tensors become those of the other layout. No payload
 * is read. If a rule drops a head because it is tied, a run fails unless the head equals its table.
 *
 * Errors   CKPT_EMISMATCH: a size that does not fit, an element that is used twice or not at all,
 *          or a tensor that no rule names; CKPT_EMISSING: a tensor or a size that a rule needs;
 *          CKPT_EUSAGE, CKPT_EUNSUPPORTED, CKPT_ELIMIT
 */
CKPT_API int ckpt_map_remap(ckpt_map *map, ckpt_remap *r, const ckpt_remap_opts *opts,
                            ckpt_err *err);

/* ---- quantized weights ---- */

/*
 * True if weights are low-precision numbers with scales in separate tensors (fp8, MXFP4, GPTQ ...).
 */
CKPT_API bool ckpt_map_is_quantized(const ckpt_map *map);

/* A kind of quantized weights that ckpt_map_dequantize reads; lives as long as the program. */
typedef struct ckpt_quantization {
    const char *method; /* quant_method of config.json */
    const char *format; /* its format, packing or algorithm there; "": the method has just one */
    const char *note;   /* a line for people */
} ckpt_quantization;

/* The kinds in the order of a table; NULL: i is too large. */
CKPT_API const ckpt_quantization *ckpt_quantization_at(size_t i);

/*
 * Turn quantized weights into floats, in place; drop their scales and quantization_config.
 *
 * rounded  round to the dtype of config.json (or BF16), as programs load them; false: round only
 *          once, when written
 * Errors   CKPT_EUNSUPPORTED: an unknown scheme; CKPT_EMISMATCH: scales do not fit their weight;
 *          CKPT_EMISSING: a weight has no scale; CKPT_ELIMIT
 */
CKPT_API int ckpt_map_dequantize(ckpt_map *map, bool rounded, ckpt_err *err);

/*
 * Like ckpt_map_dequantize, but leave weights whose blocks another format has, too, in blocks of
 * that format, with the same bits: gpt-oss' X_blocks and X_scales become X_blocks of the dtype
 * MXFP4, [experts, out, in], as GGUF stores them.
 */
CKPT_API int ckpt_map_repack(ckpt_map *map, bool rounded, ckpt_err *err);

/*
 * Convert the moments of bitsandbytes' 8-bit Adams to Adam's in fp32, in place. Without this,
 * writers of training state refuse them or keep their 8-bit form. The values equal those of
 * bitsandbytes' dequantize_blockwise bit for bit.
 *
 * n       number of parameters with converted moments; 0: the map has no 8-bit moments
 * Errors  CKPT_EUNSUPPORTED: moments of an optimizer other than Adam; CKPT_ELIMIT
 */
CKPT_API int ckpt_map_dequantize_moments(ckpt_map *map, uint64_t *n, ckpt_err *err);

typedef struct ckpt_quantize {
    size_t size; /* sizeof this struct, or 0: see ckpt.h */
    /*
     * "fp8-block", "fp8-block:64x64", "fp8-channel", "w4a16", "w4a16:64" (columns of a group),
     * "w8a16", "nvfp4a16", "mxfp4a16", "mlx4", "mlx8"
     */
    const char *form;
    /* NULL-terminated globs of weights to leave unchanged, besides heads; or NULL */
    const char *const *skip;
    ckpt_dtype dtype; /* dtype of the remaining floats; NONE: unchanged */
} ckpt_quantize;

/*
 * Quantize the matrices of linear layers with scales beside them, in place, rounding to the nearest
 * number: to fp8 (E4M3), with "X_scale_inv" for blocks as in transformers' FineGrainedFP8 and
 * DeepSeek, or "X_scale" for rows as in compressed-tensors; or to numbers with a scale for a group
 * of columns, as compressed-tensors' pack-quantized, nvfp4-pack-quantized and mxfp4-pack-quantized,
 * or MLX's affine mode. The output's config.json declares it.
 *
 * Errors   CKPT_EUSAGE: no such form; CKPT_EMISMATCH: there is no such matrix; CKPT_EUNSUPPORTED:
 *          the weights are already quantized; CKPT_ELIMIT. A run fails (CKPT_EUNSUPPORTED) if a
 *          weight is NaN or infinite.
 */
CKPT_API int ckpt_map_quantize(ckpt_map *map, const ckpt_quantize *opts, ckpt_err *err);

/* ---- vocabulary and tied heads ---- */

typedef struct ckpt_vocab_opts {
    size_t size;   /* sizeof this struct, or 0: see ckpt.h */
    uint64_t rows; /* number of tokens after the change */
    /*
     * NULL-terminated globs of the tensors whose first axis is the vocabulary; NULL: find them by
     * config.json's vocab_size
     */
    const char *const *tensors;
    /*
     * the model's config.json, which takes precedence over the one in the source's folder, and its
     * name; or NULL
     */
    const char *config_text, *config_name;
} ckpt_vocab_opts;

/*
 * Cut rows from a model's embedding and head, or add rows of zeros, in place; their moments and the
 * output's config.json follow. ckpt reads the cut rows unless config.json declares them as padding,
 * and warns about rows that are not zero.
 *
 * Errors   CKPT_EMISSING: the current size is unknown; CKPT_EMISMATCH: no tensor has that size, or
 *          other axes have it too; CKPT_EUSAGE: a glob without a match; CKPT_EUNSUPPORTED: packed
 *          rows, moments of another shape; those of reading
 */
CKPT_API int ckpt_map_resize_vocab(ckpt_map *map, const ckpt_vocab_opts *opts, ckpt_err *err);

/*
 * Tie a head to the embedding table that it repeats, in place: it becomes a second name of the
 * table; a run fails if an element differs.
 *
 * names    "HEAD=EMBEDDING", or "HEAD" if exactly one other tensor outside of layers has its shape;
 *          NULL: the head and the table that config.json declares as tied, if both exist; names
 *          that are tied already belong to the table, as in files of transformers
 * Errors   CKPT_EMISSING: no such tensor; CKPT_EUSAGE: tied already, or several tables;
 *          CKPT_EMISMATCH: different shapes or dtypes
 */
CKPT_API int ckpt_map_tie(ckpt_map *map, const char *names, ckpt_err *err);

/*
 * Give each tied name its own values, in place, including a head that the folder omits because it
 * is tied.
 *
 * Errors   CKPT_EUSAGE: no tensors are tied
 */
CKPT_API int ckpt_map_untie(ckpt_map *map, ckpt_err *err);

/* ---- adapters ---- */

typedef struct ckpt_adapter {
    size_t size; /* sizeof this struct, or 0: see ckpt.h */
    /* a folder with adapter_config.json, the run that trained it, or a diffusion LoRA's file */
    const char *path;
    double weight; /* factor of its updates; 0: 1 */
    /* write the head separately, with its old values, in a model that ties it to the embedding */
    bool untie;
    /* of a run: as in ckpt_adapter_only */
    const char *config, *name;
    /*
     * paths of other adapters that the caller merges, with NULL at the end, or NULL: an adapter in
     * a subfolder of path that is not one of them gives a warning
     */
    const char *const *further;
} ckpt_adapter;

/*
 * Merge an adapter of PEFT (LoRA, DoRA, IA3, LoHa, LoKr, VeRA, OFT, trainable tokens) into the
 * weights of its base, in place: reads of the map return the merged weight, computed in F32 and
 * rounded once. Call it again for another adapter. A LoRA of Stable Diffusion 1.x, SDXL or Flux, in
 * the names of kohya, diffusers or ComfyUI, is merged into a pipeline or a component, and rounded
 * at each step to the dtype of the weight.
 *
 * Errors   CKPT_EUNSUPPORTED: another kind of adapter; CKPT_EMISSING, CKPT_EMISMATCH: a tensor of
 *          the adapter does not fit the base, or is not used; those of ckpt_open
 */
CKPT_API int ckpt_map_merge_adapter(ckpt_map *map, const ckpt_adapter *adapter, ckpt_err *err);

typedef struct ckpt_adapter_only {
    size_t size;        /* sizeof this struct, or 0: see ckpt.h */
    const char *config; /* path of its adapter_config.json; NULL: the one in the run's folder */
    const char *name;   /* name of the adapter, if the run has several; NULL: the only one */
} ckpt_adapter_only;

/*
 * Keep only the adapter of a run that trained one, in place, under the names of PEFT's files; "hf"
 * and "hf-bin" targets write it as an adapter folder.
 *
 * only     NULL: the only adapter, with the configuration in the run's folder
 * Errors   CKPT_EMISSING: there is none; CKPT_EUSAGE: several, or no config; CKPT_EMISMATCH: the
 *          config belongs to another adapter
 */
CKPT_API int ckpt_map_keep_adapter(ckpt_map *map, const ckpt_adapter_only *only, ckpt_err *err);

/*
 * Give a LoRA adapter of PEFT the keys of an adapter in GGUF, in place; a layout map from "hf" to
 * "gguf" then converts its matrices by the rules for the weights that they change, and needs the
 * base model's configuration for that (ckpt_remap_opts.config_text).
 *
 * config   path of adapter_config.json; NULL: the one in the folder of the map
 * Errors   CKPT_EUSAGE: there is none; CKPT_EUNSUPPORTED: llama.cpp cannot apply such an adapter;
 *          CKPT_EMISSING, CKPT_EMISMATCH: its tensors are incomplete, or have other ranks
 */
CKPT_API int ckpt_map_adapter_keys(ckpt_map *map, const char *config, ckpt_err *err);

/*
 * Make the adapter_config.json that "hf" and "hf-bin" targets write, in place, from the keys of an
 * adapter in GGUF that a layout map has converted; does nothing for other maps.
 *
 * Errors   CKPT_EUNSUPPORTED: PEFT cannot apply such an adapter; CKPT_EMISSING, CKPT_EMISMATCH
 */
CKPT_API int ckpt_map_adapter_config(ckpt_map *map, ckpt_err *err);

/* The largest rank of ckpt_map_extract_lora. */
#define CKPT_EXTRACT_MAX_RANK 65536

/* The treatment of tensors that differ and that LoRA cannot change: norms, embeddings, biases. */
typedef enum ckpt_extract_rest {
    CKPT_EXTRACT_REFUSE, /* fail, and name them */
    CKPT_EXTRACT_SAVE,   /* write their modules whole (modules_to_save) */
    CKPT_EXTRACT_DROP    /* leave them out, and note their names */
} ckpt_extract_rest;

/* A matrix with an approximated difference. */
typedef struct ckpt_extracted {
    const char *module; /* "model.layers.0.self_attn.q_proj" */
    size_t index, total;
    uint64_t rows, cols;
    double norm; /* Frobenius norm of the difference */
    double rest; /* norm of the difference minus the product of the written factors */
} ckpt_extracted;

/* A non-zero return ends the extraction (CKPT_ECANCELED). */
typedef int (*ckpt_extracted_fn)(void *ctx, const ckpt_extracted *matrix);

typedef struct ckpt_extract {
    size_t size;      /* sizeof this struct, or 0: see ckpt.h */
    uint32_t rank;    /* at least 1 */
    ckpt_dtype dtype; /* of the factors: F32 (also NONE), F16 or BF16 */
    ckpt_extract_rest rest;
    unsigned jobs;         /* threads; 0: one per processor, at most 8 */
    const char *base_name; /* base_model_name_or_path; NULL: the base's path */
    ckpt_extracted_fn fn;  /* called after each matrix; or NULL */
    void *ctx;
    /* a config.json, instead of those beside the models, and its name for messages; or NULL */
    const char *config_text, *config_name;
} ckpt_extract;

/*
 * Make a LoRA adapter from a model and the base that it was trained from, in place: of each linear
 * layer whose matrix differs, the best approximation of the difference by a matrix of the rank
 * (singular value decomposition, in F64); "hf" and "hf-bin" targets write its folder.
 *
 * base     has the same tensors; quantized weights become floats
 * Errors   CKPT_EUSAGE: the options; CKPT_EMISSING, CKPT_EMISMATCH: the models do not belong
 *          together, or are equal; CKPT_EUNSUPPORTED: other tensors differ (see rest);
 *          CKPT_EDOUBT: a difference is not finite, a factor is beyond the range of dtype, or the
 *          model's type is unknown and decides whether a matrix is transposed; those of
 *          ckpt_reader_read
 */
CKPT_API int ckpt_map_extract_lora(ckpt_map *tuned, ckpt_map *base, const ckpt_extract *extract,
                                   ckpt_err *err);

/*
 * Give a LoRA of a diffusion model (Stable Diffusion 1.x, SDXL, Flux) the names of another program,
 * in place. The spelling and the model of the map follow from its tensors' names.
 *
 * names    "kohya" (sd-scripts), "diffusers" (and PEFT) or "comfyui"; after a colon the model, if
 *          the names do not tell: "kohya:sd", "kohya:sdxl", "kohya:flux"
 * Errors   CKPT_EUNSUPPORTED: a tensor that no such adapter has (the message names it), another
 *          kind of adapter, or one that the other program cannot express; CKPT_EMISSING,
 *          CKPT_EMISMATCH: factors that are missing or do not fit each other; CKPT_EUSAGE: unknown
 *          names, or the model is in doubt
 */
CKPT_API int ckpt_map_lora_names(ckpt_map *map, const char *names, ckpt_err *err);

/* ---- merging models ---- */

typedef struct ckpt_merge_model {
    const char *path;
    const char *tag; /* tag of a run, or NULL */
    double weight;
} ckpt_merge_model;

/*
 * Gives n opened models the same names (ckpt_map_remap) before their tensors are paired by name;
 * the base, or the first model without a base, comes first. Returns CKPT_OK, or a code with err
 * filled in.
 */
typedef int (*ckpt_merge_names_fn)(void *ctx, ckpt_map *const *models, size_t n, ckpt_err *err);

typedef struct ckpt_merge {
    size_t size; /* sizeof this struct, or 0: see ckpt.h */
    /* as in mergekit: "linear", "slerp", "task_arithmetic", "ties", "dare_linear", "dare_ties" */
    const char *method;
    const ckpt_merge_model *models;
    size_t n_models;
    const char *base;    /* path of the model that the others were trained from; linear: NULL */
    double density;      /* fraction of each difference that is kept (ties, dare); 0: all */
    double lambda;       /* factor of the sum of differences; 0: 1 */
    double t;            /* slerp: 0 is the base, 1 the other model */
    bool skip_normalize; /* do not divide weights by their sum (linear, ties) */
    uint64_t seed;       /* seed of dare's random choice */
    /*
     * a mergekit configuration (YAML) instead of these members, and its name for messages; or NULL
     */
    const char *config_text, *config_name;
    const ckpt_open_opts *open; /* options for each model; or NULL */
    bool keep_names;            /* keep the prefixes of wrappers in names (ckpt_map_keep_model) */
    ckpt_merge_names_fn names;  /* NULL: models are paired by their own names */
    void *names_ctx;
} ckpt_merge;

/*
 * Open several models as the map of their merge: reads of the map compute in F32 for models of any
 * format and dtype, and round once. All models have the same tensors; tensors that are not floating
 * must be equal. Side files come from the base, or from the first model.
 *
 * Errors   CKPT_EMISSING, CKPT_EMISMATCH: models that do not belong together; CKPT_EUSAGE,
 *          CKPT_EUNSUPPORTED: a bad or unknown merge; those of ckpt_open
 */
CKPT_API int ckpt_merge_open(ckpt_map **out, const ckpt_merge *merge, ckpt_err *err);

typedef struct ckpt_adapters {
    size_t size; /* sizeof this struct, or 0: see ckpt.h */
    /*
     * as in peft's add_weighted_adapter: "cat" adds the ranks, and is exact; "linear" keeps the
     * rank, and is an approximation
     */
    const char *method;
    const ckpt_merge_model *adapters; /* folders of LoRA adapters; tag is not used */
    size_t n_adapters;
    const ckpt_open_opts *open; /* options for each adapter; or NULL */
} ckpt_adapters;

/*
 * Open several LoRA adapters of one base as the map of one adapter, whose update is the sum of
 * theirs, each times its weight; weights are not divided by their sum. "hf" and "hf-bin" targets
 * write its folder, with the configuration of the first adapter and other ranks and targets.
 *
 * Errors   CKPT_EUSAGE, CKPT_EUNSUPPORTED: another method, kind of adapter or option, such as
 *          DoRA and modules_to_save; CKPT_EMISSING, CKPT_EMISMATCH: adapters that are cut, or do
 *          not belong together; those of ckpt_open
 */
CKPT_API int ckpt_adapters_open(ckpt_map **out, const ckpt_adapters *set, ckpt_err *err);

/*
 * Called with the path of each model that a merge would open, and of its base; a non-zero return
 * stops.
 */
typedef int (*ckpt_merge_path_fn)(void *ctx, const char *path);

/*
 * List the paths that a merge would open without opening a model, for a program that then gives up
 * its access to all other files.
 *
 * Errors   CKPT_ECANCELED: fn returned a non-zero value; else those of the merge itself
 */
CKPT_API int ckpt_merge_paths(const ckpt_merge *merge, ckpt_merge_path_fn fn, void *ctx,
                              ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
