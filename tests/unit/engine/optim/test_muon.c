/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_muon.c: orthogonalised updates against DeepSpeed's, singular values near 1, and what an
 * overflow leaves alone.
 */
#include <inttypes.h>

#include "tests/unit/engine/help.h"
#include "tests/unit/unit.h"

static ckpt_arena *arena;
static zt_device *cpu;

static int setup(void **state)
{
    ckpt_err err = {0};

    (void)state;
    arena = ckpt_arena_new(0);
    return arena && zt_cpu_new(&cpu, 2, &err) == CKPT_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    zt_device_free(cpu);
    ckpt_arena_free(arena);
    return 0;
}

static zt_optim muon(bool gram)
{
    zt_optim o;
    ckpt_err err = {0};
    const char *text = gram ? "type: 'Muon', params: {ns_method: 'gram'}"
                            : "type: 'Muon', params: {ns_method: 'standard'}";

    assert_int_equal(zt_optim_parse(&o, gold_parse(arena, text), false, &err), CKPT_OK);
    return o;
}

static void near(const char *what, const float *got, const float *want, uint64_t n, double bound)
{
    for (uint64_t i = 0; i < n; i++) {
        if (!(fabs((double)got[i] - (double)want[i]) <= bound))
            fail_msg("%s[%d]: %.8g instead of %.8g", what, (int)i, (double)got[i], (double)want[i]);
    }
}

static void direction(const zt_optim *o, uint64_t rows, uint64_t cols, float *g, float *momentum)
{
    void *scratch = cpu->ops->alloc(cpu, zt_muon_scratch(rows, cols));
    ckpt_err err = {0};

    assert_non_null(scratch);
    zt_muon_direction(cpu, &o->h, rows, cols, g, momentum, scratch);
    cpu->ops->release(cpu, scratch);
    assert_int_equal(zt_device_check(cpu, &err), CKPT_OK);
}

/* Five updates of one matrix. */
static void check_case(const ckpt_value *c, const gold_file *f)
{
    const char *key = gold_text(c, "key");
    bool gram = ckpt_value_is(ckpt_value_get(c, "ns_method"), "gram");
    zt_optim o = muon(gram);
    zt_hyper h = {.lr = gold_number(c, "lr"), .weight_decay = gold_number(c, "weight_decay")};
    uint64_t n = 0, all = 0, rows, cols;
    float *g = gold_tensor(f, key, "g", &all), *update = gold_tensor(f, key, "update", &all);
    float *want = gold_tensor(f, key, "w", &all), *w = gold_tensor(f, key, "w0", &n);
    float *last = gold_tensor(f, key, "momentum", &n), *momentum = calloc(n, sizeof *momentum);

    assert_true(g && update && want && w && last && momentum && all == 5 * n);
    assert_int_equal(sscanf(key, "%" SCNu64 "x%" SCNu64, &rows, &cols), 2);
    assert_int_equal(rows * cols, n);
    for (unsigned k = 0; k < 5; k++) {
        zt_piece piece = {.n = n, .p = w, .g = g + k * n, .g_dtype = CKPT_F32, .g_scale = 1};

        direction(&o, rows, cols, g + k * n, momentum);
        near(key, g + k * n, update + k * n, n, gram ? 1e-5 : 0.15);
        zt_muon_apply(cpu, &h, &piece);
        near(key, w, want + k * n, n, gram ? 1e-6 : 4e-3);
    }
    near(key, momentum, last, n, 1e-6);
    free(g);
    free(update);
    free(want);
    free(w);
    free(last);
    free(momentum);
}

static void test_golden(void **state)
{
    ckpt_seq list = gold_list(gold_json(arena, "optim.json"), "muon");
    gold_file f;

    (void)state;
    if (!gold_open(&f, "optim_muon.safetensors"))
        return;
    assert_int_equal(list.n, 8);
    for (uint64_t i = 0; i < list.n; i++)
        check_case(list.at[i], &f);
    gold_close(&f);
}

/* A matrix with singular values 2 and 7 in turn, on reflected axes. */
static void make(float *g, uint64_t rows, uint64_t cols)
{
    uint64_t n = rows < cols ? rows : cols;

    // I - 2 a a' / (a'a) times a diagonal times the same of the other side
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t k = 0; k < cols; k++) {
            double sum = 0;

            for (uint64_t s = 0; s < n; s++) {
                double left = (i == s) - 2.0 / (double)rows, right = (k == s) - 2.0 / (double)cols;

                sum += left * right * (s % 2 ? 7 : 2);
            }
            g[i * cols + k] = (float)sum;
        }
    }
}

/* Five steps bring singular values between 2 and 7 (of a norm of about 20) into 0.6 to 1.3. */
static void check_orthogonal(bool gram, uint64_t rows, uint64_t cols)
{
    zt_optim o = muon(gram);
    uint64_t n = rows < cols ? rows : cols;
    float *g = malloc(rows * cols * sizeof *g), *momentum = calloc(rows * cols, sizeof *momentum);
    double scale = rows > cols ? sqrt((double)rows / (double)cols) : 1;

    assert_true(g && momentum);
    make(g, rows, cols);
    direction(&o, rows, cols, g, momentum);
    for (uint64_t s = 0; s < n; s++) { // |left' G right| is the singular value of this pair
        double sum = 0;

        for (uint64_t i = 0; i < rows; i++) {
            for (uint64_t k = 0; k < cols; k++)
                sum += ((i == s) - 2.0 / (double)rows) * (double)g[i * cols + k] *
                       ((k == s) - 2.0 / (double)cols);
        }
        assert_true(fabs(sum) / scale > 0.6 && fabs(sum) / scale < 1.3);
    }
    free(g);
    free(momentum);
}

static void test_orthogonal(void **state)
{
    static const uint64_t shapes[][2] = {{8, 8}, {6, 40}, {40, 6}, {16, 17}, {1, 9}, {9, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_orthogonal(true, shapes[i][0], shapes[i][1]);
        check_orthogonal(false, shapes[i][0], shapes[i][1]);
    }
}

static void test_overflow(void **state)
{
    zt_optim o = muon(true);
    float g[6] = {1, 2, INFINITY, 4, 5, 6}, before[6] = {1, 2, 3, 4, 5, 6}, momentum[6];

    (void)state;
    memcpy(momentum, before, sizeof before);
    direction(&o, 2, 3, g, momentum);
    assert_memory_equal(momentum, before, sizeof before);
    assert_true(isinf(g[2]) && g[0] == 1); // the step is seen to overflow
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_orthogonal),
        cmocka_unit_test(test_overflow),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
