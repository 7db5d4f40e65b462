/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team_threads.c: computes the number of threads of each process from the processors that all of
 * them may use.
 */
#define _GNU_SOURCE // sched_getaffinity
#include <sched.h>

#include "libckpt/dist/team_inside.h"

void team_see_processors(team_processors *p)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    for (unsigned i = 0; i < 8 * sizeof p->at && i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &set))
            continue;
        p->at[i / 8] |= (uint8_t)(1u << i % 8);
        p->n++;
    }
}

/* The number of threads for the processes of machine `m`, at most `threads`. */
static unsigned team_machine(const team_processors *const *each, const uint32_t *node, unsigned n,
                             uint32_t m, unsigned threads)
{
    uint8_t all[sizeof each[0]->at] = {0};
    unsigned count = 0, here = 0;

    for (unsigned i = 0; i < n; i++) {
        if (node[i] != m)
            continue;
        for (size_t k = 0; k < sizeof all; k++)
            all[k] |= each[i]->at[k];
        threads = each[i]->n < threads ? each[i]->n : threads;
        here++;
    }
    for (size_t k = 0; k < sizeof all; k++)
        count += (unsigned)__builtin_popcount(all[k]);
    return here > 0 && count / here < threads ? count / here : threads;
}

unsigned team_threads(const team_processors *const *each, const uint32_t *node, unsigned n)
{
    unsigned threads = 8;
    uint32_t machines = 0;

    for (unsigned i = 0; i < n; i++)
        machines = node[i] >= machines ? node[i] + 1 : machines;
    for (uint32_t m = 0; m < machines; m++)
        threads = team_machine(each, node, n, m, threads);
    return threads > 0 ? threads : 1;
}
