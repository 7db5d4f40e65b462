/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths as folders: every file once and found by its name, whatever the order; paths that cannot be
 * are refused.
 */
#include <errno.h>

#include "tests/unit/unit.h"
#include "tools/mount/tree.h"

static const char *path_of(void *ctx, size_t file)
{
    return ((const char *const *)ctx)[file];
}

static uint64_t size_of(void *ctx, size_t file)
{
    return strlen(path_of(ctx, file));
}

/* The entry of a path, from the root on. */
static size_t walk(const mount_tree *t, const char *path)
{
    char part[300];
    size_t at = 0;

    while (*path && at != SIZE_MAX) {
        size_t n = strcspn(path, "/");

        (void)snprintf(part, sizeof part, "%.*s", (int)n, path);
        at = mount_tree_find(t, at, part);
        path += n + (path[n] == '/');
    }
    return at;
}

static int make(mount_tree *t, const char *const *paths, size_t n, size_t *bad)
{
    return mount_tree_make(t, n, path_of, size_of, (void *)(uintptr_t)paths, bad);
}

static void folders(void **state)
{
    static const char *const paths[] = {"run/tag/b.pt", "latest",        "run/tag/a.pt", "a",
                                        "run/tag!",     "run/tag/sub/x", "run/z",        "b/c/d/e"};
    enum { N = sizeof paths / sizeof *paths };
    mount_tree t;
    size_t bad, n_files = 0;

    (void)state;
    assert_int_equal(make(&t, paths, N, &bad), 0);
    for (size_t i = 0; i < N; i++) {
        size_t at = walk(&t, paths[i]);

        assert_true(at < t.n);
        assert_int_equal(t.at[at].file, i);
        assert_int_equal(t.at[at].size, strlen(paths[i]));
    }
    for (size_t i = 0; i < t.n; i++) {
        const mount_entry *e = &t.at[i];

        n_files += e->file != MOUNT_FOLDER;
        for (size_t k = 0; k < e->n; k++) {
            assert_int_equal(t.at[e->first + k].parent, i);
            assert_true(k == 0 || strcmp(t.at[e->first + k - 1].name, t.at[e->first + k].name) < 0);
        }
    }
    assert_int_equal(n_files, N);
    assert_int_equal(t.n_bytes, 12 + 6 + 12 + 1 + 8 + 13 + 5 + 7);
    assert_int_equal(t.at[0].n, 4);
    assert_int_equal(t.at[0].n_folders, 2);
    assert_int_equal(t.at[walk(&t, "run")].n, 3);
    assert_int_equal(t.at[walk(&t, "run")].n_folders, 1);
    assert_int_equal(walk(&t, "run/ta"), SIZE_MAX);
    assert_int_equal(walk(&t, "run/tag/c.pt"), SIZE_MAX);
    assert_int_equal(mount_tree_find(&t, walk(&t, "a"), "x"), SIZE_MAX);
    mount_tree_free(&t);
}

static void nothing(void **state)
{
    static const char *const paths[] = {""};
    mount_tree t;
    size_t bad;

    (void)state;
    assert_int_equal(make(&t, paths, 0, &bad), 0);
    assert_int_equal(t.n, 1);
    assert_int_equal(t.at[0].n, 0);
    mount_tree_free(&t);
}

static void refused(void **state)
{
    static char longest[258];
    const char *const cases[][3] = {
        {"a", "a", NULL},    {"a", "a/b", NULL},   {"b/c/d", "b/c", NULL}, {"", NULL, NULL},
        {"/a", NULL, NULL},  {"a//b", NULL, NULL}, {"a/", NULL, NULL},     {"a/../b", NULL, NULL},
        {"./a", NULL, NULL}, {"ok", "..", NULL},   {longest, NULL, NULL},
    };
    static const int why[] = {EEXIST, EEXIST, EEXIST, EINVAL, EINVAL,      EINVAL,
                              EINVAL, EINVAL, EINVAL, EINVAL, ENAMETOOLONG};

    (void)state;
    memset(longest, 'x', 256);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = 0, bad = SIZE_MAX;
        mount_tree t;

        while (cases[i][n])
            n++;
        assert_int_equal(make(&t, cases[i], n, &bad), why[i]);
        assert_true(bad < n);
        assert_null(t.at);
    }
    longest[255] = 0;
    {
        const char *const fits[] = {longest};
        mount_tree t;
        size_t bad;

        assert_int_equal(make(&t, fits, 1, &bad), 0);
        mount_tree_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders),
        cmocka_unit_test(nothing),
        cmocka_unit_test(refused),
    };

    return cmocka_run_group_tests_name("mount_tree", tests, NULL, NULL);
}
