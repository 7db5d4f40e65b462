/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_convert.c: a folder of any files, made of the input, converted to any format: laid out, its
 * files computed without writing them, and opened again.
 *
 * Input: two bytes that choose the target, options and layout maps; the files (fuzz_run.h).
 */
#include "ckpt_shape.h"
#include "tests/fuzz/fuzz_run.h"

enum {
    MOST_BYTES = 8 << 20, /* of a target's files: sizes in headers may claim much more */
    MOST_TEXT = 64 << 10, /* of a layout map */
    MEMORY = 32 << 20,    /* of the reads */
    OPT_STATE = 1,        /* with the optimizer */
    OPT_DROP = 2,         /* drop objects of unknown classes; else keep them */
    OPT_WORLD = 4,        /* on three ranks */
    OPT_SHARDS = 8,       /* files of at most 4 KB */
    OPT_MAPS = 4          /* two bits from bit 4 on choose layout maps */
};

/* Layout maps that lead from Hugging Face to Megatron's stacked layers. */
static const char *const stacks[][2] = {
    {NULL, NULL},
    {"hf-megatron.map", "megatron-torch_dist.map"},
    {"hf-megatron-gpt2.map", "megatron-torch_dist.map"},
    {"hf-megatron-deepseek.map", "megatron-torch_dist-uneven.map"},
};

/* Parse a layout map of the sources, from whose root the target runs. */
static ckpt_remap *parse(const char *name)
{
    static char text[MOST_TEXT];
    char path[256];
    ckpt_remap *r = NULL;
    FILE *f;
    size_t n;

    (void)snprintf(path, sizeof path, "tools/share/maps/%s", name);
    f = fopen(path, "rb");
    fuzz_require(f);
    n = fread(text, 1, sizeof text - 1, f);
    fuzz_require(n > 0 && n < sizeof text - 1 && fclose(f) == 0);
    text[n] = '\0';
    fuzz_require(ckpt_remap_new(&r, name, text, NULL) == CKPT_OK);
    return r;
}

static int told(int rc, const ckpt_err *err)
{
    return rc == CKPT_OK || (err->code == rc && err->text[0] != '\0');
}

/* Apply both layout maps of an entry of stacks; grid: to layers apart, for files of ranks. */
static int stack(ckpt_map *map, size_t which, bool grid)
{
    static ckpt_remap *parsed[4][3];
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && which > 0 && i < 2; i++) {
        ckpt_err err = {0};
        size_t k = i + (i == 1 && grid);
        if (!parsed[which][k])
            parsed[which][k] = parse(k < 2 ? stacks[which][k] : "megatron-mp_rank.map");
        rc = ckpt_map_remap(map, parsed[which][k], NULL, &err);
        fuzz_require(told(rc, &err));
    }
    return rc;
}

/* A format that can be written. */
static const char *chosen(uint8_t which)
{
    const char *name[32];
    size_t n = 0;
    const ckpt_format_info *f;

    for (size_t i = 0; (f = ckpt_format_at(i)); i++) {
        if (f->caps & CKPT_CAN_WRITE && n < 32)
            name[n++] = f->name;
    }
    fuzz_require(n > 0);
    // every second input goes to Megatron
    return which % 2 ? "megatron" : name[which / 2 % n];
}

static int take(void *ctx, const void *bytes, size_t n, ckpt_err *err)
{
    (void)err;
    uint64_t *all = ctx;

    fuzz_require(bytes || n == 0);
    *all += n;
    return 0;
}

/* Compute all files of a target; false: a refusal. */
static bool compute(ckpt_view *view)
{
    bool whole = true;

    for (size_t i = 0; whole && i < ckpt_view_file_count(view); i++) {
        ckpt_err err = {0};
        uint64_t n = 0;
        int rc = ckpt_view_stream(view, i, take, &n, &err);
        fuzz_require(told(rc, &err));
        fuzz_require(rc != CKPT_OK || n == ckpt_view_file_size(view, i));
        whole = rc == CKPT_OK;
    }
    return whole;
}

/* Compute the files, and open them as a checkpoint. */
static void view_of(const ckpt_map *from, ckpt_map *to, bool state)
{
    const ckpt_run_opts run = {.memory = MEMORY, .jobs = 1};
    const ckpt_view_opts opts = {.run = &run};
    const ckpt_open_opts open = {.with_optimizer = state};
    ckpt_view *view = NULL;
    ckpt_map *again = NULL;
    ckpt_err err = {0};
    int rc = ckpt_view_new(&view, from, to, &opts, &err);

    fuzz_require(told(rc, &err));
    if (rc == CKPT_OK && compute(view)) {
        rc = ckpt_view_open(&again, view, &open, &err);
        fuzz_require(told(rc, &err));
        fuzz_require(rc != CKPT_OK || ckpt_map_check(again, &err) == CKPT_OK);
    }
    ckpt_map_free(again);
    ckpt_view_free(view);
}

static void convert(const ckpt_map *from, uint8_t format, uint8_t bits)
{
    ckpt_target target = {.format = chosen(format), .path = "out"};
    unsigned caps = ckpt_format_caps(target.format);
    ckpt_map *to = NULL;
    ckpt_err err = {0};
    uint64_t n = 0;
    int rc;

    if (caps & CKPT_WRITES_STATE)
        *(bits & OPT_DROP ? &target.drop_objects : &target.keep_objects) = true;
    if (caps & CKPT_TAKES_WORLD && bits & OPT_WORLD)
        target.world = 3;
    if (caps & CKPT_TAKES_GRID && bits & OPT_WORLD)
        target.tp_size = target.pp_size = 2;
    if (caps & CKPT_TAKES_SHARD_SIZE && bits & OPT_SHARDS)
        target.max_shard_size = 4096;
    rc = ckpt_layout(&to, from, &target, &err);
    fuzz_require(told(rc, &err));
    for (size_t i = 0; rc == CKPT_OK && n <= MOST_BYTES && i < ckpt_map_file_count(to); i++)
        n += ckpt_map_file_size(to, i) < MOST_BYTES ? ckpt_map_file_size(to, i) : MOST_BYTES + 1;
    if (rc == CKPT_OK && n <= MOST_BYTES)
        view_of(from, to, bits & OPT_STATE);
    ckpt_map_free(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[512];
    ckpt_open_opts opts = {0};
    ckpt_map *map = NULL;
    ckpt_err err = {0};
    uint8_t format, bits;
    int rc;

    if (size < 2)
        return 0;
    format = data[0];
    bits = data[1];
    opts.with_optimizer = bits & OPT_STATE;
    opts.training = bits & OPT_STATE;
    unpack(data + 2, size - 2);
    (void)snprintf(path, sizeof path, "%s/run", fuzz_folder());
    rc = ckpt_open(&map, path, &opts, &err);
    fuzz_require(told(rc, &err));
    if (rc == CKPT_OK)
        rc = stack(map, bits >> OPT_MAPS & 3, ckpt_format_caps(chosen(format)) & CKPT_TAKES_GRID);
    if (rc == CKPT_OK)
        convert(map, format, bits);
    ckpt_map_free(map);
    return 0;
}
