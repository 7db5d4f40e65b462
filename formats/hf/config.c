/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c: changes the dtype and other members of a config.json in place.
 *
 * transformers creates a model in the dtype of config.json ("dtype", before 4.56 "torch_dtype") and
 * casts the weights to it while loading, so a conversion must change the dtype there too, as
 * save_pretrained does.  The text is edited instead of parsed and rewritten, so that everything
 * else stays byte for byte, NaN and Infinity included, which Python writes although JSON has no
 * such values.  Checked against transformers 5.23 (configuration_utils.py, dict_dtype_to_str;
 * modeling_utils.py, _get_dtype).
 */
#include <assert.h>
#include <string.h>

#include "formats/hf/config.h"

#define HC_DEPTH 64u /* nested containers */

/* An open container. */
typedef struct hc_frame {
    bool is_object;
    bool is_config; /* the object is a configuration of a model, whose "dtype" counts */
    bool is_dtypes; /* an object as the value of a dtype, with one entry per part */
    bool wants_key; /* the next string is a key */
    const char *key;
    uint64_t n_key;
} hc_frame;

typedef struct hc_scan {
    const char *at;
    uint64_t n, i;
    uint64_t copied; /* bytes of the text copied to out, or replaced, so far */
    const char *dtype;
    ckpt_bytes *out;
    hc_frame frame[HC_DEPTH];
    unsigned depth;
    uint64_t opened;  /* offset after the outermost brace; 0: not yet reached */
    const char *key;  /* the member to set to the JSON value `dtype`; NULL: change dtypes */
    const char *old;  /* change only this value; NULL: change any */
    const char *drop; /* the member to remove; NULL: none */
    uint64_t cut;     /* offset of the member to remove; 0: not yet reached */
    unsigned cut_depth;
    bool found;  /* the outermost object has a dtype, or a member was set */
    bool odd;    /* some dtype has an unknown form */
    bool failed; /* out of memory */
} hc_scan;

/* Decode the character at p, n bytes before the key's end; '?' outside ASCII. */
static char hc_letter(const char *p, uint64_t n, uint64_t *used)
{
    unsigned code = 0;

    *used = 1;
    if (*p != '\\' || n < 2)
        return *p;
    *used = 2;
    if (p[1] != 'u' || n < 6)
        return p[1] == 'u' || strchr("bfnrt", p[1]) ? '?' : p[1];
    *used = 6;
    for (size_t i = 2; i < 6; i++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *d = strchr(digits, p[i]);
        code = d && *d ? code * 16 + (unsigned)((size_t)(d - digits) % 16) : 128;
    }
    return code > 0 && code < 128 ? (char)code : '?';
}

/* Count the characters of a key, with escapes decoded. */
static uint64_t hc_letters(const hc_frame *f)
{
    uint64_t n = 0, used;

    for (uint64_t i = 0; f->key && i < f->n_key; i += used, n++)
        (void)hc_letter(f->key + i, f->n_key - i, &used);
    return n;
}

static bool hc_key_ends(const hc_frame *f, const char *end)
{
    const uint64_t n = hc_letters(f), m = strlen(end);
    uint64_t k = 0, used;

    for (uint64_t i = 0; n >= m && f->key && i < f->n_key; i += used, k++) {
        const char letter = hc_letter(f->key + i, f->n_key - i, &used);
        if (k >= n - m && letter != end[k - (n - m)])
            return false;
    }
    return n >= m;
}

static bool hc_key_is(const hc_frame *f, const char *name)
{
    return hc_letters(f) == strlen(name) && hc_key_ends(f, name);
}

/* True if the next value of the object is a model's dtype. */
static bool hc_at_dtype(const hc_frame *f)
{
    return f->is_object && f->is_config && (hc_key_is(f, "dtype") || hc_key_is(f, "torch_dtype"));
}

/* True if the current value is the one to replace. */
static bool hc_at_member(const hc_scan *s, const hc_frame *f, uint64_t first)
{
    return f->is_object && f->is_config && hc_key_is(f, s->key) &&
           (!s->old ||
            (s->i - first == strlen(s->old) && memcmp(s->at + first, s->old, s->i - first) == 0));
}

/* Copy the text up to `to`, then write the parts instead of the text before `next`. */
static void hc_replace(hc_scan *s, uint64_t to, uint64_t next, const char *const part[3])
{
    bool ok = ckpt_bytes_add(s->out, s->at + s->copied, to - s->copied);

    for (size_t k = 0; k < 3; k++)
        ok = ok && ckpt_bytes_add(s->out, part[k], strlen(part[k]));
    s->copied = next;
    s->failed = s->failed || !ok;
}

/* Handle a string or word from `first` to s->i, with its quotes. */
static void hc_token(hc_scan *s, uint64_t first)
{
    hc_frame *f = s->depth > 0 ? &s->frame[s->depth - 1] : NULL;
    bool is_null = s->i - first == 4 && memcmp(s->at + first, "null", 4) == 0;

    if (!f || !f->is_object)
        return;
    if (f->wants_key) {
        f->key = s->at + first + 1;
        f->n_key = s->i - first - 2;
        f->wants_key = false;
        return;
    }
    if (s->key) {
        if (hc_at_member(s, f, first)) {
            hc_replace(s, first, s->i, (const char *const[3]){s->dtype, "", ""});
            s->found = s->found || s->old || s->depth == 1;
        }
        return;
    }
    if (!f->is_dtypes && !hc_at_dtype(f))
        return;
    s->odd = s->odd || !(s->at[first] == '"' || is_null);
    hc_replace(s, first, s->i, (const char *const[3]){"\"", s->dtype, "\""});
    s->found = s->found || s->depth == 1;
}

/* True for a part's own configuration: "text_config", "vision_config". */
static bool hc_is_part(const hc_frame *f)
{
    return f->is_config && hc_key_ends(f, "_config") && !hc_key_is(f, "quantization_config");
}

/* Handle a bracket; false if it is unbalanced or nested too deeply. */
static bool hc_bracket(hc_scan *s, char c)
{
    const hc_frame *above = s->depth > 0 ? &s->frame[s->depth - 1] : NULL;

    if (c == '}' || c == ']') {
        if (!above || above->is_object != (c == '}'))
            return false;
        s->depth--;
        return true;
    }
    if (s->depth == HC_DEPTH || (!above && (c != '{' || s->opened > 0)))
        return false;
    s->frame[s->depth] = (hc_frame){.is_object = c == '{', .wants_key = c == '{'};
    s->frame[s->depth].is_config = c == '{' && (!above || hc_is_part(above));
    if (above && !s->key && (above->is_dtypes || hc_at_dtype(above))) {
        s->frame[s->depth].is_dtypes = c == '{';
        s->odd = s->odd || c != '{';
        s->found = s->found || s->depth == 1;
    }
    if (!above)
        s->opened = s->i + 1;
    s->depth++;
    return true;
}

/* Move s->i past the string or word at s->i; false if a string does not end. */
static bool hc_skip(hc_scan *s)
{
    bool quoted = s->at[s->i] == '"';

    for (s->i++; s->i < s->n; s->i++) {
        char c = s->at[s->i];

        if (!quoted && strchr(" \t\r\n,:{}[]\"", c))
            return true;
        if (quoted && c == '"') {
            s->i++;
            return true;
        }
        if (quoted && c == '\\')
            s->i++;
    }
    return !quoted;
}

/* Note the start of the member to remove if its value begins at s->i. */
static void hc_begin_cut(hc_scan *s)
{
    const hc_frame *f = s->depth > 0 ? &s->frame[s->depth - 1] : NULL;

    if (!s->drop || s->cut || !f || !f->is_object || !f->is_config || f->wants_key || !f->key ||
        !hc_key_is(f, s->drop))
        return;
    s->cut = (uint64_t)(f->key - s->at) - 1;
    s->cut_depth = s->depth;
}

/* Remove that member, whose value ends at s->i, with its key and one adjacent comma. */
static void hc_end_cut(hc_scan *s)
{
    hc_frame *f = &s->frame[s->depth - 1];
    uint64_t to = s->i;

    while (to < s->n && strchr(" \t\r\n", s->at[to]))
        to++;
    if (to < s->n && s->at[to] == ',') {
        for (to++; to < s->n && strchr(" \t\r\n", s->at[to]); to++) {
        }
        f->wants_key = true;
    } else {
        to = s->i;
        while (s->cut > s->copied && strchr(" \t\r\n", s->at[s->cut - 1]))
            s->cut--;
        if (s->cut > s->copied && s->at[s->cut - 1] == ',')
            s->cut--;
    }
    hc_replace(s, s->cut, to, (const char *const[3]){"", "", ""});
    f->key = NULL;
    s->i = to;
    s->cut = 0;
}

/* Walk over the whole text; false if it is not a JSON object. */
static bool hc_walk(hc_scan *s)
{
    while (s->i < s->n) {
        char c = s->at[s->i];
        uint64_t first = s->i;

        if (c == '\0')
            return false;
        if (!strchr(" \t\r\n,:}]", c))
            hc_begin_cut(s);
        if (strchr("{}[]", c)) {
            if (!hc_bracket(s, c))
                return false;
            s->i++;
        } else if (strchr(" \t\r\n,:", c)) {
            if (c == ',' && s->depth > 0)
                s->frame[s->depth - 1].wants_key = s->frame[s->depth - 1].is_object;
            s->i++;
        } else if (!hc_skip(s) || s->i > s->n || s->depth == 0 ||
                   (c != '"' && s->frame[s->depth - 1].wants_key)) {
            return false;
        } else {
            hc_token(s, first);
        }
        if (s->cut && s->depth == s->cut_depth && !strchr(" \t\r\n,:", c))
            hc_end_cut(s);
    }
    return s->opened > 0 && s->depth == 0;
}

/* The separator after a member inserted as the first: a comma unless the object is empty. */
static const char *hc_comma(const hc_scan *s)
{
    uint64_t i = s->opened;

    while (strchr(" \t\r\n", s->at[i]))
        i++;
    return s->at[i] == '}' ? "\n" : ",";
}

/* Insert the dtype as the first member, because none was stated. */
static void hc_insert(hc_scan *s)
{
    // start again with an empty output, because parts may have been replaced already
    hc_replace(s, s->opened, s->opened,
               (const char *const[3]){"\n  \"dtype\": \"", s->dtype,
                                      *hc_comma(s) == ',' ? "\"," : "\"\n"});
}

int ckpt_hf_config_dtype(ckpt_bytes *out, const char *text, uint64_t n, const char *dtype)
{
    hc_scan s = {.at = text, .n = n, .dtype = dtype, .out = out};

    if (!hc_walk(&s) || s.failed || s.odd)
        return s.failed ? CKPT_ELIMIT : CKPT_EFORMAT;
    if (!s.found) {
        out->n = 0;
        s = (hc_scan){.at = text, .n = n, .dtype = dtype, .out = out, .opened = s.opened};
        hc_insert(&s);
        s.opened = 0;
        (void)hc_walk(&s);
    }
    if (s.failed || !ckpt_bytes_add(out, text + s.copied, n - s.copied))
        return CKPT_ELIMIT;
    return CKPT_OK;
}

/* ---- other members ---- */

int ckpt_hf_config_set(ckpt_bytes *out, const char *text, uint64_t n, const ckpt_hf_member *m)
{
    assert(out && text && m);
    hc_scan s = {.at = text, .n = n, .dtype = m->value, .key = m->key, .old = m->old, .out = out};

    if (!hc_walk(&s) || s.failed)
        return s.failed ? CKPT_ELIMIT : CKPT_EFORMAT;
    if (!s.found && m->old)
        return CKPT_EMISSING;
    if (!s.found) {
        const char *comma = hc_comma(&s);
        // start again: the second walk replaces the member in parts
        out->n = 0;
        s = (hc_scan){
            .at = text, .n = n, .dtype = m->value, .key = m->key, .out = out, .opened = s.opened};
        hc_replace(&s, s.opened, s.opened, (const char *const[3]){"\n  \"", m->key, "\": "});
        hc_replace(&s, s.opened, s.opened, (const char *const[3]){m->value, comma, ""});
        s.opened = 0;
        (void)hc_walk(&s);
    }
    if (s.failed || !ckpt_bytes_add(out, text + s.copied, n - s.copied))
        return CKPT_ELIMIT;
    return CKPT_OK;
}

int ckpt_hf_config_drop(ckpt_bytes *out, const char *text, uint64_t n, const char *key)
{
    assert(out && text && key);
    // the walk must not set a member, so it gets a key that no file has
    hc_scan s = {.at = text, .n = n, .dtype = "", .key = " ", .old = " ", .drop = key, .out = out};

    if (!hc_walk(&s) || s.failed)
        return s.failed ? CKPT_ELIMIT : CKPT_EFORMAT;
    return ckpt_bytes_add(out, text + s.copied, n - s.copied) ? CKPT_OK : CKPT_ELIMIT;
}
