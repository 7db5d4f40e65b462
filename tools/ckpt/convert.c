/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c: implements ckpt convert: weights from any readable format to any writable one. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "ckpt_extra.h"
#include "libckpt/base/vec.h"
#include "tools/ckpt/effects.h"
#include "tools/ckpt/hub_names.h"
#include "tools/ckpt/job.h"
#include "tools/ckpt/pipe.h"
#include "tools/ckpt/plan.h"
#include "tools/ckpt/prepare.h"
#include "tools/ckpt/remap.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/training.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/text.h"
#include "tools/cli/words.h"

/*
 * True if the output gets the tensors that a program saved beside the model: the user selects
 * tensors, or asks for more than the model.
 */
static bool convert_others(const write_args *a)
{
    return a->cli.include.n > 0 || a->cli.open.with_optimizer;
}

/*
 * Apply --include, --exclude and --rename to the map.  The model's configuration is taken between
 * selection and renaming, because options name tensors as the source does.
 */
static int convert_select(ckpt_map *map, const write_args *a, ckpt_err *err)
{
    char *rules = NULL;
    ckpt_filter filter;
    int rc = CKPT_OK;

    if (args_filter(&filter, &a->cli) && (filter.include || filter.exclude))
        rc = ckpt_map_select(map, &filter, err);
    if (rc == CKPT_OK)
        rc = write_model(map, a, a->rename == NULL, convert_others(a), err);
    if (rc == CKPT_OK && a->rename)
        rc = text_read(&rules, a->rename, "rename rules", err);
    if (rc == CKPT_OK && a->rename)
        rc = ckpt_map_select(map, &(ckpt_filter){.rename_text = rules}, err);
    free(rules);
    return rc;
}

/* True if the target is a folder from which PEFT could load an adapter. */
static bool convert_to_folder(const write_args *a)
{
    return strcmp(a->target.format, "hf") == 0 || strcmp(a->target.format, "hf-bin") == 0;
}

/* True if the output can be an adapter instead of a model. */
static bool convert_to_adapter(const write_args *a)
{
    return convert_to_folder(a) || strcmp(a->target.format, "gguf") == 0;
}

/* True if an adapter, given as its folder or as a file in it, lies in this folder. */
static bool convert_lies_in(const char *adapter, const char *folder)
{
    char path[PATH_MAX];
    const char *slash = strrchr(adapter, '/');
    struct stat st, to;

    if (stat(folder, &to) != 0 || !S_ISDIR(to.st_mode) || stat(adapter, &st) != 0)
        return false;
    if (!S_ISDIR(st.st_mode)) {
        (void)snprintf(path, sizeof path, "%.*s", slash ? (int)(slash - adapter + 1) : 1,
                       slash ? adapter : ".");
        if (stat(path, &st) != 0)
            return false;
    }
    return st.st_dev == to.st_dev && st.st_ino == to.st_ino;
}

/* Refuse to merge an adapter into its own folder: programs would apply it to the merged model once
 * more. */
static int convert_check_own_folder(const prepare_args *a, ckpt_err *err)
{
    char path[PATH_MAX];
    double weight = 0;

    for (size_t i = 0; convert_to_folder(&a->write) && i < a->adapters.n; i++) {
        if (!word_weighted(path, sizeof path, a->adapters.at[i], &weight) ||
            !convert_lies_in(path, a->write.target.path))
            continue;
        return fail(err, CKPT_EUSAGE,
                    "%s is also the folder of the adapter %s: loaders would apply the adapter a "
                    "second time: choose another output folder",
                    a->write.target.path, path);
    }
    return CKPT_OK;
}

/* Refuse options of adapters without an adapter. */
static int convert_check_adapters(const prepare_args *a, ckpt_err *err)
{
    if (a->adapter_only && a->adapters.n)
        return fail(err, CKPT_EUSAGE,
                    "--adapter-only exports an adapter, and --adapter merges one: give only one of "
                    "these options");
    if (!a->adapter_only && !a->adapters.n && !convert_to_adapter(&a->write) &&
        (a->adapter_config || a->adapter_name))
        return fail(err, CKPT_EUSAGE, "--%s needs --adapter-only or --adapter",
                    a->adapter_config ? "adapter-config" : "adapter-name");
    if (a->untie && a->tie)
        return fail(err, CKPT_EUSAGE, "--tie and --untie exclude each other");
    // alphas of diffusers are metadata of the file
    if (a->lora_names && strcmp(a->write.target.format, "safetensors") != 0)
        return fail(err, CKPT_EUSAGE, "--lora-names needs --to safetensors");
    if (a->adapter_only && !convert_to_adapter(&a->write))
        return fail(err, CKPT_EUSAGE, "--adapter-only needs --to hf, --to hf-bin or --to gguf");
    return convert_check_own_folder(a, err);
}

/* Resize the vocabulary to --vocab-size. */
static int convert_vocab(ckpt_map *map, const prepare_args *a, ckpt_err *err)
{
    ckpt_vocab_opts opts = {.size = sizeof opts,
                            .rows = a->vocab_size,
                            .tensors = a->vocab_tensors.n ? a->vocab_tensors.at : NULL,
                            .config_text = a->write.config_text,
                            .config_name = a->write.config};

    return a->vocab_size ? ckpt_map_resize_vocab(map, &opts, err) : CKPT_OK;
}

/* Apply --tie and --untie. */
static int convert_ties(ckpt_map *map, const prepare_args *a, ckpt_err *err)
{
    if (a->untie)
        return ckpt_map_untie(map, err);
    // a model folder must not contain tensors that its configuration ties
    if (a->tie || (!a->write.target.skip_side_files && !write_native(&a->write)))
        return ckpt_map_tie(map, a->tie, err);
    return CKPT_OK;
}

/* True if the output is a GGUF file, and its source an adapter, or a run that trained one. */
static bool convert_is_gguf_adapter(const ckpt_map *map, const prepare_args *a)
{
    const ckpt_tensor *t = ckpt_map_tensor_count(map) > 0 ? ckpt_map_tensor_at(map, 0) : NULL;

    return t && a->write.map && !a->adapters.n && strcmp(a->write.target.format, "gguf") == 0 &&
           strncmp(t->name, "base_model.model.", 17) == 0;
}

/*
 * A run that trained an adapter has tensor names that loaders do not know, so a folder made from it
 * is an adapter folder.  If it contains its base, and no adapter configuration is known, all
 * tensors are written.
 */
static int convert_adapter_out(ckpt_map *map, prepare_args *a, ckpt_err *err)
{
    const ckpt_adapter_only only = {
        .size = sizeof only, .config = a->adapter_config, .name = a->adapter_name};
    hub_adapter kind =
        convert_to_adapter(&a->write) && !a->adapters.n ? hub_adapter_of(map) : HUB_NONE;
    bool asked = a->adapter_only || a->adapter_config || a->adapter_name;

    if (kind == HUB_NOT_LORA && !asked)
        say_warning("the tensors have the names of a model in PEFT training, which no loader "
                    "knows, and its adapter is not LoRA: load it with PEFT and merge it there "
                    "(merge_and_unload), or save it as an adapter (save_pretrained)");
    if ((kind == HUB_NONE || kind == HUB_NOT_LORA) && !a->adapter_only) {
        if (asked && !a->adapters.n && !convert_is_gguf_adapter(map, a))
            say_warning("--adapter-%s has no effect: the source trained no LoRA adapter",
                        a->adapter_config ? "config" : "name");
        return CKPT_OK;
    }
    int rc = ckpt_map_keep_adapter(map, &only, err);
    if (rc == CKPT_EUSAGE && !asked && kind == HUB_WITH_BASE && convert_to_folder(&a->write) &&
        strstr(err->text, "--adapter-c")) {
        *err = (ckpt_err){0};
        say_warning(
            "the tensors have the names of a model in PEFT training (base_model.model. ...), which "
            "loaders do not know: to write the adapter, give the run's adapter_config.json with "
            "--adapter-config");
        return CKPT_OK;
    }
    return rc;
}

CKPT_VEC(convert_paths, char *);

static void convert_free_paths(convert_paths *paths)
{
    for (size_t i = 0; i < paths->n; i++)
        free(paths->at[i]);
    ckpt_vec_free(paths);
}

/* The folders of --adapter, without weights, with NULL at the end. */
static int convert_list_paths(convert_paths *paths, const prepare_args *a, ckpt_err *err)
{
    char path[PATH_MAX];
    double weight;

    for (size_t i = 0; i <= a->adapters.n; i++) {
        char **p = ckpt_vec_push(paths);

        if (!p)
            return fail(err, CKPT_ELIMIT, "out of memory");
        *p = NULL;
        if (i == a->adapters.n || !word_weighted(path, sizeof path, a->adapters.at[i], &weight))
            continue;
        *p = strdup(path);
        if (!*p)
            return fail(err, CKPT_ELIMIT, "out of memory");
    }
    return CKPT_OK;
}

/* Merge the adapters of --adapter, or keep only the adapter that a run trained. */
static int convert_adapt(ckpt_map *map, prepare_args *a, ckpt_err *err)
{
    char path[PATH_MAX];
    bool renamed = false;
    const hub_source from = hub_source_of(&a->write);
    convert_paths all = {0};
    int rc = convert_list_paths(&all, a, err);

    for (size_t i = 0; rc == CKPT_OK && i < a->adapters.n; i++) {
        ckpt_adapter adapter = {.size = sizeof adapter,
                                .path = path,
                                .untie = a->untie,
                                .config = a->adapter_config,
                                .name = a->adapter_name,
                                .further = (const char *const *)all.at};

        if (!word_weighted(path, sizeof path, a->adapters.at[i], &adapter.weight) ||
            adapter.weight == 0)
            rc = fail(err, CKPT_EUSAGE, "--adapter: '%s' is not FOLDER:WEIGHT", a->adapters.at[i]);
        // adapters use the names in memory, which the hub's files may not have
        if (rc == CKPT_OK && !renamed && hub_misses(map, path))
            rc = hub_rename(map, &from, HUB_TO_MEMORY, &renamed, err);
        if (rc == CKPT_OK)
            rc = ckpt_map_merge_adapter(map, &adapter, err);
    }
    convert_free_paths(&all);
    if (rc == CKPT_OK && renamed)
        rc = hub_rename(map, &from, HUB_TO_FILES, &renamed, err);
    return rc == CKPT_OK ? convert_adapter_out(map, a, err) : rc;
}

/* True if the output must store floats, so a quantized source is dequantized. */
static bool convert_means_floats(const prepare_args *a)
{
    return a->write.target.dtype != CKPT_DTYPE_NONE || a->write.target.dtypes ||
           a->write.target.mixture || a->quantize || strcmp(a->write.target.format, "gguf") == 0 ||
           (a->write.map && !a->write.own_map);
}

/* True if the target's dtypes name the blocks of quantized sources. */
static bool convert_names_blocks(const ckpt_target *t)
{
    char word[16];

    for (const char *at = t->dtypes; at && *at; at += strcspn(at, ","), at += *at == ',') {
        (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ":,"), at);
        if (ckpt_dtype_parse(word) == CKPT_MXFP4)
            return true;
    }
    return t->dtype == CKPT_MXFP4 || (t->mixture && strcasecmp(t->mixture, "mxfp4_moe") == 0);
}

/*
 * True if weights whose blocks the target has, too, stay in these blocks: no dtype is asked for, or
 * the blocks' own.
 */
static bool convert_keeps_blocks(ckpt_map *map, const prepare_args *a)
{
    const ckpt_target *t = &a->write.target;
    const bool asked = t->dtype != CKPT_DTYPE_NONE || t->mixture || t->dtypes;

    return strcmp(t->format, "gguf") == 0 && (!asked || convert_names_blocks(t)) &&
           remap_keeps_blocks(map, &a->write);
}

/* Make the output's weights of quantized ones. */
static int convert_floats(ckpt_map *map, const prepare_args *a, ckpt_err *err)
{
    // an adapter applies to floats, as a program would load them
    if (a->adapters.n > 0)
        return ckpt_map_dequantize(map, true, err);
    if (!convert_means_floats(a))
        return CKPT_OK;
    return convert_keeps_blocks(map, a) ? ckpt_map_repack(map, false, err)
                                        : ckpt_map_dequantize(map, false, err);
}

/* Apply --quantize; --dtype then applies to the other tensors. */
static int convert_quantize(ckpt_map *map, prepare_args *a, ckpt_err *err)
{
    const ckpt_quantize how = {.size = sizeof how,
                               .form = a->quantize,
                               .skip = a->quantize_skip.n ? a->quantize_skip.at : NULL,
                               .dtype = a->write.target.dtype};

    if (!a->quantize)
        return CKPT_OK;
    a->write.target.dtype = CKPT_DTYPE_NONE;
    return ckpt_map_quantize(map, &how, err);
}

/*
 * Check that the target of --quantize is a folder, because only its configuration can describe the
 * numbers.
 */
static int convert_check_quantize(const prepare_args *a, ckpt_err *err)
{
    if (!a->quantize)
        return CKPT_OK;
    if (strcmp(a->write.target.format, "hf") != 0)
        return fail(err, CKPT_EUSAGE, "--quantize needs --to hf (for gguf, use --dtype q8_0 ...)");
    if (a->write.skip_side_files)
        return fail(err, CKPT_EUSAGE,
                    "--quantize needs the config.json that --no-side-files leaves out");
    if (a->write.target.dtypes || a->write.target.mixture)
        return fail(err, CKPT_EUSAGE,
                    "--quantize takes one --dtype, for the tensors that stay floats");
    return CKPT_OK;
}

/* Apply all options that change tensors, in their order. */
static int convert_shape(ckpt_map *map, prepare_args *a, ckpt_err *err)
{
    int rc = CKPT_OK;

    // adapters and vocabularies use the model's own names
    if (a->adapters.n > 0 || a->vocab_size)
        rc = write_model(map, &a->write, true, convert_others(&a->write), err);
    if (rc == CKPT_OK)
        rc = convert_floats(map, a, err);
    // an adapter may have been trained with more tokens than its base has
    if (rc == CKPT_OK)
        rc = convert_vocab(map, a, err);
    if (rc == CKPT_OK)
        rc = convert_adapt(map, a, err);
    if (rc == CKPT_OK && !training_format(a->write.target.format))
        rc = convert_select(map, &a->write, err);
    if (rc == CKPT_OK && a->lora_names)
        rc = ckpt_map_lora_names(map, a->lora_names, err);
    if (rc == CKPT_OK && convert_is_gguf_adapter(map, a))
        rc = ckpt_map_adapter_keys(map, a->adapter_config, err);
    if (rc == CKPT_OK)
        rc = training_format(a->write.target.format) ? CKPT_OK : remap_apply(map, &a->write, err);
    if (rc == CKPT_OK && convert_to_folder(&a->write))
        rc = ckpt_map_adapter_config(map, err);
    if (rc == CKPT_OK)
        rc = convert_ties(map, a, err);
    return rc == CKPT_OK ? convert_quantize(map, a, err) : rc;
}

/* A single dtype without a pattern applies to all tensors; another single word names a mixture. */
static void convert_dtype(ckpt_target *target)
{
    const char *text = target->dtypes;

    target->dtype = text ? ckpt_dtype_parse(text) : CKPT_DTYPE_NONE;
    if (text && !text[strcspn(text, ":,")]) {
        target->mixture = target->dtype == CKPT_DTYPE_NONE ? text : NULL;
        target->dtypes = NULL;
    }
}

/*
 * Warn if --config has no effect: there is no map, no vocabulary, the target has no configuration,
 * and no layers are compared with it.
 */
static void convert_check_config(const prepare_args *a)
{
    const unsigned caps = ckpt_format_caps(a->write.target.format);
    const bool goes_along = !a->write.target.skip_side_files && (caps & CKPT_TAKES_SIDE_FILES);
    const bool compared = !(caps & (CKPT_WRITES_STATE | CKPT_TAKES_GRID)) &&
                          a->write.cli.include.n == 0 && a->write.cli.exclude.n == 0;

    if (a->write.config && !a->write.map && !a->vocab_size && !goes_along && !compared)
        say_warning("--config has no effect: format %s takes no configuration",
                    a->write.target.format);
}

/* Refuse averaged weights where the trained ones or the optimizer's state are meant. */
static int convert_check_weights(const prepare_args *a, ckpt_err *err)
{
    if (!a->weights)
        return CKPT_OK;
    if (training_format(a->write.target.format))
        return fail(err, CKPT_EUSAGE,
                    "--weights makes a model, but a run continues from its trained weights: choose "
                    "another --to");
    if (a->write.cli.open.with_optimizer || a->write.cli.open.weights_only)
        return fail(err, CKPT_EUSAGE, "--weights and --%s exclude each other",
                    a->write.cli.open.with_optimizer ? "with-optimizer" : "weights-only");
    if (a->write.order && strcmp(a->weights, "schedule-free") != 0)
        return fail(err, CKPT_EUSAGE,
                    "--order names the parameters of an optimizer, which --weights %.100s does not "
                    "read",
                    a->weights);
    return CKPT_OK;
}

/* Set the defaults of options that were not given: shard size, memory, side files. */
static int convert_target(prepare_args *a, ckpt_err *err)
{
    int rc = effects_of_target(&a->write, err);

    if (rc == CKPT_OK)
        rc = convert_check_adapters(a, err);
    if (rc == CKPT_OK)
        rc = convert_check_weights(a, err);
    if (rc != CKPT_OK)
        return rc;
    convert_dtype(&a->write.target);
    rc = convert_check_quantize(a, err);
    if (rc != CKPT_OK)
        return rc;
    // not sizes.n, which also counts the sizes that other options set
    if (cli_has(&a->write.cli.line, "size") && !a->write.map)
        say_warning("--size has no effect without --map");
    a->write.target.skip_side_files = a->write.skip_side_files;
    convert_check_config(a);
    // split a single file only if requested
    if (!(ckpt_format_caps(a->write.target.format) & CKPT_IS_FOLDER) &&
        !cli_given(&a->write.cli.line, offsetof(write_args, target.max_shard_size)))
        a->write.target.max_shard_size = 0;
    job_settle(&a->write.target);
    // keep model-parallel ranks; a universal checkpoint has complete tensors
    if ((ckpt_format_caps(a->write.target.format) & CKPT_HAS_RANKS) && !a->write.join)
        a->write.cli.open.keep_slices = true;
    // refuse an impossible target before the source is read
    return ckpt_target_check(&a->write.target, err);
}

/*
 * If the source's slices cannot be joined, open it again and keep them, if the layout map that the
 * target needs joins slices itself (Meta's files of several ranks).
 */
static int convert_open_slices(ckpt_map **map, write_args *a, int rc)
{
    ckpt_err why = {0};
    char name[MAPS_NAME];

    if (rc != CKPT_EUNSUPPORTED || !a->own_map || a->cli.open.keep_slices)
        return rc;
    a->cli.open.keep_slices = true;
    if (args_open(map, &a->cli, &why) == CKPT_OK) {
        const ckpt_format_info *f = ckpt_format_find(ckpt_map_format(*map));
        (void)snprintf(name, sizeof name, "%s:hf", f && f->layout ? f->layout : "");
        if (maps_keep_slices(&a->maps, name, false))
            return CKPT_OK;
    }
    ckpt_map_free(*map);
    *map = NULL;
    a->cli.open.keep_slices = false;
    return rc;
}

/* Open the source as the target needs it, and print its facts. */
static int convert_open(ckpt_map **map, write_args *a, const char *weights, ckpt_err *err)
{
    int rc;

    if (a->map && maps_keep_slices(&a->maps, a->map, a->backwards))
        a->cli.open.keep_slices = true;
    a->cli.open.require_crc = a->cli.open.require_crc || a->cli.strict;
    // averaged weights are beside the model; those of evaluation are computed from the optimizer
    if (weights)
        a->cli.open.with_optimizer = true;
    // only reading the file as a run distinguishes optimizer tensors from the model's
    a->cli.open.training =
        a->cli.open.with_optimizer && (!weights || strcmp(weights, "schedule-free") == 0);
    if (training_format(a->target.format)) {
        rc = training_open(map, a, err);
    } else {
        rc = weights ? training_order(a, err) : CKPT_OK;
        a->target.order_text = NULL; // the order is that of the source alone
        if (rc == CKPT_OK)
            rc = convert_open_slices(map, a, args_open(map, &a->cli, err));
    }
    // the state was read for its averages alone
    if (weights)
        a->cli.open.with_optimizer = false;
    if (rc == CKPT_OK && weights)
        rc = ckpt_map_take_weights(*map, weights, err);
    if (rc == CKPT_OK && !a->cli.quiet)
        map_say_understood(*map);
    return rc;
}

int convert_prepare(ckpt_map **map, prepare_args *a, ckpt_err *err)
{
    int rc = convert_target(a, err);

    *map = NULL;
    job_refuse(&a->write.cli.run, a->write.allow_overflow, a->write.cli.strict);
    // a single shard is part of a checkpoint, so the user hardly means it alone
    a->write.cli.open.whole_checkpoint = !a->as_file;
    if (rc == CKPT_OK)
        rc = convert_open(map, &a->write, a->weights, err);
    if (rc == CKPT_OK)
        rc = convert_shape(*map, a, err);
    if (rc != CKPT_OK)
        return rc;
    map_say_findings(*map, !a->write.cli.quiet);
    effects_of_source(&a->write.cli, *map);
    // an empty output could be mistaken for a model
    if (ckpt_map_tensor_count(*map) == 0)
        return fail(err, CKPT_EMISSING, "%s: holds no tensors: there is nothing to convert",
                    a->write.cli.operand[0]);
    return CKPT_OK;
}

/* Warn of a path whose suffix names another format than the caller. */
static void convert_suffix(const char *path, const char *format)
{
    const char *named = ckpt_format_from_path(path);
    const char *suffix = named ? strrchr(path, '.') : NULL;

    for (size_t i = 0; suffix && i < ckpt_format_count(); i++) {
        const ckpt_format_info *f = ckpt_format_at(i);
        const bool folder = (f->caps & CKPT_IS_FOLDER) != 0;

        if (strcmp(f->name, format) == 0 && strcmp(f->name, named) != 0 &&
            (folder || (f->suffixes && !strstr(f->suffixes, suffix))))
            say_warning("%s: the suffix names the format %s, but the %s has the format %s", path,
                        named, folder ? "folder" : "file", f->name);
    }
}

/* Set path and format of the output. */
static int convert_output(write_args *a, ckpt_err *err)
{
    int rc = CKPT_OK;

    a->target.path = a->cli.operand[1];
    if (args_to_stdout(&a->cli))
        rc = pipe_check(a, err);
    if (rc == CKPT_OK && a->target.format)
        convert_suffix(a->target.path, a->target.format);
    else if (rc == CKPT_OK)
        // a file's suffix may choose the format; a folder's name does not
        a->target.format = ckpt_format_from_path(a->target.path);
    if (rc == CKPT_OK && !a->target.format)
        rc = fail(err, CKPT_EUSAGE,
                  "%s: the suffix does not name a format: use --to FORMAT (`ckpt formats` lists "
                  "the formats to write)",
                  a->target.path);
    return rc;
}

/* Open, select, lay out, plan; then print the plan or run it. */
static int convert_run(cli_args *cli, ckpt_err *err)
{
    prepare_args *a = (prepare_args *)cli;
    ckpt_map *map = NULL;
    int rc = convert_output(&a->write, err);

    if (rc == CKPT_OK)
        rc = convert_prepare(&map, a, err);
    convert_job job = {.from = map,
                       .target = a->write.target,
                       .run = a->write.cli.run,
                       .quiet = a->write.cli.quiet,
                       .merged = a->adapters.n > 0};
    if (rc == CKPT_OK)
        rc = plan_carry_out(&job, &a->write, err);
    training_free(&a->write);
    ckpt_map_free(map);
    return rc;
}

#define AT(field) offsetof(prepare_args, field)
static const cli_option convert_options[] = {
    OPTION_TO,
    PREPARE_OPTIONS,
    OPTION_STAGE,
    {"compress", 0, CLI_FLAG, AT(write.target.deflate), NULL,
     "compress npz, as savez_compressed does"},
    OPTION_FORCE,
    OPTION_NO_FSYNC,
    OPTION_ATTEST,
    OPTION_MANIFEST,
    OPTION_DRY_RUN,
    OPTION_JSON,
    OPTION_QUIET,
    CLI_LOCAL,
    CLI_SPREAD,
    CLI_NO_SANDBOX,
    CLI_END,
};

static const cli_moot convert_moot[] = {
    PREPARE_MOOT,
    {NULL, NULL, NULL},
};

static const cli_heading convert_headings[] = {
    {"Common options", "to dtype max-shard-size include exclude tag map adapter force dry-run"},
    PREPARE_HEADINGS,
    {"Output", "no-side-files compress manifest attest no-fsync json quiet memory jobs "
               "local-target hostfile"},
    {NULL, NULL},
};

const cli_verb verb_convert = {
    .name = "convert",
    .command = "ckpt convert",
    .operands = "SRC DST",
    .summary = "Convert the weights of a checkpoint to another format.",
    .options = convert_options,
    .moot = convert_moot,
    .headings = convert_headings,
    .min = 2,
    .max = 2,
    .uses = "ro",
    .streams = true,
    .run = convert_run,
    .room = sizeof(prepare_args),
    WRITE_HOOKS,
};
