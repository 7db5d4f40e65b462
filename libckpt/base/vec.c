/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vec.c: grows typed vectors and byte buffers.
 */
#include <assert.h>

#include "libckpt/base/vec.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* First capacity of a vector, in elements; of a byte buffer, in bytes. */
#define VEC_ROOM_FIRST   8u
#define BYTES_ROOM_FIRST 256u

/*
 * Compute the new capacity, at least want, of a vector of room elements; doubling keeps pushing
 * linear. False if it does not fit in size_t.
 */
static bool vec_room(size_t *room, size_t want, size_t first, size_t size)
{
    size_t next = *room > SIZE_MAX / 2 ? want : *room * 2;

    next = next < first ? first : next;
    next = next < want ? want : next;
    if (next > SIZE_MAX / size)
        return false;
    *room = next;
    return true;
}

/* at points to a typed pointer, and is copied as bytes because of aliasing rules. */
bool ckpt_vec_grow_(void **at, size_t *n, size_t *room, size_t size)
{
    assert(size > 0 && *n <= *room && (*at || *room == 0));
    char *data;

    memcpy(&data, at, sizeof data);
    if (*n == *room) {
        size_t more = *room;
        char *bigger;

        if (*n == SIZE_MAX || !vec_room(&more, *n + 1, VEC_ROOM_FIRST, size))
            return false;
        bigger = ckpt_resize(data, more * size);
        if (!bigger)
            return false;
        data = bigger;
        memcpy(at, &data, sizeof data);
        *room = more;
    }
    memset(data + *n * size, 0, size);
    ++*n;
    return true;
}

/* Make room for n more bytes after those of b. */
static bool bytes_reserve(ckpt_bytes *b, size_t n)
{
    size_t room = b->room;
    uint8_t *bigger;

    if (n <= b->room - b->n)
        return true;
    if (n > SIZE_MAX - b->n || !vec_room(&room, b->n + n, BYTES_ROOM_FIRST, 1))
        return false;
    bigger = ckpt_resize(b->at, room);
    if (!bigger)
        return false;
    b->at = bigger;
    b->room = room;
    return true;
}

bool ckpt_bytes_add(ckpt_bytes *b, const void *p, size_t n)
{
    assert(b);
    if (!bytes_reserve(b, n))
        return false;
    if (n > 0 && p)
        memcpy(b->at + b->n, p, n);
    else if (n > 0)
        memset(b->at + b->n, 0, n);
    b->n += n;
    return true;
}

bool ckpt_bytes_printf(ckpt_bytes *b, const char *fmt, ...)
{
    assert(b && fmt);
    va_list args, again;
    bool ok = false;
    int n;

    va_start(args, fmt);
    va_copy(again, args);
    n = vsnprintf(NULL, 0, fmt, args);
    // vsnprintf also writes a terminator, which needs a byte but does not count
    if (n >= 0 && bytes_reserve(b, (size_t)n + 1)) {
        vsnprintf((char *)b->at + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
        ok = true;
    }
    va_end(again);
    va_end(args);
    return ok;
}
