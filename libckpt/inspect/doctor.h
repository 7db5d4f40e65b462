/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.h: declares the functions and types that the files of the doctor share. Private to these
 * files.
 *
 *    doctor_tag.c     recognises and examines one tag
 *    doctor_latest.c  examines and changes the file `latest`
 *    doctor.c         examines runs and folders of runs, and reports
 */
#ifndef CKPT_DOCTOR_H
#define CKPT_DOCTOR_H

#include "libckpt/format.h"

/* A problem; code CKPT_OK: a remark. */
typedef struct ckpt_doc_problem {
    int code;
    const char *text;
} ckpt_doc_problem;

CKPT_VEC(ckpt_doc_problems, ckpt_doc_problem);

typedef struct ckpt_doc_tag {
    ckpt_tag is;
    const char *dir;  /* name of the tag's folder in the run folder */
    const char *path; /* path by which it is opened */
    bool has_shards;
    const ckpt_run_layout *layout; /* layout of runs with such tags; NULL: DeepSpeed's */
    int64_t mtime_s, mtime_ns;     /* time of its newest file */
    size_t order;                  /* position in the listing */
    /* number in its name, for runs of other programs than DeepSpeed; else -1 */
    int64_t number;
    const char *moments; /* the form of an optimizer's moments, if special; or NULL */
    bool done;           /* runs without a pointer: the save of the tag has finished */
    ckpt_doc_problems problems;
} ckpt_doc_tag;

CKPT_VEC(ckpt_doc_tags, ckpt_doc_tag);

/* One run folder, or one tag folder alone. */
typedef struct ckpt_doc_run {
    ckpt_run_health is;
    const ckpt_run_layout *layout; /* layout with its pointer; NULL: DeepSpeed's */
    const char *folder;
    bool alone;
    ckpt_listing list;
    ckpt_doc_tags tags;
    ckpt_doc_problems problems;
} ckpt_doc_run;

typedef struct ckpt_doc {
    const char *path;
    const ckpt_doctor_opts *opts;
    ckpt_run_opts run; /* opts->run, or defaults */
    ckpt_map *map;     /* its arena holds listings and texts */
    int code;          /* result for the latest examined run; `why` is its text */
    const char *why;
    ckpt_err *err;
} ckpt_doc;

/* ---- doctor_tag.c ---- */

/* A path below a folder; NULL when memory is exhausted. */
const char *ckpt_doc_join(ckpt_map *map, const char *folder, const char *name);

/* "partial" ... */
const char *ckpt_doc_health_name(ckpt_tag_health h);

/*
 * Store a problem, up to a limit, because a hostile file could cause any number; text NULL: memory
 * is exhausted.
 */
int ckpt_doc_keep(ckpt_doc *d, ckpt_doc_problems *all, int code, const char *text);

/* True if there is an entry of this name and kind. */
bool ckpt_doc_has(const ckpt_listing *list, const char *name, bool is_dir);

/* List a folder; *listed is false, without a failure, if that is impossible. */
int ckpt_doc_list(ckpt_listing *out, bool *listed, ckpt_map *map, const char *path, ckpt_err *err);

/*
 * True for a folder with a pointer, with shards of a tag, or with the parameters of a universal
 * checkpoint.
 */
bool ckpt_doc_has_pointer(const ckpt_listing *list);
bool ckpt_doc_has_deepspeed(const ckpt_listing *list); /* true for DeepSpeed's pointers */
bool ckpt_doc_has_shards(const ckpt_listing *list);
bool ckpt_doc_is_universal(const ckpt_listing *list);

/* The run layout with a pointer in this folder; NULL: no driver has one. */
const ckpt_run_layout *ckpt_doc_pointed(const ckpt_listing *list);

/* Make a tag of a run without examining it. */
int ckpt_doc_tag_new(ckpt_doc *d, ckpt_doc_tag *t, const ckpt_doc_run *run, const char *dir);

/* Set *found if its folder is a tag; then, and with `anyhow`, add up the folder's size. */
int ckpt_doc_tag_look(ckpt_doc *d, ckpt_doc_tag *t, bool anyhow, bool *found);

/* Find its problems. */
int ckpt_doc_tag_examine(ckpt_doc *d, ckpt_doc_tag *t);

/* ---- doctor_latest.c ---- */

/*
 * Find the run's pointer and the tag that it names; if it names none, run->is.code and reason
 * explain it.
 */
int ckpt_doc_latest_read(ckpt_doc *d, ckpt_doc_run *run);

/*
 * After all tags are examined, oldest first: judge the tag that `latest` names, find the newest
 * whole one, and apply fix_latest.
 */
int ckpt_doc_latest_judge(ckpt_doc *d, ckpt_doc_run *run);

#endif
