/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drivers.c: drivers by name.
 */
#include "libckpt/drivers.h"

#include <string.h>

const ckpt_format *ckpt_format_find(const char *name)
{
    for (size_t i = 0; ckpt_formats[i]; i++) {
        if (strcmp(ckpt_formats[i]->name, name) == 0)
            return ckpt_formats[i];
    }
    return NULL;
}

const ckpt_directory *ckpt_directory_find(const char *name)
{
    for (size_t i = 0; ckpt_directories[i]; i++) {
        if (strcmp(ckpt_directories[i]->name, name) == 0)
            return ckpt_directories[i];
    }
    return NULL;
}
