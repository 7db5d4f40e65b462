/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npy.c: reads and writes the header of a numpy array.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/npz/npz.h"
#include "libckpt/base/dtype.h"

static const char npy_magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

/* numpy's `descr` of a dtype.  Little-endian types begin with '<'; single bytes, which have no byte
 * order, with '|'. */
typedef struct npy_type {
    ckpt_dtype dtype;
    const char *descr;
    bool as_bits;
} npy_type;

/* Dtypes that numpy lacks come last, because a search by descr must find numpy's own type.  They
 * are written as integers of the same size. */
static const npy_type npy_types[] = {
    {CKPT_F64, "<f8", false},    {CKPT_F32, "<f4", false},        {CKPT_F16, "<f2", false},
    {CKPT_I64, "<i8", false},    {CKPT_I32, "<i4", false},        {CKPT_I16, "<i2", false},
    {CKPT_I8, "|i1", false},     {CKPT_U64, "<u8", false},        {CKPT_U32, "<u4", false},
    {CKPT_U16, "<u2", false},    {CKPT_U8, "|u1", false},         {CKPT_BOOL, "|b1", false},
    {CKPT_C128, "<c16", false},  {CKPT_C64, "<c8", false},        {CKPT_BITS8, "|V1", false},
    {CKPT_BITS16, "|V2", false}, {CKPT_BF16, "<u2", true},        {CKPT_F8_E4M3, "|u1", true},
    {CKPT_F8_E5M2, "|u1", true}, {CKPT_F8_E4M3FNUZ, "|u1", true}, {CKPT_F8_E5M2FNUZ, "|u1", true},
    {CKPT_F8_E8M0, "|u1", true},
};

enum { NPY_TYPES = sizeof npy_types / sizeof *npy_types };

/* ---- reading ---- */

/* A cursor over a header's text. */
typedef struct npy_text {
    const char *at, *end;
    const char *name; /* name in messages */
    ckpt_err *err;
} npy_text;

static int npy_bad(const npy_text *t, const char *what)
{
    return ckpt_fail(t->err, CKPT_EFORMAT, "%s: the header of the array %s", t->name, what);
}

int ckpt_npy_length(uint64_t *out, const uint8_t *head, size_t n, const char *name, ckpt_err *err)
{
    assert(out && head && name);
    uint64_t length, lead;

    if (n < 10 || memcmp(head, npy_magic, sizeof npy_magic) != 0)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: not a numpy array: it does not begin with numpy's magic", name);
    if (head[6] < 1 || head[6] > 3 || head[7] != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: a numpy array of format version %u.%u; 1.0, 2.0 and 3.0 are known",
                         name, head[6], head[7]);
    lead = head[6] == 1 ? 10 : CKPT_NPY_LEAD;
    if (n < lead)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: the file ends inside the header", name);
    length = head[8] | (uint64_t)head[9] << 8;
    if (lead == CKPT_NPY_LEAD)
        length |= (uint64_t)head[10] << 16 | (uint64_t)head[11] << 24;
    *out = lead + length;
    if (*out > CKPT_NPY_HEADER)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "%s: a header of %" PRIu64 " bytes is too long; at most %d are read", name,
                         *out, CKPT_NPY_HEADER);
    return CKPT_OK;
}

static void npy_space(npy_text *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\t' || *t->at == '\n' || *t->at == '\r'))
        t->at++;
}

/* Skip spaces, then take the character c if it comes next. */
static bool npy_take(npy_text *t, char c)
{
    npy_space(t);
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

/* Read a quoted string without escapes; *out points into the header. */
static int npy_string(npy_text *t, ckpt_text *out)
{
    npy_space(t);
    if (t->at < t->end && (*t->at == 'u' || *t->at == 'b')) // prefixes of Python 2 and of bytes
        t->at++;
    if (t->at == t->end || (*t->at != '\'' && *t->at != '"'))
        return npy_bad(t, "lacks a quoted string where one is expected");
    const char quote = *t->at++, *from = t->at;
    while (t->at < t->end && *t->at != quote && *t->at != '\\')
        t->at++;
    if (t->at == t->end || *t->at != quote)
        return npy_bad(t, "has a string that does not end or has an escape");
    *out = (ckpt_text){from, (uint64_t)(t->at - from)};
    t->at++;
    return CKPT_OK;
}

static int npy_number(npy_text *t, uint64_t *out)
{
    bool any = false;

    npy_space(t);
    *out = 0;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++, any = true) {
        if (!ckpt_mul(*out, 10, out) || !ckpt_add(*out, (uint64_t)(*t->at - '0'), out))
            return npy_bad(t, "has a size beyond 64 bits");
    }
    if (!any)
        return npy_bad(t, "lacks a size in its shape");
    if (t->at < t->end && *t->at == 'L') // a Python 2 long
        t->at++;
    return CKPT_OK;
}

static int npy_shape(npy_text *t, ckpt_npy *out)
{
    int rc = npy_take(t, '(') ? CKPT_OK : npy_bad(t, "has a shape that is not a tuple");

    while (rc == CKPT_OK && !npy_take(t, ')')) {
        if (out->ndim == CKPT_MAX_DIM)
            return ckpt_fail(t->err, CKPT_EUNSUPPORTED, "%s: an array of more than %d axes",
                             t->name, CKPT_MAX_DIM);
        rc = npy_number(t, &out->shape[out->ndim++]);
        if (rc == CKPT_OK && !npy_take(t, ',')) {
            // "(3)" is a number in Python and "(3,)" a tuple; numpy writes the latter
            if (!npy_take(t, ')') || out->ndim == 1)
                return npy_bad(t, "has a shape that is not a tuple");
            return CKPT_OK;
        }
    }
    return rc;
}

static int npy_bool(npy_text *t, bool *out)
{
    static const char *const words[] = {"False", "True"};

    npy_space(t);
    for (unsigned i = 0; i < 2; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(t->end - t->at) >= n && memcmp(t->at, words[i], n) == 0) {
            t->at += n;
            *out = i == 1;
            return CKPT_OK;
        }
    }
    return npy_bad(t, "has a fortran_order that is neither True nor False");
}

/* Read the element type.  The table has one entry for both byte orders. */
static int npy_descr(npy_text *t, ckpt_npy *out)
{
    ckpt_text s;
    int rc = CKPT_OK;

    npy_space(t);
    if (t->at < t->end && *t->at == '[')
        return ckpt_fail(t->err, CKPT_EUNSUPPORTED,
                         "%s: an array of records with fields; only arrays of numbers are read",
                         t->name);
    rc = npy_string(t, &s);
    if (rc != CKPT_OK)
        return rc;
    if (s.n == 0 || s.at[0] == 0 || !strchr("<>|=", s.at[0])) // strchr would find a NUL
        return npy_bad(t, "has a descr without byte order");
    if (s.n == 2 && s.at[1] == 'O')
        return CKPT_OK;
    for (size_t i = 0; i < NPY_TYPES && !npy_types[i].as_bits; i++) {
        const char *descr = npy_types[i].descr;
        if (strlen(descr) != s.n || memcmp(descr + 1, s.at + 1, (size_t)s.n - 1) != 0)
            continue;
        out->dtype = npy_types[i].dtype;
        out->swap = s.at[0] == '>';
        out->raw = descr[1] == 'V';
        return CKPT_OK;
    }
    return ckpt_fail(t->err, CKPT_EUNSUPPORTED,
                     "%s: an array of type '%.*s' (strings, dates, extended floats and records are "
                     "not read)",
                     t->name, s.n > 40 ? 40 : (int)s.n, s.at);
}

/* Read one entry of the dict; a repeated key is an error. */
static int npy_entry(npy_text *t, ckpt_npy *out, unsigned *seen)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    ckpt_text key;
    unsigned k = 0;
    int rc = npy_string(t, &key);

    if (rc != CKPT_OK)
        return rc;
    while (k < 3 && (strlen(keys[k]) != key.n || memcmp(keys[k], key.at, (size_t)key.n) != 0))
        k++;
    if (k == 3 || (*seen & 1u << k))
        return npy_bad(t, "has a key twice, or a key other than descr, fortran_order, shape");
    *seen |= 1u << k;
    if (!npy_take(t, ':'))
        return npy_bad(t, "is not a dict");
    return k == 0 ? npy_descr(t, out) : k == 1 ? npy_bool(t, &out->fortran) : npy_shape(t, out);
}

int ckpt_npy_parse(ckpt_npy *out, const uint8_t *head, size_t n, const char *name, ckpt_err *err)
{
    npy_text t = {.name = name, .err = err};
    unsigned seen = 0;
    int rc;

    *out = (ckpt_npy){.dtype = CKPT_DTYPE_NONE};
    rc = ckpt_npy_length(&out->n_header, head, n, name, err);
    if (rc != CKPT_OK)
        return rc;
    if (out->n_header > n)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: the file ends inside the header", name);
    t.at = (const char *)head + (head[6] == 1 ? 10 : CKPT_NPY_LEAD);
    t.end = (const char *)head + out->n_header;
    if (!npy_take(&t, '{'))
        return npy_bad(&t, "is not a dict");
    while (rc == CKPT_OK && !npy_take(&t, '}')) {
        rc = npy_entry(&t, out, &seen);
        if (rc == CKPT_OK && !npy_take(&t, ',')) {
            if (!npy_take(&t, '}'))
                return npy_bad(&t, "is not a dict");
            break;
        }
    }
    npy_space(&t);
    if (rc == CKPT_OK && (seen != 7 || t.at != t.end))
        rc = npy_bad(&t, "lacks descr, fortran_order or shape, or something follows it");
    return rc;
}

/* ---- writing ---- */

const char *ckpt_npy_descr(ckpt_dtype d, bool *as_bits)
{
    for (size_t i = 0; i < NPY_TYPES; i++) {
        if (npy_types[i].dtype != d)
            continue;
        *as_bits = npy_types[i].as_bits;
        return npy_types[i].descr;
    }
    return NULL;
}

bool ckpt_npy_put(ckpt_bytes *out, const char *descr, const uint64_t *shape, uint32_t ndim)
{
    assert(out && descr && ndim <= CKPT_MAX_DIM && (shape || ndim == 0));
    static const uint8_t lead[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    size_t from = out->n, length;
    bool ok = ckpt_bytes_add(out, lead, sizeof lead) &&
              ckpt_bytes_printf(out, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);

    for (uint32_t k = 0; ok && k < ndim; k++)
        ok = ckpt_bytes_printf(out, k ? ", %" PRIu64 : "%" PRIu64, shape[k]);
    ok = ok && ckpt_bytes_printf(out, ndim == 1 ? ",), }" : "), }");
    while (ok && (out->n - from + 1) % 64 != 0)
        ok = ckpt_bytes_add(out, " ", 1);
    ok = ok && ckpt_bytes_add(out, "\n", 1);
    if (!ok)
        return false;
    length = out->n - from - sizeof lead; // CKPT_MAX_DIM axes of 20 digits fit 64 KiB
    out->at[from + 8] = (uint8_t)length;
    out->at[from + 9] = (uint8_t)(length >> 8);
    return true;
}
