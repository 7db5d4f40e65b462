/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update.c: computes the numbers of one step for the device's kernel, from settings, schedule and
 * step number.
 *
 * Sources: Adam, Kingma & Ba 2015; AdamW, Loshchilov & Hutter 2019; Adagrad, Duchi et al. 2011;
 * Lion, Chen et al. 2023; LAMB, You et al. 2020; SGD with momentum as in torch.optim.SGD.  Bias
 * corrections are powers of the step number, so a resumed run continues with the same bits.
 */
#include <assert.h>
#include <math.h>

#include "engine/optim/optim.h"

/* 1 - beta^t with beta and the power in fp32, as in DeepSpeed's CPU kernel. */
static float ud_left_single(double beta, int64_t t)
{
    return 1.0f - (float)pow((double)(float)beta, (double)t);
}

/*
 * Adam's corrections c = 1 - beta^t: from doubles with torch's classes, else from floats, because
 * the references differ.  Without correction both are 1.
 */
static void ud_adam(zt_update *u, const zt_optim *o, const zt_hyper *h, int64_t t)
{
    u->kind = ZT_ADAM;
    u->decoupled = o->decoupled;
    u->exact = o->torch;
    u->step_size = h->lr;
    u->denominator = 1;
    if (!h->bias_correction)
        return;
    if (o->torch) {
        u->step_size = h->lr / (1 - pow(h->beta1, (double)t));
        u->denominator = 1 / sqrt(1 - pow(h->beta2, (double)t));
    } else {
        u->step_size = (double)((float)h->lr / ud_left_single(h->beta1, t));
        u->denominator = 1 / sqrt((double)ud_left_single(h->beta2, t));
    }
}

/* LAMB's bias corrections are part of the step size; the kernel computes the trust ratio. */
static void ud_lamb(zt_update *u, const zt_optim *o, const zt_hyper *h, int64_t t)
{
    u->kind = ZT_LAMB;
    u->eps_inside = o->eps_inside;
    u->min_coeff = h->min_coeff;
    u->max_coeff = h->max_coeff;
    u->decoupled = true;
    u->step_size = h->lr;
    if (h->bias_correction) { // from betas rounded to fp32, as in the kernel
        u->step_size *= sqrt(1 - pow((double)(float)h->beta2, (double)t)) /
                        (1 - pow((double)(float)h->beta1, (double)t));
    }
}

/* SGD; the first gradient initialises the momentum buffer. */
static void ud_sgd(zt_update *u, const zt_hyper *h, const zt_piece *piece, int64_t t)
{
    u->kind = ZT_SGD;
    u->beta1 = h->momentum; // not the schedule's beta1, because torch's class has no betas
    u->m = h->momentum > 0 ? piece->state[0] : NULL;
    u->first = t == 1;
    u->nesterov = h->nesterov;
    u->dampening = h->dampening;
}

static zt_update ud_start(const zt_hyper *h, const zt_piece *piece)
{
    zt_update u = {
        .n = piece->n,
        .p = piece->p,
        .g = piece->g,
        .g_dtype = piece->g_dtype,
        .g_scale = piece->g_scale,
        .low = piece->low,
        .low_dtype = piece->low_dtype,
        .lr = h->lr,
        .beta1 = h->beta1,
        .beta2 = h->beta2,
        .weight_decay = h->weight_decay,
    };

    return u;
}

void zt_optim_update(zt_device *d, const zt_optim *o, const zt_hyper *h, int64_t t,
                     const zt_piece *piece)
{
    zt_update u = ud_start(h, piece);

    assert(t > 0 && (piece->n == 0 || (piece->p && piece->g)));
    u.eps = h->eps;
    u.m = piece->state[0];
    u.v = piece->state[1];
    switch (o->type) {
    case ZT_OPT_ADAM:
    case ZT_OPT_ADAMW:
    case ZT_OPT_MUON:
        ud_adam(&u, o, h, t);
        break;
    case ZT_OPT_SGD:
        ud_sgd(&u, h, piece, t);
        break;
    case ZT_OPT_ADAGRAD:
        u.kind = ZT_ADAGRAD;
        u.m = NULL;
        u.v = piece->state[0];
        u.lr = h->lr / (1 + (double)(t - 1) * h->lr_decay);
        break;
    case ZT_OPT_LION:
        u.kind = ZT_LION;
        u.zero_up = o->zero_up;
        break;
    case ZT_OPT_LAMB:
        ud_lamb(&u, o, h, t);
        break;
    case ZT_OPT_ONEBIT_ADAM:
        zt_device_fail(d, CKPT_EUSAGE, "1-bit Adam is updated by zt_onebit_update");
        return;
    }
    d->ops->update(d, &u);
}

void zt_muon_apply(zt_device *d, const zt_hyper *h, const zt_piece *piece)
{
    float decay = (float)(1 - h->lr * h->weight_decay);
    zt_update u = ud_start(h, piece);

    assert(piece->n == 0 || (piece->p && piece->g));
    if (decay < 1 || decay > 1)
        d->ops->scale(d, CKPT_F32, piece->n, piece->p, decay);
    u.kind = ZT_SGD;
    u.beta1 = u.beta2 = u.weight_decay = 0;
    u.first = true;
    d->ops->update(d, &u);
}
