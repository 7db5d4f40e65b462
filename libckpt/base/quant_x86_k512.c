/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_x86_k512.c: implements the K-quantizers' search of scales with AVX-512, sixteen lanes in
 * one register, and chooses the body for this processor.
 */
#include "libckpt/base/quant_k.h"

#if defined(__x86_64__)

#include <stdatomic.h>

#include "libckpt/base/cast_x86.h"
#include "libckpt/base/quant_lanes_512.h"
// after the operations that it uses
#include "libckpt/base/quant_k_search.h"

/* Levels take little time. */
static void qw_level(uint8_t *to, const float *x, int n, const float step[2], const int range[2])
{
    ckpt_qk_x86.level(to, x, n, step, range);
}

static const ckpt_qk_body qw_body = {ql_fit_min, ql_fit_sym, ql_fit_sweep, qw_level};

/* True if this processor can run that body; cached as in cast_x86.c. */
static bool qw_usable(void)
{
    static atomic_int answer; // 0: not known yet, 1: yes, -1: no
    int known = atomic_load_explicit(&answer, memory_order_relaxed);

    if (known == 0) {
        // "avx512f" also means that the system saves the wide registers
        known = ckpt_x86_usable() && __builtin_cpu_supports("avx512f") ? 1 : -1;
        atomic_store_explicit(&answer, known, memory_order_relaxed);
    }
    return known > 0;
}

const ckpt_qk_body *ckpt_qk_body_at(unsigned i)
{
    const ckpt_qk_body *const body[] = {qw_usable() ? &qw_body : NULL,
                                        ckpt_x86_usable() ? &ckpt_qk_x86 : NULL, &ckpt_qk_portable};
    unsigned n = 0;

    for (unsigned k = 0; k < sizeof body / sizeof *body; k++) {
        if (body[k] && n++ == i)
            return body[k];
    }
    return NULL;
}

#else

const ckpt_qk_body *ckpt_qk_body_at(unsigned i)
{
    return i == 0 ? &ckpt_qk_portable : NULL;
}

#endif
