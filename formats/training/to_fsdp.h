/* SPDX-License-Identifier: Apache-2.0 */
/*
 * to_fsdp.h: declares the steps that writers for FSDP share: checking the source, reporting what is
 * dropped, and dividing tensors into ranks.
 */
#ifndef CKPT_FORMATS_TRAINING_TO_FSDP_H
#define CKPT_FORMATS_TRAINING_TO_FSDP_H

#include "formats/training/write_job.h"

/*
 * Begin an FSDP output: refuse a source that FSDP's files cannot hold, report values that are left
 * out, and set the folder's name and to->claim, which the check after writing compares with the
 * output.
 *
 * job     job->state is set; NULL if only weights are written
 * ranks   out: the number of ranks, from the target or else the source
 * Errors  CKPT_EUSAGE: an option that only DeepSpeed has; CKPT_EUNSUPPORTED: several model-parallel
 *         ranks
 */
int ckpt_train_fsdp_begin(struct ckpt_train_job *job, uint32_t *ranks);

enum { CKPT_TRAIN_RANKS = 65536 }; /* largest number of output ranks */

/*
 * Compute a rank's rows of a tensor under FSDP2 (torch.chunk): ceil(rows / ranks) per rank, so the
 * last ranks may have fewer rows or none.
 *
 * start    out: the first row; `rows` if the rank has none
 * Returns  the number of rows
 */
uint64_t ckpt_train_fsdp_rows(uint64_t rows, uint32_t ranks, uint32_t rank, uint64_t *start);

/* The dtype in which a tensor is written. */
ckpt_dtype ckpt_train_written(const ckpt_target *target, const ckpt_tensor *t);

#endif
