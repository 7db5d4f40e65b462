/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c: implements ckpt diff, which compares two checkpoints of any formats by name and value. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/vec.h"
#include "tools/ckpt/both_globs.h"
#include "tools/ckpt/diff_stats.h"
#include "tools/ckpt/effects.h"
#include "tools/ckpt/hub_names.h"
#include "tools/ckpt/manifest.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/same_layout.h"
#include "tools/ckpt/same_prefix.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"
#include "tools/cli/text.h"

/* The fields of this command. */
typedef struct diff_args {
    cli_args cli; /* first: the parser fills the whole */
    bool ignore_dtype, stats;
    bool manifest; /* compare manifests only */
    const char *tag_a, *tag_b;
    const char *map; /* to apply to A; "none": compare names as they are; NULL: as needed */
    double tolerance;
    cli_list sizes;
    const char *config; /* the model's config.json */
    char *config_text;  /* its contents */
    cli_maps maps;      /* those to choose from, or that of a file */
    bool moot;          /* nothing has asked for --config and --size */
    bool slices;        /* a side has slices that only its layout map can join */
    bool chosen[2];     /* --include has chosen one of several models of A, of B */
    both_globs globs;
    same_layout layout;
    char prefix_a[PREFIX_ROOM], prefix_b[PREFIX_ROOM]; /* removed from all names of a side */
} diff_args;

/* A name that only one side has, and the tensor of both sides that it repeats. */
typedef struct diff_tie {
    const char *name, *of;
    char side;
} diff_tie;

CKPT_VEC(diff_ties, diff_tie);

typedef struct diff_out {
    const cli_args *a;
    bool stats; /* print groups instead of tensors with other values */
    json_out j;
    diff_ties ties;
    diff_stats groups;
    const char *last; /* last printed name, to count a tensor with two differences once */
    uint64_t n_names;
} diff_out;

/* Print the position of element i of a row-major tensor: "[3, 17]". */
static void diff_index(const ckpt_tensor *t, uint64_t i)
{
    uint64_t span = t->n_elems;

    // spans shrink axis by axis; the remainder is the index within the rest
    out_printf("[");
    for (uint32_t k = 0; k < t->ndim && span > 0; k++) {
        span /= t->shape[k] ? t->shape[k] : 1;
        out_printf("%s%" PRIu64, k ? ", " : "", i / span);
        i %= span;
    }
    out_printf("]");
}

/* Print one difference: its kind, the name, details. */
static void diff_text(const ckpt_difference *d)
{
    char a[SHAPE_ROOM], b[SHAPE_ROOM];

    out_printf("%s: ", d->what);
    out_text(d->name);
    if (strcmp(d->what, "shape") == 0) {
        out_printf(" %s in A, %s in B", shape_text(a, d->a), shape_text(b, d->b));
    } else if (strcmp(d->what, "dtype") == 0) {
        out_printf(" %s in A, %s in B", ckpt_dtype_name(d->a->dtype), ckpt_dtype_name(d->b->dtype));
    } else if (strcmp(d->what, "values") == 0) {
        out_printf(" %" PRIu64 " of %" PRIu64 " elements, the first at ", d->n_different,
                   d->a->n_elems);
        diff_index(d->a, d->first);
        // below 0: the values were compared by bits, so there is no distance
        if (!(d->max_abs < 0))
            out_printf(", by at most %.9g", d->max_abs);
    }
    out_printf("\n");
}

/* Print one of the two tensors; null if it is missing. */
static void diff_json_side(json_out *j, const char *key, const ckpt_tensor *t)
{
    if (!t) {
        json_text(j, key, NULL);
        return;
    }
    json_open(j, key, '{');
    json_text(j, "dtype", ckpt_dtype_name(t->dtype));
    json_shape(j, "shape", t);
    json_close(j, '}');
}

/*
 * Print one difference as an object; for values with their number, the first one and the distance.
 */
static void diff_json(json_out *j, const ckpt_difference *d)
{
    json_open(j, NULL, '{');
    json_text(j, "name", d->name);
    json_text(j, "what", d->what);
    diff_json_side(j, "a", d->a);
    diff_json_side(j, "b", d->b);
    if (strcmp(d->what, "values") == 0) {
        json_uint(j, "elements_different", d->n_different);
        json_uint(j, "first", d->first);
        if (d->max_abs < 0)
            json_text(j, "max_abs", NULL);
        else
            json_real(j, "max_abs", d->max_abs);
    }
    json_close(j, '}');
}

/* Callback of the library for each difference. */
static int diff_one(void *ctx, const ckpt_difference *d)
{
    diff_out *out = ctx;

    // the two differences of a name are adjacent
    bool again = out->last && strcmp(out->last, d->name) == 0;
    out->n_names += !again;
    out->last = d->name;
    if (out->a->json) {
        diff_json(&out->j, d);
    } else if (!out->a->quiet) {
        if (!out->stats || strcmp(d->what, "values") != 0)
            diff_text(d);
    } else if (!again) {
        out_text(d->name);
        out_printf("\n");
    }
    return out_broken();
}

/* Callback of the library for each name that only one side has because it is tied. */
static int diff_tied(void *ctx, const ckpt_difference *d)
{
    diff_out *out = ctx;
    diff_tie *tie = ckpt_vec_push(&out->ties);

    if (!tie)
        return 1;
    *tie = (diff_tie){d->name, d->b->name, d->what[strlen(d->what) - 1]};
    if (!out->a->json && !out->a->quiet)
        say_note("%s: only %c has this name; it is tied to %s, which both sides have", tie->name,
                 tie->side, tie->of);
    return 0;
}

/* Print the tied names that only one side has. */
static void diff_json_ties(json_out *j, const diff_ties *ties)
{
    json_open(j, "tied", '[');
    for (size_t i = 0; i < ties->n; i++) {
        json_open(j, NULL, '{');
        json_text(j, "name", ties->at[i].name);
        json_text(j, "tied_to", ties->at[i].of);
        json_text(j, "only_in", ties->at[i].side == 'A' ? "a" : "b");
        json_close(j, '}');
    }
    json_close(j, ']');
}

/* Callback of the library for each group. */
static int diff_group(void *ctx, const ckpt_diff_group *g)
{
    diff_out *out = ctx;

    return diff_stats_add(&out->groups, g);
}

/* True for a note about tensors that are not compared: the opener's, or those of a layout map. */
static bool diff_left_out(const char *note)
{
    return strstr(note, "' is left out") || strstr(note, "ckpt leaves out ") ||
           strstr(note, " not part of the model");
}

/* Print the warnings of a side, and the notes about tensors that are not compared. */
static void diff_say_dropped(const ckpt_map *map)
{
    const char *text;
    int severity, code;

    for (size_t i = 0; ckpt_map_finding_at(map, i, &severity, &code, &text); i++) {
        if (severity > 0)
            say_warning("%s", text);
        else if (diff_left_out(text))
            say_note("%s", text);
    }
}

/* Apply the filter to one side, and print its findings if diff_layout has not. */
static int diff_filter(ckpt_map *map, diff_args *a, unsigned side, ckpt_err *err)
{
    const bool quiet = a->cli.quiet || a->cli.json;

    // the same filter for both sides, because otherwise it would cause differences
    int rc = a->chosen[side] ? CKPT_OK : both_globs_select(&a->globs, &a->cli, map, err);
    if (rc == CKPT_OK) {
        if (quiet)
            map_say_findings(map, false);
        else if (!(side ? a->layout.b : a->layout.a)[0])
            diff_say_dropped(map);
        effects_of_source(&a->cli, map);
    }
    return rc;
}

/* A copy of a name as a glob that matches only this name; NULL: no memory. */
static char *diff_glob(const char *name)
{
    char *glob = malloc(2 * strlen(name) + 1), *to = glob;

    for (; glob && *name; name++) {
        if (strchr("*?[\\", *name))
            *to++ = '\\';
        *to++ = *name;
    }
    if (glob)
        *to = 0;
    return glob;
}

/*
 * Drop the tensors that a program saved beside the model of one side and that the other side lacks:
 * some formats hold them as tensors, others as values.
 */
static int diff_others(ckpt_map *map, const ckpt_map *other, const cli_args *a, ckpt_err *err)
{
    size_t n = ckpt_map_tensor_count(map), lacks = 0;
    char **globs = calloc(n + 1, sizeof *globs);
    int rc = globs ? CKPT_OK : fail(err, CKPT_ELIMIT, "out of memory");

    for (size_t i = 0; rc == CKPT_OK && i < n; i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);
        if (t->role != CKPT_ROLE_OTHER || ckpt_map_find(other, t->name))
            continue;
        globs[lacks] = diff_glob(t->name);
        if (!globs[lacks++])
            rc = fail(err, CKPT_ELIMIT, "out of memory");
    }
    if (rc == CKPT_OK && lacks > 0 && lacks < n) {
        if (!a->quiet && !a->json)
            say_note("%s: did not compare %zu tensor%s beside the model that the other side lacks "
                     "(%s%s)",
                     ckpt_map_path(map), lacks, lacks == 1 ? "" : "s", globs[0],
                     lacks > 1 ? " ..." : "");
        rc = ckpt_map_select(map, &(ckpt_filter){.exclude = (const char *const *)globs}, err);
    }
    for (size_t i = 0; globs && i < lacks; i++)
        free(globs[i]);
    free(globs);
    return rc;
}

/* The same for both sides. */
static int diff_both_others(ckpt_map *ma, ckpt_map *mb, const diff_args *a, ckpt_err *err)
{
    int rc = diff_others(ma, mb, &a->cli, err);

    return rc == CKPT_OK ? diff_others(mb, ma, &a->cli, err) : rc;
}

/* If only one side is quantized, dequantize it, so floats are compared with floats. */
static int diff_floats(ckpt_map *ma, ckpt_map *mb, bool quiet, ckpt_err *err)
{
    bool a = ckpt_map_is_quantized(ma), b = ckpt_map_is_quantized(mb);
    int rc = a == b ? CKPT_OK : ckpt_map_dequantize(a ? ma : mb, true, err);

    if (rc == CKPT_OK && a != b && !quiet)
        say_note("%s: is quantized; its dequantized weights are compared",
                 ckpt_map_path(a ? ma : mb));
    return rc;
}

/* True for a model folder, which has the hub's names. */
static bool diff_is_folder(const ckpt_map *map)
{
    return strcmp(ckpt_map_format(map), "hf") == 0;
}

/* True if a tensor of one side has no counterpart of its name. */
static bool diff_lacks(const ckpt_map *map, const ckpt_map *other)
{
    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
        if (!ckpt_map_find(other, ckpt_map_tensor_at(map, i)->name))
            return true;
    }
    return false;
}

/* True for the names of PEFT's files, which lack the name of the adapter. */
static bool diff_is_adapter(const ckpt_map *map)
{
    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
        const char *name = ckpt_map_tensor_at(map, i)->name, *at = strstr(name, ".lora_");

        if (at && (strcmp(at, ".lora_A.weight") == 0 || strcmp(at, ".lora_embedding_A") == 0))
            return true;
    }
    return false;
}

/* True for the names of a run that trained an adapter. */
static bool diff_trained(const ckpt_map *map)
{
    const hub_adapter of = hub_adapter_of(map);

    return of == HUB_ALONE || of == HUB_WITH_BASE;
}

/* Keep the adapter of a run, by the configuration of the run or else of the other side. */
static int diff_keep_adapter(ckpt_map *run, const ckpt_map *other, ckpt_err *err)
{
    const char *path = ckpt_map_path(other), *slash = strrchr(path, '/');
    const bool folder = ckpt_format_caps(ckpt_map_format(other)) & CKPT_IS_FOLDER;
    const int n = folder ? (int)strlen(path) : slash ? (int)(slash - path) : 0;
    char config[4096];
    int rc = ckpt_map_keep_adapter(run, NULL, err);

    (void)snprintf(config, sizeof config, "%.*s%sadapter_config.json", n, path, n ? "/" : "");
    if (rc != CKPT_EUSAGE)
        return rc;
    *err = (ckpt_err){0};
    return ckpt_map_keep_adapter(
        run, &(ckpt_adapter_only){.size = sizeof(ckpt_adapter_only), .config = config}, err);
}

/* Compare a run that trained an adapter with PEFT's folder under the names of that folder. */
static int diff_adapter(ckpt_map *ma, ckpt_map *mb, const diff_args *a, ckpt_err *err)
{
    const bool run_a = diff_trained(ma), run_b = diff_trained(mb);
    ckpt_map *run = run_a ? ma : mb, *other = run_a ? mb : ma;
    const size_t n = ckpt_map_tensor_count(run);
    ckpt_err why = {0};

    if (run_a == run_b || !diff_is_adapter(other) || a->cli.open.with_optimizer)
        return CKPT_OK;
    int rc = diff_keep_adapter(run, other, &why);
    if (rc == CKPT_ELIMIT)
        return fail(err, rc, "%s", why.text);
    if (!a->cli.quiet && !a->cli.json && rc != CKPT_OK)
        say_note("%s; comparing this side under its own names instead", why.text);
    else if (!a->cli.quiet && !a->cli.json)
        say_note(
            "%s: only its adapter is compared, under the names in PEFT's files (%zu tensors of "
            "its base model are not)",
            ckpt_map_path(run), n - ckpt_map_tensor_count(run));
    return CKPT_OK;
}

/* True if the user wants names as they are. */
static bool diff_unmapped(const diff_args *a)
{
    return a->map && strcmp(a->map, "none") == 0;
}

/* True if layout maps have changed names of a side. */
static bool diff_mapped(const diff_args *a)
{
    return a->layout.a[0] || a->layout.b[0];
}

/* Bring both sides to one layout, by the map that the user names or as they need it. */
static int diff_layout(ckpt_map *ma, ckpt_map *mb, diff_args *a, ckpt_err *err)
{
    const bool quiet = a->cli.quiet || a->cli.json;
    const ckpt_remap_opts opts = {.size = sizeof opts,
                                  .config_text = a->config_text,
                                  .config_name = a->config,
                                  .sizes = a->sizes.n ? a->sizes.at : NULL};
    const same_layout_from from = {&a->maps, &opts, a->slices};
    ckpt_err why = {0};
    int rc = CKPT_OK;

    if (a->map && !diff_unmapped(a))
        rc = same_layout_apply(ma, mb, &from, a->map, &a->layout, err);
    else if (!a->map && (a->slices || diff_lacks(ma, mb) || diff_lacks(mb, ma)))
        rc = same_layout_meet(ma, mb, &from, &a->layout, &why, err);
    if (rc == CKPT_OK && a->slices && why.text[0])
        return fail(err, CKPT_EUNSUPPORTED, "%s (--keep-slices compares the slices as they are)",
                    why.text);
    a->moot = !diff_mapped(a) && !why.text[0];
    // a folder may store a head that its configuration ties
    if (rc == CKPT_OK && diff_mapped(a) && diff_is_folder(ma))
        rc = ckpt_map_tie(ma, NULL, err);
    if (rc == CKPT_OK && diff_mapped(a) && diff_is_folder(mb))
        rc = ckpt_map_tie(mb, NULL, err);
    if (rc != CKPT_OK || quiet)
        return rc;
    if (why.text[0])
        say_note("%s; comparing this side under its own names instead", why.text);
    if (a->layout.a[0])
        say_note("%s: compared after the layout map %s", ckpt_map_path(ma), a->layout.a);
    if (a->layout.b[0])
        say_note("%s: compared after the layout map %s", ckpt_map_path(mb), a->layout.b);
    if (a->layout.a[0])
        diff_say_dropped(ma);
    if (a->layout.b[0])
        diff_say_dropped(mb);
    return CKPT_OK;
}

/* Give both sides the hub's names of the model that --config describes, if neither is a folder. */
static int diff_hub_names(ckpt_map *ma, ckpt_map *mb, diff_args *a, ckpt_err *err)
{
    const hub_source source = {
        .maps = !a->map ? &a->maps : NULL, .config_text = a->config_text, .config_name = a->config};
    bool did[2] = {false, false};
    int rc = hub_rename(ma, &source, HUB_TO_FILES, &did[0], err);

    if (rc == CKPT_OK)
        rc = hub_rename(mb, &source, HUB_TO_FILES, &did[1], err);
    a->moot = a->moot && !did[0] && !did[1];
    for (unsigned i = 0; rc == CKPT_OK && i < 2 && !a->cli.quiet && !a->cli.json; i++) {
        if (did[i])
            say_note("%s: compared under the hub's names of this model",
                     ckpt_map_path(i ? mb : ma));
    }
    return rc;
}

/*
 * A run has the names of the model in memory; compared with a folder, it gets the hub's names.
 * Layout maps give the hub's names, which change if the folder itself has those in memory.
 */
static int diff_names(ckpt_map *ma, ckpt_map *mb, diff_args *a, ckpt_err *err)
{
    const hub_source source = {.maps = a->maps.n && !a->map ? &a->maps : NULL};
    const bool folder = diff_is_folder(ma), one = folder != diff_is_folder(mb);
    ckpt_map *other = folder ? mb : ma;
    const char *to = "the hub's names";
    bool did = false;
    int rc = CKPT_OK;

    if (!folder && !one && a->config_text && !diff_unmapped(a) &&
        (diff_lacks(ma, mb) || diff_lacks(mb, ma)))
        return diff_hub_names(ma, mb, a, err);
    if (one)
        rc = hub_rename_like(folder ? ma : mb, other, &source, &did, err);
    if (rc == CKPT_OK && one && !did && diff_mapped(a) && diff_lacks(folder ? ma : mb, other)) {
        to = "the names in memory";
        rc = hub_rename(other, &source, HUB_TO_MEMORY, &did, err);
    }
    if (rc == CKPT_OK && did && !a->cli.quiet && !a->cli.json)
        say_note("%s: compared under %s of this model", ckpt_map_path(other), to);
    return rc;
}

/* Warn about --config and --size that nothing needed. */
static void diff_say_moot(const diff_args *a)
{
    const char *config = a->config ? "--config" : "", *size = a->sizes.n ? "--size" : "";

    if (a->moot && (a->config || a->sizes.n))
        say_warning("%s%s%s %s no effect: no layout map is needed", config,
                    a->config && a->sizes.n ? " and " : "", size,
                    a->config && a->sizes.n ? "have" : "has");
}

/* Remove a prefix that one side has before all names of the other. */
static int diff_prefix(ckpt_map *ma, ckpt_map *mb, diff_args *a, ckpt_err *err)
{
    const bool may = !diff_unmapped(a) && !a->cli.keep_names;
    int rc = CKPT_OK;

    if (may && diff_lacks(ma, mb) && diff_lacks(mb, ma))
        rc = same_prefix(a->prefix_a, ma, mb, err);
    if (rc == CKPT_OK && may && !a->prefix_a[0] && diff_lacks(ma, mb) && diff_lacks(mb, ma))
        rc = same_prefix(a->prefix_b, mb, ma, err);
    if (rc == CKPT_OK && (a->prefix_a[0] || a->prefix_b[0]) && !a->cli.quiet && !a->cli.json)
        say_note("%s: is compared without the prefix %s, which the names of the other side lack",
                 ckpt_map_path(a->prefix_a[0] ? ma : mb),
                 a->prefix_a[0] ? a->prefix_a : a->prefix_b);
    return rc;
}

/* The part of two runs that is not compared; NULL: nothing, or at most one side is a run. */
static const char *diff_rest(const diff_args *a, const ckpt_map *ma, const ckpt_map *mb)
{
    ckpt_training_info of_a = {.size = sizeof of_a}, of_b = {.size = sizeof of_b};

    ckpt_map_training_info(ma, &of_a);
    ckpt_map_training_info(mb, &of_b);
    if (!of_a.training || !of_b.training)
        return NULL;
    return a->cli.open.with_optimizer ? "other values" : "training state";
}

/* Print the two sides, and begin the list of differences. */
static void diff_json_sides(json_out *j, const diff_args *a, const ckpt_map *ma, const ckpt_map *mb)
{
    json_begin(j);
    json_text(j, "a", ckpt_map_path(ma));
    json_text(j, "b", ckpt_map_path(mb));
    json_text(j, "map_a", a->layout.a[0] ? a->layout.a : NULL);
    json_text(j, "map_b", a->layout.b[0] ? a->layout.b : NULL);
    json_text(j, "prefix_a", a->prefix_a[0] ? a->prefix_a : NULL);
    json_text(j, "prefix_b", a->prefix_b[0] ? a->prefix_b : NULL);
    json_findings(j, "findings_a", ma);
    json_findings(j, "findings_b", mb);
    json_open(j, "differences", '[');
}

/* Compare, and print the differences and the result. */
static int diff_maps(diff_args *a, const ckpt_map *ma, const ckpt_map *mb, ckpt_err *err)
{
    const bool of_a = a->layout.a[0] != 0, of_b = a->layout.b[0] != 0;
    uint64_t n_rounded = 0;
    // formats have rules of their own for dtypes, such as GGUF's F32 for vectors; numbers that the
    // layout map of one side computes (GGUF's exp(A_log)) are rounded on the way there and back
    ckpt_diff_opts opts = {.size = sizeof opts,
                           .tolerance = a->tolerance,
                           .ignore_dtype = a->ignore_dtype || diff_mapped(a),
                           .rounded = of_a != of_b,
                           .computed = of_a ? ma : mb,
                           .n_rounded = &n_rounded,
                           .tied = diff_unmapped(a) ? NULL : diff_tied,
                           .group = a->stats && !a->cli.quiet ? diff_group : NULL};
    const size_t dtypes = diff_mapped(a) && !a->ignore_dtype ? same_layout_dtypes(ma, mb) : 0;
    diff_out out = {.a = &a->cli, .stats = a->stats};
    const char *rest = diff_rest(a, ma, mb);
    char n[COUNT_ROOM];

    if (a->cli.json)
        diff_json_sides(&out.j, a, ma, mb);
    int rc = ckpt_diff(ma, mb, &opts, diff_one, &out, err);
    if (a->stats && !a->cli.json && !a->cli.quiet)
        diff_stats_text(&out.groups);
    if (a->cli.json) {
        json_close(&out.j, ']');
        diff_json_ties(&out.j, &out.ties);
        if (a->stats)
            diff_stats_json(&out.j, &out.groups);
        json_uint(&out.j, "tensors_a", ckpt_map_tensor_count(ma));
        json_uint(&out.j, "tensors_b", ckpt_map_tensor_count(mb));
        json_uint(&out.j, "tensors_different", out.n_names);
        json_uint(&out.j, "dtypes_ignored", dtypes);
        json_uint(&out.j, "elements_rounded", n_rounded);
        json_text(&out.j, "not_compared", rest);
        json_bool(&out.j, "equal", rc == CKPT_OK);
        json_end(&out.j);
    } else if (!a->cli.quiet && rc == CKPT_OK) {
        out_printf("%s: %s", dtypes > 0 ? "values equal" : "equal",
                   count_text(n, ckpt_map_tensor_count(ma), "tensor"));
        if (dtypes > 0)
            out_printf(", %zu of them in another dtype", dtypes);
        if (n_rounded > 0)
            out_printf(", %s that the layout map computes only within one rounding",
                       count_text(n, n_rounded, "element"));
        if (rest)
            out_printf("; %s not compared%s", rest,
                       a->cli.open.with_optimizer ? "" : " (--with-optimizer)");
        out_printf("\n");
    } else if (!a->cli.quiet && rc == CKPT_EDIFFERS) {
        out_printf("different: %s, A has %zu, B has %zu\n", count_text(n, out.n_names, "tensor"),
                   ckpt_map_tensor_count(ma), ckpt_map_tensor_count(mb));
    }
    diff_stats_free(&out.groups);
    ckpt_vec_free(&out.ties);
    return rc;
}

/*
 * Open a side whose slices could not be joined, and keep them, if the layout map that brings it to
 * Hugging Face's layout joins slices itself (Meta's files of several ranks).
 */
static int diff_open_slices(ckpt_map **out, diff_args *a, const char *path, ckpt_open_opts *open,
                            int rc)
{
    char name[MAPS_NAME];

    if (rc != CKPT_EUNSUPPORTED || a->map || a->cli.open.keep_slices)
        return rc;
    open->keep_slices = true;
    if (ckpt_open(out, path, open, NULL) == CKPT_OK) {
        const ckpt_format_info *f = ckpt_format_find(ckpt_map_format(*out));

        (void)snprintf(name, sizeof name, "%s:hf", f && f->layout ? f->layout : "");
        if (maps_keep_slices(&a->maps, name, false)) {
            a->slices = true;
            return CKPT_OK;
        }
    }
    ckpt_map_free(*out);
    *out = NULL;
    open->keep_slices = false;
    return rc;
}

/*
 * Keep the model of a side.  --include chooses one of several models by its names in the file; the
 * names that the model gets then are not those of the globs, so *chosen ends the filter.
 */
static int diff_model(ckpt_map *map, diff_args *a, bool *chosen, ckpt_err *err)
{
    const ckpt_model_opts model = {
        .size = sizeof model, .keep_names = a->cli.keep_names, .keep_others = true};
    ckpt_filter filter;
    ckpt_err why = {0};

    both_globs_see(&a->globs, &a->cli, map, false);
    int rc = ckpt_map_keep_model(map, &model, &why);
    if (rc == CKPT_EUNSUPPORTED && args_filter(&filter, &a->cli)) {
        why = (ckpt_err){0};
        both_globs_see(&a->globs, &a->cli, map, true);
        rc = ckpt_map_select(map, &filter, &why);
        if (rc == CKPT_OK)
            rc = ckpt_map_keep_model(map, &model, &why);
        *chosen = rc == CKPT_OK;
    }
    both_globs_see(&a->globs, &a->cli, map, false);
    return rc == CKPT_OK ? CKPT_OK : fail(err, rc, "%s", why.text);
}

/*
 * Open one side, with its own tag or the common one, as a run if possible, because that
 * distinguishes a file's optimizer from its model.
 */
static int diff_open(ckpt_map **out, diff_args *d, unsigned side, ckpt_err *err)
{
    const char *path = d->cli.operand[side], *tag = side ? d->tag_b : d->tag_a;
    cli_args *a = &d->cli;
    ckpt_open_opts open = a->open;
    ckpt_err why = {0};
    int rc;

    if (tag)
        open.tag = tag;
    open.training = a->open.with_optimizer;
    rc = diff_open_slices(out, d, path, &open, ckpt_open(out, path, &open, &why));
    if (a->open.with_optimizer && rc == CKPT_EUNSUPPORTED) {
        // the file has several optimizers: use its own names
        open.training = false;
        return ckpt_open(out, path, &open, err);
    }
    if (rc != CKPT_OK)
        return fail(err, rc, "%s", why.text);
    return diff_model(*out, d, &d->chosen[side], err);
}

/* The path of a shard means its complete checkpoint, on both sides. */
static int diff_run(cli_args *cli, ckpt_err *err)
{
    diff_args *a = (diff_args *)cli;
    ckpt_map *ma = NULL, *mb = NULL;
    const bool quiet = a->cli.quiet || a->cli.json;

    if (a->manifest)
        return manifest_diff(cli, a->tag_a, a->tag_b, err);
    a->cli.open.whole_checkpoint = true;
    int rc = both_globs_new(&a->globs, cli, err);
    if (rc == CKPT_OK)
        rc = diff_open(&ma, a, 0, err);
    if (rc == CKPT_OK)
        rc = diff_open(&mb, a, 1, err);
    if (rc == CKPT_OK)
        rc = diff_floats(ma, mb, quiet, err);
    if (rc == CKPT_OK && !diff_unmapped(a))
        rc = diff_adapter(ma, mb, a, err);
    // a layout map has no rules for tensors beside the model
    if (rc == CKPT_OK && !diff_unmapped(a) && (diff_lacks(ma, mb) || diff_lacks(mb, ma)))
        rc = diff_both_others(ma, mb, a, err);
    if (rc == CKPT_OK)
        rc = diff_layout(ma, mb, a, err);
    if (rc == CKPT_OK)
        rc = diff_names(ma, mb, a, err);
    if (rc == CKPT_OK)
        diff_say_moot(a);
    if (rc == CKPT_OK)
        rc = diff_prefix(ma, mb, a, err);
    if (rc == CKPT_OK)
        rc = diff_filter(ma, a, 0, err);
    if (rc == CKPT_OK)
        rc = diff_filter(mb, a, 1, err);
    // choosing models has already warned
    if (rc == CKPT_OK && !(a->chosen[0] && a->chosen[1]))
        both_globs_say(&a->globs, &a->cli);
    if (rc == CKPT_OK)
        rc = diff_both_others(ma, mb, a, err);
    if (rc == CKPT_OK)
        rc = diff_maps(a, ma, mb, err);
    ckpt_map_free(ma);
    ckpt_map_free(mb);
    return rc;
}

/* Read the layout maps and config.json before the sandbox hides their folders. */
static int diff_read(cli_args *cli, ckpt_err *err)
{
    diff_args *a = (diff_args *)cli;
    int rc = a->config ? text_read(&a->config_text, a->config, "a config.json", err) : CKPT_OK;

    return rc != CKPT_OK || diff_unmapped(a) ? rc : maps_read(&a->maps, a->map, err);
}

static void diff_release(cli_args *cli)
{
    diff_args *a = (diff_args *)cli;

    maps_free(&a->maps);
    both_globs_free(&a->globs);
    free(a->config_text);
    a->config_text = NULL;
}

static const cli_option diff_options[] = {
    {"tol", 0, CLI_NUMBER, offsetof(diff_args, tolerance), "X",
     "treat |a - b| <= X as equal (default: 0)"},
    {"ignore-dtype", 0, CLI_FLAG, offsetof(diff_args, ignore_dtype), NULL,
     "ignore differences between floating dtypes"},
    {"stats", 0, CLI_FLAG, offsetof(diff_args, stats), NULL,
     "print sums by groups of tensors, not each tensor with other values"},
    {"map", 0, CLI_TEXT, offsetof(diff_args, map), "NAME|FILE",
     "map A by FILE, or from layout A:B (none: as is)"},
    {"config", 0, CLI_FILE, offsetof(diff_args, config), "FILE",
     "read the model's config.json for layout maps here"},
    {"size", 0, CLI_LIST, offsetof(diff_args, sizes), "NAME=VALUE",
     "set a size for layout maps, such as heads=32"},
    {"manifest", 0, CLI_FLAG, offsetof(diff_args, manifest), NULL,
     "compare manifests only; A and B may be their files"},
    OPTION_INCLUDE,
    OPTION_EXCLUDE,
    {"tag", 't', CLI_TEXT, offsetof(cli_args, open.tag), "TAG",
     "read this tag of both (default: the latest)"},
    {"tag-a", 0, CLI_TEXT, offsetof(diff_args, tag_a), "TAG", "read this tag of A"},
    {"tag-b", 0, CLI_TEXT, offsetof(diff_args, tag_b), "TAG", "read this tag of B"},
    OPTION_KEEP_NAMES,
    OPTION_WITH_OPTIMIZER,
    {"keep-slices", 0, CLI_FLAG, offsetof(cli_args, open.keep_slices), NULL,
     "compare tensor-parallel slices separately"},
    OPTION_SLICE_RULES,
    OPTION_PRINT_JSON,
    {"quiet", 'q', CLI_FLAG, offsetof(cli_args, quiet), NULL, "print names only"},
    CLI_LOCAL,
    CLI_NO_SANDBOX,
    CLI_END,
};

static const cli_moot diff_moot[] = {
    {"quiet", "json", NULL},
    {"stats", "quiet", NULL},
    {"tol", "manifest", NULL},
    {"ignore-dtype", "manifest", NULL},
    {"map", "manifest", NULL},
    {"config", "manifest", NULL},
    {"size", "manifest", NULL},
    {"include", "manifest", NULL},
    {"exclude", "manifest", NULL},
    {"keep-names", "manifest", NULL},
    {"with-optimizer", "manifest", NULL},
    {"keep-slices", "manifest", NULL},
    {"slice-rules", "manifest", NULL},
    {NULL, NULL, NULL},
};

const cli_verb verb_diff = {
    .name = "diff",
    .command = "ckpt diff",
    .operands = "A B",
    .summary = "Compare two checkpoints by name and value.",
    .options = diff_options,
    .moot = diff_moot,
    .min = 2,
    .max = 2,
    .uses = "rr",
    .run = diff_run,
    .read = diff_read,
    .release = diff_release,
    .room = sizeof(diff_args),
};
