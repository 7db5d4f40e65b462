/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_huggingface.c: names understood, and folders read through their index.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "formats/hf/hf.h"
#include "libckpt/base/digest.h"
#include "libckpt/base/dtype.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/drivers.h"
#include "tests/unit/formats/hf/help.h"
#include "tests/unit/unit.h"

/* A safetensors file of U8 tensors: names, each with as many bytes as its name has letters. */
static void write_shard(folder *f, const char *name, const char *const *tensors,
                        const char *metadata)
{
    ckpt_bytes header = {0}, all = {0};
    size_t at = 0;

    assert_true(ckpt_bytes_printf(&header, "{\"__metadata__\":{%s}", metadata));
    for (; *tensors; tensors++) {
        size_t n = strlen(*tensors);
        assert_true(ckpt_bytes_printf(
            &header, ",\"%s\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}",
            *tensors, n, at, at + n));
        at += n;
    }
    assert_true(ckpt_bytes_add(&header, "}", 1));
    for (unsigned k = 0; k < 8; k++) {
        uint8_t byte = (uint8_t)((uint64_t)header.n >> (8 * k));
        assert_true(ckpt_bytes_add(&all, &byte, 1));
    }
    assert_true(ckpt_bytes_add(&all, header.at, header.n) && ckpt_bytes_add(&all, NULL, at));
    write_file(f, name, all.at, all.n);
    ckpt_vec_free(&header);
    ckpt_vec_free(&all);
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static int gather(ckpt_map **out, const char *path, const char *part, bool collect, ckpt_err *err)
{
    static const ckpt_open_opts opts = {0};
    ckpt_listing list;
    int rc = ckpt_map_create(out, 0, err);

    if (rc == CKPT_OK) {
        (*out)->collect = collect;
        rc = ckpt_listing_read(&list, *out, path, err);
    }
    if (rc == CKPT_OK) {
        list.part = part;
        list.read = ckpt_format_read;
        rc = ckpt_directory_hf.gather(*out, &list, &opts, err);
    }
    if (rc != CKPT_OK) {
        ckpt_map_free(*out);
        *out = NULL;
    }
    return rc;
}

static bool has_finding(const ckpt_map *map, ckpt_severity severity, const char *text)
{
    for (size_t i = 0; i < map->findings.n; i++) {
        if (map->findings.at[i].severity == severity && strstr(map->findings.at[i].text, text))
            return true;
    }
    return false;
}

static const char *fact(const ckpt_map *map, const char *key)
{
    for (size_t i = 0; i < map->facts.n; i++) {
        if (strcmp(map->facts.at[i].key, key) == 0)
            return map->facts.at[i].text;
    }
    return "";
}

/* ---- names ---- */

static void names(void **state)
{
    static const struct {
        const char *name;
        ckpt_hf_role role;
        unsigned family;
        const char *variant;
    } cases[] = {
        {"model.safetensors", CKPT_HF_SINGLE, 0, ""},
        {"model.fp16.safetensors", CKPT_HF_SINGLE, 0, "fp16"},
        {"model-00001-of-00002.safetensors", CKPT_HF_SHARD, 0, ""},
        {"model-000001-of-123456.safetensors", CKPT_HF_SHARD, 0, ""},
        {"model.bf16-00001-of-00002.safetensors", CKPT_HF_SHARD, 0, "bf16"},
        {"model.safetensors.index.json", CKPT_HF_INDEX, 0, ""},
        {"model.safetensors.index.fp16.json", CKPT_HF_INDEX, 0, "fp16"},
        {"pytorch_model.bin", CKPT_HF_SINGLE, 1, ""},
        {"pytorch_model-00001-of-00002.bin", CKPT_HF_SHARD, 1, ""},
        {"pytorch_model.bin.index.json", CKPT_HF_INDEX, 1, ""},
        {"adapter_model.safetensors", CKPT_HF_SINGLE, 2, ""},
        {"adapter_model.bin", CKPT_HF_SINGLE, 3, ""},
        {"diffusion_pytorch_model.non_ema.bin", CKPT_HF_SINGLE, 5, "non_ema"},
        {"model.bin", CKPT_HF_OTHER, 0, ""},
        {"model", CKPT_HF_OTHER, 0, ""},
        {"model.", CKPT_HF_OTHER, 0, ""},
        {"model.safetensors.index", CKPT_HF_OTHER, 0, ""},
        {"model.safetensors.index..json", CKPT_HF_OTHER, 0, ""},
        {"model.safetensors.index.json.bak", CKPT_HF_OTHER, 0, ""},
        {"model-1-of-2.safetensors", CKPT_HF_OTHER, 0, ""},
        {"model-00001-of-00002.safetensors.tmp", CKPT_HF_OTHER, 0, ""},
        {"model-00001-of-.safetensors", CKPT_HF_OTHER, 0, ""},
        {"model..safetensors", CKPT_HF_OTHER, 0, ""},
        {"mymodel.safetensors", CKPT_HF_OTHER, 0, ""},
        {"training_args.bin", CKPT_HF_OTHER, 0, ""},
        {"", CKPT_HF_OTHER, 0, ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_hf_name n = ckpt_hf_parse_name(cases[i].name);
        if (n.role != cases[i].role || n.family != cases[i].family)
            fail_msg("%s: role %d, family %u", cases[i].name, (int)n.role, n.family);
        if (n.role == CKPT_HF_OTHER)
            continue;
        assert_int_equal(n.n_variant, strlen(cases[i].variant));
        if (n.n_variant)
            assert_memory_equal(n.variant, cases[i].variant, n.n_variant);
    }
}

static void probes_and_parts(void **state)
{
    static const ckpt_entry one[] = {{"config.json", false, 1}, {"model.safetensors", false, 9}};
    static const ckpt_entry variant[] = {{"model.fp16.safetensors", false, 9}};
    static const ckpt_entry shards[] = {{"model-00001-of-00002.safetensors", false, 9}};
    static const ckpt_entry dir[] = {{"model.safetensors", true, 0}};
    const ckpt_listing a = {.folder = "x", .entry = one, .n = 2},
                       b = {.folder = "x", .entry = variant, .n = 1};
    const ckpt_listing c = {.folder = "x", .entry = shards, .n = 1},
                       d = {.folder = "x", .entry = dir, .n = 1};

    (void)state;
    assert_true(ckpt_directory_hf.probe(&a) > ckpt_directory_hf.probe(&b));
    assert_true(ckpt_directory_hf.probe(&b) > ckpt_directory_hf.probe(&c));
    assert_true(ckpt_directory_hf.probe(&c) > 0);
    assert_int_equal(ckpt_directory_hf.probe(&d), 0);
    assert_int_equal(ckpt_directory_hf_bin.probe(&a), 0);
    assert_int_equal(ckpt_directory_hf.part("model.safetensors.index.json"), 2);
    assert_int_equal(ckpt_directory_hf.part("pytorch_model-00001-of-00002.bin"), 1);
    assert_int_equal(ckpt_directory_hf.part("model.safetensors"), 0);
    assert_int_equal(ckpt_directory_hf.part("x.safetensors"), 0);
}

/* ---- reading ---- */

static void reads_single(void **state)
{
    folder f;
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    (void)state;
    folder_make(&f);
    write_shard(&f, "model.safetensors", NAMES("aa", "b"), "\"format\":\"pt\",\"tie\":\"aa\"");
    write_text(&f, "config.json", "{\"architectures\": [\"TinyForX\"], \"model_type\": \"tiny\"}");
    write_text(&f, "pytorch_model.bin", "not looked at");
    assert_int_equal(gather(&map, f.path, NULL, false, &err), CKPT_OK);
    assert_int_equal(map->tensors.n, 3);
    assert_string_equal(map->tensors.at[0]->name, "aa");
    assert_ptr_equal(map->tensors.at[2]->owner, map->tensors.at[0]);
    assert_int_equal(map->metadata.n, 1);
    assert_string_equal(fact(map, "architecture"), "TinyForX");
    assert_string_equal(fact(map, "model type"), "tiny");
    assert_string_equal(fact(map, "total bytes"), "3");
    assert_int_equal(map->findings.n, 0);
    assert_int_equal(ckpt_map_check(map, &err), CKPT_OK);
    ckpt_map_free(map);
    folder_remove(&f);
}

#define INDEX(total, map) "{\"metadata\": {\"total_size\": " total "}, \"weight_map\": {" map "}}"
#define S1                "\"model-00001-of-00002.safetensors\""
#define S2                "\"model-00002-of-00002.safetensors\""

/* Shards 1 (aa, b) and 2 (ccc), with this index. */
static void make_sharded(folder *f, const char *index)
{
    folder_make(f);
    write_shard(f, "model-00001-of-00002.safetensors", NAMES("aa", "b"),
                "\"format\":\"pt\",\"only1\":\"x\"");
    write_shard(f, "model-00002-of-00002.safetensors", NAMES("ccc"),
                "\"format\":\"pt\",\"tie\":\"ccc\"");
    write_text(f, "model.safetensors.index.json", index);
}

static void reads_shards(void **state)
{
    folder f;
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    (void)state;
    make_sharded(&f, INDEX("6", "\"ccc\": " S2 ", \"b\": " S1 ", \"aa\": " S1));
    assert_int_equal(gather(&map, f.path, NULL, false, &err), CKPT_OK);
    assert_int_equal(map->tensors.n, 4);
    assert_string_equal(map->tensors.at[0]->name, "aa"); // shard by shard
    assert_string_equal(map->tensors.at[2]->name, "ccc");
    assert_ptr_equal(map->tensors.at[3]->owner, map->tensors.at[2]);
    assert_int_equal(map->files.n, 2);
    const ckpt_source *s = &map->sources.at[map->tensors.at[2]->extent[0].source];
    assert_int_equal(s->file, 1);
    assert_non_null(strstr(map->files.at[1].path, "model-00002-of-00002.safetensors"));
    assert_int_equal(map->metadata.n, 2);
    assert_string_equal(fact(map, "shards"), "2");
    assert_string_equal(fact(map, "total bytes"), "6");
    assert_int_equal(map->findings.n, 1);
    assert_true(has_finding(map, CKPT_INFO, "no config.json"));
    assert_int_equal(ckpt_map_check(map, &err), CKPT_OK);
    ckpt_map_free(map);
    folder_remove(&f);
}

typedef struct index_case {
    const char *index;
    int code;
    const char *text;
} index_case;

static void refuses_index(void **state)
{
    static const index_case cases[] = {
        {"[]", CKPT_EFORMAT, "weight_map"},
        {"{}", CKPT_EFORMAT, "weight_map"},
        {"{\"weight_map\": {}}", CKPT_EFORMAT, "weight_map"},
        {"{\"weight_map\": [1]}", CKPT_EFORMAT, "weight_map"},
        {"{\"weight_map\": ", CKPT_EFORMAT, "index.json"},
        {INDEX("6", "\"aa\": 7"), CKPT_EFORMAT, "\"aa\""},
        {INDEX("6", "\"aa\": " S1 ", \"aa\": " S1), CKPT_EFORMAT, "twice"},
        {INDEX("6", "\"aa\": \"../model-00001-of-00002.safetensors\""), CKPT_EUNSAFE,
         "same folder"},
        {INDEX("6", "\"aa\": \"/etc/passwd\""), CKPT_EUNSAFE, "passwd"},
        {INDEX("6", "\"aa\": \"..\""), CKPT_EUNSAFE, "\"..\""},
        {INDEX("6", "\"aa\": \"\""), CKPT_EUNSAFE, "\"aa\""},
        {INDEX("6", "\"aa\": \"a\\\\b\""), CKPT_EUNSAFE, "\"aa\""},
        {INDEX("6", "\"aa\": \"absent.safetensors\""), CKPT_EMISSING, "absent.safetensors"},
        {INDEX("6", "\"aa\": " S1 ", \"b\": " S1 ", \"ccc\": " S2 ", \"d\": " S2), CKPT_EMISSING,
         "\"d\""},
        {INDEX("6", "\"aa\": " S1 ", \"ccc\": " S2), CKPT_EMISMATCH, "\"b\""},
        {INDEX("6", "\"aa\": " S1 ", \"b\": " S2 ", \"ccc\": " S2), CKPT_EMISMATCH, "\"b\""},
        {INDEX("6", "\"aa\": \"model.safetensors.index.json\""), CKPT_EFORMAT, "index.json"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        folder f;
        ckpt_map *map = NULL;
        ckpt_err err = {0};
        make_sharded(&f, cases[i].index);
        int rc = gather(&map, f.path, NULL, false, &err);
        if (rc != cases[i].code || err.code != rc || !strstr(err.text, cases[i].text))
            fail_msg("%s: %d \"%s\"", cases[i].index, rc, err.text);
        folder_remove(&f);
    }
}

/* With collect every problem is found, and what can be read is read. */
static void collects_problems(void **state)
{
    folder f;
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    (void)state;
    make_sharded(&f, INDEX("6", "\"aa\": " S1 ", \"zz\": " S1 ", \"ccc\": " S1
                                ", \"q\": \"absent.safetensors\""));
    assert_int_equal(gather(&map, f.path, NULL, true, &err), CKPT_OK);
    assert_true(has_finding(map, CKPT_ERROR, "absent.safetensors"));
    assert_true(has_finding(map, CKPT_ERROR, "holds tensor \"b\", which is not listed"));
    assert_true(has_finding(map, CKPT_ERROR, "\"zz\""));
    assert_true(has_finding(map, CKPT_ERROR, "\"ccc\""));
    assert_false(has_finding(map, CKPT_ERROR, "\"q\"")); // its shard's absence is said once
    assert_true(has_finding(map, CKPT_WARNING, "model-00002-of-00002.safetensors"));
    assert_int_equal(map->tensors.n, 1);
    ckpt_map_free(map);
    folder_remove(&f);
}

static void warns(void **state)
{
    folder f;
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    (void)state;
    make_sharded(&f, INDEX("7", "\"aa\": " S1 ", \"b\": " S1 ", \"ccc\": " S2));
    write_text(&f, "model-00003-of-00003.safetensors", "of an older save");
    write_text(&f, "config.json", "{\"model_type\": ");
    assert_int_equal(gather(&map, f.path, NULL, false, &err), CKPT_OK);
    assert_int_equal(map->findings.n, 3);
    assert_true(has_finding(map, CKPT_WARNING, "total_size is 7"));
    assert_true(has_finding(map, CKPT_WARNING, "model-00003-of-00003.safetensors"));
    assert_true(has_finding(map, CKPT_WARNING, "config.json"));
    ckpt_map_free(map);
    folder_remove(&f);
}

/* total_size as a float, or counting a tied name too, is no reason to warn. */
static void total_size_forms(void **state)
{
    static const char *const totals[] = {"6", "6.0", "9"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        folder f;
        ckpt_map *map = NULL;
        char index[256];
        snprintf(index, sizeof index, INDEX("%s", "\"aa\": " S1 ", \"b\": " S1 ", \"ccc\": " S2),
                 totals[i]);
        make_sharded(&f, index);
        assert_int_equal(gather(&map, f.path, NULL, false, NULL), CKPT_OK);
        assert_int_equal(map->findings.n, 1); // a note that config.json is missing
        ckpt_map_free(map);
        folder_remove(&f);
    }
}

static void chooses(void **state)
{
    folder f;
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    (void)state;
    folder_make(&f);
    write_text(&f, "config.json", "{}");
    assert_int_equal(gather(&map, f.path, NULL, false, &err), CKPT_EMISSING);
    write_shard(&f, "model-00001-of-00001.safetensors", NAMES("s"), "");
    err = (ckpt_err){0};
    assert_int_equal(gather(&map, f.path, NULL, false, &err), CKPT_EMISSING);
    assert_non_null(strstr(err.text, "index"));
    // the only variant is read; of two, one must be named; without variant comes first
    write_shard(&f, "model.fp16.safetensors", NAMES("half"), "");
    err = (ckpt_err){0};
    assert_int_equal(gather(&map, f.path, NULL, false, &err), CKPT_OK);
    assert_string_equal(map->tensors.at[0]->name, "half");
    ckpt_map_free(map);
    write_shard(&f, "model.bf16.safetensors", NAMES("brain"), "");
    assert_int_equal(gather(&map, f.path, NULL, false, &err), CKPT_EUNSUPPORTED);
    err = (ckpt_err){0};
    write_shard(&f, "adapter_model.safetensors", NAMES("lora"), "");
    assert_int_equal(gather(&map, f.path, NULL, false, &err), CKPT_OK);
    assert_string_equal(map->tensors.at[0]->name, "lora");
    ckpt_map_free(map);
    write_text(&f, "model.safetensors.index.json",
               "{\"weight_map\": {\"s\": \"model-00001-of-00001.safetensors\"}}");
    assert_int_equal(gather(&map, f.path, NULL, false, &err), CKPT_OK);
    assert_string_equal(map->tensors.at[0]->name, "s");
    ckpt_map_free(map);
    write_shard(&f, "model.safetensors", NAMES("one"), "");
    assert_int_equal(gather(&map, f.path, NULL, false, &err), CKPT_OK);
    assert_string_equal(map->tensors.at[0]->name, "one");
    ckpt_map_free(map);
    // whoever names a shard or its index means that set
    assert_int_equal(gather(&map, f.path, "model-00001-of-00001.safetensors", false, &err),
                     CKPT_OK);
    assert_string_equal(map->tensors.at[0]->name, "s");
    ckpt_map_free(map);
    assert_int_equal(gather(&map, f.path, "pytorch_model-00001-of-00002.bin", false, &err),
                     CKPT_EMISSING);
    folder_remove(&f);
}

static void follows_links(void **state)
{
    folder f, hub;
    ckpt_map *map = NULL;
    char from[320];

    (void)state;
    folder_make(&hub);
    write_shard(&hub, "blob", NAMES("aa"), "");
    folder_make(&f);
    snprintf(from, sizeof from, "%s/model-00001-of-00001.safetensors", f.path);
    assert_int_equal(symlink(hub.file[0], from), 0);
    write_text(&f, "model.safetensors.index.json",
               "{\"weight_map\": {\"aa\": \"model-00001-of-00001.safetensors\"}}");
    assert_int_equal(gather(&map, f.path, NULL, false, NULL), CKPT_OK);
    ckpt_map_free(map);
    assert_int_equal(unlink(from), 0);
    folder_remove(&f);
    folder_remove(&hub);
}

static void reading_runs_out_of_memory(void **state)
{
    folder f;
    int rc = CKPT_ELIMIT;

    (void)state;
    make_sharded(&f, INDEX("6", "\"ccc\": " S2 ", \"b\": " S1 ", \"aa\": " S1));
    write_text(&f, "config.json", "{\"model_type\": \"tiny\"}");
    for (uint64_t n = 0; rc != CKPT_OK; n++) {
        ckpt_map *map = NULL;
        ckpt_err err = {0};
        ckpt_alloc_fail_at(n);
        rc = gather(&map, f.path, NULL, false, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc != CKPT_OK && rc != CKPT_ELIMIT)
            fail_msg("%d %s", rc, err.text);
        assert_true(n < 5000);
        ckpt_map_free(map);
    }
    folder_remove(&f);
}

/* ---- shared fixtures and corpus ---- */

static ckpt_value *load_json(ckpt_arena *a, const char *path)
{
    ckpt_err err = {0};
    ckpt_value *v = NULL;
    char *bytes = NULL;
    uint64_t n = 0;

    assert_int_equal(ckpt_io_slurp(&bytes, &n, path, 1 << 26, &err), CKPT_OK);
    ckpt_json_text text = {path, 0, bytes, n, 1 << 26, false};
    if (ckpt_json_parse(&v, a, &text, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    ckpt_free(bytes);
    return v;
}

/* SHA-256 of a tensor's elements in row-major order, read through its one extent. */
static void hash_tensor(const ckpt_map *map, const ckpt_tensor *t, char hex[65])
{
    const ckpt_tensor *o = t->owner ? t->owner : t;
    uint64_t size = ckpt_dtype_get(o->dtype)->bits / 8, n_bytes = 0;
    ckpt_sha256 *sha = NULL;
    uint8_t digest[32], element[16];

    assert_int_equal(ckpt_sha256_new(&sha, NULL), CKPT_OK);
    assert_true(ckpt_dtype_bytes(o->dtype, o->n_elems, &n_bytes));
    if (n_bytes > 0) {
        const ckpt_extent *e = &o->extent[0];
        const ckpt_source *s = &map->sources.at[e->source];
        ckpt_io *io = NULL;
        assert_int_equal(o->n_extents, 1);
        assert_int_equal(s->coding, CKPT_RAW);
        assert_int_equal(ckpt_io_open(&io, map->files.at[s->file].path, NULL), CKPT_OK);
        uint64_t step = size ? size : 1; // packed elements: byte by byte
        for (uint64_t i = 0; i < n_bytes / step; i++) {
            uint64_t at = s->at + e->at + (size ? 0 : i), rest = i;
            for (uint32_t k = e->ndim; size && k-- > 0; rest /= e->axis[k].count)
                at += rest % e->axis[k].count * (uint64_t)e->axis[k].stride;
            assert_int_equal(ckpt_io_read(io, element, step, at, NULL), CKPT_OK);
            assert_int_equal(ckpt_sha256_add(sha, element, (size_t)step, NULL), CKPT_OK);
        }
        ckpt_io_close(io);
    }
    assert_int_equal(ckpt_sha256_end(sha, digest, NULL), CKPT_OK);
    ckpt_sha256_hex(digest, hex);
    ckpt_sha256_free(sha);
}

/*
 * Every tensor of a table {name: {dtype, shape, sha256}} is in the map, and nothing else but ties.
 * Names in `dropped` may be absent: transformers leaves tied names out of its files without a word.
 */
static void check_tensors(const ckpt_map *map, const ckpt_value *table, const ckpt_value *dropped)
{
    const ckpt_dict all = ckpt_value_map(table);
    size_t tied = 0, absent = 0;
    char hex[65];

    assert_true(all.n > 0);
    for (size_t i = 0; i < map->tensors.n; i++)
        tied += map->tensors.at[i]->owner ? 1 : 0;
    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_text name = all.at[i].key->as.text;
        size_t at = ckpt_map_index(map, name.at, (size_t)name.n);
        if (at == SIZE_MAX && ckpt_value_get(dropped, name.at)) {
            absent++;
            continue;
        }
        if (at == SIZE_MAX)
            fail_msg("%s is not there", name.at);
        const ckpt_tensor *t = map->tensors.at[at];
        const ckpt_value *dtype = ckpt_value_get(all.at[i].value, "dtype");
        const ckpt_seq shape = ckpt_value_seq(ckpt_value_get(all.at[i].value, "shape"));
        // one table says float32, another F32
        bool ours = ckpt_value_is(dtype, ckpt_dtype_name(t->dtype));
        assert_true(ours || ckpt_value_is(dtype, ckpt_dtype_get(t->dtype)->torch));
        assert_int_equal(t->ndim, shape.n);
        for (uint32_t k = 0; k < t->ndim; k++) {
            bool pairs =
                t->dtype == CKPT_F4 && k + 1 == t->ndim; // torch counts two elements as one
            assert_int_equal(t->shape[k], (uint64_t)shape.at[k]->as.i * (pairs ? 2 : 1));
        }
        hash_tensor(map, t, hex);
        if (!ckpt_value_is(ckpt_value_get(all.at[i].value, "sha256"), hex))
            fail_msg("%s: its values differ", name.at);
    }
    assert_in_range(all.n - absent, map->tensors.n - tied, map->tensors.n);
}

static void fixtures(void **state)
{
    static const struct {
        const char *folder, *sub, *table;
        bool torch;
    } cases[] = {
        {"hf_bert_sharded", "", "tensors", false},
        {"hf_llama_bf16_sharded", "", "tensors", false},
        {"hf_llama_single", "", "tensors", false},
        {"safetensors_dtypes", "", "tensors", false},
        {"peft_lora", "/adapter", "adapter", false},
        {"peft_lora", "/base", "base", false},
        {"old_hf_bert_bin", "", "tensors", true},
        {"old_hf_gpt2_half_bin", "", "tensors", true},
        {"peft_lora", "/adapter_bin", "adapter", true},
    };
    const char *shared = getenv("CKPT_SHARED");

    (void)state;
    if (!shared)
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_arena *a = ckpt_arena_new(0);
        ckpt_map *map = NULL;
        ckpt_err err = {0};
        char path[4096];
        if (cases[i].torch && !ckpt_driver_find("torch")) {
            ckpt_arena_free(a);
            continue;
        }
        snprintf(path, sizeof path, "%s/fixtures/%s/expected.json", shared, cases[i].folder);
        const ckpt_value *expected = load_json(a, path);
        snprintf(path, sizeof path, "%s/fixtures/%s%s", shared, cases[i].folder, cases[i].sub);
        if (gather(&map, path, NULL, false, &err) != CKPT_OK)
            fail_msg("%s", err.text);
        for (size_t k = 0; k < map->findings.n; k++) {
            if (map->findings.at[k].severity != CKPT_INFO)
                fail_msg("%s: %s", path, map->findings.at[k].text);
        }
        check_tensors(map, ckpt_value_get(expected, cases[i].table),
                      ckpt_value_get(expected, "tied"));
        ckpt_map_free(map);
        ckpt_arena_free(a);
    }
}

/* A copy of the corpus may have lost its links: then the files that should be some hold their
 * targets' names. */
static bool lost_links(const char *root)
{
    char path[4200];
    struct stat st;

    snprintf(path, sizeof path, "%s/model-00001-of-00002.safetensors", root);
    return strstr(root, "hf_ok_links") && lstat(path, &st) == 0 && !S_ISLNK(st.st_mode);
}

/* The status of a failure, as the corpus' manifest names its class. */
static const char *class_of(int code)
{
    return code == CKPT_OK                                   ? "ok"
           : code == CKPT_EFORMAT                            ? "malformed"
           : code == CKPT_EUNSAFE                            ? "unsafe"
           : code == CKPT_EMISSING || code == CKPT_EMISMATCH ? "inconsistent"
           : code == CKPT_ELIMIT                             ? "limit"
                                                             : "other";
}

static void corpus(void **state)
{
    const char *shared = getenv("CKPT_SHARED");
    ckpt_arena *a = NULL;
    unsigned seen = 0;
    char path[4096];

    (void)state;
    if (!shared)
        skip();
    a = ckpt_arena_new(0);
    snprintf(path, sizeof path, "%s/bad/manifest.json", shared);
    const ckpt_seq cases = ckpt_value_seq(ckpt_value_get(load_json(a, path), "cases"));
    for (uint64_t i = 0; i < cases.n; i++) {
        const ckpt_value *c = cases.at[i], *root = ckpt_value_get(c, "root");
        ckpt_map *map = NULL;
        ckpt_err err = {0};
        if (!ckpt_value_is(ckpt_value_get(c, "kind"), "hf"))
            continue;
        snprintf(path, sizeof path, "%s/bad/%s/%s", shared, ckpt_value_get(c, "path")->as.text.at,
                 root && root->kind == CKPT_V_STR ? root->as.text.at : "");
        if (lost_links(path))
            continue;
        int rc = gather(&map, path, NULL, false, &err);
        if (!ckpt_value_is(ckpt_value_get(c, "cls"), class_of(rc)))
            fail_msg("%s: %d %s", path, rc, err.text);
        if (rc == CKPT_OK)
            check_tensors(map, ckpt_value_get(c, "tensors"), NULL);
        seen++;
        ckpt_map_free(map);
    }
    assert_true(seen >= 6);
    ckpt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(probes_and_parts),
        cmocka_unit_test(reads_single),
        cmocka_unit_test(reads_shards),
        cmocka_unit_test(refuses_index),
        cmocka_unit_test(collects_problems),
        cmocka_unit_test(warns),
        cmocka_unit_test(total_size_forms),
        cmocka_unit_test(chooses),
        cmocka_unit_test(follows_links),
        cmocka_unit_test(reading_runs_out_of_memory),
        cmocka_unit_test(fixtures),
        cmocka_unit_test(corpus),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
