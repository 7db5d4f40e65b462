/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap.h: one file or folder takes a final name, whatever has it, and can be taken back.
 *
 * `top` and `aside` are descriptors of two folders of one file system.
 */
#ifndef CKPT_COPY_SWAP_H
#define CKPT_COPY_SWAP_H

#include <stdbool.h>

/* How something got its final name, which says how to undo it. */
typedef enum ckpt_swap_how {
    CKPT_SWAP_NOT,
    CKPT_SWAP_MOVED,     /* the name was free */
    CKPT_SWAP_EXCHANGED, /* what had the name is now where the new thing was */
    CKPT_SWAP_AWAY,      /* what had the name is at its place for old things */
    CKPT_SWAP_OVER       /* what had the name is gone */
} ckpt_swap_how;

/* Something in aside that gets a final name in top. */
typedef struct ckpt_swap {
    const char *from, *old; /* in aside */
    const char *to;         /* in top */
    bool is_folder;
    bool replace; /* something of that name was there at the start, and may go */
    ckpt_swap_how how;
} ckpt_swap;

/* Give a thing its final name; 0 or an errno value (EEXIST: someone else was faster). */
int ckpt_swap_in(int top, int aside, ckpt_swap *w);

/* Undo it; false if that failed. */
bool ckpt_swap_back(int top, int aside, ckpt_swap *w);

#endif
