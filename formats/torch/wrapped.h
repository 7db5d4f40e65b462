/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrapped.h: lists the parts of tensors of torchao's classes in a pickle (private to this folder).
 */
#ifndef CKPT_FORMATS_TORCH_WRAPPED_H
#define CKPT_FORMATS_TORCH_WRAPPED_H

#include "libckpt/map/map.h"

/* The tensors inside such a tensor. */
#define CKPT_TORCH_PARTS 6u

typedef struct ckpt_torch_wrapped {
    const char *type;                   /* class: "Int8Tensor" */
    const char *name[CKPT_TORCH_PARTS]; /* attributes: "qdata", "scale" */
    const ckpt_tensor_value *part[CKPT_TORCH_PARTS];
    uint32_t n_parts;
    const char *text; /* JSON of the other attributes, as torchao writes it to safetensors */
} ckpt_torch_wrapped;

/* True for an object of a class of torchao, perhaps in a parameter. */
bool ckpt_torch_is_wrapped(const ckpt_value *v);

/*
 * Find the parts of such an object.
 *
 * name    of the tensor, and file, for messages
 * Errors  CKPT_EUNSUPPORTED: a class, or an attribute's value, that ckpt cannot dequantize;
 *         CKPT_EFORMAT: it is no such object inside; CKPT_ELIMIT
 */
int ckpt_torch_unwrap(ckpt_torch_wrapped *out, ckpt_arena *arena, const ckpt_value *v,
                      const char *file, const char *name, ckpt_err *err);

#endif
