/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_con_whole.c: names of Meta's files, and ranks, layers and rows that are missing.
 *
 * A model of 8 wide, 4 layers and 16 tokens is cut over n ranks as Meta cuts Llama; then files are
 * taken away, or params.json tells another story.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/consolidated/whole.h"
#include "tests/unit/libckpt/help.h"

extern const ckpt_directory ckpt_directory_consolidated;

enum { DIM = 8, LAYERS = 4, VOCAB = 16 };

typedef struct model {
    char folder[FOLDER_PATH];
    ckpt_map *map;
    ckpt_listing list;
    bool by_rows; /* the embedding is cut by rows: Llama 3 */
    ckpt_err err;
} model;

static void add(model *m, const char *name, uint64_t rows, uint64_t width)
{
    const uint64_t shape[] = {rows, width};
    const ckpt_tensor like = {.dtype = CKPT_BF16, .ndim = width ? 2 : 1, .shape = shape};
    ckpt_tensor *t;

    assert_int_equal(ckpt_map_add(m->map, name, strlen(name), &like, &t, NULL), CKPT_OK);
}

/* The first `here` of n ranks, each with `layers` layers. */
static void make(model *m, uint32_t n, uint32_t here, unsigned layers, const char *params)
{
    folder_new(m->folder);
    if (params)
        folder_text(m->folder, "params.json", params);
    assert_int_equal(ckpt_map_create(&m->map, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_listing_read(&m->list, m->map, m->folder, NULL), CKPT_OK);
    for (unsigned r = 0; r < here; r++) {
        char lead[32] = "", name[100];

        if (here > 1)
            snprintf(lead, sizeof lead, "mp_rank_%02u/", r);
        snprintf(name, sizeof name, "%stok_embeddings.weight", lead);
        add(m, name, m->by_rows ? VOCAB / n : VOCAB, m->by_rows ? DIM : DIM / n);
        snprintf(name, sizeof name, "%snorm.weight", lead);
        add(m, name, DIM, 0);
        snprintf(name, sizeof name, "%soutput.weight", lead);
        add(m, name, VOCAB / n, DIM);
        for (unsigned i = 0; i < layers; i++) {
            snprintf(name, sizeof name, "%slayers.%u.attention.wq.weight", lead, i);
            add(m, name, DIM / n, DIM);
        }
    }
}

static int outcome(model *m, uint32_t here)
{
    int rc = ckpt_con_whole(m->map, &m->list, here, &m->err);

    assert_int_equal(rc, m->err.code);
    ckpt_map_free(m->map);
    folder_remove(m->folder);
    return rc;
}

#define PARAMS "{\"dim\": 8, \"n_layers\": 4, \"n_heads\": 2, \"vocab_size\": 16}"

static void counts_ranks(void **state)
{
    static const char *const params[] = {NULL, PARAMS, "{\"dim\": 8, \"vocab_size\": -1}"};

    (void)state;
    for (unsigned p = 0; p < 3; p++) {
        for (unsigned by_rows = 0; by_rows < 2; by_rows++) {
            for (uint32_t n = 1; n <= 8; n *= 2) {
                for (uint32_t here = 1; here <= n; here++) {
                    model m = {.by_rows = by_rows};

                    make(&m, n, here, LAYERS, params[p]);
                    if (outcome(&m, here) != (here == n ? CKPT_OK : CKPT_EMISSING))
                        fail_msg("%u of %u ranks, params %u: %d %s", here, n, p, m.err.code,
                                 m.err.text);
                }
            }
        }
    }
}

/* The message names how many files there are, and how many there should be. */
static void says_how_many(void **state)
{
    model m = {.by_rows = false};

    (void)state;
    make(&m, 4, 3, LAYERS, PARAMS);
    assert_int_equal(outcome(&m, 3), CKPT_EMISSING);
    assert_non_null(strstr(m.err.text, "3 of 4 files"));
    assert_non_null(strstr(m.err.text, "consolidated.03.pth"));
}

static void compares_params(void **state)
{
    static const struct {
        const char *params;
        int code;
    } cases[] = {
        {PARAMS, CKPT_OK},
        {"{\"dim\": 16}", CKPT_EMISMATCH},
        {"{\"dim\": 4}", CKPT_EMISMATCH},
        {"{\"dim\": -8}", CKPT_OK},
        {"{\"dim\": \"8\"}", CKPT_OK},
        {"{\"dim\": 9223372036854775807}", CKPT_OK}, // beyond what counts as said
        {"{\"vocab_size\": 12}", CKPT_EMISMATCH},
        {"{\"vocab_size\": 32}", CKPT_EMISSING},
        {"{\"n_heads\": 4, \"head_dim\": 4}", CKPT_EMISSING},
        {"{\"n_heads\": 2, \"head_dim\": 2}", CKPT_EMISMATCH},
        {"{\"n_layers\": 5}", CKPT_EMISSING},
        {"{\"n_layers\": 3}", CKPT_OK},
        {"{\"n_layers\": 0}", CKPT_OK},
        {"[]", CKPT_OK},
        {"{", CKPT_OK}, // a damaged one is only warned about
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model m = {.by_rows = true};

        make(&m, 2, 2, LAYERS, cases[i].params);
        if (outcome(&m, 2) != cases[i].code)
            fail_msg("%s: %d (%s)", cases[i].params, m.err.code, m.err.text);
    }
}

static void finds_layers(void **state)
{
    (void)state;
    for (unsigned layers = 0; layers <= LAYERS; layers++) {
        model m = {.by_rows = false};

        make(&m, 1, 1, layers, PARAMS);
        // a model without any layer is not one of these
        if (outcome(&m, 1) != (layers == 0 || layers == LAYERS ? CKPT_OK : CKPT_EMISSING))
            fail_msg("%u layers: %d %s", layers, m.err.code, m.err.text);
    }
    // a layer in between is missing, though the last is here
    model m = {.by_rows = false};
    make(&m, 1, 1, 2, PARAMS);
    add(&m, "layers.3.attention.wq.weight", DIM, DIM);
    assert_int_equal(outcome(&m, 1), CKPT_EMISSING);
    // names that only look like layers
    m = (model){.by_rows = false};
    make(&m, 1, 1, LAYERS, PARAMS);
    add(&m, "layers.x.weight", 1, 0);
    add(&m, "layers.99999999999999999999.weight", 1, 0);
    add(&m, "layers.", 1, 0);
    assert_int_equal(outcome(&m, 1), CKPT_OK);
}

/* A map that collects findings goes on. */
static void collects(void **state)
{
    model m = {.by_rows = false};

    (void)state;
    make(&m, 4, 2, 3, PARAMS);
    m.map->collect = true;
    assert_int_equal(ckpt_con_whole(m.map, &m.list, 2, &m.err), CKPT_OK);
    assert_true(m.map->findings.n >= 3); // heads, embedding, layers
    for (size_t i = 0; i < m.map->findings.n; i++)
        assert_int_equal(m.map->findings.at[i].code, CKPT_EMISSING);
    ckpt_map_free(m.map);
    folder_remove(m.folder);
}

static void names(void **state)
{
    static const char *const good[] = {"consolidated.00.pth", "consolidated.07.pth",
                                       "consolidated.123.pth", "consolidated.9999.pth"};
    static const char *const bad[] = {
        "",
        "consolidated.pth",
        "consolidated..pth",
        "consolidated.0.pth",
        "consolidated.00000.pth",
        "consolidated.-1.pth",
        "consolidated.00.pt",
        "consolidated.00.pth.tmp",
        "consolidated.0x.pth",
        "consolidated.safetensors",
        "Consolidated.00.pth",
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const ckpt_entry e[] = {{good[i], false, 1}}, folder[] = {{good[i], true, 0}};
        const ckpt_listing a = {.folder = "x", .entry = e, .n = 1},
                           b = {.folder = "x", .entry = folder, .n = 1};

        assert_int_equal(ckpt_directory_consolidated.part(good[i]), 1);
        assert_true(ckpt_directory_consolidated.probe(&a) > 0);
        assert_int_equal(ckpt_directory_consolidated.probe(&b), 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (ckpt_directory_consolidated.part(bad[i]))
            fail_msg("'%s' is taken for a rank's file", bad[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_ranks),    cmocka_unit_test(says_how_many),
        cmocka_unit_test(compares_params), cmocka_unit_test(finds_layers),
        cmocka_unit_test(collects),        cmocka_unit_test(names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
