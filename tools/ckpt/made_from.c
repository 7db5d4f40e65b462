/* SPDX-License-Identifier: Apache-2.0 */
/*
 * made_from.c: proves that a checkpoint is the conversion of another one.
 *
 * The source becomes what ckpt convert would write, as a map alone: nothing is written.  Each of
 * its values is then converted to the dtype that the checkpoint has, and compared.
 */
#include "tools/ckpt/made_from.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ckpt_extra.h"
#include "tools/ckpt/effects.h"
#include "tools/ckpt/job.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/training.h"

/* The state of one proof. */
typedef struct mf_proof {
    const cli_args *a;
    json_out *j; /* NULL: text */
    made_from_counts *n;
    const char *last; /* the name reported before: a tensor may have two differences */
} mf_proof;

static void mf_text(const ckpt_difference *d, const char *what)
{
    char a[SHAPE_ROOM], b[SHAPE_ROOM];

    out_printf("%s: ", what);
    out_text(d->name);
    if (strcmp(d->what, "shape") == 0)
        out_printf(" has shape %s, expected %s", shape_text(b, d->b), shape_text(a, d->a));
    else if (strcmp(d->what, "dtype") == 0)
        out_printf(" has dtype %s, to which %s is not converted", ckpt_dtype_name(d->b->dtype),
                   ckpt_dtype_name(d->a->dtype));
    else if (d->a && d->b)
        out_printf(" %" PRIu64 " of %" PRIu64 " elements, the first is element %" PRIu64,
                   d->n_different, d->a->n_elems, d->first);
    if (strcmp(d->what, "values") == 0 && !isnan(d->first_a))
        out_printf(": expected %.9g, found %.9g", d->first_a, d->first_b);
    out_printf("\n");
}

/* Print dtype and shape of one of the two tensors. */
static void mf_json_side(json_out *j, const char *key, const ckpt_tensor *t)
{
    json_open(j, key, '{');
    json_text(j, "dtype", ckpt_dtype_name(t->dtype));
    json_shape(j, "shape", t);
    json_close(j, '}');
}

static void mf_json(json_out *j, const ckpt_difference *d, const char *what)
{
    json_open(j, NULL, '{');
    json_text(j, "what", what);
    json_text(j, "name", d->name);
    if (d->a)
        mf_json_side(j, "expected_tensor", d->a);
    if (d->b)
        mf_json_side(j, "found_tensor", d->b);
    if (strcmp(d->what, "values") == 0) {
        json_uint(j, "elements_different", d->n_different);
        json_uint(j, "first", d->first);
        if (!isnan(d->first_a)) {
            json_real(j, "expected", d->first_a);
            json_real(j, "found", d->first_b);
        }
    }
    json_close(j, '}');
}

static int mf_difference(void *ctx, const ckpt_difference *d)
{
    mf_proof *p = ctx;
    const char *what = !d->b ? "missing" : !d->a ? "additional" : d->what;

    p->n->missing += !d->b;
    p->n->additional += !d->a;
    p->n->different += d->a && d->b && !(p->last && strcmp(p->last, d->name) == 0);
    p->last = d->name;
    if (p->j)
        mf_json(p->j, d, what);
    else
        mf_text(d, what);
    return out_broken();
}

/* Set the conversion's target: the checkpoint's format, and the layout that it expects. */
static int mf_target(prepare_args *a, const ckpt_map *made, ckpt_err *err)
{
    write_args *w = &a->write;
    const char *format = ckpt_map_format(made);
    const unsigned caps = ckpt_format_caps(format);

    if (!(caps & CKPT_CAN_WRITE) || training_format(format))
        return fail(err, CKPT_EUNSUPPORTED,
                    "%s: --made-from proves weights as ckpt convert writes them, not format %s; "
                    "compare two runs with ckpt diff --with-optimizer",
                    ckpt_map_path(made), format);
    w->target.format = format;
    w->target.path = ckpt_map_path(made);
    if (!w->map && !write_native(w))
        w->map = w->own_map = maps_default(format, NULL);
    else if (w->map && strcmp(w->map, "none") == 0)
        w->map = NULL;
    return CKPT_OK;
}

/* Warn if --imatrix has no effect, or if the checkpoint says that it was made with one. */
static void mf_matrix(const ckpt_map *made, const char *imatrix)
{
    const ckpt_value *file = ckpt_value_find(ckpt_map_values(made), "quantize.imatrix.file");
    const char *name = "?";
    bool takes = false;
    size_t n = 0;

    for (size_t i = 0; i < ckpt_map_tensor_count(made); i++) {
        const ckpt_dtype d = ckpt_map_tensor_at(made, i)->dtype;

        takes = takes || (ckpt_dtype_block(d, NULL) > 1 && d != CKPT_Q8_0);
    }
    if (imatrix && !takes)
        say_warning("%s: --imatrix has no effect: no tensor has a quantized type that takes it",
                    ckpt_map_path(made));
    if (!imatrix && takes && file) {
        (void)ckpt_value_to_text(file, &name, &n);
        say_warning("%s: quantized by the importance matrix %s, expected as --imatrix FILE",
                    ckpt_map_path(made), name);
    }
}

int made_from_prove(prepare_args *a, const char *out, double tolerance, json_out *j,
                    made_from_counts *n, ckpt_err *err)
{
    cli_args *cli = &a->write.cli;
    const ckpt_open_opts open = {.size = sizeof open, .whole_checkpoint = !a->as_file};
    ckpt_diff_opts opts = {.size = sizeof opts,
                           .tolerance = tolerance,
                           .converted = true,
                           .imatrix = a->write.target.imatrix};
    mf_proof proof = {.a = cli, .j = j, .n = n};
    ckpt_map *made = NULL, *from = NULL;
    int rc = ckpt_open(&made, out, &open, err);

    a->as_file = false;             // it says how to read the checkpoint
    a->write.target.imatrix = NULL; // the types are those of the checkpoint
    if (rc == CKPT_OK) {
        mf_matrix(made, opts.imatrix);
        rc = mf_target(a, made, err);
    }
    if (rc == CKPT_OK)
        rc = convert_prepare(&from, a, err);
    // as with convert, which dequantizes when the output has floats
    if (rc == CKPT_OK && ckpt_map_is_quantized(from) && !ckpt_map_is_quantized(made))
        rc = ckpt_map_dequantize(from, false, err);
    if (rc == CKPT_OK) {
        n->tensors = ckpt_map_tensor_count(made);
        rc = ckpt_diff(from, made, &opts, mf_difference, &proof, err);
    }
    if (rc == CKPT_OK)
        rc = effects_strict(cli, err);
    training_free(&a->write);
    ckpt_map_free(from);
    ckpt_map_free(made);
    return rc;
}
