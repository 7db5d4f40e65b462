/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recognised.c: formats that are known by sight and not read yet: each is refused by its own name,
 * never guessed at.
 *
 * PyTorch distributed checkpoints (a folder with .metadata), GGUF, and numpy's npy and npz.
 */
#include <string.h>

#include "libckpt/format.h"

/* ---- folders ---- */

static bool rec_ends(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);

    return n >= m && strcmp(name + n - m, suffix) == 0;
}

static int rec_dcp_probe(const ckpt_listing *list)
{
    int shards = 0;

    for (size_t i = 0; i < list->n; i++)
        shards |= rec_ends(list->entry[i].name, ".distcp");
    if (ckpt_listing_find(list, ".metadata") || ckpt_listing_find(list, ".metadata.tmp"))
        return 60;
    return shards ? 55 : 0;
}

static int rec_dcp_gather(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                          ckpt_err *err)
{
    (void)map;
    (void)opts;
    if (!ckpt_listing_find(list, ".metadata"))
        return ckpt_fail(
            err, CKPT_EMISSING,
            "%s: a PyTorch distributed checkpoint without .metadata: the save did not finish",
            list->folder);
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "%s: a PyTorch distributed checkpoint (DCP), which is not supported yet; "
                     "torch.distributed.checkpoint.format_utils makes a torch file of it",
                     list->folder);
}

const ckpt_directory ckpt_directory_dcp = {
    .is =
        {
            .name = "dcp",
            .note = "PyTorch distributed checkpoint: recognised, not read yet",
            .caps = CKPT_IS_FOLDER,
        },
    .probe = rec_dcp_probe,
    .gather = rec_dcp_gather,
};

/* ---- files ---- */

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
