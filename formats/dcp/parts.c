/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parts.c: reads the small objects of .metadata by their attributes, and stores each text once.
 */
#include <assert.h>
#include <string.h>

#include "formats/dcp/parts.h"
#include "libckpt/map/map.h"

/* The attributes of parts. */
enum {
    DPR_OFFSETS,
    DPR_SIZES,
    DPR_FQN,
    DPR_OFFSET,
    DPR_FILE,
    DPR_LENGTH,
    DPR_TRANSFORMS,
    DPR_INDEX,
    DPR_ATTRS
};

/* ---- attributes ---- */

const ckpt_value *ckpt_dcp_attr(const ckpt_object *o, const char *name)
{
    const ckpt_value *attr = o ? ckpt_value_get(o->state, name) : NULL;

    return attr && attr->kind != CKPT_V_NONE ? attr : NULL;
}

/* Read a number of elements or bytes. */
static bool dpr_number(const ckpt_value *v, uint64_t *out)
{
    if (!v || v->kind != CKPT_V_INT || v->state || v->as.i < 0)
        return false;
    *out = (uint64_t)v->as.i;
    return true;
}

bool ckpt_dcp_numbers(ckpt_dcp_parts *parts, ckpt_arena *arena, const ckpt_value *v,
                      const uint64_t **out, uint32_t *n)
{
    assert(parts && arena && out && n);
    ckpt_seq s = ckpt_value_seq(v);
    uint64_t *at;

    if (!v || (v->kind != CKPT_V_SIZE && v->kind != CKPT_V_TUPLE && v->kind != CKPT_V_LIST) ||
        s.n > CKPT_MAX_DIM)
        return false;
    at = ckpt_arena_array(arena, s.n > 0 ? s.n : 1, sizeof *at);
    for (uint64_t i = 0; at && i < s.n; i++) {
        if (!dpr_number(s.at[i], &at[i]))
            return false;
    }
    parts->no_memory = parts->no_memory || !at;
    *out = at;
    *n = (uint32_t)s.n;
    return at != NULL;
}

/*
 * Read numbers into an arena, or share those of the part before: most chunks of a tensor have equal
 * sizes, and tensors of one shape have equal offsets.
 */
static bool dpr_numbers(ckpt_dcp_parts *parts, ckpt_arena *arena, const ckpt_value *v,
                        ckpt_dcp_numbers_of *last, const uint64_t **out, uint32_t *n)
{
    ckpt_seq s = ckpt_value_seq(v);
    bool same = last->at && v && s.n == last->n && (v->kind == CKPT_V_SIZE);

    for (uint64_t i = 0; same && i < s.n; i++) {
        const ckpt_value *item = s.at[i];
        same = item->kind == CKPT_V_INT && !item->state && (uint64_t)item->as.i == last->at[i];
    }
    if (!same) {
        if (!ckpt_dcp_numbers(parts, arena, v, &last->at, &last->n))
            return false;
    }
    *out = last->at;
    *n = last->n;
    return true;
}

/* ---- texts ---- */

static bool dpr_same_text(const void *ctx, uint32_t number, const void *key)
{
    assert(number < ((const ckpt_dcp_parts *)ctx)->text.n);
    const ckpt_text *a = &((const ckpt_dcp_parts *)ctx)->text.at[number], *b = key;

    return a->n == b->n && memcmp(a->at, b->at, (size_t)a->n) == 0;
}

static uint32_t dpr_hash(const ckpt_text *text)
{
    return ckpt_hash_bytes(text->at, (size_t)text->n, 0);
}

uint32_t ckpt_dcp_text(const ckpt_dcp_parts *parts, const ckpt_text *text)
{
    assert(parts && text && text->at);
    return ckpt_index_find(&parts->by_text, dpr_hash(text), dpr_same_text, parts, text);
}

/*
 * The number of a text, entered if new; CKPT_INDEX_NONE: no memory.  guess: number of a text that
 * may be the same
 */
static uint32_t dpr_enter(ckpt_dcp_parts *parts, const ckpt_text *text, uint32_t guess)
{
    uint32_t at = guess < parts->text.n && dpr_same_text(parts, guess, text)
                      ? guess
                      : ckpt_dcp_text(parts, text);
    ckpt_text *to;

    if (at != CKPT_INDEX_NONE)
        return at;
    at = (uint32_t)parts->text.n;
    to = at < CKPT_INDEX_NONE / 2 ? ckpt_vec_push(&parts->text) : NULL;
    if (to)
        *to = (ckpt_text){ckpt_arena_string(parts->kept, text->at, text->n), text->n};
    parts->no_memory = !to || !to->at || !ckpt_index_add(&parts->by_text, dpr_hash(text), at);
    return parts->no_memory ? CKPT_INDEX_NONE : at;
}

/* ---- parts ---- */

static bool dpr_box(ckpt_dcp_parts *parts, const ckpt_value *offsets, const ckpt_value *sizes,
                    ckpt_dcp_part *to)
{
    uint32_t n_start, n_count;

    if (!ckpt_dcp_numbers(parts, parts->kept, offsets, &to->as.box.start, &n_start) ||
        !dpr_numbers(parts, parts->kept, sizes, &parts->last_sizes, &to->as.box.count, &n_count) ||
        n_start != n_count)
        return false;
    to->kind = CKPT_DCP_BOX;
    to->n = (uint8_t)n_start;
    return true;
}

static bool dpr_key(ckpt_dcp_parts *parts, const ckpt_value *name, const ckpt_value *offset,
                    ckpt_dcp_part *to)
{
    uint32_t n = 0;

    if (name->kind != CKPT_V_STR ||
        (offset &&
         !dpr_numbers(parts, parts->scratch, offset, &parts->last_offset, &to->as.box.start, &n)))
        return false;
    to->kind = CKPT_DCP_KEY;
    to->n = (uint8_t)n;
    to->text = parts->last_name = dpr_enter(parts, &name->as.text, parts->last_name + 1);
    return to->text != CKPT_INDEX_NONE;
}

/*
 * Read a _StorageInfo; false if it has transforms, because these change an entry's bytes: the entry
 * is then not a torch archive.
 */
static bool dpr_info(ckpt_dcp_parts *parts, const ckpt_value *const *attr, ckpt_dcp_part *to)
{
    const ckpt_value *file = attr[DPR_FILE];

    if (file->kind != CKPT_V_STR || !dpr_number(attr[DPR_OFFSET], &to->as.bytes.at) ||
        !dpr_number(attr[DPR_LENGTH], &to->as.bytes.n) ||
        ckpt_value_seq(attr[DPR_TRANSFORMS]).n > 0)
        return false;
    to->kind = CKPT_DCP_INFO;
    to->text = parts->last_file = dpr_enter(parts, &file->as.text, parts->last_file);
    return to->text != CKPT_INDEX_NONE;
}

/*
 * Find the known attributes of an object in one pass; those that are absent or None are NULL.
 * Returns the key of an unknown one, or NULL.
 */
static const ckpt_value *dpr_attrs(const ckpt_value **attr, const ckpt_object *o)
{
    static const ckpt_text name[DPR_ATTRS] = {
        [DPR_OFFSETS] = {"offsets", 7},
        [DPR_SIZES] = {"sizes", 5},
        [DPR_FQN] = {"fqn", 3},
        [DPR_OFFSET] = {"offset", 6},
        [DPR_FILE] = {"relative_path", 13},
        [DPR_LENGTH] = {"length", 6},
        [DPR_TRANSFORMS] = {"transform_descriptors", 21},
        [DPR_INDEX] = {"index", 5},
    };
    const ckpt_dict map = o->state ? ckpt_value_map(o->state) : (ckpt_dict){0};
    const ckpt_value *other = NULL;

    for (uint64_t i = 0; i < map.n; i++) {
        const ckpt_value *key = map.at[i].key, *value = map.at[i].value;
        bool known = value->kind == CKPT_V_NONE;

        for (unsigned k = 0; !known && k < DPR_ATTRS; k++) {
            known = key->kind == CKPT_V_STR && key->as.text.n == name[k].n &&
                    memcmp(key->as.text.at, name[k].at, (size_t)name[k].n) == 0;
            if (known)
                attr[k] = value;
        }
        other = known ? other : key;
    }
    return other;
}

/* Read an object as the kind of part that matches its attributes; *other: as dpr_attrs returns. */
static bool dpr_read(ckpt_dcp_parts *parts, const ckpt_object *o, ckpt_dcp_part *to,
                     const ckpt_value **other)
{
    const ckpt_value *attr[DPR_ATTRS] = {NULL};

    *other = dpr_attrs(attr, o);
    *to = (ckpt_dcp_part){0};
    if (attr[DPR_OFFSETS])
        return dpr_box(parts, attr[DPR_OFFSETS], attr[DPR_SIZES], to);
    if (attr[DPR_FQN])
        return dpr_key(parts, attr[DPR_FQN], attr[DPR_OFFSET], to);
    return attr[DPR_FILE] && dpr_info(parts, attr, to);
}

bool ckpt_dcp_take(void *ctx, const ckpt_object *o, int64_t *number)
{
    assert(ctx && o && number);
    ckpt_dcp_parts *parts = ctx;
    const ckpt_value *other;
    ckpt_dcp_part part, *to;

    // an object with list or dict items is not such a part; a text without memory is not read again
    if (parts->no_memory || o->items.n > 0 || o->pairs.n > 0 || !dpr_read(parts, o, &part, &other))
        return false;
    if (other && parts->n_others++ == 0)
        parts->other = other->kind == CKPT_V_STR
                           ? ckpt_arena_string(parts->kept, other->as.text.at, other->as.text.n)
                           : "another key";
    to = ckpt_vec_push(&parts->part);
    parts->no_memory = !to;
    if (!to)
        return false;
    *to = part;
    *number = (int64_t)parts->part.n - 1;
    return true;
}

const ckpt_dcp_part *ckpt_dcp_part_of(ckpt_dcp_parts *parts, const ckpt_value *v,
                                      ckpt_dcp_part_kind kind)
{
    assert(parts && v && kind <= CKPT_DCP_INFO);
    const ckpt_dcp_part *part = NULL;
    int64_t number;

    if (v->kind == CKPT_V_INT && v->state)
        part = &parts->part.at[v->as.i];
    else if (v->kind == CKPT_V_OBJECT && ckpt_dcp_take(parts, v->as.object, &number))
        part = &parts->part.at[number];
    return part && part->kind == kind ? part : NULL;
}

uint64_t ckpt_dcp_n_parts(const ckpt_value *v)
{
    return v->kind == CKPT_V_INT && v->state && v->as.taken.n > 0 ? v->as.taken.n : 1;
}

ckpt_value ckpt_dcp_nth_part(const ckpt_value *v, uint64_t i)
{
    ckpt_value one = *v;

    if (i < ckpt_dcp_n_parts(v) && ckpt_dcp_n_parts(v) > 1) {
        one.as.taken.first += (int64_t)i;
        one.as.taken.n = 0;
    }
    return one;
}

void ckpt_dcp_parts_free(ckpt_dcp_parts *parts)
{
    ckpt_vec_free(&parts->part);
    ckpt_vec_free(&parts->text);
    ckpt_index_free(&parts->by_text);
    ckpt_arena_free(parts->scratch);
    *parts = (ckpt_dcp_parts){0};
}
