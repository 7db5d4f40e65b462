/* SPDX-License-Identifier: Apache-2.0 */
/*
 * onebit.c: implements 1-bit Adam (Tang et al. 2021), in which ranks exchange only the signs of the
 * momentum after a warm-up.
 *
 * In an exchange, each rank adds its error of the last exchange, and sends the signs of chunk r to
 * rank r, and one scale to all.  Rank r averages its chunk, adds its own error, and sends signs and
 * scale of the result to all.  Signs are packed eight to a byte, lowest bit first; 1 means x >= 0.
 *
 *     length   padded to a multiple of W lcm(8, W): W chunks of whole bytes
 *     scale    norm / sqrt(length), of the padded vector (W workers) or chunk (server)
 *
 * Source: runtime/fp16/onebit/adam.py and runtime/comm/nccl.py of DeepSpeed releases before 0.18,
 * measured against them.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/comm/comm.h"
#include "engine/optim/optim.h"

struct zt_onebit {
    zt_comm *c;
    zt_device *d;
    uint64_t n, padded, chunk; /* elements: of the vector, with padding, of one rank's chunk */
    float *worker, *server;    /* errors [padded], [chunk] */
    uint8_t *out, *in;         /* signs [padded / 8] */
    float *scale;              /* [W] */
    float *momentum;           /* [n] if the host cannot read the device's; else NULL */
};

/* Greatest common divisor (Euclid). */
static uint64_t ob_gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t r = a % b;

        a = b;
        b = r;
    }
    return a;
}

int zt_onebit_new(zt_onebit **out, struct zt_comm *c, zt_device *d, uint64_t n, ckpt_err *err)
{
    uint64_t world = (uint64_t)c->world, unit = world * (8 * world / ob_gcd(8, world));
    zt_onebit *b;

    *out = NULL;
    if (n > (UINT64_MAX >> 3) - unit)
        return ckpt_fail(err, CKPT_ELIMIT, "OneBitAdam: a parameter group has too many elements");
    b = ckpt_alloc(sizeof *b);
    if (!b)
        return ckpt_fail_memory(err);
    b->c = c;
    b->d = d;
    b->n = n;
    b->padded = (n + unit - 1) / unit * unit;
    b->chunk = b->padded / world;
    assert(b->padded >= n && b->chunk * world == b->padded && b->chunk % 8 == 0);
    b->worker = ckpt_alloc(b->padded * sizeof *b->worker + 1);
    b->server = ckpt_alloc(b->chunk * sizeof *b->server + 1);
    b->out = ckpt_alloc(b->padded / 8 + 1);
    b->in = ckpt_alloc(b->padded / 8 + 1);
    b->scale = ckpt_alloc(world * sizeof *b->scale);
    b->momentum = d->host ? NULL : ckpt_alloc(n * sizeof *b->momentum + 1);
    if (!b->worker || !b->server || !b->out || !b->in || !b->scale || !(d->host || b->momentum)) {
        zt_onebit_free(b);
        return ckpt_fail_memory(err);
    }
    *out = b;
    return CKPT_OK;
}

void zt_onebit_free(zt_onebit *b)
{
    if (b) {
        ckpt_free(b->worker);
        ckpt_free(b->server);
        ckpt_free(b->out);
        ckpt_free(b->in);
        ckpt_free(b->scale);
        ckpt_free(b->momentum);
        ckpt_free(b);
    }
}

bool zt_onebit_warm(const zt_optim *o, int64_t t)
{
    // in DeepSpeed the first call only sets up, and the second is plain Adam whatever freeze_step
    // is
    return t <= 2 || t <= o->freeze_step;
}

static float ob_sign(const uint8_t *bits, uint64_t i)
{
    return (bits[i / 8] >> (i % 8)) & 1 ? 1.0f : -1.0f;
}

/* Compute signs and scale of x [n], and replace x by the error. */
static float ob_compress(uint8_t *bits, float *x, uint64_t n)
{
    double sum = 0;
    float scale;

    assert(n % 8 == 0 && n > 0); // whole bytes of signs
    for (uint64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    scale = (float)(sqrt(sum) / sqrt((double)n));
    memset(bits, 0, (size_t)(n / 8));
    for (uint64_t i = 0; i < n; i++) {
        unsigned up = !(x[i] < 0);

        bits[i / 8] = (uint8_t)(bits[i / 8] | up << (i % 8));
        x[i] -= up ? scale : -scale;
    }
    return scale;
}

/* As the server of one chunk: average it over ranks, and compress the result into `out`. */
static float ob_serve(zt_onebit *b)
{
    uint64_t world = (uint64_t)b->c->world;
    float share = (float)(1.0 / (double)world);

    for (uint64_t i = 0; i < b->chunk; i++) {
        float sum = 0;

        for (uint64_t r = 0; r < world; r++)
            sum += ob_sign(b->in + r * (b->chunk / 8), i) * (b->scale[r] * share);
        b->server[i] += sum;
    }
    return ob_compress(b->out, b->server, b->chunk);
}

/* Replace m [n] by its average over ranks, approximated by one bit per element. */
static int ob_exchange(zt_onebit *b, float *m, ckpt_err *err)
{
    const zt_comm_ops *ops = b->c->ops;
    uint64_t bytes = b->chunk / 8;
    float scale;
    int rc;

    for (uint64_t i = 0; i < b->n; i++)
        b->worker[i] += m[i];
    scale = ob_compress(b->out, b->worker, b->padded);
    rc = ops->all_to_all(b->c, b->in, b->out, bytes, err);
    if (rc == CKPT_OK)
        rc = ops->all_gather(b->c, b->scale, &scale, 1, CKPT_F32, err);
    if (rc == CKPT_OK) {
        scale = ob_serve(b);
        rc = ops->all_gather(b->c, b->in, b->out, bytes, CKPT_U8, err);
    }
    if (rc == CKPT_OK)
        rc = ops->all_gather(b->c, b->scale, &scale, 1, CKPT_F32, err);
    for (uint64_t i = 0; rc == CKPT_OK && i < b->n; i++)
        m[i] = ob_sign(b->in, i) * b->scale[i / b->chunk];
    return rc;
}

/*
 * Exchange momentum of the device; the host computes, so it is copied there and back if necessary.
 */
static int ob_exchange_from(zt_onebit *b, float *m, ckpt_err *err)
{
    int rc;

    if (!b->momentum) {
        b->d->ops->sync(b->d);
        return ob_exchange(b, m, err);
    }
    b->d->ops->get(b->d, b->momentum, m, b->n * sizeof *m);
    rc = ob_exchange(b, b->momentum, err);
    if (rc == CKPT_OK)
        b->d->ops->put(b->d, m, b->momentum, b->n * sizeof *m);
    return rc;
}

/* m = beta1 m + (1 - beta1) g without moving weights, by a step of Lion with rate 0. */
static void ob_blend(zt_device *d, const zt_hyper *h, const zt_piece *piece)
{
    zt_update u = {.kind = ZT_LION,
                   .n = piece->n,
                   .p = piece->p,
                   .m = piece->state[0],
                   .g = piece->g,
                   .g_dtype = piece->g_dtype,
                   .g_scale = piece->g_scale,
                   .beta1 = h->beta1,
                   .beta2 = h->beta1,
                   .exact = true};

    d->ops->update(d, &u);
}

/* p -= lr (m / (sqrt(v) + eps) + decay p).  While warm, m and v are updated first; later they are
 * used as they are. */
static void ob_step(zt_device *d, const zt_hyper *h, const zt_piece *piece, bool warm)
{
    zt_update u = {.kind = ZT_ADAM,
                   .n = piece->n,
                   .p = piece->p,
                   .m = piece->state[0],
                   .v = piece->state[1],
                   .g = warm ? piece->g : piece->state[0], // a dummy: g_scale is 0
                   .g_dtype = warm ? piece->g_dtype : CKPT_F32,
                   .g_scale = warm ? piece->g_scale : 0,
                   .low = piece->low,
                   .low_dtype = piece->low_dtype,
                   .lr = h->lr,
                   .beta1 = warm ? h->beta1 : 1,
                   .beta2 = warm ? h->beta2 : 1,
                   .eps = h->eps,
                   .weight_decay = h->weight_decay,
                   .step_size = h->lr,
                   .denominator = 1,
                   .decoupled = true,
                   .exact = true};

    d->ops->update(d, &u);
}

int zt_onebit_update(zt_onebit *b, const zt_optim *o, const zt_hyper *h, int64_t t,
                     const zt_piece *piece, ckpt_err *err)
{
    bool warm = zt_onebit_warm(o, t);
    int rc = CKPT_OK;

    if (piece->n != b->n)
        return ckpt_fail(err, CKPT_EUSAGE, "OneBitAdam: the piece has %llu elements; expected %llu",
                         (unsigned long long)piece->n, (unsigned long long)b->n);
    if (t <= 1 || b->n == 0)
        return CKPT_OK;
    if (!warm) {
        // even if the device has failed, all ranks must take part in the exchange
        ob_blend(b->d, h, piece);
        rc = ob_exchange_from(b, piece->state[0], err);
    }
    if (rc == CKPT_OK) {
        ob_step(b->d, h, piece, warm);
        rc = zt_device_check(b->d, err);
    }
    return rc;
}
