/* SPDX-License-Identifier: Apache-2.0 */
/*
 * out.c: stdout with one memory of failure, messages on stderr, and text made harmless.
 *
 * The only file that writes to stdout.  State is one static struct: a process has one stdout, one
 * stderr and one name.
 */
#include "tools/out.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *program;
    int lost; /* errno of the first failed write to stdout */
    bool utf8, terminal, colour, begun;
    uint64_t n_warnings;
} out = {.program = "ckpt"};

/* A variable that is set to something. */
static bool out_env(const char *name)
{
    const char *value = getenv(name);

    return value && value[0];
}

void out_init(const char *program)
{
    const char *term = getenv("TERM");

    // escape sequences only where they are understood
    out.program = program;
    // only the character set: numbers keep their point in every language
    if (setlocale(LC_CTYPE, ""))
        out.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    out.terminal = isatty(STDERR_FILENO) && term && term[0] && strcmp(term, "dumb") != 0;
    out.colour = out.terminal && !out_env("NO_COLOR");
}

const char *out_program(void)
{
    return out.program;
}

bool out_utf8(void)
{
    return out.utf8;
}

bool out_terminal(void)
{
    return out.terminal;
}

bool out_colour(void)
{
    return out.colour;
}

bool out_broken(void)
{
    return out.lost != 0;
}

bool out_begun(void)
{
    return out.begun;
}

/* Remember the first failure; later ones only follow from it. */
static void out_check(bool ok)
{
    if (!ok && out.lost == 0)
        out.lost = errno ? errno : EIO;
}

void out_printf(const char *fmt, ...)
{
    va_list args;

    if (out.lost)
        return;
    // a failed write need not set errno: then it is just an I/O error
    out.begun = true;
    va_start(args, fmt);
    errno = 0;
    out_check(vfprintf(stdout, fmt, args) >= 0);
    va_end(args);
}

void out_bytes(const void *bytes, size_t n)
{
    if (out.lost || n == 0)
        return;
    out.begun = true;
    errno = 0;
    out_check(fwrite(bytes, 1, n, stdout) == n);
}

/* Bytes at s that must not reach a terminal as they are: C0, DEL, and C1 as UTF-8 spells it
 * (C2 80..9F). */
static size_t text_control(const unsigned char *s)
{
    if (s[0] < 0x20 || s[0] == 0x7f)
        return 1;
    return s[0] == 0xc2 && s[1] >= 0x80 && s[1] <= 0x9f ? 2 : 0;
}

/* Print to a stream with control characters shown as \xNN. */
static void text_print(FILE *to, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    while (*s) {
        size_t n = text_control(s);
        if (n == 0)
            (void)putc(*s++, to);
        for (; n > 0; n--)
            (void)fprintf(to, "\\x%02x", *s++);
    }
}

size_t text_width(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t width = 0;

    while (*s) {
        size_t n = text_control(s);
        // continuation bytes take no column; wide characters are rare in names and only shift a row
        width += n ? 4 * n : (*s & 0xc0) != 0x80;
        s += n ? n : 1;
    }
    return width;
}

void out_text(const char *text)
{
    if (out.lost)
        return;
    out.begun = true;
    errno = 0;
    text_print(stdout, text);
    out_check(!ferror(stdout));
}

void out_padded(const char *text, size_t width)
{
    size_t n = text_width(text);

    out_text(text);
    for (; n < width; n++)
        out_bytes(" ", 1);
}

int out_close(ckpt_err *err)
{
    errno = 0;
    out_check(fflush(stdout) == 0 && !ferror(stdout));
    // a full disk may show only when the descriptor is closed
    errno = 0;
    out_check(fclose(stdout) == 0 || errno == EBADF);
    if (out.lost == 0)
        return CKPT_OK;
    // whoever closed a pipe knows; a full disk is news
    if (out.lost != EPIPE)
        (void)fail(err, CKPT_EIO, "standard output: %s", strerror(out.lost));
    return CKPT_EIO;
}

/* One line: "program: label text"; the colour, if any, is the label's. */
CKPT_PRINTF(3, 0)
static void say(const char *label, const char *colour, const char *fmt, va_list args)
{
    char text[2048];

    (void)vsnprintf(text, sizeof text, fmt, args);
    (void)fflush(stdout); // both in one log: in the order of what happened
    // progress may come from a worker: keep the line in one piece
    flockfile(stderr);
    (void)fprintf(stderr, "%s: ", out.program);
    if (label)
        (void)fprintf(stderr, "%s%s:%s ", out.colour ? colour : "", label,
                      out.colour ? "\033[0m" : "");
    text_print(stderr, text);
    (void)putc('\n', stderr);
    funlockfile(stderr);
}

void say_error(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    say(NULL, "", fmt, args);
    va_end(args);
}

uint64_t out_warnings(void)
{
    return out.n_warnings;
}

void say_warning(const char *fmt, ...)
{
    va_list args;

    out.n_warnings++;
    va_start(args, fmt);
    say("warning", "\033[33m", fmt, args);
    va_end(args);
}

void say_note(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    say(NULL, "", fmt, args);
    va_end(args);
}

int fail(ckpt_err *err, int code, const char *fmt, ...)
{
    va_list args;

    // the first failure is the cause, later ones are its consequences
    if (err->code != CKPT_OK)
        return err->code;
    err->code = code;
    va_start(args, fmt);
    (void)vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return code;
}

const char *human_bytes(char buf[HUMAN_ROOM], uint64_t n_bytes)
{
    static const char *const unit[] = {"B", "KB", "MB", "GB", "TB", "PB", "EB"};
    double x = (double)n_bytes;
    unsigned u = 0;

    if (n_bytes < 1000) {
        (void)snprintf(buf, HUMAN_ROOM, "%u B", (unsigned)n_bytes);
        return buf;
    }
    // three digits; 999.5 is where they would round to 1000
    while (x >= 999.5) {
        x /= 1000;
        u++;
    }
    (void)snprintf(buf, HUMAN_ROOM, "%.*f %s", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x, unit[u]);
    return buf;
}

const char *human_count(char buf[HUMAN_ROOM], uint64_t n)
{
    static const char *const unit[] = {"K", "M", "G", "T", "P", "E"};
    double x = (double)n / 1000;
    unsigned u = 0;

    // small counts are exact: people check them
    if (n < 100000) {
        (void)snprintf(buf, HUMAN_ROOM, "%u", (unsigned)n);
        return buf;
    }
    while (x >= 999.95) {
        x /= 1000;
        u++;
    }
    (void)snprintf(buf, HUMAN_ROOM, "%.1f %s", x, unit[u]);
    return buf;
}
