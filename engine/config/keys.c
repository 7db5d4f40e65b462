/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.c: owns the tables of the keys of ds_config.json: type, range, default, effect.
 *
 * The keys, defaults and ranges are those of DeepSpeed 0.19.8 (runtime/config.py,
 * runtime/constants.py, runtime/zero/config.py, offload_config.py, precision_config.py,
 * swap_tensor/aio_config.py, activation_checkpointing/config.py).
 */
#include <float.h>
#include <stddef.h>

#include "engine/config/fields.h"

/*
 * Largest size that fits an int64_t.  As a double it is 2^63, which fields.c takes as "no limit".
 */
#define TOP 9223372036854775808.0

#define AT(member) offsetof(ds_draft, member)

// One line per form of entry, because clang-format would spread each over four.
// clang-format off
#define BOOL(key, f)          {.name = (key), .kind = DS_BOOL, .at = AT(f)}
#define BOOL_OR_NULL(key, f)  {.name = (key), .kind = DS_BOOL, .at = AT(f), .nullable = true}
#define INT(key, f, lo, hi)   {.name = (key), .kind = DS_INT, .at = AT(f), .min = (lo), .max = (hi)}
#define SIZE(key, f, lo)      {.name = (key), .kind = DS_SIZE, .at = AT(f), .min = (lo), .max = TOP}
#define REAL(key, f, lo, hi) \
    {.name = (key), .kind = DS_REAL, .at = AT(f), .min = (lo), .max = (hi)}
#define TEXT(key, f)          {.name = (key), .kind = DS_TEXT, .at = AT(f), .nullable = true}
#define TREE(key, f)          {.name = (key), .kind = DS_TREE, .at = AT(f)}
#define BLOCK(key, b)         {.name = (key), .kind = DS_BLOCK, .block = &(b), .nullable = true}
#define CHOICE(key, f, list, folded) \
    {.name = (key), .kind = DS_CHOICE, .at = AT(f), .choice = (list), .fold = (folded)}

/* Stage 3 keys, known with and without the prefix. */
#define SIZE3(key, f) \
    {.name = "stage3_" key, .other = (key), .kind = DS_SIZE, .at = AT(f), .max = TOP}
#define IDLE3(key, k, w) \
    {.name = "stage3_" key, .other = (key), .kind = (k), .fate = DS_IDLE, .why = (w), .min = -TOP, \
     .max = TOP}

#define IDLE(key, k, w) \
    {.name = (key), .kind = (k), .fate = DS_IDLE, .why = (w), .min = -TOP, .max = TOP}
#define OFF(key, k, w)        {.name = (key), .kind = (k), .fate = DS_OFF, .why = (w)}
#define OFF_ABOVE(key, hi, w) \
    {.name = (key), .kind = DS_INT, .fate = DS_OFF, .min = -TOP, .max = (hi), .why = (w)}
#define SWITCH(key, member, w) \
    {.name = (key), .other = (member), .kind = DS_SWITCH, .fate = DS_OFF, .why = (w)}
#define IDLE_SWITCH(key, member, w) \
    {.name = (key), .other = (member), .kind = DS_SWITCH, .fate = DS_IDLE, .why = (w)}

/* Stored and printed, with a note, because the value has no effect here. */
#define KEPT(key, k, f, w) \
    {.name = (key), .kind = (k), .at = AT(f), .max = TOP, .why = (w)}
#define KEPT3(key, k, f, w) \
    {.name = "stage3_" key, .other = (key), .kind = (k), .at = AT(f), .max = TOP, .why = (w)}

#define GONE(key, w)          {.name = (key), .kind = DS_ANY, .fate = DS_GONE, .why = (w)}

#define TABLE(path, keys, is_typed) \
    {.name = (path), .key = (keys), .n = sizeof(keys) / sizeof((keys)[0]), .typed = (is_typed)}
// clang-format on

static const char host_memory[] = "the device of this engine is host memory";
static const char no_streams[] = "it tunes the overlap of transfers on a GPU";
static const char no_hooks[] =
    "it concerns hooks on Python modules, which this engine does not have";
static const char swapped[] = "files are always read ahead and written behind";
static const char mapped[] = "files of weights are mapped: the kernel keeps what fits in memory";
static const char plain_files[] = "a thread reads and writes the files with pread and pwrite";
static const char one_path[] = "this engine has only one implementation, with the same results";

/* ---- choices ---- */

const char *const ds_dtype_names[] = {"fp32", "float32",  "float",          "torch.float32",
                                      "fp16", "float16",  "half",           "torch.float16",
                                      "bf16", "bfloat16", "torch.bfloat16", NULL};
const ckpt_dtype ds_dtypes[] = {CKPT_F32, CKPT_F32, CKPT_F32,  CKPT_F32,  CKPT_F16, CKPT_F16,
                                CKPT_F16, CKPT_F16, CKPT_BF16, CKPT_BF16, CKPT_BF16};

/* communication_data_type knows only the short names; config.c depends on their order. */
static const char *const comm_names[] = {"fp32", "fp16", "bf16", NULL};
static const char *const op_names[] = {"mean", "sum", NULL};
static const char *const tag_names[] = {"WARN", "IGNORE", "FAIL", NULL}; // as zt_tag_check
static const char *const place_names[] = {"none", "cpu", "nvme", NULL};  // as zt_place

/* ---- zero_optimization ---- */

static const ds_key offload_optimizer_keys[] = {
    CHOICE("device", place_optimizer, place_names, false),
    TEXT("nvme_path", c.offload_optimizer.path),
    INT("buffer_count", c.offload_optimizer.buffer_count, 0, 1e6),
    KEPT("pin_memory", DS_BOOL, c.offload_optimizer.pin, host_memory),
    KEPT("pipeline_read", DS_BOOL, c.offload_optimizer.pipeline_read, swapped),
    KEPT("pipeline_write", DS_BOOL, c.offload_optimizer.pipeline_write, swapped),
    IDLE("fast_init", DS_BOOL, one_path),
    {.name = "ratio",
     .kind = DS_REAL,
     .at = AT(c.offload_optimizer.ratio),
     .max = 1,
     .why = host_memory},
    OFF("super_offload", DS_BOOL,
        "it is made for GPU superchips; remove it: device \"cpu\" does the same work on the host"),
    IDLE("cpuadam_cores_perc", DS_REAL, "threads are set by the command line"),
};
static const ds_block offload_optimizer =
    TABLE("zero_optimization.offload_optimizer", offload_optimizer_keys, true);

static const ds_key offload_param_keys[] = {
    CHOICE("device", place_param, place_names, false),
    TEXT("nvme_path", c.offload_param.path),
    KEPT("buffer_count", DS_INT, c.offload_param.buffer_count, mapped),
    KEPT("buffer_size", DS_SIZE, c.offload_param.buffer_size, mapped),
    KEPT("max_in_cpu", DS_SIZE, c.offload_param.max_in_cpu, mapped),
    KEPT("pin_memory", DS_BOOL, c.offload_param.pin, host_memory),
};
static const ds_block offload_param =
    TABLE("zero_optimization.offload_param", offload_param_keys, true);

static const char quantized[] =
    "weights and gradients are sent unquantized here; set it to false (communication_data_type "
    "\"bf16\" or \"fp16\" halves the traffic instead)";
static const char mics[] = "MiCS was removed in DeepSpeed 0.19 and is not supported here; remove "
                           "it (stage 3 shards over all ranks)";

static const ds_key zero_keys[] = {
    INT("stage", stage, 0, 3),
    KEPT("contiguous_gradients", DS_BOOL, c.contiguous, one_path),
    BOOL("reduce_scatter", c.reduce_scatter),
    SIZE("reduce_bucket_size", c.reduce_bucket, 1),
    IDLE("use_multi_rank_bucket_allreduce", DS_BOOL, one_path),
    IDLE("allgather_partitions", DS_BOOL, one_path),
    KEPT("allgather_bucket_size", DS_SIZE, c.gather_bucket, "weights are gathered in place"),
    {.name = "overlap_comm",
     .kind = DS_BOOL,
     .at = AT(c.overlap),
     .nullable = true,
     .why = no_streams},
    BOOL("compute_grad_norm", c.compute_grad_norm),
    IDLE("load_from_fp32_weights", DS_BOOL, "a resumed run always reads the fp32 master weights"),
    BOOL("elastic_checkpoint", c.elastic_checkpoint),
    BLOCK("offload_param", offload_param),
    BLOCK("offload_optimizer", offload_optimizer),
    OFF("zenflow", DS_TREE, "this engine updates all gradients in every step; remove the block"),
    SIZE("sub_group_size", c.sub_group_size, 0),
    BOOL_OR_NULL("cpu_offload_param", old_offload_param),
    BOOL_OR_NULL("cpu_offload_use_pin_memory", old_pin),
    BOOL_OR_NULL("cpu_offload", old_offload),
    SIZE3("prefetch_bucket_size", c.prefetch_bucket),
    SIZE3("param_persistence_threshold", c.persistence),
    SIZE3("model_persistence_threshold", c.model_persistence),
    SIZE3("max_live_parameters", c.max_live),
    KEPT3("max_reuse_distance", DS_SIZE, c.max_reuse,
          "only stage3_max_live_parameters limits gathered parameters"),
    KEPT3("gather_16bit_weights_on_model_save", DS_BOOL, c.gather_16bit_on_save,
          "--save-model gathers in every stage"),
    BOOL("stage3_gather_fp16_weights_on_model_save", old_gather),
    IDLE3("module_granularity_threshold", DS_INT, no_hooks),
    IDLE3("use_all_reduce_for_fetch_params", DS_BOOL, one_path),
    IDLE3("allgather_sequential", DS_BOOL, one_path),
    IDLE("ignore_unused_parameters", DS_BOOL, "the models of this engine use all their parameters"),
    OFF("legacy_stage1", DS_BOOL,
        "the first implementation of stage 1 was removed; set it to false"),
    BOOL("round_robin_gradients", c.round_robin),
    BOOL("parameter_alignment", c.aligned),
    OFF_ABOVE("zero_hpz_partition_size", 1,
              "zerotrain keeps no secondary partition of weights; set it to 1"),
    OFF("zero_quantized_weights", DS_BOOL, quantized),
    OFF("zero_quantized_nontrainable_weights", DS_BOOL, quantized),
    OFF("zero_quantized_gradients", DS_BOOL, quantized),
    IDLE("memory_efficient_linear", DS_BOOL, no_hooks),
    IDLE("pipeline_loading_checkpoint", DS_BOOL, one_path),
    IDLE("override_module_apply", DS_BOOL, no_hooks),
    IDLE("log_trace_cache_warnings", DS_BOOL, no_hooks),
    IDLE("enable_sanity_checks", DS_BOOL, "the checks of this engine are always on"),
    IDLE("save_muon_momentum_buffer_in_memory", DS_BOOL, one_path),
    IDLE("leaf_module", DS_ANY, no_hooks),
    GONE("mics_shard_size", mics),
    GONE("mics_hierarchical_params_gather", mics),
    GONE("zeropp_loco_param", "quantized gradients are not supported; remove it"),
    GONE("aio", "it belongs to the top level of the file, beside zero_optimization; move it there"),
};
static const ds_block zero = TABLE("zero_optimization", zero_keys, true);

/* ---- precision ---- */

static const char masters[] = "master weights and optimizer state are fp32 here; set it to false";

static const ds_key fp16_keys[] = {
    BOOL("enabled", c.fp16.enabled),
    IDLE("auto_cast", DS_BOOL, "it casts inputs, and tokens are integers"),
    REAL("loss_scale", c.fp16.loss_scale, 0, DBL_MAX),
    INT("initial_scale_power", c.fp16.power, -1022,
        1023), // 2^power must be representable as a double
    INT("loss_scale_window", c.fp16.window, -TOP, TOP),
    INT("hysteresis", c.fp16.hysteresis, -TOP, TOP),
    BOOL("consecutive_hysteresis", c.fp16.consecutive),
    INT("min_loss_scale", c.fp16.min_scale, -TOP, TOP),
    OFF("fp16_master_weights_and_grads", DS_BOOL, masters),
};
static const ds_block fp16 = TABLE("fp16", fp16_keys, true);

static const ds_key bf16_keys[] = {
    BOOL("enabled", bf16),
    IDLE("immediate_grad_update", DS_BOOL, one_path),
    BOOL("check_grad_overflow", bf16_overflow),
    OFF("bf16_master_weights_and_grads", DS_BOOL, masters),
    OFF("bf16_optimizer_states", DS_BOOL, masters),
};
static const ds_block bf16 = TABLE("bf16", bf16_keys, true);

static const ds_key data_types_keys[] = {
    CHOICE("grad_accum_dtype", accum_dtype, ds_dtype_names, false),
    CHOICE("param_dtype", param_dtype, ds_dtype_names, false),
    OFF("buffer_dtype", DS_ANY, "buffers keep the dtype they have; remove it"),
    IDLE("keep_in_fp32_modules", DS_ANY, "the models of this engine have no such buffers"),
};
static const ds_block data_types = TABLE("data_types", data_types_keys, false);

/* ---- files ---- */

static const ds_key aio_keys[] = {
    {.name = "block_size",
     .kind = DS_SIZE,
     .at = AT(c.aio_block),
     .min = 1,
     .max = TOP,
     .why = plain_files},
    {.name = "queue_depth",
     .kind = DS_INT,
     .at = AT(c.aio_depth),
     .min = 1,
     .max = TOP,
     .why = plain_files},
    {.name = "intra_op_parallelism",
     .kind = DS_INT,
     .at = AT(c.aio_threads),
     .min = 1,
     .max = TOP,
     .why = plain_files},
    IDLE("single_submit", DS_BOOL, plain_files),
    IDLE("overlap_events", DS_BOOL, plain_files),
    OFF("use_gds", DS_BOOL, "GPUDirect Storage needs a GPU; set it to false"),
};
static const ds_block aio = TABLE("aio", aio_keys, false);

static const ds_key checkpoint_keys[] = {
    CHOICE("tag_validation", tag_validation, tag_names, true),
    KEPT("load_universal", DS_BOOL, c.load_universal,
         "--load detects the format of the checkpoint"),
    BOOL("use_node_local_storage", c.node_local),
    IDLE("parallel_write", DS_TREE, "it concerns pipeline stages, and zerotrain has only one"),
    IDLE("writer", DS_ANY, "zerotrain has a single checkpoint writer, which is parallel"),
    IDLE("checkpoint_serialization", DS_ANY,
         "zerotrain writes checkpoints in the format of torch.save only"),
};
static const ds_block checkpoint = TABLE("checkpoint", checkpoint_keys, false);

static const ds_key activation_keys[] = {
    IDLE("partition_activations", DS_BOOL, "zerotrain has no model parallelism to split them over"),
    IDLE("cpu_checkpointing", DS_BOOL, host_memory),
    IDLE("contiguous_memory_optimization", DS_BOOL, one_path),
    IDLE("number_checkpoints", DS_ANY, "each layer is one checkpoint"),
    IDLE("synchronize_checkpoint_boundary", DS_BOOL, no_streams),
    IDLE("profile", DS_BOOL, "wall_clock_breakdown gives the times"),
};
static const ds_block activation = TABLE("activation_checkpointing", activation_keys, false);

static const ds_key tensorboard_keys[] = {
    BOOL("enabled", c.tensorboard.enabled),
    TEXT("output_path", c.tensorboard.path),
    TEXT("job_name", c.tensorboard.job),
};
static const ds_block tensorboard = TABLE("tensorboard", tensorboard_keys, true);

static const ds_key csv_monitor_keys[] = {
    BOOL("enabled", c.csv_monitor.enabled),
    TEXT("output_path", c.csv_monitor.path),
    TEXT("job_name", c.csv_monitor.job),
};
static const ds_block csv_monitor = TABLE("csv_monitor", csv_monitor_keys, true);

/* ---- the top level ---- */

static const char no_monitor[] =
    "this engine sends nothing to a service; tensorboard, csv_monitor and --metrics write files";
static const char no_profiler[] =
    "zerotrain has no such profiler; --profile, or wall_clock_breakdown, gives times";

static const ds_key file_keys[] = {
    INT("train_batch_size", c.train_batch, 1, TOP),
    INT("train_micro_batch_size_per_gpu", c.micro_batch, 1, TOP),
    INT("gradient_accumulation_steps", c.accumulation, 1, TOP),
    REAL("gradient_clipping", c.clipping, 0, DBL_MAX),
    INT("steps_per_print", c.steps_per_print, 0, TOP),
    BOOL("wall_clock_breakdown", c.wall_clock),
    TREE("optimizer", optimizer),
    TREE("scheduler", scheduler),
    BLOCK("fp16", fp16),
    {.name = "bf16", .other = "bfloat16", .kind = DS_BLOCK, .block = &bf16},
    BLOCK("data_types", data_types),
    {.name = "zero_optimization", .kind = DS_BLOCK, .block = &zero, .at = AT(stage)},
    KEPT("allgather_size", DS_SIZE, c.gather_bucket, "weights are gathered in place"),
    BOOL("zero_allow_untested_optimizer", c.allow_untested),
    IDLE("zero_force_ds_cpu_optimizer", DS_BOOL, "this engine has its own optimizers"),
    CHOICE("communication_data_type", comm_dtype, comm_names, true),
    BOOL("prescale_gradients", c.prescale),
    REAL("gradient_predivide_factor", c.predivide, DBL_MIN, DBL_MAX),
    CHOICE("gradient_allreduce_op", allreduce_op, op_names, true),
    BLOCK("aio", aio),
    BLOCK("checkpoint", checkpoint),
    BLOCK("activation_checkpointing", activation),
    IDLE("seq_parallel_communication_data_type", DS_ANY, "zerotrain has no sequence parallelism"),
    IDLE("disable_allgather", DS_BOOL, "DeepSpeed ignores it, too"),
    IDLE("dump_state", DS_BOOL, "--print-config shows the configuration"),
    IDLE("memory_breakdown", DS_BOOL, "memory is reported with the steps"),
    IDLE("disable_python_gc", DS_BOOL, "zerotrain runs no Python"),
    IDLE("vocabulary_size", DS_ANY, "the model's own size is used"),
    IDLE("dataloader_drop_last", DS_BOOL, "training uses only complete batches"),
    IDLE("use_data_before_expert_parallelism", DS_BOOL, "zerotrain's models have no experts"),
    IDLE("log_level", DS_ANY, "--quiet and --logging_steps control the output"),
    IDLE("timers", DS_ANY, "timers are always on and cost nothing here"),
    IDLE("pipeline", DS_ANY, "models are not split into pipeline stages"),
    SWITCH("amp", "enabled",
           "Apex was removed in DeepSpeed 0.19; use \"fp16\": {\"enabled\": true} or \"bf16\": "
           "{\"enabled\": true}"),
    SWITCH("torch_autocast", "enabled", "use \"bf16\" or \"fp16\""),
    IDLE_SWITCH("flops_profiler", "enabled", no_profiler),
    IDLE_SWITCH("comms_logger", "enabled", no_profiler),
    SWITCH("autotuning", "enabled", "this engine does not search for settings; remove the block"),
    BLOCK("tensorboard", tensorboard),
    IDLE_SWITCH("wandb", "enabled", no_monitor),
    IDLE_SWITCH("comet", "enabled", no_monitor),
    BLOCK("csv_monitor", csv_monitor),
    SWITCH("hybrid_engine", "enabled",
           "it switches between training and generating; --generate is a run of its own; remove "
           "the block"),
    SWITCH("data_efficiency", "enabled",
           "data sampling and routing are not supported; remove the block"),
    SWITCH("expert_parallel", "enabled", "mixture-of-experts models are not supported"),
    SWITCH("compile", "deepcompile", "there is nothing to compile; set it to false"),
    OFF("weight_quantization", DS_TREE, "weights are not quantized in training; remove the block"),
    OFF("tensor_parallel", DS_TREE, "tensor parallelism is not supported; remove it"),
    OFF("datastates_ckpt", DS_TREE, "zerotrain has its own checkpoint writer; remove the block"),
    OFF_ABOVE("sequence_parallel_size", 1, "sequence parallelism is not supported; set it to 1"),
    {.name = "managed_gradient_accumulation",
     .kind = DS_BOOL,
     .fate = DS_OFF,
     .min = 1, // accept true instead of false
     .why = "the engine always counts the micro steps itself; set it to true"},
    GONE("nebula", "DeepSpeed removed this service; remove the block: checkpoints are local files"),
    GONE("compression_training", "models are trained uncompressed; remove it"),
    GONE("quantize_training", "models are trained unquantized; remove it"),
    GONE("sparse_gradients", "gradients of embeddings are always dense; remove it"),
    GONE("eigenvalue", "it belongs to quantized training; remove it"),
    GONE("sparse_attention", "only dense attention is supported; remove it"),
    GONE("elasticity", "give train_batch_size, train_micro_batch_size_per_gpu or "
                       "gradient_accumulation_steps instead"),
    GONE("graph_harvesting", "zerotrain uses no device graphs; remove it"),
    GONE("curriculum_learning", "curriculum learning is not supported; remove it"),
    GONE("progressive_layer_drop", "all layers are trained in every step; remove it"),
};
const ds_block ds_file = TABLE("", file_keys, false);

/* ---- defaults ---- */

static void ky_default_zero(zt_config *c)
{
    c->contiguous = true;
    c->reduce_scatter = true;
    c->compute_grad_norm = true;
    c->reduce_bucket = 500000000;
    c->gather_bucket = 500000000;
    c->sub_group_size = 1000000000;
    c->prefetch_bucket = 50000000;
    c->persistence = 100000;
    c->model_persistence = INT64_MAX; // Python's sys.maxsize
    c->max_live = 1000000000;
    c->max_reuse = 1000000000;
    c->offload_optimizer = (zt_offload){.buffer_count = 4, .pin = true, .ratio = 1};
    c->offload_param = (zt_offload){.buffer_count = 5,
                                    .buffer_size = 100000000,
                                    .max_in_cpu = 1000000000,
                                    .pin = true,
                                    .ratio = 1};
    c->aio_block = 1048576;
    c->aio_depth = 8;
    c->aio_threads = 1;
}

void ds_draft_default(ds_draft *d)
{
    *d = (ds_draft){.comm_dtype = -1, .accum_dtype = -1, .param_dtype = -1, .bf16_overflow = true};
    d->c.train_batch = DS_MISSING;
    d->c.micro_batch = DS_MISSING;
    d->c.accumulation = DS_MISSING;
    d->c.clipping = 1.0; // DeepSpeed's default since 0.19; 0 before
    d->c.predivide = 1.0;
    d->c.fp16 = (zt_fp16){.power = 16, .window = 1000, .hysteresis = 2, .min_scale = 1};
    d->c.tensorboard = d->c.csv_monitor = (zt_monitor){.path = "", .job = "DeepSpeedJobName"};
    ky_default_zero(&d->c);
}
