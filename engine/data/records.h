/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records.h: declares lines of .jsonl for language models: text, instructions with answers,
 * conversations.  Internal.
 */
#ifndef ZT_DATA_RECORDS_H
#define ZT_DATA_RECORDS_H

#include "engine/data/data.h"
#include "engine/tokenizer/tokenizer.h"

typedef struct zt_records zt_records;

/*
 * Read the settings of the tokenizer's folder: special tokens and the chat template.  The tokenizer
 * must outlive *out; opts is used here only.
 *
 * Errors   CKPT_EFORMAT, CKPT_EIO, CKPT_ELIMIT
 */
int zt_records_new(zt_records **out, zt_tokenizer *t, const zt_data_opts *opts, ckpt_err *err);
void zt_records_free(zt_records *r); /* NULL is fine */

/* The token that ends a document.  Errors CKPT_EMISSING: the folder names none */
int zt_records_end(const zt_records *r, int32_t *end, ckpt_err *err);

typedef enum zt_record_kind {
    ZT_RECORD_NONE, /* an empty line */
    ZT_RECORD_TEXT,
    ZT_RECORD_INSTRUCTION,
    ZT_RECORD_MESSAGES
} zt_record_kind;

typedef struct zt_record {
    zt_record_kind kind;
    ckpt_text text;          /* TEXT */
    const ckpt_value *value; /* the whole record */
} zt_record;

/*
 * Parse a line; the record is valid until the next call.
 * Errors   CKPT_EFORMAT: not JSON, or none of the kinds; CKPT_EUNSUPPORTED: it has members that
 *          change its text and are not read (tools, history); CKPT_ELIMIT
 */
int zt_records_parse(zt_records *r, ckpt_text line, zt_record *out, ckpt_err *err);

/*
 * Call `each` for every member that the kind of a record does not use; those of messages are
 * "messages.NAME".
 */
void zt_records_unused(const zt_record *record, void (*each)(void *ctx, const char *name),
                       void *ctx);

/* Tokens of a record with answers, and a byte for each that is not 0 in answers. */
typedef struct zt_answer {
    zt_ids ids;
    ckpt_bytes trained;
} zt_answer;

/*
 * Encode a record with answers.
 * Errors   CKPT_EUNSUPPORTED: the folder has no chat template that is known; CKPT_EFORMAT,
 *          CKPT_ELIMIT
 */
int zt_records_encode(zt_records *r, const zt_record *record, zt_answer *out, ckpt_err *err);

/*
 * Encode a line as a prompt, for generation: the first that it has of "input_ids", "messages",
 * "prompt", "instruction" (without its answer) and "text".
 *
 * r        NULL: no tokenizer, so only records with "input_ids" can be read
 * Errors   as zt_records_parse and zt_records_encode
 */
int zt_records_prompt(zt_records *r, const ckpt_value *v, zt_ids *out, ckpt_err *err);

#endif
