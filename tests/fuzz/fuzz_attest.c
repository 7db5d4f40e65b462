/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_attest.c: any bytes as a statement about a conversion. It never agrees with files that do not
 * exist, by any names.
 */
#include "ckpt_extra.h"
#include "tests/fuzz/fuzz_help.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file("statement.json", data, size);
    ckpt_attested *a = NULL;
    ckpt_map *from = NULL;
    char none[512];

    (void)snprintf(none, sizeof none, "%s/none", fuzz_folder());
    if (ckpt_attest_read(&a, path, NULL) == CKPT_OK) {
        for (size_t i = 0; ckpt_attest_option_at(a, i); i++)
            fuzz_require(ckpt_attest_option_at(a, i)->name != NULL);
        fuzz_require(ckpt_map_new(&from, "memory", NULL) == CKPT_OK);
        fuzz_require(ckpt_attest_check(a, none, from, NULL, NULL, NULL) != CKPT_OK);
        ckpt_map_free(from);
    }
    ckpt_attest_free(a);
    return 0;
}
