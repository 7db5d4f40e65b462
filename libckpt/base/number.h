/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number.h: converts between text and numbers.
 *
 * Every function ignores the locale, so that a program which calls setlocale() reads and writes
 * the same files. None accepts blanks, digits of another base, "inf" or "nan", and a number that
 * does not fit is an error instead of the nearest one that does.
 */
#ifndef CKPT_BASE_NUMBER_H
#define CKPT_BASE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Parse a whole text: decimal digits; for i64 and f64 with an optional sign, for f64 with an
 * optional fraction and exponent.
 *
 * Returns  false: the text is not such a number, or is out of range. *out is then unchanged, but
 *          infinite if a number is too large for a double, for callers that read files of Python
 */
bool ckpt_parse_u64(const char *text, uint64_t *out);
bool ckpt_parse_i64(const char *text, int64_t *out);
bool ckpt_parse_f64(const char *text, double *out);

/*
 * Parse the longest number at the start of a text.
 *
 * Returns  the text after it; NULL where the function above returns false
 */
const char *ckpt_scan_u64(const char *text, uint64_t *out);
const char *ckpt_scan_f64(const char *text, double *out);

/* Room for the text of any double. */
#define CKPT_NUMBER_TEXT 32

/*
 * Print the fewest digits, but at least `least`, from which the same double or float is read again;
 * returns out. The words for other values are "inf", "-inf" and "nan".
 */
char *ckpt_print_f64(char out[CKPT_NUMBER_TEXT], double x, int least);
char *ckpt_print_f32(char out[CKPT_NUMBER_TEXT], float x, int least);

#endif
