/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h: universal_checkpoint_info: which rule joins the tensor-parallel slices of which
 * parameter.
 *
 * The dict that Megatron-DeepSpeed and AutoTP put into model files, or the same keys as JSON from
 * the user.  Patterns are Python regular expressions tried with re.match (anchored at the start
 * only), matched by PCRE2 under limits: they are as untrusted as the rest of the file.
 */
#ifndef CKPT_FORMATS_UNI_RULES_H
#define CKPT_FORMATS_UNI_RULES_H

#include "libckpt/map/slices.h"

typedef struct ckpt_uni_rules ckpt_uni_rules;

/*
 * Read the rules.
 *
 * info     universal_checkpoint_info as the pickle or JSON has it (DICT); NULL: no rules,
 *          everything is joined along axis 0, which is only right where there is one slice.
 *          Borrowed: must outlive the rules.
 * Errors   CKPT_EFORMAT: a value of another kind than documented; CKPT_EUNSUPPORTED: a pattern
 *          PCRE2 does not accept or that would mean something else to it than to Python, an affine
 *          map of a later version; CKPT_ELIMIT: more or longer patterns than anyone writes
 */
int ckpt_uni_rules_new(ckpt_uni_rules **out, const ckpt_value *info, ckpt_err *err);

/* The same from JSON text (ckpt_open_opts.slice_rules); what it holds is kept inside. */
int ckpt_uni_rules_parse(ckpt_uni_rules **out, const char *text, ckpt_err *err);

/*
 * The rule for a parameter; also marks the patterns that were used.
 *
 * Precedence: autotp_unsupported (refused); affine_map; replicated; average; two sub-parameters;
 * sub-parameters; else joined along axis 1 (row parallel) or 0.  rule->keep_rows comes on top.
 * What the rule points to lives as long as the rules.
 *
 * Errors   CKPT_EUNSUPPORTED: declared as not convertible (the reason is told), or scaled affine
 *          pieces; CKPT_EFORMAT: two patterns of one list match; CKPT_ELIMIT: a pattern that takes
 *          too long
 */
int ckpt_uni_rules_find(ckpt_uni_rules *rules, const char *name, uint64_t n_name,
                        ckpt_slice_rule *rule, ckpt_err *err);

/*
 * The next listed pattern that matched no parameter so far (affine and pipeline patterns need not),
 * or NULL. *cursor begins as 0.  DeepSpeed's converter stops on them unless --no_strict.
 */
const char *ckpt_uni_rules_unused(const ckpt_uni_rules *rules, size_t *cursor);

/* With all that ckpt_uni_rules_find pointed to. */
void ckpt_uni_rules_free(ckpt_uni_rules *rules); /* NULL is fine */

#endif
