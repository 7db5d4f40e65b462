/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_dcp.c: a distributed checkpoint of two data files, made of the input: opened with its
 * optimizer state, checked, its values read and its tree printed.
 *
 * Input: three bytes with the length of .metadata (little-endian), its bytes; the same of
 * __0_0.distcp; the rest is __1_0.distcp.
 */
#include "ckpt_extra.h"
#include "libckpt/format.h"
#include "tests/fuzz/fuzz_help.h"

enum { MOST_VALUES = 1 << 16 };

/* The next file of the input. */
static void put(const char *name, const uint8_t **data, size_t *size, int last)
{
    size_t n = *size;

    if (!last) {
        n = *size >= 3 ? (size_t)((*data)[0] | (*data)[1] << 8 | (*data)[2] << 16) : 0;
        *data += *size >= 3 ? 3 : *size;
        *size -= *size >= 3 ? 3 : *size;
        n = n < *size ? n : *size;
    }
    (void)fuzz_file(name, *data, n);
    *data += n;
    *size -= n;
}

static int print(void *ctx, const char *text, size_t n)
{
    (void)ctx;
    fuzz_require(text || n == 0);
    return 0;
}

static void read_values(const ckpt_map *map)
{
    static uint8_t buf[MOST_VALUES * 16];
    ckpt_reader *r = NULL;
    ckpt_err err = {0};

    fuzz_require(ckpt_reader_new(&r, map, &err) == CKPT_OK);
    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);
        uint64_t n = t->n_elems < MOST_VALUES ? t->n_elems : MOST_VALUES;

        if (n > 0 && ckpt_reader_read(r, t, 0, n, CKPT_DTYPE_NONE, buf, &err) != CKPT_OK)
            fuzz_require(err.text[0] != '\0');
    }
    ckpt_reader_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const ckpt_open_opts opts = {.with_optimizer = true, .collect = size % 2};
    char path[512];
    ckpt_map *map = NULL;
    ckpt_err err = {0};
    int rc;

    snprintf(path, sizeof path, "%s/run", fuzz_folder());
    fuzz_require(mkdir(path, 0700) == 0 || errno == EEXIST);
    put("run/.metadata", &data, &size, 0);
    put("run/__0_0.distcp", &data, &size, 0);
    put("run/__1_0.distcp", &data, &size, 1);
    rc = ckpt_open(&map, path, &opts, &err);
    fuzz_require(rc == CKPT_OK || (err.code == rc && err.text[0] != '\0'));
    if (rc == CKPT_OK) {
        read_values(map);
        (void)ckpt_tree_print(map, NULL, print, NULL, &err);
    }
    ckpt_map_free(map);
    return 0;
}
