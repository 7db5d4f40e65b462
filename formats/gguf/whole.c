/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whole.c: compares a model's tensors with the keys of its architecture.
 *
 * Blocks are compared in every architecture, and sizes and tensors outside of blocks only in the
 * architectures of gz_plain, whose tensors and keys are all of one kind.  Source: llama.cpp's
 * llama-arch.cpp and llama-model.cpp, of 2025.
 */
#include "formats/gguf/gguf.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/number.h"
#include "libckpt/map/gaps.h"

enum { GZ_MOST = 99999 };

static const char *const gz_plain[] = {"llama",    "qwen2", "qwen3",  "qwen2moe",
                                       "qwen3moe", "gemma", "gemma2", NULL};

/* A key of the architecture; NULL: absent. */
static const ckpt_key *gz_key(const ckpt_map *map, const char *arch, const char *key)
{
    char name[128];

    (void)snprintf(name, sizeof name, "%.60s.%.60s", arch, key);
    return ckpt_gguf_key(map, name);
}

/* A number of the architecture; 0: absent, or a list with a number for each block. */
static uint64_t gz_number(const ckpt_map *map, const char *arch, const char *key)
{
    char name[128];
    uint64_t n = 0;

    (void)snprintf(name, sizeof name, "%.60s.%.60s", arch, key);
    return ckpt_gguf_number(map, name, &n) && n <= UINT32_MAX ? n : 0;
}

/* True if blocks differ by the keys: a list has a number for each block. */
static bool gz_uneven(const ckpt_map *map, const char *arch)
{
    static const char *const keys[] = {"attention.head_count", "attention.head_count_kv",
                                       "feed_forward_length", NULL};

    for (size_t i = 0; keys[i]; i++) {
        const ckpt_key *k = gz_key(map, arch, keys[i]);
        if (k && k->list)
            return true;
    }
    return gz_number(map, arch, "attention.shared_kv_layers") > 0;
}

/* Count the blocks below `known` that have tensors; *past: number of the last block + 1. */
static int gz_count(const ckpt_map *map, uint64_t known, uint64_t *here, uint64_t *past,
                    ckpt_err *err)
{
    uint8_t *is = ckpt_alloc((size_t)known + 1);

    *here = *past = 0;
    if (!is)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < map->tensors.n; i++) {
        const char *name = map->tensors.at[i]->name;
        uint64_t n = 0;
        const char *end = strncmp(name, "blk.", 4) == 0 ? ckpt_scan_u64(name + 4, &n) : NULL;
        if (!end || *end != '.' || n > GZ_MOST)
            continue;
        *past = n + 1 > *past ? n + 1 : *past;
        *here += n < known && !is[n];
        is[n < known ? n : known] = 1;
    }
    ckpt_free(is);
    return CKPT_OK;
}

/* An architecture with the same tensors in all blocks; outer: its tensors outside of the blocks. */
typedef struct gz_uniform {
    const char *arch;
    const char *outer[4];
} gz_uniform;

static const gz_uniform gz_uniforms[] = {
    {"gpt2", {"token_embd.weight", "position_embd.weight", "output_norm.weight"}},
    {"gptneox", {"token_embd.weight", "output_norm.weight", "output.weight"}},
    {"phi3", {"token_embd.weight", "output_norm.weight"}},
    {"gpt-oss", {"token_embd.weight", "output_norm.weight", "output.weight"}},
    {"starcoder2", {"token_embd.weight", "output_norm.weight"}},
    {"gemma3", {"token_embd.weight", "output_norm.weight"}},
    {"olmo2", {"token_embd.weight", "output_norm.weight"}},
    {"smollm3", {"token_embd.weight", "output_norm.weight"}},
    {"llama", {NULL}}, // and those of gz_plain, whose outer tensors gz_others checks
    {"qwen2", {NULL}},
    {"qwen3", {NULL}},
    {"gemma", {NULL}},
    {"gemma2", {NULL}},
};

/* The row of an architecture; NULL: its blocks may differ. */
static const gz_uniform *gz_uniform_of(const char *arch)
{
    for (size_t i = 0; i < sizeof gz_uniforms / sizeof *gz_uniforms; i++) {
        if (strcmp(gz_uniforms[i].arch, arch) == 0)
            return &gz_uniforms[i];
    }
    return NULL;
}

/* Report a tensor that one block lacks; uniform: all blocks have the same names. */
static int gz_gap(ckpt_map *map, const char *name, bool uniform, ckpt_err *err)
{
    const ckpt_stack stack = {.prefix = "blk", .n_prefix = 3, .uniform = uniform};
    ckpt_gap gap;
    int rc = ckpt_gap_find(map, &stack, &gap, err);

    if (rc != CKPT_OK || !gap.found)
        return rc;
    return ckpt_map_problem(map, CKPT_EMISSING, err,
                            "%s: blk.%" PRIu64 ".%s is missing, but block %" PRIu64
                            " has it: a part of the model is missing; copy or convert it again",
                            name, gap.layer, gap.key, gap.like);
}

static const ckpt_tensor *gz_tensor(const ckpt_map *map, const char *name)
{
    size_t i = ckpt_map_index(map, name, strlen(name));

    return i == SIZE_MAX ? NULL : map->tensors.at[i];
}

/* The size of an axis of a tensor, as the keys have it; 0: they have none. */
typedef struct gz_size {
    const char *tensor;
    unsigned axis;
    uint64_t expected;
    const char *key;
} gz_size;

static int gz_axis(ckpt_map *map, const char *name, const gz_size *s, ckpt_err *err)
{
    const ckpt_tensor *t = gz_tensor(map, s->tensor);

    if (!t || t->ndim != 2 || s->expected == 0 || t->shape[s->axis] == s->expected)
        return CKPT_OK;
    return ckpt_map_problem(map, CKPT_EMISMATCH, err,
                            "%s: %s has %" PRIu64 " %s, but its keys say %" PRIu64
                            " (%s): the keys are of another model; convert it again",
                            name, s->tensor, t->shape[s->axis], s->axis ? "columns" : "rows",
                            s->expected, s->key);
}

/* Report a tensor that every model of an architecture has. */
static int gz_need(ckpt_map *map, const char *name, const char *tensor, const char *arch,
                   ckpt_err *err)
{
    if (gz_tensor(map, tensor))
        return CKPT_OK;
    return ckpt_map_problem(map, CKPT_EMISSING, err,
                            "%s: %s is missing, which every model of the architecture %s has; "
                            "copy or convert it again",
                            name, tensor, arch);
}

/* Compare sizes in the keys with the first block and the embedding. */
static int gz_sizes(ckpt_map *map, const char *name, const char *arch, ckpt_err *err)
{
    uint64_t width = gz_number(map, arch, "embedding_length");
    uint64_t heads = gz_number(map, arch, "attention.head_count");
    uint64_t kv = gz_number(map, arch, "attention.head_count_kv");
    uint64_t head = gz_number(map, arch, "attention.key_length");
    uint64_t hidden = gz_number(map, arch, "feed_forward_length");
    int rc = CKPT_OK;

    head = head ? head : heads ? width / heads : 0;
    const gz_size size[] = {
        {"token_embd.weight", 1, width, "embedding_length"},
        {"token_embd.weight", 0, gz_number(map, arch, "vocab_size"), "vocab_size"},
        {"blk.0.ffn_up.weight", 0, hidden, "feed_forward_length"},
        {"blk.0.attn_q.weight", 0, heads * head, "attention.head_count x head size"},
        {"blk.0.attn_k.weight", 0, (kv ? kv : heads) * head,
         "attention.head_count_kv x head size"}};
    for (size_t i = 0; rc == CKPT_OK && i < sizeof size / sizeof *size; i++)
        rc = gz_axis(map, name, &size[i], err);
    return rc;
}

/* Check that tensors outside of blocks, and experts, are there. */
static int gz_others(ckpt_map *map, const char *name, const char *arch, ckpt_err *err)
{
    static const char *const needed[] = {"token_embd.weight", "output_norm.weight", NULL};
    uint64_t experts = gz_number(map, arch, "expert_count");
    int rc = CKPT_OK;
    bool any = experts == 0;

    for (size_t i = 0; rc == CKPT_OK && needed[i]; i++)
        rc = gz_need(map, name, needed[i], arch, err);
    for (size_t i = 0; i < map->tensors.n && !any; i++)
        any = strstr(map->tensors.at[i]->name, ".ffn_gate_inp") != NULL;
    if (rc == CKPT_OK && !any)
        rc = ckpt_map_problem(map, CKPT_EMISMATCH, err,
                              "%s: its keys say %" PRIu64
                              " experts (expert_count), but no block has a router "
                              "(ffn_gate_inp.weight): convert it again",
                              name, experts);
    return rc;
}

/* True for a model; adapters and other files have another general.type. */
static bool gz_is_model(const ckpt_map *map)
{
    const ckpt_key *type = ckpt_gguf_key(map, "general.type");

    return !type || type->list || type->value->kind != CKPT_V_STR ||
           ckpt_value_is(type->value, "model");
}

/* True for a model of an architecture in gz_plain, with the names of its tensors. */
static bool gz_is_plain(const ckpt_map *map, const char *arch)
{
    bool is = false;

    if (!gz_tensor(map, "blk.0.attn_q.weight"))
        return false;
    for (size_t i = 0; gz_plain[i]; i++)
        is = is || strcmp(gz_plain[i], arch) == 0;
    return is && gz_is_model(map);
}

/*
 * Report a key of 0 that is a size of tensors that are here; models without attention have no
 * heads, and say 0.
 */
static int gz_zeros(ckpt_map *map, const char *name, const char *arch, ckpt_err *err)
{
    static const struct {
        const char *key, *tensor;
    } sizes[] = {{"block_count", "blk.0.attn_norm.weight"},
                 {"embedding_length", "token_embd.weight"},
                 {"attention.head_count", "blk.0.attn_q.weight"},
                 {"attention.head_count", "blk.0.attn_qkv.weight"},
                 {"attention.head_count_kv", "blk.0.attn_k.weight"}};
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && gz_is_model(map) && i < sizeof sizes / sizeof *sizes; i++) {
        const ckpt_key *k = gz_key(map, arch, sizes[i].key);
        int64_t n = 1;
        if (k && !k->list && ckpt_value_as_int(k->value, &n) && n == 0 &&
            gz_tensor(map, sizes[i].tensor))
            rc = ckpt_map_problem(map, CKPT_EFORMAT, err,
                                  "%s: the key %s.%s is 0, but the tensor %s is here: correct the "
                                  "model's configuration, and convert it again",
                                  name, arch, sizes[i].key, sizes[i].tensor);
    }
    return rc;
}

int ckpt_gguf_blocks(ckpt_map *map, const char *name, ckpt_err *err)
{
    assert(map && name);
    const ckpt_key *arch_key = ckpt_gguf_key(map, "general.architecture");
    uint64_t here = 0, past = 0, known, more;
    const char *arch;
    bool uneven;
    int rc;

    if (!arch_key || arch_key->list || arch_key->value->kind != CKPT_V_STR)
        return CKPT_OK;
    arch = arch_key->value->as.text.at;
    known = gz_number(map, arch, "block_count");
    rc = gz_zeros(map, name, arch, err);
    if (rc != CKPT_OK || known == 0 || known > GZ_MOST)
        return rc;
    uneven = gz_uneven(map, arch);
    rc = gz_count(map, known, &here, &past, err);
    if (rc != CKPT_OK || past == 0)
        return rc;
    if (past > known)
        return ckpt_map_problem(map, CKPT_EMISMATCH, err,
                                "%s: tensors of %" PRIu64 " blocks are here, but its keys say "
                                "%" PRIu64 " (block_count): the keys are of another model; "
                                "convert it again",
                                name, past, known);
    // llama.cpp's converter counts the blocks that predict more tokens, also if weights lack them
    more = gz_number(map, arch, "nextn_predict_layers");
    if (more < known && past <= known - more)
        known -= more;
    // if heads differ by block, some blocks may have no tensors
    if (here < known && !uneven)
        return ckpt_map_problem(map, CKPT_EMISSING, err,
                                "%s: tensors of %" PRIu64 " blocks are here, but its keys say "
                                "%" PRIu64 ": the file is a piece of a model",
                                name, here, known);
    // the first block of ModernBERT has no attn_norm
    if (!uneven && gz_is_model(map) && strcmp(arch, "modern-bert") != 0)
        rc = gz_gap(map, name, known >= 2 && gz_uniform_of(arch) != NULL, err);
    const gz_uniform *row = gz_is_model(map) ? gz_uniform_of(arch) : NULL;
    for (size_t i = 0; rc == CKPT_OK && row && i < 4 && row->outer[i]; i++)
        rc = gz_need(map, name, row->outer[i], arch, err);
    if (rc == CKPT_OK && gz_is_plain(map, arch))
        rc = gz_others(map, name, arch, err);
    return rc == CKPT_OK && !uneven && gz_is_plain(map, arch) ? gz_sizes(map, name, arch, err) : rc;
}
