/* SPDX-License-Identifier: Apache-2.0 */
/* fields.c: reads values of tokenizer.json. */
#include "engine/tokenizer/inside.h"

bool tz_flag(const ckpt_value *v, const char *key, bool absent)
{
    const ckpt_value *flag = ckpt_value_get(v, key);

    return flag && flag->kind == CKPT_V_BOOL ? flag->as.i != 0 : absent;
}

const char *tz_said(const ckpt_value *v)
{
    return !v ? "without a type" : v->kind == CKPT_V_STR ? v->as.text.at : "that is no text";
}
