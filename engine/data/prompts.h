/* SPDX-License-Identifier: Apache-2.0 */
/* prompts.h: declares the prompts of a file, for generation. */
#ifndef ZT_DATA_PROMPTS_H
#define ZT_DATA_PROMPTS_H

#include "engine/model/model.h"
#include "engine/tokenizer/tokenizer.h"

CKPT_VEC(zt_starts, size_t);

typedef struct zt_prompts {
    zt_tokenizer *tokenizer; /* NULL: there is none */
    zt_ids ids;              /* of all prompts, one after the other */
    zt_starts start;         /* of each prompt in ids, and the end */
} zt_prompts;

/*
 * Read prompts: a line of .txt each, or a record of .jsonl (zt_records_prompt).
 *
 * vocab    path of the tokenizer, or NULL
 * room     largest number of tokens of a prompt
 * Errors   CKPT_EFORMAT: the line, and why it is no prompt; CKPT_EMISSING: no file, text without a
 *          tokenizer; CKPT_ELIMIT, CKPT_EIO
 */
int zt_prompts_read(zt_prompts *out, const char *path, const char *vocab,
                    const zt_model_config *model, uint64_t room, ckpt_err *err);
void zt_prompts_free(zt_prompts *p);

static inline size_t zt_prompts_count(const zt_prompts *p)
{
    return p->start.n > 0 ? p->start.n - 1 : 0;
}

static inline size_t zt_prompts_length(const zt_prompts *p, size_t i)
{
    return p->start.at[i + 1] - p->start.at[i];
}

#endif
