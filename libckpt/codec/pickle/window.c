/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window.c: holds the part of the pickle that is being read, if the caller fetches its bytes.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/codec/pickle/machine.h"

#define WND_BYTES (256u << 10) /* a window that processor caches hold */

int ckpt_pk_fill(ckpt_pk_machine *m, uint64_t n)
{
    assert(m->from <= m->p.at && m->p.at <= m->pos && m->pos <= m->to);
    const uint64_t kept = m->to - m->p.at; // the current opcode's bytes stay
    uint64_t want, more;
    uint8_t *bigger;
    int rc;

    if (m->to == m->n)
        return CKPT_OK;
    if (!ckpt_add(m->pos - m->p.at, n, &want) || want > SIZE_MAX / 2)
        return ckpt_pk_no_memory(&m->p);
    want = want < WND_BYTES ? WND_BYTES : want;
    if (m->room < want) {
        bigger = ckpt_resize(m->window, (size_t)want);
        if (!bigger)
            return ckpt_pk_no_memory(&m->p);
        m->window = bigger;
        m->room = want;
    }
    memmove(m->window, m->window + (m->p.at - m->from), (size_t)kept);
    m->bytes = m->window;
    m->from = m->p.at;
    more = m->room - kept < m->n - m->to ? m->room - kept : m->n - m->to;
    rc = m->p.opts->fetch(m->p.opts->fetch_ctx, m->window + kept, more, m->to, m->p.err);
    m->to += rc == CKPT_OK ? more : 0;
    return rc;
}
