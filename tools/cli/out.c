/* SPDX-License-Identifier: Apache-2.0 */
/*
 * out.c: writes results to stdout, messages to stderr, and untrusted text with escapes; records the
 * first failure.
 *
 * No other file writes to stdout.  The state is one static struct, because a process has one
 * stdout, one stderr and one name.
 */
#include "tools/cli/out.h"
#include "libckpt/base/hidden.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
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

/* True if a variable is set and not empty. */
static bool out_env(const char *name)
{
    const char *value = getenv(name);

    return value && value[0];
}

void out_init(const char *program)
{
    const char *term = getenv("TERM");

    // escape sequences only on terminals that understand them
    out.program = program;
    // set only the character set, so numbers keep their decimal point in every language
    if (setlocale(LC_CTYPE, ""))
        out.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    out.terminal = isatty(STDERR_FILENO) && term && term[0] && strcmp(term, "dumb") != 0;
    out.colour = out.terminal && !out_env("NO_COLOR");
    // a line is one write, so launchers do not mix the messages of several processes
    (void)setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
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

bool out_unread(void)
{
    return out.lost == EPIPE;
}

void out_die(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};

    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGPIPE, &action, NULL);
    (void)raise(SIGPIPE);
}

bool out_begun(void)
{
    return out.begun;
}

/* Record the first failure, because later ones only follow from it. */
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
    // a failed write need not set errno; then report EIO
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

void out_flush(void)
{
    errno = 0;
    out_check(fflush(stdout) == 0);
}

size_t text_utf8(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned char from = 0x80, to = 0xbf;
    size_t n;

    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    // the first continuation byte excludes overlong forms, surrogates, and code points above
    // U+10FFFF
    if (s[0] == 0xe0)
        from = 0xa0;
    else if (s[0] == 0xf0)
        from = 0x90;
    if (s[0] == 0xed)
        to = 0x9f;
    else if (s[0] == 0xf4)
        to = 0x8f;
    if (s[1] < from || s[1] > to)
        return 0;
    for (size_t i = 2; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    return n;
}

uint32_t text_code(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    uint32_t code = n < 2 ? s[0] : s[0] & (0x7fu >> n);

    for (size_t i = 1; i < n; i++)
        code = code << 6 | (s[i] & 0x3f);
    return code;
}

/* Length of the sequence at s if a terminal must not get it unchanged; 0: it may. */
static size_t text_control(const unsigned char *s)
{
    size_t n = text_utf8((const char *)s);

    if (n == 0)
        return 1;
    return ckpt_hidden(text_code((const char *)s, n)) ? n : 0;
}

/* Print to a stream, with characters that control a terminal as \xNN, except those in `but`. */
static void text_print(FILE *to, const char *text, const char *but)
{
    const unsigned char *s = (const unsigned char *)text;

    while (*s) {
        size_t n = strchr(but, *s) ? 0 : text_control(s);
        size_t whole = n ? 0 : text_utf8((const char *)s);

        (void)fwrite(s, 1, whole, to);
        s += whole;
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
        // one column per character; wide ones are rare in names and only shift a row
        width += n ? 4 * n : 1;
        s += n ? n : text_utf8((const char *)s);
    }
    return width;
}

static void out_print(const char *text, const char *but)
{
    if (out.lost)
        return;
    out.begun = true;
    errno = 0;
    text_print(stdout, text, but);
    out_check(!ferror(stdout));
}

void out_text(const char *text)
{
    out_print(text, "");
}

void out_lines(const char *text)
{
    out_print(text, "\n\t");
}

void out_padded(const char *text, size_t width)
{
    size_t n = text_width(text);

    out_text(text);
    for (; n < width; n++)
        out_bytes(" ", 1);
}

int out_failure(ckpt_err *err)
{
    if (out.lost == 0)
        return CKPT_OK;
    // no message for a closed pipe, because the reader closed it on purpose
    if (out.lost != EPIPE)
        (void)fail(err, CKPT_EIO, "standard output: cannot be written: %s", strerror(out.lost));
    return CKPT_EIO;
}

int out_close(ckpt_err *err)
{
    errno = 0;
    out_check(fflush(stdout) == 0 && !ferror(stdout));
    // a full disk may show only at close
    errno = 0;
    out_check(fclose(stdout) == 0 || errno == EBADF);
    return out_failure(err);
}

/* Print one line: "program: label text"; only the label is coloured. */
CKPT_PRINTF(3, 0)
static void say(const char *label, const char *colour, const char *fmt, va_list args)
{
    char text[2048];

    (void)vsnprintf(text, sizeof text, fmt, args);
    (void)fflush(stdout); // flush stdout first, so a common log keeps the order
    // workers print progress too, so lock the stream for the line
    flockfile(stderr);
    (void)fprintf(stderr, "%s: ", out.program);
    if (label)
        (void)fprintf(stderr, "%s%s:%s ", out.colour ? colour : "", label,
                      out.colour ? "\033[0m" : "");
    text_print(stderr, text, "");
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

    // keep the first failure, because later ones are its consequences
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
    // three digits; 999.5 would round to 1000
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

    // small counts are exact, because people check them
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
