/* SPDX-License-Identifier: Apache-2.0 */
/*
 * around.c: checks the files that trainers write beside a checkpoint, for verify and doctor:
 * configurations, random states, schedules. No driver reads them, but a program cannot load the run
 * or the model without some of them.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/around.h"
#include "libckpt/base/number.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/io/io.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

#define ARO_JSON_MAX (UINT64_C(64) << 20) /* bytes; larger files are not checked */

enum { ARO_RANKS = 1 << 20 }; /* limit of a rank in a file name: far above any run's */

/* ---- truncated files ---- */

static bool aro_ends(const char *name, const char *end)
{
    size_t n = strlen(name), n_end = strlen(end);

    return n > n_end && strcmp(name + n - n_end, end) == 0;
}

static bool aro_begins(const char *name, const char *begin)
{
    return strncmp(name, begin, strlen(begin)) == 0;
}

/* True if the map has the file, or a finding about it: then it needs no check here. */
static bool aro_known(const ckpt_map *map, const char *path)
{
    bool known = false;

    for (size_t i = 0; !known && i < map->files.n; i++)
        known = strcmp(map->files.at[i].path, path) == 0;
    for (size_t i = 0; !known && i < map->findings.n; i++)
        known =
            map->findings.at[i].severity > CKPT_INFO && aro_begins(map->findings.at[i].text, path);
    return known;
}

static int aro_json(ckpt_map *map, const char *path, const ckpt_entry *e, ckpt_err *err)
{
    ckpt_err local = {0};
    char *bytes = NULL;
    uint64_t n = 0;

    if (e->size > ARO_JSON_MAX)
        return CKPT_OK;
    int rc = ckpt_io_slurp(&bytes, &n, path, ARO_JSON_MAX, &local);
    if (rc == CKPT_OK && !ckpt_json_closed(bytes, n))
        rc = ckpt_map_note(map, CKPT_WARNING, err,
                           "%s: cut or damaged: expected one whole JSON value in %" PRIu64
                           " bytes; copy it from the run",
                           path, n);
    else if (rc != CKPT_OK)
        rc = ckpt_fail(err, rc, "%s", local.text);
    ckpt_free(bytes);
    return rc;
}

/* Check a file of tensors or objects by its structure only. */
static int aro_object(ckpt_map *map, const ckpt_listing *list, const char *path, ckpt_err *err)
{
    ckpt_err local = {0};
    ckpt_map *sub = NULL;
    int rc = list->read(&sub, path, NULL, &local);

    ckpt_map_free(sub);
    if (rc == CKPT_ELIMIT || rc == CKPT_EIO)
        return ckpt_fail(err, rc, "%s", local.text);
    if (rc != CKPT_EFORMAT)
        return CKPT_OK;
    return ckpt_map_note(map, CKPT_WARNING, err, "%s; copy it from the run", local.text);
}

static int aro_files(ckpt_map *map, const ckpt_listing *list, ckpt_err *err)
{
    static const char *const ends[] = {".pt", ".pth", ".bin", ".pkl", ".safetensors"};
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < list->n; i++) {
        const ckpt_entry *e = &list->entry[i];
        const char *path = e->is_dir ? NULL : ckpt_path_join(map->arena, list->folder, e->name);
        bool object = false;

        if (e->is_dir)
            continue;
        if (!path)
            return ckpt_fail_memory(err);
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++)
            object = object || aro_ends(e->name, ends[k]);
        if ((!object && !aro_ends(e->name, ".json")) || aro_known(map, path))
            continue;
        rc = object ? aro_object(map, list, path, err) : aro_json(map, path, e, err);
    }
    return rc;
}

/* ---- missing files ---- */

/* The facts that the file names show: the program that wrote the folder, and the kinds of files. */
typedef struct aro_names {
    const ckpt_listing *list;
    bool of_trainer, of_accelerate, random, schedule, optimizer, zero;
} aro_names;

/*
 * Parse the rank between the prefix and the suffix of a file name; -1: the name has another form.
 */
static long aro_rank(const char *name, const char *begin, const char *end)
{
    const char *at = name + strlen(begin);
    const char *after;
    uint64_t rank = 0;

    if (!aro_begins(name, begin))
        return -1;
    after = ckpt_scan_u64(at, &rank);
    return after && strcmp(after, end) == 0 && rank < ARO_RANKS ? (long)rank : -1;
}

static void aro_name(aro_names *s, const ckpt_entry *e)
{
    const char *name = e->name;

    s->zero = s->zero || strcmp(name, "latest") == 0 || (e->is_dir && aro_begins(name, "global_"));
    s->optimizer = s->optimizer || aro_begins(name, "optimizer");
    if (e->is_dir)
        return;
    s->of_trainer = s->of_trainer || strcmp(name, "trainer_state.json") == 0 ||
                    (aro_begins(name, "rng_state") && aro_ends(name, ".pth"));
    s->of_accelerate = s->of_accelerate || strcmp(name, "optimizer.bin") == 0 ||
                       strcmp(name, "scheduler.bin") == 0 || aro_begins(name, "random_states_");
    s->random = s->random || aro_begins(name, "rng_state") || aro_begins(name, "random_states_");
    s->schedule = s->schedule || aro_begins(name, "scheduler.") || aro_begins(name, "scheduler_");
}

/* A lower bound of the number of ranks: one more than the highest rank in a file's name. */
static long aro_ranks(const ckpt_map *map)
{
    long n = 0, n_zero = 0;

    for (size_t i = 0; i < map->files.n; i++) {
        const char *slash = strrchr(map->files.at[i].path, '/');
        const char *name = slash ? slash + 1 : map->files.at[i].path;
        uint64_t rank = 0;
        if (aro_begins(name, "__") && ckpt_scan_u64(name + 2, &rank) && rank < ARO_RANKS &&
            (long)rank >= n)
            n = (long)rank + 1;
        n_zero += aro_ends(name, "_optim_states.pt");
    }
    return n > n_zero ? n : n_zero;
}

/*
 * Check that each rank has its file of this name. A Trainer's run of one rank has a name without a
 * number instead.
 */
static int aro_each(ckpt_map *map, const aro_names *s, const char *begin, const char *end,
                    long least, ckpt_err *err)
{
    const ckpt_listing *list = s->list;
    long n = 0, world = least;

    for (size_t i = 0; i < list->n; i++) {
        long rank = list->entry[i].is_dir ? -1 : aro_rank(list->entry[i].name, begin, end);
        n += rank >= 0;
        world = rank >= world ? rank + 1 : world;
    }
    if (n == 0 || n >= world)
        return CKPT_OK;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: random states are missing: expected %s0%s to %s%ld%s, one for each "
                         "rank, found %ld; copy the others",
                         list->folder, begin, end, begin, world - 1, end, n);
}

static int aro_random(ckpt_map *map, const aro_names *s, ckpt_err *err)
{
    long ranks = aro_ranks(map);
    int rc = aro_each(map, s, "rng_state_", ".pth", ranks > 2 ? ranks : 2, err);

    // accelerate resumes without these files, so only a gap among them is reported
    if (rc == CKPT_OK)
        rc = aro_each(map, s, "random_states_", ".pkl", 1, err);
    if (rc != CKPT_OK || s->random || !s->optimizer || (!s->of_trainer && !s->of_accelerate))
        return rc;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: the random states are missing: expected %s; without them a resumed "
                         "run draws other numbers",
                         s->list->folder,
                         s->of_trainer ? "rng_state.pth or rng_state_0.pth ..."
                                       : "random_states_0.pkl ...");
}

/*
 * Set *is if a scheduler drives the optimizer in optimizer.bin, which a map of weights does not
 * contain.
 */
static int aro_scheduled_bin(bool *is, ckpt_map *map, const ckpt_listing *list, ckpt_err *err)
{
    ckpt_err local = {0};
    ckpt_map *sub = NULL;

    if (map->states.n || !ckpt_listing_has(list, "optimizer.bin", false))
        return CKPT_OK;
    const char *path = ckpt_path_join(map->arena, list->folder, "optimizer.bin");
    if (!path)
        return ckpt_fail_memory(err);
    // aro_files reports a file that cannot be read
    if (list->read(&sub, path, NULL, &local) == CKPT_OK) {
        ckpt_seq groups = ckpt_value_seq(ckpt_value_get(sub->values, "param_groups"));
        for (uint64_t i = 0; i < groups.n; i++)
            *is = *is || ckpt_state_marked(groups.at[i]);
    }
    ckpt_map_free(sub);
    return CKPT_OK;
}

static int aro_trainer(ckpt_map *map, const aro_names *s, ckpt_err *err)
{
    bool scheduled = ckpt_state_scheduled(map);
    int rc = CKPT_OK;

    if (s->of_trainer && !ckpt_listing_has(s->list, "trainer_state.json", false))
        rc = ckpt_map_note(map, CKPT_WARNING, err,
                           "%s: trainer_state.json is missing: rng_state files are there, and the "
                           "Trainer does not resume a run without it; copy it",
                           s->list->folder);
    if (rc == CKPT_OK)
        rc = aro_scheduled_bin(&scheduled, map, s->list, err);
    // DeepSpeed usually keeps the schedule in its own files; the Trainer always writes one
    if (rc != CKPT_OK || s->schedule || (!s->of_trainer && !s->of_accelerate) ||
        !(scheduled || (s->of_trainer && s->optimizer && !s->zero)))
        return rc;
    return ckpt_map_note(
        map, CKPT_WARNING, err,
        "%s: the schedule is missing: expected %s; without it a resumed run begins "
        "its schedule anew",
        s->list->folder, s->of_trainer ? "scheduler.pt" : "scheduler.bin");
}

/* Warn if config.json is missing; sign: the file or folder that shows that one is needed. */
static int aro_config(ckpt_map *map, const ckpt_listing *list, const char *sign, ckpt_err *err)
{
    if (ckpt_listing_has(list, "config.json", false))
        return CKPT_OK;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: config.json is missing: %s is there, and transformers does not load "
                         "the model without config.json; copy it",
                         list->folder, sign);
}

/* Check the model's configuration in its own subfolder, where verl and SkyRL write it. */
static int aro_below(ckpt_map *map, const ckpt_listing *list, const char *name, ckpt_err *err)
{
    const char *path = ckpt_path_join(map->arena, list->folder, name);
    ckpt_listing below;
    int rc = path ? ckpt_listing_read(&below, map, path, err) : ckpt_fail_memory(err);

    if (rc != CKPT_OK)
        return rc;
    below.read = list->read;
    rc = aro_files(map, &below, err);
    return rc == CKPT_OK ? aro_config(map, &below, "the folder", err) : rc;
}

/* Warn if DCP's index is missing, because another format's driver has then read the folder. */
static int aro_dcp(ckpt_map *map, const ckpt_listing *list, ckpt_err *err)
{
    if (ckpt_listing_has(list, ".metadata", false) ||
        !ckpt_listing_has(list, "__0_0.distcp", false))
        return CKPT_OK;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: .metadata is missing: without it the tensors of the .distcp files "
                         "here cannot be read; copy it",
                         list->folder);
}

/*
 * Check the folder of a step, which contains the checkpoint's own files, if the caller named the
 * run's folder.
 */
static int aro_step(ckpt_map *map, const ckpt_listing *list, ckpt_err *err)
{
    const char *path = map->files.n ? map->files.at[0].path : "", *slash = strrchr(path, '/');
    size_t n = strlen(list->folder);
    ckpt_listing below;

    if (!slash || !aro_begins(path, list->folder) || path + n >= slash || path[n] != '/' ||
        memchr(path + n + 1, '/', (size_t)(slash - path) - n - 1))
        return CKPT_OK;
    path = ckpt_arena_string(map->arena, path, (size_t)(slash - path));
    int rc = path ? ckpt_listing_read(&below, map, path, err) : ckpt_fail_memory(err);
    if (rc != CKPT_OK)
        return rc;
    below.read = list->read;
    return aro_files(map, &below, err);
}

int ckpt_around(ckpt_map *map, const ckpt_listing *list, ckpt_err *err)
{
    static const char sign[] = "generation_config.json", folder[] = "huggingface";
    aro_names s = {.list = list};

    for (size_t i = 0; i < list->n; i++)
        aro_name(&s, &list->entry[i]);
    int rc = aro_files(map, list, err);
    if (rc == CKPT_OK)
        rc = aro_step(map, list, err);
    if (rc == CKPT_OK)
        rc = aro_random(map, &s, err);
    if (rc == CKPT_OK)
        rc = aro_trainer(map, &s, err);
    if (rc == CKPT_OK)
        rc = aro_dcp(map, list, err);
    if (rc == CKPT_OK && ckpt_listing_has(list, sign, false))
        rc = aro_config(map, list, sign, err);
    if (rc == CKPT_OK && ckpt_listing_has(list, folder, true))
        rc = aro_below(map, list, folder, err);
    return rc;
}
