/* SPDX-License-Identifier: Apache-2.0 */
/*
 * landlock.h: this process and its threads reach only files and folders that were named before.
 */
#ifndef TOOLS_LANDLOCK_H
#define TOOLS_LANDLOCK_H

#include <stdbool.h>

/* What may be done at and below a path. */
enum {
    LANDLOCK_READ = 1,  /* read files, list folders */
    LANDLOCK_WRITE = 2, /* make, write, rename and remove files and folders; never links or nodes */
    LANDLOCK_RMDIR = 4  /* remove empty folders */
};

/* The kernel's version of the interface, from 1; 0: it has none, or does not let us use it. */
int landlock_abi(void);

/*
 * A set of rules that is being made, as a descriptor; -1: this kernel cannot enforce it.
 * Before version 2 nothing can be renamed from one folder to another, so that writers get none.
 *
 * network  connections by TCP are left alone
 */
int landlock_new(bool writes, bool network);

/* Allow a use of a path, links followed; false, with errno: it cannot be opened. */
bool landlock_allow(int rules, int at, const char *path, unsigned use);

/* From now on, for this thread and all that it starts; false: the kernel refused.  Closes rules. */
bool landlock_enforce(int rules);

#endif
