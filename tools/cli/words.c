/* SPDX-License-Identifier: Apache-2.0 */
/* words.c: converts one word to one field: numbers, sizes, dtypes. */
#include "tools/cli/words.h"
#include "libckpt/base/number.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* Bytes of a unit: 1 for no unit, 0 for an unknown one.  A single letter is a power of 1000. */
static uint64_t word_unit(const char *word)
{
    static const char *const names[] = {"K",  "M",  "G",   "T",   "KB",  "MB",
                                        "GB", "TB", "KiB", "MiB", "GiB", "TiB"};
    uint64_t unit = 1;

    if (!*word || strcasecmp(word, "B") == 0)
        return 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        // each row of four units starts again; the last row has powers of 1024
        unit = i % 4 == 0 ? 1 : unit;
        unit *= i < 8 ? 1000u : 1024u;
        if (strcasecmp(word, names[i]) == 0)
            return unit;
    }
    return 0;
}

/* The factor that a letter stands for in counts: 7B is 7 * 10^9, as 7e9 is. */
static uint64_t word_multiple(const char *word)
{
    static const char letters[] = "kmbt";
    const char *found = *word ? strchr(letters, tolower((unsigned char)*word)) : NULL;
    uint64_t unit = 1, power = 0;

    if (*word == 'e' || *word == 'E') {
        if (!ckpt_parse_u64(word + 1, &power) || power > 12)
            return 0;
        while (power-- > 0)
            unit *= 10;
        return unit;
    }
    if (*word && (!found || word[1]))
        return 0;
    for (const char *s = letters; found && s <= found; s++)
        unit *= 1000;
    return unit;
}

/* Parse a number with a unit.  Fractions are allowed, except with a unit of one. */
static bool word_scaled(uint64_t *out, const char *text, uint64_t (*unit_of)(const char *word))
{
    uint64_t x = 0, fraction = 0, scale = 1;
    const char *rest = ckpt_scan_u64(text, &x), *point = rest;

    if (rest && *rest == '.') {
        rest = ckpt_scan_u64(point + 1, &fraction);
        if (!rest || rest - point > 7)
            return false;
        for (const char *digit = point + 1; digit < rest; digit++)
            scale *= 10;
    }
    uint64_t unit = rest ? unit_of(rest) : 0;
    // a fraction needs a unit, because half a byte is not a size
    if (unit == 0 || (unit == 1 && scale > 1))
        return false;
    // leave room for the fraction
    if (x > UINT64_MAX / unit - (unit > 1))
        return false;
    // 10^6 * 1024^4 fits in 64 bits; 1.0005K is refused, because it is 1000 and a half
    *out = x * unit + fraction * unit / scale;
    return unit_of != word_multiple || fraction * unit % scale == 0;
}

/* Plain numbers below this are refused, because the user probably forgot the unit: "5" for 5 GB. */
#define WORD_PLAIN_BYTES 1000000u

/*
 * Parse a size: plain bytes, or a number (possibly with a fraction) and KB MB GB TB, or K M G T
 * (powers of 1000), or KiB MiB GiB TiB (powers of 1024), in any case.  False for other words.
 */
static bool word_size(uint64_t *out, const char *text)
{
    bool plain = text[strspn(text, "0123456789")] == '\0';

    return word_scaled(out, text, word_unit) && (!plain || *out == 0 || *out >= WORD_PLAIN_BYTES);
}

/* True for a mixture of types that a format offers. */
static bool word_is_mixture(const char *word)
{
    const ckpt_format_info *f;
    size_t n = strlen(word), m;

    for (size_t i = 0; (f = ckpt_format_at(i)); i++) {
        for (const char *at = f->mixtures; at && *at; at += m + strspn(at + m, " ")) {
            m = strcspn(at, " ");
            if (m == n && strncasecmp(at, word, n) == 0)
                return true;
        }
    }
    return false;
}

/*
 * Replace a format by its main name.  Unknown ones stay unchanged, because the writer's error lists
 * all formats.
 */
static bool word_format(const char **out, const char *text)
{
    const ckpt_format_info *f = ckpt_format_find(text);

    *out = f ? f->name : text;
    return true;
}

/* Parse a number from 1 on that fits an int. */
static bool word_count(unsigned *out, const char *text)
{
    uint64_t n = 0;

    if (!ckpt_parse_u64(text, &n) || n == 0 || n > INT32_MAX)
        return false;
    *out = (unsigned)n;
    return true;
}

bool word_store(void *field, cli_kind kind, const char *word)
{
    switch (kind) {
    case CLI_FLAG:
        *(bool *)field = true;
        return true;
    case CLI_TEXT:
    case CLI_FILE:
    case CLI_SOURCE:
    case CLI_OUTPUT:
        *(const char **)field = word;
        return true;
    case CLI_RESULT:
        *(const char **)field = word;
        return strcmp(word, "-") != 0;
    case CLI_SIZE:
        return word_size(field, word);
    case CLI_COUNT:
        return word_count(field, word);
    case CLI_COUNT64:
        return ckpt_parse_u64(word, field) && *(uint64_t *)field > 0;
    case CLI_MANY:
        return word_scaled(field, word, word_multiple) && *(uint64_t *)field > 0;
    case CLI_WHOLE:
        return ckpt_parse_i64(word, field) && *(int64_t *)field >= 0;
    case CLI_INTEGER:
        return ckpt_parse_i64(word, field);
    case CLI_NUMBER:
        return ckpt_parse_f64(word, field) && *(double *)field >= 0;
    case CLI_REAL:
        return ckpt_parse_f64(word, field);
    case CLI_DTYPE:
        *(ckpt_dtype *)field = ckpt_dtype_parse(word);
        return *(ckpt_dtype *)field != CKPT_DTYPE_NONE;
    case CLI_DTYPES:
        *(const char **)field = word;
        // the library checks the entries of a list
        return word[strcspn(word, ":,")] || ckpt_dtype_parse(word) != CKPT_DTYPE_NONE ||
               word_is_mixture(word);
    case CLI_FORMAT:
    case CLI_STATE:
        return word_format(field, word);
    case CLI_LIST:
    case CLI_SOURCES:
    case CLI_MORE:
        break;
    }
    return false;
}

const char *word_expected(cli_kind kind)
{
    switch (kind) {
    case CLI_SIZE:
        return "a size such as 500MB, 1.5GiB, 4G, or at least 1000000 bytes";
    case CLI_COUNT:
    case CLI_COUNT64:
        return "a whole number of at least 1";
    case CLI_WHOLE:
        return "a whole number of at least 0";
    case CLI_INTEGER:
        return "a whole number";
    case CLI_MANY:
        return "a number of at least 1, such as 7B, 7e9, 124439808";
    case CLI_NUMBER:
        return "a number of at least 0, such as 1e-6";
    case CLI_REAL:
        return "a number, such as 1e-6";
    case CLI_DTYPE:
        return "a dtype such as fp32, bf16, fp16";
    case CLI_DTYPES:
        return "a dtype such as fp32, bf16, fp16, q8_0, or for gguf q4_k_m";
    case CLI_RESULT:
        return "a file or folder: standard output is not supported here, because the output is "
               "renamed when it is complete (./- is a file of that name)";
    case CLI_FLAG:
    case CLI_TEXT:
    case CLI_FILE:
    case CLI_SOURCE:
    case CLI_OUTPUT:
    case CLI_MORE:
    case CLI_LIST:
    case CLI_SOURCES:
    case CLI_FORMAT:
    case CLI_STATE:
        break;
    }
    return "a value";
}

bool word_weighted(char *path, size_t room, const char *word, double *weight)
{
    const char *colon = strrchr(word, ':');
    size_t n = colon ? (size_t)(colon - word) : strlen(word);
    struct stat st;

    *weight = 1;
    if (colon && (lstat(word, &st) == 0 || !ckpt_parse_f64(colon + 1, weight)))
        n = strlen(word);
    if (n == 0 || n >= room)
        return false;
    memcpy(path, word, n);
    path[n] = 0;
    return true;
}
