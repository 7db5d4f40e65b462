/* SPDX-License-Identifier: Apache-2.0 */
/* config_file.c: reads values of a config.json, and makes messages about wrong ones. */
#include "engine/model/config_file.h"

/* Maximum size: tokens and positions are int32. */
#define CO_MAX_SIZE INT32_MAX

const ckpt_value *zt_config_get(const ckpt_value *dict, const char *key)
{
    const ckpt_value *v = ckpt_value_get(dict, key);

    return !v || v->kind == CKPT_V_NONE ? NULL : v;
}

const char *zt_config_kind(const ckpt_value *v)
{
    switch ((int)v->kind) {
    case CKPT_V_NONE:
        return "null";
    case CKPT_V_BOOL:
        return v->as.i != 0 ? "true" : "false";
    case CKPT_V_STR:
        return v->as.text.at;
    case CKPT_V_LIST:
        return "a list";
    case CKPT_V_DICT:
        return "an object";
    default:
        return "a number";
    }
}

bool zt_config_number(const ckpt_value *v, double *out)
{
    *out = v->kind == CKPT_V_FLOAT ? v->as.f : (double)v->as.i;
    return v->kind == CKPT_V_FLOAT || v->kind == CKPT_V_INT;
}

int zt_config_fail(const zt_config_file *f, const char *key, const ckpt_value *v,
                   const char *expected)
{
    char digits[CKPT_VALUE_DIGITS];
    double x;

    if (v->kind == CKPT_V_LONG) {
        (void)ckpt_value_digits(digits, v->as.text);
        return ckpt_fail(f->err, CKPT_EFORMAT, "%s: %s is %.80s; expected %s", f->name, key, digits,
                         expected);
    }
    if (zt_config_number(v, &x))
        return ckpt_fail(f->err, CKPT_EFORMAT, "%s: %s is %.15g; expected %s", f->name, key, x,
                         expected);
    return ckpt_fail(f->err, CKPT_EFORMAT, "%s: %s is %s; expected %s", f->name, key,
                     zt_config_kind(v), expected);
}

int zt_config_size(const zt_config_file *f, const char *key, const ckpt_value *v, uint64_t *out)
{
    if (v->kind != CKPT_V_INT || v->as.i < 1 || v->as.i > CO_MAX_SIZE)
        return zt_config_fail(f, key, v, "a whole number from 1 to 2147483647");
    *out = (uint64_t)v->as.i;
    return CKPT_OK;
}

bool zt_config_idle(const ckpt_value *v)
{
    switch ((int)v->kind) {
    case CKPT_V_NONE:
        return true;
    case CKPT_V_BOOL:
    case CKPT_V_INT:
        return v->as.i == 0;
    case CKPT_V_FLOAT:
        return v->as.f == 0;
    case CKPT_V_STR:
        return v->as.text.n == 0;
    case CKPT_V_LIST:
        return v->as.seq.n == 0;
    case CKPT_V_DICT:
        return v->as.map.n == 0;
    default:
        return false;
    }
}
