/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline_write.c: distributes tensors over the folders of a diffusers pipeline.
 *
 * Each component with weights is laid out as a model folder of its own, and its files are then
 * entered below the component's name.  model_index.json comes last, because loaders begin with it.
 */
#include "formats/hf/pipeline.h"

#include <assert.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/hf/hf.h"
#include "formats/hf/side.h"
#include "formats/hf/wide.h"
#include "libckpt/io/address.h"

typedef struct plw_work {
    ckpt_map *to;
    const ckpt_map *from;
    const ckpt_target *target;
    ckpt_map *scratch; /* owns the listings and the list of components */
    ckpt_listing list; /* the source's folder */
    ckpt_pipeline_parts parts;
    ckpt_err *err;
} plw_work;

/* A component that is laid out. */
typedef struct plw_part {
    const char *name, *folder, *prefix; /* "unet", the source's "pipe/unet", "unet/" */
    ckpt_map *from, *to;                /* the component alone, under its own names */
    size_t *at;                         /* index of each of its tensors in the pipeline's target */
} plw_part;

/* ---- refusals ---- */

/* Refuse options that are about one model. */
static int plw_check(const plw_work *w)
{
    const ckpt_map *from = w->from;
    const char *what = from->model_folder || from->config.text ? "a configuration (--config)"
                       : from->quantization                    ? "a quantization (--quantize)"
                       : from->vocab_size                      ? "the size of a vocabulary"
                       : from->tied || from->untied            ? "a tie (--tie, --untie)"
                                                               : NULL;

    if (what)
        return ckpt_fail(w->err, CKPT_EUSAGE,
                         "%s is a pipeline of several models, and %s is for one model: convert a "
                         "component alone, such as %s/%s",
                         from->path, what, from->path, w->parts.n ? w->parts.at[0].name : "unet");
    if (w->target->skip_side_files)
        return ckpt_fail(w->err, CKPT_EUSAGE,
                         "%s: a pipeline needs " CKPT_PIPELINE_INDEX
                         " and its configurations: leave --no-side-files out",
                         from->path);
    return CKPT_OK;
}

/* Refuse a tensor that belongs to no component. */
static int plw_check_all(const plw_work *w)
{
    for (size_t i = 0; i < w->to->tensors.n; i++) {
        const ckpt_tensor *t = w->to->tensors.at[i];

        if (t->file == UINT32_MAX)
            return ckpt_fail(w->err, CKPT_EMISMATCH,
                             "tensor \"%.200s\" belongs to no component that " CKPT_PIPELINE_INDEX
                             " lists with weights: expected names such as %.100s/%.100s; write one "
                             "file with --to safetensors, or leave it out with --exclude",
                             t->name, w->parts.n ? w->parts.at[0].name : "unet", t->name);
    }
    return CKPT_OK;
}

/* ---- one component ---- */

static bool plw_begins(const char *text, const char *begin)
{
    return strncmp(text, begin, strlen(begin)) == 0;
}

/* Enter the source's files of the component, and its tensors without extents. */
static int plw_source(const plw_work *w, plw_part *p)
{
    const char *below = ckpt_arena_printf(p->from->arena, "%s/", p->folder);
    int rc = below ? CKPT_OK : ckpt_fail_memory(w->err);

    p->from->path = p->from->model_folder = p->folder;
    p->from->format = "hf";
    p->from->selected = w->from->selected;
    for (size_t i = 0; rc == CKPT_OK && i < w->from->files.n; i++) {
        uint32_t index;

        if (plw_begins(w->from->files.at[i].path, below))
            rc = ckpt_map_add_file(p->from, &w->from->files.at[i], &index, w->err);
    }
    for (size_t i = 0; rc == CKPT_OK && i < w->from->tensors.n; i++) {
        const ckpt_tensor *t = w->from->tensors.at[i];
        ckpt_tensor like = {
            .dtype = t->dtype, .export_dtype = t->export_dtype, .ndim = t->ndim, .shape = t->shape};
        ckpt_tensor *made;

        if (plw_begins(t->name, p->prefix))
            rc = ckpt_map_add(p->from, t->name + strlen(p->prefix),
                              strlen(t->name) - strlen(p->prefix), &like, &made, w->err);
    }
    return rc;
}

/* Enter the target's tensors of the component. */
static int plw_target(const plw_work *w, plw_part *p)
{
    const size_t n = strlen(p->prefix);
    int rc = CKPT_OK;

    p->to->path = w->to->path;
    p->to->into = w->to->into;
    for (size_t i = 0; rc == CKPT_OK && i < w->to->tensors.n; i++) {
        const ckpt_tensor *t = w->to->tensors.at[i];
        ckpt_tensor like = {
            .dtype = t->dtype, .ndim = t->ndim, .shape = t->shape, .file = UINT32_MAX};
        ckpt_tensor *made;
        size_t owner = SIZE_MAX;

        if (!plw_begins(t->name, p->prefix))
            continue;
        if (t->owner && plw_begins(t->owner->name, p->prefix))
            owner = ckpt_map_index(p->to, t->owner->name + n, strlen(t->owner->name) - n);
        if (t->owner && owner == SIZE_MAX)
            return ckpt_fail(w->err, CKPT_EMISSING,
                             "tensor \"%.200s\" is tied to \"%.200s\", which is not written",
                             t->name, t->owner->name);
        like.owner = t->owner ? p->to->tensors.at[owner] : NULL;
        p->at[p->to->tensors.n] = i;
        rc = ckpt_map_add(p->to, t->name + n, strlen(t->name) - n, &like, &made, w->err);
    }
    if (rc == CKPT_OK && p->to->tensors.n == 0)
        rc = ckpt_fail(w->err, CKPT_EMISSING,
                       "%s: no tensor of the component %.100s is selected, but " CKPT_PIPELINE_INDEX
                       " lists it: leave --include and --exclude out, or convert a component "
                       "alone, such as %s",
                       w->from->path, p->name, p->folder);
    return rc;
}

/*
 * The variant in the names of the source's files, such as "fp16"; NULL: none, or the output has
 * another dtype.
 */
static const char *plw_variant(const plw_work *w, const plw_part *p)
{
    const bool other = w->target->dtype != CKPT_DTYPE_NONE || w->target->dtypes;
    ckpt_hf_name name = {0};

    if (!other && p->from->files.n > 0)
        name = ckpt_hf_parse_name(ckpt_hf_base(p->from->files.at[0].path));
    return name.n_variant ? ckpt_arena_string(p->to->arena, name.variant, name.n_variant) : NULL;
}

/* The metadata of the component's files, without entries about tied names. */
static int plw_metadata(const plw_work *w, const plw_part *p, ckpt_dict *out)
{
    const ckpt_map *read = NULL;
    ckpt_arena *a = w->to->arena;

    for (size_t i = 0; i < w->from->children.n; i++) {
        const ckpt_map *child = w->from->children.at[i];

        read = child->path && strcmp(child->path, p->folder) == 0 ? child : read;
    }
    for (uint64_t i = 0; read && i < read->metadata.n; i++) {
        const ckpt_text key = read->metadata.at[i].key->as.text,
                        text = read->metadata.at[i].value->as.text;
        ckpt_value *k, *v;

        if (ckpt_map_index(read, key.at, key.n) != SIZE_MAX &&
            ckpt_map_index(read, text.at, text.n) != SIZE_MAX)
            continue;
        k = ckpt_value_str(a, key.at, key.n);
        v = ckpt_value_str(a, text.at, text.n);
        if (!k || !v || !ckpt_dict_add(a, out, k, v))
            return ckpt_fail_memory(w->err);
    }
    return CKPT_OK;
}

/* Enter a file of the component below its folder. */
static int plw_file(const plw_work *w, const plw_part *p, const ckpt_map_file *f,
                    const ckpt_component *of)
{
    const char *path = ckpt_arena_printf(w->to->arena, "%s%s", p->prefix, f->path);
    ckpt_map_file file = *f;
    uint32_t index = 0;
    int rc = path ? CKPT_OK : ckpt_fail_memory(w->err);

    file.path = path;
    file.component = f->format ? of : NULL;
    if (rc == CKPT_OK)
        rc = ckpt_map_add_file(w->to, &file, &index, w->err);
    for (size_t k = 0; rc == CKPT_OK && k < f->literals.n; k++)
        rc = ckpt_map_add_literal(w->to, index, f->literals.at[k].at, f->literals.at[k].bytes,
                                  f->literals.at[k].n, w->err);
    return rc;
}

/* Enter the files of a component that is laid out, and its notes. */
static int plw_enter(const plw_work *w, const plw_part *p)
{
    const uint32_t first = (uint32_t)w->to->files.n;
    ckpt_component *of = ckpt_arena_alloc(w->to->arena, sizeof *of);
    const char *prefix = ckpt_arena_string(w->to->arena, p->prefix, strlen(p->prefix));
    int rc = of && prefix ? CKPT_OK : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK) {
        *of = (ckpt_component){.prefix = prefix};
        rc = plw_metadata(w, p, &of->metadata);
    }
    for (size_t i = 0; rc == CKPT_OK && i < p->to->files.n; i++)
        rc = plw_file(w, p, &p->to->files.at[i], of);
    for (size_t i = 0; rc == CKPT_OK && i < p->to->tensors.n; i++) {
        w->to->tensors.at[p->at[i]]->file = first + p->to->tensors.at[i]->file;
        w->to->tensors.at[p->at[i]]->dtype = p->to->tensors.at[i]->dtype;
    }
    for (size_t i = 0; rc == CKPT_OK && i < p->to->findings.n; i++)
        rc = ckpt_map_note(w->to, p->to->findings.at[i].severity, w->err, "%s",
                           p->to->findings.at[i].text);
    return rc;
}

/* Refuse a model without config.json: no program would load it, or know its file names. */
static int plw_check_config(const plw_work *w, const char *folder)
{
    ckpt_listing own;
    int rc = ckpt_listing_read(&own, w->scratch, folder, w->err);

    return rc == CKPT_OK && !ckpt_listing_find(&own, "config.json")
               ? ckpt_fail(w->err, CKPT_EMISSING,
                           "%s/config.json is missing: diffusers cannot load the component without "
                           "it; copy the file from the pipeline's source",
                           folder)
               : rc;
}

/* Lay out a component with weights. */
static int plw_model(const plw_work *w, const ckpt_pipeline_part *part, const char *folder)
{
    plw_part p = {.name = part->name, .folder = folder};
    int rc = ckpt_map_create(&p.from, 0, w->err);

    p.prefix = ckpt_arena_printf(w->scratch->arena, "%s/", part->name);
    p.at = ckpt_alloc((w->to->tensors.n + 1) * sizeof *p.at);
    if (rc == CKPT_OK)
        rc = p.prefix && p.at ? ckpt_map_create(&p.to, 0, w->err) : ckpt_fail_memory(w->err);
    if (rc == CKPT_OK)
        rc = plw_source(w, &p);
    if (rc == CKPT_OK)
        rc = plw_check_config(w, folder);
    if (rc == CKPT_OK)
        rc = plw_target(w, &p);
    if (rc == CKPT_OK)
        rc = ckpt_hf_keep_wide(p.to, p.from, part->class, w->target->dtype, w->err);
    if (rc == CKPT_OK)
        rc = ckpt_hf_scatter(p.to, p.from, w->target, plw_variant(w, &p), w->err);
    if (rc == CKPT_OK)
        rc = plw_enter(w, &p);
    ckpt_map_free(p.to);
    ckpt_map_free(p.from);
    ckpt_free(p.at);
    return rc;
}

/* Add a component: the model, or the files of one without weights. */
static int plw_component(const plw_work *w, const ckpt_pipeline_part *part)
{
    const char *folder = ckpt_path_join(w->scratch->arena, w->list.folder, part->name), *below;
    const size_t n_files = w->to->files.n;
    ckpt_listing own;
    struct stat st;
    int rc;

    // the reader has refused it already, unless the folder has changed
    if (!ckpt_listing_has(&w->list, part->name, true))
        return ckpt_pipeline_missing(w->to, w->list.folder, part, w->err);
    if (!folder)
        return ckpt_fail_memory(w->err);
    // in a downloaded folder a link could lead to private files
    if (!ckpt_address_is(folder) && lstat(folder, &st) == 0 && S_ISLNK(st.st_mode))
        return ckpt_fail(w->err, CKPT_EUNSAFE,
                         "%s is a link, and ckpt copies no files through links out of a folder: "
                         "copy the folder",
                         folder);
    if (!part->plain)
        return plw_model(w, part, folder);
    below = ckpt_arena_printf(w->scratch->arena, "%s/", part->name);
    rc = below ? ckpt_listing_read(&own, w->scratch, folder, w->err) : ckpt_fail_memory(w->err);
    if (rc == CKPT_OK)
        rc = ckpt_hf_side_pipeline(w->to, &own, below, NULL, w->err);
    // a pipeline cannot be loaded without a component that its index lists
    if (rc == CKPT_OK && w->to->files.n == n_files)
        rc = ckpt_fail(w->err, CKPT_EMISSING,
                       "%s: no file of the component %.100s (%.100s) can be copied: expected its "
                       "configuration as a file, not as a link out of the folder; copy the files",
                       folder, part->name, part->class);
    return rc;
}

/* ---- the top folder ---- */

/* Add the files beside the components, and the index. */
static int plw_top(const plw_work *w)
{
    const size_t n = w->parts.n;
    const char **taken = ckpt_arena_array(w->scratch->arena, n + 2, sizeof *taken);
    const ckpt_entry *index = ckpt_listing_find(&w->list, CKPT_PIPELINE_INDEX);
    ckpt_listing last = w->list;
    int rc = taken ? CKPT_OK : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK && !index)
        rc = ckpt_fail(w->err, CKPT_EMISSING, "%s/" CKPT_PIPELINE_INDEX " is missing",
                       w->list.folder);
    for (size_t i = 0; rc == CKPT_OK && i < n; i++)
        taken[i] = w->parts.at[i].name;
    if (rc == CKPT_OK) {
        taken[n] = CKPT_PIPELINE_INDEX;
        taken[n + 1] = NULL;
        rc = ckpt_hf_side_pipeline(w->to, &w->list, "", taken, w->err);
    }
    if (rc == CKPT_OK) {
        last.entry = index;
        last.n = 1;
        rc = ckpt_hf_side_pipeline(w->to, &last, "", NULL, w->err);
    }
    if (rc == CKPT_OK && strcmp(w->to->files.at[w->to->files.n - 1].path, CKPT_PIPELINE_INDEX) != 0)
        rc = ckpt_fail(w->err, CKPT_EUNSAFE,
                       "%s/" CKPT_PIPELINE_INDEX " is a link out of the folder: copy the file",
                       w->list.folder);
    return rc;
}

/* Name old files by their role: weights in the components' folders are replaced together. */
static ckpt_set_name plw_look(const char *file_name)
{
    const char *slash = strchr(file_name, '/');
    ckpt_set_name out = {.what = CKPT_SET_OTHER};
    ckpt_hf_name n;

    if (!slash) {
        out.what = strcmp(file_name, CKPT_PIPELINE_INDEX) == 0 ? CKPT_SET_HEAD : CKPT_SET_OTHER;
        return out;
    }
    n = ckpt_hf_parse_name(slash + 1);
    if (n.role != CKPT_HF_OTHER)
        out.what = n.family >= CKPT_HF_ADAPTER && n.family < CKPT_HF_ADAPTER + 2 ? CKPT_SET_NEAR
                                                                                 : CKPT_SET_PART;
    return out;
}

int ckpt_pipeline_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target,
                          ckpt_err *err)
{
    assert(to && from && target);
    static const ckpt_set set = {.name = "pipeline", .look = plw_look, .alone = true, .deep = true};
    plw_work w = {.to = to, .from = from, .target = target, .err = err};
    const ckpt_value *root;
    int rc = ckpt_map_create(&w.scratch, 0, err);

    if (rc == CKPT_OK)
        rc = ckpt_listing_read(&w.list, w.scratch, from->path, err);
    if (rc == CKPT_OK)
        rc = ckpt_pipeline_read(&w.parts, &root, w.scratch->arena, &w.list, err);
    if (rc == CKPT_OK)
        rc = plw_check(&w);
    for (size_t i = 0; rc == CKPT_OK && i < w.parts.n; i++)
        rc = plw_component(&w, &w.parts.at[i]);
    if (rc == CKPT_OK)
        rc = plw_check_all(&w);
    if (rc == CKPT_OK)
        rc = plw_top(&w);
    to->set = &set;
    ckpt_vec_free(&w.parts);
    ckpt_map_free(w.scratch);
    return rc;
}
