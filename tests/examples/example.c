/* SPDX-License-Identifier: Apache-2.0 */
/*
 * example.c: open a checkpoint, list and read its tensors, convert it, compare.
 *
 *     cc example.c $(pkg-config --cflags --libs ckpt) -o example
 *     ./example CHECKPOINT TENSOR OUT.safetensors
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <ckpt.h>

static int progress(void *ctx, uint64_t done, uint64_t total)
{
    *(unsigned *)ctx = total ? (unsigned)(100 * done / total) : 100;
    fprintf(stderr, "\r%3u%%", *(unsigned *)ctx);
    return 0; /* anything else cancels */
}

static void list(const ckpt_map *map)
{
    printf("%s: %zu tensors\n", ckpt_map_format(map), ckpt_map_tensor_count(map));
    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);
        printf("%s %s", t->name, ckpt_dtype_name(t->dtype));
        for (uint32_t k = 0; k < t->ndim; k++)
            printf(" %" PRIu64, t->shape[k]);
        printf("\n");
    }
}

/* The mean of all elements, read as float. */
static int print_mean(const ckpt_map *map, const char *name, ckpt_err *err)
{
    const ckpt_tensor *t = ckpt_map_find(map, name);
    float *values = t ? malloc(t->n_elems * sizeof *values) : NULL;
    double sum = 0;

    if (!values) {
        fprintf(stderr, "%s: not a tensor of this checkpoint, or too large\n", name);
        return CKPT_EMISSING;
    }
    int rc = ckpt_tensor_read(map, t, CKPT_F32, values, err);
    for (uint64_t i = 0; rc == CKPT_OK && i < t->n_elems; i++)
        sum += (double)values[i];
    if (rc == CKPT_OK)
        printf("mean %.6f\n", sum / (double)t->n_elems);
    free(values);
    return rc;
}

/* The second row of a matrix, its first three columns, as float. */
static int read_slice(const ckpt_map *map, const char *name, ckpt_err *err)
{
    const ckpt_slice part[2] = {{.start = 1, .count = 1}, {.start = 0, .count = 3}};
    const ckpt_tensor *t = ckpt_map_find(map, name);
    ckpt_reader *reader = NULL;
    float values[3];

    if (!t || t->ndim != 2) {
        fprintf(stderr, "%s: not a matrix of this checkpoint\n", name);
        return CKPT_EMISSING;
    }
    int rc = ckpt_reader_new(&reader, map, err);
    if (rc == CKPT_OK)
        rc = ckpt_reader_read_slice(reader, t, part, CKPT_F32, values, err);
    if (rc == CKPT_OK)
        printf("slice %.6f %.6f %.6f\n", (double)values[0], (double)values[1], (double)values[2]);
    ckpt_reader_free(reader);
    return rc;
}

static int convert(const ckpt_map *map, const char *out, ckpt_err *err)
{
    unsigned percent = 0;
    const ckpt_target target = {.size = sizeof target, .format = "safetensors", .path = out};
    const ckpt_run_opts opts = {
        .size = sizeof opts, .progress = progress, .progress_ctx = &percent};
    ckpt_run_report report = {.size = sizeof report};
    int rc = ckpt_convert(map, &target, &opts, &report, err);

    fprintf(stderr, "\n");
    if (rc == CKPT_OK)
        printf("converted %" PRIu64 " tensors, %" PRIu64 " elements\n", report.n_tensors,
               report.n_elems);
    return rc;
}

static int compare(const ckpt_map *map, const char *out, ckpt_err *err)
{
    ckpt_map *written = NULL;
    int rc = ckpt_open(&written, out, NULL, err);

    if (rc == CKPT_OK)
        rc = ckpt_diff(map, written, NULL, NULL, NULL, err);
    if (rc == CKPT_OK || rc == CKPT_EDIFFERS)
        printf("%s\n", rc == CKPT_OK ? "equal" : "different");
    ckpt_map_free(written);
    return rc;
}

int main(int argc, char **argv)
{
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    if (argc != 4) {
        fprintf(stderr, "usage: example CHECKPOINT TENSOR OUT.safetensors\n");
        return 2;
    }
    int rc = ckpt_open(&map, argv[1], NULL, &err);
    if (rc == CKPT_OK) {
        list(map);
        rc = read_slice(map, argv[2], &err);
    }
    if (rc == CKPT_OK)
        rc = print_mean(map, argv[2], &err);
    if (rc == CKPT_OK)
        rc = convert(map, argv[3], &err);
    if (rc == CKPT_OK)
        rc = compare(map, argv[3], &err);
    if (rc != CKPT_OK && err.text[0])
        fprintf(stderr, "example: %s\n", err.text);
    ckpt_map_free(map);
    return ckpt_err_status(rc);
}
