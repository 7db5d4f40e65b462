/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_adapter.c: an adapter_config.json, and names and shapes of an adapter's tensors, merged into
 * a base of a few matrices: what is accepted is covered exactly, and can be read.
 */
#include "tests/fuzz/fuzz_help.h"

#include "ckpt_extra.h"

enum { FZ_BYTES = 8192 };

/* A base in memory. */
static ckpt_map *fuzz_base(const uint8_t *bytes)
{
    static const uint64_t shape[3][3] = {{8, 4, 0}, {4, 4, 0}, {2, 4, 8}};
    static const char *const names[] = {"h.0.attn.c_proj.weight", "model.embed_tokens.weight",
                                        "layers.1.mlp.experts.up"};
    ckpt_map *map = NULL;
    int rc = ckpt_map_new(&map, "base", NULL);

    for (unsigned i = 0; rc == CKPT_OK && i < 3; i++) {
        const ckpt_array array = {.size = sizeof array,
                                  .name = names[i],
                                  .dtype = i == 0 ? CKPT_BF16 : CKPT_F32,
                                  .ndim = i == 2 ? 3 : 2,
                                  .shape = shape[i],
                                  .data = bytes};
        rc = ckpt_map_put(map, &array, NULL);
    }
    if (rc != CKPT_OK) {
        ckpt_map_free(map);
        return NULL;
    }
    return map;
}

/* The input: the configuration up to a NUL, then the safetensors file. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[FZ_BYTES];
    static float values[FZ_BYTES];
    char config[4096];
    const char *text = fuzz_text(config, sizeof config, &data, &size);
    const ckpt_adapter adapter = {.size = sizeof adapter, .path = fuzz_folder(), .weight = 0.5};
    ckpt_map *map = fuzz_base(bytes);
    ckpt_reader *r = NULL;

    (void)fuzz_file("adapter_config.json", (const uint8_t *)text, strlen(text));
    (void)fuzz_file("adapter_model.safetensors", data, size);
    if (map && ckpt_map_merge_adapter(map, &adapter, NULL) == CKPT_OK) {
        fuzz_require(ckpt_map_check(map, NULL) == CKPT_OK);
        fuzz_require(ckpt_reader_new(&r, map, NULL) == CKPT_OK);
        for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
            const ckpt_tensor *t = ckpt_map_tensor_at(map, i);

            if (t->n_elems <= FZ_BYTES && ckpt_dtype_bits(t->dtype) == 32)
                fuzz_require(ckpt_reader_read(r, t, 0, t->n_elems, CKPT_DTYPE_NONE, values, NULL) ==
                             CKPT_OK);
        }
    }
    ckpt_reader_free(r);
    ckpt_map_free(map);
    return 0;
}
