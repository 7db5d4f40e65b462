/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.c: finds the modules of a diffusion LoRA by its tensors' names.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/peft/diffusion/lora.h"
#include "libckpt/map/extent.h"

/* A tensor's name: the module, n bytes, and the part of it that the tensor is. */
typedef struct dr_name {
    const char *module;
    size_t n;
    ckpt_dl_end end;
} dr_name;

/* ---- names ---- */

/* The kind of another adapter than LoRA, by a part of the tensor's name; NULL: none is known. */
static const char *dr_other_kind(const char *name)
{
    static const struct {
        const char *part, *kind;
    } known[] = {{".dora_scale", "DoRA"},      {".lora_magnitude_vector", "DoRA"},
                 {".hada_", "LoHa"},           {".lokr_", "LoKr"},
                 {".lora_mid.", "LoCon's CP"}, {".lora_B.bias", "LoRA with a bias"},
                 {".diff", "a full update"},   {".oft_", "OFT"},
                 {".w_norm", "a norm"},        {".a1.weight", "GLoRA"}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strstr(name, known[i].part))
            return known[i].kind;
    }
    return NULL;
}

static bool dr_parse(dr_name *out, const char *name)
{
    static const struct {
        const char *text;
        ckpt_dl_end end;
    } known[] = {{".lora_down.weight", CKPT_DL_DOWN},
                 {".lora_up.weight", CKPT_DL_UP},
                 {".alpha", CKPT_DL_ALPHA},
                 {".lora_A.weight", CKPT_DL_DOWN},
                 {".lora_B.weight", CKPT_DL_UP},
                 {".lora.down.weight", CKPT_DL_DOWN},
                 {".lora.up.weight", CKPT_DL_UP},
                 {".lora_linear_layer.down.weight", CKPT_DL_DOWN},
                 {".lora_linear_layer.up.weight", CKPT_DL_UP}};
    const size_t n = strlen(name);

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t m = strlen(known[i].text);

        if (n > m && strcmp(name + n - m, known[i].text) == 0) {
            *out = (dr_name){name, n - m, known[i].end};
            return true;
        }
    }
    return false;
}

/* Find the spelling of all names. */
static int dr_style(ckpt_dl_work *w)
{
    const ckpt_map *map = w->map;
    const char *first = NULL;
    dr_name name;

    for (size_t i = 0; i < map->tensors.n; i++) {
        const char *text = map->tensors.at[i]->name;
        const ckpt_dl_style style = ckpt_dl_style_of(text);
        const char *kind = dr_other_kind(text);

        if (style == CKPT_DL_N_STYLES)
            return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                             "tensor %.200s: expected names of a diffusion LoRA, which begin with "
                             "lora_unet_ (kohya), unet. or transformer. (diffusers), or "
                             "diffusion_model. (ComfyUI)",
                             text);
        if (kind)
            return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                             "tensor %.200s: this adapter is %s, and ckpt reads only LoRA", text,
                             kind);
        if (!dr_parse(&name, text))
            return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                             "tensor %.200s: expected a name that ends in .lora_down.weight, "
                             ".lora_up.weight, .alpha, .lora_A.weight or .lora_B.weight",
                             text);
        if (first && style != w->from)
            return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                             "tensor %.150s has a name of %s, but %.150s one of %s: an adapter has "
                             "names of one program",
                             text, ckpt_dl_style_name(style), first, ckpt_dl_style_name(w->from));
        first = first ? first : text;
        w->from = style;
    }
    return first ? CKPT_OK : ckpt_fail(w->err, CKPT_EMISSING, "%s: holds no tensors", map->path);
}

/* ---- the model ---- */

/* Count the tensors of modules in the model; *odd: the first other one, or NULL. */
static size_t dr_known(const ckpt_map *map, const ckpt_dl_table *t, const char **odd)
{
    size_t n = 0;
    dr_name name;

    *odd = NULL;
    for (size_t i = 0; i < map->tensors.n; i++) {
        const char *text = map->tensors.at[i]->name;

        if (dr_parse(&name, text) && ckpt_dl_find(t, name.module, name.n))
            n++;
        else if (!*odd)
            *odd = text;
    }
    return n;
}

/* The name of a row, or of its part, in a spelling. */
static const char *dr_spelled(const ckpt_dl_table *t, const ckpt_dl_entry *e, ckpt_dl_style style)
{
    const ckpt_dl_row *r = &t->rows.at[e->row];
    const char *part = r->part[e->part == CKPT_DL_WHOLE ? 0 : e->part];

    return style == CKPT_DL_KOHYA ? r->kohya : style == CKPT_DL_COMFYUI ? r->comfyui : part;
}

/* Find a tensor with different new names in two models; both have all modules. */
static const char *dr_differs(const ckpt_dl_work *w, const ckpt_dl_table *a, const ckpt_dl_table *b)
{
    dr_name name;

    for (size_t i = 0; i < w->map->tensors.n; i++) {
        const char *text = w->map->tensors.at[i]->name;
        const ckpt_dl_entry *ea, *eb;

        if (!dr_parse(&name, text))
            continue;
        ea = ckpt_dl_find(a, name.module, name.n);
        eb = ckpt_dl_find(b, name.module, name.n);
        if (!ea || !eb)
            continue;
        const char *sa = dr_spelled(a, ea, w->to), *sb = dr_spelled(b, eb, w->to);
        if (!sa || !sb || strcmp(sa, sb) != 0)
            return text;
    }
    return NULL;
}

/* The models that an adapter may belong to. */
typedef struct dr_choice {
    ckpt_dl_table table[CKPT_DL_N_FAMILIES];
    size_t known[CKPT_DL_N_FAMILIES];
    const char *odd[CKPT_DL_N_FAMILIES]; /* a tensor that the model does not have */
} dr_choice;

/* Choose among the models that have all modules. */
static int dr_choose(ckpt_dl_work *w, const dr_choice *c, int *best)
{
    int most = 0;

    *best = -1;
    for (int f = 0; f < CKPT_DL_N_FAMILIES; f++) {
        most = c->known[f] > c->known[most] ? f : most;
        if (c->known[f] == 0 || c->odd[f])
            continue;
        const char *text = *best < 0 ? NULL : dr_differs(w, &c->table[*best], &c->table[f]);
        if (text)
            return ckpt_fail(w->err, CKPT_EUSAGE,
                             "tensor %.200s: %s and %s have all modules of this adapter, and their "
                             "names differ: give the model, as in %s:%s",
                             text, ckpt_dl_family_name((ckpt_dl_family)*best),
                             ckpt_dl_family_name((ckpt_dl_family)f), ckpt_dl_style_name(w->to),
                             ckpt_dl_family_name((ckpt_dl_family)f));
        *best = *best < 0 ? f : *best;
    }
    if (*best >= 0)
        return CKPT_OK;
    return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                     "tensor %.200s: %s has no such module (known models: sd, sdxl, flux; this one "
                     "has %zu of the %zu tensors)",
                     c->odd[most], ckpt_dl_family_name((ckpt_dl_family)most), c->known[most],
                     w->map->tensors.n);
}

static int dr_family(ckpt_dl_work *w, ckpt_dl_family given)
{
    dr_choice c = {0};
    int rc = CKPT_OK, best = -1;

    for (int f = 0; rc == CKPT_OK && f < CKPT_DL_N_FAMILIES; f++) {
        if (given != CKPT_DL_N_FAMILIES && (int)given != f)
            continue;
        rc = ckpt_dl_table_make(&c.table[f], w->map->arena, (ckpt_dl_family)f, w->err);
        if (rc == CKPT_OK)
            c.known[f] = dr_known(w->map, &c.table[f], &c.odd[f]);
    }
    if (rc == CKPT_OK && given != CKPT_DL_N_FAMILIES && c.odd[given])
        rc = ckpt_fail(w->err, CKPT_EUNSUPPORTED, "tensor %.200s: %s has no such module",
                       c.odd[given], ckpt_dl_family_name(given));
    if (rc == CKPT_OK)
        rc = dr_choose(w, &c, &best);
    for (int f = 0; f < CKPT_DL_N_FAMILIES; f++) {
        if (rc == CKPT_OK && f == best)
            w->table = c.table[f];
        else
            ckpt_dl_table_free(&c.table[f]);
    }
    w->family = best < 0 ? CKPT_DL_N_FAMILIES : (ckpt_dl_family)best;
    return rc;
}

/* ---- modules ---- */

/* The module of a tensor's name, new or known; slot has an entry for each row and part. */
static ckpt_dl_module *dr_module(ckpt_dl_work *w, uint32_t *slot, const dr_name *name)
{
    const ckpt_dl_entry *e = ckpt_dl_find(&w->table, name->module, name->n);
    const uint32_t part = e && e->part == CKPT_DL_WHOLE ? CKPT_DL_PARTS : e ? e->part : 0;
    uint32_t *at = e ? &slot[(size_t)e->row * (CKPT_DL_PARTS + 1) + part] : NULL;
    ckpt_dl_module *m;

    if (!e)
        return NULL;
    if (*at > 0)
        return &w->modules.at[*at - 1];
    m = ckpt_vec_push(&w->modules);
    if (!m)
        return NULL;
    *at = (uint32_t)w->modules.n;
    m->row = &w->table.rows.at[e->row];
    m->part = e->part;
    return m;
}

static int dr_take(ckpt_dl_work *w, uint32_t *slot, ckpt_tensor *t)
{
    dr_name name;
    ckpt_dl_module *m = dr_parse(&name, t->name) ? dr_module(w, slot, &name) : NULL;

    if (!m)
        return ckpt_fail_memory(w->err);
    ckpt_tensor **place = name.end == CKPT_DL_DOWN ? &m->down
                          : name.end == CKPT_DL_UP ? &m->up
                                                   : &m->scalar;
    if (*place)
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "tensors %.200s and %.200s are the same part of one module",
                         (*place)->name, t->name);
    // the owner of shared bytes gets another name
    if (t->owner) {
        ckpt_extent_share(t, t->owner);
        t->twin = t->owner->twin;
        t->addend = t->owner->addend;
        t->owner = NULL;
    }
    *place = t;
    return CKPT_OK;
}

/* Check that a module has two factors of one rank. */
static int dr_check(const ckpt_dl_work *w, const ckpt_dl_module *m)
{
    const ckpt_tensor *any = m->down ? m->down : m->up ? m->up : m->scalar;

    if (!m->down || !m->up)
        return ckpt_fail(w->err, CKPT_EMISSING, "tensor %.200s: %s of this module is missing",
                         any->name, m->down ? "lora_up (lora_B)" : "lora_down (lora_A)");
    if (m->down->ndim < 2 || m->up->ndim != m->down->ndim || m->down->shape[0] == 0 ||
        m->up->shape[1] != m->down->shape[0])
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "tensors %.200s and %.200s are not factors of one rank", m->down->name,
                         m->up->name);
    for (uint32_t i = 2; i < m->up->ndim; i++) {
        if (m->up->shape[i] != 1)
            return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                             "tensor %.200s: expected a convolution of 1x1", m->up->name);
    }
    return CKPT_OK;
}

/* Read a module's alpha; without one it is the rank. */
static int dr_alpha(ckpt_dl_work *w, ckpt_dl_module *m)
{
    const ckpt_tensor *t = m->scalar;
    double wide = 0;
    float value = 0;
    int rc;

    m->alpha = (double)m->down->shape[0];
    if (!t)
        return CKPT_OK;
    if (t->n_elems != 1)
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "tensor %.200s has %" PRIu64 " elements, expected 1", t->name, t->n_elems);
    rc = t->dtype == CKPT_F64 ? ckpt_tensor_read(w->map, t, CKPT_F64, &wide, w->err)
                              : ckpt_tensor_read(w->map, t, CKPT_F32, &value, w->err);
    m->alpha = t->dtype == CKPT_F64 ? wide : (double)value;
    if (rc == CKPT_OK && !isfinite(m->alpha))
        rc = ckpt_fail(w->err, CKPT_EFORMAT, "tensor %.200s is not a finite number", t->name);
    return rc;
}

/* For qsort: by row and part. */
static int dr_order(const void *pa, const void *pb)
{
    const ckpt_dl_module *a = pa, *b = pb;

    if (a->row != b->row)
        return a->row < b->row ? -1 : 1;
    return a->part == b->part ? 0 : a->part < b->part ? -1 : 1;
}

static int dr_modules(ckpt_dl_work *w)
{
    uint32_t *slot = ckpt_alloc(w->table.rows.n * (CKPT_DL_PARTS + 1) * sizeof *slot);
    int rc = slot ? CKPT_OK : ckpt_fail_memory(w->err);

    for (size_t i = 0; rc == CKPT_OK && i < w->map->tensors.n; i++)
        rc = dr_take(w, slot, w->map->tensors.at[i]);
    ckpt_free(slot);
    for (size_t i = 0; rc == CKPT_OK && i < w->modules.n; i++) {
        rc = dr_check(w, &w->modules.at[i]);
        if (rc == CKPT_OK)
            rc = dr_alpha(w, &w->modules.at[i]);
    }
    if (rc == CKPT_OK)
        qsort(w->modules.at, w->modules.n, sizeof *w->modules.at, dr_order);
    return rc;
}

int ckpt_dl_read(ckpt_dl_work *w, ckpt_dl_family family)
{
    assert(w && w->map);
    int rc = dr_style(w);

    if (rc == CKPT_OK)
        rc = dr_family(w, family);
    return rc == CKPT_OK ? dr_modules(w) : rc;
}
