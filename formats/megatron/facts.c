/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.c: reads the run's arguments.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/megatron.h"
#include "libckpt/base/number.h"

const ckpt_value *ckpt_meg_value(const ckpt_meg_job *job, const char *name)
{
    const ckpt_value *args = ckpt_value_get(job->root, "args"); // an argparse.Namespace

    return ckpt_value_get(args && args->kind == CKPT_V_OBJECT ? args->as.object->state : args,
                          name);
}

int64_t ckpt_meg_arg(const ckpt_meg_job *job, const char *name)
{
    int64_t n = 0;

    (void)ckpt_value_as_int(ckpt_meg_value(job, name), &n);
    return n;
}

bool ckpt_meg_flag(const ckpt_meg_job *job, const char *name)
{
    const ckpt_value *v = ckpt_meg_value(job, name);

    return v && v->kind == CKPT_V_BOOL && v->as.i;
}

/* The folder of the checkpoint; of NeMo 2 it is above the folder of the weights. */
static const char *mgk_above(const ckpt_meg_job *job)
{
    const char *path = job->map->path, *slash = strrchr(path, '/');

    if (!slash || slash == path || strcmp(slash + 1, CKPT_MEG_WEIGHTS) != 0)
        return path;
    return ckpt_arena_string(job->map->arena, path, (size_t)(slash - path));
}

int ckpt_meg_facts(ckpt_meg_job *job, const char *layout)
{
    assert(job->map && layout);
    static const char *const key[][2] = {
        {"tensor_model_parallel_size", "tensor parallel"},
        {"pipeline_model_parallel_size", "pipeline parallel"},
        {"expert_model_parallel_size", "expert parallel"},
        {"data_parallel_size", "world size"},
    };
    ckpt_map *map = job->map;
    const char *tag = mgk_above(job), *slash = tag ? strrchr(tag, '/') : NULL;
    int64_t world = ckpt_meg_arg(job, "data_parallel_size");
    int rc = ckpt_map_fact(map, job->err, "layout", "%s", layout);
    int64_t named = 0;
    bool told = map->known.tag != NULL; // known from the search in a run of NeMo 2

    if (!tag)
        return ckpt_fail_memory(job->err);
    map->known.tag = slash && slash[1] ? slash + 1 : tag;
    map->known.world = world > 0 && world < UINT32_MAX ? (uint32_t)world : 0;
    map->known.step = -1;
    if (rc == CKPT_OK && !told)
        rc = ckpt_map_fact(map, job->err, "tag", "%s", map->known.tag);
    if (rc == CKPT_OK)
        rc = ckpt_map_fact(map, job->err, "tag folder", "%s", map->path);
    // NeMo 2 saves the dict of Lightning
    if ((ckpt_value_as_int(ckpt_value_get(job->root, "iteration"), &map->known.step) ||
         ckpt_value_as_int(ckpt_value_get(job->root, "global_step"), &map->known.step)) &&
        rc == CKPT_OK)
        rc = ckpt_map_fact_int(map, "iteration", map->known.step, job->err);
    if (rc == CKPT_OK && map->known.step >= 0 && ckpt_meg_is_iter(map->known.tag) &&
        ckpt_parse_i64(map->known.tag + 5, &named) && named != map->known.step)
        rc =
            ckpt_map_note(map, CKPT_WARNING, job->err,
                          "%s: holds iteration %" PRId64 ", which does not match the folder's name",
                          map->path, map->known.step);
    for (size_t i = 0; rc == CKPT_OK && i < sizeof key / sizeof *key; i++) {
        int64_t n = ckpt_meg_arg(job, key[i][0]);
        if (n > 0)
            rc = ckpt_map_fact_int(map, key[i][1], n, job->err);
    }
    return rc;
}
