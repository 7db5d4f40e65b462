/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c: completes a GGUF file of a model: types by rule, order of tensors, general keys.
 */
#include "formats/gguf/model.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/number.h"

/* ---- general keys ---- */

/* Set a number: in place if the key exists, else appended. */
static int gmo_put_u32(ckpt_map *to, const char *name, uint64_t number, ckpt_err *err)
{
    const ckpt_key key = {
        .name = name, .type = CKPT_KEY_U32, .value = ckpt_value_int(to->arena, (int64_t)number)};

    return key.value ? ckpt_gguf_put(to, &key, err) : ckpt_fail_memory(err);
}

/* Add a text unless the key exists. */
static int gmo_default_text(ckpt_map *to, const char *name, const char *text, ckpt_err *err)
{
    return ckpt_gguf_key(to, name) ? CKPT_OK : ckpt_gguf_add_text(to, name, text, err);
}

/* Format the model's size like the gguf package: "7.2B", "355M", "8x7B". */
static void gmo_label(const ckpt_map *to, char out[48])
{
    static const struct {
        double over, by;
        char suffix;
    } scale[] = {{1e12, 1e-12, 'T'}, {1e9, 1e-9, 'B'}, {1e6, 1e-6, 'M'}, {-1, 1e-3, 'K'}};
    double shared = 0, expert = 0, n;
    uint64_t experts = 0, tensors = 0;
    unsigned k = 0;
    char digits[32];

    for (size_t i = 0; i < to->tensors.n; i++) {
        const ckpt_tensor *t = to->tensors.at[i];

        if (strstr(t->name, "_exps.") && t->ndim >= 3) {
            expert += (double)(t->n_elems / (t->shape[t->ndim - 3] ? t->shape[t->ndim - 3] : 1));
            experts += t->shape[t->ndim - 3];
            tensors++;
        } else {
            shared += (double)t->n_elems;
        }
    }
    n = shared + expert;
    while (n <= scale[k].over)
        k++;
    n *= scale[k].by;
    (void)snprintf(digits, sizeof digits, "%.0f", n);
    // at least two digits
    (void)snprintf(digits, sizeof digits, "%.*f", digits[1] ? 0 : digits[0] == '0' ? 2 : 1, n);
    if (tensors)
        (void)snprintf(out, 48, "%" PRIu64 "x%.24s%c", experts / tensors, digits, scale[k].suffix);
    else
        (void)snprintf(out, 48, "%.24s%c", digits, scale[k].suffix);
}

/* True for a version ("v0.3") or a word that begins with a digit ("7b"), whose case stays. */
static bool gmo_is_number(const char *word, size_t n)
{
    size_t i = *word == 'v';

    if (!isdigit((unsigned char)word[i]))
        return false;
    while (i > 0 && i < n && (isdigit((unsigned char)word[i]) || word[i] == '.'))
        i++;
    return i == 0 || i == n;
}

/* Turn "tiny-llama-v0.3" into "Tiny Llama v0.3", as the converter names a model after its
 * folder. */
static void gmo_title(char *name)
{
    for (char *word = name; *word;) {
        size_t n = strcspn(word, "- ");
        bool small = n > 0 && !gmo_is_number(word, n);

        for (size_t i = 0; i < n; i++)
            small = small && !isupper((unsigned char)word[i]);
        for (size_t i = 0; small && i < n; i++) {
            if (i == 0 || !isalpha((unsigned char)word[i - 1]))
                word[i] = (char)toupper((unsigned char)word[i]);
        }
        word += n;
        if (*word)
            *word++ = ' ';
    }
}

/* True for a file whose keys declare a LoRA adapter. */
static bool gmo_is_adapter(const ckpt_map *to)
{
    const ckpt_key *type = ckpt_gguf_key(to, "general.type");

    return type && ckpt_value_is(type->value, "adapter");
}

int ckpt_gguf_general(ckpt_map *to, const ckpt_map *from, uint64_t number, ckpt_err *err)
{
    assert(to && from);
    char label[48];
    const bool adapter = gmo_is_adapter(to);
    // the model's folder is that of an adapter's base
    const char *folder = from->model_folder && !adapter ? from->model_folder
                         : from->path                   ? from->path
                                                        : "";
    const char *base = ckpt_path_base(to->arena, folder);
    char *name = base ? ckpt_arena_string(to->arena, base, strlen(base)) : NULL;
    int rc = name ? gmo_default_text(to, "general.type", "model", err) : ckpt_fail_memory(err);

    gmo_label(to, label);
    if (name)
        gmo_title(name);
    if (rc == CKPT_OK && *name)
        rc = gmo_default_text(to, "general.name", name, err);
    if (rc == CKPT_OK && !adapter)
        rc = gmo_default_text(to, "general.size_label", label, err);
    if (rc == CKPT_OK && !adapter)
        rc = gmo_put_u32(to, "general.file_type", number, err);
    if (rc == CKPT_OK)
        rc = gmo_put_u32(to, "general.quantization_version", 2, err);
    return rc;
}

/* ---- order ---- */

/* The number N of "blk.N."; -1 for other tensors, so that they come first. */
static int64_t gmo_block(const ckpt_tensor *t)
{
    uint64_t n = 0;

    return strncmp(t->name, "blk.", 4) == 0 && ckpt_scan_u64(t->name + 4, &n) && n <= INT64_MAX
               ? (int64_t)n
               : -1;
}

static int gmo_order(const void *pa, const void *pb)
{
    const ckpt_tensor *a = *(ckpt_tensor *const *)pa, *b = *(ckpt_tensor *const *)pb;
    int64_t i = gmo_block(a), k = gmo_block(b);

    return i != k ? (i > k) - (i < k) : strcmp(a->name, b->name);
}

/* Sort by block, then by name, like llama.cpp's quantizer, because its rules count tensors in that
 * order. */
static int gmo_sort(ckpt_map *to, ckpt_err *err)
{
    qsort(to->tensors.at, to->tensors.n, sizeof *to->tensors.at, gmo_order);
    return ckpt_map_reindex(to, err);
}

/* Refuse types and files of models for an adapter: llama.cpp's converter writes four types. */
static int gmo_check_adapter(const ckpt_map *to, const ckpt_target *target, ckpt_err *err)
{
    if (!gmo_is_adapter(to))
        return CKPT_OK;
    if (target->mixture || (ckpt_dtype_packed(target->dtype) && target->dtype != CKPT_Q8_0))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "dtype: an adapter in GGUF has f32, f16, bf16 or q8_0, not %s",
                         target->mixture ? target->mixture : ckpt_dtype_name(target->dtype));
    return target->max_shard_size == 0
               ? CKPT_OK
               : ckpt_fail(err, CKPT_EUSAGE,
                           "max_shard_size: llama.cpp loads an adapter from one file only");
}

/* Remove the special tokens that the layout map gives by their texts: no tokenizer is written. */
static void gmo_drop_tokens(ckpt_map *to)
{
    size_t n = 0;

    for (size_t i = 0; i < to->keys.n; i++) {
        if (!ckpt_gguf_is_token(&to->keys.at[i]))
            to->keys.at[n++] = to->keys.at[i];
    }
    to->keys.n = n;
}

/* Set the types that the caller asks for. */
static int gmo_types(ckpt_map *to, const ckpt_map *from, const ckpt_target *target,
                     uint64_t *number, ckpt_err *err)
{
    ckpt_gguf_place_in *in = ckpt_arena_alloc(to->arena, sizeof *in);

    if (!in)
        return ckpt_fail_memory(err);
    *in = (ckpt_gguf_place_in){.vectors = target->mixture || ckpt_dtype_packed(target->dtype)};
    to->files.at[0].state = in;
    return ckpt_gguf_mix(to, from, target, number, err);
}

/* Set types, order and keys. */
static int gmo_whole(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    bool model = ckpt_gguf_key(to, "general.architecture") != NULL;
    bool asked = target->mixture || target->dtype != CKPT_DTYPE_NONE;
    bool again = from->files.n > 0 && from->files.at[0].format == to->files.at[0].format;
    uint64_t number = 0;
    int rc = gmo_check_adapter(to, target, err);

    // a file without a model keeps its types and order, unless the type needs rules
    if (rc == CKPT_OK && !model && !again)
        rc = ckpt_map_note(to, CKPT_WARNING, err,
                           "no key says which architecture this is: llama.cpp will not load the "
                           "file as a model");
    if (rc == CKPT_OK && (model || target->mixture || ckpt_dtype_packed(target->dtype)) &&
        (asked || !again))
        rc = gmo_sort(to, err);
    if (rc == CKPT_OK && asked && (model || target->mixture || ckpt_dtype_packed(target->dtype)))
        rc = gmo_types(to, from, target, &number, err);
    else if (rc == CKPT_OK && model && (!again || target->dtypes))
        number = ckpt_gguf_mix_own(to, target->dtypes != NULL);
    if (rc == CKPT_OK && model && !(again && !asked && !target->dtypes))
        rc = ckpt_gguf_general(to, from, number, err);
    if (rc == CKPT_OK && to->importance)
        rc = ckpt_gguf_weigh(to, from, number, err);
    if (!model || gmo_is_adapter(to))
        return rc;
    if (rc == CKPT_OK && !again && !target->skip_side_files)
        rc = ckpt_gguf_tokenizer(to, from, err);
    if (!again)
        gmo_drop_tokens(to);
    return rc;
}

int ckpt_gguf_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    int rc = gmo_whole(to, from, target, err);

    // a file that its readers refuse must not appear, unless the caller has selected its tensors
    if (rc == CKPT_OK && !from->selected)
        rc = ckpt_gguf_blocks(to, from->path ? from->path : "the source", err);
    return rc == CKPT_OK ? ckpt_gguf_split(to, target, err) : rc;
}
