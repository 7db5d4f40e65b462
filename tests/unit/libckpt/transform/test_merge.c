/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_merge.c: the methods of merging, element by element, against their formulas written out
 * plainly; what a configuration's parameters are for a tensor and a layer.
 */
#include <math.h>

#include "libckpt/transform/merge/ops.h"
#include "libckpt/transform/merge/recipe.h"
#include "tests/unit/unit.h"

/* More than one tile, and no multiple of it. */
enum { N = 40000, MODELS = 3 };

typedef struct models {
    ckpt_map *map;
    float *x[MODELS + 1]; /* base, a, b, c */
    const ckpt_tensor *t[MODELS + 1];
    ckpt_tensor *out;
} models;

static float noise(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(int32_t)*seed * 0x1p-31f;
}

static int setup(void **state)
{
    static const char *const names[] = {"base", "a", "b", "c", "out"};
    const uint64_t n = N;
    models *m = calloc(1, sizeof *m);
    uint32_t seed = 7;

    assert_non_null(m);
    assert_int_equal(ckpt_map_new(&m->map, "memory", NULL), CKPT_OK);
    for (unsigned k = 0; k < MODELS + 2; k++) {
        float *x = malloc(N * sizeof *x);
        ckpt_array a = {.name = names[k], .dtype = CKPT_F32, .ndim = 1, .shape = &n, .data = x};

        assert_non_null(x);
        for (unsigned i = 0; i < N; i++)
            x[i] = noise(&seed);
        assert_int_equal(ckpt_map_put(m->map, &a, NULL), CKPT_OK);
        if (k <= MODELS)
            m->x[k] = x;
        else
            free(x); // its bytes are never read
    }
    for (unsigned k = 0; k <= MODELS; k++)
        m->t[k] = ckpt_map_find(m->map, names[k]);
    m->out = m->map->tensors.at[MODELS + 1];
    *state = m;
    return 0;
}

static int teardown(void **state)
{
    models *m = *state;

    for (unsigned k = 0; k <= MODELS; k++)
        free(m->x[k]);
    ckpt_map_free(m->map);
    free(m);
    return 0;
}

/* The blend of the first n models, weights 1, 2, 3; the caller frees it. */
static float *blend(const models *m, ckpt_blend b, uint32_t n, double density)
{
    ckpt_blend_term term[MODELS];
    float *out = malloc(N * sizeof *out);
    ckpt_reader *reader = NULL;
    ckpt_err err = {0};

    assert_non_null(out);
    for (uint32_t k = 0; k < n; k++)
        term[k] = (ckpt_blend_term){m->t[k + 1], k + 1.0, density};
    b.term = term;
    b.n = n;
    b.name = "out";
    b.base = b.method == CKPT_BLEND_LINEAR ? NULL : m->t[0];
    assert_int_equal(ckpt_blend_put(m->map, m->out, &b, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_new(&reader, m->map, NULL), CKPT_OK);
    if (ckpt_reader_read(reader, m->out, 0, N, CKPT_F32, out, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    ckpt_reader_free(reader);
    return out;
}

static void near(const float *out, uint64_t i, double expected)
{
    if (fabs((double)out[i] - expected) > 1e-6 * (1 + fabs(expected)))
        fail_msg("element %u: %.9g, expected %.9g", (unsigned)i, (double)out[i], expected);
}

static double delta(const models *m, unsigned k, unsigned i)
{
    return (double)(m->x[k + 1][i] - m->x[0][i]);
}

static void linear(void **state)
{
    const models *m = *state;

    for (unsigned normalize = 0; normalize < 2; normalize++) {
        float *out =
            blend(m, (ckpt_blend){.method = CKPT_BLEND_LINEAR, .normalize = normalize}, 3, 1);
        for (unsigned i = 0; i < N; i++)
            near(out, i,
                 ((double)m->x[1][i] + 2 * (double)m->x[2][i] + 3 * (double)m->x[3][i]) /
                     (normalize ? 6 : 1));
        free(out);
    }
}

static void task_arithmetic(void **state)
{
    const models *m = *state;
    float *out = blend(m, (ckpt_blend){.method = CKPT_BLEND_TASK, .lambda = 0.5}, 2, 0.1);

    // density is no matter of this method
    for (unsigned i = 0; i < N; i++)
        near(out, i, (double)m->x[0][i] + 0.5 * (delta(m, 0, i) + 2 * delta(m, 1, i)));
    free(out);
}

static void slerp(void **state)
{
    const models *m = *state;
    double aa = 0, bb = 0, ab = 0, angle;
    float *out = blend(m, (ckpt_blend){.method = CKPT_BLEND_SLERP, .t = 0.25}, 1, 1);

    for (unsigned i = 0; i < N; i++) {
        aa += (double)m->x[0][i] * (double)m->x[0][i];
        bb += (double)m->x[1][i] * (double)m->x[1][i];
        ab += (double)m->x[0][i] * (double)m->x[1][i];
    }
    angle = acos(ab / sqrt(aa * bb));
    for (unsigned i = 0; i < N; i++)
        near(out, i,
             (sin(0.75 * angle) * (double)m->x[0][i] + sin(0.25 * angle) * (double)m->x[1][i]) /
                 sin(angle));
    free(out);
    // the same tensor: no circle, a line
    memcpy(m->x[1], m->x[0], N * sizeof(float));
    out = blend(m, (ckpt_blend){.method = CKPT_BLEND_SLERP, .t = 0.25}, 1, 1);
    for (unsigned i = 0; i < N; i++)
        near(out, i, (double)m->x[0][i]);
    free(out);
}

static int larger(const void *pa, const void *pb)
{
    float a = *(const float *)pa, b = *(const float *)pb;

    return (a < b) - (a > b);
}

/* The magnitude of the last element of a difference that stays. */
static float least(const models *m, unsigned k, double density)
{
    float *all = malloc(N * sizeof *all), last;

    assert_non_null(all);
    for (unsigned i = 0; i < N; i++)
        all[i] = fabsf(m->x[k + 1][i] - m->x[0][i]);
    qsort(all, N, sizeof *all, larger);
    last = all[(size_t)(density * N) - 1];
    free(all);
    return last;
}

static void ties(void **state)
{
    const models *m = *state;
    float border[MODELS];
    float *out = blend(m, (ckpt_blend){.method = CKPT_BLEND_TIES, .normalize = true, .lambda = 1},
                       MODELS, 0.3);

    for (unsigned k = 0; k < MODELS; k++)
        border[k] = least(m, k, 0.3);
    for (unsigned i = 0; i < N; i++) {
        double sum = 0, agreed = 0, weights = 0, d[MODELS];

        for (unsigned k = 0; k < MODELS; k++) {
            d[k] = fabs(delta(m, k, i)) >= (double)border[k] ? delta(m, k, i) : 0;
            sum += (k + 1) * d[k];
        }
        for (unsigned k = 0; k < MODELS; k++) {
            if (d[k] * sum > 0) {
                agreed += (k + 1) * d[k];
                weights += k + 1;
            }
        }
        near(out, i, (double)m->x[0][i] + (weights > 0 ? agreed / weights : 0));
    }
    free(out);
}

/* Of elements that are equally large the first stay. */
static void ties_of_equals(void **state)
{
    const models *m = *state;

    for (unsigned i = 0; i < N; i++) {
        m->x[0][i] = 0;
        m->x[1][i] = i % 2 ? 1 : -1;
    }
    float *out =
        blend(m, (ckpt_blend){.method = CKPT_BLEND_TIES, .normalize = true, .lambda = 1}, 1, 0.25);
    for (unsigned i = 0; i < N; i++)
        near(out, i, i < N / 4 ? (double)m->x[1][i] : 0);
    free(out);
}

/* What stays of a difference is chosen by the seed, and has the sum of magnitudes of the whole. */
static void dare(void **state)
{
    const models *m = *state;
    ckpt_blend b = {.method = CKPT_BLEND_DARE_LINEAR, .lambda = 1, .rescale = true, .seed = 1};
    float *one = blend(m, b, 1, 0.3), *same = blend(m, b, 1, 0.3), *other;
    double before = 0, after = 0, scale = 0;
    unsigned kept = 0, differ = 0;

    b.seed = 2;
    other = blend(m, b, 1, 0.3);
    assert_memory_equal(one, same, N * sizeof *one);
    for (unsigned i = 0; i < N; i++) {
        double d = (double)(one[i] - m->x[0][i]);

        before += fabs(delta(m, 0, i));
        after += fabs(d);
        differ += (one[i] == m->x[0][i]) != (other[i] == m->x[0][i]);
        kept += one[i] != m->x[0][i];
        if (fabs(delta(m, 0, i)) < 0.5 || one[i] == m->x[0][i])
            continue;
        scale = scale > 0 ? scale : d / delta(m, 0, i);
        assert_true(fabs(d / delta(m, 0, i) - scale) < 1e-5 * scale);
    }
    assert_true(fabs(after / before - 1) < 1e-5);
    assert_true(kept > 0.28 * N && kept < 0.32 * N); // nine deviations
    assert_true(differ > 0.38 * N && differ < 0.46 * N);
    free(one);
    free(same);
    free(other);
}

/* ---- configurations ---- */

static void parameters(void **state)
{
    static const char text[] = "merge_method: ties\n"
                               "base_model: zero\n"
                               "models:\n"
                               "  - model: one\n"
                               "    parameters:\n"
                               "      density: [0, 1]\n"
                               "      weight:\n"
                               "        - filter: mlp\n"
                               "          value: 0.5\n"
                               "        - value: 2\n"
                               "  - model: two\n"
                               "parameters:\n"
                               "  weight: 3\n";
    const ckpt_merge merge = {.config_text = text, .config_name = "m.yaml"};
    static const struct {
        unsigned model;
        const char *key, *tensor;
        double at, expected;
    } cases[] = {
        {0, "density", "model.layers.0.mlp", 0, 0},
        {0, "density", "model.layers.1.mlp", 0.25, 0.25},
        {0, "density", "model.layers.4.mlp", 1, 1},
        {0, "weight", "layers.1.mlp.up.weight", 0.5, 0.5},
        {0, "weight", "layers.1.attn.weight", 0.5, 2},
        {1, "weight", "layers.1.mlp.up.weight", 0.5, 3},
    };
    ckpt_arena *a = ckpt_arena_new(UINT64_C(1) << 30);
    ckpt_recipe r = {0};
    ckpt_err err = {0};
    double value = -1;
    bool found;

    (void)state;
    assert_non_null(a);
    if (ckpt_recipe_read(&r, a, &merge, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(r.method, CKPT_BLEND_TIES);
    assert_int_equal(r.models.n, 2);
    assert_string_equal(r.base, "zero");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ckpt_recipe_for of = {&r.models.at[cases[i].model], cases[i].tensor, cases[i].at};
        int rc = ckpt_recipe_number(&r, &of, cases[i].key, &value, &found, &err);
        if (rc != CKPT_OK || !found || fabs(value - cases[i].expected) > 1e-12)
            fail_msg("%s of %s: %g (%s)", cases[i].key, cases[i].tensor, value, err.text);
    }
    const ckpt_recipe_for second = {&r.models.at[1], "layers.0.mlp", 0};
    assert_int_equal(ckpt_recipe_number(&r, &second, "density", &value, &found, &err), CKPT_OK);
    assert_false(found);
    ckpt_recipe_free(&r);
    ckpt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(linear, setup, teardown),
        cmocka_unit_test_setup_teardown(task_arithmetic, setup, teardown),
        cmocka_unit_test_setup_teardown(slerp, setup, teardown),
        cmocka_unit_test_setup_teardown(ties, setup, teardown),
        cmocka_unit_test_setup_teardown(ties_of_equals, setup, teardown),
        cmocka_unit_test_setup_teardown(dare, setup, teardown),
        cmocka_unit_test(parameters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
