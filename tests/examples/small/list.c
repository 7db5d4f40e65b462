/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.c: list the tensors of a checkpoint.
 *
 *     ./list CHECKPOINT
 */
#include <inttypes.h>
#include <stdio.h>

#include <ckpt.h>

int main(int argc, char **argv)
{
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    if (argc != 2 || ckpt_open(&map, argv[1], NULL, &err) != CKPT_OK) {
        fprintf(stderr, "%s\n", argc != 2 ? "usage: list CHECKPOINT" : err.text);
        return argc != 2 ? 2 : ckpt_err_status(err.code);
    }
    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);

        printf("%s %s %" PRIu64 "\n", t->name, ckpt_dtype_name(t->dtype), t->n_elems);
    }
    ckpt_map_free(map);
    return 0;
}
