/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_runs.c: the numbers of a run's checkpoints, and the message that lists them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "libckpt/copy/runs.h"

/* Folders "step-N"; "last" is a checkpoint without a number. */
static bool text_of(char out[CKPT_RUN_NAME], const char *folder)
{
    bool numbered = strncmp(folder, "step-", 5) == 0;

    (void)snprintf(out, CKPT_RUN_NAME, "%s", numbered ? folder + 5 : folder);
    return numbered || strcmp(folder, "last") == 0;
}

static void numbers(void **state)
{
    static const ckpt_run_layout run = {.text = text_of};

    (void)state;
    assert_int_equal(ckpt_run_number(&run, "step-12"), 12);
    assert_int_equal(ckpt_run_number(&run, "step-0"), 0);
    assert_int_equal(ckpt_run_number(&run, "last"), 0);
    assert_int_equal(ckpt_run_number(&run, "logs"), -1);
}

static bool starts_with(const ckpt_listing *run, const ckpt_entry *e, const void *ctx)
{
    (void)run;
    return e->name[0] == *(const char *)ctx;
}

static void names(void **state)
{
    static const ckpt_entry entry[] = {
        {"s1", true, 0}, {"s2", false, 0}, {"s3", true, 0}, {"t", true, 0}};
    ckpt_entry many[20];
    ckpt_listing list = {.folder = "run", .entry = entry, .n = 4};
    ckpt_err err = {0};
    const char *text = "";

    (void)state;
    assert_int_equal(ckpt_map_create(&list.map, 0, &err), CKPT_OK);
    assert_int_equal(ckpt_run_tags(&text, &list, starts_with, "s", &err), CKPT_OK);
    assert_string_equal(text, "s1, s3");
    assert_int_equal(ckpt_run_tags(&text, &list, starts_with, "x", &err), CKPT_OK);
    assert_null(text);
    assert_int_equal(ckpt_run_no_tag(&list, starts_with, "x", "no tag", &err), CKPT_EMISSING);
    assert_string_equal(err.text, "run: no tag; tags here: none; choose one with -t/--tag");
    for (size_t i = 0; i < 20; i++)
        many[i] = entry[0];
    list.entry = many;
    list.n = 20;
    assert_int_equal(ckpt_run_tags(&text, &list, starts_with, "s", &err), CKPT_OK);
    assert_string_equal(text, "s1, s1, s1, s1, s1, s1, s1, s1, s1, s1, s1, s1, ...");
    ckpt_map_free(list.map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers), cmocka_unit_test(names)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
