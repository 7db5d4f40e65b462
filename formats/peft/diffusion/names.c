/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c: lists the modules of Stable Diffusion 1.x, SDXL and Flux that a LoRA may change.
 *
 * A UNet's blocks have numbers in diffusers (down_blocks.B.resnets.L) and one count in the original
 * code (input_blocks.N), which kohya uses for SDXL and ComfyUI for all: each level has two layers
 * on its way down, three on its way up, and a layer that changes the resolution.
 */
#include "formats/peft/diffusion/names.h"

#include <assert.h>
#include <string.h>

enum {
    DN_LEVELS = 4,  /* most levels of a UNet */
    DN_CLIP_L = 12, /* layers of the text encoders */
    DN_CLIP_G = 32,
    DN_T5 = 24,
    DN_DOUBLE = 19, /* blocks of Flux */
    DN_SINGLE = 38
};

/* The work on one table. */
typedef struct dn_work {
    ckpt_dl_table *t;
    ckpt_arena *a;
    bool failed;      /* out of memory */
    ckpt_dl_row lost; /* takes the place of a row without memory */
} dn_work;

/* A UNet: its levels, and the transformer blocks of each attention on the way down, in the middle,
 * and on the way up (in the order of up_blocks). */
typedef struct dn_unet {
    uint32_t n_levels, down[DN_LEVELS], middle, up[DN_LEVELS];
    bool original; /* kohya trains the original code's modules, not those of diffusers */
} dn_unet;

/* A module of a block: its name in diffusers and in the original code. */
typedef struct dn_pair {
    const char *diffusers, *original;
} dn_pair;

/* ---- adding rows ---- */

static char *dn_join(dn_work *w, const char *before, const char *after)
{
    char *s = before && after ? ckpt_arena_printf(w->a, "%s%s", before, after) : NULL;

    w->failed = w->failed || !s;
    return s;
}

/* A kohya name: prefix and path, with underscores in place of dots. */
static char *dn_kohya(dn_work *w, const char *prefix, const char *path)
{
    char *s = dn_join(w, prefix, path);

    for (char *c = s; c && *c; c++)
        *c = *c == '.' ? '_' : *c;
    return s;
}

static ckpt_dl_row *dn_row(dn_work *w)
{
    ckpt_dl_row *r = ckpt_vec_push(&w->t->rows);

    w->failed = w->failed || !r;
    r = r ? r : &w->lost;
    r->n_parts = 1;
    return r;
}

/* Add a module of a UNet. */
static void dn_unet_row(dn_work *w, const dn_unet *u, const char *diffusers, const char *original)
{
    ckpt_dl_row *r = dn_row(w);

    r->part[0] = dn_join(w, "unet.", diffusers);
    r->comfyui = dn_join(w, "diffusion_model.", original);
    r->kohya = dn_kohya(w, "lora_unet_", u->original ? original : diffusers);
    r->also = dn_kohya(w, "lora_unet_", u->original ? diffusers : original);
}

/* ---- UNets ---- */

/* Add all modules of a block under its two names. */
static void dn_block(dn_work *w, const dn_unet *u, dn_pair at, const dn_pair *inner, size_t n)
{
    for (size_t i = 0; i < n && !w->failed; i++) {
        const char *d = ckpt_arena_printf(w->a, "%s.%s", at.diffusers, inner[i].diffusers);
        const char *o = ckpt_arena_printf(w->a, "%s.%s", at.original, inner[i].original);

        w->failed = w->failed || !d || !o;
        dn_unet_row(w, u, d, o);
    }
}

/* Add the modules of a layer of two convolutions. */
static void dn_resnet(dn_work *w, const dn_unet *u, const char *diffusers, const char *original)
{
    static const dn_pair inner[] = {{"conv1", "in_layers.2"},
                                    {"time_emb_proj", "emb_layers.1"},
                                    {"conv2", "out_layers.3"},
                                    {"conv_shortcut", "skip_connection"}};

    w->failed = w->failed || !diffusers || !original;
    dn_block(w, u, (dn_pair){diffusers, original}, inner, sizeof inner / sizeof *inner);
}

/* Add the modules of an attention with `depth` transformer blocks; none if depth is 0. */
static void dn_attention(dn_work *w, const dn_unet *u, uint32_t depth, const char *diffusers,
                         const char *original)
{
    static const dn_pair outer[] = {{"proj_in", "proj_in"}, {"proj_out", "proj_out"}};
    static const char *const name[] = {
        "attn1.to_q", "attn1.to_k", "attn1.to_v",     "attn1.to_out.0", "attn2.to_q",
        "attn2.to_k", "attn2.to_v", "attn2.to_out.0", "ff.net.0.proj",  "ff.net.2"};

    w->failed = w->failed || !diffusers || !original;
    if (depth > 0)
        dn_block(w, u, (dn_pair){diffusers, original}, outer, 2);
    for (uint32_t b = 0; b < depth && !w->failed; b++) {
        for (size_t i = 0; i < sizeof name / sizeof *name && !w->failed; i++) {
            const char *s = ckpt_arena_printf(w->a, "transformer_blocks.%u.%s", b, name[i]);
            const dn_pair inner = {s, s};

            w->failed = w->failed || !s;
            dn_block(w, u, (dn_pair){diffusers, original}, &inner, 1);
        }
    }
}

#define DN_NAME(...) ckpt_arena_printf(w->a, __VA_ARGS__)

static void dn_down(dn_work *w, const dn_unet *u, uint32_t b)
{
    for (uint32_t l = 0; l < 2; l++) {
        dn_resnet(w, u, DN_NAME("down_blocks.%u.resnets.%u", b, l),
                  DN_NAME("input_blocks.%u.0", 1 + 3 * b + l));
        dn_attention(w, u, u->down[b], DN_NAME("down_blocks.%u.attentions.%u", b, l),
                     DN_NAME("input_blocks.%u.1", 1 + 3 * b + l));
    }
    if (b + 1 < u->n_levels)
        dn_unet_row(w, u, DN_NAME("down_blocks.%u.downsamplers.0.conv", b),
                    DN_NAME("input_blocks.%u.0.op", 3 + 3 * b));
}

static void dn_up(dn_work *w, const dn_unet *u, uint32_t b)
{
    for (uint32_t l = 0; l < 3; l++) {
        dn_resnet(w, u, DN_NAME("up_blocks.%u.resnets.%u", b, l),
                  DN_NAME("output_blocks.%u.0", 3 * b + l));
        dn_attention(w, u, u->up[b], DN_NAME("up_blocks.%u.attentions.%u", b, l),
                     DN_NAME("output_blocks.%u.1", 3 * b + l));
    }
    // the upsampler comes after the attention, if there is one
    if (b + 1 < u->n_levels)
        dn_unet_row(w, u, DN_NAME("up_blocks.%u.upsamplers.0.conv", b),
                    DN_NAME("output_blocks.%u.%u.conv", 3 * b + 2, u->up[b] ? 2u : 1u));
}

static void dn_unet_rows(dn_work *w, const dn_unet *u)
{
    static const dn_pair top[] = {{"conv_in", "input_blocks.0.0"},
                                  {"conv_out", "out.2"},
                                  {"time_embedding.linear_1", "time_embed.0"},
                                  {"time_embedding.linear_2", "time_embed.2"},
                                  {"add_embedding.linear_1", "label_emb.0.0"},
                                  {"add_embedding.linear_2", "label_emb.0.2"}};

    // only SDXL has the embedding of sizes
    for (size_t i = 0; i < (u->original ? 6u : 4u); i++)
        dn_unet_row(w, u, top[i].diffusers, top[i].original);
    for (uint32_t b = 0; b < u->n_levels; b++) {
        dn_down(w, u, b);
        dn_up(w, u, b);
    }
    dn_resnet(w, u, "mid_block.resnets.0", "middle_block.0");
    dn_attention(w, u, u->middle, "mid_block.attentions.0", "middle_block.1");
    dn_resnet(w, u, "mid_block.resnets.1", "middle_block.2");
}

/* ---- text encoders ---- */

/* The prefixes of a text encoder's names. */
typedef struct dn_text {
    const char *kohya, *diffusers, *comfyui;
} dn_text;

static void dn_text_row(dn_work *w, const dn_text *t, const char *path, const char *bare)
{
    ckpt_dl_row *r = dn_row(w);

    r->kohya = dn_kohya(w, t->kohya, path);
    r->comfyui = dn_join(w, t->comfyui, path);
    r->part[0] = t->diffusers ? dn_join(w, t->diffusers, path) : NULL;
    // CLIPTextModel of transformers 5 lost the first part of its names
    r->also = t->diffusers && bare ? dn_join(w, t->diffusers, bare) : NULL;
}

static void dn_clip(dn_work *w, const dn_text *t, uint32_t n_layers)
{
    static const char *const name[] = {"self_attn.q_proj",   "self_attn.k_proj", "self_attn.v_proj",
                                       "self_attn.out_proj", "mlp.fc1",          "mlp.fc2"};

    for (uint32_t l = 0; l < n_layers; l++) {
        for (size_t i = 0; i < sizeof name / sizeof *name && !w->failed; i++) {
            const char *path = DN_NAME("text_model.encoder.layers.%u.%s", l, name[i]);

            w->failed = w->failed || !path;
            dn_text_row(w, t, path, path ? path + sizeof "text_model." - 1 : NULL);
        }
    }
}

static void dn_t5(dn_work *w, const dn_text *t)
{
    static const char *const name[] = {
        "0.SelfAttention.q",     "0.SelfAttention.k",     "0.SelfAttention.v",  "0.SelfAttention.o",
        "1.DenseReluDense.wi_0", "1.DenseReluDense.wi_1", "1.DenseReluDense.wo"};

    for (uint32_t b = 0; b < DN_T5; b++) {
        for (size_t i = 0; i < sizeof name / sizeof *name && !w->failed; i++) {
            const char *path = DN_NAME("encoder.block.%u.layer.%s", b, name[i]);

            w->failed = w->failed || !path;
            dn_text_row(w, t, path, NULL);
        }
    }
}

/* ---- Flux ---- */

/* Add a module of Flux; `parts` are its modules in diffusers, separated by '|', below `at`. */
static void dn_flux_row(dn_work *w, const char *original, const char *at, const char *parts)
{
    ckpt_dl_row *r = dn_row(w);

    w->failed = w->failed || !original || !at;
    r->kohya = dn_kohya(w, "lora_unet_", original);
    r->comfyui = dn_join(w, "diffusion_model.", original);
    r->n_parts = 0;
    for (const char *p = parts; p && r->n_parts < CKPT_DL_PARTS;) {
        const int n = (int)strcspn(p, "|");

        r->part[r->n_parts] = DN_NAME("transformer.%s%.*s", at ? at : "", n, p);
        w->failed = w->failed || !r->part[r->n_parts++];
        p = p[n] ? p + n + 1 : NULL;
    }
    r->swap = strcmp(parts, "norm_out.linear") == 0;
}

static void dn_flux(dn_work *w)
{
    static const dn_pair both[] = {
        {"attn.to_q|attn.to_k|attn.to_v", "img_attn.qkv"},
        {"attn.to_out.0", "img_attn.proj"},
        {"ff.net.0.proj", "img_mlp.0"},
        {"ff.net.2", "img_mlp.2"},
        {"norm1.linear", "img_mod.lin"},
        {"attn.add_q_proj|attn.add_k_proj|attn.add_v_proj", "txt_attn.qkv"},
        {"attn.to_add_out", "txt_attn.proj"},
        {"ff_context.net.0.proj", "txt_mlp.0"},
        {"ff_context.net.2", "txt_mlp.2"},
        {"norm1_context.linear", "txt_mod.lin"}};
    static const dn_pair single[] = {{"attn.to_q|attn.to_k|attn.to_v|proj_mlp", "linear1"},
                                     {"proj_out", "linear2"},
                                     {"norm.linear", "modulation.lin"}};
    static const dn_pair top[] = {
        {"x_embedder", "img_in"},
        {"context_embedder", "txt_in"},
        {"time_text_embed.timestep_embedder.linear_1", "time_in.in_layer"},
        {"time_text_embed.timestep_embedder.linear_2", "time_in.out_layer"},
        {"time_text_embed.guidance_embedder.linear_1", "guidance_in.in_layer"},
        {"time_text_embed.guidance_embedder.linear_2", "guidance_in.out_layer"},
        {"time_text_embed.text_embedder.linear_1", "vector_in.in_layer"},
        {"time_text_embed.text_embedder.linear_2", "vector_in.out_layer"},
        {"norm_out.linear", "final_layer.adaLN_modulation.1"},
        {"proj_out", "final_layer.linear"}};

    for (size_t i = 0; i < sizeof top / sizeof *top; i++)
        dn_flux_row(w, top[i].original, "", top[i].diffusers);
    for (uint32_t b = 0; b < DN_DOUBLE; b++) {
        for (size_t i = 0; i < sizeof both / sizeof *both && !w->failed; i++)
            dn_flux_row(w, DN_NAME("double_blocks.%u.%s", b, both[i].original),
                        DN_NAME("transformer_blocks.%u.", b), both[i].diffusers);
    }
    for (uint32_t b = 0; b < DN_SINGLE; b++) {
        for (size_t i = 0; i < sizeof single / sizeof *single && !w->failed; i++)
            dn_flux_row(w, DN_NAME("single_blocks.%u.%s", b, single[i].original),
                        DN_NAME("single_transformer_blocks.%u.", b), single[i].diffusers);
    }
}

/* ---- the models ---- */

static void dn_model(dn_work *w, ckpt_dl_family family)
{
    static const dn_unet sd = {4, {1, 1, 1, 0}, 1, {0, 1, 1, 1}, false};
    static const dn_unet sdxl = {3, {0, 2, 10, 0}, 10, {10, 2, 0, 0}, true};
    static const dn_text sd_text = {"lora_te_", "text_encoder.",
                                    "text_encoders.clip_l.transformer."};
    static const dn_text clip_l = {"lora_te1_", "text_encoder.",
                                   "text_encoders.clip_l.transformer."};
    static const dn_text clip_g = {"lora_te2_", "text_encoder_2.",
                                   "text_encoders.clip_g.transformer."};
    static const dn_text t5 = {"lora_te3_", NULL, "text_encoders.t5xxl.transformer."};

    if (family == CKPT_DL_FLUX)
        dn_flux(w);
    else
        dn_unet_rows(w, family == CKPT_DL_SD ? &sd : &sdxl);
    dn_clip(w, family == CKPT_DL_SD ? &sd_text : &clip_l, DN_CLIP_L);
    if (family == CKPT_DL_FLUX)
        dn_t5(w, &t5);
    if (family == CKPT_DL_SDXL) {
        dn_clip(w, &clip_g, DN_CLIP_G);
        dn_text_row(w, &clip_g, "text_projection", NULL);
    }
}

static bool dn_same(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_dl_table *t = ctx;

    return strcmp(t->entries.at[number].name, key) == 0;
}

static bool dn_enter(ckpt_dl_table *t, const char *name, size_t row, uint32_t part)
{
    ckpt_dl_entry *e = name ? ckpt_vec_push(&t->entries) : NULL;

    if (!e)
        return name == NULL;
    *e = (ckpt_dl_entry){name, (uint32_t)row, part};
    return ckpt_index_add(&t->index, ckpt_hash_bytes(name, strlen(name), 0),
                          (uint32_t)(t->entries.n - 1));
}

int ckpt_dl_table_make(ckpt_dl_table *out, ckpt_arena *a, ckpt_dl_family family, ckpt_err *err)
{
    assert(out && a);
    *out = (ckpt_dl_table){0};
    dn_work w = {.t = out, .a = a};
    bool ok;

    dn_model(&w, family);
    ok = !w.failed;
    for (size_t i = 0; ok && i < out->rows.n; i++) {
        const ckpt_dl_row *r = &out->rows.at[i];
        const uint32_t whole = r->n_parts == 1 ? 0 : CKPT_DL_WHOLE;

        ok = dn_enter(out, r->kohya, i, whole) && dn_enter(out, r->comfyui, i, whole) &&
             dn_enter(out, r->also, i, whole);
        for (uint32_t p = 0; ok && p < r->n_parts; p++)
            ok = dn_enter(out, r->part[p], i, p);
    }
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

void ckpt_dl_table_free(ckpt_dl_table *t)
{
    ckpt_vec_free(&t->rows);
    ckpt_vec_free(&t->entries);
    ckpt_index_free(&t->index);
}

const ckpt_dl_entry *ckpt_dl_find(const ckpt_dl_table *t, const char *name, size_t n)
{
    assert(t && name);
    char key[128]; // longer than any name of the tables
    uint32_t at;

    if (n >= sizeof key)
        return NULL;
    memcpy(key, name, n);
    key[n] = 0;
    at = ckpt_index_find(&t->index, ckpt_hash_bytes(key, n, 0), dn_same, t, key);
    return at == CKPT_INDEX_NONE ? NULL : &t->entries.at[at];
}

const char *ckpt_dl_family_name(ckpt_dl_family family)
{
    static const char *const name[CKPT_DL_N_FAMILIES] = {"sd", "sdxl", "flux"};

    assert(family < CKPT_DL_N_FAMILIES);
    return name[family];
}

const char *ckpt_dl_style_name(ckpt_dl_style style)
{
    static const char *const name[CKPT_DL_N_STYLES] = {"kohya", "diffusers", "comfyui"};

    assert(style < CKPT_DL_N_STYLES);
    return name[style];
}

ckpt_dl_style ckpt_dl_style_of(const char *name)
{
    static const struct {
        const char *prefix;
        ckpt_dl_style style;
    } known[] = {{"lora_unet_", CKPT_DL_KOHYA},          {"lora_te_", CKPT_DL_KOHYA},
                 {"lora_te1_", CKPT_DL_KOHYA},           {"lora_te2_", CKPT_DL_KOHYA},
                 {"lora_te3_", CKPT_DL_KOHYA},           {"unet.", CKPT_DL_DIFFUSERS},
                 {"transformer.", CKPT_DL_DIFFUSERS},    {"text_encoder.", CKPT_DL_DIFFUSERS},
                 {"text_encoder_2.", CKPT_DL_DIFFUSERS}, {"diffusion_model.", CKPT_DL_COMFYUI},
                 {"text_encoders.", CKPT_DL_COMFYUI}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strncmp(name, known[i].prefix, strlen(known[i].prefix)) == 0)
            return known[i].style;
    }
    return CKPT_DL_N_STYLES;
}
