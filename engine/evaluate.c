/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evaluate.c: evaluates and predicts with sharded weights: stage 3 gathers them layer by layer,
 * without consolidating the model.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/inside.h"
#include "libckpt/codec/json/json.h"

/* Buffers for a classifier's logits, on the device and on the host. */
typedef struct ev_logits {
    zt_engine *e;
    uint64_t classes, room; /* logits per sample; maximum number of samples */
    void *device;
    void *wide;  /* logits in fp32, on the device */
    float *host; /* [room, classes] */
} ev_logits;

static int ev_logits_new(ev_logits *l, zt_engine *e, const zt_data *data, ckpt_err *err)
{
    uint64_t n, seq;

    *l = (ev_logits){.e = e};
    zt_data_shape(data, &l->room, &seq);
    if (e->model_config.arch != ZT_BERT_CLASSIFIER)
        return CKPT_OK;
    l->classes = e->model_config.labels;
    if (!ckpt_mul(l->room, l->classes, &n) || n > UINT32_MAX)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "a batch has too many samples and classes for its logits");
    l->device = e->device->ops->alloc(e->device, n * sizeof(float));
    l->wide = e->device->ops->alloc(e->device, n * sizeof(float));
    l->host = ckpt_alloc((size_t)n * sizeof(float));
    return l->device && l->wide && l->host ? CKPT_OK : ckpt_fail_memory(err);
}

static void ev_logits_free(ev_logits *l)
{
    if (l->e) {
        l->e->device->ops->release(l->e->device, l->device);
        l->e->device->ops->release(l->e->device, l->wide);
    }
    ckpt_free(l->host);
}

/* Copy the logits of n samples to the host, as fp32. */
static void ev_fetch(ev_logits *l, uint64_t n)
{
    zt_device *d = l->e->device;
    uint64_t count = n * l->classes;

    if (l->e->model->dtype != CKPT_F32)
        d->ops->cast(d, count, l->wide, CKPT_F32, l->device, l->e->model->dtype);
    d->ops->get(d, l->host, l->e->model->dtype == CKPT_F32 ? l->device : l->wide,
                count * sizeof(float));
}

static uint64_t ev_best(const float *x, uint64_t n)
{
    uint64_t best = 0;

    for (uint64_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* Counts of each class: samples predicted correctly, predicted, labelled. */
enum { EV_RIGHT, EV_PREDICTED, EV_SUPPORT, EV_COUNTS };

/* Count the samples of a batch by class; samples without a label count for nothing. */
static void ev_count(const ev_logits *l, const zt_batch *b)
{
    double *counts = l->e->counts;

    for (uint64_t i = 0; i < b->batch; i++) {
        const uint64_t got = ev_best(l->host + i * l->classes, l->classes);
        const uint64_t want = b->labels[i] >= 0 ? (uint64_t)b->labels[i] : l->classes;

        if (want >= l->classes)
            continue;
        counts[got * EV_COUNTS + EV_PREDICTED]++;
        counts[want * EV_COUNTS + EV_SUPPORT]++;
        counts[want * EV_COUNTS + EV_RIGHT] += got == want;
    }
}

/* Number of labels over which a batch's loss is the mean. */
static uint64_t ev_weight(const zt_engine *e, const zt_batch *b)
{
    bool shifted = zt_arch_causal(e->model_config.arch);
    bool classifier = e->model_config.arch == ZT_BERT_CLASSIFIER;
    uint64_t n = 0, rows = classifier ? b->batch : zt_batch_answers(b);

    if (b->spare)
        return 0;
    if (classifier && b->targets)
        return b->batch;
    for (uint64_t i = 0; b->labels && i < rows; i++)
        n += !(shifted && i % b->seq == 0) && b->labels[i] != ZT_IGNORE;
    return n;
}

/* Run one batch forward.  Spare batches run too, because all ranks must take part in gathering. */
static int ev_batch(ev_logits *l, zt_data *data, uint64_t i, zt_batch *b, double *loss,
                    ckpt_err *err)
{
    zt_engine *e = l->e;
    int rc = zt_comm_agree(e->comm, zt_data_batch(data, i, b, err), err);

    if (rc == CKPT_OK)
        rc = zt_zero_evaluate(e->zero, b, l->device, loss, err);
    if (rc == CKPT_OK && l->device)
        ev_fetch(l, b->batch);
    return rc == CKPT_OK ? zt_comm_agree(e->comm, zt_device_check(e->device, err), err) : rc;
}

/* Sums over batches, then over ranks. */
enum { EV_LOSS, EV_WEIGHT, EV_SAMPLES, EV_SUMS };

static int ev_sums(ev_logits *l, zt_data *data, bool classes, double *sum, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < zt_data_batches(data); i++) {
        zt_batch b;
        double loss = 0, weight;
        rc = ev_batch(l, data, i, &b, &loss, err);
        weight = rc == CKPT_OK ? (double)ev_weight(l->e, &b) : 0;
        if (rc == CKPT_OK && !b.spare)
            sum[EV_SAMPLES] += (double)b.batch;
        if (weight > 0) {
            sum[EV_LOSS] += loss * weight;
            sum[EV_WEIGHT] += weight;
            if (classes)
                ev_count(l, &b);
        }
    }
    return rc;
}

/* Name of a class, from the data's labels or the model's id2label; NULL: none. */
static const char *ev_class(const zt_engine *e, const zt_data *data, uint64_t class)
{
    const char *name = zt_data_class(data, class);
    const ckpt_value *v;
    char key[24];

    snprintf(key, sizeof key, "%" PRIu64, class);
    v = ckpt_value_get(ckpt_value_get(e->model_config.json, "id2label"), key);
    return name || !v || v->kind != CKPT_V_STR ? name : v->as.text.at;
}

/* Clear the counts of classes, or create them. */
static int ev_clear(zt_engine *e, ckpt_err *err)
{
    const size_t n = (size_t)e->model_config.labels;

    if (!e->counts)
        e->counts = ckpt_alloc(n * EV_COUNTS * sizeof *e->counts);
    if (!e->classes)
        e->classes = ckpt_alloc(n * sizeof *e->classes);
    if (!e->counts || !e->classes)
        return ckpt_fail_memory(err);
    memset(e->counts, 0, n * EV_COUNTS * sizeof *e->counts);
    return CKPT_OK;
}

/* Fill the part of a score that comes from the counts of classes, which are sums over ranks. */
static void ev_classes(zt_engine *e, const zt_data *data, zt_score *score)
{
    const size_t n = (size_t)e->model_config.labels;
    zt_measures macro;

    for (size_t i = 0; i < n; i++)
        e->classes[i] = (zt_class){.name = ev_class(e, data, i),
                                   .right = e->counts[i * EV_COUNTS + EV_RIGHT],
                                   .predicted = e->counts[i * EV_COUNTS + EV_PREDICTED],
                                   .support = e->counts[i * EV_COUNTS + EV_SUPPORT]};
    macro = zt_measures_mean(e->classes, n, false);
    score->accuracy = zt_measures_accuracy(e->classes, n);
    score->precision = macro.precision;
    score->recall = macro.recall;
    score->f1 = macro.f1;
    score->classes = e->classes;
    score->n_classes = n;
}

int zt_engine_evaluate(zt_engine *e, zt_score *score, ckpt_err *err)
{
    zt_data *data = e->eval_data ? e->eval_data : e->data;
    double sum[EV_SUMS] = {0}, start = zt_now();
    const bool tokens = e->model_config.arch != ZT_BERT_CLASSIFIER;
    const bool classes = !tokens && e->model_config.labels > 1 && !e->model_config.multi_label;
    const double nan = (double)NAN;
    ev_logits l;
    int rc = ev_logits_new(&l, e, data, err);

    if (rc == CKPT_OK && classes)
        rc = ev_clear(e, err);
    rc = zt_comm_agree(e->comm, rc, err);
    if (rc == CKPT_OK)
        rc = ev_sums(&l, data, classes, sum, err);
    if (rc == CKPT_OK)
        rc = e->comm->ops->all_reduce(e->comm, sum, EV_SUMS, CKPT_F64, ZT_SUM, err);
    if (rc == CKPT_OK && classes)
        rc = e->comm->ops->all_reduce(e->comm, e->counts, e->model_config.labels * EV_COUNTS,
                                      CKPT_F64, ZT_SUM, err);
    *score = (zt_score){.loss = sum[EV_WEIGHT] > 0 ? sum[EV_LOSS] / sum[EV_WEIGHT] : nan,
                        .perplexity = nan,
                        .accuracy = nan,
                        .precision = nan,
                        .recall = nan,
                        .f1 = nan,
                        .samples = (uint64_t)sum[EV_SAMPLES]};
    if (tokens)
        score->perplexity = exp(score->loss);
    if (rc == CKPT_OK && classes && sum[EV_WEIGHT] > 0)
        ev_classes(e, data, score);
    ev_logits_free(&l);
    e->seconds[ZT_T_EVAL] += zt_now() - start;
    return rc;
}

/* Print a number as JSON; null if it is not finite. */
static bool ev_number(ckpt_bytes *to, const char *before, double x)
{
    return ckpt_bytes_printf(to, "%s", before) &&
           (isfinite(x) ? ckpt_bytes_printf(to, "%.9g", x) : ckpt_bytes_printf(to, "null"));
}

/* Print the class of a sample, and its name if it has one. */
static bool ev_put_class(const zt_engine *e, ckpt_bytes *to, uint64_t class)
{
    const char *name = ev_class(e, e->data, class);
    bool ok = ckpt_bytes_printf(to, ", \"class\": %" PRIu64, class);

    return ok && (!name || (ckpt_bytes_printf(to, ", \"name\": ") &&
                            ckpt_json_string(to, name, strlen(name), false)));
}

/*
 * Print one sample's line: its class and the probability of each (softmax; several labels: sigmoid;
 * one label: the value).
 */
static bool ev_line(const zt_engine *e, ckpt_bytes *to, uint64_t sample, const float *x)
{
    uint64_t n = e->model_config.labels;
    bool several = e->model_config.multi_label;
    double sum = 0, top = -HUGE_VAL;
    bool ok = ckpt_bytes_printf(to, "{\"sample\": %" PRIu64, sample);

    if (n == 1 && !several)
        return ok && ev_number(to, ", \"value\": ", (double)x[0]) && ckpt_bytes_add(to, "}\n", 2);
    for (uint64_t i = 0; i < n; i++)
        top = fmax(top, (double)x[i]);
    for (uint64_t i = 0; i < n; i++)
        sum += exp((double)x[i] - top);
    if (!several)
        ok = ok && ev_put_class(e, to, ev_best(x, n));
    for (uint64_t i = 0; ok && i < n; i++)
        ok = ev_number(to, i ? ", " : ", \"probabilities\": [",
                       several ? 1 / (1 + exp(-(double)x[i])) : exp((double)x[i] - top) / sum);
    return ok && ckpt_bytes_add(to, "]}\n", 3);
}

/* Print all ranks' samples of one micro batch, in order. */
static int ev_write(const ev_logits *l, uint64_t i, const float *all, FILE *out, ckpt_err *err)
{
    const zt_engine *e = l->e;
    uint64_t room = l->room, n = e->model_config.labels;
    uint64_t first = i * (uint64_t)e->comm->world * room, count = zt_data_count(e->data);

    ckpt_bytes text = {0};
    bool ok = true;

    for (uint64_t k = 0; ok && k < room * (uint64_t)e->comm->world && first + k < count; k++)
        ok = ev_line(e, &text, first + k, all + k * n);
    if (ok)
        (void)fwrite(text.at, 1, text.n, out);
    ckpt_vec_free(&text);
    if (!ok)
        return ckpt_fail_memory(err);
    return ferror(out) ? ckpt_fail_sys(err, CKPT_EIO, errno, "the predictions cannot be written")
                       : CKPT_OK;
}

static int ev_all(zt_engine *e, ev_logits *l, float *all, FILE *out, ckpt_err *err)
{
    uint64_t n = l->room * l->classes;
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < zt_data_batches(e->data); i++) {
        zt_batch b;
        double loss;
        rc = ev_batch(l, e->data, i, &b, &loss, err);
        if (rc == CKPT_OK)
            rc = e->comm->ops->all_gather(e->comm, all, l->host, n, CKPT_F32, err);
        if (rc == CKPT_OK)
            rc = zt_comm_agree(e->comm, out ? ev_write(l, i, all, out, err) : CKPT_OK, err);
    }
    return rc;
}

int zt_engine_predict(zt_engine *e, const char *path, ckpt_err *err)
{
    ev_logits l = {0};
    bool print = strcmp(path, "-") == 0;
    FILE *out = NULL;
    float *all = NULL;
    struct stat st;
    int rc = ev_logits_new(&l, e, e->data, err);

    if (rc == CKPT_OK) {
        all = ckpt_alloc((size_t)(l.room * l.classes) * (size_t)e->comm->world * sizeof *all);
        rc = all ? CKPT_OK : ckpt_fail_memory(err);
    }
    if (rc == CKPT_OK && e->comm->rank == 0 && !print && !e->opts->force && stat(path, &st) == 0 &&
        S_ISREG(st.st_mode) && st.st_size > 0)
        rc = ckpt_fail(err, CKPT_EUSAGE,
                       "%s: exists already; choose another name, or use --force to replace it",
                       path);
    if (rc == CKPT_OK && e->comm->rank == 0) {
        out = print ? stdout : fopen(path, "w");
        rc = out ? CKPT_OK : ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", path);
    }
    rc = zt_comm_agree(e->comm, rc, err);
    if (rc == CKPT_OK)
        rc = ev_all(e, &l, all, out, err);
    if (out && (print ? fflush(out) : fclose(out)) != 0 && rc == CKPT_OK)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", path);
    ckpt_free(all);
    ev_logits_free(&l);
    return zt_comm_agree(e->comm, rc, err);
}
