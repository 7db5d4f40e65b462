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

/* tools/cli/out.h declares a function of this name; fail_msg remains. */
#undef fail

#endif
