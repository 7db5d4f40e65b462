/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rename.c: gives a diffusion model's LoRA the names of another program.
 */
#include <assert.h>
#include <string.h>

#include "ckpt_shape.h"
#include "formats/peft/diffusion/lora.h"
#include "libckpt/map/savepoint.h"

static int dre_name(ckpt_dl_work *w, ckpt_tensor *t, const char *base, ckpt_dl_end end)
{
    if (t)
        t->name = ckpt_dl_name(w, base, end);
    return !t || t->name ? CKPT_OK : ckpt_fail_memory(w->err);
}

/* A tensor without a name is dropped at the end. */
static void dre_drop(ckpt_tensor *t)
{
    if (t)
        t->name = NULL;
}

static void dre_drop_module(const ckpt_dl_module *m)
{
    dre_drop(m->down);
    dre_drop(m->up);
    dre_drop(m->scalar);
}

/* Rename a module that is one module in both spellings. */
static int dre_one(ckpt_dl_work *w, const ckpt_dl_module *m, const char *base)
{
    const bool diffusers = w->to == CKPT_DL_DIFFUSERS;
    const bool crosses = diffusers != (w->from == CKPT_DL_DIFFUSERS);
    int rc = CKPT_OK;

    if (diffusers)
        rc = ckpt_dl_target_add(w, base, m->down->shape[0], m->alpha);
    else if (!m->scalar && w->from == CKPT_DL_DIFFUSERS)
        rc = ckpt_dl_scalar(w, base, m->alpha, m->down);
    if (rc == CKPT_OK)
        rc = dre_name(w, m->down, base, CKPT_DL_DOWN);
    if (rc == CKPT_OK)
        rc = dre_name(w, m->up, base, CKPT_DL_UP);
    if (rc == CKPT_OK && crosses && m->row->swap) {
        rc = ckpt_dl_swap(w, m);
        dre_drop(m->up);
    }
    if (diffusers)
        dre_drop(m->scalar);
    else if (rc == CKPT_OK)
        rc = dre_name(w, m->scalar, base, CKPT_DL_ALPHA);
    return rc;
}

/* Rename module i; *n is the number of modules that were done with it. */
static int dre_module(ckpt_dl_work *w, size_t i, uint32_t *n)
{
    const ckpt_dl_module *m = &w->modules.at[i];
    const ckpt_dl_row *r = m->row;
    const bool diffusers = w->to == CKPT_DL_DIFFUSERS;
    int rc;

    *n = 1;
    if (diffusers && !r->part[0])
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "tensor %.200s: diffusers loads no LoRA of the text encoder T5: leave its "
                         "tensors out (--exclude 'lora_te3_*', or 'text_encoders.t5xxl.*')",
                         m->down->name);
    if (diffusers && m->part == CKPT_DL_WHOLE) {
        rc = ckpt_dl_split(w, m);
        dre_drop_module(m);
        return rc;
    }
    if (diffusers)
        return dre_one(w, m, r->part[m->part]);
    if (m->part == CKPT_DL_WHOLE || r->n_parts == 1)
        return dre_one(w, m, w->to == CKPT_DL_KOHYA ? r->kohya : r->comfyui);
    while (i + *n < w->modules.n && m[*n].row == r)
        (*n)++;
    rc = ckpt_dl_join(w, m, *n);
    for (uint32_t k = 0; k < *n; k++)
        dre_drop_module(&m[k]);
    return rc;
}

/* Drop the tensors without names, and add the new ones. */
static int dre_list(ckpt_dl_work *w)
{
    ckpt_map *map = w->map;
    size_t n = 0;
    int rc;

    for (size_t i = 0; i < map->tensors.n; i++) {
        if (map->tensors.at[i]->name)
            map->tensors.at[n++] = map->tensors.at[i];
    }
    map->tensors.n = n;
    rc = ckpt_map_reindex(map, w->err);
    for (size_t i = 0; rc == CKPT_OK && i < w->made.n; i++)
        rc = ckpt_map_append(map, w->made.at[i], w->err);
    return rc;
}

int ckpt_dl_rename(ckpt_dl_work *w, ckpt_dl_family family)
{
    assert(w && w->map);
    int rc = ckpt_dl_read(w, family);
    uint32_t n = 1;

    if (rc == CKPT_OK && w->from == CKPT_DL_DIFFUSERS)
        rc = ckpt_dl_alphas_read(w);
    for (size_t i = 0; rc == CKPT_OK && i < w->modules.n; i += n)
        rc = dre_module(w, i, &n);
    return rc == CKPT_OK ? dre_list(w) : rc;
}

void ckpt_dl_free(ckpt_dl_work *w)
{
    ckpt_dl_table_free(&w->table);
    ckpt_vec_free(&w->modules);
    ckpt_vec_free(&w->made);
    ckpt_vec_free(&w->targets);
}

/* Change the map; a failure leaves it half changed. */
static int dre_change(ckpt_dl_work *w, ckpt_dl_family family)
{
    int rc = ckpt_dl_rename(w, family);

    if (rc == CKPT_OK)
        rc = ckpt_dl_alphas_write(w);
    return rc == CKPT_OK
               ? ckpt_map_fact(w->map, w->err, "LoRA names", "%s, from %s to %s: %zu modules",
                               ckpt_dl_family_name(w->family), ckpt_dl_style_name(w->from),
                               ckpt_dl_style_name(w->to), w->modules.n)
               : rc;
}

/* Read "kohya" or "kohya:sdxl". */
static int dre_names(const char *text, ckpt_dl_style *style, ckpt_dl_family *family, ckpt_err *err)
{
    const size_t n = strcspn(text, ":");
    unsigned s = 0, f = 0;

    while (s < CKPT_DL_N_STYLES && (strlen(ckpt_dl_style_name((ckpt_dl_style)s)) != n ||
                                    memcmp(ckpt_dl_style_name((ckpt_dl_style)s), text, n) != 0))
        s++;
    while (f < CKPT_DL_N_FAMILIES &&
           (!text[n] || strcmp(ckpt_dl_family_name((ckpt_dl_family)f), text + n + 1) != 0))
        f++;
    *style = (ckpt_dl_style)s;
    *family = (ckpt_dl_family)f;
    if (s == CKPT_DL_N_STYLES || (text[n] && f == CKPT_DL_N_FAMILIES))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "LoRA names '%.60s': expected kohya, diffusers or comfyui, perhaps with "
                         "the model: kohya:sd, kohya:sdxl, kohya:flux",
                         text);
    return CKPT_OK;
}

int ckpt_map_lora_names(ckpt_map *map, const char *names, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_dl_work w = {.map = map, .zeros = UINT32_MAX, .err = err};
    ckpt_dl_family family = CKPT_DL_N_FAMILIES;
    ckpt_savepoint *saved = NULL;
    int rc = map && names
                 ? dre_names(names, &w.to, &family, err)
                 : ckpt_fail(err, CKPT_EUSAGE, "ckpt_map_lora_names needs a map and names");

    if (rc == CKPT_OK)
        rc = ckpt_savepoint_new(&saved, map, err);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_end(saved, dre_change(&w, family));
    ckpt_dl_free(&w);
    return rc;
}
