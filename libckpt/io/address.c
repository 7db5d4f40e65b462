/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address.c: recognises addresses and calls the registered server.
 */
#include "libckpt/io/address.h"
#include "libckpt/io/unwritten.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

static _Atomic(const ckpt_address_server *) adr_server;

bool ckpt_address_is(const char *path)
{
    static const char *const scheme[] = {"https://", "http://", "hf://", "s3://", CKPT_UNWRITTEN};

    for (size_t i = 0; i < sizeof scheme / sizeof *scheme; i++) {
        if (strncmp(path, scheme[i], strlen(scheme[i])) == 0)
            return true;
    }
    return false;
}

int ckpt_address_refuse(const char *output, ckpt_err *err)
{
    size_t n = strcspn(output, ":/");

    // a scheme has at least two letters, so "C:" is not one
    for (size_t i = 0; i < n; i++) {
        char c = output[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');

        if (!letter && (i == 0 || !strchr("0123456789+.-", c)))
            return CKPT_OK;
    }
    if (n < 2 || strncmp(output + n, ":/", 2) != 0)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EUSAGE,
                     "%s: addresses can be read, not written: name a path of this machine, and "
                     "copy the result there",
                     output);
}

void ckpt_address_serve(const ckpt_address_server *server)
{
    atomic_store(&adr_server, server);
}

static int adr_get(const ckpt_address_server **out, const char *address, ckpt_err *err)
{
    *out = ckpt_unwritten_is(address) ? &ckpt_unwritten_server : atomic_load(&adr_server);
    return *out ? CKPT_OK
                : ckpt_fail(err, CKPT_EUNSUPPORTED,
                            "%s: addresses cannot be read here; name a path", address);
}

int ckpt_address_kind(const char *address, bool *is_dir, ckpt_err *err)
{
    assert(address && is_dir);
    const ckpt_address_server *server;
    int rc = adr_get(&server, address, err);

    return rc == CKPT_OK ? server->kind(address, is_dir, err) : rc;
}

int ckpt_address_open(ckpt_io **out, const char *address, ckpt_err *err)
{
    assert(out && address);
    const ckpt_address_server *server;
    int rc = adr_get(&server, address, err);

    *out = NULL;
    return rc == CKPT_OK ? server->open(out, address, err) : rc;
}

int ckpt_address_list(ckpt_entries *all, ckpt_map *map, const char *folder, ckpt_err *err)
{
    assert(all && map && folder);
    const ckpt_address_server *server;
    int rc = adr_get(&server, folder, err);

    return rc == CKPT_OK ? server->list(all, map, folder, err) : rc;
}

bool ckpt_address_unmarked(const char *address)
{
    const ckpt_address_server *server;

    return ckpt_address_is(address) && adr_get(&server, address, NULL) == CKPT_OK &&
           server->unmarked(address);
}

int ckpt_address_there(const char *path, bool *is_there, ckpt_err *err)
{
    assert(path && is_there);
    ckpt_io *io = NULL;
    ckpt_err why = {0};
    struct stat st;
    int rc = CKPT_OK;

    if (!ckpt_address_is(path)) {
        *is_there = stat(path, &st) == 0;
        return CKPT_OK;
    }
    rc = ckpt_address_open(&io, path, &why);
    if (io)
        io->close(io);
    *is_there = rc == CKPT_OK;
    return rc == CKPT_OK || rc == CKPT_EMISSING ? CKPT_OK : ckpt_fail(err, rc, "%s", why.text);
}
