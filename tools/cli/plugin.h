/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.h: libraries that are loaded when they are needed, so that ckpt starts where what they
 * need is not installed.
 *
 * In a program that is one static file plugin_none.c is linked in the place of plugin.c: it loads
 * nothing.
 */
#ifndef TOOLS_PLUGIN_H
#define TOOLS_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Load a plugin: the file that the environment variable names; else it is looked for in ../lib/ckpt
 * and ../lib beside the program, then where the loader looks.
 *
 * global   its functions are seen by libraries that are loaded later
 * Returns  the plugin, which stays loaded; NULL: why, in room bytes
 */
void *plugin_open(const char *file, const char *variable, bool global, char *why, size_t room);

/* The address of a name of the plugin into the pointer at `to`; false: it has none. */
bool plugin_find(void *plugin, const char *name, void *to);

#endif
