/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put.c: names the tensors of the new spelling, and makes those of alphas.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "formats/peft/diffusion/lora.h"
#include "libckpt/base/cast.h"

const char *ckpt_dl_name(const ckpt_dl_work *w, const char *base, ckpt_dl_end end)
{
    static const char *const ends[2][3] = {{".lora_down.weight", ".lora_up.weight", ".alpha"},
                                           {".lora_A.weight", ".lora_B.weight", ".alpha"}};

    return ckpt_arena_printf(w->map->arena, "%s%s", base, ends[w->to == CKPT_DL_DIFFUSERS][end]);
}

int ckpt_dl_target_add(ckpt_dl_work *w, const char *name, uint64_t rank, double alpha)
{
    ckpt_dl_target *t = ckpt_vec_push(&w->targets);

    if (!t)
        return ckpt_fail_memory(w->err);
    *t = (ckpt_dl_target){name, rank, alpha};
    return CKPT_OK;
}

double ckpt_dl_stored(ckpt_dtype dtype, double x)
{
    const ckpt_cast_fn to = ckpt_cast_find(dtype, CKPT_F64);
    const ckpt_cast_fn back = ckpt_cast_find(CKPT_F64, dtype);
    double stored = 0, found = (double)NAN;

    if (to && back) {
        to(&stored, &x, 1);
        back(&found, &stored, 1);
    }
    return found;
}

/* The dtype of an alpha's tensor: the wanted one, or a wider one if that would change the value. */
static ckpt_dtype dput_dtype(ckpt_dtype wanted, double alpha)
{
    // rank * (alpha / rank) may be off by a bit of F64
    if (!(fabs(ckpt_dl_stored(wanted, alpha) - alpha) > 1e-12 * fabs(alpha)))
        return wanted;
    return fabs(ckpt_dl_stored(CKPT_F32, alpha) - alpha) <= 1e-6 * fabs(alpha) ? CKPT_F32
                                                                               : CKPT_F64;
}

int ckpt_dl_scalar(ckpt_dl_work *w, const char *base, double alpha, const ckpt_tensor *like)
{
    const ckpt_dtype dtype =
        dput_dtype(w->scalar_dtype != CKPT_DTYPE_NONE ? w->scalar_dtype : like->dtype, alpha);
    const ckpt_cast_fn cast = ckpt_cast_find(dtype, CKPT_F64);
    const char *name = ckpt_dl_name(w, base, CKPT_DL_ALPHA);
    const uint64_t shape[1] = {1};
    const ckpt_tensor of = {.dtype = dtype, .shape = shape, .file = like->file};
    ckpt_source values = {
        .kind = CKPT_SOURCE_MEMORY, .n_stored = ckpt_dtype_bits(dtype) / 8u, .name = name};
    ckpt_tensor *made = NULL, **slot = ckpt_vec_push(&w->made);
    uint32_t source = 0;
    int rc = name && slot ? CKPT_OK : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK && (!cast || values.n_stored == 0))
        rc = ckpt_fail(w->err, CKPT_EUNSUPPORTED, "tensor %.200s: %s cannot hold an alpha",
                       like->name, ckpt_dtype_name(dtype));
    values.n_bytes = values.n_stored;
    values.memory = rc == CKPT_OK ? ckpt_arena_alloc(w->map->arena, sizeof alpha) : NULL;
    if (rc == CKPT_OK && !values.memory)
        rc = ckpt_fail_memory(w->err);
    if (rc != CKPT_OK)
        return rc;
    cast(values.memory, &alpha, 1);
    rc = ckpt_map_add_hidden(w->map, name, strlen(name), &of, &made, w->err);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_source(w->map, &values, &source, w->err);
    if (rc == CKPT_OK)
        rc = ckpt_map_back_whole(w->map, made, source, 0, w->err);
    *slot = made;
    return rc;
}
