/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipe_gap.c: decides whether a layer without a file is harmless.
 *
 * DeepSpeed writes a file for each layer that is a module, even without tensors, and none for a
 * function. A gap in the numbers is therefore either a function or a lost file.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/module/pipe_inside.h"
#include "libckpt/base/dtype.h"

static bool dgap_has_file(const ckpt_ds_folder *dir, uint64_t layer)
{
    bool has = false;

    for (size_t i = 0; !has && i < dir->layers.n; i++)
        has = dir->layers.at[i].rank == layer;
    return has;
}

bool ckpt_ds_pipe_names(const ckpt_ds_pipe *pipe, uint64_t layer, const char *own)
{
    bool found = false;

    for (size_t i = 0; !found && i < pipe->name.n; i++) {
        const dsi_name *name = &pipe->name.at[i];
        found = name->layer == layer && strcmp(strchr(name->text.at, '.') + 1, own) == 0;
    }
    return found;
}

/* Returns whether any stage lists an entry of a layer: as a parameter, a buffer or a tied name. */
static bool dgap_is_listed(const ckpt_ds_pipe *pipe, const dsi_entry *e)
{
    bool listed = ckpt_ds_pipe_names(pipe, e->layer, e->name->at);

    for (size_t i = 0; !listed && i < pipe->tie.n; i++) {
        const char *dot = strchr(pipe->tie.at[i].name + strlen(CKPT_DS_TIED), '.');
        listed = dot && strcmp(dot + 1, e->name->at) == 0;
    }
    for (uint32_t s = 0; !listed && s < pipe->n; s++) {
        ckpt_seq list = pipe->stage[s].buffers;
        for (uint64_t i = 0; !listed && i < list.n; i++) {
            uint64_t layer;
            const ckpt_value *v = list.at[i];
            listed = v->kind == CKPT_V_STR && ckpt_ds_pipe_layer(&v->as.text, &layer) &&
                     layer == e->layer && strcmp(strchr(v->as.text.at, '.') + 1, e->name->at) == 0;
        }
    }
    return listed;
}

/* Returns whether any stage lists a tensor of the layer. If its file is lost, the reader fails. */
static bool dgap_layer_listed(const ckpt_ds_pipe *pipe, uint64_t layer)
{
    bool listed = false;

    for (size_t i = 0; !listed && i < pipe->name.n; i++)
        listed = pipe->name.at[i].layer == layer;
    for (uint32_t s = 0; !listed && s < pipe->n; s++) {
        ckpt_seq list = pipe->stage[s].buffers;
        for (uint64_t i = 0; !listed && i < list.n; i++) {
            uint64_t of;
            listed = list.at[i]->kind == CKPT_V_STR &&
                     ckpt_ds_pipe_layer(&list.at[i]->as.text, &of) && of == layer;
        }
    }
    return listed;
}

/*
 * Sets *why to the reason why a lost file might not be noticed, or to NULL if the run's lists have
 * every tensor of all layers. Stage 1 does not list frozen parameters: if another layer's file has
 * one, a lost file may have had some, too.
 */
static int dgap_doubt(ckpt_ds_pipe *pipe, const ckpt_ds_job *job, const ckpt_ds_folder *dir,
                      const char **why)
{
    bool whole = true, buffers = true;
    int rc = CKPT_OK;

    *why = NULL;
    for (uint32_t s = 0; s < pipe->n; s++) {
        whole = whole && pipe->stage[s].whole;
        buffers = buffers && pipe->stage[s].has_buffers;
    }
    if (!buffers)
        *why = "the model files have no buffer_names";
    else if (!whole && pipe->unsure)
        *why = "the optimizers' tensors do not show to which layers they belong";
    if (*why || !whole)
        return rc;
    pipe->entry.n = 0;
    rc = ckpt_ds_pipe_entries(pipe, job, dir);
    for (size_t i = 0; rc == CKPT_OK && !*why && i < pipe->entry.n; i++) {
        if (ckpt_dtype_get(pipe->entry.at[i].value->dtype)->kind == CKPT_IS_FLOAT &&
            !dgap_is_listed(pipe, &pipe->entry.at[i]))
            *why = "the run has frozen parameters, which no file lists";
    }
    return rc;
}

/*
 * Finds the first layer below `last` that has no file and that no stage lists; UINT64_MAX: there is
 * none.
 */
static uint64_t dgap_first_gap(const ckpt_ds_pipe *pipe, const ckpt_ds_folder *dir, uint64_t last)
{
    // The number of files and listed layers limits the steps, although `last` may be huge.
    for (uint64_t layer = 0; layer < last; layer++) {
        if (!dgap_has_file(dir, layer) && !dgap_layer_listed(pipe, layer))
            return layer;
    }
    return UINT64_MAX;
}

int ckpt_ds_pipe_gap(ckpt_ds_pipe *pipe, const ckpt_ds_job *job, const ckpt_ds_folder *dir)
{
    uint64_t last = 0, gap;
    const char *why = NULL;

    for (size_t i = 0; i < dir->layers.n; i++)
        last = dir->layers.at[i].rank > last ? dir->layers.at[i].rank : last;
    gap = dgap_first_gap(pipe, dir, last);
    if (gap == UINT64_MAX)
        return CKPT_OK;
    int rc = dgap_doubt(pipe, job, dir, &why);
    if (rc != CKPT_OK)
        return rc;
    if (!why)
        return ckpt_map_note(job->map, CKPT_INFO, job->err,
                             "%s: layer %" PRIu64
                             " of the pipeline has no layer_*-model_states.pt, "
                             "but layer %" PRIu64 " has one: no tensor is missing, because no "
                             "stage lists one of this layer; but DeepSpeed needs the file, unless "
                             "the layer is a function",
                             job->map->path, gap, last);
    return ckpt_map_note(job->map, CKPT_WARNING, job->err,
                         "%s: layer %" PRIu64 " of the pipeline has no layer_*-model_states.pt, "
                         "but layer %" PRIu64
                         " has one, and %s: copy the file, unless the layer is "
                         "a function; without it, the tensors of the layer are left out",
                         job->map->path, gap, last, why);
}
