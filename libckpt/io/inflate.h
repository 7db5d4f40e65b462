/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inflate.h: decompresses raw deflate streams (zip method 8) into memory of a known size.
 *
 * The caller always gives the size of the output, never the stream, so that a small record that
 * expands without end stops at the first byte too many.
 */
#ifndef CKPT_IO_INFLATE_H
#define CKPT_IO_INFLATE_H

#include "libckpt/base/err.h"

/*
 * Inflate n_in bytes into exactly n_out bytes.
 *
 * Errors   CKPT_EFORMAT: damaged, too short, or input follows the stream's end; CKPT_ELIMIT: the
 *          stream holds more than n_out bytes, or memory is exhausted
 */
int ckpt_inflate_all(void *out, uint64_t n_out, const void *in, uint64_t n_in, ckpt_err *err);

/* A stream in progress; memory is about 40 KiB for a stream of any size. */
typedef struct ckpt_inflater ckpt_inflater;

/* A raw deflate stream (no zlib header).  Errors: CKPT_ELIMIT (memory). */
int ckpt_inflater_new(ckpt_inflater **out, ckpt_err *err);

/*
 * Inflate until the input is used up, the output is full, or the stream ends.
 *
 * in, n_in    advanced past the used input
 * out, n_out  advanced past the new output
 * Errors      CKPT_EFORMAT (damaged), CKPT_ELIMIT (memory); the stream is then useless
 */
int ckpt_inflater_run(ckpt_inflater *z, const uint8_t **in, size_t *n_in, uint8_t **out,
                      size_t *n_out, ckpt_err *err);

/* True once a call has reached the stream's end; input after it is not used. */
bool ckpt_inflater_ended(const ckpt_inflater *z);

void ckpt_inflater_free(ckpt_inflater *z); /* NULL is fine */

#endif
