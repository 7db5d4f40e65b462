/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_format.h: for targets whose input is one file of a format: it reads the file from memory,
 * and checks that an accepted file covers each element of its tensors exactly once.
 */
#ifndef TESTS_FUZZ_FORMAT_H
#define TESTS_FUZZ_FORMAT_H

#include "libckpt/format.h"
#include "tests/fuzz/fuzz_help.h"

/* Read the map of a file in memory; NULL: the format refuses the file. */
static inline ckpt_map *fuzz_read(const ckpt_format *format, const void *bytes, uint64_t n)
{
    ckpt_map_file file = {.path = "fuzz", .size = n, .format = format};
    ckpt_map *map = NULL;
    ckpt_io *io = NULL;
    uint32_t index = 0;
    int rc = ckpt_map_create(&map, 64 << 20, NULL);

    if (rc == CKPT_OK)
        rc = ckpt_io_memory(&io, "fuzz", bytes, n, NULL);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_file(map, &file, &index, NULL);
    if (rc == CKPT_OK)
        rc = format->read(map, io, index, NULL);
    ckpt_io_close(io);
    if (rc == CKPT_OK)
        return map;
    ckpt_map_free(map);
    return NULL;
}

/* Make a map with one new file, which has the tensors of another map; ties stay ties. */
static inline int fuzz_target(ckpt_map **to, const ckpt_format *format, const ckpt_map *from)
{
    ckpt_map_file file = {.path = "fuzz", .format = format};
    uint32_t index = 0;
    int rc = ckpt_map_create(to, 256 << 20, NULL);

    if (rc == CKPT_OK)
        rc = ckpt_map_add_file(*to, &file, &index, NULL);
    for (size_t i = 0; rc == CKPT_OK && i < from->tensors.n; i++) {
        const ckpt_tensor *t = from->tensors.at[i];
        ckpt_tensor like = *t, *made = NULL;
        like.file = 0;
        like.owner = NULL;
        if (t->owner)
            like.owner =
                (*to)->tensors.at[ckpt_map_index(*to, t->owner->name, strlen(t->owner->name))];
        rc = ckpt_map_add(*to, t->name, strlen(t->name), &like, &made, NULL);
    }
    return rc;
}

/* Read the input as a file of the format, and pass the map of an accepted file to `then`. */
static inline int fuzz_format(const ckpt_format *format, const uint8_t *data, size_t size,
                              void (*then)(const ckpt_map *map))
{
    ckpt_map *map = fuzz_read(format, data, size);

    (void)format->probe(data, size < 512 ? size : 512, size);
    if (map) {
        fuzz_require(ckpt_map_check(map, NULL) == CKPT_OK);
        then(map);
    }
    ckpt_map_free(map);
    return 0;
}

#endif
