/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pickle_torch.c: checks which tensors, storages and parameters of a pickle are accepted.
 */
#include "tests/unit/codec/help.h"
#include "tests/unit/unit.h"

/* A literal as bytes: its NULs count, its terminator does not. */
#define READ(text) help_read(text, sizeof(text) - 1, false)

/* Pieces of pickles. */
#define FLOATS(key, n)                                                                             \
    "((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0" key "X\x03\0\0\0cpuK" n "tQ"
#define HOOKS "ccollections\nOrderedDict\n)R"
#define V2    "ctorch._utils\n_rebuild_tensor_v2\n"

#define EXPECT(want, pickle)                                                                       \
    do {                                                                                           \
        help_pickle h_ = READ(pickle);                                                             \
        if (h_.rc != (want)) {                                                                     \
            fail_msg("line %d: %d, not %d: %s", __LINE__, h_.rc, (want), h_.err.text);             \
        }                                                                                          \
        help_free(&h_);                                                                            \
    } while (0)

static void tensor(void **state)
{
    help_pickle h = READ("\x80\x02" V2 FLOATS("0", "\x0C") "K\1K\2K\3\x86K\4K\1\x86\x88" HOOKS
                                                           "}X\3\0\0\0neg\x88stR.");
    const ckpt_tensor_value *t;

    (void)state;
    assert_int_equal(h.rc, CKPT_OK);
    assert_int_equal(h.p.root->kind, CKPT_V_TENSOR);
    t = h.p.root->as.tensor;
    assert_int_equal(t->dtype, CKPT_F32);
    assert_int_equal(t->ndim, 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->stride[0], 4);
    assert_int_equal(t->offset, 1);
    assert_int_equal(t->flags, CKPT_TENSOR_GRAD | CKPT_TENSOR_NEG);
    assert_int_equal(h.p.storages.n, 1);
    assert_ptr_equal(t->storage, h.p.storages.at[0]);
    assert_int_equal(t->storage->n_bytes, 48);
    assert_int_equal(t->storage->source, UINT32_MAX);
    assert_string_equal(t->storage->key.at, "0");
    help_free(&h);
}

static void tensor_bounds(void **state)
{
    (void)state;
    // 12 floats: the last element is number 11
    EXPECT(CKPT_OK, V2 FLOATS("0", "\x0C") "K\3K\3K\3\x86K\3K\1\x86\x89" HOOKS "tR.");
    EXPECT(CKPT_EFORMAT, V2 FLOATS("0", "\x0C") "K\4K\3K\3\x86K\3K\1\x86\x89" HOOKS "tR.");
    EXPECT(CKPT_EFORMAT, V2 FLOATS("0", "\x0C") "K\0K\3K\3\x86K\5K\1\x86\x89" HOOKS "tR.");
    EXPECT(CKPT_OK, V2 FLOATS("0", "\x0C") "K\x63K\0K\3\x86K\5K\1\x86\x89" HOOKS "tR."); // empty
    EXPECT(CKPT_OK, V2 FLOATS("0", "\x0C") "K\x0B))\x89" HOOKS "tR.");                   // 0 axes
    EXPECT(CKPT_EFORMAT, V2 FLOATS("0", "\x0C") "K\x0C))\x89" HOOKS "tR.");
    EXPECT(CKPT_EFORMAT, V2 FLOATS("0", "\x0C") "K\0K\3\x85)\x89" HOOKS "tR.");
    EXPECT(CKPT_EFORMAT, V2 FLOATS("0", "\x0C") "K\0K\3\x85I-1\n\x85\x89" HOOKS "tR.");
    EXPECT(CKPT_EFORMAT, V2 FLOATS("0", "\x0C") "I-1\nK\3\x85K\1\x85\x89" HOOKS "tR.");
    EXPECT(CKPT_EFORMAT, V2 FLOATS("0", "\x0C") "K\0\x88\x85K\1\x85\x89" HOOKS "tR.");
    EXPECT(CKPT_EFORMAT, V2 FLOATS("0", "\x0C") "K\0K\3\x85K\1\x85K\1" HOOKS "tR.");
    EXPECT(CKPT_EFORMAT, V2 FLOATS("0", "\x0C") "K\0K\3\x85K\1\x85\x89K\1tR.");
    EXPECT(CKPT_EFORMAT, V2 FLOATS("0", "\x0C") "K\0K\3\x85K\1\x85\x89tR.");
    EXPECT(CKPT_EFORMAT, V2 "(NK\0))\x89" HOOKS "tR.");
    EXPECT(CKPT_EUNSUPPORTED, V2 FLOATS("0", "\x0C") "K\0))\x89" HOOKS "K\1K\2stR.");
    EXPECT(CKPT_EUNSUPPORTED, V2 FLOATS("0", "\x0C") "K\0))\x89" HOOKS "}K\1K\2stR.");
    // overflow: 2^32 x 2^32 elements, one step each
    EXPECT(CKPT_EFORMAT,
           V2 FLOATS("0", "\x0C") "K\0L4294967296L\nL4294967296L\n\x86K\1K\1\x86\x89" HOOKS "tR.");
    EXPECT(CKPT_EFORMAT,
           V2 FLOATS("0", "\x0C") "K\0K\0L4294967296L\nL4294967296L\n\x87K\1K\1K\1"
                                  "\x87\x89" HOOKS "tR."); // an axis of 0 excuses nothing
    // views that repeat elements: by stride 0 up to 1 GiB, else not at all
    EXPECT(CKPT_OK, V2 FLOATS("0", "\x0C") "K\0L268435456L\n\x85K\0\x85\x89" HOOKS "tR.");
    EXPECT(CKPT_ELIMIT, V2 FLOATS("0", "\x0C") "K\0L268435457L\n\x85K\0\x85\x89" HOOKS "tR.");
    EXPECT(CKPT_ELIMIT, V2 FLOATS("0", "\x0C") "K\0L4611686018427387904L\nL4611686018427387904L\n"
                                               "\x86K\0K\0\x86\x89" HOOKS "tR.");
    EXPECT(CKPT_EFORMAT, V2 FLOATS("0", "\x0C") "K\0K\6K\6\x86K\1K\1\x86\x89" HOOKS "tR.");
}

#define PID(cls, key, n) "(X\x07\0\0\0storagec" cls "\nX" key "X\x03\0\0\0cpu" n "tQ"

static void storages(void **state)
{
    help_pickle h = READ("(" PID("torch\nFloatStorage", "\1\0\0\0\x30", "K\4")
                             PID("torch\nLongStorage", "\1\0\0\0\x31", "K\0")
                                 PID("torch\nFloatStorage", "\1\0\0\0\x31", "K\0")
                                     PID("torch.storage\nUntypedStorage", "\1\0\0\0\x32", "K\5")
                                         PID("torch\nFloatStorage", "\1\0\0\0\x30", "K\4") "l.");

    (void)state;
    assert_int_equal(h.rc, CKPT_OK);
    assert_int_equal(h.p.storages.n, 4); // empty ones of two dtypes may share a key
    assert_ptr_equal(h.p.root->as.seq.at[0]->as.storage, h.p.root->as.seq.at[4]->as.storage);
    assert_int_equal(h.p.storages.at[3]->dtype, CKPT_DTYPE_NONE);
    assert_int_equal(h.p.storages.at[3]->n_bytes, 5);
    help_free(&h);
    EXPECT(CKPT_EFORMAT, "}" PID("torch\nFloatStorage", "\1\0\0\0\x30", "K\4") "Ns."); // as a key
    EXPECT(CKPT_EFORMAT, PID("torch\nFooStorage", "\1\0\0\0\x30", "K\4") ".");
    EXPECT(CKPT_EFORMAT, PID("torch\nTensor", "\1\0\0\0\x30", "K\4") ".");
    EXPECT(CKPT_EUNSUPPORTED, PID("torch\nQInt8Storage", "\1\0\0\0\x30", "K\4") ".");
    EXPECT(CKPT_EUNSAFE, PID("torch\nFloatStorage", "\2\0\0\0..", "K\4") ".");
    EXPECT(CKPT_EUNSAFE, PID("torch\nFloatStorage", "\3\0\0\0a/b", "K\4") ".");
    EXPECT(CKPT_EFORMAT, PID("torch\nFloatStorage", "\0\0\0\0", "K\4") ".");
    EXPECT(CKPT_EFORMAT, PID("torch\nFloatStorage", "\1\0\0\0\x30", "I-4\n") ".");
    EXPECT(CKPT_EFORMAT, PID("torch\nFloatStorage", "\1\0\0\0\x30", "L2305843009213693952L\n") ".");
    EXPECT(CKPT_EFORMAT,
           PID("torch\nFloatStorage", "\1\0\0\0\x30", "L99999999999999999999L\n") ".");
    EXPECT(CKPT_EFORMAT, PID("torch\nFloatStorage", "\1\0\0\0\x30", "K\4N") ".");
    EXPECT(CKPT_EFORMAT, "(" PID("torch\nFloatStorage", "\1\0\0\0\x30", "K\4")
                             PID("torch\nIntStorage", "\1\0\0\0\x30", "K\4") "l.");
    EXPECT(CKPT_EFORMAT, "(" PID("torch\nFloatStorage", "\1\0\0\0\x30", "K\4")
                             PID("torch\nFloatStorage", "\1\0\0\0\x30", "K\5") "l.");
}

/* Six fields, and classes of modules, only in the legacy container. */
static void legacy_ids(void **state)
{
    static const char with_view[] = PID("torch\nFloatStorage", "\1\0\0\0\x30", "K\4N") ".";
    static const char real_view[] =
        PID("torch\nFloatStorage", "\1\0\0\0\x30", "K\4X\1\0\0\0vK\0K\1\x87") ".";
    static const char beyond[] =
        PID("torch\nFloatStorage", "\1\0\0\0\x30", "K\4X\1\0\0\0vK\3K\2\x87") ".";
    static const char module[] = "(X\6\0\0\0modulecmine\nNet\nX\1\0\0\0fX\1\0\0\0stQ)\x81.";
    help_pickle h = help_read(with_view, sizeof with_view - 1, true);

    (void)state;
    assert_int_equal(h.rc, CKPT_OK);
    help_free(&h);
    h = help_read(real_view, sizeof real_view - 1, true);
    assert_int_equal(h.rc, CKPT_OK);
    help_free(&h);
    h = help_read(beyond, sizeof beyond - 1, true);
    assert_int_equal(h.rc, CKPT_EFORMAT);
    help_free(&h);
    h = help_read(module, sizeof module - 1, true);
    assert_int_equal(h.rc, CKPT_OK);
    assert_int_equal(h.p.root->kind, CKPT_V_OBJECT);
    assert_int_equal(h.p.n_objects, 1);
    help_free(&h);
    h = help_read(module, sizeof module - 1, false);
    assert_int_equal(h.rc, CKPT_EFORMAT);
    help_free(&h);
}

/* Files of 2017: a tensor in a part of a storage, (key, offset, count) of four elements. */
static void legacy_views(void **state)
{
#define VIEW(at, count, first, n)                                                                  \
    "ctorch._utils\n_rebuild_tensor\n(" PID("torch\nFloatStorage", "\1\0\0\0\x30",                 \
                                            "K\4X\1\0\0\0vK" at "K" count "\x87") "K" first "K" n  \
                                                                                  "\x85K\1\x85tR."
    static const char inside[] = VIEW("\1", "\2", "\0", "\2");
    static const char last[] = VIEW("\1", "\3", "\2", "\1");
    static const char outside[] = VIEW("\1", "\2", "\1", "\2");
    help_pickle h = help_read(inside, sizeof inside - 1, true);

    (void)state;
    assert_int_equal(h.rc, CKPT_OK);
    assert_int_equal(h.p.root->as.tensor->offset, 1);
    assert_int_equal(h.p.root->as.tensor->storage->n_elems, 4);
    help_free(&h);
    h = help_read(last, sizeof last - 1, true);
    assert_int_equal(h.rc, CKPT_OK);
    assert_int_equal(h.p.root->as.tensor->offset, 3);
    help_free(&h);
    h = help_read(outside, sizeof outside - 1, true);
    assert_int_equal(h.rc, CKPT_EFORMAT);
    help_free(&h);
#undef VIEW
}

static void float4(void **state)
{
#define V3                                                                                         \
    "ctorch._utils\n_rebuild_tensor_v3\n(" PID("torch.storage\nUntypedStorage", "\1\0\0\0\x30",    \
                                               "K\x0C")
    help_pickle h = READ(V3 "K\3K\3K\3\x86K\3K\1\x86\x89" HOOKS "ctorch\nfloat4_e2m1fn_x2\ntR.");
    const ckpt_tensor_value *t;

    (void)state;
    assert_int_equal(h.rc, CKPT_OK);
    t = h.p.root->as.tensor;
    assert_int_equal(t->dtype, CKPT_F4);
    assert_int_equal(t->shape[0], 3);
    assert_int_equal(t->shape[1], 6);
    assert_int_equal(t->stride[0], 6);
    assert_int_equal(t->stride[1], 1);
    assert_int_equal(t->offset, 6);
    help_free(&h);
    EXPECT(CKPT_EUNSUPPORTED,
           V3 "K\0K\3K\3\x86K\1K\3\x86\x89" HOOKS "ctorch\nfloat4_e2m1fn_x2\ntR.");
    EXPECT(CKPT_EUNSUPPORTED, V3 "K\0))\x89" HOOKS "ctorch\nfloat4_e2m1fn_x2\ntR.");
    EXPECT(CKPT_EFORMAT, V3 "K\4K\3K\3\x86K\3K\1\x86\x89" HOOKS "ctorch\nfloat4_e2m1fn_x2\ntR.");
    EXPECT(CKPT_EUNSUPPORTED, V3 "K\0))\x89" HOOKS "ctorch\nbcomplex32\ntR.");
    EXPECT(CKPT_EFORMAT, V3 "K\0))\x89" HOOKS "NtR.");
    EXPECT(CKPT_OK, V3 "K\5K\1\x85K\1\x85\x89" HOOKS "ctorch\nuint16\ntR."); // element 5 of 6
    EXPECT(CKPT_EFORMAT, V3 "K\6K\1\x85K\1\x85\x89" HOOKS "ctorch\nuint16\ntR.");
    EXPECT(CKPT_EFORMAT, V2
           "(" PID("torch.storage\nUntypedStorage", "\1\0\0\0\x30", "K\4") "K\0))\x89" HOOKS "tR.");
}

static void parameters(void **state)
{
#define INNER V2 FLOATS("0", "\4") "K\0K\4\x85K\1\x85\x89" HOOKS "tR"
    help_pickle h = READ(
        "(ctorch._utils\n_rebuild_parameter\n" INNER "\x88" HOOKS "\x87R"
        "ctorch._utils\n_rebuild_parameter_with_state\n(" INNER "\x89" HOOKS "}X\1\0\0\0aK\1stR"
        "ctorch._tensor\n_rebuild_from_type_v2\n(" V2 "ctorch\nTensor\n" FLOATS(
            "0", "\4") "K\0K\4\x85K\1\x85\x89" HOOKS "t}X\5\0\0\0ds_idK\1stR"
                       "ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\n"
                       "K\3\x85K\1\x85\x89tRl.");
    ckpt_value **v;

    (void)state;
    assert_int_equal(h.rc, CKPT_OK);
    v = h.p.root->as.seq.at;
    assert_int_equal(v[0]->as.tensor->flags, CKPT_TENSOR_PARAMETER | CKPT_TENSOR_GRAD);
    assert_int_equal(v[1]->as.tensor->flags, CKPT_TENSOR_PARAMETER);
    assert_int_equal(ckpt_value_get(v[1]->as.tensor->state, "a")->as.i, 1);
    assert_int_equal(v[2]->as.tensor->flags, 0);
    assert_true(ckpt_value_is_global(v[2]->as.tensor->type, "torch", "Tensor"));
    assert_int_equal(ckpt_value_get(v[2]->as.tensor->state, "ds_id")->as.i, 1);
    assert_null(v[3]->as.tensor->storage);
    assert_int_equal(v[3]->as.tensor->dtype, CKPT_F32);
    assert_int_equal(h.p.storages.n, 1);
    help_free(&h);
    EXPECT(CKPT_EFORMAT, "ctorch._utils\n_rebuild_parameter\nN\x88" HOOKS "\x87R.");
    EXPECT(CKPT_EUNSUPPORTED, "ctorch._utils\n_rebuild_qtensor\n)R.");
    EXPECT(CKPT_EFORMAT, INNER "}K\1K\2sb."); // tensors take no state this way
    EXPECT(CKPT_EFORMAT, INNER "(K\1K\2u.");
}

static void special_tensors(void **state)
{
    help_pickle h =
        READ("(ctorch._utils\n_rebuild_sparse_tensor\nctorch.serialization\n_get_layout\n"
             "X\x10\0\0\0torch.sparse_coo\x85R(" INNER "t\x86R"
             "ctorch._utils\n_rebuild_nested_tensor\n(" INNER "tRl.");

    (void)state;
    assert_int_equal(h.rc, CKPT_OK);
    assert_int_equal(h.p.n_special, 2);
    assert_int_equal(h.p.n_objects, 0);
    assert_int_equal(h.p.root->as.seq.at[0]->kind, CKPT_V_OBJECT);
    help_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor),     cmocka_unit_test(tensor_bounds),   cmocka_unit_test(storages),
        cmocka_unit_test(legacy_ids), cmocka_unit_test(legacy_views),    cmocka_unit_test(float4),
        cmocka_unit_test(parameters), cmocka_unit_test(special_tensors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
