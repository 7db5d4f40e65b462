/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_keymap.c: layout maps: what is a rule and what is none, patterns, expressions, and the boxes
 * that come of axes, against a walk over every element.
 */
#include <math.h>

#include "ckpt_extra.h"
#include "libckpt/transform/keymap/expr.h"
#include "tests/unit/unit.h"

enum { MOST = 1 << 16 };

/* An empty map with one array of counting numbers. */
static ckpt_map *numbers(const char *name, const uint64_t *shape, uint32_t ndim, float *values)
{
    ckpt_array a = {.name = name, .dtype = CKPT_F32, .ndim = ndim, .shape = shape, .data = values};
    ckpt_map *map = NULL;

    assert_int_equal(ckpt_map_new(&map, "memory", NULL), CKPT_OK);
    assert_int_equal(ckpt_map_put(map, &a, NULL), CKPT_OK);
    return map;
}

static int apply(ckpt_map *map, const char *text, bool backwards, ckpt_err *err)
{
    const ckpt_remap_opts opts = {.backwards = backwards};
    ckpt_remap *r = NULL;
    int rc = ckpt_remap_new(&r, "t", text, err);

    if (rc == CKPT_OK)
        rc = ckpt_map_remap(map, r, &opts, err);
    ckpt_remap_free(r);
    return rc;
}

static void read_all(const ckpt_map *map, const char *name, float *out)
{
    const ckpt_tensor *t = ckpt_map_find(map, name);
    ckpt_reader *reader = NULL;
    ckpt_err err = {0};

    assert_non_null(t);
    assert_int_equal(ckpt_map_check(map, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_new(&reader, map, NULL), CKPT_OK);
    if (ckpt_reader_read(reader, t, 0, t->n_elems, CKPT_F32, out, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    ckpt_reader_free(reader);
}

static void bad_texts(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"lonely", "t:1: expected PATTERN REPLACEMENT"},
        {"a b c", "expected PATTERN REPLACEMENT"},
        {"a = b = c", "expected PATTERN"},
        {"a, = b", "expected PATTERN"},
        {"\n\na \"x\" = b \"y\"", "t:3: 'a' has an axis x, which 'b' lacks"},
        {"a \"x x\" = b \"x\"", "the name appears twice"},
        {"a \"(x\" = b \"x\"", "a parenthesis is not closed"},
        {"a \"2\" = b \"x\"", "expected a name"},
        {"a \"x|x\" = b \"x\"", "the name appears twice"},
        {"a \"(...)\" = b \"...\"", "'...' can appear only once"},
        {"a.{i} = b", "captures i, which 'b' lacks"},
        {"a.{i} = b.{k}", "captures i, which 'b.{k}' lacks"},
        {"a = b.*", "the replacement has more '*'"},
        {"a.{i = b", "expected {name}"},
        {"a, b = c, d", "several tensors need axes"},
        {"sizes\nx", "t:2: expected NAME = EXPRESSION"},
        {"sizes\nx = ", "expected a name, a number or a text"},
        {"sizes\nx = 1\nx = 2", "already set above"},
        {"sizes\nx = (1", "expected )"},
        {"sizes\nx = 1 2", "expected the end of the expression"},
        {"sizes\nx = sin(1)", "unknown function"},
        {"sizes\nx = 9999999999999999999", "too large"},
        {"sizes\nx = "
         "((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((("
         "((((((((((1",
         "the expression is nested too deep"},
        {"keys\na u128 = 1", "expected KEY TYPE"},
        {"keys\nneutral", "expected neutral KEY"},
        {"keys\nneutral a b", "expected NAME = EXPRESSION"},
        {"config left c.json\nneutral", "expected neutral KEY"},
        {"config left c.json\nneutral a b", "expected NAME = EXPRESSION"},
        {"config left c.json\nonly a", "expected NAME = EXPRESSION"},
        {"config left c.json\n? only \"a\" = 1", "expected neutral KEY"},
        {"drop left a because nothing", "expected drop SIDE"},
        {"drop a because \"x\"", "expected left or right"},
        {"tie left a{i} = b", "expected tie"},
        {"strip module", "expected whole parts of names"},
        {"strip a=b.", "expected whole parts of names"},
        {"strip a.=b", "expected whole parts of names"},
        {"strip a. = ", "expected whole parts of names"},
        {"strip = b.", "expected whole parts of names"},
        {"a = copies b \"x\"", "need exactly one tensor without axes"},
    };
    ckpt_err err;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_remap *r = NULL;
        memset(&err, 0, sizeof err);
        if (ckpt_remap_new(&r, "t", cases[i].text, &err) == CKPT_OK)
            fail_msg("accepted: %s", cases[i].text);
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s: %s", cases[i].text, err.text);
    }
}

/* Captures: numbers, components, runs; numbers that are shifted, or have two digits. */
static void names(void **state)
{
    static const struct {
        const char *rule, *from, *to; /* NULL: it does not match */
    } cases[] = {
        {"a.{i}.b = c.{i}", "a.12.b", "c.12"},
        {"a.{i}.b = c.{i}", "a.012.b", NULL},
        {"a.{i}.b = c.{i}", "a.x.b", NULL},
        {"a.{i}.b = c.{i+2}", "a.1.b", "c.3"},
        {"c.{i+2} = a.{i}", "c.1", NULL},
        {"c.{i+2} = a.{i}", "c.2", "a.0"},
        {"a.{i} = c.{i:3}", "a.7", "c.007"},
        {"c.{i:2} = a.{i}", "c.07", "a.7"},
        {"c.{i:2} = a.{i}", "c.7", NULL},
        {"c.{i:2} = a.{i}", "c.100", "a.100"},
        {"a.{x*}.b = c.{x*}", "a.mid.b", "c.mid"},
        {"a.{x*}.b = c.{x*}", "a.m.d.b", NULL},
        {"{x...}.{y*} = {y*}.{x...}", "a.b.c", "c.a.b"},
        {"*.{c*}.weight = *_{c*}", "a.b.c.weight", "a.b_c"},
        {"a.{=2 + 3}.b = c", "a.5.b", "c"},
        {"a* *", "abc", "bc"},
    };
    const uint64_t shape[] = {2};
    float values[2] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_map *map = numbers(cases[i].from, shape, 1, values);
        ckpt_err err = {0};
        int rc = apply(map, cases[i].rule, false, &err);

        if (cases[i].to && rc != CKPT_OK)
            fail_msg("%s: %s", cases[i].rule, err.text);
        if (!cases[i].to)
            assert_int_equal(rc, CKPT_EMISMATCH);
        else
            assert_string_equal(ckpt_map_tensor_at(map, 0)->name, cases[i].to);
        ckpt_map_free(map);
    }
}

/* A layout map says of each tensor what becomes of it, so the model is chosen; renaming chooses
 * nothing. */
static void dicts(void **state)
{
    static const char drops[] = "model.{n...} = {n...}\ndrop left optim.{n...} because \"x\"\n";
    const uint64_t shape[] = {2};
    float values[2] = {0};

    (void)state;
    for (unsigned stays = 0; stays < 2; stays++) {
        ckpt_map *map = numbers("model.a", shape, 1, values);
        char text[sizeof drops + 16];
        ckpt_err err = {0};

        map->dicts = "a model and an optimizer";
        (void)snprintf(text, sizeof text, "%s%s", stays ? "others stay\n" : "", drops);
        assert_int_equal(apply(map, text, false, &err), CKPT_OK);
        assert_int_equal(map->dicts != NULL, stays);
        ckpt_map_free(map);
    }
}

/* A head that a rule drops as tied is compared with its table, for every caller. */
static void dropped_head(void **state)
{
    static const char text[] = "wte.weight = t\ndrop left lm_head.weight because \"it is tied\"\n";
    const uint64_t shape[] = {2};
    float values[2] = {0};

    (void)state;
    for (unsigned n = 1; n <= 2; n++) {
        ckpt_map *map = numbers("lm_head.weight", shape, 1, values);
        const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = &(uint64_t){n}};
        ckpt_err err = {0};
        ckpt_tensor *table = NULL;

        assert_int_equal(ckpt_map_add(map, "wte.weight", 10, &like, &table, NULL), CKPT_OK);
        assert_int_equal(apply(map, text, false, &err), n == 2 ? CKPT_OK : CKPT_EMISMATCH);
        assert_true(n == 1 || (map->tensors.n == 1 && map->tensors.at[0]->twin));
        ckpt_map_free(map);
    }
}

/* Expressions by the sizes that come of them. */
static void expressions(void **state)
{
    static const struct {
        const char *text;
        uint64_t size; /* UNKNOWN: it has no value */
    } cases[] = {
        {"1 + 2 * 3", 7},
        {"(1 + 2) * 3", 9},
        {"7 % 4 - 1", 2},
        {"12 / 4", 3},
        {"floor(13 / 4)", 3},
        {"ceil(13 / 4)", 4},
        {"max(2, min(9, 5))", 5},
        {"nobody or 4", 4},
        {"nobody + 1", CKPT_RM_UNKNOWN},
        {"5 if 1 == 2", CKPT_RM_UNKNOWN},
        {"5 if 1 == 2 or 6 if 2 > 1", 6},
        {"5 if \"a\" == \"a\"", 5},
        {"5 if nobody", CKPT_RM_UNKNOWN},
        {"5 if nobody != 3", 5},
        {"len([null, nobody or null])", 2},
        {"5 if null or 6", 6},
        {"len([1, 2, 3])", 3},
        {"len([1, nobody])", CKPT_RM_UNKNOWN},
        {"len([1, nobody]) or len([])", 0},
        {"floor(pow(2, 10))", 1024},
        {"count(\"a.{i}\")", 1},
        {"had(\"a.{i}\")", 1},
        {"had(\"b.{i}\")", CKPT_RM_UNKNOWN},
        {"shape(\"a.0\", 0)", 2},
        {"shape(\"a.0\", 1)", CKPT_RM_UNKNOWN},
        {"-3 + 4", 1},
        {"floor(log(1024) / log(2) + 0.5)", 10},
        {"item([4, 5, 6], 1)", 5},
        {"item([4, 5, 6], 3)", CKPT_RM_UNKNOWN},
        {"item([4], 0 - 1) or 8", 8},
        {"item(each(4, 2 * index), 3)", 6},
        {"len(each(3, index if index < 2)) or 9", 9},
        {"len(each(0, nobody))", 0},
        {"len(each(nobody, 1)) or 2", 2},
        {"2 if each(3, \"a\" if index == 1 or \"b\") == [\"b\", \"a\", \"b\"]", 2},
        {"token(\"a\") or 3", 3},
        {"item(each(2, item([7, 8], 1 - index)), 0) or each(2, nobody)", 8},
    };
    const ckpt_remap_how how = {0};
    const uint64_t shape[] = {2};
    float values[2] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_map *map = numbers("a.0", shape, 1, values);
        ckpt_remap *r = NULL;
        ckpt_rm_facts f;
        ckpt_err err = {0};
        char text[128];
        uint64_t size = 0;

        (void)snprintf(text, sizeof text, "sizes\nx = %s\n", cases[i].text);
        if (ckpt_remap_new(&r, "t", text, &err) != CKPT_OK ||
            ckpt_rm_facts_open(&f, r, map, &how, &err) != CKPT_OK ||
            ckpt_rm_size_of(&f, 0, &size, &err) != CKPT_OK)
            fail_msg("%s: %s", cases[i].text, err.text);
        if (size != cases[i].size)
            fail_msg("%s: %llu", cases[i].text, (unsigned long long)size);
        ckpt_remap_free(r);
        ckpt_map_free(map);
    }
}

/* ---- boxes ---- */

enum { ATOMS = 4 };

/* Axes of a tensor: the atoms in an order, some of them joined to axes. */
typedef struct layout {
    unsigned order[ATOMS];
    bool joined[ATOMS]; /* with the one before */
} layout;

static layout draw(void)
{
    layout l;

    for (unsigned i = 0; i < ATOMS; i++) {
        unsigned k = (unsigned)rand() % (i + 1);
        l.order[i] = l.order[k];
        l.order[k] = i;
        l.joined[i] = i > 0 && rand() % 2;
    }
    l.joined[0] = false;
    return l;
}

static void write_axes(char *out, const layout *l)
{
    out[0] = 0;
    for (unsigned i = 0; i < ATOMS; i++) {
        bool opens = !l->joined[i] && i + 1 < ATOMS && l->joined[i + 1];
        bool closes = l->joined[i] && (i + 1 == ATOMS || !l->joined[i + 1]);
        char atom[2] = {(char)('a' + l->order[i]), 0};

        (void)strcat(out, i ? " " : "");
        (void)strcat(out, opens ? "(" : "");
        (void)strcat(out, atom);
        (void)strcat(out, closes ? ")" : "");
    }
}

static uint32_t shape_of(uint64_t *shape, const layout *l, const uint64_t *size)
{
    uint32_t n = 0;

    for (unsigned i = 0; i < ATOMS; i++) {
        if (l->joined[i])
            shape[n - 1] *= size[l->order[i]];
        else
            shape[n++] = size[l->order[i]];
    }
    return n;
}

/* The element of a layout that has these indexes of the atoms. */
static uint64_t element(const layout *l, const uint64_t *size, const uint64_t *index)
{
    uint64_t at = 0;

    for (unsigned i = 0; i < ATOMS; i++)
        at = at * size[l->order[i]] + index[l->order[i]];
    return at;
}

/* Any permutation and any grouping of four atoms, there and back. */
static void permutations(void **state)
{
    float *values = malloc(MOST * sizeof *values), *got = malloc(MOST * sizeof *got);

    (void)state;
    assert_true(values && got);
    srand(7);
    for (unsigned turn = 0; turn < 400; turn++) {
        layout left = draw(), right = draw();
        uint64_t size[ATOMS], shape[ATOMS], n = 1, index[ATOMS];
        char text[512], a[64], b[64];
        ckpt_err err = {0};

        for (unsigned i = 0; i < ATOMS; i++)
            n *= size[i] = 1 + (uint64_t)rand() % (turn % 3 ? 5 : 15);
        for (uint64_t i = 0; i < n; i++)
            values[i] = (float)i;
        write_axes(a, &left);
        write_axes(b, &right);
        (void)snprintf(text, sizeof text,
                       "sizes\na=%d\nb=%d\nc=%d\nd=%d\ntensors\nx \"%s\" = y \"%s\"\n",
                       (int)size[0], (int)size[1], (int)size[2], (int)size[3], a, b);
        uint32_t ndim = shape_of(shape, &left, size);
        ckpt_map *map = numbers("x", shape, ndim, values);
        if (apply(map, text, false, &err) != CKPT_OK)
            fail_msg("%s: %s", text, err.text);
        read_all(map, "y", got);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t rest = i;
            for (unsigned k = ATOMS; k-- > 0;) {
                index[k] = rest % size[k];
                rest /= size[k];
            }
            if (got[element(&right, size, index)] != values[element(&left, size, index)])
                fail_msg("%s: element %d", text, (int)i);
        }
        if (apply(map, text, true, &err) != CKPT_OK)
            fail_msg("back %s: %s", text, err.text);
        read_all(map, "x", got);
        assert_memory_equal(got, values, n * sizeof *got);
        ckpt_map_free(map);
    }
    free(values);
    free(got);
}

/* A large transposition, by tiles that do not come out even. */
static void transposes(void **state)
{
    const uint64_t shape[] = {173, 331};
    float *values = malloc(MOST * sizeof *values), *got = malloc(MOST * sizeof *got);

    (void)state;
    assert_true(values && got);
    for (int i = 0; i < 173 * 331; i++)
        values[i] = (float)i;
    ckpt_map *map = numbers("x", shape, 2, values);
    assert_int_equal(apply(map, "x \"a b\" = y \"b a\"", false, NULL), CKPT_OK);
    read_all(map, "y", got);
    for (int a = 0; a < 173; a++) {
        for (int b = 0; b < 331; b++)
            assert_true(got[b * 173 + a] == values[a * 331 + b]);
    }
    ckpt_map_free(map);
    free(values);
    free(got);
}

/* Parts of one axis, of which one is several elements and one is padding. */
static void parts(void **state)
{
    static const char text[] = "sizes\nq = 2\npadding pad = 3\ntensors\n"
                               "x.q \"(g q d)\", x.k \"(g k d)\" = y \"(g q|k d)\"\n"
                               "x.e \"v\" = z \"v|pad\"\n";
    const uint64_t shape[] = {18}, five[] = {5};
    float values[18], got[18];
    ckpt_err err = {0};

    (void)state;
    for (int i = 0; i < 18; i++)
        values[i] = (float)i + 1;
    ckpt_map *map = numbers("y", shape, 1, values);
    ckpt_array e = {.name = "z", .dtype = CKPT_F32, .ndim = 1, .shape = five, .data = values};
    assert_int_equal(ckpt_map_put(map, &e, NULL), CKPT_OK);
    // 18 = g * (2 + 1) * d: nothing says g or d
    assert_int_equal(apply(map, text, true, &err), CKPT_EMISSING);
    ckpt_map_free(map);

    memset(&err, 0, sizeof err);
    const char *const sizes[] = {"g=3", NULL};
    static const char more[] = "sizes\ng = 1\nq = 2\npadding pad = 3\ntensors\n"
                               "x.q \"(g q d)\", x.k \"(g k d)\" = y \"(g q|k d)\"\n"
                               "x.e \"v\" = z \"v|pad\"\n";
    const ckpt_remap_opts back = {.backwards = true, .sizes = sizes}, forth = {.sizes = sizes};
    ckpt_remap *r = NULL;
    map = numbers("y", shape, 1, values);
    assert_int_equal(ckpt_map_put(map, &e, NULL), CKPT_OK);
    assert_int_equal(ckpt_remap_new(&r, "t", more, NULL), CKPT_OK);
    if (ckpt_map_remap(map, r, &back, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    read_all(map, "x.k", got);
    assert_true(got[0] == 5 && got[1] == 6 && got[2] == 11 && got[4] == 17);
    // 5 elements with 3 of padding are 2
    assert_int_equal(ckpt_map_find(map, "x.e")->n_elems, 2);
    assert_int_equal(ckpt_map_remap(map, r, &forth, NULL), CKPT_OK);
    read_all(map, "y", got);
    assert_memory_equal(got, values, sizeof values);
    read_all(map, "z", got);
    assert_true(got[1] == 2 && got[2] == 0 && got[4] == 0);
    ckpt_remap_free(r);
    ckpt_map_free(map);
}

/* Tensors that a capture numbers: stacked, apart, copies, sums, means. */
static void numbered(void **state)
{
    const uint64_t shape[] = {2, 3};
    float values[6] = {1, 2, 3, 4, 5, 6}, other[6] = {10, 20, 30, 40, 50, 60}, got[12];
    ckpt_array a = {.name = "r.1", .dtype = CKPT_F32, .ndim = 2, .shape = shape, .data = other};
    ckpt_err err = {0};
    ckpt_map *map = numbers("r.0", shape, 2, values);

    (void)state;
    assert_int_equal(ckpt_map_put(map, &a, NULL), CKPT_OK);
    assert_int_equal(apply(map, "x \"a (e b)\" = r.{e} \"a b\"", true, NULL), CKPT_OK);
    read_all(map, "x", got);
    assert_true(got[2] == 3 && got[3] == 10 && got[6] == 4 && got[11] == 60);
    // nothing says how many there are
    assert_int_equal(apply(map, "x \"a (e b)\" = r.{e} \"a b\"", false, &err), CKPT_EMISSING);
    ckpt_map_free(map);

    map = numbers("r.0", shape, 2, values);
    assert_int_equal(ckpt_map_put(map, &a, NULL), CKPT_OK);
    assert_int_equal(apply(map, "x = sum r.{e}", true, NULL), CKPT_OK);
    read_all(map, "x", got);
    assert_true(got[0] == 11 && got[5] == 66);
    ckpt_map_free(map);

    map = numbers("r.0", shape, 2, values);
    assert_int_equal(ckpt_map_put(map, &a, NULL), CKPT_OK);
    assert_int_equal(apply(map, "x = mean r.{e}", true, NULL), CKPT_OK);
    read_all(map, "x", got);
    assert_true(got[0] == 5.5F && got[5] == 33);
    ckpt_map_free(map);

    // a constant, there and back; 16-bit values are rounded once
    map = numbers("x", shape, 2, values);
    assert_int_equal(apply(map, "y = x + 2.5", true, NULL), CKPT_OK);
    read_all(map, "y", got);
    assert_true(got[0] == values[0] + 2.5F && got[5] == values[5] + 2.5F);
    assert_int_equal(apply(map, "y = x + 2.5", false, NULL), CKPT_OK);
    read_all(map, "x", got);
    assert_memory_equal(got, values, sizeof values);
    ckpt_map_free(map);

    // one that is missing is named
    a.name = "r.2";
    map = numbers("r.0", shape, 2, values);
    assert_int_equal(ckpt_map_put(map, &a, NULL), CKPT_OK);
    memset(&err, 0, sizeof err);
    assert_int_equal(apply(map, "x \"e ...\" = r.{e} \"...\"", true, &err), CKPT_EMISSING);
    assert_non_null(strstr(err.text, "'r.1' is missing, which 'r.2' needs"));
    ckpt_map_free(map);
}

/* Rows of one tensor that have different axes: all q, all k and all v, instead of head by head. */
static void rows(void **state)
{
    static const char text[] = "sizes\nheads = 2\nq = 1\nk = 2\nv = 3\nz = 1\ntensors\n"
                               "x \"(heads q|k|v|z) in\" = "
                               "y \"(heads q) in; (heads k) in; (heads v) in\", w \"(heads z) in\"";
    const uint64_t shape[] = {14, 3}, less[] = {11, 3};
    // the rows of x in the order of y, and the two of w
    static const int order[14] = {0, 7, 1, 2, 8, 9, 3, 4, 5, 10, 11, 12, 6, 13};
    float values[42], got[42];
    ckpt_err err = {0};

    (void)state;
    for (int i = 0; i < 42; i++)
        values[i] = (float)i;
    ckpt_map *map = numbers("x", shape, 2, values);
    if (apply(map, text, false, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(ckpt_map_tensor_count(map), 2);
    assert_int_equal(ckpt_map_find(map, "y")->shape[0], 12);
    read_all(map, "y", got);
    read_all(map, "w", got + 36);
    for (int i = 0; i < 42; i++)
        assert_true(got[i] == values[order[i / 3] * 3 + i % 3]);
    if (apply(map, text, true, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    read_all(map, "x", got);
    assert_memory_equal(got, values, sizeof values);
    ckpt_map_free(map);

    // another number of rows than the sizes give
    const uint64_t two[] = {2, 3};
    ckpt_array w = {.name = "w", .dtype = CKPT_F32, .ndim = 2, .shape = two, .data = values};
    map = numbers("y", less, 2, values);
    assert_int_equal(ckpt_map_put(map, &w, NULL), CKPT_OK);
    memset(&err, 0, sizeof err);
    assert_int_equal(apply(map, text, true, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "'y' has 11 rows, but the rule expects 12"));
    ckpt_map_free(map);
}

/* Negative numbers whose logarithms the left side stores. */
static void logarithms(void **state)
{
    const uint64_t shape[] = {3};
    float values[3] = {0, 1, -2}, got[3], positive[3] = {-1, 2, -3};
    ckpt_err err = {0};
    ckpt_map *map = numbers("y", shape, 1, values);

    (void)state;
    assert_int_equal(apply(map, "y = log(-x)", false, NULL), CKPT_OK);
    read_all(map, "x", got);
    assert_true(got[0] == -1 && got[1] == (float)-exp(1) && got[2] == (float)-exp(-2));
    assert_int_equal(apply(map, "y = log(-x)", true, NULL), CKPT_OK);
    read_all(map, "y", got);
    assert_true(got[0] == 0 && fabsf(got[1] - 1) < 1e-6F && fabsf(got[2] + 2) < 1e-6F);
    ckpt_map_free(map);

    map = numbers("x", shape, 1, positive);
    assert_int_equal(apply(map, "y = log(-x)", true, NULL), CKPT_OK);
    const ckpt_tensor *t = ckpt_map_find(map, "y");
    ckpt_reader *reader = NULL;
    assert_int_equal(ckpt_reader_new(&reader, map, NULL), CKPT_OK);
    assert_int_equal(ckpt_reader_read(reader, t, 0, 3, CKPT_F32, got, &err), CKPT_EFORMAT);
    ckpt_reader_free(reader);
    assert_non_null(strstr(err.text, "element 1 of the source is 2: expected a negative number"));
    ckpt_map_free(map);
}

/* What is left over, used twice, or made twice. */
static void proofs(void **state)
{
    static const struct {
        const char *text;
        int code;
    } cases[] = {
        {"y = z", CKPT_EMISMATCH},
        {"x \"(a b) c\" = y \"a b c\"", CKPT_EMISSING},
        {"sizes\na = 5\ntensors\nx \"(a b) c\" = y \"a b c\"", CKPT_EMISMATCH},
        {"x \"a\" = y \"a\"", CKPT_EMISMATCH},
        {"x \"a (b|c)\" = y \"a b\"", CKPT_EMISMATCH},
        {"sizes\nb = 2\nc = 1\ntensors\nx \"a b|c\" = y \"a b\"", CKPT_EMISMATCH},
        {"x, q \"...\" = y \"...\"", CKPT_EMISSING},
        {"sizes\na = b\nb = a\ntensors\nx \"(a b) c\" = y \"a b c\"", CKPT_EUSAGE},
        {"sizes\na = 281474976710656\ntensors\nx \"c (a b)\" = y \"a b c\"", CKPT_EMISMATCH},
        {"keys\nk u8 = 256\ntensors\nx = y", CKPT_EUSAGE},
        {"keys\nk u8 = nobody\ntensors\nx = y", CKPT_EMISSING},
        {"x = y + 1.5", CKPT_OK},
        {"x = y - 2 2", CKPT_EUSAGE},
        {"x \"...\" = y \"...\" + 1", CKPT_EUSAGE},
        {"x = sum y{r} + 1", CKPT_EUSAGE},
        {"x + 1 = y", CKPT_EUSAGE},
        {"x = log(-y)", CKPT_OK},
        {"x = log(y)", CKPT_EUSAGE},
        {"x = log(-)", CKPT_EUSAGE},
        {"x = log(-y", CKPT_EUSAGE},
        {"log(-x) = y", CKPT_EUSAGE},
        {"x = log(-y) + 1", CKPT_EUSAGE},
        {"x \"...\" = log(-y) \"...\"", CKPT_EUSAGE},
        {"x, z = log(-y)", CKPT_EUSAGE},
        {"x \"a b\" = y \"a b;\"", CKPT_EUSAGE},
        {"x \"a b\" = y \"a; a b\"", CKPT_EUSAGE},
        {"x \"...\" = y \"...; ...\"", CKPT_EUSAGE},
        {"x \"e|f b\" = y{e} \"e b; f b\"", CKPT_EUSAGE},
        {"x \"e|f b\" = y \"e b; f b\"", CKPT_OK},
        {"sizes\ne = 2\ntensors\nx \"e|f b\" = y \"e b; f b\"", CKPT_EMISMATCH},
        {"x \"e|f b\" = y \"e b; e b\"", CKPT_EMISMATCH},
        {"x \"(e|f) b\" = y \"(e 1) b; f b\"", CKPT_OK},
        {"fill right z \"a; b\" with 1\nx = y", CKPT_EUSAGE},
        {"keys\nk u8 = 1\n{nobody}.k u8 = 1\n{k}.l u8 = 1\ntensors\nx = y", CKPT_OK},
    };
    const uint64_t shape[] = {2, 3};
    float values[6] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_map *map = numbers("x", shape, 2, values);
        ckpt_err err = {0};
        int rc = apply(map, cases[i].text, false, &err);

        if (rc != cases[i].code)
            fail_msg("%s: %d, %s", cases[i].text, rc, err.text);
        ckpt_map_free(map);
    }
}

/* What a configuration section makes of tensors and options. */
static void configurations(void **state)
{
    static const char text[] =
        "sizes\n kind = kind or \"plain\" if count(\"x\")\ntensors\ny = x\n"
        "config left config.json\n rows = shape(\"x\", 0)\n"
        " eps = norm_eps\n ? none = nobody\n zero = nobody or null\n deep.er = [1, \"a\"]\n"
        " when kind in odd\n odd = 1\n when kind in plain\n plain = kind\n";
    static const char *const sizes[] = {"norm_eps=1e-5", NULL};
    static const char *const own[] = {"eps=0.5", "kind=odd", NULL};
    static const struct {
        const char *text;
        int code;
    } bad[] = {
        {"config left a/b\n", CKPT_EUSAGE},
        {"config left\n", CKPT_EUSAGE},
        {"config left a\nconfig left a\n", CKPT_EUSAGE},
        {"config left a\n k = 1\n k = 2\ntensors\ny = x", CKPT_EUSAGE},
        {"config left a\n k = 1\n k.l = 2\ntensors\ny = x", CKPT_EUSAGE},
        {"config left a\n .k = 1\ntensors\ny = x", CKPT_EUSAGE},
    };
    const uint64_t shape[] = {2, 3};
    float values[6] = {0};
    ckpt_remap *r = NULL;
    const ckpt_value *v;

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        ckpt_map *map = numbers("x", shape, 2, values);
        ckpt_remap_how how = {.backwards = true, .sizes = i == 1 ? sizes : i == 2 ? own : NULL};
        assert_int_equal(ckpt_remap_parse(&r, "a.map", text, strlen(text), false, NULL), CKPT_OK);
        assert_int_equal(ckpt_remap_apply(map, r, &how, NULL), CKPT_OK);
        assert_string_equal(map->config.file, "config.json");
        assert_int_equal(ckpt_value_get(map->config.value, "rows")->as.i, 2);
        assert_null(ckpt_value_get(map->config.value, "none"));
        assert_int_equal(ckpt_value_get(map->config.value, "zero")->kind, CKPT_V_NONE);
        v = ckpt_value_get(ckpt_value_get(map->config.value, "deep"), "er");
        assert_int_equal(ckpt_value_seq(v).n, 2);
        assert_int_equal(!ckpt_value_get(map->config.value, "odd"), i != 2);
        assert_int_equal(!ckpt_value_get(map->config.value, "plain"), i == 2);
        v = ckpt_value_get(map->config.value, "eps");
        if (i == 0)
            assert_string_equal(map->config.missing, "eps");
        else
            assert_true(!map->config.missing && v->as.f == (i == 1 ? 1e-5 : 0.5));
        ckpt_remap_free(r);
        ckpt_map_free(map);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ckpt_map *map = numbers("x", shape, 2, values);
        int rc = apply(map, bad[i].text, true, NULL);
        if (rc != bad[i].code)
            fail_msg("%s: %d", bad[i].text, rc);
        ckpt_map_free(map);
    }
}

/* ---- blocks ---- */

enum { ROWS = 24, BLOCKS = 2, BYTES = ROWS * BLOCKS * 17 };

/* A map with x, 24 rows of two blocks of MXFP4, after a text. */
static ckpt_map *blocks_by(const char *text, uint8_t *bytes)
{
    const uint64_t shape[] = {2, ROWS / 2, BLOCKS * 32};
    const ckpt_array a = {
        .name = "x", .dtype = CKPT_MXFP4, .ndim = 3, .shape = shape, .data = bytes};
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    assert_int_equal(ckpt_map_new(&map, "memory", NULL), CKPT_OK);
    assert_int_equal(ckpt_map_put(map, &a, NULL), CKPT_OK);
    if (apply(map, text, false, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    return map;
}

/* Check that a tensor has these rows of x, in blocks. */
static void assert_rows(const ckpt_map *map, const char *name, const uint8_t *bytes,
                        const unsigned *row, unsigned n)
{
    static uint8_t got[BYTES];
    const ckpt_tensor *t = ckpt_map_find(map, name);
    ckpt_reader *reader = NULL;

    assert_non_null(t);
    assert_int_equal(t->dtype, CKPT_MXFP4);
    assert_int_equal(t->n_elems, n * BLOCKS * 32);
    assert_int_equal(ckpt_map_check(map, NULL), CKPT_OK);
    assert_int_equal(ckpt_reader_new(&reader, map, NULL), CKPT_OK);
    assert_int_equal(ckpt_reader_read(reader, t, 0, t->n_elems, CKPT_DTYPE_NONE, got, NULL),
                     CKPT_OK);
    for (unsigned i = 0; i < n; i++)
        assert_memory_equal(got + i * BLOCKS * 17, bytes + row[i] * BLOCKS * 17, BLOCKS * 17);
    ckpt_reader_free(reader);
}

/* Rows of blocks are cut, permuted and joined in their blocks; a map must allow it. */
static void blocks(void **state)
{
    static const char split[] = "x \"e (f a|b) in\" = y \"e (f a) in\", z \"e (f b) in\"\n",
                      turned[] = "x \"e r in\" = y \"r e in\"\n",
                      columns[] = "left keeps blocks\nx \"e r in\" = y \"e in r\"\n",
                      halves[] = "sizes\np = 32\nq = 32\ntensors\nleft keeps blocks\n"
                                 "x \"e r p|q\" = y \"e r p\", z \"e r q\"\n";
    uint8_t bytes[BYTES];
    unsigned even[ROWS / 2], odd[ROWS / 2], across[ROWS];
    char text[256];
    ckpt_err err = {0};

    (void)state;
    for (unsigned i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 17);
    for (unsigned i = 0; i < ROWS; i++) {
        (i % 2 ? odd : even)[i / 2] = i;
        across[i] = i % 2 * (ROWS / 2) + i / 2;
    }
    (void)snprintf(text, sizeof text, "sizes\na = 1\nb = 1\ntensors\nleft keeps blocks\n%s", split);
    ckpt_map *map = blocks_by(text, bytes);
    assert_rows(map, "y", bytes, even, ROWS / 2);
    assert_rows(map, "z", bytes, odd, ROWS / 2);
    // the other side's word has no effect on this one
    assert_int_equal(
        apply(map, "right keeps blocks\ny = u\nz \"e f in\" = v \"f e in\"", false, &err), CKPT_OK);
    assert_int_equal(ckpt_map_find(map, "u")->dtype, CKPT_MXFP4);
    assert_int_equal(ckpt_map_find(map, "v")->dtype, CKPT_F32);
    ckpt_map_free(map);

    (void)snprintf(text, sizeof text, "left keeps blocks\n%s", turned);
    map = blocks_by(text, bytes);
    assert_rows(map, "y", bytes, across, ROWS);
    ckpt_map_free(map);

    // without the word, and for parts of rows, elements are decoded
    static const char *const decoded[] = {turned, columns, halves};
    for (unsigned i = 0; i < 3; i++) {
        map = blocks_by(decoded[i], bytes);
        assert_int_equal(ckpt_map_find(map, "y")->dtype, CKPT_F32);
        ckpt_map_free(map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_texts),      cmocka_unit_test(names),
        cmocka_unit_test(expressions),    cmocka_unit_test(permutations),
        cmocka_unit_test(transposes),     cmocka_unit_test(parts),
        cmocka_unit_test(numbered),       cmocka_unit_test(proofs),
        cmocka_unit_test(rows),           cmocka_unit_test(logarithms),
        cmocka_unit_test(configurations), cmocka_unit_test(dicts),
        cmocka_unit_test(dropped_head),   cmocka_unit_test(blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
