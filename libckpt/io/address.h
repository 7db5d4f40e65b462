/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address.h: recognises paths with a scheme (https://, hf://, s3://) and passes them to the code
 * that reads other machines.
 *
 * This folder only knows the form of such a path and calls a server, which libckpt/remote
 * registers. Paths without a scheme never get here.
 */
#ifndef CKPT_IO_ADDRESS_H
#define CKPT_IO_ADDRESS_H

#include "libckpt/io/io.h"
#include "libckpt/io/listing.h"

/* The functions that read addresses. */
typedef struct ckpt_address_server {
    /*
     * Set *is_dir if the address is a folder. ckpt calls this first for each checkpoint that it
     * opens; the implementation then drops the data that it has cached about the address.
     */
    int (*kind)(const char *address, bool *is_dir, ckpt_err *err);
    int (*open)(ckpt_io **out, const char *address, ckpt_err *err);
    /* The entries of a folder; names in the map's arena. */
    int (*list)(ckpt_entries *all, ckpt_map *map, const char *folder, ckpt_err *err);
    /*
     * True for an open file that is read in several requests without a version mark (such as an
     * ETag): a change between them would go unnoticed.
     */
    bool (*unmarked)(const char *address);
} ckpt_address_server;

/* True for https://..., http://..., hf://..., s3://... and the files of views (unwritten.h). */
bool ckpt_address_is(const char *path);

/*
 * Refuse an output with any scheme, known or not (CKPT_EUSAGE), because outputs are on this machine
 * and a folder "s3:" would look like an upload.
 */
int ckpt_address_refuse(const char *output, ckpt_err *err);

/* Register the server; it must stay valid. */
void ckpt_address_serve(const ckpt_address_server *server);

/*
 * Call the server.
 *
 * Errors   CKPT_EMISSING: the other side has no such file; CKPT_EIO: it refuses, or cannot be
 *          reached; CKPT_EUNSUPPORTED: no server is registered, or the other side cannot send parts
 *          of a file; CKPT_EFORMAT, CKPT_EUNSAFE, CKPT_ELIMIT, CKPT_ECANCELED
 */
int ckpt_address_kind(const char *address, bool *is_dir, ckpt_err *err);
int ckpt_address_open(ckpt_io **out, const char *address, ckpt_err *err);
int ckpt_address_list(ckpt_entries *all, ckpt_map *map, const char *folder, ckpt_err *err);
bool ckpt_address_unmarked(const char *address);

/*
 * Set *is_there if a path or an address exists. If the server refuses access, that is an error, so
 * that a missing token never makes a file look absent.
 */
int ckpt_address_there(const char *path, bool *is_there, ckpt_err *err);

#endif
