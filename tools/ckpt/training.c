/* SPDX-License-Identifier: Apache-2.0 */
/* training.c: opens sources for targets with training state. */
#include "tools/ckpt/training.h"
#include "tools/cli/text.h"

#include <stdlib.h>
#include <string.h>

#include "ckpt_extra.h"
#include "tools/ckpt/job.h"
#include "tools/ckpt/remap.h"
#include "tools/ckpt/report.h"

bool training_format(const char *format)
{
    return ckpt_format_caps(format) & CKPT_WRITES_STATE;
}

int training_check(const write_args *a, ckpt_err *err)
{
    ckpt_target target = a->target;

    if (a->cli.include.n || a->cli.exclude.n || a->rename)
        return fail(err, CKPT_EUSAGE,
                    "--include, --exclude and --rename apply to weights only: training state is "
                    "written whole");
    if (cli_has(&a->cli.line, "adapter") || cli_has(&a->cli.line, "adapter-only"))
        return fail(err, CKPT_EUSAGE,
                    "--adapter and --adapter-only apply to weights only: merge the adapter into "
                    "weights first");
    if (a->target.keep_objects && a->target.drop_objects)
        return fail(err, CKPT_EUSAGE, "--keep-objects and --drop-objects exclude each other");
    if (a->moments != CKPT_DTYPE_NONE && a->moments != CKPT_F32)
        return fail(err, CKPT_EUSAGE,
                    "--moments: expected fp32, the dtype of Adam's moments, found %s",
                    ckpt_dtype_name(a->moments));
    if (a->moments != CKPT_DTYPE_NONE && a->target.fresh_optimizer)
        return fail(err, CKPT_EUSAGE, "--moments and --drop-optimizer exclude each other");
    if (a->join && a->cli.open.keep_slices)
        return fail(err, CKPT_EUSAGE, "--join and --keep-slices exclude each other");
    if (a->target.stage > 3)
        return fail(err, CKPT_EUSAGE, "--stage: expected 1, 2 or 3, found %d", a->target.stage);
    job_settle(&target);
    return ckpt_target_check(&target, err);
}

/*
 * True if the run will continue in the framework that saved it, whose wrappers add their prefixes
 * to the names again.
 */
static bool training_same(const ckpt_map *map, const write_args *a)
{
    const char *from = ckpt_map_format(map);
    bool ranks = strcmp(from, "deepspeed") == 0 || strcmp(from, "universal") == 0;

    return !a->map && (strcmp(from, a->target.format) == 0 ||
                       (ranks && (ckpt_format_caps(a->target.format) & CKPT_HAS_RANKS)));
}

/* --moments fp32 */
static int training_moments(ckpt_map *map, const write_args *a, ckpt_err *err)
{
    uint64_t n = 0;
    int rc;

    if (a->moments == CKPT_DTYPE_NONE)
        return CKPT_OK;
    rc = ckpt_map_dequantize_moments(map, &n, err);
    // the writer refuses state that is not understood, with the reason
    if (rc == CKPT_OK && n == 0 && !map_fact(map, "moments"))
        say_warning(
            "%s: --moments has no effect: the optimizer state has no 8-bit moments of bitsandbytes",
            ckpt_map_path(map));
    return rc;
}

int training_order(write_args *a, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (a->order && strcmp(a->order, "stored") != 0)
        rc = text_read(&a->order_text, a->order, "the order", err);
    // a single pattern stands for all names in the file's order
    a->target.order_text = a->order_text ? a->order_text : a->order ? "*" : NULL;
    a->cli.open.order_text = a->target.order_text;
    return rc;
}

int training_open(ckpt_map **map, write_args *a, ckpt_err *err)
{
    int rc = training_check(a, err);

    *map = NULL;
    a->cli.open.with_optimizer = true;
    a->cli.open.whole_checkpoint = true;
    a->cli.open.training = true;
    if (rc == CKPT_OK)
        rc = training_order(a, err);
    if (rc == CKPT_OK)
        rc = args_open(map, &a->cli, err);
    if (rc == CKPT_OK)
        rc = ckpt_map_dequantize(*map, true, err);
    if (rc == CKPT_OK)
        rc = training_moments(*map, a, err);
    if (rc == CKPT_OK && !training_same(*map, a))
        rc = write_model(*map, a, true, true, err);
    if (rc == CKPT_OK)
        rc = remap_apply(*map, a, err);
    return rc == CKPT_OK ? ckpt_map_warm_start(*map, &a->target, err) : rc;
}

void training_free(write_args *a)
{
    free(a->order_text);
    a->order_text = NULL;
    a->target.order_text = NULL;
    a->cli.open.order_text = NULL;
}
