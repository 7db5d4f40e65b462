/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url.c: quotes names for URLs, and classifies a URL by its end.
 *
 * Source   RFC 3986: unreserved characters (2.3); S3's signatures leave the same characters
 *          unquoted
 */
#include <string.h>
#include <strings.h>

#include "libckpt/remote/site.h"

static bool url_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("-._~/", c));
}

bool ckpt_url_quote(ckpt_bytes *out, const char *name)
{
    bool ok = true;

    for (; ok && *name; name++)
        ok = url_plain(*name) ? ckpt_bytes_add(out, name, 1)
                              : ckpt_bytes_printf(out, "%%%02X", (unsigned)(uint8_t)*name);
    return ok;
}

bool ckpt_site_is_file(const char *address)
{
    static const char *const suffix[] = {".safetensors", ".gguf",   ".pt",  ".pth",
                                         ".bin",         ".ckpt",   ".npz", ".npy",
                                         ".json",        ".distcp", ".tar"};
    const char *query = strchr(address, '?');
    size_t n = query ? (size_t)(query - address) : strlen(address);

    if (query)
        return true;
    for (size_t i = 0; i < sizeof suffix / sizeof *suffix; i++) {
        size_t m = strlen(suffix[i]);

        if (n > m && strncasecmp(address + n - m, suffix[i], m) == 0)
            return true;
    }
    return false;
}
