/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap.h: gives one file or folder a final name, even if that is in use, and can undo it.
 *
 * `top` and `aside` are descriptors of two folders of one file system.
 */
#ifndef CKPT_COMMIT_SWAP_H
#define CKPT_COMMIT_SWAP_H

#include <stdbool.h>

/* The way in which an entry got its final name, for the undo. */
typedef enum ckpt_swap_how {
    CKPT_SWAP_NOT,
    CKPT_SWAP_MOVED,     /* the name was free */
    CKPT_SWAP_EXCHANGED, /* the old entry now has the name that the new one had in aside */
    CKPT_SWAP_AWAY,      /* the old entry was moved to w->old */
    CKPT_SWAP_OVER       /* the old entry was replaced */
} ckpt_swap_how;

/* An entry in aside that gets a final name in top. */
typedef struct ckpt_swap {
    const char *from, *old; /* names in aside */
    const char *to;         /* name in top */
    bool is_folder;
    bool replace; /* an entry of that name existed at the start, and may be replaced */
    ckpt_swap_how how;
} ckpt_swap;

/* Give an entry its final name; 0 or an errno value (EEXIST: another process was faster). */
int ckpt_swap_in(int top, int aside, ckpt_swap *w);

/* Undo it; false if that failed. */
bool ckpt_swap_back(int top, int aside, ckpt_swap *w);

#endif
