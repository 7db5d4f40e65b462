/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.h: finds the entry of storage_data that has a chunk's name and offset.
 *
 * The entries are grouped by name.  Ranks usually list a tensor's chunks in storage_data in the
 * order in which state_dict_metadata lists them, so the next entry of the group is tried first.  If
 * it has another offset, the group is sorted by offset, once, and searched by bisection.
 */
#ifndef CKPT_FORMATS_DCP_LOOKUP_H
#define CKPT_FORMATS_DCP_LOOKUP_H

#include "formats/dcp/dcp.h"

typedef struct ckpt_dcp_lookup {
    const ckpt_dcp_entries *entry; /* borrowed; entries may be appended */
    uint32_t *by_name;             /* indexes of listed entries, those of one name together */
    uint32_t *first;               /* by name: the position in by_name of its first; n_names + 1 */
    uint8_t *state;                /* by name: whether its entries are sorted, and checked */
    uint32_t n_names, next;        /* next: the position after the entry that was found last */
} ckpt_dcp_lookup;

/*
 * Prepare look-ups among the listed entries from `from` on; their names are below n_names.
 *
 * Errors  CKPT_ELIMIT; *out must be freed then, too
 */
int ckpt_dcp_lookup_make(ckpt_dcp_lookup *out, const ckpt_dcp_entries *entry, size_t from,
                         size_t n_names, ckpt_err *err);
void ckpt_dcp_lookup_free(ckpt_dcp_lookup *l);

/*
 * Find an entry by name and offset (as ckpt_dcp_entry has them).
 *
 * out     CKPT_INDEX_NONE: there is none; otherwise its index
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_lookup_find(ckpt_dcp_lookup *l, uint32_t name, uint32_t offset, uint32_t *out,
                         ckpt_err *err);

/*
 * Find out whether two entries have this name and the same offset; asked again for a name, the
 * answer is false.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_lookup_repeats(ckpt_dcp_lookup *l, uint32_t name, bool *out, ckpt_err *err);

#endif
