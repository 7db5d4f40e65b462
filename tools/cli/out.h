/* SPDX-License-Identifier: Apache-2.0 */
/*
 * out.h: what the tools print.  Results go to stdout, messages to stderr, names never reach a
 * terminal raw.
 *
 * A closed pipe or a full disk on stdout is remembered, not reported at each line: long listings
 * ask out_broken() and stop, and main turns it into exit status 7.
 */
#ifndef TOOLS_OUT_H
#define TOOLS_OUT_H

#include "ckpt.h"

/* Name in front of every message: "ckpt", or the drop-in's.  Also reads the locale and the
 * terminal. */
void out_init(const char *program);
const char *out_program(void);

/* stderr understands UTF-8; stderr is a terminal that can redraw a line; colours are welcome there.
 */
bool out_utf8(void);
bool out_terminal(void);
bool out_colour(void);

/* Results, to stdout.  Nothing is written once a write has failed. */
void out_printf(const char *fmt, ...) CKPT_PRINTF(1, 2);
void out_bytes(const void *bytes, size_t n);

/*
 * Text from a checkpoint: control characters, marks of direction, characters without width and what
 * is no UTF-8 are shown as \xNN for each byte, so that a name can neither drive a terminal nor look
 * like another.
 */
void out_text(const char *text);

/* The same of a text of several lines: ends of lines and tabs stay. */
void out_lines(const char *text);

/* The same, padded with blanks to width columns; text_width counts the columns it takes. */
void out_padded(const char *text, size_t width);
size_t text_width(const char *text);

/*
 * Length of the well-formed UTF-8 sequence at text (RFC 3629), 0 when it is none; its code point.
 */
size_t text_utf8(const char *text);
uint32_t text_code(const char *text, size_t n);

/* A write to stdout failed: stop producing. */
bool out_broken(void);

/* CKPT_EIO if a write failed; err says why, unless a pipe was closed. */
int out_failure(ckpt_err *err);

/* What was printed leaves this program now. */
void out_flush(void);

/* True once whoever read it has closed the pipe. */
bool out_unread(void);

/*
 * End the process as SIGPIPE ends other programs whose reader has gone (128 + 13 to a shell),
 * without a message.  What the program had to leave behind is left behind before.
 */
void out_die(void);

/* Anything was printed to stdout. */
bool out_begun(void);

/*
 * Flush stdout.  CKPT_EIO when anything written to it was lost; err says why, but is left empty for
 * a closed pipe: whoever closed it knows.
 */
int out_close(ckpt_err *err);

/* Messages, each one line on stderr: "ckpt: text", "ckpt: warning: text". */
void say_error(const char *fmt, ...) CKPT_PRINTF(1, 2);
void say_warning(const char *fmt, ...) CKPT_PRINTF(1, 2);
void say_note(const char *fmt, ...) CKPT_PRINTF(1, 2);

/* How many warnings were said so far. */
uint64_t out_warnings(void);

/* Fill err as the library does; returns code. */
int fail(ckpt_err *err, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

/* Bytes and counts for people: "1.42 GB", "355.0 M"; written to buf and returned. */
enum { HUMAN_ROOM = 32 };
const char *human_bytes(char buf[HUMAN_ROOM], uint64_t n_bytes);
const char *human_count(char buf[HUMAN_ROOM], uint64_t n);

#endif
