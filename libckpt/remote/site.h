/* SPDX-License-Identifier: Apache-2.0 */
/*
 * site.h: represents a site: the files below one remote address, their URLs, and the credentials
 * for their host.
 *
 * The library makes a site when it opens a checkpoint, and lists it once.  Each scheme (https, hf,
 * s3) defines how to cut an address, how to list its files, and the URL of a file.
 */
#ifndef CKPT_REMOTE_SITE_H
#define CKPT_REMOTE_SITE_H

#include "libckpt/base/index.h"
#include "libckpt/remote/file.h"

enum {
    CKPT_SITE_FILES = 1 << 20, /* files of one site, and other entries of its listing, at most */
    CKPT_SITE_NAME = 1024      /* bytes of a file's name */
};

/* 64 MiB: the limit of a page of a listing, and of an index. */
#define CKPT_SITE_PAGE (UINT64_C(64) << 20)

/* A file below the root: "model.safetensors", "unet/config.json". */
typedef struct ckpt_site_file {
    const char *name;
    uint64_t size; /* 0: unknown until the file is opened */
} ckpt_site_file;

CKPT_VEC(ckpt_site_files, ckpt_site_file);
CKPT_VEC(ckpt_site_opened, ckpt_remote_file *);

typedef struct ckpt_site ckpt_site;

typedef struct ckpt_site_kind {
    const char *scheme; /* "hf://" */
    /*
     * Cut the address of a new site: set root, base, key and the scheme's own fields.
     *
     * is_dir  whether the address names the root itself, as far as its text shows
     */
    int (*cut)(ckpt_site *s, const char *address, bool *is_dir, ckpt_err *err);
    /* Add all files by ckpt_site_add. */
    int (*list)(ckpt_site *s, ckpt_err *err);
    /* Append the URL of a file. */
    int (*url)(const ckpt_site *s, const char *name, ckpt_bytes *out, ckpt_err *err);
    bool tells;   /* a listing is complete, so a file that is not in it is not requested */
    bool at_once; /* the site is listed as soon as it is made */
} ckpt_site_kind;

struct ckpt_site {
    ckpt_site *next;
    unsigned n_users;
    const ckpt_site_kind *kind;
    ckpt_arena *arena;
    const char *root;                   /* the address of the folder, without a slash at its end */
    const char *base;                   /* the start of each URL */
    const char *more;                   /* used by the scheme: OWNER/NAME of hf, a prefix of s3 */
    const char *revision;               /* hf: the revision as given, then the commit */
    const char *given_name, *given_url; /* a file with a URL of its own, if the address is a file */
    ckpt_fetch_key key;
    ckpt_site_files files; /* sorted by name */
    uint64_t n_entries;    /* entries of the listing so far */
    ckpt_site_opened opened;
    ckpt_index by_name; /* index of the opened files by address */
    int64_t left;       /* milliseconds left of the budget of the opening */
    int64_t until;      /* the time at which the budget ends, set during a step of the opening */
    bool alone;         /* only the given file is requested */
    bool listed, ahead; /* ahead: the shards were opened together */
};

/* Add a file to a site during its listing.  CKPT_EUNSAFE: a name that would leave its folder. */
int ckpt_site_add(ckpt_site *s, const char *name, uint64_t size, ckpt_err *err);

/*
 * Count an entry of a listing that is not a file, such as a folder.  CKPT_ELIMIT: the listing is
 * too long.
 */
int ckpt_site_count(ckpt_site *s, ckpt_err *err);

/*
 * Find or make the file of a site, opened or not; the site owns it.  A call from `list` already
 * holds the site's lock.
 */
int ckpt_site_get(ckpt_remote_file **out, ckpt_site *s, const char *name, ckpt_err *err);

/* List the site, once, and sort its files. */
int ckpt_site_list(ckpt_site *s, ckpt_err *err);

/* Find a file of a listed site, or NULL. */
const ckpt_site_file *ckpt_site_find(const ckpt_site *s, const char *name);

/*
 * Begin and end a step of the opening that waits for the network: begin sets `until`, and end takes
 * the time off the budget.
 */
void ckpt_site_begin(ckpt_site *s);
void ckpt_site_end(ckpt_site *s);

/*
 * The files below a folder of a listed site ("" for its root): returns their number, *first is the
 * first one.
 */
size_t ckpt_site_range(const ckpt_site *s, const char *folder, size_t *first);

/* ---- the schemes ---- */

extern const ckpt_site_kind ckpt_site_https, ckpt_site_http, ckpt_site_hf, ckpt_site_s3;

/* Read the token of a login, once, because a sandbox may forbid to open its file later. */
void ckpt_hf_begin(void);

/* True if the last part of a path, up to a '?', has the suffix of a file of weights or of JSON. */
bool ckpt_site_is_file(const char *address);

/* Append a name with %XX for each character that is not allowed in a path; '/' stays. */
bool ckpt_url_quote(ckpt_bytes *out, const char *name);

#endif
