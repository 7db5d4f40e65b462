/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_journal.c: any lines as the journal of an interrupted run.  The first byte says whether the
 * lines get their sums here, as a fuzzer cannot guess them; a journal that is this run's can be
 * continued, and then says what it said before.
 */
#include "libckpt/base/digest.h"
#include "libckpt/base/vec.h"
#include "libckpt/commit/journal.h"
#include "tests/fuzz/fuzz_help.h"

static char fingerprint[65];

/* The lines with their sums in front; without a line end the last is left as it is. */
static void sum_lines(ckpt_bytes *out, const uint8_t *data, size_t size)
{
    while (size > 0) {
        const uint8_t *stop = memchr(data, '\n', size);
        size_t n = stop ? (size_t)(stop - data) : size;

        fuzz_require(stop ? ckpt_bytes_printf(out, "%08x ", ckpt_crc32(0, data, n)) : 1);
        fuzz_require(ckpt_bytes_add(out, data, stop ? n + 1 : n));
        data += stop ? n + 1 : n;
        size -= stop ? n + 1 : n;
    }
}

static void open_journal(ckpt_journal *j, int fd)
{
    *j = (ckpt_journal){.fd = fd, .where = "fuzz", .skip_fsync = true};
    fuzz_require(pthread_mutex_init(&j->lock, NULL) == 0);
}

static void close_journal(ckpt_journal *j)
{
    ckpt_vec_free(&j->entry);
    pthread_mutex_destroy(&j->lock);
}

/* Go on with the journal, add the place, and read it all again. */
static void go_on(ckpt_journal *j, int fd)
{
    ckpt_journal again;
    bool match = false;

    fuzz_require(ckpt_journal_go_on(j, NULL) == CKPT_OK);
    fuzz_require(ckpt_journal_place(j, 12, 34, NULL) == CKPT_OK);
    open_journal(&again, fd);
    fuzz_require(ckpt_journal_read(&again, fingerprint, &match, NULL) == CKPT_OK && match);
    fuzz_require(again.entry.n == j->entry.n && again.end == j->end);
    fuzz_require(again.has_place && again.dev == 12 && again.ino == 34);
    close_journal(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char first[] = "ckpt-journal 3 ";
    ckpt_bytes text = {0};
    ckpt_journal j;
    ckpt_err err = {0};
    bool match = false;
    int fd, rc;

    if (size < 1)
        return 0;
    memset(fingerprint, 'a', 64);
    if (data[0] & 2) { // with the right first line
        ckpt_bytes line = {0};

        fuzz_require(ckpt_bytes_printf(&line, "%s%s\n", first, fingerprint));
        sum_lines(&text, line.at, line.n);
        ckpt_vec_free(&line);
    }
    if (data[0] & 1)
        sum_lines(&text, data + 1, size - 1);
    else
        fuzz_require(ckpt_bytes_add(&text, data + 1, size - 1));
    fd = open(fuzz_file("journal", text.at, text.n), O_RDWR | O_CLOEXEC);
    fuzz_require(fd >= 0);
    open_journal(&j, fd);
    rc = ckpt_journal_read(&j, fingerprint, &match, &err);
    fuzz_require(rc == CKPT_OK && j.end <= text.n && (match || j.entry.n == 0));
    fuzz_require(match || !(data[0] & 2));
    if (match)
        go_on(&j, fd);
    close_journal(&j);
    close(fd);
    ckpt_vec_free(&text);
    return 0;
}
