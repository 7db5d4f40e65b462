/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mmproj.c: the driver for llama.cpp's second file of a model that sees images: its vision tower
 * and the projector, in GGUF.
 *
 * A layout map gives tensors and keys (hf-mmproj-*.map); this file chooses the types.  The file
 * itself is written and read as every GGUF file.  Source of the types: llama.cpp's converter
 * (MmprojModel and its classes), of 2026.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/gguf/model.h"
#include "libckpt/base/cast.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/number.h"

/* Types of a whole file, with their numbers in general.file_type. */
static const struct {
    ckpt_dtype type;
    uint64_t number;
} mmp_types[] = {{CKPT_F32, 0}, {CKPT_F16, 1}, {CKPT_Q8_0, 7}, {CKPT_BF16, 32}};

enum { MMP_BLOCKS = 1024 }; /* limit of a tower's blocks */

static bool mmp_ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

/* The type of a tensor in a file of this type; gemma: the projector is Gemma 3's. */
static ckpt_dtype mmp_type(const ckpt_tensor *t, ckpt_dtype of_file, bool gemma)
{
    const bool patches =
        strstr(t->name, ".patch_embd.weight") || strstr(t->name, ".patch_merger.weight");

    if (t->ndim <= 1 || mmp_ends(t->name, "_norm.weight"))
        return CKPT_F32;
    if (gemma && strcmp(t->name, "mm.input_projection.weight") == 0)
        return CKPT_F16;
    if (patches)
        return of_file == CKPT_F16 && !gemma ? CKPT_F16 : CKPT_F32;
    if (strcmp(t->name, "v.position_embd.weight") == 0 || !mmp_ends(t->name, ".weight"))
        return CKPT_F32;
    if (t->shape[t->ndim - 1] % ckpt_dtype_get(of_file)->per != 0)
        return CKPT_F16;
    return of_file;
}

/* The type of the file: the target's, or that of most elements of the source. */
static ckpt_dtype mmp_of_file(const ckpt_map *to, const ckpt_target *target)
{
    uint64_t n[CKPT_N_DTYPES] = {0};
    ckpt_dtype most = CKPT_F32;

    if (target->dtype != CKPT_DTYPE_NONE)
        return target->dtype;
    for (size_t i = 0; i < to->tensors.n; i++)
        n[to->tensors.at[i]->dtype] += to->tensors.at[i]->n_elems;
    for (size_t k = 0; k < sizeof mmp_types / sizeof *mmp_types; k++)
        most = n[mmp_types[k].type] > n[most] ? mmp_types[k].type : most;
    return most;
}

/* Choose the tensors' types. */
static int mmp_choose(ckpt_map *to, ckpt_dtype of_file, ckpt_err *err)
{
    const ckpt_key *kind = ckpt_gguf_key(to, "clip.projector_type");
    const bool gemma = kind && ckpt_value_is(kind->value, "gemma3");

    for (size_t i = 0; i < to->tensors.n; i++) {
        ckpt_tensor *t = to->tensors.at[i];
        const ckpt_dtype type = mmp_type(t, of_file, gemma);

        if (ckpt_dtype_get(t->dtype)->kind != CKPT_IS_FLOAT)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "tensor %.200s has dtype %s; a file for images has floats alone",
                             t->name, ckpt_dtype_name(t->dtype));
        if (type != t->dtype && !ckpt_cast_find(type, t->dtype))
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %.200s: %s cannot be converted to %s",
                             t->name, ckpt_dtype_name(t->dtype), ckpt_dtype_name(type));
        t->dtype = type;
    }
    return CKPT_OK;
}

/* The name of a block's tensor after "v.blk.N."; NULL: it is in no block. */
static const char *mmp_key(const ckpt_tensor *t, uint64_t *block)
{
    const char *end = strncmp(t->name, "v.blk.", 6) == 0 ? ckpt_scan_u64(t->name + 6, block) : NULL;

    return end && *end == '.' ? end + 1 : NULL;
}

/* Refuse a vision tower with blocks that differ: each has the tensors of the first block. */
static int mmp_blocks(const ckpt_map *to, const ckpt_map *from, ckpt_err *err)
{
    uint64_t depth = 0, block = 0;
    char name[CKPT_GGUF_NAME];

    (void)ckpt_gguf_number(to, "clip.vision.block_count", &depth);
    if (depth > MMP_BLOCKS)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: %" PRIu64 " blocks are more than %d", from->path,
                         depth, (int)MMP_BLOCKS);
    for (uint64_t b = 1; b < depth; b++) {
        for (size_t i = 0; i < to->tensors.n; i++) {
            const char *key = mmp_key(to->tensors.at[i], &block);
            // of this block, in the first; of the first, in this block
            const uint64_t other = block == b ? 0 : b;
            if (!key || (block != 0 && block != b) ||
                snprintf(name, sizeof name, "v.blk.%" PRIu64 ".%s", other, key) >= (int)sizeof name)
                continue;
            if (ckpt_map_index(to, name, strlen(name)) == SIZE_MAX)
                return ckpt_fail(err, CKPT_EMISSING,
                                 "%s: the model has no tensor for %s of llama.cpp, but block "
                                 "%" PRIu64 " of the vision tower has one: a part of the model is "
                                 "missing; copy it again",
                                 from->path, name, block);
        }
    }
    return CKPT_OK;
}

/* Refuse a tower without the tensors that every kind has, or with an empty one. */
static int mmp_needed(const ckpt_map *to, const ckpt_map *from, ckpt_err *err)
{
    static const char *const needed[] = {"v.patch_embd.weight",   "v.blk.0.ln1.weight",
                                         "v.blk.0.ln2.weight",    "v.blk.0.attn_out.weight",
                                         "v.blk.0.ffn_up.weight", "v.blk.0.ffn_down.weight"};

    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (ckpt_map_index(to, needed[i], strlen(needed[i])) == SIZE_MAX)
            return ckpt_fail(
                err, CKPT_EMISSING,
                "%s: the model has no tensor for %s of llama.cpp: a part of the vision "
                "tower is missing; copy it again",
                from->path, needed[i]);
    }
    for (size_t i = 0; i < to->tensors.n; i++) {
        if (to->tensors.at[i]->n_elems == 0)
            return ckpt_fail(err, CKPT_EMISMATCH, "%s: tensor %.200s has no elements", from->path,
                             to->tensors.at[i]->name);
    }
    return CKPT_OK;
}

/* ckpt_format.scatter */
static int mmp_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    const ckpt_key *arch = ckpt_gguf_key(to, "general.architecture");
    const ckpt_dtype of_file = mmp_of_file(to, target);
    uint64_t number = 0;
    int rc = CKPT_OK;

    if (!arch || !ckpt_value_is(arch->value, "clip"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: no layout map makes llama.cpp's file for images of this model; "
                         "`ckpt maps` lists those that do (hf:mmproj)",
                         from->path);
    if (target->max_shard_size > 0)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "max_shard_size: llama.cpp loads a file for images as one file only");
    // without llama.cpp's own types for norms and patches it would not load the file
    if (target->dtypes)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "dtype: a file for images has one dtype (f32, f16, bf16, q8_0) instead of "
                         "patterns, because llama.cpp needs some tensors in other dtypes");
    for (size_t k = 0; k < sizeof mmp_types / sizeof *mmp_types; k++)
        number = mmp_types[k].type == of_file ? mmp_types[k].number : number;
    rc = mmp_needed(to, from, err);
    if (rc == CKPT_OK)
        rc = mmp_blocks(to, from, err);
    if (rc == CKPT_OK)
        rc = mmp_choose(to, of_file, err);
    return rc == CKPT_OK ? ckpt_gguf_general(to, from, number, err) : rc;
}

/* Such a file is read as GGUF. */
static int mmp_probe(const uint8_t *head, size_t n, uint64_t size)
{
    (void)head;
    (void)n;
    (void)size;
    return 0;
}

/* Dtypes that floats can be converted to. */
static const ckpt_dtype mmp_dtypes[] = {CKPT_F32, CKPT_F16, CKPT_BF16, CKPT_Q8_0, CKPT_DTYPE_NONE};

const ckpt_format ckpt_format_mmproj = {
    .is =
        {
            .name = "mmproj",
            .suffixes = NULL,
            .note = "llama.cpp's second file of a model that sees images: vision tower, projector",
            .caps = CKPT_CAN_WRITE,
            .dtypes = mmp_dtypes,
            .layout = "mmproj",
        },
    .probe = mmp_probe,
    .place = ckpt_gguf_place,
    .scatter = mmp_scatter,
};
