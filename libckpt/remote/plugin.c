/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.c: loads the transport's library.
 */
#include "libckpt/base/plugin.h"

#include "libckpt/remote/fetch.h"

int ckpt_wire_load(const ckpt_wire_plugin **out, ckpt_err *err)
{
    static const ckpt_plugin_want want = {.file = CKPT_WIRE_PLUGIN,
                                          .variable = "CKPT_REMOTE_PLUGIN",
                                          .library = "libcurl",
                                          .package = "libcurl4"};
    const ckpt_wire_plugin *p = NULL;
    char why[400];
    void *lib = ckpt_plugin_open(&want, why, sizeof why);

    if (!lib)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "addresses cannot be read: %s", why);
    // the table is an object, so the symbol's address is the table itself
    if (!ckpt_plugin_find(lib, CKPT_WIRE_TABLE, &p) || p->version != CKPT_WIRE_VERSION)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s has another version than this library: install both together",
                         CKPT_WIRE_PLUGIN);
    if (p->begin() != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "libcurl could not be initialized");
    *out = p;
    return CKPT_OK;
}
