/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.c: reads a model in several GGUF files, NAME-00001-of-0000N.gguf, and divides a model into
 * such files.
 *
 * All files begin with split.no, split.count and split.tensors.count; the first file has all other
 * keys.  Source: llama.cpp's gguf-split and the gguf package, of 2025.
 */
#include "formats/gguf/model.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/number.h"
#include "libckpt/map/adopt.h"

/* GS_TAIL: length of "-00001-of-00003.gguf". */
enum { GS_TAIL = 20, GS_MOST = 99999 };

/* Parse five digits that are followed by the text `then`. */
static bool gs_digits(const char *s, const char *then, unsigned *out)
{
    *out = 0;
    for (int i = 0; i < 5; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        *out = *out * 10 + (unsigned)(s[i] - '0');
    }
    return strncmp(s + 5, then, strlen(then)) == 0;
}

/* Parse a file name: length of the stem, number from 1 and count; false for other names. */
static bool gs_parse(const char *name, size_t *stem, unsigned *no, unsigned *count)
{
    size_t n = strlen(name);

    if (n <= GS_TAIL)
        return false;
    *stem = n - GS_TAIL;
    return name[*stem] == '-' && gs_digits(name + *stem + 1, "-of-", no) &&
           gs_digits(name + *stem + 10, ".gguf", count) && *no >= 1 && *no <= *count && *count > 1;
}

/* ---- reading ---- */

static int gs_part(const char *name)
{
    size_t stem;
    unsigned no, count;

    return gs_parse(name, &stem, &no, &count) ? 2 : 0;
}

static bool gs_is_gguf(const ckpt_entry *e)
{
    size_t n = strlen(e->name);

    return !e->is_dir && n > 5 && strcmp(e->name + n - 5, ".gguf") == 0;
}

/* Accept a folder with one model: the files of one split, or a single file. */
static int gs_probe(const ckpt_listing *list)
{
    const char *first = NULL;
    size_t stem = 0, other;
    unsigned no, count;

    if (ckpt_listing_has(list, "config.json", false))
        return 0;
    for (size_t i = 0; i < list->n; i++) {
        const char *name = list->entry[i].name;

        if (!gs_is_gguf(&list->entry[i]))
            continue;
        if (first && !(gs_parse(name, &other, &no, &count) && stem == other &&
                       strncmp(first, name, stem) == 0))
            return 0;
        first = name;
        if (!gs_parse(name, &stem, &no, &count))
            stem = 0;
    }
    return first ? 40 : 0;
}

/* True for a key that describes the position of a file in the split. */
static bool gs_of_split(const char *key)
{
    return strncmp(key, CKPT_GGUF_SPLIT, strlen(CKPT_GGUF_SPLIT)) == 0;
}

/* Copy the first file's keys, except those of the split. */
static int gs_keys(ckpt_map *map, const ckpt_map *first, ckpt_err *err)
{
    for (size_t i = 0; i < first->keys.n; i++) {
        ckpt_key *key;

        if (gs_of_split(first->keys.at[i].name))
            continue;
        key = ckpt_vec_push(&map->keys);
        if (!key)
            return ckpt_fail_memory(err);
        *key = first->keys.at[i];
    }
    map->values = ckpt_value_new(map->arena, CKPT_V_DICT);
    for (uint64_t i = 0; map->values && i < first->values->as.map.n; i++) {
        const ckpt_pair *p = &first->values->as.map.at[i];

        if (!gs_of_split(p->key->as.text.at) &&
            !ckpt_dict_add(map->arena, &map->values->as.map, p->key, p->value))
            return ckpt_fail_memory(err);
    }
    return map->values ? CKPT_OK : ckpt_fail_memory(err);
}

/* Read file number `no` (from 0) of `count`, and check that its keys state this number. */
static int gs_read_one(ckpt_map *map, const ckpt_listing *list, const char *name, unsigned no,
                       unsigned count, ckpt_err *err)
{
    const char *path = ckpt_path_join(map->arena, list->folder, name);
    uint64_t said_no = no, said = count;
    ckpt_map *one = NULL;
    int rc = path ? list->read(&one, path, NULL, err) : ckpt_fail_memory(err);

    if (rc != CKPT_OK)
        return rc;
    if (count > 1 &&
        (!ckpt_gguf_number(one, CKPT_GGUF_NO, &said_no) ||
         !ckpt_gguf_number(one, CKPT_GGUF_COUNT, &said) || said_no != no || said != count))
        rc = ckpt_fail(err, CKPT_EMISMATCH,
                       "%s: is file %" PRIu64 " of %" PRIu64 " by its keys, %u of %u by its name",
                       path, said_no + 1, said, no + 1, count);
    if (rc == CKPT_OK && no == 0)
        rc = gs_keys(map, one, err);
    if (rc == CKPT_OK)
        rc = ckpt_map_adopt(map, one, "", err);
    else
        ckpt_map_free(one);
    if (rc == CKPT_OK && no == 0)
        rc = ckpt_map_fact_int(map, "files", (int64_t)count, err);
    return rc;
}

/* Check the number of tensors against the key of the file, or of the first file. */
static int gs_check_count(ckpt_map *map, const char *name, ckpt_err *err)
{
    const ckpt_value *said = ckpt_value_get(map->values, CKPT_GGUF_TENSORS);
    int64_t n = 0;

    if (!said || !ckpt_value_as_int(said, &n) || (uint64_t)n == map->tensors.n)
        return CKPT_OK;
    return ckpt_map_problem(map, CKPT_EMISMATCH, err,
                            "%s: its keys say %" PRId64 " tensors in all, but %zu are here", name,
                            n, map->tensors.n);
}

int ckpt_gguf_whole(ckpt_map *map, const char *path, ckpt_err *err)
{
    assert(map && path);
    const char *slash = strrchr(path, '/');
    uint64_t no = 0, said = 0;
    unsigned number, count;
    size_t stem;

    if (gs_parse(slash ? slash + 1 : path, &stem, &number, &count))
        return CKPT_OK;
    if (!ckpt_gguf_number(map, CKPT_GGUF_COUNT, &said) || said <= 1) {
        int rc = gs_check_count(map, path, err);
        return rc == CKPT_OK ? ckpt_gguf_blocks(map, path, err) : rc;
    }
    (void)ckpt_gguf_number(map, CKPT_GGUF_NO, &no);
    return ckpt_map_problem(
        map, CKPT_EMISSING, err,
        "%s: this is file %" PRIu64 " of %" PRIu64
        " of a model, but its name does not say so: name all files NAME-%05" PRIu64 "-of-%05" PRIu64
        ".gguf, in one folder",
        path, no + 1, said, no + 1, said);
}

static int gs_gather(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                     ckpt_err *err)
{
    const char *name = list->part;
    size_t stem = 0;
    unsigned no = 1, count = 1;
    int rc = CKPT_OK;

    (void)opts;
    for (size_t i = 0; !name && i < list->n; i++)
        name = gs_is_gguf(&list->entry[i]) ? list->entry[i].name : NULL;
    if (!name)
        return ckpt_fail(err, CKPT_EMISSING, "%s: holds no GGUF file", list->folder);
    if (!gs_parse(name, &stem, &no, &count))
        return gs_read_one(map, list, name, 0, 1, err);
    for (unsigned i = 0; rc == CKPT_OK && i < count; i++) {
        const char *each =
            ckpt_arena_printf(map->arena, "%.*s-%05u-of-%05u.gguf", (int)stem, name, i + 1, count);

        rc = each ? gs_read_one(map, list, each, i, count, err) : ckpt_fail_memory(err);
    }
    if (rc == CKPT_OK)
        rc = gs_check_count(map, name, err);
    return rc == CKPT_OK ? ckpt_gguf_blocks(map, name, err) : rc;
}

const ckpt_directory ckpt_directory_gguf = {
    .is =
        {
            .name = "gguf-split",
            .suffixes = NULL,
            .signs = "a model in .gguf",
            .note = "a model in several GGUF files, NAME-00001-of-0000N.gguf",
            .caps = CKPT_CAN_READ | CKPT_IS_FOLDER,
            .layout = "gguf",
        },
    .probe = gs_probe,
    .gather = gs_gather,
    .part = gs_part,
};

/* ---- writing ---- */

/* Divide the tensors, in their order, into files of at most `limit` bytes; a larger tensor gets its
 * own file. */
static uint32_t gs_cut(const ckpt_map *to, uint64_t limit, uint32_t *file)
{
    uint64_t size = 0, n;
    uint32_t at = 0;

    for (size_t i = 0; i < to->tensors.n; i++) {
        const ckpt_tensor *t = to->tensors.at[i];

        n = 0;
        (void)ckpt_dtype_bytes(t->dtype, t->n_elems, &n);
        if (size > 0 && (n > limit || size > limit - n)) {
            at++;
            size = 0;
        }
        size += n;
        file[i] = at;
    }
    return at + 1;
}

/* Each file is a set of its own, because files of other models in the folder must not join it. */
static ckpt_set_name gs_look(const char *name)
{
    (void)name;
    return (ckpt_set_name){.what = CKPT_SET_OTHER};
}

/* Add the files to the target, the first one last, because readers open it first. */
static int gs_files(ckpt_map *to, const char *path, uint32_t count, ckpt_err *err)
{
    size_t n = strlen(path);
    const ckpt_gguf_place_in *alone = to->files.at[0].state;
    const bool vectors = alone && alone->vectors;
    int stem = n > 5 && strcmp(path + n - 5, ".gguf") == 0 ? (int)n - 5 : (int)n, rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < count; i++) {
        uint32_t no = i + 1 < count ? i + 1 : 0, index = 0;
        ckpt_gguf_place_in *in = ckpt_arena_alloc(to->arena, sizeof *in);
        const char *name =
            ckpt_arena_printf(to->arena, "%.*s-%05u-of-%05u.gguf", stem, path, no + 1, count);
        ckpt_map_file file = {.path = name, .format = to->files.at[0].format, .state = in};

        if (!in || !name)
            return ckpt_fail_memory(err);
        *in = (ckpt_gguf_place_in){no, count, to->tensors.n, vectors};
        if (i > 0) {
            rc = ckpt_map_add_file(to, &file, &index, err);
            continue;
        }
        to->files.at[0].path = name;
        to->files.at[0].state = in;
    }
    return rc;
}

int ckpt_gguf_split(ckpt_map *to, const ckpt_target *target, ckpt_err *err)
{
    assert(to && target);
    uint32_t *file, count;
    ckpt_set *set;
    int rc;

    if (target->max_shard_size == 0 || to->tensors.n == 0)
        return CKPT_OK;
    file = ckpt_alloc(to->tensors.n * sizeof *file);
    set = ckpt_arena_alloc(to->arena, sizeof *set);
    if (!file || !set) {
        ckpt_free(file);
        return ckpt_fail_memory(err);
    }
    count = gs_cut(to, target->max_shard_size, file);
    rc = count > GS_MOST
             ? ckpt_fail(err, CKPT_EUSAGE, "max_shard_size: %" PRIu32 " files, at most %d", count,
                         (int)GS_MOST)
             : CKPT_OK;
    if (rc == CKPT_OK && count > 1) {
        *set = (ckpt_set){.name = to->set->name, .look = gs_look, .keep_others = true};
        to->set = set;
        rc = gs_files(to, to->files.at[0].path, count, err);
        // the model's first file is the last in the map's list, because it is laid out last
        for (size_t i = 0; i < to->tensors.n; i++)
            to->tensors.at[i]->file = file[i] > 0 ? file[i] - 1 : count - 1;
    }
    ckpt_free(file);
    return rc;
}
