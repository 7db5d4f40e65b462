/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.c: lays out a target map from a map and a target, and runs the four steps of a conversion
 * in one call.
 */
#include <inttypes.h>
#include <string.h>

#include "ckpt_extra.h"
#include "libckpt/base/cast.h"
#include "libckpt/base/opts.h"
#include "libckpt/drivers.h"
#include "libckpt/imatrix.h"
#include "libckpt/map/quantized.h"
#include "libckpt/readback/readback.h"
#include "libckpt/run/run.h"
#include "libckpt/transform/dtypes.h"
#include "libckpt/transform/unwrap.h"

/* State of a layout, with the requested dtypes: one for all, or rules, or neither. */
typedef struct lay_work {
    ckpt_map *to;
    const ckpt_map *from;
    ckpt_dtype dtype;
    ckpt_dtype_rules rules;
    /* floating tensors without a matching rule, by their output dtype */
    uint64_t n_kept[CKPT_N_DTYPES];
    uint64_t n_wide; /* tensors that stay F32 by their names, and the last of them */
    const char *wide;
    ckpt_err *err;
} lay_work;

/*
 * The output dtype of a tensor.  A step count stays exact, as in torch's load_state_dict: BF16 has
 * no 257.
 */
static ckpt_dtype lay_dtype(const ckpt_tensor *t, ckpt_dtype wanted)
{
    ckpt_dtype natural = t->export_dtype != CKPT_DTYPE_NONE ? t->export_dtype : t->dtype;
    bool floating = ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT;
    bool count = t->role == CKPT_ROLE_STATE && strncmp(t->name, "step/", 5) == 0;

    if (wanted == CKPT_DTYPE_NONE || !floating || count || !ckpt_cast_find(wanted, t->dtype))
        return natural;
    return wanted;
}

/* The requested dtype of a tensor; rules count their matches. */
static ckpt_dtype lay_wanted(lay_work *w, const ckpt_tensor *t)
{
    ckpt_dtype wanted = w->rules.n ? ckpt_dtypes_of(&w->rules, t) : w->dtype;

    if (!w->rules.n && ckpt_dtype_stays(t->name, t->dtype, wanted)) {
        w->n_wide++;
        w->wide = t->name;
        return CKPT_DTYPE_NONE;
    }

    // a block type for all: the format selects the tensors that get it
    if (!w->rules.n && ckpt_dtype_packed(wanted))
        return CKPT_DTYPE_NONE;
    if (w->rules.n && !t->owner && wanted == CKPT_DTYPE_NONE &&
        ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT)
        w->n_kept[lay_dtype(t, wanted)]++;
    return wanted;
}

/* Refuse blocks that a pattern asks for and that the tensor cannot have. */
static int lay_blocks(const lay_work *w, const ckpt_tensor *t, ckpt_dtype dtype)
{
    const uint64_t row = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    const unsigned per = (unsigned)ckpt_dtype_get(dtype)->per;
    const char *name = ckpt_dtype_name(dtype);

    if (!w->rules.n || dtype == t->dtype || !ckpt_dtype_packed(dtype))
        return CKPT_OK;
    if (t->ndim < 2)
        return ckpt_fail(w->err, CKPT_EUSAGE,
                         "dtype %s: %.200s has %s, and only matrices can have blocks: give another "
                         "dtype for it before this pattern (f32:%.200s), or --dtype %s, which "
                         "chooses the tensors as llama.cpp does",
                         name, t->name, t->ndim ? "one axis" : "no axis", t->name, name);
    if (row % per != 0)
        return ckpt_fail(w->err, CKPT_EUSAGE,
                         "dtype %s: the rows of %.200s have %" PRIu64
                         " elements, which are not whole blocks of %u: give another dtype for it "
                         "before this pattern (f16:%.200s), or --dtype %s, which chooses the "
                         "tensors as llama.cpp does",
                         name, t->name, row, per, t->name, name);
    return CKPT_OK;
}

static int lay_tensor(lay_work *w, const ckpt_tensor *t)
{
    ckpt_map *to = w->to;
    ckpt_tensor like = *t;
    ckpt_tensor *made = NULL;
    const ckpt_tensor *owner = t->owner;

    like.dtype = lay_dtype(t, lay_wanted(w, t));
    like.export_dtype = CKPT_DTYPE_NONE;
    like.flags = t->flags & (CKPT_TENSOR_GRAD | CKPT_TENSOR_PARAMETER);
    like.owner = NULL;
    like.twin = NULL;
    like.addend = NULL;
    like.extent = NULL;
    like.n_extents = 0;
    like.file = UINT32_MAX;
    if (owner) {
        size_t at = ckpt_map_index(to, owner->name, strlen(owner->name));
        if (at == SIZE_MAX)
            return ckpt_fail(w->err, CKPT_EMISSING,
                             "%s: %s is tied to %s, which does not come before it", w->from->path,
                             t->name, owner->name);
        like.owner = to->tensors.at[at];
        like.dtype = like.owner->dtype;
    }
    int rc = owner ? CKPT_OK : lay_blocks(w, t, like.dtype);
    if (rc == CKPT_OK)
        rc = ckpt_map_add(to, t->name, strlen(t->name), &like, &made, w->err);
    if (rc == CKPT_OK) {
        made->origin = ckpt_arena_string(to->arena, t->name, strlen(t->name));
        rc = made->origin ? CKPT_OK : ckpt_fail_memory(w->err);
    }
    return rc;
}

/*
 * Aliases may precede their owner (module order), so owners are added first, then the list is put
 * in order.
 */
static int lay_tensors(lay_work *w)
{
    ckpt_map *to = w->to;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->from->tensors.n; i++) {
        const ckpt_tensor *t = w->from->tensors.at[i];
        if (t->owner && ckpt_map_index(to, t->owner->name, strlen(t->owner->name)) == SIZE_MAX)
            rc = lay_tensor(w, t->owner);
        if (rc == CKPT_OK && ckpt_map_index(to, t->name, strlen(t->name)) == SIZE_MAX)
            rc = lay_tensor(w, t);
    }
    return rc;
}

/* Report the tensors without a matching rule, which keep their dtypes. */
static int lay_kept(const lay_work *w)
{
    const char *text = NULL;
    uint64_t n = 0;

    for (unsigned d = 0; d < CKPT_N_DTYPES; d++) {
        if (w->n_kept[d] == 0)
            continue;
        n += w->n_kept[d];
        text = ckpt_arena_printf(w->to->arena, "%s%s%s %" PRIu64, text ? text : "",
                                 text ? ", " : "", ckpt_dtype_name((ckpt_dtype)d), w->n_kept[d]);
        if (!text)
            return ckpt_fail_memory(w->err);
    }
    return n == 0 ? CKPT_OK
                  : ckpt_map_note(w->to, CKPT_INFO, w->err,
                                  "dtype: no pattern matches %" PRIu64
                                  " floating tensor%s: unchanged (%s)",
                                  n, n == 1 ? "" : "s", text);
}

/*
 * Report tensors that keep their dtype although a rule names another, because no conversion exists.
 */
static int lay_held(lay_work *w)
{
    uint64_t n = 0;
    const char *name = NULL;
    bool keeps = false;

    for (size_t i = 0; i < w->rules.n; i++)
        keeps = keeps || w->rules.at[i].dtype == CKPT_MXFP4;
    for (size_t i = 0; i < w->from->tensors.n; i++) {
        const ckpt_tensor *t = w->from->tensors.at[i];
        ckpt_dtype wanted = ckpt_dtypes_of(&w->rules, t);
        // a pattern of the source's own blocks keeps all of them
        if (keeps && t->dtype == CKPT_MXFP4 && wanted != CKPT_DTYPE_NONE && wanted != CKPT_MXFP4)
            return ckpt_fail(w->err, CKPT_EUSAGE,
                             "dtype: %.200s has blocks of MXFP4, which another pattern of the list "
                             "keeps, so it cannot become %s: give all weights in such blocks one "
                             "dtype; without MXFP4 in the list they can have several",
                             t->name, ckpt_dtype_name(wanted));
        if (wanted != CKPT_DTYPE_NONE && !ckpt_dtype_converts(wanted, t->dtype)) {
            n++;
            name = t->name;
        }
    }
    return n == 0 ? CKPT_OK
                  : ckpt_map_note(w->to, CKPT_WARNING, w->err,
                                  "%" PRIu64 " tensor%s, such as %.200s, cannot be converted to "
                                  "the dtype of the pattern: written unchanged",
                                  n, n == 1 ? "" : "s", name);
}

/*
 * Report floating tensors that keep their dtype, because no conversion to the requested one exists.
 */
static int lay_unchanged(ckpt_map *to, const ckpt_map *from, ckpt_dtype wanted, ckpt_err *err)
{
    uint64_t n[CKPT_N_DTYPES] = {0}, n_floats = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; i < from->tensors.n; i++) {
        const ckpt_tensor *t = from->tensors.at[i];

        if (ckpt_dtype_get(t->dtype)->kind != CKPT_IS_FLOAT)
            continue;
        n_floats++;
        n[t->dtype] += !ckpt_dtype_converts(wanted, t->dtype);
    }
    for (unsigned d = 0; rc == CKPT_OK && d < CKPT_N_DTYPES; d++) {
        if (n[d] > 0)
            rc = ckpt_map_note(to, CKPT_WARNING, err,
                               "%" PRIu64 " tensor%s of %s cannot be converted to %s: written "
                               "unchanged",
                               n[d], n[d] == 1 ? "" : "s", ckpt_dtype_name((ckpt_dtype)d),
                               ckpt_dtype_name(wanted));
    }
    if (rc == CKPT_OK && n_floats == 0)
        rc = ckpt_map_note(to, CKPT_WARNING, err,
                           "no tensor is floating: asking for %s changed nothing",
                           ckpt_dtype_name(wanted));
    return rc;
}

/* Report n tensors, such as `name`, that keep F32; hint: how they do not. */
static int lay_wide(ckpt_map *to, uint64_t n, const char *name, const char *hint, ckpt_err *err)
{
    return ckpt_map_note(to, CKPT_INFO, err,
                         "%" PRIu64 " tensor%s, such as %.200s, keep%s F32, in which Megatron and "
                         "transformers hold them in a model of any dtype%s",
                         n, n == 1 ? "" : "s", name, n == 1 ? "s" : "", hint ? hint : "");
}

/* Report tensors of a model for a run that keep F32: its driver has chosen their dtypes. */
static int lay_run_wide(ckpt_map *to, const ckpt_map *from, const ckpt_target *target,
                        ckpt_err *err)
{
    uint64_t n = 0;
    const char *name = NULL;

    if (!(ckpt_format_caps(target->format) & (CKPT_TAKES_WEIGHTS | CKPT_TAKES_GRID)))
        return CKPT_OK;
    for (size_t i = 0; i < from->tensors.n; i++) {
        const ckpt_tensor *t = from->tensors.at[i];
        if (t->role < CKPT_ROLE_STATE && ckpt_dtype_stays(t->name, t->dtype, target->dtype)) {
            n++;
            name = t->name;
        }
    }
    return n > 0 ? lay_wide(to, n, name, NULL, err) : CKPT_OK;
}

/* Add all tensors with their dtypes, and report exceptions. */
static int lay_all(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    lay_work w = {.to = to, .from = from, .dtype = target->dtype, .err = err};
    int rc = target->dtypes ? ckpt_dtypes_parse(&w.rules, to->arena, target->dtypes, err) : CKPT_OK;

    if (rc == CKPT_OK)
        rc = lay_tensors(&w);
    if (rc == CKPT_OK && target->dtypes)
        rc = ckpt_dtypes_used(&w.rules, err);
    if (rc == CKPT_OK && target->dtypes)
        rc = lay_kept(&w);
    if (rc == CKPT_OK && target->dtypes)
        rc = lay_held(&w);
    if (rc == CKPT_OK && w.n_wide > 0)
        rc = lay_wide(to, w.n_wide, w.wide,
                      ckpt_arena_printf(to->arena, " (--dtype %s:'*' converts them, too)",
                                        ckpt_dtype_name(target->dtype)),
                      err);
    if (rc == CKPT_OK && target->dtype != CKPT_DTYPE_NONE)
        rc = lay_unchanged(to, from, target->dtype, err);
    ckpt_vec_free(&w.rules);
    return rc;
}

/*
 * Copy metadata except entries about tied names, which writers record themselves.  Under a tensor's
 * name torchao keeps how it is quantized.
 */
static int lay_metadata(ckpt_map *to, const ckpt_map *from, ckpt_err *err)
{
    for (uint64_t i = 0; i < from->metadata.n; i++) {
        const ckpt_text key = from->metadata.at[i].key->as.text,
                        text = from->metadata.at[i].value->as.text;
        if (ckpt_map_index(from, key.at, key.n) != SIZE_MAX &&
            ckpt_map_index(from, text.at, text.n) != SIZE_MAX)
            continue;
        ckpt_value *k = ckpt_value_str(to->arena, key.at, key.n),
                   *v = ckpt_value_str(to->arena, text.at, text.n);
        if (!k || !v || !ckpt_dict_add(to->arena, &to->metadata, k, v))
            return ckpt_fail_memory(err);
    }
    return CKPT_OK;
}

/* Copy the keys from a layout map; their values stay the source map's. */
static int lay_keys(ckpt_map *to, const ckpt_map *from, ckpt_err *err)
{
    for (size_t i = 0; i < from->keys.n; i++) {
        ckpt_key *key = ckpt_vec_push(&to->keys);
        if (!key)
            return ckpt_fail_memory(err);
        *key = from->keys.at[i];
    }
    return CKPT_OK;
}

/* Formats of training state, or of slices for ranks, choose their tensors themselves. */
static bool lay_makes_tensors(const char *name)
{
    return ckpt_format_caps(name) & (CKPT_WRITES_STATE | CKPT_TAKES_GRID);
}

static int lay_single_file(ckpt_map *to, const ckpt_target *target, const ckpt_format *format,
                           ckpt_err *err)
{
    const char *slash = strrchr(target->path, '/');
    const char *name = slash ? slash + 1 : target->path;
    ckpt_map_file file = {
        .path = name, .format = format, .packed = target->deflate && to->tensors.n > 0};
    uint32_t index = 0;

    if (!ckpt_path_part_ok(name, strlen(name)))
        return ckpt_fail(err, CKPT_EUSAGE, "%s: not the name of a file to write", target->path);
    ckpt_set *set = ckpt_arena_alloc(to->arena, sizeof *set);
    if (!set)
        return ckpt_fail_memory(err);
    *set = (ckpt_set){.name = ckpt_arena_string(to->arena, name, strlen(name))};
    if (!set->name)
        return ckpt_fail_memory(err);
    to->set = set;
    int rc = ckpt_map_add_file(to, &file, &index, err);
    for (size_t i = 0; rc == CKPT_OK && i < to->tensors.n; i++)
        to->tensors.at[i]->file = index;
    return rc;
}

/* True for the model folders of Hugging Face. */
static bool lay_is_hub(const ckpt_format_info *info)
{
    return info->layout && strcmp(info->layout, "hf") == 0 && info->caps & CKPT_IS_FOLDER;
}

/* Warn about names that programs would not find in a model folder. */
static int lay_names(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    if (target->skip_side_files || !lay_is_hub(ckpt_format_find(target->format)) ||
        from->adapter_config)
        return CKPT_OK;
    return ckpt_unwrap_check(to, from, from->model_type, err);
}

/*
 * Refuse a run whose 16-bit parameters have float32 masters beside them, if the output would take
 * the rounded parameters for masters: DeepSpeed's formats store the masters alone, and so does a
 * run in another dtype.
 */
static int lay_masters(const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    unsigned caps = ckpt_format_caps(target->format);
    const ckpt_state *s = from->states.n > 0 ? from->states.at[0] : NULL;

    if (!s || !s->masters || !(caps & CKPT_WRITES_STATE) || target->fresh_optimizer ||
        ((caps & CKPT_TAKES_WEIGHTS) && target->dtype == CKPT_DTYPE_NONE))
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "%s: the model has 16-bit weights, and '%.100s' has their float32 masters: "
                     "format %s%s would take the rounded weights for masters; save the float32 "
                     "weights as the model, or --drop-optimizer begins a new run with the 16-bit "
                     "weights",
                     from->path, s->masters, target->format,
                     caps & CKPT_TAKES_WEIGHTS ? " in another dtype" : "");
}

/* Distribute tensors over files, then place each file's bytes. */
static int lay_files(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    const ckpt_format *format = ckpt_driver_find(target->format);
    const ckpt_directory *dir = format ? NULL : ckpt_directory_find(target->format);
    int rc;

    to->format = format ? format->is.name : dir->is.name;
    rc = lay_masters(from, target, err);
    if (rc == CKPT_OK && format)
        rc = lay_single_file(to, target, format, err);
    if (rc == CKPT_OK && format && format->scatter)
        rc = format->scatter(to, from, target, err);
    if (rc == CKPT_OK && !format)
        rc = dir->scatter(to, from, target, err);
    for (uint32_t i = 0; rc == CKPT_OK && i < to->files.n; i++) {
        if (to->files.at[i].format && !to->files.at[i].placed)
            rc = to->files.at[i].format->place(to, i, err);
    }
    return rc;
}

/*
 * Check that the model is whole, unless the caller has selected its tensors; training state has
 * checks of its own.
 */
static int lay_whole(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    const ckpt_format_info *info = ckpt_format_find(target->format);
    const bool folder = info->caps & CKPT_IS_FOLDER;
    int rc = CKPT_OK;

    // the drivers of GGUF and of model folders compare the model with its keys, or its config.json
    if (lay_makes_tensors(target->format) || from->selected || from->adapter_config ||
        (info->layout && !folder) || (lay_is_hub(info) && !target->skip_side_files))
        return CKPT_OK;
    for (size_t i = 0; rc == CKPT_OK && ckpt_directories[i]; i++) {
        if (ckpt_directories[i]->whole)
            rc = ckpt_directories[i]->whole(to, from, folder, err);
    }
    return rc;
}

/* Check and complete the target: a layout needs a map, a path and a format. */
static int lay_take(ckpt_target *own, const ckpt_map *from, const ckpt_target *target,
                    ckpt_err *err)
{
    int rc = ckpt_opts_take(own, sizeof *own, target, "ckpt_target", err);

    if (rc == CKPT_OK && !from)
        rc = ckpt_fail(err, CKPT_EUSAGE, "no map to convert");
    if (rc == CKPT_OK && (!own->format || !own->path || !*own->path))
        rc = ckpt_fail(err, CKPT_EUSAGE, "no %s to write (ckpt_target.%s)",
                       own->format ? "path" : "format", own->format ? "path" : "format");
    // from here on each format has one name
    if (rc == CKPT_OK && ckpt_format_find(own->format))
        own->format = ckpt_format_find(own->format)->name;
    return rc;
}

/* The folder that receives the files: the target's path itself, or the folder of its file. */
static const char *lay_into(ckpt_map *to, const ckpt_target *target)
{
    const char *slash = strrchr(to->path, '/');

    if (ckpt_format_caps(target->format) & CKPT_IS_FOLDER)
        return to->path;
    if (!slash)
        return ".";
    return ckpt_arena_string(to->arena, to->path,
                             slash == to->path ? 1 : (size_t)(slash - to->path));
}

/* Read the target's importance matrix, which belongs to the map from then on. */
static int lay_importance(ckpt_map *to, const ckpt_target *target, ckpt_err *err)
{
    ckpt_map *matrix = NULL, **slot;
    int rc = target->imatrix ? ckpt_imatrix_open(&matrix, target->imatrix, err) : CKPT_OK;

    if (rc != CKPT_OK || !matrix)
        return rc;
    slot = ckpt_vec_push(&to->children);
    if (!slot) {
        ckpt_map_free(matrix);
        return ckpt_fail_memory(err);
    }
    to->importance = *slot = matrix;
    return CKPT_OK;
}

/*
 * Refuse to write something else than a model, or a program's whole dict as a model, if the caller
 * has not chosen its tensors: an optimizer's moments would be weights of the model.
 */
static int lay_dicts(const ckpt_map *from, const char *format, ckpt_err *err)
{
    if (from->other)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s is %s", from->path, from->other);
    if (!from->dicts || (strcmp(format, "hf") != 0 && strcmp(format, "gguf") != 0))
        return CKPT_OK;
    return ckpt_fail(
        err, CKPT_EUSAGE,
        "%s has %s, but a file of format %s has a model alone: call "
        "ckpt_map_keep_model first, or choose tensors by ckpt_map_select or ckpt_map_remap",
        from->path, from->dicts, format);
}

static bool lay_is_gguf(const ckpt_map *map)
{
    return map->files.n > 0 && map->files.at[0].format &&
           strcmp(map->files.at[0].format->is.name, "gguf") == 0;
}

/* Refuse to cast quantized weights, or to write them as a run or a GGUF model. */
static int lay_quantized(const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (target->dtype != CKPT_DTYPE_NONE || target->dtypes || target->mixture) {
        rc = ckpt_quantized_refuse(from, "another dtype", err);
        return rc == CKPT_OK ? ckpt_quantized_codes(from, "another dtype", err) : rc;
    }
    if (ckpt_format_caps(target->format) & CKPT_TAKES_GRID)
        return ckpt_quantized_refuse(from, "slices for ranks", err);
    if (lay_makes_tensors(target->format))
        return ckpt_quantized_refuse(from, "training state", err);
    if (strcmp(target->format, "gguf") == 0)
        rc = ckpt_quantized_refuse(from, "a GGUF model", err);
    // a GGUF file may have integers, whatever they mean
    if (rc == CKPT_OK && strcmp(target->format, "gguf") == 0 && !lay_is_gguf(from))
        rc = ckpt_quantized_codes(from, "a GGUF model", err);
    return rc;
}

int ckpt_layout(ckpt_map **out, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_map *to = NULL;
    ckpt_target own;
    int rc = lay_take(&own, from, target, err);

    if (rc == CKPT_OK && !out)
        rc = ckpt_fail(err, CKPT_EUSAGE, "no place for what is laid out");
    if (out)
        *out = NULL;
    target = &own;
    if (rc == CKPT_OK)
        rc = ckpt_map_readable(from, err);
    if (rc == CKPT_OK)
        rc = ckpt_target_check(target, err);
    if (rc == CKPT_OK)
        rc = lay_quantized(from, target, err);
    if (rc == CKPT_OK)
        rc = lay_dicts(from, target->format, err);
    if (rc == CKPT_OK && lay_makes_tensors(target->format) &&
        (from->vocab_size || from->tied || from->untied))
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED,
                       "%s: %s its vocabulary and its ties: write the weights "
                       "first (--to hf), and begin a run with these",
                       from->path,
                       ckpt_format_caps(target->format) & CKPT_TAKES_GRID ? "a run's model keeps"
                                                                          : "training state keeps");
    if (rc == CKPT_OK)
        rc = ckpt_map_create(&to, 0, err);
    if (rc == CKPT_OK) {
        to->path = ckpt_arena_string(to->arena, target->path, strlen(target->path));
        to->into = to->path ? lay_into(to, target) : NULL;
        rc = to->into ? lay_importance(to, target, err) : ckpt_fail_memory(err);
    }
    if (rc == CKPT_OK && !lay_makes_tensors(target->format))
        rc = lay_all(to, from, target, err);
    if (rc == CKPT_OK)
        rc = lay_names(to, from, target, err);
    if (rc == CKPT_OK)
        rc = lay_metadata(to, from, err);
    if (rc == CKPT_OK)
        rc = lay_keys(to, from, err);
    if (rc == CKPT_OK)
        rc = lay_files(to, from, target, err);
    if (rc == CKPT_OK)
        rc = lay_whole(to, from, target, err);
    if (rc == CKPT_OK && lay_makes_tensors(target->format))
        rc = lay_run_wide(to, from, target, err);
    if (rc == CKPT_OK && lay_makes_tensors(target->format))
        rc = ckpt_ranked_lost(to, from, err);
    if (rc == CKPT_OK && !to->claim.made)
        rc = ckpt_claim_tensors(from, to, err);
    if (rc != CKPT_OK) {
        ckpt_map_free(to);
        return rc;
    }
    *out = to;
    return CKPT_OK;
}

int ckpt_convert(const ckpt_map *from, const ckpt_target *target, const ckpt_run_opts *opts,
                 ckpt_run_report *report, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_map *to = NULL;
    ckpt_plan *plan = NULL;
    ckpt_target own;
    int rc = lay_take(&own, from, target, err);

    target = &own;
    if (rc == CKPT_OK)
        rc = ckpt_layout(&to, from, target, err);
    if (rc == CKPT_OK)
        rc = ckpt_plan_new(&plan, from, to, opts, err);
    if (rc == CKPT_OK)
        rc = ckpt_plan_run(plan, opts, report, err);
    ckpt_plan_free(plan);
    ckpt_map_free(to);
    return rc;
}
