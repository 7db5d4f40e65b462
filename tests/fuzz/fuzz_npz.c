/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_npz.c: any bytes as an archive of numpy arrays, or a single one; what is accepted is covered
 * exactly, and can be laid out anew.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/npz/npz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Abort when the promise does not hold: the fuzzer then keeps the input. */
static void fuzz_require(bool held)
{
    if (!held)
        abort();
}

/* The map of a file in memory, or NULL. */
static ckpt_map *fuzz_read(const void *bytes, uint64_t n)
{
    ckpt_map_file file = {.path = "fuzz", .size = n, .format = &ckpt_format_npz};
    ckpt_map *map = NULL;
    ckpt_io *io = NULL;
    uint32_t index = 0;
    int rc = ckpt_map_new(&map, 64 << 20, NULL);

    if (rc == CKPT_OK)
        rc = ckpt_io_memory(&io, "fuzz", bytes, n, NULL);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_file(map, &file, &index, NULL);
    if (rc == CKPT_OK)
        rc = ckpt_format_npz.read(map, io, index, NULL);
    ckpt_io_close(io);
    if (rc == CKPT_OK)
        return map;
    ckpt_map_free(map);
    return NULL;
}

/* Lay the arrays out as a new archive; names and types that cannot be written are refused. */
static void fuzz_place(const ckpt_map *from)
{
    ckpt_map_file file = {.path = "fuzz", .format = &ckpt_format_npz};
    ckpt_map *to = NULL;
    uint32_t index = 0;
    int rc = ckpt_map_new(&to, 256 << 20, NULL);

    if (rc == CKPT_OK)
        rc = ckpt_map_add_file(to, &file, &index, NULL);
    for (size_t i = 0; rc == CKPT_OK && i < from->tensors.n; i++) {
        ckpt_tensor like = *from->tensors.at[i], *made = NULL;
        like.file = 0;
        rc = ckpt_map_add(to, like.name, strlen(like.name), &like, &made, NULL);
    }
    if (rc == CKPT_OK)
        rc = ckpt_format_npz.place(to, 0, NULL);
    if (rc == CKPT_OK)
        fuzz_require(ckpt_format_npz.seal(to, 0, UINT64_MAX, NULL) == CKPT_OK &&
                     ckpt_map_check(to, NULL) == CKPT_OK);
    ckpt_map_free(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ckpt_map *map = fuzz_read(data, size);

    (void)ckpt_format_npz.probe(data, size < 512 ? size : 512, size);
    if (map) {
        fuzz_require(ckpt_map_check(map, NULL) == CKPT_OK);
        fuzz_place(map);
    }
    ckpt_map_free(map);
    return 0;
}
