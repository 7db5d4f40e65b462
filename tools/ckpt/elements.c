/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elements.c: parses ranges of elements and reads them.
 *
 * It reads blocks of 65536 elements: at most 1 MiB, for the widest dtype.
 */
#include "tools/ckpt/elements.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt_extra.h"
#include "libckpt/base/number.h"
#include "tools/cli/near.h"
#include "tools/cli/words.h"

enum { ELEMENTS_BLOCK = 1 << 16, ELEMENTS_MAX_HINTS = 3 };

int elements_each(const elements *r, elements_fn fn, void *ctx, ckpt_err *err)
{
    const ckpt_tensor *t = r->t->owner ? r->t->owner : r->t;
    unsigned bytes, per = ckpt_dtype_block(r->dtype, &bytes);
    ckpt_reader *reader = NULL;
    bool going = true;
    void *buf = malloc(ELEMENTS_BLOCK / per * (size_t)bytes);

    int rc = buf ? ckpt_reader_new(&reader, r->map, err) : fail(err, CKPT_ELIMIT, "out of memory");
    if (rc == CKPT_OK)
        ckpt_reader_compare(reader);
    if (rc == CKPT_OK && r->no_crc)
        ckpt_reader_skip_crc(reader);
    for (uint64_t done = 0; rc == CKPT_OK && going && done < r->count; done += ELEMENTS_BLOCK) {
        uint64_t left = r->count - done;
        size_t n = left < ELEMENTS_BLOCK ? (size_t)left : ELEMENTS_BLOCK;
        rc = ckpt_reader_read(reader, t, r->first + done, n, r->dtype, buf, err);
        if (rc == CKPT_OK)
            going = fn(ctx, r, buf, n) && !out_broken();
    }
    ckpt_reader_free(reader);
    free(buf);
    return rc;
}

/* Report an unknown name with suggestions, because names are long and easily mistyped. */
static int elements_unknown(const ckpt_map *map, const char *name, ckpt_err *err)
{
    char hints[256] = "";
    near_word near;
    unsigned n = 0;

    near_begin(&near, name, strlen(name));
    // the user probably means a name that contains the word
    for (size_t i = 0; i < ckpt_map_tensor_count(map) && n < ELEMENTS_MAX_HINTS; i++) {
        const char *other = ckpt_map_tensor_at(map, i)->name;
        near_try(&near, other);
        if (!strstr(other, name) || strlen(hints) + strlen(other) + 3 > sizeof hints)
            continue;
        (void)strcat(strcat(hints, n++ ? ", " : ""), other);
    }
    if (n == 0 && near.best)
        return fail(err, CKPT_EMISSING, "%s: no tensor '%s' among %zu; did you mean '%s'?",
                    ckpt_map_path(map), name, ckpt_map_tensor_count(map), near.best);
    return fail(err, CKPT_EMISSING, "%s: no tensor '%s' among %zu%s%s", ckpt_map_path(map), name,
                ckpt_map_tensor_count(map), n ? "; similar names: " : " (ckpt ls lists them)",
                hints);
}

int elements_open(ckpt_map **map, elements *r, cli_args *a, ckpt_err *err)
{
    const char *name = a->operand[1];
    int rc = ckpt_open(map, a->operand[0], &a->open, err);

    // load state only if necessary, because it costs a second opening
    r->t = rc == CKPT_OK ? ckpt_map_find(*map, name) : NULL;
    if (rc == CKPT_OK && !r->t) {
        ckpt_map_free(*map);
        *map = NULL;
        a->open.with_optimizer = true;
        rc = ckpt_open(map, a->operand[0], &a->open, err);
        r->t = rc == CKPT_OK ? ckpt_map_find(*map, name) : NULL;
    }
    if (rc == CKPT_OK && !r->t)
        rc = elements_unknown(*map, name, err);
    r->map = *map;
    return rc;
}

int elements_set_range(elements *r, const char *text, ckpt_err *err)
{
    const char *colon = text ? strchr(text, ':') : NULL;

    r->first = 0;
    r->count = r->t->n_elems;
    if (!text)
        return CKPT_OK;
    if (!colon || (colon > text && ckpt_scan_u64(text, &r->first) != colon))
        return fail(err, CKPT_EUSAGE, "--range: '%s' is not FIRST:COUNT", text);
    if (r->first > r->t->n_elems)
        return fail(err, CKPT_EUSAGE, "--range: %s has only %" PRIu64 " elements", r->t->name,
                    r->t->n_elems);
    r->count = r->t->n_elems - r->first;
    uint64_t count = r->count;
    if (colon[1] && !ckpt_parse_u64(colon + 1, &count))
        return fail(err, CKPT_EUSAGE, "--range: '%s' is not FIRST:COUNT", text);
    // refuse it, because the user would not notice missing elements
    if (count > r->count)
        return fail(err, CKPT_EUSAGE, "--range: %s has only %" PRIu64 " elements", r->t->name,
                    r->t->n_elems);
    r->count = count;
    return CKPT_OK;
}
