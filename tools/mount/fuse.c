/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse.c: implements the FUSE plugin, which serves a tree of unchanging files through libfuse.
 *
 * The kernel may cache all answers, because names, attributes and bytes stay the same while the
 * tree is mounted.  So the kernel requests each of them once, and a second read does not reach this
 * program.  Inode numbers are the indices of entries, from 1.
 */
#define _GNU_SOURCE      /* O_CLOEXEC */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fcntl.h>
#include <fuse_log.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tools/mount/plugin.h"

CKPT_API extern const mount_plugin ckpt_mount_table;

#define FS_FOREVER 1e9 /* seconds that the kernel may remember an answer */

enum {
    FS_READ = 1 << 20,  /* maximum bytes of a request, as in the kernel */
    FS_BLOCK = 4096,    /* block size that stat and statvfs report */
    FS_AHEAD = 1 << 20, /* bytes to read ahead for a sequential reader */
    FS_OPEN = 1024,
    FS_NOTE = 512
};

/* The first message of libfuse, kept to explain a failure. */
static struct {
    pthread_mutex_t lock;
    char text[FS_NOTE];
} fs_said = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic(struct fuse_session *) fs_session;

/*
 * For each open file, the end of its last read, to detect sequential reads.  If there are more open
 * files than slots, two files share a slot, and get a little less read-ahead.
 */
static _Atomic uint64_t fs_next[FS_OPEN];
static _Atomic unsigned fs_opened;

/*
 * Set when bytes already returned may be wrong: files opened later then bypass the kernel's cache.
 * Invalidating the cache is impossible, because the kernel then waits for reads, which no thread
 * may be left to answer.
 */
static atomic_bool fs_doubt;

/* ---- messages of libfuse ---- */

__attribute__((format(printf, 2, 0))) static void fs_log(enum fuse_log_level level, const char *fmt,
                                                         va_list args)
{
    if (level > FUSE_LOG_WARNING)
        return;
    pthread_mutex_lock(&fs_said.lock);
    if (!fs_said.text[0])
        (void)vsnprintf(fs_said.text, sizeof fs_said.text, fmt, args);
    fs_said.text[strcspn(fs_said.text, "\n")] = 0;
    pthread_mutex_unlock(&fs_said.lock);
}

static void fs_listen(void)
{
    fs_said.text[0] = 0;
    fuse_set_log_func(fs_log);
}

/* Copy libfuse's message, or else `words`. */
static void fs_why(char *why, size_t room, const char *words)
{
    pthread_mutex_lock(&fs_said.lock);
    (void)snprintf(why, room, "%s", fs_said.text[0] ? fs_said.text : words);
    pthread_mutex_unlock(&fs_said.lock);
}

/* ---- answers ---- */

static const mount_served *fs_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* The entry of an inode number; NULL: no such entry. */
static const mount_entry *fs_entry(const mount_served *s, fuse_ino_t ino)
{
    return ino >= FUSE_ROOT_ID && ino - FUSE_ROOT_ID < s->tree->n ? &s->tree->at[ino - FUSE_ROOT_ID]
                                                                  : NULL;
}

static void fs_stat(const mount_served *s, size_t i, struct stat *out)
{
    const mount_entry *e = &s->tree->at[i];
    bool folder = e->file == MOUNT_FOLDER;

    *out = (struct stat){
        .st_ino = (ino_t)(FUSE_ROOT_ID + i),
        .st_mode = folder ? S_IFDIR | 0555 : S_IFREG | 0444,
        .st_nlink = folder ? 2 + e->n_folders : 1,
        .st_uid = getuid(),
        .st_gid = getgid(),
        .st_size = (off_t)e->size,
        .st_blksize = FS_READ,
        .st_blocks = (blkcnt_t)(e->size / 512 + (e->size % 512 > 0)),
        .st_atim = {.tv_sec = (time_t)s->time},
        .st_mtim = {.tv_sec = (time_t)s->time},
        .st_ctim = {.tv_sec = (time_t)s->time},
    };
}

static void fs_param(const mount_served *s, size_t i, struct fuse_entry_param *out)
{
    *out = (struct fuse_entry_param){.ino = (fuse_ino_t)(FUSE_ROOT_ID + i),
                                     .attr_timeout = FS_FOREVER,
                                     .entry_timeout = FS_FOREVER};
    fs_stat(s, i, &out->attr);
}

static void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    const mount_served *s = fs_of(req);
    const mount_entry *e = fs_entry(s, parent);
    size_t i = e && e->file == MOUNT_FOLDER
                   ? mount_tree_find(s->tree, (size_t)(parent - FUSE_ROOT_ID), name)
                   : SIZE_MAX;
    // inode 0 makes the kernel cache that the name does not exist
    struct fuse_entry_param param = {.entry_timeout = FS_FOREVER};

    if (i != SIZE_MAX)
        fs_param(s, i, &param);
    (void)fuse_reply_entry(req, &param);
}

static void fs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    const mount_served *s = fs_of(req);
    struct stat st;

    (void)fi;
    if (!fs_entry(s, ino)) {
        (void)fuse_reply_err(req, ENOENT);
        return;
    }
    fs_stat(s, (size_t)(ino - FUSE_ROOT_ID), &st);
    (void)fuse_reply_attr(req, &st, FS_FOREVER);
}

/* List ".", ".." and the children; offsets count them from 1. */
static void fs_list(fuse_req_t req, fuse_ino_t ino, size_t room, off_t at, bool plus)
{
    const mount_served *s = fs_of(req);
    const mount_entry *e = fs_entry(s, ino);
    char *buf = e ? malloc(room) : NULL;
    size_t done = 0;

    if (!buf) {
        (void)fuse_reply_err(req, e ? ENOMEM : ENOENT);
        return;
    }
    for (uint64_t k = (uint64_t)at; k < 2 + e->n; k++) {
        size_t self = (size_t)(ino - FUSE_ROOT_ID);
        size_t i = k == 0 ? self : k == 1 ? e->parent : e->first + (size_t)k - 2;
        const char *name = k == 0 ? "." : k == 1 ? ".." : s->tree->at[i].name;
        struct fuse_entry_param param;
        size_t n;

        fs_param(s, i, &param);
        n = plus ? fuse_add_direntry_plus(req, buf + done, room - done, name, &param, (off_t)k + 1)
                 : fuse_add_direntry(req, buf + done, room - done, name, &param.attr, (off_t)k + 1);
        if (n > room - done)
            break;
        done += n;
    }
    (void)fuse_reply_buf(req, buf, done);
    free(buf);
}

static void fs_readdir(fuse_req_t req, fuse_ino_t ino, size_t room, off_t at,
                       struct fuse_file_info *fi)
{
    (void)fi;
    fs_list(req, ino, room, at, false);
}

static void fs_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t room, off_t at,
                           struct fuse_file_info *fi)
{
    (void)fi;
    fs_list(req, ino, room, at, true);
}

static void fs_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    fi->cache_readdir = 1;
    fi->keep_cache = 1;
    (void)fuse_reply_open(req, fi);
}

static void fs_open_file(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    const mount_entry *e = fs_entry(fs_of(req), ino);

    if (!e || e->file == MOUNT_FOLDER) {
        (void)fuse_reply_err(req, e ? EISDIR : ENOENT);
        return;
    }
    if ((fi->flags & O_ACCMODE) != O_RDONLY) {
        (void)fuse_reply_err(req, EROFS);
        return;
    }
    fi->fh = atomic_fetch_add(&fs_opened, 1) % FS_OPEN;
    atomic_store(&fs_next[fi->fh], 0);
    fi->keep_cache = !atomic_load(&fs_doubt);
    (void)fuse_reply_open(req, fi);
}

/* ---- bytes ---- */

static pthread_key_t fs_key;

/* This thread's buffer; it is reused, because new pages cost page faults. */
static void *fs_buffer(void)
{
    void *buf = pthread_getspecific(fs_key);

    if (!buf) {
        buf = malloc(FS_READ);
        if (buf && pthread_setspecific(fs_key, buf) != 0) {
            free(buf);
            buf = NULL;
        }
    }
    return buf;
}

static void fs_read(fuse_req_t req, fuse_ino_t ino, size_t n, off_t at, struct fuse_file_info *fi)
{
    const mount_served *s = fs_of(req);
    const mount_entry *e = fs_entry(s, ino);
    uint64_t from = (uint64_t)at;
    void *buf = fs_buffer();
    bool in_order;
    int rc;

    if (!e || e->file == MOUNT_FOLDER || !buf) {
        (void)fuse_reply_err(req, !e || buf ? EINVAL : ENOMEM);
        return;
    }
    from = from < e->size ? from : e->size;
    n = n < e->size - from ? n : (size_t)(e->size - from);
    n = n < FS_READ ? n : FS_READ;
    rc = s->read(s->ctx, e->file, buf, n, from);
    in_order = atomic_exchange(&fs_next[fi->fh % FS_OPEN], from + n) == from;
    if (rc != 0)
        (void)fuse_reply_err(req, rc < 0 ? -rc : rc);
    else
        (void)fuse_reply_buf(req, buf, n);
    // the request is answered, and other threads serve the next ones
    from += n;
    n = e->size - from < FS_AHEAD ? (size_t)(e->size - from) : FS_AHEAD;
    if (rc == 0 && in_order && n > 0)
        rc = s->ahead(s->ctx, e->file, n, from);
    if (rc < 0)
        atomic_store(&fs_doubt, true);
}

static void fs_statfs(fuse_req_t req, fuse_ino_t ino)
{
    const mount_served *s = fs_of(req);
    struct statvfs st = {.f_bsize = FS_BLOCK, .f_frsize = FS_BLOCK, .f_namemax = 255};

    (void)ino;
    // no free blocks, because the file system is read-only
    st.f_blocks = (fsblkcnt_t)(s->tree->n_bytes / FS_BLOCK + (s->tree->n_bytes % FS_BLOCK > 0));
    st.f_files = (fsfilcnt_t)s->tree->n;
    st.f_flag = ST_RDONLY | ST_NOSUID;
    (void)fuse_reply_statfs(req, &st);
}

/*
 * Allow read-ahead up to the size of a request; the mounting process sets the limit if it is
 * permitted to.
 */
static void fs_init(void *served, struct fuse_conn_info *conn)
{
    (void)served;
    conn->max_readahead = FS_READ;
}

static const struct fuse_lowlevel_ops fs_ops = {
    .init = fs_init,
    .lookup = fs_lookup,
    .getattr = fs_getattr,
    .opendir = fs_opendir,
    .readdir = fs_readdir,
    .readdirplus = fs_readdirplus,
    .open = fs_open_file,
    .read = fs_read,
    .statfs = fs_statfs,
};

/* ---- mounting ---- */

/*
 * Make the mount options.  fsname must be the last one, because the name may contain commas; they
 * are escaped here.
 */
static void fs_options(char *out, size_t room, const char *from, bool allow_other)
{
    size_t n =
        (size_t)snprintf(out, room,
                         "ro,nosuid,nodev,noexec,default_permissions,max_read=%d,subtype=ckpt"
                         "%s,fsname=",
                         FS_READ, allow_other ? ",allow_other" : "");

    for (; *from && n + 3 < room; from++) {
        if (*from == ',' || *from == '\\')
            out[n++] = '\\';
        out[n++] = *from;
    }
    out[n] = 0;
}

static int fs_attach(const char *dir, const char *from, bool allow_other, char *why, size_t room)
{
    char options[8192], name[] = "ckpt", flag[] = "-o";
    char *argv[] = {name, flag, options, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, argv);
    struct fuse_session *s;
    int fd = -1;

    fs_listen();
    fs_options(options, sizeof options, from, allow_other);
    s = fuse_session_new(&args, &fs_ops, sizeof fs_ops, NULL);
    fuse_opt_free_args(&args);
    // the descriptor is a copy, so ending the session does not unmount
    if (s && fuse_session_mount(s, dir) == 0)
        fd = fcntl(fuse_session_fd(s), F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        fs_why(why, room, s ? "see the message of fusermount3" : "libfuse cannot create a session");
    if (s)
        fuse_session_destroy(s);
    return fd;
}

/* ---- serving ---- */

static bool fs_ended(void)
{
    struct fuse_session *s = atomic_load(&fs_session);

    return s && fuse_session_exited(s);
}

static int fs_loop(struct fuse_session *s, unsigned n_threads)
{
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    int rc = -1;

    if (!config)
        return -1;
    fuse_loop_cfg_set_max_threads(config, n_threads);
    fuse_loop_cfg_set_idle_threads(config, n_threads);
    if (pthread_key_create(&fs_key, free) == 0) {
        rc = fuse_session_loop_mt(s, config);
        (void)pthread_key_delete(fs_key);
    }
    fuse_loop_cfg_destroy(config);
    return rc;
}

static int fs_serve(int fd, const mount_served *served, void (*ending)(void *ctx), char *why,
                    size_t room)
{
    char name[] = "ckpt", device[32], *argv[] = {name, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(1, argv);
    struct fuse_session *s;
    int rc = -1;

    fs_listen();
    s = fuse_session_new(&args, &fs_ops, sizeof fs_ops, (void *)(uintptr_t)served);
    fuse_opt_free_args(&args);
    (void)snprintf(device, sizeof device, "/dev/fd/%d", fd);
    if (s && fuse_session_mount(s, device) == 0 && fuse_set_signal_handlers(s) == 0) {
        atomic_store(&fs_session, s);
        // a signal ends the loop, and so does an unmount
        rc = fs_loop(s, served->n_threads) < 0 ? -1 : 0;
        fuse_remove_signal_handlers(s);
    }
    if (rc != 0)
        fs_why(why, room, "the FUSE device failed");
    ending(served->ctx);
    atomic_store(&fs_session, NULL);
    if (s)
        fuse_session_destroy(s);
    return rc;
}

const mount_plugin ckpt_mount_table = {
    .version = MOUNT_VERSION,
    .attach = fs_attach,
    .serve = fs_serve,
    .ended = fs_ended,
};
