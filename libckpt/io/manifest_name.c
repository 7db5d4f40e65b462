/* SPDX-License-Identifier: Apache-2.0 */
/* manifest_name.c: recognises the files of a manifest by their names. */
#include "libckpt/io/manifest_name.h"

#include <string.h>

bool ckpt_manifest_is(const char *name)
{
    static const char stem[] = "manifest";
    const char *dot = strrchr(name, '.');
    size_t n = dot ? (size_t)(dot - name) : 0, m = sizeof stem - 1;

    // "ckpt-manifest", "model.gguf.manifest"
    return dot && (strcmp(dot, CKPT_MANIFEST_JSON) == 0 || strcmp(dot, CKPT_MANIFEST_LIST) == 0) &&
           n > m && strncmp(dot - m, stem, m) == 0 &&
           (name[n - m - 1] == '.' || (n == m + 5 && strncmp(name, "ckpt-", 5) == 0));
}
