/* SPDX-License-Identifier: Apache-2.0 */
/*
 * from_memory.c: write an array in memory as a safetensors file.
 *
 *     ./from_memory OUT.safetensors
 */
#include <stdio.h>

#include <ckpt.h>

int main(int argc, char **argv)
{
    static const float weight[2][3] = {{1, 2, 3}, {4, 5, 6}};
    const uint64_t shape[2] = {2, 3};
    const ckpt_array array = {
        .name = "weight", .dtype = CKPT_F32, .ndim = 2, .shape = shape, .data = weight};
    ckpt_map *map = NULL;
    ckpt_err err = {0};
    int rc = argc == 2 ? ckpt_map_new(&map, "arrays", &err) : CKPT_EUSAGE;

    if (rc == CKPT_OK)
        rc = ckpt_map_put(map, &array, &err);
    if (rc == CKPT_OK) {
        ckpt_target target = {.format = "safetensors", .path = argv[1]};

        rc = ckpt_convert(map, &target, NULL, NULL, &err);
    }
    if (rc == CKPT_OK)
        printf("1 tensor\n");
    else
        fprintf(stderr, "%s\n", err.text[0] ? err.text : ckpt_err_text(rc));
    ckpt_map_free(map);
    return ckpt_err_status(rc);
}
