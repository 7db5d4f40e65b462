/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_onebit.c: 1-bit Adam on several ranks, each a thread: a run of DeepSpeed's class, the
 * exchange against a plain reference, one bit per element on the wire, failures.
 */
#include <pthread.h>

#include "engine/comm/comm.h"
#include "tests/unit/engine/help.h"
#include "tests/unit/unit.h"

enum { MAX_WORLD = 3, STEPS = 20 };

/* ---- ranks that are threads ---- */

typedef struct team {
    pthread_barrier_t all;
    const void *from[MAX_WORLD];
    uint64_t bytes;      /* that rank 0 handed over, all calls together */
    uint8_t first[4096]; /* the first signs it sent */
    uint64_t n_first;
} team;

typedef struct member {
    zt_comm comm;
    team *team;
} member;

static team *team_of(zt_comm *c)
{
    return ((member *)(void *)c)->team;
}

static void team_put(zt_comm *c, const void *from, uint64_t n_bytes)
{
    team *t = team_of(c);

    if (c->rank == 0)
        t->bytes += n_bytes;
    t->from[c->rank] = from;
    (void)pthread_barrier_wait(&t->all);
}

static int team_all_to_all(zt_comm *c, void *to, const void *from, uint64_t n_bytes, ckpt_err *err)
{
    team *t = team_of(c);
    uint64_t all = n_bytes * (uint64_t)c->world;

    (void)err;
    if (c->rank == 0 && t->n_first == 0 && all <= sizeof t->first) {
        memcpy(t->first, from, all);
        t->n_first = all;
    }
    team_put(c, from, all);
    for (int r = 0; r < c->world; r++)
        memcpy((char *)to + (uint64_t)r * n_bytes,
               (const char *)t->from[r] + (uint64_t)c->rank * n_bytes, n_bytes);
    (void)pthread_barrier_wait(&t->all);
    return CKPT_OK;
}

static int team_all_gather(zt_comm *c, void *to, const void *from, uint64_t n, ckpt_dtype dt,
                           ckpt_err *err)
{
    uint64_t n_bytes = n * (dt == CKPT_F32 ? 4 : 1);

    (void)err;
    team_put(c, from, n_bytes);
    for (int r = 0; r < c->world; r++)
        memcpy((char *)to + (uint64_t)r * n_bytes, team_of(c)->from[r], n_bytes);
    (void)pthread_barrier_wait(&team_of(c)->all);
    return CKPT_OK;
}

static const zt_comm_ops team_ops = {
    .name = "threads", .all_gather = team_all_gather, .all_to_all = team_all_to_all};

/* One rank's run over one tensor. */
typedef struct rank_run {
    member me;
    zt_optim o;
    zt_hyper h;
    uint64_t n;
    unsigned steps;
    const float *g; /* [steps, n]: its own, and averages while warm in `mean` */
    const float *mean;
    float *p, *m, *v;       /* [n] */
    float *p_seen, *m_seen; /* [steps, n] */
    int rc;
    ckpt_err err;
} rank_run;

static void *rank_main(void *arg)
{
    rank_run *r = arg;
    zt_device *d = NULL;
    zt_onebit *b = NULL;

    r->rc = zt_cpu_new(&d, 1, &r->err);
    r->rc = r->rc == CKPT_OK ? zt_onebit_new(&b, &r->me.comm, d, r->n, &r->err) : r->rc;
    for (unsigned k = 0; k < r->steps && r->rc == CKPT_OK; k++) {
        bool warm = zt_onebit_warm(&r->o, k + 1);
        zt_piece piece = {.n = r->n,
                          .p = r->p,
                          .state = {r->m, r->v},
                          .g = (warm ? r->mean : r->g) + k * r->n,
                          .g_dtype = CKPT_F32,
                          .g_scale = 1};

        r->rc = zt_onebit_update(b, &r->o, &r->h, k + 1, &piece, &r->err);
        memcpy(r->p_seen + k * r->n, r->p, r->n * sizeof *r->p);
        memcpy(r->m_seen + k * r->n, r->m, r->n * sizeof *r->m);
    }
    zt_onebit_free(b);
    zt_device_free(d);
    return NULL;
}

static float *room(uint64_t n)
{
    float *p = calloc(n + 1, sizeof *p);

    assert_non_null(p);
    return p;
}

static void team_run(team *t, rank_run *r, int world)
{
    pthread_t thread[MAX_WORLD];

    memset(t, 0, sizeof *t);
    assert_int_equal(pthread_barrier_init(&t->all, NULL, (unsigned)world), 0);
    for (int i = 0; i < world; i++) {
        r[i].me = (member){.comm = {.ops = &team_ops, .rank = i, .world = world}, .team = t};
        assert_int_equal(pthread_create(&thread[i], NULL, rank_main, &r[i]), 0);
    }
    for (int i = 0; i < world; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        if (r[i].rc != CKPT_OK)
            fail_msg("rank %d: %s", i, r[i].err.text);
    }
    (void)pthread_barrier_destroy(&t->all);
}

static void rank_room(rank_run *r, uint64_t n, unsigned steps)
{
    r->n = n;
    r->steps = steps;
    r->p = room(n);
    r->m = room(n);
    r->v = room(n);
    r->p_seen = room(n * steps);
    r->m_seen = room(n * steps);
}

static void rank_free(rank_run *r)
{
    free(r->p);
    free(r->m);
    free(r->v);
    free(r->p_seen);
    free(r->m_seen);
}

static void near(const char *what, const float *got, const float *want, uint64_t n, double bound)
{
    for (uint64_t i = 0; i < n; i++) {
        if (!(fabs((double)got[i] - (double)want[i]) <= bound))
            fail_msg("%s[%d]: %.9g instead of %.9g", what, (int)i, (double)got[i], (double)want[i]);
    }
}

/* ---- DeepSpeed's run ---- */

static void mean_of(float *out, const float *a, const float *b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = (a[i] + b[i]) / 2;
}

static void check_tensor(const gold_file *f, const char *tensor, const zt_optim *o)
{
    uint64_t n = 0, all = 0;
    float *p0 = gold_tensor(&f[0], "p0", tensor, &n), *mean, *g[2];
    rank_run r[2] = {{.o = *o, .h = zt_optim_hyper(o, false)},
                     {.o = *o, .h = zt_optim_hyper(o, false)}};
    team t;

    assert_non_null(p0);
    for (int i = 0; i < 2; i++) {
        g[i] = gold_tensor(&f[i], "g", tensor, &all);
        assert_true(g[i] && all == n * STEPS);
        rank_room(&r[i], n, STEPS);
        memcpy(r[i].p, p0, n * sizeof *p0);
    }
    mean = room(all);
    mean_of(mean, g[0], g[1], all);
    r[0].mean = r[1].mean = mean;
    r[0].g = g[0];
    r[1].g = g[1];
    team_run(&t, r, 2);
    for (int i = 0; i < 2; i++) {
        float *p = gold_tensor(&f[i], "p", tensor, &all),
              *m = gold_tensor(&f[i], "exp_avg", tensor, &all);
        float *v = gold_tensor(&f[i], "exp_avg_sq", tensor, &all);

        near(tensor, r[i].p_seen, p, n * STEPS, 1e-6);
        near(tensor, r[i].m_seen, m, n * STEPS, 1e-6);
        near(tensor, r[i].v, v, n, 1e-6);
        free(p);
        free(m);
        free(v);
        free(g[i]);
        rank_free(&r[i]);
    }
    free(p0);
    free(mean);
}

static void test_golden(void **state)
{
    static const char *const tensors[4] = {"w1", "b1", "w2", "s"};
    ckpt_arena *arena = ckpt_arena_new(0);
    const ckpt_value *json = gold_json(arena, "onebit_adam.json");
    ckpt_value *block = ckpt_value_new(arena, CKPT_V_DICT);
    ckpt_err err = {0};
    gold_file f[2];
    zt_optim o;

    (void)state;
    assert_true(
        ckpt_dict_add_cstr(arena, &block->as.map, "type", ckpt_value_cstr(arena, "OneBitAdam")));
    assert_true(
        ckpt_dict_add_cstr(arena, &block->as.map, "params", ckpt_value_get(json, "params")));
    assert_int_equal(zt_optim_parse(&o, block, false, &err), CKPT_OK);
    o.h.lr = gold_number(json, "lr");
    for (uint64_t k = 0; k < STEPS; k++)
        assert_int_equal(zt_onebit_warm(&o, (int64_t)k + 1),
                         gold_value(gold_list(json, "gradients_allreduced").at[k]) > 0);
    if (gold_open(&f[0], "onebit_adam_rank0.safetensors")) {
        assert_true(gold_open(&f[1], "onebit_adam_rank1.safetensors"));
        for (size_t i = 0; i < 4; i++)
            check_tensor(f, tensors[i], &o);
        gold_close(&f[0]);
        gold_close(&f[1]);
    }
    ckpt_arena_free(arena);
}

/* ---- the exchange against a plain reference ---- */

enum { LENGTH = 1000 };

static double sign_of(double x)
{
    return x < 0 ? -1 : 1;
}

/* The scale of x [n]; x becomes its error, sign [n] what was sent. */
static double squeeze(double *x, double *sign, uint64_t n)
{
    double sum = 0, scale;

    for (uint64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    scale = sqrt(sum / (double)n);
    for (uint64_t i = 0; i < n; i++) {
        sign[i] = scale * sign_of(x[i]);
        x[i] -= sign[i];
    }
    return scale;
}

typedef struct plain {
    double worker[MAX_WORLD][2048], sent[MAX_WORLD][2048], server[2048], back[2048];
} plain;

/* m [world][LENGTH] of all ranks -> their average as one bit tells. */
static void plain_exchange(plain *s, int world, uint64_t padded, const double m[][LENGTH],
                           double *out)
{
    uint64_t chunk = padded / (uint64_t)world;

    for (int r = 0; r < world; r++) {
        for (uint64_t i = 0; i < LENGTH; i++)
            s->worker[r][i] += m[r][i];
        (void)squeeze(s->worker[r], s->sent[r], padded);
    }
    for (uint64_t i = 0; i < padded; i++) {
        for (int r = 0; r < world; r++)
            s->server[i] += s->sent[r][i] / world;
    }
    for (int r = 0; r < world; r++)
        (void)squeeze(s->server + (uint64_t)r * chunk, s->back + (uint64_t)r * chunk, chunk);
    memcpy(out, s->back, LENGTH * sizeof *out);
}

static double value(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (double)(*seed >> 8) / 8388608.0 - 1;
}

/* Weights of the reference after each step, from the same gradients. */
static void plain_run(const rank_run *r, int world, uint64_t padded, float *p_seen)
{
    static plain s;
    static double m[MAX_WORLD][LENGTH], v[LENGTH], p[LENGTH], all[LENGTH];

    memset(&s, 0, sizeof s);
    memset(m, 0, sizeof m);
    memset(v, 0, sizeof v);
    memset(p, 0, sizeof p);
    for (unsigned k = 0; k < r->steps; k++) {
        bool warm = zt_onebit_warm(&r->o, k + 1);

        for (uint64_t i = 0; i < LENGTH && k > 0; i++) {
            double mean = (double)r->mean[k * LENGTH + i];

            for (int w = 0; w < world; w++) {
                double g = warm ? mean : (double)r[w].g[k * LENGTH + i];

                m[w][i] = r->h.beta1 * m[w][i] + (1 - r->h.beta1) * g;
            }
            v[i] = warm ? r->h.beta2 * v[i] + (1 - r->h.beta2) * mean * mean : v[i];
        }
        if (!warm) {
            plain_exchange(&s, world, padded, (const double(*)[LENGTH])m, all);
            for (int w = 0; w < world; w++)
                memcpy(m[w], all, sizeof all);
        }
        for (uint64_t i = 0; i < LENGTH; i++) {
            p[i] -= k == 0
                        ? 0
                        : r->h.lr * (m[0][i] / (sqrt(v[i]) + r->h.eps) + r->h.weight_decay * p[i]);
            p_seen[k * LENGTH + i] = (float)p[i];
        }
    }
}

/* world ranks with random gradients, away from 0 so that no sign is a matter of rounding. */
static void check_world(int world, uint64_t padded)
{
    enum { RUN = 9 };
    rank_run r[MAX_WORLD];
    float *g[MAX_WORLD], *mean = room(RUN * LENGTH), *want = room(RUN * LENGTH);
    uint32_t seed = 7;
    team t;

    memset(r, 0, sizeof r);
    for (int w = 0; w < world; w++) {
        g[w] = room(RUN * LENGTH);
        for (uint64_t i = 0; i < RUN * LENGTH; i++) {
            g[w][i] = (float)value(&seed);
            mean[i] += g[w][i] / (float)world;
        }
        r[w].o = (zt_optim){.type = ZT_OPT_ONEBIT_ADAM, .freeze_step = 4};
        r[w].h =
            (zt_hyper){.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1};
        r[w].g = g[w];
        r[w].mean = mean;
        rank_room(&r[w], LENGTH, RUN);
    }
    team_run(&t, r, world);
    plain_run(r, world, padded, want);
    for (int w = 0; w < world; w++) {
        near("weights", r[w].p_seen, want, RUN * LENGTH, 2e-5);
        assert_memory_equal(r[w].p_seen, r[0].p_seen, RUN * LENGTH * sizeof(float));
    }
    // 5 exchanges: all signs to the servers, a chunk of signs back, two scales
    assert_int_equal(t.bytes, 5 * (padded / 8 + padded / 8 / (uint64_t)world + 8));
    for (int w = 0; w < world; w++) {
        free(g[w]);
        rank_free(&r[w]);
    }
    free(mean);
    free(want);
}

static void test_reference(void **state)
{
    (void)state;
    check_world(1, 1000);
    check_world(2, 1008); // 2 * lcm(8, 2) = 16
    check_world(3, 1008); // 3 * lcm(8, 3) = 72
}

/* Bit i of the first message is the sign of the momentum's element i; padding counts as positive.
 */
static void test_packing(void **state)
{
    enum { FEW = 21, RUN = 4 };
    static float g[RUN * FEW];
    rank_run r = {.o = {.freeze_step = 3},
                  .h = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8},
                  .g = g,
                  .mean = g};
    uint32_t seed = 3;
    team t;

    (void)state;
    for (size_t i = 0; i < RUN * FEW; i++)
        g[i] = (float)value(&seed);
    rank_room(&r, FEW, RUN);
    team_run(&t, &r, 1);
    assert_int_equal(t.n_first, 3); // 24 bits
    for (size_t i = 0; i < FEW; i++) {
        float m = 0.9f * r.m_seen[2 * FEW + i] + 0.1f * g[3 * FEW + i];

        assert_int_equal((t.first[i / 8] >> (i % 8)) & 1, m >= 0);
        // and the result is one magnitude with that sign
        assert_true((r.m_seen[3 * FEW + i] > 0) == (m >= 0));
        assert_true(fabsf(r.m_seen[3 * FEW + i]) == fabsf(r.m_seen[3 * FEW]));
    }
    assert_int_equal(t.first[2] >> 5, 7);
    rank_free(&r);
}

static int broken(zt_comm *c, void *to, const void *from, uint64_t n_bytes, ckpt_err *err)
{
    (void)to;
    (void)from;
    (void)n_bytes;
    return ckpt_fail(err, CKPT_EIO, "rank %d is gone", c->rank + 1);
}

static void test_failures(void **state)
{
    const zt_comm_ops ops = {.name = "broken", .all_to_all = broken};
    zt_comm c = {.ops = &ops, .world = 2};
    zt_optim o = {.freeze_step = 2};
    zt_hyper h = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    float x[4][16] = {{0}};
    zt_piece piece = {
        .n = 16, .p = x[0], .state = {x[1], x[2]}, .g = x[3], .g_dtype = CKPT_F32, .g_scale = 1};
    zt_device *d = NULL;
    zt_onebit *b = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(zt_cpu_new(&d, 1, &err), CKPT_OK);
    // memory that the host cannot read: one more buffer, for the momentum
    d->host = false;
    for (uint64_t n = 0; n < 7; n++) {
        ckpt_alloc_fail_at(n);
        assert_int_equal(zt_onebit_new(&b, &c, d, 16, &err), CKPT_ELIMIT);
        assert_null(b);
    }
    ckpt_alloc_fail_at(UINT64_MAX);
    err = (ckpt_err){0};
    assert_int_equal(zt_onebit_new(&b, &c, d, 16, &err), CKPT_OK);
    zt_onebit_free(b);
    b = NULL;
    d->host = true;
    assert_int_equal(zt_onebit_new(&b, &c, d, UINT64_MAX / 4, &err), CKPT_ELIMIT);
    err = (ckpt_err){0};
    for (uint64_t n = 0; n < 6; n++) {
        ckpt_alloc_fail_at(n);
        assert_int_equal(zt_onebit_new(&b, &c, d, 16, &err), CKPT_ELIMIT);
        assert_null(b);
    }
    ckpt_alloc_fail_at(UINT64_MAX);
    err = (ckpt_err){0};
    assert_int_equal(zt_onebit_new(&b, &c, d, 16, &err), CKPT_OK);
    assert_int_equal(zt_onebit_update(b, &o, &h, 3, &piece, &err), CKPT_EIO);
    err = (ckpt_err){0};
    piece.n = 15;
    assert_int_equal(zt_onebit_update(b, &o, &h, 3, &piece, &err), CKPT_EUSAGE);
    zt_onebit_free(b);
    zt_onebit_free(NULL);
    zt_device_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_packing),
        cmocka_unit_test(test_failures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
