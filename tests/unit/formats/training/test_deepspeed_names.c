/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_deepspeed_names.c: file names of DeepSpeed tag folders, of every release and of none.
 */
#include "formats/training/deepspeed_names.h"
#include "tests/unit/unit.h"

typedef struct name_case {
    const char *name;
    ckpt_ds_name want;
} name_case;

static const name_case good[] = {
    {"mp_rank_00_model_states.pt", {CKPT_DS_MODEL, false, 0, 0, 0, false}},
    {"mp_rank_07_model_states.pt", {CKPT_DS_MODEL, false, 0, 7, 0, false}},
    {"mp_rank_112_model_states.pt", {CKPT_DS_MODEL, false, 0, 112, 0, false}},
    {"zero_pp_rank_0_mp_rank_00_model_states.pt", {CKPT_DS_MODEL_RANK, false, 0, 0, 0, false}},
    {"zero_pp_rank_1023_mp_rank_00_model_states.pt",
     {CKPT_DS_MODEL_RANK, false, 1023, 0, 0, false}},
    {"zero_pp_rank_3_mp_rank_01_optim_states.pt", {CKPT_DS_OPTIM, false, 3, 1, 0, false}},
    {"bf16_zero_pp_rank_12_mp_rank_00_optim_states.pt", {CKPT_DS_OPTIM, true, 12, 0, 0, false}},
    {"zero_pp_rank_0_mp_rank_00optim_states.pt", {CKPT_DS_OPTIM, false, 0, 0, 0, false}},
    {"layer_0_expert_1_mp_rank_00_model_states.pt", {CKPT_DS_EXPERT, false, 1, 0, 0, true}},
    {"expert_5_mp_rank_00_model_states.pt", {CKPT_DS_EXPERT, false, 5, 0, 0, false}},
    {"layer_12_expert_3_mp_rank_02_model_states.pt", {CKPT_DS_EXPERT, false, 3, 2, 12, true}},
    {"expp_rank_1_mp_rank_00_optim_states.pt", {CKPT_DS_EXPP, false, 1, 0, 0, false}},
    {"layer_00-model_states.pt", {CKPT_DS_LAYER, false, 0, 0, 0, false}},
    {"layer_31-model_00-model_states.pt", {CKPT_DS_LAYER, false, 31, 0, 0, false}},
    {"layer_02-model_17-model_states.pt", {CKPT_DS_LAYER, false, 2, 17, 0, false}},
};

static const char *const bad[] = {
    "",
    "latest",
    "mp_rank_00_model_states.pt.tmp",
    "mp_rank_00_model_states.bin",
    "mp_rank__model_states.pt",
    "mp_rank_-1_model_states.pt",
    "xmp_rank_00_model_states.pt",
    "mp_rank_00_optim_states.pt",
    "zero_pp_rank_0_mp_rank_00_states.pt",
    "zero_pp_rank_0_mp_rank_00__optim_states.pt",
    "zero_pp_rank_mp_rank_00_optim_states.pt",
    "zero_pp_rank_0mp_rank_00_optim_states.pt",
    "bf16_zero_pp_rank_0_mp_rank_00_model_states.pt",
    "bf16_mp_rank_00_model_states.pt",
    "zero_pp_rank_99999999999999999999_mp_rank_00_optim_states.pt",
    "zero_pp_rank_0_mp_rank_0123456789_optim_states.pt",
    "layer_00-states.pt",
    "layer_00-model_-model_states.pt",
    "layer_-model_states.pt",
    "layer_0_expert_mp_rank_00_model_states.pt",
    "layer_0_expert_0_mp_rank_00_optim_states.pt",
    "layer_0_expp_rank_0_mp_rank_00_optim_states.pt",
    "expp_rank_0_mp_rank_00_model_states.pt",
    "pytorch_model.bin",
    "model_states.pt",
};

static void test_known(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ckpt_ds_name got = ckpt_ds_name_parse(good[i].name);
        assert_int_equal(got.kind, good[i].want.kind);
        assert_int_equal(got.bf16, good[i].want.bf16);
        assert_int_equal(got.mp, good[i].want.mp);
        assert_int_equal(got.dp, good[i].want.dp);
        assert_int_equal(got.layer, good[i].want.layer);
        assert_int_equal(got.has_layer, good[i].want.has_layer);
        assert_true(ckpt_ds_name_is_shard(good[i].name));
    }
}

static void test_unknown(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ckpt_ds_name got = ckpt_ds_name_parse(bad[i]);
        assert_int_equal(got.kind, CKPT_DS_OTHER);
        assert_int_equal(got.dp, 0);
        assert_int_equal(got.mp, 0);
        assert_false(ckpt_ds_name_is_shard(bad[i]));
    }
}

static void test_run(void **state)
{
    uint64_t n = 0;

    (void)state;
    assert_true(ckpt_ds_name_run("checkpoint-500", &n));
    assert_int_equal(n, 500);
    assert_true(ckpt_ds_name_run("checkpoint-0", &n));
    assert_int_equal(n, 0);
    assert_false(ckpt_ds_name_run("checkpoint-", &n));
    assert_false(ckpt_ds_name_run("checkpoint-5x", &n));
    assert_false(ckpt_ds_name_run("checkpoint-12345678901234567890", &n));
    assert_false(ckpt_ds_name_run("checkpoint_5", &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
