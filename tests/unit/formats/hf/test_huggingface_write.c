/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_huggingface_write.c: tensors distributed over files, the index, and the files that come
 * along.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "formats/hf/hf.h"
#include "libckpt/drivers.h"
#include "tests/unit/formats/hf/help.h"
#include "tests/unit/unit.h"

/* A target with tensors a (4 bytes), b (8), c tied to a, d (4), named so that sorting matters. */
static ckpt_map *target_map(void)
{
    static const uint64_t one[] = {1}, two[] = {2};
    ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1}, *t = NULL, *a = NULL;
    ckpt_map *to = NULL;

    assert_int_equal(ckpt_map_create(&to, 0, NULL), CKPT_OK);
    like.shape = one;
    assert_int_equal(ckpt_map_add(to, "z.a", 3, &like, &a, NULL), CKPT_OK);
    like.shape = two;
    assert_int_equal(ckpt_map_add(to, "y.b", 3, &like, &t, NULL), CKPT_OK);
    like.shape = one;
    assert_int_equal(ckpt_map_add(to, "x.c", 3, &like, &t, NULL), CKPT_OK);
    t->owner = a;
    assert_int_equal(ckpt_map_add(to, "\xc3\xa4.d", 4, &like, &t, NULL), CKPT_OK);
    return to;
}

static int scatter(const ckpt_directory *dir, ckpt_map *to, const char *from, uint64_t limit,
                   bool side, ckpt_err *err)
{
    ckpt_target target = {
        .format = dir->is.name, .max_shard_size = limit, .skip_side_files = !side};
    ckpt_map *source = NULL;

    assert_int_equal(ckpt_map_create(&source, 0, NULL), CKPT_OK);
    source->path = from;
    int rc = dir->scatter(to, source, &target, err);
    ckpt_map_free(source);
    return rc;
}

static void check_text_file(const ckpt_map *to, size_t i, const char *name, const char *text)
{
    const ckpt_map_file *f = &to->files.at[i];

    assert_string_equal(f->path, name);
    assert_null(f->format);
    assert_int_equal(f->size, strlen(text));
    assert_int_equal(f->literals.n, 1);
    assert_int_equal(f->literals.at[0].n, strlen(text));
    assert_memory_equal(f->literals.at[0].bytes, text, strlen(text));
}

static void scatters_single(void **state)
{
    ckpt_map *to = target_map();

    (void)state;
    assert_int_equal(scatter(&ckpt_directory_hf, to, "x", 0, false, NULL), CKPT_OK);
    assert_int_equal(to->files.n, 1);
    assert_string_equal(to->files.at[0].path, "model.safetensors");
    assert_string_equal(to->files.at[0].format->is.name, "safetensors");
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(to->tensors.at[i]->file, 0);
    ckpt_map_free(to);
}

static void scatters_shards(void **state)
{
    ckpt_map *to = target_map();

    (void)state;
    assert_int_equal(scatter(&ckpt_directory_hf, to, "x", 8, false, NULL), CKPT_OK);
    assert_int_equal(to->files.n, 4);
    assert_string_equal(to->files.at[0].path, "model-00001-of-00003.safetensors");
    assert_int_equal(to->tensors.at[0]->file, 0);
    assert_int_equal(to->tensors.at[1]->file, 1);
    assert_int_equal(to->tensors.at[2]->file, 0);
    assert_int_equal(to->tensors.at[3]->file, 2);
    check_text_file(to, 3, "model.safetensors.index.json",
                    "{\n  \"metadata\": {\n    \"total_size\": 16\n  },\n  \"weight_map\": {\n"
                    "    \"y.b\": \"model-00002-of-00003.safetensors\",\n"
                    "    \"z.a\": \"model-00001-of-00003.safetensors\",\n"
                    "    \"\\u00e4.d\": \"model-00003-of-00003.safetensors\"\n  }\n}\n");
    ckpt_map_free(to);
}

static void scatters_bin(void **state)
{
    ckpt_map *to = NULL;
    ckpt_err err = {0};

    (void)state;
    if (!ckpt_driver_find("torch"))
        skip();
    to = target_map();
    assert_int_equal(scatter(&ckpt_directory_hf_bin, to, "x", 8, false, &err), CKPT_OK);
    assert_int_equal(to->files.n, 4);
    assert_string_equal(to->files.at[1].path, "pytorch_model-00002-of-00003.bin");
    assert_string_equal(to->files.at[1].prefix, "pytorch_model-00002-of-00003");
    assert_string_equal(to->files.at[1].format->is.name, "torch");
    check_text_file(to, 3, "pytorch_model.bin.index.json",
                    "{\n  \"metadata\": {\n    \"total_size\": 16\n  },\n  \"weight_map\": {\n"
                    "    \"x.c\": \"pytorch_model-00001-of-00003.bin\",\n"
                    "    \"y.b\": \"pytorch_model-00002-of-00003.bin\",\n"
                    "    \"z.a\": \"pytorch_model-00001-of-00003.bin\",\n"
                    "    \"\\u00e4.d\": \"pytorch_model-00003-of-00003.bin\"\n  }\n}\n");
    ckpt_map_free(to);
}

/* Config and tokenizer come along, from a folder, from beside a file, and from above a tag. */
static void scatters_side_files(void **state)
{
    folder f;
    char tag[320], file[320];

    (void)state;
    folder_make(&f);
    write_text(&f, "config.json", "{\"a\": 1}");
    write_text(&f, "merges.txt", "m");
    write_text(&f, "spm.model", "s");
    write_text(&f, "chat_template.jinja", "t");
    write_text(&f, "trainer_state.json", "not this one");
    write_text(&f, "x.safetensors", "nor this");
    write_text(&f, "latest", "tag");
    snprintf(tag, sizeof tag, "%s/tag", f.path);
    snprintf(file, sizeof file, "%s/x.safetensors", f.path);
    assert_int_equal(mkdir(tag, 0700), 0);
    const char *const froms[] = {f.path, file, tag};
    for (size_t i = 0; i < 3; i++) {
        ckpt_map *to = target_map();
        ckpt_err err = {0};
        assert_int_equal(scatter(&ckpt_directory_hf, to, froms[i], 8, true, &err), CKPT_OK);
        assert_int_equal(to->files.n, 8);
        check_text_file(to, 0, "chat_template.jinja", "t");
        check_text_file(to, 1, "config.json", "{\"a\": 1}");
        check_text_file(to, 2, "merges.txt", "m");
        check_text_file(to, 3, "spm.model", "s");
        assert_string_equal(to->files.at[4].path, "model-00001-of-00003.safetensors");
        assert_int_equal(to->tensors.at[3]->file, 6);
        assert_string_equal(to->files.at[7].path, "model.safetensors.index.json");
        ckpt_map_free(to);
    }
    assert_int_equal(rmdir(tag), 0);
    folder_remove(&f);
}

static void writing_runs_out_of_memory(void **state)
{
    folder f;
    int rc = CKPT_ELIMIT;

    (void)state;
    folder_make(&f);
    write_text(&f, "config.json", "{}");
    for (uint64_t n = 0; rc != CKPT_OK; n++) {
        ckpt_map *to = target_map(), *from = NULL;
        ckpt_target target = {.format = "hf", .max_shard_size = 8};
        ckpt_err err = {0};
        assert_int_equal(ckpt_map_create(&from, 0, NULL), CKPT_OK);
        from->path = f.path;
        ckpt_alloc_fail_at(n);
        rc = ckpt_directory_hf.scatter(to, from, &target, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc != CKPT_OK && rc != CKPT_ELIMIT)
            fail_msg("%d %s", rc, err.text);
        assert_true(n < 5000);
        ckpt_map_free(from);
        ckpt_map_free(to);
    }
    folder_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scatters_single),
        cmocka_unit_test(scatters_shards),
        cmocka_unit_test(scatters_bin),
        cmocka_unit_test(scatters_side_files),
        cmocka_unit_test(writing_runs_out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
