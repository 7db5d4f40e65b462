/* SPDX-License-Identifier: Apache-2.0 */
/*
 * first.c: chooses the source of the initial weights, and loads them.
 *
 * If the folder of --model has weights, they are used, as transformers does; random weights must be
 * requested.
 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/inside.h"
#include "libckpt/drivers.h"
#include "libckpt/io/thread_pool.h"

enum { FW_NAMES = 4 /* maximum of names in a message */ };

/* ---- the folder of the model ---- */

const char *zt_model_folder(zt_engine *e, bool *named)
{
    const char *model = e->opts->model, *slash = strrchr(model, '/');
    struct stat st;

    *named = stat(model, &st) == 0 && S_ISDIR(st.st_mode);
    if (*named)
        return model;
    if (!slash)
        return ".";
    return ckpt_arena_string(e->arena, model, slash == model ? 1 : (size_t)(slash - model));
}

const char *zt_model_beside(zt_engine *e, const char *name)
{
    bool named = false;
    const char *folder = zt_model_folder(e, &named);
    const char *path = folder ? ckpt_path_join(e->arena, folder, name) : NULL;

    return path && access(path, R_OK) == 0 ? path : NULL;
}

/* True if the file may hold weights: its suffix is that of a framework's format. */
static bool fw_may_be_weights(const char *name)
{
    static const char *const end[] = {".safetensors", ".bin", ".pt",      ".pth", ".ckpt",
                                      ".gguf",        ".npz", ".msgpack", ".h5",  NULL};
    size_t n = strlen(name);

    for (const char *const *k = end; *k; k++) {
        size_t m = strlen(*k);
        if (n > m && strcmp(name + n - m, *k) == 0)
            return true;
    }
    return false;
}

/* True if the file is one of the run's data files. */
static bool fw_is_data(const zt_options *o, const char *path)
{
    const char *const data[] = {o->data, o->eval_data};
    struct stat a, b;

    for (size_t i = 0; i < 2; i++) {
        if (data[i] && stat(data[i], &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
            a.st_ino == b.st_ino)
            return true;
    }
    return false;
}

/* Find files that may be weights in a folder without a checkpoint; NULL: none. */
static int fw_odd(zt_engine *e, const ckpt_listing *list, const char **odd, ckpt_err *err)
{
    size_t n = 0;

    for (size_t i = 0; i < list->n && n < FW_NAMES; i++) {
        const char *name = list->entry[i].name, *path;

        if (list->entry[i].is_dir || !fw_may_be_weights(name))
            continue;
        path = ckpt_path_join(e->arena, list->folder, name);
        if (!path)
            return ckpt_fail_memory(err);
        if (fw_is_data(e->opts, path))
            continue;
        *odd = ckpt_arena_printf(e->arena, "%s%s%s", *odd ? *odd : "", *odd ? ", " : "", name);
        if (!*odd)
            return ckpt_fail_memory(err);
        n++;
    }
    return CKPT_OK;
}

/*
 * Check whether the folder holds weights.  If not, *odd names files that may have been meant as
 * weights.
 */
static int fw_look(zt_engine *e, const char *folder, bool *holds, const char **odd, ckpt_err *err)
{
    ckpt_map *scratch = NULL;
    ckpt_listing list;
    int rc = ckpt_map_create(&scratch, 0, err);

    *odd = NULL;
    if (rc == CKPT_OK)
        rc = ckpt_listing_read(&list, scratch, folder, err);
    if (rc == CKPT_OK) {
        *holds = ckpt_folder_known(&list);
        rc = *holds ? CKPT_OK : fw_odd(e, &list, odd, err);
    }
    ckpt_map_free(scratch);
    return rc;
}

/* ---- the choice ---- */

/* True if all these names end in .bin, so they may be files of tokens instead of weights. */
static bool fw_is_data_too(const char *names)
{
    while (names && *names) {
        size_t n = strcspn(names, ",");
        if (n < 4 || strncmp(names + n - 4, ".bin", 4) != 0)
            return false;
        names += n + strspn(names + n, ", ");
    }
    return true;
}

/* Without --init: use the weights of the model's folder, if it has any. */
static int fw_of_model(zt_engine *e, ckpt_err *err)
{
    bool named = false, holds = false;
    const char *folder = zt_model_folder(e, &named), *odd = NULL;
    int rc = folder ? fw_look(e, folder, &holds, &odd, err) : ckpt_fail_memory(err);

    if (rc != CKPT_OK)
        return rc;
    // if --model is a config.json, files next to it do not belong to the model
    odd = named ? odd : NULL;
    e->drawn_warns = odd || (holds && !named);
    if (holds && named)
        e->init = folder;
    else if (holds)
        e->drawn = ckpt_arena_printf(
            e->arena,
            "--model names only a configuration; --model %s would use the weights beside it",
            folder);
    else if (odd && !fw_is_data_too(odd))
        return ckpt_fail(
            err, CKPT_EUSAGE,
            "%s: zerotrain recognizes no checkpoint there, but there is %s: use --init "
            "FILE to read weights from a file, or --init none for random weights",
            folder, odd);
    else if (odd)
        e->drawn = ckpt_arena_printf(e->arena,
                                     "%s holds no checkpoint that zerotrain recognizes; --init "
                                     "reads weights from a file (%s)",
                                     folder, odd);
    else
        e->drawn = ckpt_arena_printf(e->arena, "%s holds no weights", e->opts->model);
    return e->init || e->drawn ? CKPT_OK : ckpt_fail_memory(err);
}

int zt_first_choose(zt_engine *e, ckpt_err *err)
{
    const zt_options *o = e->opts;
    const char *wants = o->evaluate      ? "--evaluate"
                        : o->predictions ? "--predict"
                        : o->generate    ? "--generate"
                                         : NULL;
    int rc = CKPT_OK;

    if (o->init && strcmp(o->init, "none") == 0)
        e->drawn = "--init none";
    else if (o->init)
        e->init = o->init;
    else if (!o->load || o->not_strict)
        rc = fw_of_model(e, err);
    if (rc != CKPT_OK || e->init || o->load)
        return rc;
    if (wants)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s needs weights (%s): use --load for the weights of a run, --init for "
                         "those of any checkpoint",
                         wants, e->drawn);
    if (o->not_strict)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "--not-strict needs --load, --init, or weights in the "
                         "folder of --model");
    return CKPT_OK;
}

/* ---- filling in ---- */

/* Elements that a thread draws at once: about half a millisecond. */
#define FW_DRAW (UINT64_C(1) << 14)

/* Values of one parameter that threads draw together. */
typedef struct fw_drawing {
    const zt_engine *e;
    uint32_t param;
    uint64_t first, count;
    float *out;
} fw_drawing;

static int fw_draw_item(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    const fw_drawing *d = ctx;
    uint64_t at = item * FW_DRAW, n = d->count - at < FW_DRAW ? d->count - at : FW_DRAW;

    (void)worker;
    (void)err;
    zt_model_draw(d->e->model, d->param, (uint64_t)d->e->opts->seed, d->first + at, n, d->out + at);
    return CKPT_OK;
}

/* True if --init may lack this parameter: with adapters, a trained one (adapter or classifier). */
static bool fw_may_lack(const zt_engine *e, size_t param)
{
    return e->model->lora.rank && !e->model->params.at[param].frozen;
}

/*
 * A value depends on its position alone, so the number of threads does not change it.  Parameters
 * that --init must have get zeros, because drawing takes longer than reading.
 */
static int fw_draw(void *ctx, uint32_t param, uint64_t first, uint64_t count, float *out,
                   ckpt_err *err)
{
    fw_drawing d = {ctx, param, first, count, out};
    uint64_t items = count / FW_DRAW + (count % FW_DRAW != 0);
    unsigned threads = items < d.e->threads ? (unsigned)items : d.e->threads;

    if (d.e->init && !d.e->opts->not_strict && !fw_may_lack(d.e, param)) {
        memset(out, 0, count * sizeof *out);
        return CKPT_OK;
    }
    return ckpt_crew_run(threads > 0 ? threads : 1, items, fw_draw_item, &d, err);
}

static int fw_initial(zt_engine *e, ckpt_err *err)
{
    const zt_options *o = e->opts;
    const bool adapters = e->model->lora.rank > 0;
    ckpt_err why = {0};
    zt_lacking lacking;
    int rc = zt_load_initial(e->zero, e->init, !o->not_strict && !adapters, &lacking, &why);

    e->n_drawn = lacking.n_missing;
    e->n_unused = lacking.n_unknown;

    if (rc != CKPT_OK && o->init)
        return ckpt_fail(err, rc, "%s", why.text);
    if (rc != CKPT_OK)
        return ckpt_fail(err, rc, "%.400s; %s--init none makes all weights random", why.text,
                         e->n_drawn ? "--not-strict makes those random, " : "");
    if (!o->not_strict && lacking.n_frozen > 0)
        return ckpt_fail(err, CKPT_EMISSING,
                         "%s: %zu parameters of the base model are missing (--not-strict makes "
                         "them random)",
                         e->init, lacking.n_frozen);
    return CKPT_OK;
}

int zt_first_fill(zt_engine *e, ckpt_err *err)
{
    const zt_options *o = e->opts;
    int rc = zt_zero_fill(e->zero, fw_draw, e, err);

    if (rc == CKPT_OK && e->init)
        rc = zt_comm_agree(e->comm, fw_initial(e, err), err);
    if (rc == CKPT_OK && e->init)
        rc = zt_comm_agree(e->comm, zt_facts_beside(e, e->init, err), err);
    if (rc == CKPT_OK && o->load) {
        const zt_load_opts l = {.path = o->load,
                                .tag = o->load_tag,
                                .module_only =
                                    o->module_only || o->evaluate || o->predictions || o->generate,
                                .not_strict = o->not_strict};
        rc = zt_load(e->zero, &l, &e->loaded, err);
        if (rc == CKPT_OK && e->loaded.with_optimizer)
            zt_saver_resume(e->saver, &l, &e->loaded);
        if (rc == CKPT_OK)
            rc = zt_comm_agree(e->comm, zt_facts_compare(e, &l, err), err);
    }
    return rc == CKPT_OK ? zt_comm_agree(e->comm, zt_facts_keep(e, err), err) : rc;
}
