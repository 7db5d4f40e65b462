/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tokenizer.c: any bytes as tokenizer.json; a NUL ends it, and a text to encode follows.  The
 * tokens of what is accepted are below its size; they and numbers without a token are decoded.
 */
#include "engine/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz_help.h"

static const char sample[] = "Hello,  world! It's 123\n<s>\xe2\x96\x81\xc3\xa9\xe4\xbd\xa0 x</s>";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bool json = size && data[0] == '{';
    const uint8_t *end = json ? memchr(data, 0, size) : NULL;
    size_t n = end ? (size_t)(end - data) : size;
    ckpt_text text = {sample, sizeof sample - 1};
    zt_tokenizer *t = NULL;
    static const int32_t odd[] = {0, 1, 2, 3, 255, 256, -1, INT32_MAX, INT32_MIN, 1 << 24};
    zt_ids ids = {0};
    ckpt_bytes back = {0};
    ckpt_err err = {0};
    int rc = zt_tokenizer_open(&t, fuzz_file(json ? "tokenizer.json" : "tokenizer.model", data, n),
                               &err);

    fuzz_require(rc == CKPT_OK || (err.code == rc && err.text[0] != '\0'));
    if (rc != CKPT_OK)
        return 0;
    if (end)
        text = (ckpt_text){(const char *)end + 1, size - n - 1};
    rc = zt_tokenizer_encode(t, text, size % 2, &ids, &err);
    fuzz_require(rc == CKPT_OK || err.text[0] != '\0');
    for (size_t i = 0; i < ids.n; i++)
        fuzz_require(ids.at[i] >= 0 && ids.at[i] < 1 << 24);
    rc = zt_tokenizer_decode(t, ids.at, ids.n, &back, &err);
    if (rc == CKPT_OK)
        rc = zt_tokenizer_decode(t, odd, sizeof odd / sizeof *odd, &back, &err);
    fuzz_require(rc == CKPT_OK || err.text[0] != '\0');
    fuzz_require(back.n <= UINT64_C(2) * 64 << 20);
    ckpt_vec_free(&back);
    ckpt_vec_free(&ids);
    zt_tokenizer_free(t);
    return 0;
}
