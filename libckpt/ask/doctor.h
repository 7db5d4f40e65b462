/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.h: what the files of the doctor share.  Not for anyone else.
 *
 *     doctor_tag.c     one tag: is a folder one, what is wrong with it
 *     doctor_latest.c  the file `latest`: what it names and what that is worth; changing it
 *     doctor.c         runs, folders of runs, and telling about them
 */
#ifndef CKPT_DOCTOR_H
#define CKPT_DOCTOR_H

#include "libckpt/format.h"

/* Something noticed; code CKPT_OK: a remark. */
typedef struct ckpt_doc_problem {
    int code;
    const char *text;
} ckpt_doc_problem;

CKPT_VEC(ckpt_doc_problems, ckpt_doc_problem);

typedef struct ckpt_doc_tag {
    ckpt_tag is;
    const char *dir;  /* its name in the run folder */
    const char *path; /* as opened */
    bool has_shards;
    const ckpt_run_layout *layout; /* of runs with such tags; NULL: DeepSpeed's */
    int64_t mtime_s, mtime_ns;     /* of the newest of its files */
    size_t order;                  /* in the listing */
    int64_t number;                /* in its name, of runs that are not DeepSpeed's; else -1 */
    bool done;                     /* of runs without a pointer: its save has finished */
    ckpt_doc_problems problems;
} ckpt_doc_tag;

CKPT_VEC(ckpt_doc_tags, ckpt_doc_tag);

/* One run folder, or one tag folder alone. */
typedef struct ckpt_doc_run {
    ckpt_run_health is;
    const ckpt_run_layout *layout; /* of its pointer; NULL: DeepSpeed's */
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
    ckpt_map *map;     /* for its arena: listings, texts */
    int code;          /* the verdict on the last run that was looked at, and its text */
    const char *why;
    ckpt_err *err;
} ckpt_doc;

/* ---- doctor_tag.c ---- */

/* A path below a folder; NULL when memory is exhausted. */
const char *ckpt_doc_join(ckpt_map *map, const char *folder, const char *name);

/* "partial" ... */
const char *ckpt_doc_health_name(ckpt_tag_health h);

/* Keep a text, up to a number that a hostile file cannot drive up; text NULL: memory is exhausted.
 */
int ckpt_doc_keep(ckpt_doc *d, ckpt_doc_problems *all, int code, const char *text);

/* An entry of this name and kind. */
bool ckpt_doc_has(const ckpt_listing *list, const char *name, bool is_dir);

/* List a folder; *listed is false, and it is no failure, when that cannot be done. */
int ckpt_doc_list(ckpt_listing *out, bool *listed, ckpt_map *map, const char *path, ckpt_err *err);

/* A folder with a pointer, or with shards of a tag, or with the parameters of a universal
 * checkpoint. */
bool ckpt_doc_has_pointer(const ckpt_listing *list);
bool ckpt_doc_has_deepspeed(const ckpt_listing *list); /* one of DeepSpeed's */
bool ckpt_doc_has_shards(const ckpt_listing *list);
bool ckpt_doc_is_universal(const ckpt_listing *list);

/* The layout of runs whose pointer stands in a folder; NULL: none that drivers tell of. */
const ckpt_run_layout *ckpt_doc_pointed(const ckpt_listing *list);

/* A tag of a run before it is looked at. */
int ckpt_doc_tag_new(ckpt_doc *d, ckpt_doc_tag *t, const ckpt_doc_run *run, const char *dir);

/* Is its folder a tag?  If it is, or is to be counted as one, the folder is weighed too. */
int ckpt_doc_tag_look(ckpt_doc *d, ckpt_doc_tag *t, bool anyhow, bool *found);

/* Find out what is wrong with it. */
int ckpt_doc_tag_examine(ckpt_doc *d, ckpt_doc_tag *t);

/* ---- doctor_latest.c ---- */

/* Which pointer the run has, and the tag that it names; where it names none, run->is.code and
 * reason say why. */
int ckpt_doc_latest_read(ckpt_doc *d, ckpt_doc_run *run);

/* All tags are examined, the oldest first: is the one that `latest` names whole, which could it
 * name; fix_latest. */
int ckpt_doc_latest_judge(ckpt_doc *d, ckpt_doc_run *run);

#endif
