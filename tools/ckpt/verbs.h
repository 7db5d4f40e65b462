/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.h: declares every command in main.c's tables; the file of its name defines it. */
#ifndef TOOLS_VERBS_H
#define TOOLS_VERBS_H

#include "tools/cli/args.h"

extern const cli_verb verb_ls, verb_info, verb_tree, verb_cat;
extern const cli_verb verb_convert, verb_merge, verb_extract, verb_reshard, verb_verify, verb_diff,
    verb_formats;
extern const cli_verb verb_maps, verb_mount, verb_sign, verb_manifest;
extern const cli_verb verb_doctor, verb_clean, verb_mem, verb_report;
extern const cli_verb verb_help, verb_completion, verb_version;

/* Drop-ins, chosen by the name under which the program was called. */
extern const cli_verb compat_zero_to_fp32, compat_zero_to_torch, compat_ds_to_universal;

#endif
