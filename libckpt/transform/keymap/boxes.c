/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boxes.c: intersects the tensors of both sides as boxes: computes extents of the target, and
 * checks that each element is used exactly once.
 *
 * A tensor is viewed with one axis per atom of its term. Two tensors intersect in a box of these
 * axes (in several if parts of a fused axis have another order), and the strides of a source are
 * those of its atoms. If a target's atoms fold into its own axes, it gets the boxes directly; if
 * they would become too many boxes, it is made from a hidden tensor with the atoms as axes.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/cast.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/nest.h"
#include "libckpt/map/slices.h"
#include "libckpt/transform/keymap/instance.h"

/* The most boxes that one box may become before a hidden tensor is used. */
#define BOX_MAX_SPLIT 16u

/* ---- the place of a source ---- */

/* Compute the strides of a tensor with one extent; false: it needs several. */
static bool box_affine(ckpt_rm_member *m, const ckpt_tensor *t, unsigned bytes)
{
    ckpt_box room;
    const ckpt_extent *e = t->n_extents == 1 ? ckpt_extent_of(t, 0, &room) : NULL;
    uint64_t by;

    if (!e || t->twin || t->addend || (t->flags & (CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG)))
        return false;
    m->source = e->source;
    m->at = e->at;
    if (e->ndim != 1 || t->ndim == 1) {
        for (uint32_t a = 0; a < t->ndim; a++)
            m->stride[a] = (uint64_t)e->axis[a].stride;
        return e->ndim == t->ndim;
    }
    by = (uint64_t)e->axis[0].stride;
    if (by != bytes)
        return false;
    for (uint32_t a = t->ndim; a-- > 0;) {
        m->stride[a] = by;
        if (!ckpt_mul(by, t->shape[a], &by))
            return false;
    }
    return true;
}

/* An operation that unpacks the elements of a packed tensor (F4 ...). */
typedef struct box_unpack {
    ckpt_make make;
    const ckpt_tensor *input[1];
} box_unpack;

static int box_make_unpacked(const ckpt_make *m, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                             ckpt_err *err)
{
    return in->read(in, m->input[0], &(const ckpt_axis){at, n, 0}, m->dtype, to, err);
}

/* Add a source with the unpacked elements of a tensor. */
static int box_add_unpacked(ckpt_rm_instance *in, const ckpt_tensor *t, uint32_t *source,
                            ckpt_err *err)
{
    box_unpack *u = ckpt_arena_alloc(in->map->arena, sizeof *u);

    if (!u)
        return ckpt_fail_memory(err);
    u->input[0] = t;
    u->make = (ckpt_make){.name = t->name,
                          .dtype = ckpt_rm_dtype(in, t),
                          .n_inputs = 1,
                          .input = u->input,
                          .make = box_make_unpacked};
    return ckpt_map_add_made(in->map, &u->make, t->n_elems, source, err);
}

/* The only name of a term's last axis; NO_NAME: the axis has several, or parts. */
static uint32_t box_row(const ckpt_rm_view *v)
{
    const ckpt_rm_atom *last = v->n_atoms > 0 ? &v->atom[v->n_atoms - 1] : NULL;

    if (!last || last->n_parts != 1 || last->axis + 1 != v->n_axes ||
        (v->n_atoms > 1 && v->atom[v->n_atoms - 2].axis == last->axis))
        return CKPT_RM_NO_NAME;
    return last->part[0];
}

bool ckpt_rm_keeps_rows(const ckpt_rm_instance *in)
{
    const ckpt_rm_members *from = &in->member[in->from];
    uint32_t row = box_row(&in->view[in->from][0]);

    // blocks of two types cannot be one tensor, but floats of both can
    for (size_t i = 1; i < from->n; i++) {
        if (from->at[i].t->dtype != from->at[0].t->dtype)
            return false;
    }
    for (unsigned side = 0; side < 2; side++) {
        for (size_t k = 0; k < in->rule->term[side].n; k++) {
            if (box_row(&in->view[side][k]) != row || in->rule->term[side].at[k].follows)
                return false;
        }
    }
    return row != CKPT_RM_NO_NAME && in->f->r->keeps_blocks[in->from];
}

ckpt_dtype ckpt_rm_dtype(const ckpt_rm_instance *in, const ckpt_tensor *t)
{
    return ckpt_dtype_packed(t->dtype) && !in->blocks ? CKPT_F32 : t->dtype;
}

bool ckpt_rm_one_dtype(const ckpt_tensor *a, const ckpt_tensor *b, bool unpacked)
{
    const bool pa = ckpt_dtype_packed(a->dtype), pb = ckpt_dtype_packed(b->dtype);

    if (unpacked && (pa || pb))
        return (pa || a->dtype == CKPT_F32) && (pb || b->dtype == CKPT_F32);
    return a->dtype == b->dtype && a->export_dtype == b->export_dtype;
}

/*
 * Set the strides of a dense tensor. Blocks have no stride in their row; *whole: rows are whole
 * blocks.
 */
static bool box_dense(ckpt_rm_member *m, const ckpt_tensor *t, ckpt_dtype dtype, bool *whole)
{
    const ckpt_dtype_info *type = ckpt_dtype_get(dtype);
    uint64_t by = type->bytes, n;

    m->at = 0;
    *whole = true;
    for (uint32_t a = t->ndim; a-- > 0;) {
        n = t->shape[a];
        m->stride[a] = by;
        if (type->per > 1 && a + 1 == t->ndim) {
            m->stride[a] = 0;
            *whole = n % type->per == 0;
            n /= type->per;
        }
        if (!ckpt_mul(by, n, &by))
            return false;
    }
    return true;
}

int ckpt_rm_place(ckpt_rm_instance *in, ckpt_rm_member *m, ckpt_err *err)
{
    const ckpt_tensor *t = m->t->owner ? m->t->owner : m->t;
    const ckpt_dtype dtype = ckpt_rm_dtype(in, t);
    bool whole = true;

    if (dtype != t->dtype && !ckpt_cast_find(dtype, t->dtype))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s:%u: '%.150s' has elements of %s, which can be renamed, but not cut or "
                         "transposed",
                         in->f->r->name, in->rule->line, t->name, ckpt_dtype_name(t->dtype));
    const bool affine =
        !ckpt_dtype_packed(t->dtype) && box_affine(m, t, ckpt_dtype_get(dtype)->bits / 8);
    if (!affine && !box_dense(m, t, dtype, &whole))
        return ckpt_fail(err, CKPT_ELIMIT, "tensor '%.200s': too large", t->name);
    if (!whole)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "%s:%u: '%.150s' has rows that do not end with a block of %s",
                         in->f->r->name, in->rule->line, t->name, ckpt_dtype_name(dtype));
    m->at += m->row * (t->ndim ? m->stride[0] : 0);
    if (affine)
        return CKPT_OK;
    return dtype != t->dtype ? box_add_unpacked(in, t, &m->source, err)
                             : ckpt_map_add_nested(in->map, t, &m->source, err);
}

/* ---- two members ---- */

/* A box of elements that two tensors have in common, in coordinates of the atoms of each. */
typedef struct box_common {
    uint64_t at[2][CKPT_MAX_DIM],
        count[2][CKPT_MAX_DIM]; /* [0]: in the first tensor, [1]: in the second */
    /* per atom of the first: the atom of the second with the same elements, or UINT32_MAX */
    uint32_t along[CKPT_MAX_DIM];
} box_common;

typedef int (*box_fn)(void *ctx, const box_common *box, ckpt_err *err);

/* A range of an atom that corresponds to a range of another tensor's atom. */
typedef struct box_run {
    uint64_t at, count; /* start and length on this atom */
    uint32_t along;     /* the other tensor's atom; UINT32_MAX: one index of it, not an atom */
    uint64_t other;     /* start on the other tensor's atom */
} box_run;

typedef struct box_runs {
    uint32_t n;
    box_run run[CKPT_RM_PARTS];
} box_runs;

/* Get the number that a tensor has for a name, e.g. 3 for {expert}. */
static bool box_index(const ckpt_rm_member *m, uint32_t name, uint64_t *value)
{
    for (uint32_t i = 0; i < m->n_indexes; i++) {
        if (m->name[i] == name) {
            *value = m->value[i];
            return true;
        }
    }
    return false;
}

/* The number of an atom's elements before one of its parts. */
static uint64_t box_before(const ckpt_rm_instance *in, const ckpt_rm_atom *a, uint32_t part)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < part; i++)
        n += in->size[a->part[i]];
    return n;
}

static bool box_same_atom(const ckpt_rm_atom *a, const ckpt_rm_atom *b)
{
    return a->n_parts == b->n_parts && a->n_parts > 0 &&
           memcmp(a->part, b->part, a->n_parts * sizeof *a->part) == 0;
}

/* Find the atom of the other tensor that contains this name, and the name's part in it. */
static uint32_t box_find(const ckpt_rm_view *v, uint32_t name, uint32_t *part)
{
    for (uint32_t k = 0; k < v->n_atoms; k++) {
        *part = ckpt_rm_part(&v->atom[k], name);
        if (*part != UINT32_MAX)
            return k;
    }
    return UINT32_MAX;
}

/* List all runs of one atom that the other member has. */
static void box_atom_runs(const ckpt_rm_instance *in, const ckpt_rm_atom *a,
                          const ckpt_rm_view *view, const ckpt_rm_member *b, box_runs *out)
{
    uint64_t at = 0, value;
    uint32_t part = 0;

    out->n = 0;
    if (a->n_parts == 0)
        out->run[out->n++] = (box_run){0, 1, UINT32_MAX, 0};
    for (uint32_t p = 0; p < a->n_parts; p++) {
        uint64_t size = in->size[a->part[p]];
        uint32_t k = box_find(view, a->part[p], &part);
        if (k != UINT32_MAX && box_same_atom(a, &view->atom[k])) {
            out->n = 0;
            out->run[out->n++] = (box_run){0, view->size[k], k, 0};
            return;
        }
        if (k != UINT32_MAX)
            out->run[out->n++] = (box_run){at, size, k, box_before(in, &view->atom[k], part)};
        else if (box_index(b, a->part[p], &value) && value < size)
            out->run[out->n++] = (box_run){at + value, 1, UINT32_MAX, 0};
        at += size;
    }
}

/*
 * Make a box from one choice of runs; the numbers in a's name give the positions on those atoms of
 * b that a lacks.
 */
static bool box_make(const box_runs *runs, const uint32_t *choice, const ckpt_rm_view *va,
                     const ckpt_rm_view *vb, const ckpt_rm_member *a, box_common *box)
{
    bool some = true;
    uint64_t value;

    for (uint32_t k = 0; k < vb->n_atoms; k++) {
        const ckpt_rm_atom *atom = &vb->atom[k];
        box->at[1][k] = 0;
        box->count[1][k] = atom->n_parts == 0;
        if (atom->n_parts == 1 && box_index(a, atom->part[0], &value) && value < vb->size[k]) {
            box->at[1][k] = value;
            box->count[1][k] = 1;
        }
    }
    for (uint32_t i = 0; i < va->n_atoms; i++) {
        const box_run *r = &runs[i].run[choice[i]];
        box->at[0][i] = r->at;
        box->count[0][i] = r->count;
        box->along[i] = r->along;
        some = some && r->count > 0;
        if (r->along != UINT32_MAX) {
            box->at[1][r->along] = r->other;
            box->count[1][r->along] = r->count;
        }
    }
    for (uint32_t k = 0; k < vb->n_atoms; k++)
        some = some && box->count[1][k] > 0;
    return some;
}

/* Member a of one side, and member b of the other. */
typedef struct box_pair {
    unsigned side;
    const ckpt_rm_member *a, *b;
} box_pair;

/* Find the boxes that the two members share. */
static int box_meet(const ckpt_rm_instance *in, const box_pair *of, box_fn fn, void *ctx,
                    ckpt_err *err)
{
    const ckpt_rm_view *va = &in->view[of->side][of->a->term];
    const ckpt_rm_view *vb = &in->view[!of->side][of->b->term];
    uint32_t choice[CKPT_MAX_DIM] = {0}, i = 0;
    box_runs *runs = ckpt_alloc((va->n_atoms + 1) * sizeof *runs);
    box_common box = {0};
    int rc = runs ? CKPT_OK : ckpt_fail_memory(err);

    for (i = 0; rc == CKPT_OK && i < va->n_atoms; i++) {
        box_atom_runs(in, &va->atom[i], vb, of->b, &runs[i]);
        if (runs[i].n == 0) {
            ckpt_free(runs); // they are different parts of a fused axis and share no element
            return CKPT_OK;
        }
    }
    for (bool more = rc == CKPT_OK; rc == CKPT_OK && more;) {
        if (box_make(runs, choice, va, vb, of->a, &box))
            rc = fn(ctx, &box, err);
        for (i = va->n_atoms; i > 0 && ++choice[i - 1] == runs[i - 1].n; i--)
            choice[i - 1] = 0;
        more = i > 0;
    }
    ckpt_free(runs);
    return rc;
}

/* ---- a target's extents ---- */

typedef struct box_target {
    ckpt_rm_instance *in;
    const ckpt_rm_view *view; /* view of the target */
    const ckpt_rm_member *source;
    ckpt_extent_vec extent; /* extents over the atoms; extent i has its axes at axis[i * width] */
    ckpt_axis_vec axis;
    uint32_t width;
    uint32_t zero; /* source of padding; UINT32_MAX: not made yet */
} box_target;

/* Stride in bytes of one atom of a source tensor. */
static uint64_t box_stride(const ckpt_rm_view *v, const ckpt_rm_member *m, uint32_t atom)
{
    uint64_t by = m->stride[v->atom[atom].axis];

    // sizes of one tensor, so their product cannot overflow
    for (uint32_t i = atom + 1; i < v->n_atoms && v->atom[i].axis == v->atom[atom].axis; i++)
        by *= v->size[i];
    return by;
}

/* Add one extent of the target, on its atoms. */
static int box_take(void *ctx, const box_common *box, ckpt_err *err)
{
    box_target *t = ctx;
    const ckpt_rm_view *vs = &t->in->view[t->in->from][t->source->term];
    ckpt_extent *e = ckpt_vec_push(&t->extent);

    if (!e)
        return ckpt_fail_memory(err);
    *e = (ckpt_extent){.source = t->source->source, .ndim = t->width, .at = t->source->at};
    for (uint32_t k = 0; k < vs->n_atoms; k++)
        e->at += box->at[1][k] * box_stride(vs, t->source, k);
    for (uint32_t i = 0; i < t->width; i++) {
        ckpt_axis *a = ckpt_vec_push(&t->axis);
        uint64_t by = 0;
        if (!a)
            return ckpt_fail_memory(err);
        if (i < t->view->n_atoms && box->along[i] != UINT32_MAX)
            by = box_stride(vs, t->source, box->along[i]);
        *a = (ckpt_axis){0, 1, 0};
        if (i < t->view->n_atoms)
            *a = (ckpt_axis){box->at[0][i], box->count[0][i], (int64_t)by};
    }
    return CKPT_OK;
}

/* Add one extent of padding: all of the other atoms, n elements of one. */
static int box_pad_one(box_target *t, uint32_t atom, uint64_t at, uint64_t n, ckpt_err *err)
{
    const ckpt_source zeros = {.kind = CKPT_SOURCE_ZERO, .name = "padding"};
    int rc = CKPT_OK;

    if (t->zero == UINT32_MAX)
        rc = ckpt_map_add_source(t->in->map, &zeros, &t->zero, err);
    ckpt_extent *e = rc == CKPT_OK ? ckpt_vec_push(&t->extent) : NULL;
    if (!e)
        return rc == CKPT_OK ? ckpt_fail_memory(err) : rc;
    *e = (ckpt_extent){.source = t->zero, .ndim = t->width};
    for (uint32_t k = 0; k < t->width; k++) {
        ckpt_axis *a = ckpt_vec_push(&t->axis);
        if (!a)
            return ckpt_fail_memory(err);
        *a = k == atom ? (ckpt_axis){at, n, 0} : (ckpt_axis){0, t->view->size[k], 0};
    }
    return CKPT_OK;
}

/* Fill the padding of fused axes with zeros. */
static int box_pad(box_target *t, ckpt_err *err)
{
    const ckpt_rm_view *v = t->view;
    int rc = CKPT_OK;

    for (uint32_t i = 0; i < v->n_atoms; i++) {
        const ckpt_rm_atom *a = &v->atom[i];
        for (uint32_t p = 0; rc == CKPT_OK && p < a->n_parts; p++) {
            const ckpt_rm_line *line =
                a->part[p] < CKPT_RM_NAMES ? ckpt_rm_size(t->in->f->r, a->part[p]) : NULL;
            uint64_t n = t->in->size[a->part[p]];
            if (line && line->padding && n > 0)
                rc = box_pad_one(t, i, box_before(t->in, a, p), n, err);
        }
    }
    return rc;
}

/* Give a tensor the collected extents; with one axis in ascending order. */
static int box_back(box_target *t, ckpt_tensor *made, ckpt_err *err)
{
    for (size_t i = 0; i < t->extent.n; i++)
        t->extent.at[i].axis = &t->axis.at[i * t->width];
    if (t->width == 1)
        ckpt_extent_sort(t->extent.at, (uint32_t)t->extent.n);
    return ckpt_map_back(t->in->map, made, t->extent.at, (uint32_t)t->extent.n, err);
}

/* Make a hidden tensor with the target's atoms as axes, and the collected extents. */
static int box_hidden(box_target *t, const ckpt_tensor *like, ckpt_tensor **out, ckpt_err *err)
{
    ckpt_tensor hidden = *like;
    uint64_t shape[CKPT_MAX_DIM] = {1};

    for (uint32_t i = 0; i < t->view->n_atoms; i++)
        shape[i] = t->view->size[i];
    hidden.ndim = t->width;
    hidden.shape = shape;
    hidden.extent = NULL;
    hidden.n_extents = 0;
    int rc = ckpt_map_add_hidden(t->in->map, like->name, strlen(like->name), &hidden, out, err);
    if (rc == CKPT_OK)
        rc = box_back(t, *out, err);
    return rc == CKPT_OK ? ckpt_extent_check(*out, err) : rc;
}

/* ---- folding atoms into the target's own axes ---- */

/*
 * True if an atom can be folded with the inner atoms of the same axis. inner: their start, count
 * and stride, of `whole` elements.
 */
static bool box_folds(const ckpt_axis *outer, const ckpt_axis *inner, uint64_t whole)
{
    uint64_t row;

    if (outer->count <= 1)
        return true;
    if (inner->count != whole)
        return false;
    return whole == 1 ||
           (ckpt_mul((uint64_t)inner->stride, whole, &row) && row == (uint64_t)outer->stride);
}

static void box_fold(const ckpt_axis *outer, ckpt_axis *inner, uint64_t whole)
{
    int64_t stride = inner->stride;

    if (inner->count == 1 && whole == 1)
        stride = outer->stride;
    *inner = (ckpt_axis){outer->start * whole + inner->start, outer->count * inner->count, stride};
}

/*
 * Fold one extent on atoms into one on the target's axes; atoms marked in `split` stand for one
 * index each. False: it had to mark atoms.
 */
static bool box_fold_all(const box_target *t, const ckpt_axis *atom, ckpt_axis *out, bool *split)
{
    const ckpt_rm_view *v = t->view;
    bool folded = true;

    out[0] = (ckpt_axis){0, 1, 0}; // for a tensor without axes
    for (uint32_t axis = 0; axis < v->n_axes; axis++) {
        uint64_t whole = 1;
        out[axis] = (ckpt_axis){0, 1, 0};
        for (uint32_t i = v->n_atoms; i-- > 0;) {
            if (v->atom[i].axis != axis)
                continue;
            if (!box_folds(&atom[i], &out[axis], whole)) {
                split[i] = true;
                folded = false;
            }
            box_fold(&atom[i], &out[axis], whole);
            whole *= v->size[i];
        }
    }
    return folded;
}

/* Split one extent into extents on the target's axes; false in *fits: too many. */
static int box_unfold(const box_target *t, size_t i, box_target *out, bool *fits, ckpt_err *err)
{
    const ckpt_extent *e = &t->extent.at[i];
    ckpt_axis atom[CKPT_MAX_DIM], folded[CKPT_MAX_DIM];
    uint64_t index[CKPT_MAX_DIM] = {0}, n = 1;
    bool split[CKPT_MAX_DIM] = {false};

    memcpy(atom, &t->axis.at[i * t->width], t->width * sizeof *atom);
    // marking an atom changes how its outer atoms fold: repeat until no atom is marked
    while (!box_fold_all(t, atom, folded, split)) {
        for (uint32_t k = 0; k < t->width; k++)
            atom[k].count = split[k] ? 1 : atom[k].count;
    }
    for (uint32_t k = 0; k < t->width; k++)
        n = split[k] && n <= BOX_MAX_SPLIT ? n * t->axis.at[i * t->width + k].count : n;
    *fits = n <= BOX_MAX_SPLIT;
    for (bool more = *fits; more;) {
        ckpt_extent *made = ckpt_vec_push(&out->extent);
        uint32_t k;
        if (!made)
            return ckpt_fail_memory(err);
        *made = (ckpt_extent){.source = e->source, .ndim = out->width, .at = e->at};
        for (k = 0; k < t->width; k++) {
            const ckpt_axis *a = &t->axis.at[i * t->width + k];
            atom[k].start = a->start + index[k];
            made->at += index[k] * (uint64_t)a->stride;
        }
        (void)box_fold_all(t, atom, folded, split);
        for (k = 0; k < out->width; k++) {
            ckpt_axis *slot = ckpt_vec_push(&out->axis);
            if (!slot)
                return ckpt_fail_memory(err);
            *slot = folded[k];
        }
        for (k = t->width; k > 0; k--) {
            if (!split[k - 1])
                continue;
            if (++index[k - 1] < t->axis.at[i * t->width + k - 1].count)
                break;
            index[k - 1] = 0;
        }
        more = k > 0;
    }
    return CKPT_OK;
}

/* Set the target's extents on its own axes if they are few, else through a hidden tensor. */
static int box_finish(box_target *t, ckpt_tensor *made, ckpt_err *err)
{
    box_target own = {.in = t->in, .view = t->view, .width = made->ndim ? made->ndim : 1};
    ckpt_tensor *hidden = NULL;
    bool fits = true;
    uint32_t source;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && fits && i < t->extent.n; i++)
        rc = box_unfold(t, i, &own, &fits, err);
    if (rc == CKPT_OK && fits) {
        rc = box_back(&own, made, err);
        rc = rc == CKPT_OK ? ckpt_extent_check(made, err) : rc;
    } else if (rc == CKPT_OK) {
        rc = box_hidden(t, made, &hidden, err);
        if (rc == CKPT_OK)
            rc = ckpt_map_add_nested(t->in->map, hidden, &source, err);
        if (rc == CKPT_OK)
            rc = ckpt_map_back_whole(t->in->map, made, source, 0, err);
    }
    ckpt_vec_free(&own.extent);
    ckpt_vec_free(&own.axis);
    return rc;
}

int ckpt_rm_back(ckpt_rm_instance *in, ckpt_rm_member *target, ckpt_err *err)
{
    box_target t = {.in = in, .view = &in->view[in->to][target->term], .zero = UINT32_MAX};
    const ckpt_rm_members *sources = &in->member[in->from];
    ckpt_err why = {0};
    int rc = CKPT_OK;

    t.width = t.view->n_atoms ? t.view->n_atoms : 1;
    for (size_t i = 0; rc == CKPT_OK && i < sources->n; i++) {
        t.source = &sources->at[i];
        rc = box_meet(in, &(box_pair){in->to, target, t.source}, box_take, &t, err);
    }
    if (rc == CKPT_OK)
        rc = box_pad(&t, err);
    if (rc == CKPT_OK) {
        rc = box_finish(&t, target->t, &why);
        if (rc != CKPT_OK)
            rc = ckpt_fail(err, rc, "%s:%u: %s", in->f->r->name, in->rule->line, why.text);
    }
    ckpt_vec_free(&t.extent);
    ckpt_vec_free(&t.axis);
    return rc;
}

/* ---- checking a source ---- */

/*
 * Record a box that a target takes from the current source; the source is the box's first member.
 */
static int box_used(void *ctx, const box_common *box, ckpt_err *err)
{
    box_target *t = ctx;
    ckpt_extent *e = ckpt_vec_push(&t->extent);

    if (!e)
        return ckpt_fail_memory(err);
    *e = (ckpt_extent){.ndim = t->width};
    for (uint32_t i = 0; i < t->width; i++) {
        ckpt_axis *a = ckpt_vec_push(&t->axis);
        if (!a)
            return ckpt_fail_memory(err);
        *a = (ckpt_axis){0, 1, 0};
        if (i < t->view->n_atoms)
            *a = (ckpt_axis){box->at[0][i], box->count[0][i], 0};
    }
    return CKPT_OK;
}

int ckpt_rm_prove(ckpt_rm_instance *in, const ckpt_rm_member *source, ckpt_err *err)
{
    box_target t = {.in = in, .view = &in->view[in->from][source->term]};
    const ckpt_rm_members *targets = &in->member[in->to];
    uint64_t shape[CKPT_MAX_DIM] = {1};
    ckpt_tensor like = {.name = source->t->name, .shape = shape, .n_elems = 1};
    ckpt_err why = {0};
    int rc = CKPT_OK;

    t.width = t.view->n_atoms ? t.view->n_atoms : 1;
    // a tensor's elements, or some rows of it, so that the product cannot overflow
    for (uint32_t i = 0; i < t.view->n_atoms; i++) {
        shape[i] = t.view->size[i];
        like.n_elems *= shape[i];
    }
    for (size_t i = 0; rc == CKPT_OK && i < targets->n; i++)
        rc = box_meet(in, &(box_pair){in->from, source, &targets->at[i]}, box_used, &t, err);
    // padding of the source need not be copied: count it as used
    if (rc == CKPT_OK)
        rc = box_pad(&t, err);
    for (size_t i = 0; rc == CKPT_OK && i < t.extent.n; i++)
        t.extent.at[i].axis = &t.axis.at[i * t.width];
    if (rc == CKPT_OK && t.width == 1)
        ckpt_extent_sort(t.extent.at, (uint32_t)t.extent.n);
    like.ndim = t.width;
    like.extent = t.extent.at;
    like.n_extents = (uint32_t)t.extent.n;
    if (rc == CKPT_OK && like.n_elems > 0) {
        rc = ckpt_extent_check(&like, &why);
        if (rc != CKPT_OK)
            rc = ckpt_fail(err, rc, "%s:%u: in the source: %s", in->f->r->name, in->rule->line,
                           why.text);
    }
    ckpt_vec_free(&t.extent);
    ckpt_vec_free(&t.axis);
    return rc;
}
