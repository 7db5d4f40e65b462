/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_folder.c: finds the folder with a model's configuration and tokenizer, and adds such files
 * to an output.
 */
#include "libckpt/access/model_folder.h"

#include <assert.h>
#include <string.h>

#include "libckpt/codec/json/json.h"

/*
 * The parent folder of a path, in the map's arena; "." for a plain name.  For "." and ".." it is
 * "<path>/..", because these are not names.
 */
static char *folder_above(ckpt_map *map, const char *path)
{
    size_t n = strlen(path), end;

    while (n > 1 && path[n - 1] == '/')
        n--;
    end = n;
    while (n > 0 && path[n - 1] != '/')
        n--;
    if ((end - n == 1 || end - n == 2) && strncmp(path + n, "..", end - n) == 0)
        return ckpt_arena_printf(map->arena, "%.*s/..", (int)end, path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return ckpt_arena_string(map->arena, n ? path : ".", n ? n : 1);
}

bool ckpt_model_folder_is(const ckpt_listing *list)
{
    return ckpt_listing_find(list, "config.json") ||
           ckpt_listing_find(list, "adapter_config.json") ||
           ckpt_listing_find(list, "modules.json");
}

/*
 * Find the folder with a source's side files: the caller's choice, else the source's folder (arrays
 * in memory have none).  For a DeepSpeed tag it is the parent folder, which has `latest` or a
 * model.
 */
int ckpt_model_folder_list(ckpt_listing *out, ckpt_map *scratch, const ckpt_map *from,
                           ckpt_err *err)
{
    assert(out && scratch && from);
    const char *folder = from->path;
    ckpt_listing above;
    ckpt_err ignored = {0};

    if (from->model_folder)
        return ckpt_listing_read(out, scratch, from->model_folder, err);
    *out = (ckpt_listing){0};
    // the path of arrays in memory is only a name for messages
    if (!from->path || (from->format && strcmp(from->format, "memory") == 0))
        return CKPT_OK;
    int rc = ckpt_listing_read(out, scratch, folder, &ignored);

    if (rc == CKPT_EMISSING) { // a file: use its folder
        folder = folder_above(scratch, folder);
        return folder ? ckpt_listing_read(out, scratch, folder, err) : ckpt_fail_memory(err);
    }
    if (rc != CKPT_OK)
        return ckpt_fail(err, rc, "%s", ignored.text);
    if (ckpt_listing_find(out, "latest") || ckpt_model_folder_is(out))
        return CKPT_OK;
    folder = folder_above(scratch, folder);
    if (!folder)
        return ckpt_fail_memory(err);
    if (ckpt_listing_read(&above, scratch, folder, &ignored) == CKPT_OK &&
        (ckpt_listing_find(&above, "latest") || ckpt_model_folder_is(&above)))
        *out = above;
    return CKPT_OK;
}

int ckpt_model_folder_config(ckpt_bytes *out, ckpt_map *to, const ckpt_map *from, const char *file,
                             ckpt_err *err)
{
    assert(out && to && from && file);
    static const ckpt_json_style style = {.indent = 2, .sort_keys = true, .ascii = true};
    const ckpt_map_config *c = &from->config;
    int rc;

    out->n = 0;
    if (!c->file || strcmp(c->file, file) != 0)
        return CKPT_OK;
    if (c->text)
        return ckpt_bytes_add(out, c->text, strlen(c->text)) ? CKPT_OK : ckpt_fail_memory(err);
    if (c->missing)
        return ckpt_map_note(to, CKPT_WARNING, err,
                             "no %s is written, because these values are unknown: %s; --size "
                             "NAME=VALUE gives each of them, --config FILE all",
                             file, c->missing);
    if (c->lost)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: %s has no place for these keys of the model, without which it "
                         "computes something else: %s; if the model has a %s of its own that "
                         "expresses them, give it with --config FILE",
                         from->path ? from->path : "the source", file, c->lost, file);
    rc = ckpt_json_write(out, c->value, &style, err);
    return rc == CKPT_OK && !ckpt_bytes_add(out, "\n", 1) ? ckpt_fail_memory(err) : rc;
}

int ckpt_model_folder_add(ckpt_map *to, const char *name, const void *bytes, uint64_t n,
                          ckpt_err *err)
{
    assert(to && name && (bytes || n == 0));
    ckpt_map_file file = {.path = name, .size = n, .rank = UINT32_MAX};
    uint32_t index = 0;
    int rc = ckpt_map_add_file(to, &file, &index, err);

    if (rc == CKPT_OK && n > 0)
        rc = ckpt_map_add_literal(to, index, 0, bytes, n, err);
    return rc;
}
