/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_imatrix.c: any bytes as an importance matrix, in both forms.  One that is read has only
 * finite values that are not negative.
 */
#include <math.h>

#include "ckpt.h"
#include "libckpt/base/weigh.h"
#include "libckpt/imatrix.h"
#include "tests/fuzz/fuzz_help.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    if (ckpt_imatrix_open(&map, fuzz_file("imatrix", data, size), &err) != CKPT_OK) {
        fuzz_require(!map && err.code != CKPT_OK && err.text[0]);
        return 0;
    }
    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];

        fuzz_require(t->ndim == 1 && t->importance);
        for (uint64_t k = 0; k < t->n_elems; k++)
            fuzz_require(isfinite(t->importance->of[k]) && t->importance->of[k] >= 0);
    }
    fuzz_require(map->tensors.n > 0 && map->keys.n > 0);
    ckpt_map_free(map);
    return 0;
}
