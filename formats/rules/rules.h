/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h: declares the rules of universal_checkpoint_info, by which the tensor-parallel slices of
 * a parameter are joined.
 *
 * The rules come from the dict that Megatron-DeepSpeed and AutoTP put into model files, or from the
 * user as JSON with the same keys.  Patterns are Python regular expressions with the semantics of
 * re.match (anchored at the start only).  PCRE2 matches them under limits, because they are as
 * untrusted as the rest of the file.
 */
#ifndef CKPT_FORMATS_UNI_RULES_H
#define CKPT_FORMATS_UNI_RULES_H

#include "libckpt/map/slices.h"

typedef struct ckpt_uni_rules ckpt_uni_rules;

/*
 * Read the rules.
 *
 * info     universal_checkpoint_info from the pickle or from JSON (DICT).  With NULL every
 * parameter
 *          is joined along axis 0, which is only right for a single slice.
 *          Borrowed: must outlive the rules.
 * Errors   CKPT_EFORMAT: a value of another kind than documented; CKPT_EUNSUPPORTED: a pattern that
 *          PCRE2 rejects or would read in another way than Python, or an affine map of a later
 *          version; CKPT_ELIMIT: too many or too long patterns
 */
int ckpt_uni_rules_new(ckpt_uni_rules **out, const ckpt_value *info, ckpt_err *err);

/* Like ckpt_uni_rules_new, from JSON text (ckpt_open_opts.slice_rules); the rules own the
 * values. */
int ckpt_uni_rules_parse(ckpt_uni_rules **out, const char *text, ckpt_err *err);

/*
 * Find the rule for a parameter, and mark its patterns as used.
 *
 * Precedence: autotp_unsupported (refused); affine_map; replicated; average; two sub-parameters;
 * sub-parameters; else joined along axis 1 (row parallel) or 0.  rule->keep_rows applies in
 * addition. Pointers in the rule live as long as the rules.
 *
 * Errors   CKPT_EUNSUPPORTED: declared as not convertible (the message has the reason), or scaled
 *          affine pieces; CKPT_EFORMAT: two patterns of one list match; CKPT_ELIMIT: a pattern that
 *          takes too long
 */
int ckpt_uni_rules_find(ckpt_uni_rules *rules, const char *name, uint64_t n_name,
                        ckpt_slice_rule *rule, ckpt_err *err);

/*
 * The next pattern that matched no parameter, or NULL; affine and pipeline patterns do not count.
 * *cursor begins as 0.  DeepSpeed's converter stops on such a pattern unless --no_strict is given.
 */
const char *ckpt_uni_rules_unused(const ckpt_uni_rules *rules, size_t *cursor);

/* Free the rules and everything that ckpt_uni_rules_find pointed to. */
void ckpt_uni_rules_free(ckpt_uni_rules *rules); /* NULL is fine */

#endif
