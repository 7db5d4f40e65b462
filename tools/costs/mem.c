/* SPDX-License-Identifier: Apache-2.0 */
/* mem.c: implements ckpt mem: memory of a model's states, and traffic, for training under ZeRO. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "tools/ckpt/estimate.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/json_out.h"
#include "tools/costs/config.h"
#include "tools/costs/costs_out.h"
#include "tools/costs/picture.h"
#include "tools/costs/shape.h"

/* The fields of this command. */
typedef struct mem_args {
    cli_args cli; /* first: the parser fills the whole */
    uint64_t params, largest, gpus, nodes, stage;
    uint64_t accumulation, micro_batch, tokens;
    uint64_t layers, hidden, heads;
    uint64_t tensor, pipeline, interleave;
    bool sequence, flash;
    double link, node_link; /* GB/s */
    ckpt_dtype train_dtype, comm_dtype;
    const char *output; /* the picture */
} mem_args;

/* Length of a name up to and including its last dot: its module. */
static size_t mem_module(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? (size_t)(dot - name) : 0;
}

/*
 * Count a model's parameters (shared ones once), and those of its largest module (its own, without
 * its children's).  A module's tensors are adjacent in every checkpoint of a model.
 */
static int mem_count(mem_args *a, model_shape *shape, ckpt_err *err)
{
    ckpt_map *map = NULL;
    const char *module = NULL;
    uint64_t own = 0;
    int rc = args_open(&map, &a->cli, err);

    for (size_t i = 0; rc == CKPT_OK && i < ckpt_map_tensor_count(map); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);
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
    if (rc == CKPT_OK)
        shape_of(shape, map);
    ckpt_map_free(map);
    if (rc == CKPT_OK && a->params == 0)
        rc = fail(err, CKPT_EMISSING, "%s: holds no parameters", a->cli.operand[0]);
    return rc;
}

/* Count from the config.json of a model without weights; CKPT_EMISSING: there is none. */
static int mem_config(mem_args *a, model_shape *shape, ckpt_err *err)
{
    char path[PATH_MAX];
    config_model m;

    config_alone(path, sizeof path, a->cli.operand[0]);
    if (!*path)
        return CKPT_EMISSING;
    err->code = CKPT_OK;
    int rc = config_count(&m, path, err);
    if (rc != CKPT_OK)
        return rc;
    if (!a->cli.quiet)
        say_note("%s: ckpt counts the parameters of a %s; no weights are read", path, m.class_name);
    a->params = m.params;
    a->largest = m.largest;
    *shape = m.shape;
    return CKPT_OK;
}

/*
 * Count the model's parameters and find its shape, from its weights, or else from its config.json.
 */
static int mem_known(mem_args *a, model_shape *shape, ckpt_err *err)
{
    ckpt_err first = {0}, second = {0};
    int rc = mem_count(a, shape, &first);

    if (rc == CKPT_EMISSING || rc == CKPT_EFORMAT || rc == CKPT_EUNSUPPORTED) {
        int other = mem_config(a, shape, &second);
        first = second.code != CKPT_OK ? second : first;
        rc = second.code != CKPT_OK || other == CKPT_OK ? other : rc;
    }
    return rc == CKPT_OK ? rc : fail(err, rc, "%s", first.text);
}

/* Bytes of a rank, in device and host memory. */
typedef struct mem_states {
    uint64_t device, host;
} mem_states;

/* A rank's share of per_param bytes for each parameter, rounded up. */
static uint64_t mem_share(uint64_t per_param, uint64_t params, uint64_t ranks)
{
    return (per_param * params + ranks - 1) / ranks;
}

/*
 * Bytes of a rank's model states in zerotrain with Adam.  16-bit training: 2 weights, 2 gradients,
 * 12 masters and moments.  fp32: 4, 4, and 8 moments, because weights are their own masters.
 *
 * offload  optimizer state is in host memory
 * Source   Rajbhandari et al. 2020, figure 1; tests/replay/equal.py compares it with a run's memory
 */
static mem_states mem_rank(const mem_args *a, const costs_job *job, int stage, bool offload)
{
    static const uint64_t whole16[] = {16, 4, 2, 0}, whole32[] = {16, 8, 4, 0};
    bool wide = a->train_dtype == CKPT_F32;
    uint64_t ranks = costs_data_ranks(job), whole = (wide ? whole32 : whole16)[stage];
    uint64_t kept = !offload ? 0 : wide ? 8 : 12;
    uint64_t params = mem_share(1, job->params, job->tensor * job->pipeline);

    return (mem_states){.device = whole * params + mem_share(16 - whole - kept, params, ranks),
                        .host = mem_share(kept, params, ranks)};
}

/* True if the model is divided in ways that zerotrain and DeepSpeed's estimators do not support. */
static bool mem_cut(const costs_job *job)
{
    return job->tensor > 1 || job->pipeline > 1;
}

/* Number of ZeRO stages to show: pipelines exclude the stages that divide gradients or weights. */
static int mem_stages(const costs_job *job)
{
    return job->pipeline > 1 ? 2 : 4;
}

static void mem_engine(const mem_args *a, const costs_job *job)
{
    char n[HUMAN_ROOM], m[HUMAN_ROOM];

    out_printf("%smodel states of each of %" PRIu64 " ranks, %s with Adam\n",
               mem_cut(job) ? "" : "zerotrain: ", job->gpus * job->nodes,
               a->train_dtype == CKPT_F32 ? "fp32" : "bf16 or fp16");
    if (mem_cut(job))
        out_printf("(layers in equal parts; without communication buffers and activations):\n");
    else
        out_printf("(without communication buffers and activations; zerotrain --profile measures a "
                   "run):\n");
    for (int s = 0; s < mem_stages(job); s++) {
        mem_states here = mem_rank(a, job, s, false), apart = mem_rank(a, job, s, true);

        out_printf("  ZeRO-%d  %s", s, human_bytes(n, here.device));
        if (s > 0)
            out_printf(", or with offload_optimizer %s, %s on the host",
                       human_bytes(n, apart.device), human_bytes(m, apart.host));
        out_printf("\n");
    }
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

static bool mem_estimates(const mem_args *a, const costs_job *job)
{
    return a->train_dtype != CKPT_F32 && !mem_cut(job);
}

/*
 * Print all ways to offload, but only for 16-bit training, because DeepSpeed's estimators know no
 * other.
 */
static int mem_json(const mem_args *a, estimate *e, const acts_job *job, ckpt_err *err)
{
    int last = !mem_estimates(a, &job->cut) ? 1 : e->largest ? 3 : 2;
    json_out j;
    int rc = CKPT_OK;

    json_begin(&j);
    json_uint(&j, "params", a->params);
    json_uint(&j, "largest_layer", a->largest);
    json_open(&j, "estimates", '[');
    for (e->stage = 2; rc == CKPT_OK && e->stage <= last; e->stage++) {
        for (unsigned k = 0; rc == CKPT_OK && k < (e->stage == 3 ? 8U : 2U); k++) {
            e->offload_optimizer = k & 1;
            e->zero_init = k & 2;
            e->offload_param = k & 4;
            // offloaded parameters require an offloaded optimizer
            if ((!a->stage || a->stage == (uint64_t)e->stage) &&
                (!e->offload_param || e->offload_optimizer))
                rc = mem_json_case(&j, e, err);
        }
    }
    json_close(&j, ']');
    json_open(&j, "zerotrain", '[');
    for (int s = 0; s < mem_stages(&job->cut); s++) {
        mem_states apart = mem_rank(a, &job->cut, s, true);

        json_open(&j, NULL, '{');
        json_int(&j, "stage", s);
        json_uint(&j, "bytes", mem_rank(a, &job->cut, s, false).device);
        if (s > 0) {
            json_uint(&j, "offload_device_bytes", apart.device);
            json_uint(&j, "offload_host_bytes", apart.host);
        }
        json_close(&j, '}');
    }
    json_close(&j, ']');
    if (rc == CKPT_OK)
        rc = costs_json(&job->cut, &j, err);
    if (rc == CKPT_OK && job->cut.tokens)
        rc = acts_json(job, &j, err);
    json_end(&j);
    return rc;
}

/* Refuse options that exclude each other, or are out of range. */
static int mem_check(const mem_args *a, ckpt_err *err)
{
    bool cut = a->tensor > 1 || a->pipeline > 1;

    if (a->cli.n_operands ? a->params || a->largest : !a->params)
        return fail(err, CKPT_EUSAGE, "give either a model or --params (and --largest-layer)");
    if (a->stage && a->stage != 2 && a->stage != 3)
        return fail(err, CKPT_EUSAGE,
                    "--stage %" PRIu64 ": expected 2 or 3, the stages with estimates", a->stage);
    if (a->stage && (a->train_dtype == CKPT_F32 || cut))
        return fail(err, CKPT_EUSAGE, "--stage: DeepSpeed's estimates %s",
                    cut ? "do not support --tensor-parallel or --pipeline"
                        : "support 16-bit training only, not --dtype fp32");
    if (a->stage == 3 && !a->cli.n_operands && !a->largest)
        return fail(err, CKPT_EUSAGE, "--stage 3 with --params needs --largest-layer");
    if (a->stage == 2 && a->largest)
        say_warning("--largest-layer has no effect with --stage 2: only stage 3 gathers layers");
    if ((a->train_dtype == CKPT_F32 || cut) && a->largest)
        say_warning("--largest-layer has no effect with --%s: only estimates use it",
                    a->tensor > 1     ? "tensor-parallel"
                    : a->pipeline > 1 ? "pipeline"
                                      : "dtype fp32");
    if (cli_has(&a->cli.line, "gpus") && cli_has(&a->cli.line, "num-gpus"))
        return fail(err, CKPT_EUSAGE,
                    "--gpus and --num-gpus are the same option: give only one of them");
    if (cli_has(&a->cli.line, "nodes") && cli_has(&a->cli.line, "num-nodes"))
        return fail(err, CKPT_EUSAGE,
                    "--nodes and --num-nodes are the same option: give only one of them");
    if (a->gpus > 1 << 24 || a->nodes > 1 << 24 || a->params > UINT64_C(1) << 50)
        return fail(err, CKPT_ELIMIT,
                    "expected at most 2^50 parameters and 2^24 GPUs and nodes (--gpus, --nodes)");
    return CKPT_OK;
}

/* Refuse options that have a meaning only together with others. */
static int mem_alone(const mem_args *a, ckpt_err *err)
{
    static const char *const of_activations[] = {
        "micro-batch", "layers", "hidden", "heads", "flash-attention", "sequence-parallel"};

    for (size_t i = 0; i < sizeof of_activations / sizeof *of_activations && !a->tokens; i++) {
        if (cli_has(&a->cli.line, of_activations[i]))
            return fail(err, CKPT_EUSAGE, "--%s has no effect without --seq-length",
                        of_activations[i]);
    }
    if (a->interleave > 1 && a->pipeline < 2)
        return fail(err, CKPT_EUSAGE, "--interleave has no effect without --pipeline");
    if (a->gpus * a->nodes == 1 && (a->comm_dtype || a->accumulation))
        return fail(err, CKPT_EUSAGE, "--%s has no effect: one GPU sends nothing",
                    a->comm_dtype ? "comm-dtype" : "accumulation");
    if ((cli_has(&a->cli.line, "link") && !(a->link > 0)) ||
        (cli_has(&a->cli.line, "node-link") && !(a->node_link > 0)))
        return fail(err, CKPT_EUSAGE, "--link and --node-link: expected a speed above 0, in GB/s");
    return CKPT_OK;
}

/* Bytes per element of an option's dtype. */
static int mem_width(uint64_t *out, const char *option, ckpt_dtype dtype, ckpt_err *err)
{
    if (dtype != CKPT_F32 && dtype != CKPT_F16 && dtype != CKPT_BF16)
        return fail(err, CKPT_EUSAGE, "--%s %s: expected fp32, bf16 or fp16", option,
                    ckpt_dtype_name(dtype));
    *out = dtype == CKPT_F32 ? 4 : 2;
    return CKPT_OK;
}

/* The default `other` if n is 0 (not given). */
static uint64_t mem_or(uint64_t n, uint64_t other)
{
    return n ? n : other;
}

/* Fill the job from the options, without the model. */
static int mem_job(mem_args *a, acts_job *job, ckpt_err *err)
{
    costs_job *c = &job->cut;
    int rc = mem_alone(a, err);

    a->train_dtype = a->train_dtype ? a->train_dtype : CKPT_BF16;
    *c = (costs_job){.params = a->params,
                     .gpus = a->gpus,
                     .nodes = a->nodes,
                     .tensor = mem_or(a->tensor, 1),
                     .pipeline = mem_or(a->pipeline, 1),
                     .interleave = mem_or(a->interleave, 1),
                     .accumulation = mem_or(a->accumulation, 1),
                     .tokens = a->tokens,
                     .micro_batch = mem_or(a->micro_batch, 1),
                     .link = a->link,
                     .node_link = a->node_link};
    job->sequence = a->sequence;
    job->flash = a->flash;
    if (rc == CKPT_OK)
        rc = mem_width(&c->weight_bytes, "dtype", a->train_dtype, err);
    if (rc == CKPT_OK)
        rc = mem_width(&c->gradient_bytes, "comm-dtype",
                       a->comm_dtype ? a->comm_dtype : a->train_dtype, err);
    return rc;
}

/* Set a number of the model's shape from its files or an option; both must agree. */
static int mem_number(uint64_t *out, const char *option, uint64_t given, uint64_t found,
                      ckpt_err *err)
{
    if (given && found && given != found)
        return fail(err, CKPT_EMISMATCH, "--%s %" PRIu64 ": the model has %" PRIu64, option, given,
                    found);
    *out = mem_or(given, found);
    if (!*out)
        return fail(err, CKPT_EUSAGE, "--seq-length needs --%s: %s", option,
                    "the model does not state this number");
    return CKPT_OK;
}

/*
 * Complete the job with the model: check its layers, that the job is possible, and that all numbers
 * fit in 64 bits.
 */
static int mem_model(const mem_args *a, acts_job *job, const model_shape *shape, ckpt_err *err)
{
    costs_flow f;
    uint64_t n;
    int rc = CKPT_OK;

    job->cut.params = a->params;
    if (a->tokens) {
        rc = mem_number(&job->cut.layers, "layers", a->layers, shape->layers, err);
        if (rc == CKPT_OK)
            rc = mem_number(&job->cut.hidden, "hidden", a->hidden, shape->hidden, err);
        if (rc == CKPT_OK)
            rc = mem_number(&job->heads, "heads", a->heads, shape->heads, err);
    }
    if (rc == CKPT_OK)
        rc = costs_check(&job->cut, err);
    if (rc == CKPT_OK && a->tokens)
        rc = acts_check(job, err);
    for (costs_scheme s = 0; s < COSTS_SCHEMES && rc == CKPT_OK; s++)
        rc = costs_applies(&job->cut, s) ? costs_flow_of(&job->cut, s, &f, err) : CKPT_OK;
    for (acts_schedule s = 0; s < ACTS_SCHEDULES && rc == CKPT_OK && a->tokens; s++) {
        for (acts_mode m = 0; m < ACTS_MODES && rc == CKPT_OK; m++)
            rc = acts_applies(job, s) ? acts_bytes(job, s, m, &n, err) : CKPT_OK;
    }
    return rc;
}

/* Print tables for people. */
static int mem_tables(const mem_args *a, estimate *e, const acts_job *job, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (e->stage = 2; rc == CKPT_OK && e->stage <= 3; e->stage++) {
        if ((a->stage && a->stage != (uint64_t)e->stage) || (e->stage == 3 && !e->largest) ||
            !mem_estimates(a, &job->cut))
            continue;
        rc = estimate_print(e, stdout, err);
        out_printf("\n");
    }
    if (rc != CKPT_OK)
        return rc;
    mem_engine(a, &job->cut);
    if (a->tokens)
        rc = acts_print(job, err);
    return rc == CKPT_OK ? costs_print(&job->cut, err) : rc;
}

static int mem_run(cli_args *cli, ckpt_err *err)
{
    mem_args *a = (mem_args *)cli;
    estimate e = {.factor = ESTIMATE_FACTOR};
    acts_job job = {0};
    model_shape shape = {0};
    int rc;

    a->gpus = a->gpus ? a->gpus : 1;
    a->nodes = a->nodes ? a->nodes : 1;
    rc = mem_check(a, err);
    if (rc == CKPT_OK)
        rc = mem_job(a, &job, err);
    if (rc == CKPT_OK && a->cli.n_operands)
        rc = mem_known(a, &shape, err);
    if (rc == CKPT_OK)
        rc = mem_model(a, &job, &shape, err);
    if (rc != CKPT_OK)
        return rc;
    if (a->output)
        rc = picture_write(a->output, a->cli.run.force, &job,
                           a->cli.n_operands ? a->cli.operand[0] : NULL, a->train_dtype == CKPT_F32,
                           err);
    if (rc != CKPT_OK)
        return rc;
    e.params = a->params;
    e.largest = a->largest;
    e.gpus = a->gpus;
    e.nodes = a->nodes;
    return a->cli.json ? mem_json(a, &e, &job, err) : mem_tables(a, &e, &job, err);
}

static const cli_option mem_options[] = {
    {"stage", 0, CLI_COUNT64, offsetof(mem_args, stage), "2|3",
     "print the table of this ZeRO stage only"},
    {"gpus", 0, CLI_COUNT64, offsetof(mem_args, gpus), "N", "GPUs of each node (default: 1)"},
    {"num-gpus", 0, CLI_COUNT64, offsetof(mem_args, gpus), "N", "same, DeepSpeed's name"},
    {"nodes", 0, CLI_COUNT64, offsetof(mem_args, nodes), "N", "nodes (default: 1)"},
    {"num-nodes", 0, CLI_COUNT64, offsetof(mem_args, nodes), "N", "same, DeepSpeed's name"},
    {"link", 0, CLI_NUMBER, offsetof(mem_args, link), "GB/s",
     "speed of each GPU to others of its node, each way"},
    {"node-link", 0, CLI_NUMBER, offsetof(mem_args, node_link), "GB/s",
     "speed of each node to others, each way"},
    {"accumulation", 0, CLI_COUNT64, offsetof(mem_args, accumulation), "N",
     "micro batches of an update (default: 1)"},
    {"seq-length", 0, CLI_COUNT64, offsetof(mem_args, tokens), "N",
     "tokens of a sample; print activations, too"},
    {"micro-batch", 0, CLI_COUNT64, offsetof(mem_args, micro_batch), "N",
     "samples of a micro batch (default: 1)"},
    {"layers", 0, CLI_COUNT64, offsetof(mem_args, layers), "N", "layers of the model"},
    {"hidden", 0, CLI_COUNT64, offsetof(mem_args, hidden), "N", "hidden size"},
    {"heads", 0, CLI_COUNT64, offsetof(mem_args, heads), "N", "attention heads"},
    {"flash-attention", 0, CLI_FLAG, offsetof(mem_args, flash), NULL,
     "the attention does not store its scores"},
    {"tensor-parallel", 0, CLI_COUNT64, offsetof(mem_args, tensor), "N",
     "GPUs that share each layer (default: 1)"},
    {"sequence-parallel", 0, CLI_FLAG, offsetof(mem_args, sequence), NULL,
     "these GPUs also share dropouts and norms"},
    {"pipeline", 0, CLI_COUNT64, offsetof(mem_args, pipeline), "N",
     "stages of a pipeline (default: 1)"},
    {"interleave", 0, CLI_COUNT64, offsetof(mem_args, interleave), "N",
     "parts of the model in each stage (default: 1)"},
    {"dtype", 0, CLI_DTYPE, offsetof(mem_args, train_dtype), "DTYPE",
     "dtype of training: fp32, bf16 or fp16 (default: bf16)"},
    {"comm-dtype", 0, CLI_DTYPE, offsetof(mem_args, comm_dtype), "DTYPE",
     "dtype of gradients in collectives (default: --dtype)"},
    {"params", 0, CLI_MANY, offsetof(mem_args, params), "N",
     "number of parameters (7B, 350M) in place of MODEL"},
    {"largest-layer", 0, CLI_MANY, offsetof(mem_args, largest), "N",
     "parameters of the largest layer (stage 3)"},
    {"svg", 0, CLI_OUTPUT, offsetof(mem_args, output), "FILE", "draw bars as SVG, too"},
    {"force", 'f', CLI_FLAG, offsetof(cli_args, run.force), NULL, "replace an existing picture"},
    {"json", 0, CLI_FLAG, offsetof(cli_args, json), NULL, "print the bytes of each case as JSON"},
    CLI_NO_SANDBOX,
    CLI_END,
};

static const cli_moot mem_moot[] = {
    {"force", NULL, "svg"},
    {NULL, NULL, NULL},
};

const cli_verb verb_mem = {
    .name = "mem",
    .command = "ckpt mem",
    .operands = "[MODEL]",
    .summary = "Estimate memory and traffic of training a model under ZeRO.",
    .options = mem_options,
    .moot = mem_moot,
    .min = 0,
    .max = 1,
    .uses = "r",
    .run = mem_run,
    .room = sizeof(mem_args),
};
