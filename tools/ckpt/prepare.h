/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prepare.h: declares the steps from a command line to a source that is ready for the target's
 * layout; `ckpt convert` and `ckpt mount` share them.
 */
#ifndef TOOLS_PREPARE_H
#define TOOLS_PREPARE_H

#include "tools/cli/options.h"

/* The fields of these steps. */
typedef struct prepare_args {
    write_args write; /* first: the parser fills the whole */
    cli_list adapters;
    bool as_file, untie, adapter_only;
    const char *tie;
    uint64_t vocab_size;
    cli_list vocab_tensors;
    const char *quantize;
    cli_list quantize_skip;
    const char *adapter_config, *adapter_name, *lora_names;
    const char *weights;
} prepare_args;

/*
 * Check and complete a->write.target (its format and path must be set), open the source, change it
 * as the options require, and print its facts and findings.
 *
 * map      set even after a failure; the caller frees it, and calls training_free
 * Errors   CKPT_EUSAGE; CKPT_EMISSING: there are no tensors; those of opening
 */
int convert_prepare(ckpt_map **map, prepare_args *a, ckpt_err *err);

/* The options of these steps, for the tables of both commands. */
#define PREPARE_AT(field) offsetof(prepare_args, field)
/* Those that change the output; `ckpt verify --made-from` has them, too. */
// clang-format off
#define PREPARE_CHANGES \
    {"imatrix", 0, CLI_FILE, PREPARE_AT(write.target.imatrix), "FILE", \
     "quantize by llama.cpp's importance matrix (gguf)"}, \
    {"world", 'w', CLI_COUNT, PREPARE_AT(write.target.world), "N", \
     "ranks to write for (zero, fsdp-ranks, dcp, megatron, hf-sharded)"}, \
    OPTION_INCLUDE, \
    OPTION_EXCLUDE, \
    {"rename", 0, CLI_FILE, PREPARE_AT(write.rename), "FILE", \
     "rename tensors by rules: PATTERN REPLACEMENT in each line"}, \
    OPTION_KEEP_NAMES, \
    {"map", 0, CLI_TEXT, PREPARE_AT(write.map), "NAME|FILE", \
     "apply a layout map, such as hf:megatron (see ckpt maps)"}, \
    {"layout", 0, CLI_TEXT, PREPARE_AT(write.hub_layout), CLI_LAYOUTS, \
     "names to write: hub or native for weights, others for dcp or megatron-legacy"}, \
    OPTION_BACKWARDS, \
    OPTION_CONFIG, \
    OPTION_SIZE, \
    OPTION_VOCAB_UNIT, \
    OPTION_TENSOR_PARALLEL, \
    OPTION_PIPELINE_PARALLEL, \
    OPTION_EXPERT_PARALLEL, \
    {"adapter", 0, CLI_SOURCES, PREPARE_AT(adapters), "DIR[:WEIGHT]", \
     "merge the adapter of a folder or run (repeatable)"}, \
    {"vocab-size", 0, CLI_COUNT64, PREPARE_AT(vocab_size), "N", \
     "resize embedding and head to N tokens"}, \
    {"vocab-tensor", 0, CLI_LIST, PREPARE_AT(vocab_tensors), "GLOB", \
     "tensors to resize (default: by config.json)"}, \
    {"tie", 0, CLI_TEXT, PREPARE_AT(tie), "HEAD[=EMBEDDING]", \
     "tie HEAD to EMBEDDING: leave it out if both are equal"}, \
    {"quantize", 0, CLI_TEXT, PREPARE_AT(quantize), "FORM", \
     "quantize (hf): fp8-block, fp8-channel, w4a16, mlx4 ..."}, \
    {"quantize-skip", 0, CLI_LIST, PREPARE_AT(quantize_skip), "GLOB", \
     "keep weights matching GLOB as floats (repeatable)"}, \
    {"untie", 0, CLI_FLAG, PREPARE_AT(untie), NULL, "write tied tensors separately"}, \
    {"adapter-only", 0, CLI_FLAG, PREPARE_AT(adapter_only), NULL, \
     "export the adapter of a run (PEFT, GGUF)"}, \
    {"adapter-config", 0, CLI_FILE, PREPARE_AT(adapter_config), "FILE", \
     "read adapter_config.json here (default: beside the run)"}, \
    {"adapter-name", 0, CLI_TEXT, PREPARE_AT(adapter_name), "NAME", \
     "select one of several adapters of a run"}, \
    {"lora-names", 0, CLI_TEXT, PREPARE_AT(lora_names), "PROGRAM[:MODEL]", \
     "rename a diffusion LoRA for kohya, diffusers or comfyui"}, \
    {"weights", 0, CLI_TEXT, PREPARE_AT(weights), "KEY", \
     "take averaged weights: ema, schedule-free, or the copy below KEY"}, \
    OPTION_WITH_OPTIMIZER, \
    {"weights-only", 0, CLI_FLAG, PREPARE_AT(write.cli.open.weights_only), NULL, \
     "read 16-bit weights from DeepSpeed's model files only"}, \
    OPTION_ORDER, \
    OPTION_DROP_OPTIMIZER, \
    OPTION_MOMENTS, \
    OPTION_KEEP_OBJECTS, \
    OPTION_DROP_OBJECTS, \
    {"no-frozen", 0, CLI_FLAG, PREPARE_AT(write.cli.open.skip_frozen), NULL, \
     "leave frozen parameters out"}, \
    {"exclude-frozen", 0, CLI_FLAG, PREPARE_AT(write.cli.open.skip_frozen), NULL, \
     "same as --no-frozen"}

#define PREPARE_OPTIONS \
    {"dtype", 0, CLI_DTYPES, PREPARE_AT(write.target.dtypes), "D[:GLOB,...]", \
     "dtype of floating-point tensors (default: as in the source)"}, \
    OPTION_MAX_SHARD_SIZE, \
    PREPARE_CHANGES, \
    OPTION_TAG, \
    {"keep-slices", 0, CLI_FLAG, PREPARE_AT(write.cli.open.keep_slices), NULL, \
     "keep tensor-parallel slices separate"}, \
    OPTION_SLICE_RULES, \
    {"to-tag", 0, CLI_TEXT, PREPARE_AT(write.target.tag), "NAME", \
     "name of the new tag"}, \
    {"as-file", 0, CLI_FLAG, PREPARE_AT(as_file), NULL, \
     "read this shard alone, not its checkpoint"}, \
    OPTION_IGNORE_COPIES, \
    OPTION_REQUIRE_CRC, \
    OPTION_STRICT, \
    OPTION_ALLOW_OVERFLOW, \
    OPTION_MEMORY, \
    OPTION_JOBS, \
    OPTION_NO_SIDE_FILES
// clang-format on

/* The headings of these options in help texts, after that of the common options. */
// clang-format off
#define PREPARE_HEADINGS \
    {"Source", "tag as-file weights with-optimizer weights-only no-frozen exclude-frozen " \
               "keep-slices slice-rules ignore-copies require-crc strict no-sandbox local"}, \
    {"Names and layout", "rename keep-names map backwards layout config size " \
                         "make-vocab-size-divisible-by tensor-model-parallel-size " \
                         "pipeline-model-parallel-size expert-model-parallel-size"}, \
    {"Precision and shape", "allow-overflow imatrix quantize quantize-skip vocab-size " \
                            "vocab-tensor tie untie"}, \
    {"Adapters", "adapter adapter-only adapter-config adapter-name lora-names"}, \
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
