/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: reads the options of a run from the command line and JSON files, by a table. */
#include <stddef.h>
#include <string.h>

#include "libckpt/codec/json/json.h"
#include "tools/zerotrain/zerotrain.h"

#define OP(field) offsetof(told, run.field)
#define AT(field) offsetof(told, field)
#define TR(field) offsetof(told, trainer.field)

enum { TOLD_TOKENS = 64 /* of --max-new-tokens */ };

/* The arguments for "auto" must be in the order of zt_argument. */
static const cli_option told_table[] = {
    {"deepspeed_config", 0, CLI_FILE, OP(config), "FILE",
     "ds_config.json (HJSON, or base64 of it)"},
    {"strict-config", 0, CLI_FLAG, OP(strict_config), NULL, "refuse unknown keys"},
    {"model", 0, CLI_FILE, OP(model), "PATH", "config.json of a model, or its folder"},
    {"init", 0, CLI_FILE, OP(init), "PATH",
     "initial weights: a checkpoint, or 'none' for random (default: --model's)"},
    {"data", 0, CLI_FILE, OP(data), "FILE",
     "training data: .bin .npy .safetensors .txt .jsonl .tsv .csv"},
    {"eval-data", 0, CLI_FILE, OP(eval_data), "FILE", "data to evaluate"},
    {"max-steps", 0, CLI_INTEGER, OP(max_steps), "N",
     "stop after N updates in all (default: -1, by --epochs)"},
    {"epochs", 0, CLI_WHOLE, OP(epochs), "N",
     "passes over the data (default: 1); --max-steps wins"},
    {"metrics", 0, CLI_FILE, AT(metrics), "FILE",
     "write a JSON line for each update (-: standard output)"},
    {"tensorboard", 0, CLI_OUTPUT, AT(tensorboard), "DIR", "write event files for TensorBoard"},
    {"plot", 0, CLI_RESULT, AT(plot), "FILE", "draw loss and learning rate as an SVG"},
    {"save", 0, CLI_RESULT, OP(save), "DIR", "save a checkpoint at the end and when stopped"},
    {"save-every", 0, CLI_WHOLE, OP(save_every), "N", "save every N updates, too"},
    {"keep", 0, CLI_WHOLE, OP(keep), "K", "keep only the newest K checkpoints of the run"},
    {"save-best", 0, CLI_TEXT, OP(save_best), "loss|perplexity|accuracy|precision|recall|f1",
     "keep the checkpoint with the best score of an evaluation, and write its weights at the end"},
    {"force", 0, CLI_FLAG, OP(force), NULL, "replace outputs of earlier runs"},
    {"async-save", 0, CLI_FLAG, OP(async_save), NULL,
     "continue training while a checkpoint is written"},
    {"tag", 0, CLI_TEXT, OP(tag), "NAME", "tag of the checkpoint (default: global_stepN)"},
    {"load", 0, CLI_FILE, OP(load), "PATH",
     "resume from a checkpoint of any ZeRO stage and world size"},
    {"load-tag", 0, CLI_TEXT, OP(load_tag), "NAME",
     "resume from this tag (default: the one in `latest`)"},
    {"module-only", 0, CLI_FLAG, OP(module_only), NULL, "load weights only"},
    {"not-strict", 0, CLI_FLAG, OP(not_strict), NULL,
     "skip parameters that only the model or only the checkpoint has"},
    {"save-weights", 0, CLI_RESULT, OP(save_weights), "FILE",
     "write fp32 weights at the end, as safetensors"},
    {"save-model", 0, CLI_RESULT, OP(save_model), "DIR",
     "write a Hugging Face folder at the end (LoRA: a PEFT folder)"},
    {"param-groups", 0, CLI_TEXT, OP(groups), "single|decay",
     "parameter groups; decay: no weight decay of biases and norms (default: single)"},
    {"freeze", 0, CLI_TEXT, OP(freeze), "GLOBS",
     "do not train parameters matching GLOBS, separated by commas"},
    {"lora-rank", 0, CLI_WHOLE, OP(lora_rank), "N", "train LoRA adapters of rank N"},
    {"lora-alpha", 0, CLI_REAL, OP(lora_alpha), "X", "LoRA alpha (default: 16)"},
    {"lora-dropout", 0, CLI_REAL, OP(lora_dropout), "X", "LoRA dropout (default: 0)"},
    {"lora-targets", 0, CLI_TEXT, OP(lora_targets), "NAMES",
     "layers with an adapter, separated by commas"},
    {"dropout", 0, CLI_FLAG, OP(dropout), NULL, "use the dropout rates of the model's config.json"},
    {"activation-checkpointing", 0, CLI_FLAG, OP(checkpointing), NULL,
     "recompute activations in the backward pass"},
    {"seq", 0, CLI_WHOLE, OP(seq), "N",
     "tokens of a sample (default: the model's positions; text: at most 1024, rows: 128)"},
    {"vocab", 0, CLI_FILE, OP(vocab), "FILE",
     "vocab.txt, tokenizer.json or .model for text (default: beside the model)"},
    {"cased", 0, CLI_FLAG, OP(cased), NULL,
     "keep the case of text (default: by the model's tokenizer_config.json)"},
    {"token-dtype", 0, CLI_TEXT, OP(token_dtype), "uint16|uint32", "dtype of tokens in .bin files"},
    {"packing", 0, CLI_FLAG, OP(packing), NULL,
     "fill each sample with several instructions or conversations"},
    {"no-shuffle", 0, CLI_FLAG, OP(no_shuffle), NULL, "read samples in the order of the file"},
    {"seed", 0, CLI_INTEGER, OP(seed), "N",
     "seed of random weights, shuffling and dropout (default: 42)"},
    {"evaluate", 0, CLI_FLAG, OP(evaluate), NULL, "evaluate --eval-data (or --data) and stop"},
    {"json", 0, CLI_FLAG, AT(json), NULL,
     "print the result of --evaluate as JSON; --generate: tokens and texts, as JSON lines"},
    {"predict", 0, CLI_FILE, OP(predictions), "FILE",
     "write the classes of --data as JSON lines and stop"},
    {"generate", 0, CLI_FILE, OP(generate), "FILE",
     "continue the prompts of --data (.txt .jsonl), write the texts and stop (-: standard output)"},
    {"max-new-tokens", 0, CLI_WHOLE, OP(max_new_tokens), "N",
     "most tokens of a generated text (default: 64)"},
    {"temperature", 0, CLI_REAL, OP(temperature), "X",
     "draw tokens at random; 1: by the model's probabilities (default: 0, the most probable one)"},
    {"top-k", 0, CLI_WHOLE, OP(top_k), "N", "draw from the N most probable tokens"},
    {"top-p", 0, CLI_REAL, OP(top_p), "X",
     "draw from the most probable tokens with a sum of at least X"},
    {"eval-every", 0, CLI_WHOLE, OP(eval_every), "N",
     "evaluate after every N updates, and at the end"},
    {"print-config", 0, CLI_FLAG, OP(print_config), NULL,
     "print the resolved configuration and stop"},
    {"profile", 0, CLI_FLAG, OP(profile), NULL, "print a profile at the end"},
    {"peak-tflops", 0, CLI_REAL, AT(peak_tflops), "X",
     "peak of a rank for the profile, in TFLOP/s (default: the GPU's)"},
    {"device", 0, CLI_TEXT, OP(device), "cpu|cuda|auto",
     "device; auto: a GPU if one is usable (default: cpu)"},
    {"deterministic", 0, CLI_FLAG, OP(deterministic), NULL,
     "give the same bits in repeated runs; slower on a GPU"},
    {"threads", 0, CLI_WHOLE, OP(threads), "N",
     "threads of a rank (default: processors / ranks of the node)"},
    {"wait-limit", 0, CLI_WHOLE, AT(wait_limit), "N",
     "end the run if a rank is late by N seconds (0: never)"},
    {"hostfile", 0, CLI_FILE, AT(hostfile), "FILE",
     "start the run on these hosts (lines: NAME slots=N)"},
    {"include", 0, CLI_TEXT, AT(include), "HOSTS", "use only these hosts: host1@host2:0,2"},
    {"exclude", 0, CLI_TEXT, AT(exclude), "HOSTS", "do not use these hosts"},
    {"num_nodes", 0, CLI_INTEGER, AT(num_nodes), "N", "use the first N hosts"},
    {"num_gpus", 0, CLI_INTEGER, AT(num_slots), "N", "start N ranks on each host"},
    {"slots", 0, CLI_TEXT, OP(slots), "LIST", "GPU of each rank; launchers pass it"},
    {"local_rank", 0, CLI_INTEGER, AT(local_rank), "N", "rank on this host; launchers pass it"},
    {"args", 0, CLI_MORE, 0, "FILE", "read more options from a JSON object"},
    {"quiet", 0, CLI_FLAG, AT(quiet), NULL, "print no progress"},
    {"per_device_train_batch_size", 0, CLI_WHOLE, OP(args.per_device_train_batch_size), "N",
     "samples of a micro batch (default: 8)"},
    {"gradient_accumulation_steps", 0, CLI_WHOLE, OP(args.gradient_accumulation_steps), "N",
     "micro batches of an update (default: 1)"},
    {"learning_rate", 0, CLI_REAL, OP(args.learning_rate), "X", "learning rate (default: 5e-5)"},
    {"adam_beta1", 0, CLI_REAL, OP(args.adam_beta1), "X", "first beta of Adam (default: 0.9)"},
    {"adam_beta2", 0, CLI_REAL, OP(args.adam_beta2), "X", "second beta of Adam (default: 0.999)"},
    {"adam_epsilon", 0, CLI_REAL, OP(args.adam_epsilon), "X", "epsilon of Adam (default: 1e-8)"},
    {"weight_decay", 0, CLI_REAL, OP(args.weight_decay), "X", "weight decay (default: 0)"},
    {"max_grad_norm", 0, CLI_REAL, OP(args.max_grad_norm), "X",
     "norm at which gradients are clipped (default: 1)"},
    {"warmup_steps", 0, CLI_REAL, OP(args.warmup_steps), "X",
     "updates of the warmup, or below 1 a share of all (default: 0)"},
    {"fp16", 0, CLI_FLAG, OP(args.fp16), NULL, "train in fp16"},
    {"bf16", 0, CLI_FLAG, OP(args.bf16), NULL, "train in bf16"},
    {"deepspeed", 0, CLI_FILE, TR(deepspeed), "FILE", "same as --deepspeed_config"},
    {"train_file", 0, CLI_FILE, TR(train_file), "FILE", "same as --data"},
    {"validation_file", 0, CLI_FILE, TR(validation_file), "FILE", "same as --eval-data"},
    {"max_seq_length", 0, CLI_WHOLE, TR(max_seq_length), "N", "same as --seq"},
    {"max_train_samples", 0, CLI_WHOLE, OP(max_samples), "N", "use the first N samples of --data"},
    {"num_train_epochs", 0, CLI_REAL, TR(epochs), "N", "same as --epochs; fractions are refused"},
    {"output_dir", 0, CLI_RESULT, TR(output_dir), "DIR", "same as --save"},
    {"save_steps", 0, CLI_WHOLE, TR(save_steps), "N", "same as --save-every"},
    {"save_total_limit", 0, CLI_WHOLE, TR(save_total_limit), "K", "same as --keep"},
    {"resume_from_checkpoint", 0, CLI_FILE, TR(resume), "PATH",
     "same as --load; true: the newest in --output_dir"},
    {"eval_steps", 0, CLI_WHOLE, TR(eval_steps), "N", "same as --eval-every"},
    {"logging_steps", 0, CLI_WHOLE, AT(logging_steps), "N",
     "print progress every N updates (default: steps_per_print)"},
    {"gradient_checkpointing", 0, CLI_FLAG, TR(gradient_checkpointing), NULL,
     "same as --activation-checkpointing"},
    {"model_name_or_path", 0, CLI_FILE, TR(model), "PATH", "same as --model"},
    {"max_eval_samples", 0, CLI_WHOLE, OP(max_eval_samples), "N",
     "use the first N samples of --eval-data"},
    {"do_train", 0, CLI_FLAG, TR(do_train), NULL, "train (the default)"},
    {"do_eval", 0, CLI_FLAG, TR(do_eval), NULL,
     "same as --evaluate; with --do_train: needs --eval-data"},
    {"do_predict", 0, CLI_FLAG, TR(do_predict), NULL,
     "predict; needs --predict FILE or --generate FILE"},
    {"predict_with_generate", 0, CLI_FLAG, TR(predict_with_generate), NULL,
     "generate text; needs --generate FILE"},
    {"warmup_ratio", 0, CLI_REAL, TR(warmup_ratio), "X", "same as --warmup_steps below 1"},
    {"save_strategy", 0, CLI_TEXT, TR(save_strategy), "no|steps|epoch|best",
     "save every --save_steps (default: 500), or after each epoch, too"},
    {"eval_strategy", 0, CLI_TEXT, TR(eval_strategy), "no|steps|epoch",
     "evaluate every --eval_steps (default: --logging_steps, or 500), or after each epoch, too"},
    {"save_on_each_node", 0, CLI_FLAG, TR(save_on_each_node), NULL,
     "save to a disk of each node (checkpoint.use_node_local_storage)"},
    {"fp16_full_eval", 0, CLI_FLAG, TR(fp16_full_eval), NULL,
     "evaluate in fp16, in a run that does not train"},
    {"bf16_full_eval", 0, CLI_FLAG, TR(bf16_full_eval), NULL,
     "evaluate in bf16, in a run that does not train"},
    {"lr_scheduler_type", 0, CLI_TEXT, TR(lr_scheduler_type),
     "linear|cosine|constant|constant_with_warmup|polynomial|inverse_sqrt|cosine_with_restarts|"
     "cosine_with_min_lr",
     "schedule of transformers, for a configuration without a scheduler"},
    {"lr_scheduler_kwargs", 0, CLI_TEXT, TR(lr_scheduler_kwargs), "JSON",
     "settings of --lr_scheduler_type: '{\"num_cycles\": 2}'"},
    {"load_best_model_at_end", 0, CLI_FLAG, TR(load_best_model_at_end), NULL,
     "same as --save-best with --metric_for_best_model"},
    {"metric_for_best_model", 0, CLI_TEXT, TR(metric_for_best_model), "METRIC",
     "metric of the best checkpoint (default: loss)"},
    {"greater_is_better", 0, CLI_TEXT, TR(greater_is_better), "true|false",
     "order of the metric (default: by the metric)"},
    {"trainer-names", 0, CLI_FLAG, AT(names), NULL,
     "list the names of other programs, and how each is handled"},
    {"completion", 0, CLI_TEXT, AT(completion), CLI_SHELLS,
     "print a completion script for a shell"},
    CLI_END,
};

/* ---- files of options ---- */

/* A plain value as a word of a command line; NULL: another kind of value, or no memory. */
static const char *told_text(ckpt_arena *arena, const ckpt_value *v)
{
    switch ((int)v->kind) {
    case CKPT_V_BOOL:
        return v->as.i ? "true" : "false";
    case CKPT_V_STR:
        return v->as.text.at;
    case CKPT_V_INT:
        return ckpt_arena_printf(arena, "%lld", (long long)v->as.i);
    case CKPT_V_FLOAT:
        return ckpt_arena_printf(arena, "%.17g", v->as.f);
    default:
        return NULL;
    }
}

/* Store one member of a JSON file. */
static int told_member(cli_line *line, ckpt_arena *arena, const ckpt_pair *pair, ckpt_err *err)
{
    const ckpt_value *v = pair->value;
    const cli_option *o = cli_option_named(line->verb, others_ours(pair->key->as.text.at));
    bool flag = o && o->kind == CLI_FLAG;
    const char *text = NULL;

    if (!o && v->kind != CKPT_V_NONE) {
        bool known = false;
        int rc =
            others_member(line->values, pair->key->as.text.at, told_text(arena, v), &known, err);
        if (rc != CKPT_OK || known)
            return rc;
    }
    if (!o && v->kind == CKPT_V_NONE && others_known(pair->key->as.text.at))
        return CKPT_OK; // not given
    if (!o || o->kind == CLI_MORE)
        return ckpt_fail(err, CKPT_EUSAGE, "unknown option '%s'", pair->key->as.text.at);
    if (v->kind == CKPT_V_NONE || (v->kind == CKPT_V_BOOL && !v->as.i && flag))
        return CKPT_OK;
    if (flag ? v->kind != CKPT_V_BOOL : v->kind == CKPT_V_BOOL)
        return ckpt_fail(err, CKPT_EUSAGE, "option '%s' needs %s", o->name,
                         flag ? "true or false" : "a value, not true or false");
    if (v->kind != CKPT_V_BOOL)
        text = told_text(arena, v);
    if (!text && !flag)
        return ckpt_fail(err, CKPT_EUSAGE, "option '%s' needs a string or a number", o->name);
    return text || flag ? cli_take(line, o, text, err) : ckpt_fail_memory(err);
}

static int told_file(cli_line *line, const char *path, ckpt_err *err)
{
    ckpt_arena *arena = ((told *)line->values)->arena;
    ckpt_value *v = NULL;
    int rc = ckpt_json_read(&v, arena, path, ZT_JSON_BYTES, err);

    if (rc == CKPT_OK && v->kind != CKPT_V_DICT)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: expected an object of options", path);
    for (uint64_t i = 0; rc == CKPT_OK && i < v->as.map.n; i++) {
        ckpt_err why = {0};
        rc = told_member(line, arena, &v->as.map.at[i], &why);
        if (rc != CKPT_OK)
            ckpt_fail(err, rc, "%s: %s", path, why.text);
    }
    return rc;
}

static const cli_heading told_headings[] = {
    {"Common options", "deepspeed_config model data init max-steps save save-every load save-model "
                       "device"},
    {"Data", "eval-data seq vocab cased packing token-dtype no-shuffle"},
    {"Training", "epochs strict-config dropout activation-checkpointing seed deterministic threads "
                 "param-groups freeze lora-rank lora-alpha lora-dropout lora-targets"},
    {"Evaluation", "evaluate json predict eval-every"},
    {"Generation", "generate max-new-tokens temperature top-k top-p"},
    {"Checkpoints",
     "keep save-best force async-save tag load-tag module-only not-strict save-weights"},
    {"Reports", "metrics tensorboard plot print-config profile peak-tflops quiet"},
    {"Hosts and ranks", "hostfile include exclude num_nodes num_gpus slots local_rank wait-limit"},
    {"Values for \"auto\" in the configuration",
     "per_device_train_batch_size gradient_accumulation_steps learning_rate "
     "adam_beta1 adam_beta2 adam_epsilon weight_decay max_grad_norm "
     "warmup_steps fp16 bf16"},
    {"Names of transformers' Trainer",
     "deepspeed train_file validation_file max_seq_length max_train_samples "
     "num_train_epochs output_dir save_steps save_total_limit "
     "resume_from_checkpoint eval_steps logging_steps "
     "gradient_checkpointing model_name_or_path max_eval_samples do_train "
     "do_eval do_predict predict_with_generate warmup_ratio save_strategy eval_strategy "
     "save_on_each_node "
     "fp16_full_eval bf16_full_eval lr_scheduler_type lr_scheduler_kwargs load_best_model_at_end "
     "metric_for_best_model greater_is_better trainer-names"},
    {NULL, NULL},
};

const cli_verb options_verb = {
    .name = "zerotrain",
    .command = "zerotrain",
    .operands = "--deepspeed_config FILE --model PATH --data FILE\n"
                "       mpirun -n N zerotrain ...\n"
                "       zerotrain --hostfile FILE ...",
    .summary =
        "Train transformers with ZeRO from a ds_config.json, or evaluate, predict or generate "
        "text.",
    .notes =
        "Exit status: 0 done, 2 wrong arguments, 3 damaged or unsupported input, 4 a file would "
        "run\n"
        "code, 5 missing or inconsistent parts, 6 a limit was reached (memory; the smallest loss\n"
        "scale), 7 input/output error.",
    .options = told_table,
    .headings = told_headings,
    .more = told_file,
    .whole_names = true,
    .compat = true,
};

/* ---- dependent options ---- */

/* True for a number that is not 0. */
static bool told_is(double x)
{
    return x < 0 || x > 0;
}

/* An option, and a condition on it, which "needs" describes. */
typedef struct told_need {
    bool given, met;
    const char *name, *needs;
} told_need;

static int told_check(const told_need *row, size_t n, ckpt_err *err)
{
    for (size_t i = 0; i < n; i++) {
        if (row[i].given && !row[i].met)
            return ckpt_fail(err, CKPT_EUSAGE, "--%s %s", row[i].name, row[i].needs);
    }
    return CKPT_OK;
}

/* Refuse options that generation cannot follow, and its own ones without it. */
static int told_generates(const told *t, ckpt_err *err)
{
    static const char no_text[] = "cannot be combined with --generate";
    const zt_options *o = &t->run;
    const told_need row[] = {
        {o->generate, !o->evaluate && !o->predictions, "generate",
         "cannot be combined with --evaluate or --predict"},
        {o->generate, o->generate && *o->generate, "generate", "needs the name of a file"},
        {o->generate, o->max_new_tokens > 0 && o->max_new_tokens < INT32_MAX, "generate",
         "needs --max-new-tokens from 1 to 2147483646"},
        {o->max_new_tokens != TOLD_TOKENS, o->generate, "max-new-tokens", "needs --generate"},
        {told_is(o->temperature), o->generate, "temperature", "needs --generate"},
        {o->top_k > 0, o->temperature > 0, "top-k", "needs --temperature above 0"},
        {told_is(1 - o->top_p), o->temperature > 0, "top-p", "needs --temperature above 0"},
        {o->generate, o->temperature >= 0 && o->temperature <= 1e6, "temperature",
         "needs a number from 0 to 1e6"},
        {o->generate, o->top_p > 0 && o->top_p <= 1, "top-p", "needs a number above 0, at most 1"},
        {t->metrics, !o->generate, "metrics", no_text},
        {o->seq > 0, !o->generate, t->trainer.max_seq_length ? "max_seq_length" : "seq", no_text},
        {o->eval_data, !o->generate, t->trainer.validation_file ? "validation_file" : "eval-data",
         no_text},
        {o->save, !o->generate, t->trainer.output_dir ? "output_dir" : "save", no_text},
        {o->save_model, !o->generate, "save-model", no_text},
        {o->save_weights, !o->generate, "save-weights", no_text},
        {o->max_steps > 0, !o->generate, "max-steps", no_text},
        {o->epochs > 0, !o->generate, t->trainer.epochs > 0 ? "num_train_epochs" : "epochs",
         no_text},
        {o->packing, !o->generate, "packing", no_text},
        {o->no_shuffle, !o->generate, "no-shuffle", no_text},
    };

    return told_check(row, sizeof row / sizeof *row, err);
}

/* Refuse options that have no effect without another one, because the user expects an effect. */
static int told_needs(const told *t, ckpt_err *err)
{
    const zt_options *o = &t->run;
    const bool trains = !o->evaluate && !o->predictions && !o->generate;
    const told_need row[] = {
        {o->save_every > 0, o->save, t->trainer.save_strategy ? "save_strategy" : "save-every",
         "needs --save"},
        {o->keep > 0, o->save, "keep", "needs --save"},
        {o->async_save, o->save, "async-save", "needs --save"},
        {o->save_best, o->save && !o->tag, "save-best", "needs --save, and no --tag"},
        {o->save_best, o->eval_data && trains, "save-best",
         "needs --eval-data, and a run that trains"},
        {o->best_greater, o->save_best, "greater_is_better", "needs --metric_for_best_model"},
        {o->tag, o->save, "tag", "needs --save"},
        {o->load_tag, o->load, "load-tag", "needs --load"},
        {o->module_only, o->load, "module-only", "needs --load"},
        {o->save_epochs, o->save, "save_strategy epoch", "needs --output_dir (--save)"},
        {o->eval_every > 0, o->eval_data, t->trainer.eval_strategy ? "eval_strategy" : "eval-every",
         "needs --eval-data"},
        {o->eval_epochs, o->eval_data, "eval_strategy epoch", "needs --eval-data"},
        {o->lora_targets, o->lora_rank > 0, "lora-targets", "needs --lora-rank"},
        {o->lora_dropout > 0, o->lora_rank > 0, "lora-dropout", "needs --lora-rank"},
        {o->predictions, !o->evaluate, "predict", "cannot be combined with --evaluate"},
        {t->json, o->generate || (o->evaluate && !(t->metrics && strcmp(t->metrics, "-") == 0)),
         "json", "needs --evaluate, and another place for --metrics, or --generate"},
        {t->plot, trains, "plot", "needs a run that trains"},
        {t->tensorboard, !o->predictions && !o->generate, "tensorboard",
         "cannot be combined with --predict or --generate"},
        {t->logging_steps > 0, trains && (!t->quiet || t->plot), "logging_steps",
         "needs a run that trains without --quiet"},
        {o->args.lr_scheduler_kwargs, o->args.lr_scheduler_type, "lr_scheduler_kwargs",
         "needs --lr_scheduler_type"},
        {o->max_samples > 0, trains, "max_train_samples", "needs a run that trains"},
        {o->max_eval_samples > 0, o->eval_data || o->evaluate, "max_eval_samples",
         "needs --eval-data or --evaluate"},
    };
    const int rc = told_check(row, sizeof row / sizeof *row, err);

    return rc == CKPT_OK ? told_generates(t, err) : rc;
}

/* ---- options that must be equal on all ranks ---- */

static bool told_among(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

static bool told_line(const told *o, const cli_option *row, ckpt_bytes *to)
{
    const void *at = (const char *)o + row->at;

    if (row->kind == CLI_INTEGER || row->kind == CLI_WHOLE)
        return ckpt_bytes_printf(to, "--%s\t%lld\n", row->name, (long long)*(const int64_t *)at);
    if (row->kind == CLI_REAL)
        return ckpt_bytes_printf(to, "--%s\t%.17g\n", row->name, *(const double *)at);
    if (row->kind == CLI_FLAG)
        return ckpt_bytes_printf(to, "--%s\t%s\n", row->name,
                                 *(const bool *)at ? "given" : "not given");
    const char *text = *(const char *const *)at;
    return ckpt_bytes_printf(to, "--%s\t%s\n", row->name, text ? text : "not given");
}

/*
 * Make the lines that must be equal on all ranks.  For options with a path, only whether they are
 * given.
 */
static bool told_lines(const told *o, ckpt_bytes *to)
{
    // not compared here: the files' contents are compared later, or the option is the rank's own;
    // tags are agreed upon separately
    static const char *const own[] = {"deepspeed_config",
                                      "model",
                                      "vocab",
                                      "metrics",
                                      "tag",
                                      "device",
                                      "threads",
                                      "quiet",
                                      "profile",
                                      "peak-tflops",
                                      "args",
                                      "hostfile",
                                      "include",
                                      "exclude",
                                      "num_nodes",
                                      "num_gpus",
                                      "local_rank",
                                      "tensorboard",
                                      "plot",
                                      "logging_steps",
                                      "trainer-names",
                                      NULL};
    static const char *const path[] = {
        "init",         "data",       "eval-data", "save",     "load",
        "save-weights", "save-model", "predict",   "generate", NULL};
    bool ok = true;

    for (size_t i = 0; ok && told_table[i].name; i++) {
        const cli_option *row = &told_table[i];

        if (row->at >= AT(trainer) && row->at < AT(trainer) + sizeof o->trainer)
            continue; // already listed under our names
        if (told_among(path, row->name))
            ok = ckpt_bytes_printf(to, "--%s\t%s\n", row->name,
                                   *(const char *const *)(const void *)((const char *)o + row->at)
                                       ? "given"
                                       : "not given");
        else if (!told_among(own, row->name))
            ok = told_line(o, row, to);
    }
    // these names of the Trainer have no other one
    return ok && ckpt_bytes_printf(to,
                                   "--save_strategy epoch\t%d\n--eval_strategy epoch\t%d\n"
                                   "--greater_is_better\t%d\n--load_best_model_at_end\t%d\n",
                                   o->run.save_epochs, o->run.eval_epochs, o->run.best_greater,
                                   o->run.load_best);
}

static int told_alike(told *o, ckpt_err *err)
{
    ckpt_bytes lines = {0};

    if (told_lines(o, &lines))
        o->run.alike = ckpt_arena_string(o->arena, (const char *)lines.at, lines.n);
    ckpt_vec_free(&lines);
    return o->run.alike ? CKPT_OK : ckpt_fail_memory(err);
}

/* ---- the command line ---- */

/*
 * Copy the texts, because the command line is freed, and note which arguments for "auto" were
 * given.
 */
static bool told_keep(told *t, const cli_line *line)
{
    size_t auto_at = OP(args), auto_end = auto_at + sizeof t->run.args, n = 0;
    bool ok = true;

    for (size_t i = 0; told_table[i].name; i++) {
        const cli_option *o = &told_table[i];
        const char **text = (const char **)(void *)((char *)t + o->at);

        if (o->kind != CLI_MORE && o->at >= auto_at && o->at < auto_end)
            t->run.args.given[n++] = line->given[i];
        if (!line->given[i] || (o->kind != CLI_TEXT && o->kind != CLI_FILE &&
                                o->kind != CLI_RESULT && o->kind != CLI_OUTPUT))
            continue;
        *text = ckpt_arena_string(t->arena, *text, strlen(*text));
        ok = ok && *text;
    }
    return ok;
}

int options_read(told *out, ckpt_arena *arena, int argc, char **argv, ckpt_err *err)
{
    cli_line line = {0};
    bool request;
    int rc;

    *out = (told){
        .run = {.groups = "single",
                .lora_alpha = 16,
                .seed = 42,
                .device = "cpu",
                .max_new_tokens = TOLD_TOKENS,
                .top_p = 1},
        .local_rank = -1,
        .arena = arena,
    };
    zt_arguments_default(&out->run.args);
    rc = others_words(out, &argc, &argv, err);
    if (rc == CKPT_OK)
        rc = cli_parse(&line, &options_verb, out, argc, argv, err);
    if (rc == CKPT_OK && !told_keep(out, &line))
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK && !line.help && !line.version)
        rc = trainer_names(out, &line, err);
    out->help = line.help;
    out->help_all = line.help_all;
    out->version = line.version;
    request = out->help || out->version || out->completion || out->names;
    if (rc == CKPT_OK && !request)
        rc = told_needs(out, err);
    if (rc == CKPT_OK && !request)
        rc = outputs_check(out, err);
    out->run.tokens = out->json;
    if (rc == CKPT_OK)
        rc = told_alike(out, err);
    cli_free(&line);
    return rc;
}
