/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_uni_rules.c: any text as universal_checkpoint_info, asked about names; the rules found are
 * applied to slices of small shapes.  Input: the JSON, a NUL, then names with NULs between them.
 */
#include "formats/rules/rules.h"
#include "tests/fuzz/fuzz_help.h"

/* Boxes lie inside the whole and inside their slice. */
static void check(const ckpt_slices *s, const ckpt_slice_set *set)
{
    for (uint64_t i = 0; i < s->n_boxes; i++) {
        const ckpt_slice_box *b = &s->box[i];

        fuzz_require(b->rank < set->n && b->copy < b->n_copies);
        for (uint32_t k = 0; k < s->ndim; k++) {
            fuzz_require(b->count[k] > 0);
            fuzz_require(ckpt_within(b->to[k], b->count[k], s->shape[k]));
            fuzz_require(ckpt_within(b->from[k], b->count[k], set->slice[b->rank]->shape[k]));
        }
    }
}

/* A rule for slices of [4, 6] and of [8], of two ranks and of three. */
static void apply(const ckpt_slice_rule *rule)
{
    static uint64_t shapes[2][2] = {{4, 6}, {8, 0}};

    for (unsigned which = 0; which < 4; which++) {
        ckpt_tensor t = {.name = "w", .dtype = CKPT_F32, .ndim = which & 1 ? 1 : 2};
        const ckpt_tensor *slice[3] = {&t, &t, &t};
        ckpt_slice_set set = {"w", slice, which & 2 ? 3 : 2};
        ckpt_slices s = {0};
        ckpt_err err = {0};

        t.shape = shapes[which & 1];
        t.n_elems = which & 1 ? 8 : 24;
        if (ckpt_slices_new(&s, rule, &set, &err) == CKPT_OK)
            check(&s, &set);
        else
            fuzz_require(err.text[0] != '\0');
        ckpt_slices_free(&s);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char json[1 << 16], name[512];
    ckpt_uni_rules *rules = NULL;
    ckpt_err err = {0};
    size_t cursor = 0;
    int rc;

    fuzz_text(json, sizeof json, &data, &size);
    rc = ckpt_uni_rules_parse(&rules, json, &err);
    fuzz_require(rc == CKPT_OK ? rules != NULL : !rules && err.text[0] != '\0');
    if (rc != CKPT_OK)
        return 0;
    for (unsigned i = 0; i < 8 && (size > 0 || i == 0); i++) {
        ckpt_slice_rule rule = {0};
        size_t n = strlen(fuzz_text(name, sizeof name, &data, &size));

        rc = ckpt_uni_rules_find(rules, name, n, &rule, &err);
        fuzz_require(rc == CKPT_OK || err.text[0] != '\0');
        if (rc == CKPT_OK)
            apply(&rule);
    }
    while (ckpt_uni_rules_unused(rules, &cursor))
        ;
    ckpt_uni_rules_free(rules);
    return 0;
}
