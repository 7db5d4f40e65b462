/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remap.h: layout maps: a text says how the tensors of one layout are those of another.
 *
 * The language is taught in ckpt-maps(7).  A text is parsed once and read in either direction.
 * Applying it replaces the tensors of a map by those of the other layout, whose extents name the
 * old ones (CKPT_SOURCE_TENSOR) or their bytes: nothing is read, nothing is copied, and planning,
 * gathering and writing know nothing of it.
 *
 *     text --ckpt_remap_parse--> rules --ckpt_remap_apply(map)--> the map, with other tensors,
 *                                                                 and its keys (ckpt_map.keys)
 *
 * No architecture is known here: names, shapes, sizes and the keys of a target's file (GGUF) are
 * all in the text.
 */
#ifndef CKPT_REMAP_H
#define CKPT_REMAP_H

#include "ckpt.h"
#include "libckpt/map/map.h"

/* Limits of one text, whatever it asks for. */
#define CKPT_REMAP_BYTES (1u << 20) /* of the text */
#define CKPT_REMAP_RULES 4096u      /* lines that are rules, sizes or keys */
#define CKPT_REMAP_PARTS (1u << 20) /* tensors that one instance of a rule joins or cuts */

/* How a text is applied. */
typedef struct ckpt_remap_how {
    bool backwards; /* from the right side's layout to the left's */
    /*
     * the model's configuration where none stands beside the source: a DICT as config.json has it,
     * looked into before what the checkpoint itself says; or NULL
     */
    const ckpt_value *model;
    const char *text; /* of model, terminated; or NULL */
    /* "heads=32", NULL-terminated: sizes and values that go before all others; or NULL */
    const char *const *sizes;
} ckpt_remap_how;

/* What was proved when a text was applied: beside these, each element is used exactly once. */
typedef struct ckpt_remap_proof {
    uint64_t n_rules;   /* that made tensors of the target */
    uint64_t n_dropped; /* tensors of the source that `drop` left out */
} ckpt_remap_proof;

/*
 * Understand a text.
 *
 * name     for messages, which begin with NAME:LINE
 * text     n bytes of UTF-8
 * renames  what no rule names stays as it is, as if the text ended with `others stay` (--rename)
 * Errors   CKPT_EUSAGE: a line that is no rule; CKPT_ELIMIT: more than the limits above, or memory
 */
int ckpt_remap_parse(ckpt_remap **out, const char *name, const char *text, uint64_t n, bool renames,
                     ckpt_err *err);

/*
 * True if the `when` lines of the side that is read hold for what the map and the configuration
 * say ("architectures" in LlamaForCausalLM); texts without such lines fit any.
 */
bool ckpt_remap_fits(ckpt_remap *r, ckpt_map *map, const ckpt_remap_how *how);

/*
 * Apply it, in place.  The map's tensors become those of the other layout, in the order of the
 * rules; its keys and its configuration those that the text has for the target.
 *
 * Errors   CKPT_EMISMATCH: a size that does not fit, an element that is used twice or not at all,
 *          or a tensor that no rule names, each with NAME:LINE and the tensor;
 *          CKPT_EMISSING: a tensor or a size that a rule needs; CKPT_EUSAGE: a size that is no
 *          positive integer, or no such name; CKPT_ELIMIT
 */
int ckpt_remap_apply(ckpt_map *map, ckpt_remap *r, const ckpt_remap_how *how, ckpt_err *err);

/* What messages call the text. */
const char *ckpt_remap_name(const ckpt_remap *r);

/* Of the last map that the text was applied to. */
ckpt_remap_proof ckpt_remap_proved(const ckpt_remap *r);

#endif
