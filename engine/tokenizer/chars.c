/* SPDX-License-Identifier: Apache-2.0 */
/* chars.c: decodes characters, and knows their classes, by the tables of libunistring. */
#include <unictype.h>
#include <unistr.h>

#include "engine/tokenizer/inside.h"

size_t tz_char(uint32_t *c, const char *s)
{
    const uint8_t *p = (const uint8_t *)s;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    ucs4_t u = p[0];

    if (n > 1)
        (void)u8_mbtouc_unsafe(&u, p, n);
    *c = u;
    return n;
}

bool tz_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || (c > 0x7f && uc_is_property_white_space(c));
}

bool tz_is_word(uint32_t c)
{
    return uc_is_property_alphabetic(c) || c == 0x200c || c == 0x200d ||
           uc_is_general_category_withtable(c, UC_CATEGORY_MASK_M | UC_CATEGORY_MASK_Nd |
                                                   UC_CATEGORY_MASK_Pc);
}

bool tz_is_mark(uint32_t c)
{
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
           (c >= 123 && c <= 126) ||
           (c > 0x7f && uc_is_general_category_withtable(c, UC_CATEGORY_MASK_P));
}

bool tz_is_numeric(uint32_t c)
{
    return c < 0x80 ? c >= '0' && c <= '9'
                    : uc_is_general_category_withtable(c, UC_CATEGORY_MASK_N);
}

int tz_byte_of(uint32_t c)
{
    if ((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff))
        return (int)c;
    // 256 on: the other bytes, in order
    if (c >= 0x100 && c <= 0x120)
        return (int)c - 0x100;
    if (c >= 0x121 && c <= 0x142)
        return (int)c - 0x121 + 0x7f;
    return c == 0x143 ? 0xad : -1;
}
