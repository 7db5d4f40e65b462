/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xml.c: parses small XML documents strictly.
 */
#include "libckpt/remote/xml.h"

#include <assert.h>
#include <string.h>

typedef struct xml_open {
    char name[CKPT_XML_NAME];
    bool parent; /* it has child elements */
} xml_open;

typedef struct xml_reader {
    const char *name; /* name of the document, for messages */
    const char *at, *start, *end;
    ckpt_xml_end_fn *done;
    void *ctx;
    xml_open open[CKPT_XML_DEPTH];
    unsigned depth;
    bool closed; /* the root has ended */
    ckpt_bytes text;
    ckpt_err *err;
} xml_reader;

static int xml_wrong(xml_reader *x, const char *what)
{
    return ckpt_fail(x->err, CKPT_EFORMAT, "%s: byte %zu of its XML: %s", x->name,
                     (size_t)(x->at - x->start), what);
}

static bool xml_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool xml_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == ':';
}

static void xml_skip_blanks(xml_reader *x)
{
    while (x->at < x->end && xml_blank(*x->at))
        x->at++;
}

static bool xml_is(const xml_reader *x, const char *word)
{
    size_t n = strlen(word);

    return (size_t)(x->end - x->at) >= n && memcmp(x->at, word, n) == 0;
}

/* Move past the next `word`; false: there is none. */
static bool xml_behind(xml_reader *x, const char *word)
{
    for (; x->at < x->end; x->at++) {
        if (xml_is(x, word)) {
            x->at += strlen(word);
            return true;
        }
    }
    return false;
}

/* ---- texts ---- */

static int xml_add(xml_reader *x, const char *p, size_t n)
{
    if (n > CKPT_XML_TEXT - x->text.n)
        return ckpt_fail(x->err, CKPT_ELIMIT, "%s: a text of more than %u bytes in its XML",
                         x->name, CKPT_XML_TEXT);
    return ckpt_bytes_add(&x->text, p, n) ? CKPT_OK : ckpt_fail_memory(x->err);
}

/* Append a character as UTF-8. */
static int xml_add_code(xml_reader *x, uint32_t c)
{
    char utf8[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

    if (c == 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return xml_wrong(x, "a character reference is not a valid character");
    for (size_t i = n; i > 1; i--, c >>= 6)
        utf8[i - 1] = (char)(0x80 | (c & 0x3f));
    utf8[0] = (char)(n == 1 ? c : c | (0xf00u >> n & 0xffu));
    return xml_add(x, utf8, n);
}

/* Decode "#65;" or "#x41;", at its '#'. */
static int xml_number(xml_reader *x)
{
    unsigned base = x->at + 1 < x->end && x->at[1] == 'x' ? 16 : 10, n = 0;
    uint32_t c = 0;

    for (x->at += base == 16 ? 2 : 1; x->at < x->end && *x->at != ';'; x->at++, n++) {
        char d = *x->at;
        unsigned v = d >= '0' && d <= '9'   ? (unsigned)(d - '0')
                     : d >= 'a' && d <= 'f' ? (unsigned)(d - 'a') + 10
                     : d >= 'A' && d <= 'F' ? (unsigned)(d - 'A') + 10
                                            : 99;

        if (v >= base || n >= 8)
            return xml_wrong(x, "a character reference is not a valid character");
        c = c * base + v;
    }
    if (x->at == x->end || n == 0)
        return xml_wrong(x, "a character reference does not end");
    x->at++;
    return xml_add_code(x, c);
}

/* Decode "&amp;" or one of the four other named entities, or a number; at the '&'. */
static int xml_entity(xml_reader *x)
{
    static const struct {
        const char *word, *is;
    } known[] = {{"lt;", "<"}, {"gt;", ">"}, {"amp;", "&"}, {"quot;", "\""}, {"apos;", "'"}};

    x->at++;
    if (x->at < x->end && *x->at == '#')
        return xml_number(x);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (xml_is(x, known[i].word)) {
            x->at += strlen(known[i].word);
            return xml_add(x, known[i].is, 1);
        }
    }
    return xml_wrong(x, "an entity is not defined");
}

/* Read text up to the next '<'. */
static int xml_text(xml_reader *x)
{
    int rc = CKPT_OK;

    while (rc == CKPT_OK && x->at < x->end && *x->at != '<') {
        if (*x->at == '&') {
            rc = xml_entity(x);
        } else if (*x->at == 0) {
            rc = xml_wrong(x, "a NUL");
        } else {
            rc = xml_add(x, x->at, 1);
            x->at++;
        }
    }
    return rc;
}

/* ---- elements ---- */

/* Read a name and drop its namespace prefix. */
static int xml_name(xml_reader *x, char out[CKPT_XML_NAME])
{
    const char *from = x->at;
    size_t n;

    for (; x->at < x->end && xml_name_char(*x->at); x->at++) {
        if (*x->at == ':')
            from = x->at + 1;
    }
    n = (size_t)(x->at - from);
    if (n == 0)
        return xml_wrong(x, "expected a name");
    if (n >= CKPT_XML_NAME)
        return ckpt_fail(x->err, CKPT_ELIMIT, "%s: a name of %zu bytes in its XML", x->name, n);
    memcpy(out, from, n);
    out[n] = 0;
    return CKPT_OK;
}

static int xml_end(xml_reader *x)
{
    xml_open *o = &x->open[x->depth - 1];
    int rc = o->parent ? CKPT_OK : xml_add(x, "", 1);

    if (rc == CKPT_OK)
        rc =
            x->done(x->ctx, x->depth, o->name, o->parent ? NULL : (const char *)x->text.at, x->err);
    x->text.n = 0;
    x->depth--;
    x->closed = x->depth == 0;
    return rc;
}

/* Skip attributes, and read the end of a start tag. */
static int xml_attributes(xml_reader *x, bool *empty)
{
    char name[CKPT_XML_NAME];

    for (;;) {
        xml_skip_blanks(x);
        *empty = xml_is(x, "/>");
        if (*empty || xml_is(x, ">")) {
            x->at += *empty ? 2 : 1;
            return CKPT_OK;
        }
        int rc = xml_name(x, name);
        if (rc != CKPT_OK)
            return rc;
        xml_skip_blanks(x);
        if (!xml_is(x, "="))
            return xml_wrong(x, "an attribute without a value");
        x->at++;
        xml_skip_blanks(x);
        if (!xml_is(x, "\"") && !xml_is(x, "'"))
            return xml_wrong(x, "an attribute's value has no quotes");
        const char quote[2] = {*x->at++, 0};
        if (!xml_behind(x, quote))
            return xml_wrong(x, "an attribute's value does not end");
    }
}

static int xml_start(xml_reader *x)
{
    bool empty = false;
    int rc;

    if (x->closed)
        return xml_wrong(x, "a second document");
    if (x->depth >= CKPT_XML_DEPTH)
        return ckpt_fail(x->err, CKPT_ELIMIT, "%s: elements in its XML are nested deeper than %u",
                         x->name, CKPT_XML_DEPTH);
    if (x->depth > 0)
        x->open[x->depth - 1].parent = true;
    x->at++;
    x->open[x->depth].parent = false;
    rc = xml_name(x, x->open[x->depth].name);
    if (rc == CKPT_OK)
        rc = xml_attributes(x, &empty);
    x->depth++;
    x->text.n = 0;
    return rc == CKPT_OK && empty ? xml_end(x) : rc;
}

static int xml_close(xml_reader *x)
{
    char name[CKPT_XML_NAME];
    int rc;

    x->at += 2;
    rc = xml_name(x, name);
    if (rc != CKPT_OK)
        return rc;
    xml_skip_blanks(x);
    if (x->depth == 0 || strcmp(name, x->open[x->depth - 1].name) != 0 || !xml_is(x, ">"))
        return xml_wrong(x, "an end tag does not match an open element");
    x->at++;
    return xml_end(x);
}

/* "<![CDATA[...]]>" */
static int xml_section(xml_reader *x)
{
    const char *from = x->at += strlen("<![CDATA[");

    if (x->depth == 0)
        return xml_wrong(x, "text outside of the document");
    if (!xml_behind(x, "]]>") || memchr(from, 0, (size_t)(x->at - from)))
        return xml_wrong(x, "a section that does not end, or holds a NUL");
    return xml_add(x, from, (size_t)(x->at - from) - 3);
}

/* Read one construct that begins with '<'. */
static int xml_markup(xml_reader *x)
{
    if (xml_is(x, "<![CDATA["))
        return xml_section(x);
    if (xml_is(x, "<!--"))
        return xml_behind(x, "-->") ? CKPT_OK : xml_wrong(x, "a comment that does not end");
    if (xml_is(x, "<?"))
        return xml_behind(x, "?>") ? CKPT_OK : xml_wrong(x, "an instruction that does not end");
    if (xml_is(x, "<!"))
        return xml_wrong(x, "a document type declaration (<!DOCTYPE>) is not supported");
    return xml_is(x, "</") ? xml_close(x) : xml_start(x);
}

int ckpt_xml_read(const char *name, const char *at, size_t n, ckpt_xml_end_fn *end, void *ctx,
                  ckpt_err *err)
{
    assert(name && (at || n == 0) && end);
    // C allows no arithmetic on a null pointer, which an empty answer may have
    at = at ? at : "";
    xml_reader x = {
        .name = name, .at = at, .start = at, .end = at + n, .done = end, .ctx = ctx, .err = err};
    int rc = CKPT_OK;

    // skip the byte order mark
    if (n >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0)
        x.at += 3;
    while (rc == CKPT_OK && x.at < x.end) {
        if (*x.at == '<')
            rc = xml_markup(&x);
        else if (x.depth > 0)
            rc = xml_text(&x);
        else if (xml_blank(*x.at))
            x.at++;
        else
            rc = xml_wrong(&x, "text outside of the document");
    }
    if (rc == CKPT_OK && !x.closed)
        rc = xml_wrong(&x, "the XML ends inside an element");
    ckpt_vec_free(&x.text);
    return rc;
}
