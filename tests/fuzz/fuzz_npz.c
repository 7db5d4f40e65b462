/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_npz.c: any bytes as an archive of numpy arrays, or a single one; what is accepted is covered
 * exactly, and can be laid out anew.
 */
#include "ckpt_extra.h"
#include "formats/npz/npz.h"
#include "tests/fuzz/fuzz_format.h"

/* Lay the arrays out as a new archive; names and types that cannot be written are refused. */
static void fuzz_place(const ckpt_map *from)
{
    ckpt_map *to = NULL;
    int rc = fuzz_target(&to, &ckpt_format_npz, from);

    if (rc == CKPT_OK)
        rc = ckpt_format_npz.place(to, 0, NULL);
    if (rc == CKPT_OK)
        fuzz_require(ckpt_format_npz.seal(to, 0, UINT64_MAX, NULL) == CKPT_OK &&
                     ckpt_map_check(to, NULL) == CKPT_OK);
    ckpt_map_free(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_format(&ckpt_format_npz, data, size, fuzz_place);
}
