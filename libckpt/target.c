/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.c: checks a target: every field that is set must have a meaning for its format. The
 * possible values in messages come from the drivers and from the table of conversions.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "ckpt_extra.h"
#include "libckpt/base/cast.h"
#include "libckpt/base/opts.h"
#include "libckpt/drivers.h"
#include "libckpt/io/address.h"
#include "libckpt/io/dir.h"
#include "libckpt/transform/dtypes.h"

/* ---- lists for messages ---- */

/* Bytes of a list of all names of a table. */
enum { TGT_LIST = 256 };

/* One more name, after a comma. */
static void tgt_list_add(char list[TGT_LIST], const char *name)
{
    size_t n = strlen(list);

    (void)snprintf(list + n, TGT_LIST - n, "%s%s", n > 0 ? ", " : "", name);
}

/* List the formats with all of these flags. */
static const char *tgt_formats(char list[TGT_LIST], unsigned with)
{
    const ckpt_format_info *f;

    list[0] = '\0';
    for (size_t i = 0; (f = ckpt_format_at(i)); i++) {
        if ((f->caps & with) == with)
            tgt_list_add(list, f->name);
    }
    return list;
}

/* ---- checks ---- */

/* True if floats can be written in this dtype to a format. */
static bool tgt_takes(const ckpt_format_info *f, ckpt_dtype d)
{
    if (!f->dtypes)
        return !ckpt_dtype_packed(d) && ckpt_cast_find(d, CKPT_F32) != NULL;
    for (const ckpt_dtype *at = f->dtypes; *at != CKPT_DTYPE_NONE; at++) {
        if (*at == d)
            return true;
    }
    return false;
}

/* Check that floats convert to a dtype and that the format can store it. */
static int tgt_check_dtype(const ckpt_target *t, ckpt_dtype dtype, ckpt_err *err)
{
    const ckpt_format_info *f = ckpt_format_find(t->format);
    char list[TGT_LIST] = "";

    if (dtype == CKPT_DTYPE_NONE || tgt_takes(f, dtype))
        return CKPT_OK;
    for (unsigned d = CKPT_DTYPE_NONE + 1; d < CKPT_N_DTYPES; d++) {
        if (tgt_takes(f, (ckpt_dtype)d))
            tgt_list_add(list, ckpt_dtype_name((ckpt_dtype)d));
    }
    if ((unsigned)dtype >= CKPT_N_DTYPES)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%d is not a dtype; expected for floats in format %s: %s", (int)dtype,
                         t->format, list);
    return ckpt_fail(err, CKPT_EUSAGE, "dtype: format %s stores floats as %s, not as %s", t->format,
                     list, ckpt_dtype_name(dtype));
}

/* Check the dtypes of a list of rules. */
static int tgt_check_dtypes(const ckpt_target *t, ckpt_err *err)
{
    ckpt_dtype_rules rules = {0};
    ckpt_arena *arena;
    int rc;

    if (!t->dtypes)
        return CKPT_OK;
    if (t->dtype != CKPT_DTYPE_NONE)
        return ckpt_fail(err, CKPT_EUSAGE, "dtype and dtypes exclude each other");
    if (ckpt_format_caps(t->format) & (CKPT_WRITES_STATE | CKPT_TAKES_GRID))
        return ckpt_fail(
            err, CKPT_EUSAGE,
            "dtype: a run trains in one dtype, so format %s takes no patterns: give one dtype",
            t->format);
    arena = ckpt_arena_new(0);
    rc = arena ? ckpt_dtypes_parse(&rules, arena, t->dtypes, err) : ckpt_fail_memory(err);
    for (size_t i = 0; rc == CKPT_OK && i < rules.n; i++)
        rc = tgt_check_dtype(t, rules.at[i].dtype, err);
    ckpt_vec_free(&rules);
    ckpt_arena_free(arena);
    return rc;
}

/* True if a list has the word, in any case. */
static bool tgt_lists(const char *list, const char *word)
{
    size_t n = strlen(word), m;

    for (; list && *list; list += m + strspn(list + m, " ")) {
        m = strcspn(list, " ");
        if (m == n && strncasecmp(list, word, n) == 0)
            return true;
    }
    return false;
}

/* Check that a mixture is one of the format's, without another dtype. */
static int tgt_check_mixture(const ckpt_target *t, ckpt_err *err)
{
    const ckpt_format_info *f = ckpt_format_find(t->format);

    if (!t->mixture)
        return CKPT_OK;
    if (t->dtype != CKPT_DTYPE_NONE || t->dtypes)
        return ckpt_fail(err, CKPT_EUSAGE, "dtype and mixture exclude each other");
    if (!f->mixtures)
        return ckpt_fail(err, CKPT_EUSAGE, "%s is a mixture of types for gguf, not for %s",
                         t->mixture, t->format);
    if (!tgt_lists(f->mixtures, t->mixture))
        return ckpt_fail(err, CKPT_EUSAGE, "mixture '%s' is none of %s", t->mixture, f->mixtures);
    return CKPT_OK;
}

/* Check that an importance matrix has types to apply to. */
static int tgt_check_imatrix(const ckpt_target *t, ckpt_err *err)
{
    char list[TGT_LIST] = "";
    const ckpt_format_info *f;

    if (!t->imatrix)
        return CKPT_OK;
    for (size_t i = 0; (f = ckpt_format_at(i)); i++) {
        if (f->mixtures)
            tgt_list_add(list, f->name);
    }
    if (!ckpt_format_find(t->format)->mixtures)
        return ckpt_fail(err, CKPT_EUSAGE, "imatrix does not apply to format %s, only to %s",
                         t->format, list);
    if (!t->mixture && !t->dtypes && !ckpt_dtype_packed(t->dtype))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "imatrix has no effect without a quantized type, such as --dtype q4_k_m");
    return CKPT_OK;
}

/* Check each field that is set against the flag that a format needs for it. */
static int tgt_check_fields(const ckpt_target *t, unsigned caps, ckpt_err *err)
{
    const struct {
        const char *name;
        bool set;
        unsigned needs;
    } field[] = {
        {"max_shard_size", t->max_shard_size > 0, CKPT_TAKES_SHARD_SIZE},
        {"skip_side_files", t->skip_side_files, CKPT_TAKES_SIDE_FILES},
        {"tag", t->tag != NULL, CKPT_WRITES_STATE},
        {"stage", t->stage != 0, CKPT_WRITES_STATE},
        {"world", t->world > 0, CKPT_TAKES_WORLD},
        {"ep_size", t->ep_size > 0 && !(caps & CKPT_TAKES_GRID), CKPT_HAS_RANKS},
        {"tp_size", t->tp_size > 0, CKPT_TAKES_GRID},
        {"pp_size", t->pp_size > 0, CKPT_TAKES_GRID},
        {"sub_group_size", t->sub_group_size > 0, CKPT_WRITES_STATE},
        {"version", t->version != NULL, CKPT_WRITES_STATE},
        {"fresh_optimizer", t->fresh_optimizer, CKPT_WRITES_STATE},
        {"keep_objects", t->keep_objects, CKPT_WRITES_STATE},
        {"drop_objects", t->drop_objects, CKPT_WRITES_STATE},
        {"order_text", t->order_text != NULL, CKPT_WRITES_STATE},
        {"deflate", t->deflate, CKPT_TAKES_DEFLATE},
        {"layout", t->layout != NULL, CKPT_TAKES_LAYOUT},
    };
    char list[TGT_LIST];

    for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
        if (field[i].set && !(caps & field[i].needs))
            return ckpt_fail(err, CKPT_EUSAGE, "%s does not apply to format %s, only to %s",
                             field[i].name, t->format,
                             tgt_formats(list, CKPT_CAN_WRITE | field[i].needs));
    }
    if (t->keep_objects && t->drop_objects)
        return ckpt_fail(err, CKPT_EUSAGE, "keep_objects and drop_objects exclude each other");
    if (t->stage < CKPT_STAGE_NONE || t->stage > 3)
        return ckpt_fail(err, CKPT_EUSAGE, "stage %d is not 1, 2 or 3", t->stage);
    return CKPT_OK;
}

int ckpt_output_check(const char *path, ckpt_err *err)
{
    ckpt_err_clear(err);
    if (!path || !*path)
        return ckpt_fail(err, CKPT_EUSAGE, "an output needs a path");
    int rc = ckpt_address_refuse(path, err);
    return rc == CKPT_OK ? ckpt_dir_check_place(AT_FDCWD, path, path, false, err) : rc;
}

int ckpt_target_check(const ckpt_target *target, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_target own;
    unsigned caps;
    char list[TGT_LIST];
    int rc = ckpt_opts_take(&own, sizeof own, target, "ckpt_target", err);

    if (rc != CKPT_OK)
        return rc;
    target = &own;
    if (!target->format || !target->path)
        return ckpt_fail(err, CKPT_EUSAGE, "a target needs a format and a path");
    if (ckpt_output_check(target->path, err) != CKPT_OK)
        return CKPT_EUSAGE;
    caps = ckpt_format_caps(target->format);
    if (!(caps & CKPT_CAN_WRITE))
        return ckpt_fail(err, CKPT_EUSAGE, "format '%s' %s; formats to write: %s", target->format,
                         ckpt_format_find(target->format) ? "cannot be written" : "is unknown",
                         tgt_formats(list, CKPT_CAN_WRITE));
    rc = tgt_check_dtype(target, target->dtype, err);
    if (rc == CKPT_OK)
        rc = tgt_check_dtypes(target, err);
    if (rc == CKPT_OK)
        rc = tgt_check_mixture(target, err);
    if (rc == CKPT_OK)
        rc = tgt_check_imatrix(target, err);
    return rc == CKPT_OK ? tgt_check_fields(target, caps, err) : rc;
}
