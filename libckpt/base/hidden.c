/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hidden.c: lists the characters that must not be printed unchanged.
 */
#include "libckpt/base/hidden.h"

#include <stddef.h>

bool ckpt_hidden(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } range[] = {
        {0, 0x1f},         {0x7f, 0x9f},     // C0, DEL, C1
        {0xad, 0xad},      {0x61c, 0x61c},   // soft hyphen, Arabic letter mark
        {0x180e, 0x180e},  {0x200b, 0x200f}, // zero-width marks
        {0x2028, 0x202e},  {0x2060, 0x206f}, // line ends, directions
        {0xfeff, 0xfeff},  {0xfff9, 0xfffb}, // byte order mark, annotations
        {0xe0000, 0xe0fff}                   // tags
    };

    for (size_t i = 0; i < sizeof range / sizeof *range; i++) {
        if (code >= range[i].first && code <= range[i].last)
            return true;
    }
    return false;
}
