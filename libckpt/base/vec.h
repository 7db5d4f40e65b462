/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vec.h: provides typed growing arrays.
 *
 *     CKPT_VEC(ckpt_u64s, uint64_t);     declares the struct {uint64_t *at; size_t n, room;}
 *     uint64_t *p = ckpt_vec_push(&v);   adds a zeroed element at the end, or returns NULL
 *                                        (v unchanged)
 *     ckpt_vec_free(&v);                 frees and zeroes
 *
 * A zeroed struct is an empty vector.
 */
#ifndef CKPT_BASE_VEC_H
#define CKPT_BASE_VEC_H

#include "libckpt/base/mem.h"

#define CKPT_VEC(name, type)                                                                       \
    typedef struct name {                                                                          \
        type *at;                                                                                  \
        size_t n, room;                                                                            \
    } name

#define ckpt_vec_push(v)                                                                           \
    (ckpt_vec_grow_((void **)&(v)->at, &(v)->n, &(v)->room, sizeof *(v)->at)                       \
         ? &(v)->at[(v)->n - 1]                                                                    \
         : NULL)

#define ckpt_vec_free(v) (ckpt_free((v)->at), (v)->at = NULL, (v)->n = (v)->room = 0)

/* Growing bytes, for writers. */
CKPT_VEC(ckpt_bytes, uint8_t);

/* Append n bytes (p NULL: zeros); false when memory is exhausted, the vector is then unchanged. */
bool ckpt_bytes_add(ckpt_bytes *b, const void *p, size_t n);
bool ckpt_bytes_printf(ckpt_bytes *b, const char *fmt, ...) CKPT_PRINTF(2, 3);

/* Adds one zeroed element; false when memory is exhausted. */
bool ckpt_vec_grow_(void **at, size_t *n, size_t *room, size_t size);

#endif
