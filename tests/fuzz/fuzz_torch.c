/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_torch.c: any bytes as a torch file of either container: read, and what was accepted checked.
 */
#include "ckpt_extra.h"
#include "libckpt/format.h"
#include "tests/fuzz/fuzz_help.h"

extern const ckpt_format ckpt_format_torch;
extern const ckpt_format ckpt_format_torch_legacy;

/* Every source of a map lies inside the file, and every tensor inside its sources. */
static void check(const ckpt_map *map, size_t n)
{
    ckpt_err err = {0};

    for (size_t i = 0; i < map->sources.n; i++) {
        const ckpt_source *s = &map->sources.at[i];

        if (s->kind != CKPT_SOURCE_FILE || !ckpt_within(s->at, s->n_stored, n) ||
            (s->coding == CKPT_RAW && s->n_stored != s->n_bytes))
            abort();
    }
    if (ckpt_map_check(map, &err) != CKPT_OK)
        abort();
}

static void read_as(const ckpt_format *format, const uint8_t *bytes, size_t n)
{
    ckpt_map_file file = {.path = "fuzz.pt", .format = format, .size = n};
    uint32_t index = 0;
    ckpt_map *map = NULL;
    ckpt_io *io = NULL;
    ckpt_err err = {0};

    if (ckpt_map_create(&map, UINT64_C(512) << 20, &err) != CKPT_OK ||
        ckpt_io_memory(&io, file.path, bytes, n, &err) != CKPT_OK ||
        ckpt_map_add_file(map, &file, &index, &err) != CKPT_OK)
        abort();
    if (format->read(map, io, index, &err) == CKPT_OK)
        check(map, n);
    else if (err.code == CKPT_OK || err.text[0] == '\0')
        abort();
    if (format->records)
        (void)format->records(map, io, index, NULL);
    ckpt_io_close(io);
    ckpt_map_free(map);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (ckpt_format_torch.probe(bytes, n < 4096 ? n : 4096, n) > 0)
        read_as(&ckpt_format_torch, bytes, n);
    if (ckpt_format_torch_legacy.probe(bytes, n < 4096 ? n : 4096, n) > 0)
        read_as(&ckpt_format_torch_legacy, bytes, n);
    return 0;
}
