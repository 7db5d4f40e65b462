/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.c: checks a JSON text strictly before the parser reads it: a text passes only if all readers
 * understand it in the same way.
 *
 * It makes one pass with an explicit stack and no recursion.  One hash table holds the decoded keys
 * of all open objects.  When an object closes, its keys leave the table in reverse order, so that
 * linear probing needs no tombstones and the memory stays small.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/codec/json/json.h"
#include "libckpt/map/map.h"

/* the largest integer up to which cJSON's doubles are exact */
#define GATE_INT_MAX (UINT64_C(1) << 53)
#define GATE_EXP_MAX 308 /* decimal exponent of the largest double */

/* The token that may come next. */
typedef enum gate_state {
    GATE_VALUE,       /* a value */
    GATE_FIRST_VALUE, /* a value, or the end of an empty array */
    GATE_FIRST_KEY,   /* a key, or the end of an empty object */
    GATE_KEY,         /* a key */
    GATE_AFTER,       /* a comma, or the end of the innermost object or array */
    GATE_END          /* nothing but white space */
} gate_state;

/* A key of an open object. */
typedef struct gate_key {
    uint64_t hash;
    uint64_t at; /* offset of its bytes in gate.names */
    uint64_t n;
    uint32_t depth; /* depth of its object: unique among open objects */
    uint32_t slot;
} gate_key;

CKPT_VEC(gate_keys, gate_key);

typedef struct gate {
    const ckpt_json_text *text;
    const char *s; /* the text */
    uint64_t n;
    uint64_t i;      /* offset of the current byte */
    uint64_t values; /* values seen so far */
    unsigned depth;
    bool is_object[CKPT_JSON_DEPTH + 1];     /* by depth, from 1; false: an array */
    uint64_t first_key[CKPT_JSON_DEPTH + 1]; /* keys.n when the object was opened */
    gate_keys keys;
    ckpt_bytes names; /* the keys' decoded bytes, one after another */
    uint32_t *slots;  /* n_slots (a power of two): index in keys + 1, 0 = free */
    uint64_t n_slots;
    uint64_t
        n_probes; /* steps beyond the first slot, in total: limits the cost of colliding keys */
    ckpt_bytes *kinds;
    ckpt_err *err;
} gate;

/* Fail at the current byte, with its offset in the file. */
static int gate_fail(gate *g, int code, const char *what)
{
    return ckpt_fail(g->err, code, "%s: JSON at offset %" PRIu64 ": %s", g->text->name,
                     g->text->base + g->i, what);
}

/* The current byte, or 0 at the end (a NUL in the text is refused anyway). */
static char gate_peek(const gate *g)
{
    return g->i < g->n ? g->s[g->i] : '\0';
}

/* True for a digit.  isdigit() would depend on the locale. */
static bool gate_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Skip the four white space characters of RFC 8259; a byte order mark is not one of them. */
static void gate_skip_blanks(gate *g)
{
    while (g->i < g->n &&
           (g->s[g->i] == ' ' || g->s[g->i] == '\n' || g->s[g->i] == '\r' || g->s[g->i] == '\t'))
        g->i++;
}

/* ---- strings ---- */

/* Value of a hexadecimal digit, or -1. */
static int gate_hex(char c)
{
    if (gate_is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Read four hexadecimal digits; -1 if there are other characters. */
static int32_t gate_hex4(const gate *g)
{
    int32_t code = 0;

    if (g->n - g->i < 4)
        return -1;
    for (unsigned k = 0; k < 4; k++) {
        int digit = gate_hex(g->s[g->i + k]);
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

/* Append a code point as UTF-8. */
static bool gate_add_code(ckpt_bytes *out, uint32_t c)
{
    uint8_t b[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0x00, 0xC0, 0xE0, 0xF0};

    for (size_t k = n - 1; k > 0; k--) {
        b[k] = (uint8_t)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    b[0] = (uint8_t)(lead[n] | c);
    return ckpt_bytes_add(out, b, n);
}

/* Decode the digits after \u, and the second half of a surrogate pair. */
static int gate_unicode(gate *g, uint32_t *code)
{
    int32_t high = gate_hex4(g);

    if (high < 0)
        return gate_fail(g, CKPT_EFORMAT, "\\u needs four hexadecimal digits");
    if (high == 0)
        return gate_fail(g, CKPT_EFORMAT, "\\u0000 inside a string is refused");
    g->i += 4;
    *code = (uint32_t)high;
    if (high < 0xD800 || high > 0xDFFF)
        return CKPT_OK;
    if (high > 0xDBFF || g->n - g->i < 6 || g->s[g->i] != '\\' || g->s[g->i + 1] != 'u')
        return gate_fail(g, CKPT_EFORMAT, "an unpaired surrogate in an escape");
    g->i += 2;
    int32_t low = gate_hex4(g);
    if (low < 0xDC00 || low > 0xDFFF)
        return gate_fail(g, CKPT_EFORMAT, "an unpaired surrogate in an escape");
    g->i += 4;
    *code = 0x10000u + (((uint32_t)high - 0xD800u) << 10) + ((uint32_t)low - 0xDC00u);
    return CKPT_OK;
}

/* Decode an escape after its backslash into out; out may be NULL. */
static int gate_escape(gate *g, ckpt_bytes *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = gate_peek(g);
    const char *hit = c ? strchr(from, c) : NULL;
    uint32_t code = 0;
    int rc = CKPT_OK;

    if (hit) {
        code = (uint8_t)to[hit - from];
        g->i++;
    } else if (c == 'u') {
        g->i++;
        rc = gate_unicode(g, &code);
    } else {
        rc = gate_fail(g, CKPT_EFORMAT, "an unknown escape in a string");
    }
    if (rc == CKPT_OK && out && !gate_add_code(out, code))
        rc = ckpt_fail_memory(g->err);
    return rc;
}

/* Read a string from its opening quote on and append its decoded bytes to out; out may be NULL. */
static int gate_string(gate *g, ckpt_bytes *out)
{
    int rc = CKPT_OK;

    g->i++;
    while (rc == CKPT_OK) {
        uint64_t from = g->i;
        while (g->i < g->n && (uint8_t)g->s[g->i] >= 0x20 && g->s[g->i] != '"' &&
               g->s[g->i] != '\\')
            g->i++;
        if (out && g->i > from && !ckpt_bytes_add(out, g->s + from, (size_t)(g->i - from)))
            return ckpt_fail_memory(g->err);
        if (g->i == g->n)
            return gate_fail(g, CKPT_EFORMAT, "the text ends inside a string");
        if ((uint8_t)g->s[g->i] < 0x20)
            return gate_fail(g, CKPT_EFORMAT, "a control character inside a string");
        if (g->s[g->i++] == '"')
            break;
        rc = gate_escape(g, out);
    }
    return rc;
}

/* ---- keys ---- */

/*
 * A mixing hash (multiply, fold).  Its quality only affects speed, since n_probes limits the rest.
 */
static uint64_t gate_hash(const uint8_t *p, uint64_t n, uint32_t depth)
{
    uint64_t h = UINT64_C(0x9E3779B97F4A7C15) ^ depth;

    for (uint64_t k = 0; k < n; k++)
        h = (h ^ p[k]) * UINT64_C(0x100000001B3);
    h ^= h >> 32;
    h *= UINT64_C(0xD6E8FEB86659FD93);
    return h ^ (h >> 32);
}

/* Put key k in the first free slot of its chain. */
static void gate_place(gate *g, uint32_t k)
{
    uint64_t slot = g->keys.at[k].hash & (g->n_slots - 1);

    while (g->slots[slot] != 0)
        slot = (slot + 1) & (g->n_slots - 1);
    g->slots[slot] = k + 1;
    g->keys.at[k].slot = (uint32_t)slot;
}

/* Make room for one more key, with at most half of the slots used. */
static bool gate_grow(gate *g)
{
    uint64_t n = g->n_slots ? 2 * g->n_slots : 64;

    if (2 * (g->keys.n + 1) <= g->n_slots)
        return true;
    uint32_t *bigger = ckpt_alloc((size_t)n * sizeof *bigger);
    if (!bigger)
        return false;
    ckpt_free(g->slots);
    g->slots = bigger;
    g->n_slots = n;
    for (uint32_t k = 0; k < g->keys.n; k++)
        gate_place(g, k);
    return true;
}

/* True if the open object already has the key (n bytes at p). */
static bool gate_has_key(gate *g, uint64_t hash, const uint8_t *p, uint64_t n)
{
    uint64_t slot = hash & (g->n_slots - 1);

    for (; g->slots[slot] != 0; slot = (slot + 1) & (g->n_slots - 1), g->n_probes++) {
        const gate_key *k = &g->keys.at[g->slots[slot] - 1];
        if (k->hash == hash && k->depth == g->depth && k->n == n &&
            (n == 0 || memcmp(g->names.at + k->at, p, (size_t)n) == 0))
            return true;
    }
    return false;
}

/* Enter the key with the decoded bytes names[at..]. */
static int gate_enter_key(gate *g, uint64_t at, uint64_t where)
{
    uint64_t n = g->names.n - at;
    const uint8_t *p = n ? g->names.at + at : (const uint8_t *)"";

    if (!gate_grow(g))
        return ckpt_fail_memory(g->err);
    uint64_t hash = gate_hash(p, n, g->depth);
    if (gate_has_key(g, hash, p, n))
        return ckpt_fail(g->err, CKPT_EFORMAT,
                         "%s: JSON at offset %" PRIu64 ": key \"%.*s\" appears twice in one object",
                         g->text->name, g->text->base + where, (int)(n < 200 ? n : 200),
                         (const char *)p);
    if (g->n_probes > 64 * (g->i + 1024))
        return gate_fail(
            g, CKPT_ELIMIT,
            "too many keys have colliding hashes, as in a file made to slow its reader down");
    gate_key *k = ckpt_vec_push(&g->keys);
    if (!k)
        return ckpt_fail_memory(g->err);
    *k = (gate_key){.hash = hash, .at = at, .n = n, .depth = g->depth};
    gate_place(g, (uint32_t)(g->keys.n - 1));
    return CKPT_OK;
}

/* Read a key and its colon. */
static int gate_key_colon(gate *g)
{
    uint64_t at = g->names.n, where = g->i;

    if (gate_peek(g) != '"')
        return gate_fail(g, CKPT_EFORMAT, "expected a key in quotes");
    int rc = gate_string(g, &g->names);
    if (rc == CKPT_OK)
        rc = gate_enter_key(g, at, where);
    if (rc != CKPT_OK)
        return rc;
    gate_skip_blanks(g);
    if (gate_peek(g) != ':')
        return gate_fail(g, CKPT_EFORMAT, "expected ':' after a key");
    g->i++;
    return CKPT_OK;
}

/* ---- numbers ---- */

/* Skip digits and return their number. */
static uint64_t gate_digits(gate *g)
{
    uint64_t from = g->i;

    while (gate_is_digit(gate_peek(g)))
        g->i++;
    return g->i - from;
}

/*
 * True if the digits (with or without a point) times 10^exp are below 10^309.  A value between the
 * largest double and that limit becomes infinity, which the parser's caller refuses.
 */
static bool gate_finite(const char *s, uint64_t n, int64_t exp)
{
    int64_t places = 0; // decimal exponent of the first digit that is not 0
    bool point = false, found = false;

    for (uint64_t k = 0; k < n; k++) {
        if (s[k] == '.') {
            point = true;
            continue;
        }
        if (found && !point)
            places++;
        if (!found && point)
            places--;
        found = found || s[k] != '0';
    }
    return !found || places + exp <= GATE_EXP_MAX;
}

/* Read the exponent after e or E, limited to the range in which it matters. */
static int gate_exponent(gate *g, int64_t *exp)
{
    bool minus = gate_peek(g) == '-';

    if (minus || gate_peek(g) == '+')
        g->i++;
    uint64_t from = g->i;
    if (gate_digits(g) == 0)
        return gate_fail(g, CKPT_EFORMAT, "an exponent without digits");
    for (; from < g->i; from++)
        *exp = *exp < 100000 ? *exp * 10 + (g->s[from] - '0') : *exp;
    *exp = minus ? -*exp : *exp;
    return CKPT_OK;
}

/* True for an integer of n digits up to 2^53. */
static bool gate_integer_ok(const char *s, uint64_t n)
{
    uint64_t v = 0;

    for (uint64_t k = 0; k < n; k++) {
        if (n > 16)
            return false;
        v = v * 10 + (uint64_t)(s[k] - '0');
    }
    return v <= GATE_INT_MAX;
}

/*
 * Read a number by the grammar of RFC 8259 (no leading zeros, digits on both sides of a point),
 * within the range of a double.
 */
static int gate_number(gate *g)
{
    uint64_t from = g->i;
    bool minus = gate_peek(g) == '-', integer = true;
    int64_t exp = 0;
    int rc = CKPT_OK;

    g->i += minus ? 1 : 0;
    uint64_t first = g->i, n = gate_digits(g);
    if (n == 0 || (n > 1 && g->s[first] == '0'))
        return gate_fail(g, CKPT_EFORMAT, n ? "a number with a leading zero" : "expected a value");
    if (gate_peek(g) == '.') {
        integer = false;
        g->i++;
        if (gate_digits(g) == 0)
            return gate_fail(g, CKPT_EFORMAT, "a decimal point without digits after it");
    }
    uint64_t mantissa = g->i - first;
    if (gate_peek(g) == 'e' || gate_peek(g) == 'E') {
        integer = false;
        g->i++;
        rc = gate_exponent(g, &exp);
    }
    bool big = integer && !gate_integer_ok(g->s + first, n);
    if (rc == CKPT_OK && big && g->text->narrow)
        rc = gate_fail(g, CKPT_EFORMAT, "an integer beyond 2^53 cannot be read exactly");
    if (rc == CKPT_OK && g->i - from > CKPT_JSON_DIGITS)
        rc = gate_fail(g, CKPT_ELIMIT, "a number of more than 60 characters");
    if (rc == CKPT_OK && !gate_finite(g->s + first, mantissa, exp))
        rc = gate_fail(g, CKPT_EFORMAT, "a number is too large for a double");
    // some readers treat "-0" as a float to keep its sign, others as an integer; it counts as a
    // float here because no offset or size is written so
    uint8_t kind = big ? 2 : integer && !(minus && g->s[first] == '0');
    bool ok = rc != CKPT_OK || !g->kinds || ckpt_bytes_add(g->kinds, &kind, 1);
    if (ok && rc == CKPT_OK && g->kinds && big)
        ok = ckpt_bytes_add(g->kinds, g->s + from, (size_t)(g->i - from)) &&
             ckpt_bytes_add(g->kinds, "", 1);
    if (!ok)
        rc = ckpt_fail_memory(g->err);
    return rc;
}

/* ---- structure ---- */

/* Read true, false or null; the next step checks the characters after it. */
static int gate_word(gate *g, const char *word)
{
    size_t n = strlen(word);

    if (g->n - g->i < n || memcmp(g->s + g->i, word, n) != 0)
        return gate_fail(g, CKPT_EFORMAT, "expected a value");
    g->i += n;
    return CKPT_OK;
}

/* Begin a nested object or array. */
static int gate_open(gate *g, bool object, gate_state *next)
{
    if (g->depth == CKPT_JSON_DEPTH)
        return gate_fail(g, CKPT_ELIMIT, "objects or arrays are nested deeper than 64 levels");
    g->i++;
    g->depth++;
    g->is_object[g->depth] = object;
    g->first_key[g->depth] = g->keys.n;
    *next = object ? GATE_FIRST_KEY : GATE_FIRST_VALUE;
    return CKPT_OK;
}

/* Close the innermost object or array, and remove its keys, the last one first. */
static void gate_close(gate *g, gate_state *next)
{
    g->i++;
    while (g->keys.n > g->first_key[g->depth]) {
        const gate_key *k = &g->keys.at[--g->keys.n];
        g->slots[k->slot] = 0;
        g->names.n = (size_t)k->at;
    }
    g->depth--;
    *next = g->depth ? GATE_AFTER : GATE_END;
}

/* Read a value of any kind; *next is the set of tokens that may follow. */
static int gate_value(gate *g, gate_state *next)
{
    *next = g->depth ? GATE_AFTER : GATE_END;
    if (++g->values > CKPT_JSON_VALUES)
        return gate_fail(g, CKPT_ELIMIT, "more than 4194304 values");
    switch (gate_peek(g)) {
    case '{':
        return gate_open(g, true, next);
    case '[':
        return gate_open(g, false, next);
    case '"':
        return gate_string(g, NULL);
    case 't':
        return gate_word(g, "true");
    case 'f':
        return gate_word(g, "false");
    case 'n':
        return gate_word(g, "null");
    default:
        return gate_number(g);
    }
}

/* After a member: read a comma, or the end of the object or array. */
static int gate_after(gate *g, gate_state *next)
{
    bool object = g->is_object[g->depth];
    char c = gate_peek(g);

    if (c == (object ? '}' : ']')) {
        gate_close(g, next);
        return CKPT_OK;
    }
    if (c != ',')
        return gate_fail(g, CKPT_EFORMAT, object ? "expected ',' or '}'" : "expected ',' or ']'");
    g->i++;
    *next = object ? GATE_KEY : GATE_VALUE;
    return CKPT_OK;
}

/* Read one token.  The caller has skipped white space, and there is a byte. */
static int gate_step(gate *g, gate_state *state)
{
    int rc = CKPT_OK;

    switch (*state) {
    case GATE_FIRST_VALUE:
        if (gate_peek(g) == ']') {
            gate_close(g, state);
            return CKPT_OK;
        }
        return gate_value(g, state);
    case GATE_VALUE:
        return gate_value(g, state);
    case GATE_FIRST_KEY:
        if (gate_peek(g) == '}') {
            gate_close(g, state);
            return CKPT_OK;
        }
        // fall through
    case GATE_KEY:
        rc = gate_key_colon(g);
        *state = GATE_VALUE;
        return rc;
    case GATE_AFTER:
        return gate_after(g, state);
    case GATE_END:
        break;
    }
    return rc;
}

/* Read the complete text: one value with white space around it. */
static int gate_run(gate *g)
{
    gate_state state = GATE_VALUE;
    int rc = CKPT_OK;

    while (rc == CKPT_OK && state != GATE_END) {
        gate_skip_blanks(g);
        if (g->i == g->n)
            return gate_fail(g, CKPT_EFORMAT, "the text ends inside a value");
        rc = gate_step(g, &state);
    }
    gate_skip_blanks(g);
    if (rc == CKPT_OK && g->i < g->n)
        rc = gate_fail(g, CKPT_EFORMAT, "text after the end of the value");
    return rc;
}

/* The encoding is checked first, because the later code accepts any byte >= 0x80 in strings. */
int ckpt_json_gate(const ckpt_json_text *text, ckpt_bytes *kinds, ckpt_err *err)
{
    assert(text && (text->at || text->n == 0));
    gate g = {.text = text, .s = text->at, .n = text->n, .kinds = kinds, .err = err};
    int rc;

    if (text->n > text->max)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "%s: the JSON has %" PRIu64 " bytes, more than the limit of %" PRIu64,
                         text->name, text->n, text->max);
    if (text->n > 0 && !ckpt_utf8_ok(text->at, text->n))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: JSON at offset %" PRIu64 " is not valid UTF-8",
                         text->name, text->base);
    rc = gate_run(&g);
    ckpt_vec_free(&g.keys);
    ckpt_vec_free(&g.names);
    ckpt_free(g.slots);
    return rc;
}
