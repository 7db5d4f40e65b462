/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_io.h: reads files and folders through another process of the team.
 */
#ifndef CKPT_IO_PEER_IO_H
#define CKPT_IO_PEER_IO_H

#include "libckpt/dist/team.h"
#include "libckpt/io/io.h"

/*
 * A file that process `owner` opens and reads for this one.
 *
 * visible  this process can open it too, and does so for large reads
 * Errors   those of ckpt_io_open_here on the owner; CKPT_EIO: the owner is lost
 */
int ckpt_far_open(ckpt_io **out, ckpt_team *team, unsigned owner, bool visible, const char *path,
                  ckpt_err *err);

/* A name in a folder of another machine. */
typedef struct ckpt_far_entry {
    const char *name;
    uint64_t size; /* bytes */
    uint32_t sum;  /* CRC-32 of its first and last bytes */
    bool is_dir;
} ckpt_far_entry;

typedef struct ckpt_far_listing {
    const char *folder;
    ckpt_far_entry *entry;
    size_t n;
    char *text; /* the names */
} ckpt_far_listing;

/* List a folder as the given process sees it. Errors: CKPT_EMISSING, CKPT_EIO, CKPT_ELIMIT */
int ckpt_far_list(ckpt_far_listing *out, ckpt_team *team, unsigned rank, const char *folder,
                  ckpt_err *err);

/* Release a listing; zeroed ones are fine. */
void ckpt_far_list_free(ckpt_far_listing *l);

/* Answers the questions of a team (ckpt_team_answer_fn): opens and reads files. */
int ckpt_far_answer(const ckpt_letter *question, ckpt_bytes *answer, ckpt_err *err);

#endif
