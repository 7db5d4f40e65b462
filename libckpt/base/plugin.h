/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.h: libraries that are loaded when they are needed, so that programs start where what the
 * plugins need is not installed.  This is the only code that loads one.
 *
 * A program that is one static file links none/plugin.c in the place of plugin.c: it loads nothing.
 */
#ifndef CKPT_BASE_PLUGIN_H
#define CKPT_BASE_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ckpt_plugin_want {
    const char *file;     /* "libckpt-remote.so" */
    const char *variable; /* of the environment: the plugin's path, which is then the only one */
    const char *library;  /* the library that the plugin needs, for messages: "libcurl" */
    const char *package;  /* and Debian's package of it: "libcurl4" */
    bool global;          /* libraries that are loaded later see its functions */
} ckpt_plugin_want;

/*
 * Load a plugin, which stays loaded.  Without the variable it is looked for near the file that this
 * code was loaded from, the program or libckpt.so, then where the system's loader looks.  The
 * kernel tells that file: argv[0] may name a link in a folder of a stranger.
 *
 * Returns  the plugin; NULL: why, in room bytes, with what a user can do
 */
void *ckpt_plugin_open(const ckpt_plugin_want *want, char *why, size_t room);

/* The address of a name of the plugin into the pointer at `to`; false: it has none. */
bool ckpt_plugin_find(void *plugin, const char *name, void *to);

#endif
