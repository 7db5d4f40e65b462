/* SPDX-License-Identifier: Apache-2.0 */
/* setup.c: creates a run: configuration, data, model, runtime. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "engine/cuda/load.h"
#include "engine/inside.h"
#include "engine/save/same.h"
#include "libckpt/base/number.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/io/listing.h"

/*
 * Read the configuration.  It is read again once the data is open, because some "auto" values
 * depend on the data.
 */
static int su_config(zt_engine *e, int64_t total, ckpt_err *err)
{
    zt_arguments args = e->opts->args;

    if (!e->opts->config)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "--deepspeed_config is missing: give the ds_config.json of the run");
    args.total_steps = total;
    args.hidden_size = (int64_t)e->model_config.hidden;
    int rc = zt_config_read(&e->config, e->arena, e->opts->config, &args, e->comm->world, err);
    for (size_t i = 0; rc == CKPT_OK && e->opts->strict_config && e->config.notes[i]; i++) {
        if (e->config.note_warns[i])
            rc = ckpt_fail(err, CKPT_EUSAGE, "%s: %s (--strict-config)", e->opts->config,
                           e->config.notes[i]);
    }
    e->config.activation_checkpointing =
        e->config.activation_checkpointing || e->opts->checkpointing;
    return rc;
}

/*
 * Check that the files of the data and the weights exist, before a tokenizer, the data and the
 * weights are read in this order, because each of them can take minutes.
 */
static int su_inputs(const zt_engine *e, ckpt_err *err)
{
    const zt_options *o = e->opts;
    // do not check data that this mode does not use
    const char *const path[] = {o->evaluate && o->eval_data ? NULL : o->data,
                                o->predictions || o->generate ? NULL : o->eval_data, o->vocab,
                                o->load, o->init && strcmp(o->init, "none") != 0 ? o->init : NULL};

    for (size_t i = 0; i < sizeof path / sizeof *path; i++) {
        if (path[i] && !strstr(path[i], "://") && access(path[i], R_OK) != 0)
            return ckpt_fail_sys(err, ckpt_open_code(errno), errno, "%s: cannot be opened",
                                 path[i]);
    }
    return CKPT_OK;
}

/* True for a file that a language model reads by its tokenizer. */
static bool su_is_text(const char *path)
{
    const size_t n = path ? strlen(path) : 0;

    return (n > 4 && strcmp(path + n - 4, ".txt") == 0) ||
           (n > 6 && strcmp(path + n - 6, ".jsonl") == 0);
}

/* Without --vocab and --cased, use the settings of the model's folder. */
static int su_tokenizer(zt_engine *e, ckpt_err *err)
{
    const bool text = e->model_config.arch == ZT_BERT_CLASSIFIER;
    const bool words = su_is_text(e->opts->data) || su_is_text(e->opts->eval_data);
    const char *path = text ? zt_model_beside(e, "tokenizer_config.json") : NULL;
    const ckpt_value *lower;
    ckpt_value *json = NULL;
    int rc = CKPT_OK;

    e->vocab = e->opts->vocab;
    if (!e->vocab)
        e->vocab = zt_model_beside(e, words && !text ? "tokenizer.json" : "vocab.txt");
    if (!e->vocab && words && !text)
        e->vocab = zt_model_beside(e, "tokenizer.model");
    e->lower_case = !e->opts->cased;
    if (path)
        rc = ckpt_json_read(&json, e->arena, path, ZT_JSON_BYTES, err);
    lower = ckpt_value_get(json, "do_lower_case");
    if (lower && lower->kind == CKPT_V_BOOL)
        e->lower_case = e->lower_case && lower->as.i;
    return rc;
}

static int su_open_data(zt_engine *e, zt_data **out, const char *path, bool evaluate, ckpt_err *err)
{
    const zt_options *o = e->opts;
    zt_data_opts d = {
        .path = path,
        .vocab = e->vocab,
        .token_dtype = o->token_dtype,
        .seq = o->seq > 0 ? (uint64_t)o->seq : 0,
        .micro_batch = (uint64_t)e->config.micro_batch,
        .rank = e->comm->rank,
        .world = e->comm->world,
        .seed = (uint64_t)o->seed,
        .shuffle = !evaluate && !o->no_shuffle,
        .evaluate = evaluate,
        .packing = o->packing,
        .lower_case = e->lower_case,
        .limit = (uint64_t)(evaluate && !o->predictions ? o->max_eval_samples
                            : evaluate                  ? 0
                                                        : o->max_samples),
        .model = &e->model_config,
    };

    return zt_data_open(out, &d, err);
}

static void su_grow(zt_engine *e, const zt_data *d)
{
    uint64_t batch = 0, seq = 0;

    if (!d)
        return;
    zt_data_shape(d, &batch, &seq);
    e->batch_size = batch > e->batch_size ? batch : e->batch_size;
    e->seq = seq > e->seq ? seq : e->seq;
    e->decoder_seq = zt_data_target(d) > e->decoder_seq ? zt_data_target(d) : e->decoder_seq;
}

/* Compute the number of updates from --max-steps, or from the size of the data. */
static int su_steps(zt_engine *e, ckpt_err *err)
{
    const zt_options *o = e->opts;
    bool replay = zt_data_is_replay(e->data);
    uint64_t n = replay ? zt_data_batches(e->data) : zt_data_count(e->data), all;
    uint64_t each = (uint64_t)(replay ? e->config.accumulation : e->config.train_batch);

    e->total_steps = o->max_steps;
    if (o->max_steps > 0)
        return CKPT_OK;
    if (!ckpt_mul(n, (uint64_t)(o->epochs > 0 ? o->epochs : 1), &all) || all > INT64_MAX)
        return ckpt_fail(err, CKPT_EUSAGE, "--epochs %lld is too large", (long long)o->epochs);
    e->total_steps = (int64_t)(all / each);
    if (e->total_steps < 1)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: %llu %s are fewer than the %llu of one update; give --max-steps, or "
                         "more --epochs",
                         o->data, (unsigned long long)all, replay ? "micro batches" : "samples",
                         (unsigned long long)each);
    return su_config(e, e->total_steps, err);
}

/* Refuse to evaluate data without labels. */
static int su_labelled(const zt_engine *e, ckpt_err *err)
{
    const zt_options *o = e->opts;
    const zt_data *d = e->eval_data ? e->eval_data : o->evaluate ? e->data : NULL;

    if (!d || o->predictions || zt_data_labelled(d))
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EMISSING, "%s: has no labels to evaluate against",
                     e->eval_data ? o->eval_data : o->data);
}

/* Open the data, and set the number of updates from its size. */
static int su_data(zt_engine *e, ckpt_err *err)
{
    const zt_options *o = e->opts;
    bool train = !o->evaluate && !o->predictions;
    int rc = su_tokenizer(e, err);

    if (rc != CKPT_OK)
        return rc;
    if (o->generate)
        return zt_generate_open(e, err);
    if (o->predictions && e->model_config.arch != ZT_BERT_CLASSIFIER)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "--predict is for classifiers, not for %s",
                         e->model_config.class_name);
    if (!o->data && !(o->evaluate && o->eval_data))
        return ckpt_fail(err, CKPT_EUSAGE, "--data is missing: give the file to %s",
                         train ? "train on" : "read");
    // do not open data that this mode does not use
    rc = o->data && !(o->evaluate && o->eval_data) ? su_open_data(e, &e->data, o->data, !train, err)
                                                   : CKPT_OK;
    if (rc == CKPT_OK && o->eval_data && !o->predictions)
        rc = su_open_data(e, &e->eval_data, o->eval_data, true, err);
    if (rc == CKPT_OK)
        rc = su_labelled(e, err);
    if (rc != CKPT_OK)
        return rc;
    su_grow(e, e->data);
    su_grow(e, e->eval_data);
    return train ? su_steps(e, err) : CKPT_OK;
}

static int su_threads(const zt_engine *e, unsigned *out, ckpt_err *err)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t threads = e->opts->threads;

    if (threads <= 0)
        threads = n > e->comm->local_world ? n / e->comm->local_world : 1;
    if (threads > 1024)
        return ckpt_fail(err, CKPT_EUSAGE, "--threads %lld: at most 1024", (long long)threads);
    *out = (unsigned)threads;
    return CKPT_OK;
}

/* Get this rank's GPU from --slots. */
static int su_slot(const zt_engine *e, int n, int *ordinal, ckpt_err *err)
{
    const char *at = e->opts->slots;
    const char *end = NULL;
    uint64_t slot = 0;

    for (int r = 0; at && r < e->comm->rank; r++) {
        at = strchr(at, ',');
        at += at != NULL;
    }
    if (at)
        end = ckpt_scan_u64(at + strspn(at, " "), &slot);
    if (!end || (*end && *end != ','))
        return ckpt_fail(err, CKPT_EUSAGE, "--slots %.80s: expected a GPU number for rank %d",
                         e->opts->slots, e->comm->rank);
    if (slot >= (uint64_t)n)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "slot %" PRIu64 " of rank %d on %s is out of range: the host has %d %s",
                         slot, e->comm->rank, e->comm->host, n, n == 1 ? "GPU" : "GPUs");
    *ordinal = (int)slot;
    return CKPT_OK;
}

/* Choose the GPU that the launcher set, or that with the rank's local number; with more ranks than
 * GPUs, ranks share them. */
static int su_gpu(zt_engine *e, unsigned char uuid[16], ckpt_err *err)
{
    int n = 0, rc = zt_cuda_count(&n, err), ordinal = n > 0 ? e->comm->local_rank % n : 0;

    if (rc == CKPT_OK && e->opts->slots)
        rc = su_slot(e, n, &ordinal, err);
    if (rc == CKPT_OK)
        rc = zt_cuda_identity(ordinal, uuid, err);
    if (rc == CKPT_OK)
        zt_cuda_card(ordinal, e->card, sizeof e->card);
    return rc == CKPT_OK ? zt_cuda_new(&e->device, ordinal, e->opts->deterministic, err) : rc;
}

/* Create the device; `auto` falls back to the CPU, at first on this rank alone. */
static int su_device(zt_engine *e, ckpt_err *err)
{
    const char *kind = e->opts->device;
    const bool automatic = strcmp(kind, "auto") == 0, cuda = strcmp(kind, "cuda") == 0;
    ckpt_err why = {0};
    int rc = su_threads(e, &e->threads, err);

    if (rc == CKPT_OK && !automatic && !cuda && strcmp(kind, "cpu") != 0)
        rc = ckpt_fail(err, CKPT_EUSAGE, "--device %s: expected cpu, cuda or auto", kind);
    if (rc == CKPT_OK && (automatic || cuda) && su_gpu(e, e->gpu, &why) != CKPT_OK) {
        e->device = NULL;
        // a GPU that is there, asked for something that cannot be: no reason for the processor
        if (cuda || why.code == CKPT_EUSAGE)
            rc = ckpt_fail(err, why.code, "--device %s: %s", kind, why.text);
    }
    return rc == CKPT_OK && !e->device ? zt_cpu_new(&e->device, e->threads, err) : rc;
}

/*
 * Check that all ranks have the same kind of device, because a rank with a GPU and one without
 * would wait for each other for ever.
 */
static int su_same_device(zt_engine *e, ckpt_err *err)
{
    int32_t most[2] = {e->device->host, -e->device->host};
    int rc = e->comm->ops->all_reduce(e->comm, most, 2, CKPT_I32, ZT_MAX, err);

    if (rc == CKPT_OK && most[0] != -most[1])
        rc = ckpt_fail(err, CKPT_EMISMATCH,
                       "--device auto: only some ranks have a GPU; use --device cuda to see why, "
                       "or --device cpu");
    return rc;
}

/* True if no two ranks have the same GPU. */
static int su_own_gpus(zt_engine *e, bool *own, ckpt_err *err)
{
    size_t world = (size_t)e->comm->world, n = sizeof e->gpu;
    unsigned char *all = ckpt_alloc(world * n);
    int rc = zt_comm_agree(e->comm, all ? CKPT_OK : ckpt_fail_memory(err), err);

    *own = true;
    if (rc == CKPT_OK)
        rc = e->comm->ops->all_gather(e->comm, all, e->gpu, n, CKPT_U8, err);
    for (size_t i = 0; rc == CKPT_OK && i < world; i++) {
        for (size_t k = 0; k < i; k++)
            *own = *own && memcmp(all + i * n, all + k * n, n) != 0;
    }
    ckpt_free(all);
    return rc;
}

/*
 * Choose the transport of tensors: NCCL if every rank has a GPU of its own (it refuses others),
 * else the host.  All ranks must call it.
 */
static int su_wire(zt_engine *e, ckpt_err *err)
{
    bool own = false;
    int rc = su_same_device(e, err);

    if (rc != CKPT_OK || e->device->host || e->comm->world == 1)
        return rc;
    rc = su_own_gpus(e, &own, err);
    if (rc == CKPT_OK && own)
        rc = zt_comm_agree(e->comm, zt_cuda_comm(&e->wire, e->comm, e->device, err), err);
    else if (rc == CKPT_OK)
        rc = zt_comm_staged(&e->wire, e->comm, e->device, err);
    return rc;
}

static int su_model(zt_engine *e, ckpt_err *err)
{
    const zt_options *o = e->opts;
    zt_lora lora = {.rank = o->lora_rank > 0 ? (uint64_t)o->lora_rank : 0,
                    .alpha = o->lora_alpha,
                    .dropout = (float)o->lora_dropout,
                    .targets = o->lora_targets};
    size_t n = 0;
    int rc;

    if (!o->dropout) {
        e->model_config.dropout_embed = e->model_config.dropout_attention = 0;
        e->model_config.dropout_hidden = e->model_config.dropout_classifier = 0;
    }
    if (!(o->lora_dropout >= 0 && o->lora_dropout < 1))
        return ckpt_fail(err, CKPT_EUSAGE, "--lora-dropout must be from 0 to below 1");
    if (e->model_config.arch == ZT_T5 && e->config.dtype == CKPT_F16)
        return ckpt_fail(
            err, CKPT_EUNSUPPORTED,
            "fp16: transformers limits hidden states of T5 that overflow, which is not "
            "supported; use bf16");
    rc = zt_model_new(&e->model, e->device, e->config.dtype, &e->model_config,
                      lora.rank ? &lora : NULL, err);
    if (rc == CKPT_OK && o->freeze)
        rc = zt_model_freeze(e->model, o->freeze, &n, err);
    if (rc == CKPT_OK && o->freeze && n == 0)
        rc = ckpt_fail(err, CKPT_EUSAGE, "--freeze '%s' matches no parameter", o->freeze);
    if (rc == CKPT_OK && zt_model_count(e->model, true) == 0)
        rc = ckpt_fail(err, CKPT_EUSAGE, "--freeze '%s' leaves nothing to train", o->freeze);
    return rc;
}

static int su_zero(zt_engine *e, ckpt_err *err)
{
    const zt_zero_opts z = {.grouping = e->opts->groups,
                            .keep_activations_not = e->config.activation_checkpointing,
                            .max_batch = e->batch_size,
                            .max_seq = e->seq,
                            .max_decoder_seq = e->decoder_seq,
                            .seed = (uint64_t)e->opts->seed,
                            .wire = e->wire,
                            .host_threads = e->threads};
    int rc;

    if (!zt_arch_any_length(e->model_config.arch) && e->seq > e->model_config.positions)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "samples have %llu tokens, but the model has only %llu positions",
                         (unsigned long long)e->seq, (unsigned long long)e->model_config.positions);
    rc = zt_zero_new(&e->zero, e->model, &e->config, e->comm, &z, err);
    if (rc == CKPT_OK)
        rc = zt_saver_new(&e->saver, e->zero, err);
    return rc;
}

/* The steps that may fail on one rank alone; an agreement of all ranks follows. */
static int su_local(zt_engine *e, ckpt_err *err)
{
    int rc;

    if (!e->opts->model)
        return ckpt_fail(err, CKPT_EUSAGE, "--model is missing: give a config.json or its folder");
    rc = zt_model_config_read(&e->model_config, e->arena, e->opts->model, err);
    if (rc == CKPT_OK)
        rc = su_config(e, e->opts->max_steps > 0 ? e->opts->max_steps : 1, err);
    if (rc == CKPT_OK && e->opts->print_config)
        return rc;
    if (rc == CKPT_OK)
        rc = su_inputs(e, err);
    if (rc == CKPT_OK)
        rc = su_data(e, err);
    if (rc == CKPT_OK)
        rc = zt_first_choose(e, err);
    if (rc == CKPT_OK)
        rc = su_device(e, err);
    if (rc == CKPT_OK)
        rc = su_model(e, err);
    return rc;
}

/*
 * Add up over all ranks the samples without a label, and the sum of the samples' content; all ranks
 * must call it.
 */
static int su_shares(zt_engine *e, ckpt_err *err)
{
    const zt_data *data[2] = {e->data, e->eval_data};
    double n[2] = {0};
    int64_t sum = e->data ? (int64_t)zt_data_sum(e->data) : 0;
    int rc;

    for (int i = 0; i < 2; i++)
        n[i] = data[i] ? (double)zt_data_get_unused(data[i]).silent : 0;
    rc = e->comm->ops->all_reduce(e->comm, n, 2, CKPT_F64, ZT_SUM, err);
    if (rc == CKPT_OK)
        rc = e->comm->ops->all_reduce(e->comm, &sum, 1, CKPT_I64, ZT_SUM, err);
    e->data_sum = (uint64_t)sum & ((UINT64_C(1) << 48) - 1);
    for (int i = 0; rc == CKPT_OK && i < 2; i++) {
        e->n_silent[i] = (uint64_t)n[i];
        if (data[i] && n[i] > 0 && e->n_silent[i] == zt_data_count(data[i]))
            return ckpt_fail(err, CKPT_EFORMAT, "%s: all labels of all samples are -100",
                             i == 0 ? e->opts->data : e->opts->eval_data);
    }
    return rc;
}

int zt_engine_new(zt_engine **out, const zt_options *opts, zt_comm *comm, ckpt_err *err)
{
    zt_engine *e = ckpt_alloc(sizeof *e);
    int rc = e ? CKPT_OK : ckpt_fail_memory(err);

    if (e) {
        *e = (zt_engine){.opts = opts, .comm = comm, .arena = ckpt_arena_new(0)};
        rc = e->arena ? su_local(e, err) : ckpt_fail_memory(err);
    }
    rc = zt_comm_agree(comm, rc, err);
    if (rc == CKPT_OK)
        rc = zt_agree_start(e, err);
    if (rc == CKPT_OK)
        rc = su_shares(e, err);
    if (rc == CKPT_OK && !opts->print_config)
        rc = su_wire(e, err);
    if (rc == CKPT_OK && !opts->print_config)
        rc = zt_comm_agree(comm, su_zero(e, err), err);
    if (rc == CKPT_OK && !opts->print_config)
        rc = zt_comm_agree(comm, zt_first_fill(e, err), err);
    if (rc == CKPT_OK && !opts->print_config)
        rc = zt_same_state(e->zero, err);
    if (rc == CKPT_OK)
        *out = e;
    else
        zt_engine_free(e);
    return rc;
}

void zt_engine_free(zt_engine *e)
{
    if (!e)
        return;
    zt_saver_free(e->saver);
    zt_zero_free(e->zero);
    zt_model_free(e->model);
    zt_data_free(e->data);
    zt_data_free(e->eval_data);
    zt_prompts_free(&e->prompts);
    ckpt_vec_free(&e->ends);
    ckpt_free(e->counts);
    ckpt_free(e->classes);
    zt_comm_free(e->wire);
    zt_device_free(e->device);
    ckpt_arena_free(e->arena);
    ckpt_free(e);
}
