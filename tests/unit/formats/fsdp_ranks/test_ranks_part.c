/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ranks_part.c: the box of a whole tensor that a rank's DTensor or ShardedTensor describes.
 *
 * The oracle deals elements out like torch.chunk, with a list of indexes for each axis; it shares no
 * code with the reader.
 */
#include "formats/fsdp_ranks/ranks.h"
#include "tests/unit/unit.h"

enum { MAX_MESH = 3, MAX_AXES = 3, MAX_ROWS = 12, MAX_ELEMS = MAX_ROWS * MAX_ROWS * MAX_ROWS };

static ckpt_arena *arena;
static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

static int make_arena(void **state)
{
    (void)state;
    seed = 1;
    arena = ckpt_arena_new(0);
    return arena ? 0 : -1;
}

static int free_arena(void **state)
{
    (void)state;
    ckpt_arena_free(arena);
    return 0;
}

/* ---- values as a pickle has them ---- */

static ckpt_value *new_value(ckpt_value_kind kind)
{
    ckpt_value *v = ckpt_value_new(arena, kind);

    assert_non_null(v);
    return v;
}

static ckpt_value *global(const char *module, const char *name)
{
    ckpt_value *v = new_value(CKPT_V_GLOBAL);

    v->as.global = (ckpt_global){{module, strlen(module)}, {name, strlen(name)}};
    return v;
}

static ckpt_value *list(ckpt_value_kind kind, const uint64_t *n, uint32_t count)
{
    ckpt_value *v = new_value(kind);

    for (uint32_t k = 0; k < count; k++)
        assert_true(ckpt_seq_add(arena, &v->as.seq, ckpt_value_int(arena, (int64_t)n[k])));
    return v;
}

static void put(ckpt_value *dict, const char *key, ckpt_value *v)
{
    assert_true(ckpt_dict_add_cstr(arena, &dict->as.map, key, v));
}

static void add(ckpt_value *seq, ckpt_value *v)
{
    assert_true(ckpt_seq_add(arena, &seq->as.seq, v));
}

static ckpt_value *object(ckpt_value *cls, ckpt_value *args, ckpt_value *state)
{
    ckpt_value *v = new_value(CKPT_V_OBJECT);

    v->as.object = ckpt_arena_alloc(arena, sizeof *v->as.object);
    *v->as.object =
        (ckpt_object){.cls = cls, .args = args ? args : new_value(CKPT_V_TUPLE), .state = state};
    return v;
}

static ckpt_value *tensor(ckpt_dtype dtype, const uint64_t *shape, uint32_t ndim)
{
    ckpt_value *v = new_value(CKPT_V_TENSOR);

    v->as.tensor = ckpt_arena_alloc(arena, sizeof *v->as.tensor);
    *v->as.tensor = (ckpt_tensor_value){
        .dtype = dtype, .ndim = ndim, .shape = ckpt_arena_copy(arena, shape, ndim * sizeof *shape)};
    return v;
}

/* ---- a tensor spread over a mesh ---- */

typedef struct spread {
    uint32_t n_mesh, ndim;
    uint64_t mesh[MAX_MESH], shape[MAX_AXES];
    int axis[MAX_MESH];        /* of the tensor, which the mesh axis cuts; -1: copies */
    uint64_t factor[MAX_MESH]; /* of a _StridedShard; 0: a Shard */
    bool negative;             /* axes are counted from the end */
} spread;

static uint64_t ranks_of(const spread *s)
{
    uint64_t n = 1;

    for (uint32_t k = 0; k < s->n_mesh; k++)
        n *= s->mesh[k];
    return n;
}

static ckpt_value *placement(const spread *s, uint32_t k)
{
    ckpt_value *state = new_value(CKPT_V_DICT);
    const char *name = s->axis[k] < 0 ? "Replicate" : s->factor[k] ? "_StridedShard" : "Shard";

    if (s->axis[k] >= 0)
        put(state, "dim", ckpt_value_int(arena, s->axis[k] - (s->negative ? (int64_t)s->ndim : 0)));
    if (s->factor[k])
        put(state, "split_factor", ckpt_value_int(arena, (int64_t)s->factor[k]));
    return object(global("torch.distributed.tensor.placement_types", name), NULL, state);
}

static ckpt_value *mesh_of(const spread *s, uint64_t rank)
{
    ckpt_value *state = new_value(CKPT_V_DICT);
    uint64_t at[MAX_MESH];

    for (uint32_t k = s->n_mesh; k-- > 0; rank /= s->mesh[k])
        at[k] = rank % s->mesh[k];
    put(state, "device_type", ckpt_value_cstr(arena, "cuda"));
    put(state, "mesh", tensor(CKPT_I64, s->mesh, s->n_mesh));
    put(state, "_coordinate_on_dim", list(CKPT_V_LIST, at, s->n_mesh));
    return object(global("torch.distributed.device_mesh", "DeviceMesh"), NULL, state);
}

static ckpt_value *rebuilt(const char *cls, const uint64_t *shape, uint32_t ndim, ckpt_value *state)
{
    ckpt_value *outer = new_value(CKPT_V_TUPLE), *inner = new_value(CKPT_V_TUPLE),
               *dtype = new_value(CKPT_V_DTYPE), *type = global("torch.distributed.tensor", cls);

    dtype->as.dtype = CKPT_BF16;
    add(inner, type);
    add(inner, dtype);
    add(inner, list(CKPT_V_SIZE, shape, ndim));
    add(outer, global("torch._utils", "_rebuild_wrapper_subclass"));
    add(outer, type);
    add(outer, inner);
    add(outer, state);
    return object(global("torch._tensor", "_rebuild_from_type_v2"), outer, NULL);
}

/* The DTensor of a rank, whose own tensor has the shape `local`. */
static ckpt_value *dtensor(const spread *s, uint64_t rank, const uint64_t *local)
{
    ckpt_value *spec = new_value(CKPT_V_DICT), *state = new_value(CKPT_V_DICT),
               *placements = new_value(CKPT_V_TUPLE);

    for (uint32_t k = 0; k < s->n_mesh; k++)
        add(placements, placement(s, k));
    put(spec, "mesh", mesh_of(s, rank));
    put(spec, "placements", placements);
    put(state, "_spec",
        object(global("torch.distributed.tensor._dtensor_spec", "DTensorSpec"), NULL, spec));
    put(state, "_local_tensor", tensor(CKPT_BF16, local, s->ndim));
    return rebuilt("DTensor", s->shape, s->ndim, state);
}

/* ---- the oracle ---- */

/* Indexes along one axis. */
typedef struct rows {
    uint64_t at[MAX_ROWS], n;
} rows;

/* Keep chunk `which` of torch.chunk(rows, parts). */
static void chunk(rows *r, uint64_t parts, uint64_t which)
{
    uint64_t size = 1, n = 0;

    while (size * parts < r->n) // the smallest size with which `parts` chunks suffice
        size++;
    for (uint64_t i = 0; i < r->n; i++) {
        if (i / size == which)
            r->at[n++] = r->at[i];
    }
    r->n = n;
}

/* What a rank has of each axis.  Mesh axes cut in their order, strided ones after later ones. */
static void deal(const spread *s, uint64_t rank, rows *out)
{
    uint64_t at[MAX_MESH];

    for (uint32_t k = s->n_mesh; k-- > 0; rank /= s->mesh[k])
        at[k] = rank % s->mesh[k];
    for (uint32_t d = 0; d < s->ndim; d++) {
        out[d].n = s->shape[d];
        for (uint64_t i = 0; i < s->shape[d]; i++)
            out[d].at[i] = i;
    }
    for (unsigned strided = 0; strided < 2; strided++) {
        for (uint32_t k = 0; k < s->n_mesh; k++) {
            if (s->axis[k] >= 0 && (s->factor[k] > 1) == strided)
                chunk(&out[s->axis[k]], s->mesh[k], at[k]);
        }
    }
}

static int read_part(ckpt_ranks_part *out, const ckpt_value *v, uint32_t rank, uint32_t world,
                     ckpt_err *err)
{
    const ckpt_ranks_where where = {"model.pt", "w", rank, world};

    *out = (ckpt_ranks_part){0};
    *err = (ckpt_err){0};
    return ckpt_ranks_part_read(out, v, &where, err);
}

/* Read every rank's part, and compare it with the oracle; all ranks together have everything. */
static void check(const spread *s)
{
    static unsigned seen[MAX_ELEMS];
    uint64_t world = ranks_of(s), n = 1, copies = 1;

    memset(seen, 0, sizeof seen);
    for (uint32_t d = 0; d < s->ndim; d++)
        n *= s->shape[d];
    for (uint32_t k = 0; k < s->n_mesh; k++)
        copies *= s->axis[k] < 0 ? s->mesh[k] : 1;
    for (uint64_t rank = 0; rank < world; rank++) {
        rows has[MAX_AXES];
        uint64_t local[MAX_AXES], mine = 1;
        ckpt_ranks_part part;
        ckpt_err err;

        deal(s, rank, has);
        for (uint32_t d = 0; d < s->ndim; d++)
            mine *= local[d] = has[d].n;
        if (read_part(&part, dtensor(s, rank, local), (uint32_t)rank, (uint32_t)world, &err) != 0)
            fail_msg("%s", err.text);
        assert_int_equal(part.kind, CKPT_RANKS_DTENSOR);
        assert_int_equal(part.dtype, CKPT_BF16);
        assert_int_equal(part.copies, copies);
        assert_string_equal(part.device, "cuda");
        assert_int_equal(part.box.n, mine > 0);
        for (uint32_t d = 0; mine > 0 && d < s->ndim; d++) {
            assert_int_equal(part.box.at[0].start[d], has[d].at[0]);
            assert_int_equal(part.box.at[0].count[d], has[d].n);
        }
        for (uint64_t i = 0; i < mine; i++) {
            uint64_t rest = i, flat = 0, by = 1;

            for (uint32_t d = s->ndim; d-- > 0; by *= s->shape[d], rest /= has[d].n ? has[d].n : 1)
                flat += by * has[d].at[rest % has[d].n];
            seen[flat]++;
        }
        ckpt_vec_free(&part.box);
    }
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(seen[i], copies);
}

/* ---- tests ---- */

static void random_meshes(void **state)
{
    (void)state;
    for (unsigned turn = 0; turn < 400; turn++) {
        spread s = {.n_mesh = 1 + (uint32_t)draw(MAX_MESH),
                    .ndim = 1 + (uint32_t)draw(MAX_AXES),
                    .negative = draw(2)};

        for (uint32_t d = 0; d < s.ndim; d++)
            s.shape[d] = draw(MAX_ROWS + 1);
        for (uint32_t k = 0; k < s.n_mesh; k++) {
            s.mesh[k] = 1 + draw(4);
            s.axis[k] = (int)draw(s.ndim + 1) - 1;
        }
        check(&s);
    }
}

/* FSDP2 over tensor parallelism: the later axis of the mesh cuts first. */
static void strided_shards(void **state)
{
    (void)state;
    for (uint64_t rows_n = 0; rows_n <= MAX_ROWS; rows_n++) {
        for (uint64_t dp = 1; dp <= 4; dp++) {
            for (uint64_t tp = 2; tp <= 3; tp++)
                check(&(spread){.n_mesh = 2,
                                .ndim = 2,
                                .mesh = {dp, tp},
                                .shape = {rows_n, 2},
                                .axis = {0, 0},
                                .factor = {tp, 0}});
        }
    }
}

static void refuses_dtensors(void **state)
{
    const spread s = {.n_mesh = 2, .ndim = 2, .mesh = {2, 2}, .shape = {4, 4}, .axis = {0, 1}};
    const uint64_t good[] = {2, 2}, bad[] = {2, 3};
    spread other = s;
    ckpt_ranks_part part;
    ckpt_err err;

    (void)state;
    assert_int_equal(read_part(&part, dtensor(&s, 3, good), 3, 4, &err), CKPT_OK);
    assert_int_equal(part.box.at[0].start[0] * 10 + part.box.at[0].start[1], 22);
    ckpt_vec_free(&part.box);
    // the own tensor has another shape; another rank's coordinates give the same shape
    assert_int_equal(read_part(&part, dtensor(&s, 3, bad), 3, 4, &err), CKPT_EMISMATCH);
    // fewer files than ranks of the mesh
    assert_int_equal(read_part(&part, dtensor(&s, 1, good), 1, 2, &err), CKPT_EMISMATCH);
    // axes that the tensor lacks
    other.axis[0] = 2;
    assert_int_equal(read_part(&part, dtensor(&other, 3, good), 3, 4, &err), CKPT_EFORMAT);
    other.axis[0] = 0;
    other.factor[0] = 3; // no axis of the mesh has this size
    assert_int_equal(read_part(&part, dtensor(&other, 3, good), 3, 4, &err), CKPT_EUNSUPPORTED);
    other = s;
    other.mesh[0] = other.mesh[1] = UINT64_C(1) << 62; // the product overflows
    assert_int_equal(read_part(&part, dtensor(&other, 0, good), 0, 4, &err), CKPT_EMISMATCH);
    assert_int_equal(part.box.n, 0);
}

/* A member of the first mesh object below a DTensor, or of its spec. */
static ckpt_value *spec_of(ckpt_value *dt)
{
    return ckpt_value_get(dt->as.object->args->as.seq.at[3], "_spec")->as.object->state;
}

static void refuses_missing(void **state)
{
    static const char *const of_spec[] = {"mesh", "placements"};
    static const char *const of_mesh[] = {"mesh", "_coordinate_on_dim"};
    const spread s = {.n_mesh = 1, .ndim = 1, .mesh = {2}, .shape = {4}, .axis = {0}};
    const uint64_t local[] = {2};
    ckpt_ranks_part part;
    ckpt_err err;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        ckpt_value *dt = dtensor(&s, 1, local);

        ckpt_value_get(spec_of(dt), of_spec[i])->kind = CKPT_V_NONE;
        assert_int_equal(read_part(&part, dt, 1, 2, &err), CKPT_EFORMAT);
        dt = dtensor(&s, 1, local);
        ckpt_value_get(ckpt_value_get(spec_of(dt), "mesh")->as.object->state, of_mesh[i])->kind =
            CKPT_V_NONE;
        assert_int_equal(read_part(&part, dt, 1, 2, &err), CKPT_EFORMAT);
    }
    // a placement of another kind: the sum is not in the files
    ckpt_value *dt = dtensor(&s, 1, local);
    ckpt_value_get(spec_of(dt), "placements")->as.seq.at[0] =
        object(global("torch.distributed.tensor.placement_types", "Partial"), NULL, NULL);
    assert_int_equal(read_part(&part, dt, 1, 2, &err), CKPT_EUNSUPPORTED);
    // coordinates outside the mesh, or negative
    dt = dtensor(&s, 1, local);
    ckpt_value *at =
        ckpt_value_get(ckpt_value_get(spec_of(dt), "mesh")->as.object->state, "_coordinate_on_dim");
    at->as.seq.at[0] = ckpt_value_int(arena, 2);
    assert_int_equal(read_part(&part, dt, 1, 2, &err), CKPT_EFORMAT);
    at->as.seq.at[0] = ckpt_value_int(arena, -1);
    assert_int_equal(read_part(&part, dt, 1, 2, &err), CKPT_EFORMAT);
    // not a tensor at all
    assert_int_equal(read_part(&part, ckpt_value_int(arena, 1), 0, 1, &err), CKPT_EUNSUPPORTED);
    assert_false(ckpt_ranks_is_part(ckpt_value_int(arena, 1)));
    assert_true(ckpt_ranks_is_part(dt));
    assert_int_equal(part.box.n, 0);
}

/* ---- ShardedTensor ---- */

static ckpt_value *shard(const uint64_t *start, const uint64_t *count, uint32_t ndim)
{
    ckpt_value *state = new_value(CKPT_V_DICT), *m = new_value(CKPT_V_DICT);

    put(m, "shard_offsets", list(CKPT_V_LIST, start, ndim));
    put(m, "shard_sizes", list(CKPT_V_LIST, count, ndim));
    put(state, "metadata",
        object(global("torch.distributed._shard.metadata", "ShardMetadata"), NULL, m));
    put(state, "tensor", tensor(CKPT_BF16, count, ndim));
    return object(global("torch.distributed._shard.sharded_tensor.shard", "Shard"), NULL, state);
}

static int read_shards(ckpt_ranks_part *part, const uint64_t start[][2], const uint64_t count[][2],
                       unsigned n)
{
    const uint64_t shape[] = {6, 4};
    ckpt_value *state = new_value(CKPT_V_TUPLE), *shards = new_value(CKPT_V_LIST);
    ckpt_err err;

    for (unsigned i = 0; i < n; i++)
        add(shards, shard(start[i], count[i], 2));
    add(state, shards);
    add(state, new_value(CKPT_V_NONE));
    return read_part(part, rebuilt("ShardedTensor", shape, 2, state), 0, 3, &err);
}

static void sharded_tensors(void **state)
{
    const uint64_t start[][2] = {{0, 0}, {4, 1}, {6, 0}}, count[][2] = {{2, 4}, {2, 3}, {0, 4}};
    const uint64_t beyond[][2] = {{5, 0}}, huge[][2] = {{(uint64_t)INT64_MAX, 0}};
    ckpt_ranks_part part;

    (void)state;
    assert_int_equal(read_shards(&part, start, count, 3), CKPT_OK);
    assert_int_equal(part.kind, CKPT_RANKS_SHARDED);
    assert_int_equal(part.copies, 1);
    assert_int_equal(part.box.n, 2); // the empty one is left out
    assert_int_equal(part.box.at[1].start[0], 4);
    assert_int_equal(part.box.at[1].count[1], 3);
    ckpt_vec_free(&part.box);
    assert_int_equal(read_shards(&part, start, count, 0), CKPT_OK);
    assert_int_equal(part.box.n, 0);
    assert_int_equal(read_shards(&part, beyond, count, 1), CKPT_EMISMATCH);
    assert_int_equal(read_shards(&part, huge, count, 1), CKPT_EMISMATCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_meshes),    cmocka_unit_test(strided_shards),
        cmocka_unit_test(refuses_dtensors), cmocka_unit_test(refuses_missing),
        cmocka_unit_test(sharded_tensors),
    };

    return cmocka_run_group_tests(tests, make_arena, free_arena);
}
