/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h: what the reader's two files share: names of records in messages, and their order.
 * Internal to formats.
 */
#ifndef CKPT_CODEC_ZIP_NAMES_H
#define CKPT_CODEC_ZIP_NAMES_H

#include <string.h>

#include "libckpt/codec/zip/zip.h"

/*
 * The code for an oddity of a record: hiding a pickle from other readers has one purpose only.
 */
static inline int zip_odd(const char *name, uint64_t n)
{
    return n >= 4 && memcmp(name + n - 4, ".pkl", 4) == 0 ? CKPT_EUNSAFE : CKPT_EFORMAT;
}

/* A length for "%.*s". */
static inline int zip_show(uint64_t n)
{
    return n > 300 ? 300 : (int)n;
}

/*
 * For each record in turn, the last that was read: true if its name needs no look, being that of
 * like's record at the same place in a folder that was looked at with the first record.  Keeps
 * n_top and same_names.
 */
bool ckpt_zip_name_known(ckpt_zip *zip, const ckpt_zip *like);

/*
 * Fill in by_name, n_common and n_case_twins, from like where the names are the same; refuses two
 * records of one name.
 */
int ckpt_zip_sort_names(ckpt_zip *zip, const ckpt_zip *like, ckpt_err *err);

#endif
