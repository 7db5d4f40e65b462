/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recognised.c: formats that are known by sight and not read yet: each is refused by its own name,
 * never guessed at.
 *
 * GGUF.
 */
#include <string.h>

#include "libckpt/format.h"

static int rec_gguf_probe(const uint8_t *head, size_t n, uint64_t size)
{
    (void)size;
    return n >= 4 && memcmp(head, "GGUF", 4) == 0 ? 100 : 0;
}

static int rec_refuse(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "%s: a file of format %s, which is recognised but not supported yet", io->name,
                     map->files.at[file].format->is.name);
}

const ckpt_format ckpt_format_gguf = {
    .is =
        {
            .name = "gguf",
            .suffixes = ".gguf",
            .note = "recognised, not read yet",
        },
    .probe = rec_gguf_probe,
    .read = rec_refuse,
};
