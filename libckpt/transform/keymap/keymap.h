/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keymap.h: applies layout maps: texts with rules that turn the tensors of one layout into those of
 * another.
 *
 * ckpt-maps(7) explains the language. A text is parsed once and can be applied in either direction.
 * Applying it replaces the tensors of a map by those of the other layout, whose extents refer to
 * the old ones (CKPT_SOURCE_TENSOR) or to their bytes. Nothing is read or copied, and planning,
 * gathering and writing need not know about it.
 *
 *     text --ckpt_remap_parse--> rules --ckpt_remap_apply(map)--> the map, with other tensors,
 *                                                                 and its keys (ckpt_map.keys)
 *
 * The code knows no architecture: names, shapes, sizes and the keys of a target's file (GGUF) are
 * all in the text.
 */
#ifndef CKPT_REMAP_H
#define CKPT_REMAP_H

#include "ckpt_shape.h"
#include "libckpt/map/map.h"

/* Limits of one text. */
#define CKPT_REMAP_BYTES (1u << 20) /* of the text */
#define CKPT_REMAP_RULES 4096u      /* lines that are rules, sizes or keys */
#define CKPT_REMAP_PARTS (1u << 20) /* tensors in one instance of a rule */

/* How to apply a layout map. */
typedef struct ckpt_remap_how {
    bool backwards; /* translates from the right layout to the left one */
    /*
     * the model's configuration if the source's folder has none: a DICT with the contents of
     * config.json, which takes precedence over the checkpoint's own values; or NULL
     */
    const ckpt_value *model;
    const char *text; /* text of `model`, NUL-terminated; or NULL */
    /* "heads=32", NULL-terminated: sizes and values that override all others; or NULL */
    const char *const *sizes;
    ckpt_map *like;          /* a map of the same model, asked last; or NULL */
    ckpt_remap_left_fn left; /* as in ckpt_remap_opts */
    void *left_ctx;
} ckpt_remap_how;

/* The counts of an application. Except for dropped tensors, each element is used exactly once. */
typedef struct ckpt_remap_proof {
    uint64_t n_rules;   /* number of rules that made tensors of the target */
    uint64_t n_dropped; /* number of source tensors that `drop` removed */
} ckpt_remap_proof;

/*
 * Parse a text.
 *
 * name     for messages, which begin with NAME:LINE
 * text     n bytes of UTF-8
 * renames  tensors without a rule stay unchanged, as if the text ended with `others stay`
 *          (--rename)
 * Errors   CKPT_EUSAGE: a line that is not a rule; CKPT_ELIMIT: more than the limits above, or
 *          memory
 */
int ckpt_remap_parse(ckpt_remap **out, const char *name, const char *text, uint64_t n, bool renames,
                     ckpt_err *err);

/*
 * True if the `when` lines of the source side match the map and the configuration ("architectures"
 * in LlamaForCausalLM); texts without such lines always fit.
 */
bool ckpt_remap_fits(ckpt_remap *r, ckpt_map *map, const ckpt_remap_how *how);

/*
 * Apply it, in place. The map's tensors become those of the other layout, in the order of the
 * rules; its keys and its configuration become those for the target.
 *
 * Errors   CKPT_EMISMATCH: a size that does not fit, an element that is used twice or not at all,
 *          or a tensor that no rule names, each with NAME:LINE and the tensor; CKPT_EMISSING: a
 *          tensor or a size that a rule needs; CKPT_EUSAGE: a size that is not a positive integer,
 *          or an unknown name; CKPT_ELIMIT
 */
int ckpt_remap_apply(ckpt_map *map, ckpt_remap *r, const ckpt_remap_how *how, ckpt_err *err);

/* True if the layout map is between Hugging Face and GGUF, and the keys declare an adapter. */
bool ckpt_remap_lora(const ckpt_remap *r, const ckpt_map *map);

/*
 * Give the tensors of a LoRA adapter the names by which rules apply to them, in place; _end gives
 * them the names of adapter files.
 *
 * right    the layout of the tensors: false: Hugging Face, true: GGUF
 * Errors   CKPT_EUNSUPPORTED: a tensor that is no matrix of a LoRA update; CKPT_ELIMIT
 */
int ckpt_remap_lora_begin(ckpt_map *map, bool right, ckpt_err *err);
int ckpt_remap_lora_end(ckpt_map *map, bool right, ckpt_err *err);

/* Its name in messages. */
const char *ckpt_remap_name(const ckpt_remap *r);

/* The counts of the last application. */
ckpt_remap_proof ckpt_remap_proved(const ckpt_remap *r);

#endif
