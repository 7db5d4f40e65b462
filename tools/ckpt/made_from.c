/* SPDX-License-Identifier: Apache-2.0 */
/*
 * made_from.c: proves that a command makes a checkpoint from others.
 *
 * The sources become the target map that ckpt convert, reshard or merge would write.  A view of it
 * is opened as a checkpoint, and the two checkpoints are compared: one way for all commands and
 * formats, and nothing is written.
 */
#include "tools/ckpt/made_from.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ckpt/effects.h"
#include "tools/ckpt/job.h"
#include "tools/ckpt/made_command.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/training.h"
#include "tools/cli/progress.h"

/* The state of one proof. */
typedef struct mf_work {
    const made_from *p;
    write_args *w;
    bool merging, rounded;
    ckpt_map *found;    /* the checkpoint */
    ckpt_map *from;     /* the sources, ready for the layout */
    ckpt_map *to;       /* laid out */
    ckpt_view *view;    /* of its files */
    ckpt_map *expected; /* these files, opened */
    char *dtypes;       /* rules of --dtype that were found */
    char path[256];     /* of the target, which is never written */
    char tag[256];
    char map[MAPS_NAME];
    const char *config; /* the folder with the configuration that a map needs; NULL: not found */
    made_command command;
    uint64_t n_different, n_missing, n_additional, n_values, n_listed;
    uint64_t n_rounded; /* elements that are equal only by rounding */
    char within[160];   /* the tolerance, for people */
    const char *last;   /* the name reported before: a tensor may have two differences */
    const char *file;   /* compare the tensors of this rank's file; NULL: those of the checkpoint */
} mf_work;

/* ---- differences of tensors ---- */

static void mf_text(const ckpt_difference *d, const char *what, const char *file)
{
    char a[SHAPE_ROOM], b[SHAPE_ROOM];

    out_printf("%s: ", what);
    if (file) {
        out_text(file);
        out_printf(": ");
    }
    out_text(d->name);
    if (strcmp(d->what, "shape") == 0)
        out_printf(" has shape %s, expected %s", shape_text(b, d->b), shape_text(a, d->a));
    else if (strcmp(d->what, "dtype") == 0)
        out_printf(" has dtype %s, expected %s", ckpt_dtype_name(d->b->dtype),
                   ckpt_dtype_name(d->a->dtype));
    else if (d->a && d->b)
        out_printf(" %" PRIu64 " of %" PRIu64 " elements, the first is element %" PRIu64,
                   d->n_different, d->a->n_elems, d->first);
    if (strcmp(d->what, "values") == 0 && !isnan(d->first_a)) {
        char x[32], y[32];

        (void)snprintf(x, sizeof x, "%.9g", d->first_a);
        (void)snprintf(y, sizeof y, "%.9g", d->first_b);
        const int digits = strcmp(x, y) == 0 ? 17 : 9;
        out_printf(": expected %.*g, found %.*g", digits, d->first_a, digits, d->first_b);
    }
    out_printf("\n");
}

/* Print dtype and shape of one of the two tensors. */
static void mf_json_side(json_out *j, const char *key, const ckpt_tensor *t)
{
    json_open(j, key, '{');
    json_text(j, "dtype", ckpt_dtype_name(t->dtype));
    json_shape(j, "shape", t);
    json_close(j, '}');
}

static void mf_json(json_out *j, const ckpt_difference *d, const char *what, const char *file)
{
    json_open(j, NULL, '{');
    json_text(j, "what", what);
    json_text(j, "name", d->name);
    if (file)
        json_text(j, "file", file);
    if (d->a)
        mf_json_side(j, "expected_tensor", d->a);
    if (d->b)
        mf_json_side(j, "found_tensor", d->b);
    if (strcmp(d->what, "values") == 0) {
        json_uint(j, "elements_different", d->n_different);
        json_uint(j, "first", d->first);
        if (!isnan(d->first_a)) {
            json_real(j, "expected", d->first_a);
            json_real(j, "found", d->first_b);
        }
    }
    json_close(j, '}');
}

static int mf_difference(void *ctx, const ckpt_difference *d)
{
    mf_work *k = ctx;
    const char *what = !d->b ? "missing" : !d->a ? "additional" : d->what;

    // programs repeat other sets of tensors; the run needs those of its own map
    if (k->file && (!d->a || !d->b))
        return 0;

    k->n_missing += !d->b;
    k->n_additional += !d->a;
    k->n_different += d->a && d->b && !(k->last && strcmp(k->last, d->name) == 0);
    k->last = d->name;
    if (k->p->j)
        mf_json(k->p->j, d, what, k->file);
    else
        mf_text(d, what, k->file);
    return out_broken();
}

/* ---- differences of values ---- */

static int mf_value(void *ctx, const ckpt_value_difference *d)
{
    mf_work *k = ctx;
    const bool counts = d->counts && !k->p->ignore_metadata;

    k->n_values += counts;
    k->n_listed += !counts;
    if (k->p->j) {
        json_open(k->p->j, NULL, '{');
        json_text(k->p->j, "name", d->path);
        if (k->file)
            json_text(k->p->j, "file", k->file);
        json_text(k->p->j, "expected", d->a);
        json_text(k->p->j, "found", d->b);
        json_bool(k->p->j, "counts", counts);
        json_close(k->p->j, '}');
        return out_broken();
    }
    if (!counts && k->w->cli.quiet)
        return out_broken();
    out_printf(counts ? "metadata: " : "metadata (not counted): ");
    if (k->file) {
        out_text(k->file);
        out_printf(": ");
    }
    out_text(d->path);
    out_printf(": expected ");
    out_text(d->a ? d->a : "nothing");
    out_printf(", found ");
    out_text(d->b ? d->b : "nothing");
    out_printf("\n");
    return out_broken();
}

/* ---- options that the checkpoint tells ---- */

static bool mf_training(const mf_work *k)
{
    return training_format(k->w->target.format);
}

/* True if an option was given, which then wins over the checkpoint's value. */
static bool mf_given(const mf_work *k, const char *name)
{
    return cli_has(&k->w->cli.line, name);
}

static unsigned mf_number(const ckpt_map *map, const char *key)
{
    const char *text = map_fact(map, key);

    return text ? (unsigned)strtoul(text, NULL, 10) : 0;
}

/* Take the settings of a run from the checkpoint; the command then has them too. */
static void mf_run(mf_work *k)
{
    ckpt_target *t = &k->w->target;
    const bool zero = strcmp(t->format, "zero") == 0;
    const char *tag = map_fact(k->found, "tag"), *dtype = map_fact(k->found, "dtype");

    if (tag) {
        (void)snprintf(k->tag, sizeof k->tag, "%s", tag);
        t->tag = k->tag;
    }
    if (!mf_given(k, "world") && (ckpt_format_caps(t->format) & CKPT_TAKES_WORLD))
        t->world = zero ? mf_number(k->found, "world size") : made_world(k->found);
    if (!(ckpt_format_caps(t->format) & CKPT_HAS_RANKS))
        return;
    if (!mf_given(k, "stage") && zero) {
        t->stage = (int)mf_number(k->found, "stage");
        t->stage = t->stage == 0 ? CKPT_STAGE_NONE : t->stage;
    }
    if (!mf_given(k, "dtype") && dtype)
        t->dtypes = dtype;
    if (!mf_given(k, "deepspeed-version"))
        t->version = map_fact(k->found, "DeepSpeed version");
}

/* Warn if --imatrix has no effect, or if it is missing for a checkpoint that names a matrix. */
static void mf_matrix(const ckpt_map *made, const char *imatrix)
{
    const ckpt_value *file = ckpt_value_find(ckpt_map_values(made), "quantize.imatrix.file");
    const char *name = "?";
    bool takes = false;
    size_t n = 0;

    for (size_t i = 0; i < ckpt_map_tensor_count(made); i++) {
        const ckpt_dtype d = ckpt_map_tensor_at(made, i)->dtype;

        takes = takes || (ckpt_dtype_block(d, NULL) > 1 && d != CKPT_Q8_0 && d != CKPT_MXFP4);
    }
    if (imatrix && !takes)
        say_warning("%s: --imatrix has no effect: no tensor has a quantized type that takes it",
                    ckpt_map_path(made));
    if (!imatrix && takes && file) {
        (void)ckpt_value_to_text(file, &name, &n);
        say_warning("%s: was quantized by the importance matrix %s: give it with --imatrix FILE",
                    ckpt_map_path(made), name);
    }
}

/* Set the target: the checkpoint's format, and the layout that programs expect of it. */
static int mf_target(mf_work *k, ckpt_err *err)
{
    write_args *w = k->w;
    const char *name = strrchr(k->p->out, '/');
    int rc = made_format(&w->target.format, k->found, err);

    if (rc != CKPT_OK)
        return rc;
    // a path that nothing has, because the target is never written
    name =
        name && name[1] && strcmp(ckpt_map_format(k->found), "gguf-split") != 0 ? name + 1 : "made";
    (void)snprintf(k->path, sizeof k->path, "made-from/%.200s", name);
    w->target.path = k->path;
    if (w->hub_layout && mf_training(k)) {
        w->target.layout = w->hub_layout;
        w->hub_layout = NULL;
    }
    if (!w->map && !write_native(w) && !k->merging)
        w->map = w->own_map = maps_default(w->target.format, k->p->out);
    else if (w->map && strcmp(w->map, "none") == 0)
        w->map = NULL;
    w->target.skip_side_files = w->skip_side_files;
    mf_matrix(k->found, w->target.imatrix);
    if (mf_training(k))
        mf_run(k);
    else if (!mf_given(k, "dtype"))
        w->target.dtypes = made_dtype(k->found);
    if (strcmp(w->target.format, "hf-sharded") == 0 && !mf_given(k, "world"))
        w->target.world = made_world(k->found);
    return CKPT_OK;
}

/* ---- the sources, as the command changes them ---- */

static int mf_prepare_once(mf_work *k, ckpt_err *err)
{
    int rc;

    if (!k->merging)
        return convert_prepare(&k->from, k->p->prepare, err);
    rc = mf_training(k) ? fail(err, CKPT_EUSAGE,
                               "ckpt merge writes weights, but format %s is for training state",
                               k->w->target.format)
                        : CKPT_OK;
    if (rc == CKPT_OK)
        rc = effects_of_target(k->w, err);
    if (rc == CKPT_OK && k->w->target.dtypes) {
        k->w->target.dtype = ckpt_dtype_parse(k->w->target.dtypes);
        k->w->target.dtypes = NULL;
    }
    return rc == CKPT_OK ? merge_prepare(&k->from, k->w, k->p->merge, err) : rc;
}

/* The same with the checkpoint's configuration, if a layout map lacks sizes of the model. */
static int mf_prepare_sized(mf_work *k, const prepare_args *before, ckpt_err *err)
{
    ckpt_err why = {0};
    int rc = mf_prepare_once(k, &why);

    if ((rc != CKPT_EUSAGE && rc != CKPT_EMISSING) || k->merging || !k->w->map || k->w->config ||
        strcmp(ckpt_map_format(k->found), "hf") != 0)
        return rc == CKPT_OK ? rc : fail(err, rc, "%s", why.text);
    ckpt_map_free(k->from);
    training_free(k->w);
    *k->p->prepare = *before;
    k->w->cli.model_folder = k->config = k->p->out;
    return mf_prepare_once(k, err);
}

/* Number of tensors of the checkpoint with the name of one of the prepared sources. */
static size_t mf_meet(const mf_work *k)
{
    size_t n = 0;

    for (size_t i = 0; i < ckpt_map_tensor_count(k->found); i++)
        n += ckpt_map_find(k->from, ckpt_map_tensor_at(k->found, i)->name) != NULL;
    return n;
}

/* The name of the maps back: "megatron:hf" for "hf:megatron". */
static void mf_back(char out[MAPS_NAME], const char *name)
{
    size_t end = strlen(name), n = 0;

    for (size_t i = end; end > 0; i--) {
        if (i > 0 && name[i - 1] != ':')
            continue;
        n += (size_t)snprintf(out + n, MAPS_NAME - n, "%s%.*s", n ? ":" : "", (int)(end - i),
                              name + i);
        end = i > 0 ? i - 1 : 0;
    }
}

/*
 * If few names meet, look for the layout map that leads from the sources to the checkpoint's names:
 * the way back of the map that the checkpoint would need to the hub's, or that of the sources.
 */
static int mf_prepare(mf_work *k, ckpt_err *err)
{
    prepare_args *a = k->p->prepare;
    const prepare_args before = *a;
    ckpt_remap_opts opts = {.size = sizeof opts,
                            .config_text = k->w->config_text,
                            .config_name = k->w->config,
                            .sizes = k->w->sizes.n ? k->w->sizes.at : NULL};
    char need[MAPS_NAME];
    int rc = mf_prepare_sized(k, &before, err);
    const size_t n = ckpt_map_tensor_count(k->found), n_met = rc == CKPT_OK ? mf_meet(k) : 0;

    if (rc != CKPT_OK || k->merging || mf_training(k) || n_met * 2 >= n || mf_given(k, "map") ||
        k->w->rename || k->w->maps.n == 0)
        return rc;
    if (maps_needed(need, k->found, &k->w->maps, "hf", &opts))
        mf_back(k->map, need);
    else
        (void)snprintf(k->map, sizeof k->map, "hf");
    mf_work first = *k;
    training_free(k->w);
    *a = before;
    k->w->map = k->map;
    k->w->own_map = strcmp(k->map, "hf") == 0 ? k->map : NULL;
    ckpt_err why = {0};
    if (mf_prepare_once(k, &why) == CKPT_OK && mf_meet(k) > n_met) {
        ckpt_map_free(first.from);
        return CKPT_OK;
    }
    // the map does not help, so the differences are those without it
    ckpt_map_free(k->from);
    training_free(k->w);
    *a = before;
    k->map[0] = 0;
    ckpt_map_free(first.from);
    return mf_prepare_once(k, err);
}

/* True if all tensors that both have are laid out in the checkpoint's dtypes. */
static bool mf_same_dtypes(const ckpt_map *to, const ckpt_map *found)
{
    bool same = true;

    for (size_t i = 0; same && i < ckpt_map_tensor_count(found); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(found, i);
        const ckpt_tensor *made = ckpt_map_find(to, t->name);

        same = !made || made->dtype == t->dtype;
    }
    return same;
}

/* Lay the target out in one way to choose dtypes; *fits: they are the checkpoint's. */
static int mf_lay(mf_work *k, const ckpt_target *target, bool *fits, ckpt_err *err)
{
    ckpt_map_free(k->to);
    k->to = NULL;
    int rc = ckpt_layout(&k->to, k->from, target, err);

    *fits = rc == CKPT_OK && mf_same_dtypes(k->to, k->found);
    if (*fits)
        k->w->target = *target;
    return rc;
}

/*
 * Lay the target out.  Without --dtype, the first of these that gives the checkpoint's dtypes: no
 * option, the dtype that the checkpoint states, a rule for each tensor.
 */
static int mf_layout(mf_work *k, ckpt_err *err)
{
    ckpt_target told = k->w->target, none = told;
    const bool chosen = mf_given(k, "dtype") || mf_training(k) || k->p->prepare->quantize;
    ckpt_err why = {0};
    bool fits = false;

    job_settle(&told);
    none = told;
    none.dtype = CKPT_DTYPE_NONE;
    none.dtypes = none.mixture = NULL;
    ckpt_target rules = none;
    if (chosen)
        return mf_lay(k, &told, &fits, err);
    if (!map_fact(k->from, "dequantized"))
        (void)mf_lay(k, &none, &fits, &why);
    if (!fits)
        (void)mf_lay(k, &told, &fits, &why);
    if (!fits && !k->merging)
        k->dtypes = made_dtypes(k->found, k->from);
    rules.dtypes = k->dtypes;
    if (!fits && k->dtypes && mf_lay(k, &rules, &fits, &why) == CKPT_OK)
        return CKPT_OK;
    return fits ? CKPT_OK : mf_lay(k, &told, &fits, err);
}

/* ---- the command ---- */

/* Add a found option, unless it repeats a fact of the sources. */
static bool mf_found(mf_work *k, const char *name, const char *value, const char *fact)
{
    const char *same = fact ? map_fact(k->from, fact) : NULL;

    return !value || !*value || mf_given(k, name) || (same && strcmp(same, value) == 0) ||
           made_command_option(&k->command, name, value);
}

static bool mf_found_run(mf_work *k)
{
    const ckpt_target *t = &k->w->target;
    char world[16] = "", stage[16] = "";

    if (t->world)
        (void)snprintf(world, sizeof world, "%u", (unsigned)t->world);
    if (t->stage > 0)
        (void)snprintf(stage, sizeof stage, "%d", t->stage);
    return mf_found(k, "world", world, "world size") && mf_found(k, "stage", stage, "stage") &&
           mf_found(k, "deepspeed-version", t->version, "DeepSpeed version") &&
           mf_found(k, "to-tag", t->tag, "tag") &&
           (t->dtype == CKPT_DTYPE_NONE || !mf_training(k) ||
            mf_found(k, "dtype", ckpt_dtype_name(t->dtype), "dtype"));
}

/* The destination of the command: for a tag's folder, the run. */
static bool mf_add_out(mf_work *k)
{
    char run[4096];
    const char *out = k->p->out, *tag = k->tag;
    size_t n = strlen(out), m = strlen(tag);

    while (n > 1 && out[n - 1] == '/')
        n--;
    if (mf_training(k) && m > 0 && n > m && out[n - m - 1] == '/' &&
        strncmp(out + n - m, tag, m) == 0)
        n -= m + 1;
    (void)snprintf(run, sizeof run, "%.*s", (int)(n < sizeof run ? n : 0), out);
    return (!k->merging || made_command_word(&k->command, "-o")) &&
           made_command_word(&k->command, run);
}

static int mf_command(mf_work *k, ckpt_err *err)
{
    const cli_args *cli = &k->w->cli;
    const ckpt_target *t = &k->w->target;
    // reshard writes every run, but convert alone can leave parts of its source out
    const bool run = mf_training(k) && !mf_given(k, "no-frozen") &&
                     !mf_given(k, "exclude-frozen") && !mf_given(k, "weights-only") &&
                     !mf_given(k, "keep-slices");
    made_command *c = &k->command;
    bool ok = made_command_word(c, "ckpt") && made_command_word(c, k->merging ? "merge"
                                                                   : run      ? "reshard"
                                                                              : "convert");

    if (k->p->merge->recipe)
        ok = ok && made_command_option(c, "config", k->p->merge->recipe);
    for (int i = 0; ok && i < cli->n_operands; i++)
        ok = made_command_word(c, cli->operand[i]);
    ok = ok && mf_add_out(k) && made_command_option(c, "to", t->format) &&
         made_command_given(c, &cli->line, k->p->not_of_it);
    if (k->map[0])
        ok = ok && made_command_option(c, "map", k->map);
    ok = ok && mf_found(k, "config", k->config, NULL);
    ok = ok && mf_found_run(k);
    if (!mf_training(k) && (t->dtypes || t->mixture || t->dtype != CKPT_DTYPE_NONE))
        ok = ok && mf_found(k, "dtype",
                            t->dtypes    ? t->dtypes
                            : t->mixture ? t->mixture
                                         : ckpt_dtype_name(t->dtype),
                            NULL);
    return ok ? CKPT_OK : fail(err, CKPT_ELIMIT, "out of memory");
}

/* ---- the proof ---- */

/* Open the checkpoint, or the view of the expected one, in the same way. */
static ckpt_open_opts mf_opening(const mf_work *k, bool training)
{
    return (ckpt_open_opts){.size = sizeof(ckpt_open_opts),
                            .whole_checkpoint = !k->p->prepare->as_file,
                            .with_optimizer = training,
                            .keep_slices = training};
}

static int mf_open_found(mf_work *k, ckpt_err *err)
{
    ckpt_open_opts open = mf_opening(k, false);
    ckpt_err why = {0};
    int rc = ckpt_open(&k->found, k->p->out, &open, &why);

    // slices of ranks may need a run's reader
    if (rc != CKPT_OK && rc != CKPT_EUNSUPPORTED)
        return fail(err, rc, "%s", why.text);
    if (rc == CKPT_OK && !(ckpt_format_caps(ckpt_map_format(k->found)) & CKPT_READS_STATE))
        return CKPT_OK;
    ckpt_map_free(k->found);
    open = mf_opening(k, true);
    return ckpt_open(&k->found, k->p->out, &open, err);
}

static int mf_open_expected(mf_work *k, ckpt_err *err)
{
    const ckpt_open_opts open =
        mf_opening(k, ckpt_format_caps(ckpt_map_format(k->found)) & CKPT_READS_STATE);
    const ckpt_view_opts opts = {.size = sizeof opts, .run = &k->w->cli.run};
    int rc = ckpt_view_new(&k->view, k->from, k->to, &opts, err);

    return rc == CKPT_OK ? ckpt_view_open(&k->expected, k->view, &open, err) : rc;
}

/* The tolerance of the comparison, for the last line. */
static const char *mf_within(mf_work *k)
{
    if (k->rounded)
        (void)snprintf(k->within, sizeof k->within,
                       ", %" PRIu64 " elements only within one rounding of their dtype and 2^-20 "
                       "of the largest value near them",
                       k->n_rounded);
    return k->rounded || k->p->tolerance > 0 ? k->within : "";
}

/* Compare the tensors of one file with those of the view's file, or without opts the values. */
static int mf_file(mf_work *k, const char *name, const ckpt_diff_opts *opts, ckpt_err *err)
{
    char path[4096];
    ckpt_map *a = NULL, *b = NULL;
    const uint64_t n = k->n_different, n_values = k->n_values;

    (void)snprintf(path, sizeof path, "%s/%s", ckpt_map_path(k->expected), name);
    int rc = ckpt_open(&a, path, NULL, err);

    (void)snprintf(path, sizeof path, "%s/%s", ckpt_map_path(k->found), name);
    if (rc == CKPT_OK)
        rc = ckpt_open(&b, path, NULL, err);
    // DeepSpeed's script makes one of two files that ckpt writes for programs of both kinds
    if (rc == CKPT_EMISSING) {
        ckpt_map_free(a);
        *err = (ckpt_err){0};
        return CKPT_OK;
    }
    k->file = name;
    k->last = NULL;
    if (rc == CKPT_OK)
        rc = opts ? ckpt_diff(a, b, opts, mf_difference, k, err)
                  : ckpt_diff_values(a, b, mf_value, k, err);
    if (rc == CKPT_EDIFFERS && k->n_different == n && k->n_values == n_values)
        rc = CKPT_OK;
    k->file = NULL;
    ckpt_map_free(a);
    ckpt_map_free(b);
    return rc;
}

/* True for a file of one rank with tensors, or without opts values, that the run's map lacks. */
static bool mf_repeats(const char *path, const ckpt_diff_opts *opts)
{
    static const char extra[] = "/extra_state_world_size_";

    if (!opts) // the map has the values of the first rank
        return strstr(path, extra) && !strstr(path, "_rank_0.pt");
    return strstr(path, "model_states.pt") || strstr(path, "/optimizer_state.pt") ||
           strstr(path, extra);
}

/*
 * Compare the files of a run that repeat tensors or values for each rank: ranks load them from
 * their files, but the map of the run has those of one rank.
 */
static int mf_files(mf_work *k, const ckpt_diff_opts *opts, ckpt_err *err)
{
    const char *folder = ckpt_map_output_folder(k->to), *path;
    const size_t n = folder ? strlen(folder) + 1 : 0;
    int rc = CKPT_OK, worst = CKPT_OK;

    for (size_t i = 0;
         folder && worst != CKPT_ECANCELED && (path = ckpt_view_file_path(k->view, i)); i++) {
        if (strncmp(path, folder, n - 1) != 0 || path[n - 1] != '/' || !mf_repeats(path, opts))
            continue;
        rc = mf_file(k, path + n, opts, err);
        worst = rc == CKPT_OK ? worst : rc;
        if (rc != CKPT_OK && rc != CKPT_EDIFFERS)
            return rc;
    }
    return worst;
}

/* Compare the values beside the tensors. */
static int mf_values(mf_work *k, ckpt_err *err)
{
    int rc = ckpt_diff_values(k->expected, k->found, mf_value, k, err);

    return rc == CKPT_OK && mf_training(k) ? mf_files(k, NULL, err) : rc;
}

/* Compare, and print the differences. */
static int mf_compare(mf_work *k, ckpt_err *err)
{
    ckpt_run_opts *run = &k->w->cli.run;
    progress bar;
    json_out *j = k->p->j;
    ckpt_err why = {0};

    progress_begin(&bar, "comparing", k->w->cli.quiet, run);
    const ckpt_diff_opts opts = {.size = sizeof opts,
                                 .tolerance = k->p->tolerance > 0 ? k->p->tolerance : 0,
                                 .exact = true,
                                 .rounded = k->rounded,
                                 .computed = k->from,
                                 .n_rounded = &k->n_rounded,
                                 .progress = run->progress,
                                 .progress_ctx = run->progress_ctx};
    if (j) {
        made_command_json(j, "command", &k->command);
        json_open(j, "differences", '[');
    }
    int rc = ckpt_diff(k->expected, k->found, &opts, mf_difference, k, err);
    if (rc == CKPT_OK && mf_training(k))
        rc = mf_files(k, &opts, err);
    progress_end(&bar);
    if (j) {
        json_close(j, ']');
        json_open(j, "metadata", '[');
    }
    if (rc == CKPT_OK || rc == CKPT_EDIFFERS) {
        int other = mf_values(k, &why);

        if (other != CKPT_OK && (other != CKPT_EDIFFERS || (rc == CKPT_OK && k->n_values > 0)))
            rc = fail(err, other, "%s", why.text);
    }
    if (j)
        json_close(j, ']');
    if (rc == CKPT_EDIFFERS)
        err->text[0] = 0; // the lines above have reported it
    return rc;
}

/* Print the result. */
static void mf_close(mf_work *k, int rc)
{
    char tensors[COUNT_ROOM], different[COUNT_ROOM], values[COUNT_ROOM];
    const uint64_t n = ckpt_map_tensor_count(k->found);
    json_out *j = k->p->j;

    if (j) {
        json_text(j, "tolerance",
                  k->rounded ? "one rounding of the dtype and 2^-20 of the largest value nearby"
                  : k->p->tolerance > 0 ? strchr(k->within, '-')
                                        : NULL);
        json_uint(j, "elements_rounded", k->n_rounded);
        json_uint(j, "tensors", n);
        json_uint(j, "different", k->n_different);
        json_uint(j, "missing", k->n_missing);
        json_uint(j, "additional", k->n_additional);
        json_uint(j, "metadata_different", k->n_values);
        return;
    }
    if (k->w->cli.quiet || (rc != CKPT_OK && rc != CKPT_EDIFFERS))
        return;
    if (rc == CKPT_OK)
        out_printf("%s as made by this command%s:\n", count_text(tensors, n, "tensor"),
                   mf_within(k));
    else
        out_printf("not as made by this command: %s, %" PRIu64 " missing, %" PRIu64
                   " additional, %s of metadata%s:\n",
                   count_text(different, k->n_different, "different tensor"), k->n_missing,
                   k->n_additional, count_text(values, k->n_values, "value"), mf_within(k));
    made_command_text(&k->command);
}

static int mf_prove(mf_work *k, ckpt_err *err)
{
    int rc = mf_open_found(k, err);

    k->p->prepare->as_file = false; // the option is about reading the checkpoint
    if (rc == CKPT_OK)
        rc = mf_target(k, err);
    if (rc == CKPT_OK)
        rc = mf_prepare(k, err);
    if (rc == CKPT_OK && k->p->opened)
        rc = k->p->opened(k->p->ctx, k->from, err);
    if (rc == CKPT_OK)
        rc = mf_layout(k, err);
    if (rc == CKPT_OK) {
        effects_of_layout(k->w, k->from, k->to);
        rc = mf_command(k, err);
    }
    if (rc == CKPT_OK)
        rc = mf_open_expected(k, err);
    if (rc == CKPT_OK) {
        rc = mf_compare(k, err);
        mf_close(k, rc);
    }
    return rc == CKPT_OK ? effects_strict(&k->w->cli, err) : rc;
}

int made_from_prove(const made_from *p, ckpt_err *err)
{
    write_args *w = &p->prepare->write;
    mf_work k = {.p = p, .w = w, .merging = merge_is(p->merge, w->cli.n_operands)};

    (void)snprintf(k.within, sizeof k.within, ", within --tol %.9g", p->tolerance);
    k.rounded = p->tolerance < 0 && (k.merging || p->prepare->adapters.n > 0);
    int rc = mf_prove(&k, err);
    training_free(w);
    ckpt_map_free(k.expected);
    ckpt_view_free(k.view);
    ckpt_map_free(k.to);
    ckpt_map_free(k.from);
    ckpt_map_free(k.found);
    free(k.dtypes);
    made_command_free(&k.command);
    return rc;
}
