/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_open.c: from a path to a map: files, folders, shards, hints, listings, and formats known by
 * sight only.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/format.h"
#include "tests/unit/unit.h"

static char dir[] = "/tmp/test_open_XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static const char *in(const char *name)
{
    static char path[2][512];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static void put(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(in(name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Opens, expects a failure, and looks for words in its text. */
static void refused(const char *path, int code, const char *words)
{
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    assert_int_equal(ckpt_open(&map, path, NULL, &err), code);
    assert_null(map);
    if (!strstr(err.text, words))
        fail_msg("'%s' lacks '%s'", err.text, words);
}

static void what_is_no_checkpoint_is_said(void **state)
{
    (void)state;
    put("empty", "", 0);
    put("text", "hello, this is text\n", 20);
    put("x.gguf", "GGUF\3\0\0\0", 8);
    put("x.npy", "\x93NUMPY\1\0v\0", 10);
    refused(in("empty"), CKPT_EFORMAT, "empty");
    refused(in("text"), CKPT_EFORMAT, "not a checkpoint file");
    refused(in("absent"), CKPT_EMISSING, "absent");
    refused(in("text/below"), CKPT_EMISSING, "below");
    refused(in("x.gguf"), CKPT_EFORMAT, "cut or damaged");
    refused(in("x.npy"), CKPT_EFORMAT, "header");
}

static void a_wrong_folder_is_answered_with_the_right_one(void **state)
{
    (void)state;
    mkdir(in("outer"), 0777);
    mkdir(in("outer/inner"), 0777);
    refused(in("outer"), CKPT_EMISSING, "no checkpoint here");
    put("outer/inner/model.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
    refused(in("outer"), CKPT_EMISSING, "did you mean");
    mkdir(in("dcp"), 0777);
    put("dcp/__0_0.distcp", "", 0);
    refused(in("dcp"), CKPT_EMISSING, "without .metadata");
    put("dcp/.metadata", "", 0);
    refused(in("dcp"), CKPT_EFORMAT, ".metadata");
}

static void a_file_opens_as_its_format(void **state)
{
    static const char text[] =
        "\x40\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}     "
        "     \0\0\200\77\0\0\0\100";
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    (void)state;
    put("w.anything", text, 8 + 64 + 8);
    if (ckpt_open(&map, in("w.anything"), NULL, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    assert_string_equal(ckpt_map_format(map), "safetensors");
    assert_int_equal(ckpt_map_tensor_count(map), 1);
    assert_int_equal(ckpt_tensor_bytes(ckpt_map_tensor_at(map, 0)), 8);
    ckpt_map_free(map);
}

static void a_shard_means_its_checkpoint_when_asked(void **state)
{
    const char *fixtures = getenv("CKPT_FIXTURES");
    const ckpt_open_opts whole = {.whole_checkpoint = true};
    char path[1024];
    ckpt_map *map = NULL;

    (void)state;
    if (!fixtures)
        skip();
    snprintf(path, sizeof path,
             "%s/z3_bf16_w5_odd/ckpt/global_step4/zero_pp_rank_3_mp_rank_00_model_states.pt",
             fixtures);
    assert_int_equal(ckpt_open(&map, path, NULL, NULL), CKPT_OK);
    assert_string_equal(ckpt_map_format(map), "torch");
    ckpt_map_free(map);
    assert_int_equal(ckpt_open(&map, path, &whole, NULL), CKPT_OK);
    assert_string_equal(ckpt_map_format(map), "deepspeed");
    assert_int_equal(ckpt_map_file_count(map), 10);
    ckpt_map_free(map);
}

static void listings_count_as_people_do(void **state)
{
    static const char *const names[] = {"r_10", "r_9", "r_010", "r_2b", "r_2", "a"};
    static const char *const want[] = {"a", "r_2", "r_2b", "r_9", "r_010", "r_10"};
    ckpt_listing list;
    ckpt_map *map = NULL;

    (void)state;
    mkdir(in("list"), 0777);
    for (int i = 0; i < 6; i++) {
        char path[64];
        snprintf(path, sizeof path, "list/%s", names[i]);
        put(path, "xyz", 3);
    }
    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_listing_read(&list, map, in("list"), NULL), CKPT_OK);
    assert_int_equal(list.n, 6);
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(list.entry[i].name, want[i]);
    assert_int_equal(ckpt_listing_find(&list, "r_9")->size, 3);
    assert_null(ckpt_listing_find(&list, "r_1"));
    assert_ptr_equal(list.map, map);
    ckpt_map_free(map);
}

/* What a map was told of a folder stands, whoever asks again; another map asks for itself. */
static void folders_are_listed_once(void **state)
{
    ckpt_map *map = NULL, *other = NULL;
    ckpt_listing list, again;

    (void)state;
    mkdir(in("once"), 0777);
    put("once/a", "x", 1);
    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_create(&other, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_listing_read(&list, map, in("once"), NULL), CKPT_OK);
    put("once/b", "x", 1);
    assert_int_equal(ckpt_listing_read(&again, map, in("once"), NULL), CKPT_OK);
    assert_int_equal(again.n, 1);
    assert_ptr_equal(again.entry, list.entry);
    assert_null(again.part);
    assert_int_equal(ckpt_listing_read(&again, other, in("once"), NULL), CKPT_OK);
    assert_int_equal(again.n, 2);
    ckpt_map_free(other);
    ckpt_map_free(map);
}

static void formats_are_listed(void **state)
{
    const ckpt_format_info *f;
    size_t n = 0;

    (void)state;
    while ((f = ckpt_format_at(n))) {
        assert_true(strlen(f->name) > 1 && strlen(f->note) > 5);
        assert_ptr_equal(ckpt_format_find(f->name), f);
        n++;
    }
    assert_true(n >= 8);
    assert_string_equal(ckpt_format_find("pytorch")->name, "torch");
    assert_string_equal(ckpt_format_find("huggingface")->name, "hf");
    assert_null(ckpt_format_find("pytorch pt"));
    assert_null(ckpt_format_find(""));
    assert_null(ckpt_format_find(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_checkpoint_is_said),
        cmocka_unit_test(a_wrong_folder_is_answered_with_the_right_one),
        cmocka_unit_test(a_file_opens_as_its_format),
        cmocka_unit_test(a_shard_means_its_checkpoint_when_asked),
        cmocka_unit_test(listings_count_as_people_do),
        cmocka_unit_test(folders_are_listed_once),
        cmocka_unit_test(formats_are_listed),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
