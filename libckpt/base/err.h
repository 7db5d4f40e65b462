/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.h: represents failures as values.
 *
 * Functions return CKPT_OK or a negative code and fill the caller's ckpt_err. A text names the
 * location (file, offset, tensor), the found and the expected value, and the remedy.
 */
#ifndef CKPT_BASE_ERR_H
#define CKPT_BASE_ERR_H

#include <stdbool.h>

#include "ckpt_types.h"

/*
 * Record a failure and return its code.
 *
 * err   may be NULL; an earlier failure in it is never overwritten (its code is returned)
 * code  a CKPT_E* code, not CKPT_OK
 * The text is cut to fit; unprintable bytes are replaced by '?', so that names from hostile files
 * cannot control a terminal.
 */
int ckpt_fail(ckpt_err *err, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

/* The same for a failed system call: appends ": " and the text of errno value sys. */
int ckpt_fail_sys(ckpt_err *err, int code, int sys, const char *fmt, ...) CKPT_PRINTF(4, 5);

/*
 * The code for a path that could not be opened: CKPT_EMISSING if nothing has this name (or a link
 * leads to itself), else CKPT_EIO.
 */
int ckpt_open_code(int sys);

/*
 * Forget an earlier failure. Every public function begins with it, so that a program can use one
 * ckpt_err for many calls; inside the library the first failure of a call is kept.
 */
static inline void ckpt_err_clear(ckpt_err *err)
{
    if (err) {
        err->code = CKPT_OK;
        err->sys = 0;
        err->text[0] = '\0';
    }
}

/* Shorthand: CKPT_ELIMIT, "out of memory". */
int ckpt_fail_memory(ckpt_err *err);

/* Public functions: the fixed text of a code, and the tools' exit status for it. */
CKPT_API const char *ckpt_err_text(int code);
CKPT_API int ckpt_err_status(int code);

/* Overflow-safe arithmetic on sizes from files: false on overflow, *out is then unspecified. */
static inline bool ckpt_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool ckpt_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* True if [at, at+n) lies within [0, size). */
static inline bool ckpt_within(uint64_t at, uint64_t n, uint64_t size)
{
    return n <= size && at <= size - n;
}

#endif
