/* SPDX-License-Identifier: Apache-2.0 */
/*
 * written.c: checks an output before it is written, and a model without config.json.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/hf/hf.h"
#include "formats/hf/stacks.h"
#include "formats/hf/whole.h"
#include "libckpt/access/model_folder.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/io/address.h"
#include "libckpt/map/gaps.h"

#define WRT_MAX (UINT64_C(64) << 20) /* largest config.json, in bytes */

/* Advice about a missing tensor, without a configuration and with one that counts no layers. */
static const char wrt_ask[] = "give the model's config.json with --config to have this checked";
static const char wrt_compare[] = "copy the whole model if its layers have the same tensors";

/* Warn of a layer without tensors below the highest layer of a stack. */
static int wrt_hole(ckpt_map *map, const ckpt_hf_stack *stack, const char *name, ckpt_err *err)
{
    if (!ckpt_hf_stack_is_layers(stack) || stack->hole == stack->n)
        return CKPT_OK;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: no tensor of %.*s.%" PRIu64 " is here, but higher layers are: copy "
                         "the whole model, and its config.json",
                         name, (int)stack->n_prefix, stack->prefix, stack->hole);
}

int ckpt_hf_alone(ckpt_map *map, const char *name, ckpt_err *err)
{
    assert(map && name);
    ckpt_hf_stacks all = {0};
    int rc = ckpt_hf_stacks_find(&all, map, err);

    for (size_t i = 0; rc == CKPT_OK && i < all.stack.n; i++)
        rc = wrt_hole(map, &all.stack.at[i], name, err);
    ckpt_hf_stacks_free(&all);
    return rc == CKPT_OK ? ckpt_map_note(map, CKPT_INFO, err,
                                         "%s: no config.json is beside it, so the number of layers "
                                         "and the sizes of the model are not checked",
                                         name)
                         : rc;
}

/* Warn of the first tensor that a layer of a stack lacks; advice: what to do. */
static int wrt_gap(ckpt_map *to, const ckpt_hf_stack *stack, const char *name, const char *advice,
                   ckpt_err *err)
{
    const ckpt_stack layers = {.prefix = stack->prefix,
                               .n_prefix = stack->n_prefix,
                               .names = stack->names,
                               .n_names = stack->n_names};
    ckpt_gap gap = {.found = false};
    int rc = ckpt_hf_stack_is_layers(stack) ? ckpt_gap_find(to, &layers, &gap, err) : CKPT_OK;

    if (rc != CKPT_OK || !gap.found)
        return rc;
    return ckpt_map_note(to, CKPT_WARNING, err,
                         "%s: %.*s.%" PRIu64 ".%s is missing, but other layers have it: %s", name,
                         (int)stack->n_prefix, stack->prefix, gap.layer, gap.key, advice);
}

/*
 * Warn of tensors that layers lack, in a model without a configuration; holes: of layers, too.
 * Short stacks, of other parts than the model's trunk, may differ by layer.
 */
static int wrt_gaps(ckpt_map *to, const char *name, const char *advice, bool holes, ckpt_err *err)
{
    ckpt_hf_stacks all = {0};
    uint64_t most = 0;
    int rc = ckpt_hf_stacks_find(&all, to, err);

    for (size_t i = 0; i < all.stack.n; i++)
        most = all.stack.at[i].n > most ? all.stack.at[i].n : most;
    for (size_t i = 0; rc == CKPT_OK && i < all.stack.n; i++) {
        const ckpt_hf_stack *stack = &all.stack.at[i];
        if (stack->n < most - most / 2)
            continue;
        rc = wrt_gap(to, stack, name, advice, err);
        if (rc == CKPT_OK && holes)
            rc = wrt_hole(to, stack, name, err);
    }
    ckpt_hf_stacks_free(&all);
    return rc;
}

/* True if the source is no folder of this format, whose reader warns of missing layers. */
static bool wrt_no_hub(const ckpt_map *from)
{
    return !from->format || strcmp(from->format, "hf") != 0;
}

int ckpt_hf_written(ckpt_map *to, const ckpt_map *from, const ckpt_value *config, ckpt_err *err)
{
    assert(to && from);
    const char *name = from->path ? from->path : "the source";
    const size_t n_findings = to->findings.n;
    int rc = config ? ckpt_hf_whole(to, config, name, err) : CKPT_OK;

    to->findings.n = n_findings; // readers of the source and of the output give its warnings
    // without the number of layers, only gaps between the layers that are here can be found
    return rc == CKPT_OK && !ckpt_hf_counts_layers(config)
               ? wrt_gaps(to, name, config ? wrt_compare : wrt_ask, !config && wrt_no_hub(from),
                          err)
               : rc;
}

/* ---- other outputs ---- */

/* The model's configuration: the caller's or a layout map's, else that beside the source. */
static int wrt_config(const ckpt_value **out, ckpt_map *scratch, const ckpt_map *from,
                      ckpt_err *err)
{
    ckpt_listing list = {0};
    ckpt_value *read = NULL;
    const char *path;

    *out = from->config.value;
    // a listing of a remote folder costs requests
    if (*out || !from->path || ckpt_address_is(from->path) ||
        ckpt_model_folder_list(&list, scratch, from, NULL) != CKPT_OK ||
        !ckpt_listing_find(&list, "config.json"))
        return CKPT_OK;
    path = ckpt_path_join(scratch->arena, list.folder, "config.json");
    if (!path)
        return ckpt_fail_memory(err);
    // readers report a damaged file
    if (ckpt_json_read(&read, scratch->arena, path, WRT_MAX, NULL) == CKPT_OK &&
        read->kind == CKPT_V_DICT)
        *out = read;
    return CKPT_OK;
}

/* Warn of missing tensors of layers in a single file, which may have any tensors. */
static int wrt_warn(ckpt_map *to, const ckpt_value *config, const char *name, ckpt_err *err)
{
    const size_t n = to->findings.n;
    const bool collect = to->collect;
    int rc;

    if (!ckpt_hf_counts_layers(config))
        return wrt_gaps(to, name, wrt_compare, false, err);
    to->collect = true;
    rc = ckpt_hf_check_layers(to, config, name, err);
    to->collect = collect;
    for (size_t i = n; i < to->findings.n; i++) {
        to->findings.at[i].severity = CKPT_WARNING;
        to->findings.at[i].code = CKPT_OK;
    }
    return rc;
}

/* True if the source is a shard of a model that the caller reads as it is. */
static bool wrt_is_shard(const ckpt_map *from)
{
    return from->files.n == 1 &&
           ckpt_hf_parse_name(ckpt_hf_base(from->files.at[0].path)).role == CKPT_HF_SHARD;
}

int ckpt_hf_output(ckpt_map *to, const ckpt_map *from, bool folder, ckpt_err *err)
{
    assert(to && from);
    const char *name = from->path ? from->path : "the source";
    const ckpt_value *config = NULL;
    ckpt_map *scratch = NULL;
    int rc;

    if (ckpt_hf_is_adapter(from) || wrt_is_shard(from))
        return CKPT_OK;
    rc = ckpt_map_create(&scratch, 0, err);
    if (rc == CKPT_OK)
        rc = wrt_config(&config, scratch, from, err);
    // only layers are compared: the tensors may have any names and sizes
    if (rc == CKPT_OK && !folder)
        rc = wrt_warn(to, config, name, err);
    else if (rc == CKPT_OK && ckpt_hf_counts_layers(config))
        rc = ckpt_hf_check_layers(to, config, name, err);
    else if (rc == CKPT_OK)
        rc = wrt_gaps(to, name, config ? wrt_compare : wrt_ask, !config && wrt_no_hub(from), err);
    ckpt_map_free(scratch);
    return rc;
}
