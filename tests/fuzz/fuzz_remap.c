/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_remap.c: any text as a layout map, applied in both directions to the tensors of a small
 * model; what comes of it is laid out soundly, or refused with a reason.
 */
#include <stdio.h>
#include <string.h>

#include "ckpt_extra.h"
#include "libckpt/transform/keymap/keymap.h"
#include "tests/fuzz/fuzz_help.h"

/* Two layers with the names and shapes that the built-in maps know, on both sides. */
static ckpt_map *model(void)
{
    static const struct {
        const char *name;
        uint64_t shape[2];
        uint32_t ndim;
    } tensors[] = {
        {"model.embed_tokens.weight", {6, 4}, 2},
        {"model.layers.%d.self_attn.q_proj.weight", {4, 4}, 2},
        {"model.layers.%d.self_attn.k_proj.weight", {2, 4}, 2},
        {"model.layers.%d.self_attn.v_proj.weight", {2, 4}, 2},
        {"layers.%d.attention.wq.weight", {4, 4}, 2},
        {"decoder.layers.%d.self_attention.linear_qkv.weight", {8, 4}, 2},
        {"experts.%d.w1", {3, 4}, 2},
        {"mp_rank_0%d/dense.bias", {4, 0}, 1},
        {"stacked", {2, 12}, 2},
    };
    static float values[64];
    ckpt_map *map = NULL;
    char name[64];

    fuzz_require(ckpt_map_new(&map, "memory", NULL) == CKPT_OK);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        for (int k = 0; k < 2; k++) {
            ckpt_array a = {.name = name,
                            .dtype = CKPT_F32,
                            .ndim = tensors[i].ndim,
                            .shape = tensors[i].shape,
                            .data = values};
            const char *hole = strstr(tensors[i].name, "%d");
            if (!hole && k > 0)
                continue;
            (void)snprintf(name, sizeof name, "%.*s%s%s", (int)(hole ? hole - tensors[i].name : 60),
                           tensors[i].name, hole ? (k ? "1" : "0") : "", hole ? hole + 2 : "");
            fuzz_require(ckpt_map_put(map, &a, NULL) == CKPT_OK);
        }
    }
    fuzz_require(ckpt_map_put_metadata(map, "hidden_size", "4", NULL) == CKPT_OK);
    return map;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ckpt_remap *r = NULL;
    ckpt_err err = {0};
    int rc = ckpt_remap_parse(&r, "fuzz", (const char *)data, size, size % 2, &err);

    fuzz_require(rc == CKPT_OK || (err.code == rc && err.text[0] != '\0'));
    for (unsigned backwards = 0; rc == CKPT_OK && backwards < 2; backwards++) {
        const char *const sizes[] = {NULL};
        const ckpt_remap_how how = {.backwards = backwards, .sizes = sizes};
        ckpt_map *map = model();

        memset(&err, 0, sizeof err);
        rc = ckpt_remap_apply(map, r, &how, &err);
        fuzz_require(rc == CKPT_OK || (err.code == rc && err.text[0] != '\0'));
        fuzz_require(rc != CKPT_OK || ckpt_map_check(map, &err) == CKPT_OK);
        rc = CKPT_OK;
        ckpt_map_free(map);
    }
    ckpt_remap_free(r);
    return 0;
}
