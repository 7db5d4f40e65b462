/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer.c: maps the option names of transformers' Trainer and its scripts to ours.
 *
 * They are rows of the table of options with fields of their own; this file copies their values to
 * our fields.  It refuses a setting that was given under both names with different values.
 */
#include <math.h>
#include <string.h>

#include "tools/zerotrain/zerotrain.h"

/* State while Trainer's options of one command line are converted. */
typedef struct nt_line {
    told *t;
    const cli_line *line;
    ckpt_err *err;
} nt_line;

static int nt_clash(const nt_line *l, const char *ours, const char *theirs)
{
    return ckpt_fail(l->err, CKPT_EUSAGE,
                     "--%s and --%s are the same setting, but have different values", ours, theirs);
}

static int nt_text(const nt_line *l, const char *ours, const char **to, const char *theirs,
                   const char *value)
{
    if (!cli_has(l->line, theirs))
        return CKPT_OK;
    if (cli_has(l->line, ours) && (!*to || strcmp(*to, value) != 0))
        return nt_clash(l, ours, theirs);
    *to = value;
    return CKPT_OK;
}

static int nt_whole(const nt_line *l, const char *ours, int64_t *to, const char *theirs,
                    int64_t value)
{
    if (!cli_has(l->line, theirs))
        return CKPT_OK;
    if (cli_has(l->line, ours) && *to != value)
        return nt_clash(l, ours, theirs);
    *to = value;
    return CKPT_OK;
}

/* Convert epochs: Trainer's may be fractions, ours are whole numbers. */
static int nt_epochs(const nt_line *l)
{
    const double n = l->t->trainer.epochs;

    if (cli_has(l->line, "epochs") && l->t->run.epochs == 0)
        return ckpt_fail(l->err, CKPT_EUSAGE,
                         "--epochs 0: expected at least 1; --evaluate does not train");
    if (!cli_has(l->line, "num_train_epochs"))
        return CKPT_OK;
    if (!(n >= 1 && n < 1e15) || n != floor(n))
        return ckpt_fail(l->err, CKPT_EUSAGE,
                         "--num_train_epochs %g: expected a whole number of epochs; use "
                         "--max_steps for a number of updates",
                         n);
    return nt_whole(l, "epochs", &l->t->run.epochs, "num_train_epochs", (int64_t)n);
}

/* Convert the number of steps: -1 means the number that follows from the epochs. */
static int nt_steps(const nt_line *l)
{
    int64_t *n = &l->t->run.max_steps;

    if (*n < -1 || (*n == 0 && cli_has(l->line, "max-steps")))
        return ckpt_fail(
            l->err, CKPT_EUSAGE,
            "--max-steps: expected at least 1 update, or -1 (then --epochs decides), found %lld",
            (long long)*n);
    *n = *n == -1 ? 0 : *n;
    return CKPT_OK;
}

/*
 * Convert resume_from_checkpoint: a path, or a boolean for the newest checkpoint in the output
 * folder.
 */
static int nt_resume(const nt_line *l)
{
    const char *from = l->t->trainer.resume;

    if (!from || strcmp(from, "False") == 0 || strcmp(from, "false") == 0)
        return CKPT_OK;
    if (strcmp(from, "True") == 0 || strcmp(from, "true") == 0) {
        from = l->t->run.save;
        if (!from)
            return ckpt_fail(l->err, CKPT_EUSAGE,
                             "--resume_from_checkpoint true needs --output_dir (--save), the "
                             "folder of the run to resume");
    }
    return nt_text(l, "load", &l->t->run.load, "resume_from_checkpoint", from);
}

/* Check the modes of a script, because here a run has one mode. */
static int nt_what(const nt_line *l)
{
    const told_trainer *n = &l->t->trainer;
    zt_options *o = &l->t->run;

    if (n->do_predict && ((!o->predictions && !o->generate) || n->do_train || n->do_eval))
        return ckpt_fail(
            l->err, CKPT_EUSAGE,
            "--do_predict needs --predict FILE, or --generate FILE for text, for its output, and a "
            "separate run after training");
    if (n->predict_with_generate && !o->generate)
        return ckpt_fail(l->err, CKPT_EUSAGE,
                         "--predict_with_generate needs --generate FILE for its output, and a "
                         "separate run after training");
    if (n->do_train && (o->evaluate || o->predictions || o->generate))
        return ckpt_fail(l->err, CKPT_EUSAGE, "--do_train and --%s exclude each other",
                         o->evaluate      ? "evaluate"
                         : o->predictions ? "predict"
                                          : "generate");
    if (n->do_train && n->do_eval && !o->eval_data)
        return ckpt_fail(
            l->err, CKPT_EUSAGE,
            "--do_eval together with --do_train needs --eval-data (--validation_file)");
    o->evaluate = o->evaluate || (n->do_eval && !n->do_train);
    return CKPT_OK;
}

/* Convert warmup_ratio: a fraction of the updates, which our option accepts as a value below 1. */
static int nt_warmup(const nt_line *l)
{
    const double share = l->t->trainer.warmup_ratio;
    zt_arguments *a = &l->t->run.args;

    if (!cli_has(l->line, "warmup_ratio"))
        return CKPT_OK;
    if (!(share >= 0 && share < 1))
        return ckpt_fail(l->err, CKPT_EUSAGE, "--warmup_ratio is %g; expected 0 to below 1", share);
    if (cli_has(l->line, "warmup_steps") && a->warmup_steps != share)
        return nt_clash(l, "warmup_steps", "warmup_ratio");
    a->warmup_steps = share;
    a->given[ZT_ARG_WARMUP] = true;
    return CKPT_OK;
}

/* True if the value of a strategy is one of the Trainer's that we have. */
static int nt_strategy(const nt_line *l, const char *name, const char *value)
{
    const bool save = strcmp(name, "save_strategy") == 0;

    if (!value || (save && strcmp(value, "best") == 0) || strcmp(value, "no") == 0 ||
        strcmp(value, "steps") == 0 || strcmp(value, "epoch") == 0)
        return CKPT_OK;
    return ckpt_fail(l->err, CKPT_EUSAGE, "--%s %.60s: expected no, steps%s", name, value,
                     save ? ", epoch or best" : " or epoch");
}

/*
 * Convert the strategies.  With `steps`, the numbers of steps have the Trainer's defaults.  With
 * `epoch` or `no`, the Trainer ignores them.
 */
static int nt_strategies(const nt_line *l)
{
    enum { NT_STEPS = 500 };
    zt_options *o = &l->t->run;
    const char *save = l->t->trainer.save_strategy, *eval = l->t->trainer.eval_strategy;
    const int64_t logged = l->t->logging_steps;
    int rc = nt_strategy(l, "save_strategy", save);

    if (rc == CKPT_OK)
        rc = nt_strategy(l, "eval_strategy", eval);
    if (rc != CKPT_OK)
        return rc;
    if (save && strcmp(save, "steps") == 0 && o->save_every == 0)
        o->save_every = NT_STEPS;
    if (eval && strcmp(eval, "steps") == 0 && o->eval_every == 0)
        o->eval_every = logged > 0 ? logged : NT_STEPS;
    o->save_epochs = save && strcmp(save, "epoch") == 0;
    o->eval_epochs = eval && strcmp(eval, "epoch") == 0;
    o->save_every = save && strcmp(save, "steps") != 0 ? 0 : o->save_every;
    o->eval_every = eval && strcmp(eval, "steps") != 0 ? 0 : o->eval_every;
    return CKPT_OK;
}

/*
 * Convert the Trainer's names of the best checkpoint.  With load_best_model_at_end or
 * save_strategy best the metric's default is the loss; a metric alone is only tracked.
 */
static int nt_best(const nt_line *l)
{
    const told_trainer *n = &l->t->trainer;
    zt_options *o = &l->t->run;
    const bool best = n->save_strategy && strcmp(n->save_strategy, "best") == 0;
    const char *metric = n->metric_for_best_model, *order = n->greater_is_better;

    if (order && strcmp(order, "True") != 0 && strcmp(order, "true") != 0 &&
        strcmp(order, "False") != 0 && strcmp(order, "false") != 0)
        return ckpt_fail(l->err, CKPT_EUSAGE, "--greater_is_better %.60s: expected true or false",
                         order);
    o->best_greater = !order ? 0 : *order == 'T' || *order == 't' ? 1 : -1;
    o->load_best = o->save_best || n->load_best_model_at_end;
    if (metric && o->save_best && strcmp(metric, o->save_best) != 0)
        return nt_clash(l, "save-best", "metric_for_best_model");
    if (metric)
        o->save_best = metric;
    else if (!o->save_best && (n->load_best_model_at_end || best))
        o->save_best = "loss";
    return CKPT_OK;
}

/*
 * Convert the dtypes of evaluation.  As in the Trainer, they fill "auto" values.  In a run that
 * does not train, they also set the dtype if the configuration has none.
 */
static void nt_full_eval(const nt_line *l)
{
    const told_trainer *n = &l->t->trainer;
    const bool trains = !l->t->run.evaluate && !l->t->run.predictions && !l->t->run.generate;
    zt_arguments *a = &l->t->run.args;

    a->fp16_full_eval = n->fp16_full_eval;
    a->bf16_full_eval = n->bf16_full_eval;
    if (!trains) {
        a->fp16 = a->fp16 || n->fp16_full_eval;
        a->bf16 = a->bf16 || n->bf16_full_eval;
        a->given[ZT_ARG_FP16] = a->given[ZT_ARG_FP16] || n->fp16_full_eval;
        a->given[ZT_ARG_BF16] = a->given[ZT_ARG_BF16] || n->bf16_full_eval;
    } else if (n->fp16_full_eval || n->bf16_full_eval) {
        others_note(l->t, n->fp16_full_eval
                              ? "--fp16_full_eval: evaluations of a run that trains compute in the "
                                "dtype of the run"
                              : "--bf16_full_eval: evaluations of a run that trains compute in the "
                                "dtype of the run");
    }
}

/* Print a note: with save_strategy no, a run still saves at its end. */
static void nt_no_saves(const nt_line *l)
{
    const char *save = l->t->trainer.save_strategy;

    if (save && strcmp(save, "no") == 0)
        others_note(l->t, "--save_strategy no: a run with --output_dir still saves at its end");
}

int trainer_names(told *t, const cli_line *line, ckpt_err *err)
{
    const nt_line l = {t, line, err};
    const told_trainer *n = &t->trainer;
    zt_options *o = &t->run;
    const struct {
        const char *ours, **text;
        int64_t *whole;
        const char *theirs, *word;
        int64_t value;
    } row[] = {
        {"deepspeed_config", &o->config, NULL, "deepspeed", n->deepspeed, 0},
        {"model", &o->model, NULL, "model_name_or_path", n->model, 0},
        {"data", &o->data, NULL, "train_file", n->train_file, 0},
        {"eval-data", &o->eval_data, NULL, "validation_file", n->validation_file, 0},
        {"save", &o->save, NULL, "output_dir", n->output_dir, 0},
        {"save-every", NULL, &o->save_every, "save_steps", NULL, n->save_steps},
        {"keep", NULL, &o->keep, "save_total_limit", NULL, n->save_total_limit},
        {"eval-every", NULL, &o->eval_every, "eval_steps", NULL, n->eval_steps},
        {"seq", NULL, &o->seq, "max_seq_length", NULL, n->max_seq_length},
    };
    int rc = nt_steps(&l);

    for (size_t i = 0; rc == CKPT_OK && i < sizeof row / sizeof row[0]; i++)
        rc = row[i].text ? nt_text(&l, row[i].ours, row[i].text, row[i].theirs, row[i].word)
                         : nt_whole(&l, row[i].ours, row[i].whole, row[i].theirs, row[i].value);
    if (rc == CKPT_OK)
        rc = nt_epochs(&l);
    if (rc == CKPT_OK)
        rc = nt_resume(&l);
    if (rc == CKPT_OK)
        rc = nt_what(&l);
    if (rc == CKPT_OK)
        rc = nt_strategies(&l);
    if (rc == CKPT_OK)
        rc = nt_best(&l);
    if (rc == CKPT_OK) {
        nt_full_eval(&l);
        nt_no_saves(&l);
    }
    o->checkpointing = o->checkpointing || n->gradient_checkpointing;
    o->args.save_on_each_node = n->save_on_each_node;
    o->args.lr_scheduler_type = n->lr_scheduler_type;
    o->args.lr_scheduler_kwargs = n->lr_scheduler_kwargs;
    return rc == CKPT_OK ? nt_warmup(&l) : rc;
}
