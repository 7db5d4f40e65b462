/* SPDX-License-Identifier: Apache-2.0 */
/* text.c: reads the file of an option as text. */
#include "tools/cli/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/out.h"

/* Maximum size of such a file. */
#define TEXT_BYTES (16 << 20)

int text_read(char **out, const char *path, const char *what, ckpt_err *err)
{
    FILE *file = fopen(path, "rb");
    char *text = file ? malloc(TEXT_BYTES + 1) : NULL;

    if (!file)
        return fail(err, errno == ENOENT || errno == ENOTDIR ? CKPT_EMISSING : CKPT_EIO,
                    "%s: cannot be opened: %s", path, strerror(errno));
    size_t n = text ? fread(text, 1, TEXT_BYTES + 1, file) : 0;
    bool failed = ferror(file) != 0;
    (void)fclose(file);
    // one byte more was requested, to detect files that are too large
    if (text && !failed && n <= TEXT_BYTES && !memchr(text, 0, n)) {
        text[n] = 0;
        *out = text;
        return CKPT_OK;
    }
    free(text);
    if (failed)
        return fail(err, CKPT_EIO, "%s: cannot be read", path);
    if (n > TEXT_BYTES)
        return fail(err, CKPT_ELIMIT, "%s: %s may take at most 16 MiB", path, what);
    return n ? fail(err, CKPT_EUSAGE, "%s: is not a text file", path)
             : fail(err, CKPT_ELIMIT, "%s: out of memory", path);
}
