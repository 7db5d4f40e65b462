/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.h: maps over memory, and sheets in memory, for tests of the report.
 */
#ifndef TESTS_UNIT_TOOLS_REPORT_HELP_H
#define TESTS_UNIT_TOOLS_REPORT_HELP_H

#include "libckpt/map/map.h"
#include "tests/unit/unit.h"
#include "tools/report/sheet.h"

static inline ckpt_map *map_new(void)
{
    ckpt_map *map = NULL;

    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    map->path = "memory";
    return map;
}

/* Add a tensor of one axis over the caller's bytes. */
static inline ckpt_tensor *map_add(ckpt_map *map, const char *name, ckpt_dtype dtype, uint64_t n,
                                   void *bytes)
{
    const ckpt_tensor like = {.dtype = dtype, .ndim = 1, .shape = &n};
    ckpt_tensor *t = NULL;
    uint32_t at;

    assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
    const ckpt_source source = {
        .kind = CKPT_SOURCE_MEMORY, .n_bytes = ckpt_tensor_bytes(t), .memory = bytes};
    assert_int_equal(ckpt_map_add_source(map, &source, &at, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back_whole(map, t, at, 0, NULL), CKPT_OK);
    return t;
}

/* A sheet whose text is in memory; sheet_text_end gives the text, which the caller frees. */
typedef struct sheet_memory {
    sheet s;
    char *text;
    size_t n;
} sheet_memory;

static inline void sheet_memory_begin(sheet_memory *m)
{
    *m = (sheet_memory){0};
    m->s.file = open_memstream(&m->text, &m->n);
    assert_non_null(m->s.file);
}

static inline char *sheet_memory_end(sheet_memory *m)
{
    assert_int_equal(m->s.sys, 0);
    assert_int_equal(fclose(m->s.file), 0);
    assert_int_equal(m->n, m->s.n_bytes);
    return m->text;
}

static inline void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' lacks '%s'", text, part);
}

#endif
