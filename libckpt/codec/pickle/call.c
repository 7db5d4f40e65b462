/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.c: decides the result of each call and each state (BUILD) in a pickle.
 *
 * A call of a known function becomes the node of its result, for example a tensor or a set.  A call
 * of an unknown class becomes an OBJECT.  No Python code runs.
 */
#include <assert.h>

#include "libckpt/codec/pickle/node.h"

#include <string.h>

enum { CA_DEPTH = 64 }; /* maximum depth of nested attributes and calls to look through */

/* Handle OrderedDict() and OrderedDict([(key, value), ...]). */
static int ca_call_odict(ckpt_pk *p, ckpt_value **out, const ckpt_seq *args)
{
    ckpt_value *v = ckpt_pk_node(p, CKPT_V_ODICT);
    ckpt_seq items;
    int rc;

    if (!v)
        return CKPT_ELIMIT;
    *out = v;
    if (args->n == 0)
        return CKPT_OK;
    items = ckpt_value_seq(args->at[0]);
    if (args->n != 1 || (args->at[0]->kind != CKPT_V_LIST && args->at[0]->kind != CKPT_V_TUPLE))
        return ckpt_pk_fail(p, CKPT_EFORMAT,
                            "the argument of OrderedDict is not one list of pairs");
    rc = ckpt_pk_charge(p, items.n);
    for (uint64_t i = 0; rc == CKPT_OK && i < items.n; i++) {
        ckpt_seq pair = ckpt_value_seq(items.at[i]);

        rc = pair.n == 2 ? ckpt_pk_set_item(p, v, pair.at[0], pair.at[1])
                         : ckpt_pk_fail(p, CKPT_EFORMAT,
                                        "an item of OrderedDict is not a pair of key and value");
    }
    return rc;
}

/* Handle set(), set([...]) and frozenset.  The set shares the list's items. */
static int ca_call_set(ckpt_pk *p, ckpt_value **out, ckpt_value_kind kind, const ckpt_seq *args)
{
    ckpt_value *v = ckpt_pk_node(p, kind);
    uint32_t hash;
    int rc;

    if (!v)
        return CKPT_ELIMIT;
    *out = v;
    if (args->n == 0)
        return CKPT_OK;
    if (args->n != 1 || (args->at[0]->kind != CKPT_V_LIST && args->at[0]->kind != CKPT_V_TUPLE &&
                         args->at[0]->kind != CKPT_V_SET && args->at[0]->kind != CKPT_V_FROZENSET))
        return ckpt_pk_fail(p, CKPT_EFORMAT, "the argument of a set is not one list of items");
    v->as.seq = ckpt_value_seq(args->at[0]);
    v->mark |= CKPT_PK_FIXED;
    rc = ckpt_pk_charge(p, v->as.seq.n);
    for (uint64_t i = 0; rc == CKPT_OK && i < v->as.seq.n; i++)
        rc = ckpt_pk_hash(p, v->as.seq.at[i], &hash);
    return rc;
}

/* Convert a UTF-8 text to Latin-1 bytes; false if it has other characters. */
static bool ca_latin1(ckpt_text s, char *out, uint64_t *n_out)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < s.n; i++) {
        unsigned c = (unsigned char)s.at[i];

        if (c >= 0x80) {
            // the text is valid UTF-8, so C2 and C3 are the first bytes of exactly the characters
            // 80 to FF
            if (c != 0xC2 && c != 0xC3)
                return false;
            c = (c & 3) << 6 | ((unsigned char)s.at[++i] & 0x3Fu);
        }
        out[n++] = (char)c;
    }
    *n_out = n;
    return true;
}

/* True if v is a text in a NULL-terminated list. */
static bool ca_is_one_of(const ckpt_value *v, const char *const *list)
{
    for (; *list != NULL; list++) {
        if (ckpt_value_is(v, *list))
            return true;
    }
    return false;
}

/* True for a text with equal Latin-1 and UTF-8 forms. */
static bool ca_is_ascii(ckpt_text s)
{
    for (uint64_t i = 0; i < s.n; i++) {
        if ((unsigned char)s.at[i] >= 0x80)
            return false;
    }
    return true;
}

/* Handle text.encode(encoding), because protocols 0 to 2 store bytes as such a call. */
static int ca_encode(ckpt_pk *p, ckpt_text *out, const ckpt_value *text, const ckpt_value *coding)
{
    static const char *const latin[] = {"latin1", "latin-1", "iso-8859-1", "iso8859-1", NULL};
    static const char *const plain[] = {"utf-8", "utf8", "ascii", "us-ascii", NULL};
    bool as_latin = ca_is_one_of(coding, latin);
    char *bytes;
    int rc;

    if (!as_latin && !ca_is_one_of(coding, plain))
        return ckpt_pk_fail(
            p, CKPT_EUNSAFE,
            "the pickle encodes text with a codec other than Latin-1, UTF-8 or ASCII");
    if (text->kind != CKPT_V_STR)
        return ckpt_pk_fail(p, CKPT_EFORMAT, "the pickle encodes a value that is not text");
    rc = ckpt_pk_charge(p, text->as.text.n);
    if (rc != CKPT_OK)
        return rc;
    if (ca_is_ascii(text->as.text) || ckpt_value_is(coding, "utf-8") ||
        ckpt_value_is(coding, "utf8")) {
        *out = text->as.text; // the bytes are the same, so no copy is needed
        return CKPT_OK;
    }
    bytes = as_latin ? ckpt_arena_alloc(p->arena, text->as.text.n + 1) : NULL;
    if (as_latin && !bytes)
        return ckpt_pk_no_memory(p);
    if (!as_latin || !ca_latin1(text->as.text, bytes, &out->n))
        return ckpt_pk_fail(p, CKPT_EFORMAT,
                            "a text has characters that its encoding cannot express");
    out->at = bytes;
    return CKPT_OK;
}

/* Handle bytes(), bytes(b) and bytes(text, encoding), also for bytearray and _codecs.encode. */
static int ca_call_bytes(ckpt_pk *p, ckpt_value **out, ckpt_value_kind kind, const ckpt_seq *args)
{
    ckpt_value *v = ckpt_pk_node(p, kind);

    if (!v)
        return CKPT_ELIMIT;
    *out = v;
    v->as.text.at = "";
    if (args->n == 0)
        return CKPT_OK;
    if (args->n == 2)
        return ca_encode(p, &v->as.text, args->at[0], args->at[1]);
    if (args->n != 1 ||
        (args->at[0]->kind != CKPT_V_BYTES && args->at[0]->kind != CKPT_V_BYTEARRAY))
        return ckpt_pk_fail(p, CKPT_EFORMAT, "the argument of bytes or bytearray is not bytes");
    v->as.text = args->at[0]->as.text; // may be shared, because texts are never changed in place
    return CKPT_OK;
}

/* Handle torch.Size((2, 3)). */
static int ca_call_size(ckpt_pk *p, ckpt_value **out, const ckpt_seq *args)
{
    ckpt_value *v = ckpt_pk_node(p, CKPT_V_SIZE);
    ckpt_seq items = args->n == 1 ? ckpt_value_seq(args->at[0]) : (ckpt_seq){0};
    int rc = ckpt_pk_charge(p, items.n);

    if (!v || rc != CKPT_OK)
        return CKPT_ELIMIT;
    if (args->n != 1 || (args->at[0]->kind != CKPT_V_TUPLE && args->at[0]->kind != CKPT_V_LIST &&
                         args->at[0]->kind != CKPT_V_SIZE))
        return ckpt_pk_fail(p, CKPT_EFORMAT, "the argument of torch.Size is not one tuple");
    for (uint64_t i = 0; i < items.n; i++) {
        if (items.at[i]->kind != CKPT_V_INT || items.at[i]->as.i < 0)
            return ckpt_pk_fail(p, CKPT_EFORMAT, "torch.Size holds a value that is not a size");
    }
    v->as.seq = items; // a list may grow later, but these items stay in their place
    *out = v;
    return CKPT_OK;
}

static const ckpt_text ca_group = {"ShardedTensor.ProcessGroupState", 31};

/*
 * Recognise getattr(ShardedTensor, "ProcessGroupState"), the form in which protocol 2 names a class
 * inside a class.
 */
static bool ca_is_group(const ckpt_seq *a)
{
    const ckpt_value *v = a->at[0];

    return v->kind == CKPT_V_GLOBAL && strcmp(v->as.global.name.at, "ShardedTensor") == 0 &&
           ckpt_value_is(a->at[1], "ProcessGroupState") &&
           ckpt_name_is_group(v->as.global.module, ca_group);
}

/*
 * Find the name that an object comes from: the name of its class, or, for an attribute, of the
 * object that
 * has it.  NULL: there is none, or the nesting is deeper than in real data.
 */
static const ckpt_value *ca_origin(const ckpt_pk *p, const ckpt_value *v)
{
    for (unsigned depth = 0; v && v->kind == CKPT_V_OBJECT; depth++) {
        const ckpt_object *o = v->as.object;

        if (depth == CA_DEPTH || !o->cls)
            return NULL;
        ckpt_name_id id = ckpt_pk_id(p, o->cls);
        bool of_first = id == CKPT_NAME_GETATTR || id == CKPT_NAME_RECONSTRUCT;

        v = of_first ? o->args->as.seq.at[0] : o->cls;
    }
    return v && v->kind == CKPT_V_GLOBAL ? v : NULL;
}

/*
 * True for a text or container, such as the text in ", ".join.  Their methods call nothing in them.
 */
static bool ca_is_data(const ckpt_value *v)
{
    return v->kind == CKPT_V_STR || v->kind == CKPT_V_BYTES || v->kind == CKPT_V_LIST ||
           v->kind == CKPT_V_TUPLE || v->kind == CKPT_V_DICT;
}

/*
 * True if a pickle may use getattr on v: on a class (Python 3.11 writes members of Enum classes so,
 * protocol 2 writes methods so), or on an object of this pickle (bound methods).  The result of a
 * standard library function is refused, because it can be any object.
 */
static bool ca_has_attribute(const ckpt_pk *p, const ckpt_value *v, ckpt_text name)
{
    const ckpt_value *of = ca_origin(p, v);

    if (!ckpt_name_attribute(name))
        return false;
    if (ca_is_data(v))
        return true;
    if (!of || ckpt_pk_id(p, of) == CKPT_NAME_UNSAFE)
        return false;
    const ckpt_global *g = &of->as.global;

    if (ckpt_name_is_stdlib(g->module))
        return ckpt_name_stdlib_attribute(g->module, name) &&
               (ckpt_name_is_class(g) || strcmp(g->name.at, "_compile") == 0);
    if (ckpt_name_is_framework(g->module) && ckpt_name_leads_out(g->module, name))
        return false;
    return v->kind == CKPT_V_OBJECT || ckpt_name_is_class(g);
}

/* Handle getattr(SomeEnum, "member") and getattr(SomeClass, "method"). */
static int ca_call_getattr(ckpt_pk *p, ckpt_value **out, ckpt_value *callee, ckpt_value *args)
{
    const ckpt_seq *a = &args->as.seq;
    int rc;

    if (a->n != 2 || a->at[1]->kind != CKPT_V_STR ||
        !ca_has_attribute(p, a->at[0], a->at[1]->as.text))
        return ckpt_pk_fail(p, CKPT_EUNSAFE,
                            "the pickle calls getattr on a value that is not a class");
    if (ca_is_group(a))
        return ckpt_pk_name_node(p, out, a->at[0]->as.global.module, ca_group);
    rc = ckpt_pk_object(p, out, CKPT_BY_REDUCE, callee, args);
    p->out->n_objects += rc == CKPT_OK && ckpt_pk_id(p, a->at[0]) == CKPT_NAME_OPAQUE;
    return rc;
}

/* True for a name of the module operator. */
static bool ca_is_operator(const ckpt_value *v)
{
    return v->kind == CKPT_V_GLOBAL && (strcmp(v->as.global.module.at, "operator") == 0 ||
                                        strcmp(v->as.global.module.at, "_operator") == 0);
}

/* True for an attribute path that leads from an object to code: "a.__globals__", "gi_code". */
static bool ca_leads_out(ckpt_text s)
{
    if (strlen(s.at) != s.n || strstr(s.at, "__"))
        return true;
    for (const char *part = s.at; part;) {
        const char *dot = strchr(part, '.');

        if (ckpt_name_is_frame((ckpt_text){part, dot ? (uint64_t)(dot - part) : strlen(part)}))
            return true;
        part = dot ? dot + 1 : NULL;
    }
    return false;
}

/* Check operator.attrgetter("a.b") and methodcaller("f"): their attribute must not lead to code. */
static int ca_check_operator(const ckpt_pk *p, const ckpt_value *callee, const ckpt_seq *args)
{
    if (!ca_is_operator(callee))
        return CKPT_OK;
    for (uint64_t i = 0; i < args->n; i++) {
        const ckpt_value *v = args->at[i];

        if (v->kind == CKPT_V_STR && ca_leads_out(v->as.text))
            return ckpt_pk_fail(
                p, CKPT_EUNSAFE,
                "the pickle passes %.*s the attribute %.80s, which can lead to code; refused",
                ckpt_pk_cut(callee->as.global.name), callee->as.global.name.at, v->as.text.at);
    }
    return CKPT_OK;
}

/* True for the given name of builtins. */
static bool ca_is_builtin(const ckpt_value *v, const char *name)
{
    return strcmp(v->as.global.module.at, "builtins") == 0 &&
           strcmp(v->as.global.name.at, name) == 0;
}

/* True for a name of a package that is neither the standard library nor a framework. */
static bool ca_is_stranger(const ckpt_value *v)
{
    return !ckpt_name_is_stdlib(v->as.global.module) &&
           !ckpt_name_is_framework(v->as.global.module);
}

/*
 * True if functools.partial or map may get v as its function: a class or function of an unknown
 * package, a method of such a class, a class of plain data, or the __new__ of such a class, which
 * protocol 2 wraps in a partial to pass named arguments.
 */
static bool ca_is_plain(const ckpt_pk *p, const ckpt_value *v)
{
    const ckpt_value *of = ca_origin(p, v);

    if (!of)
        return false;
    if (v->kind == CKPT_V_OBJECT) {
        const ckpt_object *o = v->as.object;

        if (ckpt_pk_id(p, o->cls) != CKPT_NAME_GETATTR)
            return false;
        if (ca_is_stranger(of))
            return true;
        v = ckpt_name_is_new(o->args->as.seq.at[1]->as.text) ? o->args->as.seq.at[0] : NULL;
    }
    ckpt_name_id id = v ? ckpt_pk_id(p, v) : CKPT_NAME_UNSAFE;

    return (id == CKPT_NAME_OPAQUE ||
            (id == CKPT_NAME_DATA && ckpt_name_is_class(&of->as.global))) &&
           ckpt_name_called(&of->as.global);
}

/*
 * True for map, filter and similar functions, because Python calls their first argument when their
 * result is iterated.
 */
static bool ca_applies(const ckpt_value *v)
{
    static const char *const list[] = {"filter", "ifilter", "imap", "map", "starmap"};
    const ckpt_global *g = &v->as.global;
    bool found = false;

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        found = found || strcmp(g->name.at, list[i]) == 0;
    return found && ckpt_name_is_stdlib(g->module);
}

/* True for reduce: of functools, _functools, and Python 2's builtin. */
static bool ca_is_reduce(const ckpt_value *v)
{
    return strcmp(v->as.global.name.at, "reduce") == 0 && ckpt_name_is_stdlib(v->as.global.module);
}

/*
 * Check the arguments of the standard library functions that pickles of its own objects call:
 * type(None), iter([...]), map(int, ...), and reduce(operator.or_, ...), which is int | None.
 *
 * false  callee is not one of them; *ok is unchanged
 */
static bool ca_is_special(const ckpt_pk *p, const ckpt_value *callee, const ckpt_seq *a, bool *ok)
{
    const ckpt_value *first = a->n > 0 ? a->at[0] : NULL;

    if (ca_is_builtin(callee, "type"))
        *ok =
            a->n == 1 && (first->kind == CKPT_V_NONE || ckpt_pk_id(p, first) == CKPT_NAME_CONSTANT);
    else if (ca_is_builtin(callee, "iter"))
        *ok = a->n == 1;
    else if (ca_applies(callee))
        *ok = a->n >= 2 && (ca_is_plain(p, first) || (first->kind == CKPT_V_NONE &&
                                                      strstr(callee->as.global.name.at, "filter")));
    else if (ca_is_reduce(callee))
        *ok = *ok && a->n == 2 && ca_is_operator(first) &&
              strcmp(first->as.global.name.at, "or_") == 0;
    else
        return false;
    return true;
}

/*
 * Check a call of a global name.  Allowed are names that data calls, and standard library functions
 * with the arguments that pickles of its own objects use.  A million objects call few names, so a
 * name that may have any arguments is looked up once.
 */
static int ca_check_library(ckpt_pk *p, const ckpt_value *callee, const ckpt_seq *a)
{
    if (callee->kind != CKPT_V_GLOBAL)
        return CKPT_OK;
    uint32_t number = callee->mark & CKPT_PK_NUMBER;

    if (number > 0 && p->names.at[number - 1].free)
        return CKPT_OK;
    bool ok = ckpt_name_called(&callee->as.global);
    bool special = ca_is_special(p, callee, a, &ok);

    if (number > 0)
        p->names.at[number - 1].free = ok && !special;
    return ok ? CKPT_OK
              : ckpt_pk_fail(p, CKPT_EUNSAFE,
                             "the pickle calls %.*s.%.*s in a way that data does not need; refused",
                             ckpt_pk_cut(callee->as.global.module), callee->as.global.module.at,
                             ckpt_pk_cut(callee->as.global.name), callee->as.global.name.at);
}

/*
 * True for a class inside a class of an unknown package: protocols before 4 write it as
 * getattr(Outer, "Inner").
 */
static bool ca_is_inner(const ckpt_pk *p, const ckpt_value *v)
{
    const ckpt_value *of = v->kind == CKPT_V_OBJECT ? ca_origin(p, v) : NULL;

    return of && ckpt_pk_id(p, v->as.object->cls) == CKPT_NAME_GETATTR && ca_is_stranger(of);
}

/*
 * Handle copyreg._reconstructor(cls, base, state) and numpy's _reconstruct(cls, shape, typecode).
 */
static int ca_call_reconstruct(ckpt_pk *p, ckpt_value **out, ckpt_value *callee, ckpt_value *args)
{
    const ckpt_seq *a = &args->as.seq;
    ckpt_name_id id = a->n > 0 ? ckpt_pk_id(p, a->at[0]) : CKPT_NAME_UNSAFE;
    int rc;

    if (a->n > 0 && ca_is_inner(p, a->at[0]))
        id = CKPT_NAME_OPAQUE;
    if (id == CKPT_NAME_UNSAFE)
        return ckpt_pk_fail(p, CKPT_EUNSAFE,
                            "the pickle reconstructs an object whose class is not a named class");
    rc = ckpt_pk_object(p, out, CKPT_BY_REDUCE, callee, args);
    p->out->n_objects += rc == CKPT_OK && id == CKPT_NAME_OPAQUE;
    return rc;
}

/* ---- calls ---- */

/*
 * True for functools.partial(int, ...).  Its state, if it is set, must also begin with such a plain
 * class or function.
 */
static bool ca_is_plain_partial(const ckpt_pk *p, const ckpt_object *o)
{
    ckpt_seq state = o->state ? ckpt_value_seq(o->state) : o->args->as.seq;

    return o->args->as.seq.n > 0 && ca_is_plain(p, o->args->as.seq.at[0]) && state.n > 0 &&
           ca_is_plain(p, state.at[0]);
}

/*
 * True for an object that may be called: of an unknown package, a method of such a class,
 * ZoneInfo._unpickle, or a functools.partial of a class.  Other results of the standard library,
 * torch and numpy are refused, because a call of them can run code.
 */
static bool ca_is_callable(const ckpt_pk *p, const ckpt_value *v)
{
    const ckpt_object *o = v->kind == CKPT_V_OBJECT ? v->as.object : NULL;
    const ckpt_value *of = ca_origin(p, v);

    if (!o || !of || o->form == CKPT_BY_PERSID)
        return false;
    if (ckpt_pk_id(p, o->cls) == CKPT_NAME_PARTIAL)
        return ca_is_plain_partial(p, o);
    if (ca_is_stranger(of))
        return true;
    return ckpt_pk_id(p, o->cls) == CKPT_NAME_GETATTR &&
           ckpt_name_is_unpickle(of->as.global.module, o->args->as.seq.at[1]->as.text);
}

/*
 * Check a call: the callee must be a name, or an object that may be called; the arguments must be a
 * tuple.
 */
static int ca_check_callee(ckpt_pk *p, const ckpt_value *callee, const ckpt_value *args)
{
    if (args->kind != CKPT_V_TUPLE)
        return ckpt_pk_fail(p, CKPT_EFORMAT, "the arguments of a call are not a tuple");
    if (ckpt_pk_id(p, callee) == CKPT_NAME_UNSAFE && !ca_is_callable(p, callee))
        return ckpt_pk_fail(p, CKPT_EUNSAFE,
                            "the pickle calls a value that is not a class or function");
    int rc = ca_check_library(p, callee, &args->as.seq);

    return rc == CKPT_OK ? ca_check_operator(p, callee, &args->as.seq) : rc;
}

int ckpt_pk_call(ckpt_pk *p, ckpt_value **out, ckpt_value *callee, ckpt_value *args)
{
    assert(out && callee && args);
    int rc = ca_check_callee(p, callee, args);
    ckpt_name_id id = ckpt_pk_id(p, callee);

    if (rc != CKPT_OK)
        return rc;
    if (callee->kind == CKPT_V_OBJECT)
        return ckpt_pk_object(p, out, CKPT_BY_REDUCE, callee, args);
    if (ckpt_pk_rebuilds(id))
        return ckpt_pk_tensor(p, out, callee, args);
    switch ((int)id) {
    case CKPT_NAME_ODICT:
        return ca_call_odict(p, out, &args->as.seq);
    case CKPT_NAME_SET:
        return ca_call_set(p, out, CKPT_V_SET, &args->as.seq);
    case CKPT_NAME_FROZENSET:
        return ca_call_set(p, out, CKPT_V_FROZENSET, &args->as.seq);
    case CKPT_NAME_BYTES:
        return ca_call_bytes(p, out, CKPT_V_BYTES, &args->as.seq);
    case CKPT_NAME_BYTEARRAY:
        return ca_call_bytes(p, out, CKPT_V_BYTEARRAY, &args->as.seq);
    case CKPT_NAME_ENCODE:
        if (args->as.seq.n != 2)
            return ckpt_pk_fail(p, CKPT_EFORMAT,
                                "the arguments of _codecs.encode are not a text and an encoding");
        return ca_call_bytes(p, out, CKPT_V_BYTES, &args->as.seq);
    case CKPT_NAME_SIZE:
        return ca_call_size(p, out, &args->as.seq);
    case CKPT_NAME_GETATTR:
        return ca_call_getattr(p, out, callee, args);
    case CKPT_NAME_RECONSTRUCT:
        return ca_call_reconstruct(p, out, callee, args);
    case CKPT_NAME_OPAQUE:
    case CKPT_NAME_PARTIAL:
    case CKPT_NAME_DATA:
    case CKPT_NAME_DATA_MAP:
    case CKPT_NAME_DATA_SEQ:
        return ckpt_pk_object(p, out, CKPT_BY_REDUCE, callee, args);
    default:
        return ckpt_pk_fail(p, CKPT_EFORMAT,
                            "the pickle calls %.*s, which data uses only as a value",
                            ckpt_pk_cut(callee->as.global.name), callee->as.global.name.at);
    }
}

int ckpt_pk_make(ckpt_pk *p, ckpt_value **out, ckpt_value *cls, ckpt_value *args,
                 ckpt_value *kwargs)
{
    assert(out && cls && args);
    int rc = ca_check_callee(p, cls, args);
    int id = (int)ckpt_pk_id(p, cls);

    if (rc != CKPT_OK)
        return rc;
    if (id == CKPT_NAME_GETATTR)
        return ckpt_pk_check_item(p, cls);
    if (!kwargs && (id == CKPT_NAME_ODICT || id == CKPT_NAME_SET || id == CKPT_NAME_SIZE ||
                    id == CKPT_NAME_FROZENSET || id == CKPT_NAME_BYTEARRAY))
        return ckpt_pk_call(p, out, cls, args);
    if (cls->kind != CKPT_V_OBJECT && id != CKPT_NAME_OPAQUE && id != CKPT_NAME_PARTIAL &&
        id != CKPT_NAME_DATA && id != CKPT_NAME_DATA_MAP && id != CKPT_NAME_DATA_SEQ)
        return ckpt_pk_fail(
            p, CKPT_EFORMAT,
            "the pickle makes an object of %.*s, which is not a class that holds data",
            ckpt_pk_cut(cls->as.global.name), cls->as.global.name.at);
    if (kwargs && kwargs->kind != CKPT_V_DICT)
        return ckpt_pk_fail(p, CKPT_EFORMAT, "the keyword arguments of a call are not a dict");
    rc = ckpt_pk_object(p, out, !kwargs ? CKPT_BY_NEWOBJ : CKPT_BY_NEWOBJ_EX, cls, args);
    if (rc == CKPT_OK)
        (*out)->as.object->kwargs = kwargs;
    return rc;
}

int ckpt_pk_build(ckpt_pk *p, ckpt_value *v, ckpt_value *state)
{
    assert(v && state);
    ckpt_value **slot = v->kind == CKPT_V_OBJECT  ? &v->as.object->state
                        : v->kind == CKPT_V_ODICT ? &v->state
                                                  : NULL;

    if (v->kind == CKPT_V_GLOBAL)
        return ckpt_pk_fail(p, CKPT_EUNSAFE, "the pickle changes the class or function %.*s itself",
                            ckpt_pk_cut(v->as.global.name), v->as.global.name.at);
    if (v->kind == CKPT_V_OBJECT && v->as.object->cls &&
        ckpt_pk_id(p, v->as.object->cls) == CKPT_NAME_GETATTR)
        return ckpt_pk_fail(p, CKPT_EUNSAFE, "the pickle changes an attribute of a class; refused");
    if (!slot || *slot)
        return ckpt_pk_fail(
            p, CKPT_EFORMAT,
            "the pickle sets the state of a value twice, or of one that cannot have a state");
    *slot = state;
    return ckpt_pk_check_item(p, state);
}
