/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c: implements the grammar of RFC 8259, plus Python's NaN, Infinity and -Infinity. */
#include "tools/report/scan.h"

#include <math.h>
#include <string.h>

#include "libckpt/base/number.h"
#include "tools/cli/out.h"

const char *scan_name(scan_is is)
{
    static const char *const names[] = {"the end of the file",
                                        "an object",
                                        "a list",
                                        "a closing bracket",
                                        "a key",
                                        "a string",
                                        "a number",
                                        "true",
                                        "false",
                                        "null"};

    return names[is];
}

/* Read the next byte that is not white space, or EOF. */
static int scan_byte(scan *s)
{
    int c;

    while ((c = getc(s->file)) == ' ' || c == '\t' || c == '\r' || c == '\n')
        s->line += c == '\n';
    return c;
}

static int scan_bad(const scan *s, int c, const char *wanted, ckpt_err *err)
{
    if (c == EOF && ferror(s->file))
        return fail(err, CKPT_EIO, "%s: cannot be read", s->path);
    if (c == EOF)
        return fail(err, CKPT_EFORMAT, "%s: line %zu: the file ends, expected %s", s->path, s->line,
                    wanted);
    return fail(err, CKPT_EFORMAT, "%s: line %zu: not JSON: found byte 0x%02x, expected %s",
                s->path, s->line, (unsigned)c, wanted);
}

/* Read a string after its quote; only its beginning is kept. */
static int scan_string(scan *s, ckpt_err *err)
{
    size_t n = 0;

    for (;;) {
        int c = getc(s->file);
        if (c == '"')
            break;
        if (c == EOF || c < 0x20)
            return scan_bad(s, c, "the end of a string", err);
        if (n < SCAN_TEXT - 2)
            s->text[n++] = (char)c;
        if (c != '\\')
            continue;
        c = getc(s->file);
        if (c <= 0 || !strchr("\"\\/bfnrtu", c))
            return scan_bad(s, c, "an escaped character", err);
        if (n < SCAN_TEXT - 2)
            s->text[n++] = (char)c;
    }
    s->text[n] = 0;
    return CKPT_OK;
}

/* True for spellings that JSON allows: no "+1", ".5", "01", "0x1". */
static bool scan_is_number(const char *t)
{
    t += *t == '-';
    size_t n = strspn(t, "0123456789");
    if (n == 0 || (n > 1 && *t == '0'))
        return false;
    t += n;
    if (*t == '.') {
        n = strspn(t + 1, "0123456789");
        if (n == 0)
            return false;
        t += n + 1;
    }
    if (*t == 'e' || *t == 'E') {
        t += t[1] == '-' || t[1] == '+' ? 2 : 1;
        n = strspn(t, "0123456789");
        if (n == 0)
            return false;
        t += n;
    }
    return !*t;
}

/* Read a number or a word that begins with c. */
static int scan_word(scan *s, int c, ckpt_err *err)
{
    static const struct {
        const char *word;
        scan_is is;
        double number;
    } words[] = {{"true", SCAN_TRUE, 0},
                 {"false", SCAN_FALSE, 0},
                 {"null", SCAN_NULL, 0},
                 {"NaN", SCAN_NUMBER, (double)NAN},
                 {"Infinity", SCAN_NUMBER, (double)INFINITY},
                 {"-Infinity", SCAN_NUMBER, -(double)INFINITY}};
    size_t n = 0;

    for (; c != EOF && c > ' ' && !strchr(",:]}[{\"", c); c = getc(s->file)) {
        if (n == SCAN_TEXT - 1)
            return scan_bad(s, c, "the end of a number", err);
        s->text[n++] = (char)c;
    }
    s->text[n] = 0;
    if (c != EOF)
        (void)ungetc(c, s->file);
    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
        if (strcmp(s->text, words[k].word) == 0) {
            s->is = words[k].is;
            s->number = words[k].number;
            return CKPT_OK;
        }
    }
    if (n == 0 || !scan_is_number(s->text))
        return n ? scan_bad(s, (unsigned char)s->text[0], "a value", err)
                 : scan_bad(s, c, "a value", err);
    s->is = SCAN_NUMBER;
    (void)ckpt_parse_f64(s->text,
                         &s->number); // beyond a double's range it is infinite, as in Python
    return CKPT_OK;
}

/* Read a value that begins with c. */
static int scan_value(scan *s, int c, ckpt_err *err)
{
    s->value = false;
    s->member = true;
    if (c == '"') {
        s->is = SCAN_STRING;
        return scan_string(s, err);
    }
    if (c != '{' && c != '[')
        return scan_word(s, c, err);
    if (s->depth == SCAN_DEPTH)
        return fail(err, CKPT_ELIMIT,
                    "%s: line %zu: more than %d levels of nested objects and lists", s->path,
                    s->line, SCAN_DEPTH);
    s->open[s->depth++] = (char)c;
    s->member = false;
    s->is = c == '{' ? SCAN_OBJECT : SCAN_LIST;
    return CKPT_OK;
}

int scan_next(scan *s, ckpt_err *err)
{
    int c = scan_byte(s);
    char in = s->depth ? s->open[s->depth - 1] : 0;

    if (s->value)
        return scan_value(s, c, err);
    if (!in && c == EOF && !ferror(s->file)) {
        s->is = SCAN_END;
        return CKPT_OK;
    }
    if (!in)
        return scan_value(s, c, err);
    if (c == (in == '{' ? '}' : ']')) {
        s->depth--;
        s->member = true;
        s->is = SCAN_CLOSED;
        return CKPT_OK;
    }
    if (s->member) {
        if (c != ',')
            return scan_bad(s, c, "a comma", err);
        c = scan_byte(s);
    }
    if (in == '[')
        return scan_value(s, c, err);
    if (c != '"')
        return scan_bad(s, c, "a key", err);
    int rc = scan_string(s, err);
    if (rc == CKPT_OK && (c = scan_byte(s)) != ':')
        rc = scan_bad(s, c, "a colon", err);
    s->is = SCAN_KEY;
    s->value = true;
    return rc;
}

int scan_rest(scan *s, ckpt_err *err)
{
    unsigned depth = s->depth;
    int rc = CKPT_OK;

    if (s->is != SCAN_OBJECT && s->is != SCAN_LIST)
        return CKPT_OK;
    while (rc == CKPT_OK && s->depth >= depth)
        rc = scan_next(s, err);
    return rc;
}
