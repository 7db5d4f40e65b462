/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_journal.c: what a fingerprint covers, and journals that are cut, changed and continued.
 */
#include <fcntl.h>

#include "libckpt/commit/journal.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

static help_dir dir;

static int setup(void **state)
{
    (void)state;
    help_dir_make(&dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    help_remove(dir.path);
    return 0;
}

/* ---- fingerprints ---- */

/* A run of one input tensor into one of two files: everything that a fingerprint looks at. */
typedef struct sides {
    ckpt_map *from, *to;
    ckpt_tensor *in, *out, *twin, *addend;
    uint8_t memory[4];
    bool skip_fsync;
    ckpt_source *source_in, *source_memory, *source_out;
} sides;

static void sides_make(sides *s)
{
    static const uint64_t four = 4;
    const ckpt_source memory = {.kind = CKPT_SOURCE_MEMORY, .memory = s->memory, .n_bytes = 4};
    ckpt_err err = {0};
    uint32_t i, file;

    *s = (sides){.from = help_map(), .to = help_map(), .memory = "mem"};
    file = help_input(s->from, help_join(&dir, "in"));
    i = help_source(s->from, file, 0, 4);
    s->in = help_tensor(s->from, "w", CKPT_I8, 1, &four);
    help_whole(s->from, s->in, i, 0);
    assert_int_equal(ckpt_map_add_source(s->from, &memory, &i, &err), CKPT_OK);
    assert_int_equal(ckpt_map_add_hidden(s->from, "twin", 4, s->in, &s->twin, &err), CKPT_OK);
    help_whole(s->from, s->twin, i, 0);
    assert_int_equal(ckpt_map_add_hidden(s->from, "addend", 6, s->in, &s->addend, &err), CKPT_OK);
    help_whole(s->from, s->addend, i, 0);
    s->in->twin = s->twin;
    s->in->addend = s->addend;
    file = help_output(s->to, "a", 7);
    (void)help_output(s->to, "b/c", 3);
    assert_int_equal(ckpt_map_add_literal(s->to, file, 0, "lit", 3, &err), CKPT_OK);
    i = help_source(s->to, file, 3, 4);
    s->out = help_tensor(s->to, "v", CKPT_I8, 1, &four);
    s->out->origin = "w";
    help_whole(s->to, s->out, i, 0);
    s->to->folder = s->to->pointer_text = "tag";
    s->to->pointer = "latest";
    s->source_in = &s->from->sources.at[0];
    s->source_memory = &s->from->sources.at[1];
    s->source_out = &s->to->sources.at[0];
}

/* Change the i-th thing that matters of the files read; false: there are no more. */
static bool change_files_read(sides *s, unsigned i)
{
    ckpt_map_file *in = &s->from->files.at[0];

    switch (i) {
    case 0:
        in->path = "other";
        break;
    case 1:
        in->size++;
        break;
    case 2:
        in->ino++;
        break;
    case 3:
        in->mtime_s++;
        break;
    case 4:
        in->mtime_ns++;
        break;
    case 5:
        s->source_in->at++;
        break;
    case 6:
        s->source_in->has_crc = 1;
        break;
    case 7:
        s->source_in->coding = CKPT_DEFLATE;
        break;
    case 8:
        s->source_in->swap = 1;
        break;
    case 9:
        s->memory[3] ^= 1;
        break;
    default:
        return false;
    }
    return true;
}

/* The same for tensors that are read. */
static bool change_tensors(sides *s, unsigned i)
{
    switch (i) {
    case 0:
        s->in->dtype = CKPT_U8;
        break;
    case 1:
        s->in->name = "x";
        break;
    case 2:
        s->in->flags = CKPT_TENSOR_NEG;
        break;
    case 3:
        s->in->n_extents = 0;
        break;
    case 4:
        s->in->twin = NULL;
        break;
    case 5:
        s->in->addend = NULL;
        break;
    case 6:
        s->in->twin = s->addend;
        s->in->addend = s->twin;
        break;
    case 7:
        s->twin->dtype = CKPT_U8;
        break;
    default:
        return false;
    }
    return true;
}

/* For files to be written. */
static bool change_files_written(sides *s, unsigned i)
{
    ckpt_map_file *a = &s->to->files.at[0];
    ckpt_literal *l = &a->literals.at[0];

    switch (i) {
    case 0:
        a->path = "A";
        break;
    case 1:
        a->prefix = "p";
        break;
    case 2:
        a->size++;
        break;
    case 3:
        l->at++;
        break;
    case 4:
        l->n--;
        break;
    case 5:
        l->bytes = "lid";
        break;
    case 6:
        s->source_out->at++;
        break;
    case 7:
        s->source_out->file = 1;
        break;
    default:
        return false;
    }
    return true;
}

/* For the rest of the target. */
static bool change_target(sides *s, unsigned i)
{
    ckpt_err err = {0};

    switch (i) {
    case 0:
        s->out->dtype = CKPT_U8;
        break;
    case 1:
        s->out->origin = NULL;
        break;
    case 2:
        s->out->origin = "";
        break;
    case 3:
        s->out->donor = s->in;
        break;
    case 4:
        s->to->folder = "tug";
        break;
    case 5:
        s->to->pointer = NULL;
        break;
    case 6:
        s->to->pointer_text = "tug";
        break;
    case 7:
        s->skip_fsync = true;
        break;
    case 8:
        (void)help_output(s->to, "d", 0);
        break;
    case 9:
        help_whole(s->to, s->out, 0, 1);
        break;
    case 10:
        assert_int_equal(ckpt_map_add_literal(s->to, 1, 0, "", 0, &err), CKPT_OK);
        break;
    default:
        return false;
    }
    return true;
}

enum { N_CHANGES = 10 + 8 + 8 + 11 };

static bool sides_change(sides *s, unsigned i)
{
    return i < 10   ? change_files_read(s, i)
           : i < 18 ? change_tensors(s, i - 10)
           : i < 26 ? change_files_written(s, i - 18)
                    : change_target(s, i - 26);
}

static void test_fingerprint(void **state)
{
    enum { N = N_CHANGES + 1 };
    char found[N][65];
    ckpt_err err = {0};
    unsigned n = 0;
    bool more = true;

    (void)state;
    help_write(help_join(&dir, "in"), "1234", 4);
    for (unsigned i = 0; more; i++) {
        sides s;

        sides_make(&s);
        s.source_memory->memory = s.memory;
        // the last round changes nothing
        more = sides_change(&s, i);
        assert_true(i < N);
        assert_int_equal(ckpt_journal_fingerprint(found[i], s.to, s.from, s.skip_fsync, &err),
                         CKPT_OK);
        assert_int_equal(strlen(found[i]), 64);
        n = i + 1;
        ckpt_map_free(s.to);
        ckpt_map_free(s.from);
    }
    assert_int_equal(n, N);
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k < i; k++) {
            if (strcmp(found[i], found[k]) == 0)
                fail_msg("changes %u and %u look the same", k, i);
        }
    }
    {
        sides s;
        char again[65];

        // what does not matter: where checksums of outputs are known already, and when we look
        sides_make(&s);
        s.source_memory->memory = s.memory;
        s.source_out->crc = 5;
        s.source_out->has_crc = 1;
        s.from->files.at[0].ctime_ns ^= 1;
        assert_int_equal(ckpt_journal_fingerprint(again, s.to, s.from, false, &err), CKPT_OK);
        assert_string_equal(again, found[n - 1]);
        ckpt_map_free(s.to);
        ckpt_map_free(s.from);
    }
}

/* ---- lines ---- */

static const char print[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static ckpt_journal open_journal(bool fresh)
{
    ckpt_journal j = {.where = dir.path};

    j.fd = open(help_join(&dir, "journal"), O_RDWR | O_CREAT | (fresh ? O_TRUNC : 0), 0666);
    assert_true(j.fd >= 0);
    assert_int_equal(pthread_mutex_init(&j.lock, NULL), 0);
    return j;
}

static void close_journal(ckpt_journal *j)
{
    assert_int_equal(close(j->fd), 0);
    ckpt_vec_free(&j->entry);
    pthread_mutex_destroy(&j->lock);
}

/* Two files, noted one by one, and the folder. */
static ckpt_map *write_journal(void)
{
    ckpt_map *to = help_map();
    ckpt_journal j = open_journal(true);
    const ckpt_journal_entry e[2] = {{.file = 1, .crc = 0xdeadbeef, .size = 3},
                                     {.file = 0, .crc = 7, .size = UINT64_C(1) << 40}};
    ckpt_err err = {0};

    (void)help_output(to, "a", UINT64_C(1) << 40);
    (void)help_output(to, "b\nfile 0 3 0", 3);
    assert_int_equal(ckpt_journal_begin(&j, print, &err), CKPT_OK);
    assert_int_equal(ckpt_journal_files(&j, e, 2, to, &err), CKPT_OK);
    assert_int_equal(ckpt_journal_place(&j, 12, UINT64_MAX, &err), CKPT_OK);
    close_journal(&j);
    return to;
}

/* Read what is there; the number of files listed, or -1: another run's. */
static int read_journal(ckpt_journal *j, const char *fingerprint)
{
    ckpt_err err = {0};
    bool match;

    *j = open_journal(false);
    assert_int_equal(ckpt_journal_read(j, fingerprint, &match, &err), CKPT_OK);
    return match ? (int)j->entry.n : -1;
}

static void test_lines(void **state)
{
    ckpt_map *to = write_journal();
    char other[65];
    ckpt_journal j;

    (void)state;
    assert_int_equal(read_journal(&j, print), 2);
    assert_int_equal(j.entry.at[0].file, 1);
    assert_int_equal(j.entry.at[0].crc, 0xdeadbeef);
    assert_int_equal(j.entry.at[0].size, 3);
    assert_int_equal(j.entry.at[1].file, 0);
    assert_int_equal(j.entry.at[1].size, UINT64_C(1) << 40);
    assert_true(j.has_place && j.dev == 12 && j.ino == UINT64_MAX);
    close_journal(&j);
    memcpy(other, print, sizeof other);
    other[63] = '0';
    assert_int_equal(read_journal(&j, other), -1);
    close_journal(&j);
    help_write(help_join(&dir, "journal"), "", 0);
    assert_int_equal(read_journal(&j, print), -1);
    close_journal(&j);
    ckpt_map_free(to);
}

/* Cut or changed anywhere: the lines before the damage hold, those from it on do not. */
static void test_damage(void **state)
{
    ckpt_map *to = write_journal();
    uint64_t n = 0, first = 0, second = 0, third = 0;
    uint8_t *bytes = help_read(help_join(&dir, "journal"), &n);

    (void)state;
    for (uint64_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            third = second == 0 ? 0 : third == 0 ? i : third;
            second = first != 0 && second == 0 ? i : second;
            first = first == 0 ? i : first;
        }
    }
    assert_true(first > 80 && second > first && third > second);
    for (uint64_t i = 0; i < n; i++) {
        int want = i <= first ? -1 : i <= second ? 0 : i <= third ? 1 : 2;

        for (unsigned k = 0; k < 3; k++) {
            ckpt_journal j;
            uint8_t was = bytes[i];

            bytes[i] = (uint8_t)(k == 0 ? was : k == 1 ? was ^ 1 : 0);
            help_write(help_join(&dir, "journal"), bytes, (size_t)(k == 0 ? i : n));
            bytes[i] = was;
            assert_int_equal(read_journal(&j, print), want);
            assert_false(j.has_place);
            close_journal(&j);
        }
    }
    ckpt_free(bytes);
    ckpt_map_free(to);
}

/* What follows a torn line is written in its place. */
static void test_going_on(void **state)
{
    ckpt_map *to = write_journal();
    const ckpt_journal_entry e = {.file = 0, .crc = 9, .size = 1};
    uint64_t n = 0;
    uint8_t *bytes = help_read(help_join(&dir, "journal"), &n);
    ckpt_err err = {0};
    ckpt_journal j;

    (void)state;
    help_write(help_join(&dir, "journal"), bytes, (size_t)n - 3);
    assert_int_equal(read_journal(&j, print), 2);
    assert_int_equal(ckpt_journal_go_on(&j, &err), CKPT_OK);
    assert_int_equal(ckpt_journal_files(&j, &e, 1, to, &err), CKPT_OK);
    close_journal(&j);
    assert_int_equal(read_journal(&j, print), 3);
    assert_int_equal(j.entry.at[2].crc, 9);
    assert_false(j.has_place);
    // anew: nothing of it is left
    assert_int_equal(ckpt_journal_begin(&j, print, &err), CKPT_OK);
    close_journal(&j);
    assert_int_equal(read_journal(&j, print), 0);
    close_journal(&j);
    ckpt_free(bytes);
    ckpt_map_free(to);
}

/* Lines with a good sum that we cannot have written. */
static void test_foreign_lines(void **state)
{
    static const char *const line[] = {
        "file",
        "file 1 2 3",
        "file 1 2 ",
        "file x 2 3 a",
        "file 1 2 g a",
        "file -1 2 3 a",
        "file 4294967295 2 3 a",
        "file 1 2 100000000 a",
        "place 1",
        "place 1 2 3",
        "",
        "file 1 99999999999999999999 3 a",
    };

    (void)state;
    for (size_t i = 0; i < sizeof line / sizeof *line; i++) {
        ckpt_map *to = write_journal();
        uint64_t n = 0;
        uint8_t *bytes = help_read(help_join(&dir, "journal"), &n);
        char text[2000];
        int m;
        ckpt_journal j;

        // in front of the first file's line
        uint64_t head = 1;

        while (bytes[head - 1] != '\n')
            head++;
        memcpy(text, bytes, (size_t)head);
        m = snprintf(text + head, 200, "%08x %s\n",
                     (unsigned)ckpt_crc32(0, line[i], strlen(line[i])), line[i]);
        memcpy(text + head + m, bytes + head, (size_t)(n - head));
        help_write(help_join(&dir, "journal"), text, (size_t)n + (size_t)m);
        assert_int_equal(read_journal(&j, print), 0);
        close_journal(&j);
        ckpt_free(bytes);
        ckpt_map_free(to);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fingerprint, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_going_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign_lines, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
