/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deepspeed_keys.c: lists the members that DeepSpeed writes into a model file.
 */
#include "formats/training/deepspeed_keys.h"

#include <assert.h>
#include <string.h>

// deepspeed/runtime/engine.py, _save_checkpoint, with the releases that changed it
const ckpt_train_key ckpt_train_model_keys[CKPT_TRAIN_MODEL_KEYS] = {
    {"module", 0, 0},
    {"buffer_names", CKPT_DS_RELEASE(0, 4, 2), 0},
    {"optimizer", 0, 0},
    {"param_shapes", CKPT_DS_RELEASE(0, 6, 0), 0},
    {"frozen_param_shapes", CKPT_DS_RELEASE(0, 9, 1), 0},
    {"shared_params", CKPT_DS_RELEASE(0, 9, 2), 0},
    {"frozen_param_fragments", CKPT_DS_RELEASE(0, 9, 1), 0},
    {"lr_scheduler", 0, 0},
    {"data_sampler", CKPT_DS_RELEASE(0, 8, 0), 0},
    {"random_ltd", CKPT_DS_RELEASE(0, 8, 0), 0},
    {"csr_tensor_module_names", 0, CKPT_DS_RELEASE(0, 5, 5)},
    {"sparse_tensor_module_names", CKPT_DS_RELEASE(0, 5, 5), CKPT_DS_RELEASE(0, 19, 8)},
    {"skipped_steps", 0, 0},
    {"global_steps", 0, 0},
    {"global_samples", 0, 0},
    {"dp_world_size", 0, 0},
    {"mp_world_size", 0, 0},
    {"checkpoint_parallel_dimensions", CKPT_DS_RELEASE(0, 19, 5), 0},
    {"ds_config", CKPT_DS_RELEASE(0, 4, 0), 0},
    {"ds_version", CKPT_DS_RELEASE(0, 4, 0), 0},
    {"ds_autoep_layers", CKPT_DS_RELEASE(0, 19, 2), 0},
    {"universal_checkpoint_info", 0, 0},
};

bool ckpt_train_is_deepspeed_key(const char *key)
{
    assert(key);
    bool own = false;

    for (size_t i = 0; i < CKPT_TRAIN_MODEL_KEYS && !own; i++)
        own = strcmp(ckpt_train_model_keys[i].key, key) == 0;
    return own;
}
