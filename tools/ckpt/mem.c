/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.c: ckpt mem: how much memory the states of a model take in training, under ZeRO.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/ckpt/estimate.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/json_out.h"

/* Elements up to and including the last dot of a name: its module. */
static size_t mem_module(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? (size_t)(dot - name) : 0;
}

/*
 * Count a model's parameters, shared ones once, and those of its largest module (its own, without
 * its children's). A module's tensors stand together in every checkpoint of a model.
 */
static int mem_count(cli_args *a, ckpt_err *err)
{
    ckpt_map *map = NULL;
    const char *module = NULL;
    uint64_t own = 0;
    int rc = args_open(&map, a, err);

    for (size_t i = 0; rc == CKPT_OK && i < ckpt_map_count(map); i++) {
        const ckpt_tensor *t = ckpt_map_tensor(map, i);
        if (t->owner || t->role == CKPT_ROLE_STATE || t->role == CKPT_ROLE_BUFFER ||
            t->role == CKPT_ROLE_OTHER)
            continue;
        size_t n = mem_module(t->name);
        if (!module || n != mem_module(module) || strncmp(module, t->name, n) != 0)
            own = 0;
        module = t->name;
        own += t->n_elems;
        a->params += t->n_elems;
        a->largest = own > a->largest ? own : a->largest;
    }
    ckpt_map_free(map);
    if (rc == CKPT_OK && a->params == 0)
        rc = fail(err, CKPT_EMISSING, "%s: holds no parameters", a->operand[0]);
    return rc;
}

/*
 * Bytes of a rank's model states in zerotrain, 16-bit training with Adam: 2 weights, 2 gradients,
 * 12 master and moments.
 *
 * Source  Rajbhandari et al. 2020, figure 1; tests/comm compares what is held
 */
static uint64_t mem_rank(uint64_t params, uint64_t ranks, int stage)
{
    static const uint64_t whole[] = {16, 4, 2, 0};

    return whole[stage] * params + ((16 - whole[stage]) * params + ranks - 1) / ranks;
}

static void mem_engine(const cli_args *a)
{
    char n[HUMAN_ROOM];

    out_printf(
        "zerotrain: model states of each of %" PRIu64 " ranks, bf16 or fp16 with Adam\n"
        "(communication buffers and activations come on top; --profile tells what a run holds):\n",
        a->gpus * a->nodes);
    for (int s = 0; s < 4; s++)
        out_printf("  ZeRO-%d  %s\n", s,
                   human_bytes(n, mem_rank(a->params, a->gpus * a->nodes, s)));
}

static int mem_json_case(json_out *j, const estimate *e, ckpt_err *err)
{
    uint64_t cpu, gpu;
    int rc = estimate_bytes(e, &cpu, &gpu, err);

    if (rc != CKPT_OK)
        return rc;
    json_open(j, NULL, '{');
    json_int(j, "stage", e->stage);
    json_bool(j, "offload_optimizer", e->offload_optimizer);
    json_bool(j, "offload_param", e->offload_param);
    json_bool(j, "zero_init", e->zero_init);
    json_uint(j, "cpu_bytes", cpu);
    json_uint(j, "gpu_bytes", gpu);
    json_close(j, '}');
    return CKPT_OK;
}

/* Every way to offload. */
static int mem_json(const cli_args *a, estimate *e, ckpt_err *err)
{
    json_out j;
    int rc = CKPT_OK;

    json_begin(&j);
    json_uint(&j, "params", a->params);
    json_uint(&j, "largest_layer", a->largest);
    json_open(&j, "estimates", '[');
    for (e->stage = 2; rc == CKPT_OK && e->stage <= (e->largest ? 3 : 2); e->stage++) {
        for (unsigned k = 0; rc == CKPT_OK && k < (e->stage == 3 ? 8U : 2U); k++) {
            e->offload_optimizer = k & 1;
            e->zero_init = k & 2;
            e->offload_param = k & 4;
            // parameters go to the host only where the optimizer is there already
            if ((!a->stage || a->stage == (uint64_t)e->stage) &&
                (!e->offload_param || e->offload_optimizer))
                rc = mem_json_case(&j, e, err);
        }
    }
    json_close(&j, ']');
    json_open(&j, "zerotrain", '[');
    for (int s = 0; s < 4; s++) {
        json_open(&j, NULL, '{');
        json_int(&j, "stage", s);
        json_uint(&j, "bytes", mem_rank(a->params, a->gpus * a->nodes, s));
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_end(&j);
    return rc;
}

static int mem_run(cli_args *a, ckpt_err *err)
{
    estimate e = {.factor = ESTIMATE_FACTOR};
    int rc = CKPT_OK;

    a->gpus = a->gpus ? a->gpus : 1;
    a->nodes = a->nodes ? a->nodes : 1;
    if (a->n_operands ? a->params || a->largest : !a->params)
        return fail(err, CKPT_EUSAGE, "name either a model or its --params (and --largest-layer)");
    if (a->stage && a->stage != 2 && a->stage != 3)
        return fail(err, CKPT_EUSAGE, "--stage %" PRIu64 ": there are estimates for stages 2 and 3",
                    a->stage);
    if (a->stage == 3 && !a->n_operands && !a->largest)
        return fail(err, CKPT_EUSAGE,
                    "--stage 3 of a model known by --params needs --largest-layer");
    if (a->stage == 2 && a->largest)
        say_warning("--largest-layer has no effect with --stage 2: only stage 3 gathers layers");
    if (a->gpus > 1 << 24 || a->nodes > 1 << 24 || a->params > UINT64_C(1) << 50)
        return fail(err, CKPT_ELIMIT, "the numbers are too large");
    if (a->n_operands)
        rc = mem_count(a, err);
    e.params = a->params;
    e.largest = a->largest;
    e.gpus = a->gpus;
    e.nodes = a->nodes;
    if (rc != CKPT_OK || a->json)
        return rc == CKPT_OK ? mem_json(a, &e, err) : rc;
    for (e.stage = 2; rc == CKPT_OK && e.stage <= 3; e.stage++) {
        if ((a->stage && a->stage != (uint64_t)e.stage) || (e.stage == 3 && !e.largest))
            continue;
        rc = estimate_print(&e, stdout, err);
        out_printf("\n");
    }
    if (rc == CKPT_OK)
        mem_engine(a);
    return rc;
}

static const cli_option mem_options[] = {
    {"stage", 0, CLI_COUNT64, offsetof(cli_args, stage), "2|3",
     "only the table of this ZeRO stage"},
    {"num-gpus", 0, CLI_COUNT64, offsetof(cli_args, gpus), "N", "GPUs of each node (1)"},
    {"num-nodes", 0, CLI_COUNT64, offsetof(cli_args, nodes), "N", "nodes (1)"},
    {"params", 0, CLI_MANY, offsetof(cli_args, params), "N",
     "parameters (7B, 350M), instead of a model"},
    {"largest-layer", 0, CLI_MANY, offsetof(cli_args, largest), "N",
     "those of its largest layer (stage 3)"},
    {"json", 0, CLI_FLAG, offsetof(cli_args, json), NULL, "print JSON: bytes of every case"},
    CLI_NO_SANDBOX,
    CLI_END,
};

const cli_verb verb_mem = {
    .name = "mem",
    .command = "ckpt mem",
    .operands = "[MODEL]",
    .summary = "Tell how much memory training a model takes under ZeRO.",
    .options = mem_options,
    .min = 0,
    .max = 1,
    .uses = "r",
    .run = mem_run,
};
