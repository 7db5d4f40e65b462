/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places.h: which machines of a team see which files.
 *
 * With ckpt_team_local a path names a folder on each machine, and each holds a part of what belongs
 * together, as runs leave it that save to local disks.  A listing then is that of all machines, and
 * says where each file is.  Without it all machines see the same.
 */
#ifndef CKPT_COPY_PLACES_H
#define CKPT_COPY_PLACES_H

#include "libckpt/copy/listing.h"
#include "libckpt/copy/team.h"

/* Where a file is. */
typedef struct ckpt_place {
    bool known; /* a listing has named it: what follows is set */
    bool here;  /* this machine sees it */
    bool is_dir;
    unsigned owner; /* the process that reads its headers */
    /* machines that have unequal files of this name, by their numbers; else the same one twice */
    unsigned unlike[2];
} ckpt_place;

/* Look a path up; without ckpt_team_local nothing is known. */
ckpt_place ckpt_places_find(ckpt_team *t, const char *path);

/* True if a machine sees a file of this path; what no listing has named is seen by all. */
bool ckpt_places_sees(ckpt_team *t, const char *path, unsigned node);

/* The same as ckpt_places_find; what is not known yet is looked for in its folder first. */
int ckpt_places_learn(ckpt_team *t, const char *path, ckpt_place *out, ckpt_err *err);

/*
 * What a path names, on any machine.
 *
 * Errors  CKPT_EMISSING, CKPT_EIO: of none that was looked at
 */
int ckpt_places_kind(const char *path, bool *is_dir, ckpt_err *err);

/* The process that opens a file for all: the same on all of them. */
unsigned ckpt_places_owner(ckpt_team *t, const char *path);

#endif
