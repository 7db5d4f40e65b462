/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_name.c: parses the names of weight files in Hugging Face folders.
 */
#include <assert.h>
#include <string.h>

#include "formats/hf/hf.h"

typedef struct hfn_family {
    const char *stem, *suffix;
} hfn_family;

/* In the search order of loaders. */
static const hfn_family hfn_families[] = {
    {"model", ".safetensors"},
    {"pytorch_model", ".bin"},
    {"adapter_model", ".safetensors"},
    {"adapter_model", ".bin"},
    {"diffusion_pytorch_model", ".safetensors"},
    {"diffusion_pytorch_model", ".bin"},
};

/* Unlike isdigit, independent of the locale. */
static bool hfn_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Skip a literal text; NULL if it does not match or p is NULL. */
static const char *hfn_skip(const char *p, const char *text)
{
    size_t n = strlen(text);

    return p && strncmp(p, text, n) == 0 ? p + n : NULL;
}

/* Skip five digits or more. */
static const char *hfn_skip_number(const char *p)
{
    const char *q = p;

    while (q && hfn_is_digit(*q))
        q++;
    return q && q - p >= 5 ? q : NULL;
}

/* Skip "." and a variant, which cannot contain '.' or '-'; NULL if it is empty. */
static const char *hfn_skip_variant(const char *p, ckpt_hf_name *out)
{
    size_t n = strcspn(p + 1, ".-");

    if (*p != '.' || n == 0)
        return NULL;
    out->variant = p + 1;
    out->n_variant = n;
    return p + 1 + n;
}

/* Parse the rest of a name after the stem. */
static ckpt_hf_role hfn_rest(const char *rest, const hfn_family *f, ckpt_hf_name *out)
{
    const char *index = hfn_skip(hfn_skip(rest, f->suffix), ".index");

    if (index) {
        const char *end = hfn_skip(index, ".json");
        if (end && *end == '\0')
            return CKPT_HF_INDEX;
        end = hfn_skip(*index ? hfn_skip_variant(index, out) : NULL, ".json");
        return end && *end == '\0' ? CKPT_HF_INDEX : CKPT_HF_OTHER;
    }
    if (strcmp(rest, f->suffix) == 0)
        return CKPT_HF_SINGLE;
    if (*rest == '.')
        rest = hfn_skip_variant(rest, out);
    if (rest && strcmp(rest, f->suffix) == 0)
        return CKPT_HF_SINGLE;
    rest = hfn_skip_number(hfn_skip(rest, "-"));
    rest = hfn_skip_number(hfn_skip(rest, "-of-"));
    return rest && strcmp(rest, f->suffix) == 0 ? CKPT_HF_SHARD : CKPT_HF_OTHER;
}

/*
 * The first family that matches is the only one, because no stem is a prefix of another.
 */
ckpt_hf_name ckpt_hf_parse_name(const char *name)
{
    assert(name);
    for (unsigned i = 0; i < sizeof hfn_families / sizeof *hfn_families; i++) {
        ckpt_hf_name out = {.family = i};
        const char *rest = hfn_skip(name, hfn_families[i].stem);
        if (rest)
            out.role = hfn_rest(rest, &hfn_families[i], &out);
        if (out.role != CKPT_HF_OTHER)
            return out;
    }
    return (ckpt_hf_name){.role = CKPT_HF_OTHER};
}

const char *ckpt_hf_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool ckpt_hf_is_adapter(const ckpt_map *from)
{
    if (from->adapter_config)
        return true;
    for (size_t i = 0; i < from->files.n; i++) {
        ckpt_hf_name n = ckpt_hf_parse_name(ckpt_hf_base(from->files.at[i].path));

        if (n.role == CKPT_HF_OTHER || n.family < CKPT_HF_ADAPTER || n.family > CKPT_HF_ADAPTER + 1)
            return false;
    }
    return from->files.n > 0;
}
