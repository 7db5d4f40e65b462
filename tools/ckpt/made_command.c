/* SPDX-License-Identifier: Apache-2.0 */
/* made_command.c: makes and prints the command that makes a checkpoint. */
#include "tools/ckpt/made_command.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt_extra.h"
#include "tools/cli/out.h"

/* ---- words ---- */

bool made_command_word(made_command *c, const char *word)
{
    char **w = ckpt_vec_push(c);

    if (!w)
        return false;
    *w = strdup(word);
    return *w != NULL;
}

bool made_command_option(made_command *c, const char *name, const char *value)
{
    char word[64];

    (void)snprintf(word, sizeof word, "--%s", name);
    return made_command_word(c, word) && (!value || made_command_word(c, value));
}

static bool mcm_listed(const char *list, const char *name)
{
    const char *at = strstr(list, name);
    size_t n = strlen(name);

    while (at && !(at > list && at[-1] == ' ' && at[n] == ' '))
        at = strstr(at + 1, name);
    return at != NULL;
}

bool made_command_given(made_command *c, const cli_line *line, const char *but)
{
    const cli_option *o;
    bool ok = true;

    for (size_t i = 0; ok && (o = &line->verb->options[i])->name; i++) {
        if (!line->given[i] || mcm_listed(but, o->name))
            continue;
        if (o->kind != CLI_LIST && o->kind != CLI_SOURCES) {
            ok = made_command_option(c, o->name, line->said[i]);
            continue;
        }
        cli_list list;
        memcpy(&list, (const char *)line->values + o->at, sizeof list);
        for (size_t k = 0; ok && k < list.n; k++)
            ok = made_command_option(c, o->name, list.at[k]);
    }
    return ok;
}

/* Print a word in quotes if a shell needs them. */
static void mcm_quoted(const char *word)
{
    bool plain = *word != 0;

    for (const char *s = word; *s; s++)
        plain = plain && (isalnum((unsigned char)*s) || strchr("_-./:=,+@%^", *s));
    if (plain) {
        out_printf("%s", word);
        return;
    }
    out_printf("'");
    for (const char *s = word; *s;) {
        char part[512];
        size_t n = strcspn(s, "'");

        n = n < sizeof part ? n : sizeof part - 1;
        memcpy(part, s, n);
        part[n] = 0;
        out_text(part);
        s += n;
        if (*s == '\'') {
            out_printf("'\\''");
            s++;
        }
    }
    out_printf("'");
}

void made_command_text(const made_command *c)
{
    for (size_t i = 0; i < c->n; i++) {
        out_printf("%s", i ? " " : "");
        mcm_quoted(c->at[i]);
    }
    out_printf("\n");
}

void made_command_json(json_out *j, const char *key, const made_command *c)
{
    json_open_flat(j, key, '[');
    for (size_t i = 0; i < c->n; i++)
        json_text(j, NULL, c->at[i]);
    json_close(j, ']');
}

void made_command_free(made_command *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->at[i]);
    ckpt_vec_free(c);
}

/* ---- what a checkpoint tells ---- */

int made_format(const char **format, const ckpt_map *made, ckpt_err *err)
{
    static const char *const same[][2] = {{"deepspeed", "zero"},
                                          {"torch-legacy", "torch"},
                                          {"gguf-split", "gguf"},
                                          {"diffusers", "hf"}};
    const char *first = ckpt_map_file_path(made, 0);
    const ckpt_value *kind = ckpt_value_find(ckpt_map_values(made), "general.type");
    const char *text = NULL;
    uint64_t n_text = 0;
    size_t n = first ? strlen(first) : 0;

    *format = ckpt_map_format(made);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        *format = strcmp(*format, same[i][0]) == 0 ? same[i][1] : *format;
    if (strcmp(*format, "gguf") == 0 && kind && ckpt_value_to_text(kind, &text, &n_text) &&
        n_text == 6 && memcmp(text, "mmproj", 6) == 0)
        *format = "mmproj";
    if (strcmp(ckpt_map_format(made), "hf") == 0 && n > 4 && strcmp(first + n - 4, ".bin") == 0)
        *format = "hf-bin";
    // a target cut into ranks has no tensors of the model to compare
    if (strcmp(*format, "megatron") == 0 && first && strstr(first, "/mp_rank_"))
        return fail(err, CKPT_EUNSUPPORTED,
                    "%s: a file for each rank, which --made-from does not compare; ckpt diff "
                    "compares it with its source",
                    ckpt_map_path(made));
    if (ckpt_format_caps(*format) & CKPT_CAN_WRITE)
        return CKPT_OK;
    return fail(err, CKPT_EUNSUPPORTED,
                "%s: ckpt does not write format %s, so no command of it makes this checkpoint",
                ckpt_map_path(made), ckpt_map_format(made));
}

unsigned made_world(const ckpt_map *made)
{
    const char *path;
    unsigned n = 0, i;

    for (size_t k = 0; (path = ckpt_map_file_path(made, k)); k++) {
        const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

        if (sscanf(name, "model_world_size_%u_rank", &i) == 1)
            return i;
        // "__RANK_N.distcp" of DCP, "shard-NUMBER-model-..." of hf-sharded
        if (sscanf(name, "__%u_", &i) == 1)
            n = i + 1 > n ? i + 1 : n;
        else if (sscanf(name, "shard-%u-", &i) == 1)
            n = i > n ? i : n;
    }
    return n;
}

/* True for a dtype of floats, those in blocks too. */
static bool mcm_floats(ckpt_dtype d)
{
    return ckpt_dtype_converts(CKPT_F64, d) && ckpt_dtype_converts(d, CKPT_F32);
}

/* The --dtype that general.file_type of a GGUF file means, of llama.cpp's enum llama_ftype. */
static const char *mcm_file_type(const ckpt_map *made)
{
    static const char *const name[] = {
        [0] = "f32",     [1] = "f16",     [2] = "q4_0",    [3] = "q4_1",      [7] = "q8_0",
        [8] = "q5_0",    [9] = "q5_1",    [10] = "q2_k",   [11] = "q3_k_s",   [12] = "q3_k_m",
        [13] = "q3_k_l", [14] = "q4_k_s", [15] = "q4_k_m", [16] = "q5_k_s",   [17] = "q5_k_m",
        [18] = "q6_k",   [21] = "q2_k_s", [32] = "bf16",   [38] = "mxfp4_moe"};
    int64_t n = -1;

    if (!ckpt_value_to_int(ckpt_value_find(ckpt_map_values(made), "general.file_type"), &n) ||
        n < 0 || n >= (int64_t)(sizeof name / sizeof *name))
        return NULL;
    return name[n];
}

/* The --dtype of a GGUF file. */
static const char *mcm_gguf_dtype(const ckpt_map *made)
{
    // llama.cpp's converter keeps these blocks beside any type that file_type may name
    for (size_t i = 0; i < ckpt_map_tensor_count(made); i++) {
        if (ckpt_map_tensor_at(made, i)->dtype == CKPT_MXFP4)
            return "mxfp4_moe";
    }
    return mcm_file_type(made);
}

const char *made_dtype(const ckpt_map *made)
{
    uint64_t count[CKPT_N_DTYPES] = {0};
    ckpt_dtype most = CKPT_DTYPE_NONE;

    if (strcmp(ckpt_map_format(made), "gguf") == 0)
        return mcm_gguf_dtype(made);
    for (size_t i = 0; i < ckpt_map_tensor_count(made); i++) {
        ckpt_dtype d = ckpt_map_tensor_at(made, i)->dtype;

        if (!mcm_floats(d))
            continue;
        count[d]++;
        most = most == CKPT_DTYPE_NONE || count[d] > count[most] ? d : most;
    }
    // --dtype leaves some tensors of a model in F32, such as the biases of routers; a quantized
    // model is a copy
    if (most == CKPT_DTYPE_NONE || ckpt_map_is_quantized(made))
        return NULL;
    return ckpt_dtype_name(most);
}

/* Append a rule for exactly one name; characters of patterns are escaped. */
static bool mcm_rule(FILE *to, ckpt_dtype dtype, const char *name)
{
    fprintf(to, "%s:", ckpt_dtype_name(dtype));
    for (; *name; name++) {
        if (strchr("*?[\\", *name))
            fputc('\\', to);
        fputc(*name, to);
    }
    return fputc(',', to) != EOF;
}

/* True if --dtype can give a tensor of `from` the dtype that it has in `made`. */
static bool mcm_ruled(const ckpt_tensor *made, const ckpt_map *from)
{
    const ckpt_tensor *t = ckpt_map_find(from, made->name);

    return t && !t->owner && mcm_floats(t->dtype) && mcm_floats(made->dtype) &&
           ckpt_dtype_converts(made->dtype, t->dtype) && !strchr(made->name, ',');
}

char *made_dtypes(const ckpt_map *made, const ckpt_map *from)
{
    uint64_t count[CKPT_N_DTYPES] = {0};
    ckpt_dtype most = CKPT_DTYPE_NONE;
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);

    for (size_t i = 0; to && i < ckpt_map_tensor_count(made); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(made, i);

        count[t->dtype] += mcm_ruled(t, from);
        most = count[t->dtype] > count[most] ? t->dtype : most;
    }
    for (size_t i = 0; to && i < ckpt_map_tensor_count(made); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(made, i);

        if (t->dtype != most && mcm_ruled(t, from))
            (void)mcm_rule(to, t->dtype, t->name);
    }
    if (to && count[most] > 0)
        fprintf(to, "%s", ckpt_dtype_name(most));
    if (!to || fclose(to) != 0 || count[most] == 0) {
        free(text);
        return NULL;
    }
    return text;
}
