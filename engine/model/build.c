/* SPDX-License-Identifier: Apache-2.0 */
/* build.c: builds the list of parameters and the chain of layers on behalf of an architecture. */
#include <assert.h>
#include <string.h>

#include "engine/model/layers.h"

/* Maximum elements of one parameter: above all real models, and its bytes fit 63 bits. */
#define BD_MAX_ELEMS (UINT64_C(1) << 48)

static void bd_fail_memory(zt_build *b)
{
    if (b->rc == CKPT_OK)
        b->rc = ckpt_fail_memory(b->err);
}

void zt_build_close(zt_build *b)
{
    zt_model *m = b->m;

    if (b->rc == CKPT_OK && m->layers.n > 0) {
        zt_layer *l = &m->layers.at[m->layers.n - 1];

        l->param = ckpt_arena_copy(m->arena, b->used, b->n_used * sizeof *b->used);
        l->n_params = (uint32_t)b->n_used;
        if (!l->param)
            bd_fail_memory(b);
    }
    b->n_used = 0;
}

void zt_build_layer(zt_build *b, const zt_layer_ops *ops, bool is_block, const char *name)
{
    zt_layer *l;

    zt_build_close(b);
    if (b->rc != CKPT_OK)
        return;
    l = name ? ckpt_vec_push(&b->m->layers) : NULL;
    if (!l) {
        bd_fail_memory(b);
        return;
    }
    assert(ops->fw && ops->bw && b->n_used == 0);
    l->ops = ops;
    l->name = name;
    l->number = (uint32_t)(b->m->layers.n - 1);
    l->block = is_block ? b->n_blocks++ : 0;
    b->n_maps = 0;
}

void zt_build_use(zt_build *b, uint32_t param)
{
    if (b->rc == CKPT_OK &&
        ckpt_vec_grow_((void **)&b->used, &b->n_used, &b->room_used, sizeof *b->used))
        b->used[b->n_used - 1] = param;
    else
        bd_fail_memory(b);
}

const char *zt_build_name(zt_build *b, const char *prefix, const char *suffix)
{
    const char *name = NULL;

    if (prefix)
        name = ckpt_arena_printf(b->m->arena, "%s%s", prefix, suffix);
    if (!name)
        bd_fail_memory(b);
    return name;
}

static uint32_t bd_add(zt_build *b, const char *name, const uint64_t *shape, uint32_t ndim)
{
    zt_param *p;
    uint64_t n = 1;

    for (uint32_t i = 0; i < ndim; i++) {
        if (!ckpt_mul(n, shape[i], &n) || n == 0 || n > BD_MAX_ELEMS) {
            b->rc = b->rc != CKPT_OK
                        ? b->rc
                        : ckpt_fail(b->err, CKPT_ELIMIT,
                                    "%s would have %s elements: check the sizes in config.json",
                                    name ? name : "a parameter", n == 0 ? "no" : "too many");
            return ZT_NO_PARAM;
        }
    }
    p = b->rc == CKPT_OK && name ? ckpt_vec_push(&b->m->params) : NULL;
    if (!p) {
        bd_fail_memory(b);
        return ZT_NO_PARAM;
    }
    assert(b->m->layers.n > 0 && ndim > 0 && ndim <= sizeof p->shape / sizeof *p->shape);
    p->name = name;
    p->ndim = ndim;
    memcpy(p->shape, shape, ndim * sizeof *shape);
    p->n_elems = n;
    p->layer = (uint32_t)(b->m->layers.n - 1);
    p->no_decay = ndim <= 1;
    zt_build_use(b, (uint32_t)(b->m->params.n - 1));
    return (uint32_t)(b->m->params.n - 1);
}

uint32_t zt_build_matrix(zt_build *b, const char *name, uint64_t rows, uint64_t columns, float std)
{
    uint32_t i = bd_add(b, name, (uint64_t[]){rows, columns}, 2);

    if (i != ZT_NO_PARAM) {
        b->m->params.at[i].init = std > 0.0F ? ZT_INIT_NORMAL : ZT_INIT_ZERO;
        b->m->params.at[i].init_std = std;
    }
    return i;
}

uint32_t zt_build_vector(zt_build *b, const char *name, uint64_t n, bool ones)
{
    uint32_t i = bd_add(b, name, &n, 1);

    if (i != ZT_NO_PARAM)
        b->m->params.at[i].init = ones ? ZT_INIT_ONE : ZT_INIT_ZERO;
    return i;
}

zt_affine zt_build_norm(zt_build *b, const char *module, bool bias)
{
    uint64_t n = b->m->config.hidden;
    zt_affine a = {.b = ZT_NO_PARAM};

    a.w = zt_build_vector(b, zt_build_name(b, module, ".weight"), n, !b->m->config.norm_plus_one);
    if (bias)
        a.b = zt_build_vector(b, zt_build_name(b, module, ".bias"), n, false);
    return a;
}

zt_map zt_build_map(zt_build *b, const char *module, const zt_map_shape *s)
{
    zt_map l = {.in = s->in, .out = s->out, .b = ZT_NO_PARAM, .w_in_out = s->w_in_out};
    const char *name = zt_build_name(b, module, ".weight");
    uint64_t rank = b->m->lora.rank;

    l.lora_a = ZT_NO_PARAM;
    l.lora_b = ZT_NO_PARAM;
    l.site = ZT_SITE_MAP + b->n_maps++;
    l.w = s->w_in_out ? zt_build_matrix(b, name, s->in, s->out, s->std)
                      : zt_build_matrix(b, name, s->out, s->in, s->std);
    if (s->bias)
        l.b = zt_build_vector(b, zt_build_name(b, module, ".bias"), s->out, false);
    if (rank > 0 && module && zt_lora_targets(b->m, module)) {
        float std = zt_lora_std(s->in);

        l.lora_a = zt_build_matrix(b, zt_build_name(b, module, ".lora_A.weight"), rank, s->in, std);
        l.lora_b =
            zt_build_matrix(b, zt_build_name(b, module, ".lora_B.weight"), s->out, rank, 0.0F);
    }
    return l;
}

const zt_map zt_no_map = {
    .w = ZT_NO_PARAM, .b = ZT_NO_PARAM, .lora_a = ZT_NO_PARAM, .lora_b = ZT_NO_PARAM};

void zt_build_alias(zt_build *b, const char *name, uint32_t param)
{
    zt_alias *a = b->rc == CKPT_OK ? ckpt_vec_push(&b->m->aliases) : NULL;

    if (!a) {
        bd_fail_memory(b);
        return;
    }
    assert(name && param < b->m->params.n);
    a->name = name;
    a->param = param;
}
