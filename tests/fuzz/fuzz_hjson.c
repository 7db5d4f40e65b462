/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_hjson.c: any bytes as HJSON; what is read is written as JSON, and read again the same, by
 * the strict reader too.
 */
#include "engine/config/config.h"
#include "libckpt/codec/json/json.h"
#include "tests/fuzz/fuzz_help.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ckpt_arena *a = ckpt_arena_new(64 << 20);
    ckpt_json_style style = {.indent = size % 3, .sort_keys = false, .ascii = size % 2};
    ckpt_value *v = NULL, *again = NULL;
    ckpt_bytes out = {0};
    ckpt_err err = {0};
    int rc = a ? zt_hjson_parse(&v, a, (const char *)data, size, "fuzz", &err) : CKPT_ELIMIT;

    fuzz_require(rc == CKPT_OK || !a || (err.code == rc && err.text[0] != '\0'));
    // numbers beyond a double, and texts that are no UTF-8, are not written
    if (rc == CKPT_OK && ckpt_json_write(&out, v, &style, NULL) == CKPT_OK) {
        fuzz_require(zt_hjson_parse(&again, a, (const char *)out.at, out.n, "again", NULL) ==
                     CKPT_OK);
        fuzz_require(ckpt_value_equal(v, again, 1 << 20));
    }
    ckpt_vec_free(&out);
    ckpt_arena_free(a);
    return 0;
}
