/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_files.c: holds the files of a view against those that a conversion has written.
 *
 *     view_files SOURCE WRITTEN FORMAT [key=value ...]
 *
 * dtype, stage, world, tag, shard (bytes), memory, jobs, ranges (random ones for each thread), first
 * (records are checked first).  Each file is read whole, in random ranges by four threads, and byte
 * by byte around every place where jobs and literals begin and end; then it is streamed by a second
 * view.  Prints "FILE: what differs", and ends with 1.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "libckpt/copy/view_inside.h"
#include "libckpt/format.h"

enum { THREADS = 4, LONGEST = 3 * 1024 * 1024, AROUND = 2 };

typedef struct asked {
    ckpt_target target;
    ckpt_open_opts open;
    ckpt_run_opts run;
    unsigned ranges;
    bool first;
} asked;

/* A written file, and the view's. */
typedef struct pair {
    ckpt_view *view;
    size_t i;
    const uint8_t *want;
    uint64_t size;
    uint8_t *may; /* per byte: 1 where a checksum may be left out */
    unsigned ranges, seed;
    uint64_t n_off; /* bytes that differ where they may, of the whole file */
    char text[700];
} pair;

static void stop(const char *what, const ckpt_err *err)
{
    fprintf(stderr, "view_files: %s: %s\n", what, err ? err->text : "");
    exit(2);
}

static void *need(void *p)
{
    if (!p)
        stop("no memory", NULL);
    return p;
}

static void read_words(asked *a, int n, char **word)
{
    for (int i = 0; i < n; i++) {
        char *value = strchr(word[i], '=');

        if (!value)
            stop(word[i], NULL);
        *value++ = 0;
        if (strcmp(word[i], "dtype") == 0)
            a->target.dtype = ckpt_dtype_parse(value);
        else if (strcmp(word[i], "stage") == 0)
            a->target.stage = strcmp(value, "0") == 0 ? CKPT_STAGE_NONE : atoi(value);
        else if (strcmp(word[i], "world") == 0)
            a->target.world = (uint32_t)atoi(value);
        else if (strcmp(word[i], "tag") == 0)
            a->target.tag = value;
        else if (strcmp(word[i], "shard") == 0)
            a->target.max_shard_size = strtoull(value, NULL, 10);
        else if (strcmp(word[i], "memory") == 0)
            a->run.memory = strtoull(value, NULL, 10);
        else if (strcmp(word[i], "jobs") == 0)
            a->run.jobs = (unsigned)atoi(value);
        else if (strcmp(word[i], "ranges") == 0)
            a->ranges = (unsigned)atoi(value);
        else if (strcmp(word[i], "first") == 0)
            a->first = atoi(value) != 0;
        else
            stop(word[i], NULL);
    }
}

/* ---- comparing ---- */

/* True if n bytes from `at` on are those of the written file, but for checksums. */
static bool same(pair *p, const uint8_t *got, uint64_t n, uint64_t at, bool count)
{
    if (memcmp(got, p->want + at, (size_t)n) == 0)
        return true;
    for (uint64_t i = 0; i < n; i++) {
        if (got[i] == p->want[at + i])
            continue;
        if (!p->may[at + i]) {
            snprintf(p->text, sizeof p->text, "byte %llu is %02x, %02x was written",
                     (unsigned long long)(at + i), got[i], p->want[at + i]);
            return false;
        }
        p->n_off += count;
    }
    return true;
}

static bool range(pair *p, uint8_t *buf, uint64_t n, uint64_t at, bool count)
{
    ckpt_err err = {0};

    if (ckpt_view_read(p->view, p->i, buf, n, at, &err) == CKPT_OK)
        return same(p, buf, n, at, count);
    snprintf(p->text, sizeof p->text, "%llu bytes from %llu on: %.500s", (unsigned long long)n,
             (unsigned long long)at, err.text);
    return false;
}

static void *random_ranges(void *arg)
{
    pair *p = arg;
    uint8_t *buf = need(malloc(LONGEST));

    for (unsigned i = 0; i < p->ranges && p->size > 0; i++) {
        uint64_t at = (((uint64_t)rand_r(&p->seed) << 31) ^ (uint64_t)rand_r(&p->seed)) % p->size;
        uint64_t n = (uint64_t)rand_r(&p->seed) >> (rand_r(&p->seed) % 31);

        n = n < LONGEST ? n : LONGEST;
        n = n < p->size - at ? n : p->size - at;
        // some are made ahead, by this thread or while others read them
        if (i % 4 == 0 && ckpt_view_prefetch(p->view, p->i, n, at, NULL) != CKPT_OK) {
            snprintf(p->text, sizeof p->text, "cannot be made ahead");
            break;
        }
        if (!range(p, buf, n, at, false))
            break;
    }
    free(buf);
    return NULL;
}

static bool by_threads(pair *p)
{
    pthread_t thread[THREADS];
    pair mine[THREADS];
    bool ok = true;

    for (unsigned i = 0; i < THREADS; i++) {
        mine[i] = *p;
        mine[i].seed = p->seed + i;
        if (pthread_create(&thread[i], NULL, random_ranges, &mine[i]) != 0)
            stop("no thread", NULL);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        if (mine[i].text[0] && ok)
            memcpy(p->text, mine[i].text, sizeof p->text);
        ok = ok && !mine[i].text[0];
    }
    return ok;
}

static bool around(pair *p, uint64_t place)
{
    uint8_t byte;

    for (uint64_t at = place < AROUND ? 0 : place - AROUND; at < place + AROUND && at < p->size;
         at++) {
        if (!range(p, &byte, 1, at, false))
            return false;
    }
    return true;
}

static bool boundaries(pair *p)
{
    const ckpt_plan *plan = p->view->plan;
    const view_file *f = &p->view->file[p->i];

    for (size_t i = f->first; i < f->end; i++) {
        ckpt_job_view look;
        uint64_t base;

        ckpt_job_look(&look, plan, &plan->jobs.at[i]);
        base = plan->to->sources.at[look.e->source].at;
        if (!around(p, base + look.to) ||
            !around(p, base + ckpt_job_end(&look, plan->jobs.at[i].count)))
            return false;
    }
    for (size_t i = 0; i < f->n_literals; i++) {
        if (!around(p, f->literal[i].at) || !around(p, f->literal[i].at + f->literal[i].n))
            return false;
    }
    return true;
}

/* Literals that depend on checksums: those that the layout did not have. */
static void mask(pair *p, const ckpt_map *to, size_t n_before)
{
    const ckpt_literals *l = &to->files.at[p->i].literals;
    const ckpt_format *format = to->files.at[p->i].format;

    for (size_t i = n_before; format && format->bare && i < l->n; i++)
        memset(p->may + l->at[i].at, 1, (size_t)l->at[i].n);
}

/* ---- streams ---- */

typedef struct poured {
    pair *p;
    uint64_t at;
} poured;

static int take(void *ctx, const void *bytes, uint64_t n, ckpt_err *err)
{
    poured *o = ctx;

    if (n > o->p->size - o->at || memcmp(bytes, o->p->want + o->at, (size_t)n) != 0)
        return ckpt_fail(err, CKPT_EDIFFERS, "differs behind byte %llu", (unsigned long long)o->at);
    o->at += n;
    return CKPT_OK;
}

static bool stream(pair *p)
{
    poured o = {.p = p};
    ckpt_err err = {0};

    if (ckpt_view_stream(p->view, p->i, take, &o, &err) != CKPT_OK)
        snprintf(p->text, sizeof p->text, "streamed: %.600s", err.text);
    else if (o.at != p->size)
        snprintf(p->text, sizeof p->text, "streamed: ends at byte %llu", (unsigned long long)o.at);
    return !p->text[0];
}

/* ---- files ---- */

static uint8_t *slurp(const char *folder, const char *path, uint64_t *size)
{
    char name[4096];
    struct stat st;
    uint8_t *bytes;
    uint64_t done = 0;
    int fd;

    snprintf(name, sizeof name, "%s%s%s", folder, *path ? "/" : "", path);
    fd = open(name, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) != 0)
        return NULL;
    bytes = need(malloc((size_t)st.st_size + 1));
    while (done < (uint64_t)st.st_size) {
        ssize_t n = read(fd, bytes + done, (size_t)st.st_size - done);

        if (n <= 0)
            stop(name, NULL);
        done += (uint64_t)n;
    }
    close(fd);
    *size = done;
    return bytes;
}

static ckpt_view *make(const ckpt_map *from, ckpt_map **to, const asked *a)
{
    const ckpt_view_opts opts = {.size = sizeof opts, .run = &a->run, .check_first = a->first};
    ckpt_view *v = NULL;
    ckpt_err err = {0};

    if (ckpt_layout(to, from, &a->target, &err) != CKPT_OK)
        stop("layout", &err);
    if (ckpt_view_new(&v, from, *to, &opts, &err) != CKPT_OK)
        stop("view", &err);
    return v;
}

/* One file, in all ways. */
static bool one(pair *p, ckpt_map *to, const char *written)
{
    const char *path = ckpt_view_file_path(p->view, p->i);
    bool alone = !to->folder && to->files.n == 1, pointer = p->i >= to->files.n;
    size_t n_before = pointer ? 0 : to->files.at[p->i].literals.n;
    uint8_t *want, *buf;
    bool ok;

    want = slurp(written, path, &p->size);
    if (!want && alone)
        want = slurp(written, "", &p->size);
    p->want = want;
    if (!want || p->size != ckpt_view_file_size(p->view, p->i)) {
        snprintf(p->text, sizeof p->text, "is not what was written: %llu bytes, not %llu",
                 (unsigned long long)ckpt_view_file_size(p->view, p->i),
                 (unsigned long long)(want ? p->size : 0));
        return false;
    }
    p->may = need(calloc(1, (size_t)p->size + 1));
    buf = need(malloc((size_t)p->size + 1));
    // the first byte makes the literals
    ok = p->size == 0 || ckpt_view_read(p->view, p->i, buf, 1, 0, NULL) == CKPT_OK;
    if (!pointer)
        mask(p, to, n_before);
    ok = ok ? range(p, buf, p->size, 0, true) : range(p, buf, 1, 0, true);
    ok = ok && by_threads(p) && (pointer || boundaries(p));
    free(buf);
    return ok;
}

/* The view opened as a checkpoint, and the written one: tensors, values and files beside them. */
static bool opened(ckpt_view *v, const ckpt_map *to, const char *written, unsigned caps)
{
    const ckpt_open_opts open = {.size = sizeof open,
                                 .with_optimizer = (caps & CKPT_WRITES_STATE) != 0,
                                 .keep_slices = (caps & CKPT_WRITES_STATE) != 0};
    const bool tag = to->folder && !to->pointer;
    char path[4096];
    const ckpt_diff_opts exact = {.size = sizeof exact, .exact = true};
    ckpt_map *made = NULL, *there = NULL;
    ckpt_err err = {0};
    int rc = ckpt_view_open(&made, v, &open, &err);

    snprintf(path, sizeof path, "%s%s%s", written, tag ? "/" : "", tag ? to->folder : "");

    if (rc == CKPT_OK)
        rc = ckpt_open(&there, path, &open, &err);
    if (rc == CKPT_OK && strcmp(ckpt_map_format(made), ckpt_map_format(there)) != 0)
        rc = ckpt_fail(&err, CKPT_EDIFFERS, "is of format %s", ckpt_map_format(made));
    if (rc == CKPT_OK)
        rc = ckpt_diff(made, there, &exact, NULL, NULL, &err);
    if (rc == CKPT_OK)
        rc = ckpt_diff_values(made, there, NULL, NULL, &err);
    if (rc != CKPT_OK)
        printf("opened: %s\n", err.text);
    ckpt_map_free(made);
    ckpt_map_free(there);
    return rc == CKPT_OK;
}

int main(int argc, char **argv)
{
    asked a = {.target = {.size = sizeof a.target},
               .open = {.size = sizeof a.open},
               .run = {.size = sizeof a.run},
               .ranges = 2500};
    ckpt_map *from = NULL, *to = NULL, *again = NULL;
    ckpt_err err = {0};
    size_t n_files;
    unsigned n_bad = 0;

    if (argc < 4)
        stop("usage: view_files SOURCE WRITTEN FORMAT [key=value ...]", NULL);
    a.target.format = argv[3];
    a.target.path = argv[2];
    read_words(&a, argc - 4, argv + 4);
    const unsigned caps = ckpt_format_caps(argv[3]);
    a.open.whole_checkpoint = true;
    a.open.with_optimizer = (caps & CKPT_WRITES_STATE) != 0;
    // others join what model-parallel ranks hold
    a.open.keep_slices = strcmp(argv[3], "zero") == 0;
    if (ckpt_open(&from, argv[1], &a.open, &err) != CKPT_OK)
        stop("open", &err);
    // as the commands do: a run that goes on in its own framework keeps its names
    const char *is = ckpt_map_format(from);
    const bool ranks = strcmp(is, "deepspeed") == 0 || strcmp(is, "universal") == 0;
    const bool run = (caps & CKPT_WRITES_STATE) != 0;
    const ckpt_model_opts model = {.size = sizeof model, .run = run};
    if (!(run && (strcmp(is, argv[3]) == 0 || (ranks && (caps & CKPT_HAS_RANKS)))) &&
        ckpt_map_keep_model(from, &model, &err) != CKPT_OK)
        stop("model", &err);
    if (run && ckpt_map_warm_start(from, &a.target, &err) != CKPT_OK)
        stop("warm start", &err);
    ckpt_view *v = make(from, &to, &a), *w = make(from, &again, &a);
    n_files = ckpt_view_file_count(v);
    for (size_t i = 0; i < n_files; i++) {
        pair p = {.view = v, .i = i, .ranges = a.ranges, .seed = 7};
        bool ok = one(&p, to, argv[2]);

        p.view = w;
        if (ok)
            ok = stream(&p);
        if (!ok)
            printf("%s: %s\n", ckpt_view_file_path(v, i), p.text);
        n_bad += !ok;
        free((void *)(uintptr_t)p.want);
        free(p.may);
    }
    n_bad += !opened(v, to, argv[2], caps);
    ckpt_view_free(v);
    ckpt_view_free(w);
    ckpt_map_free(to);
    ckpt_map_free(again);
    ckpt_map_free(from);
    printf("%zu files\n", n_files);
    return n_bad > 0;
}
