/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value_counts.c: decides which differences of values change what a program computes, and which
 * only describe the file or its writer.
 */
#include "libckpt/inspect/value_counts.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/dtype.h"

const char ckpt_second_key[] = " in a second key";

static bool vct_begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool vct_ends(const char *text, const char *with)
{
    const size_t n = strlen(text), m = strlen(with);

    return n >= m && strcmp(text + n - m, with) == 0;
}

/* GGUF: keys of the architecture and the tokenizer count, those that describe the file do not. */
bool ckpt_counts_gguf(const ckpt_map *in, const char *path, const char *a, const char *b)
{
    (void)in, (void)a, (void)b;
    return strcmp(path, "general.architecture") == 0 ||
           (!vct_begins(path, "general.") && !vct_begins(path, "quantize."));
}

/* Training state: all but the version of the program. */
bool ckpt_counts_state(const ckpt_map *in, const char *path, const char *a, const char *b)
{
    const char *dot = strrchr(path, '.');

    (void)in, (void)a, (void)b;
    return strcmp(dot ? dot + 1 : path, "ds_version") != 0;
}

/* Torch files: values that ckpt writes, but not those that other programs add. */
bool ckpt_counts_torch(const ckpt_map *in, const char *path, const char *a, const char *b)
{
    (void)in, (void)path, (void)b;
    return a != NULL;
}

/*
 * Universal checkpoints: DeepSpeed's script leaves out the description of the layout that a run of
 * this release stores, and the settings of groups that it stores a second time.
 */
bool ckpt_counts_universal(const ckpt_map *in, const char *path, const char *a, const char *b)
{
    return ckpt_counts_state(in, path, a, b) &&
           strcmp(path, "model_states.universal_checkpoint_info") != 0 &&
           strcmp(path, "optim_states.optimizer_state_dict") != 0 &&
           strcmp(path, "optim_states.fp32_flat_groups") != 0;
}

bool ckpt_counts_none(const ckpt_map *in, const char *path, const char *a, const char *b)
{
    (void)in, (void)path, (void)a, (void)b;
    return false;
}

/* True if the text 'bfloat16' or 'torch.bfloat16' is the dtype of a tensor. */
static bool vct_has_dtype(const ckpt_map *map, const char *text)
{
    char name[32];
    ckpt_dtype dtype;
    bool has = false;

    text += vct_begins(text, "'torch.") ? 7 : *text == '\'';
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "'"), text);
    dtype = ckpt_dtype_parse(name);
    for (size_t i = 0; !has && dtype != CKPT_DTYPE_NONE && i < map->tensors.n; i++)
        has = map->tensors.at[i]->dtype == dtype;
    return has;
}

/* True if the tensors of a checkpoint have no biases. */
static bool vct_no_bias(const ckpt_map *map)
{
    bool none = true;

    for (size_t i = 0; none && i < map->tensors.n; i++)
        none = !vct_ends(map->tensors.at[i]->name, "bias");
    return none;
}

/* True for a key that programs add with the value that it has without them. */
static bool vct_is_default(const ckpt_map *in, const char *key, const char *value)
{
    static const char *const known[][2] = {{"initializer_range", NULL}, {"bos_token_id", NULL},
                                           {"eos_token_id", NULL},      {"dropout", "0"},
                                           {"pretraining_tp", "1"},     {"bias", "false"}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (vct_ends(key, known[i][0]) && (!known[i][1] || strcmp(value, known[i][1]) == 0))
            return !vct_ends(key, "bias") || vct_no_bias(in);
    }
    return false;
}

/*
 * A configuration: a key that decides how a model is computed counts, also one that only B has,
 * because its default may be another value.  Unknown keys count.  mergekit writes the dtype of its
 * tensors, where ckpt merge keeps the source's.
 */
static bool vct_counts_config(const ckpt_map *in, const char *path, const char *a, const char *b)
{
    static const char *const about[] = {"transformers_version", "_name_or_path", "use_cache",
                                        "_commit_hash", "auto_map"};
    const char *key =
        path + strlen(path) - (vct_ends(path, ckpt_second_key) ? strlen(ckpt_second_key) : 0);

    while (key > path && key[-1] != '.' && key[-1] != ' ')
        key--;
    for (size_t i = 0; i < sizeof about / sizeof *about; i++) {
        if (strcmp(key, about[i]) == 0)
            return false;
    }
    if (strcmp(key, "torch_dtype") == 0)
        return b && !vct_has_dtype(in, b);
    return b ? a || !vct_is_default(in, key, b) : strcmp(key, "architectures") != 0;
}

/* True for files that decide which tokens a text becomes. */
static bool vct_is_vocabulary(const char *name)
{
    static const char *const begin[] = {"tokenizer",
                                        "vocab",
                                        "merges.txt",
                                        "spiece",
                                        "chat_template",
                                        "tekken.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json"};
    bool is = vct_ends(name, ".model") || vct_ends(name, ".tiktoken") || vct_ends(name, ".spm");

    for (size_t i = 0; !is && i < sizeof begin / sizeof *begin; i++)
        is = vct_begins(name, begin[i]);
    return is;
}

bool ckpt_counts_all(const ckpt_map *in, const char *path, const char *a, const char *b)
{
    (void)in, (void)path, (void)a, (void)b;
    return true;
}

/* True for a file of weights, or their index, which a loader may prefer. */
bool ckpt_is_weights(const char *name)
{
    return vct_ends(name, ".safetensors") || vct_ends(name, ".index.json") ||
           (vct_ends(name, ".bin") &&
            (vct_begins(name, "pytorch_model") || vct_begins(name, "adapter_model") ||
             vct_begins(name, "model")));
}

/* The rule for a file that both folders have, or only the first. */
ckpt_counts_fn *ckpt_counts_of_file(const char *name)
{
    if (strcmp(name, "config.json") == 0)
        return vct_counts_config;
    return vct_is_vocabulary(name) || strcmp(name, "params.json") == 0 ||
                   strcmp(name, "fsdp_config.json") == 0
               ? ckpt_counts_all
               : ckpt_counts_none;
}
