/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.h: several ranks of a run in one process, each a thread with a runtime of its own, for
 * tests of saving and loading.  What travels between them goes through a board that all can see.
 */
#ifndef TESTS_UNIT_ENGINE_SAVE_HELP_H
#define TESTS_UNIT_ENGINE_SAVE_HELP_H

#include <math.h>
#include <pthread.h>

#include "engine/comm/link.h"
#include "engine/save/save.h"
#include "libckpt/base/mem.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"

/* ---- a folder with a small model, for the time of a group of tests ---- */

static char save_top[FOLDER_PATH];

static const char save_gpt2[] =
    "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\", \"vocab_size\": 13,"
    "\"n_positions\": 8, \"n_embd\": 6, \"n_layer\": 2, \"n_head\": 2, \"n_inner\": 10,"
    "\"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-5,"
    "\"initializer_range\": 0.02, \"resid_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"attn_pdrop\": 0.0,"
    "\"tie_word_embeddings\": true}";

static int save_top_make(void **state)
{
    (void)state;
    folder_new(save_top);
    folder_text(save_top, "config.json", save_gpt2);
    return 0;
}

static int save_top_remove(void **state)
{
    (void)state;
    folder_remove(save_top);
    return 0;
}

enum { BOARD_WORLD = 4 };

typedef struct board {
    int world;
    pthread_barrier_t meet;
    const void *from[BOARD_WORLD];
} board;

typedef struct board_rank {
    zt_link link;
    board *all;
} board_rank;

/* Show what I have; everybody's is to be seen until board_done. */
static void board_show(board_rank *r, const void *from)
{
    r->all->from[r->link.base.rank] = from;
    pthread_barrier_wait(&r->all->meet);
}

static void board_done(board_rank *r)
{
    pthread_barrier_wait(&r->all->meet);
}

static int board_gather(void *way, const zt_call *c, ckpt_err *err)
{
    board_rank *r = way;
    size_t n = (size_t)c->n * c->size;
    char *all = ckpt_alloc(n * (size_t)r->all->world + 1);

    (void)err;
    board_show(r, c->from);
    for (int i = 0; i < r->all->world; i++)
        memcpy(all + (size_t)i * n, r->all->from[i], n);
    board_done(r);
    memcpy(c->to, all, n * (size_t)r->all->world);
    ckpt_free(all);
    return CKPT_OK;
}

static double board_get(const void *p, uint64_t i, ckpt_dtype dt)
{
    return dt == CKPT_I32   ? (double)((const int32_t *)p)[i]
           : dt == CKPT_I64 ? (double)((const int64_t *)p)[i]
           : dt == CKPT_F64 ? ((const double *)p)[i]
                            : (double)((const float *)p)[i];
}

static void board_set(void *p, uint64_t i, ckpt_dtype dt, double v)
{
    if (dt == CKPT_I32)
        ((int32_t *)p)[i] = (int32_t)v;
    else if (dt == CKPT_I64)
        ((int64_t *)p)[i] = (int64_t)v;
    else if (dt == CKPT_F64)
        ((double *)p)[i] = v;
    else
        ((float *)p)[i] = (float)v;
}

/* Sums as 32-bit integers wrap, as the real ones do. */
static int board_reduce_at(board_rank *r, const zt_call *c, uint64_t first)
{
    double *sum = ckpt_alloc((size_t)(c->n + 1) * sizeof *sum);

    board_show(r, c->from);
    for (uint64_t i = 0; i < c->n; i++) {
        sum[i] = board_get(r->all->from[0], first + i, c->dt);
        for (int k = 1; k < r->all->world; k++) {
            double v = board_get(r->all->from[k], first + i, c->dt);
            sum[i] = c->op == ZT_SUM   ? sum[i] + v
                     : c->op == ZT_MAX ? fmax(sum[i], v)
                                       : fmin(sum[i], v);
        }
    }
    board_done(r);
    for (uint64_t i = 0; i < c->n; i++)
        board_set(c->to, i, c->dt, sum[i]);
    ckpt_free(sum);
    return CKPT_OK;
}

static int board_reduce(void *way, const zt_call *c, ckpt_err *err)
{
    (void)err;
    return board_reduce_at(way, c, 0);
}

static int board_reduce_scatter(void *way, const zt_call *c, ckpt_err *err)
{
    board_rank *r = way;

    (void)err;
    return board_reduce_at(r, c, (uint64_t)r->link.base.rank * c->n);
}

static int board_broadcast(void *way, const zt_call *c, ckpt_err *err)
{
    board_rank *r = way;

    (void)err;
    board_show(r, c->to);
    if (r->link.base.rank != c->root)
        memcpy(c->to, r->all->from[c->root], (size_t)c->n * c->size);
    board_done(r);
    return CKPT_OK;
}

static int board_all_to_all(void *way, const zt_call *c, ckpt_err *err)
{
    (void)way;
    (void)c;
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "not on the board");
}

static int board_barrier(void *way, const zt_call *c, ckpt_err *err)
{
    (void)c;
    (void)err;
    board_show(way, NULL);
    board_done(way);
    return CKPT_OK;
}

static const zt_link_ops board_link = {.reduce_scatter = board_reduce_scatter,
                                       .all_gather = board_gather,
                                       .reduce_small = board_reduce,
                                       .broadcast = board_broadcast,
                                       .all_to_all = board_all_to_all,
                                       .barrier = board_barrier};

static const zt_comm_ops board_comm = {.name = "board",
                                       .all_reduce = zt_link_all_reduce,
                                       .reduce_scatter = zt_link_reduce_scatter,
                                       .all_gather = zt_link_all_gather,
                                       .broadcast = zt_link_broadcast,
                                       .all_to_all = zt_link_all_to_all,
                                       .barrier = zt_link_barrier,
                                       .start = zt_link_start,
                                       .wait = zt_link_wait,
                                       .alloc = zt_link_alloc,
                                       .release = zt_link_release};

/* ---- runs ---- */

/* What a run is, and what its ranks are to do. */
typedef struct save_case {
    int world;
    const char *config; /* HJSON of a ds_config */
    const char *model;  /* folder with config.json */
    const char *grouping;
    const char *freeze; /* globs, or NULL */
    const zt_lora *lora;
    int (*act)(zt_zero *z, void *ctx, ckpt_err *err); /* on every rank */
    void *ctx;
    ckpt_err err[BOARD_WORLD];
    int rc[BOARD_WORLD];
} save_case;

typedef struct save_rank {
    save_case *run;
    board_rank comm;
    pthread_t thread;
} save_rank;

static int save_rank_act(save_rank *r, zt_device *device, zt_model **model, ckpt_arena *arena,
                         ckpt_err *err)
{
    const save_case *run = r->run;
    zt_config *config = ckpt_arena_alloc(arena, sizeof *config);
    zt_model_config *mc = ckpt_arena_alloc(arena, sizeof *mc);
    const zt_zero_opts opts = {.grouping = run->grouping, .max_batch = 1, .max_seq = 4};
    ckpt_value *json = NULL;
    zt_zero *z = NULL;
    size_t n = 0;
    int rc = zt_hjson_parse(&json, arena, run->config, strlen(run->config), "test", err);

    if (rc == CKPT_OK)
        rc = zt_config_parse(config, arena, json, NULL, run->world, err);
    if (rc == CKPT_OK)
        rc = zt_model_config_read(mc, arena, run->model, err);
    if (rc == CKPT_OK)
        rc = zt_model_new(model, device, config->dtype, mc, run->lora, err);
    if (rc == CKPT_OK && run->freeze)
        rc = zt_model_freeze(*model, run->freeze, &n, err);
    if (rc == CKPT_OK)
        rc = zt_zero_new(&z, *model, config, &r->comm.link.base, &opts, err);
    if (rc == CKPT_OK)
        rc = run->act(z, run->ctx, err);
    zt_zero_free(z);
    return rc;
}

static void *save_rank_main(void *ctx)
{
    save_rank *r = ctx;
    int rank = r->comm.link.base.rank;
    ckpt_arena *arena = ckpt_arena_new(0);
    zt_device *device = NULL;
    zt_model *model = NULL;
    int rc = zt_cpu_new(&device, 1, &r->run->err[rank]);

    if (rc == CKPT_OK)
        rc = save_rank_act(r, device, &model, arena, &r->run->err[rank]);
    zt_model_free(model);
    zt_device_free(device);
    ckpt_arena_free(arena);
    r->run->rc[rank] = rc;
    return NULL;
}

/* Let all ranks make their runtimes and act. */
static void save_run(save_case *run)
{
    static save_rank rank[BOARD_WORLD];
    static const void *pointers[BOARD_WORLD][BOARD_WORLD];
    board all = {.world = run->world};

    assert_int_equal(pthread_barrier_init(&all.meet, NULL, (unsigned)run->world), 0);
    memset(run->err, 0, sizeof run->err);
    for (int i = 0; i < run->world; i++) {
        rank[i] = (save_rank){.run = run, .comm = {.all = &all}};
        rank[i].comm.link = (zt_link){.base = {.ops = &board_comm,
                                               .rank = i,
                                               .world = run->world,
                                               .local_rank = i,
                                               .local_world = run->world,
                                               .host = "here"},
                                      .ops = run->world > 1 ? &board_link : NULL,
                                      .way = &rank[i].comm,
                                      .pointers = pointers[i]};
    }
    for (int i = 0; i < run->world; i++)
        assert_int_equal(pthread_create(&rank[i].thread, NULL, save_rank_main, &rank[i]), 0);
    for (int i = 0; i < run->world; i++)
        pthread_join(rank[i].thread, NULL);
    pthread_barrier_destroy(&all.meet);
}

/* The same, and it must go well. */
static inline void save_run_well(save_case *run)
{
    save_run(run);
    for (int i = 0; i < run->world; i++) {
        if (run->rc[i] != CKPT_OK)
            print_error("rank %d: %s\n", i, run->err[i].text);
        assert_int_equal(run->rc[i], CKPT_OK);
    }
}

#endif
