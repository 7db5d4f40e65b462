/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_locations.h: records which machines of a team see which files.
 *
 * With ckpt_team_local a path names a folder on each machine, and each folder has a part of the
 * checkpoint's files, as runs that save to local disks leave it. A listing then combines those of
 * all machines and records the place of each file. Without it all machines see the same files.
 */
#ifndef CKPT_IO_FILE_LOCATIONS_H
#define CKPT_IO_FILE_LOCATIONS_H

#include "libckpt/dist/team.h"
#include "libckpt/io/listing.h"

/* The machine and the process that have a file. */
typedef struct ckpt_place {
    bool known; /* the file is in a listing: the members below are set */
    bool here;  /* the file exists on this machine */
    bool is_dir;
    unsigned owner; /* the process that reads its headers */
    /* two machines with different files of this name; equal numbers: there are none */
    unsigned unlike[2];
} ckpt_place;

/* Look a path up; without ckpt_team_local nothing is known. */
ckpt_place ckpt_places_find(ckpt_team *t, const char *path);

/* True if a machine sees a file of this path. All machines see a file that no listing has named. */
bool ckpt_places_sees(ckpt_team *t, const char *path, unsigned node);

/* The same as ckpt_places_find, but lists the folder of an unknown path first. */
int ckpt_places_learn(ckpt_team *t, const char *path, ckpt_place *out, ckpt_err *err);

/*
 * Whether a path is a file or a folder, on any machine.
 *
 * Errors  CKPT_EMISSING, CKPT_EIO: no machine has it
 */
int ckpt_places_kind(const char *path, bool *is_dir, ckpt_err *err);

/* The process that opens a file for all, the same answer on every process. */
unsigned ckpt_places_owner(ckpt_team *t, const char *path);

#endif
