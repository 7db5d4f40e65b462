/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_xml.c: any bytes as a listing of a storage service: what is told of it is bounded, and texts
 * are what they say.
 */
#include "libckpt/remote/xml.h"
#include "tests/fuzz/fuzz_help.h"

/* What was told so far. */
typedef struct fuzz_told {
    unsigned n, roots, last_depth;
    size_t stop_after;
} fuzz_told;

static int fuzz_end(void *ctx, unsigned depth, const char *name, const char *text, ckpt_err *err)
{
    fuzz_told *t = ctx;

    fuzz_require(depth >= 1 && depth <= CKPT_XML_DEPTH && t->roots == 0);
    fuzz_require(*name && strlen(name) < CKPT_XML_NAME && !strchr(name, ':'));
    fuzz_require(!text || strlen(text) < CKPT_XML_TEXT);
    // an element ends after those inside it, and before those around it
    fuzz_require(text || t->last_depth == depth + 1);
    t->last_depth = depth;
    t->roots += depth == 1;
    return ++t->n == t->stop_after ? ckpt_fail(err, CKPT_EFORMAT, "enough") : CKPT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    // a copy of its own size: reading behind it is found
    char *copy = malloc(size ? size : 1);
    fuzz_told told = {.stop_after = size % 64 == 63 ? 3 : 0};
    ckpt_err err = {0};

    if (!copy)
        return 0;
    memcpy(copy, data, size);
    int rc = ckpt_xml_read("fuzz", copy, size, fuzz_end, &told, &err);

    fuzz_require(rc == CKPT_OK ? told.roots == 1 : err.code == rc && err.text[0] != '\0');
    free(copy);
    return 0;
}
