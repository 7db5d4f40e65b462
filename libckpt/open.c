/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c: opens a path as a map: detects its kind, and chooses the driver.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "ckpt_extra.h"
#include "libckpt/around.h"
#include "libckpt/base/number.h"
#include "libckpt/base/opts.h"
#include "libckpt/commit/temp_names.h"
#include "libckpt/drivers.h"
#include "libckpt/io/address.h"
#include "libckpt/io/file_locations.h"
#include "libckpt/io/io.h"
#include "libckpt/map/whole.h"
#include "libckpt/remote/remote.h"

enum {
    OPEN_HEAD = 512,  /* bytes for the drivers' probes: tar's magic is at 257 */
    OPEN_NAMES = 256, /* bytes of a list of formats in a message */
    OPEN_HINTS = 32   /* subfolders that are searched for a hint */
};

/* The readable file formats, for a message. */
static const char *open_names(char names[OPEN_NAMES])
{
    size_t n = 0;

    names[0] = 0;
    for (size_t i = 0; ckpt_formats[i] && n < OPEN_NAMES; i++) {
        const ckpt_format_info *f = &ckpt_formats[i]->is;
        if (f->caps & CKPT_CAN_READ)
            n += (size_t)snprintf(names + n, OPEN_NAMES - n, "%s%s", n ? ", " : "", f->name);
    }
    return names;
}

/* Find the driver with the highest score for the first bytes, or NULL. */
static int open_probe(const ckpt_format **out, ckpt_io *io, ckpt_err *err)
{
    uint8_t head[OPEN_HEAD];
    size_t n = io->size < OPEN_HEAD ? (size_t)io->size : OPEN_HEAD;
    char names[OPEN_NAMES];
    int best = 0;

    *out = NULL;
    int rc = n ? ckpt_io_read(io, head, n, 0, err) : CKPT_OK;
    for (size_t i = 0; rc == CKPT_OK && ckpt_formats[i]; i++) {
        int sure = ckpt_formats[i]->probe(head, n, io->size);
        if (sure > best) {
            best = sure;
            *out = ckpt_formats[i];
        }
    }
    if (rc != CKPT_OK || *out)
        return rc;
    if (n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: the file is empty (0 bytes)", io->name);
    return ckpt_fail(err, CKPT_EFORMAT, "%s: not a checkpoint file of a known format (%s)",
                     io->name, open_names(names));
}

/* Report a file that a failed download left in place of the real one, under any name. */
static int open_impostor(ckpt_io *io, ckpt_err *err)
{
    static const char lfs[] = "version https://git-lfs.github.com/spec/";
    char head[64] = "";
    const char *s = head;
    int rc = ckpt_io_read(io, head, io->size < 63 ? io->size : 63, 0, err);

    if (rc != CKPT_OK)
        return rc;
    if (strncmp(head, lfs, sizeof lfs - 1) == 0)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: a Git LFS pointer of %" PRIu64
                         " bytes, not the file itself; `git lfs pull` in its repository brings it",
                         io->name, io->size);
    s += strspn(s, " \t\r\n");
    if (strncasecmp(s, "<!doctype html", 14) == 0 || strncasecmp(s, "<html", 5) == 0)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: this is an HTML page, not a checkpoint; open it in a browser to see "
                         "why the download failed",
                         io->name);
    return CKPT_OK;
}

static int open_with_io(ckpt_map *map, ckpt_io *io, const ckpt_input *input, ckpt_err *err)
{
    const ckpt_format *format = NULL;
    ckpt_map_file file = {0};
    uint32_t index = 0;
    int rc = open_impostor(io, err);

    if (rc == CKPT_OK)
        rc = open_probe(&format, io, err);
    if (rc != CKPT_OK)
        return rc;
    ckpt_io_identify(io, &file);
    file.format = format;
    if (input) {
        file.input = ckpt_arena_copy(map->arena, input, sizeof *input);
        if (!file.input)
            return ckpt_fail_memory(err);
    }
    rc = ckpt_map_add_file(map, &file, &index, err);
    if (rc == CKPT_OK) {
        map->format = format->is.name;
        map->known.training = format->is.caps & CKPT_READS_STATE;
        rc = format->read(map, io, index, err);
    }
    return rc;
}

/*
 * How to open one file.
 *
 * input    the caller's bytes, in the end the map's own copy, or NULL
 * collect  report problems as findings if the driver can go on
 * beside   see ckpt_read_beside
 */
typedef struct open_how {
    const ckpt_input *input;
    bool collect;
    ckpt_read_beside beside;
} open_how;

/* Read an open file into a new map. Closes io. */
static int open_map(ckpt_map **out, ckpt_io *io, const char *path, const open_how *how,
                    ckpt_err *err)
{
    ckpt_map *map = NULL;
    int rc = ckpt_map_create(&map, 0, err);

    if (rc == CKPT_OK) {
        map->collect = how->collect;
        map->keep_header = how->beside.keep;
        map->like = how->beside.like;
        map->path = ckpt_arena_string(map->arena, path, strlen(path));
        rc = map->path ? open_with_io(map, io, how->input, err) : ckpt_fail_memory(err);
    }
    ckpt_io_close(io);
    if (rc != CKPT_OK) {
        ckpt_map_free(map);
        return rc;
    }
    *out = map;
    return CKPT_OK;
}

/* Open one file as a map. */
static int open_read(ckpt_map **out, const char *path, const open_how *how, ckpt_err *err)
{
    ckpt_io *io = NULL;
    int rc = ckpt_io_open(&io, path, err);

    *out = NULL;
    return rc == CKPT_OK ? open_map(out, io, path, how, err) : rc;
}

int ckpt_format_read(ckpt_map **out, const char *path, const ckpt_read_beside *beside,
                     ckpt_err *err)
{
    open_how how = {0};

    if (beside)
        how.beside = *beside;
    return open_read(out, path, &how, err);
}

/* The folder of a path ("." if it has none), and the name in it; in the map's arena. */
static int open_split(ckpt_map *map, const char *path, const char **folder, const char **name,
                      ckpt_err *err)
{
    const char *slash = strrchr(path, '/');
    const char *dir = !slash ? "." : slash == path ? "/" : path;
    size_t n = slash && slash != path ? (size_t)(slash - path) : 1;

    *folder = ckpt_arena_string(map->arena, dir, n);
    *name = slash ? slash + 1 : path;
    return *folder ? CKPT_OK : ckpt_fail_memory(err);
}

/* The directory driver with a file of this name as its part, or NULL. */
static const ckpt_directory *open_part(const char *name, bool whole)
{
    for (size_t i = 0; ckpt_directories[i]; i++) {
        int part = ckpt_directories[i]->part ? ckpt_directories[i]->part(name) : 0;
        if (part == 2 || (part == 1 && whole))
            return ckpt_directories[i];
    }
    return NULL;
}

/* The driver with these capabilities and the highest score for a folder, except one; or NULL. */
static const ckpt_directory *open_driver(const ckpt_listing *list, unsigned caps,
                                         const ckpt_directory *but)
{
    const ckpt_directory *driver = NULL;
    int best = 0;

    for (size_t i = 0; ckpt_directories[i]; i++) {
        const ckpt_directory *d = ckpt_directories[i];
        int sure = (d->is.caps & caps) == caps && d != but ? d->probe(list) : 0;
        if (sure > best) {
            best = sure;
            driver = d;
        }
    }
    return driver;
}

bool ckpt_folder_known(const ckpt_listing *list)
{
    return open_driver(list, 0, NULL) != NULL;
}

/*
 * The driver for a folder with a tag. A tag belongs to a run, so other contents of the folder do
 * not count. If no driver recognises a run, the first one with tags reports the missing files.
 */
static const ckpt_directory *open_driver_of_tag(const ckpt_listing *list)
{
    const ckpt_directory *driver = open_driver(list, CKPT_HAS_TAGS, NULL);

    for (size_t i = 0; !driver && ckpt_directories[i]; i++) {
        if (ckpt_directories[i]->is.caps & CKPT_HAS_TAGS)
            driver = ckpt_directories[i];
    }
    return driver;
}

/* Report that no driver recognises the folder, with a hint if a subfolder may be meant. */
static int open_nothing(ckpt_map *map, const ckpt_listing *list, ckpt_err *err)
{
    const char *hint = "", *left = NULL, *signs = "";
    size_t looked = 0;

    for (size_t i = 0; i < list->n && !*hint && looked < OPEN_HINTS; i++) {
        ckpt_listing below;
        const char *path = NULL;
        if (ckpt_left_name(list->entry[i].name) != CKPT_LEFT_NONE)
            left = list->entry[i].name;
        if (!list->entry[i].is_dir || left == list->entry[i].name)
            continue;
        looked++;
        path = ckpt_arena_printf(map->arena, "%s/%s", list->folder, list->entry[i].name);
        if (path && ckpt_listing_read(&below, map, path, NULL) == CKPT_OK &&
            open_driver(&below, 0, NULL))
            hint = path;
    }
    if (left && !*hint)
        return ckpt_fail(err, CKPT_EMISSING,
                         "%s: no checkpoint here but %s, which a killed run has left: run its "
                         "command again, or remove it with ckpt clean",
                         list->folder, left);
    if (*hint)
        return ckpt_fail(err, CKPT_EMISSING, "%s: no checkpoint here; did you mean %s?",
                         list->folder, hint);
    for (size_t i = 0; signs && ckpt_directories[i]; i++) {
        const char *sign = ckpt_directories[i]->is.signs;
        if (sign)
            signs = ckpt_arena_printf(map->arena, "%s%s%s", signs, *signs ? ", " : "", sign);
    }
    return ckpt_fail(err, CKPT_EMISSING, "%s: no checkpoint here: expected one of %s", list->folder,
                     signs ? signs : "");
}

/* True if the last part of the path is a temporary name of this library. */
static bool open_is_left(const char *path)
{
    size_t n = strlen(path), from;
    char name[256];

    while (n > 1 && path[n - 1] == '/')
        n--;
    for (from = n; from > 0 && path[from - 1] != '/';)
        from--;
    if (n - from >= sizeof name)
        return false;
    memcpy(name, path + from, n - from);
    name[n - from] = 0;
    return ckpt_left_name(name) != CKPT_LEFT_NONE;
}

/* True for "checkpoint-500" of trainers, or a folder that a driver of training state recognises. */
static bool open_holds_run(ckpt_map *map, const ckpt_listing *list, const ckpt_entry *e)
{
    static const char trainer[] = "checkpoint-";
    const char *number = e->name + sizeof trainer - 1, *path;
    ckpt_listing below;

    if (!e->is_dir || ckpt_left_name(e->name) != CKPT_LEFT_NONE)
        return false;
    path = ckpt_arena_printf(map->arena, "%s/%s", list->folder, e->name);
    if (!path || ckpt_listing_read(&below, map, path, NULL) != CKPT_OK)
        return false;
    if (strncmp(e->name, trainer, sizeof trainer - 1) == 0 && *number &&
        strspn(number, "0123456789") == strlen(number) && below.n > 0)
        return true;
    return open_driver(&below, CKPT_READS_STATE, NULL) != NULL;
}

/*
 * Choose a checkpoint inside a trainer's folder, which has a model at its top and checkpoints
 * inside, because a resume from the model would begin at step 0.
 */
static int open_which(ckpt_map *map, const ckpt_listing *list, ckpt_err *err)
{
    const char *last = NULL;
    uint64_t at = 0;
    size_t n = 0;

    for (size_t i = 0; i < list->n; i++) {
        const ckpt_entry *e = &list->entry[i];
        const char *dash = strrchr(e->name, '-');
        uint64_t step = 0;

        if (!open_holds_run(map, list, e))
            continue;
        if (dash)
            (void)ckpt_scan_u64(dash + 1, &step);
        n++;
        last = !last || step >= at ? e->name : last;
        at = step > at ? step : at;
    }
    if (n == 0)
        return CKPT_OK;
    return ckpt_fail(
        err, CKPT_EUSAGE,
        "%s: has a model and, in subfolders, %zu checkpoint%s of a run: give %s/%s to "
        "continue this run; to begin a run at step 0, first write the model to another "
        "folder (ckpt convert %s MODEL --to hf), and give that one",
        list->folder, n, n == 1 ? "" : "s", list->folder, last, list->folder);
}

/* The driver that reads the folder as a run, although `weights` reads only its weights; or NULL. */
static const ckpt_directory *open_run_driver(const ckpt_listing *list,
                                             const ckpt_directory *weights)
{
    for (size_t i = 0; ckpt_directories[i]; i++) {
        const ckpt_directory *d = ckpt_directories[i];
        if (d->holds_run && !(weights->is.caps & CKPT_READS_STATE) && d->holds_run(list))
            return d;
    }
    return NULL;
}

/* Read the weights with their driver, and then the run. */
static int open_beside(ckpt_map *map, const ckpt_listing *list, const ckpt_directory *of_weights,
                       const ckpt_directory *driver, const ckpt_open_opts *opts, ckpt_err *err)
{
    ckpt_open_opts alone = *opts;
    ckpt_map *weights = NULL;
    int rc = ckpt_map_create(&weights, 0, err);

    alone.training = alone.with_optimizer = false;
    if (rc == CKPT_OK) {
        weights->path = list->folder;
        weights->format = of_weights->is.name;
        rc = of_weights->gather(weights, list, &alone, err);
    }
    if (rc == CKPT_OK)
        rc = driver->gather_run(map, weights, list, opts, err);
    ckpt_map_free(weights);
    return rc;
}

/* Open a folder with the best driver, or with `driver` because the caller named the file `part`. */
static int open_folder(ckpt_map *map, const char *folder, const char *part,
                       const ckpt_directory *driver, const ckpt_open_opts *opts, ckpt_err *err)
{
    ckpt_listing list;
    int rc =
        open_is_left(folder)
            ? ckpt_fail(
                  err, CKPT_EMISSING,
                  "%s: this is the unfinished output of a command that is still at work or was "
                  "killed: run it again to finish the output, or remove it with ckpt clean",
                  folder)
            : ckpt_listing_read(&list, map, folder, err);

    if (rc != CKPT_OK)
        return rc;
    list.part = part;
    list.read = ckpt_format_read;
    if (!driver)
        driver = opts->tag ? open_driver_of_tag(&list) : open_driver(&list, 0, NULL);
    if (!driver)
        return open_nothing(map, &list, err);
    const ckpt_directory *of_weights = driver,
                         *run = opts->training && opts->with_optimizer && !part && !opts->tag
                                    ? open_run_driver(&list, driver)
                                    : NULL;
    driver = run ? run : driver;
    map->path = folder;
    map->format = driver->is.name;
    map->known.training = driver->is.caps & CKPT_READS_STATE;
    rc = run ? open_beside(map, &list, of_weights, run, opts, err)
             : driver->gather(map, &list, opts, err);
    if (rc == CKPT_OK && opts->collect && !part)
        rc = ckpt_around(map, &list, err);
    if (rc == CKPT_OK && opts->training && !part && !opts->tag && !map->known.training)
        rc = open_which(map, &list, err);
    // If the best driver cannot choose a checkpoint, another driver may read the folder's model.
    if (rc == CKPT_EMISSING && !part && !opts->tag && (driver->is.caps & CKPT_HAS_TAGS) && err) {
        const ckpt_directory *other = open_driver(&list, CKPT_CAN_READ, driver);
        if (other && !(other->is.caps & CKPT_READS_STATE))
            (void)strncat(err->text,
                          "; to read the model in this folder, give the path of its file",
                          sizeof err->text - strlen(err->text) - 1);
    }
    return rc;
}

/* Check that formats with checksums have one for every record that tensors use. */
static int open_require_crc(ckpt_map *map, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < map->sources.n; i++) {
        const ckpt_source *s = &map->sources.at[i];
        const ckpt_map_file *f = s->kind == CKPT_SOURCE_FILE ? &map->files.at[s->file] : NULL;
        // a file that is copied unchanged is checked by the records inside it
        if (f && f->format && f->format->records && !s->whole && !s->has_crc && s->n_bytes > 0)
            rc = ckpt_map_problem(map, CKPT_EFORMAT, err,
                                  "%s: record %s carries no CRC-32, and one is required", f->path,
                                  s->name ? s->name : "?");
    }
    return rc;
}

/* Add the flags of options that had an effect, besides those that drivers set. */
static void open_effects(ckpt_map *map, const ckpt_directory *driver, bool is_shard)
{
    map->effects |= driver && (driver->is.caps & CKPT_HAS_TAGS) ? CKPT_USED_TAG : 0;
    map->effects |= is_shard ? CKPT_USED_WHOLE : 0;
    for (size_t i = 0; i < map->tensors.n; i++)
        map->effects |= map->tensors.at[i]->role == CKPT_ROLE_STATE ? CKPT_USED_STATE : 0;
    for (size_t i = 0; i < map->files.n; i++) {
        const ckpt_format *format = map->files.at[i].format;

        map->effects |= format && format->records ? CKPT_USED_CRC : 0;
    }
}

/* Torch files keep the model's order of tensors; safetensors files sort them. */
static void open_order(ckpt_map *map)
{
    bool kept = map->files.n > 0;

    for (size_t i = 0; kept && i < map->files.n; i++) {
        const ckpt_format *format = map->files.at[i].format;
        kept = format && (format->is.caps & CKPT_KEEPS_ORDER);
    }
    map->in_order = map->in_order || kept;
}

/* Open a single file; the map is the one of the file's driver. */
static int open_file(ckpt_map **map, const char *path, bool collect, ckpt_err *err)
{
    ckpt_map *read = NULL;
    int rc = open_read(&read, path, &(open_how){.collect = collect}, err);

    if (rc == CKPT_OK) {
        ckpt_map_free(*map);
        *map = read;
    }
    return rc;
}

/*
 * Read a file with the values of a run as a run: the map is replaced by that of the driver for such
 * files. Other files stay unchanged.
 */
static int open_run(ckpt_map **map, const char *path, const ckpt_open_opts *opts, ckpt_err *err)
{
    const ckpt_directory *driver = NULL;
    const char *folder, *name;
    ckpt_map *run = NULL;

    for (size_t i = 0; !driver && ckpt_directories[i]; i++) {
        if (ckpt_directories[i]->holds && ckpt_directories[i]->holds((*map)->values))
            driver = ckpt_directories[i];
    }
    if (!driver)
        return CKPT_OK;
    int rc = ckpt_map_create(&run, 0, err);
    if (rc == CKPT_OK) {
        run->collect = opts->collect;
        rc = open_split(run, path, &folder, &name, err);
    }
    if (rc == CKPT_OK)
        rc = open_folder(run, folder, name, driver, opts, err);
    if (rc == CKPT_OK) {
        run->path = ckpt_arena_string(run->arena, path, strlen(path));
        rc = run->path ? CKPT_OK : ckpt_fail_memory(err);
    }
    if (rc != CKPT_OK) {
        ckpt_map_free(run);
        return rc;
    }
    ckpt_map_free(*map);
    *map = run;
    return CKPT_OK;
}

/* Find out whether a path, or an address, is a file or a folder. */
static int open_kind(const char *path, bool *is_dir, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (ckpt_address_is(path) && ckpt_team_any())
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: an address is read by one process: start it without mpirun", path);
    if (ckpt_path_is_remote(path))
        rc = ckpt_remote_begin(err);
    return rc == CKPT_OK ? ckpt_places_kind(path, is_dir, err) : rc;
}

/* Warn about files on a server that does not send the version of a file. */
static int open_unmarked(ckpt_map *map, ckpt_err *err)
{
    const char *first = NULL;
    size_t n = 0;

    for (size_t i = 0; i < map->files.n; i++) {
        if (!map->files.at[i].input && ckpt_address_unmarked(map->files.at[i].path)) {
            first = first ? first : map->files.at[i].path;
            n++;
        }
    }
    if (n == 0)
        return CKPT_OK;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: its server sends neither ETag nor Last-Modified, for %zu of %zu "
                         "files: if one changes while it is read, bytes of both states are mixed "
                         "and only another size would show it",
                         first, n, map->files.n);
}

/* Check, as far as possible, that all processes have read the same files. */
static int open_seen(ckpt_map *map, ckpt_err *err)
{
    int rc = ckpt_io_see(map, err);

    return rc == CKPT_OK ? open_unmarked(map, err) : rc;
}

/*
 * Find out whether a model is only a part of a program's dict, and make floats of the tensors of
 * quantized classes in pickles.
 */
static int open_dicts(ckpt_map *map, ckpt_err *err)
{
    ckpt_whole whole = {0};
    int rc = map->wrapped ? ckpt_map_dequantize(map, false, err) : CKPT_OK;

    if (rc != CKPT_OK || !ckpt_is_dict(map))
        return rc;
    rc = ckpt_whole_of(&whole, map->values, map->arena, err);
    if (rc == CKPT_OK && whole.n_models > 0 && whole.n_optimizers + whole.n_copies > 0) {
        map->dicts = ckpt_whole_text(&whole, map->arena);
        rc = map->dicts ? CKPT_OK : ckpt_fail_memory(err);
    }
    ckpt_whole_free(&whole);
    return rc;
}

int ckpt_open(ckpt_map **out, const char *path, const ckpt_open_opts *opts, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_open_opts own;
    const ckpt_directory *driver = NULL;
    const char *folder = NULL, *name = NULL;
    ckpt_map *map = NULL;
    bool is_dir;

    if (out)
        *out = NULL;
    if (!out || !path || !*path)
        return ckpt_fail(err, CKPT_EUSAGE, "no path to open, or no place for what is opened");
    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_open_opts", err);
    if (rc != CKPT_OK)
        return rc;
    opts = &own;
    rc = open_kind(path, &is_dir, err);
    if (rc != CKPT_OK)
        return rc;
    rc = ckpt_map_create(&map, 0, err);
    if (rc == CKPT_OK) {
        map->collect = opts->collect;
        rc = open_split(map, path, &folder, &name, err);
    }
    if (rc == CKPT_OK && is_dir) {
        folder = ckpt_arena_string(map->arena, path, strlen(path));
        rc = folder ? open_folder(map, folder, NULL, NULL, opts, err) : ckpt_fail_memory(err);
    } else if (rc == CKPT_OK) {
        driver = open_part(name, opts->whole_checkpoint);
        if (!driver && opts->tag)
            rc = ckpt_fail(err, CKPT_EUSAGE, "%s is a file; a tag needs the folder of a run", path);
    }
    if (rc == CKPT_OK && !is_dir)
        rc = driver ? open_folder(map, folder, name, driver, opts, err)
                    : open_file(&map, path, opts->collect, err);
    if (rc == CKPT_OK && !is_dir && !driver && opts->training)
        rc = open_run(&map, path, opts, err);
    if (rc == CKPT_OK) {
        open_order(map);
        open_effects(map, ckpt_directory_find(map->format),
                     !is_dir && open_part(name, true) != open_part(name, false));
        rc = open_dicts(map, err);
    }
    // a tag was requested: do not return anything else
    if (rc == CKPT_OK && opts->tag && !(map->effects & CKPT_USED_TAG))
        rc = ckpt_fail(err, CKPT_EUSAGE,
                       "%s: a checkpoint of format %s has no tags: leave out the tag '%s'",
                       map->path, map->format, opts->tag);
    if (rc == CKPT_OK && opts->require_crc)
        rc = open_require_crc(map, err);
    if (rc == CKPT_OK)
        rc = open_seen(map, err);
    if (rc == CKPT_OK)
        map->outline = opts->outline; // now, because drivers read small tensors
    else
        ckpt_map_free(map);
    *out = rc == CKPT_OK ? map : NULL;
    return rc;
}

/* Check and complete the caller's input. */
static int open_take_input(ckpt_input *own, const char *name, const ckpt_input *input,
                           ckpt_err *err)
{
    int rc = ckpt_opts_take(own, sizeof *own, input, "ckpt_input", err);

    if (rc == CKPT_OK && (!name || !*name || !own->read_at))
        rc = ckpt_fail(err, CKPT_EUSAGE, "an input needs a name and a function that reads");
    if (rc == CKPT_OK && own->n_bytes > INT64_MAX)
        rc = ckpt_fail(err, CKPT_EUSAGE, "%s: more than 2^63 bytes", name);
    return rc;
}

int ckpt_open_input(ckpt_map **out, const char *name, const ckpt_input *input,
                    const ckpt_open_opts *opts, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_open_opts own;
    ckpt_input from;
    ckpt_map *map = NULL;
    ckpt_io *io = NULL;

    if (!out)
        return ckpt_fail(err, CKPT_EUSAGE, "no place for what is opened");
    *out = NULL;
    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_open_opts", err);
    if (rc == CKPT_OK)
        rc = open_take_input(&from, name, input, err);
    if (rc == CKPT_OK && own.tag)
        rc = ckpt_fail(err, CKPT_EUSAGE, "%s is a file; a tag needs the folder of a run", name);
    if (rc == CKPT_OK)
        rc = ckpt_io_input(&io, name, &from, err);
    if (rc == CKPT_OK)
        rc = open_map(&map, io, name, &(open_how){&from, own.collect, {0}}, err);
    if (rc == CKPT_OK) {
        open_order(map);
        open_effects(map, NULL, false);
        rc = open_dicts(map, err);
        if (rc == CKPT_OK && own.require_crc)
            rc = open_require_crc(map, err);
    }
    if (rc != CKPT_OK) {
        ckpt_map_free(map);
        return rc;
    }
    *out = map;
    return CKPT_OK;
}

int ckpt_map_set_model_folder(ckpt_map *map, const char *folder, ckpt_err *err)
{
    ckpt_err_clear(err);
    if (!map || !folder)
        return ckpt_fail(err, CKPT_EUSAGE, "no map, or no folder of its model");
    const char *copy = ckpt_arena_string(map->arena, folder, strlen(folder));
    if (!copy)
        return ckpt_fail_memory(err);
    map->model_folder = copy;
    return CKPT_OK;
}
