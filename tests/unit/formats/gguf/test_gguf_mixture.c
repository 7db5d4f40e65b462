/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_gguf_mixture.c: the type of each tensor in llama.cpp's mixtures.
 *
 * The expected types are the rules of llama-quant.cpp, written out for each of the 16 layers of a
 * llama model.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/gguf/model.h"
#include "libckpt/base/dtype.h"

enum { LAYERS = 16 };

typedef struct model {
    ckpt_map *to;
    uint64_t n_layers, n_experts, heads, heads_kv, width;
    bool tied;
    ckpt_dtype dtype; /* of the source; NONE: BF16 */
    uint64_t number;
    ckpt_err err;
} model;

static void add_shape(model *m, const char *name, uint32_t ndim, const uint64_t *shape)
{
    ckpt_tensor like = {.dtype = m->dtype ? m->dtype : CKPT_BF16, .ndim = ndim, .shape = shape}, *t;

    assert_int_equal(ckpt_map_add(m->to, name, strlen(name), &like, &t, &m->err), CKPT_OK);
    t->origin = t->name;
}

static void add(model *m, const char *name, uint64_t rows, uint64_t width)
{
    add_shape(m, name, width ? 2 : 1, (const uint64_t[]){rows, width});
}

static void add_key(model *m, const char *name, uint64_t value)
{
    const char *full = ckpt_arena_printf(m->to->arena, "llama.%s", name);

    assert_int_equal(ckpt_gguf_add_u32(m->to, full, value, &m->err), CKPT_OK);
}

static void build(model *m)
{
    static const char *const parts[] = {"attn_q",      "attn_k",   "attn_v",
                                        "attn_output", "ffn_down", "ffn_up"};

    assert_int_equal(ckpt_map_create(&m->to, 0, &m->err), CKPT_OK);
    assert_int_equal(ckpt_gguf_add_text(m->to, "general.architecture", "llama", &m->err), CKPT_OK);
    add_key(m, "block_count", m->n_layers);
    add_key(m, "attention.head_count", m->heads);
    add_key(m, "attention.head_count_kv", m->heads_kv);
    if (m->n_experts)
        add_key(m, "expert_count", m->n_experts);
    add(m, "token_embd.weight", 64, m->width);
    for (unsigned i = 0; i < m->n_layers; i++) {
        char name[100];

        for (unsigned k = 0; k < sizeof parts / sizeof *parts; k++) {
            snprintf(name, sizeof name, "blk.%u.%s.weight", i, parts[k]);
            add(m, name, 32, m->width);
        }
        snprintf(name, sizeof name, "blk.%u.attn_norm.weight", i);
        add(m, name, m->width, 0);
        snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", i);
        add(m, name, 8, m->width);
    }
    add(m, "output_norm.weight", m->width, 0);
    if (!m->tied)
        add(m, "output.weight", 64, m->width);
}

/* Choose the types of a model's tensors. */
static int mix_built(model *m, const char *mixture, ckpt_dtype dtype)
{
    const ckpt_target target = {.mixture = mixture, .dtype = dtype};
    ckpt_map *from = NULL;

    assert_int_equal(ckpt_map_create(&from, 0, &m->err), CKPT_OK);
    int rc = ckpt_gguf_mix(m->to, from, &target, &m->number, &m->err);
    ckpt_map_free(from);
    return rc;
}

static int mix(model *m, const char *mixture, ckpt_dtype dtype)
{
    build(m);
    return mix_built(m, mixture, dtype);
}

static ckpt_dtype type_of(const model *m, const char *name)
{
    size_t at = ckpt_map_index(m->to, name, strlen(name));

    assert_true(at != SIZE_MAX);
    return m->to->tensors.at[at]->dtype;
}

static ckpt_dtype in_layer(const model *m, unsigned i, const char *part)
{
    char name[100];

    snprintf(name, sizeof name, "blk.%u.%s.weight", i, part);
    return type_of(m, name);
}

#define LLAMA                                                                                      \
    {                                                                                              \
        .n_layers = LAYERS, .heads = 8, .heads_kv = 8, .width = 256                                \
    }

/* Letters for types, one a layer. */
static ckpt_dtype letter(char c)
{
    static const ckpt_dtype types[] = {CKPT_Q2_K, CKPT_Q3_K, CKPT_Q4_K, CKPT_Q5_K, CKPT_Q6_K};

    return types[c - '2'];
}

static void mixtures(void **state)
{
    static const struct {
        const char *name;
        uint64_t number;
        char all, out;        /* tensors without a rule; attn_output */
        const char *v, *down; /* of each layer */
    } cases[] = {
        {"Q2_K", 10, '2', '3', "3333333333333333", "3333333333333333"},
        {"q3_k_s", 11, '3', '3', "3333333333333333", "3333333333333333"},
        {"Q3_K_M", 12, '3', '4', "5544444444444444", "5444444444444444"},
        {"Q3_K_L", 13, '3', '5', "5555555555555555", "5555555555555555"},
        {"Q4_K_S", 14, '4', '4', "5555444444444444", "5544444444444444"},
        {"Q4_K_M", 15, '4', '4', "6644644644644666", "6644644644644666"},
        {"Q5_K_S", 16, '5', '5', "5555555555555555", "5555555555555555"},
        {"q5_K_m", 17, '5', '5', "6655655655655666", "6655655655655666"},
        {"Q6_K", 18, '6', '6', "6666666666666666", "6666666666666666"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model m = LLAMA;

        if (mix(&m, cases[i].name, CKPT_DTYPE_NONE) != CKPT_OK)
            fail_msg("%s: %s", cases[i].name, m.err.text);
        assert_int_equal(m.number, cases[i].number);
        assert_int_equal(type_of(&m, "token_embd.weight"), letter(cases[i].all));
        assert_int_equal(type_of(&m, "output.weight"), CKPT_Q6_K);
        assert_int_equal(type_of(&m, "output_norm.weight"), CKPT_F32);
        for (unsigned k = 0; k < LAYERS; k++) {
            assert_int_equal(in_layer(&m, k, "attn_q"), letter(cases[i].all));
            assert_int_equal(in_layer(&m, k, "attn_k"), letter(cases[i].all));
            assert_int_equal(in_layer(&m, k, "ffn_up"), letter(cases[i].all));
            assert_int_equal(in_layer(&m, k, "attn_output"), letter(cases[i].out));
            assert_int_equal(in_layer(&m, k, "attn_norm"), CKPT_F32);
            assert_int_equal(in_layer(&m, k, "ffn_gate_inp"), CKPT_F32);
            if (in_layer(&m, k, "attn_v") != letter(cases[i].v[k]) ||
                in_layer(&m, k, "ffn_down") != letter(cases[i].down[k]))
                fail_msg("%s: layer %u: %s, %s", cases[i].name, k,
                         ckpt_dtype_name(in_layer(&m, k, "attn_v")),
                         ckpt_dtype_name(in_layer(&m, k, "ffn_down")));
        }
        ckpt_map_free(m.to);
    }
}

/* Eight experts: keys and values in Q8_0, outputs in Q5_K. */
static void experts(void **state)
{
    model m = LLAMA;

    (void)state;
    m.n_experts = 8;
    assert_int_equal(mix(&m, "Q4_K_M", CKPT_DTYPE_NONE), CKPT_OK);
    for (unsigned k = 0; k < LAYERS; k++) {
        assert_int_equal(in_layer(&m, k, "attn_k"), CKPT_Q8_0);
        assert_int_equal(in_layer(&m, k, "attn_v"), CKPT_Q8_0);
        assert_int_equal(in_layer(&m, k, "attn_output"), CKPT_Q5_K);
    }
    ckpt_map_free(m.to);
}

/* Few heads for keys: more bits for values; 80 layers of llama are its 70B. */
static void grouped_heads(void **state)
{
    model m = LLAMA, large = LLAMA;

    (void)state;
    m.heads_kv = 2;
    assert_int_equal(mix(&m, "Q2_K", CKPT_DTYPE_NONE), CKPT_OK);
    assert_int_equal(in_layer(&m, 3, "attn_v"), CKPT_Q4_K);
    ckpt_map_free(m.to);
    large.n_layers = 80;
    large.heads_kv = 2;
    assert_int_equal(mix(&large, "Q3_K_S", CKPT_DTYPE_NONE), CKPT_OK);
    assert_int_equal(in_layer(&large, 40, "attn_v"), CKPT_Q5_K);
    assert_int_equal(in_layer(&large, 40, "attn_k"), CKPT_Q3_K);
    ckpt_map_free(large.to);
    // a file may say that there are no heads for keys
    m = (model)LLAMA;
    m.heads_kv = 0;
    assert_int_equal(mix(&m, "Q2_K", CKPT_DTYPE_NONE), CKPT_OK);
    assert_int_equal(in_layer(&m, 3, "attn_v"), CKPT_Q3_K);
    ckpt_map_free(m.to);
}

/* MXFP4 for experts, which have three axes; for all matrices if it is named as a type. */
static void blocks_of_experts(void **state)
{
    static const struct {
        const char *mixture;
        ckpt_dtype dtype, experts, others;
    } cases[] = {{"mxfp4_moe", CKPT_DTYPE_NONE, CKPT_MXFP4, CKPT_Q8_0},
                 {NULL, CKPT_MXFP4, CKPT_MXFP4, CKPT_MXFP4}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model m = LLAMA;

        build(&m);
        add_shape(&m, "blk.0.ffn_up_exps.weight", 3, (const uint64_t[]){4, 32, 64});
        add_shape(&m, "blk.1.ffn_up_exps.weight", 3, (const uint64_t[]){1, 32, 64});
        add_shape(&m, "blk.0.ffn_up_exps.bias", 2, (const uint64_t[]){4, 32});
        assert_int_equal(mix_built(&m, cases[i].mixture, cases[i].dtype), CKPT_OK);
        assert_int_equal(m.number, 38);
        assert_int_equal(type_of(&m, "blk.0.ffn_up_exps.weight"), cases[i].experts);
        assert_int_equal(type_of(&m, "blk.1.ffn_up_exps.weight"), cases[i].others);
        assert_int_equal(type_of(&m, "blk.0.ffn_up_exps.bias"), CKPT_F32);
        assert_int_equal(in_layer(&m, 3, "attn_v"), cases[i].others);
        assert_int_equal(type_of(&m, "output.weight"), cases[i].others);
        // a file without a type of its own has the number of its experts
        if (i == 0)
            assert_int_equal(ckpt_gguf_mix_own(m.to, false), 38);
        ckpt_map_free(m.to);
    }
}

static void tied_output(void **state)
{
    model m = LLAMA;

    (void)state;
    m.tied = true;
    assert_int_equal(mix(&m, "Q4_K_M", CKPT_DTYPE_NONE), CKPT_OK);
    assert_int_equal(type_of(&m, "token_embd.weight"), CKPT_Q6_K);
    ckpt_map_free(m.to);
}

/* Rows that do not fill blocks of 256 get types with blocks of 32, or F16. */
static void odd_rows(void **state)
{
    static const struct {
        const char *mixture;
        uint64_t width;
        ckpt_dtype type, output;
    } cases[] = {
        {"Q2_K", 96, CKPT_Q4_0, CKPT_Q8_0},
        {"Q3_K_M", 96, CKPT_Q4_0, CKPT_Q8_0},
        {"Q4_K_M", 96, CKPT_Q5_0, CKPT_Q8_0},
        {"Q5_K_M", 96, CKPT_Q5_1, CKPT_Q8_0},
        {"Q6_K", 96, CKPT_Q8_0, CKPT_Q8_0},
        {"Q4_K_M", 33, CKPT_F16, CKPT_F16},
        {"Q4_0", 33, CKPT_F16, CKPT_F16},
        {"Q8_0", 64, CKPT_Q8_0, CKPT_Q8_0},
        {"MXFP4_MOE", 64, CKPT_Q8_0, CKPT_Q8_0},
        {"Q4_0", 64, CKPT_Q4_0, CKPT_Q8_0}, // Q6_K's blocks do not fit 64 either
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model m = LLAMA;

        m.width = cases[i].width;
        assert_int_equal(mix(&m, cases[i].mixture, CKPT_DTYPE_NONE), CKPT_OK);
        assert_int_equal(in_layer(&m, 0, "attn_q"), cases[i].type);
        assert_int_equal(type_of(&m, "output.weight"), cases[i].output);
        ckpt_map_free(m.to);
    }
}

static void refuses(void **state)
{
    static const struct {
        const char *mixture;
        ckpt_dtype dtype, from;
        int code;
    } cases[] = {
        {"Q9_K", CKPT_DTYPE_NONE, CKPT_BF16, CKPT_EUSAGE},
        {"", CKPT_DTYPE_NONE, CKPT_BF16, CKPT_EUSAGE},
        {NULL, CKPT_C64, CKPT_BF16, CKPT_EUSAGE},
        {NULL, CKPT_DTYPE_NONE, CKPT_BF16, CKPT_EUSAGE},
        {"Q2_K_S", CKPT_DTYPE_NONE, CKPT_BF16, CKPT_EUNSUPPORTED}, // needs an importance matrix
        {"Q4_K_M", CKPT_DTYPE_NONE, CKPT_Q8_0, CKPT_EUNSUPPORTED}, // quantized already
        {"F16", CKPT_DTYPE_NONE, CKPT_F32, CKPT_OK},
        {NULL, CKPT_F32, CKPT_BF16, CKPT_OK},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model m = LLAMA;

        m.dtype = cases[i].from;
        if (mix(&m, cases[i].mixture, cases[i].dtype) != cases[i].code)
            fail_msg("case %zu: %d (%s)", i, m.err.code, m.err.text);
        ckpt_map_free(m.to);
    }
}

/* Without a type asked for, the number is that of the matrices; other tensors become F32. */
static void own_types(void **state)
{
    (void)state;
    for (unsigned keep = 0; keep < 2; keep++) {
        model m = LLAMA;

        build(&m);
        assert_int_equal(ckpt_gguf_mix_own(m.to, keep), 32); // BF16
        assert_int_equal(type_of(&m, "output.weight"), CKPT_BF16);
        assert_int_equal(type_of(&m, "output_norm.weight"), keep ? CKPT_BF16 : CKPT_F32);
        ckpt_map_free(m.to);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixtures),          cmocka_unit_test(experts),
        cmocka_unit_test(grouped_heads),     cmocka_unit_test(tied_output),
        cmocka_unit_test(blocks_of_experts), cmocka_unit_test(odd_rows),
        cmocka_unit_test(refuses),           cmocka_unit_test(own_types),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
