/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parts.c: reads the small objects of .metadata by their attributes, and stores each text and each
 * list of numbers once.
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

bool ckpt_dcp_numbers(uint64_t out[CKPT_MAX_DIM], uint32_t *n, const ckpt_value *v)
{
    assert(out && n);
    const ckpt_seq s = ckpt_value_seq(v);

    if (!v || (v->kind != CKPT_V_SIZE && v->kind != CKPT_V_TUPLE && v->kind != CKPT_V_LIST) ||
        s.n > CKPT_MAX_DIM)
        return false;
    for (uint64_t i = 0; i < s.n; i++) {
        if (!dpr_number(s.at[i], &out[i]))
            return false;
    }
    *n = (uint32_t)s.n;
    return true;
}

/* ---- lists ---- */

static bool dpr_same_list(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_dcp_list *a = &((const ckpt_dcp_parts *)ctx)->out->list.at[number], *b = key;

    bool same = a->n == b->n;

    for (uint32_t i = 0; same && i < b->n; i++) // of few numbers
        same = a->at[i] == b->at[i];
    return same;
}

uint32_t ckpt_dcp_enter_list(ckpt_dcp_parts *parts, const uint64_t *at, uint32_t n, uint32_t guess)
{
    assert(parts && at && n <= CKPT_MAX_DIM);
    ckpt_dcp_lists *lists = &parts->out->list;
    const ckpt_dcp_list key = {at, n};
    uint32_t hash, found;
    ckpt_dcp_list *to;

    // lists of another folder are not in by_list, so that they would be entered again
    for (uint32_t i = 0; i < 2 && guess >= parts->first_list; i++) {
        if (guess < lists->n && i < lists->n - guess && dpr_same_list(parts, guess + i, &key))
            return guess + i;
    }
    hash = ckpt_hash_bytes(at, n * sizeof *at, n);
    found = ckpt_index_find(&parts->by_list, hash, dpr_same_list, parts, &key);
    if (found != CKPT_INDEX_NONE)
        return found;
    found = (uint32_t)lists->n;
    to = found < CKPT_INDEX_NONE / 2 ? ckpt_vec_push(lists) : NULL;
    if (to)
        *to = (ckpt_dcp_list){ckpt_arena_copy(parts->kept, at, n * sizeof *at), n};
    parts->no_memory =
        parts->no_memory || !to || !to->at || !ckpt_index_add(&parts->by_list, hash, found);
    return parts->no_memory ? CKPT_INDEX_NONE : found;
}

/* The index of a value's list of numbers in *out, which holds the one of the part before. */
static bool dpr_list(ckpt_dcp_parts *parts, const ckpt_value *v, uint32_t *out)
{
    uint64_t at[CKPT_MAX_DIM];
    uint32_t n, number;

    if (!ckpt_dcp_numbers(at, &n, v))
        return false;
    number = ckpt_dcp_enter_list(parts, at, n, *out);
    if (number != CKPT_INDEX_NONE)
        *out = number;
    return number != CKPT_INDEX_NONE;
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

/* The numbers of parts in the pickle's values: BOX i is i, KEY i and INFO i are these. */
#define DPR_ENTRY(i, is_info) (INT64_C(1) << 32 | (int64_t)(i) << 1 | (is_info))

static bool dpr_box(ckpt_dcp_parts *parts, const ckpt_value *offsets, const ckpt_value *sizes,
                    int64_t *number)
{
    const ckpt_dcp_list *list;
    ckpt_dcp_box_row *to;

    if (!dpr_list(parts, offsets, &parts->last_start) || !dpr_list(parts, sizes, &parts->last_size))
        return false;
    list = parts->out->list.at;
    if (list[parts->last_start].n != list[parts->last_size].n)
        return false;
    to = parts->box.n < CKPT_INDEX_NONE ? ckpt_vec_push(&parts->box) : NULL;
    parts->no_memory = !to;
    if (to)
        *to = (ckpt_dcp_box_row){parts->last_start, parts->last_size};
    *number = (int64_t)parts->box.n - 1;
    return to != NULL;
}

/* A new entry; NULL: no memory. */
static ckpt_dcp_entry *dpr_entry(ckpt_dcp_parts *parts)
{
    ckpt_dcp_entries *all = &parts->out->entry;
    ckpt_dcp_entry *to = all->n < CKPT_INDEX_NONE / 2 ? ckpt_vec_push(all) : NULL;

    parts->no_memory = !to;
    return to;
}

static bool dpr_key(ckpt_dcp_parts *parts, const ckpt_value *name, const ckpt_value *offset,
                    int64_t *number)
{
    ckpt_dcp_entry *to;
    uint32_t text;

    if (name->kind != CKPT_V_STR || (offset && !dpr_list(parts, offset, &parts->last_offset)))
        return false;
    text = dpr_enter(parts, &name->as.text, parts->last_name + 1);
    to = text != CKPT_INDEX_NONE ? dpr_entry(parts) : NULL;
    if (!to)
        return false;
    parts->last_name = to->name = text;
    to->offset = offset && parts->out->list.at[parts->last_offset].n > 0 ? parts->last_offset
                                                                         : CKPT_INDEX_NONE;
    parts->open = true;
    *number = DPR_ENTRY(parts->out->entry.n - 1, 0);
    return true;
}

/*
 * Read a _StorageInfo; false if it has transforms, because these change an entry's bytes: the entry
 * is then not a torch archive.
 */
static bool dpr_info(ckpt_dcp_parts *parts, const ckpt_value *const *attr, int64_t *number)
{
    const ckpt_value *file = attr[DPR_FILE];
    ckpt_dcp_entry *to;
    uint64_t at, n;
    uint32_t text;

    if (file->kind != CKPT_V_STR || !dpr_number(attr[DPR_OFFSET], &at) ||
        !dpr_number(attr[DPR_LENGTH], &n) || ckpt_value_seq(attr[DPR_TRANSFORMS]).n > 0)
        return false;
    text = dpr_enter(parts, &file->as.text, parts->last_file);
    if (text == CKPT_INDEX_NONE)
        return false;
    // it usually follows its key
    to = parts->open ? &parts->out->entry.at[parts->out->entry.n - 1] : dpr_entry(parts);
    if (!to)
        return false;
    to->at = at;
    to->n = n;
    parts->last_file = to->file = text;
    parts->open = false;
    *number = DPR_ENTRY(parts->out->entry.n - 1, 1);
    return true;
}

/* The attribute with this name, or DPR_ATTRS.  The length and the first letter tell them apart. */
static unsigned dpr_attr(const ckpt_text *name)
{
    static const char *const names[DPR_ATTRS] = {
        [DPR_OFFSETS] = "offsets",
        [DPR_SIZES] = "sizes",
        [DPR_FQN] = "fqn",
        [DPR_OFFSET] = "offset",
        [DPR_FILE] = "relative_path",
        [DPR_LENGTH] = "length",
        [DPR_TRANSFORMS] = "transform_descriptors",
        [DPR_INDEX] = "index",
    };
    unsigned k;

    switch (name->n) {
    case 3:
        k = DPR_FQN;
        break;
    case 5:
        k = name->at[0] == 's' ? DPR_SIZES : DPR_INDEX;
        break;
    case 6:
        k = name->at[0] == 'o' ? DPR_OFFSET : DPR_LENGTH;
        break;
    case 7:
        k = DPR_OFFSETS;
        break;
    case 13:
        k = DPR_FILE;
        break;
    case 21:
        k = DPR_TRANSFORMS;
        break;
    default:
        return DPR_ATTRS;
    }
    return memcmp(name->at, names[k], (size_t)name->n) == 0 ? k : DPR_ATTRS;
}

/*
 * Find the known attributes of an object in one pass; those that are absent or None are NULL.
 * Returns the key of an unknown one, or NULL.
 */
static const ckpt_value *dpr_attrs(const ckpt_value **attr, const ckpt_object *o)
{
    const ckpt_dict map = o->state ? ckpt_value_map(o->state) : (ckpt_dict){0};
    const ckpt_value *other = NULL;

    for (uint64_t i = 0; i < map.n; i++) {
        const ckpt_value *key = map.at[i].key, *value = map.at[i].value;
        unsigned k;

        if (value->kind == CKPT_V_NONE)
            continue;
        k = key->kind == CKPT_V_STR ? dpr_attr(&key->as.text) : DPR_ATTRS;
        if (k < DPR_ATTRS)
            attr[k] = value;
        else
            other = key;
    }
    return other;
}

bool ckpt_dcp_take(void *ctx, const ckpt_object *o, int64_t *number)
{
    assert(ctx && o && number);
    ckpt_dcp_parts *parts = ctx;
    const ckpt_value *attr[DPR_ATTRS] = {NULL}, *other;
    bool ok = false;

    // an object with list or dict items is not such a part; a text without memory is not read again
    if (parts->no_memory || o->items.n > 0 || o->pairs.n > 0)
        return false;
    other = dpr_attrs(attr, o);
    if (attr[DPR_OFFSETS])
        ok = dpr_box(parts, attr[DPR_OFFSETS], attr[DPR_SIZES], number);
    else if (attr[DPR_FQN])
        ok = dpr_key(parts, attr[DPR_FQN], attr[DPR_OFFSET], number);
    else if (attr[DPR_FILE])
        ok = dpr_info(parts, attr, number);
    if (ok && other && parts->n_others++ == 0)
        parts->other = other->kind == CKPT_V_STR
                           ? ckpt_arena_string(parts->kept, other->as.text.at, other->as.text.n)
                           : "another key";
    return ok;
}

uint32_t ckpt_dcp_part_of(ckpt_dcp_parts *parts, const ckpt_value *v, ckpt_dcp_part_kind kind)
{
    assert(parts && v && kind <= CKPT_DCP_INFO);
    int64_t number;
    bool is_entry;

    if (v->kind == CKPT_V_INT && v->state)
        number = v->as.i;
    else if (v->kind != CKPT_V_OBJECT || !ckpt_dcp_take(parts, v->as.object, &number))
        return CKPT_INDEX_NONE;
    is_entry = number >= DPR_ENTRY(0, 0);
    if (!is_entry)
        return kind == CKPT_DCP_BOX ? (uint32_t)number : CKPT_INDEX_NONE;
    if (kind != ((number & 1) != 0 ? CKPT_DCP_INFO : CKPT_DCP_KEY))
        return CKPT_INDEX_NONE;
    return (uint32_t)((number - DPR_ENTRY(0, 0)) >> 1);
}

void ckpt_dcp_parts_free(ckpt_dcp_parts *parts)
{
    ckpt_vec_free(&parts->box);
    ckpt_vec_free(&parts->text);
    ckpt_index_free(&parts->by_text);
    ckpt_index_free(&parts->by_list);
    *parts = (ckpt_dcp_parts){0};
}
