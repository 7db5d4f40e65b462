/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sequence.c: the order of the parameters in an optimizer's groups: by units of FSDP1, by a
 * model's dict that was put together anew, by names of a known architecture, and the program's own.
 */
#include "libckpt/map/map.h"
#include "libckpt/map/order.h"
#include "tests/unit/unit.h"

enum { TEXT = 2048 };

/* A map with a state: the model's names, and those of each group of the optimizer ("/" between). */
static ckpt_map *make(const char *model, const char *optimizer)
{
    ckpt_map *map = NULL;
    ckpt_state *s = NULL;
    char copy[TEXT];
    const uint64_t n = 4;

    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    map->path = "run";
    snprintf(copy, sizeof copy, "%s", model);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = &n};
        ckpt_tensor *t = NULL;
        assert_int_equal(ckpt_map_add(map, word, strlen(word), &like, &t, NULL), CKPT_OK);
    }
    assert_int_equal(ckpt_state_new(&s, map, "", NULL), CKPT_OK);
    s->foreign = true;
    *ckpt_vec_push(&s->group) = (ckpt_group){.n_lanes = 1};
    snprintf(copy, sizeof copy, "%s", optimizer);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        size_t at = ckpt_map_index(map, word, strlen(word));
        if (*word == '/') {
            *ckpt_vec_push(&s->group) = (ckpt_group){.first = s->param.n, .n_lanes = 1};
            continue;
        }
        assert_true(at < map->tensors.n);
        *ckpt_vec_push(&s->param) = map->tensors.at[at];
        s->group.at[s->group.n - 1].n++;
    }
    return map;
}

static const char *order(const ckpt_map *map)
{
    static char text[TEXT];
    const ckpt_state *s = map->states.at[0];

    text[0] = 0;
    for (size_t g = 0; g < s->group.n; g++) {
        for (size_t i = 0; i < s->group.at[g].n; i++) {
            size_t n = strlen(text);
            snprintf(text + n, sizeof text - n, "%s%s",
                     i   ? " "
                     : g ? " / "
                         : "",
                     s->param.at[s->group.at[g].first + i]->name);
        }
    }
    return text;
}

static unsigned warnings(const ckpt_map *map)
{
    unsigned n = 0;

    for (size_t i = 0; i < map->findings.n; i++)
        n += map->findings.at[i].severity == CKPT_WARNING;
    return n;
}

/* What becomes of an order; NULL: it is asked for. */
static void becomes(const char *model, const char *optimizer, bool in_order, const char *want,
                    unsigned warned)
{
    ckpt_map *map = make(model, optimizer);
    const ckpt_tensor *wrong = NULL;
    ckpt_err err = {0};

    assert_int_equal(ckpt_state_sequence(map, map->states.at[0], in_order, &err), CKPT_OK);
    assert_string_equal(order(map), want ? want : optimizer);
    assert_int_equal(warnings(map), warned);
    assert_int_equal(ckpt_state_ordered(map, map->states.at[0], &err),
                     want ? CKPT_OK : CKPT_EUSAGE);
    if (!want)
        assert_non_null(strstr(err.text, "--order FILE"));
    // the same holds when it is asked again
    assert_int_equal(ckpt_state_misplaced(map, map->states.at[0], &wrong, &err), CKPT_OK);
    assert_null(wrong);
    // what the optimizer's file says is kept
    assert_int_equal(map->states.at[0]->given != NULL, strcmp(order(map), optimizer) != 0);
    ckpt_map_free(map);
}

#define GPT  "wte.w wpe.w h.0.a.w h.0.a.b h.1.a.w h.1.a.b ln_f.w head.w"
#define UNIT "wte.w wpe.w ln_f.w head.w h.0.a.w h.0.a.b h.1.a.w h.1.a.b"

static void units_of_fsdp1(void **state)
{
    (void)state;
    becomes(GPT, UNIT, true, GPT, 0);
    // modules in modules show it: "model" begins twice
    becomes("model.e.w model.l.0.w model.l.1.w model.n.w head.w",
            "model.e.w model.n.w head.w model.l.0.w model.l.1.w", true,
            "model.e.w model.l.0.w model.l.1.w model.n.w head.w", 0);
    // each group for itself; buffers of the dict are in none
    becomes("wte.w mask "
            "h.0.a.w h.0.a.b ln_f.w ln_f.b",
            "wte.w ln_f.w h.0.a.w / ln_f.b h.0.a.b", true, "wte.w h.0.a.w ln_f.w / h.0.a.b ln_f.b",
            0);
    becomes(GPT, GPT, true, GPT, 0);
}

/* Of layers that torch.compile has wrapped, get_state_dict puts the names last into the dict. */
static void dicts_put_together_anew(void **state)
{
    (void)state;
    becomes(UNIT, GPT, true, GPT, 0);
    becomes("model.e.w model.n.w head.w model.l.0.w model.l.1.w",
            "model.e.w model.l.0.w model.l.1.w model.n.w head.w", true,
            "model.e.w model.l.0.w model.l.1.w model.n.w head.w", 0);
}

#define LLAMA                                                                                      \
    "model.embed_tokens.weight model.layers.0.self_attn.q_proj.weight "                            \
    "model.layers.0.mlp.gate_proj.weight model.layers.0.input_layernorm.weight "                   \
    "model.norm.weight lm_head.weight"
#define LLAMA_UNIT                                                                                 \
    "model.embed_tokens.weight model.norm.weight lm_head.weight "                                  \
    "model.layers.0.self_attn.q_proj.weight model.layers.0.mlp.gate_proj.weight "                  \
    "model.layers.0.input_layernorm.weight"
#define GPT2      "transformer.wte.weight transformer.h.0.ln_1.weight transformer.ln_f.weight"
#define GPT2_UNIT "transformer.wte.weight transformer.ln_f.weight transformer.h.0.ln_1.weight"

static void names_of_an_architecture(void **state)
{
    (void)state;
    // FSDP1 over compiled layers: the dict and the optimizer are both by units
    becomes(LLAMA_UNIT, LLAMA_UNIT, true, LLAMA, 0);
    becomes(GPT2_UNIT, GPT2_UNIT, true, GPT2, 0);
    // neither order is known
    becomes(LLAMA_UNIT, LLAMA, false, LLAMA, 0);
    becomes(LLAMA, LLAMA_UNIT, false, LLAMA, 0);
    // below a module of Lightning
    becomes(
        "net.transformer.wte.weight net.transformer.ln_f.weight net.transformer.h.0.ln_1.weight",
        "net.transformer.wte.weight net.transformer.ln_f.weight net.transformer.h.0.ln_1.weight",
        true,
        "net.transformer.wte.weight net.transformer.h.0.ln_1.weight net.transformer.ln_f.weight",
        0);
}

static void what_is_not_known_is_asked_for(void **state)
{
    (void)state;
    becomes(GPT, GPT, false, NULL, 0);
    becomes("m.e.w m.n.w x m.l.0.w", "m.e.w m.n.w x m.l.0.w", true, NULL, 0);
    // stages of a pipeline, backwards
    becomes("l.1.w norm.w e.w l.0.w", "l.1.w norm.w e.w l.0.w", true, NULL, 0);
    // both can be the model's
    becomes("emb.w fc1.w fc2.w out.w", "emb.w fc2.w out.w fc1.w", true, NULL, 0);
}

/* A program may give its optimizer parameters in any order, so only FSDP1's exact one is replaced. */
static void a_program_has_its_own_order(void **state)
{
    (void)state;
    // the final norm first: FSDP1 with embedding and head as units of their own, or a program
    becomes(GPT, "ln_f.w wte.w wpe.w h.0.a.w h.0.a.b h.1.a.w h.1.a.b head.w", true, NULL, 0);
    // the head first; sorted by name
    becomes(GPT, "head.w wte.w wpe.w h.0.a.w h.0.a.b h.1.a.w h.1.a.b ln_f.w", true, NULL, 0);
    becomes(GPT, "h.0.a.b h.0.a.w h.1.a.b h.1.a.w head.w ln_f.w wpe.w wte.w", true, NULL, 0);
    // names of a known architecture do not tell how the program has listed them
    becomes(LLAMA,
            "lm_head.weight model.embed_tokens.weight model.layers.0.self_attn.q_proj.weight "
            "model.layers.0.mlp.gate_proj.weight model.layers.0.input_layernorm.weight "
            "model.norm.weight",
            true, NULL, 0);
    // a name shows that the optimizer's order is no walk over the model; it may still be meant
    becomes("m.e.w m.l.0.w m.l.1.w m.n.w head.w", "m.e.w head.w m.l.1.w m.l.0.w m.n.w", true, NULL,
            0);
    // the second group shows that the first one's order is not FSDP1's either
    becomes("wte.w h.0.a.w h.0.a.b ln_f.w ln_f.b h.1.a.b",
            "wte.w ln_f.w h.0.a.w / h.1.a.b ln_f.b h.0.a.b", true, NULL, 0);
}

static void a_wrong_place_is_found(void **state)
{
    ckpt_map *map = make(GPT, UNIT);
    ckpt_state *s = map->states.at[0];
    const ckpt_tensor *wrong = NULL;

    (void)state;
    map->in_order = true;
    assert_int_equal(ckpt_state_misplaced(map, s, &wrong, NULL), CKPT_OK);
    assert_non_null(wrong);
    assert_string_equal(wrong->name, "ln_f.w");
    // the caller's list, numbers of torch, and DeepSpeed's own order are what they are
    s->listed = true;
    assert_int_equal(ckpt_state_misplaced(map, s, &wrong, NULL), CKPT_OK);
    assert_null(wrong);
    s->listed = false;
    s->numbered = true;
    assert_int_equal(ckpt_state_misplaced(map, s, &wrong, NULL), CKPT_OK);
    assert_null(wrong);
    s->numbered = s->foreign = false;
    assert_int_equal(ckpt_state_misplaced(map, s, &wrong, NULL), CKPT_OK);
    assert_null(wrong);
    ckpt_map_free(map);
}

/* A tied parameter stands where its first name does, whichever the optimizer has. */
static void tied(void **state)
{
    ckpt_map *map = make("wte.w h.0.w ln.w head.w", "head.w ln.w h.0.w");

    (void)state;
    map->tensors.at[3]->owner = map->tensors.at[0];
    assert_int_equal(ckpt_state_sequence(map, map->states.at[0], true, NULL), CKPT_OK);
    assert_string_equal(order(map), "head.w h.0.w ln.w");
    ckpt_map_free(map);
}

/* Every allocation fails once. */
static void memory(void **state)
{
    (void)state;
    for (uint64_t n = 0;; n++) {
        ckpt_map *map = make(LLAMA, LLAMA_UNIT);
        ckpt_err err = {0};
        ckpt_alloc_fail_at(n);
        int rc = ckpt_state_sequence(map, map->states.at[0], true, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc != CKPT_OK)
            assert_int_equal(rc, CKPT_ELIMIT);
        else
            assert_string_equal(order(map), LLAMA);
        ckpt_map_free(map);
        if (rc == CKPT_OK)
            break;
        assert_true(n < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_of_fsdp1),
        cmocka_unit_test(dicts_put_together_anew),
        cmocka_unit_test(names_of_an_architecture),
        cmocka_unit_test(what_is_not_known_is_asked_for),
        cmocka_unit_test(a_program_has_its_own_order),
        cmocka_unit_test(a_wrong_place_is_found),
        cmocka_unit_test(tied),
        cmocka_unit_test(memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
