/* SPDX-License-Identifier: Apache-2.0 */
/* arguments.c: checks the arguments of operations (arguments.h). */
#include "engine/device/arguments.h"

#include <stdio.h>

#include "libckpt/base/mem.h"

bool zt_ready(zt_device *d, ckpt_dtype dt, bool ok, const char *operation)
{
    const bool known = dt == CKPT_F32 || dt == CKPT_BF16 || dt == CKPT_F16;
    char text[160];

    if (!d || d->err.code != CKPT_OK)
        return false;
    if (ok && known)
        return true;
    snprintf(text, sizeof text, "%s: %s", operation,
             !ok ? "a required argument is missing or out of range"
                 : "the dtype must be F32, BF16 or F16");
    zt_device_fail(d, !ok ? CKPT_EUSAGE : CKPT_EUNSUPPORTED, text);
    return false;
}

bool zt_ok_accumulate(const zt_accumulate *a)
{
    return a && (a->n == 0 || (a->acc && a->x));
}

bool zt_ok_rows(const zt_rows *a)
{
    return a && (a->rows == 0 || a->width == 0 || (a->from && a->to));
}

bool zt_ok_linear(const zt_linear *a)
{
    return a && a->in > 0 && a->out > 0 && zt_stride(a->ldx, a->in) >= a->in &&
           zt_stride(a->ldy, a->out) >= a->out && a->act >= ZT_ACT_NONE && a->act <= ZT_SILU &&
           !(a->y_add && a->act != ZT_ACT_NONE) && (a->rows == 0 || (a->x && a->w && a->y));
}

bool zt_ok_linear_grad(const zt_linear_grad *a)
{
    return a && a->in > 0 && a->out > 0 && zt_stride(a->ldx, a->in) >= a->in &&
           zt_stride(a->lddy, a->out) >= a->out && zt_stride(a->lddx, a->in) >= a->in &&
           (a->rows == 0 || (a->dy && (a->w || !a->dx) && (a->x || !a->dw)));
}

bool zt_ok_matmul(const zt_matmul *a)
{
    return a && (a->m == 0 || a->n == 0 || (a->c && (a->k == 0 || (a->a && a->b))));
}

bool zt_ok_act(zt_act act, uint64_t n, const void *y, const void *x)
{
    return act >= ZT_ACT_NONE && act <= ZT_SILU && (n == 0 || (x && y));
}

bool zt_ok_act_grad(const zt_act_grad *a)
{
    return a && zt_ok_act(a->act, a->n, a->dx, a->pre) && (a->n == 0 || a->dy);
}

bool zt_ok_swiglu(const zt_swiglu *a)
{
    return a && zt_ok_act(a->act, 0, NULL, NULL) && (a->n == 0 || (a->gate && a->up && a->y));
}

bool zt_ok_swiglu_grad(const zt_swiglu *a)
{
    return a && zt_ok_act(a->act, 0, NULL, NULL) &&
           (a->n == 0 || (a->gate && a->up && a->dy && a->dgate && a->dup));
}

static bool ok_sizes(uint64_t rows, uint64_t width)
{
    uint64_t n = 0;

    return width > 0 && width <= UINT64_MAX / 64 && ckpt_mul(rows, width, &n) &&
           n <= UINT64_MAX / 64;
}

bool zt_ok_norm(const zt_norm *a)
{
    return a && !(a->rms && a->b) && (a->rms || !(a->once || a->plus_one)) &&
           (a->rows == 0 || (a->x && a->w && a->y && ok_sizes(a->rows, a->width)));
}

bool zt_ok_norm_grad(const zt_norm_grad *a)
{
    if (!a || a->width == 0 || (a->rms && a->db) || (!a->rms && (a->once || a->plus_one)))
        return false;
    return a->rows == 0 ||
           (a->x && a->w && a->dy && a->rstd && (a->rms || a->mean) && ok_sizes(a->rows, a->width));
}

bool zt_ok_embed(const zt_embed *a)
{
    return a && ok_sizes(a->rows, a->width) &&
           (a->rows == 0 || (a->token && a->word && a->y && (!a->position || a->seq > 0)));
}

bool zt_ok_embed_grad(const zt_embed_grad *a)
{
    return a && ok_sizes(a->rows, a->width) && a->rows <= UINT32_MAX &&
           (a->rows == 0 || (a->token && a->dy)) &&
           (!a->dposition || (a->seq > 0 && a->seq <= a->n_positions)) &&
           ok_sizes(a->vocab, a->width);
}

bool zt_ok_attention(const zt_attention *a)
{
    return a && a->kv_heads > 0 && a->heads % a->kv_heads == 0 && a->q && a->k && a->v && a->o &&
           (a->queries <= a->seq || !a->causal) && a->p >= 0 && a->p <= 1 && a->scale > 0 &&
           (a->window == 0 || a->causal) && (a->cap == 0 || (a->cap > 0 && !a->alibi && !a->bias));
}

bool zt_ok_attention_grad(const zt_attention_grad *a)
{
    return a && zt_ok_attention(&a->fw) && a->fw.lse && a->dout && a->dq && a->dk && a->dv &&
           (a->fw.bias || !a->dbias);
}

bool zt_ok_rope(const zt_rope *a)
{
    return a && a->x && a->cos && a->sin && a->seq > 0 && zt_turned(a) % 2 == 0 &&
           zt_turned(a) <= a->width;
}

bool zt_ok_dropout(const zt_dropout *a)
{
    return a && a->x && a->y && a->p >= 0 && a->p <= 1;
}

bool zt_ok_loss(const zt_loss *a)
{
    if (!a || !a->loss || a->classes == 0 || a->classes > UINT64_MAX / 64 ||
        (a->ld != 0 && a->ld < a->classes))
        return false;
    bool known = a->kind == ZT_CROSS_ENTROPY || a->kind == ZT_MSE || a->kind == ZT_BCE;
    bool against = a->kind == ZT_CROSS_ENTROPY ? a->label != NULL : a->target != NULL;
    return known && (a->rows == 0 || (a->logits && against)) && a->rows <= UINT64_MAX / 64;
}

bool zt_ok_update(const zt_update *a)
{
    if (!a || a->n == 0)
        return a != NULL;
    const bool adam = a->kind == ZT_ADAM || a->kind == ZT_LAMB;
    const bool m = adam || a->kind == ZT_LION, v = adam || a->kind == ZT_ADAGRAD;

    if (a->low && a->low_dtype != CKPT_F32 && a->low_dtype != CKPT_BF16 && a->low_dtype != CKPT_F16)
        return false;
    return a->p && a->g && (!m || a->m) && (!v || a->v);
}
