/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c: lays out safetensors files byte for byte as the library writes them.
 *
 * Tensors are sorted by dtype, larger dtypes first, then by name, without gaps; "__metadata__" is
 * first in the header; the JSON is compact and padded with spaces to a multiple of 8.  Checked
 * against safetensors 0.8.0.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/safetensors.h"
#include "libckpt/base/cast.h"
#include "libckpt/codec/json/json.h"

/* One pair of "__metadata__". */
typedef struct stw_pair {
    const char *key, *text;
} stw_pair;

CKPT_VEC(stw_pairs, stw_pair);

typedef struct stw_writer {
    ckpt_map *to;
    uint32_t file;
    const ckpt_component *component; /* the file's model; NULL: the whole map */
    ckpt_err *err;
    ckpt_tensors tensors; /* tensors of this file, in the order of their data */
    stw_pairs pairs;
    ckpt_bytes header; /* 8 bytes of length, then the JSON */
} stw_writer;

/* The name that the file stores. */
static const char *stw_name(const stw_writer *w, const ckpt_tensor *t)
{
    return w->component ? t->name + strlen(w->component->prefix) : t->name;
}

/* For qsort: by the library's rank of dtypes, larger (more aligned) dtypes first, then by name. */
static int stw_tensor_order(const void *pa, const void *pb)
{
    const ckpt_tensor *a = *(ckpt_tensor *const *)pa, *b = *(ckpt_tensor *const *)pb;
    unsigned oa = ckpt_dtype_get(a->dtype)->st_order, ob = ckpt_dtype_get(b->dtype)->st_order;

    return oa != ob ? (oa > ob ? -1 : 1) : strcmp(a->name, b->name);
}

/* For qsort and bsearch: by key, in byte order. */
static int stw_pair_order(const void *pa, const void *pb)
{
    return strcmp(((const stw_pair *)pa)->key, ((const stw_pair *)pb)->key);
}

/* Append a pair; its strings are borrowed and live as long as the map. */
static int stw_add_pair(stw_writer *w, const char *key, const char *text)
{
    stw_pair *p = ckpt_vec_push(&w->pairs);

    if (!p)
        return ckpt_fail_memory(w->err);
    *p = (stw_pair){key, text};
    return CKPT_OK;
}

/* Add a tensor of this file to the data; one that is tied to another goes into the metadata. */
static int stw_take(stw_writer *w, ckpt_tensor *t)
{
    if (w->component && strncmp(t->name, w->component->prefix, strlen(w->component->prefix)) != 0)
        return ckpt_fail(w->err, CKPT_EMISMATCH, "tensor \"%.200s\" is not below \"%.200s\"",
                         t->name, w->component->prefix);
    if (strcmp(stw_name(w, t), CKPT_ST_METADATA) == 0)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "safetensors reserves the name \"%s\": rename this tensor", t->name);
    if (t->owner && strcmp(stw_name(w, t), "format") == 0)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "safetensors cannot record that \"format\" is tied to \"%s\": rename it",
                         t->owner->name);
    if (t->owner && t->owner->file != w->file)
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "tensor \"%.200s\" is tied to \"%.200s\", which goes to another file",
                         t->name, t->owner->name);
    if (t->owner)
        return stw_add_pair(w, stw_name(w, t), stw_name(w, t->owner));
    if (!ckpt_dtype_get(t->dtype)->safetensors)
        return ckpt_fail(
            w->err, CKPT_EUNSUPPORTED, "tensor \"%.200s\": safetensors has no dtype %s; %s",
            t->name, ckpt_dtype_name(t->dtype),
            ckpt_cast_find(CKPT_BF16, t->dtype) ? "--dtype bf16 converts it"
                                                : "leave it out, or write another format");
    ckpt_tensor **slot = ckpt_vec_push(&w->tensors);
    if (!slot)
        return ckpt_fail_memory(w->err);
    *slot = t;
    return CKPT_OK;
}

/*
 * Collect the metadata: "format": "pt", because loaders require it, the tied names, and the
 * checkpoint's own pairs.  The result is sorted; of equal keys the first in this list wins.
 */
static int stw_metadata(stw_writer *w)
{
    ckpt_dict carried = w->component ? w->component->metadata : w->to->metadata;
    size_t n = w->pairs.n;
    int rc = stw_add_pair(w, "format", "pt");

    if (rc == CKPT_OK)
        qsort(w->pairs.at, w->pairs.n, sizeof *w->pairs.at, stw_pair_order);
    n = w->pairs.n;
    for (uint64_t i = 0; rc == CKPT_OK && i < carried.n; i++) {
        stw_pair p = {carried.at[i].key->as.text.at, carried.at[i].value->as.text.at};
        if (!bsearch(&p, w->pairs.at, n, sizeof p, stw_pair_order))
            rc = stw_add_pair(w, p.key, p.text);
        // append only, because bsearch needs the first n pairs sorted
    }
    if (rc == CKPT_OK)
        qsort(w->pairs.at, w->pairs.n, sizeof *w->pairs.at, stw_pair_order);
    return rc;
}

/* Write "__metadata__" as the first member, so that every tensor's entry begins with a comma. */
static bool stw_write_metadata(stw_writer *w)
{
    bool ok = ckpt_bytes_printf(&w->header, "{\"" CKPT_ST_METADATA "\":{");

    for (size_t i = 0; ok && i < w->pairs.n; i++) {
        const stw_pair *p = &w->pairs.at[i];
        if (i > 0 && strcmp(p->key, w->pairs.at[i - 1].key) == 0)
            continue;
        ok = (i == 0 || ckpt_bytes_add(&w->header, ",", 1)) &&
             ckpt_json_string(&w->header, p->key, strlen(p->key), false) &&
             ckpt_bytes_add(&w->header, ":", 1) &&
             ckpt_json_string(&w->header, p->text, strlen(p->text), false);
    }
    return ok && ckpt_bytes_add(&w->header, "}", 1);
}

/* Append the entry of a tensor with bytes begin..end-1 of the data. */
static bool stw_write_entry(stw_writer *w, const ckpt_tensor *t, uint64_t begin, uint64_t end)
{
    const char *name = stw_name(w, t);
    ckpt_bytes *out = &w->header;
    bool ok = ckpt_bytes_add(out, ",", 1) && ckpt_json_string(out, name, strlen(name), false) &&
              ckpt_bytes_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", ckpt_dtype_name(t->dtype));

    for (uint32_t k = 0; ok && k < t->ndim; k++)
        ok = ckpt_bytes_printf(out, k ? ",%" PRIu64 : "%" PRIu64, t->shape[k]);
    return ok &&
           ckpt_bytes_printf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, end);
}

/*
 * Make the header with its length field; *n_data is the size of the data.
 *
 * It is padded to a multiple of 8, so that readers which map the file find aligned data.
 */
static int stw_header(stw_writer *w, uint64_t *n_data)
{
    static const uint8_t length[8] = {0};
    uint64_t at = 0, n_bytes = 0;
    bool ok = ckpt_bytes_add(&w->header, length, sizeof length) && stw_write_metadata(w);
    int rc = ok ? CKPT_OK : ckpt_fail_memory(w->err);

    for (size_t i = 0; rc == CKPT_OK && i < w->tensors.n; i++) {
        const ckpt_tensor *t = w->tensors.at[i];
        if (!ckpt_dtype_bytes(t->dtype, t->n_elems, &n_bytes) || !ckpt_add(at, n_bytes, &n_bytes))
            rc = ckpt_fail(w->err, CKPT_ELIMIT, "tensor \"%.200s\": the file's size overflows",
                           t->name);
        if (rc == CKPT_OK && !stw_write_entry(w, t, at, n_bytes))
            rc = ckpt_fail_memory(w->err);
        at = n_bytes;
    }
    ok = rc == CKPT_OK && ckpt_bytes_add(&w->header, "}", 1);
    while (ok && w->header.n % 8 != 0)
        ok = ckpt_bytes_add(&w->header, " ", 1);
    if (rc == CKPT_OK && !ok)
        rc = ckpt_fail_memory(w->err);
    if (rc == CKPT_OK && w->header.n - 8 > CKPT_ST_HEADER_MAX)
        rc = ckpt_fail(w->err, CKPT_ELIMIT,
                       "the header would take %zu bytes, safetensors allows %" PRIu64
                       ": write more shards",
                       w->header.n - 8, CKPT_ST_HEADER_MAX);
    for (unsigned k = 0; rc == CKPT_OK && k < 8; k++)
        w->header.at[k] = (uint8_t)((uint64_t)(w->header.n - 8) >> (8 * k));
    *n_data = at;
    return rc;
}

/* Add a source and an extent for each tensor. */
static int stw_back(stw_writer *w)
{
    uint64_t at = w->header.n;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->tensors.n; i++) {
        ckpt_tensor *t = w->tensors.at[i];
        uint64_t n = 0;
        uint32_t source = 0;
        (void)ckpt_dtype_bytes(t->dtype, t->n_elems, &n); // cannot fail: checked for the header
        if (n == 0)
            continue;
        ckpt_source s = {.kind = CKPT_SOURCE_FILE,
                         .file = w->file,
                         .at = at,
                         .n_stored = n,
                         .n_bytes = n,
                         .name = t->name};
        rc = ckpt_map_add_source(w->to, &s, &source, w->err);
        if (rc == CKPT_OK)
            rc = ckpt_map_back_whole(w->to, t, source, 0, w->err);
        at += n;
    }
    return rc;
}

/* Offsets follow from names, dtypes and shapes alone; none depends on the values. */
int ckpt_safetensors_place(ckpt_map *to, uint32_t file, ckpt_err *err)
{
    assert(file < to->files.n);
    stw_writer w = {.to = to, .file = file, .component = to->files.at[file].component, .err = err};
    uint64_t n_data = 0, size = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < to->tensors.n; i++) {
        if (to->tensors.at[i]->file == file)
            rc = stw_take(&w, to->tensors.at[i]);
    }
    if (rc == CKPT_OK && w.tensors.n > 0)
        qsort(w.tensors.at, w.tensors.n, sizeof *w.tensors.at, stw_tensor_order);
    if (rc == CKPT_OK)
        rc = stw_metadata(&w);
    if (rc == CKPT_OK)
        rc = stw_header(&w, &n_data);
    if (rc == CKPT_OK && !ckpt_add(w.header.n, n_data, &size))
        rc = ckpt_fail(err, CKPT_ELIMIT, "%s: the file's size overflows", to->files.at[file].path);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_literal(to, file, 0, w.header.at, w.header.n, err);
    if (rc == CKPT_OK)
        rc = stw_back(&w);
    if (rc == CKPT_OK)
        to->files.at[file].size = size;
    ckpt_vec_free(&w.tensors);
    ckpt_vec_free(&w.pairs);
    ckpt_vec_free(&w.header);
    return rc;
}
