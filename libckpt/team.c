/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team.c: joining a team, as the public header has it.
 */
#include "ckpt.h"
#include "libckpt/base/launch.h"
#include "libckpt/copy/far.h"

int ckpt_team_join(const ckpt_mail *mail, unsigned limit, ckpt_err *err)
{
    const ckpt_team_opts opts = {
        .limit = limit, .version = CKPT_VERSION, .answer = ckpt_far_answer};

    if (!mail || mail->size != sizeof *mail || mail->n_ranks == 0 || mail->rank >= mail->n_ranks ||
        ckpt_team_size() > 1)
        return ckpt_fail(err, CKPT_EUSAGE, "no team can be joined with this mail, or twice");
    return mail->n_ranks == 1 ? CKPT_OK : ckpt_team_start(mail, &opts, err);
}

long ckpt_team_launched(void)
{
    return ckpt_launch_size();
}
