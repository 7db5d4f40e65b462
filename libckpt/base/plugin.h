/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.h: loads libraries on demand, so that programs also start without the libraries that
 * plugins need. Only this code loads plugins.
 *
 * A static program links none/plugin.c instead of plugin.c and loads none.
 */
#ifndef CKPT_BASE_PLUGIN_H
#define CKPT_BASE_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ckpt_plugin_want {
    const char *file; /* "libckpt-remote.so" */
    /* environment variable with the plugin's path, which is then the only one tried */
    const char *variable;
    const char *library; /* the library that the plugin needs, for messages: "libcurl" */
    const char *package; /* Debian's package of that library: "libcurl4" */
    bool global;         /* make its functions visible to libraries that are loaded later */
} ckpt_plugin_want;

/*
 * Load a plugin, which stays loaded. Without the variable it searches near the file of this code,
 * the program or libckpt.so, then in the system loader's folders. It gets that file from the
 * kernel, because argv[0] may name a link in another user's folder.
 *
 * Returns  the plugin; NULL: the reason in `why` (room bytes), with advice for the user
 */
void *ckpt_plugin_open(const ckpt_plugin_want *want, char *why, size_t room);

/* Store the address of a symbol of the plugin in the pointer at `to`; false: there is none. */
bool ckpt_plugin_find(void *plugin, const char *name, void *to);

#endif
