/* SPDX-License-Identifier: Apache-2.0 */
/* slurp.c: reads a whole text file, and finds a byte order mark. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/data/source.h"
#include "libckpt/base/mem.h"

size_t zt_data_mark(const char *s, size_t n)
{
    return n >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

int zt_data_slurp(char **out, size_t *n, const char *path, uint64_t limit, ckpt_err *err)
{
    FILE *f = fopen(path, "rb");
    size_t room = 1 << 16, used = 0, got;
    char *text = NULL, *more;
    int rc = CKPT_OK;

    if (!f)
        return ckpt_fail_sys(err, ckpt_open_code(errno), errno, "%s: cannot be opened", path);
    do {
        room *= 2;
        more = room - 1 > limit * 2 ? NULL : ckpt_resize(text, room);
        if (!more) {
            rc = used > limit ? ckpt_fail(err, CKPT_ELIMIT, "%s: is larger than %" PRIu64 " bytes",
                                          path, limit)
                              : ckpt_fail_memory(err);
            break;
        }
        text = more;
        got = fread(text + used, 1, room - 1 - used, f);
        used += got;
    } while (got > 0 && used == room - 1);
    if (rc == CKPT_OK && ferror(f))
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be read", path);
    fclose(f);
    if (rc != CKPT_OK) {
        ckpt_free(text);
        return rc;
    }
    text[used] = 0;
    *out = text;
    *n = used;
    return CKPT_OK;
}
