/* SPDX-License-Identifier: Apache-2.0 */
/*
 * consolidated.c: reads and writes folders with one torch file per tensor-parallel rank, the form
 * in which Meta publishes Llama: consolidated.00.pth, consolidated.01.pth ...
 *
 * Each file has all names, and the rank's slice of each tensor.  The files do not record along
 * which axis slices join; a layout map does (`right keeps slices`).  Slices of several ranks
 * therefore stay separate here, under ckpt's usual names of slices: "mp_rank_01/<name>".
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "ckpt_extra.h"
#include "formats/consolidated/whole.h"
#include "formats/torch/torch.h"
#include "libckpt/access/model_folder.h"
#include "libckpt/base/number.h"
#include "libckpt/format.h"
#include "libckpt/map/adopt.h"

/* Largest tokenizer that is copied, in bytes. */
#define CON_TOKENIZER (UINT64_C(64) << 20)

/* Parse the rank from a file name; false if it is not of this format. */
static bool con_parse(const char *name, uint32_t *rank)
{
    static const char lead[] = "consolidated.";
    const char *at = name + sizeof lead - 1, *end;
    uint64_t n = 0;

    if (strncmp(name, lead, sizeof lead - 1) != 0)
        return false;
    end = ckpt_scan_u64(at, &n);
    if (!end || end - at < 2 || end - at > 4 || strcmp(end, ".pth") != 0)
        return false;
    *rank = (uint32_t)n;
    return true;
}

static int con_part(const char *file_name)
{
    uint32_t rank;

    return con_parse(file_name, &rank) ? 1 : 0;
}

static int con_probe(const ckpt_listing *list)
{
    uint32_t rank;

    for (size_t i = 0; i < list->n; i++) {
        if (!list->entry[i].is_dir && con_parse(list->entry[i].name, &rank))
            return 55;
    }
    return 0;
}

/* Read one rank's file into the map, under its prefix. */
static int con_file(ckpt_map *map, const ckpt_listing *list, const char *name, const char *prefix,
                    ckpt_err *err)
{
    assert(map && list->read && name && prefix);
    const char *path = ckpt_path_join(map->arena, list->folder, name);
    ckpt_map *file = NULL;
    int rc = path ? list->read(&file, path, NULL, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK && file->tensors.n == 0)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: no tensors", path);
    if (rc == CKPT_OK)
        rc = ckpt_torch_say_others(file, path, err);
    if (rc == CKPT_OK)
        rc = ckpt_map_adopt(map, file, prefix, err);
    if (rc != CKPT_OK)
        ckpt_map_free(file);
    return rc;
}

/* List the files by rank; ranks must be 0 to n - 1. */
static int con_ranks(const char ***out, uint32_t *n, ckpt_map *map, const ckpt_listing *list,
                     ckpt_err *err)
{
    const char **name = ckpt_arena_array(map->arena, list->n + 1, sizeof *name);
    uint32_t rank, count = 0;

    if (!name)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < list->n; i++)
        count += !list->entry[i].is_dir && con_parse(list->entry[i].name, &rank);
    for (size_t i = 0; i < list->n; i++) {
        if (list->entry[i].is_dir || !con_parse(list->entry[i].name, &rank))
            continue;
        if (rank >= count || name[rank])
            return ckpt_fail(err, CKPT_EMISSING,
                             "%s: found %s, but only %" PRIu32
                             " such files: copy the files of all ranks",
                             list->folder, list->entry[i].name, count);
        name[rank] = list->entry[i].name;
    }
    *out = name;
    *n = count;
    return CKPT_OK;
}

static int con_gather(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                      ckpt_err *err)
{
    const char **name = NULL;
    uint32_t n = 0;
    int rc = con_ranks(&name, &n, map, list, err);

    for (uint32_t rank = 0; rc == CKPT_OK && rank < n; rank++) {
        const char *prefix = ckpt_arena_printf(map->arena, "mp_rank_%02" PRIu32 "/", rank);
        rc = prefix ? con_file(map, list, name[rank], n > 1 ? prefix : "", err)
                    : ckpt_fail_memory(err);
    }
    if (rc == CKPT_OK)
        rc = ckpt_con_whole(map, list, n, err);
    // verify checks each rank's slices separately, so it needs no rule for joining them
    if (rc == CKPT_OK && n > 1 && !opts->keep_slices && !map->collect)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: the files of %" PRIu32 " tensor-parallel ranks do not say how their "
                         "slices are joined: ckpt convert --map meta-llama:hf joins them; "
                         "--keep-slices takes them as they are",
                         list->folder, n);
    if (n > 1)
        map->effects |= CKPT_USED_SLICES;
    if (rc == CKPT_OK)
        rc = ckpt_map_fact_int(map, "tensor parallel", n, err);
    return rc == CKPT_OK ? ckpt_map_check(map, err) : rc;
}

/* ---- the writer (one rank) ---- */

/* Every file of this name belongs to the set, because loaders open all of them. */
static ckpt_set_name con_look(const char *file_name)
{
    uint32_t rank;

    return (ckpt_set_name){.what = con_parse(file_name, &rank) ? CKPT_SET_HEAD : CKPT_SET_OTHER};
}

/* Write params.json from the layout map's model configuration, if there is a map. */
static int con_params(ckpt_map *to, const ckpt_map *from, ckpt_err *err)
{
    ckpt_bytes text = {0};
    int rc = ckpt_model_folder_config(&text, to, from, "params.json", err);

    if (rc == CKPT_OK && text.n > 0)
        rc = ckpt_model_folder_add(to, "params.json", text.at, text.n, err);
    ckpt_vec_free(&text);
    return rc;
}

/* Copy tokenizer.model: SentencePiece's model, or Llama 3's list of token ranks. */
static int con_tokenizer(ckpt_map *to, const ckpt_map *from, ckpt_err *err)
{
    static const char name[] = "tokenizer.model";
    ckpt_map *scratch = NULL;
    ckpt_listing list = {0};
    char *bytes = NULL;
    uint64_t n = 0;
    int rc = ckpt_map_create(&scratch, 0, err);

    if (rc == CKPT_OK)
        rc = ckpt_model_folder_list(&list, scratch, from, err);
    if (rc == CKPT_OK && ckpt_listing_find(&list, name)) {
        const char *path = ckpt_path_join(scratch->arena, list.folder, name);
        rc = path ? ckpt_io_slurp(&bytes, &n, path, CON_TOKENIZER, err) : ckpt_fail_memory(err);
        if (rc == CKPT_OK)
            rc = ckpt_model_folder_add(to, name, bytes, n, err);
        ckpt_free(bytes);
    }
    ckpt_map_free(scratch);
    return rc;
}

static int con_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    ckpt_map_file file = {
        .path = "consolidated.00.pth", .prefix = "consolidated.00", .format = &ckpt_format_torch};
    ckpt_set *set = ckpt_arena_alloc(to->arena, sizeof *set);
    uint32_t index = 0;
    int rc = set ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK && !target->skip_side_files)
        rc = con_params(to, from, err);
    if (rc == CKPT_OK && !target->skip_side_files)
        rc = con_tokenizer(to, from, err);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_file(to, &file, &index, err);
    if (rc != CKPT_OK)
        return rc;
    for (size_t i = 0; i < to->tensors.n; i++)
        to->tensors.at[i]->file = index;
    *set = (ckpt_set){.name = "consolidated", .look = con_look, .alone = true};
    to->set = set;
    return CKPT_OK;
}

extern const ckpt_directory ckpt_directory_consolidated;

const ckpt_directory ckpt_directory_consolidated = {
    .is =
        {
            .name = "consolidated",
            .signs = "consolidated.*.pth (Meta)",
            .note =
                "one torch file for each tensor-parallel rank, as Meta publishes Llama; written "
                "as one",
            .caps = CKPT_CAN_READ | CKPT_CAN_WRITE | CKPT_IS_FOLDER | CKPT_TAKES_SIDE_FILES,
            .layout = "meta-llama",
        },
    .probe = con_probe,
    .gather = con_gather,
    .scatter = con_scatter,
    .part = con_part,
};
