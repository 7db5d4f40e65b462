/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_manifest.c: any bytes as a manifest.  One that is read can be written and is read again as
 * the same.
 */
#include "ckpt_extra.h"
#include "tests/fuzz/fuzz_help.h"

/* Every text of an item is what the reader promises. */
static void look(const ckpt_hashed *h)
{
    fuzz_require(h && h->name && strlen(h->sha256) == 64 && h->ndim <= CKPT_MAX_DIM);
    fuzz_require(h->name[0] != '/' || h->dtype != CKPT_DTYPE_NONE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ckpt_manifest *m = NULL, *again = NULL;
    ckpt_err err = {0};
    const char *path = fuzz_file("manifest.json", data, size);

    if (ckpt_manifest_read(&m, path, &err) != CKPT_OK) {
        fuzz_require(!m && err.code != CKPT_OK && err.text[0]);
        return 0;
    }
    for (size_t i = 0; i < ckpt_manifest_file_count(m); i++)
        look(ckpt_manifest_file_at(m, i));
    for (size_t i = 0; i < ckpt_manifest_tensor_count(m); i++)
        look(ckpt_manifest_tensor_at(m, i));
    fuzz_require(ckpt_manifest_write(m, path, &err) == CKPT_OK);
    fuzz_require(ckpt_manifest_read(&again, path, &err) == CKPT_OK);
    fuzz_require(ckpt_manifest_file_count(m) == ckpt_manifest_file_count(again));
    fuzz_require(ckpt_manifest_diff(m, again, NULL, NULL, &err) == CKPT_OK);
    ckpt_manifest_free(again);
    ckpt_manifest_free(m);
    return 0;
}
