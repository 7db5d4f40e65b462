/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf.c: reads Hugging Face folders: one weight file, or shards and their index.
 *
 * The index is untrusted: each tensor that it lists must be in the shard that it names, and shards
 * must not hold other tensors.  File names in the index must not contain a path.  Links are
 * followed, because the hub's cache consists of links.
 */
#include "formats/hf/hf.h"
#include "formats/hf/whole.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf/pipeline.h"
#include "formats/torch/torch.h"
#include "formats/training/run_files.h"
#include "libckpt/base/dtype.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/map/merge.h"

#define HF_INDEX_MAX  (UINT64_C(128) << 20) /* limit of an index in bytes: over a million names */
#define HF_CONFIG_MAX (UINT64_C(16) << 20)  /* largest config.json, in bytes */

/* A tensor as the index lists it. */
typedef struct hf_listed {
    const char *name, *file;
    uint32_t shard; /* index in hf_reader.shards */
    bool found;     /* the shard has the tensor */
} hf_listed;

typedef struct hf_shard {
    const char *file;
    bool broken; /* the shard could not be read, which is already reported */
} hf_shard;

CKPT_VEC(hf_shards, hf_shard);

typedef struct hf_reader {
    ckpt_map *map;
    const ckpt_listing *list;
    ckpt_err *err;
    const char *name; /* name of the chosen weight file or index */
    ckpt_hf_name kind;
    ckpt_arena *arena; /* for the parsed index; freed after reading */
    hf_listed *listed; /* sorted by name once shards are numbered */
    size_t n_listed;
    hf_shards shards;        /* sorted by file name */
    const ckpt_value *total; /* metadata.total_size, or NULL */
} hf_reader;

/* ---- choosing ---- */

/* True if two file names have the same variant ("fp16"), or both have none. */
static bool hf_same_variant(const ckpt_hf_name *a, const ckpt_hf_name *b)
{
    return a->n_variant == b->n_variant &&
           memcmp(a->variant ? a->variant : "", b->variant ? b->variant : "", a->n_variant) == 0;
}

/* Rank a file name as the loaders prefer it, from 0, the best: first names without a variant, then
 * by family, then a single file before an index. */
static unsigned hf_rank(const ckpt_hf_name *n)
{
    if (n->role == CKPT_HF_OTHER)
        return UINT32_MAX;
    unsigned role = n->role == CKPT_HF_SHARD ? 1000u : n->role == CKPT_HF_INDEX ? 1u : 0u;
    return role + 2 * n->family + (n->n_variant ? 100u : 0u);
}

/* The best entry of the folder, or NULL; *rank is its hf_rank. */
static const ckpt_entry *hf_best(const ckpt_listing *list, ckpt_hf_name *kind, unsigned *rank)
{
    const ckpt_entry *best = NULL;

    *rank = UINT32_MAX;
    for (size_t i = 0; i < list->n; i++) {
        ckpt_hf_name n = ckpt_hf_parse_name(list->entry[i].name);
        if (!list->entry[i].is_dir && hf_rank(&n) < *rank) {
            best = &list->entry[i];
            *rank = hf_rank(&n);
            *kind = n;
        }
    }
    return best;
}

/*
 * The score is lower than the DeepSpeed driver's, because the Trainer puts model.safetensors into
 * the folder of a DeepSpeed run.
 */
static int hf_probe(const ckpt_listing *list)
{
    ckpt_hf_name kind;
    unsigned rank;

    if (!hf_best(list, &kind, &rank))
        return 0;
    return kind.role == CKPT_HF_SHARD ? 30 : kind.n_variant ? 50 : 70;
}

/* hf-bin is never detected, because hf reads .bin folders too. */
static int hf_probe_none(const ckpt_listing *list)
{
    (void)list;
    return 0;
}

/*
 * A shard has only a part of the model and an index has no tensors, so their folder is opened
 * instead.  A single file is opened as a file.
 */
static int hf_part(const char *file_name)
{
    ckpt_hf_name n = ckpt_hf_parse_name(file_name);

    return n.role == CKPT_HF_INDEX ? 2 : n.role == CKPT_HF_SHARD ? 1 : 0;
}

/* Find the index of the shard that the caller named, or the index that the caller named. */
static const ckpt_entry *hf_best_of_part(const hf_reader *r, ckpt_hf_name *kind)
{
    ckpt_hf_name asked = ckpt_hf_parse_name(r->list->part);

    for (size_t i = 0; i < r->list->n; i++) {
        *kind = ckpt_hf_parse_name(r->list->entry[i].name);
        if (kind->role == CKPT_HF_INDEX && kind->family == asked.family &&
            hf_same_variant(kind, &asked))
            return &r->list->entry[i];
    }
    *kind = asked;
    return NULL;
}

/* Choose the file to begin with. */
static int hf_choose(hf_reader *r)
{
    unsigned rank = 0;
    const ckpt_entry *best =
        r->list->part ? hf_best_of_part(r, &r->kind) : hf_best(r->list, &r->kind, &rank);

    if (!best && !r->list->part)
        return ckpt_fail(
            r->err, CKPT_EMISSING,
            "%s: neither model.safetensors nor pytorch_model.bin nor an index of shards",
            r->list->folder);
    if (!best || r->kind.role == CKPT_HF_SHARD)
        return ckpt_fail(r->err, CKPT_EMISSING,
                         "%s: shards such as %s, but not their index (*.index.json): copy it too",
                         r->list->folder, best ? best->name : r->list->part);
    r->name = best->name;
    for (size_t i = 0; i < r->list->n && r->kind.n_variant && !r->list->part; i++) {
        ckpt_hf_name n = ckpt_hf_parse_name(r->list->entry[i].name);
        if ((n.role == CKPT_HF_SINGLE || n.role == CKPT_HF_INDEX) && !hf_same_variant(&n, &r->kind))
            return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                             "%s: %s and %s are different variants: name the one to read",
                             r->list->folder, best->name, r->list->entry[i].name);
    }
    return CKPT_OK;
}

/* ---- shards ---- */

/* Read the headers of one file of the folder; it must be a weight file. */
static int hf_read_file(hf_reader *r, const char *name, ckpt_map **out, ckpt_err *err)
{
    const char *path = ckpt_path_join(r->arena, r->list->folder, name);

    if (!path)
        return ckpt_fail_memory(err);
    int rc = r->list->read(out, path, NULL, err);
    if (rc != CKPT_OK)
        return rc;
    const char *format = (*out)->files.n ? (*out)->files.at[0].format->is.name : "";
    if (strcmp(format, "safetensors") == 0)
        return CKPT_OK;
    if (strncmp(format, "torch", 5) == 0)
        rc = ckpt_torch_say_others(*out, path, err);
    else
        rc = CKPT_EUNSUPPORTED;
    if (rc == CKPT_OK)
        return rc;
    ckpt_map_free(*out);
    *out = NULL;
    return rc != CKPT_EUNSUPPORTED
               ? rc
               : ckpt_fail(err, CKPT_EUNSUPPORTED,
                           "%s: a %s file among weights; expected safetensors or torch", path,
                           format);
}

/* For qsort and bsearch: by tensor name; names are unique, because the index was checked. */
static int hf_listed_order(const void *pa, const void *pb)
{
    return strcmp(((const hf_listed *)pa)->name, ((const hf_listed *)pb)->name);
}

/*
 * Find a tensor in the index. A part of a pickled tensor of torchao, X._weight_qdata, is listed
 * under the parameter's name, X.weight.
 */
static int hf_find_listed(hf_reader *r, const ckpt_map *sub, const char *name, hf_listed **out)
{
    const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
    char *own = ckpt_alloc(strlen(name) + 1), *cut = own;
    hf_listed key = {.name = name};

    if (!own)
        return ckpt_fail_memory(r->err);
    *out = bsearch(&key, r->listed, r->n_listed, sizeof key, hf_listed_order);
    memcpy(own, name, (size_t)(last - name));
    if (sub->wrapped && *last == '_')
        memcpy(own + (last - name), last + 1, strlen(last));
    else
        cut = NULL;
    key.name = own;
    while (!*out && cut && (cut = strrchr(own + (last - name), '_')) != NULL) {
        *cut = 0;
        *out = bsearch(&key, r->listed, r->n_listed, sizeof key, hf_listed_order);
    }
    ckpt_free(own);
    return CKPT_OK;
}

/* Decide whether a tensor of shard s enters the map; report a mismatch with the index. */
static int hf_admit(hf_reader *r, const ckpt_map *sub, const ckpt_tensor *t, uint32_t s, bool *yes)
{
    const char *file = r->shards.at[s].file;
    hf_listed *listed = NULL;
    int rc = hf_find_listed(r, sub, t->name, &listed);

    if (rc != CKPT_OK)
        return rc;
    *yes = listed && listed->shard == s;
    if (*yes) {
        listed->found = true;
        return CKPT_OK;
    }
    // the index need not list names that a shard's metadata records as tied
    if (t->owner) {
        *yes = !listed && ckpt_map_index(r->map, t->name, strlen(t->name)) == SIZE_MAX;
        return CKPT_OK;
    }
    if (listed)
        return ckpt_map_problem(r->map, CKPT_EMISMATCH, r->err,
                                "%s/%s: holds tensor \"%.200s\", but %s places it in %s",
                                r->list->folder, file, t->name, r->name, listed->file);
    return ckpt_map_problem(r->map, CKPT_EMISMATCH, r->err,
                            "%s/%s: holds tensor \"%.200s\", which is not listed in %s",
                            r->list->folder, file, t->name, r->name);
}

/* Move a file's map into the folder's; with an index only the tensors that it lists. */
static int hf_merge(hf_reader *r, const ckpt_map *sub, uint32_t s)
{
    uint32_t file_base, source_base;
    ckpt_tensor *made;
    int rc = ckpt_map_merge_files(r->map, sub, &file_base, &source_base, r->err);

    for (size_t i = 0; rc == CKPT_OK && i < sub->tensors.n; i++) {
        const ckpt_tensor *t = sub->tensors.at[i];
        bool yes = true;
        if (r->kind.role == CKPT_HF_INDEX)
            rc = hf_admit(r, sub, t, s, &yes);
        if (rc == CKPT_OK && yes)
            rc = ckpt_map_merge_tensor(r->map, t->name, t, source_base, &made, r->err);
    }
    return rc == CKPT_OK ? ckpt_map_merge_notes(r->map, sub, r->err) : rc;
}

/* Read shard s.  If it cannot be read, this is a finding if the map collects findings, otherwise an
 * error. */
static int hf_read_shard(hf_reader *r, uint32_t s)
{
    ckpt_err local = {0};
    ckpt_map *sub = NULL;
    int rc = hf_read_file(r, r->shards.at[s].file, &sub, &local);

    if (rc == CKPT_ELIMIT || rc == CKPT_EIO)
        return ckpt_fail(r->err, rc, "%s", local.text);
    if (rc != CKPT_OK) {
        r->shards.at[s].broken = true;
        if (rc == CKPT_EMISSING)
            return ckpt_map_problem(r->map, rc, r->err, "%s/%s is missing, but %s lists it",
                                    r->list->folder, r->shards.at[s].file, r->name);
        return ckpt_map_problem(r->map, rc, r->err, "%s", local.text);
    }
    rc = hf_merge(r, sub, s);
    ckpt_map_free(sub);
    return rc;
}

/*
 * Warn about shards of the same set that the index does not name, or that are beside a single file:
 * another save usually left them.
 */
static int hf_check_unlisted(hf_reader *r)
{
    const char *first = NULL;
    size_t n = 0;

    for (size_t i = 0; i < r->list->n; i++) {
        const char *name = r->list->entry[i].name;
        ckpt_hf_name kind = ckpt_hf_parse_name(name);
        bool listed = false;
        if (kind.role != CKPT_HF_SHARD || kind.family != r->kind.family ||
            !hf_same_variant(&kind, &r->kind))
            continue;
        for (size_t lo = 0, hi = r->shards.n; lo < hi && !listed;) {
            size_t mid = lo + (hi - lo) / 2;
            int order = strcmp(r->shards.at[mid].file, name);
            listed = order == 0;
            lo = order < 0 ? mid + 1 : lo;
            hi = order < 0 ? hi : mid;
        }
        first = listed || first ? first : name;
        n += listed ? 0 : 1;
    }
    if (n == 0)
        return CKPT_OK;
    return ckpt_map_note(
        r->map, CKPT_WARNING, r->err, "%s: ckpt does not read %zu weight file%s %s %s, such as %s",
        r->list->folder, n, n == 1 ? "" : "s",
        r->kind.role == CKPT_HF_INDEX ? "not listed in" : "beside", r->name, first);
}

/* Read a single weight file; there is no index to compare with. */
static int hf_read_single(hf_reader *r)
{
    ckpt_map *sub = NULL;
    int rc = hf_read_file(r, r->name, &sub, r->err);

    if (rc == CKPT_OK)
        rc = hf_merge(r, sub, 0);
    ckpt_map_free(sub);
    return rc == CKPT_OK ? hf_check_unlisted(r) : rc;
}

/* ---- the index ---- */

/* Read a small JSON file of the folder into r's arena. */
static int hf_read_json(hf_reader *r, const char *name, uint64_t max, ckpt_value **out,
                        ckpt_err *err)
{
    const char *path = ckpt_path_join(r->arena, r->list->folder, name);

    *out = NULL;
    return path ? ckpt_json_read(out, r->arena, path, max, err) : ckpt_fail_memory(err);
}

/* Enter a pair of weight_map: a tensor and its shard. */
static int hf_list(hf_reader *r, const ckpt_pair *p)
{
    const ckpt_text name = p->key->as.text;

    if (p->value->kind != CKPT_V_STR)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s/%s: the shard of \"%.200s\" is not a file name",
                         r->list->folder, r->name, name.at);
    const ckpt_text file = p->value->as.text;
    if (!ckpt_name_ok(name.at, name.n))
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s/%s: a tensor name of %" PRIu64 " bytes is not valid", r->list->folder,
                         r->name, name.n);
    if (!ckpt_path_part_ok(file.at, file.n))
        return ckpt_fail(
            r->err, CKPT_EUNSAFE,
            "%s/%s: the shard of \"%.100s\" is \"%.100s\": only names of files in the same folder "
            "are followed",
            r->list->folder, r->name, name.at, file.at);
    r->listed[r->n_listed++] = (hf_listed){.name = name.at, .file = file.at};
    return CKPT_OK;
}

/* For qsort: by shard, so entries of a shard are neighbours. */
static int hf_file_order(const void *pa, const void *pb)
{
    return strcmp(((const hf_listed *)pa)->file, ((const hf_listed *)pb)->file);
}

/* Number the distinct shards in the order of their names; then sort the tensors by name for
 * look-ups. */
static int hf_number_shards(hf_reader *r)
{
    qsort(r->listed, r->n_listed, sizeof *r->listed, hf_file_order);
    for (size_t i = 0; i < r->n_listed; i++) {
        hf_listed *l = &r->listed[i];
        if (i == 0 || strcmp(l->file, l[-1].file) != 0) {
            hf_shard *s = ckpt_vec_push(&r->shards);
            if (!s)
                return ckpt_fail_memory(r->err);
            s->file = l->file;
        }
        l->shard = (uint32_t)(r->shards.n - 1);
    }
    qsort(r->listed, r->n_listed, sizeof *r->listed, hf_listed_order);
    return CKPT_OK;
}

/*
 * Read the index and check its form.  All file names are checked before the first shard is opened.
 */
static int hf_parse_index(hf_reader *r)
{
    ckpt_value *root = NULL;
    int rc = hf_read_json(r, r->name, HF_INDEX_MAX, &root, r->err);

    if (rc != CKPT_OK)
        return rc;
    const ckpt_value *weights = ckpt_value_get(root, "weight_map");
    if (!weights || weights->kind != CKPT_V_DICT || weights->as.map.n == 0)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s/%s: no \"weight_map\" that lists tensors",
                         r->list->folder, r->name);
    r->total = ckpt_value_get(ckpt_value_get(root, "metadata"), "total_size");
    r->listed = ckpt_arena_array(r->arena, weights->as.map.n, sizeof *r->listed);
    if (!r->listed)
        return ckpt_fail_memory(r->err);
    for (uint64_t i = 0; rc == CKPT_OK && i < weights->as.map.n; i++)
        rc = hf_list(r, &weights->as.map.at[i]);
    return rc == CKPT_OK ? hf_number_shards(r) : rc;
}

/* Report tensors that the index lists but no shard holds. */
static int hf_check_found(hf_reader *r)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < r->n_listed; i++) {
        const hf_listed *l = &r->listed[i];
        if (!l->found && !r->shards.at[l->shard].broken)
            rc = ckpt_map_problem(r->map, CKPT_EMISSING, r->err,
                                  "%s/%s lists tensor \"%.200s\" in %s, which does not hold it",
                                  r->list->folder, r->name, l->name, l->file);
    }
    return rc;
}

/* Read the shards in the order of their names, then check the set as a whole. */
static int hf_read_index(hf_reader *r)
{
    int rc = hf_parse_index(r);

    for (uint32_t s = 0; rc == CKPT_OK && s < r->shards.n; s++)
        rc = hf_read_shard(r, s);
    if (rc == CKPT_OK)
        rc = hf_check_found(r);
    return rc == CKPT_OK ? hf_check_unlisted(r) : rc;
}

/* ---- facts ---- */

/* Add a string, or the first of a list of strings, as a fact. */
static int hf_fact(hf_reader *r, const ckpt_value *config, const char *key, const char *fact)
{
    const ckpt_value *v = ckpt_value_get(config, key);

    if (v && v->kind == CKPT_V_LIST && v->as.seq.n > 0)
        v = v->as.seq.at[0];
    if (!v || v->kind != CKPT_V_STR)
        return CKPT_OK;
    return ckpt_map_fact(r->map, r->err, fact, "%.200s", v->as.text.at);
}

/* The integer at index i of a list, for messages; -1 if there is none. */
static int64_t hf_number(const ckpt_value *list, uint64_t i)
{
    const ckpt_value *v =
        list && list->kind == CKPT_V_LIST && i < list->as.seq.n ? list->as.seq.at[i] : NULL;

    return v && v->kind == CKPT_V_INT ? v->as.i : -1;
}

/* Add the quantization method as a fact, unless the weights are floats in spite of it. */
static int hf_quantized(hf_reader *r, const ckpt_value *config)
{
    const ckpt_value *q = ckpt_hf_quantization(config);

    if (!q || ckpt_hf_quant_floats(r->map, config))
        return CKPT_OK;
    const ckpt_value *method = ckpt_value_get(q, "quant_method"),
                     *form = ckpt_value_get(q, "format"),
                     *block = ckpt_value_get(q, "weight_block_size");
    const char *name = method && method->kind == CKPT_V_STR ? method->as.text.at : "unnamed method";
    int64_t bits = 0, group = 0;

    if (!method && ckpt_value_as_int(ckpt_value_get(q, "bits"), &bits) &&
        ckpt_value_as_int(ckpt_value_get(q, "group_size"), &group))
        return ckpt_map_fact(r->map, r->err, "quantized",
                             "MLX, %" PRId64 " bits, groups of %" PRId64, bits, group);
    if (hf_number(block, 0) > 0 && hf_number(block, 1) > 0)
        return ckpt_map_fact(r->map, r->err, "quantized",
                             "%.100s, blocks of %" PRId64 " x %" PRId64, name, hf_number(block, 0),
                             hf_number(block, 1));
    if (form && form->kind == CKPT_V_STR)
        return ckpt_map_fact(r->map, r->err, "quantized", "%.100s, %.100s", name, form->as.text.at);
    return ckpt_map_fact(r->map, r->err, "quantized", "%.100s", name);
}

/* Add a number as a fact; its key differs between model families. */
static int hf_count(hf_reader *r, const ckpt_value *config, const char *const *keys,
                    const char *fact)
{
    const ckpt_value *text = ckpt_value_get(config, "text_config"), *v = NULL;

    for (; *keys && !v; keys++) {
        v = ckpt_value_get(config, *keys);
        v = v || !text ? v : ckpt_value_get(text, *keys);
    }
    if (!v || v->kind != CKPT_V_INT || v->as.i <= 0)
        return CKPT_OK;
    return ckpt_map_fact_int(r->map, fact, v->as.i, r->err);
}

/* Add the number and size of the model's layers. */
static int hf_layers(hf_reader *r, const ckpt_value *config)
{
    static const char *const layers[] = {"num_hidden_layers", "n_layer", "num_layers", "n_layers",
                                         NULL};
    static const char *const hidden[] = {"hidden_size", "n_embd", "d_model", "dim", NULL};
    static const char *const heads[] = {"num_attention_heads", "n_head", "n_heads", "num_heads",
                                        NULL};
    int rc = hf_count(r, config, layers, "hidden layers");

    if (rc == CKPT_OK)
        rc = hf_count(r, config, hidden, "hidden size");
    return rc == CKPT_OK ? hf_count(r, config, heads, "attention heads") : rc;
}

/* Add the facts of a config; an unreadable config is only worth a warning. */
static int hf_config(hf_reader *r, const char *name)
{
    ckpt_err local = {0};
    ckpt_value *config = NULL;

    if (!ckpt_listing_find(r->list, name))
        return CKPT_OK;
    if (hf_read_json(r, name, HF_CONFIG_MAX, &config, &local) != CKPT_OK)
        return ckpt_map_note(r->map, CKPT_WARNING, r->err, "%s", local.text);
    int rc = hf_fact(r, config, "architectures", "architecture");
    if (rc == CKPT_OK)
        rc = hf_fact(r, config, "model_type", "model type");
    if (rc == CKPT_OK)
        rc = hf_fact(r, config, "peft_type", "adapter");
    if (rc == CKPT_OK)
        rc = hf_fact(r, config, "base_model_name_or_path", "base model");
    if (rc == CKPT_OK)
        rc = hf_layers(r, config);
    if (rc == CKPT_OK)
        rc = hf_quantized(r, config);
    // an adapter never has the whole model
    const char *path = ckpt_path_join(r->map->arena, r->list->folder, r->name);
    bool adapter =
        r->kind.family == CKPT_HF_ADAPTER || r->kind.family == (unsigned)CKPT_HF_ADAPTER + 1;
    if (rc == CKPT_OK && strcmp(name, "config.json") == 0 && !adapter)
        rc = path ? ckpt_hf_whole(r->map, config, path, r->err) : ckpt_fail_memory(r->err);
    return rc;
}

/* Add sizes as facts, and compare them with total_size, which counts tied bytes once or per
 * name. */
static int hf_sizes(hf_reader *r)
{
    uint64_t once = 0, each = 0, n = 0;

    for (size_t i = 0; i < r->map->tensors.n; i++) {
        const ckpt_tensor *t = r->map->tensors.at[i];
        n = 0;
        (void)ckpt_dtype_bytes(t->dtype, t->n_elems, &n); // checked when the tensor was added
        each += n;
        once += t->owner ? 0 : n;
    }
    int rc =
        r->shards.n ? ckpt_map_fact_int(r->map, "shards", (int64_t)r->shards.n, r->err) : CKPT_OK;
    if (rc == CKPT_OK)
        rc = ckpt_map_fact_int(r->map, "total bytes", (int64_t)once, r->err);
    if (rc != CKPT_OK || !r->total)
        return rc;
    // some writers stored total_size as a float
    double said = r->total->kind == CKPT_V_INT     ? (double)r->total->as.i
                  : r->total->kind == CKPT_V_FLOAT ? r->total->as.f
                                                   : -1;
    if (said < (double)once || said > (double)each || (said > (double)once && said < (double)each))
        rc = ckpt_map_note(r->map, CKPT_WARNING, r->err,
                           "%s/%s: total_size is %.0f, the tensors have %" PRIu64 " bytes",
                           r->list->folder, r->name, said, once);
    return rc;
}

/* ---- an optimizer beside the weights ---- */

/* True for names of optimizer files as trainers write them, for one process or per rank. */
static bool hf_is_optimizer(const char *name)
{
    const char *dot = strrchr(name, '.');

    return strstr(name, "optimizer") && dot &&
           (strcmp(dot, ".pt") == 0 || strcmp(dot, ".bin") == 0 || strcmp(dot, ".pth") == 0);
}

/*
 * True if the folder also contains a run of DeepSpeed or FSDP, whose own driver checks its files.
 */
static bool hf_has_run(const ckpt_listing *list)
{
    bool has = ckpt_listing_find(list, "latest") != NULL;

    for (size_t i = 0; !has && i < list->n; i++) {
        const ckpt_entry *e = &list->entry[i];
        has = e->is_dir && (strncmp(e->name, "global_step", 11) == 0 ||
                            strncmp(e->name, CKPT_TRAIN_FSDP_OPTIMIZER, 10) == 0);
    }
    return has;
}

/*
 * With map->collect, read the headers of an optimizer file, so that verify checks its records too.
 * A file of an unknown kind is not an error, because other programs use such names too.
 */
static int hf_look(hf_reader *r, const char *name)
{
    uint32_t file_base, source_base;
    ckpt_err local = {0};
    ckpt_map *sub = NULL;
    int rc = hf_read_file(r, name, &sub, &local);

    if (rc == CKPT_ELIMIT || rc == CKPT_EIO)
        return ckpt_fail(r->err, rc, "%s", local.text);
    if (rc == CKPT_EFORMAT)
        return ckpt_map_problem(r->map, rc, r->err, "%s", local.text);
    if (rc != CKPT_OK)
        return ckpt_map_note(r->map, CKPT_INFO, r->err, "%s", local.text);
    rc = ckpt_map_merge_files(r->map, sub, &file_base, &source_base, r->err);
    ckpt_map_free(sub);
    return rc;
}

/* Report a missing optimizer or model of a run, if the folder has other files of that run. */
static int hf_run(hf_reader *r, bool optimizer)
{
    const ckpt_listing *list = r->list;
    const char *of = ckpt_train_file_of_run(list);

    if (hf_has_run(list))
        return CKPT_OK;
    if (!optimizer && of) {
        r->map->no_state = ckpt_arena_printf(
            r->map->arena,
            "the run's optimizer is missing: expected optimizer.pt or optimizer.bin, found %.200s, "
            "which belongs to a run",
            of);
        return r->map->no_state ? ckpt_map_note(r->map, CKPT_WARNING, r->err,
                                                "%s: %s; the run cannot be resumed without it",
                                                list->folder, r->map->no_state)
                                : ckpt_fail_memory(r->err);
    }
    // only FSDP runs of the Trainer have optimizer.bin; they resume from pytorch_model_fsdp.bin
    if (ckpt_listing_find(list, "optimizer.bin") && ckpt_listing_find(list, "trainer_state.json") &&
        !ckpt_listing_find(list, "pytorch_model_fsdp.bin"))
        return ckpt_map_note(r->map, CKPT_WARNING, r->err,
                             "%s: the run's model is missing: expected pytorch_model_fsdp.bin, "
                             "found optimizer.bin, which the Trainer writes with FSDP; the weights "
                             "of %s are read",
                             list->folder, r->name);
    return CKPT_OK;
}

/* Add a fact for optimizer files beside the weights, which this driver does not read. */
static int hf_optimizer(hf_reader *r)
{
    bool found = false;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < r->list->n; i++) {
        const ckpt_entry *e = &r->list->entry[i];
        if (e->is_dir || !hf_is_optimizer(e->name))
            continue;
        found = true;
        if (strncmp(e->name, "optimizer", 9) == 0)
            rc = ckpt_map_fact(r->map, r->err, "optimizer", "%.200s, not read", e->name);
        if (rc == CKPT_OK && r->map->collect)
            rc = hf_look(r, e->name);
    }
    return rc == CKPT_OK ? hf_run(r, found) : rc;
}

/*
 * Warn about adapter weights without adapter_config.json, because no program can apply them to a
 * model.
 */
static int hf_adapter(hf_reader *r)
{
    if (strncmp(r->name, "adapter_model.", 14) != 0 ||
        ckpt_listing_has(r->list, "adapter_config.json", false))
        return CKPT_OK;
    return ckpt_map_note(r->map, CKPT_WARNING, r->err,
                         "%s: adapter_config.json is missing: PEFT does not load %s without it; "
                         "copy it",
                         r->list->folder, r->name);
}

/* Check a model in shards whose folder has no config.json. */
static int hf_alone(hf_reader *r)
{
    if (r->kind.role != CKPT_HF_INDEX || strncmp(r->name, "adapter_model.", 14) == 0 ||
        ckpt_listing_has(r->list, "config.json", false))
        return CKPT_OK;
    const char *path = ckpt_path_join(r->map->arena, r->list->folder, r->name);
    return path ? ckpt_hf_alone(r->map, path, r->err) : ckpt_fail_memory(r->err);
}

/* ckpt_directory.gather: chooses the files, reads them and adds facts. */
static int hf_gather(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                     ckpt_err *err)
{
    hf_reader r = {.map = map, .list = list, .err = err, .arena = ckpt_arena_new(0)};
    int rc = r.arena ? hf_choose(&r) : ckpt_fail_memory(err);

    (void)opts; // a model folder has neither tags nor optimizer state
    if (rc == CKPT_OK)
        rc = r.kind.role == CKPT_HF_INDEX ? hf_read_index(&r) : hf_read_single(&r);
    if (rc == CKPT_OK)
        rc = hf_sizes(&r);
    if (rc == CKPT_OK)
        rc = hf_config(&r, "config.json");
    if (rc == CKPT_OK)
        rc = hf_config(&r, "adapter_config.json");
    if (rc == CKPT_OK && !r.list->part)
        rc = hf_alone(&r);
    if (rc == CKPT_OK && !r.list->part)
        rc = hf_adapter(&r);
    if (rc == CKPT_OK && !r.list->part)
        rc = ckpt_train_further_models(map, list, false, err);
    if (rc == CKPT_OK && !r.list->part)
        rc = hf_optimizer(&r);
    ckpt_vec_free(&r.shards);
    ckpt_arena_free(r.arena);
    return rc;
}

/* ckpt_directory.scatter of "hf" */
static int hf_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    return ckpt_pipeline_is(from) ? ckpt_pipeline_scatter(to, from, target, err)
                                  : ckpt_hf_scatter(to, from, target, NULL, err);
}

/* ckpt_directory.scatter of "hf-bin" */
static int hf_scatter_bin(ckpt_map *to, const ckpt_map *from, const ckpt_target *target,
                          ckpt_err *err)
{
    // the names have the components in front, with which no program loads them
    return ckpt_pipeline_is(from)
               ? ckpt_fail(err, CKPT_EUNSUPPORTED,
                           "%s is a pipeline of several models: --to hf writes it, in safetensors",
                           from->path)
               : ckpt_hf_scatter_bin(to, from, target, err);
}

const ckpt_directory ckpt_directory_hf = {
    .is =
        {
            .name = "hf",
            .aliases = "huggingface",
            .signs = "model.safetensors or pytorch_model.bin or their index (Hugging Face)",
            .note =
                "Hugging Face model folder: reads safetensors and .bin, writes model*.safetensors",
            .caps = CKPT_CAN_READ | CKPT_CAN_WRITE | CKPT_TAKES_SHARD_SIZE | CKPT_TAKES_SIDE_FILES |
                    CKPT_IS_FOLDER,
            .layout = "hf",
        },
    .probe = hf_probe,
    .gather = hf_gather,
    .scatter = hf_scatter,
    .whole = ckpt_hf_output,
    .part = hf_part,
};

const ckpt_directory ckpt_directory_hf_bin = {
    .is =
        {
            .name = "hf-bin",
            .note = "Hugging Face model folder written as pytorch_model*.bin",
            .caps = CKPT_CAN_WRITE | CKPT_TAKES_SHARD_SIZE | CKPT_TAKES_SIDE_FILES | CKPT_IS_FOLDER,
            .layout = "hf",
        },
    .probe = hf_probe_none,
    .gather = hf_gather,
    .scatter = hf_scatter_bin,
};
