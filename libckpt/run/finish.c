/* SPDX-License-Identifier: Apache-2.0 */
/*
 * finish.c: counts the open jobs of each file and finishes a file without open jobs.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/base/digest.h"
#include "libckpt/commit/hashes.h"
#include "libckpt/copy/by_file.h"
#include "libckpt/map/extent.h"
#include "libckpt/run/finish.h"

/* Small files wait until this many files, or this many bytes, are ready. */
enum { FIN_FILES = 16 };

#define FIN_BYTES (UINT64_C(4) << 20)

struct ckpt_finish_file {
    size_t n_left; /* groups of adjacent jobs that are not done */
    bool taken;    /* a worker has begun to finish it */
    bool headed;   /* its headers are written */
};

/* ---- opening ---- */

int ckpt_finish_open(ckpt_finish *f, ckpt_work *work, ckpt_peers *peers, ckpt_plan_seal_fn seal,
                     ckpt_err *err)
{
    assert(work && work->plan && peers);
    size_t n = work->plan->to->files.n + 1;

    *f = (ckpt_finish){.work = work, .peers = peers, .seal = seal};
    f->file = ckpt_alloc(n * sizeof *f->file);
    f->seg = ckpt_alloc(n * sizeof *f->seg);
    f->crc = ckpt_alloc(n * sizeof *f->crc);
    return !f->file || !f->seg || !f->crc
               ? ckpt_fail_memory(err)
               : ckpt_by_file(&f->source, &f->first, work->plan->to, err);
}

void ckpt_finish_close(ckpt_finish *f)
{
    for (size_t i = 0; f->seg && i < f->work->plan->to->files.n; i++)
        ckpt_vec_free(&f->seg[i]);
    ckpt_vec_free(&f->ready);
    ckpt_vec_free(&f->loose);
    ckpt_free(f->file);
    ckpt_free(f->seg);
    ckpt_free(f->crc);
    ckpt_free(f->source);
    ckpt_free(f->first);
    *f = (ckpt_finish){0};
}

/* ---- counting ---- */

/* The file that a job's result goes to; UINT32_MAX: none. */
static uint32_t fin_file_of(const ckpt_finish *f, size_t job)
{
    const ckpt_plan *p = f->work->plan;
    const ckpt_job *j = &p->jobs.at[job];
    const ckpt_source *s =
        &p->to->sources.at[ckpt_extent_source(p->to->tensors.at[j->tensor], j->extent)];

    return s->kind == CKPT_SOURCE_FILE && s->file < p->to->files.n ? s->file : UINT32_MAX;
}

/* Jobs ascend by file, so adjacent jobs for one file count as one. */
void ckpt_finish_expect(ckpt_finish *f, size_t first, size_t end)
{
    assert(first <= end && end <= f->work->plan->jobs.n);
    uint32_t last = UINT32_MAX;

    for (size_t i = first; i < end; i++) {
        uint32_t file = fin_file_of(f, i);

        if (file != last && file != UINT32_MAX)
            f->file[file].n_left++;
        last = file;
    }
}

/* Move a worker's segments to their files. */
static int fin_deal(ckpt_finish *f, ckpt_segments *written, ckpt_err *err)
{
    const ckpt_map *to = f->work->plan->to;

    for (size_t i = 0; i < written->n; i++) {
        const ckpt_source *s = &to->sources.at[written->at[i].source];
        ckpt_segments *list = s->kind == CKPT_SOURCE_FILE ? &f->seg[s->file] : &f->loose;
        ckpt_segment *seg = ckpt_vec_push(list);

        if (!seg)
            return ckpt_fail_memory(err);
        *seg = written->at[i];
    }
    written->n = 0;
    return CKPT_OK;
}

/* Count down; a file without open jobs becomes ready. */
static int fin_count(ckpt_finish *f, size_t first, size_t end, ckpt_err *err)
{
    uint32_t last = UINT32_MAX, *slot;

    for (size_t i = first; i < end; i++) {
        uint32_t file = fin_file_of(f, i);

        if (file != last && file != UINT32_MAX && --f->file[file].n_left == 0 &&
            !(f->peers->file[file] & CKPT_FILE_SHARED)) {
            slot = ckpt_vec_push(&f->ready);
            if (!slot)
                return ckpt_fail_memory(err);
            *slot = file;
            f->file[file].taken = true;
            f->ready_bytes += f->work->plan->to->files.at[file].size;
        }
        last = file;
    }
    return CKPT_OK;
}

/* ---- one file ---- */

static int fin_piece(ckpt_segments *list, uint64_t at, uint64_t n, uint32_t crc, ckpt_err *err)
{
    return n > 0 ? ckpt_ledger_add(list, 0, at, n, crc, err) : CKPT_OK;
}

/*
 * Set the CRC of a record that no job has written: zeros, except literals inside. A CRC that the
 * format knows already stays.
 */
static int fin_quiet(const ckpt_map *to, ckpt_source *s, ckpt_err *err)
{
    const ckpt_literals *l = &to->files.at[s->file].literals;
    ckpt_segments in = {0};
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < l->n; i++) {
        if (l->at[i].at >= s->at && ckpt_within(l->at[i].at - s->at, l->at[i].n, s->n_bytes))
            rc = fin_piece(&in, l->at[i].at - s->at, l->at[i].n,
                           ckpt_crc32(0, l->at[i].bytes, (size_t)l->at[i].n), err);
    }
    ckpt_ledger_sort(&in);
    if (rc == CKPT_OK)
        rc = ckpt_ledger_written(in.at, in.n, s->n_bytes, &s->crc, err);
    s->has_crc = 1;
    ckpt_vec_free(&in);
    return rc;
}

/* Compute the CRCs of a file's records, for formats that store them. */
static int fin_records(ckpt_finish *f, uint32_t file, ckpt_err *err)
{
    ckpt_map *to = f->work->plan->to;
    const ckpt_segments *seg = &f->seg[file];
    size_t at = 0;
    int rc = CKPT_OK;

    ckpt_ledger_sort(&f->seg[file]);
    for (size_t i = f->first[file]; rc == CKPT_OK && i < f->first[file + 1]; i++) {
        ckpt_source *s = &to->sources.at[f->source[i]];
        size_t n = 0;

        while (at + n < seg->n && seg->at[at + n].source == f->source[i])
            n++;
        if (n > 0) {
            rc = ckpt_ledger_written(seg->at + at, n, s->n_bytes, &s->crc, err);
            s->has_crc = 1;
        } else if (!s->has_crc) {
            rc = fin_quiet(to, s, err);
        }
        at += n;
    }
    return rc;
}

static int fin_literals(const ckpt_finish *f, uint32_t file, ckpt_err *err)
{
    const ckpt_literals *l = &f->work->plan->to->files.at[file].literals;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < l->n; i++)
        rc = ckpt_sink_write(f->work->sink, file, l->at[i].bytes, l->at[i].n, l->at[i].at, err);
    return rc;
}

/* Write the headers that are known already, because a hash takes the bytes in their order. */
static int fin_heads(const ckpt_finish *f, bool (*seals)(const ckpt_map *to, uint32_t file),
                     ckpt_err *err)
{
    const ckpt_map *to = f->work->plan->to;
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < to->files.n; i++) {
        if (ckpt_sink_kept(f->work->sink, i))
            rc = ckpt_hashes_complete(f->hashes, i, err);
        if (rc != CKPT_OK || to->files.at[i].elsewhere || !seals || seals(to, i))
            continue;
        rc = fin_literals(f, i, err);
        f->file[i].headed = true;
    }
    return rc;
}

static char *fin_path(const void *ctx, uint32_t i)
{
    return ckpt_sink_file_path(ctx, i);
}

int ckpt_finish_hash(ckpt_finish *f, ckpt_hashes *hashes, unsigned n_workers,
                     bool (*seals)(const ckpt_map *to, uint32_t file), ckpt_err *err)
{
    int rc;

    if (!hashes || !f->work->sink)
        return CKPT_OK;
    if (f->peers->n > 1)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "several processes take no hashes of the files that they write");
    rc = ckpt_hashes_begin(hashes, f->work->plan->to, n_workers, fin_path, f->work->sink, err);
    if (rc != CKPT_OK)
        return rc;
    f->hashes = hashes;
    return fin_heads(f, seals, err);
}

int ckpt_finish_hashed(ckpt_finish *f, int rc, ckpt_err *err)
{
    ckpt_hashes *hashes = f->hashes;

    f->hashes = NULL;
    return hashes ? ckpt_hashes_end(hashes, rc, err) : rc;
}

/* Write headers and directories, the last bytes of a file, after its checksums are known. */
static int fin_seal(ckpt_finish *f, uint32_t file, ckpt_err *err)
{
    ckpt_map *to = f->work->plan->to;
    ckpt_hashes *hashes = f->hashes;
    int rc = CKPT_OK;

    // All workers share the map's arena, findings and vectors.
    pthread_mutex_lock(&f->work->lock);
    if (f->seal)
        rc = f->seal(to, file, UINT64_MAX, err);
    pthread_mutex_unlock(&f->work->lock);
    if (rc == CKPT_OK && !f->file[file].headed)
        rc = fin_literals(f, file, err);
    return rc == CKPT_OK && hashes ? ckpt_hashes_complete(hashes, file, err) : rc;
}

/* True if a literal lies within one of n sorted pieces: the CRC of that record covers it. */
static bool fin_inside(const ckpt_segments *all, size_t n, const ckpt_literal *l)
{
    size_t low = 0;

    // Only the last piece that does not begin after the literal can contain it.
    while (low < n) {
        size_t middle = low + (n - low) / 2;

        if (all->at[middle].at <= l->at)
            low = middle + 1;
        else
            n = middle;
    }
    return low > 0 && ckpt_within(l->at - all->at[low - 1].at, l->n, all->at[low - 1].n);
}

/*
 * Compute the CRC-32 of a complete file from those of its records and literals, with zeros between.
 * It reads no byte, and for a kept file the result is the CRC of this run's bytes.
 */
static int fin_sum(ckpt_finish *f, uint32_t file, uint32_t *crc, ckpt_err *err)
{
    const ckpt_map *to = f->work->plan->to;
    const ckpt_literals *l = &to->files.at[file].literals;
    ckpt_segments all = {0};
    size_t n;
    int rc = CKPT_OK;

    for (size_t i = f->first[file]; rc == CKPT_OK && i < f->first[file + 1]; i++) {
        const ckpt_source *s = &to->sources.at[f->source[i]];

        rc = fin_piece(&all, s->at, s->n_bytes, s->crc, err);
    }
    ckpt_ledger_sort(&all);
    n = all.n;
    for (size_t i = 0; rc == CKPT_OK && i < l->n; i++) {
        if (!fin_inside(&all, n, &l->at[i]))
            rc = fin_piece(&all, l->at[i].at, l->at[i].n,
                           ckpt_crc32(0, l->at[i].bytes, (size_t)l->at[i].n), err);
    }
    ckpt_ledger_sort(&all);
    // Overlapping pieces do not give a CRC of the complete file, so it is read back.
    if (rc == CKPT_OK &&
        ckpt_ledger_written(all.at, all.n, to->files.at[file].size, crc, NULL) != CKPT_OK)
        rc = ckpt_sink_crc(f->work->sink, file, crc, err);
    ckpt_vec_free(&all);
    return rc;
}

/* ---- finishing ---- */

/* Finish several files in one worker. */
static int fin_files(ckpt_finish *f, const uint32_t *file, size_t n, ckpt_err *err)
{
    const ckpt_map *to = f->work->plan->to;
    ckpt_journal_entry *entry = ckpt_alloc((n + 1) * sizeof *entry);
    int rc = entry ? CKPT_OK : ckpt_fail_memory(err);

    for (size_t i = 0; rc == CKPT_OK && i < n; i++) {
        entry[i] = (ckpt_journal_entry){.file = file[i], .size = to->files.at[file[i]].size};
        rc = fin_records(f, file[i], err);
        if (rc == CKPT_OK)
            rc = fin_seal(f, file[i], err);
        if (rc == CKPT_OK &&
            (to->folder || to->set || (f->peers->file[file[i]] & CKPT_FILE_COPIED)))
            rc = fin_sum(f, file[i], &entry[i].crc, err);
        f->crc[file[i]] = entry[i].crc;
        ckpt_vec_free(&f->seg[file[i]]);
    }
    if (rc == CKPT_OK)
        rc = ckpt_sink_finish(f->work->sink, entry, n, err);
    ckpt_free(entry);
    return rc == CKPT_OK ? ckpt_progress_add(f->work->progress, 0, err) : rc;
}

int ckpt_finish_jobs(ckpt_finish *f, ckpt_worker *w, size_t first, size_t end, ckpt_err *err)
{
    assert(w && first <= end && end <= f->work->plan->jobs.n);
    ckpt_slots mine = {0};
    int rc;

    pthread_mutex_lock(&f->work->lock);
    rc = fin_deal(f, &w->written, err);
    if (rc == CKPT_OK)
        rc = fin_count(f, first, end, err);
    if (rc == CKPT_OK && (f->ready.n >= FIN_FILES || f->ready_bytes >= FIN_BYTES)) {
        mine = f->ready;
        f->ready = (ckpt_slots){0};
        f->ready_bytes = 0;
    }
    pthread_mutex_unlock(&f->work->lock);
    if (rc == CKPT_OK && mine.n > 0)
        rc = fin_files(f, mine.at, mine.n, err);
    ckpt_vec_free(&mine);
    return rc;
}

int ckpt_finish_join(ckpt_finish *f, ckpt_err *err)
{
    ckpt_segments mine = {0};
    int rc;

    if (!f->work->sink)
        return CKPT_OK;
    rc = f->peers->hooks->give(f->peers, f->work, f->seg, &mine, err);
    if (rc == CKPT_OK)
        rc = fin_deal(f, &mine, err);
    ckpt_vec_free(&mine);
    return rc;
}

/* ---- files that are left ---- */

/* The work list of fin_rest: `ready`, divided into groups. */
typedef struct fin_groups {
    ckpt_finish *f;
    size_t *first; /* n + 1 indexes of f->ready */
    size_t n;
} fin_groups;

static int fin_group(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    const fin_groups *g = ctx;

    (void)worker;
    return fin_files(g->f, g->f->ready.at + g->first[item], g->first[item + 1] - g->first[item],
                     err);
}

/* Add the files without jobs, which are ready too. */
static int fin_add_idle(ckpt_finish *f, ckpt_err *err)
{
    for (size_t i = 0; i < f->work->plan->to->files.n; i++) {
        uint32_t *slot;

        if (f->file[i].taken || f->work->plan->to->files.at[i].elsewhere ||
            !(f->peers->file[i] & CKPT_FILE_HOME))
            continue;
        slot = ckpt_vec_push(&f->ready);
        if (!slot)
            return ckpt_fail_memory(err);
        *slot = (uint32_t)i;
    }
    return CKPT_OK;
}

/* Make groups of the same size as those finished during the jobs. */
static void fin_cut(fin_groups *g)
{
    const ckpt_finish *f = g->f;
    uint64_t n_bytes = 0;

    for (size_t i = 0; i < f->ready.n; i++) {
        n_bytes += f->work->plan->to->files.at[f->ready.at[i]].size;
        if (n_bytes >= FIN_BYTES || i + 1 - g->first[g->n] == FIN_FILES || i + 1 == f->ready.n) {
            g->first[++g->n] = i + 1;
            n_bytes = 0;
        }
    }
}

/* Compute the CRCs of records in memory. */
static int fin_memory(ckpt_finish *f, ckpt_err *err)
{
    ckpt_map *to = f->work->plan->to;
    size_t n;
    int rc = CKPT_OK;

    ckpt_ledger_sort(&f->loose);
    for (size_t i = 0; rc == CKPT_OK && i < f->loose.n; i += n) {
        ckpt_source *s = &to->sources.at[f->loose.at[i].source];

        n = ckpt_ledger_group(&f->loose, i);
        rc = ckpt_ledger_written(&f->loose.at[i], n, s->n_bytes, &s->crc, err);
        s->has_crc = 1;
    }
    return rc;
}

int ckpt_finish_rest(ckpt_finish *f, unsigned n_workers, ckpt_err *err)
{
    fin_groups g = {.f = f};
    int rc = fin_memory(f, err);

    if (rc == CKPT_OK)
        rc = fin_add_idle(f, err);
    if (rc != CKPT_OK || f->ready.n == 0)
        return rc;
    g.first = ckpt_alloc((f->ready.n + 1) * sizeof *g.first);
    if (!g.first)
        return ckpt_fail_memory(err);
    fin_cut(&g);
    rc = ckpt_crew_run(n_workers, g.n, fin_group, &g, err);
    ckpt_free(g.first);
    return rc;
}
