/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h: what several verbs say about maps and runs, as text and as JSON.
 */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include "tools/cli/json_out.h"
#include "tools/cli/out.h"

/* "[29, 13]", "[]"; cut with "..." when it does not fit, which takes over twenty axes. */
enum { SHAPE_ROOM = 256 };
const char *shape_text(char buf[SHAPE_ROOM], const ckpt_tensor *t);

/* "weight", "frozen", "buffer" or "state": a CKPT_ROLE_* as --json and listings have it; static. */
const char *role_name(uint32_t role);

/* Sums over a map: tied names count once in elements and bytes. */
typedef struct map_totals {
    uint64_t n_tensors, n_tied, n_elems, n_bytes;
} map_totals;
void map_count(map_totals *out, const ckpt_map *map);

/* "148 tensors (1 tied), 355.0 M elements, 1.42 GB", to stdout, with a newline. */
void map_summary(const ckpt_map *map);

/* The value of a fact, or NULL. */
const char *map_fact(const ckpt_map *map, const char *key);

/* A path as seen from the folder that the map was opened from. */
const char *map_relative(const ckpt_map *map, const char *path);

/* Its files are archives of records, which could carry checksums; safetensors files are not. */
bool map_has_records(const ckpt_map *map);

/* Findings on stderr: warnings always, information when notes is set. */
void map_say_findings(const ckpt_map *map, bool notes);

/* "reading deepspeed checkpoint PATH (stage 3, ranks 4)" on stderr. */
void map_say_understood(const ckpt_map *map);

/* Members of the object that is open: shape as an array, a run's report. */
void json_shape(json_out *j, const char *key, const ckpt_tensor *t);
void json_report(json_out *j, const char *key, const ckpt_run_report *r);
void json_facts(json_out *j, const char *key, const ckpt_map *map);
void json_findings(json_out *j, const char *key, const ckpt_map *map);

/* Findings, or one, as members of the array that is open. */
void json_findings_of(json_out *j, const ckpt_map *map);
void json_finding(json_out *j, int severity, const char *text);

/*
 * What a run proved: "148 tensors, 355 elements each written once; 592 records' CRC-32 held; ...".
 * did is the verb for the elements: "written", "read".
 */
enum { PROOF_ROOM = 512 };
const char *proof_text(char buf[PROOF_ROOM], const ckpt_run_report *r, const char *did);

/* "12 files": the noun with an s unless n is 1. */
enum { COUNT_ROOM = 64 };
const char *count_text(char buf[COUNT_ROOM], uint64_t n, const char *noun);

#endif
