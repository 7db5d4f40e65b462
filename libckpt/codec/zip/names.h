/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h: declares functions that the reader's two files share, for the names of records in
 * messages and for their order. Private to this folder.
 */
#ifndef CKPT_CODEC_ZIP_NAMES_H
#define CKPT_CODEC_ZIP_NAMES_H

#include <string.h>

#include "libckpt/codec/zip/zip.h"

/*
 * The error code for an irregular record. For a pickle it is CKPT_EUNSAFE, because hiding a pickle
 * from other readers can only be an attack.
 */
static inline int zip_odd(const char *name, uint64_t n)
{
    return n >= 4 && memcmp(name + n - 4, ".pkl", 4) == 0 ? CKPT_EUNSAFE : CKPT_EFORMAT;
}

/* A length for "%.*s", limited so that messages stay short. */
static inline int zip_show(uint64_t n)
{
    return n > 300 ? 300 : (int)n;
}

/*
 * Compare each new record with the record of `like` at the same index.
 *
 * Call it for each record in turn, right after reading it. True: the names are equal after the top
 * folder, so this one needs no check; the folder is checked with the first record. Updates n_top
 * and same_names.
 */
bool ckpt_zip_name_known(ckpt_zip *zip, const ckpt_zip *like);

/*
 * Fill in by_name, n_common and n_case_twins (copied from `like` if the names are the same);
 * refuses two records of one name.
 */
int ckpt_zip_sort_names(ckpt_zip *zip, const ckpt_zip *like, ckpt_err *err);

#endif
