/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deadline.c: convert a checkpoint to safetensors with progress, and give up after some seconds.
 *
 *     ./deadline CHECKPOINT OUT.safetensors SECONDS
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <ckpt.h>

/* The library calls this in one thread at a time; a non-zero return cancels the run. */
static int on_progress(void *ctx, uint64_t done, uint64_t total)
{
    const time_t *end = ctx;

    fprintf(stderr, "\r%3.0f %%", total > 0 ? 100.0 * (double)done / (double)total : 100.0);
    return time(NULL) >= *end;
}

int main(int argc, char **argv)
{
    time_t end = time(NULL) + (argc == 4 ? strtol(argv[3], NULL, 10) : 0);
    const ckpt_run_opts opts = {.progress = on_progress, .progress_ctx = &end};
    ckpt_run_report report = {.size = sizeof report};
    ckpt_map *map = NULL;
    ckpt_err err = {0};
    int rc = argc == 4 ? ckpt_open(&map, argv[1], NULL, &err) : CKPT_EUSAGE;

    if (rc == CKPT_OK) {
        const ckpt_target target = {.format = "safetensors", .path = argv[2]};

        rc = ckpt_convert(map, &target, &opts, &report, &err);
        fputc('\n', stderr);
    }
    if (rc == CKPT_OK)
        printf("%" PRIu64 " bytes in %" PRIu64 " tensors\n", report.n_written, report.n_tensors);
    else if (rc == CKPT_ECANCELED)
        fprintf(stderr, "gave up after %s seconds; nothing was written\n", argv[3]);
    else
        fprintf(stderr, "%s\n", err.text[0] ? err.text : ckpt_err_text(rc));
    ckpt_map_free(map);
    return ckpt_err_status(rc);
}
