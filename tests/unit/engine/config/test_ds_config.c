/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ds_config.c: configurations resolved as DeepSpeed and the Trainer resolve them.
 */
#include <math.h>
#include <unistd.h>

#include "tests/unit/engine/config/help.h"
#include "tests/unit/unit.h"

#define GOLDEN "tests/fixtures/golden/"

/* ---- DeepSpeed's cases ---- */

/* null: the model's own dtype; "torch.float32", "fp32": that one. */
static void check_dtype(ckpt_dtype got, const ckpt_value *want, ckpt_dtype own)
{
    if (want->kind == CKPT_V_NONE) {
        assert_int_equal(got, own);
        return;
    }
    for (size_t i = 0; ds_dtype_names[i] != NULL; i++) {
        if (ckpt_value_is(want, ds_dtype_names[i])) {
            assert_int_equal(got, ds_dtypes[i]);
            return;
        }
    }
    fail_msg("a dtype that the test does not know");
}

static void check_offload(const zt_offload *o, const ckpt_value *want)
{
    static const char *const places[] = {"none", "cpu", "nvme"};

    if (want->kind == CKPT_V_NONE) {
        assert_int_equal(o->place, ZT_ON_DEVICE);
        return;
    }
    assert_string_equal(places[o->asked], get(want, "device")->as.text.at);
    assert_int_equal(o->buffer_count, get(want, "buffer_count")->as.i);
    assert_int_equal(o->pin, flag(want, "pin_memory"));
    if (get(want, "nvme_path")->kind == CKPT_V_NONE)
        assert_null(o->path);
    else
        assert_string_equal(o->path, get(want, "nvme_path")->as.text.at);
}

static void check_precision(const zt_config *c, const ckpt_value *want)
{
    assert_int_equal(c->fp16.enabled, flag(want, "fp16.enabled"));
    assert_true(c->fp16.loss_scale == real(get(want, "fp16.loss_scale")));
    assert_int_equal(c->fp16.power, get(want, "fp16.initial_scale_power")->as.i);
    assert_int_equal(c->fp16.window, get(want, "fp16.loss_scale_window")->as.i);
    assert_int_equal(c->fp16.hysteresis, get(want, "fp16.hysteresis")->as.i);
    assert_int_equal(c->fp16.min_scale, get(want, "fp16.min_loss_scale")->as.i);
    assert_int_equal(c->dtype, c->fp16.enabled      ? CKPT_F16
                               : flag(want, "bf16") ? CKPT_BF16
                                                    : CKPT_F32);
    check_dtype(c->comm_dtype, get(want, "communication_data_type"), c->dtype);
    check_dtype(c->accum_dtype, get(want, "grad_accum_dtype"), c->dtype);
}

static void check_resolved(const zt_config *c, const ckpt_value *want)
{
    const ckpt_value *clip = get(want, "gradient_clipping");

    assert_int_equal(c->train_batch, get(want, "train_batch_size")->as.i);
    assert_int_equal(c->micro_batch, get(want, "micro")->as.i);
    assert_int_equal(c->accumulation, get(want, "gas")->as.i);
    if (ds_is_auto(clip)) { // which DeepSpeed fails over later; here it is the default
        assert_true(c->clipping == 1.0);
        assert_true(noted(c, "gradient_clipping"));
    } else {
        assert_true(c->clipping == real(clip));
    }
    assert_int_equal(c->stage, get(want, "stage")->as.i);
    assert_int_equal(c->overlap, flag(want, "overlap_comm"));
    assert_int_equal(c->reduce_bucket, get(want, "reduce_bucket_size")->as.i);
    assert_int_equal(c->prefetch_bucket, get(want, "prefetch_bucket_size")->as.i);
    assert_int_equal(c->persistence, get(want, "param_persistence_threshold")->as.i);
    assert_int_equal(c->sub_group_size, get(want, "sub_group_size")->as.i);
    assert_int_equal(c->gather_16bit_on_save, flag(want, "gather_16bit"));
    check_offload(&c->offload_optimizer, get(want, "offload_optimizer"));
    check_offload(&c->offload_param, get(want, "offload_param"));
    check_precision(c, want);
    assert_int_equal(c->aio_block, get(want, "aio.block_size")->as.i);
    assert_int_equal(c->aio_depth, get(want, "aio.queue_depth")->as.i);
    assert_int_equal(c->aio_threads, get(want, "aio.intra_op_parallelism")->as.i);
    assert_int_equal(c->node_local, flag(want, "use_node_local_storage"));
}

/* An error of a typed block names its member. */
static void check_refusal(int rc, const ckpt_err *err, const ckpt_value *error)
{
    const ckpt_value *where = ckpt_value_get(error, "where");

    assert_true(rc == CKPT_EUSAGE || rc == CKPT_EUNSUPPORTED);
    if (where && !strstr(err->text, where->as.text.at))
        fail_msg("%s does not name %s", err->text, where->as.text.at);
}

static void as_deepspeed_does(void **state)
{
    ckpt_seq cases = ckpt_value_seq(get(file(GOLDEN "config_cases.json"), "cases"));
    size_t resolved = 0;

    (void)state;
    assert_int_equal(cases.n, 64);
    for (uint64_t i = 0; i < cases.n; i++) {
        const ckpt_value *error = ckpt_value_get(cases.at[i], "error");
        ckpt_value *json = ckpt_value_get(cases.at[i], "ds_config");
        zt_config c;
        ckpt_err err = {0};
        int rc =
            zt_config_parse(&c, arena, json, NULL, (int)get(cases.at[i], "world_size")->as.i, &err);

        if ((rc == CKPT_OK) != (!error))
            fail_msg("case %d: %s", (int)i, err.text);
        if (error) {
            check_refusal(rc, &err, error);
        } else {
            check_resolved(&c, get(cases.at[i], "resolved"));
            resolved++;
        }
    }
    assert_int_equal(resolved, 28);
}

static void file_syntax(void **state)
{
    ckpt_seq cases = ckpt_value_seq(get(file(GOLDEN "config_cases.json"), "file_syntax"));
    char path[] = "/tmp/zt_config_XXXXXX";
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    for (uint64_t i = 0; i < cases.n; i++) {
        const ckpt_text *text = &get(cases.at[i], "text")->as.text;
        FILE *f = fopen(path, "wb");
        zt_config c;
        int rc;

        assert_non_null(f);
        assert_int_equal(fwrite(text->at, 1, (size_t)text->n, f), text->n);
        assert_int_equal(fclose(f), 0);
        rc = zt_config_read(&c, arena, path, NULL, 1, NULL);
        assert_int_equal(rc, flag(cases.at[i], "ok") ? CKPT_OK : CKPT_EFORMAT);
        if (rc == CKPT_OK)
            assert_int_equal(c.train_batch, get(cases.at[i], "train_batch_size")->as.i);
    }
    assert_int_equal(unlink(path), 0);
}

/* ---- the Trainer's cases ---- */

static zt_arguments arguments_of(const ckpt_value *c)
{
    const ckpt_value *t = get(c, "training_args");
    zt_arguments a;

    zt_arguments_default(&a);
    a.per_device_train_batch_size = get(t, "per_device_train_batch_size")->as.i;
    a.gradient_accumulation_steps = get(t, "gradient_accumulation_steps")->as.i;
    a.max_grad_norm = real(get(t, "max_grad_norm"));
    a.learning_rate = real(get(t, "learning_rate"));
    a.adam_beta1 = real(get(t, "adam_beta1"));
    a.adam_beta2 = real(get(t, "adam_beta2"));
    a.adam_epsilon = real(get(t, "adam_epsilon"));
    a.weight_decay = real(get(t, "weight_decay"));
    a.warmup_steps = real(get(t, "warmup_steps"));
    a.fp16 = flag(t, "fp16");
    a.bf16 = flag(t, "bf16");
    a.save_on_each_node = flag(t, "save_on_each_node");
    a.hidden_size = get(c, "hidden_size")->as.i;
    a.total_steps = get(c, "num_training_steps")->as.i;
    for (size_t i = 0; i < ZT_ARG_N; i++)
        a.given[i] = true;
    return a;
}

static void as_the_trainer_does(void **state)
{
    ckpt_seq cases = ckpt_value_seq(get(file(GOLDEN "hf_auto.json"), "cases"));

    (void)state;
    assert_int_equal(cases.n, 4);
    for (uint64_t i = 0; i < cases.n; i++) {
        zt_arguments a = arguments_of(cases.at[i]);
        ckpt_value *json = ckpt_value_get(cases.at[i], "ds_config");
        ckpt_seq wrong = ckpt_value_seq(ckpt_value_get(cases.at[i], "mismatched_keys"));
        zt_config c;
        ckpt_err err = {0};
        int rc = zt_config_parse(&c, arena, json, &a,
                                 (int)get(cases.at[i], "training_args.world_size")->as.i, &err);

        if ((rc == CKPT_OK) != (wrong.n == 0))
            fail_msg("case %d: %s", (int)i, err.text);
        for (uint64_t j = 0; j < wrong.n; j++)
            assert_non_null(strstr(err.text, wrong.at[j]->as.text.at));
        if (rc == CKPT_OK) {
            const char *dtype = get(cases.at[i], "dtype")->as.text.at;

            assert_true(same(get(cases.at[i], "result"), c.json));
            assert_ptr_equal(c.json, json);
            assert_int_equal(c.dtype, strcmp(dtype, "torch.bfloat16") == 0 ? CKPT_BF16 : CKPT_F32);
        }
    }
}

/* ---- what keys mean together ---- */

typedef struct ds_case {
    const char *text;
    int code;
    const char *says; /* of the message, or, accepted, of a note ("" none) */
} ds_case;

static const ds_case combined[] = {
    {"amp: {enabled: \"auto\"}", CKPT_OK, "amp is switched off"},
    {"amp: {enabled: true}", CKPT_EUNSUPPORTED, "amp.enabled|fp16|bf16"},
    {"amp: null", CKPT_OK, "amp"},
    {"amp: 1", CKPT_EUSAGE, "amp"},
    {"fp16: {enabled: true, loss_scale: 128, loss_scale_window: 0}", CKPT_OK, ""},
    {"fp16: {enabled: true, min_loss_scale: -1}", CKPT_EUSAGE, "fp16.min_loss_scale"},
    {"fp16: {loss_scale: \"64\", enabled: \"yes\"}", CKPT_OK, ""},
    {"bf16: {enabled: 1}", CKPT_OK, ""},
    {"bf16: {enabled: true}, bfloat16: {enabled: true}", CKPT_EUSAGE, "bf16|bfloat16"},
    {"bf16: {enabled: true}, data_types: {grad_accum_dtype: \"fp32\"}", CKPT_EUNSUPPORTED,
     "grad_accum_dtype|stage"},
    {"bf16: {enabled: true}, data_types: {grad_accum_dtype: \"fp16\"}, zero_optimization: "
     "{stage: 2}",
     CKPT_EUNSUPPORTED, "grad_accum_dtype"},
    {"bf16: {enabled: true}, data_types: {param_dtype: \"fp16\"}", CKPT_EUSAGE, "param_dtype"},
    {"bf16: {enabled: true}, data_types: {param_dtype: \"bfloat16\"}", CKPT_OK, ""},
    {"gradient_allreduce_op: \"SUM\", zero_optimization: {stage: 2}", CKPT_OK, ""},
    {"prescale_gradients: true, zero_optimization: {stage: 2}", CKPT_EUNSUPPORTED,
     "prescale_gradients|reduce_scatter"},
    {"gradient_predivide_factor: 2, zero_optimization: {stage: 3}", CKPT_EUNSUPPORTED,
     "gradient_predivide_factor|stage 3"},
    {"gradient_predivide_factor: 2, zero_optimization: {stage: 3, reduce_scatter: false}", CKPT_OK,
     ""},
    {"gradient_predivide_factor: 2, zero_optimization: {stage: 1}", CKPT_OK,
     "gradient_predivide_factor have no effect"},
    {"gradient_predivide_factor: 2", CKPT_OK, ""},
    {"gradient_predivide_factor: 0", CKPT_EUSAGE, "gradient_predivide_factor"},
    {"gradient_clipping: -1", CKPT_EUSAGE, "gradient_clipping"},
    {"zero_optimization: {stage: 1, compute_grad_norm: false}", CKPT_EUSAGE,
     "compute_grad_norm|gradient_clipping 0"},
    {"gradient_clipping: 0, zero_optimization: {stage: 1, compute_grad_norm: false}", CKPT_OK, ""},
    {"gradient_clipping: 0, zero_optimization: {stage: 2, compute_grad_norm: false, "
     "cpu_offload: true}",
     CKPT_EUSAGE, "compute_grad_norm|offload_optimizer"},
    {"gradient_clipping: 0, bf16: {enabled: true}, data_types: {grad_accum_dtype: fp32\n}, "
     "zero_optimization: {stage: 1, compute_grad_norm: false}",
     CKPT_EUSAGE, "compute_grad_norm|bf16"},
    {"zero_optimization: {cpu_offload: true}", CKPT_OK, "offload_optimizer needs stage 1, 2 or 3"},
    {"zero_optimization: {stage: 2, cpu_offload_param: true}", CKPT_OK,
     "offload_param has no effect"},
    {"zero_optimization: {stage: 2, cpu_offload: true}", CKPT_OK, "is the old form of"},
    {"zero_optimization: {stage: 2, cpu_offload: true, offload_optimizer: {}}", CKPT_EUSAGE,
     "cpu_offload|offload_optimizer"},
    {"zero_optimization: {stage: 2, cpu_offload_use_pin_memory: true}", CKPT_OK,
     "cpu_offload_use_pin_memory is ignored"},
    {"zero_optimization: {stage: 3, offload_optimizer: {device: \"nvme\"}}", CKPT_EUSAGE,
     "offload_optimizer.device|nvme_path"},
    {"zero_optimization: {stage: 2, offload_optimizer: {device: \"nvme\"}}", CKPT_OK,
     "host memory"},
    {"zero_optimization: {stage: 3, offload_optimizer: {device: \"cpu\", ratio: 0.5}}", CKPT_OK,
     ""},
    {"zero_optimization: {stage: 3, offload_optimizer: {device: \"cpu\", ratio: 1.5}}", CKPT_EUSAGE,
     "ratio|0 to 1"},
    {"zero_optimization: {stage: 3, prefetch_bucket_size: 7}", CKPT_OK, ""},
    {"zero_optimization: {stage: 3, prefetch_bucket_size: 7, stage3_prefetch_bucket_size: 7}",
     CKPT_EUSAGE, "prefetch_bucket_size"},
    {"zero_optimization: {stage: 3, elastic_checkpoint: true}", CKPT_OK, "elastic_checkpoint"},
    {"zero_optimization: {stage: 3, aio: {block_size: 1}}", CKPT_EUNSUPPORTED,
     "zero_optimization.aio|top level"},
    {"zero_optimization: 3", CKPT_EUSAGE, "zero_optimization|object"},
    {"zero_optimization: true, allgather_size: 1e6", CKPT_OK, "old form"},
    {"optimizer: {type: \"SGD\", params: {lr: 0.1}}, zero_optimization: {stage: 1}", CKPT_EUSAGE,
     "SGD|zero_allow_untested_optimizer"},
    {"optimizer: {type: \"SGD\", params: {lr: 0.1}}, zero_optimization: {stage: 1}, "
     "zero_allow_untested_optimizer: true",
     CKPT_OK, ""},
    {"optimizer: {type: \"SGD\", params: {lr: 0.1}}", CKPT_OK, ""},
    {"optimizer: {type: \"Lamb\"}, fp16: {enabled: true, loss_scale: 8}", CKPT_EUSAGE,
     "LAMB|loss_scale"},
    {"optimizer: {type: \"Muon\"}, zero_optimization: {stage: 3}", CKPT_EUSAGE,
     "Muon|reduce_scatter"},
    {"optimizer: {type: \"NoSuch\"}", CKPT_EUNSUPPORTED, "NoSuch"},
    {"optimizer: \"Adam\"", CKPT_EUSAGE, "optimizer"},
    {"optimizer: {type: \"Adam\", params: {max_grad_norm: 1}}", CKPT_EUSAGE, "max_grad_norm"},
    {"scheduler: {type: \"NoSuch\"}", CKPT_EUNSUPPORTED, "NoSuch"},
    {"scheduler: null, optimizer: null, aio: null, steps_per_print: null", CKPT_OK,
     "the optimizer block is missing"},
    {"wall_clock_breakdown: \"auto\"", CKPT_EUSAGE, "wall_clock_breakdown|auto"},
};

static void combinations(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof combined / sizeof combined[0]; i++) {
        char text[512];

        (void)snprintf(text, sizeof text, "{train_batch_size: 4, %s}", combined[i].text);
        if (combined[i].code != CKPT_OK) {
            refused(text, combined[i].code, combined[i].says);
        } else {
            zt_config c = accepted(text, NULL, 2);

            if (!noted(&c, combined[i].says) && combined[i].says[0] != '\0')
                fail_msg("%s: no note of %s", text, combined[i].says);
        }
    }
}

static void values_arrive(void **state)
{
    zt_config c = accepted(
        "{train_batch_size: 12, gradient_accumulation_steps: 3, steps_per_print: 5\n"
        "fp16: {enabled: true, initial_scale_power: 4, hysteresis: 1, loss_scale_window: 7,\n"
        "       consecutive_hysteresis: true, min_loss_scale: 2}\n"
        "communication_data_type: \"FP32\"\n"
        "zero_optimization: {stage: 3, round_robin_gradients: true, contiguous_gradients: false,\n"
        "  allgather_bucket_size: 11, max_live_parameters: 12, stage3_max_reuse_distance: 13,\n"
        "  model_persistence_threshold: 14, parameter_alignment: \"on\", overlap_comm: false,\n"
        "  offload_optimizer: {device: \"nvme\", nvme_path: \"/d\", pipeline_read: true}\n"
        "  offload_param: {device: \"cpu\", buffer_size: 2e3, max_in_cpu: \"17\"}}\n"
        "checkpoint: {tag_validation: \"Ignore\", load_universal: true}\n"
        "aio: {block_size: 4096, queue_depth: 3, intra_op_parallelism: 2}\n"
        "wall_clock_breakdown: true, activation_checkpointing: {}}",
        NULL, 2);

    (void)state;
    assert_int_equal(c.micro_batch, 2);
    assert_int_equal(c.steps_per_print, 5);
    assert_true(c.scaler.dynamic && c.scaler.consecutive && c.scaler.scale == 16);
    assert_int_equal(c.scaler.window, 7);
    assert_int_equal(c.comm_dtype, CKPT_F32);
    assert_int_equal(c.accum_dtype, CKPT_F16);
    assert_true(c.round_robin && !c.contiguous && c.aligned && !c.overlap);
    assert_int_equal(c.gather_bucket, 11);
    assert_int_equal(c.max_live, 12);
    assert_int_equal(c.max_reuse, 13);
    assert_int_equal(c.model_persistence, 14);
    assert_int_equal(c.offload_optimizer.place, ZT_ON_NVME);
    assert_true(c.offload_optimizer.pipeline_read && !c.offload_optimizer.pipeline_write);
    assert_string_equal(c.offload_optimizer.path, "/d");
    assert_int_equal(c.offload_param.place, ZT_ON_CPU);
    assert_int_equal(c.offload_param.buffer_size, 2000);
    assert_int_equal(c.offload_param.max_in_cpu, 17);
    assert_int_equal(c.tag_validation, ZT_TAG_IGNORE);
    assert_true(c.load_universal && c.wall_clock && c.activation_checkpointing);
    assert_int_equal(c.aio_block, 4096);
    assert_int_equal(c.aio_depth, 3);
    assert_int_equal(c.aio_threads, 2);
    assert_true(c.check_grad_overflow);
    c = accepted("{train_batch_size: 2, bf16: {enabled: true, check_grad_overflow: false}}", NULL,
                 2);
    assert_false(c.check_grad_overflow);
    assert_false(accepted("{train_batch_size: 2}", NULL, 2).check_grad_overflow);
}

static void batch_sizes_do_not_overflow(void **state)
{
    zt_arguments a;

    (void)state;
    refused("{train_micro_batch_size_per_gpu: 9223372036854775807}", CKPT_EUSAGE, "63 bits");
    refused("{train_micro_batch_size_per_gpu: 4294967296, gradient_accumulation_steps: 4294967296}",
            CKPT_EUSAGE, "63 bits");
    refused("{train_batch_size: 9223372036854775807, train_micro_batch_size_per_gpu: 1}",
            CKPT_EUSAGE, "train_batch_size 9223372036854775807");
    refused("{train_batch_size: 8, train_micro_batch_size_per_gpu: 9223372036854775807, "
            "gradient_accumulation_steps: 9223372036854775807}",
            CKPT_EUSAGE, "make it this product");
    zt_arguments_default(&a);
    a.per_device_train_batch_size = INT64_MAX;
    refused_args("{}", &a, CKPT_EUSAGE, "63 bits");
}

/* ---- where it comes from, where it goes ---- */

static void files_and_base64(void **state)
{
    /* {"train_batch_size": 6, "fp16": {"enabled": true}} */
    static const char b64[] =
        "eyJ0cmFpbl9iYXRjaF9zaXplIjogNiwgImZwMTYiOiB7ImVuYWJsZWQiOiB0cnVlfX0=";
    zt_config c;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(zt_config_read(&c, arena, b64, NULL, 2, &err), CKPT_OK);
    assert_int_equal(c.micro_batch, 3);
    assert_int_equal(c.dtype, CKPT_F16);
    assert_int_equal(zt_config_read(&c, arena, "no/such.json", NULL, 2, &err), CKPT_EMISSING);
    assert_non_null(strstr(err.text, "no/such.json"));
    err = (ckpt_err){0};
    assert_int_equal(zt_config_read(&c, arena, "nosuch", NULL, 2, &err), CKPT_EMISSING);
    err = (ckpt_err){0};
    assert_int_equal(zt_config_read(&c, arena, "", NULL, 2, &err), CKPT_EMISSING);
    err = (ckpt_err){0};
    assert_int_equal(zt_config_parse(&c, arena, json_of("[1]"), NULL, 2, &err), CKPT_EUSAGE);
    err = (ckpt_err){0};
    assert_int_equal(zt_config_parse(&c, arena, json_of("{}"), NULL, 0, &err), CKPT_EUSAGE);
}

static char *printed(const zt_config *c)
{
    FILE *f = tmpfile();
    char *text;
    long n;

    assert_non_null(f);
    assert_int_equal(zt_config_print(c, f, NULL), CKPT_OK);
    n = ftell(f);
    assert_true(n > 0);
    text = ckpt_arena_alloc(arena, (uint64_t)n + 1);
    assert_non_null(text);
    rewind(f);
    assert_int_equal(fread(text, 1, (size_t)n, f), n);
    assert_int_equal(fclose(f), 0);
    return text;
}

/* An offload_optimizer block chooses the class, at stage 0 too, where it moves nothing. */
static void offload_chooses_the_optimizer(void **state)
{
    static const char *const offloads[] = {"cpu_offload: true",
                                           "offload_optimizer: {device: cpu\n}",
                                           "offload_optimizer: {device: none\n}"};

    (void)state;
    for (int stage = 0; stage < 3; stage += 2) {
        for (unsigned i = 0; i < 3; i++) {
            bool host = i < 2;
            char text[256];
            zt_config c;

            (void)snprintf(text, sizeof text,
                           "train_batch_size: 4, optimizer: {type: \"Adagrad\"}, "
                           "zero_allow_untested_optimizer: true, "
                           "zero_optimization: {stage: %d, %s}",
                           stage, offloads[i]);
            c = accepted(text, NULL, 1);
            assert_int_equal(zt_config_is_cpu_optimizer(&c), host);
            assert_string_equal(c.optim.state[0], host ? "exp_avg_sq" : "sum");
            assert_int_equal(c.offload_optimizer.place, host && stage ? ZT_ON_CPU : ZT_ON_DEVICE);
        }
    }
}

/* Compare the members, because the bytes between them are of no value. */
static void same_scaler(const zt_scaler *a, const zt_scaler *b)
{
    assert_true(a->dynamic == b->dynamic && a->consecutive == b->consecutive);
    assert_true(a->stage0 == b->stage0 && a->touched == b->touched);
    assert_true(a->scale == b->scale && a->min_scale == b->min_scale && a->factor == b->factor);
    assert_true(a->window == b->window && a->hysteresis == b->hysteresis && a->left == b->left);
    assert_true(a->iter == b->iter && a->last_overflow == b->last_overflow);
}

/* What is printed is a configuration that resolves to the same, with known keys alone. */
static void check_print(ckpt_value *json, int world)
{
    ckpt_err err = {0};
    zt_config c, again;
    const char *text;

    if (zt_config_parse(&c, arena, json, NULL, world, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    text = printed(&c);
    again = accepted(text, NULL, world);
    for (size_t i = 0; again.notes[i] != NULL; i++) {
        if (strstr(again.notes[i], "is not a known key"))
            fail_msg("%s in %s", again.notes[i], text);
    }
    assert_string_equal(printed(&again), text);
    assert_int_equal(again.offload_param.place, c.offload_param.place);
    assert_int_equal(again.offload_optimizer.place, c.offload_optimizer.place);
    same_scaler(&again.scaler, &c.scaler);
    assert_true(again.optim.h.lr == c.optim.h.lr && again.optim.h.eps == c.optim.h.eps);
}

static void print_can_be_read_again(void **state)
{
    static const char *const blocks[] = {
        "optimizer: {type: \"AdamW\", params: {lr: 3e-4, betas: [0.9, 0.95], eps: 1e-7}}",
        "optimizer: {type: \"Adam\", params: {adam_w_mode: false, bias_correction: false}}",
        "optimizer: {type: \"Adam\", params: {torch_adam: true}}",
        "optimizer: {type: \"SGD\", params: {lr: 0.1, momentum: 0.9, nesterov: true}}",
        "optimizer: {type: \"Adagrad\", params: {lr: 0.1}}",
        "optimizer: {type: \"Lion\", params: {lr: 1e-4, betas: [0.95, 0.98]}}",
        "optimizer: {type: \"Lamb\", params: {max_coeff: 5, eps_inside_sqrt: true}}",
        "optimizer: {type: \"OneBitAdam\", params: {freeze_step: 9}}",
        "optimizer: {type: \"Muon\", params: {lr: 0.02, muon_lr: 0.1, ns_method: \"standard\"}}",
        "scheduler: {type: \"WarmupLR\", params: {warmup_max_lr: 0.1, warmup_type: \"linear\"}}",
        "scheduler: {type: \"WarmupLR\", params: {warmup_num_steps: 7}}",
        "scheduler: {type: \"WarmupDecayLR\", params: {total_num_steps: 9, warmup_min_lr: [0, 1]}}",
        "scheduler: {type: \"WarmupCosineLR\", params: {total_num_steps: 9, cos_min_ratio: 0.2}}",
        "scheduler: {type: \"LRRangeTest\", params: {lr_range_test_step_size: 4}}",
        "scheduler: {type: \"OneCycle\", params: {cycle_min_lr: 0.1, cycle_max_lr: [1, 2]}}",
        "fp16: {enabled: true, loss_scale: 0.1}, zero_optimization: {stage: 3, offload_param: "
        "{device: \"nvme\", nvme_path: \"/a \\\"b\\\\\\n\"}, offload_optimizer: {device: \"cpu\"}}",
        "zero_optimization: {stage: 2, offload_param: {device: \"cpu\"}, offload_optimizer: "
        "{device: \"nvme\"}}",
        "bf16: {enabled: true}, zero_optimization: {stage: 1}, data_types: {grad_accum_dtype: "
        "\"fp32\"}, activation_checkpointing: {}",
    };
    ckpt_seq cases = ckpt_value_seq(get(file(GOLDEN "config_cases.json"), "cases"));

    (void)state;
    for (uint64_t i = 0; i < cases.n; i++) {
        if (!ckpt_value_get(cases.at[i], "error"))
            check_print(ckpt_value_get(cases.at[i], "ds_config"),
                        (int)get(cases.at[i], "world_size")->as.i);
    }
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        char text[512];

        (void)snprintf(text, sizeof text, "{train_batch_size: 4, %s}", blocks[i]);
        check_print(json_of(text), 2);
    }
}

/* The configurations of all recorded runs; only where the recordings are at hand. */
static void recorded_runs_are_accepted(void **state)
{
    const char *shared = getenv("CKPT_SHARED");
    size_t runs = 0;

    (void)state;
    if (!shared)
        skip();
    for (int world = 1; world <= 3; world++) {
        char path[1024];
        ckpt_seq list;

        (void)snprintf(path, sizeof path, "%s/golden/runs_w%d.json", shared, world);
        list = ckpt_value_seq(get(file(path), "runs"));
        for (uint64_t i = 0; i < list.n; i++, runs++)
            check_print(ckpt_value_get(list.at[i], "ds_config"), world);
    }
    assert_true(runs > 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(as_deepspeed_does),       TEST(file_syntax),
        TEST(as_the_trainer_does),     TEST(combinations),
        TEST(values_arrive),           TEST(batch_sizes_do_not_overflow),
        TEST(files_and_base64),        TEST(offload_chooses_the_optimizer),
        TEST(print_can_be_read_again), TEST(recorded_runs_are_accepted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
