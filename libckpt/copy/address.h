/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address.h: paths that begin with a scheme (https://, hf://, s3://) and are read from other
 * machines.
 *
 * This room knows what such a path looks like and hands it on to a server, which libckpt/remote
 * is.  Paths without a scheme never come here.
 */
#ifndef CKPT_COPY_ADDRESS_H
#define CKPT_COPY_ADDRESS_H

#include "libckpt/copy/io.h"
#include "libckpt/copy/listing.h"

/* Whoever can read addresses. */
typedef struct ckpt_address_server {
    /*
     * What an address names: asked once for each checkpoint that is opened, before all else; what
     * is known of it from before is forgotten.
     */
    int (*kind)(const char *address, bool *is_dir, ckpt_err *err);
    int (*open)(ckpt_io **out, const char *address, ckpt_err *err);
    /* The entries of a folder; names in the map's arena. */
    int (*list)(ckpt_entries *all, ckpt_map *map, const char *folder, ckpt_err *err);
    /* A file that was opened: it could change between two ranges without anybody noticing. */
    bool (*unmarked)(const char *address);
} ckpt_address_server;

/* True of https://..., http://..., hf://... and s3://... */
bool ckpt_address_is(const char *path);

/*
 * An output is on this machine: of any scheme, known or not, CKPT_EUSAGE.  A folder "s3:" would
 * look like an upload.
 */
int ckpt_address_refuse(const char *output, ckpt_err *err);

/* From now on addresses are read by this one, which stays. */
void ckpt_address_serve(const ckpt_address_server *server);

/*
 * The server's answers.
 *
 * Errors   CKPT_EMISSING: the other side says that there is no such thing; CKPT_EIO: it refuses, or
 *          cannot be reached; CKPT_EUNSUPPORTED: nobody serves addresses here, or the other side
 *          cannot be read in parts; CKPT_EFORMAT, CKPT_EUNSAFE, CKPT_ELIMIT, CKPT_ECANCELED
 */
int ckpt_address_kind(const char *address, bool *is_dir, ckpt_err *err);
int ckpt_address_open(ckpt_io **out, const char *address, ckpt_err *err);
int ckpt_address_list(ckpt_entries *all, ckpt_map *map, const char *folder, ckpt_err *err);
bool ckpt_address_unmarked(const char *address);

/*
 * Whether a path, or an address, names a file or a folder.  Only what is not there is not: an
 * address that is refused is an error, so that a file is never left out for want of a token.
 */
int ckpt_address_there(const char *path, bool *is_there, ckpt_err *err);

#endif
