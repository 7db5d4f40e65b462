/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c: distributes tensors over the files of a Hugging Face folder.
 *
 * Names, order and bytes of the index are those of transformers and zero_to_fp32: indent 2, sorted
 * keys, a newline at the end.  The index is written last, so that it appears only when all other
 * files are there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/hf/hf.h"
#include "formats/hf/side.h"
#include "formats/hf/wide.h"
#include "formats/safetensors/safetensors.h"
#include "formats/safetensors/split.h"
#include "formats/torch/torch.h"
#include "libckpt/access/model_folder.h"
#include "libckpt/base/dtype.h"
#include "libckpt/codec/json/json.h"

/* The differences between hf and hf-bin. */
typedef struct hfw_style {
    const ckpt_format *format; /* format of the shards */
    const char *stem, *suffix;
    bool list_tied; /* tied names are listed in the index (and stored in the files) */
} hfw_style;

typedef struct hfw_writer {
    ckpt_map *to;
    const hfw_style *style;
    ckpt_err *err;
    uint32_t *shard; /* shard of each tensor */
    ckpt_hf_sums sums;
    uint32_t first;      /* index of the first shard in to->files */
    const char *dtype;   /* new dtype of config.json, as torch spells it; NULL: unchanged */
    bool adapter;        /* source and output are a PEFT adapter */
    bool diffusers;      /* a diffusers model, which has another file name */
    const char *variant; /* "fp16" in the files' names; NULL: none */
} hfw_writer;

static bool hfw_is_scale(const char *name)
{
    const char *end = strrchr(name, '.');

    return end && (strcmp(end, ".weight_scale") == 0 || strcmp(end, ".weight_scale_inv") == 0);
}

/* True if the map has its own dtypes for outputs, as merges have. */
static bool hfw_exports(const ckpt_map *from)
{
    for (size_t i = 0; i < from->tensors.n; i++) {
        if (from->tensors.at[i]->export_dtype != CKPT_DTYPE_NONE)
            return true;
    }
    return false;
}

/*
 * The dtype to write into config.json: that of most elements.  NULL if the source's entry stays
 * true, or if transformers cannot create a model in this dtype (8 bits and less) and therefore
 * casts the weights to the dtype of the source's entry.
 */
static const char *hfw_config_dtype(const ckpt_map *to, const ckpt_map *from,
                                    const ckpt_target *target)
{
    static const ckpt_dtype able[] = {CKPT_F64, CKPT_F32, CKPT_F16, CKPT_BF16};
    uint64_t n[CKPT_N_DTYPES] = {0};
    ckpt_dtype most = CKPT_DTYPE_NONE;

    // The source's dtype entry may be wrong, because the weights of a training checkpoint are its
    // fp32 masters, and a layout map's configuration does not know the dtype.
    if (!from->config.file && !from->quantization && target->dtype == CKPT_DTYPE_NONE &&
        !target->dtypes && !hfw_exports(from) &&
        (!from->format ||
         (strcmp(from->format, "deepspeed") != 0 && strcmp(from->format, "universal") != 0)))
        return NULL;
    for (size_t i = 0; i < to->tensors.n; i++) {
        const ckpt_tensor *t = to->tensors.at[i];

        // the dtypes of quantized weights and of their scales do not count
        if (!t->owner && ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT &&
            !(from->quantization && (t->dtype == CKPT_F8_E4M3 || hfw_is_scale(t->name))))
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

static const char *hfw_stem(const hfw_writer *w)
{
    return w->adapter ? "adapter_model" : w->diffusers ? "diffusion_pytorch_model" : w->style->stem;
}

/* ---- shards ---- */

/* Divide the tensors by the hub's rule; a tied name goes to the shard with its bytes. */
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

/*
 * "model.safetensors", or "model.fp16-00002-of-00003.safetensors"; with the suffix or without. In
 * the arena; NULL: out of memory.
 */
static const char *hfw_shard_name(const hfw_writer *w, ckpt_arena *a, uint32_t i, bool suffix)
{
    const char *end = suffix ? w->style->suffix : "", *dot = w->variant ? "." : "";
    const char *variant = w->variant ? w->variant : "";

    if (w->sums.n_shards == 1)
        return ckpt_arena_printf(a, "%s%s%s%s", hfw_stem(w), dot, variant, end);
    return ckpt_arena_printf(a, "%s%s%s-%05" PRIu32 "-of-%05" PRIu32 "%s", hfw_stem(w), dot,
                             variant, i + 1, w->sums.n_shards, end);
}

/* Add one file per shard; its size is set when its format places the tensors. */
static int hfw_add_shards(hfw_writer *w)
{
    int rc = CKPT_OK;

    w->first = (uint32_t)w->to->files.n;
    for (uint32_t i = 0; rc == CKPT_OK && i < w->sums.n_shards; i++) {
        const char *name = hfw_shard_name(w, w->to->arena, i, true);
        const char *prefix = hfw_shard_name(w, w->to->arena, i, false);
        uint32_t index = 0;
        if (!name || !prefix)
            return ckpt_fail_memory(w->err);
        // torch names an archive's top folder after its file, without the last suffix
        ckpt_map_file file = {.path = name, .prefix = prefix, .format = w->style->format};
        rc = ckpt_map_add_file(w->to, &file, &index, w->err);
    }
    for (size_t i = 0; rc == CKPT_OK && i < w->to->tensors.n; i++)
        w->to->tensors.at[i]->file = w->first + w->shard[i];
    return rc;
}

/* ---- index ---- */

/*
 * Make {"metadata": {"total_size": n}, "weight_map": {...}} in the arena, or NULL.  hidden: use the
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
        const char *name = hfw_shard_name(w, a, i, true);
        const char *shown = hidden && name ? ckpt_arena_printf(a, CKPT_SET_HIDDEN, name) : name;
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

/* Add the index, only if there are several shards, because loaders look for the plain name
 * first. */
static int hfw_add_index(hfw_writer *w)
{
    ckpt_bytes text = {0};
    const char *name =
        ckpt_arena_printf(w->to->arena, "%s%s.index%s%s.json", hfw_stem(w), w->style->suffix,
                          w->variant ? "." : "", w->variant ? w->variant : "");
    int rc = name ? hfw_index_text(w, false, &text) : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK)
        rc = ckpt_model_folder_add(w->to, name, text.at, text.n, w->err);
    ckpt_vec_free(&text);
    return rc;
}

/* ---- the set ---- */

/* Classify a file name by the order in which loaders search: families first, a single file before
 * an index. */
static ckpt_set_name hfw_look_at(const char *file_name, bool adapters)
{
    ckpt_hf_name n = ckpt_hf_parse_name(file_name);
    ckpt_set_name out = {.order = 2 * n.family + (n.role == CKPT_HF_INDEX), .kind = n.family};
    bool is_adapter = n.family >= CKPT_HF_ADAPTER && n.family < CKPT_HF_ADAPTER + 2;

    // users select variants by name; an adapter does not replace its model, but programs load both
    if (n.role != CKPT_HF_OTHER)
        out.what = n.n_variant || is_adapter != adapters ? CKPT_SET_NEAR
                   : n.role == CKPT_HF_SHARD             ? CKPT_SET_PART
                                                         : CKPT_SET_HEAD;
    // without its tensors, too, this file makes programs look for another base
    if (!adapters && strcmp(file_name, "adapter_config.json") == 0)
        out.what = CKPT_SET_NEAR;
    return out;
}

static ckpt_set_name hfw_look(const char *file_name)
{
    return hfw_look_at(file_name, false);
}

static ckpt_set_name hfw_look_adapter(const char *file_name)
{
    return hfw_look_at(file_name, true);
}

/* Declare all weight files as one set that is published together. */
static int hfw_make_set(hfw_writer *w, const ckpt_target *target)
{
    ckpt_bytes text = {0};
    ckpt_set *set = ckpt_arena_alloc(w->to->arena, sizeof *set);
    int rc = set ? CKPT_OK : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK && w->sums.n_shards > 1)
        rc = hfw_index_text(w, true, &text);
    if (rc == CKPT_OK) {
        *set = (ckpt_set){.name = w->adapter ? "adapter" : "model",
                          .look = w->adapter ? hfw_look_adapter : hfw_look,
                          .keep_others = target->keep_other_weights};
        set->n_bridge = text.n;
        set->bridge = text.n ? ckpt_arena_copy(w->to->arena, text.at, text.n) : NULL;
        rc = set->bridge || !text.n ? CKPT_OK : ckpt_fail_memory(w->err);
        w->to->set = set;
    }
    ckpt_vec_free(&text);
    return rc;
}

/* True if a layout map matched this model. */
static bool hfw_is_named(const ckpt_map *from)
{
    for (size_t i = 0; i < from->facts.n; i++) {
        if (strcmp(from->facts.at[i].key, "layout map") == 0)
            return true;
    }
    return false;
}

/* True if experts have biases. The model is then gpt-oss, which packs its experts on the hub
 * too. */
static bool hfw_has_bias(const ckpt_map *map, const char *name)
{
    const char *bias = ckpt_arena_printf(map->arena, "%s_bias", name);

    return bias && ckpt_map_index(map, bias, strlen(bias)) != SIZE_MAX;
}

/* Warn about packed experts: transformers 5 holds a layer's experts in one tensor, but
 * save_pretrained splits them. */
static int hfw_note_packed(hfw_writer *w, const ckpt_map *from)
{
    static const char end[] = ".experts.gate_up_proj";

    for (size_t i = 0; !hfw_is_named(from) && i < w->to->tensors.n; i++) {
        const ckpt_tensor *t = w->to->tensors.at[i];
        size_t n = strlen(t->name);

        if (n > sizeof end && t->ndim == 3 && strcmp(t->name + n - (sizeof end - 1), end) == 0 &&
            !hfw_has_bias(w->to, t->name))
            return ckpt_map_note(w->to, CKPT_WARNING, w->err,
                                 "the output has packed experts (%.200s): transformers 5 loads it, "
                                 "but programs that expect one tensor for each expert "
                                 "(experts.0.gate_proj.weight) cannot%s",
                                 t->name,
                                 ckpt_hf_has_config(w->to) ? ""
                                                           : "; to get such tensors, give the "
                                                             "model's config.json with --config");
    }
    return CKPT_OK;
}

/* Note tensors of other dtypes, because transformers loads all weights in config.json's dtype. */
static int hfw_note_mixed(hfw_writer *w, const ckpt_target *target)
{
    uint64_t n = 0;

    for (size_t i = 0; w->dtype && target->dtypes && i < w->to->tensors.n; i++) {
        const ckpt_tensor *t = w->to->tensors.at[i];
        n += ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT &&
             strcmp(ckpt_dtype_get(t->dtype)->torch, w->dtype) != 0;
    }
    return n == 0 ? CKPT_OK
                  : ckpt_map_note(w->to, CKPT_INFO, w->err,
                                  "config.json states %s, the dtype of most elements: transformers "
                                  "loads all weights in that dtype, also %" PRIu64
                                  " tensor%s of other dtypes",
                                  w->dtype, n, n == 1 ? "" : "s");
}

/*
 * Write side files, then shards, then the index.  Files appear in this order, so that a reader
 * which sees the last one sees them all.
 */
static int hfw_scatter(hfw_writer *w, const ckpt_map *from, const ckpt_target *target)
{
    const char *class;
    int rc = CKPT_OK;

    w->adapter = ckpt_hf_is_adapter(from);
    w->shard = ckpt_alloc(w->to->tensors.n * sizeof *w->shard);
    class = w->adapter ? NULL : ckpt_hf_diffusers_class(from, w->to->arena);
    w->diffusers = class != NULL;
    if (class)
        rc = ckpt_hf_keep_wide(w->to, from, class, target->dtype, w->err);
    if (rc == CKPT_OK)
        // PEFT cannot read shards
        rc = w->shard ? hfw_split(w, w->adapter ? 0 : target->max_shard_size)
                      : ckpt_fail_memory(w->err);
    // diffusers' configurations have no dtype
    w->dtype = w->diffusers ? NULL : hfw_config_dtype(w->to, from, target);
    if (rc == CKPT_OK && !target->skip_side_files)
        rc = ckpt_hf_side_files(w->to, from, w->dtype, w->adapter, w->err);
    if (rc == CKPT_OK && from->adapter_config)
        rc = ckpt_model_folder_add(w->to, "adapter_config.json", from->adapter_config,
                                   from->n_adapter_config, w->err);
    if (rc == CKPT_OK)
        rc = hfw_add_shards(w);
    if (rc == CKPT_OK && w->sums.n_shards > 1)
        rc = hfw_add_index(w);
    if (rc == CKPT_OK)
        rc = hfw_make_set(w, target);
    if (rc == CKPT_OK)
        rc = hfw_note_packed(w, from);
    if (rc == CKPT_OK && !target->skip_side_files)
        rc = hfw_note_mixed(w, target);
    ckpt_free(w->shard);
    return rc;
}

/*
 * A tied name is not listed in the index: safetensors stores it as metadata of its shard, and
 * loaders that tie weights do not look it up.
 */
int ckpt_hf_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target,
                    const char *variant, ckpt_err *err)
{
    static const hfw_style style = {&ckpt_format_safetensors, "model", ".safetensors", false};
    hfw_writer w = {.to = to, .style = &style, .variant = variant, .err = err};

    return hfw_scatter(&w, from, target);
}

int ckpt_hf_scatter_bin(ckpt_map *to, const ckpt_map *from, const ckpt_target *target,
                        ckpt_err *err)
{
    static const hfw_style style = {&ckpt_format_torch, "pytorch_model", ".bin", true};
    hfw_writer w = {.to = to, .style = &style, .err = err};

    return hfw_scatter(&w, from, target);
}
