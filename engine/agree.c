/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.c: what all ranks were told must be the same: compared before anything is trained.
 *
 * Ranks of several nodes read their own files: another configuration, model, seed or text trains,
 * and saves, what nobody asked for.  Paths may differ; what is behind them may not.
 */
#define _POSIX_C_SOURCE 200809L // open_memstream

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt.h"
#include "engine/engine.h"
#include "engine/save/same.h"

enum { AG_DEPTH = 16, AG_KEY = 80 };

/* Files of data are compared as a whole up to here. */
static const uint64_t ag_whole = UINT64_C(1) << 30;

/* ---- the configuration ---- */

/* Keys of the objects that are open. */
typedef struct ag_path {
    char key[AG_DEPTH][AG_KEY];
    unsigned n;
} ag_path;

/* A line of zt_config_print: one key, a bracket, or both. */
static bool ag_config_line(ckpt_bytes *to, ag_path *path, const char *line, size_t n)
{
    const char *key = memchr(line, '"', n), *end = key ? strstr(key, "\": ") : NULL, *value;
    size_t left;
    bool ok = true;

    if (!end || (size_t)(end - line) >= n) {
        path->n -= path->n > 0 && memchr(line, '}', n);
        return true;
    }
    value = end + 3;
    left = n - (size_t)(value - line);
    if (path->n < AG_DEPTH)
        (void)snprintf(path->key[path->n], AG_KEY, "%.*s", (int)(end - key - 1), key + 1);
    if (*value == '{') {
        path->n += path->n < AG_DEPTH;
        return true;
    }
    for (unsigned i = 0; ok && i < path->n; i++)
        ok = ckpt_bytes_printf(to, "%s.", path->key[i]);
    left -= left > 0 && value[left - 1] == ',';
    return ok && ckpt_bytes_printf(to, "%.*s of the configuration\t%.*s\n", (int)(end - key - 1),
                                   key + 1, (int)left, value);
}

/* The resolved configuration, a line for each key. */
static int ag_config(const zt_engine *e, ckpt_bytes *to, ckpt_err *err)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    int rc = f ? zt_config_print(&e->config, f, err) : ckpt_fail_memory(err);
    ag_path path = {.n = 0};
    bool ok = true;

    if (f && fclose(f) != 0 && rc == CKPT_OK)
        rc = ckpt_fail_memory(err);
    for (size_t at = 0; rc == CKPT_OK && ok && at < n;) {
        size_t m = strcspn(text + at, "\n");
        ok = ag_config_line(to, &path, text + at, m);
        at += m + 1;
    }
    free(text);
    ok = ok && ckpt_bytes_printf(to, "activation_checkpointing of the configuration\t%d\n",
                                 e->config.activation_checkpointing);
    return rc == CKPT_OK && !ok ? ckpt_fail_memory(err) : rc;
}

/* ---- model and data ---- */

static bool ag_model(const zt_model_config *m, ckpt_bytes *to)
{
    return ckpt_bytes_printf(to, "class of the model\t%s\n", m->class_name) &&
           ckpt_bytes_printf(to,
                             "vocabulary of the model\t%" PRIu64
                             "\npositions of the model\t%" PRIu64 "\nwidth of the model\t%" PRIu64
                             "\nlayers of the model\t%" PRIu64 "\nheads of the model\t%" PRIu64
                             " %" PRIu64 " %" PRIu64 "\ninner width of the model\t%" PRIu64
                             "\ntypes of the model\t%" PRIu64 "\nlabels of the model\t%" PRIu64
                             " %d\n",
                             m->vocab, m->positions, m->hidden, m->layers, m->heads, m->kv_heads,
                             m->head_width, m->inner, m->types, m->labels, m->multi_label) &&
           ckpt_bytes_printf(
               to,
               "epsilon of the model's norms\t%.9g\ninitial range of the "
               "model\t%.9g\nactivation of the model\t%d\nflags of the model\t%d %d %d "
               "%d %d\npadding of the model\t%" PRId64 "\n",
               (double)m->norm_eps, (double)m->init_range, (int)m->act, m->tied, m->attention_bias,
               m->mlp_bias, m->scale_attention, m->scale_by_layer, m->padding) &&
           ckpt_bytes_printf(to,
                             "rotary positions of the model\t%.17g %d %.17g %.17g %.17g "
                             "%.17g\ndropout rates of the model\t%.9g %.9g %.9g %.9g\n",
                             m->rope_theta, m->rope_llama3, m->rope_factor, m->rope_low,
                             m->rope_high, m->rope_old, (double)m->dropout_embed,
                             (double)m->dropout_attention, (double)m->dropout_hidden,
                             (double)m->dropout_classifier);
}

/* A file of data: what is in it, and what became of it. */
static int ag_data(const zt_data *d, const char *option, const char *path, ckpt_bytes *to,
                   ckpt_err *err)
{
    uint64_t batch = 0, seq = 0;
    char name[64];
    const char *class_name;
    bool ok;
    int rc;

    if (!d)
        return CKPT_OK;
    (void)snprintf(name, sizeof name, "file of %s", option);
    rc = zt_same_file(to, name, path, ag_whole, err);
    zt_data_shape(d, &batch, &seq);
    ok =
        ckpt_bytes_printf(to,
                          "samples of %s\t%" PRIu64 "\nbatches of %s\t%" PRIu64
                          "\nlargest batch of %s\t%" PRIu64 " x %" PRIu64 "\n",
                          option, zt_data_count(d), option, zt_data_batches(d), option, batch, seq);
    for (size_t i = 0; ok && (class_name = zt_data_class(d, i)); i++)
        ok = ckpt_bytes_printf(to, "class %zu of %s\t%s\n", i, option, class_name);
    return rc == CKPT_OK && !ok ? ckpt_fail_memory(err) : rc;
}

static int ag_lines(const zt_engine *e, ckpt_bytes *to, ckpt_err *err)
{
    const zt_options *o = e->opts;
    bool ok = ckpt_bytes_printf(to, "release of zerotrain\t%s\n%s", ckpt_version(),
                                o->alike ? o->alike : "");
    int rc = ok ? ag_config(e, to, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK && !ag_model(&e->model_config, to))
        rc = ckpt_fail_memory(err);
    if (rc != CKPT_OK || o->print_config)
        return rc;
    rc = ag_data(e->data, "--data", o->data, to, err);
    if (rc == CKPT_OK)
        rc = ag_data(e->eval_data, "--eval-data", o->eval_data, to, err);
    if (rc == CKPT_OK && e->vocab)
        rc = zt_same_file(to, "file of --vocab", e->vocab, ag_whole, err);
    ok = rc != CKPT_OK ||
         ckpt_bytes_printf(to,
                           "lower case\t%d\nupdates of the run\t%" PRId64 "\nparameters\t%" PRIu64
                           "\ntrained parameters\t%" PRIu64 "\n",
                           e->lower_case, e->total_steps, zt_model_count(e->model, false),
                           zt_model_count(e->model, true));
    return ok ? rc : ckpt_fail_memory(err);
}

int zt_agree_start(const zt_engine *e, ckpt_err *err)
{
    ckpt_bytes lines = {0};

    return e->comm->world == 1 ? CKPT_OK : zt_same(e->comm, &lines, ag_lines(e, &lines, err), err);
}
