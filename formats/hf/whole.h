/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whole.h: declares the check that a folder has all of the model that its config.json describes.
 */
#ifndef CKPT_FORMATS_HF_WHOLE_H
#define CKPT_FORMATS_HF_WHOLE_H

#include "libckpt/map/map.h"

/*
 * Compare layers and embedding with config.json, because a shard of a split model or one rank's
 * slice may have the file name of a whole model.
 *
 * config  the folder's config.json
 * name    name of the weight file or index, for messages
 * Errors  CKPT_EMISSING, recorded as a finding if the map collects them
 */
int ckpt_hf_whole(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err);

/*
 * ckpt_directory.whole: check an output of another format, or one without side files. In a single
 * file a missing tensor is a warning, because such a file may have any tensors.
 */
int ckpt_hf_output(ckpt_map *to, const ckpt_map *from, bool folder, ckpt_err *err);

/*
 * Check an output before it is written: a folder that ckpt or another program refuses as
 * incomplete or contradictory must not appear.
 *
 * config  the output's config.json; NULL: it has none, and missing tensors of layers are warnings
 * Errors  CKPT_EMISSING, CKPT_EMISMATCH
 */
int ckpt_hf_written(ckpt_map *to, const ckpt_map *from, const ckpt_value *config, ckpt_err *err);

/* How to read, or write, tensors that are not a whole model; the end of messages about them. */
static inline const char *ckpt_hf_as_is(const ckpt_map *map)
{
    if (map->into)
        return map->collect ? "the output has the tensors that are there"
                            : "--to safetensors writes the tensors that are there as one file";
    return "name a single file to read it as it is";
}

/*
 * Compare a model of a well-known type with the sizes in config.json, and check that its embedding,
 * norms and untied head are there; other types are not checked.
 *
 * Errors  CKPT_EMISSING, CKPT_EMISMATCH, recorded as findings if the map collects them
 */
int ckpt_hf_plain(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err);

/* The dict of config.json that says how the weights are quantized; NULL: they are not. */
const ckpt_value *ckpt_hf_quantization(const ckpt_value *config);

/* True for the configuration of MLX, which has no name of a method. */
bool ckpt_hf_quant_is_mlx(const ckpt_value *q);

/* True if config.json says that the weights are quantized, but all of them are floats. */
bool ckpt_hf_quant_floats(const ckpt_map *map, const ckpt_value *config);

/*
 * Check that each quantized weight has its scales and other tensors, without which its numbers mean
 * nothing; warn if config.json says that the weights are quantized in a way that they are not.
 *
 * Errors  CKPT_EMISSING, recorded as findings if the map collects them
 */
int ckpt_hf_quant_parts(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err);

/* Warn if MLX wrote the tensors and may have changed them. */
int ckpt_hf_mlx(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err);

/*
 * Check that a model's tensors have the same names and values in MLX.
 *
 * Errors  CKPT_EUNSUPPORTED: they may differ
 */
int ckpt_hf_mlx_written(const ckpt_value *config, ckpt_err *err);

/*
 * Warn if most weights of the layers are not those of the model_type in config.json, or if they are
 * just those of another type; types without a row in formats/hf/layer_names.c are not checked.
 */
int ckpt_hf_type(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err);

/*
 * Check a model without config.json: warn of a missing layer below the highest one, and note that
 * nothing else can be checked.
 */
int ckpt_hf_alone(ckpt_map *map, const char *name, ckpt_err *err);

/* True if ckpt_hf_plain checks models of this type. */
bool ckpt_hf_is_plain(const ckpt_value *config);

/* True if all layers of a model have the same names, because of its type. */
bool ckpt_hf_uniform(const ckpt_value *config);

/*
 * True if all layers of one kind of attention have the same names, because of the model's type;
 * *period: each period-th layer has full attention if layer_types is absent, 0: not known.
 */
bool ckpt_hf_uniform_kinds(const ckpt_value *config, int64_t *period);

/*
 * Names, separated by blanks, that each layer with full attention (else: with another entry of
 * layer_types) of a model of ckpt_hf_uniform_kinds has in files; NULL: they are not known.
 */
const char *ckpt_hf_kind_names(const ckpt_value *config, bool full);

/* The entry of layer_types beside full_attention in a model of ckpt_hf_uniform_kinds; or NULL. */
const char *ckpt_hf_kind_other(const ckpt_value *config);

/*
 * Check sizes and types of layers that the config.json of a known model_type states.
 *
 * Errors  CKPT_EFORMAT, recorded as a finding if the map collects them
 */
int ckpt_hf_numbers(ckpt_map *map, const ckpt_value *config, ckpt_err *err);

/*
 * The names of the weights in the layers of a configuration's language model, from its model_type;
 * *type: its model_type; *part: it is a part of the model.  NULL: the type is not known.
 */
const struct ckpt_hf_layer_names *ckpt_hf_layer_row(const ckpt_value *config, const char **type,
                                                    bool *part);

/* True if a configuration says how many layers the model has. */
bool ckpt_hf_counts_layers(const ckpt_value *config);

/*
 * Compare layers with config.json: their number, and the tensors that one layer lacks.
 *
 * Errors  CKPT_EMISSING, recorded as a finding if the map collects them
 */
int ckpt_hf_check_layers(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err);

/* True if the model of a config.json has an output head with values of its own. */
bool ckpt_hf_untied(const ckpt_value *config);

#endif
