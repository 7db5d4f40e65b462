/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gen_zero.c: write a valid ZeRO checkpoint of any size and world, for benchmarks and interop
 * tests.
 *
 *     gen_zero [--stage 1|2|3] [--world N] [--dtype bf16|fp16|fp32] [--layers N] [--width N]
 *              [--vocab N] [--context N] [--llama MLP,KV] [--sparse] FOLDER
 *
 * The model is GPT-2 shaped, its head tied to the embedding; with --llama it is Llama shaped: MLP
 * rows of gate and up, KV rows of keys and values, a head of its own.  Values come from one
 * repeating buffer in memory; the files are written by the library's own layouts, plan and
 * executor, as DeepSpeed 0.19.8 lays them out, so that its zero_to_fp32.py accepts them. With
 * --sparse only headers are written, into files with holes: shapes of any size for tests that read
 * no values.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/dtype.h"
#include "libckpt/drivers.h"
#include "libckpt/map/zero_flat.h"
#include "libckpt/map/zero_param.h"
#include "libckpt/run/run.h"

enum { GEN_PATTERN = 1 << 24 }; /* floats in the repeating buffer */

typedef struct gen_model {
    unsigned stage;
    uint32_t world;
    ckpt_dtype dtype; /* of the module's copy */
    uint64_t layers, width, vocab, context;
    uint64_t mlp, kv; /* of Llama; mlp 0: GPT-2 */
    bool sparse;      /* headers only */
    const char *folder;
    ckpt_map *from; /* the logical tensors, in memory */
    ckpt_map *to;   /* the files */
    ckpt_err err;
} gen_model;

static void gen_die(gen_model *g, const char *what)
{
    fprintf(stderr, "gen_zero: %s: %s\n", what, g->err.text);
    exit(1);
}

static void gen_ok(gen_model *g, int rc, const char *what)
{
    if (rc != CKPT_OK)
        gen_die(g, what);
}

/* ---- the model ---- */

/* A parameter of the source map: extents repeat the buffer. */
static void gen_param(gen_model *g, const char *name, uint64_t rows, uint64_t cols)
{
    uint64_t shape[2] = {rows, cols}, numel = rows * (cols ? cols : 1);
    ckpt_tensor like = {.dtype = CKPT_F32, .ndim = cols ? 2 : 1, .shape = shape}, *t = NULL;
    uint64_t n = (numel + GEN_PATTERN - 1) / GEN_PATTERN;
    ckpt_axis *axis = calloc(n, sizeof *axis);
    ckpt_extent *extent = calloc(n, sizeof *extent);

    gen_ok(g, ckpt_map_add(g->from, name, strlen(name), &like, &t, &g->err), name);
    for (uint64_t i = 0; axis && extent && i < n; i++) {
        uint64_t first = i * GEN_PATTERN,
                 count = numel - first < GEN_PATTERN ? numel - first : GEN_PATTERN;
        axis[i] = (ckpt_axis){first, count, 4};
        extent[i] = (ckpt_extent){.source = 0, .ndim = 1, .at = 0, .axis = &axis[i]};
    }
    gen_ok(g, ckpt_map_back(g->from, t, extent, (uint32_t)n, &g->err), name);
    free(axis);
    free(extent);
}

static void gen_layer(gen_model *g, uint64_t i)
{
    static const struct {
        const char *name;
        unsigned rows, cols; /* multiples of the width; cols 0: a vector */
    } part[] = {
        {"ln_1.weight", 1, 0},      {"ln_1.bias", 1, 0},          {"attn.c_attn.weight", 3, 1},
        {"attn.c_attn.bias", 3, 0}, {"attn.c_proj.weight", 1, 1}, {"attn.c_proj.bias", 1, 0},
        {"ln_2.weight", 1, 0},      {"ln_2.bias", 1, 0},          {"mlp.c_fc.weight", 4, 1},
        {"mlp.c_fc.bias", 4, 0},    {"mlp.c_proj.weight", 1, 4},  {"mlp.c_proj.bias", 1, 0}};
    char name[96];

    for (size_t k = 0; k < sizeof part / sizeof *part; k++) {
        snprintf(name, sizeof name, "h.%llu.%s", (unsigned long long)i, part[k].name);
        gen_param(g, name, part[k].rows * g->width, part[k].cols * g->width);
    }
}

static void gen_llama_layer(gen_model *g, uint64_t i)
{
    const struct {
        const char *name;
        uint64_t rows, cols;
    } part[] = {{"self_attn.q_proj", g->width, g->width}, {"self_attn.k_proj", g->kv, g->width},
                {"self_attn.v_proj", g->kv, g->width},    {"self_attn.o_proj", g->width, g->width},
                {"mlp.gate_proj", g->mlp, g->width},      {"mlp.up_proj", g->mlp, g->width},
                {"mlp.down_proj", g->width, g->mlp},      {"input_layernorm", g->width, 0},
                {"post_attention_layernorm", g->width, 0}};
    char name[96];

    for (size_t k = 0; k < sizeof part / sizeof *part; k++) {
        snprintf(name, sizeof name, "model.layers.%llu.%s.weight", (unsigned long long)i,
                 part[k].name);
        gen_param(g, name, part[k].rows, part[k].cols);
    }
}

static void gen_llama(gen_model *g)
{
    gen_param(g, "model.embed_tokens.weight", g->vocab, g->width);
    for (uint64_t i = 0; i < g->layers; i++)
        gen_llama_layer(g, i);
    gen_param(g, "model.norm.weight", g->width, 0);
    gen_param(g, "lm_head.weight", g->vocab, g->width);
}

static void gen_gpt2(gen_model *g)
{
    gen_param(g, "wte.weight", g->vocab, g->width);
    gen_param(g, "wpe.weight", g->context, g->width);
    for (uint64_t i = 0; i < g->layers; i++)
        gen_layer(g, i);
    gen_param(g, "ln_f.weight", g->width, 0);
    gen_param(g, "ln_f.bias", g->width, 0);
}

static void gen_params(gen_model *g)
{
    float *pattern = malloc(sizeof(float) * GEN_PATTERN);
    ckpt_source memory = {.kind = CKPT_SOURCE_MEMORY,
                          .n_bytes = sizeof(float) * GEN_PATTERN,
                          .memory = pattern,
                          .name = "pattern"};
    uint32_t x = 12345, index;

    for (size_t i = 0; pattern && i < GEN_PATTERN; i++) {
        x = x * 1664525u + 1013904223u;
        pattern[i] = ((float)(x >> 8) / 8388608.0f - 1.0f) * 0.05f;
    }
    gen_ok(g, ckpt_map_create(&g->from, 0, &g->err), "map");
    gen_ok(g, ckpt_map_add_source(g->from, &memory, &index, &g->err), "pattern");
    if (g->mlp)
        gen_llama(g);
    else
        gen_gpt2(g);
}

/* ---- values ---- */

static ckpt_value *gen_dict(gen_model *g, ckpt_value_kind kind)
{
    ckpt_value *v = ckpt_value_new(g->to->arena, kind);

    if (!v)
        gen_die(g, "memory");
    return v;
}

static void gen_put(gen_model *g, ckpt_value *dict, const char *key, ckpt_value *value)
{
    if (!value || !ckpt_dict_add_cstr(g->to->arena, &dict->as.map, key, value))
        gen_die(g, "memory");
}

static void gen_int(gen_model *g, ckpt_value *dict, const char *key, uint64_t i)
{
    gen_put(g, dict, key, ckpt_value_int(g->to->arena, (int64_t)i));
}

static ckpt_value *gen_seq(gen_model *g, ckpt_value_kind kind, ckpt_value *one)
{
    ckpt_value *v = gen_dict(g, kind);

    if (one && !ckpt_seq_add(g->to->arena, &v->as.seq, one))
        gen_die(g, "memory");
    return v;
}

static ckpt_value *gen_object(gen_model *g, const char *module, const char *name,
                              ckpt_object_form form, ckpt_value *args, ckpt_value *state)
{
    ckpt_value *v = gen_dict(g, CKPT_V_OBJECT), *cls = gen_dict(g, CKPT_V_GLOBAL);

    cls->as.global.module = (ckpt_text){module, strlen(module)};
    cls->as.global.name = (ckpt_text){name, strlen(name)};
    v->as.object = ckpt_arena_alloc(g->to->arena, sizeof *v->as.object);
    *v->as.object = (ckpt_object){.form = form, .cls = cls, .args = args, .state = state};
    return v;
}

/* A storage of n elements in a file, and a 1-axis or shaped view of it. */
static ckpt_storage *gen_storage(gen_model *g, uint32_t file, ckpt_dtype dtype, uint64_t n)
{
    ckpt_storage *s = ckpt_arena_alloc(g->to->arena, sizeof *s);
    ckpt_source source = {.kind = CKPT_SOURCE_FILE, .file = file};

    *s = (ckpt_storage){.location = {"cpu", 3}, .dtype = dtype, .n_elems = n};
    if (!ckpt_dtype_bytes(dtype, n, &s->n_bytes))
        gen_die(g, "size");
    source.n_bytes = source.n_stored = s->n_bytes;
    gen_ok(g, ckpt_map_add_source(g->to, &source, &s->source, &g->err), "source");
    ckpt_storage **slot = ckpt_vec_push(&g->to->files.at[file].storages);
    if (!slot)
        gen_die(g, "memory");
    *slot = s;
    return s;
}

static ckpt_value *gen_view(gen_model *g, ckpt_storage *s, uint64_t offset, const uint64_t *shape,
                            uint32_t ndim)
{
    ckpt_value *v = gen_dict(g, CKPT_V_TENSOR);
    ckpt_tensor_value *t = ckpt_arena_alloc(g->to->arena, sizeof *t);
    uint64_t *stride = ckpt_arena_array(g->to->arena, ndim ? ndim : 1, sizeof *stride), step = 1;

    for (uint32_t i = ndim; i-- > 0; step *= shape[i])
        stride[i] = step;
    *t = (ckpt_tensor_value){
        .storage = s, .dtype = s->dtype, .ndim = ndim, .stride = stride, .offset = offset};
    t->shape = ckpt_arena_copy(g->to->arena, shape, ndim * sizeof *shape);
    v->as.tensor = t;
    return v;
}

static ckpt_value *gen_size(gen_model *g, const ckpt_tensor *t)
{
    ckpt_value *v = gen_dict(g, CKPT_V_SIZE);

    for (uint32_t i = 0; i < t->ndim; i++)
        ckpt_seq_add(g->to->arena, &v->as.seq, ckpt_value_int(g->to->arena, (int64_t)t->shape[i]));
    return v;
}

/* ---- model states ---- */

static uint32_t gen_file(gen_model *g, const char *name)
{
    ckpt_map_file f = {.path = name, .format = ckpt_driver_find("torch")};
    uint32_t index = 0;

    gen_ok(g, ckpt_map_add_file(g->to, &f, &index, &g->err), name);
    return index;
}

static ckpt_value *gen_model_values(gen_model *g, ckpt_value *module, uint32_t rank)
{
    ckpt_value *root = gen_dict(g, CKPT_V_DICT), *shapes = gen_dict(g, CKPT_V_ODICT),
               *shared = gen_dict(g, CKPT_V_DICT);

    for (size_t i = 0; i < g->from->tensors.n; i++)
        gen_put(g, shapes, g->from->tensors.at[i]->name, gen_size(g, g->from->tensors.at[i]));
    if (rank == 0 && !g->mlp)
        gen_put(g, shared, "lm_head.weight", ckpt_value_cstr(g->to->arena, "wte.weight"));
    gen_put(g, root, "module", module);
    gen_put(g, root, "buffer_names", gen_dict(g, CKPT_V_LIST));
    gen_put(g, root, "optimizer", gen_dict(g, CKPT_V_NONE));
    gen_put(g, root, "param_shapes", gen_seq(g, CKPT_V_LIST, shapes));
    gen_put(g, root, "frozen_param_shapes",
            g->stage == 1 ? gen_dict(g, CKPT_V_NONE) : gen_dict(g, CKPT_V_ODICT));
    gen_put(g, root, "shared_params", shared);
    gen_put(g, root, "frozen_param_fragments",
            g->stage == 1 ? gen_dict(g, CKPT_V_NONE) : gen_dict(g, CKPT_V_ODICT));
    gen_put(g, root, "lr_scheduler", gen_dict(g, CKPT_V_NONE));
    gen_int(g, root, "skipped_steps", 0);
    gen_int(g, root, "global_steps", 4);
    gen_int(g, root, "global_samples", 4 * (uint64_t)g->world);
    gen_int(g, root, "dp_world_size", g->world);
    gen_int(g, root, "mp_world_size", 1);
    gen_put(g, root, "ds_config", gen_dict(g, CKPT_V_DICT));
    gen_put(g, root, "ds_version", ckpt_value_cstr(g->to->arena, "0.19.8"));
    return root;
}

/* GPT-2's head is its embedding. */
static void gen_tie(gen_model *g, ckpt_value *module)
{
    if (!g->mlp)
        gen_put(g, module, "lm_head.weight", module->as.map.at[0].value);
}

/* Stage 3: empty placeholders. */
static ckpt_value *gen_placeholders(gen_model *g, uint32_t file)
{
    ckpt_value *module = gen_dict(g, CKPT_V_ODICT);
    const uint64_t zero = 0;

    for (size_t i = 0; i < g->from->tensors.n; i++)
        gen_put(g, module, g->from->tensors.at[i]->name,
                gen_view(g, gen_storage(g, file, g->dtype, 0), 0, &zero, 1));
    gen_tie(g, module);
    return module;
}

/* A target tensor that takes its values from a parameter. */
static void gen_copy(gen_model *g, const char *kind, const ckpt_tensor *p, ckpt_dtype dtype,
                     const ckpt_extent *e, uint32_t n)
{
    ckpt_tensor like = {.dtype = dtype, .ndim = p->ndim, .shape = p->shape, .origin = p->name},
                *t = NULL;
    char name[160];

    snprintf(name, sizeof name, "%s/%s", kind, p->name);
    gen_ok(g, ckpt_map_add(g->to, name, strlen(name), &like, &t, &g->err), name);
    gen_ok(g, ckpt_map_back(g->to, t, e, n, &g->err), name);
}

/* Stages 1, 2: views of one flat storage. */
static ckpt_value *gen_module(gen_model *g, uint32_t file)
{
    ckpt_value *module = gen_dict(g, CKPT_V_ODICT);
    uint64_t total = 0, width = g->dtype == CKPT_F32 ? 4 : 2;

    for (size_t i = 0; i < g->from->tensors.n; i++)
        total += g->from->tensors.at[i]->n_elems;
    ckpt_storage *s = gen_storage(g, file, g->dtype, total);
    total = 0;
    for (size_t i = 0; i < g->from->tensors.n; i++) {
        const ckpt_tensor *p = g->from->tensors.at[i];
        ckpt_axis axis = {0, p->n_elems, (int64_t)width};
        ckpt_extent e = {.source = s->source, .ndim = 1, .at = total * width, .axis = &axis};
        gen_put(g, module, p->name, gen_view(g, s, total, p->shape, p->ndim));
        gen_copy(g, "module", p, g->dtype, &e, 1);
        total += p->n_elems;
    }
    gen_tie(g, module);
    return module;
}

static void gen_model_states(gen_model *g)
{
    char name[96];

    for (uint32_t r = 0; r < (g->stage == 3 ? g->world : 1); r++) {
        if (g->stage == 3)
            snprintf(name, sizeof name, "zero_pp_rank_%u_mp_rank_00_model_states.pt", r);
        else
            snprintf(name, sizeof name, "mp_rank_00_model_states.pt");
        uint32_t file = gen_file(g, name);
        ckpt_value *tree =
            gen_model_values(g, g->stage == 3 ? gen_placeholders(g, file) : gen_module(g, file), r);
        g->to->files.at[file].tree = tree;
    }
}

/* ---- optimizer states ---- */

enum { GEN_FP32, GEN_EXP_AVG, GEN_EXP_AVG_SQ, GEN_KINDS };

static const char *const gen_kind[GEN_KINDS] = {"fp32", "exp_avg", "exp_avg_sq"};

static ckpt_value *gen_adam(gen_model *g, ckpt_storage *const s[GEN_KINDS])
{
    ckpt_value *outer = gen_dict(g, CKPT_V_DICT), *state = gen_dict(g, CKPT_V_DICT),
               *one = gen_dict(g, CKPT_V_DICT);
    ckpt_value *group = gen_dict(g, CKPT_V_DICT), *zero = ckpt_value_int(g->to->arena, 0);

    gen_int(g, one, "step", 4);
    gen_put(g, one, "exp_avg", gen_view(g, s[GEN_EXP_AVG], 0, &s[GEN_EXP_AVG]->n_elems, 1));
    gen_put(g, one, "exp_avg_sq",
            gen_view(g, s[GEN_EXP_AVG_SQ], 0, &s[GEN_EXP_AVG_SQ]->n_elems, 1));
    ckpt_dict_add(g->to->arena, &state->as.map, zero, one);
    gen_put(g, group, "lr", ckpt_value_float(g->to->arena, 0.001));
    gen_put(g, group, "params", gen_seq(g, CKPT_V_LIST, zero));
    gen_put(g, outer, "state", state);
    gen_put(g, outer, "param_groups", gen_seq(g, CKPT_V_LIST, group));
    return outer;
}

static ckpt_value *gen_scaler(gen_model *g)
{
    ckpt_value *state = gen_dict(g, CKPT_V_DICT);

    gen_put(g, state, "cur_scale", ckpt_value_float(g->to->arena, 1.0));
    gen_put(g, state, "dynamic", ckpt_value_bool(g->to->arena, false));
    return gen_object(g, "deepspeed.runtime.fp16.loss_scaler", "LossScaler", CKPT_BY_NEWOBJ,
                      gen_dict(g, CKPT_V_TUPLE), state);
}

static ckpt_value *gen_optim_values(gen_model *g, ckpt_storage *const s[GEN_KINDS], uint64_t saved,
                                    uint64_t padding)
{
    ckpt_value *root = gen_dict(g, CKPT_V_DICT), *osd = gen_dict(g, CKPT_V_DICT);
    ckpt_value *masters = gen_seq(g, CKPT_V_LIST, gen_view(g, s[GEN_FP32], 0, &saved, 1));
    ckpt_value *world = ckpt_value_int(g->to->arena, g->world);

    gen_put(g, osd, "zero_stage",
            gen_object(g, "deepspeed.runtime.zero.config", "ZeroStageEnum", CKPT_BY_REDUCE,
                       gen_seq(g, CKPT_V_TUPLE, ckpt_value_int(g->to->arena, g->stage)), NULL));
    gen_put(g, osd, "loss_scaler", gen_scaler(g));
    gen_put(g, osd, "dynamic_loss_scale", ckpt_value_bool(g->to->arena, false));
    gen_put(g, osd, "overflow", ckpt_value_bool(g->to->arena, false));
    if (g->stage == 3) {
        gen_put(g, osd, "partition_count", world);
        gen_put(g, osd, "optimizer_state_dict", gen_adam(g, s));
        gen_put(g, osd, "fp32_flat_groups", masters);
    } else {
        gen_put(g, osd, "base_optimizer_state", gen_adam(g, s));
        gen_put(g, osd, "single_partition_of_fp32_groups", masters);
        gen_put(g, osd, "group_paddings",
                gen_seq(g, CKPT_V_LIST, ckpt_value_int(g->to->arena, (int64_t)padding)));
        gen_put(g, osd, "partition_count", gen_seq(g, CKPT_V_LIST, world));
    }
    gen_put(g, osd, "ds_version", ckpt_value_cstr(g->to->arena, "0.19.8"));
    gen_put(g, root, "optimizer_state_dict", osd);
    gen_put(g, root, "ds_config", gen_dict(g, CKPT_V_DICT));
    gen_put(g, root, "ds_version", ckpt_value_cstr(g->to->arena, "0.19.8"));
    return root;
}

/* Where parameter i lies in the ranks' storages of one kind: extents, caller frees. */
static ckpt_extent *gen_runs(gen_model *g, const ckpt_zero_flat *z, uint64_t i, uint64_t base,
                             ckpt_storage *const (*s)[GEN_KINDS], int kind, uint32_t *n)
{
    ckpt_extent *e = calloc(g->world, sizeof *e);
    ckpt_axis *axis = calloc(g->world, sizeof *axis);
    ckpt_zero_run run;

    *n = 0;
    for (uint64_t cur = 0; e && axis &&
                           (g->stage == 3 ? ckpt_zero_param_next(z->numel[i], g->world, &cur, &run)
                                          : ckpt_zero_flat_next(z, i, &cur, &run));
         (*n)++) {
        axis[*n] = (ckpt_axis){run.first, run.count, 4};
        e[*n] = (ckpt_extent){.source = s[run.rank][kind]->source,
                              .ndim = 1,
                              .at = (base + run.at) * 4,
                              .axis = &axis[*n]};
    }
    return e;
}

static void gen_optim_states(gen_model *g)
{
    size_t n = g->from->tensors.n;
    uint64_t *numel = calloc(n, sizeof *numel), slice = 0, base = 0;
    ckpt_storage *(*s)[GEN_KINDS] = calloc(g->world, sizeof *s);
    ckpt_zero_flat z;
    char name[96];

    for (size_t i = 0; numel && i < n; i++) {
        numel[i] = g->from->tensors.at[i]->n_elems;
        slice += ckpt_zero_partition(numel[i], g->world);
    }
    gen_ok(g,
           ckpt_zero_flat_new(&z, &(ckpt_zero_sizes){numel, NULL, n}, g->world,
                              2 * (uint64_t)g->world, &g->err),
           "layout");
    slice = g->stage == 3 ? slice : z.slice;
    for (uint32_t r = 0; s && r < g->world; r++) {
        uint64_t padding = g->stage == 3 ? 0 : ckpt_zero_flat_padding(&z, r);
        snprintf(name, sizeof name, "%szero_pp_rank_%u_mp_rank_00_optim_states.pt",
                 g->dtype == CKPT_BF16 ? "bf16_" : "", r);
        uint32_t file = gen_file(g, name);
        for (int k = 0; k < GEN_KINDS; k++)
            s[r][k] = gen_storage(g, file, CKPT_F32, slice);
        ckpt_value *tree = gen_optim_values(g, s[r], slice - padding, padding);
        g->to->files.at[file].tree = tree;
    }
    for (size_t i = 0; i < n; i++) {
        for (int k = 0; k < GEN_KINDS; k++) {
            uint32_t count;
            ckpt_extent *e =
                gen_runs(g, &z, i, base, (ckpt_storage *const(*)[GEN_KINDS])s, k, &count);
            gen_copy(g, gen_kind[k], g->from->tensors.at[i], CKPT_F32, e, count);
        }
        base += g->stage == 3 ? ckpt_zero_partition(numel[i], g->world) : 0;
    }
    ckpt_zero_flat_free(&z);
    free(numel);
    free(s);
}

/* ---- files ---- */

/* A file of its full size that holds nothing but what depends on no data; records carry no
 * checksums. */
static void gen_hollow(gen_model *g, uint32_t i, const char *folder)
{
    ckpt_map_file *file = &g->to->files.at[i];
    char path[8192];

    gen_ok(g, file->format->seal(g->to, i, UINT64_MAX, &g->err), "seal");
    snprintf(path, sizeof path, "%s/%s", folder, file->path);
    FILE *f = fopen(path, "wb");
    bool ok = f && ftruncate(fileno(f), (off_t)file->size) == 0;
    for (size_t k = 0; ok && k < file->literals.n; k++) {
        const ckpt_literal *l = &file->literals.at[k];
        ok = fseeko(f, (off_t)l->at, SEEK_SET) == 0 && fwrite(l->bytes, 1, l->n, f) == l->n;
    }
    if (!f || !ok || fclose(f) != 0)
        gen_die(g, path);
}

static void gen_sparse(gen_model *g)
{
    char folder[4096], latest[4096];

    snprintf(folder, sizeof folder, "%s/global_step4", g->folder);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        gen_die(g, folder);
    for (uint32_t i = 0; i < g->to->files.n; i++)
        gen_hollow(g, i, folder);
    snprintf(latest, sizeof latest, "%s/latest", g->folder);
    FILE *f = fopen(latest, "w");
    if (!f || fputs("global_step4", f) < 0 || fclose(f) != 0)
        gen_die(g, latest);
}

static void gen_write(gen_model *g)
{
    ckpt_run_opts opts = {.force = true};
    ckpt_run_report report = {0};
    ckpt_plan *plan = NULL;

    for (uint32_t i = 0; i < g->to->files.n; i++)
        gen_ok(g, g->to->files.at[i].format->place(g->to, i, &g->err), "place");
    if (g->sparse) {
        gen_sparse(g);
    } else {
        g->to->folder = g->to->pointer_text = "global_step4";
        g->to->pointer = "latest";
        g->to->into = g->folder;
        gen_ok(g, ckpt_plan_new(&plan, g->from, g->to, &opts, &g->err), "plan");
        gen_ok(g, ckpt_plan_run(plan, &opts, &report, &g->err), "run");
    }
    printf("wrote %zu files, %.3f GB, to %s\n", g->to->files.n, (double)report.n_written / 1e9,
           g->folder);
    ckpt_plan_free(plan);
}

static void gen_args(gen_model *g, int argc, char **argv)
{
    static const struct option options[] = {{"stage", 1, NULL, 's'},   {"world", 1, NULL, 'w'},
                                            {"dtype", 1, NULL, 'd'},   {"layers", 1, NULL, 'l'},
                                            {"width", 1, NULL, 'm'},   {"vocab", 1, NULL, 'v'},
                                            {"context", 1, NULL, 'c'}, {"sparse", 0, NULL, 'p'},
                                            {"llama", 1, NULL, 'a'},   {NULL, 0, NULL, 0}};
    char *end = NULL;
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        uint64_t n = optarg ? strtoull(optarg, NULL, 10) : 0;
        switch (c) {
        case 's':
            g->stage = (unsigned)n;
            break;
        case 'w':
            g->world = (uint32_t)n;
            break;
        case 'd':
            g->dtype = ckpt_dtype_parse(optarg);
            break;
        case 'l':
            g->layers = n;
            break;
        case 'm':
            g->width = n;
            break;
        case 'v':
            g->vocab = n;
            break;
        case 'c':
            g->context = n;
            break;
        case 'a':
            g->mlp = strtoull(optarg, &end, 10);
            g->kv = *end == ',' ? strtoull(end + 1, NULL, 10) : 0;
            break;
        case 'p':
            g->sparse = true;
            break;
        default:
            exit(2);
        }
    }
    if (optind + 1 != argc || g->stage < 1 || g->stage > 3 || g->world < 1 || g->width < 1 ||
        g->dtype == CKPT_DTYPE_NONE || (end && !(g->mlp && g->kv))) {
        fprintf(stderr, "usage: gen_zero [--stage 1|2|3] [--world N] [--dtype bf16|fp16|fp32] "
                        "[--layers N] [--width N] "
                        "[--vocab N] [--context N] [--llama MLP,KV] [--sparse] FOLDER\n");
        exit(2);
    }
    g->folder = argv[optind];
}

int main(int argc, char **argv)
{
    gen_model g = {.stage = 3,
                   .world = 2,
                   .dtype = CKPT_BF16,
                   .layers = 2,
                   .width = 64,
                   .vocab = 256,
                   .context = 1024};

    gen_args(&g, argc, argv);
    if (mkdir(g.folder, 0777) != 0 && errno != EEXIST) {
        perror(g.folder);
        return 1;
    }
    gen_params(&g);
    gen_ok(&g, ckpt_map_create(&g.to, UINT64_C(8) << 30, &g.err), "map");
    gen_model_states(&g);
    gen_optim_states(&g);
    gen_write(&g);
    free(g.from->sources.at[0].memory);
    ckpt_map_free(g.to);
    ckpt_map_free(g.from);
    return 0;
}
