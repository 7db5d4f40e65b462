/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h: declares the table of option names that transformers, its scripts, DeepSpeed's launcher,
 * torchrun and accelerate have, and zerotrain has not or in another form.
 *
 *     names.c     the table
 *     others.c    what happens to a name that is met
 */
#ifndef TOOLS_ZEROTRAIN_NAMES_H
#define TOOLS_ZEROTRAIN_NAMES_H

#include <stddef.h>

typedef enum name_kind {
    NAME_FLAG,    /* an option of ours without a value; accepts true and false too */
    NAME_BARE,    /* an option of ours that needs its value; without one it has no effect */
    NAME_SAME,    /* another name of the option `to` */
    NAME_TRUE,    /* a switch without effect here */
    NAME_VALUE,   /* an option with a value, without effect here */
    NAME_SOME,    /* the values in `to` have no effect here; others are refused */
    NAME_NO_TRUE, /* a switch that is refused, unless it is off */
    NAME_NO       /* refused, whatever its value */
} name_kind;

typedef struct name_row {
    const char *name;
    name_kind kind;
    const char *to;   /* NAME_SAME: our option; NAME_SOME: "|no|steps|"; else NULL */
    const char *text; /* reason; for refusals also the alternative; NULL: no note */
} name_row;

/* Sorted by program, then by subject. */
extern const name_row names_table[];
extern const size_t names_count;

#endif
