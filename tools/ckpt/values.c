/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.c: prints elements as text, JSON and statistics, in constant memory.
 *
 * Brackets need no look-ahead, because an axis begins or ends at multiples of the elements below
 * it.
 */
#include "tools/ckpt/values.h"

#include <math.h>
#include <string.h>

#include "tools/cli/out.h"

enum { VALUES_WIDTH = 78 };

void values_text_begin(values_text *v, uint32_t ndim, const uint64_t *shape, uint64_t n_elems)
{
    uint64_t span = 1;

    *v = (values_text){.ndim = ndim, .n_elems = n_elems};
    for (uint32_t k = 0; k < ndim && n_elems > 0; k++) {
        span *= shape[ndim - 1 - k];
        v->span[k] = span;
    }
    // no element will follow: print the brackets now
    for (uint32_t k = 0; n_elems == 0 && k < ndim; k++)
        out_printf("[");
    for (uint32_t k = 0; n_elems == 0 && k < ndim; k++)
        out_printf("]");
}

/* Number of brackets that open before element i, or close after element i - 1. */
static unsigned values_brackets(const values_text *v, uint64_t i)
{
    unsigned n = 0;

    while (n < v->ndim && i % v->span[n] == 0)
        n++;
    return n;
}

/* Begin a new line under the bracket of the row. */
static void values_indent(values_text *v, unsigned n)
{
    out_printf("\n%*s", (int)n, "");
    v->column = n;
}

void values_text_add(values_text *v, const scalar *s)
{
    unsigned open = values_brackets(v, v->next), width;
    char text[SCALAR_ROOM];

    width = (unsigned)strlen(scalar_text(text, s));
    if (v->next == 0) {
        v->column = 0;
    } else if (open > 0) {
        // a new row begins under the bracket that it opens, as in numpy
        out_printf(",");
        values_indent(v, v->ndim - open);
    } else if (v->column + width + 2 > VALUES_WIDTH) {
        // +2: a comma, and a blank or a bracket
        out_printf(",");
        values_indent(v, v->ndim);
    } else {
        out_printf(", ");
        v->column += 2;
    }
    for (unsigned k = 0; k < open; k++)
        out_printf("[");
    out_printf("%s", text);
    v->column += open + width;
    v->next++;
    for (unsigned k = values_brackets(v, v->next); k > 0; k--)
        out_printf("]");
}

void values_text_end(values_text *v)
{
    (void)v;
    out_printf("\n");
}

void values_json_add(json_out *j, const scalar *s)
{
    char text[SCALAR_ROOM];

    switch (s->is) {
    case SCALAR_REAL:
        if (isfinite(s->as_real))
            json_literal(j, NULL, scalar_text(text, s));
        else
            json_real(j, NULL, s->as_real);
        break;
    case SCALAR_COMPLEX:
        json_open(j, NULL, '[');
        json_real(j, NULL, s->as_real);
        json_real(j, NULL, s->imag);
        json_close(j, ']');
        break;
    case SCALAR_BITS:
        json_uint(j, NULL, s->as_unsigned);
        break;
    case SCALAR_SIGNED:
    case SCALAR_UNSIGNED:
    case SCALAR_BOOL:
    case SCALAR_NONE:
        json_literal(j, NULL, scalar_text(text, s));
        break;
    }
}

void values_stats_add(values_stats *v, double x)
{
    v->n++;
    if (isnan(x)) {
        v->n_nan++;
        return;
    }
    if (isinf(x)) {
        v->n_inf++;
        return;
    }
    // Welford's step, because sums of squares would lose small deviations
    uint64_t finite = v->n - v->n_nan - v->n_inf;
    double delta = x - v->mean;
    v->n_zero += !(x < 0 || x > 0);
    v->min = finite == 1 || x < v->min ? x : v->min;
    v->max = finite == 1 || x > v->max ? x : v->max;
    v->mean += delta / (double)finite;
    v->m2 += delta * (x - v->mean);
}

double values_stats_std(const values_stats *v)
{
    uint64_t finite = v->n - v->n_nan - v->n_inf;

    return finite ? sqrt(v->m2 / (double)finite) : (double)NAN;
}
