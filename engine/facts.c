/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.c: keeps settings that weights do not show with each checkpoint, and compares them on
 * loading; for weights of other programs, the config.json beside them.
 *
 * Another number of attention heads, another base of the rotary positions or another alpha of LoRA
 * fits the same weights, but computes another model.  Other samples, or another seed, give the
 * places of samples in the run another meaning.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/inside.h"

enum { FC_PATH = 4096 };

static const char fc_data[] = "data: ", fc_content[] = "content of the samples, as a CRC";

/*
 * True for settings that may change between runs: they apply to new weights, to one run, or show in
 * the weights.
 */
static bool fc_is_free(const char *line, size_t n)
{
    static const char *const names[] = {"initial range of the model",
                                        "dropout rates of the model",
                                        "positions of the model",
                                        "class of the model",
                                        "labels of the model",
                                        "padding of the model",
                                        "first token and padding of the model's targets"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i]) == n && strncmp(names[i], line, n) == 0)
            return true;
    }
    return false;
}

/* Add the samples of the run, and their order. */
static bool fc_samples(const zt_engine *e, ckpt_bytes *to)
{
    uint64_t batch, seq;

    if (!e->data || zt_data_is_replay(e->data))
        return true;
    zt_data_shape(e->data, &batch, &seq);
    return ckpt_bytes_printf(to,
                             "%ssamples\t%" PRIu64 "\n%smost tokens of a sample\t%" PRIu64
                             "\n%sshuffled\t%s\n",
                             fc_data, zt_data_count(e->data), fc_data, seq, fc_data,
                             e->opts->no_shuffle ? "no" : "yes") &&
           (e->opts->no_shuffle ||
            ckpt_bytes_printf(to, "%sseed\t%" PRId64 "\n", fc_data, e->opts->seed)) &&
           ckpt_bytes_printf(to, "%s%s\t%012" PRIx64 "\n", fc_data, fc_content, e->data_sum);
}

/* Make all lines, with a NUL at the end. */
static int fc_lines(const zt_engine *e, ckpt_bytes *to, ckpt_err *err)
{
    bool ok = zt_agree_model(&e->model_config, to);

    if (ok && e->model->lora.rank > 0)
        ok = ckpt_bytes_printf(to, "alpha of LoRA\t%.9g\n", (double)e->model->lora.alpha);
    return ok && fc_samples(e, to) && ckpt_bytes_add(to, "", 1) ? CKPT_OK : ckpt_fail_memory(err);
}

int zt_facts_keep(zt_engine *e, ckpt_err *err)
{
    ckpt_bytes lines = {0};
    int rc = fc_lines(e, &lines, err);
    const char *kept =
        rc == CKPT_OK ? ckpt_arena_copy(e->arena, (const char *)lines.at, lines.n) : NULL;

    ckpt_vec_free(&lines);
    if (rc == CKPT_OK && !kept)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        zt_saver_keep_facts(e->saver, kept);
    return rc;
}

/* Find the value of a name of n bytes in lines; NULL: none.  *m: its length. */
static const char *fc_find(const char *lines, const char *name, size_t n, size_t *m)
{
    for (const char *end; (end = strchr(lines, '\n')); lines = end + 1) {
        if (strncmp(lines, name, n) == 0 && lines[n] == '\t') {
            *m = (size_t)(end - lines) - n - 1;
            return lines + n + 1;
        }
    }
    return NULL;
}

/* Add a difference to a list, which may be cut. */
static void fc_add(char list[ZT_UNLIKE], const char *more)
{
    const size_t n = strlen(list);

    if (n + strlen(more) + 8 < ZT_UNLIKE)
        (void)snprintf(list + n, ZT_UNLIKE - n, "%s%s", n ? ", " : "", more);
    else if (n < 4 || strcmp(list + n - 3, "...") != 0)
        (void)snprintf(list + n, ZT_UNLIKE - n, ", ...");
}

/* Compare a saved line with this run's lines. */
static void fc_one(zt_engine *e, const char *line, const char *end, const char *now)
{
    const char *tab = memchr(line, '\t', (size_t)(end - line)), *value;
    const size_t n = tab ? (size_t)(tab - line) : 0, m = tab ? (size_t)(end - tab) - 1 : 0;
    const bool data = n > sizeof fc_data && strncmp(line, fc_data, sizeof fc_data - 1) == 0;
    const size_t skip = data ? sizeof fc_data - 1 : 0;
    char text[ZT_UNLIKE / 2];
    size_t k = 0;

    // a run from the weights alone reads its own samples from the start
    if (!tab || fc_is_free(line, n) || (data && !e->loaded.with_optimizer))
        return;
    // fewer or shorter samples always have another content
    if (data && e->unlike_data[0] && n - skip == sizeof fc_content - 1 &&
        memcmp(line + skip, fc_content, n - skip) == 0)
        return;
    value = fc_find(now, line, n, &k);
    if (!value || (k == m && memcmp(value, tab + 1, m) == 0))
        return;
    (void)snprintf(text, sizeof text, "%.*s %.*s (now: %.*s)", (int)(n - skip), line + skip,
                   m < 40 ? (int)m : 40, tab + 1, k < 40 ? (int)k : 40, value);
    for (char *c = text; *c; c++)
        *c = *c >= ' ' && *c <= '~' ? *c : '?'; // the file may be anyone's
    fc_add(data ? e->unlike_data : e->unlike_model, text);
}

/* Compare lines of facts that are known of the weights in a path. */
static int fc_compare(zt_engine *e, const char *path, const char *known, ckpt_err *err)
{
    ckpt_bytes now = {0};
    int rc = known ? fc_lines(e, &now, err) : CKPT_OK;

    e->unlike_model[0] = 0;
    for (const char *end, *line = known; rc == CKPT_OK && line && (end = strchr(line, '\n'));
         line = end + 1)
        fc_one(e, line, end, (const char *)now.at);
    if (e->unlike_model[0])
        e->unlike_path = path;
    ckpt_vec_free(&now);
    return rc;
}

/* Find the config.json of a folder, or beside a file; false: there is none. */
static bool fc_config(char out[FC_PATH], const char *path)
{
    const char *slash = strrchr(path, '/');
    struct stat st;
    int n;

    if (stat(path, &st) != 0)
        return false;
    if (S_ISDIR(st.st_mode))
        n = snprintf(out, FC_PATH, "%s/config.json", path);
    else
        n = snprintf(out, FC_PATH, "%.*sconfig.json", slash ? (int)(slash - path) + 1 : 0, path);
    return n > 0 && n < FC_PATH && stat(out, &st) == 0 && S_ISREG(st.st_mode);
}

int zt_facts_beside(zt_engine *e, const char *path, ckpt_err *err)
{
    char config[FC_PATH];
    zt_model_config model;
    ckpt_bytes lines = {0};
    int rc = CKPT_OK;

    // for another kind of model, the names of tensors differ, too
    if (!fc_config(config, path) ||
        zt_model_config_read(&model, e->arena, config, NULL) != CKPT_OK ||
        model.arch != e->model_config.arch)
        return CKPT_OK;
    if (!zt_agree_model(&model, &lines) || !ckpt_bytes_add(&lines, "", 1))
        rc = ckpt_fail_memory(err);
    else
        rc = fc_compare(e, path, (const char *)lines.at, err);
    ckpt_vec_free(&lines);
    return rc;
}

int zt_facts_compare(zt_engine *e, const zt_load_opts *from, ckpt_err *err)
{
    char *saved = zt_loaded_facts(from, &e->loaded);
    const bool kept = saved && *saved;
    int rc = kept ? fc_compare(e, from->path, saved, err) : zt_facts_beside(e, from->path, err);

    ckpt_free(saved);
    return rc;
}
