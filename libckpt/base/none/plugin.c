/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.c: replaces ../plugin.c in a static program, which cannot load plugins.
 */
#include "libckpt/base/plugin.h"

#include <stdio.h>

void *ckpt_plugin_open(const ckpt_plugin_want *want, char *why, size_t room)
{
    (void)snprintf(why, room,
                   "this ckpt is one static file, which loads no %s: install the Debian package of "
                   "ckpt, or build ckpt from its source where %s is installed",
                   want->file, want->library);
    return NULL;
}

bool ckpt_plugin_find(void *plugin, const char *name, void *to)
{
    (void)plugin;
    (void)name;
    (void)to;
    return false;
}
