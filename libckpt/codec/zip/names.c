/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c: sorts the names of a container's records, finds one by name, and finds the top folder.
 *
 * Some readers ignore case, therefore the order puts names that differ only in case next to each
 * other, and the sort counts them.
 */
#include <assert.h>

#include "libckpt/codec/zip/names.h"

static int zn_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : (unsigned char)c;
}

/*
 * The length of the prefix that all names share (usually the folder), so that comparisons can skip
 * it.
 */
static uint64_t zn_common(const ckpt_zip *zip)
{
    const ckpt_zip_record *first = zip->records.at;
    uint64_t n = first->n_name;
    size_t i;

    for (i = 1; i < zip->records.n; i++) {
        const ckpt_zip_record *r = &zip->records.at[i];
        uint64_t k = 0;

        n = r->n_name < n ? r->n_name : n;
        if (memcmp(r->name, first->name, (size_t)n) == 0)
            continue;
        while (r->name[k] == first->name[k])
            k++;
        n = k;
    }
    return n;
}

/* Compare names without regard to case, from byte i on; the bytes before are equal. */
static int zn_compare_folded(const char *a, uint64_t n_a, const char *b, uint64_t n_b, uint64_t i)
{
    uint64_t n = n_a < n_b ? n_a : n_b;

    for (; i < n; i++) {
        int d = zn_lower(a[i]) - zn_lower(b[i]);

        if (d != 0)
            return d;
    }
    return n_a < n_b ? -1 : n_a > n_b;
}

/*
 * The order of by_name: without regard to case first, so that names that differ only in case are
 * adjacent.
 */
static int zn_compare(const char *a, uint64_t n_a, const char *b, uint64_t n_b, uint64_t common)
{
    int d = zn_compare_folded(a, n_a, b, n_b, common);

    return d != 0 ? d : memcmp(a, b, (size_t)n_a);
}

/*
 * Sort indexes by name with a bottom-up merge sort: qsort may allocate memory and passes no context
 * to its callback.
 */
static void zn_merge(const ckpt_zip *zip, const uint32_t *from, uint32_t *to, size_t run)
{
    const ckpt_zip_record *rec = zip->records.at;
    size_t n = zip->records.n, lo;

    for (lo = 0; lo < n; lo += 2 * run) {
        size_t mid = n - lo < run ? n : lo + run, hi = n - lo < 2 * run ? n : lo + 2 * run;
        size_t a = lo, b = mid, out;

        for (out = lo; out < hi; out++) {
            bool left = b == hi;

            if (a < mid && b < hi) {
                const ckpt_zip_record *x = &rec[from[a]], *y = &rec[from[b]];

                left = zn_compare(x->name, x->n_name, y->name, y->n_name, zip->n_common) <= 0;
            }
            to[out] = left ? from[a++] : from[b++];
        }
    }
}

/* ---- names that equal those of another archive ---- */

bool ckpt_zip_name_known(ckpt_zip *zip, const ckpt_zip *like)
{
    size_t i = zip->records.n - 1;
    const ckpt_zip_record *first = zip->records.at, *r = &first[i], *other;

    if (i == 0) {
        const char *slash = memchr(r->name, '/', (size_t)r->n_name);

        zip->n_top = slash ? (uint64_t)(slash - r->name) + 1 : 0;
        zip->same_names = like != NULL;
    }
    if (!zip->same_names)
        return false;
    other = i < like->records.n ? &like->records.at[i] : NULL;
    zip->same_names =
        other && r->n_name >= zip->n_top && r->n_name - zip->n_top == other->n_name - like->n_top &&
        memcmp(r->name, first->name, (size_t)zip->n_top) == 0 &&
        memcmp(r->name + zip->n_top, other->name + like->n_top, (size_t)(r->n_name - zip->n_top)) ==
            0;
    return zip->same_names && i > 0;
}

/* Take over the other archive's order, because the names are the same. */
static int zn_sort_like(ckpt_zip *zip, const ckpt_zip *like, ckpt_err *err)
{
    size_t size = zip->records.n * sizeof *zip->by_name;

    zip->by_name = ckpt_alloc(size);
    if (!zip->by_name)
        return ckpt_fail_memory(err);
    memcpy(zip->by_name, like->by_name, size);
    zip->n_common = like->n_common - like->n_top + zip->n_top;
    zip->n_case_twins = like->n_case_twins;
    return CKPT_OK;
}

int ckpt_zip_keep(ckpt_zip *out, ckpt_arena *arena, const ckpt_zip *zip, ckpt_err *err)
{
    size_t n = zip->records.n;
    uint64_t n_top = 0;
    // refuse a name outside the folder, because it has no part after the folder's
    int rc = ckpt_zip_top(zip, &n_top, err);

    if (rc != CKPT_OK)
        return rc;
    *out = *zip;
    out->io = NULL;
    out->records.at = ckpt_arena_copy(arena, zip->records.at, n * sizeof *zip->records.at);
    out->records.room = n;
    out->by_name = ckpt_arena_copy(arena, zip->by_name, n * sizeof *zip->by_name);
    return out->records.at && out->by_name ? CKPT_OK : ckpt_fail_memory(err);
}

/* ---- order ---- */

int ckpt_zip_sort_names(ckpt_zip *zip, const ckpt_zip *like, ckpt_err *err)
{
    size_t n = zip->records.n, run, i;

    zip->same_names = zip->same_names && n == like->records.n;
    if (zip->same_names)
        return zn_sort_like(zip, like, err);
    uint32_t *from = ckpt_alloc(n * sizeof *from), *to = ckpt_alloc(n * sizeof *to);

    zip->by_name = from;
    if (!from || !to) {
        ckpt_free(to);
        return ckpt_fail_memory(err);
    }
    for (i = 0; i < n; i++)
        from[i] = (uint32_t)i;
    zip->n_common = n > 0 ? zn_common(zip) : 0;
    for (run = 1; run < n; run *= 2) {
        uint32_t *swap = from;

        zn_merge(zip, from, to, run);
        from = to;
        to = swap;
    }
    zip->by_name = from;
    ckpt_free(to);
    for (i = 1; i < n; i++) {
        const ckpt_zip_record *a = &zip->records.at[from[i - 1]], *b = &zip->records.at[from[i]];

        if (zn_compare_folded(a->name, a->n_name, b->name, b->n_name, zip->n_common) != 0)
            continue;
        if (memcmp(a->name, b->name, (size_t)a->n_name) == 0)
            return ckpt_fail(
                err, zip_odd(a->name, a->n_name),
                "%s: record \"%.*s\" appears twice, and readers differ in which one they use",
                zip->io->name, zip_show(a->n_name), a->name);
        zip->n_case_twins++;
    }
    return CKPT_OK;
}

const ckpt_zip_record *ckpt_zip_find(const ckpt_zip *zip, const char *name, uint64_t n_name)
{
    assert(zip->by_name || zip->records.n == 0);
    assert(name || n_name == 0);
    size_t lo = 0, hi = zip->records.n;

    if (hi == 0 || n_name < zip->n_common ||
        memcmp(name, zip->records.at[0].name, (size_t)zip->n_common) != 0)
        return NULL;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const ckpt_zip_record *r = &zip->records.at[zip->by_name[mid]];
        int d = zn_compare(name, n_name, r->name, r->n_name, zip->n_common);

        if (d == 0)
            return r;
        if (d < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

int ckpt_zip_top(const ckpt_zip *zip, uint64_t *n_top, ckpt_err *err)
{
    assert(n_top);
    const ckpt_zip_record *first = zip->records.at;
    const char *slash = memchr(first->name, '/', (size_t)first->n_name);
    size_t i;

    if (!slash)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: record \"%.*s\" is neither in a folder nor a .npy file: neither "
                         "torch.save nor np.savez wrote this archive",
                         zip->io->name, zip_show(first->n_name), first->name);
    *n_top = (uint64_t)(slash - first->name);
    for (i = 1; i < zip->records.n; i++) {
        const ckpt_zip_record *r = &zip->records.at[i];

        if (r->n_name <= *n_top || memcmp(r->name, first->name, (size_t)*n_top + 1) != 0)
            return ckpt_fail(
                err, CKPT_EFORMAT, "%s: record \"%.*s\" lies outside the archive's folder \"%.*s\"",
                zip->io->name, zip_show(r->n_name), r->name, zip_show(*n_top), first->name);
    }
    return CKPT_OK;
}
