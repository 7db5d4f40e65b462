/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwritten.h: gives files that exist only in this process, those of a view, an address that every
 * function that opens a checkpoint accepts: "view://NUMBER/PATH".
 */
#ifndef CKPT_IO_UNWRITTEN_H
#define CKPT_IO_UNWRITTEN_H

#include "libckpt/io/address.h"

/* The files, by number; their functions are called by any number of threads. */
typedef struct ckpt_unwritten {
    void *ctx;
    size_t n_files;
    const char *(*path)(void *ctx, size_t i); /* relative to the folder of all */
    uint64_t (*size)(void *ctx, size_t i);
    int (*read)(void *ctx, size_t i, void *buf, uint64_t n, uint64_t at, ckpt_err *err);
} ckpt_unwritten;

/* The address without a number. */
#define CKPT_UNWRITTEN "view://"

/* True for such an address. */
bool ckpt_unwritten_is(const char *path);

/*
 * Give files an address; ckpt_unwritten_remove takes it away, after the last map that was opened
 * there is free.
 *
 * files    must outlive the address
 * number   of the address, at least 1
 * Errors   CKPT_ELIMIT: too many at once
 */
int ckpt_unwritten_add(unsigned *number, const ckpt_unwritten *files, ckpt_err *err);
void ckpt_unwritten_remove(unsigned number); /* 0 is fine */

/* The functions that read these addresses. */
extern const ckpt_address_server ckpt_unwritten_server;

#endif
