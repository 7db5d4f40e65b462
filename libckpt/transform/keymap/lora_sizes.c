/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lora_sizes.c: compares the sizes of an adapter's matrices with those that a configuration states.
 *
 * The matrices have the names that they have while a map is applied (lora.c).
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/number.h"
#include "libckpt/transform/keymap/instance.h"

/* An integer of the configuration, at least 1; 0: it has none. */
static uint64_t rls_fact(const ckpt_rm_facts *f, const char *key)
{
    const ckpt_value *v = ckpt_rm_fact(f, key);
    int64_t n = 0;

    return v && ckpt_value_as_int(v, &n) && n > 0 ? (uint64_t)n : 0;
}

/* The number of a tensor's layer; false: its name has none. */
static bool rls_layer(const char *name, uint64_t *layer)
{
    static const char *const before[] = {"layers.", "blk.", ".h.", NULL};

    for (size_t i = 0; before[i]; i++) {
        const char *at = strstr(name, before[i]);
        const char *end = at ? ckpt_scan_u64(at + strlen(before[i]), layer) : NULL;

        if (end && *end == '.')
            return true;
    }
    return false;
}

/* True if a name ends with one of two texts. */
static bool rls_ends(const char *name, const char *a, const char *b)
{
    const size_t n = strlen(name), na = strlen(a), nb = strlen(b);

    return (n > na && strcmp(name + n - na, a) == 0) || (n > nb && strcmp(name + n - nb, b) == 0);
}

/* The key of the configuration that a matrix B contradicts by its rows; NULL: none. */
static const char *rls_other_rows(const ckpt_rm_facts *f, const ckpt_tensor *t)
{
    const uint64_t heads = rls_fact(f, "num_attention_heads"), hidden = rls_fact(f, "hidden_size");
    const uint64_t kv = rls_fact(f, "num_key_value_heads"), given = rls_fact(f, "head_dim");
    const uint64_t width = given ? given : heads && hidden ? hidden / heads : 0;
    const uint64_t inner = rls_fact(f, "intermediate_size"), rows = t->shape[0];

    if (rls_ends(t->name, "self_attn.k_proj.weight", "attn_k.weight") && kv && width &&
        rows != kv * width)
        return "num_key_value_heads";
    // experts, and dense layers beside them, have sizes of their own
    if (rls_ends(t->name, "mlp.gate_proj.weight", "ffn_gate.weight") && inner && rows != inner &&
        rows != rls_fact(f, "intermediate_size_mlp") &&
        rows != rls_fact(f, "moe_intermediate_size"))
        return "intermediate_size";
    return NULL;
}

int ckpt_rm_lora_sizes(const ckpt_map *map, const ckpt_rm_facts *f, ckpt_err *err)
{
    assert(map && f);
    const uint64_t layers = rls_fact(f, "num_hidden_layers");
    const uint64_t more = rls_fact(f, "num_nextn_predict_layers");

    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        const char *name = strchr(t->name, '/');
        const bool b = strncmp(t->name, "lora_b/", strlen("lora_b/")) == 0 && t->ndim == 2;
        uint64_t layer = 0;
        const char *key = b ? rls_other_rows(f, t)
                          : layers && rls_layer(t->name, &layer) && layer >= layers + more
                              ? "num_hidden_layers"
                              : NULL;

        if (key)
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "config.json has %s %" PRIu64 ", which does not fit the adapter's "
                             "%.200s: it belongs to another model",
                             key, rls_fact(f, key), name ? name + 1 : t->name);
    }
    return CKPT_OK;
}
