/* SPDX-License-Identifier: Apache-2.0 */
/*
 * best.c: tracks the checkpoint with the best score of an evaluation (--save-best).
 *
 * best.json in the run's folder names it, with the metric and its value, for people and for a run
 * that resumes.  It is replaced only after the checkpoint is complete, and removal of old
 * checkpoints spares the one that it names.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/inside.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/io/dir.h"
#include "libckpt/io/listing.h"

#define BEST_FILE "best.json"

/* The metrics, the number of a score, and whether only classifiers with one label have it. */
static const struct {
    const char *name;
    size_t at;
    bool classes, tokens, greater;
} best_metrics[] = {
    {"loss", offsetof(zt_score, loss), false, false, false},
    {"perplexity", offsetof(zt_score, perplexity), false, true, false},
    {"accuracy", offsetof(zt_score, accuracy), true, false, true},
    {"precision", offsetof(zt_score, precision), true, false, true},
    {"recall", offsetof(zt_score, recall), true, false, true},
    {"f1", offsetof(zt_score, f1), true, false, true},
};

/* Find the metric of the options; the Trainer's names begin with "eval_". */
static int best_metric(const zt_engine *e, size_t *out, ckpt_err *err)
{
    const char *name = e->opts->save_best;
    const zt_model_config *m = &e->model_config;
    const bool tokens = m->arch != ZT_BERT_CLASSIFIER;
    const bool classes = !tokens && m->labels > 1 && !m->multi_label;

    name += strncmp(name, "eval_", 5) == 0 ? 5 : 0;
    for (size_t i = 0; i < sizeof best_metrics / sizeof *best_metrics; i++) {
        if (strcmp(best_metrics[i].name, name) != 0)
            continue;
        *out = i;
        if ((best_metrics[i].classes && !classes) || (best_metrics[i].tokens && !tokens))
            return ckpt_fail(err, CKPT_EUSAGE, "--save-best %s: an evaluation of %s has no %s",
                             name, m->class_name, name);
        return CKPT_OK;
    }
    return ckpt_fail(err, CKPT_EUSAGE,
                     "--save-best %.60s: expected loss, perplexity, accuracy, precision, recall or "
                     "f1",
                     e->opts->save_best);
}

static bool best_is_greater(const zt_engine *e, size_t metric)
{
    return e->opts->best_greater == 0 ? best_metrics[metric].greater : e->opts->best_greater > 0;
}

/* True if the run resumes from a checkpoint in the folder in which it saves. */
static bool best_same_run(const zt_engine *e)
{
    const char *above;
    struct stat to, from;

    if (!e->loaded.with_optimizer || stat(e->opts->save, &to) != 0)
        return false;
    above = ckpt_path_join(e->arena, e->opts->load, "..");
    if (!above)
        return false;
    return (stat(e->opts->load, &from) == 0 && from.st_dev == to.st_dev &&
            from.st_ino == to.st_ino) ||
           (stat(above, &from) == 0 && from.st_dev == to.st_dev && from.st_ino == to.st_ino);
}

/*
 * Read best.json of a run that this one continues: it counts if its checkpoint is still there.
 * Without a metric, which is that of --save-best, only the name of the checkpoint is taken, which
 * --keep then spares.
 */
static int best_read(zt_engine *e, const char *metric, zt_best *out, ckpt_err *err)
{
    const char *path = ckpt_path_join(e->arena, e->opts->save, BEST_FILE), *folder;
    const ckpt_value *tag, *value;
    ckpt_value *v = NULL;
    int64_t step = 0;
    struct stat st;
    int rc;

    if (!path)
        return ckpt_fail_memory(err);
    if (access(path, F_OK) != 0)
        return CKPT_OK;
    rc = ckpt_json_read(&v, e->arena, path, ZT_JSON_BYTES, err);
    if (rc != CKPT_OK)
        return rc;
    tag = ckpt_value_get(v, "tag");
    value = ckpt_value_get(v, "value");
    if (!tag || tag->kind != CKPT_V_STR || strlen(tag->as.text.at) >= sizeof out->tag ||
        !ckpt_path_part_ok(tag->as.text.at, strlen(tag->as.text.at)) || !value ||
        (value->kind != CKPT_V_INT && value->kind != CKPT_V_FLOAT) ||
        !ckpt_value_as_int(ckpt_value_get(v, "step"), &step))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s is damaged: expected tag, step, metric and value; remove it to begin "
                         "without a best checkpoint",
                         path);
    folder = ckpt_path_join(e->arena, e->opts->save, tag->as.text.at);
    if (!folder)
        return ckpt_fail_memory(err);
    if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode) || step > e->zero->global_steps)
        return CKPT_OK; // the checkpoint is gone, or is later than this run
    (void)snprintf(out->tag, sizeof out->tag, "%s", tag->as.text.at);
    if (!metric)
        return CKPT_OK;
    if (!ckpt_value_is(ckpt_value_get(v, "metric"), metric))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "--save-best %s: %s names the best checkpoint by another metric; use that "
                         "metric, or remove the file",
                         metric, path);
    out->step = step;
    out->value = value->kind == CKPT_V_INT ? (double)value->as.i : value->as.f;
    return CKPT_OK;
}

int zt_best_begin(zt_engine *e, ckpt_err *err)
{
    const bool asked = e->opts->save_best != NULL;
    const char *name = NULL;
    size_t metric = 0;
    int rc = CKPT_OK;

    // without --save-best, --keep spares the best checkpoint of the run before
    if (!asked && !(e->opts->save && e->opts->keep > 0))
        return CKPT_OK;
    if (asked)
        rc = zt_comm_agree(e->comm, best_metric(e, &metric, err), err);
    if (rc != CKPT_OK)
        return rc;
    name = asked ? best_metrics[metric].name : NULL;
    e->best = (zt_best){0};
    if (e->comm->rank == 0 && best_same_run(e))
        rc = best_read(e, name, &e->best, err);
    rc = zt_comm_agree(e->comm, rc, err);
    if (rc == CKPT_OK)
        rc = e->comm->ops->broadcast(e->comm, &e->best, sizeof e->best, 0, err);
    e->best.metric = name;
    return rc;
}

/* Replace best.json. */
static int best_write(const zt_engine *e, ckpt_err *err)
{
    const zt_best *b = &e->best;
    ckpt_bytes text = {0};
    int dir = open(e->opts->save, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1, sys = 0;
    bool ok =
        ckpt_bytes_printf(&text, "{\"tag\": ") &&
        ckpt_json_string(&text, b->tag, strlen(b->tag), false) &&
        ckpt_bytes_printf(&text, ", \"step\": %" PRId64 ", \"metric\": \"%s\", \"value\": %.17g}\n",
                          b->step, b->metric, b->value);

    if (ok && dir >= 0)
        fd =
            openat(dir, "." BEST_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0 || ckpt_pwrite(fd, text.at, text.n, 0) != 0 || ckpt_fsync(fd) != 0 ||
        renameat(dir, "." BEST_FILE, dir, BEST_FILE) != 0)
        sys = errno;
    if (fd >= 0)
        (void)close(fd);
    if (dir >= 0)
        (void)close(dir);
    ckpt_vec_free(&text);
    if (!ok)
        return ckpt_fail_memory(err);
    return sys == 0 ? CKPT_OK
                    : ckpt_fail_sys(err, CKPT_EIO, sys, "%s/" BEST_FILE ": cannot be written",
                                    e->opts->save);
}

bool zt_best_is(const zt_engine *e, const zt_score *score)
{
    const zt_best *b = &e->best;
    size_t metric = 0;
    double v;

    if (!e->opts->save_best || best_metric(e, &metric, NULL) != CKPT_OK)
        return false;
    memcpy(&v, (const char *)score + best_metrics[metric].at, sizeof v);
    // a model that gives NaN still has an accuracy; and best.json cannot hold infinity
    return isfinite(v) && isfinite(score->loss) &&
           (b->step == 0 || (best_is_greater(e, metric) ? v > b->value : v < b->value));
}

int zt_best_note(zt_engine *e, const zt_score *score, ckpt_err *err)
{
    assert(e && score && e->opts->save_best);
    zt_best *b = &e->best;
    size_t metric = 0;
    int rc = best_metric(e, &metric, err);

    if (rc != CKPT_OK)
        return rc;
    memcpy(&b->value, (const char *)score + best_metrics[metric].at, sizeof b->value);
    b->step = e->zero->global_steps;
    (void)snprintf(b->tag, sizeof b->tag, "global_step%" PRId64, b->step);
    return zt_comm_agree(e->comm, e->comm->rank == 0 ? best_write(e, err) : CKPT_OK, err);
}

const zt_best *zt_engine_get_best(const zt_engine *e)
{
    return e->best.step > 0 ? &e->best : NULL;
}

int zt_best_load(zt_engine *e, ckpt_err *err)
{
    assert(e && e->opts);
    const zt_options *o = e->opts;
    const zt_load_opts from = {.path = o->save, .tag = e->best.tag};

    // with the optimizer, because only then the fp32 masters are those of the checkpoint
    if (!o->load_best || e->best.step == 0 || e->best.step == e->zero->global_steps ||
        (!o->save_model && !o->save_weights))
        return CKPT_OK;
    return zt_load(e->zero, &from, NULL, err);
}
