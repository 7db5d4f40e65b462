/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_xml.c: checks which elements and texts the XML parser reports, and which documents it
 * refuses.
 */
#include "libckpt/remote/xml.h"
#include "tests/unit/unit.h"

/* The elements of a document in the order of their ends, as one text: "2 Key=a;1 List;". */
typedef struct seen {
    char text[512];
    size_t n;    /* bytes that the longest text had */
    int stop_at; /* number of the element at which the callback fails; 0: never */
    int n_ended;
} seen;

static int ended(void *ctx, unsigned depth, const char *name, const char *text, ckpt_err *err)
{
    seen *s = ctx;
    size_t n = strlen(s->text), m = text ? strlen(text) : 0;

    s->n = m > s->n ? m : s->n;
    if (m < 64)
        (void)snprintf(s->text + n, sizeof s->text - n, "%u %s%s%s;", depth, name, text ? "=" : "",
                       text ? text : "");
    if (++s->n_ended == s->stop_at)
        return ckpt_fail(err, CKPT_ECANCELED, "enough");
    return CKPT_OK;
}

static seen last;
static ckpt_err err;

static int parse_n(const char *text, size_t n)
{
    last = (seen){.stop_at = last.stop_at};
    err = (ckpt_err){0};
    return ckpt_xml_read("list", text, n, ended, &last, &err);
}

static int parse(const char *text)
{
    return parse_n(text, strlen(text));
}

static void gives(const char *text, const char *expected)
{
    if (parse(text) != CKPT_OK)
        fail_msg("%s: %s", text, err.text);
    assert_string_equal(last.text, expected);
}

static void refuses(const char *text, int code, const char *why)
{
    assert_int_equal(parse(text), code);
    assert_int_equal(err.code, code);
    if (!strstr(err.text, why))
        fail_msg("%s: '%s' lacks '%s'", text, err.text, why);
}

static void test_elements(void **state)
{
    (void)state;
    gives("<a/>", "1 a=;");
    gives("<a></a>", "1 a=;");
    gives("<a> b </a>", "1 a= b ;");
    gives("\xef\xbb\xbf<?xml version=\"1.0\"?>\n<l><k>x</k>\r\n\t<k>y</k></l>\n",
          "2 k=x;2 k=y;1 l;");
    gives("<l>before<k>x</k>after</l>", "2 k=x;1 l;"); // the text of a parent is not reported
    gives("<s3:l xmlns:s3='urn:x' a = \"1>2\"><s3:k/></s3:l >", "2 k=;1 l;");
    gives("<!-- <a> --><a><!-- - --></a><!-- end --> ", "1 a=;");
    gives("<a><?php <b> ?></a>", "1 a=;");
}

static void test_texts(void **state)
{
    (void)state;
    gives("<a>&lt;&gt;&amp;&quot;&apos;</a>", "1 a=<>&\"';");
    gives("<a>&#65;&#x42;&#x6a;&#x6A;</a>", "1 a=ABjj;");
    gives("<a>&#x7f;&#x80;&#x7ff;</a>", "1 a=\x7f\xc2\x80\xdf\xbf;");
    gives("<a>&#x800;&#xffff;</a>", "1 a=\xe0\xa0\x80\xef\xbf\xbf;");
    gives("<a>&#x10000;&#x10ffff;</a>", "1 a=\xf0\x90\x80\x80\xf4\x8f\xbf\xbf;");
    gives("<a>x<![CDATA[<b>&amp;]]]>y</a>", "1 a=x<b>&amp;]y;");
    gives("<a><![CDATA[]]></a>", "1 a=;");
    gives("<a>x<!-- --> y</a>", "1 a=x y;"); // a comment does not end a text
    gives("<a>&amp;amp;</a>", "1 a=&amp;;"); // decoded once
}

static void test_refused_texts(void **state)
{
    static const char *const bad[] = {"&#0;", "&#xd800;", "&#xdfff;",     "&#x110000;", "&#xfg;",
                                      "&#a;", "&#X41;",   "&#000000065;", "&#99999999;"};
    char text[64];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        (void)snprintf(text, sizeof text, "<a>%s</a>", bad[i]);
        refuses(text, CKPT_EFORMAT, "a character reference is not a valid character");
    }
    refuses("<a>&#;</a>", CKPT_EFORMAT, "a character reference does not end");
    refuses("<a>&#65", CKPT_EFORMAT, "a character reference does not end");
    refuses("<a>&nbsp;</a>", CKPT_EFORMAT, "an entity is not defined");
    refuses("<a>&amp</a>", CKPT_EFORMAT, "an entity is not defined");
    refuses("<a>a & b</a>", CKPT_EFORMAT, "an entity is not defined");
    refuses("<a><![CDATA[x]]</a>", CKPT_EFORMAT, "a section that does not end");
    refuses("<![CDATA[x]]><a/>", CKPT_EFORMAT, "text outside of the document");
    assert_int_equal(parse_n("<a>x\0y</a>", 10), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "a NUL"));
    assert_int_equal(parse_n("<a><![CDATA[\0]]></a>", 20), CKPT_EFORMAT);
}

static void test_refused_documents(void **state)
{
    (void)state;
    refuses("", CKPT_EFORMAT, "ends inside an element");
    refuses(" \n", CKPT_EFORMAT, "ends inside an element");
    refuses("x<a/>", CKPT_EFORMAT, "text outside of the document");
    refuses("<a/>x", CKPT_EFORMAT, "text outside of the document");
    refuses("<a/><b/>", CKPT_EFORMAT, "a second document");
    refuses("<a></b>", CKPT_EFORMAT, "does not match an open element");
    refuses("<a><b></a></b>", CKPT_EFORMAT, "does not match an open element");
    refuses("</a>", CKPT_EFORMAT, "does not match an open element");
    refuses("<a b></a>", CKPT_EFORMAT, "an attribute without a value");
    refuses("<a b=1></a>", CKPT_EFORMAT, "has no quotes");
    refuses("<a b=\"1'></a>", CKPT_EFORMAT, "value does not end");
    refuses("<a:></a:>", CKPT_EFORMAT, "expected a name");
    refuses("< a/>", CKPT_EFORMAT, "expected a name");
    refuses("<a><!-- </a>", CKPT_EFORMAT, "a comment that does not end");
    refuses("<?xml <a/>", CKPT_EFORMAT, "an instruction that does not end");
    // a document type could define entities that grow without limit
    refuses("<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>", CKPT_EFORMAT, "<!DOCTYPE>");
    refuses("<a>\n<b></c></a>", CKPT_EFORMAT,
            "list: byte 10"); // where the name of the end tag ends
}

/* A document that is cut anywhere is refused, and no read goes beyond its end. */
static void test_prefixes(void **state)
{
    static const char whole[] = "<?xml version='1'?><l a=\"b\"><k>x&amp;&#65;<![CDATA[<]]></k>"
                                "<!-- c --><s/></l>";
    size_t n = strlen(whole);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        char *copy = malloc(i ? i : 1);

        assert_non_null(copy);
        memcpy(copy, whole, i);
        assert_int_equal(parse_n(copy, i), CKPT_EFORMAT);
        free(copy);
    }
    gives(whole, "2 k=x&A<;2 s=;1 l;");
}

/* Nest n elements. */
static int nested(unsigned n)
{
    char text[1024] = "";

    for (unsigned i = 0; i < n; i++)
        strcat(text, "<a>");
    for (unsigned i = 0; i < n; i++)
        strcat(text, "</a>");
    return parse(text);
}

/* An element with a name of n bytes. */
static int named(size_t n)
{
    char text[256];

    (void)snprintf(text, sizeof text, "<%0*d/>", (int)n, 0);
    return parse(text);
}

/* An element with a text of n bytes. */
static int filled(size_t n)
{
    char *text = malloc(n + 8);
    int rc;

    assert_non_null(text);
    memcpy(text, "<a>", 3);
    memset(text + 3, 'x', n);
    memcpy(text + 3 + n, "</a>", 4);
    rc = parse_n(text, n + 7);
    free(text);
    return rc;
}

static void test_limits(void **state)
{
    (void)state;
    assert_int_equal(nested(CKPT_XML_DEPTH), CKPT_OK);
    assert_int_equal(nested(CKPT_XML_DEPTH + 1), CKPT_ELIMIT);
    assert_int_equal(named(CKPT_XML_NAME - 1), CKPT_OK);
    assert_int_equal(named(CKPT_XML_NAME), CKPT_ELIMIT);
    assert_int_equal(filled(CKPT_XML_TEXT - 1), CKPT_OK); // its terminator counts
    assert_int_equal(last.n, CKPT_XML_TEXT - 1);
    assert_int_equal(filled(CKPT_XML_TEXT), CKPT_ELIMIT);
    assert_int_equal(filled(2 * CKPT_XML_TEXT), CKPT_ELIMIT);
}

static void test_callback_ends(void **state)
{
    (void)state;
    last.stop_at = 2;
    assert_int_equal(parse("<l><k>x</k><k>y</k><k>z</k></l>"), CKPT_ECANCELED);
    assert_string_equal(last.text, "2 k=x;2 k=y;");
    assert_string_equal(err.text, "enough");
    last.stop_at = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elements),      cmocka_unit_test(test_texts),
        cmocka_unit_test(test_refused_texts), cmocka_unit_test(test_refused_documents),
        cmocka_unit_test(test_prefixes),      cmocka_unit_test(test_limits),
        cmocka_unit_test(test_callback_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
