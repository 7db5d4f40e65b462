/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c: counts the parameters of a model that has only a config.json.
 *
 * The engine builds the list of parameters, because it has the table of architectures.
 */
#include "tools/costs/config.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt_extra.h"
#include "engine/model/model.h"

/* ---- choosing the file ------------------------------------------------------------------- */

static bool cj_ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

/* True for files beside the weights in a model folder, by their names. */
static bool cj_beside(const char *name)
{
    static const char *const ends[] = {".json", ".jsonl", ".txt", ".md",       ".model",
                                       ".py",   ".yaml",  ".yml", ".tiktoken", ".jinja",
                                       ".spm",  ".png",   ".jpg", ".svg",      ".pdf"};

    if (name[0] == '.' || !strchr(name, '.')) // .gitattributes, LICENSE
        return strcmp(name, ".metadata") != 0 && strncmp(name, "latest", 6) != 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (cj_ends(name, ends[i]))
            return !cj_ends(name, ".index.json") && strncmp(name, "latest", 6) != 0;
    }
    return false;
}

/* True if no file of a folder can hold weights. */
static bool cj_bare(const char *folder)
{
    DIR *d = opendir(folder);
    const struct dirent *e;
    bool bare = d != NULL;

    while (bare && (e = readdir(d)))
        bare = cj_beside(e->d_name);
    if (d)
        (void)closedir(d);
    return bare;
}

void config_alone(char *out, size_t room, const char *operand)
{
    struct stat st;
    int n = 0;

    *out = 0;
    if (ckpt_path_is_remote(operand) || stat(operand, &st) != 0)
        return;
    if (!S_ISDIR(st.st_mode))
        n = cj_ends(operand, ".json") ? snprintf(out, room, "%s", operand) : 0;
    else if (cj_bare(operand))
        n = snprintf(out, room, "%s/config.json", operand);
    if (n < 0 || (size_t)n >= room || (n > 0 && stat(out, &st) != 0))
        *out = 0;
}

/* ---- its parameters ---------------------------------------------------------------------- */

/* Length of a parameter's name before its last part: its module. */
static size_t cj_module(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? (size_t)(dot - name) : 0;
}

static bool cj_same(const char *a, const char *b)
{
    return cj_module(a) == cj_module(b) && strncmp(a, b, cj_module(a)) == 0;
}

/* Elements of the module that has this name; a tied weight counts in each module. */
static uint64_t cj_own(const zt_model *m, const char *name)
{
    uint64_t own = 0;

    for (size_t i = 0; i < m->params.n; i++)
        own += cj_same(m->params.at[i].name, name) ? m->params.at[i].n_elems : 0;
    for (size_t i = 0; i < m->aliases.n; i++)
        own +=
            cj_same(m->aliases.at[i].name, name) ? m->params.at[m->aliases.at[i].param].n_elems : 0;
    return own;
}

/* Sum up parameters; a module's are adjacent in the engine's list. */
static void cj_sum(config_model *out, const zt_model *m)
{
    uint64_t own = 0;

    for (size_t i = 0; i < m->params.n; i++) {
        const char *name = m->params.at[i].name;

        own = i > 0 && cj_same(m->params.at[i - 1].name, name) ? own : 0;
        own += m->params.at[i].n_elems;
        out->largest = own > out->largest ? own : out->largest;
    }
    for (size_t i = 0; i < m->aliases.n; i++) {
        own = cj_own(m, m->aliases.at[i].name);
        out->largest = own > out->largest ? own : out->largest;
    }
    out->params = zt_model_count(m, false);
}

int config_count(config_model *out, const char *path, ckpt_err *err)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    zt_model_config config;
    zt_model *m = NULL;
    int rc = arena ? zt_model_config_sizes(&config, arena, path, err) : ckpt_fail_memory(err);

    *out = (config_model){0};
    if (rc == CKPT_OK)
        rc = zt_model_new(&m, NULL, CKPT_F32, &config, NULL, err);
    if (rc == CKPT_OK) {
        cj_sum(out, m);
        (void)snprintf(out->class_name, sizeof out->class_name, "%s", config.class_name);
        out->shape = (model_shape){.layers = config.layers + config.decoder_layers,
                                   .hidden = config.hidden,
                                   .heads = config.heads};
    }
    zt_model_free(m);
    ckpt_arena_free(arena);
    return rc;
}
