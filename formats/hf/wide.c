/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wide.c: lists the modules of diffusion models that loaders hold in F32, whatever dtype the rest
 * of the model has (_keep_in_fp32_modules in diffusers 0.42 and transformers 5.23).
 */
#include "formats/hf/wide.h"

#include <assert.h>
#include <string.h>

#include "libckpt/base/dtype.h"

/* Modules of a class: parts of a tensor's name, between dots, separated by blanks. */
typedef struct wide_class {
    const char *name;
    const char *modules;
    bool f16_only; /* transformers rounds them to BF16 */
} wide_class;

static const wide_class wide_classes[] = {
    {"AnyFlowFARTransformer3DModel", "time_embedder scale_shift_table norm1 norm2 norm3", false},
    {"AnyFlowTransformer3DModel", "time_embedder scale_shift_table norm1 norm2 norm3", false},
    {"AutoencoderKLMiniMaxH3", "encoder quant_conv norm1 norm2 norm_out scale1 scale2", false},
    {"AutoencoderKLMiniMaxH3Audio", "encoder decoder pre_block dec_in_proj mean_proj logs_proj",
     false},
    {"ChronoEditTransformer3DModel", "time_embedder scale_shift_table norm1 norm2 norm3", false},
    {"Cosmos3OmniTransformer", "time_embedder", false},
    {"CosmosControlNetModel", "learnable_pos_embed", false},
    {"CosmosTransformer3DModel", "learnable_pos_embed", false},
    {"Flux3Transformer2DModel", "norm_q norm_k", false},
    {"HeliosTransformer3DModel",
     "time_embedder scale_shift_table norm1 norm2 norm3 history_key_scale", false},
    {"JoyImageEditPlusTransformer3DModel", "time_embedder norm1 norm2 norm_out", false},
    {"JoyImageEditTransformer3DModel", "time_embedder norm1 norm2 norm_out", false},
    {"Kandinsky5Transformer3DModel", "time_embeddings modulation visual_modulation text_modulation",
     false},
    {"Kandinsky6SRTransformer3DModel", "time_embeddings pooled_bias modulation", false},
    {"Kandinsky6Transformer3DModel", "time_embeddings modulation", false},
    {"Krea2Transformer2DModel", "norm norm1 norm2 norm_q norm_k", false},
    {"MT5EncoderModel", "wo", true},
    {"MiniMaxH3Transformer3DModel",
     "proj_in audio_proj_in time_embedder proj_out audio_proj_out rope", false},
    {"RFD4ProteinaAutoencoder", "latent_decoder_mean_n_log_scale norm", false},
    {"RFD4ProteinaTransformer", "cond_factory norm ln_out", false},
    {"SkyReelsV2Transformer3DModel", "rope time_embedder scale_shift_table norm1 norm2 norm3",
     false},
    {"T5EncoderModel", "wo", true},
    {"UMT5EncoderModel", "wo", true},
    {"WanAnimate2Transformer3DModel",
     "time_embedding time_projection scale_shift_table norm1 norm2 norm3 modulation", false},
    {"WanAnimateTransformer3DModel",
     "time_embedder scale_shift_table norm1 norm2 norm3 motion_synthesis_weight rope", false},
    {"WanTransformer3DModel", "rope time_embedder scale_shift_table norm1 norm2 norm3", false},
    {"WanVACETransformer3DModel", "rope time_embedder scale_shift_table norm1 norm2 norm3", false},
};

/* True if a list, separated by a character, has the n bytes at `word`. */
static bool wide_lists(const char *list, char between, const char *word, size_t n)
{
    const char sep[2] = {between, 0};

    for (; *list; list += strspn(list, sep)) {
        const size_t m = strcspn(list, sep);

        if (m == n && memcmp(list, word, n) == 0)
            return true;
        list += m;
    }
    return false;
}

/* True if a part of the tensor's name is one of the modules. */
static bool wide_is(const wide_class *c, const char *tensor)
{
    for (const char *p = tensor; *p; p += *p == '.') {
        const size_t n = strcspn(p, ".");

        if (n > 0 && wide_lists(c->modules, ' ', p, n))
            return true;
        p += n;
    }
    return false;
}

int ckpt_hf_keep_wide(ckpt_map *to, const ckpt_map *from, const char *class, ckpt_dtype dtype,
                      ckpt_err *err)
{
    assert(to && from && class);
    const wide_class *c = NULL;
    const char *last = NULL;
    size_t n = 0;

    for (size_t i = 0; i < sizeof wide_classes / sizeof *wide_classes; i++)
        c = strcmp(wide_classes[i].name, class) == 0 ? &wide_classes[i] : c;
    if (!c || (dtype != CKPT_F16 && (dtype != CKPT_BF16 || c->f16_only)))
        return CKPT_OK;
    for (size_t i = 0; i < to->tensors.n; i++) {
        ckpt_tensor *t = to->tensors.at[i];
        const size_t at = ckpt_map_index(from, t->name, strlen(t->name));
        ckpt_dtype own = at == SIZE_MAX ? t->dtype : from->tensors.at[at]->dtype;

        // a merged weight
        if (at != SIZE_MAX && from->tensors.at[at]->export_dtype != CKPT_DTYPE_NONE)
            own = from->tensors.at[at]->export_dtype;
        if (own == t->dtype || ckpt_dtype_get(own)->kind != CKPT_IS_FLOAT || !wide_is(c, t->name))
            continue;
        t->dtype = own;
        last = t->name;
        n++;
    }
    return n == 0 ? CKPT_OK
                  : ckpt_map_note(to, CKPT_INFO, err,
                                  "%zu tensor%s of %s, such as %.200s, keep%s the dtype of the "
                                  "source, because loaders hold %s in F32 (--dtype %s:'*' converts "
                                  "them, too)",
                                  n, n == 1 ? "" : "s", class, last, n == 1 ? "s" : "",
                                  n == 1 ? "it" : "them", ckpt_dtype_name(dtype));
}
