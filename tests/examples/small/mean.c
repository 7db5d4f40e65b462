/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mean.c: print the mean of each tensor of floats.
 *
 *     ./mean CHECKPOINT
 */
#include <stdio.h>
#include <stdlib.h>

#include <ckpt.h>

static int print_mean(const ckpt_map *map, const ckpt_tensor *t, ckpt_err *err)
{
    float *x = malloc(t->n_elems * sizeof *x);
    double sum = 0;

    if (!x)
        return CKPT_ELIMIT;
    int rc = ckpt_tensor_read(map, t, CKPT_F32, x, err);
    for (uint64_t i = 0; rc == CKPT_OK && i < t->n_elems; i++)
        sum += (double)x[i];
    if (rc == CKPT_OK)
        printf("%s %.6f\n", t->name, sum / (double)t->n_elems);
    free(x);
    return rc;
}

int main(int argc, char **argv)
{
    ckpt_map *map = NULL;
    ckpt_err err = {0};
    int rc = argc == 2 ? ckpt_open(&map, argv[1], NULL, &err) : CKPT_EUSAGE;

    for (size_t i = 0; rc == CKPT_OK && i < ckpt_map_tensor_count(map); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);

        if (t->n_elems > 0 && (t->dtype == CKPT_F32 || t->dtype == CKPT_BF16))
            rc = print_mean(map, t, &err);
    }
    if (rc != CKPT_OK)
        fprintf(stderr, "%s\n", err.text[0] ? err.text : ckpt_err_text(rc));
    ckpt_map_free(map);
    return ckpt_err_status(rc);
}
