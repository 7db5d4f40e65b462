/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tree.c: the tree of values as an outline and as JSON: every kind, sharing, limits, paths.
 */
#include "ckpt_extra.h"
#include "libckpt/map/map.h"
#include "tests/unit/codec/help.h"
#include "tests/unit/unit.h"

static int collect(void *ctx, const char *text, size_t n)
{
    return ckpt_bytes_add(ctx, text, n) ? 0 : CKPT_ELIMIT;
}

/* Print a pickle's tree; the text is terminated and belongs to the caller. */
static char *print(const void *pickle, size_t n, const ckpt_tree_opts *opts)
{
    help_pickle h = help_read(pickle, n, false);
    ckpt_map map = {.values = h.p.root, .path = "test"};
    ckpt_bytes b = {0};
    ckpt_err err = {0};

    if (h.rc != CKPT_OK)
        fail_msg("not read: %s", h.err.text);
    if (ckpt_tree_print(&map, opts, collect, &b, &err) != CKPT_OK)
        fail_msg("not printed: %s", err.text);
    assert_true(ckpt_bytes_add(&b, "", 1));
    help_free(&h);
    return (char *)b.at;
}

static void shows(const void *pickle, size_t n, const ckpt_tree_opts *opts, const char *want)
{
    char *text = print(pickle, n, opts);

    assert_string_equal(text, want);
    ckpt_free(text);
}

static const ckpt_tree_opts as_text = {.format = CKPT_TREE_TEXT};
static const ckpt_tree_opts as_json = {.format = CKPT_TREE_JSON};

#define TEXT(pickle, want) shows(pickle, sizeof(pickle) - 1, &as_text, want)
#define JSON(pickle, want) shows(pickle, sizeof(pickle) - 1, &as_json, want)

static const char plain[] = "}(X\1\0\0\0aK\1X\3\0\0\0b.c]X\3\0\0\0"
                            "0.w(K\1K\2K\3tX\1\0\0\0d}X\0\0\0\0Ns"
                            "X\1\0\0\0"
                            "7\x88X\3\0\0\0a b\x89u.";

static void plain_text(void **state)
{
    (void)state;
    TEXT(plain, "dict of 6\n"
                "  a: 1\n"
                "  b.c: []\n"
                "  0.w: (1, 2, 3)\n"
                "  d: dict of 1\n"
                "    '': None\n"
                "  '7': True\n"
                "  'a b': False\n");
    TEXT("N.", "None\n");
    TEXT("}.", "{}\n");
    TEXT(")K\1\x85\x86.", "tuple of 2\n  0: ()\n  1: (1,)\n");
}

static void plain_json(void **state)
{
    (void)state;
    JSON(plain, "{\"a\":1,\"b.c\":[],\"0.w\":{\"$tuple\":[1,2,3]},\"d\":{\"\":null},\"7\":true,"
                "\"a b\":false}\n");
    JSON("N.", "null\n");
    JSON("}(K\1NX\1\0\0\0aK\2u.", "{\"$dict\":[[1,null],[\"a\",2]]}\n");
    JSON("}X\2\0\0\0$aK\2s.", "{\"$dict\":[[\"$a\",2]]}\n");
    JSON("c__builtin__\nset\n]K\1a\x85R.", "{\"$set\":[1]}\n");
    JSON("ctorch\nSize\nK\1\x85\x85R.", "{\"$size\":[1]}\n");
    JSON("ctorch\nbfloat16\n.", "{\"$dtype\":\"bfloat16\"}\n");
    JSON("cmine\nA\n.", "{\"$global\":\"mine.A\"}\n");
}

static void numbers(void **state)
{
    static const char list[] = "(G\x3F\xF0\0\0\0\0\0\0G\x3F\xB9\x99\x99\x99\x99\x99\x9A"
                               "G\x7F\xF0\0\0\0\0\0\0G\xFF\xF8\0\0\0\0\0\0G\x80\0\0\0\0\0\0\0"
                               "G\x7E\x37\xE4\x3C\x88\0\x75\x9C"
                               "L9007199254740992L\nL9007199254740993L\n"
                               "L-100000000000000000000L\nl.";

    (void)state;
    TEXT(list, "[1.0, 0.1, inf, nan, -0.0, 1e+300, 9007199254740992, 9007199254740993, "
               "-100000000000000000000]\n");
    JSON(list, "[1.0,0.1,{\"$float\":\"inf\"},{\"$float\":\"nan\"},-0.0,1e+300,9007199254740992,"
               "{\"$int\":\"9007199254740993\"},{\"$int\":\"-100000000000000000000\"}]\n");
}

/* Control characters, quotes, surrogates: nothing that drives a terminal or breaks JSON. */
static void escapes(void **state)
{
    (void)state;
    TEXT("X\x11\0\0\0a\n\x1B\"'\\\0\x7F\xC2\x9B\xED\xA0\x80\xC3\xA9z!.",
         "'a\\n\\u001b\"\\'\\\\\\u0000\\u007f\\u009b\xEF\xBF\xBD\xC3\xA9z!'\n");
    JSON("X\x11\0\0\0a\n\x1B\"'\\\0\x7F\xC2\x9B\xED\xA0\x80\xC3\xA9z!.",
         "\"a\\n\\u001b\\\"'\\\\\\u0000\\u007f\\u009b\xEF\xBF\xBD\xC3\xA9z!\"\n");
    TEXT("C\3a\0\xFF.", "bytes of 3: 6100ff\n");
    JSON("C\3a\0\xFF.", "{\"$bytes\":\"6100ff\",\"$length\":3}\n");
    TEXT("}X\2\0\0\0\x1B[Ns.", "dict of 1\n  '\\u001b[': None\n");
}

static void sharing(void **state)
{
    static const char twice[] = "(}q\0X\1\0\0\0aK\1sh\0l.";
    static const char cycle[] = "]q\0h\0a.";

    (void)state;
    TEXT(twice, "list of 2\n  0: &1 dict of 1\n    a: 1\n  1: same as &1\n");
    JSON(twice, "[{\"$id\":1,\"$value\":{\"a\":1}},{\"$ref\":1}]\n");
    TEXT(cycle, "&1 list of 1\n  0: same as &1\n");
    JSON(cycle, "{\"$id\":1,\"$value\":[{\"$ref\":1}]}\n");
}

#define STORAGE                                                                                    \
    "(X\x07\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"                                           \
    "0X\3\0\0\0cpuK\x0CtQ"
#define HOOKS  "ccollections\nOrderedDict\n)R"
#define TENSOR "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE

static void tensors(void **state)
{
    (void)state;
    TEXT(TENSOR "K\1K\2K\3\x86K\3K\1\x86\x88" HOOKS "tR.", "tensor F32 [2, 3] requires_grad\n");
    TEXT(TENSOR "K\0K\2K\3\x86K\1K\2\x86\x89" HOOKS "}X\3\0\0\0neg\x88stR.",
         "tensor F32 [2, 3] stride [1, 2] neg\n");
    JSON(TENSOR "K\1K\2K\3\x86K\3K\1\x86\x88" HOOKS "tR.",
         "{\"$tensor\":{\"dtype\":\"F32\",\"shape\":[2,3],\"stride\":[3,1],\"storage\":\"0\","
         "\"offset\":1,\"requires_grad\":true}}\n");
    TEXT("ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\n"
         "ctorch\nTensor\n(" STORAGE "K\0))\x89" HOOKS "t}X\2\0\0\0idK\1stR.",
         "tensor F32 []\n  (state): dict of 1\n    id: 1\n");
    JSON(
        "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\n"
        "ctorch\nTensor\n(" STORAGE "K\0))\x89" HOOKS "t}X\2\0\0\0idK\1stR.",
        "{\"$tensor\":{\"dtype\":\"F32\",\"shape\":[],\"stride\":[],\"storage\":\"0\",\"offset\":0,"
        "\"type\":\"torch.Tensor\",\"state\":{\"id\":1}}}\n");
    TEXT("ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nint8\nK\3\x85K\1\x85\x89tR.",
         "tensor I8 [3] meta\n");
    TEXT(STORAGE ".", "storage '0' F32 [12]\n");
    JSON(STORAGE ".", "{\"$storage\":{\"key\":\"0\",\"dtype\":\"F32\",\"n_elems\":12}}\n");
}

static void objects(void **state)
{
    static const char all[] = "cmine\nA\nK\1\x85R(K\2K\3eK\4NsK\5b.";
    static const char odict[] = HOOKS "X\1\0\0\0aK\1s}X\1\0\0\0mK\2sb.";

    (void)state;
    TEXT("ctorch\ndevice\nX\3\0\0\0cpu\x85R.", "object torch.device('cpu')\n");
    TEXT(all, "object mine.A(1)\n  (state): 5\n  0: 2\n  1: 3\n  4: None\n");
    JSON(all, "{\"$object\":{\"class\":\"mine.A\",\"args\":{\"$tuple\":[1]},\"state\":5,"
              "\"items\":[2,3],\"pairs\":[[4,null]]}}\n");
    JSON("cmine\nA\n)R(K\1NK\2Nu.", "{\"$object\":{\"class\":\"mine.A\",\"args\":{\"$tuple\":[]},"
                                    "\"pairs\":[[1,null],[2,null]]}}\n");
    TEXT("cmine\nA\n]\x85R.", "object mine.A\n  (args): tuple of 1\n    0: []\n");
    TEXT(odict, "OrderedDict of 1\n  (state): dict of 1\n    m: 2\n  a: 1\n");
    JSON(odict, "{\"$state\":{\"m\":2},\"$odict\":{\"a\":1}}\n");
    JSON(HOOKS "}X\1\0\0\0mK\2sb.", "{\"$state\":{\"m\":2},\"$odict\":{}}\n");
    JSON(HOOKS "K\1K\2s}X\1\0\0\0mK\2sb.", "{\"$state\":{\"m\":2},\"$odict\":[[1,2]]}\n");
    TEXT("}cmine\nA\n)RNs.", "dict of 1\n  (key 0): object mine.A\n  (value 0): None\n");
    TEXT("}K\1K\2\x86Ns.", "dict of 1\n  (1, 2): None\n");
}

#define DTYPE(code)                                                                                \
    "cnumpy\ndtype\nX\2\0\0\0" code "\x89\x88\x87R(K\3X\1\0\0\0<NNNJ\xFF\xFF\xFF\xFFJ\xFF\xFF\xFF" \
    "\377K\0tb"

static void numpy(void **state)
{
    static const char array[] = "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\205C\1b"
                                "\x87R(K\1K\2\x85" DTYPE("i2") "\x89"
                                                               "C\4\1\0\376\377tb.";

    (void)state;
    TEXT("cnumpy.core.multiarray\nscalar\n" DTYPE("f4") "C\4\0\0\xA0\x3F\x86R.",
         "numpy scalar f4: 1.25\n");
    TEXT(array, "numpy array i2 [2]: 1, -2\n");
    JSON(array, "{\"$numpy\":{\"dtype\":\"i2\",\"shape\":[2],\"values\":[\"1\",\"-2\"]}}\n");
    // what is not plain stays an object
    TEXT("cnumpy\ndtype\nX\2\0\0\0O8\x89\x88\x87R.", "object numpy.dtype('O8', False, True)\n");
}

static void limits(void **state)
{
    static const char deep[] = "]]]K\1aaa.", list[] = "(K\1](K\1NeK\3K\4t.";
    ckpt_tree_opts opts = {.max_depth = 1};

    (void)state;
    shows(deep, sizeof deep - 1, &opts, "list of 1\n  0: list of 1 ...\n");
    opts.format = CKPT_TREE_JSON;
    shows(deep, sizeof deep - 1, &opts, "[{\"$cut\":\"depth\"}]\n");
    opts = (ckpt_tree_opts){.max_items = 2};
    shows(list, sizeof list - 1, &opts, "tuple of 4\n  0: 1\n  1: [1, None]\n  ... 2 more\n");
    opts.format = CKPT_TREE_JSON;
    shows(list, sizeof list - 1, &opts, "{\"$tuple\":[1,[1,null],{\"$more\":2}]}\n");
    shows(plain, sizeof plain - 1, &opts, "{\"a\":1,\"b.c\":[],\"$more\":4}\n");
    shows("}(K\1NK\2NK\3Nu.", 13, &opts, "{\"$dict\":[[1,null],[2,null],{\"$more\":1}]}\n");
}

static void paths(void **state)
{
    static const char tree[] = "}(X\5\0\0\0model}(X\4\0\0\0fc.wK\1X\2\0\0\0fc}X\1\0\0\0bK\2su"
                               "X\4\0\0\0list(K\x0AK\x0BlX\3\0\0\0obj(imine\nA\n}X\1\0\0\0xK\3sb"
                               "K\7K\4u.";
    static const struct {
        const char *path, *want;
    } cases[] = {
        {"model.fc.w", "1\n"}, {"model.fc.b", "2\n"},  {"list.1", "11\n"}, {"obj.x", "3\n"},
        {"7", "4\n"},          {"list", "[10, 11]\n"}, {"", NULL},
    };
    ckpt_tree_opts opts = {0};

    (void)state;
    for (size_t i = 0; cases[i].want != NULL; i++) {
        opts.path = cases[i].path;
        shows(tree, sizeof tree - 1, &opts, cases[i].want);
    }
}

static void missing_paths(void **state)
{
    static const char *const list[] = {"nothing",  "list.2", "list.x", "list.-1",
                                       "list.0.0", "lis",    "."};
    static const char tree[] = "}X\4\0\0\0list(K\1K\2ls.";
    help_pickle h = help_read(tree, sizeof tree - 1, false);
    ckpt_map map = {.values = h.p.root};
    ckpt_bytes b = {0};

    (void)state;
    assert_int_equal(h.rc, CKPT_OK);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        ckpt_tree_opts opts = {.path = list[i]};

        assert_int_equal(ckpt_tree_print(&map, &opts, collect, &b, NULL), CKPT_EMISSING);
    }
    map.values = NULL;
    assert_int_equal(ckpt_tree_print(&map, NULL, collect, &b, NULL), CKPT_EMISSING);
    assert_int_equal(b.n, 0);
    help_free(&h);
}

static int refuse(void *ctx, const char *text, size_t n)
{
    (void)text;
    (void)n;
    return *(int *)ctx;
}

static void failing_callback(void **state)
{
    help_pickle h = help_read("N.", 2, false);
    ckpt_map map = {.values = h.p.root};
    int stop = 1, full = CKPT_EIO;

    (void)state;
    assert_int_equal(ckpt_tree_print(&map, NULL, refuse, &stop, NULL), CKPT_ECANCELED);
    assert_int_equal(ckpt_tree_print(&map, NULL, refuse, &full, NULL), CKPT_EIO);
    help_free(&h);
}

static void no_memory(void **state)
{
    static const char twice[] = "(}q\0X\1\0\0\0aK\1sh\0l.";
    help_pickle h = help_read(twice, sizeof twice - 1, false);
    ckpt_map map = {.values = h.p.root};
    ckpt_tree_opts opts = {.format = CKPT_TREE_JSON};
    unsigned n = 0;
    int rc, go_on = 0;

    (void)state;
    do {
        ckpt_alloc_fail_at(n++);
        rc = ckpt_tree_print(&map, &opts, refuse, &go_on, NULL);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
    } while (rc != CKPT_OK);
    assert_true(n > 3);
    help_free(&h);
}

/* 59 lists of the list before, twice: 2^59 leaves as a tree, 59 lines as a graph. */
static void laughs(void **state)
{
    ckpt_bytes b = {0};
    ckpt_tree_opts opts = {.max_depth = 200};
    char *text;

    (void)state;
    assert_true(ckpt_bytes_add(&b, "]", 1));
    for (unsigned i = 0; i < 59; i++)
        assert_true(ckpt_bytes_printf(&b, "p%u\n0](g%u\ng%u\ne", i, i, i));
    assert_true(ckpt_bytes_add(&b, ".", 1));
    text = print(b.at, b.n, &opts);
    assert_true(strlen(text) < 59 * 200);
    ckpt_free(text);
    ckpt_vec_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_text),    cmocka_unit_test(plain_json),
        cmocka_unit_test(numbers),       cmocka_unit_test(escapes),
        cmocka_unit_test(sharing),       cmocka_unit_test(tensors),
        cmocka_unit_test(objects),       cmocka_unit_test(numpy),
        cmocka_unit_test(limits),        cmocka_unit_test(paths),
        cmocka_unit_test(missing_paths), cmocka_unit_test(failing_callback),
        cmocka_unit_test(no_memory),     cmocka_unit_test(laughs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
