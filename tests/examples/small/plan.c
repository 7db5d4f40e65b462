/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.c: print the files that a reshard to ZeRO-2 would write, without writing them.
 *
 *     ./plan CHECKPOINT WORLD
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <ckpt.h>

/* Print the files of a target map, then everything that the output changes or leaves out. */
static void print_target(const ckpt_map *to)
{
    uint64_t total = 0;
    int severity;
    const char *text;

    for (size_t i = 0; i < ckpt_map_file_count(to); i++) {
        printf("%s %" PRIu64 "\n", ckpt_map_file_path(to, i), ckpt_map_file_size(to, i));
        total += ckpt_map_file_size(to, i);
    }
    printf("%zu files, %" PRIu64 " bytes\n", ckpt_map_file_count(to), total);
    for (size_t i = 0; ckpt_map_finding_at(to, i, &severity, NULL, &text); i++)
        printf("%s%s\n", severity > 0 ? "warning: " : "", text);
}

int main(int argc, char **argv)
{
    const ckpt_open_opts with_state = {.with_optimizer = true};
    ckpt_map *from = NULL, *to = NULL;
    ckpt_plan *plan = NULL;
    ckpt_err err = {0};
    uint64_t n_read = 0;
    int rc = argc == 3 ? ckpt_open(&from, argv[1], &with_state, &err) : CKPT_EUSAGE;

    if (rc == CKPT_OK) {
        const ckpt_target target = {.format = "zero",
                                    .path = "never-written",
                                    .world = (uint32_t)strtoul(argv[2], NULL, 10),
                                    .stage = 2};

        rc = ckpt_layout(&to, from, &target, &err);
    }
    if (rc == CKPT_OK)
        rc = ckpt_plan_new(&plan, from, to, NULL, &err);
    if (rc == CKPT_OK) {
        print_target(to);
        ckpt_plan_sizes(plan, &n_read, NULL, NULL);
        printf("a run would read %" PRIu64 " bytes of tensors\n", n_read);
    } else {
        fprintf(stderr, "%s\n", err.text[0] ? err.text : ckpt_err_text(rc));
    }
    ckpt_plan_free(plan);
    ckpt_map_free(to);
    ckpt_map_free(from); // the target map and the plan have used it
    return ckpt_err_status(rc);
}
