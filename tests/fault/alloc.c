/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc.c: fail every allocation of one conversion once.
 *
 *     fault_alloc CHECKPOINT FORMAT TARGET
 *
 * Each run must end in CKPT_ELIMIT and leave nothing; the first run in which no allocation fails
 * must succeed.  Under AddressSanitizer this also shows that no failure path leaks.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/mem.h"
#include "libckpt/include/ckpt.h"

static int convert(const char *from, const char *format, const char *path, ckpt_err *err)
{
    bool zero = strcmp(format, "zero") == 0, folder = strncmp(format, "hf", 2) == 0,
         ranks = strcmp(format, "hf-sharded") == 0, megatron = strcmp(format, "megatron") == 0;
    const ckpt_open_opts open = {.whole_checkpoint = true, .with_optimizer = zero || megatron};
    const ckpt_target target = {.format = format,
                                .path = path,
                                .max_shard_size = folder ? 400 : 0,
                                .stage = zero ? 3 : 0,
                                .world = zero || ranks || megatron ? 2 : 0};
    const ckpt_run_opts run = {.jobs = 1, .skip_fsync = true};
    ckpt_run_report report;
    ckpt_map *map = NULL;
    int rc = ckpt_open(&map, from, &open, err);

    if (rc == CKPT_OK)
        rc = ckpt_convert(map, &target, &run, &report, err);
    ckpt_map_free(map);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    // beyond the first thousands of near equal ones a coarser step keeps this short
    for (uint64_t n = 0; n < UINT64_C(10000000); n += 1 + n / 400) {
        ckpt_err err = {0};

        ckpt_alloc_fail_at(n);
        int rc = convert(argv[1], argv[2], argv[3], &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc == CKPT_OK) {
            printf("every allocation failed once, up to number %llu\n", (unsigned long long)n);
            return n > 50 ? 0 : 1;
        }
        if (rc != CKPT_ELIMIT || err.code != CKPT_ELIMIT || strlen(err.text) < 5) {
            printf("allocation %llu: code %d: %s\n", (unsigned long long)n, rc, err.text);
            return 1;
        }
        if (access(argv[3], F_OK) == 0) {
            printf("allocation %llu: left %s behind\n", (unsigned long long)n, argv[3]);
            return 1;
        }
    }
    return 1;
}
