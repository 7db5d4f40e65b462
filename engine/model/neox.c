/* SPDX-License-Identifier: Apache-2.0 */
/*
 * neox.c: names the parameters of GPT-NeoX and Pythia (Black et al. 2022, arXiv 2204.06745).
 * decoder.c has the blocks, ends.c the first and the last layer.
 */
#include <inttypes.h>

#include "engine/model/layers.h"

static void nx_build_block(zt_build *b, uint64_t i)
{
    const zt_model_config *f = &b->m->config;
    uint64_t n = f->hidden;
    float std = f->init_range;
    zt_block *k = &b->own->block[i];
    const char *name = ckpt_arena_printf(b->m->arena, "gpt_neox.layers.%" PRIu64, i);
    const zt_map_shape qkv = {n, 3 * n, f->attention_bias, false, std};
    const zt_map_shape o = {n, n, f->output_bias, false, std};
    const zt_map_shape up = {n, f->inner, f->mlp_bias, false, std};
    const zt_map_shape down = {f->inner, n, f->mlp_bias, false, std};

    zt_build_layer(b, &zt_decoder_ops, true, name);
    for (int j = 0; j < ZT_MAPS; j++)
        k->map[j] = zt_no_map;
    k->norm[0] = zt_build_norm(b, zt_build_name(b, name, ".input_layernorm"), true);
    k->norm[1] = zt_build_norm(b, zt_build_name(b, name, ".post_attention_layernorm"), true);
    k->map[ZT_DECODER_Q] =
        zt_build_map(b, zt_build_name(b, name, ".attention.query_key_value"), &qkv);
    k->map[ZT_DECODER_O] = zt_build_map(b, zt_build_name(b, name, ".attention.dense"), &o);
    k->map[ZT_DECODER_UP] = zt_build_map(b, zt_build_name(b, name, ".mlp.dense_h_to_4h"), &up);
    k->map[ZT_DECODER_DOWN] = zt_build_map(b, zt_build_name(b, name, ".mlp.dense_4h_to_h"), &down);
}

int zt_neox_build(zt_build *b)
{
    const zt_model_config *f = &b->m->config;
    zt_own *own = b->own;

    zt_build_layer(b, &zt_stem_ops, false, "gpt_neox.embed_in");
    own->word = zt_build_matrix(b, "gpt_neox.embed_in.weight", f->vocab, f->hidden, f->init_range);
    own->position = ZT_NO_PARAM;
    for (uint64_t i = 0; i < f->layers; i++)
        nx_build_block(b, i);
    zt_build_layer(b, &zt_lm_ops, false, "lm_head");
    own->lm = &zt_final_norm;
    own->norm = zt_build_norm(b, "gpt_neox.final_layer_norm", true);
    zt_build_lm_out(b, "lm_head.weight");
    // transformers names it lm_head since release 5; model folders keep the older name
    if (b->rc == CKPT_OK && !f->tied)
        b->m->params.at[own->out.w].hub = "embed_out.weight";
    zt_build_close(b);
    return b->rc;
}
