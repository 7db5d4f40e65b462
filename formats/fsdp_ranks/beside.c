/* SPDX-License-Identifier: Apache-2.0 */
/*
 * beside.c: reads the run of a model folder with an optimizer beside the weights, as the Trainer of
 * transformers and accelerate save it for a single process or DDP.
 *
 *     model.safetensors (or shards, or .bin)    read by the driver of model folders
 *     optimizer.pt or optimizer.bin             torch.save(optimizer.state_dict()), by number
 *     scheduler.pt or scheduler.bin             the schedule
 *
 * The optimizer's numbers follow named_parameters(), and safetensors sorts by name.  The model type
 * in config.json gives the order (libckpt/map/order.h), or the caller lists the names.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "ckpt_extra.h"
#include "formats/fsdp_ranks/ranks.h"
#include "formats/training/run_files.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/merge.h"
#include "libckpt/map/order.h"

static const char rbs_unknown[] =
    "its optimizer names parameters by number, config.json shows no known order of them, and the "
    "files of the weights may be sorted by name; list the names in the optimizer's order "
    "(--order FILE; order_text in the library)";

static const char rbs_star_text[] =
    "its optimizer names parameters by number, and '*' in the given list stands for the order of "
    "the files of the weights, which may be sorted by name; list all names in the optimizer's "
    "order";

/* ---- the files ---- */

/* The optimizer's file; NULL: none. optimizer.bin of the Trainer belongs to FSDP's files. */
static const char *rbs_optimizer(const ckpt_listing *list)
{
    if (ckpt_listing_has(list, "optimizer.pt", false))
        return "optimizer.pt";
    return ckpt_listing_has(list, "optimizer.bin", false) &&
                   !ckpt_listing_has(list, "trainer_state.json", false)
               ? "optimizer.bin"
               : NULL;
}

/* True if the file can be read and is the state_dict of an optimizer. */
static bool rbs_is_optimizer(const ckpt_listing *list, const char *name)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    const char *path = arena ? ckpt_path_join(arena, list->folder, name) : NULL;
    ckpt_map *map = NULL;
    bool is = false;

    if (path && list->read(&map, path, NULL, NULL) == CKPT_OK) {
        const ckpt_value *groups = ckpt_value_get(map->values, "param_groups"),
                         *state = ckpt_value_get(map->values, "state");
        is = groups && groups->kind == CKPT_V_LIST && state && state->kind == CKPT_V_DICT;
    }
    ckpt_map_free(map);
    ckpt_arena_free(arena);
    return is;
}

bool ckpt_ranks_beside(const ckpt_listing *list)
{
    assert(list && list->read);
    const char *name = rbs_optimizer(list);

    return name && !ckpt_listing_has(list, "pytorch_model_fsdp.bin", false) &&
           rbs_is_optimizer(list, name);
}

/* ---- the weights as the values of a torch file ---- */

/*
 * Set the strides, in elements, of a tensor with one extent; false: it has another form, such as
 * packed elements.
 */
static bool rbs_strides(const ckpt_extent *e, const ckpt_tensor *t, uint64_t item, uint64_t *stride)
{
    uint64_t n = 1;

    if (e->ndim != t->ndim) {
        for (uint32_t k = t->ndim; k-- > 0; n *= t->shape[k])
            stride[k] = n;
        return e->ndim == 1 && e->axis[0].stride == (int64_t)item;
    }
    for (uint32_t k = 0; k < t->ndim; k++) {
        if (e->axis[k].stride < 0 || (uint64_t)e->axis[k].stride % item != 0)
            return false;
        stride[k] = (uint64_t)e->axis[k].stride / item;
    }
    return true;
}

/* The storage of a source, one for all tensors in it, which shows tied names; NULL: no memory. */
static ckpt_storage *rbs_storage(ckpt_map *map, ckpt_storage **made, uint32_t source)
{
    uint64_t n = map->sources.at[source].n_bytes;
    const ckpt_storage one = {
        .dtype = CKPT_DTYPE_NONE, .n_elems = n, .n_bytes = n, .source = source};

    if (!made[source])
        made[source] = ckpt_arena_copy(map->arena, &one, sizeof one);
    return made[source];
}

/* The weights that become values: their sources are in the output map from `base` on. */
typedef struct rbs_weights {
    ckpt_ranks_run *run;
    const ckpt_map *from;
    uint32_t base;
    ckpt_storage **storage; /* by source of the output map */
    ckpt_value *root;       /* ODICT of the tensors */
} rbs_weights;

/* Add a tensor, or another name of its owner, as torch.save would have stored it. */
static int rbs_add(rbs_weights *w, const ckpt_tensor *t)
{
    const ckpt_tensor *of = t->owner ? t->owner : t;
    ckpt_arena *arena = w->run->map->arena;
    uint64_t item = ckpt_dtype_get(of->dtype)->bits / 8;
    uint64_t *shape = ckpt_arena_array(arena, 2 * (size_t)of->ndim + 1, sizeof *shape);
    ckpt_tensor_value v = {.dtype = of->dtype, .ndim = of->ndim};
    ckpt_value *value = ckpt_value_new(arena, CKPT_V_TENSOR);
    ckpt_box room;
    const ckpt_extent *e = of->n_extents == 1 ? ckpt_tensor_extent(of, 0, &room) : NULL;

    if (!shape || !value)
        return ckpt_fail_memory(w->run->err);
    if (of->n_elems > 0 &&
        (!e || item == 0 || e->at % item != 0 || !rbs_strides(e, of, item, shape + of->ndim)))
        return ckpt_fail(w->run->err, CKPT_EUNSUPPORTED,
                         "%s: %.200s is not stored as a plain tensor: a run with such weights and "
                         "their optimizer cannot be read",
                         w->run->path, t->name);
    memcpy(shape, of->shape, of->ndim * sizeof *shape);
    v.shape = shape;
    v.stride = shape + of->ndim;
    v.offset = e ? e->at / item : 0;
    v.storage = rbs_storage(w->run->map, w->storage, e ? w->base + e->source : 0);
    value->as.tensor = v.storage ? ckpt_arena_copy(arena, &v, sizeof v) : NULL;
    return value->as.tensor && ckpt_dict_add_cstr(arena, &w->root->as.map, t->name, value)
               ? CKPT_OK
               : ckpt_fail_memory(w->run->err);
}

/* Add the parameters in the model's order if it is known, then all other tensors. */
static int rbs_values(rbs_weights *w)
{
    const ckpt_tensors *all = &w->from->tensors;
    uint8_t *added = ckpt_alloc(all->n + 1);
    ckpt_tensors order = {0};
    const ckpt_tensor *odd;
    bool known = false;
    int rc = added ? ckpt_order_known(&order, w->from, &known, &odd, w->run->err)
                   : ckpt_fail_memory(w->run->err);

    if (!known && !w->run->order)
        w->run->no_order = rbs_unknown;
    for (size_t i = 0; rc == CKPT_OK && known && i < order.n; i++) {
        const char *name = order.at[i]->name;
        size_t at = ckpt_map_index(w->from, name, strlen(name));
        rc = rbs_add(w, order.at[i]);
        if (at < all->n)
            added[at] = 1;
    }
    for (size_t i = 0; rc == CKPT_OK && i < all->n; i++)
        rc = added[i] ? rc : rbs_add(w, all->at[i]);
    ckpt_vec_free(&order);
    ckpt_free(added);
    return rc;
}

/* Copy findings and facts about the model, such as its type, from the map of the weights. */
static int rbs_facts(ckpt_ranks_run *r, const ckpt_map *weights)
{
    int rc = ckpt_map_merge_notes(r->map, weights, r->err);

    for (size_t i = 0; rc == CKPT_OK && i < weights->facts.n; i++) {
        const ckpt_fact *f = &weights->facts.at[i];
        if (strcmp(f->key, "optimizer") == 0) // "optimizer.pt, not read"
            continue;
        rc = f->is_number ? ckpt_map_fact_int(r->map, f->key, f->number, r->err)
                          : ckpt_map_fact(r->map, r->err, f->key, "%s", f->text);
    }
    return rc;
}

/* Find '*' in the caller's list, which stands for names that may be sorted. */
static int rbs_star(void *ctx, uint64_t number, const char *line, size_t n)
{
    bool *has = ctx;

    (void)number;
    *has |= n == 1 && *line == '*';
    return CKPT_OK;
}

static int rbs_model(ckpt_ranks_run *r, ckpt_map *weights)
{
    rbs_weights w = {.run = r, .from = weights};
    ckpt_ranks_file file = {.map = r->map, .of = r->map, .where = {.file = r->path, .world = 1}};
    uint32_t files;
    bool star = false;
    int rc = ckpt_order_ties(weights, r->err);

    if (rc == CKPT_OK && r->order)
        rc = ckpt_order_lines(r->order, rbs_star, &star);
    if (rc == CKPT_OK)
        rc = ckpt_map_merge_files(r->map, weights, &files, &w.base, r->err);
    if (rc == CKPT_OK)
        rc = rbs_facts(r, weights);
    if (rc != CKPT_OK)
        return rc;
    r->no_order = star ? rbs_star_text : NULL;
    w.storage = ckpt_alloc((r->map->sources.n + 1) * sizeof(ckpt_storage *));
    w.root = ckpt_value_new(r->map->arena, CKPT_V_ODICT);
    rc = w.storage && w.root ? rbs_values(&w) : ckpt_fail_memory(r->err);
    ckpt_free(w.storage);
    return rc == CKPT_OK ? ckpt_ranks_use(r, &file, CKPT_RANKS_MODEL, w.root, ckpt_ranks_take_model)
                         : rc;
}

int ckpt_ranks_read_beside(ckpt_ranks_run *r, ckpt_map *weights, const ckpt_listing *list)
{
    assert(r && weights && rbs_optimizer(list));
    int rc = rbs_model(r, weights);

    return rc == CKPT_OK
               ? ckpt_ranks_read(r, rbs_optimizer(list), CKPT_RANKS_OPTIM, 0, ckpt_ranks_take_optim)
               : rc;
}
