/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_shape.h: what becomes of a map's tensors between opening and writing.
 *
 * Selecting and renaming, layout maps, quantized weights, vocabularies and ties, adapters, merges.
 * A part of ckpt.h, which includes it and is what programs include; installed beside it.
 */
#ifndef CKPT_SHAPE_H
#define CKPT_SHAPE_H

/* ---- selecting and renaming ---- */

typedef struct ckpt_filter {
    size_t size;                /* sizeof this struct, or 0: see above */
    const char *const *include; /* NULL-terminated globs; NULL: everything */
    const char *const *exclude; /* NULL-terminated globs */
    /*
     * a layout map (ckpt-maps(7)) whose rules mostly are names, one a line: PATTERN REPLACEMENT,
     * '*' matches any run; what none names stays; or NULL
     */
    const char *rename_text;
    bool no_state; /* drop CKPT_ROLE_STATE */
} ckpt_filter;

/*
 * Keep and rename tensors of a map, in place.  If a kept name is tied to a dropped one it becomes
 * the owner.
 * Errors   CKPT_EUSAGE: a bad rule; CKPT_EMISMATCH: two tensors would get one name; CKPT_EMISSING:
 *          nothing is left
 */
CKPT_API int ckpt_map_select(ckpt_map *map, const ckpt_filter *filter, ckpt_err *err);

typedef struct ckpt_model_opts {
    size_t size;     /* sizeof this struct, or 0: see above */
    bool keep_names; /* names stay as the checkpoint has them */
    bool run;        /* the map is to become a run: a file with several models is refused */
    /*
     * the model's config.json, which goes before that beside the source and along to a model
     * folder, and its name for messages; or NULL
     */
    const char *config_text, *config_name;
} ckpt_model_opts;

/*
 * Keep the model alone of a file that holds more ({"model": ..., "optimizer": ...}), in place, and
 * take the names of wrappers off its tensors: keys that lead to it, parts that torch's wrappers add
 * ("_orig_mod."), and words that all names begin with ("module.", Lightning's "model.") where the
 * names then are those of the architecture.  Notes say what was left behind and taken off.
 *
 * Errors   CKPT_EUNSUPPORTED: several models, and nothing says which is meant; CKPT_EFORMAT: of
 *          config_text; CKPT_ELIMIT
 */
CKPT_API int ckpt_map_model(ckpt_map *map, const ckpt_model_opts *opts, ckpt_err *err);

/*
 * Say where the configuration and the tokenizer of the map's model are, where no such files stand
 * beside the checkpoint, or others.  The folder is read when a map, ties or a target ask for them.
 */
CKPT_API int ckpt_map_set_model_folder(ckpt_map *map, const char *folder, ckpt_err *err);

/* ---- layout maps ---- */

/* A text that says how the tensors of one layout are those of another: see ckpt-maps(7). */
typedef struct ckpt_remap ckpt_remap;

/*
 * Understand a text.  name begins messages: "my.map".
 *
 * Errors   CKPT_EUSAGE: a line that is no rule, with its number; CKPT_ELIMIT
 */
CKPT_API int ckpt_remap_new(ckpt_remap **out, const char *name, const char *text, ckpt_err *err);
CKPT_API void ckpt_remap_free(ckpt_remap *r);

/* The layouts of its two sides, "hf" and "megatron", and what it says of itself; "": nothing. */
CKPT_API const char *ckpt_remap_side(const ckpt_remap *r, bool right);
CKPT_API const char *ckpt_remap_about(const ckpt_remap *r);

/* It has a size of this name, or its expressions look it up: ckpt_remap_opts.sizes may give it. */
CKPT_API bool ckpt_remap_knows(const ckpt_remap *r, const char *name);

/* It knows checkpoints of its right side by their names (`right has`). */
CKPT_API bool ckpt_remap_recognizes(const ckpt_remap *r);

/* It joins the slices of model-parallel ranks itself: ckpt_open_opts.keep_slices is to be set. */
CKPT_API bool ckpt_remap_keeps_slices(const ckpt_remap *r, bool right);

typedef struct ckpt_remap_opts {
    size_t size;    /* sizeof this struct, or 0: see above */
    bool backwards; /* from the right side's layout to the left's */
    /*
     * the model's config.json, looked into before those beside the source, and its name for
     * messages; or NULL
     */
    const char *config_text, *config_name;
    /*
     * "heads=32", "rope_theta=500000", NULL-terminated: sizes of the text, and what its expressions
     * look up, before all that says otherwise; or NULL
     */
    const char *const *sizes;
} ckpt_remap_opts;

/* *yes: the map is of the architecture that the text is for.  Errors: CKPT_EFORMAT, CKPT_ELIMIT */
CKPT_API int ckpt_remap_matches(ckpt_map *map, ckpt_remap *r, const ckpt_remap_opts *opts,
                                bool *yes, ckpt_err *err);

/*
 * Apply it to a map, in place: its tensors become those of the other layout.  Nothing is read.
 *
 * Errors   CKPT_EMISMATCH: a size that does not fit, an element that is used twice or not at all,
 *          or a tensor that no rule names; CKPT_EMISSING: a tensor or a size that a rule needs;
 *          CKPT_EUSAGE, CKPT_EUNSUPPORTED, CKPT_ELIMIT.  The map can then only be freed.
 */
CKPT_API int ckpt_map_remap(ckpt_map *map, ckpt_remap *r, const ckpt_remap_opts *opts,
                            ckpt_err *err);

/* ---- quantized weights ---- */

/* The weights are small numbers whose scales are tensors of their own (fp8, MXFP4, GPTQ ...). */
CKPT_API bool ckpt_map_quantized(const ckpt_map *map);

/*
 * Let such weights be the floats that they mean, in place; scales and quantization_config go.
 *
 * rounded  to the dtype of config.json (or BF16), as programs load them; else once, when written
 * Errors   CKPT_EUNSUPPORTED: another way; CKPT_EMISMATCH, CKPT_EMISSING: of scales; CKPT_ELIMIT
 */
CKPT_API int ckpt_map_dequantize(ckpt_map *map, bool rounded, ckpt_err *err);

typedef struct ckpt_quantize {
    size_t size;             /* sizeof this struct, or 0: see above */
    const char *form;        /* "fp8-block", "fp8-block:64x64" or "fp8-channel" */
    const char *const *skip; /* NULL-terminated globs of weights that stay, beside heads; or NULL */
    ckpt_dtype dtype;        /* of the floats that stay; NONE: what they are */
} ckpt_quantize;

/*
 * Let the matrices of linear layers be fp8 (E4M3) with scales beside them, in place: "X_scale_inv"
 * for blocks, as transformers' FineGrainedFP8 and DeepSeek have them, or "X_scale" for rows, as
 * compressed-tensors has them.  A written config.json says so (quantization_config).
 *
 * Errors   CKPT_EUSAGE: no such form; CKPT_EMISMATCH: there is no such matrix; CKPT_EUNSUPPORTED:
 *          the weights are quantized already; CKPT_ELIMIT.  The map can then only be freed.  A run
 *          fails (CKPT_EUNSUPPORTED) where a weight has NaN or infinity.
 */
CKPT_API int ckpt_map_quantize(ckpt_map *map, const ckpt_quantize *opts, ckpt_err *err);

/* ---- vocabulary and tied heads ---- */

typedef struct ckpt_vocab_opts {
    size_t size;   /* sizeof this struct, or 0: see above */
    uint64_t rows; /* tokens that the tables shall have */
    /*
     * NULL-terminated globs: the tensors whose first axis is the vocabulary; NULL: by config.json's
     * vocab_size
     */
    const char *const *tensors;
    /* the model's config.json, looked into before that beside the source, and its name; or NULL */
    const char *config_text, *config_name;
} ckpt_vocab_opts;

/*
 * Cut rows off a model's embedding and head, or add rows of zeros, in place; moments and a written
 * config.json follow.  Rows that are cut are read where config.json does not call them padding:
 * those that are not zeros make a warning.
 *
 * Errors   CKPT_EMISSING: nothing says the present size; CKPT_EMISMATCH: no tensors have it, or
 *          other sizes are equal; CKPT_EUSAGE: a glob that matches nothing; CKPT_EUNSUPPORTED:
 *          packed rows, moments of another shape; those of reading.  The map can then only be
 *          freed.
 */
CKPT_API int ckpt_map_vocab(ckpt_map *map, const ckpt_vocab_opts *opts, ckpt_err *err);

/*
 * Make a head another name of the table that it repeats, in place; a run fails where an element
 * differs.
 *
 * names    "HEAD=TABLE", or "HEAD" where one other tensor outside of layers is of its shape; NULL:
 *          the head and the table that config.json says are tied, if both are there
 * Errors   CKPT_EMISSING: no such tensor; CKPT_EUSAGE: tied already, or several tables;
 *          CKPT_EMISMATCH: other shapes or dtypes
 */
CKPT_API int ckpt_map_tie(ckpt_map *map, const char *names, ckpt_err *err);

/*
 * Give all tied names values of their own, in place, also a head that its folder leaves out since
 * it is tied.
 *
 * Errors   CKPT_EUSAGE: nothing is tied
 */
CKPT_API int ckpt_map_untie(ckpt_map *map, ckpt_err *err);

/* ---- adapters ---- */

typedef struct ckpt_adapter {
    size_t size;      /* sizeof this struct, or 0: see above */
    const char *path; /* of its folder, with adapter_config.json, or of a run that trained it */
    double weight;    /* of its updates; 0: 1 */
    /* the head of a model that ties it to the embedding is written of its own, as it was */
    bool untie;
    /* of a run: as in ckpt_adapter_only */
    const char *config, *name;
} ckpt_adapter;

/*
 * Merge a LoRA adapter of PEFT into the weights of its base, in place: what is read of the map is
 * the merged weight, computed in F32 and rounded once.  Call again for another adapter.
 *
 * Errors   CKPT_EUNSUPPORTED: another kind of adapter; CKPT_EMISSING, CKPT_EMISMATCH: a tensor of
 *          the adapter that does not fit the base, or is not used; those of ckpt_open.  The map can
 *          then only be freed.
 */
CKPT_API int ckpt_map_adapt(ckpt_map *map, const ckpt_adapter *adapter, ckpt_err *err);

typedef struct ckpt_adapter_only {
    size_t size;        /* sizeof this struct, or 0: see above */
    const char *config; /* path of its adapter_config.json; NULL: the one beside the run */
    const char *name;   /* of the adapter, where the run has several; NULL: the only one */
} ckpt_adapter_only;

/*
 * Keep the adapter of a run that trained one, in place, under the names of PEFT's files; written
 * with "hf" or "hf-bin" it becomes an adapter folder.
 *
 * only     NULL: the only one, with the configuration beside it
 * Errors   CKPT_EMISSING: there is none; CKPT_EUSAGE: several, or no config, and the map is as it
 *          was; CKPT_EMISMATCH: the config is of another adapter
 */
CKPT_API int ckpt_map_adapter_only(ckpt_map *map, const ckpt_adapter_only *only, ckpt_err *err);

/* ---- merging models ---- */

typedef struct ckpt_merge_model {
    const char *path;
    const char *tag; /* of a run, or NULL */
    double weight;
} ckpt_merge_model;

typedef struct ckpt_merge {
    size_t size; /* sizeof this struct, or 0: see above */
    /* mergekit's: "linear", "slerp", "task_arithmetic", "ties", "dare_linear", "dare_ties" */
    const char *method;
    const ckpt_merge_model *models;
    size_t n_models;
    const char *base;  /* path of what the models were trained from; linear: NULL */
    double density;    /* part of each difference that stays (ties, dare); 0: all */
    double lambda;     /* of the sum of differences; 0: 1 */
    double t;          /* slerp: 0 is the base, 1 the other */
    bool no_normalize; /* weights are not divided by their sum (linear, ties) */
    uint64_t seed;     /* of what dare chooses */
    /* a configuration of mergekit's (YAML) instead, and its name for messages; or NULL */
    const char *config_text, *config_name;
    const ckpt_open_opts *open; /* for all that is opened; or NULL */
    bool keep_names;            /* names keep the prefixes of wrappers (ckpt_map_model) */
} ckpt_merge;

/*
 * Open several models as the map of their merge: what is read of it is computed in F32 from theirs,
 * whatever their formats and dtypes, and rounded once.  They have the same tensors; what is no
 * floating tensor must be equal.  Side files come from the base, or from the first model.
 *
 * Errors   CKPT_EMISSING, CKPT_EMISMATCH: models that do not belong together; CKPT_EUSAGE,
 *          CKPT_EUNSUPPORTED: what is no merge, or none that is known; those of ckpt_open
 */
CKPT_API int ckpt_merge_open(ckpt_map **out, const ckpt_merge *merge, ckpt_err *err);

/* Called with the path of each model that a merge would open, and of its base; not 0 ends it. */
typedef int (*ckpt_merge_path_fn)(void *ctx, const char *path);

/*
 * What a merge would open, before anything is opened: for a program that gives up all other files.
 *
 * Errors   CKPT_ECANCELED: fn has ended it; else those of the merge itself
 */
CKPT_API int ckpt_merge_paths(const ckpt_merge *merge, ckpt_merge_path_fn fn, void *ctx,
                              ckpt_err *err);

#endif
