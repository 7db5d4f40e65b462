/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opts.c: copies option structs between releases.
 */
#include <assert.h>

#include "libckpt/base/opts.h"

#include <string.h>

/* The size in the struct's first member; 0 stands for the size in the first release. */
static size_t opts_size(const void *theirs, size_t room)
{
    size_t size;

    memcpy(&size, theirs, sizeof size);
    return size != 0 ? size : room;
}

int ckpt_opts_take(void *own, size_t room, const void *theirs, const char *what, ckpt_err *err)
{
    return ckpt_opts_take_since(own, room, room, theirs, what, err);
}

int ckpt_opts_take_since(void *own, size_t room, size_t first, const void *theirs, const char *what,
                         ckpt_err *err)
{
    assert(own && room >= sizeof(size_t) && first <= room && what);
    const unsigned char *bytes = theirs;
    size_t size = theirs ? opts_size(theirs, first) : 0;

    memset(own, 0, room);
    if (!theirs)
        return CKPT_OK;
    // refuse an absurd size, because a caller may have left the member uninitialised
    if (size < sizeof size || size > room + 4096)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: its size cannot be %zu: set it to sizeof, or to 0",
                         what, size);
    memcpy(own, theirs, size < room ? size : room);
    memcpy(own, &room, sizeof room);
    for (size_t i = room; i < size; i++) {
        if (bytes[i] != 0)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "%s: byte %zu is set, but the struct has only %zu bytes in this "
                             "release of the library: it is older than the program",
                             what, i, room);
    }
    return CKPT_OK;
}

void ckpt_opts_give(void *theirs, const void *own, size_t room)
{
    assert(own && room >= sizeof(size_t));
    size_t said, size;

    if (!theirs)
        return;
    memcpy(&said, theirs, sizeof said);
    size = opts_size(theirs, room);
    if (size < sizeof size || size > room + 4096)
        size = room;
    memset(theirs, 0, size);
    memcpy(theirs, own, size < room ? size : room);
    memcpy(theirs, &said, sizeof said);
}
