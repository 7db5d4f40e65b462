/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pickle_take.c: objects that the caller takes over: what they were made of goes, what
 * something else refers to stays.
 */
#include "libckpt/codec/pickle/pickle.h"
#include "tests/unit/unit.h"

/* The class m.C, in slot 0 of the memo; an object of it on the stack; a state of two numbers. */
#define CLASS  "\x8C\1m\x8C\1C\x93\x94"
#define OBJECT "h\0)\x81"
#define STATE  "}\x8C\1aK\1K\2\x86s"

/* What fills the memory that went, so that a look into it shows. */
#define FILL STATE STATE STATE STATE

static bool take(void *ctx, const ckpt_object *o, int64_t *number)
{
    assert_non_null(o->state);
    *number = (*(int64_t *)ctx)++;
    return true;
}

typedef struct taken {
    ckpt_arena *arena;
    ckpt_pickle p;
    int64_t n;
    int rc;
} taken;

static taken read_taken(const void *bytes, size_t n, uint64_t limit, bool with_take)
{
    taken t = {.arena = ckpt_arena_new(limit)};
    ckpt_pickle_opts opts = {.name = "test", .take = with_take ? take : NULL, .ctx = &t.n};
    ckpt_err err = {0};

    t.rc = ckpt_pickle_read(&t.p, t.arena, bytes, n, &opts, &err);
    if (t.rc != CKPT_OK && t.rc != CKPT_ELIMIT)
        fail_msg("%s", err.text);
    return t;
}

static void done(taken *t)
{
    ckpt_pickle_free(&t->p);
    ckpt_arena_free(t->arena);
}

#define READ(text) read_taken(text, sizeof(text) - 1, 0, true)

/* True for objects that were taken over, from number `first` on; n 0: a single one. */
static void is_taken(const ckpt_value *v, int64_t first, uint64_t n)
{
    assert_int_equal(v->kind, CKPT_V_INT);
    assert_int_equal(v->as.taken.first, first);
    assert_int_equal(v->as.taken.n, n);
    assert_true(ckpt_value_is_global(v->state, "m", "C"));
}

/* Bytes of memory for an object: a node, until the list gets it, not what it was made of. */
static void many_take_little(void **state)
{
    enum { N = 20000, LIMIT = N * 100 };
    static const char head[] = "\x80\4" CLASS "0](", one[] = OBJECT STATE "b";
    ckpt_bytes b = {0};
    taken t;

    (void)state;
    assert_true(ckpt_bytes_add(&b, head, sizeof head - 1));
    for (int i = 0; i < N; i++)
        assert_true(ckpt_bytes_add(&b, one, sizeof one - 1));
    assert_true(ckpt_bytes_add(&b, "e.", 2));
    t = read_taken(b.at, b.n, LIMIT, true);
    assert_int_equal(t.rc, CKPT_OK);
    assert_int_equal(t.n, N);
    assert_int_equal(t.p.root->as.seq.n, 1);
    is_taken(t.p.root->as.seq.at[0], 0, N);
    done(&t);
    t = read_taken(b.at, b.n, LIMIT, false);
    assert_int_equal(t.rc, CKPT_ELIMIT);
    done(&t);
    ckpt_vec_free(&b);
}

/* True for a tuple of the numbers 7 and 8. */
static void is_pair(const ckpt_value *v)
{
    assert_int_equal(v->kind, CKPT_V_TUPLE);
    assert_int_equal(v->as.seq.n, 2);
    assert_int_equal(v->as.seq.at[0]->as.i, 7);
    assert_int_equal(v->as.seq.at[1]->as.i, 8);
}

/* A part of the state stands in the memo, and is read later. */
static void remembered_stays(void **state)
{
    taken t = READ("\x80\4" CLASS "0](" OBJECT "}\x8C\1aK\7K\x08\x86\x94sb" FILL "h\1e.");

    (void)state;
    assert_int_equal(t.rc, CKPT_OK);
    assert_int_equal(t.n, 1);
    is_pair(t.p.root->as.seq.at[5]);
    done(&t);
}

/* While the object waits, an older list gets something; then the object itself is in its state. */
static void older_containers_stay(void **state)
{
    taken t = READ("\x80\4" CLASS "0]\x94" OBJECT "h\1K\7K\x08\x86"
                   "a0" STATE "b" FILL "00000.");

    (void)state;
    assert_int_equal(t.rc, CKPT_OK);
    assert_int_equal(t.p.root->as.seq.n, 1);
    is_pair(t.p.root->as.seq.at[0]);
    done(&t);
    t = READ("\x80\4" CLASS "0]2" OBJECT "0K\7K\x08\x86"
             "a" OBJECT STATE "b0" FILL "00000.");
    assert_int_equal(t.rc, CKPT_OK);
    is_pair(t.p.root->as.seq.at[0]);
    done(&t);
    t = READ("\x80\4" CLASS "0(" OBJECT "\x94}\x8C\1ah\1sb" FILL "h\1l.");
    assert_int_equal(t.rc, CKPT_OK);
    assert_ptr_equal(t.p.root->as.seq.at[0], t.p.root->as.seq.at[5]);
    done(&t);
}

/* A name met inside a state stays known; an older object may have got a state meanwhile. */
static void names_and_states_stay(void **state)
{
    taken t =
        READ("\x80\4" CLASS "0(" OBJECT "}\x8C\1a\x8C\1n\x8C\1D\x93sb" FILL "\x8C\1n\x8C\1D\x93l.");

    (void)state;
    assert_int_equal(t.rc, CKPT_OK);
    assert_true(ckpt_value_is_global(t.p.root->as.seq.at[5], "n", "D"));
    done(&t);
    // {} in slot 1 is set while the object waits, by way of the memo
    t = READ("\x80\4" CLASS "0}\x94" OBJECT "h\1\x8C\1kK\7K\x08\x86s0" STATE "b" FILL "00000.");
    assert_int_equal(t.rc, CKPT_OK);
    is_pair(ckpt_value_get(t.p.root, "k"));
    done(&t);
}

/* Where a pickle numbers the slots itself, nothing is taken. */
static void numbered_slots(void **state)
{
    taken t = READ("\x80\2"
                   "cm\nC\nq\0000(" OBJECT "}U\1aK\7K\x08\x86q\1sb" FILL "h\1l.");

    (void)state;
    assert_int_equal(t.rc, CKPT_OK);
    assert_int_equal(t.n, 0);
    assert_int_equal(t.p.root->as.seq.at[0]->kind, CKPT_V_OBJECT);
    is_pair(t.p.root->as.seq.at[5]);
    done(&t);
}

/* Items join only if all of them were taken over, one after the other. */
static void items_join(void **state)
{
    taken t = READ("\x80\4" CLASS "0]\x94(" OBJECT STATE "b" OBJECT STATE "be(" OBJECT STATE
                   "b" OBJECT STATE "b" OBJECT STATE "be" OBJECT STATE "ba.");
    const ckpt_value *root = t.p.root;

    (void)state;
    assert_int_equal(root->as.seq.n, 3);
    is_taken(root->as.seq.at[0], 0, 2);
    is_taken(root->as.seq.at[1], 2, 3);
    is_taken(root->as.seq.at[2], 5, 0);
    done(&t);
    t = READ("\x80\4" CLASS "0}(" OBJECT STATE "b" OBJECT STATE "b" OBJECT STATE "bK\7u.");
    root = t.p.root;
    assert_int_equal(root->as.map.n, 2);
    is_taken(root->as.map.at[0].key, 0, 0);
    is_taken(root->as.map.at[0].value, 1, 0);
    is_taken(root->as.map.at[1].key, 2, 0);
    done(&t);
    t = READ("\x80\4" CLASS "0}(" OBJECT STATE "b" OBJECT STATE "b" OBJECT STATE "b" OBJECT STATE
             "bu.");
    root = t.p.root;
    assert_int_equal(root->as.map.n, 1);
    is_taken(root->as.map.at[0].key, 0, 4);
    done(&t);
    // slot 1 is the first object, which stands alone, in a list with the second one, and twice
    t = READ("\x80\4" CLASS "0(" OBJECT "\x94" STATE "b](h\1" OBJECT STATE "be" FILL "h\1](h\1h\1e"
             "t.");
    root = t.p.root;
    is_taken(root->as.seq.at[0], 0, 0);
    is_taken(root->as.seq.at[1]->as.seq.at[0], 0, 2);
    is_taken(root->as.seq.at[6], 0, 0);
    assert_int_equal(root->as.seq.at[7]->as.seq.n, 2);
    done(&t);
}

/* ---- objects that repeat an earlier one ---- */

/* What the caller of a reading got, in a form to compare: kinds, numbers, texts. */
static void describe(ckpt_bytes *to, const ckpt_value *v)
{
    ckpt_seq s = ckpt_value_seq(v);
    ckpt_dict m = ckpt_value_map(v);

    assert_true(ckpt_bytes_printf(to, "%d", (int)v->kind));
    if (v->kind == CKPT_V_INT)
        assert_true(ckpt_bytes_printf(to, "=%lld ", (long long)v->as.i));
    else if (v->kind == CKPT_V_STR)
        assert_true(ckpt_bytes_printf(to, "=%s/%d ", v->as.text.at, (int)v->as.text.n));
    for (uint64_t i = 0; i < s.n; i++)
        describe(to, s.at[i]);
    for (uint64_t i = 0; i < m.n; i++) {
        describe(to, m.at[i].key);
        describe(to, m.at[i].value);
    }
    assert_true(ckpt_bytes_printf(to, "."));
}

static bool take_text(void *ctx, const ckpt_object *o, int64_t *number)
{
    describe(ctx, o->state);
    *number = 7;
    return true;
}

/* Read with and without patterns: the same objects, values and errors. */
static int same_both_ways(const void *bytes, size_t n)
{
    ckpt_bytes told[2] = {{0}};
    int rc[2];

    for (int slow = 0; slow < 2; slow++) {
        const ckpt_pickle_opts opts = {
            .name = "test", .take = take_text, .ctx = &told[slow], .no_patterns = slow != 0};
        ckpt_arena *arena = ckpt_arena_new(0);
        ckpt_err err = {0};
        ckpt_pickle p;

        rc[slow] = ckpt_pickle_read(&p, arena, bytes, n, &opts, &err);
        if (rc[slow] == CKPT_OK) {
            describe(&told[slow], p.root);
            assert_true(ckpt_bytes_printf(&told[slow], "%d", (int)p.n_objects));
        }
        assert_true(ckpt_bytes_printf(&told[slow], "%s", err.text));
        assert_true(ckpt_bytes_add(&told[slow], "", 1));
        ckpt_pickle_free(&p);
        ckpt_arena_free(arena);
    }
    assert_string_equal(told[0].at, told[1].at);
    assert_int_equal(rc[0], rc[1]);
    ckpt_vec_free(&told[0]);
    ckpt_vec_free(&told[1]);
    return rc[0];
}

#define BOTH(text) same_both_ways(text, sizeof(text) - 1)

/* Slots 0 to 3: the class m.C, torch.Size, the texts "a" and "b"; then a list of objects. */
#define SLOTS                                                                                      \
    "\x80\4" CLASS "\x8C\5torch\x8C\4Size\x93\x94\x8C\1a\x94\x8C\1b\x94"                           \
    "0000("
#define FORM(a, b) "h\0)\x81\x94}\x94(h\2" a "h\3" b "ub"
#define SIZE(n)    "h\1" n "K\0\x86\x94\x85\x94R\x94"
#define TWO        FORM(SIZE("K\1"), "K\2") FORM(SIZE("K\3"), "K\4")

/* Numbers of all widths, and numbers that a pattern must leave to the opcodes. */
static void repeated_numbers(void **state)
{
    (void)state;
    assert_int_equal(BOTH(SLOTS TWO FORM(SIZE("M\1\xFF"), "J\1\2\3\4")
                              FORM(SIZE("J\0\0\1\0"), "\x8A\5\1\1\1\1\1") "l."),
                     CKPT_OK);
    assert_int_equal(
        BOTH(SLOTS TWO FORM(SIZE("\x8A\0"), "\x8A\1\x80") FORM(SIZE("K\1"), "J\1\1\1\xFF") "l."),
        CKPT_OK);
    assert_int_equal(BOTH(SLOTS TWO FORM(SIZE("K\1"), "\x8A\x08\1\1\1\1\1\1\1\1")
                              FORM(SIZE("K\1"), "\x8A\x09\1\1\1\1\1\1\1\1\1") "l."),
                     CKPT_OK);
    assert_int_equal(BOTH(SLOTS TWO FORM(SIZE("J\1\1\1\xFF"), "K\4") "l."), CKPT_EFORMAT);
    assert_int_equal(BOTH(SLOTS TWO FORM(SIZE("\x8A\1\xFF"), "K\4") "l."), CKPT_EFORMAT);
}

/* Texts in the object and from the memo; a slot of a class, of another text, and of nothing. */
static void repeated_texts(void **state)
{
    (void)state;
    assert_int_equal(BOTH(SLOTS FORM("h\2", "\x8C\1x\x94") FORM("h\3", "\x8C\2yz\x94")
                              FORM("h\1", "\x8C\0\x94") FORM("h\2", "\x8C\2\xC3\xA9\x94") "l."),
                     CKPT_OK);
    assert_int_equal(BOTH(SLOTS FORM("h\2", "K\1") FORM("h\0", "K\2") FORM("h\3", "K\3") "l."),
                     CKPT_OK);
    assert_int_equal(BOTH(SLOTS FORM("h\2", "K\1") FORM("h\3", "K\1") FORM("h\x7F", "K\2") "l."),
                     CKPT_EFORMAT);
    assert_int_equal(BOTH(SLOTS FORM("K\1", "\x8C\1x") FORM("K\1", "\x8C\1\xFF") "l."),
                     CKPT_EFORMAT);
}

/* A key that changes may repeat another one. */
static void keys_do_not_change(void **state)
{
    (void)state;
    assert_int_equal(BOTH(SLOTS "h\0)\x81}(h\2K\1K\1K\2ub"
                                "h\0)\x81}(h\2K\1K\2K\2ub"
                                "h\0)\x81}(h\2K\1h\2K\2ub"
                                "l."),
                     CKPT_EFORMAT);
    assert_int_equal(BOTH(SLOTS "h\0)\x81}(h\2h\3h\3h\2ub"
                                "h\0)\x81}(h\2h\2h\3h\3ub"
                                "h\0)\x81}(h\3h\2h\2h\3ub"
                                "l."),
                     CKPT_OK);
    assert_int_equal(BOTH(SLOTS "h\0)\x81}(h\2h\3h\3h\2ub"
                                "h\0)\x81}(h\2h\3h\2h\3ub"
                                "l."),
                     CKPT_EFORMAT);
    assert_int_equal(BOTH(SLOTS "h\0)\x81}(K\1h\3K\2h\2ub"
                                "h\0)\x81}(K\3h\3K\3h\2ub"
                                "l."),
                     CKPT_EFORMAT);
    assert_int_equal(BOTH(SLOTS "h\0)\x81}(K\1\x85h\3K\2\x85h\2ub"
                                "h\0)\x81}(K\3\x85h\3K\3\x85h\2ub"
                                "l."),
                     CKPT_EFORMAT);
}

/* Slots that are read later, frames, other forms, and the end of the file. */
static void other_forms(void **state)
{
    (void)state;
    // slots 4 to 8 are those of the first object, 9 to 13 of the second, 14 to 18 of the third
    assert_int_equal(BOTH(SLOTS TWO TWO "h\x12h\x11h\x0El."), CKPT_OK);
    assert_int_equal(BOTH(SLOTS TWO TWO TWO "h\x08h\x17l."), CKPT_OK);
    // the first frame ends inside the third object
    assert_int_equal(BOTH("\x80\4\x95\x41\0\0\0\0\0\0\0" CLASS "\x8C\1a\x94\x8C\1b\x94"
                          "000("
                          "h\0)\x81}(h\1K\1h\2K\1ub"
                          "h\0)\x81}(h\1K\2h\2K\2ub"
                          "h\0)\x81}(h\1K\3h\2K\3ub"
                          "h\0)\x81}(h\1K\4h\2K\4ubl."),
                     CKPT_EFORMAT);
    // a state without keys, an argument, items in a list
    assert_int_equal(BOTH(SLOTS TWO FORM("K\3", "N") "h\0)\x81}b"
                                                     "h\0K\1\x85\x81}(h\2K\1ub"
                                                     "h\0)\x81K\1a}(h\2K\1ub"
                                                     "h\0)\x81K\1a}(h\2K\1ubl."),
                     CKPT_OK);
    assert_int_equal(BOTH(SLOTS TWO "}bl."), CKPT_EFORMAT);
    assert_int_equal(BOTH(SLOTS TWO "h\0)\x81\x94}\x94(h\2"), CKPT_EFORMAT);
}

/* ---- bytes that the caller fetches ---- */

static int fetch(void *ctx, void *to, uint64_t n, uint64_t at, ckpt_err *err)
{
    const ckpt_bytes *b = ctx;

    if (at + n > b->n || at > b->n)
        return ckpt_fail(err, CKPT_EIO, "byte %llu is lost", (unsigned long long)b->n);
    memcpy(to, b->at + at, (size_t)n);
    return CKPT_OK;
}

/* Read n bytes, fetched or in memory; returns what was read, or the error. */
static ckpt_bytes read_fetched(ckpt_bytes *from, size_t n, bool fetched, bool takes)
{
    ckpt_bytes told = {0};
    const ckpt_pickle_opts opts = {.name = "test",
                                   .take = takes ? take_text : NULL,
                                   .ctx = &told,
                                   .fetch = fetched ? fetch : NULL,
                                   .fetch_ctx = from};
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_err err = {0};
    ckpt_pickle p;

    if (ckpt_pickle_read(&p, arena, fetched ? NULL : from->at, n, &opts, &err) == CKPT_OK)
        describe(&told, p.root);
    assert_true(ckpt_bytes_printf(&told, "%s", err.text));
    assert_true(ckpt_bytes_add(&told, "", 1));
    ckpt_pickle_free(&p);
    ckpt_arena_free(arena);
    return told;
}

/* Lines and texts longer than the window, with objects around them, whole and cut off. */
static void fetched_in_parts(void **state)
{
    enum { N = 20000, LONG = 700000 };
    static const char head[] = SLOTS, one[] = FORM(SIZE("M\1\2"), "\x8C\3xyz\x94");
    ckpt_bytes b = {0};

    (void)state;
    assert_true(ckpt_bytes_add(&b, head, sizeof head - 1));
    for (int i = 0; i < N; i++) {
        assert_true(ckpt_bytes_add(&b, one, sizeof one - 1));
        if (i % 100 == 0)
            assert_true(ckpt_bytes_add(&b, "cm\nC\nF2.5\n", 10));
        if (i == N / 2) {
            assert_true(ckpt_bytes_add(&b, "X\x60\xAE\x0A\0", 5)); // LONG bytes
            assert_true(ckpt_bytes_add(&b, NULL, LONG));
            assert_true(ckpt_bytes_add(&b, "V", 1));
            for (int k = 0; k < LONG; k++)
                assert_true(ckpt_bytes_add(&b, "v", 1));
            assert_true(ckpt_bytes_add(&b, "\n", 1));
        }
    }
    assert_true(ckpt_bytes_add(&b, "l.", 2));
    for (int i = 0; i < 8; i++) {
        const size_t n = i < 2 ? b.n : b.n / 8 * (size_t)i - 1;
        ckpt_bytes x = read_fetched(&b, n, true, i % 2 == 0);
        ckpt_bytes y = read_fetched(&b, n, false, i % 2 == 0);

        assert_int_equal(x.n, y.n);
        assert_memory_equal(x.at, y.at, x.n);
        ckpt_vec_free(&x);
        ckpt_vec_free(&y);
    }
    ckpt_bytes x = read_fetched(&b, b.n + 1, true, true);
    assert_non_null(strstr((const char *)x.at, "is lost"));
    ckpt_vec_free(&x);
    ckpt_vec_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_take_little),      cmocka_unit_test(remembered_stays),
        cmocka_unit_test(older_containers_stay), cmocka_unit_test(names_and_states_stay),
        cmocka_unit_test(numbered_slots),        cmocka_unit_test(items_join),
        cmocka_unit_test(repeated_numbers),      cmocka_unit_test(repeated_texts),
        cmocka_unit_test(keys_do_not_change),    cmocka_unit_test(other_forms),
        cmocka_unit_test(fetched_in_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
