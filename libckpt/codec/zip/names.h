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

/* Fill in by_name, n_common and n_case_twins; refuses two records of one name. */
int ckpt_zip_sort_names(ckpt_zip *zip, ckpt_err *err);

#endif
