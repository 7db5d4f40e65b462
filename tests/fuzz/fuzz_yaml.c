/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_yaml.c: any bytes as YAML, and as the configuration of a merge.
 */
#include "libckpt/codec/yaml/yaml.h"
#include "libckpt/transform/merge/recipe.h"
#include "tests/fuzz/fuzz_help.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const keys[] = {"weight", "density", "normalize", "t"};
    ckpt_arena *a = ckpt_arena_new(64 << 20);
    char *text = a ? ckpt_arena_string(a, (const char *)data, size) : NULL;
    const ckpt_merge merge = {.size = sizeof merge, .config_text = text, .config_name = "fuzz"};
    ckpt_recipe r = {0};
    ckpt_value *v = NULL;
    double x = 0;
    bool found;

    if (a)
        (void)ckpt_yaml_parse(&v, a, "fuzz", (const char *)data, size, NULL);
    if (text && ckpt_recipe_read(&r, a, &merge, NULL) == CKPT_OK) {
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            for (size_t i = 0; i < r.models.n; i++)
                (void)ckpt_recipe_number(
                    &r, &(ckpt_recipe_for){&r.models.at[i], "layers.1.mlp.weight", 0.5}, keys[k],
                    &x, &found, NULL);
        }
    }
    ckpt_recipe_free(&r);
    ckpt_arena_free(a);
    return 0;
}
