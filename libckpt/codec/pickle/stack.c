/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stack.c: implements the stack of the pickle machine, its marks, and the memo.
 */
#include <assert.h>
#include <inttypes.h>

#include "libckpt/codec/pickle/machine.h"

#define PK_ENTRIES_MAX (8u << 20) /* limit of the stack, and of the memo of a small pickle */
#define PK_MEMO_BYTES  4u         /* bytes of a larger pickle for each entry of its memo */
#define PK_MEMO_GAP    256u       /* a memo number may be this far beyond the number of entries */

int ckpt_pk_short(const ckpt_pk_machine *m)
{
    return ckpt_pk_fail(&m->p, CKPT_EFORMAT, "an opcode takes a value from an empty stack");
}

int ckpt_pk_push(ckpt_pk_machine *m, ckpt_value *v)
{
    assert(m);
    ckpt_value **top;

    if (!v) {
        return CKPT_ELIMIT; // the function that failed has recorded the error
    }
    top = m->stack.n < PK_ENTRIES_MAX ? ckpt_vec_push(&m->stack) : NULL;
    if (!top)
        return ckpt_pk_fail(&m->p, CKPT_ELIMIT, "a stack of more than 8388608 values");
    *top = v;
    return CKPT_OK;
}

/* Number of values above the last MARK: only those can be popped one by one. */
size_t ckpt_pk_height(const ckpt_pk_machine *m)
{
    return m->stack.n - (m->marks.n > 0 ? m->marks.at[m->marks.n - 1] : 0);
}

int ckpt_pk_pop(ckpt_pk_machine *m, ckpt_value **out)
{
    assert(out);
    *out = NULL;
    if (ckpt_pk_height(m) == 0)
        return ckpt_pk_short(m);
    *out = m->stack.at[--m->stack.n];
    return CKPT_OK;
}

int ckpt_pk_peek(const ckpt_pk_machine *m, ckpt_value **out)
{
    assert(out);
    *out = NULL;
    if (ckpt_pk_height(m) == 0)
        return ckpt_pk_short(m);
    *out = m->stack.at[m->stack.n - 1];
    return CKPT_OK;
}

/* Remove all values above the last MARK and the MARK; `out` is valid until the next push. */
int ckpt_pk_take(ckpt_pk_machine *m, ckpt_seq *out)
{
    assert(out);
    size_t from;

    *out = (ckpt_seq){0};
    if (m->marks.n == 0)
        return ckpt_pk_fail(&m->p, CKPT_EFORMAT, "an opcode needs a MARK, but the stack has none");
    from = m->marks.at[--m->marks.n];
    out->at = m->stack.at ? m->stack.at + from : NULL;
    out->n = m->stack.n - from;
    m->stack.n = from;
    return CKPT_OK;
}

/*
 * Limit of the memo's entries.  It grows with the file, because a pickle of a million objects
 * stores each of their parts: one entry in ten bytes.
 */
static uint64_t sk_memo_max(const ckpt_pk_machine *m)
{
    return m->n / PK_MEMO_BYTES > PK_ENTRIES_MAX ? m->n / PK_MEMO_BYTES : PK_ENTRIES_MAX;
}

int ckpt_pk_remember(ckpt_pk_machine *m, uint64_t number)
{
    ckpt_value *v;
    int rc = ckpt_pk_peek(m, &v);

    if (rc != CKPT_OK)
        return rc;
    if (number > m->n_memo + PK_MEMO_GAP || number >= sk_memo_max(m))
        return ckpt_pk_fail(&m->p, CKPT_ELIMIT,
                            "memo index %" PRIu64 " is too large for a memo of %" PRIu64 " entries",
                            number, m->n_memo);
    while (m->memo.n <= number) {
        if (ckpt_vec_push(&m->memo) == NULL)
            return ckpt_pk_fail(&m->p, CKPT_ELIMIT, "out of memory");
    }
    m->n_memo += !m->memo.at[number];
    m->memo.at[number] = v;
    return CKPT_OK;
}

int ckpt_pk_recall(ckpt_pk_machine *m, uint64_t number)
{
    if (number >= m->memo.n || !m->memo.at[number])
        return ckpt_pk_fail(&m->p, CKPT_EFORMAT,
                            "the pickle reads memo entry %" PRIu64 ", which was never written",
                            number);
    ckpt_pk_take_share(m, m->memo.at[number]);
    return ckpt_pk_push(m, m->memo.at[number]);
}
