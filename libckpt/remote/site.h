/* SPDX-License-Identifier: Apache-2.0 */
/*
 * site.h: what lies below one address: its files, where they are, and what may be shown to who has
 * them.
 *
 * A site is made when a checkpoint is opened, and listed once.  Each scheme says how an address is
 * cut, how its files are listed, and which URL a file has.
 */
#ifndef CKPT_REMOTE_SITE_H
#define CKPT_REMOTE_SITE_H

#include "libckpt/base/index.h"
#include "libckpt/remote/file.h"

enum {
    CKPT_SITE_FILES = 1 << 20, /* files of one site, and other entries of its listing */
    CKPT_SITE_NAME = 1024      /* bytes of the name of one */
};

/* 64 MiB: of a page of a listing, or of an index. */
#define CKPT_SITE_PAGE (UINT64_C(64) << 20)

/* What is below the root: "model.safetensors", "unet/config.json". */
typedef struct ckpt_site_file {
    const char *name;
    uint64_t size; /* 0 where only opening it would tell */
} ckpt_site_file;

CKPT_VEC(ckpt_site_files, ckpt_site_file);
CKPT_VEC(ckpt_site_opened, ckpt_remote_file *);

typedef struct ckpt_site ckpt_site;

typedef struct ckpt_site_kind {
    const char *scheme; /* "hf://" */
    /*
     * Cut the address of a new site: sets root, base, key and what else it needs.
     *
     * is_dir  whether the address names the root itself, as far as its text tells
     */
    int (*cut)(ckpt_site *s, const char *address, bool *is_dir, ckpt_err *err);
    /* Add all files with ckpt_site_add. */
    int (*list)(ckpt_site *s, ckpt_err *err);
    /* The URL of a file. */
    int (*url)(const ckpt_site *s, const char *name, ckpt_bytes *out, ckpt_err *err);
    bool tells;   /* a listing names all there is: what is not in it is not asked for */
    bool at_once; /* it is listed when it is made */
} ckpt_site_kind;

struct ckpt_site {
    ckpt_site *next;
    unsigned n_users;
    const ckpt_site_kind *kind;
    ckpt_arena *arena;
    const char *root;                   /* the address of the folder, without a slash at its end */
    const char *base;                   /* what URLs begin with */
    const char *more;                   /* the scheme's own: OWNER/NAME of hf, a prefix of s3 */
    const char *revision;               /* of hf: as given, then the commit */
    const char *given_name, *given_url; /* a file that was addressed by a URL of its own */
    ckpt_fetch_key key;
    ckpt_site_files files; /* sorted by name */
    uint64_t n_entries;    /* of the listing, so far */
    ckpt_site_opened opened;
    ckpt_index by_name; /* of those opened, by their addresses */
    int64_t left;       /* milliseconds of the budget of its opening */
    int64_t until;      /* when they are over, while a step of the opening is made */
    bool alone;         /* nothing but the given file is asked for */
    bool listed, ahead; /* its shards were opened together */
};

/* Add a file to a site that is being listed.  CKPT_EUNSAFE: a name that would leave its folder. */
int ckpt_site_add(ckpt_site *s, const char *name, uint64_t size, ckpt_err *err);

/* An entry of a listing that is no file: a folder.  CKPT_ELIMIT: a listing that does not end. */
int ckpt_site_count(ckpt_site *s, ckpt_err *err);

/*
 * A file of a site, opened or not; it stays with the site.  Held by the site's lock where it is
 * called from `list`.
 */
int ckpt_site_get(ckpt_remote_file **out, ckpt_site *s, const char *name, ckpt_err *err);

/* List it, once; its files are sorted then. */
int ckpt_site_list(ckpt_site *s, ckpt_err *err);

/* A file of a listed site, or NULL. */
const ckpt_site_file *ckpt_site_find(const ckpt_site *s, const char *name);

/* A step of the opening, in which the network is waited for: sets `until`; and its end. */
void ckpt_site_begin(ckpt_site *s);
void ckpt_site_end(ckpt_site *s);

/* The files below a folder of a listed site, "" for its root: the first one, and how many. */
size_t ckpt_site_range(const ckpt_site *s, const char *folder, size_t *first);

/* ---- the schemes ---- */

extern const ckpt_site_kind ckpt_site_https, ckpt_site_http, ckpt_site_hf, ckpt_site_s3;

/* Read the token that a login has left, once: sandboxes hide it later. */
void ckpt_hf_begin(void);

/* The last part of a path, up to a '?', has the suffix of a file of weights or of JSON. */
bool ckpt_site_is_file(const char *address);

/* Append a name with %XX for what a path may not hold; '/' stays. */
bool ckpt_url_quote(ckpt_bytes *out, const char *name);

#endif
