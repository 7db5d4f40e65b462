/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe.c: writes .metadata: items and chunks as the pickle that torch's FileSystemReader reads.
 *
 * The objects are those of torch 2.3, because later releases read them too: TensorProperties with
 * five members, _StorageInfo without transforms.  Only the names follow torch 2.4, which stores
 * members of param_groups one by one.
 */
#include <assert.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/codec/pickle/pickle.h"

#define DDS_CHECKPOINT "torch.distributed.checkpoint.metadata"

/* Nodes shared by all objects, so the pickle holds each once. */
typedef struct dds_maker {
    ckpt_arena *a;
    ckpt_value *metadata, *tensor, *properties, *chunk, *bytes, *index, *info; /* classes */
    ckpt_value *layout, *memory_format, *nothing, *no, *empty;
    ckpt_value *offsets, *sizes, *fqn, *offset, *number, *path, *length; /* keys */
    bool failed;                                                         /* no memory */
} dds_maker;

/* ---- nodes ---- */

static ckpt_value *dds_new(dds_maker *m, ckpt_value_kind kind)
{
    ckpt_value *v = ckpt_value_new(m->a, kind);

    m->failed = m->failed || !v;
    return v;
}

static ckpt_value *dds_text(dds_maker *m, const char *s)
{
    ckpt_value *v = ckpt_value_cstr(m->a, s);

    m->failed = m->failed || !v;
    return v;
}

static ckpt_value *dds_int(dds_maker *m, uint64_t n)
{
    ckpt_value *v = ckpt_value_int(m->a, (int64_t)n);

    m->failed = m->failed || !v;
    return v;
}

static ckpt_value *dds_class(dds_maker *m, const char *module, const char *name)
{
    ckpt_value *v = dds_new(m, CKPT_V_GLOBAL);

    if (v)
        v->as.global = (ckpt_global){{module, strlen(module)}, {name, strlen(name)}};
    return v;
}

static void dds_item(dds_maker *m, ckpt_value *seq, ckpt_value *item)
{
    m->failed = m->failed || !seq || !item || !ckpt_seq_add(m->a, &seq->as.seq, item);
}

static void dds_pair(dds_maker *m, ckpt_value *dict, ckpt_value *key, ckpt_value *value)
{
    m->failed =
        m->failed || !dict || !key || !value || !ckpt_dict_add(m->a, &dict->as.map, key, value);
}

static void dds_put(dds_maker *m, ckpt_value *dict, const char *key, ckpt_value *value)
{
    dds_pair(m, dict, dds_text(m, key), value);
}

/* Make an object; its state may be NULL. */
static ckpt_value *dds_object(dds_maker *m, ckpt_object_form form, ckpt_value *cls,
                              ckpt_value *args, ckpt_value *state)
{
    ckpt_value *v = dds_new(m, CKPT_V_OBJECT);
    ckpt_object *o = ckpt_arena_alloc(m->a, sizeof *o);

    m->failed = m->failed || !o || !cls || !args;
    if (m->failed)
        return NULL;
    *o = (ckpt_object){.form = form, .cls = cls, .args = args, .state = state};
    v->as.object = o;
    return v;
}

/* Make the call cls(arg). */
static ckpt_value *dds_call(dds_maker *m, ckpt_value *cls, ckpt_value *arg)
{
    ckpt_value *args = dds_new(m, CKPT_V_TUPLE);

    dds_item(m, args, arg);
    return dds_object(m, CKPT_BY_REDUCE, cls, args, NULL);
}

/* Numbers of an item's axes, in torch's units: pairs along the last axis of F4. */
static ckpt_value *dds_size(dds_maker *m, const ckpt_dcp_item *item, const uint64_t *n)
{
    assert(n || item->ndim == 0);
    ckpt_value *v = dds_new(m, CKPT_V_SIZE);

    for (uint32_t k = 0; k < item->ndim; k++) {
        const bool pairs = item->dtype == CKPT_F4 && k + 1 == item->ndim;
        dds_item(m, v, dds_int(m, pairs ? n[k] / 2 : n[k]));
    }
    return v;
}

static void dds_shared(dds_maker *m)
{
    ckpt_value *encoding = dds_class(m, DDS_CHECKPOINT, "_MEM_FORMAT_ENCODING");

    m->metadata = dds_class(m, DDS_CHECKPOINT, "Metadata");
    m->tensor = dds_class(m, DDS_CHECKPOINT, "TensorStorageMetadata");
    m->properties = dds_class(m, DDS_CHECKPOINT, "TensorProperties");
    m->chunk = dds_class(m, DDS_CHECKPOINT, "ChunkStorageMetadata");
    m->bytes = dds_class(m, DDS_CHECKPOINT, "BytesStorageMetadata");
    m->index = dds_class(m, DDS_CHECKPOINT, "MetadataIndex");
    m->info = dds_class(m, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
    m->layout = dds_call(m, dds_class(m, "torch.serialization", "_get_layout"),
                         dds_text(m, "torch.strided"));
    m->memory_format = dds_call(m, encoding, dds_int(m, 0)); // TORCH_CONTIGUOUS_FORMAT
    m->nothing = dds_new(m, CKPT_V_NONE);
    m->no = dds_new(m, CKPT_V_BOOL);
    m->empty = dds_new(m, CKPT_V_TUPLE);
    m->offsets = dds_text(m, "offsets");
    m->sizes = dds_text(m, "sizes");
    m->fqn = dds_text(m, "fqn");
    m->offset = dds_text(m, "offset");
    m->number = dds_text(m, "index");
    m->path = dds_text(m, "relative_path");
    m->length = dds_text(m, "length");
}

/* ---- the three dicts ---- */

static ckpt_value *dds_properties(dds_maker *m, ckpt_dtype dtype)
{
    ckpt_value *state = dds_new(m, CKPT_V_TUPLE), *d = dds_new(m, CKPT_V_DTYPE);

    if (d)
        d->as.dtype = dtype;
    dds_item(m, state, d);
    dds_item(m, state, m->layout);
    dds_item(m, state, m->no);
    dds_item(m, state, m->memory_format);
    dds_item(m, state, m->no);
    return dds_object(m, CKPT_BY_NEWOBJ, m->properties, m->empty, state);
}

static ckpt_value *dds_chunk(dds_maker *m, const ckpt_dcp_item *item, const ckpt_dcp_chunk *c)
{
    ckpt_value *state = dds_new(m, CKPT_V_DICT);

    dds_pair(m, state, m->offsets, dds_size(m, item, c->start));
    dds_pair(m, state, m->sizes, dds_size(m, item, c->count));
    return dds_object(m, CKPT_BY_NEWOBJ, m->chunk, m->empty, state);
}

static ckpt_value *dds_description(dds_maker *m, const ckpt_dcp_metadata *from,
                                   const ckpt_dcp_item *item)
{
    assert(item->first + item->n <= from->chunk.n);
    ckpt_value *state, *chunks;

    if (!item->is_tensor)
        return dds_object(m, CKPT_BY_NEWOBJ, m->bytes, m->empty, NULL);
    state = dds_new(m, CKPT_V_DICT);
    chunks = dds_new(m, CKPT_V_LIST);
    for (size_t i = 0; i < item->n; i++) {
        const ckpt_dcp_chunk c = ckpt_dcp_chunk_at(from, item->first + i);
        dds_item(m, chunks, dds_chunk(m, item, &c));
    }
    dds_put(m, state, "properties", dds_properties(m, item->dtype));
    dds_put(m, state, "size", dds_size(m, item, item->shape));
    dds_put(m, state, "chunks", chunks);
    return dds_object(m, CKPT_BY_NEWOBJ, m->tensor, m->empty, state);
}

/* Add the MetadataIndex and the _StorageInfo of the i-th chunk of an item. */
static void dds_storage(dds_maker *m, ckpt_value *dict, const ckpt_dcp_metadata *from,
                        const ckpt_dcp_item *item, size_t i)
{
    const ckpt_dcp_chunk c = ckpt_dcp_chunk_at(from, item->first + i);
    ckpt_value *index = dds_new(m, CKPT_V_DICT), *info = dds_new(m, CKPT_V_DICT);

    dds_pair(m, index, m->fqn, dds_text(m, item->name.at));
    dds_pair(m, index, m->offset, item->is_tensor ? dds_size(m, item, c.start) : m->nothing);
    dds_pair(m, index, m->number, item->is_tensor ? dds_int(m, i) : m->nothing);
    dds_pair(m, info, m->path, dds_text(m, from->file.at[c.place.file].path));
    dds_pair(m, info, m->offset, dds_int(m, c.place.at));
    dds_pair(m, info, m->length, dds_int(m, c.place.n));
    dds_pair(m, dict, dds_object(m, CKPT_BY_NEWOBJ, m->index, m->empty, index),
             dds_object(m, CKPT_BY_NEWOBJ, m->info, m->empty, info));
}

static ckpt_value *dds_root(dds_maker *m, const ckpt_dcp_metadata *from)
{
    ckpt_value *state = dds_new(m, CKPT_V_DICT), *described = dds_new(m, CKPT_V_DICT),
               *planner = m->nothing, *storage = dds_new(m, CKPT_V_DICT);

    for (size_t i = 0; planner == m->nothing && i < from->item.n; i++)
        planner = from->item.at[i].path ? dds_new(m, CKPT_V_DICT) : planner;
    for (size_t i = 0; !m->failed && i < from->item.n; i++) {
        const ckpt_dcp_item *item = &from->item.at[i];
        ckpt_value *path = dds_new(m, CKPT_V_TUPLE), *name = dds_text(m, item->name.at);
        ckpt_seq keys = ckpt_value_seq(item->path);
        dds_pair(m, described, name, dds_description(m, from, item));
        for (uint64_t k = 0; k < keys.n; k++)
            dds_item(m, path, keys.at[k]);
        if (planner != m->nothing)
            dds_pair(m, planner, name, path);
        for (size_t c = 0; !m->failed && c < item->n; c++)
            dds_storage(m, storage, from, item, c);
    }
    dds_put(m, state, "state_dict_metadata", described);
    dds_put(m, state, "planner_data", planner);
    dds_put(m, state, "storage_data", storage);
    dds_put(m, state, "storage_meta", m->nothing);
    return dds_object(m, CKPT_BY_NEWOBJ, m->metadata, m->empty, state);
}

int ckpt_dcp_describe(ckpt_bytes *out, const ckpt_dcp_metadata *from, ckpt_err *err)
{
    assert(out && from);
    dds_maker m = {.a = ckpt_arena_new(0)};
    ckpt_value *root = NULL;
    int rc = m.a ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK) {
        dds_shared(&m);
        root = m.failed ? NULL : dds_root(&m, from);
        rc = m.failed || !root ? ckpt_fail_memory(err) : ckpt_pickle_write(out, root, err);
    }
    ckpt_arena_free(m.a);
    return rc;
}
