/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prepare.h: declares the steps from a command line to a source that is ready for the target's
 * layout; `ckpt convert` and `ckpt mount` share them.
 */
#ifndef TOOLS_PREPARE_H
#define TOOLS_PREPARE_H

#include "tools/cli/args.h"

/*
 * Check and complete a->target (its format and path must be set), open the source, change it as the
 * options require, and print its facts and findings.
 *
 * map      set even after a failure; the caller frees it, and calls training_free(a)
 * Errors   CKPT_EUSAGE; CKPT_EMISSING: there are no tensors; those of opening
 */
int convert_prepare(ckpt_map **map, cli_args *a, ckpt_err *err);

/* The options of these steps, for the tables of both commands. */
#define PREPARE_AT(field) offsetof(cli_args, field)
// clang-format off
#define PREPARE_OPTIONS \
    {"dtype", 0, CLI_DTYPES, PREPARE_AT(target.dtypes), "D[:GLOB,...]", \
     "dtype of floating tensors (default: the source's; masters fp32)"}, \
    {"max-shard-size", 0, CLI_SIZE, PREPARE_AT(target.max_shard_size), "SIZE", \
     "largest file of a folder (default: 5GB; 0: one file)"}, \
    {"world", 'w', CLI_COUNT, PREPARE_AT(target.world), "N", \
     "number of ranks of zero, fsdp-ranks, dcp, hf-sharded"}, \
    {"include", 0, CLI_LIST, PREPARE_AT(include), "GLOB", \
     "include tensors matching GLOB (repeatable)"}, \
    {"exclude", 0, CLI_LIST, PREPARE_AT(exclude), "GLOB", \
     "exclude tensors matching GLOB (repeatable)"}, \
    {"rename", 0, CLI_FILE, PREPARE_AT(rename), "FILE", \
     "rename tensors by rules: PATTERN REPLACEMENT in each line"}, \
    {"keep-names", 0, CLI_FLAG, PREPARE_AT(keep_names), NULL, \
     "keep wrapper prefixes such as module. in names"}, \
    {"map", 0, CLI_TEXT, PREPARE_AT(map), "NAME|FILE", \
     "apply a layout map, such as hf:megatron (see ckpt maps)"}, \
    {"layout", 0, CLI_TEXT, PREPARE_AT(hub_layout), CLI_LAYOUTS, \
     "names of weights (hub, native) or of dcp (others)"}, \
    {"backwards", 0, CLI_FLAG, PREPARE_AT(backwards), NULL, \
     "apply the map's FILE from right to left"}, \
    {"config", 0, CLI_SOURCE, PREPARE_AT(config), "PATH", \
     "read config.json here instead of beside the source"}, \
    {"size", 0, CLI_LIST, PREPARE_AT(sizes), "NAME=VALUE", \
     "set a value that the map asks for (repeatable)"}, \
    {"adapter", 0, CLI_SOURCES, PREPARE_AT(adapters), "DIR[:WEIGHT]", \
     "merge the LoRA adapter of a folder or run (repeatable)"}, \
    {"vocab-size", 0, CLI_COUNT64, PREPARE_AT(vocab_size), "N", \
     "resize embedding and head to N tokens"}, \
    {"vocab-tensor", 0, CLI_LIST, PREPARE_AT(vocab_tensors), "GLOB", \
     "tensors to resize (default: by config.json)"}, \
    {"tie", 0, CLI_TEXT, PREPARE_AT(tie), "HEAD[=TABLE]", \
     "leave HEAD out if it equals TABLE"}, \
    {"quantize", 0, CLI_TEXT, PREPARE_AT(quantize), "FORM", \
     "quantize to fp8-block[:RxC] or fp8-channel (hf)"}, \
    {"quantize-skip", 0, CLI_LIST, PREPARE_AT(quantize_skip), "GLOB", \
     "keep weights matching GLOB as floats (repeatable)"}, \
    {"untie", 0, CLI_FLAG, PREPARE_AT(untie), NULL, "write tied tensors separately"}, \
    {"adapter-only", 0, CLI_FLAG, PREPARE_AT(adapter_only), NULL, \
     "export the adapter of a run as a PEFT folder"}, \
    {"adapter-config", 0, CLI_FILE, PREPARE_AT(adapter_config), "FILE", \
     "read adapter_config.json here (default: beside the run)"}, \
    {"adapter-name", 0, CLI_TEXT, PREPARE_AT(adapter_name), "NAME", \
     "select one of several adapters"}, \
    {"tag", 't', CLI_TEXT, PREPARE_AT(open.tag), "TAG", "read this tag (default: the latest)"}, \
    {"with-optimizer", 0, CLI_FLAG, PREPARE_AT(open.with_optimizer), NULL, \
     "include optimizer state"}, \
    {"weights-only", 0, CLI_FLAG, PREPARE_AT(open.weights_only), NULL, \
     "read 16-bit weights from DeepSpeed's model files only"}, \
    {"keep-slices", 0, CLI_FLAG, PREPARE_AT(open.keep_slices), NULL, \
     "keep tensor-parallel slices separate"}, \
    {"slice-rules", 0, CLI_FILE, PREPARE_AT(slice_rules), "FILE", \
     "read the rules that join slices (JSON)"}, \
    {"order", 0, CLI_FILE, PREPARE_AT(order), "FILE", \
     "order of the parameters: names in FILE, or 'stored'"}, \
    {"to-tag", 0, CLI_TEXT, PREPARE_AT(target.tag), "NAME", \
     "name of the new tag"}, \
    {"drop-optimizer", 0, CLI_FLAG, PREPARE_AT(target.fresh_optimizer), NULL, \
     "write moments of zero and step 0"}, \
    {"moments", 0, CLI_DTYPE, PREPARE_AT(moments), "fp32", \
     "write 8-bit moments as Adam's in fp32"}, \
    {"keep-objects", 0, CLI_FLAG, PREPARE_AT(target.objects_kept), NULL, \
     "copy objects of unknown classes"}, \
    {"drop-objects", 0, CLI_FLAG, PREPARE_AT(target.objects_dropped), NULL, \
     "leave objects of unknown classes out"}, \
    {"no-frozen", 0, CLI_FLAG, PREPARE_AT(open.no_frozen), NULL, "leave frozen parameters out"}, \
    {"exclude-frozen", 0, CLI_FLAG, PREPARE_AT(open.no_frozen), NULL, "same as --no-frozen"}, \
    {"as-file", 0, CLI_FLAG, PREPARE_AT(as_file), NULL, \
     "read this shard alone, not its checkpoint"}, \
    {"ignore-copies", 0, CLI_FLAG, PREPARE_AT(open.ignore_copies), NULL, \
     "do not compare masters with 16-bit copies"}, \
    {"require-crc", 0, CLI_FLAG, PREPARE_AT(open.require_crc), NULL, \
     "refuse records without CRC-32"}, \
    {"strict", 0, CLI_FLAG, PREPARE_AT(strict), NULL, "fail on warnings; write nothing"}, \
    {"allow-overflow", 0, CLI_FLAG, PREPARE_AT(allow_overflow), NULL, \
     "accept values beyond the dtype's range"}, \
    {"memory", 0, CLI_SIZE, PREPARE_AT(run.memory), "SIZE", \
     "size of all buffers (default: 256MiB)"}, \
    {"jobs", 'j', CLI_COUNT, PREPARE_AT(run.jobs), "N", \
     "number of threads (default: one per processor, at most 8)"}, \
    {"no-side-files", 0, CLI_FLAG, PREPARE_AT(no_side_files), NULL, \
     "do not copy config and tokenizer files"}
// clang-format on

/* The headings of these options in help texts, after that of the common options. */
// clang-format off
#define PREPARE_HEADINGS \
    {"Source", "tag as-file with-optimizer weights-only no-frozen exclude-frozen keep-slices " \
               "slice-rules ignore-copies require-crc strict no-sandbox local"}, \
    {"Names and layout", "rename keep-names map backwards layout config size"}, \
    {"Precision and shape", "allow-overflow quantize quantize-skip vocab-size vocab-tensor tie " \
                            "untie"}, \
    {"Adapters", "adapter adapter-only adapter-config adapter-name"}, \
    {"Training state", "world stage order to-tag drop-optimizer keep-objects drop-objects " \
                       "moments sub-group-size deepspeed-version join"}
// clang-format on

/* The options among these that have no effect without another one. */
#define PREPARE_MOOT                                                                               \
    {"backwards", NULL, "map"}, {"vocab-tensor", NULL, "vocab-size"},                              \
        {"with-optimizer", "weights-only", NULL}, {"ignore-copies", "weights-only", NULL},         \
    {                                                                                              \
        "quantize-skip", NULL, "quantize"                                                          \
    }

#endif
