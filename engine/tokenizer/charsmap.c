/* SPDX-License-Identifier: Apache-2.0 */
/*
 * charsmap.c: replaces characters by the table of a SentencePiece model (precompiled_charsmap).
 *
 * Layout: the size of a trie in bytes (uint32, little-endian), the trie, then texts that end with
 * NUL.  The trie is a double array of Darts: 32-bit units with a label, an offset and a flag for a
 * leaf, whose value is the offset of a text.
 *
 * The order of look-ups follows the crate spm_precompiled, which `tokenizers` uses: first a whole
 * grapheme of less than 6 bytes, of which the shortest key that begins it counts, then each
 * character.
 */
#include <assert.h>
#include <string.h>
#include <unigbrk.h>

#include "engine/tokenizer/inside.h"

struct tz_charsmap {
    uint32_t *unit;
    char *text; /* with a NUL at its end */
    size_t n_units, n_text;
};

static uint32_t cm_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int tz_charsmap_new(tz_charsmap **out, const char *bytes, uint64_t n, ckpt_err *err)
{
    assert(out && (bytes || n == 0));
    const uint8_t *p = (const uint8_t *)bytes;
    uint64_t size = n >= 4 ? cm_u32(p) : UINT64_MAX;
    tz_charsmap *m = ckpt_alloc(sizeof *m);

    *out = m;
    if (!m)
        return ckpt_fail_memory(err);
    if (size > n - 4 || size % 4 != 0 || size == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "precompiled_charsmap is damaged");
    m->n_units = (size_t)size / 4;
    m->n_text = (size_t)(n - 4 - size);
    m->unit = ckpt_alloc((size_t)size);
    m->text = ckpt_alloc(m->n_text + 1);
    if (!m->unit || !m->text)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < m->n_units; i++)
        m->unit[i] = cm_u32(p + 4 + 4 * i);
    memcpy(m->text, p + 4 + size, m->n_text);
    return CKPT_OK;
}

void tz_charsmap_free(tz_charsmap *m)
{
    if (!m)
        return;
    ckpt_free(m->unit);
    ckpt_free(m->text);
    ckpt_free(m);
}

static uint32_t cm_offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* The text for the shortest key that begins s; NULL: there is none. */
static const char *cm_find(const tz_charsmap *m, const uint8_t *s, size_t n)
{
    uint32_t at = cm_offset(m->unit[0]);

    for (size_t i = 0; i < n && s[i]; i++) {
        uint32_t unit;

        at ^= s[i];
        if (at >= m->n_units)
            return NULL;
        unit = m->unit[at];
        if ((unit & (1u << 31 | 0xffu)) != s[i])
            return NULL;
        at ^= cm_offset(unit);
        if (at >= m->n_units)
            return NULL;
        if (unit >> 8 & 1) {
            uint32_t to = m->unit[at] & ~(1u << 31);
            return to <= m->n_text ? m->text + to : NULL;
        }
    }
    return NULL;
}

static bool cm_grapheme(const tz_charsmap *m, ckpt_bytes *to, const uint8_t *s, size_t n)
{
    const char *text = n < 6 ? cm_find(m, s, n) : NULL;
    bool ok = true;

    if (text)
        return ckpt_bytes_add(to, text, strlen(text));
    for (size_t i = 0, len; ok && i < n; i += len) {
        uint32_t c;

        len = tz_char(&c, (const char *)s + i);
        text = cm_find(m, s + i, len);
        ok = text ? ckpt_bytes_add(to, text, strlen(text)) : ckpt_bytes_add(to, s + i, len);
    }
    return ok;
}

bool tz_charsmap_run(const tz_charsmap *m, ckpt_bytes *to, const uint8_t *s, size_t n)
{
    assert(m && to && (s || n == 0));
    const uint8_t *end = s + n, *next;
    bool ok = true;

    for (; ok && s < end; s = next) {
        next = u8_grapheme_next(s, end);
        ok = cm_grapheme(m, to, s, (size_t)(next - s));
    }
    return ok;
}
