/* SPDX-License-Identifier: Apache-2.0 */
/* unused.c: collects the names of parts of a data file that no input of the model has. */
#include <assert.h>
#include <string.h>

#include "engine/data/source.h"

#define UN_MORE "..." /* there are more names */

/* True if the list, separated by ", ", has the name. */
static bool un_has(const char *list, const char *name, size_t n)
{
    for (const char *at = list; *at; at += strspn(at, ", ")) {
        const size_t m = strcspn(at, ",");
        if (m == n && memcmp(at, name, n) == 0)
            return true;
        at += m;
    }
    return false;
}

void zt_unused_add(zt_source *s, const char *what, const char *name)
{
    char clean[64];
    const size_t used = strlen(s->unused_names);
    size_t n = 0;

    assert(what && name);
    for (; name[n] && n + 1 < sizeof clean; n++)
        clean[n] = name[n] >= ' ' && name[n] <= '~' && name[n] != ',' ? name[n] : '?';
    clean[n] = 0; // the file may be anyone's
    if (name[n])
        memcpy(clean + n - 3, "...", 3);
    s->unused.what = what;
    s->unused.names = s->unused_names;
    if (un_has(s->unused_names, clean, n) || un_has(s->unused_names, UN_MORE, 3))
        return;
    if (used + n + sizeof ", , " UN_MORE > sizeof s->unused_names) {
        n = 3;
        memcpy(clean, UN_MORE, sizeof UN_MORE);
    }
    (void)snprintf(s->unused_names + used, sizeof s->unused_names - used, "%s%s", used ? ", " : "",
                   clean);
}
