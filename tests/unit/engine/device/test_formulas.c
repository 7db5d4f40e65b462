/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_formulas.c: compares one step of each optimizer with the formulas of the papers in double,
 * over settings and random cells, and the slopes of activations with differences.
 */
#include <math.h>

#include "engine/device/optimizer_formulas.h"
#include "tests/unit/unit.h"

static uint64_t seed = 23;

/* A number from -2 to 2. */
static double draw(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(seed >> 11) / (double)(UINT64_C(1) << 51) - 2;
}

/* The same cell in fp32 and in double. */
typedef struct exact_cell {
    double p, m, v, g;
} exact_cell;

static zt_cell both(exact_cell *x)
{
    const zt_cell c = {(float)draw(), (float)draw(), (float)fabs(draw()), (float)draw()};

    *x = (exact_cell){(double)c.p, (double)c.m, (double)c.v, (double)c.g};
    return c;
}

static void near_to(float got, double want)
{
    if (!(fabs((double)got - want) <= 4e-6 * (1 + fabs(want))))
        fail_msg("%.9g instead of %.9g", (double)got, want);
}

static void same(const zt_cell *c, const exact_cell *x)
{
    near_to(c->p, x->p);
    near_to(c->m, x->m);
    near_to(c->v, x->v);
}

enum { CELLS = 500 };

/* Kingma & Ba 2015, algorithm 1, with L2 decay; Loshchilov & Hutter 2019, algorithm 2. */
static void test_adam(void **state)
{
    const double lr = 0.01, b1 = 0.9, b2 = 0.999, eps = 1e-8, decay = 0.1, t = 7;

    (void)state;
    for (unsigned i = 0; i < 4 * CELLS; i++) {
        const bool decoupled = i % 2, exact = i / 2 % 2;
        const zt_update a = {.kind = ZT_ADAM,
                             .lr = lr,
                             .beta1 = b1,
                             .beta2 = b2,
                             .eps = eps,
                             .weight_decay = decay,
                             .decoupled = decoupled,
                             .exact = exact,
                             .step_size = lr / (1 - pow(b1, t)),
                             .denominator = 1 / sqrt(1 - pow(b2, t))};
        const zt_step_numbers s = zt_step_numbers_of(&a);
        exact_cell x;
        zt_cell c = both(&x);
        const double p = x.p, g = x.g + (decoupled ? 0 : decay * p);

        // in fp32, 1 - 0.999 is off by 1.3e-5 of itself
        x.m = b1 * x.m + (exact ? 1 - b1 : (double)(1.0F - (float)b1)) * g;
        x.v = b2 * x.v + (exact ? 1 - b2 : (double)(1.0F - (float)b2)) * g * g;
        x.p = p - (decoupled ? lr * decay * p : 0) -
              lr * (x.m / (1 - pow(b1, t))) / (sqrt(x.v / (1 - pow(b2, t))) + eps);
        zt_step_adam(&s, &c);
        same(&c, &x);
    }
}

/* Duchi et al. 2011, diagonal, as torch has it. */
static void test_adagrad(void **state)
{
    const zt_update a = {.kind = ZT_ADAGRAD, .lr = 0.05, .eps = 1e-10, .weight_decay = 0.2};
    const zt_step_numbers s = zt_step_numbers_of(&a);

    (void)state;
    for (unsigned i = 0; i < CELLS; i++) {
        exact_cell x;
        zt_cell c = both(&x);
        const double g = x.g + 0.2 * x.p;

        x.v += g * g;
        x.p -= 0.05 * g / (sqrt(x.v) + 1e-10);
        zt_step_adagrad(&s, &c);
        same(&c, &x);
    }
}

/* Chen et al. 2023, algorithm 2. */
static void test_lion(void **state)
{
    zt_update a = {.kind = ZT_LION, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1};

    (void)state;
    for (unsigned i = 0; i < CELLS; i++) {
        const zt_step_numbers s = zt_step_numbers_of(&a);
        exact_cell x;
        zt_cell c = both(&x);
        const double blend = 0.9 * x.m + 0.1 * x.g;

        x.p -= 0.01 * ((blend > 0 ? 1 : -1) + 0.1 * x.p);
        x.m = 0.99 * x.m + 0.01 * x.g;
        zt_step_lion(&s, &c);
        same(&c, &x);
    }
    // an update of exactly 0
    a.weight_decay = 0;
    for (unsigned i = 0; i < 4; i++) {
        a.zero_up = i / 2;
        const zt_step_numbers s = zt_step_numbers_of(&a);
        const float zero = i % 2 ? -0.0F : 0.0F;
        zt_cell c = {.p = 1, .m = zero, .g = zero};
        zt_step_lion(&s, &c);
        near_to(c.p, a.zero_up || i % 2 ? 1.01 : 0.99);
    }
}

/* SGD as torch has it: L2 decay, momentum with dampening, Nesterov. */
static void test_sgd(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 8 * CELLS; i++) {
        const bool first = i % 2, nesterov = i / 2 % 2, decoupled = i / 4 % 2;
        const zt_update a = {.kind = ZT_SGD,
                             .lr = 0.1,
                             .beta1 = 0.9,
                             .weight_decay = 0.01,
                             .dampening = nesterov ? 0 : 0.5,
                             .first = first,
                             .nesterov = nesterov,
                             .decoupled = decoupled};
        const zt_step_numbers s = zt_step_numbers_of(&a);
        exact_cell x;
        zt_cell c = both(&x), plain = c;
        const double p = x.p, g = x.g + 0.01 * p;

        // the first buffer is the gradient itself
        x.m = first ? g : 0.9 * x.m + (1 - a.dampening) * g;
        x.p = p - 0.1 * (nesterov ? g + 0.9 * x.m : x.m);
        zt_step_momentum(&s, &c);
        same(&c, &x);
        zt_step_sgd(&s, &plain);
        near_to(plain.p, decoupled ? p - 0.1 * 0.01 * p - 0.1 * x.g : p - 0.1 * g);
    }
}

/* A first step forgets a buffer that holds no number. */
static void test_first_momentum(void **state)
{
    const zt_update a = {.kind = ZT_SGD, .lr = 0.1, .beta1 = 0.9, .first = true};
    const zt_step_numbers s = zt_step_numbers_of(&a);
    zt_cell c = {.p = 1, .m = NAN, .g = 2};

    (void)state;
    zt_step_momentum(&s, &c);
    near_to(c.m, 2);
    near_to(c.p, 0.8);
}

/* You et al. 2020. */
static void test_lamb(void **state)
{
    zt_update a = {.kind = ZT_LAMB,
                   .beta1 = 0.9,
                   .beta2 = 0.99,
                   .eps = 1e-2,
                   .weight_decay = 0.3,
                   .min_coeff = 0.5,
                   .max_coeff = 8};

    (void)state;
    for (unsigned i = 0; i < 2 * CELLS; i++) {
        a.eps_inside = i % 2;
        const zt_step_numbers s = zt_step_numbers_of(&a);
        exact_cell x;
        zt_cell c = both(&x);

        x.m = 0.9 * x.m + 0.1 * x.g; // the decay is a part of the direction only
        x.v = 0.99 * x.v + 0.01 * x.g * x.g;
        zt_step_moments(&s, &c);
        near_to(c.m, x.m);
        double root = a.eps_inside ? sqrt(x.v + 1e-2) : sqrt(x.v) + 1e-2;
        near_to(zt_step_direction(&s, &c), x.m / root + 0.3 * x.p);
    }
    near_to(zt_step_trust(&a, 36, 4), 3);
    near_to(zt_step_trust(&a, 1e6, 1), 8); // the limits
    near_to(zt_step_trust(&a, 1e-6, 1), 0.5);
    near_to(zt_step_trust(&a, 0, 1), 1); // without a norm there is no ratio
    near_to(zt_step_trust(&a, 1, 0), 1);
}

/* ---- activations ---- */

static double act_of(zt_act act, double x)
{
    switch (act) {
    case ZT_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case ZT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case ZT_RELU:
        return x > 0 ? x : 0;
    case ZT_TANH:
        return tanh(x);
    case ZT_SILU:
        return x / (1 + exp(-x));
    case ZT_ACT_NONE:
    default:
        return x;
    }
}

static const zt_act acts[] = {ZT_ACT_NONE, ZT_GELU, ZT_GELU_TANH, ZT_RELU, ZT_TANH, ZT_SILU};

static void test_activations(void **state)
{
    const size_t wide = sizeof(zt_f) / sizeof(float);

    (void)state;
    for (size_t k = 0; k < sizeof acts / sizeof *acts; k++) {
        for (double at = -8; at < 8; at += 0.37) {
            zt_f x = {0}, y = {0}, slope = {0};
            const double h = 1e-5;

            for (size_t i = 0; i < wide; i++) {
                x[i] = (float)(at + 0.01 * (double)i);
                slope[i] = 3; // the gradient from above
            }
            y = x;
            zt_f_act(acts[k], &y);
            zt_f_act_grad(acts[k], &slope, &x);
            for (size_t i = 0; i < wide; i++) {
                const double v = (double)x[i];
                const double d = (act_of(acts[k], v + h) - act_of(acts[k], v - h)) / (2 * h);
                near_to(y[i], act_of(acts[k], v));
                if (fabs(v) > 2 * h)
                    near_to(slope[i], 3 * d);
            }
        }
    }
}

/* act NONE stands for SILU. */
static void try_swiglu(zt_act act)
{
    const zt_act of = act == ZT_ACT_NONE ? ZT_SILU : act;

    for (double at = -4; at < 4; at += 0.61) {
        zt_f gate = {0}, up = {0}, dy = {0}, y;
        const double h = 1e-5, u = 1.5, g = 0.7;

        gate[0] = (float)at;
        up[0] = (float)u;
        dy[0] = (float)g;
        const double v = (double)gate[0];
        y = gate;
        zt_f_swiglu(act, &y, &up);
        near_to(y[0], act_of(of, v) * u);
        zt_f_swiglu_grad(act, &gate, &up, &dy);
        near_to(gate[0], g * u * (act_of(of, v + h) - act_of(of, v - h)) / (2 * h));
        near_to(up[0], g * act_of(of, v));
    }
}

static void test_swiglu(void **state)
{
    (void)state;
    try_swiglu(ZT_ACT_NONE);
    try_swiglu(ZT_SILU);
    try_swiglu(ZT_GELU_TANH);
}

/* Dropout at rate p drops p 2^24 of the 2^24 words, and keeps the mean. */
static void test_keep(void **state)
{
    (void)state;
    assert_int_equal(zt_keep_of(0).least, 0);
    near_to(zt_keep_of(0).factor, 1);
    assert_int_equal(zt_keep_of(0.5F).least, 1 << 23);
    near_to(zt_keep_of(0.5F).factor, 2);
    assert_int_equal(zt_keep_of(0.1F).least, 1677722); // rounded up
    near_to(zt_keep_of(0.1F).factor, 1 / 0.9);
    assert_int_equal(zt_keep_of(1).least, 1 << 24); // above every word
    near_to(zt_keep_of(1).factor, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adam),           cmocka_unit_test(test_adagrad),
        cmocka_unit_test(test_lion),           cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_first_momentum), cmocka_unit_test(test_lamb),
        cmocka_unit_test(test_activations),    cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_keep),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
