/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipe_read.c: reads the files of a pipeline's stages and layers.
 */
#include "formats/deepspeed/module/pipe_inside.h"

bool ckpt_ds_pipe_layer(const ckpt_text *name, uint64_t *out)
{
    uint64_t n = 0, i = 0;

    for (; i < name->n && i < 9 && name->at[i] >= '0' && name->at[i] <= '9'; i++)
        n = n * 10 + (uint64_t)(name->at[i] - '0');
    *out = n;
    return i > 0 && i < name->n && name->at[i] == '.';
}

int ckpt_ds_pipe_open(ckpt_ds_pipe *pipe, const ckpt_ds_job *job, const char *path,
                      const ckpt_value **out)
{
    ckpt_map *map = NULL;
    ckpt_err err = {0};
    int rc = job->read(&map, path, NULL, &err);
    ckpt_map **slot = rc == CKPT_OK ? ckpt_vec_push(&pipe->open) : NULL;

    *out = NULL;
    if (rc != CKPT_OK && job->map->collect && rc != CKPT_ELIMIT && rc != CKPT_EIO)
        return CKPT_OK;
    if (rc != CKPT_OK)
        return ckpt_fail(job->err, rc, "%s", err.text);
    if (!slot) {
        ckpt_map_free(map);
        return ckpt_fail_memory(job->err);
    }
    *slot = map;
    *out = map->values;
    return CKPT_OK;
}

int ckpt_ds_pipe_entries(ckpt_ds_pipe *pipe, const ckpt_ds_job *job, const ckpt_ds_folder *dir)
{
    const ckpt_value *root = NULL;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < dir->layers.n; i++) {
        const ckpt_ds_part *part = &dir->layers.at[i];
        if (part->mp != 0)
            continue;
        rc = ckpt_ds_pipe_open(pipe, job, part->path, &root);
        ckpt_dict dict = ckpt_value_map(root);
        for (uint64_t k = 0; rc == CKPT_OK && k < dict.n; k++) {
            const ckpt_pair *p = &dict.at[k];
            if (p->key->kind != CKPT_V_STR || p->value->kind != CKPT_V_TENSOR)
                continue;
            dsi_entry *e = ckpt_vec_push(&pipe->entry);
            if (!e)
                return ckpt_fail_memory(job->err);
            *e = (dsi_entry){part->rank, &p->key->as.text, p->value->as.tensor};
        }
    }
    return rc;
}
