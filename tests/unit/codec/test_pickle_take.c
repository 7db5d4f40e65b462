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

/* Bytes of memory for an object: a node and its place in the list, not what it was made of. */
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
    assert_int_equal(t.p.root->as.seq.n, N);
    for (int i = 0; i < N; i++) {
        const ckpt_value *v = t.p.root->as.seq.at[i];

        assert_int_equal(v->kind, CKPT_V_INT);
        assert_int_equal(v->as.i, i);
        assert_true(ckpt_value_is_global(v->state, "m", "C"));
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_take_little),      cmocka_unit_test(remembered_stays),
        cmocka_unit_test(older_containers_stay), cmocka_unit_test(names_and_states_stay),
        cmocka_unit_test(numbered_slots),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
