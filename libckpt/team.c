/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team.c: implements the public functions for joining a team.
 */
#include "ckpt_extra.h"
#include "libckpt/base/hostfile.h"
#include "libckpt/base/launch.h"
#include "libckpt/io/peer_io.h"

int ckpt_team_join(const ckpt_mail *mail, unsigned limit, ckpt_err *err)
{
    ckpt_err_clear(err);
    const ckpt_team_opts opts = {
        .limit = limit, .version = CKPT_VERSION, .answer = ckpt_far_answer};

    if (!mail || mail->size != sizeof *mail || mail->n_ranks == 0 || mail->rank >= mail->n_ranks ||
        ckpt_team_size() > 1)
        return ckpt_fail(
            err, CKPT_EUSAGE,
            "ckpt_team_join: the ckpt_mail is not valid, or this process has joined already");
    return mail->n_ranks == 1 ? CKPT_OK : ckpt_team_start(mail, &opts, err);
}

/* List the machine of each rank; *n: their number. */
static const char **team_hosts(const ckpt_hosts *all, ckpt_arena *arena, size_t *n, ckpt_err *err)
{
    const char **host;
    size_t ranks = 0;

    for (size_t i = 0; i < all->n; i++)
        ranks += all->at[i].n_slots;
    host = ckpt_arena_array(arena, ranks, sizeof *host);
    if (!host) {
        (void)ckpt_fail_memory(err);
        return NULL;
    }
    *n = 0;
    for (size_t i = 0; i < all->n; i++) {
        for (uint32_t k = 0; k < all->at[i].n_slots; k++)
            host[(*n)++] = all->at[i].name;
    }
    return host;
}

int ckpt_team_hostfile(const char *path, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_arena *arena = ckpt_arena_new(0);
    const char **host = NULL;
    ckpt_hosts all = {0};
    size_t n = 0;
    int rc = CKPT_OK;

    if (!arena)
        rc = ckpt_fail_memory(err);
    else if (!path)
        rc = ckpt_fail(err, CKPT_EUSAGE, "no hostfile is named");
    else
        rc = ckpt_hosts_read(&all, arena, path, err);
    if (rc == CKPT_OK) {
        host = team_hosts(&all, arena, &n, err);
        rc = host ? ckpt_team_spread(host, n, err) : CKPT_ELIMIT;
    }
    ckpt_arena_free(arena);
    return rc;
}

long ckpt_team_launched(void)
{
    return ckpt_launch_size();
}
