/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c: what a run is told, from the command line and JSON files: one table of options.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/codec/json/json.h"
#include "tools/zerotrain/zerotrain.h"

/* OP_SIZE: a whole number from 0.  OP_OUT: files that get their names when they are complete. */
typedef enum op_kind { OP_TEXT, OP_OUT, OP_INT, OP_SIZE, OP_REAL, OP_FLAG, OP_FILE } op_kind;

typedef struct op_row {
    const char *name;
    op_kind kind;
    size_t at; /* in zt_options */
    int given; /* its number among zt_arguments.given, or -1 */
    const char *value, *help;
} op_row;

#define OP(field) offsetof(zt_options, field)

/* The order of the arguments for "auto" is that of zt_arguments.given (config/auto.c). */
static const op_row op_table[] = {
    {"deepspeed_config", OP_TEXT, OP(config), -1, "FILE",
     "ds_config.json (HJSON, or base64 of it)"},
    {"strict-config", OP_FLAG, OP(strict_config), -1, NULL, "keys that are not known are errors"},
    {"model", OP_TEXT, OP(model), -1, "PATH", "config.json of a model, or its folder"},
    {"init", OP_TEXT, OP(init), -1, "PATH",
     "first weights: any checkpoint (default: drawn by --seed)"},
    {"data", OP_TEXT, OP(data), -1, "FILE",
     "training data: .bin .npy .safetensors .tsv .csv .jsonl"},
    {"eval-data", OP_TEXT, OP(eval_data), -1, "FILE", "data to evaluate"},
    {"max-steps", OP_SIZE, OP(max_steps), -1, "N",
     "updates of the whole run, resumed ones included"},
    {"epochs", OP_SIZE, OP(epochs), -1, "N", "passes over the data (1); --max-steps wins"},
    {"metrics", OP_TEXT, OP(metrics), -1, "FILE",
     "a JSON line for each update (-: on standard output)"},
    {"save", OP_OUT, OP(save), -1, "DIR", "write checkpoints there, at the end and when stopped"},
    {"save-every", OP_SIZE, OP(save_every), -1, "N", "and after every N updates"},
    {"keep", OP_SIZE, OP(keep), -1, "K", "keep the newest K checkpoints only"},
    {"async-save", OP_FLAG, OP(async_save), -1, NULL, "go on while a checkpoint is written"},
    {"tag", OP_TEXT, OP(tag), -1, "NAME", "tag of the checkpoint (global_stepN)"},
    {"load", OP_TEXT, OP(load), -1, "PATH",
     "resume from a checkpoint of any kind, stage and world"},
    {"load-tag", OP_TEXT, OP(load_tag), -1, "NAME", "that tag instead of the one in `latest`"},
    {"module-only", OP_FLAG, OP(module_only), -1, NULL, "load weights alone"},
    {"not-strict", OP_FLAG, OP(not_strict), -1, NULL,
     "pass over parameters that are not on both sides"},
    {"save-weights", OP_OUT, OP(save_weights), -1, "FILE",
     "fp32 weights at the end, as safetensors"},
    {"save-model", OP_OUT, OP(save_model), -1, "DIR",
     "a Hugging Face folder (with LoRA a PEFT folder)"},
    {"param-groups", OP_TEXT, OP(groups), -1, "KIND",
     "single, or decay: biases and norms without decay"},
    {"freeze", OP_TEXT, OP(freeze), -1, "GLOBS", "parameters not to train, by comma"},
    {"lora-rank", OP_SIZE, OP(lora_rank), -1, "N", "train adapters of this rank instead"},
    {"lora-alpha", OP_REAL, OP(lora_alpha), -1, "X", "their scale times the rank (16)"},
    {"lora-dropout", OP_REAL, OP(lora_dropout), -1, "X", "dropout before them (0)"},
    {"lora-targets", OP_TEXT, OP(lora_targets), -1, "NAMES", "linear maps that get one, by comma"},
    {"dropout", OP_FLAG, OP(dropout), -1, NULL, "use the dropout rates of the model's config.json"},
    {"activation-checkpointing", OP_FLAG, OP(checkpointing), -1, NULL,
     "compute activations twice, keep few"},
    {"seq", OP_SIZE, OP(seq), -1, "N",
     "tokens of a sample (the model's positions, at most 128 for text)"},
    {"vocab", OP_TEXT, OP(vocab), -1, "FILE", "vocab.txt for text (the one beside the model)"},
    {"cased", OP_FLAG, OP(cased), -1, NULL,
     "do not lower the case of text (as tokenizer_config.json beside the model says)"},
    {"token-dtype", OP_TEXT, OP(token_dtype), -1, "KIND", "of .bin files: uint16, uint32"},
    {"no-shuffle", OP_FLAG, OP(no_shuffle), -1, NULL, "samples in the order of the file"},
    {"seed", OP_INT, OP(seed), -1, "N", "of drawing weights, shuffling and dropout (42)"},
    {"evaluate", OP_FLAG, OP(evaluate), -1, NULL, "only evaluate --eval-data (or --data)"},
    {"predict", OP_TEXT, OP(predictions), -1, "FILE",
     "only write the classes of --data as JSON lines"},
    {"eval-every", OP_SIZE, OP(eval_every), -1, "N",
     "evaluate after every N updates, and at the end"},
    {"print-config", OP_FLAG, OP(print_config), -1, NULL,
     "print the resolved configuration and stop"},
    {"profile", OP_FLAG, OP(profile), -1, NULL, "tell at the end where the time went"},
    {"device", OP_TEXT, OP(device), -1, "KIND",
     "cpu, cuda, or auto: a GPU where one can be used (cpu)"},
    {"deterministic", OP_FLAG, OP(deterministic), -1, NULL,
     "equal bits in repeated runs, on a GPU too, where it costs time"},
    {"threads", OP_SIZE, OP(threads), -1, "N",
     "threads of a rank (processors / ranks of the node)"},
    {"wait-limit", OP_SIZE, OP(wait_limit), -1, "N",
     "end the run when a rank does not come for N seconds (0: wait)"},
    {"hostfile", OP_TEXT, OP(hostfile), -1, "FILE",
     "start the run on these hosts (lines: NAME slots=N)"},
    {"include", OP_TEXT, OP(include), -1, "HOSTS", "only these: host1@host2:0,2"},
    {"exclude", OP_TEXT, OP(exclude), -1, "HOSTS", "all but these"},
    {"num_nodes", OP_INT, OP(num_nodes), -1, "N", "the first N hosts"},
    {"num_gpus", OP_INT, OP(num_slots), -1, "N", "N ranks on each host"},
    {"slots", OP_TEXT, OP(slots), -1, "LIST", "launchers pass it: the GPU of each rank, by comma"},
    {"local_rank", OP_INT, OP(local_rank), -1, "N",
     "launchers pass it: hosts and slots are theirs then"},
    {"args", OP_FILE, 0, -1, "FILE", "more options from a JSON object"},
    {"quiet", OP_FLAG, OP(quiet), -1, NULL, "no progress"},
    {"per_device_train_batch_size", OP_SIZE, OP(args.per_device_train_batch_size), 0, "N",
     "for \"auto\" (8)"},
    {"gradient_accumulation_steps", OP_SIZE, OP(args.gradient_accumulation_steps), 1, "N",
     "for \"auto\" (1)"},
    {"learning_rate", OP_REAL, OP(args.learning_rate), 2, "X", "for \"auto\" (5e-5)"},
    {"adam_beta1", OP_REAL, OP(args.adam_beta1), 3, "X", "for \"auto\" (0.9)"},
    {"adam_beta2", OP_REAL, OP(args.adam_beta2), 4, "X", "for \"auto\" (0.999)"},
    {"adam_epsilon", OP_REAL, OP(args.adam_epsilon), 5, "X", "for \"auto\" (1e-8)"},
    {"weight_decay", OP_REAL, OP(args.weight_decay), 6, "X", "for \"auto\" (0)"},
    {"max_grad_norm", OP_REAL, OP(args.max_grad_norm), 7, "X", "for \"auto\" (1)"},
    {"warmup_steps", OP_REAL, OP(args.warmup_steps), 8, "X",
     "for \"auto\": steps, or below 1 a share (0)"},
    {"fp16", OP_FLAG, OP(args.fp16), 9, NULL, "for \"auto\""},
    {"bf16", OP_FLAG, OP(args.bf16), 10, NULL, "for \"auto\""},
    {"help", OP_FLAG, OP(help), -1, NULL, "this list"},
    {"version", OP_FLAG, OP(version), -1, NULL, "the version"},
};
enum { OP_COUNT = sizeof op_table / sizeof op_table[0] };

static char op_plain(char c)
{
    return c == '_' ? '-' : c;
}

static const op_row *op_find(const char *name, size_t n)
{
    for (size_t i = 0; i < OP_COUNT; i++) {
        const char *have = op_table[i].name;
        size_t k = 0;
        while (k < n && have[k] && op_plain(have[k]) == op_plain(name[k]))
            k++;
        if (k == n && !have[k])
            return &op_table[i];
    }
    return NULL;
}

static int op_number(const op_row *row, void *at, const char *text, ckpt_err *err)
{
    char *end = NULL;

    errno = 0;
    if (row->kind != OP_REAL) {
        long long v = strtoll(text, &end, 10);
        if (!*text || *end || errno)
            return ckpt_fail(err, CKPT_EUSAGE, "--%s wants a whole number, not '%s'", row->name,
                             text);
        if (row->kind == OP_SIZE && v < 0)
            return ckpt_fail(err, CKPT_EUSAGE, "--%s is %lld; it must be 0 or more", row->name, v);
        *(int64_t *)at = v;
    } else {
        double v = strtod(text, &end);
        if (!*text || *end || !(v - v == 0))
            return ckpt_fail(err, CKPT_EUSAGE, "--%s wants a number, not '%s'", row->name, text);
        *(double *)at = v;
    }
    return CKPT_OK;
}

static int op_file(zt_options *o, ckpt_arena *arena, const char *path, ckpt_err *err);

static int op_set(zt_options *o, ckpt_arena *arena, const op_row *row, const char *text,
                  ckpt_err *err)
{
    void *at = (char *)o + row->at;

    if (row->given >= 0)
        o->args.given[row->given] = true;
    switch (row->kind) {
    case OP_OUT:
        if (strcmp(text, "-") == 0)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "--%s -: it is written to files, not to standard output (./- is a "
                             "file or folder of that name)",
                             row->name);
        *(const char **)at = text;
        return CKPT_OK;
    case OP_TEXT:
        *(const char **)at = text;
        return CKPT_OK;
    case OP_FLAG:
        *(bool *)at = true;
        return CKPT_OK;
    case OP_FILE:
        return op_file(o, arena, text, err);
    case OP_INT:
    case OP_SIZE:
    case OP_REAL:
        break;
    }
    return op_number(row, at, text, err);
}

/* One member of a JSON file. */
static int op_member(zt_options *o, ckpt_arena *arena, const ckpt_pair *pair, ckpt_err *err)
{
    const ckpt_value *v = pair->value;
    const op_row *row = op_find(pair->key->as.text.at, (size_t)pair->key->as.text.n);
    const char *text = NULL;

    if (!row || row->kind == OP_FILE)
        return ckpt_fail(err, CKPT_EUSAGE, "there is no option '%s'", pair->key->as.text.at);
    if (v->kind == CKPT_V_NONE || (v->kind == CKPT_V_BOOL && !v->as.i && row->kind == OP_FLAG))
        return CKPT_OK;
    if (row->kind == OP_FLAG ? v->kind != CKPT_V_BOOL : v->kind == CKPT_V_BOOL)
        return ckpt_fail(err, CKPT_EUSAGE, "option '%s' wants %s", row->name,
                         row->kind == OP_FLAG ? "true or false" : "a value, not true or false");
    if (v->kind == CKPT_V_STR)
        text = v->as.text.at;
    else if (v->kind == CKPT_V_INT)
        text = ckpt_arena_printf(arena, "%lld", (long long)v->as.i);
    else if (v->kind == CKPT_V_FLOAT)
        text = ckpt_arena_printf(arena, "%.17g", v->as.f);
    else if (row->kind != OP_FLAG)
        return ckpt_fail(err, CKPT_EUSAGE, "option '%s' wants a plain value", row->name);
    if (!text && row->kind != OP_FLAG)
        return ckpt_fail_memory(err);
    return op_set(o, arena, row, text, err);
}

static int op_file(zt_options *o, ckpt_arena *arena, const char *path, ckpt_err *err)
{
    ckpt_value *v = NULL;
    int rc = ckpt_json_read(&v, arena, path, ZT_JSON_BYTES, err);

    if (rc == CKPT_OK && v->kind != CKPT_V_DICT)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: expected an object of options", path);
    for (uint64_t i = 0; rc == CKPT_OK && i < v->as.map.n; i++) {
        ckpt_err why = {0};
        rc = op_member(o, arena, &v->as.map.at[i], &why);
        if (rc != CKPT_OK)
            ckpt_fail(err, rc, "%s: %s", path, why.text);
    }
    return rc;
}

/* ---- what goes together ---- */

/* Options that do nothing without another one: whoever gives them expects something. */
static int op_needs(const zt_options *o, ckpt_err *err)
{
    const struct {
        bool given, met;
        const char *name, *needs;
    } row[] = {
        {o->save_every > 0, o->save, "save-every", "--save"},
        {o->keep > 0, o->save, "keep", "--save"},
        {o->async_save, o->save, "async-save", "--save"},
        {o->tag, o->save, "tag", "--save"},
        {o->load_tag, o->load, "load-tag", "--load"},
        {o->module_only, o->load, "module-only", "--load"},
        {o->not_strict, o->load || o->init, "not-strict", "--load or --init"},
        {o->eval_every > 0, o->eval_data, "eval-every", "--eval-data"},
        {o->lora_targets, o->lora_rank > 0, "lora-targets", "--lora-rank"},
        {o->lora_dropout > 0, o->lora_rank > 0, "lora-dropout", "--lora-rank"},
        {o->predictions, !o->evaluate, "predict", "to be given without --evaluate"},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        if (row[i].given && !row[i].met)
            return ckpt_fail(err, CKPT_EUSAGE, "--%s needs %s", row[i].name, row[i].needs);
    }
    return CKPT_OK;
}

/* ---- what all ranks must have ---- */

static bool op_among(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

static bool op_line(const zt_options *o, const op_row *row, ckpt_bytes *to)
{
    const void *at = (const char *)o + row->at;

    switch (row->kind) {
    case OP_OUT:
    case OP_TEXT: {
        const char *text = *(const char *const *)at;
        return ckpt_bytes_printf(to, "--%s\t%s\n", row->name, text ? text : "not given");
    }
    case OP_INT:
    case OP_SIZE:
        return ckpt_bytes_printf(to, "--%s\t%lld\n", row->name, (long long)*(const int64_t *)at);
    case OP_REAL:
        return ckpt_bytes_printf(to, "--%s\t%.17g\n", row->name, *(const double *)at);
    case OP_FLAG:
        return ckpt_bytes_printf(to, "--%s\t%s\n", row->name,
                                 *(const bool *)at ? "given" : "not given");
    case OP_FILE:
        break;
    }
    return true;
}

/* What must be the same on all ranks.  Of what a path names, only whether it is given. */
static bool op_lines(const zt_options *o, ckpt_bytes *to)
{
    // what is behind the path is compared, or the rank's own affair; tags have their own agreement
    static const char *const own[] = {
        "deepspeed_config", "model",   "vocab",      "metrics", "tag",
        "device",           "threads", "quiet",      "profile", "args",
        "hostfile",         "include", "exclude",    "help",    "num_nodes",
        "num_gpus",         "version", "local_rank", NULL};
    static const char *const path[] = {"init",         "data",       "eval-data", "save", "load",
                                       "save-weights", "save-model", "predict",   NULL};
    bool ok = true;

    for (size_t i = 0; ok && i < OP_COUNT; i++) {
        const op_row *row = &op_table[i];

        if (op_among(path, row->name))
            ok = ckpt_bytes_printf(to, "--%s\t%s\n", row->name,
                                   *(const char *const *)(const void *)((const char *)o + row->at)
                                       ? "given"
                                       : "not given");
        else if (!op_among(own, row->name))
            ok = op_line(o, row, to);
    }
    return ok;
}

static int op_alike(zt_options *o, ckpt_arena *arena, ckpt_err *err)
{
    ckpt_bytes lines = {0};

    if (op_lines(o, &lines))
        o->alike = ckpt_arena_string(arena, (const char *)lines.at, lines.n);
    ckpt_vec_free(&lines);
    return o->alike ? CKPT_OK : ckpt_fail_memory(err);
}

/* ---- the command line ---- */

int options_read(zt_options *out, ckpt_arena *arena, int argc, char **argv, ckpt_err *err)
{
    *out = (zt_options){
        .groups = "single", .lora_alpha = 16, .seed = 42, .device = "cpu", .local_rank = -1};
    zt_arguments_default(&out->args);
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *equals = strchr(name, '=');
        const op_row *row;
        int rc;

        if (strncmp(name, "--", 2) != 0)
            return ckpt_fail(err, CKPT_EUSAGE, "'%s' is no option: they begin with --", name);
        row = op_find(name + 2, equals ? (size_t)(equals - name) - 2 : strlen(name) - 2);
        if (!row)
            return ckpt_fail(err, CKPT_EUSAGE, "there is no option '%s'", name);
        if (row->kind == OP_FLAG && equals)
            return ckpt_fail(err, CKPT_EUSAGE, "--%s takes no value", row->name);
        if (row->kind != OP_FLAG && !equals && i + 1 == argc)
            return ckpt_fail(err, CKPT_EUSAGE, "--%s wants a value", row->name);
        rc = op_set(out, arena, row,
                    row->kind == OP_FLAG ? NULL
                    : equals             ? equals + 1
                                         : argv[++i],
                    err);
        if (rc != CKPT_OK)
            return rc;
    }
    if (out->help || out->version)
        return CKPT_OK;
    int rc = op_needs(out, err);
    return rc == CKPT_OK ? op_alike(out, arena, err) : rc;
}

void options_help(FILE *out)
{
    for (size_t i = 0; i < OP_COUNT; i++) {
        const op_row *row = &op_table[i];
        char left[64];

        snprintf(left, sizeof left, "--%s %s", row->name, row->value ? row->value : "");
        fprintf(out, "      %-34s %s\n", left, row->help);
    }
}
