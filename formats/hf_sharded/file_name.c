/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_name.c: parses the names of the ranks' files.
 */
#include <assert.h>
#include <string.h>

#include "formats/hf_sharded/hf_sharded.h"

/* Parse a number of five digits or more ("%05d"); 0 if there is none. */
static uint32_t hsn_number(const char **text)
{
    const char *p = *text;
    uint64_t n = 0;

    while (*p >= '0' && *p <= '9' && n <= UINT32_MAX)
        n = 10 * n + (uint64_t)(*p++ - '0');
    if (p - *text < 5 || n > UINT32_MAX)
        return 0;
    *text = p;
    return (uint32_t)n;
}

static bool hsn_skip(const char **text, const char *word)
{
    size_t n = strlen(word);
    bool is = strncmp(*text, word, n) == 0;

    *text += is ? n : 0;
    return is;
}

bool ckpt_hfs_parse(const char *name, ckpt_hfs_name *out)
{
    assert(name && out);
    return hsn_skip(&name, "shard-") && (out->rank = hsn_number(&name)) > 0 &&
           hsn_skip(&name, "-model-") && (out->file = hsn_number(&name)) > 0 &&
           hsn_skip(&name, "-of-") && (out->of = hsn_number(&name)) >= out->file &&
           strcmp(name, ".safetensors") == 0;
}
