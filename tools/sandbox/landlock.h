/* SPDX-License-Identifier: Apache-2.0 */
/*
 * landlock.h: declares the restriction of this process and its threads to files and folders that
 * were allowed before.
 */
#ifndef TOOLS_LANDLOCK_H
#define TOOLS_LANDLOCK_H

#include <stdbool.h>

/* Uses of a path and all paths below it. */
enum {
    LANDLOCK_READ = 1,  /* read files, list folders */
    LANDLOCK_WRITE = 2, /* create, write, rename, remove files and folders; no links, no nodes */
    LANDLOCK_RMDIR = 4  /* remove empty folders */
};

/* The kernel's version of the interface, from 1; 0: missing, or not permitted. */
int landlock_abi(void);

/*
 * A new set of rules, as a descriptor; -1: this kernel cannot enforce it.  Version 1 cannot permit
 * renames between folders, so writers get no rules there.
 *
 * network  do not restrict TCP connections
 */
int landlock_new(bool writes, bool network);

/* Allow a use of a path, following links.  False, with errno: it cannot be opened. */
bool landlock_allow(int rules, int at, const char *path, unsigned use);

/*
 * Enforce the rules for this thread and all processes and threads that it starts.  False: the
 * kernel refused.  Closes rules.
 */
bool landlock_enforce(int rules);

#endif
