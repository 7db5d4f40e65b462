/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_json.c: any bytes through the gate and the parser; what is read is written, and read again
 * the same.
 */
#include "libckpt/codec/json/json.h"
#include "tests/fuzz/fuzz_help.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ckpt_arena *a = ckpt_arena_new(64 << 20);
    ckpt_json_text text = {"fuzz", 0, (const char *)data, size, 1 << 20, size % 4 == 3};
    ckpt_json_style style = {.indent = size % 3, .sort_keys = false, .ascii = size % 2};
    ckpt_bytes out = {0};
    ckpt_value *v = NULL, *again = NULL;

    if (a && ckpt_json_parse(&v, a, &text, NULL) == CKPT_OK) {
        fuzz_require(ckpt_json_write(&out, v, &style, NULL) == CKPT_OK);
        // escapes and indents make it longer than what was read
        ckpt_json_text second = {"fuzz", 0, (const char *)out.at, out.n, UINT64_C(1) << 30, false};
        fuzz_require(ckpt_json_parse(&again, a, &second, NULL) == CKPT_OK);
        fuzz_require(ckpt_value_equal(v, again, 1 << 20));
    }
    ckpt_vec_free(&out);
    ckpt_arena_free(a);
    return 0;
}
