/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pickle_read.c: opcodes, calls, tensors, limits; verdicts on hostile pickles; real files.
 */
#include "libckpt/codec/pickle/trust.h"
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

#define INNER V2 FLOATS("0", "\4") "K\0K\4\x85K\1\x85\x89" HOOKS "tR"

static void numbers(void **state)
{
    help_pickle h = READ("\x80\x02(K\xFFM\xFF\xFFJ\xFE\xFF\xFF\xFF\x8A\x05\0\0\0\0\1\x8A\0"
                         "\x8A\x09\0\0\0\0\0\0\0\x80\0\x8A\x09\1\0\0\0\0\0\0\0\0L-12L\nI01\nI00\n"
                         "F-2.5e-1\nG\x3F\xF8\0\0\0\0\0\0\x88\x89Nl.");
    ckpt_value **v;

    (void)state;
    assert_int_equal(h.rc, CKPT_OK);
    assert_int_equal(h.p.protocol, 2);
    assert_int_equal(h.p.root->kind, CKPT_V_LIST);
    assert_int_equal(h.p.root->as.seq.n, 15);
    v = h.p.root->as.seq.at;
    assert_int_equal(v[0]->as.i, 255);
    assert_int_equal(v[1]->as.i, 65535);
    assert_int_equal(v[2]->as.i, -2);
    assert_int_equal(v[3]->as.i, INT64_C(1) << 32);
    assert_int_equal(v[4]->as.i, 0);
    assert_int_equal(v[5]->kind, CKPT_V_LONG); // 2^63 needs nine bytes
    assert_int_equal(v[5]->as.text.n, 9);
    assert_int_equal(v[6]->kind, CKPT_V_INT); // a nine-byte 1 does not
    assert_int_equal(v[6]->as.i, 1);
    assert_int_equal(v[7]->as.i, -12);
    assert_int_equal(v[8]->kind, CKPT_V_BOOL);
    assert_int_equal(v[8]->as.i, 1);
    assert_int_equal(v[9]->as.i, 0);
    assert_true(v[10]->as.f == -0.25);
    assert_true(v[11]->as.f == 1.5);
    assert_ptr_equal(v[8], v[12]);
    assert_int_equal(v[14]->kind, CKPT_V_NONE);
    help_free(&h);
}

static void big_decimal(void **state)
{
    help_pickle h =
        READ("(L18446744073709551616L\nI-9223372036854775808\nL-9223372036854775809L\nl.");

    (void)state;
    assert_int_equal(h.rc, CKPT_OK);
    assert_int_equal(h.p.root->as.seq.at[0]->kind, CKPT_V_LONG);
    assert_memory_equal(h.p.root->as.seq.at[0]->as.text.at, "\0\0\0\0\0\0\0\0\1", 9);
    assert_int_equal(h.p.root->as.seq.at[1]->as.i, INT64_MIN);
    assert_memory_equal(h.p.root->as.seq.at[2]->as.text.at, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F\xFF",
                        9);
    help_free(&h);
    EXPECT(CKPT_EFORMAT, "I0123\n.");
    EXPECT(CKPT_EFORMAT, "I\n.");
    EXPECT(CKPT_EFORMAT, "I-\n.");
    EXPECT(CKPT_EFORMAT, "L\n.");
    EXPECT(CKPT_EFORMAT, "I1_0\n.");
    EXPECT(CKPT_EFORMAT, "F1,5\n.");
    EXPECT(CKPT_EFORMAT, "F\n.");
    EXPECT(CKPT_EFORMAT, "F0x10\n.");
    EXPECT(CKPT_EFORMAT, "F1.5e\n.");
    EXPECT(CKPT_ELIMIT, "L11111111112222222222333333333344444444445555555555666666666677777L\n.");
    EXPECT(CKPT_ELIMIT, "F1.1111111112222222222333333333344444444445555555555666666666677777\n.");
}

static void texts(void **state)
{
    help_pickle h = READ("(X\3\0\0\0\xED\xA0\x80X\3\0\0\0a\0bV\\u00e9\xE9\\\\u\n"
                         "S'a\\x41\\n\\102\\q'\nU\2\xFF\xFE"
                         "C\3xyzB\2\0\0\0pq\x96\2\0\0\0\0\0\0\0rs\x8D\1\0\0\0\0\0\0\0zl.");
    ckpt_value **v;

    (void)state;
    assert_int_equal(h.rc, CKPT_OK);
    v = h.p.root->as.seq.at;
    assert_int_equal(v[0]->as.text.n, 3); // a lone surrogate is kept
    assert_int_equal(v[1]->as.text.n, 3);
    assert_memory_equal(v[1]->as.text.at, "a\0b", 4);
    assert_string_equal(v[2]->as.text.at, "\xC3\xA9\xC3\xA9\\\\u");
    assert_string_equal(v[3]->as.text.at, "aA\nB\\q");
    assert_int_equal(v[4]->kind, CKPT_V_BYTES); // Python 2's str that is no text
    assert_int_equal(v[5]->kind, CKPT_V_BYTES);
    assert_int_equal(v[7]->kind, CKPT_V_BYTEARRAY);
    assert_string_equal(v[8]->as.text.at, "z");
    help_free(&h);
    EXPECT(CKPT_EFORMAT, "X\1\0\0\0\xFF.");
    EXPECT(CKPT_EFORMAT, "X\2\0\0\0\xC3(.");
    EXPECT(CKPT_EFORMAT, "X\4\0\0\0\xED\xA0\x80\xFF.");
    EXPECT(CKPT_EFORMAT, "S'abc\n.");
    EXPECT(CKPT_EFORMAT, "S'\n.");
    EXPECT(CKPT_EFORMAT, "S'\\x4'\n.");
    EXPECT(CKPT_EFORMAT, "V\\u12\n.");
    EXPECT(CKPT_EFORMAT, "V\\U00110000\n.");
}

static void containers(void **state)
{
    help_pickle h = READ("\x80\x04](K\1K\2e\x94(K\1K\2K\3K\4t\x94K\5\x85K\6K\7\x86K\1K\2K\3\x87"
                         "}(K\1K\2K\3K\4u\x8F(K\1K\2\x90(K\1\x91(K\1K\2d)h\0t.");

    (void)state;
    assert_int_equal(h.rc, CKPT_EFORMAT); // TUPLE without a MARK of its own
    help_free(&h);
    h = READ("\x80\x04(](K\1K\2e\x94(K\1K\2K\3K\4t\x94K\5\x85K\6K\7\x86K\1K\2K\3\x87"
             "}(K\1K\2K\3K\4u\x8F(K\1K\2\x90(K\1\x91(K\1K\2d)h\0t.");
    assert_int_equal(h.rc, CKPT_OK);
    assert_int_equal(h.p.root->as.seq.n, 11);
    assert_ptr_equal(h.p.root->as.seq.at[0], h.p.root->as.seq.at[10]);
    assert_int_equal(h.p.root->as.seq.at[0]->as.seq.n, 2);
    assert_int_equal(h.p.root->as.seq.at[1]->as.seq.n, 4);
    assert_int_equal(h.p.root->as.seq.at[5]->kind, CKPT_V_DICT);
    assert_int_equal(h.p.root->as.seq.at[5]->as.map.n, 2);
    assert_int_equal(h.p.root->as.seq.at[6]->kind, CKPT_V_SET);
    assert_int_equal(h.p.root->as.seq.at[7]->kind, CKPT_V_FROZENSET);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(h.p.root->as.seq.at[i]->mark, 0);
    help_free(&h);
    EXPECT(CKPT_OK, "]2a."); // a list in itself
    EXPECT(CKPT_EFORMAT, ")K\1a.");
    EXPECT(CKPT_EFORMAT, "]K\1K\2s.");
    EXPECT(CKPT_EFORMAT, "}(K\1u.");
    EXPECT(CKPT_EFORMAT, "(K\1d.");
    EXPECT(CKPT_EFORMAT, "](K\1\x90.");
    EXPECT(CKPT_EFORMAT, "K\1(u.");
    EXPECT(CKPT_EFORMAT, "K\1b.");
}

static void dict_keys(void **state)
{
    (void)state;
    EXPECT(CKPT_OK, "}(K\1NU\1\x31NK\2Nu.");
    EXPECT(CKPT_EFORMAT, "}(K\1N\x88Nu.");                  // 1 == True
    EXPECT(CKPT_EFORMAT, "}(G\x3F\xF0\0\0\0\0\0\0NK\1Nu."); // 1.0 == 1
    EXPECT(CKPT_OK, "}(G\x3F\xF8\0\0\0\0\0\0NK\1Nu.");      // 1.5
    EXPECT(CKPT_EFORMAT, "}(NNNNu.");
    EXPECT(CKPT_EFORMAT, "}(K\1K\2\x86NG\x3F\xF0\0\0\0\0\0\0K\2\x86Nu."); // tuples by value
    EXPECT(CKPT_OK, "}(K\1K\2\x86NK\1K\2K\3\x87Nu.");
    EXPECT(CKPT_OK, "}(X\1\0\0\0aNC\1aNu."); // text and bytes differ
    EXPECT(CKPT_EFORMAT, "}]Ns.");
    EXPECT(CKPT_EFORMAT, "}]\x85Ns."); // a list inside a tuple
    EXPECT(CKPT_EFORMAT, "}}Ns.");
    EXPECT(CKPT_EFORMAT, "\x8F(]\x90.");
    EXPECT(CKPT_ELIMIT, "})\x85\x85\x85\x85\x85\x85\x85\x85\x85\x85Ns."); // nested beyond reason
}

/* More keys than are compared one by one, and one of them again. */
static void many_keys(void **state)
{
    ckpt_bytes b = {0};
    help_pickle h;

    (void)state;
    assert_true(ckpt_bytes_add(&b, "}(", 2));
    for (unsigned i = 0; i < 5000; i++)
        assert_true(ckpt_bytes_printf(&b, "I%u\nN", i));
    assert_true(ckpt_bytes_add(&b, "u.", 2));
    h = help_read(b.at, b.n, false);
    assert_int_equal(h.rc, CKPT_OK);
    assert_int_equal(h.p.root->as.map.n, 5000);
    help_free(&h);
    b.n -= 2;
    assert_true(ckpt_bytes_add(&b, "I4321\nNu.", 9));
    h = help_read(b.at, b.n, false);
    assert_int_equal(h.rc, CKPT_EFORMAT);
    help_free(&h);
    ckpt_vec_free(&b);
}

static void builtin_calls(void **state)
{
    help_pickle h =
        READ("\x80\x02(c__builtin__\nset\n](K\1K\2e\x85R"
             "c_codecs\nencode\n(X\3\0\0\0a\xC3\xBFX\6\0\0\0latin1tR"
             "c__builtin__\nbytes\n)Rc__builtin__\nbytearray\n(X\1\0\0\0zX\7\0\0\0latin-1tR"
             "ctorch\nSize\nK\2K\3\x86\x85R" HOOKS "X\1\0\0\0kK\1s}X\1\0\0\0mK\2sb"
             "ccollections\nOrderedDict\n]]K\1aK\2aa\x85R"
             "ctorch\nfloat16\nc__builtin__\nfrozenset\n)Rl.");
    ckpt_value **v;

    (void)state;
    assert_int_equal(h.rc, CKPT_OK);
    v = h.p.root->as.seq.at;
    assert_int_equal(v[0]->kind, CKPT_V_SET);
    assert_int_equal(v[0]->as.seq.n, 2);
    assert_int_equal(v[1]->kind, CKPT_V_BYTES);
    assert_int_equal(v[1]->as.text.n, 2);
    assert_memory_equal(v[1]->as.text.at, "a\xFF", 3);
    assert_int_equal(v[2]->as.text.n, 0);
    assert_int_equal(v[3]->kind, CKPT_V_BYTEARRAY);
    assert_int_equal(v[4]->kind, CKPT_V_SIZE);
    assert_int_equal(v[4]->as.seq.at[1]->as.i, 3);
    assert_int_equal(v[5]->kind, CKPT_V_ODICT);
    assert_int_equal(ckpt_value_get(v[5], "k")->as.i, 1);
    assert_int_equal(ckpt_value_get(v[5]->state, "m")->as.i, 2);
    assert_int_equal(v[6]->as.map.n, 1);
    assert_int_equal(v[7]->kind, CKPT_V_DTYPE);
    assert_int_equal(v[7]->as.dtype, CKPT_F16);
    assert_int_equal(v[8]->kind, CKPT_V_FROZENSET);
    assert_int_equal(h.p.n_objects, 0);
    assert_int_equal(h.p.globals.n, 8);
    help_free(&h);
    EXPECT(CKPT_EFORMAT, "ctorch\nSize\nI-1\n\x85\x85R.");
    EXPECT(CKPT_EFORMAT, "ctorch\nSize\n\x88\x85\x85R.");
    EXPECT(CKPT_EFORMAT, "c__builtin__\nset\nK\1\x85R.");
    EXPECT(CKPT_EFORMAT, "c__builtin__\nset\n]]a\x85R.");
    EXPECT(CKPT_EFORMAT, "c__builtin__\nset\n]\x85R(K\1\x90."); // made from a list: may not grow
    EXPECT(CKPT_EUNSAFE, "c_codecs\nencode\n(X\1\0\0\0aX\3\0\0\0zlbtR.");
    EXPECT(CKPT_EFORMAT, "c_codecs\nencode\n(X\3\0\0\0\xE2\x82\xACX\6\0\0\0latin1tR.");
    EXPECT(CKPT_EFORMAT, "ctorch\nstrided\n)R.");
    EXPECT(CKPT_EFORMAT, HOOKS "Nb"
                               "Nb.");
    EXPECT(CKPT_EFORMAT, "}}b.");
}

static void objects(void **state)
{
    help_pickle h = READ("\x80\x02(cmytrainer\nProgress\n)\x81}X\1\0\0\0aK\1sb"
                         "cmytrainer\nStore\nK\1\x85RK\2aK\3K\4s"
                         "(imytrainer\nOld\n(cmytrainer\nOld\nK\1o"
                         "cdeepspeed.runtime.zero.config\nZeroStageEnum\nK\2\x85R"
                         "c__builtin__\ngetattr\ncdeepspeed.runtime.zero.config\nZeroStageEnum\n"
                         "X\7\0\0\0weights\x86R"
                         "ccopy_reg\n_reconstructor\n(cmytrainer\nOld\nc__builtin__\nobject\nNtR"
                         "ccollections\ndefaultdict\nc__builtin__\nlist\n\x85RK\1K\2s"
                         "cmytrainer\nProgress\n)}\x92l.");
    ckpt_value **v;

    (void)state;
    assert_int_equal(h.rc, CKPT_OK);
    v = h.p.root->as.seq.at;
    assert_int_equal(v[0]->as.object->form, CKPT_BY_NEWOBJ);
    assert_int_equal(ckpt_value_get(v[0]->as.object->state, "a")->as.i, 1);
    assert_int_equal(v[1]->as.object->items.n, 1);
    assert_int_equal(v[1]->as.object->pairs.n, 1);
    assert_int_equal(v[3]->as.object->args->as.seq.n, 1);
    assert_true(ckpt_value_is_global(v[5]->as.object->cls, "builtins", "getattr"));
    assert_int_equal(v[8]->as.object->form, CKPT_BY_NEWOBJ_EX);
    assert_int_equal(h.p.n_objects, 6); // DeepSpeed's and the library's own do not count
    assert_int_equal(h.p.root->as.seq.n, 9);
    help_free(&h);
    EXPECT(CKPT_EFORMAT, "cdatetime\ndate\nC\4abcd\x85RK\1K\2s."); // known, and no dict
    EXPECT(CKPT_EFORMAT, "ccollections\ndeque\n)RK\1K\2s.");
    EXPECT(CKPT_OK, "ccollections\ndeque\n)RK\1a.");
    EXPECT(CKPT_EFORMAT, "ccollections\ndefaultdict\n)RK\1NK\1Nu.");
}

static void unsafe(void **state)
{
    (void)state;
    EXPECT(CKPT_EUNSAFE, "cposix\nsystem\n.");    // merely named
    EXPECT(CKPT_EUNSAFE, "cposix\nsystem\n\xFF"); // before the damage is met
    EXPECT(CKPT_EUNSAFE, "\x8C\2os\x8C\6system\x93.");
    EXPECT(CKPT_EUNSAFE, "(X\2\0\0\0idios\nsystem\n.");
    EXPECT(CKPT_EUNSAFE, "(c__builtin__\neval\nX\1\0\0\0\x31o.");
    EXPECT(CKPT_EUNSAFE, "\x80\x04\x8C\5torch\x8C\7os.path\x93.");
    EXPECT(CKPT_EUNSAFE, "\x82\7.");
    EXPECT(CKPT_EUNSAFE, "\x83\7\0.");
    EXPECT(CKPT_EUNSAFE, "\x84\7\0\0\0.");
    EXPECT(CKPT_EUNSAFE, "K\1)R.");        // calls a number
    EXPECT(CKPT_EUNSAFE, "cmine\nA\n}b."); // changes a class
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\n.");
    EXPECT(CKPT_EUNSAFE, "]c__builtin__\ngetattr\na.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\n\x85.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\n)\x81.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\ncmine\nA\nX\7\0\0\0__dict_\x86R.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\ncmine\nlower\nX\1\0\0\0a\x86R.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\ncmine\nA\nX\3\0\0\0a.b\x86R.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\nK\1X\1\0\0\0a\x86R.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\ncmine\nA\nX\1\0\0\0aN\x87R.");
    EXPECT(CKPT_EUNSAFE, "ctorch._tensor\n_rebuild_from_type_v2\n(cmine\nf\nctorch\nTensor\n)}tR.");
    EXPECT(CKPT_EUNSAFE, "ccopy_reg\n_reconstructor\n(K\1K\1NtR.");
}

/* Calls of what a pickle made itself stay objects; gadgets made of getattr do not. */
static void calls_of_results(void **state)
{
    help_pickle h =
        READ("\x80\x02(c__builtin__\ngetattr\nczoneinfo\nZoneInfo\n"
             "X\x9\0\0\0_unpickle\x86R(X\3\0\0\0UTCK\1tR"
             "cfunctools\npartial\nc__builtin__\nint\n\x85R(c__builtin__\nint\n)}NtbK\1\x85R"
             "cmine\nA\n)R)R"
             "cmine\nA\n)R)\x81K\1aK\1K\2s"
             "\x8C\4mine\x8C\3B.C\x93"
             "\x8C\4mine\x8C\3B.C\x93)\x81"
             "c__builtin__\ngetattr\ncmine\nA\n)RX\4\0\0\0step\x86R"
             "l.");
    ckpt_value **v;

    (void)state;
    assert_int_equal(h.rc, CKPT_OK);
    v = h.p.root->as.seq.at;
    assert_int_equal(h.p.root->as.seq.n, 7);
    assert_int_equal(v[0]->as.object->cls->kind, CKPT_V_OBJECT);
    assert_true(ckpt_name_known(v[0]));
    assert_false(ckpt_name_known(v[2]));
    assert_int_equal(v[3]->as.object->items.n, 1);
    assert_int_equal(v[3]->as.object->pairs.n, 1);
    // a dotted name reads as protocol 2 writes it
    assert_true(ckpt_value_is_global(v[4]->as.object->cls, "builtins", "getattr"));
    assert_true(ckpt_value_is_global(v[4]->as.object->args->as.seq.at[0], "mine", "B"));
    assert_true(ckpt_value_is(v[4]->as.object->args->as.seq.at[1], "C"));
    assert_ptr_equal(v[5]->as.object->cls, v[4]);
    help_free(&h);
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\ncmine\nA\n)RX\x8\0\0\0__dict__\x86R.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\nctorch.fx\nG\nX\4\0\0\0eval\x86R)R.");
    EXPECT(CKPT_EUNSAFE, "c_operator\nattrgetter\nX\xB\0\0\0__globals__\x85R.");
    EXPECT(CKPT_EUNSAFE, "c_operator\nmethodcaller\nX\1\0\0\0a\x85RN\x85R.");
    EXPECT(CKPT_EUNSAFE, "]cfunctools\npartial\na."); // handed around, not called
    EXPECT(CKPT_EUNSAFE, "cfunctools\npartial\ncposix\nsystem\n\x85R.");
}

/* Names that only compute, put together so that Python would run a text: each link is refused. */
static void chains(void **state)
{
    (void)state;
    // reduce(exec, ["..."]), with exec from where map, next and getitem find it
    EXPECT(CKPT_EUNSAFE, "c__builtin__\nmap\nN]\x86R.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\nmap\nc__builtin__\nprint\n]\x86R.");
    EXPECT(CKPT_EUNSAFE, "citertools\nstarmap\nc_operator\ngetitem\n]\x86R.");
    EXPECT(CKPT_OK, "c__builtin__\nmap\nc__builtin__\nint\n]\x86R.");
    EXPECT(CKPT_OK, "c__builtin__\nfilter\nN]\x86R.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\nnext\n]\x85R.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\niter\nc__builtin__\nlen\nN\x86R.");
    EXPECT(CKPT_EUNSAFE, "cfunctools\nreduce\nc_operator\ngetitem\n]\x86R.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\nreduce\ncmine\nf\n]\x86R.");
    EXPECT(CKPT_OK, "c__builtin__\nreduce\nc_operator\nor_\n]\x86R."); // int | None
    EXPECT(CKPT_EUNSAFE, "]c_operator\nattrgetter\na.");
    EXPECT(CKPT_EUNSAFE, "cfunctools\npartial\nc_operator\nattrgetter\n\x85R.");
    EXPECT(CKPT_EUNSAFE, "c_operator\nattrgetter\nX\x7\0\0\0gi_code\x85R.");
    EXPECT(CKPT_EUNSAFE, "c_operator\nattrgetter\nX\xB\0\0\0a.f_globals\x85R.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\ncmine\nA\n)RX\x7\0\0\0gi_code\x86R.");
    // what partials call
    EXPECT(CKPT_EUNSAFE, "cfunctools\npartial\nc_operator\ngetitem\n\x85R)R.");
    EXPECT(CKPT_EUNSAFE, "cfunctools\npartial\ncabc\nABCMeta\n\x85R)R.");
    EXPECT(CKPT_EUNSAFE, "cfunctools\npartial\nc__builtin__\nint\n\x85R"
                         "(c__builtin__\nmap\n)}Ntb)R."); // by its state
    EXPECT(CKPT_EUNSAFE, "cfunctools\npartial\nctorch.distributed.fsdp.wrap\n"
                         "lambda_auto_wrap_policy\n\x85R)R.");
    // protocol 2 calls __new__ with named arguments in this way
    EXPECT(CKPT_OK, "cfunctools\npartial\nc__builtin__\ngetattr\ncmine\nA\n"
                    "X\x7\0\0\0__new__\x86R\x85R)R.");
    EXPECT(CKPT_EUNSAFE, "cfunctools\npartial\nc__builtin__\ngetattr\ncenum\nEnumMeta\n"
                         "X\x7\0\0\0__new__\x86R\x85R)R.");
    // classes made of functions, and the class of functions
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ntype\nX\1\0\0\0A)}\x87R.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ntype\nX\1\0\0\0A)}\x87\x81.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ntype\nc__builtin__\nlen\n\x85R.");
    EXPECT(CKPT_EUNSAFE, "cabc\nABCMeta\nX\1\0\0\0A)}\x87R.");
    EXPECT(CKPT_OK, "c__builtin__\ntype\nN\x85R.");
    // methods of the library that open a file or evaluate a text
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\ncpathlib\nPath\n)RX\6\0\0\0unlink\x86R.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\nctyping\nForwardRef\n"
                         "X\x9\0\0\0_evaluate\x86R.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\ncenum\nEnum\nX\x9\0\0\0_convert_\x86R.");
    EXPECT(CKPT_OK, "c__builtin__\ngetattr\nc__builtin__\nstr\nX\5\0\0\0lower\x86R.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\nc__builtin__\nstr\nX\5\0\0\0lower\x86R)R.");
    EXPECT(CKPT_EUNSAFE, "cuuid\ngetnode\n)R.");
    // a function of torch that calls what it is given, and a module under the name of a class
    EXPECT(CKPT_EUNSAFE, "ctorch.distributed.fsdp.wrap\nlambda_auto_wrap_policy\n(NNNNtR.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\nctorch.functional\nF\n"
                         "X\x9\0\0\0importlib\x86R.");
    EXPECT(CKPT_OK, "]ctorch.distributed.fsdp.wrap\nlambda_auto_wrap_policy\na.");
    // methods of data, named and not called
    EXPECT(CKPT_OK, "c__builtin__\ngetattr\nX\1\0\0\0,X\4\0\0\0join\x86R.");
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\nX\1\0\0\0,X\4\0\0\0join\x86R)R.");
    // a class inside a class, as protocol 0 reconstructs it; not what functions give
    EXPECT(CKPT_OK, "ccopy_reg\n_reconstructor\nc__builtin__\ngetattr\ncmine\nA\n"
                    "X\1\0\0\0B\x86Rc__builtin__\nobject\nN\x87R.");
    EXPECT(CKPT_EUNSAFE, "ccopy_reg\n_reconstructor\ncmine\nf\n)Rc__builtin__\nobject\nN\x87R.");
    // attributes of classes are not set
    EXPECT(CKPT_EUNSAFE, "c__builtin__\ngetattr\ncmine\nA\nX\1\0\0\0B\x86R}b.");
    EXPECT(CKPT_EUNSAFE, "cnumpy\nmemmap\nX\1\0\0\0a\x85R.");
}

static void malformed(void **state)
{
    (void)state;
    EXPECT(CKPT_EFORMAT, "");
    EXPECT(CKPT_EFORMAT, "N");
    EXPECT(CKPT_EFORMAT, "\xFF.");
    EXPECT(CKPT_EFORMAT, "\x80\x06N.");
    EXPECT(CKPT_EFORMAT, "N.N");
    EXPECT(CKPT_EFORMAT, "NN.");
    EXPECT(CKPT_EFORMAT, "(N.");
    EXPECT(CKPT_EFORMAT, ".");
    EXPECT(CKPT_EFORMAT, "0.");
    EXPECT(CKPT_EFORMAT, "(1N1.");
    EXPECT(CKPT_EFORMAT, "h\0.");
    EXPECT(CKPT_EFORMAT, "q\0.");
    EXPECT(CKPT_EFORMAT, "Np-1\n.");
    EXPECT(CKPT_EFORMAT, "Npx\n.");
    EXPECT(CKPT_EFORMAT, "Np\n.");
    EXPECT(CKPT_EFORMAT, "c\n\n.");
    EXPECT(CKPT_EFORMAT, "cmine\n.");
    EXPECT(CKPT_EFORMAT, "\x8C\3a\nb\x8C\1A\x93."); // a name that would end its own line
    EXPECT(CKPT_EFORMAT, "K\1K\2\x93.");
    EXPECT(CKPT_EFORMAT, "\x8B\xFB\xFF\xFF\xFF."); // a negative length
    EXPECT(CKPT_EFORMAT, "\x8E\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F.");
    EXPECT(CKPT_EFORMAT, "\x95\xFF\0\0\0\0\0\0\0N."); // a frame beyond the file
    EXPECT(CKPT_OK, "\x95\2\0\0\0\0\0\0\0K\1N0.");    // more may follow a frame
    EXPECT(CKPT_EFORMAT, "\x95\1\0\0\0\0\0\0\0K\1."); // an opcode across the frame's end
    EXPECT(CKPT_EFORMAT, "\x95\x0C\0\0\0\0\0\0\0\x95\1\0\0\0\0\0\0\0N.."); // a frame in a frame
    EXPECT(CKPT_OK, "\x95\2\0\0\0\0\0\0\0N.");
    EXPECT(CKPT_EFORMAT, "cmine\nA\nK\1R.");
    EXPECT(CKPT_EFORMAT, "Px\n.");
    EXPECT(CKPT_EFORMAT, "K\1Q.");
    EXPECT(CKPT_EFORMAT, "K\1K\2\x86Q.");
    EXPECT(CKPT_EFORMAT, "N\x97.");
    EXPECT(CKPT_EFORMAT, "N\x98.");
}

static void limits(void **state)
{
    static uint8_t deep[4000], longs[400];
    help_pickle h;

    (void)state;
    EXPECT(CKPT_OK, "Nr\x00\x01\0\0.");
    EXPECT(CKPT_ELIMIT, "Nr\x01\x01\0\0."); // 257 ahead of nothing
    EXPECT(CKPT_ELIMIT, "Np99999999999\n.");
    memset(deep, 0x85, sizeof deep);
    deep[0] = 'N';
    deep[1000] = '.';
    h = help_read(deep, 1001, false); // 999 tuples
    assert_int_equal(h.rc, CKPT_OK);
    help_free(&h);
    deep[1000] = 0x85;
    deep[1002] = '.';
    h = help_read(deep, 1003, false); // 1001
    assert_int_equal(h.rc, CKPT_ELIMIT);
    help_free(&h);
    longs[0] = 0x8B;
    longs[1] = 0x00;
    longs[2] = 0x01;
    longs[260] = 0x7F;
    longs[261] = '.';
    h = help_read(longs, 262, false); // 256 bytes
    assert_int_equal(h.rc, CKPT_OK);
    help_free(&h);
    longs[1] = 0x01;
    longs[262] = '.';
    h = help_read(longs, 263, false);
    assert_int_equal(h.rc, CKPT_ELIMIT);
    help_free(&h);
}

/* A list put into itself from the outside in: no opcode nests deep, the graph does. */
static void deep_from_outside(void **state)
{
    ckpt_bytes b = {0};
    help_pickle h;

    (void)state;
    assert_true(ckpt_bytes_add(&b, "]p0\n", 4));
    for (unsigned i = 0; i < 2000; i++) {
        // fetch the innermost list, append a new one, remember that
        assert_true(ckpt_bytes_printf(&b, "g%u\n]p%u\na0", i, i + 1));
    }
    assert_true(ckpt_bytes_add(&b, ".", 1));
    h = help_read(b.at, b.n, false);
    assert_int_equal(h.rc, CKPT_ELIMIT);
    help_free(&h);
    ckpt_vec_free(&b);
}

/* Short calls on one large list must not cost quadratic time or memory. */
static void copies_are_bounded(void **state)
{
    ckpt_bytes b = {0};
    help_pickle h;

    (void)state;
    assert_true(ckpt_bytes_add(&b, "c__builtin__\nset\np0\n](", 22));
    for (unsigned i = 0; i < 20000; i++)
        assert_true(ckpt_bytes_add(&b, "N", 1));
    assert_true(ckpt_bytes_add(&b, "e\x85p1\n0", 6));
    for (unsigned i = 0; i < 20000; i++)
        assert_true(ckpt_bytes_add(&b, "h\0h\1R0", 6));
    assert_true(ckpt_bytes_add(&b, ".", 1));
    h = help_read(b.at, b.n, false);
    assert_int_equal(h.rc, CKPT_ELIMIT);
    help_free(&h);
    ckpt_vec_free(&b);
}

/* The same for one long key in many small dicts. */
static void long_keys_are_bounded(void **state)
{
    ckpt_bytes b = {0};
    help_pickle h;

    (void)state;
    assert_true(ckpt_bytes_add(&b, "]X\0\0\x01\0", 6)); // 65536 bytes
    assert_true(ckpt_bytes_add(&b, NULL, 65536));
    assert_true(ckpt_bytes_add(&b,
                               "q\0"
                               "0",
                               3));
    for (unsigned i = 0; i < 20000; i++)
        assert_true(ckpt_bytes_add(&b, "}h\0Nsa", 6));
    assert_true(ckpt_bytes_add(&b, ".", 1));
    h = help_read(b.at, b.n, false);
    assert_int_equal(h.rc, CKPT_ELIMIT);
    help_free(&h);
    ckpt_vec_free(&b);
}

static const struct {
    const char *id;
    int code;
} bad_cases[] = {
    {"pk_ok_plain", CKPT_OK},
    {"pk_ok_proto4", CKPT_OK},
    {"pk_ok_userclass", CKPT_OK},
    {"pk_ok_stdlib_data", CKPT_OK},
    {"pk_ok_numpy", CKPT_OK},
    {"pk_laughs", CKPT_OK},
    {"pk_x_system", CKPT_EUNSAFE},
    {"pk_x_exec", CKPT_EUNSAFE},
    {"pk_x_py2eval", CKPT_EUNSAFE},
    {"pk_x_memo_global", CKPT_EUNSAFE},
    {"pk_x_dotted", CKPT_EUNSAFE},
    {"pk_x_stdlib_rare", CKPT_EUNSAFE},
    {"pk_x_map_set", CKPT_EUNSAFE},
    {"pk_x_torch_gadget", CKPT_EUNSAFE},
    {"pk_x_rebuild_func", CKPT_EUNSAFE},
    {"pk_x_then_garbage", CKPT_EUNSAFE},
    {"pk_ext1", CKPT_EUNSAFE},
    {"pk_x_after_stop", CKPT_EFORMAT},
    {"pk_setitems_tensor", CKPT_EFORMAT},
    {"pk_pid_not_tuple", CKPT_EFORMAT},
    {"pk_storage_overflow", CKPT_EFORMAT},
    {"pk_storage_type", CKPT_EFORMAT},
    {"pk_stride_oob", CKPT_EFORMAT},
    {"pk_size_float", CKPT_EFORMAT},
    {"pk_dup_key", CKPT_EFORMAT},
    {"pk_nonutf8", CKPT_EFORMAT},
    {"pk_unhashable", CKPT_EFORMAT},
    {"pk_unicode8_len", CKPT_EFORMAT},
    {"pk_long4_neg", CKPT_EFORMAT},
    {"pk_frame_eof", CKPT_EFORMAT},
    {"pk_underflow", CKPT_EFORMAT},
    {"pk_no_mark", CKPT_EFORMAT},
    {"pk_reduce_args", CKPT_EFORMAT},
    {"pk_get_undef", CKPT_EFORMAT},
    {"pk_no_stop", CKPT_EFORMAT},
    {"pk_proto9", CKPT_EFORMAT},
    {"pk_empty", CKPT_EFORMAT},
    {"pk_stride0_bomb", CKPT_ELIMIT},
    {"pk_memo_bomb", CKPT_ELIMIT},
    {"pk_deep_tuple", CKPT_ELIMIT},
    {"pk_long_text", CKPT_ELIMIT},
};

/* Every verdict of the stored hostile pickles, by the name of the case. */
static void bad_corpus(void **state)
{
    const char *shared = getenv("CKPT_SHARED");
    char path[8192];

    (void)state;
    if (!shared)
        skip();
    for (size_t i = 0; i < sizeof bad_cases / sizeof *bad_cases; i++) {
        size_t n = 0, n_pkl = 0;
        uint8_t *zip;
        const uint8_t *pkl;
        help_pickle h;

        (void)snprintf(path, sizeof path, "%s/bad/pt/%s.pt", shared, bad_cases[i].id);
        zip = help_file(path, &n);
        pkl = !zip ? NULL : help_data_pkl(zip, n, &n_pkl);
        if (!pkl)
            fail_msg("%s has no data.pkl", path);
        h = help_read(pkl, n_pkl, false);
        if (h.rc != bad_cases[i].code)
            fail_msg("%s: %d, not %d: %s", bad_cases[i].id, h.rc, bad_cases[i].code, h.err.text);
        help_free(&h);
        free(zip);
    }
}

/* A real pickle of every kind of value; its tree against what torch saw. */
static uint8_t *objects_pkl(const uint8_t **pkl, size_t *n_pkl)
{
    char path[8192];
    size_t n = 0;
    uint8_t *zip;

    if (!help_fixtures())
        skip();
    (void)snprintf(path, sizeof path, "%s/torch_objects/zip.pt", help_fixtures());
    zip = help_file(path, &n);
    if (!zip)
        skip();
    *pkl = help_data_pkl(zip, n, n_pkl);
    assert_non_null(*pkl);
    return zip;
}

static void real_objects(void **state)
{
    const uint8_t *pkl;
    size_t n;
    uint8_t *zip = objects_pkl(&pkl, &n);
    help_pickle h = help_read(pkl, n, false);
    ckpt_value *r = h.p.root, *v;

    (void)state;
    assert_int_equal(h.rc, CKPT_OK);
    assert_int_equal(ckpt_value_get(r, "ints")->as.seq.n, 15);
    assert_int_equal(ckpt_value_get(r, "ints")->as.seq.at[11]->as.i, INT64_MIN);
    assert_int_equal(ckpt_value_get(r, "bytes")->as.seq.at[2]->as.text.n, 512);
    assert_int_equal((unsigned char)ckpt_value_get(r, "bytes")->as.seq.at[2]->as.text.at[511], 255);
    v = ckpt_value_get(r, "same_list");
    assert_ptr_equal(v->as.seq.at[0], v->as.seq.at[1]);
    assert_int_equal(ckpt_value_get(r, "long_list")->as.seq.n, 1200);
    v = ckpt_value_get(r, "state_dict");
    assert_int_equal(v->kind, CKPT_V_ODICT);
    assert_int_equal(ckpt_value_get(v->state, "_metadata")->as.map.n, 3);
    assert_int_equal(ckpt_value_get(v, "1.num_batches_tracked")->as.tensor->dtype, CKPT_I64);
    assert_int_equal(h.p.storages.n, 9);
    assert_int_equal(h.p.n_objects, 0);
    help_free(&h);
    free(zip);
}

/* Cut at every byte: never accepted.  One bit of every byte flipped: never a crash. */
static void cut_and_flipped(void **state)
{
    const uint8_t *pkl;
    size_t n;
    uint8_t *zip = objects_pkl(&pkl, &n);
    uint8_t *copy = malloc(n);

    (void)state;
    assert_non_null(copy);
    for (size_t i = 0; i < n; i++) {
        help_pickle h = help_read(pkl, i, false);

        assert_int_not_equal(h.rc, CKPT_OK);
        help_free(&h);
        memcpy(copy, pkl, n);
        copy[i] ^= (uint8_t)(1u << i % 8);
        h = help_read(copy, n, false);
        help_free(&h);
    }
    free(copy);
    free(zip);
}

/* Every allocation fails once. */
static void no_memory(void **state)
{
    static const char text[] =
        "(" INNER "cmine\nA\n)R}(K\1NK\2NK\3NK\4NK\5NK\6NK\7NK\x08NK\x09NK\x0A"
        "Nu"
        "q\0h\0ctorch\nSize\nK\1\x85\x85Rl.";
    unsigned n = 0;
    int rc;

    (void)state;
    do {
        ckpt_arena *a = ckpt_arena_new(0);
        ckpt_pickle p;
        ckpt_err err = {0};

        ckpt_alloc_fail_at(n++);
        rc = ckpt_pickle_read(&p, a, (const uint8_t *)text, sizeof text - 1, NULL, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc != CKPT_OK) {
            assert_int_equal(rc, CKPT_ELIMIT);
            assert_int_equal(err.code, CKPT_ELIMIT);
        }
        ckpt_pickle_free(&p);
        ckpt_arena_free(a);
    } while (rc != CKPT_OK);
    assert_true(n > 8);
}

static void several_in_a_row(void **state)
{
    static const uint8_t two[] = "K\1.K\2.";
    ckpt_pickle_opts opts = {.name = "row", .may_continue = true};
    ckpt_arena *a = ckpt_arena_new(0);
    ckpt_pickle p;

    (void)state;
    assert_int_equal(ckpt_pickle_read(&p, a, two, 6, &opts, NULL), CKPT_OK);
    assert_int_equal(p.end, 3);
    assert_int_equal(p.root->as.i, 1);
    ckpt_pickle_free(&p);
    assert_int_equal(ckpt_pickle_read(&p, a, two + 3, 3, &opts, NULL), CKPT_OK);
    assert_int_equal(p.root->as.i, 2);
    ckpt_pickle_free(&p);
    ckpt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),
        cmocka_unit_test(big_decimal),
        cmocka_unit_test(texts),
        cmocka_unit_test(containers),
        cmocka_unit_test(dict_keys),
        cmocka_unit_test(many_keys),
        cmocka_unit_test(builtin_calls),
        cmocka_unit_test(objects),
        cmocka_unit_test(unsafe),
        cmocka_unit_test(calls_of_results),
        cmocka_unit_test(chains),
        cmocka_unit_test(malformed),
        cmocka_unit_test(limits),
        cmocka_unit_test(deep_from_outside),
        cmocka_unit_test(copies_are_bounded),
        cmocka_unit_test(long_keys_are_bounded),
        cmocka_unit_test(bad_corpus),
        cmocka_unit_test(real_objects),
        cmocka_unit_test(cut_and_flipped),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(several_in_a_row),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
