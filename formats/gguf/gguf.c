/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf.c: the driver's table for GGUF, the file format of llama.cpp and other programs on ggml.
 */
#include "formats/gguf/model.h"

#include <string.h>

static int gg_probe(const uint8_t *head, size_t n, uint64_t size)
{
    (void)size;
    return n >= 4 && memcmp(head, "GGUF", 4) == 0 ? 100 : 0;
}

/* Read a file; it must be a complete model unless its name marks it as one of several. */
static int gg_read(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err)
{
    int rc = ckpt_gguf_read(map, io, file, err);

    return rc == CKPT_OK ? ckpt_gguf_whole(map, io->name, err) : rc;
}

/* Dtypes that floats can be converted to. */
static const ckpt_dtype gg_dtypes[] = {
    CKPT_F32,  CKPT_F16,  CKPT_BF16, CKPT_F64,  CKPT_Q8_0, CKPT_Q4_0, CKPT_Q4_1,  CKPT_Q5_0,
    CKPT_Q5_1, CKPT_Q2_K, CKPT_Q3_K, CKPT_Q4_K, CKPT_Q5_K, CKPT_Q6_K, CKPT_MXFP4, CKPT_DTYPE_NONE,
};

const ckpt_format ckpt_format_gguf = {
    .is =
        {
            .name = "gguf",
            .aliases = "llama.cpp ggml",
            .suffixes = ".gguf",
            .note = "llama.cpp's models and LoRA adapters, version 2 and 3, every type of ggml's",
            .caps = CKPT_CAN_READ | CKPT_CAN_WRITE | CKPT_TAKES_SIDE_FILES | CKPT_TAKES_SHARD_SIZE,
            .dtypes = gg_dtypes,
            .mixtures = "Q2_K_S Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M MXFP4_MOE",
            .layout = "gguf",
        },
    .probe = gg_probe,
    .read = gg_read,
    .place = ckpt_gguf_place,
    .scatter = ckpt_gguf_scatter,
};
