/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pickle_write.c: the pickler against bytes that CPython's pickler wrote, and round trips.
 */
#include "tests/unit/codec/help.h"
#include "tests/unit/unit.h"

/* Read a pickle, write it, and compare with the same bytes or with others. */
static void writes_as(const void *from, size_t n_from, const void *to, size_t n_to)
{
    help_pickle h = help_read(from, n_from, false);
    ckpt_bytes b = {0};

    if (h.rc != CKPT_OK)
        fail_msg("not read: %s", h.err.text);
    assert_int_equal(ckpt_pickle_write(&b, h.p.root, NULL), CKPT_OK);
    assert_int_equal(b.n, n_to);
    assert_memory_equal(b.at, to, n_to);
    ckpt_vec_free(&b);
    help_free(&h);
}

#define SAME(text)     writes_as(text, sizeof(text) - 1, text, sizeof(text) - 1)
#define AS(text, want) writes_as(text, sizeof(text) - 1, want, sizeof(want) - 1)

static void scalars(void **state)
{
    (void)state;
    SAME("\x80\x02N.");
    SAME("\x80\x02\x88.");
    SAME("\x80\x02K\xFF.");
    SAME("\x80\x02M\0\1.");
    SAME("\x80\x02M\xFF\xFF.");
    SAME("\x80\x02J\0\0\1\0.");
    SAME("\x80\x02J\xFF\xFF\xFF\xFF.");
    SAME("\x80\x02J\0\0\0\x80.");
    SAME("\x80\x02\x8A\5\0\0\0\x80\0.");
    SAME("\x80\x02\x8A\5\xFF\xFF\xFF\x7F\xFF.");
    SAME("\x80\x02\x8A\x08\0\0\0\0\0\0\0\x80.");
    SAME("\x80\x02\x8A\x09\0\0\0\0\0\0\0\x80\0.");
    SAME("\x80\x02\x8A\x09\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F\xFF.");
    AS("I-5\n.", "\x80\x02J\xFB\xFF\xFF\xFF.");
    SAME("\x80\x02G\x3F\xF8\0\0\0\0\0\0.");
    SAME("\x80\x02G\xFF\xF8\0\0\0\0\0\1."); // a NaN keeps its bits
    SAME("\x80\x02X\3\0\0\0a\0bq\0.");
    SAME("\x80\x02"
         "ctorch\nbfloat16\nq\0.");
    SAME("\x80\x02"
         "c__builtin__\nbytes\nq\0)Rq\1.");
    SAME("\x80\x02"
         "c_codecs\nencode\nq\0X\3\0\0\0a\xC3\xBFq\1X\6\0\0\0latin1q\2\x86q\3Rq\4.");
    AS("\x80\x04"
       "C\2a\xFF.",
       "\x80\x02"
       "c_codecs\nencode\nq\0X\3\0\0\0a\xC3\xBFq\1X\6\0\0\0latin1q\2\x86q\3Rq\4.");
    SAME("\x80\x02"
         "c__builtin__\nbytearray\nq\0X\1\0\0\0zq\1X\7\0\0\0latin-1q\2\x86q\3Rq\4.");
    SAME("\x80\x02"
         "c__builtin__\nbytearray\nq\0)Rq\1.");
    SAME("\x80\x02"
         "c__builtin__\nxrange\nq\0K\1K\2K\3\x87q\1Rq\2.");
}

static void containers(void **state)
{
    (void)state;
    SAME("\x80\x02).");
    SAME("\x80\x02K\1\x85q\0.");
    SAME("\x80\x02(K\1K\2K\3K\4tq\0.");
    SAME("\x80\x02]q\0.");
    SAME("\x80\x02]q\0K\1a.");
    SAME("\x80\x02]q\0(K\1K\2e.");
    SAME("\x80\x02}q\0.");
    SAME("\x80\x02}q\0K\1Ns.");
    SAME("\x80\x02}q\0(K\1NK\2Nu.");
    SAME("\x80\x02"
         "ccollections\nOrderedDict\nq\0)Rq\1.");
    SAME("\x80\x02"
         "ccollections\nOrderedDict\nq\0)Rq\1K\1Ns.");
    SAME("\x80\x02"
         "ccollections\nOrderedDict\nq\0)Rq\1(K\1NK\2Nu}q\2X\1\0\0\0mq\3Nsb.");
    SAME("\x80\x02"
         "ctorch\nSize\nq\0K\2K\3\x86q\1\x85q\2Rq\3.");
    SAME("\x80\x02"
         "ctorch\nSize\nq\0)\x85q\1Rq\2.");
    SAME("\x80\x02"
         "c__builtin__\nset\nq\0]q\1(K\1K\2e\x85q\2Rq\3.");
    AS("\x80\x04\x8F(K\1K\2\x90.", "\x80\x02"
                                   "c__builtin__\nset\nq\0]q\1(K\1K\2e\x85q\2Rq\3.");
    AS("\x80\x04(K\1\x91.", "\x80\x02"
                            "c__builtin__\nfrozenset\nq\0]q\1K\1a\x85q\2Rq\3.");
    // the same object twice, and the same text in two objects
    SAME("\x80\x02]q\0(X\1\0\0\0aq\1h\1X\1\0\0\0aq\2]q\3h\3e.");
}

static void objects(void **state)
{
    (void)state;
    SAME("\x80\x02"
         "cmine\nA\nq\0)\x81q\1}q\2X\1\0\0\0aq\3K\1sb.");
    SAME("\x80\x02"
         "cmine\nA\nq\0K\1\x85q\1Rq\2.");
    SAME("\x80\x02"
         "cmine\nA\nq\0)Rq\1(K\1K\2eK\3NsK\5b."); // items, pairs, state
    SAME("\x80\x02"
         "cmine\nA\nq\0)\x81q\1K\1a(K\1NK\2Nu.");
    SAME("\x80\x02"
         "cmine\nA\nq\0)}q\1\x92q\2.");
}

/* Values that contain themselves come out as CPython writes them. */
static void recursion(void **state)
{
    (void)state;
    SAME("\x80\x02]q\0h\0a.");
    SAME("\x80\x02}q\0K\1h\0s.");
    SAME("\x80\x02"
         "cmine\nA\nq\0)\x81q\1}q\2X\1\0\0\0aq\3h\1sb.");
    SAME("\x80\x02]q\0h\0\x85q\1a0h\1."); // t = ([t],)
    AS("\x80\x02]q\0cmine\nA\nq\1h\0\x85R\x94"
       "a0h\2.",
       "\x80\x02"
       "cmine\nA\nq\0]q\1h\0h\1\x85q\2Rq\3a0h\2R0h\3."); // an object among its own arguments
}

/* Batches: 1000 items each, one over, and exact multiples. */
static void batches(void **state)
{
    static const unsigned sizes[] = {1, 2, 999, 1000, 1001, 1002, 2000, 2001};

    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        unsigned n = sizes[k];
        ckpt_arena *a = ckpt_arena_new(0);
        ckpt_value *list = ckpt_value_new(a, CKPT_V_LIST), *dict = ckpt_value_new(a, CKPT_V_DICT);
        ckpt_value *ordered = ckpt_value_new(a, CKPT_V_ODICT);
        ckpt_value *one = ckpt_value_int(a, 1);
        ckpt_bytes b = {0};
        size_t marks = 0;

        for (unsigned i = 0; i < n; i++) {
            ckpt_value *key = ckpt_value_int(a, i);

            assert_true(ckpt_seq_add(a, &list->as.seq, one));
            assert_true(ckpt_dict_add(a, &dict->as.map, key, one));
            assert_true(ckpt_dict_add(a, &ordered->as.map, key, one));
        }
        assert_int_equal(ckpt_pickle_write(&b, list, NULL), CKPT_OK);
        // header 2, list and its number 3, two bytes an item, stores, STOP
        marks = n == 1 ? 0 : (n + 999) / 1000;
        assert_int_equal(b.n, 2 + 3 + 2 * n + (n == 1 ? 1 : 2 * marks) + 1);
        b.n = 0;
        assert_int_equal(ckpt_pickle_write(&b, dict, NULL), CKPT_OK);
        marks = n == 1 ? 0 : n / 1000 + 1; // an exact multiple has an empty batch at its end
        assert_int_equal(b.at[b.n - 2], n == 1 ? 's' : 'u');
        assert_int_equal(b.at[b.n - 3] == '(', n % 1000 == 0);
        assert_int_equal(b.n, 2 + 3 + 2 * n + (n < 256 ? 2 * n : 2 * 256 + 3 * (n - 256)) +
                                  (n == 1 ? 1 : 2 * marks) + 1);
        b.n = 0;
        assert_int_equal(ckpt_pickle_write(&b, ordered, NULL), CKPT_OK);
        assert_int_equal(b.at[b.n - 2], n % 1000 == 1 ? 's' : 'u');
        ckpt_vec_free(&b);
        ckpt_arena_free(a);
    }
}

/* A float tensor of the example in torch's own bytes. */
static void tensor_bytes(void **state)
{
    static const char want[] =
        "\x80\x02}q\0X\1\0\0\0wq\1ctorch._utils\n_rebuild_tensor_v2\nq\2((X\7\0\0\0storageq\3"
        "ctorch\nFloatStorage\nq\4X\1\0\0\0\x30q\5X\3\0\0\0cpuq\6K\x0Ctq\7QK\0K\3K\4\x86q\x08K\4K\1"
        "\x86q\x09\x89"
        "ccollections\nOrderedDict\nq\x0A)Rq\x0Btq\x0CRq\x0Ds.";
    ckpt_arena *a = ckpt_arena_new(0);
    const uint64_t shape[] = {3, 4}, stride[] = {4, 1};
    ckpt_storage s = {.key = {"0", 1}, .dtype = CKPT_F32, .n_elems = 12, .n_bytes = 48};
    ckpt_tensor_value t = {
        .storage = &s, .dtype = CKPT_F32, .ndim = 2, .shape = shape, .stride = stride};
    ckpt_value *dict = ckpt_value_new(a, CKPT_V_DICT), *v = ckpt_value_new(a, CKPT_V_TENSOR);
    ckpt_bytes b = {0};

    (void)state;
    v->as.tensor = &t;
    assert_true(ckpt_dict_add_cstr(a, &dict->as.map, "w", v));
    assert_int_equal(ckpt_pickle_write(&b, dict, NULL), CKPT_OK);
    assert_int_equal(b.n, sizeof want - 1);
    assert_memory_equal(b.at, want, b.n);
    ckpt_vec_free(&b);
    ckpt_arena_free(a);
}

static void unsupported(void **state)
{
    ckpt_arena *a = ckpt_arena_new(0);
    ckpt_value *v = ckpt_value_new(a, CKPT_V_DTYPE);
    ckpt_storage s = {.key = {"0", 1}, .dtype = CKPT_F32, .n_elems = 4, .n_bytes = 16};
    ckpt_tensor_value t = {.storage = &s, .dtype = CKPT_I64};
    ckpt_bytes b = {0};
    ckpt_err err = {0};

    (void)state;
    v->as.dtype = CKPT_F6_E2M3; // torch has none
    assert_true(ckpt_bytes_add(&b, "keep", 4));
    assert_int_equal(ckpt_pickle_write(&b, v, &err), CKPT_EUNSUPPORTED);
    assert_int_equal(err.code, CKPT_EUNSUPPORTED);
    assert_int_equal(b.n, 4); // what was there stays, nothing is added
    v = ckpt_value_new(a, CKPT_V_TENSOR);
    v->as.tensor = &t;
    assert_int_equal(ckpt_pickle_write(&b, v, NULL), CKPT_EUNSUPPORTED);
    v = ckpt_value_new(a, CKPT_V_GLOBAL);
    v->as.global = (ckpt_global){{"mine\nposix", 10}, {"A", 1}};
    assert_int_equal(ckpt_pickle_write(&b, v, NULL), CKPT_EUNSUPPORTED);
    ckpt_vec_free(&b);
    ckpt_arena_free(a);
}

/* Trees that were not read but made may nest without end: a limit, no crash. */
static void endless(void **state)
{
    ckpt_arena *a = ckpt_arena_new(0);
    ckpt_value *set = ckpt_value_new(a, CKPT_V_SET);
    ckpt_bytes b = {0};

    (void)state;
    assert_true(ckpt_seq_add(a, &set->as.seq, set)); // no memo number before its items are written
    assert_int_equal(ckpt_pickle_write(&b, set, NULL), CKPT_ELIMIT);
    ckpt_vec_free(&b);
    ckpt_arena_free(a);
}

static void no_memory(void **state)
{
    static const char text[] = "(X\1\0\0\0acmine\nA\n)Rctorch\nSize\nK\1\x85\x85R}K\1NsC\1at.";
    help_pickle h = help_read(text, sizeof text - 1, false);
    unsigned n = 0;
    int rc;

    (void)state;
    assert_int_equal(h.rc, CKPT_OK);
    do {
        ckpt_bytes b = {0};

        ckpt_alloc_fail_at(n++);
        rc = ckpt_pickle_write(&b, h.p.root, NULL);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || (rc == CKPT_ELIMIT && b.n == 0));
        ckpt_vec_free(&b);
    } while (rc != CKPT_OK);
    assert_true(n > 3);
    help_free(&h);
}

/* Real archives of current torch and DeepSpeed: read and written, their pickles are the same bytes.
 */
static void real_files(void **state)
{
    static const char *const files[] = {
        "torch_misc/module.bin",
        "torch_misc/bare_tensor.pt",
        "torch_misc/whole_module.pt",
        "torch_views/zip.pt",
        "torch_dtypes/zip.pt",
        "z3_bf16_w5_odd/ckpt/global_step4/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "old0126_z2_fp16_w3/ckpt/global_step6/zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "old077_z1_bf16_w2/ckpt/global_step6/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
    };
    unsigned n_found = 0;
    char path[8192];

    (void)state;
    for (size_t i = 0; help_fixtures() && i < sizeof files / sizeof *files; i++) {
        size_t n = 0, n_pkl = 0;
        uint8_t *zip;
        const uint8_t *pkl;

        (void)snprintf(path, sizeof path, "%s/%s", help_fixtures(), files[i]);
        zip = help_file(path, &n);
        pkl = !zip ? NULL : help_data_pkl(zip, n, &n_pkl);
        if (pkl) {
            writes_as(pkl, n_pkl, pkl, n_pkl);
            n_found++;
        }
        free(zip);
    }
    if (n_found == 0)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars),     cmocka_unit_test(containers), cmocka_unit_test(objects),
        cmocka_unit_test(recursion),   cmocka_unit_test(batches),    cmocka_unit_test(tensor_bytes),
        cmocka_unit_test(unsupported), cmocka_unit_test(endless),    cmocka_unit_test(no_memory),
        cmocka_unit_test(real_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
