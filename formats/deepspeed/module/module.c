/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.c: sorts the model file's entries into buffers, frozen parameters, 16-bit copies and tied
 * names, and adds them to the map.
 *
 * `module` is the state_dict of the wrapped model. Other keys of the file classify its entries:
 * buffer_names (since 0.4.2), param_shapes, frozen_param_shapes (since 0.9.1, absent in stage 1),
 * shared_params (since 0.9.2). In older files only shared storage, that is the same storage and
 * offset, shows that two names are tied.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/layout/autoep.h"
#include "formats/deepspeed/module/module.h"
#include "formats/deepspeed/module/pipe.h"
#include "libckpt/base/cast.h"
#include "libckpt/base/dtype.h"

enum { DSM_MAX_LISTED = 5 }; /* limit of names in a message */

/* Returns whether ckpt can convert this dtype to float32. */
static bool dsm_has_float(ckpt_dtype d)
{
    return ckpt_cast_find(CKPT_F32, d) != NULL;
}

/* Returns whether a dtype is floating and can be converted to float32. */
static bool dsm_is_float(ckpt_dtype d)
{
    return ckpt_dtype_get(d)->kind == CKPT_IS_FLOAT && dsm_has_float(d);
}

/* ---- classes of entries ---- */

/* Class of a module entry. */
enum { DSM_NEW = 0, DSM_BUFFER, DSM_TRAINED, DSM_FROZEN, DSM_ALIAS, DSM_UNLISTED };

static bool dsm_is_empty(const ckpt_tensor_value *v)
{
    bool empty = false;

    for (unsigned d = 0; d < v->ndim; d++)
        empty = empty || v->shape[d] == 0;
    return empty;
}

/* Returns whether the module has a tensor without elements under this name. All such tensors have
 * address 0, so shared_params ties each to the first one, whatever their shapes. Placeholders of
 * stage 3 do not count. */
static bool dsm_hollow(const ckpt_ds_head *head, const ckpt_ds_module *module,
                       const ckpt_text *name)
{
    const ckpt_pair *e = ckpt_ds_index_find(&module->by_name, name->at, name->n);

    return head->stage != 3 && e && e->value->kind == CKPT_V_TENSOR &&
           dsm_is_empty(e->value->as.tensor);
}

/*
 * Returns whether both tensors of a pair are empty, so only their address 0 ties them. An empty
 * tensor that is tied to one with elements is a real tie.
 */
static bool dsm_no_tie(const ckpt_ds_head *head, const ckpt_ds_module *module,
                       const ckpt_pair *pair)
{
    return pair->key->kind == CKPT_V_STR && pair->value->kind == CKPT_V_STR &&
           dsm_hollow(head, module, &pair->key->as.text) &&
           dsm_hollow(head, module, &pair->value->as.text);
}

/* Sets the class of an entry, and returns its tensor or NULL. */
static const ckpt_tensor_value *dsm_mark(ckpt_ds_module *module, const char *name, uint64_t n,
                                         uint8_t as)
{
    const ckpt_pair *e = ckpt_ds_index_find(&module->by_name, name, n);

    if (!e)
        return NULL;
    // A tied name that is also a buffer remains a buffer, because its data is in the file
    // already.
    if (as != DSM_ALIAS || module->seen[e - module->dict.at] != DSM_BUFFER)
        module->seen[e - module->dict.at] = as;
    return e->value->kind == CKPT_V_TENSOR ? e->value->as.tensor : NULL;
}

/*
 * Returns whether another stage's layer file may have a parameter: that of a tied layer in a
 * pipeline is only in a file of the first stage that uses it.
 */
static bool dsm_is_elsewhere(const ckpt_ds_module *module, const char *name)
{
    return module->layered && strncmp(name, CKPT_DS_TIED, strlen(CKPT_DS_TIED)) == 0;
}

/* Marks the entries listed in buffer_names; a listed buffer without an entry is a problem of the
 * file. */
static int dsm_buffers(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module)
{
    const ckpt_value *listed = ckpt_ds_head_get(head, "buffer_names");
    ckpt_seq names = ckpt_value_seq(listed);
    int rc = CKPT_OK;

    if (listed && listed->kind != CKPT_V_LIST && listed->kind != CKPT_V_TUPLE &&
        listed->kind != CKPT_V_SET)
        return ckpt_fail(job->err, CKPT_EFORMAT, "%s: buffer_names is not a list of names",
                         head->model.path);
    for (uint64_t i = 0; rc == CKPT_OK && i < names.n; i++) {
        const ckpt_value *name = names.at[i];
        if (name->kind != CKPT_V_STR)
            return ckpt_fail(job->err, CKPT_EFORMAT,
                             "%s: buffer_names: entry %" PRIu64 " is not a name", head->model.path,
                             i);
        if (!dsm_mark(module, name->as.text.at, name->as.text.n, DSM_BUFFER) &&
            !dsm_is_elsewhere(module, name->as.text.at))
            rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                                 "%s: buffer_names lists %.200s, but module has no such tensor",
                                 head->model.path, name->as.text.at);
    }
    return rc;
}

int ckpt_ds_module_begin(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module)
{
    assert(head && module && !module->seen);
    // The finding may be that the module is missing.
    if (job->broken)
        return CKPT_OK;
    const ckpt_value *entries = ckpt_value_get(head->model.root, "module");
    if (!entries || (entries->kind != CKPT_V_DICT && entries->kind != CKPT_V_ODICT))
        return ckpt_fail(job->err, CKPT_EFORMAT,
                         "%s: not a DeepSpeed model file: it has no dict `module`",
                         head->model.path);
    module->dict = ckpt_value_map(entries);
    module->seen = ckpt_alloc(module->dict.n + 1);
    int rc = module->seen ? ckpt_ds_index_new(&module->by_name, module->dict, job->err)
                          : ckpt_fail_memory(job->err);
    if (rc == CKPT_OK)
        rc = ckpt_ds_autoep_ties(job, head, module);
    if (rc == CKPT_OK)
        rc = dsm_buffers(job, head, module);
    const ckpt_value *frozen = ckpt_ds_head_get(head, "frozen_param_shapes");
    if (rc == CKPT_OK && frozen)
        rc = ckpt_ds_params_add(job, &module->frozen, frozen, 0, "frozen_param_shapes");
    return rc;
}

void ckpt_ds_module_free(ckpt_ds_module *module)
{
    ckpt_ds_index_free(&module->by_name);
    ckpt_free(module->seen);
    ckpt_free(module->fragment);
    ckpt_vec_free(&module->tie);
    ckpt_vec_free(&module->frozen);
}

/* Storage and offset of a buffer, or of the module's copy of a parameter. */
typedef struct dsm_place {
    uintptr_t storage;
    uint64_t offset; /* elements */
} dsm_place;

/* Sorts by storage, then by offset. */
static int dsm_by_place(const void *a, const void *b)
{
    const dsm_place *x = a, *y = b;

    if (x->storage != y->storage)
        return x->storage < y->storage ? -1 : 1;
    return x->offset == y->offset ? 0 : x->offset < y->offset ? -1 : 1;
}

/* Appends a name to the list in a message, up to DSM_MAX_LISTED names. */
static bool dsm_list(const ckpt_ds_job *job, const char **text, size_t n, const char *name)
{
    if (n > DSM_MAX_LISTED)
        return true;
    *text = ckpt_arena_printf(job->map->arena, "%s%s%.100s", *text ? *text : "", *text ? ", " : "",
                              n == DSM_MAX_LISTED ? "..." : name);
    return *text != NULL;
}

/* Unlisted entries of one class, with their names for the message. */
typedef struct dsm_left {
    const char *names;
    size_t n;
} dsm_left;

static bool dsm_left_add(const ckpt_ds_job *job, dsm_left *left, const ckpt_value *key)
{
    return dsm_list(job, &left->names, left->n++, key->as.text.at);
}

/* Reports the unlisted entries of each class. */
static int dsm_tell(const ckpt_ds_job *job, const ckpt_ds_head *head, const dsm_left *tied,
                    const dsm_left *more, const dsm_left *lost)
{
    const char *file = head->model.path;
    int rc = CKPT_OK;

    if (tied->n)
        rc = ckpt_map_note(job->map, CKPT_INFO, job->err,
                           "%s: %zu tied names share the elements of another parameter or buffer "
                           "and are not listed by this release (%s)",
                           file, tied->n, tied->names);
    // Stage 1 and releases before 0.9.1 never list frozen parameters, so a note would tell the user
    // nothing.
    if (rc == CKPT_OK && more->n && ckpt_ds_head_get(head, "frozen_param_shapes"))
        rc = ckpt_map_note(job->map, CKPT_INFO, job->err,
                           "%s: %zu parameters are unknown to the optimizer, trained or not, and "
                           "come from the module, as it stores them (%s)",
                           file, more->n, more->names);
    if (rc == CKPT_OK && lost->n && head->stage == 3)
        rc = ckpt_map_note(
            job->map, CKPT_WARNING, job->err,
            "%s: %zu names of the module are left out, because they have no values here: they are "
            "tied within one layer, or were never given to the optimizer (%s)",
            file, lost->n, lost->names);
    else if (rc == CKPT_OK && lost->n)
        rc = ckpt_map_note(job->map, CKPT_WARNING, job->err,
                           "%s: %zu tensors of the module are left out, because this release does "
                           "not say whether they are buffers or frozen parameters (%s)",
                           file, lost->n, lost->names);
    return rc;
}

/*
 * Returns whether an entry is a tied name, because it shares storage and offset with a listed
 * entry. Each placeholder of stage 3 normally has its own storage, so two names of one storage are
 * tied; a storage shared by more listed names proves nothing, because some writers gave all
 * placeholders the same.
 */
static bool dsm_is_second(const ckpt_ds_head *head, const ckpt_tensor_value *v,
                          const dsm_place *place, size_t n)
{
    dsm_place at = {(uintptr_t)v->storage, v->offset};
    const dsm_place *found = n ? bsearch(&at, place, n, sizeof at, dsm_by_place) : NULL;

    if (!found || head->stage < 3)
        return found != NULL;
    return (found == place || dsm_by_place(found - 1, found) != 0) &&
           (found + 1 == place + n || dsm_by_place(found + 1, found) != 0);
}

/* Classifies the entries that no list has: tied names, frozen parameters, parameters outside the
 * optimizer and, before 0.4.2, perhaps buffers. */
static int dsm_leftovers(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module,
                         const dsm_place *place, size_t n_places)
{
    dsm_left tied = {0}, more = {0}, lost = {0};
    bool fits = true;

    for (uint64_t i = 0; fits && i < module->dict.n; i++) {
        const ckpt_value *key = module->dict.at[i].key, *v = module->dict.at[i].value;
        if (module->seen[i] != DSM_NEW || key->kind != CKPT_V_STR || v->kind != CKPT_V_TENSOR)
            continue;
        if (dsm_is_second(head, v->as.tensor, place, n_places)) {
            module->seen[i] = DSM_ALIAS;
            fits = dsm_left_add(job, &tied, key);
        } else if (head->stage < 3 && ckpt_ds_head_get(head, "buffer_names")) {
            module->seen[i] = DSM_UNLISTED;
            fits = dsm_left_add(job, &more, key);
        } else {
            fits = dsm_left_add(job, &lost, key);
        }
    }
    return fits ? dsm_tell(job, head, &tied, &more, &lost) : ckpt_fail_memory(job->err);
}

/* Collects storage and offset of all listed entries. Empty tensors are skipped, because they share
 * address 0; placeholders of stage 3 are kept. */
static size_t dsm_places(const ckpt_ds_head *head, const ckpt_ds_module *module, dsm_place *place)
{
    size_t n = 0;

    for (uint64_t i = 0; i < module->dict.n; i++) {
        const ckpt_value *v = module->dict.at[i].value;
        bool weight = module->seen[i] == DSM_TRAINED || module->seen[i] == DSM_FROZEN;
        if (v->kind != CKPT_V_TENSOR || !v->as.tensor->storage ||
            (dsm_is_empty(v->as.tensor) && !(weight && head->stage == 3)))
            continue;
        if (module->seen[i] == DSM_BUFFER || weight)
            place[n++] = (dsm_place){(uintptr_t)v->as.tensor->storage, v->as.tensor->offset};
    }
    if (n)
        qsort(place, n, sizeof *place, dsm_by_place);
    return n;
}

/* Returns the dtype of the first floating tensor that is trained or, with !trained, is no
 * buffer. */
static ckpt_dtype dsm_first_dtype(const ckpt_ds_module *module, bool trained)
{
    for (uint64_t i = 0; module->seen && i < module->dict.n; i++) {
        const ckpt_value *v = module->dict.at[i].value;
        bool may = trained ? module->seen[i] == DSM_TRAINED : module->seen[i] != DSM_BUFFER;
        if (!may || v->kind != CKPT_V_TENSOR)
            continue;
        ckpt_dtype d = v->as.tensor->dtype;
        if (d == CKPT_F32 || d == CKPT_F16 || d == CKPT_BF16)
            return d;
    }
    return CKPT_DTYPE_NONE;
}

ckpt_dtype ckpt_ds_module_dtype(const ckpt_ds_module *module)
{
    ckpt_dtype d = dsm_first_dtype(module, true);

    return d != CKPT_DTYPE_NONE ? d : dsm_first_dtype(module, false);
}

int ckpt_ds_module_sort(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module,
                        const ckpt_ds_params *trained)
{
    assert(module && trained);
    ckpt_dict shared = ckpt_value_map(ckpt_ds_head_get(head, "shared_params"));
    dsm_place *place = ckpt_alloc((module->dict.n + 1) * sizeof *place);

    if (!place)
        return ckpt_fail_memory(job->err);
    for (uint64_t i = 0; i < shared.n; i++) {
        if (shared.at[i].key->kind == CKPT_V_STR && !dsm_no_tie(head, module, &shared.at[i]))
            dsm_mark(module, shared.at[i].key->as.text.at, shared.at[i].key->as.text.n, DSM_ALIAS);
    }
    for (size_t i = 0; i < module->tie.n; i++)
        dsm_mark(module, module->tie.at[i].key->as.text.at, module->tie.at[i].key->as.text.n,
                 DSM_ALIAS);
    for (size_t i = 0; i < module->frozen.n; i++)
        dsm_mark(module, module->frozen.at[i].name, module->frozen.at[i].n_name, DSM_FROZEN);
    for (size_t i = 0; i < trained->n; i++)
        dsm_mark(module, trained->at[i].name, trained->at[i].n_name, DSM_TRAINED);
    int rc = dsm_leftovers(job, head, module, place, dsm_places(head, module, place));
    ckpt_free(place);
    return rc;
}

/* ---- adding ---- */

int ckpt_ds_module_add(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_text *name,
                       const ckpt_tensor_value *v, ckpt_role role, ckpt_tensor **out)
{
    assert(s && name && name->at && v);
    ckpt_tensor like = {.dtype = v->dtype,
                        .ndim = v->ndim,
                        .shape = v->shape,
                        .role = role,
                        .flags = v->flags & (CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG)};
    ckpt_tensor *t = NULL;
    int rc = ckpt_map_add(job->map, name->at, name->n, &like, &t, job->err);

    if (rc == CKPT_OK)
        rc = ckpt_ds_shard_back(job, s, v, t);
    *out = t;
    return rc;
}

int ckpt_ds_module_add_buffers(const ckpt_ds_job *job, ckpt_ds_head *head,
                               const ckpt_ds_module *module)
{
    const bool keeps = ckpt_ds_version_at_least(ckpt_ds_version(&head->model), 0, 19, 8);
    const bool zero = head->stage > 0; // zero_to_fp32 does not read stage 0
    ckpt_tensor *t = NULL;
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < module->dict.n; i++) {
        const ckpt_pair *e = &module->dict.at[i];
        if (module->seen[i] != DSM_BUFFER || e->value->kind != CKPT_V_TENSOR)
            continue;
        rc = ckpt_ds_module_add(job, &head->model, &e->key->as.text, e->value->as.tensor,
                                CKPT_ROLE_BUFFER, &t);
        // zero_to_fp32 of the release that saved the run converts floating buffers to float32;
        // until 0.19.7 it converted all others too.
        if (rc == CKPT_OK &&
            (dsm_is_float(t->dtype) || (zero && !keeps && dsm_has_float(t->dtype))))
            t->export_dtype = CKPT_F32;
    }
    return rc;
}

/*
 * Returns whether the run uses ZenFlow, which updates the important columns of the 16-bit copies at
 * each step but the masters later, so both differ.
 */
static bool dsm_lags(const ckpt_ds_head *head)
{
    const ckpt_value *config = ckpt_ds_head_get(head, "ds_config");

    config = config ? config : ckpt_value_get(head->optim.root, "ds_config");
    return ckpt_value_map(ckpt_value_get(ckpt_value_get(config, "zero_optimization"), "zenflow"))
               .n > 0;
}

static bool dsm_shape_is(const ckpt_tensor_value *v, const uint64_t *shape, uint32_t ndim)
{
    return v->ndim == ndim && (ndim == 0 || memcmp(v->shape, shape, ndim * sizeof *shape) == 0);
}

/* Returns whether two entries of the file share the same elements. */
static bool dsm_same_place(const ckpt_tensor_value *a, const ckpt_tensor_value *b)
{
    return a->storage && a->storage == b->storage && a->offset == b->offset &&
           a->dtype == b->dtype && a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->stride, b->stride, a->ndim * sizeof *a->stride) == 0);
}

/* Attaches the module's tensor v to t as one more copy, to be compared with it. */
static int dsm_compare(const ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_text *name,
                       const ckpt_tensor_value *v, ckpt_tensor *t)
{
    ckpt_tensor *copy = NULL, *end = t;

    if (v->dtype != t->dtype && !ckpt_cast_find(v->dtype, t->dtype))
        return CKPT_OK;
    job->map->effects |= CKPT_USED_COPIES;
    if (job->opts->ignore_copies)
        return CKPT_OK;
    ckpt_tensor like = {
        .dtype = v->dtype, .ndim = v->ndim, .shape = v->shape, .role = t->role, .flags = v->flags};
    if (dsm_lags(head))
        like.flags |= CKPT_TENSOR_LAGS;
    int rc = ckpt_map_add_hidden(job->map, name->at, name->n, &like, &copy, job->err);
    if (rc == CKPT_OK)
        rc = ckpt_ds_shard_back(job, &head->model, v, copy);
    // `twin` is const for readers of a map, but this map is still being built.
    for (; end->twin; memcpy(&end, &end->twin, sizeof end))
        ;
    end->twin = copy;
    return rc;
}

/*
 * Adds a frozen parameter of stage 2, of which rank 0's file has all elements.  Its copy in the
 * module is compared, unless both are one tensor.
 */
static int dsm_add_whole(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module,
                         const ckpt_ds_param *p, const ckpt_ds_index *fragments)
{
    const ckpt_pair *own = ckpt_ds_index_find(&module->by_name, p->name, p->n_name);
    const ckpt_tensor_value *copy =
        own && own->value->kind == CKPT_V_TENSOR ? own->value->as.tensor : NULL;
    const ckpt_pair *e = ckpt_ds_index_find(fragments, p->name, p->n_name);
    const ckpt_tensor_value *v = e && e->value->kind == CKPT_V_TENSOR ? e->value->as.tensor : NULL;
    const ckpt_text name = {.at = p->name, .n = p->n_name};
    ckpt_tensor *t = NULL;

    if (!v)
        return ckpt_ds_problem(
            job, CKPT_EMISSING,
            "%s: frozen_param_fragments lacks %.200s, which frozen_param_shapes lists",
            head->model.path, p->name);
    if (!dsm_shape_is(v, p->shape, p->ndim) || (copy && !dsm_shape_is(copy, p->shape, p->ndim)))
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: frozen parameter %.200s has another shape in %s than in "
                               "frozen_param_shapes",
                               head->model.path, p->name,
                               dsm_shape_is(v, p->shape, p->ndim) ? "module"
                                                                  : "frozen_param_fragments");
    int rc = ckpt_ds_module_add(job, &head->model, &name, v, CKPT_ROLE_FROZEN, &t);
    return rc == CKPT_OK && copy && !dsm_same_place(v, copy)
               ? dsm_compare(job, head, &name, copy, t)
               : rc;
}

/* Adds a frozen parameter of stage 3, which is partitioned over the ranks' model files. */
static int dsm_add_parts(const ckpt_ds_job *job, const ckpt_ds_head *head,
                         const ckpt_ds_module *module, size_t i)
{
    const ckpt_ds_param *p = &module->frozen.at[i];
    ckpt_tensor like = {.dtype = (ckpt_dtype)module->fragment[i * head->world].dtype,
                        .ndim = p->ndim,
                        .shape = p->shape,
                        .role = CKPT_ROLE_FROZEN};
    ckpt_tensor *t = NULL;
    int rc = ckpt_map_add(job->map, p->name, p->n_name, &like, &t, job->err);

    return rc == CKPT_OK ? ckpt_ds_frozen_back(job, head, module, i, t) : rc;
}

int ckpt_ds_module_add_frozen(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module)
{
    ckpt_ds_index fragments = {0};
    ckpt_tensor *t = NULL;

    if (job->opts->skip_frozen) {
        bool any = module->frozen.n > 0;

        for (uint64_t i = 0; !any && i < module->dict.n; i++)
            any = module->seen[i] == DSM_UNLISTED;
        job->map->effects |= any ? CKPT_USED_FROZEN : 0;
        return CKPT_OK;
    }
    const ckpt_dict dict = ckpt_value_map(ckpt_ds_head_get(head, "frozen_param_fragments"));
    int rc = ckpt_ds_index_new(&fragments, dict, job->err);
    if (rc == CKPT_OK)
        rc = ckpt_ds_frozen_unlisted(job, module, head->model.path, dict);
    for (size_t i = 0; rc == CKPT_OK && i < module->frozen.n; i++)
        rc = head->stage == 3 ? dsm_add_parts(job, head, module, i)
                              : dsm_add_whole(job, head, module, &module->frozen.at[i], &fragments);
    // Stage 1 and releases before 0.9.1 list no frozen parameters, so the unlisted entries are
    // taken as frozen.
    for (uint64_t i = 0; rc == CKPT_OK && i < module->dict.n; i++) {
        const ckpt_pair *e = &module->dict.at[i];
        if (module->seen[i] == DSM_UNLISTED)
            rc = ckpt_ds_module_add(job, &head->model, &e->key->as.text, e->value->as.tensor,
                                    CKPT_ROLE_FROZEN, &t);
    }
    ckpt_ds_index_free(&fragments);
    return rc;
}

/* ---- tied names ---- */

/*
 * Returns whether the owner of a tied pair may be absent, because it is frozen and the caller asked
 * for no frozen parameters.
 */
static bool dsm_may_lack(const ckpt_ds_job *job, const ckpt_ds_head *head,
                         const ckpt_ds_module *module, const ckpt_value *kept)
{
    const ckpt_pair *e = ckpt_ds_index_find(&module->by_name, kept->as.text.at, kept->as.text.n);

    if (!ckpt_ds_head_get(head, "frozen_param_shapes"))
        return !e || (job->opts->skip_frozen && module->seen[e - module->dict.at] == DSM_UNLISTED);
    for (size_t i = 0; job->opts->skip_frozen && i < module->frozen.n; i++) {
        const ckpt_ds_param *p = &module->frozen.at[i];
        if (p->n_name == kept->as.text.n && memcmp(p->name, kept->as.text.at, p->n_name) == 0)
            return true;
    }
    return false;
}

/*
 * Records the module's tensor under a tied name as a copy of `owner`, the parameter to which the
 * name is tied. Shape and kind must agree; if the two do not share storage, their values are
 * compared when they are read.
 */
static int dsm_alias_copy(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module,
                          const ckpt_pair *pair, ckpt_tensor *owner)
{
    const ckpt_text *name = &pair->key->as.text, *kept = &pair->value->as.text;
    const ckpt_pair *e = ckpt_ds_index_find(&module->by_name, name->at, name->n),
                    *of = ckpt_ds_index_find(&module->by_name, kept->at, kept->n);
    const ckpt_tensor_value *v = e && e->value->kind == CKPT_V_TENSOR ? e->value->as.tensor : NULL;

    // Stage 3 has only placeholders here.
    if (!v || head->stage == 3 || (dsm_is_empty(v) && owner->n_elems > 0))
        return CKPT_OK;
    if (!dsm_shape_is(v, owner->shape, owner->ndim) ||
        ckpt_dtype_get(v->dtype)->kind != ckpt_dtype_get(owner->dtype)->kind)
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: shared_params ties %.100s to %.100s, but the module holds "
                               "them in different shapes or kinds",
                               head->model.path, name->at, kept->at);
    if (of && of->value->kind == CKPT_V_TENSOR && dsm_same_place(v, of->value->as.tensor))
        return CKPT_OK;
    return dsm_compare(job, head, name, v, owner);
}

/* Adds one pair of shared_params: the owner must exist and must not be tied itself. */
static int dsm_alias(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module,
                     const ckpt_pair *pair)
{
    const ckpt_value *alias = pair->key, *kept = pair->value;
    ckpt_tensor *t = NULL;

    if (alias->kind != CKPT_V_STR || kept->kind != CKPT_V_STR)
        return ckpt_fail(job->err, CKPT_EFORMAT, "%s: shared_params: expected names",
                         head->model.path);
    if (dsm_no_tie(head, module, pair) &&
        ckpt_map_index(job->map, alias->as.text.at, alias->as.text.n) != SIZE_MAX)
        return CKPT_OK; // both are empty, not tied
    size_t i = ckpt_map_index(job->map, kept->as.text.at, kept->as.text.n);
    if (i == SIZE_MAX && dsm_may_lack(job, head, module, kept))
        return ckpt_map_note(
            job->map, CKPT_INFO, job->err,
            "%s: %.100s is left out with %.100s, the frozen parameter it is tied to",
            head->model.path, alias->as.text.at, kept->as.text.at);
    if (i == SIZE_MAX)
        return ckpt_ds_problem(
            job, CKPT_EMISMATCH,
            "%s: shared_params ties %.100s to %.100s, which the checkpoint does not hold",
            head->model.path, alias->as.text.at, kept->as.text.at);
    ckpt_tensor *owner = job->map->tensors.at[i];
    if (owner->owner || ckpt_map_index(job->map, alias->as.text.at, alias->as.text.n) != SIZE_MAX)
        return ckpt_ds_problem(
            job, CKPT_EMISMATCH,
            "%s: shared_params ties %.100s to %.100s: one of them is tied or stored already",
            head->model.path, alias->as.text.at, kept->as.text.at);
    ckpt_tensor like = {.dtype = owner->dtype,
                        .export_dtype = owner->export_dtype,
                        .ndim = owner->ndim,
                        .shape = owner->shape,
                        .role = owner->role,
                        .flags = owner->flags};
    int rc = ckpt_map_add(job->map, alias->as.text.at, alias->as.text.n, &like, &t, job->err);
    if (rc == CKPT_OK)
        t->owner = owner;
    return rc == CKPT_OK ? dsm_alias_copy(job, head, module, pair, owner) : rc;
}

int ckpt_ds_module_add_aliases(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module)
{
    const ckpt_value *listed = ckpt_ds_head_get(head, "shared_params");
    ckpt_dict shared = ckpt_value_map(listed);
    int rc = CKPT_OK;

    if (listed && listed->kind != CKPT_V_DICT && listed->kind != CKPT_V_ODICT)
        return ckpt_fail(job->err, CKPT_EFORMAT, "%s: shared_params is not a dict of names",
                         head->model.path);
    for (uint64_t i = 0; rc == CKPT_OK && i < shared.n; i++)
        rc = dsm_alias(job, head, module, &shared.at[i]);
    for (size_t i = 0; rc == CKPT_OK && i < module->tie.n; i++)
        rc = dsm_alias(job, head, module, &module->tie.at[i]);
    return rc;
}

/* ---- copies ---- */

static bool dsm_is_expert(const char *name)
{
    size_t at, n;
    uint64_t number;

    return ckpt_train_expert_number(name, &at, &n, &number);
}

/* Reports a trained parameter that the module lacks, unless another stage's file has it (tied
 * layer). */
static int dsm_no_twin(ckpt_ds_job *job, const ckpt_ds_module *module, const char *name)
{
    const char *where = dsm_is_expert(name) ? "an expert" : "a layer";

    if (dsm_is_elsewhere(module, name))
        return CKPT_OK;
    return ckpt_ds_problem(job, CKPT_EMISSING,
                           "%s: missing: no file of %s holds %.200s, which param_shapes lists: it "
                           "was not copied, or is of another run",
                           job->map->path, where, name);
}

/* Reports a name of param_shapes that the module lacks; AutoEP's fused experts are apart there. */
static int dsm_has(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_module *module,
                   const ckpt_text *name)
{
    const ckpt_ds_moe_layer *l = ckpt_ds_autoep_of(head, name->at, name->n);
    int rc = CKPT_OK;

    if (!l && ckpt_ds_index_find(&module->by_name, name->at, name->n))
        return CKPT_OK;
    for (uint32_t i = 0; l && rc == CKPT_OK && i < l->n_experts; i++) {
        const char *one = ckpt_arena_printf(job->map->arena, "%s.%" PRIu32, name->at, i);
        if (!one)
            rc = ckpt_fail_memory(job->err);
        else if (!ckpt_ds_index_find(&module->by_name, one, strlen(one)))
            return dsm_no_twin(job, module, one);
    }
    if (l || rc != CKPT_OK)
        return rc;
    return module->layered || dsm_is_expert(name->at)
               ? dsm_no_twin(job, module, name->at)
               : ckpt_ds_problem(job, CKPT_EMISMATCH,
                                 "%s: module lacks %.200s, which param_shapes lists",
                                 head->model.path, name->at);
}

int ckpt_ds_module_has_all(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_module *module)
{
    assert(head && module);
    const ckpt_value *shapes = ckpt_value_get(head->model.root, "param_shapes");
    const ckpt_seq groups = ckpt_value_seq(shapes);
    const uint64_t n = groups.n ? groups.n : 1;
    int rc = CKPT_OK;

    for (uint64_t g = 0; rc == CKPT_OK && !job->broken && g < n; g++) {
        const ckpt_dict group = ckpt_value_map(groups.n ? groups.at[g] : shapes);
        for (uint64_t i = 0; rc == CKPT_OK && i < group.n; i++) {
            const ckpt_value *key = group.at[i].key;
            if (key->kind == CKPT_V_STR)
                rc = dsm_has(job, head, module, &key->as.text);
        }
    }
    return rc;
}

int ckpt_ds_module_twin(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module,
                        ckpt_tensor *t)
{
    assert(module && t);
    const ckpt_pair *e = ckpt_ds_index_find(&module->by_name, t->name, strlen(t->name));
    const ckpt_tensor_value *v = e && e->value->kind == CKPT_V_TENSOR ? e->value->as.tensor : NULL;

    if (!v && (module->layered || dsm_is_expert(t->name)))
        return dsm_no_twin(job, module, t->name);
    if (!v)
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: module lacks %.200s, which param_shapes lists",
                               head->model.path, t->name);
    if (!dsm_shape_is(v, t->shape, t->ndim))
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: %.200s has another shape in module than in param_shapes",
                               head->model.path, t->name);
    if (ckpt_dtype_get(v->dtype)->kind != CKPT_IS_FLOAT)
        return ckpt_ds_problem(
            job, CKPT_EMISMATCH,
            "%s: %.200s is %s in module, but a trained parameter must be floating-point",
            head->model.path, t->name, ckpt_dtype_name(v->dtype));
    if (ckpt_dtype_get(v->dtype)->bits > ckpt_dtype_get(t->dtype)->bits)
        return CKPT_OK;
    return dsm_compare(job, head, &e->key->as.text, v, t);
}

int ckpt_ds_module_note(const ckpt_ds_job *job, const ckpt_ds_head *head)
{
    if (head->stage == 3 || !dsm_lags(head))
        return CKPT_OK;
    return ckpt_map_note(job->map, CKPT_INFO, job->err,
                         "%s: ZenFlow updates the 16-bit copies before the fp32 masters, so they "
                         "differ by design: ckpt takes the masters, as DeepSpeed's scripts do",
                         head->model.path);
}
