/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_zip.c: any bytes as a zip archive: opened, every name looked up, every small record read.
 */
#include "libckpt/codec/zip/zip.h"
#include "tests/fuzz/fuzz_help.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_io *io = NULL;
    ckpt_zip zip = {0};
    ckpt_err err = {0};
    uint64_t n_top;

    if (!arena || ckpt_io_memory(&io, "fuzz.zip", bytes, n, &err) != CKPT_OK)
        abort();
    if (ckpt_zip_open(&zip, arena, io, &err) == CKPT_OK) {
        for (size_t i = 0; i < zip.records.n; i++) {
            const ckpt_zip_record *r = &zip.records.at[i];
            uint8_t *out = NULL;

            // What was accepted must be found again, and lie inside the file.
            if (ckpt_zip_find(&zip, r->name, r->n_name) != r || !ckpt_within(r->at, r->n_stored, n))
                abort();
            if (ckpt_zip_read(&out, &zip, r, 1u << 20, NULL) != CKPT_OK && out)
                abort();
            ckpt_free(out);
        }
        (void)ckpt_zip_top(&zip, &n_top, &err);
    } else if (err.code == CKPT_OK || err.text[0] == '\0') {
        abort();
    }
    ckpt_zip_close(&zip);
    ckpt_io_close(io);
    ckpt_arena_free(arena);
    return 0;
}
