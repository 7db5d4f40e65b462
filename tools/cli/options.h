/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h: declares the options that several commands share, each once, so that they have the
 * same letter, kind and help text everywhere.
 */
#ifndef TOOLS_OPTIONS_H
#define TOOLS_OPTIONS_H

#include "tools/cli/write_args.h"

// clang-format off
#define OPTION_ALLOW_OVERFLOW \
    {"allow-overflow", 0, CLI_FLAG, offsetof(write_args, allow_overflow), NULL, \
     "accept values beyond the dtype's range"}
#define OPTION_ATTEST \
    {"attest", 0, CLI_RESULT, offsetof(write_args, attest), "FILE", \
     "write a statement with the SHA-256 of source and output"}
#define OPTION_BACKWARDS \
    {"backwards", 0, CLI_FLAG, offsetof(write_args, backwards), NULL, \
     "apply the map's FILE from right to left"}
#define OPTION_CONFIG \
    {"config", 0, CLI_SOURCE, offsetof(write_args, config), "PATH", \
     "read config.json here instead of beside the source"}
#define OPTION_DEEPSPEED_VERSION \
    {"deepspeed-version", 0, CLI_TEXT, offsetof(write_args, target.version), "V", \
     "write for DeepSpeed V (default: the source's)"}
#define OPTION_DROP_OBJECTS \
    {"drop-objects", 0, CLI_FLAG, offsetof(write_args, target.drop_objects), NULL, \
     "leave objects of unknown classes out"}
#define OPTION_DROP_OPTIMIZER \
    {"drop-optimizer", 0, CLI_FLAG, offsetof(write_args, target.fresh_optimizer), NULL, \
     "begin the optimizer again: write moments of zero and step 0"}
#define OPTION_DRY_RUN \
    {"dry-run", 'n', CLI_FLAG, offsetof(cli_args, dry_run), NULL, "print the plan; write nothing"}
#define OPTION_EP_SIZE \
    {"ep-size", 0, CLI_COUNT, offsetof(write_args, target.ep_size), "N", \
     "expert-parallel ranks of AutoEP (default: the source's, or the most that fit)"}
#define OPTION_EXCLUDE \
    {"exclude", 0, CLI_LIST, offsetof(cli_args, exclude), "GLOB", \
     "exclude tensors matching GLOB (repeatable)"}
#define OPTION_FORCE \
    {"force", 'f', CLI_FLAG, offsetof(cli_args, run.force), NULL, "replace existing outputs"}
#define OPTION_IGNORE_COPIES \
    {"ignore-copies", 0, CLI_FLAG, offsetof(cli_args, open.ignore_copies), NULL, \
     "do not compare masters with 16-bit copies"}
#define OPTION_INCLUDE \
    {"include", 0, CLI_LIST, offsetof(cli_args, include), "GLOB", \
     "include tensors matching GLOB, such as '*.mlp.*' (repeatable)"}
#define OPTION_JOBS \
    {"jobs", 'j', CLI_COUNT, offsetof(cli_args, run.jobs), "N", \
     "number of threads (default: one per processor, at most 8)"}
#define OPTION_JOIN \
    {"join", 0, CLI_FLAG, offsetof(write_args, join), NULL, "join tensor-parallel slices"}
#define OPTION_JSON \
    {"json", 0, CLI_FLAG, offsetof(cli_args, json), NULL, "print the plan or the report as JSON"}
#define OPTION_KEEP_NAMES \
    {"keep-names", 0, CLI_FLAG, offsetof(cli_args, keep_names), NULL, \
     "keep wrapper prefixes such as module. in names"}
#define OPTION_KEEP_OBJECTS \
    {"keep-objects", 0, CLI_FLAG, offsetof(write_args, target.keep_objects), NULL, \
     "copy objects of unknown classes"}
#define OPTION_MANIFEST \
    {"manifest", 0, CLI_FLAG, offsetof(write_args, manifest), NULL, \
     "write the SHA-256 of files and tensors, too"}
#define OPTION_MAX_SHARD_SIZE \
    {"max-shard-size", 0, CLI_SIZE, offsetof(write_args, target.max_shard_size), "SIZE", \
     "largest file of a folder (default: 5GB; 0: one file)"}
#define OPTION_MEMORY \
    {"memory", 0, CLI_SIZE, offsetof(cli_args, run.memory), "SIZE", \
     "limit of all buffers together (default: 256MiB)"}
#define OPTION_MOMENTS \
    {"moments", 0, CLI_DTYPE, offsetof(write_args, moments), "fp32", \
     "write the 8-bit moments of bitsandbytes as Adam's in fp32"}
#define OPTION_NO_FSYNC \
    {"no-fsync", 0, CLI_FLAG, offsetof(cli_args, run.skip_fsync), NULL, \
     "do not sync files to disk (scratch data only)"}
#define OPTION_NO_SIDE_FILES \
    {"no-side-files", 0, CLI_FLAG, offsetof(write_args, skip_side_files), NULL, \
     "do not copy config and tokenizer files"}
#define OPTION_ORDER \
    {"order", 0, CLI_FILE, offsetof(write_args, order), "FILE", \
     "order of the parameters: names in FILE, or 'stored' (as in the source)"}
#define OPTION_PRINT_JSON \
    {"json", 0, CLI_FLAG, offsetof(cli_args, json), NULL, "print JSON"}
#define OPTION_QUIET \
    {"quiet", 'q', CLI_FLAG, offsetof(cli_args, quiet), NULL, "print warnings and errors only"}
#define OPTION_REQUIRE_CRC \
    {"require-crc", 0, CLI_FLAG, offsetof(cli_args, open.require_crc), NULL, \
     "refuse records without CRC-32"}
#define OPTION_SIZE \
    {"size", 0, CLI_LIST, offsetof(write_args, sizes), "NAME=VALUE", \
     "set a value that the map asks for (repeatable)"}
#define OPTION_SLICE_RULES \
    {"slice-rules", 0, CLI_FILE, offsetof(cli_args, slice_rules), "FILE", \
     "read the rules that join slices (JSON)"}
#define OPTION_STAGE \
    {"stage", 's', CLI_COUNT, offsetof(write_args, target.stage), "1|2|3", \
     "ZeRO stage (default: same as the source)"}
#define OPTION_STRICT \
    {"strict", 0, CLI_FLAG, offsetof(cli_args, strict), NULL, "fail on warnings; write nothing"}
#define OPTION_SUB_GROUP_SIZE \
    {"sub-group-size", 0, CLI_COUNT64, offsetof(write_args, target.sub_group_size), "N", \
     "stage 3 sub-groups of N elements (default: the source's, or 1e9)"}
#define OPTION_TAG \
    {"tag", 't', CLI_TEXT, offsetof(cli_args, open.tag), "TAG", \
     "read this checkpoint of a run (default: by `latest`, or the newest)"}
#define OPTION_TO \
    {"to", 0, CLI_FORMAT, offsetof(write_args, target.format), "FORMAT", NULL}
#define OPTION_TENSOR_PARALLEL \
    {"tensor-model-parallel-size", 0, CLI_COUNT, offsetof(write_args, tensor_parallel), "N", \
     "pad the vocabulary, or write files, for N tensor-parallel ranks (default: 1)"}
#define OPTION_PIPELINE_PARALLEL \
    {"pipeline-model-parallel-size", 0, CLI_COUNT, offsetof(write_args, target.pp_size), "N", \
     "number of pipeline stages (megatron-legacy; default: 1)"}
#define OPTION_EXPERT_PARALLEL \
    {"expert-model-parallel-size", 0, CLI_COUNT, offsetof(write_args, target.ep_size), "N", \
     "number of expert-parallel ranks (megatron-legacy; default: 1)"}
#define OPTION_VOCAB_UNIT \
    {"make-vocab-size-divisible-by", 0, CLI_COUNT, offsetof(write_args, vocab_unit), "N", \
     "pad the vocabulary to a multiple of N for each rank (megatron; default: 128)"}
#define OPTION_WITH_OPTIMIZER \
    {"with-optimizer", 0, CLI_FLAG, offsetof(cli_args, open.with_optimizer), NULL, \
     "include optimizer state"}
// clang-format on

#endif
