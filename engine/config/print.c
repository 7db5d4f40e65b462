/* SPDX-License-Identifier: Apache-2.0 */
/*
 * print.c: prints the resolved configuration as JSON.
 *
 * The shape is that of ds_config.json, so the output can be read again with the same meaning.
 * Tables list every setting of the optimizer and the schedule.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "engine/config/config.h"
#include "libckpt/codec/json/json.h"

enum { PR_DEPTH = 8 };

/* The tree under construction: the open objects, the outermost first. */
typedef struct pr_tree {
    ckpt_arena *arena;
    ckpt_value *open[PR_DEPTH];
    unsigned depth; /* number of open objects; the last one takes the next member */
    bool failed;    /* memory was exhausted */
} pr_tree;

/* ---- members ---- */

/* Add a member to the innermost object; v NULL: out of memory. */
static void pr_add(pr_tree *p, const char *key, ckpt_value *v)
{
    p->failed =
        p->failed || !v || !ckpt_dict_add_cstr(p->arena, &p->open[p->depth - 1]->as.map, key, v);
}

/* Begin an object that takes the members up to the next pr_close; key NULL: the root. */
static void pr_open(pr_tree *p, const char *key)
{
    ckpt_value *v = ckpt_value_new(p->arena, CKPT_V_DICT);

    assert(p->depth < PR_DEPTH && (p->depth > 0) == (key != NULL));
    if (key)
        pr_add(p, key, v);
    p->open[p->depth++] = v;
    p->failed = p->failed || !v;
}

static void pr_close(pr_tree *p)
{
    p->depth--;
}

static void pr_real(pr_tree *p, const char *key, double x)
{
    pr_add(p, key, ckpt_value_float(p->arena, x));
}

static void pr_int(pr_tree *p, const char *key, int64_t i)
{
    pr_add(p, key, ckpt_value_int(p->arena, i));
}

static void pr_bool(pr_tree *p, const char *key, bool b)
{
    pr_add(p, key, ckpt_value_bool(p->arena, b));
}

/* text NULL: null */
static void pr_text(pr_tree *p, const char *key, const char *text)
{
    pr_add(p, key, text ? ckpt_value_cstr(p->arena, text) : ckpt_value_new(p->arena, CKPT_V_NONE));
}

static bool pr_item(pr_tree *p, ckpt_value *list, double x)
{
    ckpt_value *v = ckpt_value_float(p->arena, x);

    return v && ckpt_seq_add(p->arena, &list->as.seq, v);
}

/* A list of numbers (schedules have one per parameter group), printed as floats. */
static void pr_list(pr_tree *p, const char *key, const ckpt_value *from)
{
    ckpt_value *list = ckpt_value_new(p->arena, CKPT_V_LIST);
    ckpt_seq s = ckpt_value_seq(from);
    bool ok = list;

    for (uint64_t i = 0; ok && i < s.n; i++)
        ok = pr_item(p, list, s.at[i]->kind == CKPT_V_INT ? (double)s.at[i]->as.i : s.at[i]->as.f);
    pr_add(p, key, ok ? list : NULL);
}

static void pr_pair(pr_tree *p, const char *key, double a, double b)
{
    ckpt_value *list = ckpt_value_new(p->arena, CKPT_V_LIST);

    pr_add(p, key, list && pr_item(p, list, a) && pr_item(p, list, b) ? list : NULL);
}

/* ---- settings by table ---- */

typedef enum pr_kind { PR_REAL, PR_INT, PR_BOOL } pr_kind;

/*
 * One setting of a struct.  types: one bit per type that has it; list: offset of a list per group.
 */
typedef struct pr_setting {
    const char *key;
    pr_kind kind;
    size_t at, list; /* list 0: none */
    unsigned types;
} pr_setting;

static void pr_settings(pr_tree *p, const void *from, const pr_setting *s, size_t n, unsigned type)
{
    for (size_t i = 0; i < n; i++) {
        const char *at = (const char *)from + s[i].at;
        const ckpt_value *list = NULL;
        double x = 0;

        if ((s[i].types >> type & 1) == 0)
            continue;
        if (s[i].list != 0)
            memcpy(&list, (const char *)from + s[i].list, sizeof list);
        if (s[i].kind == PR_REAL)
            memcpy(&x, at, sizeof x);
        if (list) {
            pr_list(p, s[i].key, list);
        } else if (s[i].kind == PR_BOOL) {
            pr_bool(p, s[i].key, *(const bool *)at);
        } else if (s[i].kind == PR_INT) {
            pr_int(p, s[i].key, *(const int64_t *)(const void *)at);
        } else if (!isnan(x)) { // NaN: not set
            pr_real(p, s[i].key, x);
        }
    }
}

#define BIT(t) (1u << (t))
#define ADAMS  (BIT(ZT_OPT_ADAM) | BIT(ZT_OPT_ADAMW))
#define LAMB   BIT(ZT_OPT_LAMB)
#define MUON   BIT(ZT_OPT_MUON)
#define SGD    BIT(ZT_OPT_SGD)
#define ONEBIT BIT(ZT_OPT_ONEBIT_ADAM)
#define ALL    (~0u)

#define OPT(m) offsetof(zt_optim, m)

static const pr_setting pr_optim_settings[] = {
    {"lr", PR_REAL, OPT(h.lr), 0, ALL},
    {"eps", PR_REAL, OPT(h.eps), 0, ALL & ~(SGD | BIT(ZT_OPT_LION))},
    {"weight_decay", PR_REAL, OPT(h.weight_decay), 0, ALL},
    {"adam_w_mode", PR_BOOL, OPT(decoupled), 0, ADAMS | MUON},
    {"torch_adam", PR_BOOL, OPT(torch), 0, ADAMS},
    {"momentum", PR_REAL, OPT(h.momentum), 0, SGD | MUON},
    {"dampening", PR_REAL, OPT(h.dampening), 0, SGD},
    {"nesterov", PR_BOOL, OPT(h.nesterov), 0, SGD},
    {"max_coeff", PR_REAL, OPT(h.max_coeff), 0, LAMB},
    {"min_coeff", PR_REAL, OPT(h.min_coeff), 0, LAMB},
    {"eps_inside_sqrt", PR_BOOL, OPT(eps_inside), 0, LAMB},
    {"freeze_step", PR_INT, OPT(freeze_step), 0, ONEBIT},
    {"muon_lr", PR_REAL, OPT(muon_lr), 0, MUON},
    {"adam_lr", PR_REAL, OPT(adam_lr), 0, MUON},
};

static void pr_optim(pr_tree *p, const zt_optim *o)
{
    bool betas = o->type != ZT_OPT_SGD && o->type != ZT_OPT_ADAGRAD;
    bool adam = o->type == ZT_OPT_ADAM || o->type == ZT_OPT_ADAMW;

    pr_open(p, "optimizer");
    pr_text(p, "type", o->name);
    pr_open(p, "params");
    pr_settings(p, o, pr_optim_settings, sizeof pr_optim_settings / sizeof pr_optim_settings[0],
                (unsigned)o->type);
    if (betas)
        pr_pair(p, "betas", o->h.beta1, o->h.beta2);
    if ((adam && !o->torch) || o->type == ZT_OPT_LAMB)
        pr_bool(p, "bias_correction", o->h.bias_correction);
    if (o->type == ZT_OPT_MUON)
        pr_text(p, "ns_method", o->h.muon_gram ? "gram" : "standard");
    if (o->type == ZT_OPT_ADAGRAD && o->torch)
        pr_real(p, "lr_decay", o->h.lr_decay);
    pr_close(p);
    pr_close(p);
}

#define WARM  (BIT(ZT_WARMUP) | BIT(ZT_WARMUP_DECAY))
#define COS   BIT(ZT_WARMUP_COSINE)
#define RANGE BIT(ZT_RANGE_TEST)
#define CYCLE BIT(ZT_ONE_CYCLE)

#define MIN_LR BIT(ZT_HF_COSINE_MIN)
#define POLY   BIT(ZT_HF_POLYNOMIAL)
#define CYCLES (MIN_LR | BIT(ZT_HF_COSINE) | BIT(ZT_HF_RESTARTS))
#define ENDS   (CYCLES | POLY | BIT(ZT_HF_LINEAR))
#define SQRT   BIT(ZT_HF_INVERSE_SQRT)

#define SCH(m) offsetof(zt_schedule, m)

static const pr_setting pr_schedule_settings[] = {
    {"total_num_steps", PR_INT, SCH(total), 0, BIT(ZT_WARMUP_DECAY) | COS},
    {"warmup_min_lr", PR_REAL, SCH(min_lr), SCH(min_lrs), WARM},
    {"warmup_max_lr", PR_REAL, SCH(max_lr), SCH(max_lrs), WARM},
    {"warmup_min_ratio", PR_REAL, SCH(min_ratio), 0, COS},
    {"cos_min_ratio", PR_REAL, SCH(cos_ratio), 0, COS},
    {"warmup_num_steps", PR_INT, SCH(warmup), 0, WARM | COS},
    {"lr_range_test_min_lr", PR_REAL, SCH(min_lr), SCH(min_lrs), RANGE},
    {"lr_range_test_step_size", PR_REAL, SCH(step_size), 0, RANGE},
    {"lr_range_test_step_rate", PR_REAL, SCH(step_rate), 0, RANGE},
    {"lr_range_test_staircase", PR_BOOL, SCH(staircase), 0, RANGE},
    {"cycle_min_lr", PR_REAL, SCH(min_lr), SCH(min_lrs), CYCLE},
    {"cycle_max_lr", PR_REAL, SCH(max_lr), SCH(max_lrs), CYCLE},
    {"decay_lr_rate", PR_REAL, SCH(decay_lr), 0, CYCLE},
    {"cycle_first_step_size", PR_REAL, SCH(first_size), 0, CYCLE},
    {"cycle_second_step_size", PR_REAL, SCH(second_size), 0, CYCLE},
    {"cycle_first_stair_count", PR_INT, SCH(first_stairs), 0, CYCLE},
    {"cycle_second_stair_count", PR_INT, SCH(second_stairs), 0, CYCLE},
    {"decay_step_size", PR_REAL, SCH(decay_size), 0, CYCLE},
    {"cycle_momentum", PR_BOOL, SCH(cycle_momentum), 0, CYCLE},
    {"cycle_min_mom", PR_REAL, SCH(min_mom), SCH(min_moms), CYCLE},
    {"cycle_max_mom", PR_REAL, SCH(max_mom), SCH(max_moms), CYCLE},
    {"decay_mom_rate", PR_REAL, SCH(decay_mom), 0, CYCLE},
    {"num_warmup_steps", PR_INT, SCH(warmup), 0, ENDS | SQRT | BIT(ZT_HF_WARMUP)},
    {"num_training_steps", PR_INT, SCH(total), 0, ENDS},
    {"num_cycles", PR_REAL, SCH(cycles), 0, CYCLES},
    {"min_lr_rate", PR_REAL, SCH(min_ratio), 0, MIN_LR},
    {"lr_end", PR_REAL, SCH(lr_end), 0, POLY},
    {"power", PR_REAL, SCH(power), 0, POLY},
    {"timescale", PR_INT, SCH(timescale), 0, SQRT},
    {"last_batch_iteration", PR_INT, SCH(last), 0, ALL},
};

static void pr_schedule(pr_tree *p, const zt_schedule *s)
{
    if (s->type == ZT_SCHEDULE_NONE)
        return;
    pr_open(p, "scheduler");
    pr_text(p, "type", s->name);
    pr_open(p, "params");
    pr_settings(p, s, pr_schedule_settings,
                sizeof pr_schedule_settings / sizeof pr_schedule_settings[0], (unsigned)s->type);
    if ((BIT(s->type) & (WARM | COS)) != 0)
        pr_text(p, "warmup_type", s->linear ? "linear" : "log");
    pr_close(p);
    pr_close(p);
}

/* ---- blocks ---- */

static const char *pr_dtype(ckpt_dtype t)
{
    return t == CKPT_F16 ? "fp16" : t == CKPT_BF16 ? "bf16" : "fp32";
}

/*
 * The offload block that the file asks for, even if the stage ignores it; null if it asks for none.
 */
static void pr_offload(pr_tree *p, const char *key, const zt_offload *o, bool param)
{
    if (o->asked == ZT_ON_DEVICE) {
        pr_text(p, key, NULL);
        return;
    }
    pr_open(p, key);
    pr_text(p, "device", o->asked == ZT_ON_CPU ? "cpu" : "nvme");
    pr_text(p, "nvme_path", o->path);
    pr_int(p, "buffer_count", o->buffer_count);
    pr_bool(p, "pin_memory", o->pin);
    if (param) {
        pr_int(p, "buffer_size", (int64_t)o->buffer_size);
        pr_int(p, "max_in_cpu", (int64_t)o->max_in_cpu);
    } else {
        pr_bool(p, "pipeline_read", o->pipeline_read);
        pr_bool(p, "pipeline_write", o->pipeline_write);
        pr_real(p, "ratio", o->ratio);
    }
    pr_close(p);
}

static void pr_zero(pr_tree *p, const zt_config *c)
{
    pr_open(p, "zero_optimization");
    pr_int(p, "stage", c->stage);
    pr_bool(p, "contiguous_gradients", c->contiguous);
    pr_bool(p, "reduce_scatter", c->reduce_scatter);
    pr_int(p, "reduce_bucket_size", (int64_t)c->reduce_bucket);
    pr_int(p, "allgather_bucket_size", (int64_t)c->gather_bucket);
    pr_bool(p, "overlap_comm", c->overlap);
    pr_bool(p, "compute_grad_norm", c->compute_grad_norm);
    pr_bool(p, "elastic_checkpoint", c->elastic_checkpoint);
    pr_bool(p, "round_robin_gradients", c->round_robin);
    pr_bool(p, "parameter_alignment", c->aligned);
    pr_int(p, "sub_group_size", (int64_t)c->sub_group_size);
    pr_int(p, "stage3_prefetch_bucket_size", (int64_t)c->prefetch_bucket);
    pr_int(p, "stage3_param_persistence_threshold", (int64_t)c->persistence);
    pr_int(p, "stage3_model_persistence_threshold", (int64_t)c->model_persistence);
    pr_int(p, "stage3_max_live_parameters", (int64_t)c->max_live);
    pr_int(p, "stage3_max_reuse_distance", (int64_t)c->max_reuse);
    pr_bool(p, "stage3_gather_16bit_weights_on_model_save", c->gather_16bit_on_save);
    pr_offload(p, "offload_optimizer", &c->offload_optimizer, false);
    pr_offload(p, "offload_param", &c->offload_param, true);
    pr_close(p);
}

static void pr_precision(pr_tree *p, const zt_config *c)
{
    pr_open(p, "fp16");
    pr_bool(p, "enabled", c->fp16.enabled);
    pr_real(p, "loss_scale", c->fp16.loss_scale);
    pr_int(p, "initial_scale_power", c->fp16.power);
    pr_int(p, "loss_scale_window", c->fp16.window);
    pr_int(p, "hysteresis", c->fp16.hysteresis);
    pr_bool(p, "consecutive_hysteresis", c->fp16.consecutive);
    pr_int(p, "min_loss_scale", c->fp16.min_scale);
    pr_close(p);
    pr_open(p, "bf16");
    pr_bool(p, "enabled", c->dtype == CKPT_BF16);
    if (c->dtype == CKPT_BF16)
        pr_bool(p, "check_grad_overflow", c->check_grad_overflow);
    pr_close(p);
    pr_text(p, "communication_data_type", pr_dtype(c->comm_dtype));
    pr_open(p, "data_types");
    pr_text(p, "grad_accum_dtype", pr_dtype(c->accum_dtype));
    pr_close(p);
}

/* Printed only if enabled, because the settings of a disabled monitor have no effect. */
static void pr_monitor(pr_tree *p, const char *name, const zt_monitor *m)
{
    if (!m->enabled)
        return;
    pr_open(p, name);
    pr_bool(p, "enabled", true);
    pr_text(p, "output_path", m->path ? m->path : "");
    pr_text(p, "job_name", m->job ? m->job : "");
    pr_close(p);
}

static void pr_rest(pr_tree *p, const zt_config *c)
{
    static const char *const tags[] = {"WARN", "IGNORE", "FAIL"}; // as zt_tag_check

    pr_bool(p, "prescale_gradients", c->prescale);
    pr_real(p, "gradient_predivide_factor", c->predivide);
    pr_text(p, "gradient_allreduce_op", c->sum_gradients ? "sum" : "mean");
    pr_bool(p, "zero_allow_untested_optimizer", c->allow_untested);
    pr_open(p, "aio");
    pr_int(p, "block_size", (int64_t)c->aio_block);
    pr_int(p, "queue_depth", c->aio_depth);
    pr_int(p, "intra_op_parallelism", c->aio_threads);
    pr_close(p);
    pr_open(p, "checkpoint");
    pr_text(p, "tag_validation", tags[c->tag_validation]);
    pr_bool(p, "load_universal", c->load_universal);
    pr_bool(p, "use_node_local_storage", c->node_local);
    pr_close(p);
    if (c->activation_checkpointing) {
        pr_open(p, "activation_checkpointing");
        pr_close(p);
    }
    pr_int(p, "steps_per_print", c->steps_per_print);
    pr_bool(p, "wall_clock_breakdown", c->wall_clock);
    pr_monitor(p, "tensorboard", &c->tensorboard);
    pr_monitor(p, "csv_monitor", &c->csv_monitor);
}

const ckpt_value *zt_config_tree(const zt_config *c, ckpt_arena *arena)
{
    pr_tree p = {.arena = arena};

    pr_open(&p, NULL);
    pr_int(&p, "train_batch_size", c->train_batch);
    pr_int(&p, "train_micro_batch_size_per_gpu", c->micro_batch);
    pr_int(&p, "gradient_accumulation_steps", c->accumulation);
    pr_real(&p, "gradient_clipping", c->clipping);
    pr_optim(&p, &c->optim);
    pr_schedule(&p, &c->schedule);
    pr_precision(&p, c);
    pr_zero(&p, c);
    pr_rest(&p, c);
    pr_close(&p);
    return p.failed ? NULL : p.open[0];
}

int zt_config_print(const zt_config *c, FILE *out, ckpt_err *err)
{
    static const ckpt_json_style style = {.indent = 2, .flat_lists = true};
    ckpt_arena *arena = ckpt_arena_new(0);
    const ckpt_value *tree = arena ? zt_config_tree(c, arena) : NULL;
    ckpt_bytes text = {0};
    int rc = tree ? ckpt_json_write(&text, tree, &style, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK) {
        (void)fwrite(text.at, 1, text.n, out);
        (void)fputc('\n', out);
        if (fflush(out) != 0 || ferror(out))
            rc = ckpt_fail_sys(err, CKPT_EIO, errno, "the configuration could not be printed");
    }
    ckpt_vec_free(&text);
    ckpt_arena_free(arena);
    return rc;
}
