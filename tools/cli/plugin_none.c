/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin_none.c: in the place of plugin.c where the program is one static file.
 */
#include "tools/cli/plugin.h"

#include <stdio.h>

void *plugin_open(const char *file, const char *variable, bool global, char *why, size_t room)
{
    (void)variable;
    (void)global;
    (void)snprintf(why, room, "this ckpt is one static file, which can load no %s", file);
    return NULL;
}

bool plugin_find(void *plugin, const char *name, void *to)
{
    (void)plugin;
    (void)name;
    (void)to;
    return false;
}
