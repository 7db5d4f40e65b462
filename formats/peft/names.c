/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c: parses the names of PEFT's tensors (peft 0.21, utils/save_and_load.py).
 */
#include <assert.h>
#include <string.h>

#include "formats/peft/peft.h"

#define AN_PREFIX "base_model.model."

static bool an_ends(const char *name, size_t n, const char *end)
{
    size_t m = strlen(end);

    return n > m && memcmp(name + n - m, end, m) == 0;
}

bool ckpt_peft_parse(ckpt_peft_name *out, const char *name)
{
    static const struct {
        const char *end;
        ckpt_peft_part part;
    } ends[] = {
        {".lora_A.weight", CKPT_PEFT_A},
        {".lora_B.weight", CKPT_PEFT_B},
        {".lora_B.bias", CKPT_PEFT_B_BIAS},
        {".lora_embedding_A", CKPT_PEFT_TABLE_A},
        {".lora_embedding_B", CKPT_PEFT_TABLE_B},
        {".lora_magnitude_vector", CKPT_PEFT_MAGNITUDE},
        // before peft 0.12
        {".lora_magnitude_vector.weight", CKPT_PEFT_MAGNITUDE},
        {".ia3_l", CKPT_PEFT_IA3},
        {".hada_w1_a", CKPT_PEFT_HADA_W1_A},
        {".hada_w1_b", CKPT_PEFT_HADA_W1_B},
        {".hada_w2_a", CKPT_PEFT_HADA_W2_A},
        {".hada_w2_b", CKPT_PEFT_HADA_W2_B},
        {".hada_t1", CKPT_PEFT_HADA_T1},
        {".hada_t2", CKPT_PEFT_HADA_T2},
        {".lokr_w1", CKPT_PEFT_LOKR_W1},
        {".lokr_w1_a", CKPT_PEFT_LOKR_W1_A},
        {".lokr_w1_b", CKPT_PEFT_LOKR_W1_B},
        {".lokr_w2", CKPT_PEFT_LOKR_W2},
        {".lokr_w2_a", CKPT_PEFT_LOKR_W2_A},
        {".lokr_w2_b", CKPT_PEFT_LOKR_W2_B},
        {".lokr_t2", CKPT_PEFT_LOKR_T2},
        {".vera_lambda_b", CKPT_PEFT_VERA_B},
        {".vera_lambda_d", CKPT_PEFT_VERA_D},
        {".oft_R.weight", CKPT_PEFT_OFT},
        {".oft_embedding_R.weight", CKPT_PEFT_OFT_TABLE},
        {".token_adapter.trainable_tokens_delta", CKPT_PEFT_TOKENS},
        {".trainable_tokens_delta", CKPT_PEFT_TOKENS},
        {".token_adapter.base_layer.weight", CKPT_PEFT_BASE_WEIGHT},
        {".base_layer.weight", CKPT_PEFT_BASE_WEIGHT},
        {".base_layer.bias", CKPT_PEFT_BASE_BIAS},
    };
    size_t n_prefix = sizeof AN_PREFIX - 1;

    assert(out && name);
    if (strncmp(name, AN_PREFIX, n_prefix) != 0)
        return false;
    *out = (ckpt_peft_name){CKPT_PEFT_PLAIN, name + n_prefix, strlen(name + n_prefix)};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (an_ends(out->module, out->n, ends[i].end)) {
            out->part = ends[i].part;
            out->n -= strlen(ends[i].end);
            break;
        }
    }
    if (out->part == CKPT_PEFT_PLAIN && strstr(name, ".original_module."))
        out->part = CKPT_PEFT_ORIGINAL;
    return out->n > 0;
}

ckpt_peft_kind ckpt_peft_kind_of(ckpt_peft_part part)
{
    if (part >= CKPT_PEFT_BASE_WEIGHT)
        return CKPT_PEFT_N_KINDS;
    return part >= CKPT_PEFT_OFT         ? CKPT_PEFT_KIND_OFT
           : part >= CKPT_PEFT_VERA_B    ? CKPT_PEFT_KIND_VERA
           : part >= CKPT_PEFT_LOKR_W1   ? CKPT_PEFT_KIND_LOKR
           : part >= CKPT_PEFT_HADA_W1_A ? CKPT_PEFT_KIND_LOHA
           : part >= CKPT_PEFT_IA3       ? CKPT_PEFT_KIND_IA3
                                         : CKPT_PEFT_KIND_LORA;
}

void ckpt_peft_saved_name(char *out, const char *name, const char **adapter, size_t *n)
{
    // mark: the text before the adapter's name; stays: keep it; bare: drop the text after the name
    static const struct {
        const char *mark;
        bool stays, bare;
    } marks[] = {
        {".lora_A.", true, false},           {".lora_B.", true, false},
        {".lora_embedding_A.", true, true},  {".lora_embedding_B.", true, true},
        {".modules_to_save.", false, false}, {".lora_magnitude_vector.", true, true},
    };

    assert(out && name && adapter && n);
    *n = 0;
    strcpy(out, name);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const char *at = strstr(name, marks[i].mark);
        size_t n_mark = strlen(marks[i].mark), kept;

        if (!at)
            continue;
        *adapter = at + n_mark;
        *n = strcspn(*adapter, ".");
        kept = (size_t)(at - name) + (marks[i].stays ? n_mark - 1 : 0);
        // the file's name of a magnitude has no ".weight"
        strcpy(out + kept, marks[i].bare ? "" : *adapter + *n);
        return;
    }
}
