/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_bias.c: holds the bias by distance of the CPU's attention.
 *
 * The operation has the heads of a distance side by side.  Attention works on one head at a time,
 * so each head gets a list of its own, in fp32.  Gradients are summed for each sequence and head
 * first: then no two workers write the same element.
 */
#include "engine/device/cpu_bias.h"

#include "engine/device/cpu.h"
#include "libckpt/base/mem.h"

bool zt_bias_new(zt_bias *b, zt_device *d, ckpt_dtype dt, const zt_attention *a, bool with_grad)
{
    float *row;

    *b = (zt_bias){.n = a->queries + a->seq - 1};
    if (!a->bias)
        return true;
    row = ckpt_alloc(a->heads * sizeof *row);
    b->at = ckpt_alloc(a->heads * b->n * sizeof *b->at);
    if (with_grad)
        b->grad = ckpt_alloc(a->batch * a->heads * b->n * sizeof *b->grad);
    if (!row || !b->at || (with_grad && !b->grad)) {
        zt_device_fail(d, CKPT_ELIMIT, "attention: out of memory for relative positions");
        ckpt_free(row);
        return false;
    }
    for (uint64_t i = 0; i < b->n; i++) {
        zt_cpu_load(dt, row, a->bias, i * a->heads, a->heads);
        for (uint64_t h = 0; h < a->heads; h++)
            b->at[h * b->n + i] = row[h];
    }
    ckpt_free(row);
    return true;
}

void zt_bias_free(zt_bias *b)
{
    ckpt_free(b->at);
    ckpt_free(b->grad);
}

void zt_bias_grad(const zt_bias *b, ckpt_dtype dt, const zt_attention *a, void *dbias)
{
    for (uint64_t i = 0; i < b->n * a->heads; i++) {
        float sum = 0.0F;

        for (uint64_t k = 0; k < a->batch; k++)
            sum += b->grad[(k * a->heads + i % a->heads) * b->n + i / a->heads];
        zt_cpu_store(dt, dbias, i, &sum, 1);
    }
}
