/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim_dict.c: looks up states and settings of groups in an optimizer_state_dict.
 *
 * The keys are listed in optim.c.
 */
#include <assert.h>

#include "formats/deepspeed/layout/layout.h"

ckpt_value *ckpt_ds_optim_flat(const ckpt_ds_head *head, ckpt_seq list, size_t group,
                               uint32_t interval)
{
    ckpt_value *v = group < list.n ? list.at[group] : NULL;

    if (!head->legacy)
        return v;
    ckpt_seq inner = ckpt_value_seq(v);
    return interval < inner.n ? inner.at[interval] : NULL;
}

const ckpt_value *ckpt_ds_optim_base(const ckpt_ds_head *head, const ckpt_value *optim)
{
    return ckpt_value_get(optim,
                          head->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
}

ckpt_value *ckpt_ds_optim_state(const ckpt_ds_head *head, const ckpt_value *optim, size_t group,
                                uint32_t interval)
{
    const ckpt_value *base = ckpt_ds_optim_base(head, optim);
    ckpt_seq list = ckpt_value_seq(base);

    if (list.n)
        return ckpt_ds_optim_flat(head, list, group, interval);
    ckpt_dict state = ckpt_value_map(ckpt_value_get(base, "state"));
    for (uint64_t i = 0; i < state.n; i++) {
        // keys ascend, so the first look usually finds it
        const ckpt_pair *p = &state.at[(group + i) % state.n];
        if (p->key->kind == CKPT_V_INT && p->key->as.i >= 0 && (uint64_t)p->key->as.i == group)
            return p->value;
    }
    return NULL;
}

ckpt_value *ckpt_ds_optim_entry(const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                                const ckpt_value *optim, size_t group)
{
    assert(head && layout);
    ckpt_seq groups =
        ckpt_value_seq(ckpt_value_get(ckpt_ds_optim_base(head, optim), "param_groups"));

    return groups.n == layout->n_groups && group < groups.n ? groups.at[group] : NULL;
}

const ckpt_value *ckpt_ds_optim_step(const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                                     const ckpt_value *optim, size_t group, bool *own)
{
    ckpt_seq groups =
        ckpt_value_seq(ckpt_value_get(ckpt_ds_optim_base(head, optim), "param_groups"));
    const ckpt_value *v = ckpt_value_get(ckpt_ds_optim_state(head, optim, group, 0), "step");

    // Some optimizers raise a parameter group's count once per sub-group: it can be compared
    // between ranks, but is not the number of steps.
    *own = v != NULL;
    if (!v)
        v = ckpt_value_get(ckpt_ds_optim_entry(head, layout, optim, layout->group.at[group].of),
                           "step");
    if (!v && groups.n == 1)
        v = ckpt_value_get(groups.at[0], "step");
    // Elastic checkpoints keep only the count of param_groups.
    return v ? v : ckpt_value_get(optim, "base_optimizer_state_step");
}

const ckpt_value *ckpt_ds_head_get(const ckpt_ds_head *head, const char *key)
{
    const ckpt_value *v = ckpt_value_get(head->model.root, key);

    return v && v->kind != CKPT_V_NONE ? v : NULL;
}

bool ckpt_ds_is_bf16_optimizer(const ckpt_ds_head *head)
{
    return head->stage == 1 && !head->legacy && !ckpt_value_get(head->optim.optim, "zero_stage");
}
