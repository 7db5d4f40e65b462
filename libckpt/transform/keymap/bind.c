/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bind.c: computes the sizes of a rule's names, from the layout map and from the shapes of the
 * source.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/transform/keymap/instance.h"

static const char *bind_name(const ckpt_rm_instance *in, uint32_t name)
{
    return name < in->f->r->names.n ? in->f->r->names.at[name] : "...";
}

/* ---- views ---- */

/* Find the axes of `...`, from the first tensor of a term that has it. */
static int bind_rest(ckpt_rm_instance *in, const ckpt_rm_member *m, ckpt_err *err)
{
    const ckpt_rm_term *t = &in->rule->term[in->from].at[m->term];

    for (uint32_t i = 0; i < t->n_atoms; i++) {
        if (!t->atom[i].rest)
            continue;
        if (m->t->ndim + 1 < t->n_axes)
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "%s:%u: '%.200s' has %" PRIu32
                             " axes, but the rule expects at least %" PRIu32,
                             in->f->r->name, in->rule->line, m->t->name, m->t->ndim, t->n_axes - 1);
        in->n_rest = m->t->ndim + 1 - t->n_axes;
        return CKPT_OK;
    }
    return CKPT_OK;
}

/* Make the view of a term: its atoms, with `...` expanded to named axes. */
static int bind_view(ckpt_rm_instance *in, const ckpt_rm_term *t, ckpt_rm_view *v, ckpt_err *err)
{
    uint32_t shift = 0; // number of axes by which `...` moves the next atoms

    v->n_atoms = 0;
    for (uint32_t i = 0; i < t->n_atoms; i++) {
        uint32_t n = t->atom[i].rest ? in->n_rest : 1;
        for (uint32_t k = 0; k < n; k++) {
            if (v->n_atoms == CKPT_MAX_DIM)
                return ckpt_fail(err, CKPT_EMISMATCH, "%s:%u: more than %u axes", in->f->r->name,
                                 in->rule->line, CKPT_MAX_DIM);
            ckpt_rm_atom *a = &v->atom[v->n_atoms++];
            *a = t->atom[i];
            a->axis += shift + k;
            if (t->atom[i].rest) {
                in->rest[k] = CKPT_RM_NAMES + k;
                *a = (ckpt_rm_atom){.n_parts = 1, .axis = a->axis, .part = &in->rest[k]};
            }
        }
        if (t->atom[i].rest)
            shift = in->n_rest - 1;
    }
    v->n_axes = t->n_axes + shift;
    return CKPT_OK;
}

/* ---- sizes ---- */

/* True if a part of the atom is padding; the other parts then may have any size. */
static bool bind_padded(const ckpt_rm_instance *in, const ckpt_rm_atom *a)
{
    for (uint32_t p = 0; p < a->n_parts; p++) {
        const ckpt_rm_line *line =
            a->part[p] < CKPT_RM_NAMES ? ckpt_rm_size(in->f->r, a->part[p]) : NULL;
        if (line && line->padding)
            return true;
    }
    return false;
}

/* Take the size of a name from the layout map; unknown parts of fused axes have one element. */
static int bind_first(ckpt_rm_instance *in, uint32_t name, bool fused, ckpt_err *err)
{
    uint64_t size;
    int rc = CKPT_OK;

    if (in->size[name] != CKPT_RM_UNKNOWN || name >= CKPT_RM_NAMES)
        return rc;
    rc = ckpt_rm_size_of(in->f, name, &size, err);
    if (rc == CKPT_OK && size == CKPT_RM_UNKNOWN && fused && !ckpt_rm_size(in->f->r, name))
        size = 1;
    if (rc == CKPT_OK)
        in->size[name] = size;
    return rc;
}

static int bind_known(ckpt_rm_instance *in, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (unsigned side = 0; side < 2; side++) {
        for (size_t k = 0; k < in->rule->term[side].n; k++) {
            const ckpt_rm_view *v = &in->view[side][k];
            for (uint32_t i = 0; i < v->n_atoms; i++) {
                const ckpt_rm_atom *a = &v->atom[i];
                for (uint32_t p = 0; rc == CKPT_OK && p < a->n_parts; p++)
                    rc = bind_first(in, a->part[p], a->n_parts > 1 && !bind_padded(in, a), err);
            }
        }
    }
    return rc;
}

/* Compute the size of an atom; *open: its only unknown part; false: several are unknown. */
static bool bind_atom(const ckpt_rm_instance *in, const ckpt_rm_atom *a, uint64_t *size,
                      uint32_t *open)
{
    *size = a->n_parts == 0;
    for (uint32_t p = 0; p < a->n_parts; p++) {
        uint64_t n = in->size[a->part[p]];
        if (n == CKPT_RM_UNKNOWN && *open != CKPT_RM_NO_NAME)
            return false;
        if (n == CKPT_RM_UNKNOWN)
            *open = a->part[p];
        else if (!ckpt_add(*size, n, size))
            return false;
    }
    return true;
}

/* Refuse an axis that does not divide evenly, or with another size than the tensor's. */
static int bind_misfit(const ckpt_rm_instance *in, const ckpt_rm_member *m, uint32_t axis,
                       uint64_t size, ckpt_err *err)
{
    const ckpt_rm_view *v = &in->view[in->from][m->term];
    char text[256];
    size_t n = 0;

    text[0] = 0;
    for (uint32_t i = 0; i < v->n_atoms && n < sizeof text - 64; i++) {
        const ckpt_rm_atom *a = &v->atom[i];
        for (uint32_t p = 0; a->axis == axis && p < a->n_parts && n < sizeof text - 64; p++) {
            uint64_t known = in->size[a->part[p]];
            int k = known == CKPT_RM_UNKNOWN
                        ? snprintf(text + n, sizeof text - n, "%s%.30s", n ? ", " : "",
                                   bind_name(in, a->part[p]))
                        : snprintf(text + n, sizeof text - n, "%s%.30s = %" PRIu64, n ? ", " : "",
                                   bind_name(in, a->part[p]), known);
            n += k > 0 ? (size_t)k : 0;
        }
    }
    if (size == CKPT_RM_UNKNOWN)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "%s:%u: '%.150s': its axis %" PRIu32 " has %" PRIu64
                         " elements, which cannot be split into %s",
                         in->f->r->name, in->rule->line, m->t->name, axis, m->t->shape[axis], text);
    return ckpt_fail(err, CKPT_EMISMATCH,
                     "%s:%u: '%.150s': its axis %" PRIu32 " has %" PRIu64
                     " elements, but the rule expects %" PRIu64 " (%s)",
                     in->f->r->name, in->rule->line, m->t->name, axis, m->t->shape[axis], size,
                     text);
}

/*
 * Check one axis of a source: a single unknown size follows from the others; *progress: it did. An
 * axis with only known sizes must match.
 */
static int bind_axis(ckpt_rm_instance *in, const ckpt_rm_member *m, uint32_t axis, bool *progress,
                     ckpt_err *err)
{
    const ckpt_rm_view *v = &in->view[in->from][m->term];
    uint64_t product = 1, size, beside = 0, want = m->t->shape[axis];
    uint32_t open = CKPT_RM_NO_NAME;

    for (uint32_t i = 0; i < v->n_atoms; i++) {
        uint32_t before = open;
        if (v->atom[i].axis != axis)
            continue;
        if (!bind_atom(in, &v->atom[i], &size, &open))
            return CKPT_OK;
        if (open != before)
            beside = size; // known parts beside the unknown one
        else if (!ckpt_mul(product, size, &product))
            return bind_misfit(in, m, axis, CKPT_RM_UNKNOWN, err);
    }
    if (open == CKPT_RM_NO_NAME)
        return product == want ? CKPT_OK : bind_misfit(in, m, axis, product, err);
    if (product == 0 || want % product != 0 || want / product < beside)
        return bind_misfit(in, m, axis, CKPT_RM_UNKNOWN, err);
    in->size[open] = want / product - beside;
    *progress = true;
    return CKPT_OK;
}

/* Set padding that has no size in the layout map or in a shape to 0. */
static bool bind_padding(ckpt_rm_instance *in)
{
    bool progress = false;

    for (size_t i = 0; i < in->f->r->sizes.n; i++) {
        const ckpt_rm_line *line = &in->f->r->sizes.at[i];
        if (line->padding && in->size[line->name] == CKPT_RM_UNKNOWN) {
            in->size[line->name] = 0;
            progress = true;
        }
    }
    return progress;
}

static int bind_axes(ckpt_rm_instance *in, bool *progress, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < in->member[in->from].n; i++) {
        const ckpt_rm_member *m = &in->member[in->from].at[i];
        const ckpt_rm_view *v = &in->view[in->from][m->term];
        if (m->t->ndim != v->n_axes)
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "%s:%u: '%.200s' has %" PRIu32 " axes, but the rule expects %" PRIu32,
                             in->f->r->name, in->rule->line, m->t->name, m->t->ndim, v->n_axes);
        // terms of rows have only some of the first axis; ckpt_rm_rows checks their sum
        const bool rows = ckpt_rm_is_rows(&in->rule->term[in->from], m->term);
        for (uint32_t axis = rows; rc == CKPT_OK && axis < v->n_axes; axis++)
            rc = bind_axis(in, m, axis, progress, err);
    }
    return rc;
}

/* Compute the sizes of all axes of a term's view; every name must have a size by now. */
static int bind_finish(ckpt_rm_instance *in, unsigned side, size_t term, ckpt_err *err)
{
    ckpt_rm_view *v = &in->view[side][term];

    for (uint32_t i = 0; i < v->n_atoms; i++) {
        uint32_t open = CKPT_RM_NO_NAME;
        bool ok = bind_atom(in, &v->atom[i], &v->size[i], &open);
        if (open != CKPT_RM_NO_NAME)
            return ckpt_fail(err, CKPT_EMISSING,
                             "%s:%u: the size %.60s in '%.100s' is unknown; set it with --size "
                             "%.60s=NUMBER%s",
                             in->f->r->name, in->rule->line, bind_name(in, open),
                             in->rule->term[side].at[term].text, bind_name(in, open),
                             in->f->lora ? ", or name the base model's config.json with --config"
                                         : "");
        if (!ok)
            return ckpt_fail(err, CKPT_ELIMIT, "%s:%u: the product of the sizes overflows",
                             in->f->r->name, in->rule->line);
    }
    return CKPT_OK;
}

int ckpt_rm_bind(ckpt_rm_instance *in, ckpt_err *err)
{
    bool progress = true;
    int rc = CKPT_OK;

    in->n_rest = 0;
    for (size_t i = 0; rc == CKPT_OK && i < in->member[in->from].n; i++)
        rc = bind_rest(in, &in->member[in->from].at[i], err);
    for (unsigned side = 0; side < 2; side++) {
        for (size_t k = 0; rc == CKPT_OK && k < in->rule->term[side].n; k++)
            rc = bind_view(in, &in->rule->term[side].at[k], &in->view[side][k], err);
    }
    for (uint32_t k = 0; k < in->n_rest; k++)
        in->size[CKPT_RM_NAMES + k] = CKPT_RM_UNKNOWN;
    if (rc == CKPT_OK)
        rc = bind_known(in, err);
    while (rc == CKPT_OK && progress) {
        progress = false;
        rc = bind_axes(in, &progress, err);
        if (rc == CKPT_OK && !progress)
            progress = bind_padding(in);
    }
    for (unsigned side = 0; side < 2; side++) {
        for (size_t k = 0; rc == CKPT_OK && k < in->rule->term[side].n; k++)
            rc = bind_finish(in, side, k, err);
    }
    return rc == CKPT_OK ? ckpt_rm_rows(in, in->from, err) : rc;
}
