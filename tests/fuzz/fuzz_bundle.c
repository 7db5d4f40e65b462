/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_bundle.c: any bytes as the bundle of a signature, and its payload as the statement, which a
 * real one reaches only after the check. What is read is written and read again with the same list.
 */
#include "libckpt/sign/bundle.h"
#include "libckpt/sign/listed.h"
#include "tests/fuzz/fuzz_help.h"

/* Write the list, and read it again. */
static void fuzz_again(const ckpt_signed_list *list)
{
    ckpt_bytes text = {0};
    ckpt_signed_list again = {0};

    fuzz_require(ckpt_signed_list_write(&text, list, NULL) == CKPT_OK);
    fuzz_require(ckpt_signed_list_parse(&again, "again", &text, NULL) == CKPT_OK);
    fuzz_require(again.all.n == list->all.n && again.ignored.n == list->ignored.n);
    for (size_t i = 0; i < list->all.n; i++)
        fuzz_require(strcmp(again.all.at[i].name, list->all.at[i].name) == 0);
    ckpt_signed_list_free(&again);
    ckpt_vec_free(&text);
}

/* Write the bundle, and read it again. */
static void fuzz_written(const ckpt_bundle *b)
{
    ckpt_bytes text = {0};
    ckpt_bundle again = {0};

    fuzz_require(ckpt_bundle_write(&text, b, NULL) == CKPT_OK);
    fuzz_require(ckpt_bundle_parse(&again, "again", (const char *)text.at, text.n, NULL) ==
                 CKPT_OK);
    fuzz_require(again.payload.n == b->payload.n && again.signature.n == b->signature.n);
    ckpt_bundle_free(&again);
    ckpt_vec_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ckpt_bundle bundle;
    ckpt_signed_list list = {0};
    ckpt_certs *trusted = NULL;

    if (ckpt_bundle_parse(&bundle, "fuzz", (const char *)data, size, NULL) == CKPT_OK) {
        if (ckpt_signed_list_parse(&list, "fuzz", &bundle.payload, NULL) == CKPT_OK && !list.shard)
            fuzz_again(&list);
        // no chain leads to an empty list of roots
        if (bundle.chain && ckpt_certs_new(&trusted, NULL) == CKPT_OK)
            fuzz_require(ckpt_bundle_check(&bundle, "fuzz", NULL, trusted, NULL) != CKPT_OK);
        if (bundle.chain || bundle.hint[0])
            fuzz_written(&bundle);
        ckpt_certs_free(trusted);
        ckpt_signed_list_free(&list);
    }
    ckpt_bundle_free(&bundle);
    return 0;
}
