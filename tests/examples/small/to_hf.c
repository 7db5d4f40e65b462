/* SPDX-License-Identifier: Apache-2.0 */
/*
 * to_hf.c: convert a checkpoint to a model folder in bf16.
 *
 *     ./to_hf CHECKPOINT FOLDER
 */
#include <inttypes.h>
#include <stdio.h>

#include <ckpt.h>

int main(int argc, char **argv)
{
    ckpt_map *map = NULL;
    ckpt_err err = {0};
    ckpt_run_report report = {.size = sizeof report};
    int rc = argc == 3 ? ckpt_open(&map, argv[1], NULL, &err) : CKPT_EUSAGE;

    if (rc == CKPT_OK) {
        ckpt_target target = {.format = "hf", .path = argv[2], .dtype = CKPT_BF16};

        rc = ckpt_convert(map, &target, NULL, &report, &err);
    }
    if (rc == CKPT_OK)
        printf("%" PRIu64 " tensors\n", report.n_tensors);
    else
        fprintf(stderr, "%s\n", err.text[0] ? err.text : ckpt_err_text(rc));
    ckpt_map_free(map);
    return ckpt_err_status(rc);
}
