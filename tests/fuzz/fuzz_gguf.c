/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_gguf.c: any bytes as a GGUF file; what is accepted is covered
 * exactly, and can be laid out anew.
 */
#include "ckpt_extra.h"
#include "formats/gguf/gguf.h"
#include "tests/fuzz/fuzz_format.h"

/* Lay keys and tensors out as a new file: what was read can be written. */
static void fuzz_place(const ckpt_map *from)
{
    ckpt_map *to = NULL;
    int rc = fuzz_target(&to, &ckpt_format_gguf, from);

    for (size_t i = 0; rc == CKPT_OK && i < from->keys.n; i++) {
        ckpt_key *key = ckpt_vec_push(&to->keys);
        rc = key ? CKPT_OK : CKPT_ELIMIT;
        if (key)
            *key = from->keys.at[i];
    }
    if (rc == CKPT_OK)
        rc = ckpt_format_gguf.place(to, 0, NULL);
    // only an alignment so large that nobody has it is not written
    fuzz_require(rc == CKPT_OK || rc == CKPT_ELIMIT || rc == CKPT_EUNSUPPORTED);
    if (rc == CKPT_OK)
        fuzz_require(ckpt_map_check(to, NULL) == CKPT_OK);
    ckpt_map_free(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_format(&ckpt_format_gguf, data, size, fuzz_place);
}
