/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_paths.c: enters the sandbox of made-up commands in children, and checks there which files
 * can be read and written.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"
#include "tools/sandbox/landlock.h"
#include "tools/sandbox/sandbox.h"

/*
 * The tree: a run with two tags, of which one is behind links; a folder beside it that no command
 * names; outputs.
 */
static char top[FOLDER_PATH];

static void make_folder(const char *name)
{
    assert_int_equal(mkdir(folder_at(top, name), 0700), 0);
}

static void make_tree(void)
{
    static const char *const folders[] = {"run",      "run/tag",  "run/tag/zero", "other", "hub",
                                          "hub/blob", "hub/snap", "links",        "out"};
    static const char *const files[] = {"run/latest",  "run/note", "run/tag/zero/x", "other/x",
                                        "hub/blob/w",  "hub/x",    "one.pt",         "beside.json",
                                        "options.txt", "out/old"};

    folder_new(top);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        make_folder(folders[i]);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        folder_text(top, files[i], "x");
    assert_int_equal(symlink("../blob/w", folder_at(top, "hub/snap/w")), 0);
    assert_int_equal(symlink(folder_at(top, "run/tag"), folder_at(top, "links/tag")), 0);
    assert_int_equal(symlink("nowhere", folder_at(top, "hub/snap/dangling")), 0);
}

/* ---- attempts ---- */

static bool reads(const char *name)
{
    int fd = open(folder_at(top, name), O_RDONLY | O_CLOEXEC);

    if (fd >= 0)
        (void)close(fd);
    return fd >= 0;
}

static bool writes(const char *name)
{
    int fd = open(folder_at(top, name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    if (fd >= 0)
        (void)close(fd);
    return fd >= 0;
}

/* Names separated by blanks. */
typedef struct expected {
    const char *reads, *no_reads, *writes, *no_writes;
} expected;

static int check_all(const char *names, bool (*attempt)(const char *name), bool hold,
                     const char *what)
{
    char copy[512];
    int failed = 0;

    (void)snprintf(copy, sizeof copy, "%s", names ? names : "");
    for (char *name = strtok(copy, " "); name; name = strtok(NULL, " ")) {
        if (attempt(name) != hold) {
            printf("%s: %s: %s\n", what, name, hold ? strerror(errno) : "not refused");
            failed++;
        }
    }
    return failed;
}

/* ---- commands ---- */

/* Fields as a command with options of its own has them. */
typedef struct test_args {
    cli_args cli;
    const char *config;
    const char *base;
    cli_list adapters;
    bool fix_latest;
} test_args;

static const cli_option options[] = {
    {"config", 0, CLI_FILE, offsetof(test_args, config), "FILE", "a file"},
    {"base", 0, CLI_SOURCE, offsetof(test_args, base), "PATH", "a checkpoint"},
    {"adapter", 0, CLI_SOURCES, offsetof(test_args, adapters), "PATH", "checkpoints"},
    {"fix-latest", 0, CLI_FLAG, offsetof(test_args, fix_latest), NULL, "repair"},
    CLI_END};
enum { FIX_LATEST = 3 }; /* its index in options */

static test_args args;
static cli_verb verb;
static char *operand[3];

/* The command with these operands, below the tree, and with these uses (table.h). */
static void command(const char *uses, const char *first, const char *second)
{
    static char path[2][FOLDER_PATH];

    verb = (cli_verb){.name = "v", .command = "ckpt v", .options = options, .uses = uses, .max = 2};
    args =
        (test_args){.cli = {.line.verb = &verb, .operand = operand, .n_operands = second ? 2 : 1}};
    folder_join(path[0], top, first);
    operand[0] = path[0];
    if (second)
        folder_join(path[1], top, second);
    operand[1] = second ? path[1] : NULL;
}

static bool enforced(void)
{
    char text[128];

    sandbox_describe(text, sizeof text);
    return strncmp(text, "files (Landlock", 15) == 0 && !strstr(text, "readers only");
}

/* Enter the sandbox of the command in a child, and check the paths there. */
static void confined(const expected *e)
{
    int status = 0;
    pid_t child;

    if (!enforced())
        skip();
    (void)fflush(stdout);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        sandbox s = {0};
        ckpt_err err = {0};
        int failed = sandbox_enter(&s, &args.cli, &err) == CKPT_OK ? 0 : 100;

        failed += check_all(e->reads, reads, true, "read");
        failed += check_all(e->no_reads, reads, false, "read");
        failed += check_all(e->writes, writes, true, "write");
        failed += check_all(e->no_writes, writes, false, "write");
        sandbox_leave(&s);
        (void)fflush(stdout);
        _exit(failed);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- sources ---- */

static void test_reader(void **state)
{
    const expected run = {.reads = "run run/latest run/tag run/tag/zero/x",
                          .no_reads = "other other/x one.pt . ..",
                          .no_writes = "run/latest run/new run/tag/new other/new"};
    // a tag needs `latest`, which is above it
    const expected tag = {.reads = "run/tag/zero/x run/latest", .no_reads = "other/x one.pt"};
    // shards and configurations are beside a file
    const expected file = {.reads = "one.pt beside.json run", .no_writes = "one.pt new"};

    (void)state;
    command("r", "run", NULL);
    confined(&run);
    command("r", "run/tag", NULL);
    confined(&tag);
    command("r", "links/tag", NULL);
    confined(&tag);
    command("r", "one.pt", NULL);
    confined(&file);
}

static void test_links(void **state)
{
    // the target of each link is allowed, but nothing beside it
    const expected hub = {.reads = "hub/snap/w hub/blob/w", .no_reads = "hub/x hub/blob other/x"};

    (void)state;
    command("r", "hub/snap", NULL);
    confined(&hub);
}

static void test_missing(void **state)
{
    const expected nothing = {.no_reads = "run/latest other/x one.pt", .no_writes = "out/new"};

    (void)state;
    command("r", "none", NULL);
    confined(&nothing);
}

static void test_options(void **state)
{
    static const char *sources[] = {NULL, NULL};
    static char config[FOLDER_PATH], base[FOLDER_PATH], adapter[FOLDER_PATH + 4];
    const expected all = {.reads = "run/latest options.txt hub/snap/w other/x",
                          .no_reads = "one.pt beside.json hub/x"};

    (void)state;
    folder_join(config, top, "options.txt");
    folder_join(base, top, "hub/snap");
    folder_join(adapter, top, "other:0.5"); // the weight is not a part of the path
    command("r", "run", NULL);
    args.config = config;
    args.base = base;
    sources[0] = adapter;
    args.adapters = (cli_list){.at = sources, .n = 1};
    confined(&all);
}

static void test_lists(void **state)
{
    const expected both = {.reads = "run/latest other/x", .no_reads = "one.pt"};
    const expected first = {.reads = "run/latest", .no_reads = "other/x one.pt"};

    (void)state;
    command("R", "run", "other");
    confined(&both);
    command("rr", "run", "other");
    confined(&both);
    command("w", "run", "other");
    confined(&both);
    // the second operand is not a path
    command("rt", "run", "other");
    confined(&first);
    command("r-", "run", "other");
    confined(&first);
    command("rm", "run", "other");
    confined(&first);
}

/* ---- changes ---- */

static void test_edits(void **state)
{
    const expected edits = {.reads = "run/latest",
                            .writes = "run/latest run/made",
                            .no_writes = "other/new one.pt",
                            .no_reads = "other/x"};
    const expected reads_only = {.reads = "run/latest", .no_writes = "run/latest run/new"};

    (void)state;
    command("l", "run", NULL);
    confined(&reads_only);
    args.cli.line.given[FIX_LATEST] = true;
    confined(&edits);
    command("e", "run", NULL);
    confined(&edits);
    assert_true(folder_has(top, "run/made"));
    (void)unlink(folder_at(top, "run/made"));
}

static void test_output(void **state)
{
    const expected folder = {.reads = "run/latest out/old",
                             .writes = "out/made out/old",
                             .no_writes = "run/latest run/new other/new new",
                             .no_reads = "other/x one.pt"};
    const expected dry = {.reads = "run/latest", .no_writes = "out/new out/old run/new"};
    const expected file = {.writes = "out/made", .no_writes = "run/new other/new new"};

    (void)state;
    command("rd", "run", "out");
    confined(&folder);
    args.cli.dry_run = true;
    confined(&dry);
    command("ro", "run", "out/x.safetensors");
    confined(&file);
    // without a suffix of a file, the output is a folder
    command("ro", "run", "out");
    confined(&folder);
    (void)unlink(folder_at(top, "out/made"));
}

/* Folders that were missing are made for the output, and empty ones are removed at the end. */
static void test_made_folders(void **state)
{
    const expected made = {.writes = "new/deep/out/x", .no_writes = "new/y new/deep/y"};
    const expected unused = {.reads = "new/deep/out"};

    (void)state;
    command("rd", "run", "new/deep/out");
    confined(&made);
    assert_true(folder_has(top, "new/deep/out/x"));
    folder_remove(folder_at(top, "new"));
    confined(&unused);
    assert_false(folder_has(top, "new"));
    // a dry run makes no folder
    args.cli.dry_run = true;
    confined(&(expected){.no_reads = "new"});
    assert_false(folder_has(top, "new"));
}

static void test_output_fails(void **state)
{
    sandbox s = {0};
    ckpt_err err = {0};

    (void)state;
    if (!enforced())
        skip();
    command("rd", "run", "one.pt/out"); // a file is in the way
    assert_int_equal(sandbox_enter(&s, &args.cli, &err), CKPT_EIO);
    assert_non_null(strstr(err.text, "cannot create the folder"));
    sandbox_leave(&s);
}

/* ---- none ---- */

static void test_no_sandbox(void **state)
{
    const expected free_again = {.reads = "other/x one.pt"};

    (void)state;
    command("r", "run", NULL);
    args.cli.no_sandbox = true;
    confined(&free_again);
    // a command without an input keeps all rights
    command(NULL, "run", NULL);
    confined(&free_again);
}

/* A refusal is the sandbox's fault only if this user may read the file. */
static void test_suspect(void **state)
{
    sandbox s = {.files = true};
    ckpt_err err = {0};

    (void)state;
    (void)snprintf(err.text, sizeof err.text, "%s: %s", folder_at(top, "other/x"),
                   strerror(EACCES));
    assert_true(sandbox_suspect(&s, &err));
    s.files = false;
    assert_false(sandbox_suspect(&s, &err));
    s.files = true;
    (void)snprintf(err.text, sizeof err.text, "%s: %s", folder_at(top, "other/none"),
                   strerror(EACCES));
    assert_false(sandbox_suspect(&s, &err));
    (void)snprintf(err.text, sizeof err.text, "%s: %s", folder_at(top, "other/x"),
                   strerror(ENOENT));
    assert_false(sandbox_suspect(&s, &err));
}

static int setup(void **state)
{
    (void)state;
    make_tree();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    folder_remove(top);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reader),       cmocka_unit_test(test_links),
        cmocka_unit_test(test_missing),      cmocka_unit_test(test_options),
        cmocka_unit_test(test_lists),        cmocka_unit_test(test_edits),
        cmocka_unit_test(test_output),       cmocka_unit_test(test_made_folders),
        cmocka_unit_test(test_output_fails), cmocka_unit_test(test_no_sandbox),
        cmocka_unit_test(test_suspect),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
