/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_job.c: reports values that the target of a writer cannot store, and refuses objects of
 * unknown classes until the user decides.
 */
#include "formats/training/write_job.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch/tree.h"

int ckpt_train_note_once(const ckpt_train_job *job, ckpt_severity severity, const char *head,
                         const char *text)
{
    size_t n = strlen(head);

    for (size_t i = 0; i < job->to->findings.n; i++) {
        const char *said = job->to->findings.at[i].text;
        if (strncmp(said, head, n) == 0 && strcmp(said + n, text) == 0)
            return CKPT_OK;
    }
    return ckpt_map_note(job->to, severity, job->err, "%s%s", head, text);
}

int ckpt_train_left_out(const ckpt_train_job *job, ckpt_severity severity, const char *fmt, ...)
{
    assert(job && fmt);
    char text[512];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return ckpt_train_note_once(job, severity, "left out: ", text);
}

const ckpt_value *ckpt_train_wrapped(const ckpt_state *state)
{
    assert(state);
    static const char *const key[] = {"base_optimizer_state", "optimizer_state_dict"};
    const ckpt_value *of = ckpt_value_get(state->optim, "optimizer_state_dict"), *v = NULL;

    of = of ? of : ckpt_value_get(state->model, "optimizer");
    for (size_t i = 0; !v && i < sizeof key / sizeof *key; i++)
        v = ckpt_value_get(of, key[i]);
    return v;
}

bool ckpt_train_wrapped_own(const ckpt_pair *p)
{
    assert(p && p->key);
    return p->key->kind == CKPT_V_STR && !ckpt_value_is(p->key, "state") &&
           !ckpt_value_is(p->key, "param_groups");
}

int ckpt_train_wrapped_left(const ckpt_train_job *job)
{
    assert(job && job->state);
    ckpt_dict all = ckpt_value_map(ckpt_train_wrapped(job->state));
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        if (ckpt_train_wrapped_own(&all.at[i]))
            rc = ckpt_train_left_out(job, CKPT_WARNING,
                                     "optimizer_state_dict.%.200s: the optimizer's own value, for "
                                     "which the format has no place",
                                     all.at[i].key->as.text.at);
    }
    return rc;
}

int ckpt_train_objects(const ckpt_train_job *job, const ckpt_ranked *own)
{
    ckpt_value *names = ckpt_value_new(job->to->arena, CKPT_V_LIST);
    const char *all = "";
    int rc = names ? CKPT_OK : ckpt_fail_memory(job->err);

    if (rc == CKPT_OK && job->state->model)
        rc = ckpt_tt_unknown(job->state->model, names, job->to->arena, job->err);
    if (rc == CKPT_OK && job->state->optim)
        rc = ckpt_tt_unknown(job->state->optim, names, job->to->arena, job->err);
    for (const ckpt_ranked *r = own; r; r = r->next) {
        for (uint32_t i = 0; rc == CKPT_OK && r->at && i < job->state->world; i++)
            rc = r->at[i] ? ckpt_tt_unknown(r->at[i], names, job->to->arena, job->err) : rc;
    }
    if (rc != CKPT_OK || names->as.seq.n == 0)
        return rc;
    job->to->effects |= CKPT_USED_OBJECTS;
    if (job->target->keep_objects || job->target->drop_objects)
        return CKPT_OK;
    for (uint64_t i = 0; all && i < names->as.seq.n; i++)
        all = ckpt_arena_printf(job->to->arena, "%s%s%s", all, i ? ", " : "",
                                names->as.seq.at[i]->as.text.at);
    if (!all)
        return ckpt_fail_memory(job->err);
    return ckpt_fail(job->err, CKPT_EUNSAFE,
                     "%s: holds objects of classes that are not known to be plain data: %.300s; "
                     "--keep-objects writes them back as they are, --drop-objects leaves them out",
                     job->from->path, all);
}
