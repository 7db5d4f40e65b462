/* SPDX-License-Identifier: Apache-2.0 */
/*
 * out.h: declares the output of the tools.  Results go to stdout, messages to stderr; names reach a
 * terminal only escaped.
 *
 * A failed write to stdout (closed pipe, full disk) is recorded, not reported at each line: long
 * listings stop when out_broken() is true, and main returns exit status 7.
 */
#ifndef TOOLS_OUT_H
#define TOOLS_OUT_H

#include "ckpt.h"

/* Set the name in front of every message: "ckpt", or the drop-in's.  Also examines locale and
 * terminal. */
void out_init(const char *program);
const char *out_program(void);

/*
 * True if stderr accepts UTF-8; if it is a terminal that can redraw a line; if it should have
 * colours.
 */
bool out_utf8(void);
bool out_terminal(void);
bool out_colour(void);

/* Print results to stdout.  After a failed write they do nothing. */
void out_printf(const char *fmt, ...) CKPT_PRINTF(1, 2);
void out_bytes(const void *bytes, size_t n);

/*
 * Print text from a checkpoint.  Control characters, direction marks, zero-width characters and
 * invalid UTF-8 appear as \xNN per byte, so a name can neither control a terminal nor imitate
 * another name.
 */
void out_text(const char *text);

/* out_text for several lines: newlines and tabs stay unchanged. */
void out_lines(const char *text);

/* out_text padded with blanks to width columns; text_width counts the columns of a text. */
void out_padded(const char *text, size_t width);
size_t text_width(const char *text);

/*
 * Length of the well-formed UTF-8 sequence at text (RFC 3629), 0 if it is invalid; its code point.
 */
size_t text_utf8(const char *text);
uint32_t text_code(const char *text, size_t n);

/* True after a failed write to stdout, so the caller can stop. */
bool out_broken(void);

/* CKPT_EIO after a failed write; err has the reason, except for a closed pipe. */
int out_failure(ckpt_err *err);

/* Write buffered output to stdout. */
void out_flush(void);

/* True if the reader has closed the pipe. */
bool out_unread(void);

/*
 * End the process as SIGPIPE ends other programs after their reader has gone (128 + 13 to a shell),
 * without a message.  Cleaning up must come before.
 */
void out_die(void);

/* True if the program has printed to stdout. */
bool out_begun(void);

/*
 * Flush and close stdout.  CKPT_EIO if output was lost.  err has the reason, but stays empty for a
 * closed pipe, because the reader closed it on purpose.
 */
int out_close(ckpt_err *err);

/* Print a message to stderr, one line each: "ckpt: text", "ckpt: warning: text". */
void say_error(const char *fmt, ...) CKPT_PRINTF(1, 2);
void say_warning(const char *fmt, ...) CKPT_PRINTF(1, 2);
void say_note(const char *fmt, ...) CKPT_PRINTF(1, 2);

/* Number of warnings so far. */
uint64_t out_warnings(void);

/* Fill err as the library does; returns code. */
int fail(ckpt_err *err, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

/* Format bytes and counts for people: "1.42 GB", "355.0 M"; returns buf. */
enum { HUMAN_ROOM = 32 };
const char *human_bytes(char buf[HUMAN_ROOM], uint64_t n_bytes);
const char *human_count(char buf[HUMAN_ROOM], uint64_t n);

#endif
