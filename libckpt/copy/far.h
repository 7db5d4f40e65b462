/* SPDX-License-Identifier: Apache-2.0 */
/*
 * far.h: reading files for other processes of the team (io.h has what reads through them).
 */
#ifndef CKPT_COPY_FAR_H
#define CKPT_COPY_FAR_H

#include "libckpt/copy/team.h"

/* What answers the questions of a team (ckpt_team_answer_fn): openings and reads of files. */
int ckpt_far_answer(const ckpt_letter *question, ckpt_bytes *answer, ckpt_err *err);

#endif
