/* SPDX-License-Identifier: Apache-2.0 */
/*
 * huggingface_write.c: distributes tensors over the files of a Hugging Face folder.
 *
 * Names, order and bytes of the index are those of transformers and zero_to_fp32: indent 2, sorted
 * keys, a newline at the end.  The index is the last file, so that it appears when all others are
 * there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/hf_config.h"
#include "formats/hf_split.h"
#include "formats/huggingface.h"
#include "formats/json.h"
#include "libckpt/base/dtype.h"

#define HFW_SIDE_MAX (UINT64_C(64) << 20) /* bytes of one side file */

/* What differs between the two ways to write. */
typedef struct hfw_style {
    const char *format; /* of the shards */
    const char *stem, *suffix;
    bool list_tied; /* tied names stand in the index (and in the files) */
} hfw_style;

typedef struct hfw_writer {
    ckpt_map *to;
    const hfw_style *style;
    ckpt_err *err;
    uint32_t *shard; /* of each tensor */
    ckpt_hf_sums sums;
    uint32_t first;    /* index of the first shard in to->files */
    const char *dtype; /* what config.json is to state, as torch spells it; NULL: as it is */
} hfw_writer;

/* ---- side files ---- */

/* Is this a small file that belongs to the model: configuration, tokenizer? */
static bool hfw_is_side_file(const char *name)
{
    static const char *const names[] = {
        "config.json",       "generation_config.json",   "tokenizer.json", "tokenizer_config.json",
        "vocab.json",        "special_tokens_map.json",  "vocab.txt",      "merges.txt",
        "added_tokens.json", "preprocessor_config.json",
    };
    size_t n = strlen(name);

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return strncmp(name, "chat_template.", 14) == 0 ||
           (n > 6 && strcmp(name + n - 6, ".model") == 0);
}

/* A whole small file of the output. */
static int hfw_add_literal(hfw_writer *w, const char *name, const void *bytes, uint64_t n)
{
    ckpt_map_file file = {.path = name, .size = n};
    uint32_t index = 0;
    int rc = ckpt_map_add_file(w->to, &file, &index, w->err);

    if (rc == CKPT_OK && n > 0)
        rc = ckpt_map_add_literal(w->to, index, 0, bytes, n, w->err);
    return rc;
}

/*
 * The dtype that config.json must state: that of most elements, where it is not the source's own.
 * NULL: the source's stays true, or transformers can make no model in this one (8 bits and less),
 * and loads these weights into the dtype that is stated.
 */
static const char *hfw_config_dtype(const ckpt_map *to, const ckpt_map *from,
                                    const ckpt_target *target)
{
    static const ckpt_dtype able[] = {CKPT_F64, CKPT_F32, CKPT_F16, CKPT_BF16};
    uint64_t n[CKPT_N_DTYPES] = {0};
    ckpt_dtype most = CKPT_DTYPE_NONE;

    // weights of a training checkpoint are its fp32 masters, whatever the model trained in
    if (target->dtype == CKPT_DTYPE_NONE &&
        (!from->format ||
         (strcmp(from->format, "deepspeed") != 0 && strcmp(from->format, "universal") != 0)))
        return NULL;
    for (size_t i = 0; i < to->tensors.n; i++) {
        const ckpt_tensor *t = to->tensors.at[i];

        if (!t->owner && ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT)
            n[t->dtype] += t->n_elems;
    }
    for (unsigned d = 0; d < CKPT_N_DTYPES; d++)
        most = n[d] > n[most] ? (ckpt_dtype)d : most;
    for (size_t i = 0; i < sizeof able / sizeof *able; i++) {
        if (able[i] == most)
            return ckpt_dtype_get(most)->torch;
    }
    return NULL;
}

/* The n bytes of a side file, changed where they would not be true of the output. */
static int hfw_add_side_file(hfw_writer *w, const ckpt_listing *list, const char *name,
                             const char *text, uint64_t n)
{
    ckpt_bytes changed = {0};
    int rc = CKPT_OK;

    if (!w->dtype || strcmp(name, "config.json") != 0)
        return hfw_add_literal(w, name, text, n);
    switch (ckpt_hf_config_dtype(&changed, text, n, w->dtype)) {
    case CKPT_OK:
        rc = hfw_add_literal(w, name, changed.at, changed.n);
        break;
    case CKPT_EFORMAT:
        rc = ckpt_map_note(w->to, CKPT_WARNING, w->err,
                           "%s/%s: not a JSON object, so it cannot say that the weights are %s: "
                           "copied as it is",
                           list->folder, name, w->dtype);
        if (rc == CKPT_OK)
            rc = hfw_add_literal(w, name, text, n);
        break;
    default:
        rc = ckpt_fail_memory(w->err);
    }
    ckpt_vec_free(&changed);
    return rc;
}

/* Copied whole: the output says of the model what its source said. */
static int hfw_copy_side_file(hfw_writer *w, const ckpt_listing *list, const ckpt_entry *e)
{
    char *bytes = NULL;
    uint64_t n = 0;

    if (e->size > HFW_SIDE_MAX)
        return ckpt_map_note(w->to, CKPT_WARNING, w->err,
                             "%s/%s: %" PRIu64 " bytes are too many for a side file: not copied",
                             list->folder, e->name, e->size);
    char *path = ckpt_arena_printf(w->to->arena, "%s/%s", list->folder, e->name);
    int rc =
        path ? ckpt_io_slurp(&bytes, &n, path, HFW_SIDE_MAX, w->err) : ckpt_fail_memory(w->err);
    if (rc == CKPT_OK)
        rc = hfw_add_side_file(w, list, e->name, bytes, n);
    ckpt_free(bytes);
    return rc;
}

/*
 * The folder a path stands in ("." when it has none), in the map's arena; of "." and "..", which
 * are no names, the folder above.
 */
static char *hfw_parent(ckpt_map *map, const char *path)
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

/*
 * Where the side files of a source are: its folder; a DeepSpeed tag (its parent has `latest`): the
 * folder above.
 */
static int hfw_side_folder(ckpt_map *scratch, const ckpt_map *from, ckpt_listing *out,
                           ckpt_err *err)
{
    const char *folder = from->path ? from->path : ".";
    ckpt_listing above;
    ckpt_err ignored = {0};
    int rc = ckpt_listing_read(out, scratch, folder, &ignored);

    if (rc == CKPT_EMISSING) { // a file: the folder it is in
        folder = hfw_parent(scratch, folder);
        return folder ? ckpt_listing_read(out, scratch, folder, err) : ckpt_fail_memory(err);
    }
    if (rc != CKPT_OK)
        return ckpt_fail(err, rc, "%s", ignored.text);
    if (ckpt_listing_find(out, "latest") || ckpt_listing_find(out, "config.json"))
        return CKPT_OK;
    folder = hfw_parent(scratch, folder);
    if (!folder)
        return ckpt_fail_memory(err);
    if (ckpt_listing_read(&above, scratch, folder, &ignored) == CKPT_OK &&
        ckpt_listing_find(&above, "latest"))
        *out = above;
    return CKPT_OK;
}

/*
 * Listings live in a map of their own: a folder of many files must not stay in the target's
 * arena.
 */
static int hfw_side_files(hfw_writer *w, const ckpt_map *from)
{
    ckpt_map *scratch = NULL;
    ckpt_listing list = {0};
    int rc = ckpt_map_new(&scratch, 0, w->err);

    if (rc == CKPT_OK)
        rc = hfw_side_folder(scratch, from, &list, w->err);
    for (size_t i = 0; rc == CKPT_OK && i < list.n; i++) {
        if (!list.entry[i].is_dir && hfw_is_side_file(list.entry[i].name))
            rc = hfw_copy_side_file(w, &list, &list.entry[i]);
    }
    ckpt_map_free(scratch);
    return rc;
}

/* ---- shards ---- */

/* Shards by the hub's rule; a tied name goes where its bytes go. */
static int hfw_split(hfw_writer *w, uint64_t limit)
{
    size_t n = w->to->tensors.n;
    ckpt_hf_item *item = ckpt_alloc(n * sizeof *item);
    int rc = item ? CKPT_OK : ckpt_fail_memory(w->err);

    for (size_t i = 0; rc == CKPT_OK && i < n; i++) {
        const ckpt_tensor *t = w->to->tensors.at[i];
        item[i].storage = i;
        if (t->owner)
            item[i].storage = ckpt_map_index(w->to, t->owner->name, strlen(t->owner->name));
        if (item[i].storage == SIZE_MAX)
            rc = ckpt_fail(w->err, CKPT_EMISSING,
                           "tensor \"%.200s\" is tied to \"%.200s\", which is not written", t->name,
                           t->owner->name);
        else if (!ckpt_dtype_bytes(t->dtype, t->n_elems, &item[i].n_bytes))
            rc = ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                           "tensor \"%.200s\": its elements do not fill whole bytes", t->name);
    }
    if (rc == CKPT_OK)
        rc = ckpt_hf_split(item, n, limit, w->shard, &w->sums, w->err);
    ckpt_free(item);
    return rc;
}

/* "model.safetensors", or "model-00002-of-00003.safetensors"; with the suffix or without. */
static void hfw_shard_name(const hfw_writer *w, uint32_t i, bool suffix, char out[64])
{
    const char *end = suffix ? w->style->suffix : "";

    if (w->sums.n_shards == 1)
        snprintf(out, 64, "%s%s", w->style->stem, end);
    else
        snprintf(out, 64, "%s-%05" PRIu32 "-of-%05" PRIu32 "%s", w->style->stem, i + 1,
                 w->sums.n_shards, end);
}

/* One file for each shard; their sizes are set when their formats place the tensors. */
static int hfw_add_shards(hfw_writer *w)
{
    const ckpt_format *format = ckpt_format_find(w->style->format);
    int rc = format
                 ? CKPT_OK
                 : ckpt_fail(w->err, CKPT_EUNSUPPORTED, "no driver for %s files", w->style->format);

    w->first = (uint32_t)w->to->files.n;
    for (uint32_t i = 0; rc == CKPT_OK && i < w->sums.n_shards; i++) {
        char name[64], prefix[64];
        uint32_t index = 0;
        hfw_shard_name(w, i, true, name);
        hfw_shard_name(w, i, false, prefix);
        // torch names an archive's top folder like its file, without the last suffix
        ckpt_map_file file = {.path = name, .prefix = prefix, .format = format};
        rc = ckpt_map_add_file(w->to, &file, &index, w->err);
    }
    for (size_t i = 0; rc == CKPT_OK && i < w->to->tensors.n; i++)
        w->to->tensors.at[i]->file = w->first + w->shard[i];
    return rc;
}

/* ---- index ---- */

/*
 * {"metadata": {"total_size": n}, "weight_map": {...}} in the arena, or NULL.  hidden: of the
 * shards' hidden names.
 */
static ckpt_value *hfw_index_tree(const hfw_writer *w, ckpt_arena *a, bool hidden)
{
    ckpt_value *root = ckpt_value_new(a, CKPT_V_DICT), *map = ckpt_value_new(a, CKPT_V_DICT);
    ckpt_value *meta = ckpt_value_new(a, CKPT_V_DICT),
               *size = ckpt_value_int(a, (int64_t)w->sums.total);
    ckpt_value **file = ckpt_arena_array(a, w->sums.n_shards, sizeof *file);
    bool ok = root && map && meta && size && file &&
              ckpt_dict_add_cstr(a, &meta->as.map, "total_size", size);

    for (uint32_t i = 0; ok && i < w->sums.n_shards; i++) {
        char name[64];
        hfw_shard_name(w, i, true, name);
        const char *shown = hidden ? ckpt_arena_printf(a, CKPT_SET_HIDDEN, name) : name;
        file[i] = shown ? ckpt_value_cstr(a, shown) : NULL;
        ok = file[i] != NULL;
    }
    for (size_t i = 0; ok && i < w->to->tensors.n; i++) {
        const ckpt_tensor *t = w->to->tensors.at[i];
        if (!t->owner || w->style->list_tied)
            ok = ckpt_dict_add_cstr(a, &map->as.map, t->name, file[w->shard[i]]);
    }
    ok = ok && ckpt_dict_add_cstr(a, &root->as.map, "metadata", meta) &&
         ckpt_dict_add_cstr(a, &root->as.map, "weight_map", map);
    return ok ? root : NULL;
}

/* The index as text. */
static int hfw_index_text(const hfw_writer *w, bool hidden, ckpt_bytes *text)
{
    static const ckpt_json_style pretty = {.indent = 2, .sort_keys = true, .ascii = true};
    ckpt_arena *a = ckpt_arena_new(0);
    const ckpt_value *tree = a ? hfw_index_tree(w, a, hidden) : NULL;
    int rc = tree ? ckpt_json_write(text, tree, &pretty, w->err) : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK && !ckpt_bytes_add(text, "\n", 1))
        rc = ckpt_fail_memory(w->err);
    ckpt_arena_free(a);
    return rc;
}

/* The index, only where there is more than one shard: loaders look for the plain name first. */
static int hfw_add_index(hfw_writer *w)
{
    ckpt_bytes text = {0};
    char name[64];
    int rc = hfw_index_text(w, false, &text);

    snprintf(name, sizeof name, "%s%s.index.json", w->style->stem, w->style->suffix);
    if (rc == CKPT_OK)
        rc = hfw_add_literal(w, name, text.at, text.n);
    ckpt_vec_free(&text);
    return rc;
}

/* ---- the set ---- */

/* How loaders choose: the families in their order, a single file before an index. */
static ckpt_set_name hfw_look(const char *file_name)
{
    ckpt_hf_name n = ckpt_hf_parse_name(file_name);
    ckpt_set_name out = {.order = 2 * n.family + (n.role == CKPT_HF_INDEX), .kind = n.family};

    // variants are asked for by name
    if (n.n_variant == 0 && n.role != CKPT_HF_OTHER)
        out.what = n.role == CKPT_HF_SHARD ? CKPT_SET_PART : CKPT_SET_HEAD;
    return out;
}

/* All files of the folder belong together. */
static int hfw_make_set(hfw_writer *w, const ckpt_target *target)
{
    ckpt_bytes text = {0};
    ckpt_set *set = ckpt_arena_alloc(w->to->arena, sizeof *set);
    int rc = set ? CKPT_OK : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK && w->sums.n_shards > 1)
        rc = hfw_index_text(w, true, &text);
    if (rc == CKPT_OK) {
        *set = (ckpt_set){
            .name = "model", .look = hfw_look, .keep_others = target->keep_other_weights};
        set->n_bridge = text.n;
        set->bridge = text.n ? ckpt_arena_copy(w->to->arena, text.at, text.n) : NULL;
        rc = set->bridge || !text.n ? CKPT_OK : ckpt_fail_memory(w->err);
        w->to->set = set;
    }
    ckpt_vec_free(&text);
    return rc;
}

/*
 * Side files, shards, index: files appear in this order, so whoever sees the last one sees them
 * all.
 */
static int hfw_scatter(hfw_writer *w, const ckpt_map *from, const ckpt_target *target)
{
    w->shard = ckpt_alloc(w->to->tensors.n * sizeof *w->shard);
    int rc = w->shard ? hfw_split(w, target->max_shard_size) : ckpt_fail_memory(w->err);

    w->dtype = hfw_config_dtype(w->to, from, target);
    if (rc == CKPT_OK && target->copy_side_files)
        rc = hfw_side_files(w, from);
    if (rc == CKPT_OK)
        rc = hfw_add_shards(w);
    if (rc == CKPT_OK && w->sums.n_shards > 1)
        rc = hfw_add_index(w);
    if (rc == CKPT_OK)
        rc = hfw_make_set(w, target);
    ckpt_free(w->shard);
    return rc;
}

/*
 * safetensors stores a tied name as metadata of its shard; loaders that tie weights do not look
 * for it.
 */
int ckpt_hf_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    static const hfw_style style = {"safetensors", "model", ".safetensors", false};
    hfw_writer w = {.to = to, .style = &style, .err = err};

    return hfw_scatter(&w, from, target);
}

int ckpt_hf_scatter_bin(ckpt_map *to, const ckpt_map *from, const ckpt_target *target,
                        ckpt_err *err)
{
    static const hfw_style style = {"torch", "pytorch_model", ".bin", true};
    hfw_writer w = {.to = to, .style = &style, .err = err};

    return hfw_scatter(&w, from, target);
}
