/* SPDX-License-Identifier: Apache-2.0 */
/*
 * others.c: handles options of transformers, torchrun and DeepSpeed's launcher that zerotrain lacks
 * or has in another form: a table says how each name is handled.
 *
 * It works on the words before they are parsed.  Accepted words are kept, in the form that the
 * table of options expects.  All others are removed, with a note if a user may expect an effect, or
 * refused with the alternative.
 */
#include <stdio.h>
#include <string.h>

#include "tools/zerotrain/zerotrain.h"

typedef enum ow_kind {
    OW_FLAG,    /* an option of ours without a value; accepts true and false too */
    OW_TRUE,    /* a switch without effect here */
    OW_VALUE,   /* an option with a value, without effect here */
    OW_SOME,    /* the values in `allowed` have no effect here; others are refused */
    OW_NO_TRUE, /* a switch that is refused, unless it is off */
    OW_NO       /* refused, whatever its value */
} ow_kind;

typedef struct ow_name {
    const char *name;
    ow_kind kind;
    const char *allowed; /* "|no|steps|" */
    const char *text;    /* reason; for refusals also the alternative; NULL: no note */
} ow_name;

#define OW_EVAL                                                                                    \
    "use --eval_steps N to evaluate after every N updates; a run always evaluates at its end"
#define OW_SAVE "use --save_steps N to save after every N updates; a run always saves at its end"
#define OW_BEST                                                                                    \
    "zerotrain does not track the best checkpoint: set --save_steps and --eval_steps to one "      \
    "number, and read --metrics"
#define OW_SCHEDULE                                                                                \
    "set it in the scheduler block of the configuration: WarmupDecayLR decays linearly, "          \
    "WarmupCosineLR by cosine, and without a block the rate is constant"
#define OW_RANKS "start ranks with mpirun -n N, or with --num_gpus, --num_nodes, --hostfile"
#define OW_FOUND "ranks find each other by MPI"

static const ow_name ow_names[] = {
    // transformers: modes
    {"do_train", OW_FLAG, NULL, NULL},
    {"do_eval", OW_FLAG, NULL, NULL},
    {"do_predict", OW_FLAG, NULL, NULL},
    {"fp16", OW_FLAG, NULL, NULL},
    {"bf16", OW_FLAG, NULL, NULL},
    {"gradient_checkpointing", OW_FLAG, NULL, NULL},
    {"overwrite_output_dir", OW_TRUE, NULL,
     "checkpoints of another run in --output_dir are still refused; use --force to replace them"},
    {"per_device_eval_batch_size", OW_VALUE, NULL,
     "evaluation uses the micro batches of training, with the same result"},
    {"eval_accumulation_steps", OW_VALUE, NULL, "evaluation accumulates nothing"},
    {"save_strategy", OW_SOME, "|no|steps|", OW_SAVE},
    {"eval_strategy", OW_SOME, "|no|steps|", OW_EVAL},
    {"evaluation_strategy", OW_SOME, "|no|steps|", OW_EVAL},
    {"logging_strategy", OW_SOME, "|steps|",
     "use --logging_steps N to log after every N updates, or --quiet to log nothing"},
    {"load_best_model_at_end", OW_NO_TRUE, NULL, OW_BEST},
    {"metric_for_best_model", OW_NO, NULL, OW_BEST},
    {"predict_with_generate", OW_NO_TRUE, NULL,
     "zerotrain generates no text: use transformers with the folder of --save-model"},
    {"lr_scheduler_type", OW_NO, NULL, OW_SCHEDULE},
    {"label_smoothing_factor", OW_SOME, "|0|0.0|", "label smoothing is not supported"},
    {"group_by_length", OW_NO_TRUE, NULL,
     "the order of samples depends on --seed, or is that of the file"},
    {"optim", OW_NO, NULL, "set it in the optimizer block of the configuration"},
    {"push_to_hub", OW_NO_TRUE, NULL, "upload the folder of --save-model with `hf upload`"},
    {"report_to", OW_SOME, "|none|",
     "use --tensorboard DIR to write event files, --metrics FILE to write JSON lines"},
    {"logging_dir", OW_VALUE, NULL, "use --tensorboard DIR to write event files"},
    // transformers: number formats and devices
    {"tf32", OW_TRUE, NULL, "fp32 products are computed in fp32, on GPUs too"},
    {"bf16_full_eval", OW_TRUE, NULL, "evaluation computes in the dtype of the run"},
    {"fp16_full_eval", OW_TRUE, NULL, "evaluation computes in the dtype of the run"},
    {"fp16_backend", OW_SOME, "|auto|",
     "Apex is not used; set it in the fp16 block of the configuration"},
    {"half_precision_backend", OW_SOME, "|auto|",
     "Apex is not used; set it in the fp16 block of the configuration"},
    {"fp16_opt_level", OW_VALUE, NULL,
     "Apex is not used; set it in the fp16 block of the configuration"},
    {"save_on_each_node", OW_NO_TRUE, NULL,
     "set checkpoint.use_node_local_storage in the configuration"},
    {"use_cpu", OW_TRUE, NULL, NULL},
    {"no_cuda", OW_TRUE, NULL, NULL},
    {"torch_compile", OW_TRUE, NULL, "zerotrain does not use torch"},
    {"dataloader_num_workers", OW_VALUE, NULL, NULL},
    {"dataloader_pin_memory", OW_TRUE, NULL, NULL},
    {"preprocessing_num_workers", OW_VALUE, NULL, NULL},
    {"overwrite_cache", OW_TRUE, NULL, NULL},
    {"remove_unused_columns", OW_TRUE, NULL, NULL},
    {"ddp_find_unused_parameters", OW_TRUE, NULL, NULL},
    {"ddp_timeout", OW_VALUE, NULL, "use --wait-limit N to limit the wait for other ranks"},
    {"disable_tqdm", OW_TRUE, NULL, "use --quiet to hide the progress"},
    {"logging_first_step", OW_TRUE, NULL, NULL},
    {"run_name", OW_VALUE, NULL, NULL},
    // launchers
    {"master_addr", OW_VALUE, NULL, OW_FOUND},
    {"master_port", OW_VALUE, NULL, OW_FOUND},
    {"launcher", OW_SOME, "|openmpi|", OW_RANKS},
    {"nproc_per_node", OW_NO, NULL, OW_RANKS},
    {"nnodes", OW_NO, NULL, OW_RANKS},
    {"node_rank", OW_NO, NULL, OW_RANKS},
    {"autotuning", OW_NO, NULL, "use `ckpt mem` to estimate in advance what fits in memory"},
};

static char ow_plain(char c)
{
    return c == '-' ? '_' : c;
}

/* Find the row of a name of n bytes ('-' and '_' are equal); NULL: none. */
static const ow_name *ow_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof ow_names / sizeof *ow_names; i++) {
        const char *is = ow_names[i].name;
        size_t k = 0;

        while (k < n && is[k] && ow_plain(name[k]) == is[k])
            k++;
        if (k == n && !is[k])
            return &ow_names[i];
    }
    return NULL;
}

/* Parse a boolean in the forms of argparse and transformers; 1, 0, or -1: not a boolean. */
static int ow_truth(const char *word)
{
    static const char *const yes[] = {"1", "true", "True", "yes", "y", "t", NULL};
    static const char *const no[] = {"0", "false", "False", "no", "n", "f", NULL};

    for (size_t i = 0; yes[i]; i++) {
        if (strcmp(word, yes[i]) == 0)
            return 1;
        if (strcmp(word, no[i]) == 0)
            return 0;
    }
    return -1;
}

/* True if the value has no effect, because it is in `allowed`. */
static bool ow_allowed(const ow_name *o, const char *value)
{
    const char *at = strstr(o->allowed, value);
    size_t n = strlen(value);

    return n > 0 && at && at > o->allowed && at[-1] == '|' && at[n] == '|';
}

static int ow_refuse(const ow_name *o, const char *value, ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EUSAGE, "--%s%s%.60s: %s", o->name, value ? " " : "",
                     value ? value : "", o->text);
}

static int ow_note(told *t, const ow_name *o, ckpt_err *err)
{
    const char *text =
        !o->text || t->n_notes == TOLD_NOTES
            ? NULL
            : ckpt_arena_printf(t->arena, "--%s has no effect: %s", o->name, o->text);

    if (text)
        t->notes[t->n_notes++] = text;
    return o->text && !text && t->n_notes < TOLD_NOTES ? ckpt_fail_memory(err) : CKPT_OK;
}

/* Handle an option of the table, with its value or NULL. */
static int ow_meet(told *t, const ow_name *o, const char *value, ckpt_err *err)
{
    const int truth = value ? ow_truth(value) : 1;

    switch (o->kind) {
    case OW_FLAG:
        break;
    case OW_TRUE:
        if (truth < 0)
            return ckpt_fail(err, CKPT_EUSAGE, "--%s %.60s: expected true or false", o->name,
                             value);
        return truth ? ow_note(t, o, err) : CKPT_OK;
    case OW_VALUE:
        return value ? ow_note(t, o, err)
                     : ckpt_fail(err, CKPT_EUSAGE, "--%s needs a value", o->name);
    case OW_SOME:
        return value && ow_allowed(o, value) ? CKPT_OK : ow_refuse(o, value, err);
    case OW_NO_TRUE:
        return truth == 0 ? CKPT_OK : ow_refuse(o, value, err);
    case OW_NO:
        return ow_refuse(o, value, err);
    }
    return CKPT_OK;
}

/* Get the value of an option: the text after '=', or the next word. */
static const char *ow_value(const ow_name *o, const char *word, const char *next, bool *took)
{
    const char *same = strchr(word, '=');
    bool wants = o->kind == OW_VALUE || o->kind == OW_SOME || o->kind == OW_NO;

    *took = false;
    if (same)
        return same + 1;
    // a switch has a value if the next word looks like a boolean
    *took = next && strncmp(next, "--", 2) != 0 && (wants || ow_truth(next) >= 0);
    return *took ? next : NULL;
}

int others_words(told *t, int *argc, char ***argv, ckpt_err *err)
{
    char **out = ckpt_arena_array(t->arena, (uint64_t)*argc + 1, sizeof *out);
    int n = 0, rc = out ? CKPT_OK : ckpt_fail_memory(err);
    bool options = true;

    for (int i = 0; rc == CKPT_OK && i < *argc; i++) {
        char *word = (*argv)[i];
        const ow_name *o = NULL;
        const char *value;
        bool took = false;

        options = options && strcmp(word, "--") != 0;
        if (options && i > 0 && strncmp(word, "--", 2) == 0)
            o = ow_find(word + 2, strcspn(word + 2, "="));
        value = o ? ow_value(o, word, i + 1 < *argc ? (*argv)[i + 1] : NULL, &took) : NULL;
        i += took;
        if (!o || (o->kind == OW_FLAG && !value))
            out[n++] = word;
        else if (o->kind == OW_FLAG && ow_truth(value) < 0)
            rc = ckpt_fail(err, CKPT_EUSAGE, "--%s %.60s: expected true or false", o->name, value);
        else if (o->kind == OW_FLAG && ow_truth(value) > 0)
            out[n++] = ckpt_arena_printf(t->arena, "--%s", o->name);
        else
            rc = ow_meet(t, o, value, err);
        if (rc == CKPT_OK && n > 0 && !out[n - 1])
            rc = ckpt_fail_memory(err);
    }
    *argc = n;
    *argv = out;
    return rc;
}

int others_member(told *t, const char *name, const char *value, bool *known, ckpt_err *err)
{
    const ow_name *o = ow_find(name, strlen(name));

    *known = o && o->kind != OW_FLAG;
    return *known ? ow_meet(t, o, value, err) : CKPT_OK;
}

void others_notes(const told *t)
{
    for (size_t i = 0; i < t->n_notes; i++)
        fprintf(stderr, "note: %s\n", t->notes[i]);
}
