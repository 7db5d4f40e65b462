/* SPDX-License-Identifier: Apache-2.0 */
/*
 * side.c: copies files from the source's folder (configuration, tokenizer, code) into an output
 * folder, and lists the files that it leaves out.
 */
#define _GNU_SOURCE // readlink, memmem
#include "formats/hf/side.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/hf/config.h"
#include "formats/hf/hf.h"
#include "formats/hf/whole.h"
#include "formats/training/deepspeed_names.h"
#include "libckpt/access/model_folder.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/io/address.h"
#include "libckpt/io/manifest_name.h"

enum { SIDE_MAX_LISTED = 12 }; /* number of names in a message */

#define SIDE_MAX   (UINT64_C(64) << 20) /* largest file with a name that models use, in bytes */
#define SIDE_SMALL (UINT64_C(4) << 20)  /* largest file with another name */

typedef enum side_kind {
    SIDE_COPIED,
    SIDE_COPIED_SMALL, /* copied if it has at most SIDE_SMALL bytes, otherwise listed */
    SIDE_LEFT,         /* left out; a note lists it */
    SIDE_SILENT        /* left out without a note, such as weights and tags, which are converted */
} side_kind;

typedef struct side_work {
    ckpt_map *to;
    const ckpt_map *from;
    const char *dtype;
    bool adapter;
    ckpt_listing list; /* the source's folder */
    bool is_model;     /* the folder has files that show a model */
    bool has_code;     /* its configuration names Python code in the folder */
    /* the folder is a pipeline, or part of one: the folder of the output with "/", or "" */
    const char *below;
    bool floats;       /* quantization_config does not apply to the output */
    ckpt_map *scratch; /* owns listings and texts, which the target must not keep in memory */
    const ckpt_value *config; /* the output's config.json, in scratch; NULL: it has none */
    const char *left;         /* the names of the files left out, for the note */
    size_t n_left;
    ckpt_err *err;
} side_work;

/* ---- names ---- */

static bool side_ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n > m && strcmp(name + n - m, end) == 0;
}

static bool side_begins(const char *name, const char *text)
{
    return strncmp(name, text, strlen(text)) == 0;
}

static bool side_any(const char *name, const char *const *list,
                     bool (*match)(const char *, const char *))
{
    for (; *list; list++) {
        if (match(name, *list))
            return true;
    }
    return false;
}

static bool side_equals(const char *name, const char *text)
{
    return strcmp(name, text) == 0;
}

/* True for names that only models use; such files are copied from any folder. */
static bool side_is_known(const char *name)
{
    static const char *const names[] = {"config.json",
                                        "generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "vocab.txt",
                                        "merges.txt",
                                        "tekken.json",
                                        "preprocessor_config.json",
                                        "processor_config.json",
                                        "image_processor_config.json",
                                        "video_preprocessor_config.json",
                                        "quantize_config.json",
                                        "quantization_config.json",
                                        NULL};

    return side_any(name, names, side_equals) || side_begins(name, "chat_template.") ||
           side_ends(name, ".model") || side_ends(name, ".tiktoken");
}

/* True for state and records of a training run, because programs would take a model folder with
 * such files for a run. */
static bool side_is_of_run(const char *name)
{
    static const char *const begins[] = {
        "trainer_state", "training_args", "ds_config",     "optimizer",
        "scheduler",     "rng_state",     "random_states", NULL};

    return side_any(name, begins, side_begins) || side_ends(name, "_results.json");
}

/* True for files that describe how the folder's weights are quantized. */
static bool side_is_of_quantizer(const char *name)
{
    static const char *const names[] = {"quantize_config.json", "quantization_config.json",
                                        "hf_quant_config.json", "recipe.yaml", NULL};

    return side_any(name, names, side_equals);
}

/* True for names of text files, by their suffix or as licences. */
static bool side_is_text(const char *name)
{
    static const char *const ends[] = {".json",  ".txt",  ".jinja", ".bpe", ".spm",
                                       ".vocab", ".yaml", ".yml",   ".md",  NULL};
    static const char *const begins[] = {"LICENSE", "LICENCE", "NOTICE", "USE_POLICY", NULL};

    return (side_any(name, ends, side_ends) && !side_ends(name, ".index.json")) ||
           side_any(name, begins, side_begins);
}

/* True for the Python code of a model, by the file names that transformers uses. */
static bool side_is_code(const side_work *w, const char *name)
{
    static const char *const begins[] = {
        "modeling_", "configuration_",    "tokenization_",       "processing_", "image_processing_",
        "modular_",  "video_processing_", "feature_extraction_", NULL};

    return side_ends(name, ".py") && (w->has_code || side_any(name, begins, side_begins));
}

/* True if the source's weights were read from a file of this name. */
static bool side_was_read(const side_work *w, const char *name)
{
    for (size_t i = 0; i < w->from->files.n; i++) {
        if (strcmp(ckpt_hf_base(w->from->files.at[i].path), name) == 0)
            return true;
    }
    return false;
}

/* Decide about a file of a pipeline that is outside of the folders with weights. */
static side_kind side_of_pipeline(const char *name)
{
    if (name[0] == '.' || ckpt_manifest_is(name))
        return SIDE_SILENT;
    if (ckpt_hf_parse_name(name).role != CKPT_HF_OTHER)
        return SIDE_LEFT;
    if (side_is_known(name))
        return SIDE_COPIED;
    // components may have code of their own
    return side_is_text(name) || side_ends(name, ".py") ? SIDE_COPIED_SMALL : SIDE_LEFT;
}

/* Decide whether a file of the folder is copied or left out. */
static side_kind side_of_file(const side_work *w, const char *name)
{
    ckpt_hf_name weights = ckpt_hf_parse_name(name);
    bool adapters = weights.family >= CKPT_HF_ADAPTER && weights.family < CKPT_HF_ADAPTER + 2;

    if (w->below)
        return side_of_pipeline(name);
    if (name[0] == '.' || ckpt_manifest_is(name) || ckpt_ds_name_is_shard(name) ||
        side_begins(name, "latest") || strcmp(name, "zero_to_fp32.py") == 0 ||
        side_was_read(w, name))
        return SIDE_SILENT;
    if (weights.role != CKPT_HF_OTHER)
        return weights.n_variant == 0 && adapters == w->adapter ? SIDE_SILENT : SIDE_LEFT;
    if (strcmp(name, "adapter_config.json") == 0)
        return w->from->adapter_config ? SIDE_SILENT : w->adapter ? SIDE_COPIED : SIDE_LEFT;
    // a configuration given with --config replaces this one
    if (w->from->config.text && strcmp(name, w->from->config.file) == 0)
        return SIDE_SILENT;
    if (w->floats && side_is_of_quantizer(name))
        return SIDE_LEFT;
    if (side_is_known(name))
        return SIDE_COPIED;
    if (!w->is_model)
        return SIDE_SILENT;
    if (side_is_of_run(name))
        return SIDE_LEFT;
    return side_is_text(name) || side_is_code(w, name) ? SIDE_COPIED_SMALL : SIDE_LEFT;
}

/* Decide whether the files of a subfolder are copied. */
static side_kind side_of_folder(const side_work *w, const char *name)
{
    size_t digits = strspn(name, "0123456789");
    uint64_t number;

    if (strcmp(name, "additional_chat_templates") == 0)
        return SIDE_COPIED;
    // "1_Pooling", "2_Dense": folders that modules.json of sentence-transformers lists
    if (digits > 0 && name[digits] == '_' && ckpt_listing_find(&w->list, "modules.json"))
        return SIDE_COPIED;
    if (!w->is_model || name[0] == '.' || side_begins(name, "global_step") ||
        ckpt_ds_name_run(name, &number) ||
        (w->from->path && strcmp(ckpt_hf_base(w->from->path), name) == 0))
        return SIDE_SILENT;
    return SIDE_LEFT;
}

/* ---- copying ---- */

/* Add a name to the list of files left out. */
static int side_leave(side_work *w, const char *name, const char *end)
{
    if (w->n_left++ < SIDE_MAX_LISTED) {
        w->left = ckpt_arena_printf(w->scratch->arena, "%s%s%s%s", w->left ? w->left : "",
                                    w->left ? ", " : "", name, end);
        return w->left ? CKPT_OK : ckpt_fail_memory(w->err);
    }
    return CKPT_OK;
}

/*
 * True if the path is not a link, or links to a file in the same folder or in the blobs of a hub
 * cache, whose snapshots consist of such links.  Other links are not followed, because in a
 * downloaded folder they could lead to a private file.
 */
static bool side_is_inside(const side_work *w, const char *path)
{
    static const char *const blobs[] = {"../../blobs/", "../../../blobs/"};
    const char *part, *target;
    char text[512];
    struct stat st;
    ssize_t n;

    if (lstat(path, &st) != 0 || S_ISREG(st.st_mode))
        return true; // if the file is missing, opening it reports the error
    n = S_ISLNK(st.st_mode) ? readlink(path, text, sizeof text - 1) : -1;
    if (n < 0)
        return false;
    text[n] = 0;
    part = text;
    for (size_t i = 0; i < 2; i++) {
        if (side_begins(text, blobs[i]))
            part = text + strlen(blobs[i]);
    }
    target = ckpt_arena_printf(w->scratch->arena, "%.*s%s", (int)(ckpt_hf_base(path) - path), path,
                               text);
    return ckpt_path_part_ok(part, strlen(part)) && target && lstat(target, &st) == 0 &&
           S_ISREG(st.st_mode);
}

/* Add a file of n bytes; keep config.json, to compare the output's tensors with it. */
static int side_put(side_work *w, const char *name, const char *text, uint64_t n)
{
    const ckpt_json_text json = {.name = name, .at = text, .n = n, .max = SIDE_MAX};
    ckpt_value *config = NULL;

    // a damaged configuration is copied, as others are: programs report it
    if (strcmp(name, "config.json") == 0 &&
        ckpt_json_parse(&config, w->scratch->arena, &json, NULL) == CKPT_OK &&
        config->kind == CKPT_V_DICT)
        w->config = config;
    return ckpt_model_folder_add(w->to, name, text, n, w->err);
}

/* Add a side file of n bytes; config.json gets the output's dtype. */
static int side_add(side_work *w, const char *name, const char *text, uint64_t n)
{
    ckpt_bytes changed = {0};
    int rc = CKPT_OK;

    if (!w->dtype || strcmp(name, "config.json") != 0)
        return side_put(w, name, text, n);
    switch (ckpt_hf_config_dtype(&changed, text, n, w->dtype)) {
    case CKPT_OK:
        rc = side_put(w, name, (const char *)changed.at, changed.n);
        break;
    case CKPT_EFORMAT:
        rc = ckpt_map_note(w->to, CKPT_WARNING, w->err,
                           "%s/%s: copied unchanged: it is not a JSON object with a dtype, so ckpt "
                           "cannot set the dtype of the output's weights (%s) in it",
                           w->list.folder, name, w->dtype);
        if (rc == CKPT_OK)
            rc = side_put(w, name, text, n);
        break;
    default:
        rc = ckpt_fail_memory(w->err);
    }
    ckpt_vec_free(&changed);
    return rc;
}

/* Set n_members members in the text of config.json, and add the file. */
static int side_add_config(side_work *w, const char *text, uint64_t n, const ckpt_hf_member *m,
                           size_t n_members)
{
    ckpt_bytes changed = {0};
    int rc;

    if (n_members == 0)
        return side_add(w, "config.json", text, n);
    rc = ckpt_hf_config_set(&changed, text, n, m);
    if (rc == CKPT_OK)
        rc = side_add_config(w, (const char *)changed.at, changed.n, m + 1, n_members - 1);
    else
        rc = ckpt_fail(w->err, rc,
                       "%s/config.json: not a JSON object, so ckpt cannot set %s to %s in it",
                       w->list.folder, m->key, m->value);
    ckpt_vec_free(&changed);
    return rc;
}

/* Add config.json, with new values for the members that no longer fit the converted weights. */
static int side_members(side_work *w, const char *text, uint64_t n)
{
    ckpt_hf_member member[3];
    char size[24], was[24];
    size_t k = 0;

    if (w->from->quantization)
        member[k++] =
            (ckpt_hf_member){.key = w->from->quantization_key, .value = w->from->quantization};

    if (w->from->untied || w->from->tied)
        member[k++] = (ckpt_hf_member){.key = "tie_word_embeddings",
                                       .value = w->from->untied ? "false" : "true"};
    if (w->from->vocab_size && w->from->vocab_size != w->from->vocab_was) {
        (void)snprintf(size, sizeof size, "%" PRIu64, w->from->vocab_size);
        (void)snprintf(was, sizeof was, "%" PRIu64, w->from->vocab_was);
        member[k++] = (ckpt_hf_member){
            .key = "vocab_size", .value = size, .old = w->from->vocab_was ? was : NULL};
    }
    return side_add_config(w, text, n, member, k);
}

/* Add config.json, without its quantization entries if the output's weights are floats. */
static int side_plain(side_work *w, const char *text, uint64_t n)
{
    static const char *const keys[] = {"quantization_config", "compression_config", "quantization"};
    ckpt_bytes plain[3] = {{0}};

    int rc = CKPT_OK;

    if (!w->floats)
        return side_members(w, text, n);
    for (size_t i = 0; rc == CKPT_OK && i < 3; i++) {
        rc = ckpt_hf_config_drop(&plain[i], text, n, keys[i]);
        text = (const char *)plain[i].at;
        n = plain[i].n;
    }
    rc = rc == CKPT_OK ? side_members(w, text, n)
                       : ckpt_fail(w->err, rc, "%s/config.json: not a JSON object", w->list.folder);
    for (size_t i = 0; i < 3; i++)
        ckpt_vec_free(&plain[i]);
    return rc;
}

/* True for a statement about a conversion: it describes one output, as a manifest does. */
static bool side_is_statement(const char *bytes, uint64_t n)
{
    static const char toto[] = "https://in-toto.io/Statement/", own[] = "urn:ckpt:conversion:";

    return n > 0 && *bytes == '{' && memmem(bytes, n, toto, sizeof toto - 1) &&
           memmem(bytes, n, own, sizeof own - 1);
}

/* Copy a side file unchanged. */
static int side_copy(side_work *w, const ckpt_listing *list, const ckpt_entry *e, const char *name)
{
    char *bytes = NULL;
    uint64_t n = 0;
    const char *path = ckpt_arena_printf(w->scratch->arena, "%s/%s", list->folder, e->name);

    if (!path)
        return ckpt_fail_memory(w->err);
    if (e->size > SIDE_MAX)
        return ckpt_map_note(w->to, CKPT_WARNING, w->err,
                             "%s: not copied: it has %" PRIu64
                             " bytes, and ckpt copies files of at most "
                             "%" PRIu64 " bytes beside weights",
                             path, e->size, SIDE_MAX);
    if (!side_is_inside(w, path))
        return ckpt_map_note(w->to, CKPT_WARNING, w->err,
                             "%s: not copied: it is a link to a file outside the folder", path);
    int rc = ckpt_io_slurp(&bytes, &n, path, SIDE_MAX, w->err);
    if (rc == CKPT_OK && side_is_statement(bytes, n)) {
        ckpt_free(bytes);
        return CKPT_OK;
    }
    if (rc == CKPT_OK && strcmp(name, "config.json") == 0 && !w->below)
        rc = side_plain(w, bytes, n);
    else if (rc == CKPT_OK)
        rc = side_add(w, name, bytes, n);
    if (rc == CKPT_OK && side_ends(name, ".json") && !ckpt_json_closed(bytes, n))
        rc = ckpt_map_note(
            w->to, CKPT_WARNING, w->err,
            "%s: copied unchanged, but it is damaged or cut off: not a complete JSON value", path);
    ckpt_free(bytes);
    return rc;
}

static int side_take_file(side_work *w, const ckpt_entry *e)
{
    side_kind kind = side_of_file(w, e->name);

    if (kind == SIDE_COPIED || (kind == SIDE_COPIED_SMALL && e->size <= SIDE_SMALL))
        return side_copy(w, &w->list, e, e->name);
    return kind == SIDE_SILENT ? CKPT_OK : side_leave(w, e->name, "");
}

/* Copy the files of a subfolder, without its own subfolders. */
static int side_take_folder(side_work *w, const char *name)
{
    side_kind kind = side_of_folder(w, name);
    ckpt_listing below = {0};
    struct stat st;
    const char *path = ckpt_arena_printf(w->scratch->arena, "%s/%s", w->list.folder, name);
    int rc = path ? CKPT_OK : ckpt_fail_memory(w->err);

    if (rc != CKPT_OK || kind == SIDE_SILENT)
        return rc;
    if (kind == SIDE_LEFT ||
        (!ckpt_address_is(path) && (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode))))
        return side_leave(w, name, "/");
    rc = ckpt_listing_read(&below, w->scratch, path, w->err);
    for (size_t i = 0; rc == CKPT_OK && i < below.n; i++) {
        const char *inner =
            ckpt_arena_printf(w->scratch->arena, "%s/%s", name, below.entry[i].name);

        if (!inner)
            rc = ckpt_fail_memory(w->err);
        else if (below.entry[i].is_dir)
            rc = side_leave(w, inner, "/");
        else
            rc = side_copy(w, &below, &below.entry[i], inner);
    }
    return rc;
}

/* ---- the folder ---- */

/* True if a configuration names classes of code in the folder. */
static bool side_names_code(const side_work *w)
{
    static const char *const names[] = {"config.json", "tokenizer_config.json",
                                        "processor_config.json", "preprocessor_config.json"};
    bool found = false;

    for (size_t i = 0; !found && i < sizeof names / sizeof *names; i++) {
        const ckpt_entry *e = ckpt_listing_find(&w->list, names[i]);
        const char *path =
            e ? ckpt_arena_printf(w->scratch->arena, "%s/%s", w->list.folder, names[i]) : NULL;
        char *text = NULL;
        uint64_t n = 0;

        found = path && ckpt_io_slurp(&text, &n, path, SIDE_MAX, NULL) == CKPT_OK && text &&
                strstr(text, "\"auto_map\"");
        ckpt_free(text);
    }
    return found;
}

/* Write config.json from the layout map, if the source's folder has no configuration. */
static int side_made(side_work *w)
{
    ckpt_bytes text = {0};
    int rc = CKPT_OK;

    if (w->adapter || (!w->from->config.text && ckpt_listing_find(&w->list, "config.json")))
        return CKPT_OK;
    rc = ckpt_model_folder_config(&text, w->to, w->from, "config.json", w->err);
    if (rc == CKPT_OK && text.n > 0)
        rc = side_plain(w, (const char *)text.at, text.n);
    ckpt_vec_free(&text);
    return rc;
}

static const char *side_class(const ckpt_value *config, ckpt_arena *arena)
{
    const ckpt_value *class = ckpt_value_get(config, "_class_name");

    if (!class || ckpt_value_get(config, "model_type"))
        return NULL;
    // code of its own may be a list of a module and a class
    return class->kind == CKPT_V_STR ? ckpt_arena_string(arena, class->as.text.at, class->as.text.n)
                                     : "";
}

const char *ckpt_hf_diffusers_class(const ckpt_map *from, ckpt_arena *arena)
{
    ckpt_map *scratch = NULL;
    ckpt_listing list;
    ckpt_value *config = NULL;
    const char *class = NULL;

    // a configuration given with --config has priority over the one in the source's folder
    if (from->config.value)
        return side_class(from->config.value, arena);
    if (ckpt_map_create(&scratch, 0, NULL) != CKPT_OK)
        return NULL;
    if (ckpt_model_folder_list(&list, scratch, from, NULL) == CKPT_OK &&
        ckpt_listing_find(&list, "config.json")) {
        const char *path = ckpt_path_join(scratch->arena, list.folder, "config.json");
        if (path && ckpt_json_read(&config, scratch->arena, path, SIDE_MAX, NULL) == CKPT_OK)
            class = side_class(config, arena);
    }
    ckpt_map_free(scratch);
    return class;
}

/* Check that programs read the quantized weights of such a model. */
static int side_quantized(const side_work *w, const ckpt_value *config)
{
    // programs quantize modules of nn.Linear; these have transformers' Conv1D, [in, out]
    static const char *const types[] = {"gpt2", "openai-gpt", "imagegpt", "decision_transformer",
                                        "clvp"};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (ckpt_value_is(ckpt_value_get(config, "model_type"), types[i]))
            return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                             "quantize: the layers of models of type %s are Conv1D, not nn.Linear, "
                             "and programs do not read them quantized%s",
                             types[i],
                             i == 0 ? "; for llama.cpp, write a GGUF file (--to gguf --dtype q8_0)"
                                    : "");
    }
    return strcmp(w->from->quantization_key, "quantization") == 0
               ? ckpt_hf_mlx_written(config, w->err)
               : CKPT_OK;
}

/* Decide whether the output's weights are floats although its configuration states a quantization.
 */
static int side_floats(side_work *w)
{
    const ckpt_value *config = w->from->config.value;
    ckpt_value *read = NULL;

    w->floats = w->from->dequantized;
    if (w->floats || w->adapter || w->from->adapter_config)
        return CKPT_OK;
    if (!config && ckpt_listing_find(&w->list, "config.json")) {
        const char *path = ckpt_path_join(w->scratch->arena, w->list.folder, "config.json");
        if (!path)
            return ckpt_fail_memory(w->err);
        // copying reports a damaged file
        (void)ckpt_json_read(&read, w->scratch->arena, path, SIDE_MAX, NULL);
        config = read;
    }
    if (w->from->quantization)
        return side_quantized(w, config);
    w->floats = ckpt_hf_quant_floats(w->to, config);
    return w->floats ? ckpt_map_note(w->to, CKPT_INFO, w->err,
                                     "quantization_config is left out of config.json, because the "
                                     "output's weights are floats")
                     : CKPT_OK;
}

bool ckpt_hf_has_config(const ckpt_map *to)
{
    for (size_t i = 0; i < to->files.n; i++) {
        if (strcmp(to->files.at[i].path, "config.json") == 0)
            return true;
    }
    return false;
}

/* True if the output has a file from which tokenizers are loaded. */
static bool side_has_tokenizer(const ckpt_map *to)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "vocab.json",
                                        "vocab.txt",      "spiece.model",    NULL};
    bool has = false;

    for (size_t i = 0; !has && i < to->files.n; i++)
        has = side_any(to->files.at[i].path, names, side_equals);
    return has;
}

/* The configuration beside the output's weights; NULL: none. */
static int side_config(const ckpt_value **out, const side_work *w)
{
    ckpt_value *read = NULL;
    const char *path;

    *out = NULL;
    if (!ckpt_hf_has_config(w->to))
        return CKPT_OK;
    *out = w->from->config.value;
    if (w->from->config.text || !ckpt_listing_find(&w->list, "config.json"))
        return CKPT_OK;
    path = ckpt_path_join(w->scratch->arena, w->list.folder, "config.json");
    int rc = path ? ckpt_json_read(&read, w->scratch->arena, path, SIDE_MAX, w->err)
                  : ckpt_fail_memory(w->err);
    *out = read;
    return rc;
}

/*
 * A GGUF file has no key for tied embeddings: readers take a file without output.weight for a tied
 * model. The configuration must agree.
 */
static int side_head(const side_work *w)
{
    static const char head[] = "lm_head.weight", neox[] = "embed_out.weight";
    static const char key[] = "tie_word_embeddings";
    const ckpt_value *config, *tie;
    int rc;

    if (w->adapter || w->from->selected || !w->from->format ||
        strcmp(w->from->format, "gguf") != 0 ||
        ckpt_map_index(w->from, head, sizeof head - 1) != SIZE_MAX ||
        ckpt_map_index(w->from, neox, sizeof neox - 1) != SIZE_MAX)
        return CKPT_OK;
    rc = side_config(&config, w);
    if (rc != CKPT_OK || !config)
        return rc;
    if (ckpt_hf_untied(config))
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "%s: output.weight is missing, but config.json says that the output head "
                         "is not tied to the embedding: copy or convert the GGUF file again, or "
                         "set %s to true in config.json if the model is tied",
                         w->from->path, key);
    tie = config == w->from->config.value ? ckpt_value_get(config, key) : NULL;
    return tie && tie->kind == CKPT_V_BOOL && tie->as.i && !w->from->config.text
               ? ckpt_map_note(w->to, CKPT_INFO, w->err,
                               "%s has no output.weight, so config.json ties the output head to "
                               "the embedding (%s), as llama.cpp does",
                               w->from->path, key)
               : CKPT_OK;
}

/* Note files that loaders of a model folder require and this output lacks. */
static int side_lacks(const side_work *w)
{
    bool gguf = w->from->format && strcmp(w->from->format, "gguf") == 0;
    int rc = CKPT_OK;

    if (w->adapter || w->from->adapter_config)
        return CKPT_OK;
    if (!ckpt_hf_has_config(w->to) && !w->from->config.missing && !w->from->quantization)
        // warn if other files of transformers show that config.json is missing
        rc = ckpt_map_note(
            w->to, ckpt_listing_find(&w->list, "generation_config.json") ? CKPT_WARNING : CKPT_INFO,
            w->err,
            "no config.json is beside the source, so transformers cannot load the output; "
            "copy one into it, or give one to convert or reshard with --config PATH");
    if (rc == CKPT_OK && gguf && !side_has_tokenizer(w->to))
        rc = ckpt_map_note(w->to, CKPT_WARNING, w->err,
                           "no tokenizer is written: ckpt does not convert the tokenizer of a GGUF "
                           "file; --config FOLDER copies the files of the model's own folder");
    return rc;
}

/* Check that the output has the whole model, unless the caller has selected its tensors. */
static int side_whole(const side_work *w)
{
    const ckpt_map *from = w->from;

    if (w->adapter || from->adapter_config || from->selected)
        return CKPT_OK;
    return ckpt_hf_written(w->to, from, w->config, w->err);
}

/* Note the files that were not copied. */
static int side_note_left(const side_work *w)
{
    const char *folder = w->list.folder;

    if (w->n_left > SIDE_MAX_LISTED)
        return ckpt_map_note(w->to, CKPT_INFO, w->err, "%s: not copied: %s and %zu more", folder,
                             w->left, w->n_left - SIDE_MAX_LISTED);
    return w->n_left == 0
               ? CKPT_OK
               : ckpt_map_note(w->to, CKPT_INFO, w->err, "%s: not copied: %s", folder, w->left);
}

int ckpt_hf_side_pipeline(ckpt_map *to, const ckpt_listing *list, const char *below,
                          const char *const *taken, ckpt_err *err)
{
    assert(to && list && below);
    side_work w = {.to = to, .below = below, .list = *list, .err = err};
    int rc = ckpt_map_create(&w.scratch, 0, err);

    for (size_t i = 0; rc == CKPT_OK && i < list->n; i++) {
        const ckpt_entry *e = &list->entry[i];
        const side_kind kind = e->is_dir ? SIDE_LEFT : side_of_file(&w, e->name);
        const char *name = ckpt_arena_printf(w.scratch->arena, "%s%s", below, e->name);

        if (!name)
            rc = ckpt_fail_memory(err);
        else if ((taken && side_any(e->name, taken, side_equals)) || e->name[0] == '.')
            continue;
        else if (kind == SIDE_COPIED || (kind == SIDE_COPIED_SMALL && e->size <= SIDE_SMALL))
            rc = side_copy(&w, list, e, name);
        else if (kind != SIDE_SILENT)
            rc = side_leave(&w, e->name, e->is_dir ? "/" : "");
    }
    if (rc == CKPT_OK)
        rc = side_note_left(&w);
    ckpt_map_free(w.scratch);
    return rc;
}

int ckpt_hf_side_files(ckpt_map *to, const ckpt_map *from, const char *dtype, bool adapter,
                       ckpt_err *err)
{
    side_work w = {.to = to, .from = from, .dtype = dtype, .adapter = adapter, .err = err};
    int rc = ckpt_map_create(&w.scratch, 0, err);

    if (rc == CKPT_OK)
        rc = ckpt_model_folder_list(&w.list, w.scratch, from, err);
    w.is_model = rc == CKPT_OK && ckpt_model_folder_is(&w.list);
    w.has_code = w.is_model && side_names_code(&w);
    if (rc == CKPT_OK)
        rc = side_floats(&w);
    for (size_t i = 0; rc == CKPT_OK && i < w.list.n; i++)
        rc = w.list.entry[i].is_dir ? side_take_folder(&w, w.list.entry[i].name)
                                    : side_take_file(&w, &w.list.entry[i]);
    if (rc == CKPT_OK)
        rc = side_made(&w);
    if (rc == CKPT_OK)
        rc = side_head(&w);
    if (rc == CKPT_OK)
        rc = side_whole(&w);
    if (rc == CKPT_OK)
        rc = side_lacks(&w);
    if (rc == CKPT_OK && from->quantization && !ckpt_hf_has_config(to))
        rc = ckpt_fail(err, CKPT_EMISSING,
                       "%s: config.json is missing, but it must say how the weights are quantized; "
                       "give it with --config FOLDER",
                       w.list.folder);
    if (rc == CKPT_OK)
        rc = side_note_left(&w);
    ckpt_map_free(w.scratch);
    return rc;
}
