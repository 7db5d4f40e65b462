/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_map.c: print what a checkpoint holds, tensor by tensor, with the SHA-256 of the values an
 * export would write.
 *
 *     golden_map [-t TAG] [-r RULES] [-o] [-f] [-c] [-k] PATH
 *       -o  with optimizer state      -f  without frozen parameters      -c  collect
 * inconsistencies
 *       -k  slices of model-parallel ranks apart      -r  text of the rules that join them
 *
 * One line per tensor: sha256, dtype, role, owner or "-", shape, name; separated by tabs.  Lines
 * that begin with '#' are facts, findings, and the parameters of training states: "#param", the
 * state's number, group, lane, name.  Every tensor that has a lower precision copy is
 * rounded and compared with it: a difference is a line "#twin".  Exit status: 0, 1 on a twin's
 * difference, or the status of the error.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt_extra.h"
#include "libckpt/base/cast.h"
#include "libckpt/base/digest.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

typedef struct golden {
    ckpt_map *map;
    ckpt_reader *reader;
    ckpt_err err;
    uint64_t n_different; /* tensors that differ from their twin */
} golden;

/* All elements of a tensor as dtype; *n gets the bytes.  Freed by the caller. */
static void *golden_read(golden *g, const ckpt_tensor *t, ckpt_dtype d, uint64_t *n)
{
    void *buf = NULL;

    t = t->owner ? t->owner : t;
    if (!ckpt_dtype_bytes(d, t->n_elems, n) || !(buf = calloc(1, (size_t)*n + 16)))
        return NULL;
    if (t->n_elems && ckpt_reader_read(g->reader, t, 0, t->n_elems, d, buf, &g->err) != CKPT_OK) {
        free(buf);
        return NULL;
    }
    return buf;
}

/* Rounded masters and 16-bit copies as floats, element by element; what is not finite is not
 * compared. */
static uint64_t golden_count(const ckpt_tensor *t, const float *master, const uint8_t *rounded,
                             const uint8_t *copy)
{
    size_t item = ckpt_dtype_get(t->twin->dtype)->bits / 8;
    uint64_t n = 0;

    for (uint64_t i = 0; i < t->n_elems; i++)
        n += isfinite(master[i]) && memcmp(rounded + i * item, copy + i * item, item) != 0;
    return n;
}

static bool golden_twin(golden *g, const ckpt_tensor *t)
{
    uint64_t n = 0;
    void *master = golden_read(g, t, CKPT_F32, &n);
    void *rounded = master ? golden_read(g, t, t->twin->dtype, &n) : NULL;
    void *copy = rounded ? golden_read(g, t->twin, t->twin->dtype, &n) : NULL;
    uint64_t different = copy ? golden_count(t, master, rounded, copy) : 0;

    if (different) {
        printf("#twin\t%s\t%" PRIu64 " elements of %s are not their copies in %s\n", t->name,
               different, ckpt_dtype_name(t->dtype), ckpt_dtype_name(t->twin->dtype));
        g->n_different++;
    }
    free(master);
    free(rounded);
    bool fine = copy != NULL;
    free(copy);
    return fine;
}

static bool golden_tensor(golden *g, const ckpt_tensor *t)
{
    static const char *const role[] = {"weight", "frozen", "buffer", "state"};
    // expected.json holds optimizer state in float32, whatever it is kept in.
    ckpt_dtype d = t->export_dtype != CKPT_DTYPE_NONE ? t->export_dtype : t->dtype;
    d = t->role == CKPT_ROLE_STATE && ckpt_cast_find(CKPT_F32, d) ? CKPT_F32 : d;
    ckpt_sha256 *sha = NULL;
    uint8_t digest[32];
    char hex[65];
    uint64_t n = 0;
    void *bytes = golden_read(g, t, d, &n);
    bool fine = bytes && ckpt_sha256_new(&sha, &g->err) == CKPT_OK &&
                ckpt_sha256_add(sha, bytes, (size_t)n, &g->err) == CKPT_OK &&
                ckpt_sha256_end(sha, digest, &g->err) == CKPT_OK;

    if (fine) {
        ckpt_sha256_hex(digest, hex);
        printf("%s\t%s\t%s\t%s\t", hex, ckpt_dtype_name(d), role[t->role],
               t->owner ? t->owner->name : "-");
        for (uint32_t i = 0; i < t->ndim; i++)
            printf("%s%" PRIu64, i ? "," : "", t->shape[i]);
        printf("\t%s\n", t->name);
    }
    ckpt_sha256_free(sha);
    free(bytes);
    // A copy may have a copy in turn.
    for (; fine && t->twin; t = t->twin)
        fine = golden_twin(g, t);
    return fine;
}

/* The parameters of every training state, in order. */
static void golden_states(const golden *g)
{
    for (size_t s = 0; s < g->map->states.n; s++) {
        const ckpt_state *state = g->map->states.at[s];
        for (size_t i = 0; i < state->group.n; i++) {
            const ckpt_group *group = &state->group.at[i];
            for (size_t k = 0; k < group->n * group->n_lanes; k++)
                printf("#param\t%zu\t%zu\t%zu\t%s\n", s, i, k / group->n,
                       state->param.at[group->first + k]->name);
        }
    }
}

static void golden_notes(const golden *g)
{
    const char *key, *text;
    bool is_number;
    int severity, code;

    for (size_t i = 0; ckpt_map_fact_at(g->map, i, &key, &text, &is_number); i++)
        printf("#fact\t%s\t%s\n", key, text);
    for (size_t i = 0; ckpt_map_finding_at(g->map, i, &severity, &code, &text); i++)
        printf("#finding\t%d\t%d\t%s\n", severity, code, text);
}

int main(int argc, char **argv)
{
    golden g = {0};
    ckpt_open_opts opts = {0};
    int i = 1;

    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "-t") == 0 && i + 1 < argc)
            opts.tag = argv[++i];
        else if (strcmp(argv[i], "-r") == 0 && i + 1 < argc)
            opts.slice_rules = argv[++i];
        opts.keep_slices = opts.keep_slices || strcmp(argv[i], "-k") == 0;
        opts.with_optimizer = opts.with_optimizer || strcmp(argv[i], "-o") == 0;
        opts.skip_frozen = opts.skip_frozen || strcmp(argv[i], "-f") == 0;
        opts.collect = opts.collect || strcmp(argv[i], "-c") == 0;
    }
    if (i + 1 != argc)
        return 2;
    bool fine = ckpt_open(&g.map, argv[i], &opts, &g.err) == CKPT_OK &&
                ckpt_map_check(g.map, &g.err) == CKPT_OK &&
                ckpt_reader_new(&g.reader, g.map, &g.err) == CKPT_OK;
    if (fine) {
        golden_notes(&g);
        golden_states(&g);
    }
    for (size_t k = 0; fine && k < ckpt_map_tensor_count(g.map); k++)
        fine = golden_tensor(&g, ckpt_map_tensor_at(g.map, k));
    if (!fine)
        fprintf(stderr, "%s\n", g.err.text);
    ckpt_reader_free(g.reader);
    ckpt_map_free(g.map);
    return !fine ? ckpt_err_status(g.err.code) : g.n_different ? 1 : 0;
}
