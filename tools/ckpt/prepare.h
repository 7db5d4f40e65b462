/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prepare.h: from a command line to a source that is ready to be laid out for its target: what
 * `ckpt convert` and `ckpt mount` share.
 */
#ifndef TOOLS_PREPARE_H
#define TOOLS_PREPARE_H

#include "tools/cli/args.h"

/*
 * Check and complete a->target, whose format and path are set; open the source, change it as the
 * options say, and tell what was understood and found.
 *
 * map      set also on failure, to be freed by the caller, as is training_free(a)
 * Errors   CKPT_EUSAGE; CKPT_EMISSING: there are no tensors; those of opening
 */
int convert_prepare(ckpt_map **map, cli_args *a, ckpt_err *err);

/* The options that this takes, for the tables of both commands. */
#define PREPARE_AT(field) offsetof(cli_args, field)
// clang-format off
#define PREPARE_OPTIONS \
    {"dtype", 0, CLI_DTYPES, PREPARE_AT(target.dtypes), "D[:GLOB,...]", \
     "of all floating tensors (masters: fp32)"}, \
    {"max-shard-size", 0, CLI_SIZE, PREPARE_AT(target.max_shard_size), "SIZE", \
     "largest file of a folder (5GB; 0: one file)"}, \
    {"world", 'w', CLI_COUNT, PREPARE_AT(target.world), "N", \
     "of training state, hf-sharded: ranks (the source's)"}, \
    {"include", 0, CLI_LIST, PREPARE_AT(include), "GLOB", "only names that match (again: or)"}, \
    {"exclude", 0, CLI_LIST, PREPARE_AT(exclude), "GLOB", "no names that match"}, \
    {"rename", 0, CLI_FILE, PREPARE_AT(rename), "FILE", "rules, one a line: PATTERN REPLACEMENT"}, \
    {"keep-names", 0, CLI_FLAG, PREPARE_AT(keep_names), NULL, \
     "keep prefixes of wrappers in names"}, \
    {"map", 0, CLI_TEXT, PREPARE_AT(map), "NAME|FILE", \
     "from one layout to another (ckpt maps): hf:megatron"}, \
    {"layout", 0, CLI_TEXT, PREPARE_AT(hub_layout), CLI_LAYOUTS, \
     "of weights the hub's or training's; of dcp whose"}, \
    {"backwards", 0, CLI_FLAG, PREPARE_AT(backwards), NULL, \
     "a map's FILE is read from right to left"}, \
    {"config", 0, CLI_SOURCE, PREPARE_AT(config), "PATH", \
     "config.json, or its model's folder: not the source's own"}, \
    {"size", 0, CLI_LIST, PREPARE_AT(sizes), "NAME=VALUE", \
     "a size or value that the map asks for (again)"}, \
    {"adapter", 0, CLI_SOURCES, PREPARE_AT(adapters), "DIR[:WEIGHT]", \
     "merge this LoRA adapter, a folder or run (again: another)"}, \
    {"vocab-size", 0, CLI_COUNT64, PREPARE_AT(vocab_size), "N", \
     "tokens: rows of embedding and head, cut or added"}, \
    {"vocab-tensor", 0, CLI_LIST, PREPARE_AT(vocab_tensors), "GLOB", \
     "tensors with these rows (by config.json)"}, \
    {"tie", 0, CLI_TEXT, PREPARE_AT(tie), "HEAD[=TABLE]", \
     "leave a head out that equals its table"}, \
    {"quantize", 0, CLI_TEXT, PREPARE_AT(quantize), "FORM", \
     "hf: to fp8-block[:RxC] or fp8-channel"}, \
    {"quantize-skip", 0, CLI_LIST, PREPARE_AT(quantize_skip), "GLOB", \
     "weights that stay floats (again: or)"}, \
    {"untie", 0, CLI_FLAG, PREPARE_AT(untie), NULL, "write tied names in full"}, \
    {"adapter-only", 0, CLI_FLAG, PREPARE_AT(adapter_only), NULL, \
     "the adapter of a run that trained one, as PEFT's folder"}, \
    {"adapter-config", 0, CLI_FILE, PREPARE_AT(adapter_config), "FILE", \
     "a run's adapter_config.json (the one beside it)"}, \
    {"adapter-name", 0, CLI_TEXT, PREPARE_AT(adapter_name), "NAME", \
     "of several adapters, this one"}, \
    {"tag", 't', CLI_TEXT, PREPARE_AT(open.tag), "TAG", "this tag instead of the latest"}, \
    {"with-optimizer", 0, CLI_FLAG, PREPARE_AT(open.with_optimizer), NULL, \
     "also optimizer state"}, \
    {"weights-only", 0, CLI_FLAG, PREPARE_AT(open.weights_only), NULL, \
     "DeepSpeed: 16-bit weights of the model files, without optimizer files"}, \
    {"keep-slices", 0, CLI_FLAG, PREPARE_AT(open.keep_slices), NULL, \
     "tensor-parallel slices stay apart"}, \
    {"slice-rules", 0, CLI_FILE, PREPARE_AT(slice_rules), "FILE", "how slices are joined (JSON)"}, \
    {"order", 0, CLI_FILE, PREPARE_AT(order), "FILE", \
     "training state: names in order, or 'stored'"}, \
    {"to-tag", 0, CLI_TEXT, PREPARE_AT(target.tag), "NAME", \
     "training state: name of the new tag"}, \
    {"drop-optimizer", 0, CLI_FLAG, PREPARE_AT(target.fresh_optimizer), NULL, \
     "training state: moments of zero, step 0"}, \
    {"keep-objects", 0, CLI_FLAG, PREPARE_AT(target.objects_kept), NULL, \
     "training state: objects of unknown classes go along"}, \
    {"drop-objects", 0, CLI_FLAG, PREPARE_AT(target.objects_dropped), NULL, \
     "training state: leave them out"}, \
    {"no-frozen", 0, CLI_FLAG, PREPARE_AT(open.no_frozen), NULL, "leave frozen parameters out"}, \
    {"exclude-frozen", 0, CLI_FLAG, PREPARE_AT(open.no_frozen), NULL, "the same"}, \
    {"as-file", 0, CLI_FLAG, PREPARE_AT(as_file), NULL, \
     "a shard alone, not its whole checkpoint"}, \
    {"ignore-copies", 0, CLI_FLAG, PREPARE_AT(open.ignore_copies), NULL, \
     "do not compare masters with 16-bit copies"}, \
    {"require-crc", 0, CLI_FLAG, PREPARE_AT(open.require_crc), NULL, \
     "refuse records without CRC-32"}, \
    {"strict", 0, CLI_FLAG, PREPARE_AT(strict), NULL, "warnings are errors: nothing is written"}, \
    {"allow-overflow", 0, CLI_FLAG, PREPARE_AT(allow_overflow), NULL, \
     "values beyond the dtype's range may be lost"}, \
    {"memory", 0, CLI_SIZE, PREPARE_AT(run.memory), "SIZE", "for buffers, in all (256MiB)"}, \
    {"jobs", 'j', CLI_COUNT, PREPARE_AT(run.jobs), "N", "threads (one per processor, at most 8)"}, \
    {"no-side-files", 0, CLI_FLAG, PREPARE_AT(no_side_files), NULL, \
     "do not copy config and tokenizer"}
// clang-format on

/* Those of them that have no effect without another one. */
#define PREPARE_MOOT                                                                               \
    {"backwards", NULL, "map"}, {"vocab-tensor", NULL, "vocab-size"},                              \
        {"with-optimizer", "weights-only", NULL}, {"ignore-copies", "weights-only", NULL},         \
    {                                                                                              \
        "quantize-skip", NULL, "quantize"                                                          \
    }

#endif
