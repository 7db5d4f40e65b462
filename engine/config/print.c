/* SPDX-License-Identifier: Apache-2.0 */
/*
 * print.c: owns the resolved configuration as JSON.
 *
 * The shape is that of ds_config.json, so that what is printed can be read again and means the
 * same.  Optimizer and schedule are printed with every setting they have, from tables.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/config.h"

/* Where the next line goes: depth of nesting, and whether an item comes before it. */
typedef struct pr_out {
    FILE *f;
    unsigned depth;
    bool comma;
} pr_out;

/* ---- pieces of JSON ---- */

static void pr_quoted(FILE *f, const char *s)
{
    (void)fputc('"', f);
    for (; *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;

        if (c == '"' || c == '\\')
            (void)fputc('\\', f);
        if (c < 0x20)
            (void)fprintf(f, "\\u%04x", c);
        else
            (void)fputc(c, f);
    }
    (void)fputc('"', f);
}

/* The comma and line before an item, its indentation and its key. */
static void pr_key(pr_out *p, const char *key)
{
    (void)fputs(p->comma ? ",\n" : "\n", p->f);
    (void)fprintf(p->f, "%*s", (int)(p->depth * 2), "");
    pr_quoted(p->f, key);
    (void)fputs(": ", p->f);
    p->comma = true;
}

static void pr_open(pr_out *p, const char *key)
{
    if (key)
        pr_key(p, key);
    (void)fputc('{', p->f);
    p->depth++;
    p->comma = false;
}

static void pr_close(pr_out *p)
{
    p->depth--;
    if (p->comma)
        (void)fprintf(p->f, "\n%*s", (int)(p->depth * 2), "");
    (void)fputc('}', p->f);
    p->comma = true;
}

/* The shortest digits that give the same double; with a point or exponent, so that it stays one. */
static void pr_number(FILE *f, double x)
{
    char text[40];

    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    (void)fputs(text, f);
    if (!strpbrk(text, ".en"))
        (void)fputs(".0", f);
}

static void pr_real(pr_out *p, const char *key, double x)
{
    pr_key(p, key);
    pr_number(p->f, x);
}

static void pr_int(pr_out *p, const char *key, int64_t i)
{
    pr_key(p, key);
    (void)fprintf(p->f, "%" PRId64, i);
}

static void pr_size(pr_out *p, const char *key, uint64_t n)
{
    pr_key(p, key);
    (void)fprintf(p->f, "%" PRIu64, n);
}

static void pr_bool(pr_out *p, const char *key, bool b)
{
    pr_key(p, key);
    (void)fputs(b ? "true" : "false", p->f);
}

/* text NULL: null */
static void pr_text(pr_out *p, const char *key, const char *text)
{
    pr_key(p, key);
    if (text)
        pr_quoted(p->f, text);
    else
        (void)fputs("null", p->f);
}

/* A list of numbers, as schedules have one per parameter group. */
static void pr_list(pr_out *p, const char *key, const ckpt_value *list)
{
    ckpt_seq s = ckpt_value_seq(list);

    pr_key(p, key);
    (void)fputc('[', p->f);
    for (uint64_t i = 0; i < s.n; i++) {
        (void)fputs(i > 0 ? ", " : "", p->f);
        pr_number(p->f, s.at[i]->kind == CKPT_V_INT ? (double)s.at[i]->as.i : s.at[i]->as.f);
    }
    (void)fputc(']', p->f);
}

/* ---- settings by table ---- */

typedef enum pr_kind { PR_REAL, PR_INT, PR_BOOL } pr_kind;

/* One setting of a struct; types: a bit per type that has it; list: NULL or numbers per group. */
typedef struct pr_setting {
    const char *key;
    pr_kind kind;
    size_t at, list; /* list 0: there is none */
    unsigned types;
} pr_setting;

static void pr_settings(pr_out *p, const void *from, const pr_setting *s, size_t n, unsigned type)
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
    {"lr", PR_REAL, OPT(lr), 0, ALL},
    {"eps", PR_REAL, OPT(eps), 0, ALL & ~(SGD | BIT(ZT_OPT_LION))},
    {"weight_decay", PR_REAL, OPT(weight_decay), 0, ALL},
    {"adam_w_mode", PR_BOOL, OPT(decoupled), 0, ADAMS | MUON},
    {"torch_adam", PR_BOOL, OPT(torch), 0, ADAMS},
    {"momentum", PR_REAL, OPT(momentum), 0, SGD | MUON},
    {"dampening", PR_REAL, OPT(dampening), 0, SGD},
    {"nesterov", PR_BOOL, OPT(nesterov), 0, SGD},
    {"max_coeff", PR_REAL, OPT(max_coeff), 0, LAMB},
    {"min_coeff", PR_REAL, OPT(min_coeff), 0, LAMB},
    {"eps_inside_sqrt", PR_BOOL, OPT(eps_inside), 0, LAMB},
    {"freeze_step", PR_INT, OPT(freeze_step), 0, ONEBIT},
    {"muon_lr", PR_REAL, OPT(muon_lr), 0, MUON},
    {"adam_lr", PR_REAL, OPT(adam_lr), 0, MUON},
};

static void pr_optim(pr_out *p, const zt_optim *o)
{
    bool betas = o->type != ZT_OPT_SGD && o->type != ZT_OPT_ADAGRAD;
    bool adam = o->type == ZT_OPT_ADAM || o->type == ZT_OPT_ADAMW;

    pr_open(p, "optimizer");
    pr_text(p, "type", o->name);
    pr_open(p, "params");
    pr_settings(p, o, pr_optim_settings, sizeof pr_optim_settings / sizeof pr_optim_settings[0],
                (unsigned)o->type);
    if (betas) {
        pr_key(p, "betas");
        (void)fputc('[', p->f);
        pr_number(p->f, o->beta1);
        (void)fputs(", ", p->f);
        pr_number(p->f, o->beta2);
        (void)fputc(']', p->f);
    }
    if ((adam && !o->torch) || o->type == ZT_OPT_LAMB)
        pr_bool(p, "bias_correction", o->bias_correction);
    if (o->type == ZT_OPT_MUON)
        pr_text(p, "ns_method", o->muon_gram ? "gram" : "standard");
    if (o->type == ZT_OPT_ADAGRAD && o->torch)
        pr_real(p, "lr_decay", o->lr_decay);
    pr_close(p);
    pr_close(p);
}

#define WARM  (BIT(ZT_WARMUP) | BIT(ZT_WARMUP_DECAY))
#define COS   BIT(ZT_WARMUP_COSINE)
#define RANGE BIT(ZT_RANGE_TEST)
#define CYCLE BIT(ZT_ONE_CYCLE)

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
    {"last_batch_iteration", PR_INT, SCH(last), 0, ALL},
};

static void pr_schedule(pr_out *p, const zt_schedule *s)
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

/* What the file asks for, which the stage may have no use for; null when it does not. */
static void pr_offload(pr_out *p, const char *key, const zt_offload *o, bool param)
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
        pr_size(p, "buffer_size", o->buffer_size);
        pr_size(p, "max_in_cpu", o->max_in_cpu);
    } else {
        pr_bool(p, "pipeline_read", o->pipeline_read);
        pr_bool(p, "pipeline_write", o->pipeline_write);
        pr_real(p, "ratio", o->ratio);
    }
    pr_close(p);
}

static void pr_zero(pr_out *p, const zt_config *c)
{
    pr_open(p, "zero_optimization");
    pr_int(p, "stage", c->stage);
    pr_bool(p, "contiguous_gradients", c->contiguous);
    pr_bool(p, "reduce_scatter", c->reduce_scatter);
    pr_size(p, "reduce_bucket_size", c->reduce_bucket);
    pr_size(p, "allgather_bucket_size", c->gather_bucket);
    pr_bool(p, "overlap_comm", c->overlap);
    pr_bool(p, "compute_grad_norm", c->compute_grad_norm);
    pr_bool(p, "elastic_checkpoint", c->elastic_checkpoint);
    pr_bool(p, "round_robin_gradients", c->round_robin);
    pr_bool(p, "parameter_alignment", c->aligned);
    pr_size(p, "sub_group_size", c->sub_group_size);
    pr_size(p, "stage3_prefetch_bucket_size", c->prefetch_bucket);
    pr_size(p, "stage3_param_persistence_threshold", c->persistence);
    pr_size(p, "stage3_model_persistence_threshold", c->model_persistence);
    pr_size(p, "stage3_max_live_parameters", c->max_live);
    pr_size(p, "stage3_max_reuse_distance", c->max_reuse);
    pr_bool(p, "stage3_gather_16bit_weights_on_model_save", c->gather_16bit_on_save);
    pr_offload(p, "offload_optimizer", &c->offload_optimizer, false);
    pr_offload(p, "offload_param", &c->offload_param, true);
    pr_close(p);
}

static void pr_precision(pr_out *p, const zt_config *c)
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

static void pr_rest(pr_out *p, const zt_config *c)
{
    static const char *const tags[] = {"WARN", "IGNORE", "FAIL"}; // as zt_tag_check

    pr_bool(p, "prescale_gradients", c->prescale);
    pr_real(p, "gradient_predivide_factor", c->predivide);
    pr_text(p, "gradient_allreduce_op", c->sum_gradients ? "sum" : "mean");
    pr_bool(p, "zero_allow_untested_optimizer", c->allow_untested);
    pr_open(p, "aio");
    pr_size(p, "block_size", c->aio_block);
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
}

int zt_config_print(const zt_config *c, FILE *out, ckpt_err *err)
{
    pr_out p = {.f = out};

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
    (void)fputc('\n', out);
    if (fflush(out) != 0 || ferror(out))
        return ckpt_fail_sys(err, CKPT_EIO, errno, "the configuration could not be printed");
    return CKPT_OK;
}
