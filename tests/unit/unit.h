/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit.h: includes cmocka, the headers that it needs before it, and those that most tests use.
 * Every test file and every help.h includes it, so none of them depends on the order of includes.
 */
#ifndef TESTS_UNIT_UNIT_H
#define TESTS_UNIT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/*
 * tools/cli/out.h declares a function `fail`, which cmocka's macro of that name hides.  cmocka's
 * fail_msg uses that macro, so it is replaced, too.
 */
#undef fail
#undef fail_msg
#define fail_msg(...)                                                                              \
    (print_error("ERROR: " __VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

#endif
