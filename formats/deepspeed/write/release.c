/* SPDX-License-Identifier: Apache-2.0 */
/*
 * release.c: knows the differences between DeepSpeed's releases: keys by table, and padding.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/write/write.h"

int ckpt_dsw_release(const char *version)
{
    int part[3] = {0};
    const char *p = version;

    if (!version)
        return CKPT_DS_RELEASE(0, 3, 16);
    for (int i = 0; i < 3; i++) {
        if (*p < '0' || *p > '9')
            return i == 0 ? -1 : CKPT_DS_RELEASE(part[0], part[1], part[2]);
        for (; *p >= '0' && *p <= '9' && part[i] < 1000; p++)
            part[i] = part[i] * 10 + (*p - '0');
        if (part[i] > 999)
            return -1;
        // e.g. "0.12.6+abc" and "0.15"
        if (*p != '.')
            return CKPT_DS_RELEASE(part[0], part[1], part[2]);
        p++;
    }
    return CKPT_DS_RELEASE(part[0], part[1], part[2]);
}

/* ---- dicts by tables of keys ---- */

static const ckpt_dsw_key *rel_find(const ckpt_dsw_key *table, const ckpt_value *key)
{
    for (; table->key; table++) {
        if (ckpt_value_is(key, table->key))
            return table;
    }
    return NULL;
}

/* Add one entry: made (a maker may leave it out with NULL), copied, or None. */
static void rel_put(ckpt_dsw_file *f, ckpt_value *dict, ckpt_value *key, const ckpt_dsw_key *k,
                    const ckpt_value *old)
{
    ckpt_value *v = k && k->make ? k->make(f, old)
                    : old        ? ckpt_tt_copy(&f->t, old)
                                 : ckpt_tt_new(&f->t, CKPT_V_NONE);

    if (v || f->t.rc != CKPT_OK)
        ckpt_tt_put_at(&f->t, dict, key, v);
}

bool ckpt_dsw_follows(const ckpt_train_job *job, const ckpt_dsw_how *how)
{
    return !job->state->foreign && how->release == how->from_release &&
           ckpt_value_get(job->state->model, "module");
}

ckpt_value *ckpt_dsw_dict(ckpt_dsw_file *f, const ckpt_value *old, const ckpt_dsw_key *table,
                          bool follow)
{
    ckpt_value *dict = ckpt_tt_new(&f->t, CKPT_V_DICT);
    ckpt_dict from = ckpt_value_map(old);

    for (const ckpt_dsw_key *k = table; !follow && k->key; k++) {
        const ckpt_value *v = ckpt_value_get(old, k->key);
        if (k->since <= f->how->release && (k->until == 0 || f->how->release < k->until))
            rel_put(f, dict, ckpt_tt_str(&f->t, k->key), k, v);
        else if (v && v->kind != CKPT_V_NONE && f->t.rc == CKPT_OK)
            f->t.rc = ckpt_train_left_out(
                f->job, CKPT_INFO, "%s: the DeepSpeed release of the output does not have it",
                k->key);
    }
    for (uint64_t i = 0; i < from.n && f->t.rc == CKPT_OK; i++) {
        const ckpt_dsw_key *k = rel_find(table, from.at[i].key);
        if (follow || !k)
            rel_put(f, dict, ckpt_tt_copy(&f->t, from.at[i].key), k, from.at[i].value);
    }
    return dict;
}

/* ---- padding ---- */

uint64_t ckpt_dsw_padding(const ckpt_dsw_how *how, const ckpt_dsw_part *p, uint32_t index)
{
    assert(index < (uint64_t)p->world * p->intervals);
    if (how->release >= CKPT_DS_RELEASE(0, 16, 4))
        return ckpt_zero_flat_padding(&p->flat, index);
    // Earlier releases count padding only on the last rank, even if it is longer than the slice.
    return index + 1 == p->world ? p->flat.total - p->flat.used : 0;
}

/* The length of a tensor of n elements after Python's [:-cut]. */
static uint64_t rel_cut(uint64_t n, uint64_t cut)
{
    if (cut <= n)
        return n - cut;
    return cut - n < n ? n - (cut - n) : 0;
}

uint64_t ckpt_dsw_saved(const ckpt_dsw_how *how, const ckpt_dsw_part *p, uint32_t index)
{
    assert(index < (uint64_t)p->world * p->intervals);
    uint64_t s = p->slice, n = p->flat.used;

    if (how->bf16_optimizer)
        return s;
    if (how->release >= CKPT_DS_RELEASE(0, 16, 4) || how->legacy)
        return s - ckpt_zero_flat_padding(&p->flat, index);
    if (how->release >= CKPT_DS_RELEASE(0, 7, 0))
        return rel_cut(s, ckpt_dsw_padding(how, p, index));
    // the padding to a multiple of w is cut, the rest up to 2w is not
    return index + 1 == p->world ? rel_cut(s, (p->world - n % p->world) % p->world) : s;
}
