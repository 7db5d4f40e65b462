/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outputs.c: checks that no output replaces a file that the run reads, another output, or a link.
 */
#define _XOPEN_SOURCE 700 // realpath
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/zerotrain/zerotrain.h"

/* ---- files that the run reads ---- */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

/* True for names of a configuration, a tokenizer, or an index of a checkpoint. */
static bool is_text(const char *name)
{
    static const char *const names[] = {"config.json",
                                        "generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "vocab.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.txt",
                                        "merges.txt",
                                        "preprocessor_config.json",
                                        "adapter_config.json",
                                        "trainer_state.json",
                                        ".metadata",
                                        ".zerotrain",
                                        NULL};
    static const char *const begins[] = {"latest", "chat_template.", NULL};
    static const char *const ends[] = {".index.json", ".model", ".tiktoken", NULL};
    bool is = false;

    for (size_t i = 0; !is && names[i]; i++)
        is = strcmp(name, names[i]) == 0;
    for (size_t i = 0; !is && begins[i]; i++)
        is = strncmp(name, begins[i], strlen(begins[i])) == 0;
    for (size_t i = 0; !is && ends[i]; i++)
        is = ends_with(name, ends[i]);
    return is;
}

/* True for names of files with tensors or other state of a checkpoint. */
static bool is_state(const char *name)
{
    static const char *const ends[] = {".safetensors", ".bin", ".pt",     ".pth", ".ckpt",
                                       ".gguf",        ".npz", ".distcp", ".pkl", NULL};
    bool is = false;

    for (size_t i = 0; !is && ends[i]; i++)
        is = ends_with(name, ends[i]);
    return is;
}

/* A folder that the run reads. */
typedef struct read_folder {
    const char *option, *path;
    bool state; /* the run may read weights or state in it, not only the configuration */
    int below;  /* levels of folders below it in which the run may read files */
} read_folder;

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/*
 * True if the folder `name` of `dir` has the file under a name that the run may read.  Files are
 * compared, not paths, because the caches of models consist of links.
 */
static bool has_file(int dir, const char *name, const struct stat *file, bool state, int below)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    bool has = false;
    struct stat st;

    if (!d && fd >= 0)
        (void)close(fd);
    for (struct dirent *e; d && !has && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            fstatat(fd, e->d_name, &st, 0) != 0)
            continue;
        if (S_ISDIR(st.st_mode))
            has = below > 0 && has_file(fd, e->d_name, file, state, below - 1);
        else
            has = same_file(&st, file) && (is_text(e->d_name) || (state && is_state(e->d_name)));
    }
    if (d)
        (void)closedir(d);
    return has;
}

/* The folder of a file; NULL: out of memory. */
static const char *folder_of(ckpt_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? ckpt_arena_string(arena, path, (size_t)(slash - path) + 1)
                 : ckpt_arena_string(arena, ".", 1);
}

enum { READ_FOLDERS = 3 };

/*
 * List the folders of --model, --init and --load.  If --model is a file, the run reads a tokenizer
 * beside it; if another one is, the run reads only that file, except with an index of shards.
 */
static int list_folders(const told *t, read_folder out[READ_FOLDERS], size_t *n, ckpt_err *err)
{
    // a universal checkpoint has a folder of each parameter below run/tag/zero
    const read_folder all[READ_FOLDERS] = {{"--model", t->run.model, true, 0},
                                           {"--init", t->run.init, true, 4},
                                           {"--load", t->run.load, true, 4}};
    struct stat st;

    *n = 0;
    for (size_t i = 0; i < READ_FOLDERS; i++) {
        read_folder f = all[i];

        if (!f.path || stat(f.path, &st) != 0)
            continue;
        if (!S_ISDIR(st.st_mode)) {
            f.state = ends_with(f.path, ".index.json");
            f.below = 0;
            if (i > 0 && !f.state)
                continue;
            f.path = folder_of(t->arena, f.path);
            if (!f.path)
                return ckpt_fail_memory(err);
        }
        out[(*n)++] = f;
    }
    return CKPT_OK;
}

/* Refuse an existing output that the run reads. */
static int refuse_input(const told *t, const char *to, const read_folder *folder, size_t n,
                        ckpt_err *err)
{
    const char *const from[] = {t->run.data, t->run.eval_data, t->run.model, t->run.init,
                                t->run.load, t->run.config,    t->run.vocab, t->hostfile};
    struct stat a, b;

    if (!to || strcmp(to, "-") == 0 || stat(to, &a) != 0 || !S_ISREG(a.st_mode))
        return CKPT_OK;
    for (size_t k = 0; k < sizeof from / sizeof *from; k++) {
        if (from[k] && stat(from[k], &b) == 0 && same_file(&a, &b))
            return ckpt_fail(
                err, CKPT_EUSAGE,
                "%s: the run reads this file and would overwrite it: choose another output", to);
    }
    for (size_t k = 0; k < n; k++) {
        if (has_file(AT_FDCWD, folder[k].path, &a, folder[k].state, folder[k].below))
            return ckpt_fail(err, CKPT_EUSAGE,
                             "%s: the run may read this file, which is in the folder of %s, and "
                             "would overwrite it: choose another output",
                             to, folder[k].option);
    }
    return CKPT_OK;
}

/* Refuse --save-model into the folder of --model or --init. */
static int refuse_base(const told *t, const read_folder *folder, size_t n, ckpt_err *err)
{
    const char *to = t->run.save_model;
    struct stat a, b;

    if (!to || stat(to, &a) != 0)
        return CKPT_OK;
    for (size_t k = 0; k < n; k++) {
        if (strcmp(folder[k].option, "--load") != 0 && stat(folder[k].path, &b) == 0 &&
            same_file(&a, &b))
            return ckpt_fail(err, CKPT_EUSAGE,
                             "--save-model %s: the run reads its model from this folder (%s) and "
                             "would replace files there: choose another folder",
                             to, folder[k].option);
    }
    return CKPT_OK;
}

/* The file of weights in the folder of --save-model; NULL: out of memory. */
static const char *model_file(const told *t)
{
    return ckpt_arena_printf(t->arena, "%s/%s.safetensors", t->run.save_model,
                             t->run.lora_rank > 0 ? "adapter_model" : "model");
}

/* Refuse to write a file that the run reads, even with --force, which is for older outputs only. */
static int check_inputs(const told *t, const char *in_folder, ckpt_err *err)
{
    const char *const to[] = {t->metrics,          t->plot,  t->run.predictions, t->run.generate,
                              t->run.save_weights, in_folder};
    read_folder folder[READ_FOLDERS];
    size_t n = 0;
    int rc = list_folders(t, folder, &n, err);

    if (rc == CKPT_OK)
        rc = refuse_base(t, folder, n, err);
    for (size_t i = 0; rc == CKPT_OK && i < sizeof to / sizeof *to; i++)
        rc = refuse_input(t, to[i], folder, n, err);
    return rc;
}

/* ---- links ---- */

/*
 * Refuse an output that is a link to nothing, because zerotrain would create the target of the
 * link. An output that gets its name when it is complete would replace any link to a file, so none
 * is allowed there.
 */
static int check_links(const told *t, ckpt_err *err)
{
    const struct {
        const char *path;
        bool renamed;
    } to[] = {{t->metrics, false},       {t->run.predictions, false}, {t->run.generate, true},
              {t->plot, true},           {t->run.save_weights, true}, {t->run.save, false},
              {t->run.save_model, false}};
    struct stat st;
    char target[256];

    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        const char *path = to[i].path;
        if (!path || strcmp(path, "-") == 0 || lstat(path, &st) != 0 || !S_ISLNK(st.st_mode))
            continue;
        bool there = stat(path, &st) == 0;
        if (there && !to[i].renamed)
            continue;
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        return ckpt_fail(
            err, CKPT_EUSAGE,
            "%s: this is a link to %s%s; name the target of the link, or remove it", path, target,
            there ? ", and zerotrain does not replace links" : ", which does not exist");
    }
    return CKPT_OK;
}

/* ---- one file for two outputs ---- */

/* Take the next component of a path other than "."; *n: its length, 0 at the end. */
static const char *next_component(const char *path, size_t *n)
{
    do {
        path += strspn(path, "/");
        *n = strcspn(path, "/");
        if (*n != 1 || *path != '.')
            return path;
        path++;
    } while (true);
}

/* True if two resolved paths are equal but for "." and repeated slashes. */
static bool same_path(const char *a, const char *b)
{
    size_t n, m;

    if ((*a == '/') != (*b == '/'))
        return false;
    do {
        a = next_component(a, &n);
        b = next_component(b, &m);
        if (n != m || memcmp(a, b, n) != 0)
            return false;
        a += n;
        b += m;
    } while (n > 0);
    return true;
}

/*
 * Resolve symbolic links in the part of a path that exists, and make it absolute; the rest is
 * appended unchanged. NULL: out of memory.
 */
static const char *resolved_path(ckpt_arena *arena, const char *path)
{
    char *head = ckpt_arena_string(arena, path, strlen(path)), *slash;
    const char *out = NULL;
    char *real = NULL;

    if (!head)
        return NULL;
    while (!(real = realpath(*head ? head : *path == '/' ? "/" : ".", NULL)) && *head) {
        slash = strrchr(head, '/');
        *(slash ? slash : head) = '\0';
    }
    if (real)
        out = ckpt_arena_printf(arena, "%s/%s", real, path + strlen(head));
    free(real);
    return out;
}

/* Refuse one file for two outputs: the later one would replace the earlier. */
static int check_distinct(const told *t, const char *in_folder, ckpt_err *err)
{
    const struct {
        const char *option, *path;
    } to[] = {{"--metrics", t->metrics},
              {"--plot", t->plot},
              {"--predict", t->run.predictions},
              {"--generate", t->run.generate},
              {"--save-weights", t->run.save_weights},
              {"--save-model", in_folder}};
    const char *full[sizeof to / sizeof *to] = {NULL};

    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        if (!to[i].path || strcmp(to[i].path, "-") == 0)
            continue;
        full[i] = resolved_path(t->arena, to[i].path);
        if (!full[i])
            return ckpt_fail_memory(err);
        for (size_t k = 0; k < i; k++) {
            if (full[k] && same_path(full[i], full[k]))
                return ckpt_fail(err, CKPT_EUSAGE,
                                 "%s: %s and %s would both write this file: give one of them "
                                 "another name",
                                 to[i].path, to[k].option, to[i].option);
        }
    }
    return CKPT_OK;
}

int outputs_check(const told *t, ckpt_err *err)
{
    const char *in_folder = t->run.save_model ? model_file(t) : NULL;
    int rc = t->run.save_model && !in_folder ? ckpt_fail_memory(err) : CKPT_OK;

    if (rc == CKPT_OK)
        rc = check_inputs(t, in_folder, err);
    if (rc == CKPT_OK)
        rc = check_links(t, err);
    return rc == CKPT_OK ? check_distinct(t, in_folder, err) : rc;
}
