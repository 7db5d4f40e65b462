/* SPDX-License-Identifier: Apache-2.0 */
/* report.h: declares the reports on maps and runs that several verbs share, as text and as JSON. */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include "tools/cli/json_out.h"
#include "tools/cli/out.h"

/*
 * Format a shape: "[29, 13]", "[]".  A shape of more than about twenty axes is truncated with
 * "...".
 */
enum { SHAPE_ROOM = 256 };
const char *shape_text(char buf[SHAPE_ROOM], const ckpt_tensor *t);

/*
 * The name of a CKPT_ROLE_* in --json and listings: "weight", "frozen", "buffer" or "state";
 * static.
 */
const char *role_name(uint32_t role);

/* Sums over a map.  Elements and bytes of tied names count once. */
typedef struct map_totals {
    uint64_t n_tensors, n_tied, n_elems, n_bytes;
} map_totals;
void map_count(map_totals *out, const ckpt_map *map);

/* Print "148 tensors (1 tied), 355.0 M elements, 1.42 GB" and a newline to stdout. */
void map_summary(const ckpt_map *map);

/* The value of a fact, or NULL. */
const char *map_fact(const ckpt_map *map, const char *key);

/* A path relative to the folder from which the map was opened. */
const char *map_relative(const ckpt_map *map, const char *path);

/*
 * True if the files are archives of records, which can have checksums; safetensors files are not.
 */
bool map_has_records(const ckpt_map *map);

/* Print findings to stderr: warnings always, notes if `notes` is set. */
void map_say_findings(const ckpt_map *map, bool notes);

/* Print "reading deepspeed checkpoint PATH (stage 3, ranks 4)" to stderr. */
void map_say_understood(const ckpt_map *map);

/* Add members to the open object: a shape as an array, a run's report, facts, findings. */
void json_shape(json_out *j, const char *key, const ckpt_tensor *t);
void json_report(json_out *j, const char *key, const ckpt_run_report *r);
void json_facts(json_out *j, const char *key, const ckpt_map *map);
void json_findings(json_out *j, const char *key, const ckpt_map *map);

/* Add findings, or one finding, to the open array. */
void json_findings_of(json_out *j, const ckpt_map *map);
void json_finding(json_out *j, int severity, const char *text);

/*
 * Format the proofs of a run: "148 tensors, 355 elements each written once; 592 records' CRC-32
 * held; ...".  did is the verb for the elements: "written", "read".
 */
enum { PROOF_ROOM = 512 };
const char *proof_text(char buf[PROOF_ROOM], const ckpt_run_report *r, const char *did);

/* Format a count: "12 files".  The noun gets an s unless n is 1. */
enum { COUNT_ROOM = 64 };
const char *count_text(char buf[COUNT_ROOM], uint64_t n, const char *noun);

#endif
