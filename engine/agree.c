/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.c: checks before training that all ranks have the same inputs.
 *
 * Ranks on several nodes read their own files.  With a different configuration, model, seed or text
 * on one of them, the run would train and save wrong weights.  Paths may differ, but not the
 * content of the files.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ckpt.h"
#include "engine/inside.h"
#include "engine/save/same.h"
#include "libckpt/codec/json/json.h"

enum { AG_PATH = 512 };

/* Data files up to this size are compared completely. */
static const uint64_t ag_whole = UINT64_C(1) << 30;

/* ---- the configuration ---- */

/* Add a line for each key in v; `path` is the prefix of its keys, with a dot after each part. */
static int ag_config_below(ckpt_bytes *to, const char *path, const ckpt_value *v, ckpt_err *err)
{
    static const ckpt_json_style style = {.flat_lists = true};
    ckpt_dict map = ckpt_value_map(v);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < map.n; i++) {
        const char *key = map.at[i].key->as.text.at;
        char below[AG_PATH];

        (void)snprintf(below, sizeof below, "%s%s.", path, key);
        if (map.at[i].value->kind == CKPT_V_DICT) {
            rc = ag_config_below(to, below, map.at[i].value, err); // recursion is as deep as
                                                                   // zt_config_tree
            continue;
        }
        if (!ckpt_bytes_printf(to, "%s%s of the configuration\t", path, key))
            return ckpt_fail_memory(err);
        rc = ckpt_json_write(to, map.at[i].value, &style, err);
        if (rc == CKPT_OK && !ckpt_bytes_add(to, "\n", 1))
            rc = ckpt_fail_memory(err);
    }
    return rc;
}

/* Add the resolved configuration, one line per key. */
static int ag_config(const zt_engine *e, ckpt_bytes *to, ckpt_err *err)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    const ckpt_value *tree = arena ? zt_config_tree(&e->config, arena) : NULL;
    int rc = tree ? ag_config_below(to, "", tree, err) : ckpt_fail_memory(err);

    ckpt_arena_free(arena);
    if (rc == CKPT_OK &&
        !ckpt_bytes_printf(to, "activation_checkpointing of the configuration\t%d\n",
                           e->config.activation_checkpointing))
        rc = ckpt_fail_memory(err);
    return rc;
}

/* ---- model and data ---- */

/* Add the settings that only OPT, GPT-NeoX and BLOOM have. */
static bool ag_decoder(const zt_model_config *m, ckpt_bytes *to)
{
    return ckpt_bytes_printf(
        to,
        "embedding width of the model\t%" PRIu64 "\nrotated elements of the model's heads\t%" PRIu64
        "\nblocks of the model\t%d %d %d %d %d\n",
        m->embed_width, m->rotated, m->norm_first, m->final_norm, m->parallel, m->fused, m->alibi);
}

/* Add the settings that only some models of Llama's family have. */
static bool ag_llama(const zt_model_config *m, ckpt_bytes *to)
{
    return ckpt_bytes_printf(
        to,
        "norms of the model\t%d %d %d %d %d\nscaled embedding of the model\t%d\n"
        "scores and logits of the model\t%.9g %.9g %.9g\n",
        m->norm_branch, m->norm_once, m->norm_plus_one, m->qk_whole, m->rope_exact, m->embed_scaled,
        (double)m->score_width, (double)m->score_cap, (double)m->logit_cap);
}

/* Add the settings that only T5 has. */
static bool ag_t5(const zt_model_config *m, ckpt_bytes *to)
{
    return ckpt_bytes_printf(
        to,
        "decoder layers of the model\t%" PRIu64 "\nrelative positions of the model\t%" PRIu64
        " %" PRIu64 "\ngate and scale of the model\t%d %d\nfirst token and padding of the model's "
        "targets\t%" PRIu64 " %" PRIu64 "\n",
        m->decoder_layers, m->buckets, m->max_distance, m->gated, m->scale_outputs,
        m->decoder_start, m->decoder_pad);
}

/* Add the base of layers with a window, and the divisors of LongRoPE. */
static bool ag_divisors(const zt_model_config *m, ckpt_bytes *to)
{
    bool ok = ckpt_bytes_printf(to,
                                "rotary positions of the model's windows\t%.17g\n"
                                "divisors of the model's rotary positions\t",
                                m->rope_local);

    for (uint64_t i = 0; ok && m->rope_kind == ZT_ROPE_LONG && i < m->rotated / 2; i++)
        ok = ckpt_bytes_printf(to, "%.17g %.17g ", m->rope_short[i], m->rope_long[i]);
    return ok && ckpt_bytes_printf(to, "\n");
}

/* Add the width of attention windows, and the layers that have one. */
static bool ag_windows(const zt_model_config *m, ckpt_bytes *to)
{
    bool ok = ckpt_bytes_printf(to, "windows of the model\t%" PRIu64, m->window);

    for (uint64_t i = 0; ok && m->slides && i < m->layers; i++)
        ok = !m->slides[i] || ckpt_bytes_printf(to, " %" PRIu64, i);
    return ok && ckpt_bytes_printf(to, "\n");
}

bool zt_agree_model(const zt_model_config *m, ckpt_bytes *to)
{
    return ckpt_bytes_printf(to, "class of the model\t%s\n", m->class_name) &&
           ckpt_bytes_printf(
               to,
               "vocabulary of the model\t%" PRIu64 "\npositions of the model\t%" PRIu64
               "\nwidth of the model\t%" PRIu64 "\nlayers of the model\t%" PRIu64
               "\nheads, key-value heads and head width of the model\t%" PRIu64 " %" PRIu64
               " %" PRIu64 "\ninner width of the model\t%" PRIu64 "\ntypes of the model\t%" PRIu64
               "\nlabels of the model\t%" PRIu64 " %d\n",
               m->vocab, m->positions, m->hidden, m->layers, m->heads, m->kv_heads, m->head_width,
               m->inner, m->types, m->labels, m->multi_label) &&
           ckpt_bytes_printf(
               to,
               "epsilon of the model's norms\t%.9g\ninitial range of the model\t%.9g\n"
               "activation of the model\t%s\ntied embedding of the model\t%d\n"
               "biases of the model\t%d %d %d\nnorms of the model's queries and keys\t%d\n"
               "scaled attention of the model\t%d %d\npadding of the model\t%" PRId64 "\n",
               (double)m->norm_eps, (double)m->init_range, zt_act_name(m->act), m->tied,
               m->attention_bias, m->output_bias, m->mlp_bias, m->qk_norm, m->scale_attention,
               m->scale_by_layer, m->padding) &&
           ag_windows(m, to) && ag_decoder(m, to) && ag_llama(m, to) && ag_t5(m, to) &&
           ag_divisors(m, to) &&
           ckpt_bytes_printf(to,
                             "rotary positions of the model\t%.17g %d %.17g %.17g %.17g "
                             "%.17g\ndropout rates of the model\t%.9g %.9g %.9g %.9g\n",
                             m->rope_theta, (int)m->rope_kind, m->rope_factor, m->rope_low,
                             m->rope_high, m->rope_old, (double)m->dropout_embed,
                             (double)m->dropout_attention, (double)m->dropout_hidden,
                             (double)m->dropout_classifier);
}

/* Add a data file: its content, and the shape of the batches made from it. */
static int ag_data(const zt_data *d, const char *option, const char *path, ckpt_bytes *to,
                   ckpt_err *err)
{
    uint64_t batch = 0, seq = 0;
    char name[64];
    const char *class_name;
    bool ok;
    int rc;

    if (!d)
        return CKPT_OK;
    (void)snprintf(name, sizeof name, "file of %s", option);
    rc = zt_same_file(to, name, path, ag_whole, err);
    zt_data_shape(d, &batch, &seq);
    ok =
        ckpt_bytes_printf(to,
                          "samples of %s\t%" PRIu64 "\nbatches of %s\t%" PRIu64
                          "\nlargest batch of %s\t%" PRIu64 " x %" PRIu64 "\n",
                          option, zt_data_count(d), option, zt_data_batches(d), option, batch, seq);
    for (size_t i = 0; ok && (class_name = zt_data_class(d, i)); i++)
        ok = ckpt_bytes_printf(to, "class %zu of %s\t%s\n", i, option, class_name);
    return rc == CKPT_OK && !ok ? ckpt_fail_memory(err) : rc;
}

/* Add the prompts of --generate, and the tokens that end a text. */
static int ag_prompts(const zt_engine *e, ckpt_bytes *to, ckpt_err *err)
{
    int rc = CKPT_OK;
    bool ok = true;

    if (!e->opts->generate)
        return CKPT_OK;
    rc = zt_same_file(to, "file of --data", e->opts->data, ag_whole, err);
    ok = rc != CKPT_OK || ckpt_bytes_printf(to, "prompts of --data\t%zu\nend tokens of the model\t",
                                            zt_prompts_count(&e->prompts));
    for (size_t i = 0; ok && rc == CKPT_OK && i < e->ends.n; i++)
        ok = ckpt_bytes_printf(to, "%" PRId32 " ", e->ends.at[i]);
    ok = ok && (rc != CKPT_OK || ckpt_bytes_printf(to, "\n"));
    return ok ? rc : ckpt_fail_memory(err);
}

/* Add a file of settings beside the tokenizer, which changes the tokens of text. */
static int ag_beside(const zt_engine *e, const char *name, ckpt_bytes *to, ckpt_err *err)
{
    const char *slash = strrchr(e->vocab, '/');
    const char *path = ckpt_arena_printf(e->arena, "%.*s%s",
                                         slash ? (int)(slash - e->vocab) + 1 : 0, e->vocab, name);
    char line[64];

    if (!path)
        return ckpt_fail_memory(err);
    (void)snprintf(line, sizeof line, "%s beside the tokenizer", name);
    if (access(path, R_OK) == 0)
        return zt_same_file(to, line, path, ag_whole, err);
    return ckpt_bytes_printf(to, "%s\tmissing\n", line) ? CKPT_OK : ckpt_fail_memory(err);
}

/* Add the files that decide how text becomes tokens. */
static int ag_tokenizer(const zt_engine *e, ckpt_bytes *to, ckpt_err *err)
{
    static const char *const beside[] = {"tokenizer_config.json", "chat_template.jinja"};
    int rc = CKPT_OK;

    if (e->vocab)
        rc = zt_same_file(to, "file of --vocab", e->vocab, ag_whole, err);
    for (size_t i = 0; rc == CKPT_OK && e->vocab && i < sizeof beside / sizeof *beside; i++)
        rc = ag_beside(e, beside[i], to, err);
    return rc;
}

static int ag_lines(const zt_engine *e, ckpt_bytes *to, ckpt_err *err)
{
    const zt_options *o = e->opts;
    bool ok = ckpt_bytes_printf(to, "release of zerotrain\t%s\n%s", ckpt_version(),
                                o->alike ? o->alike : "");
    int rc = ok ? ag_config(e, to, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK && !zt_agree_model(&e->model_config, to))
        rc = ckpt_fail_memory(err);
    if (rc != CKPT_OK || o->print_config)
        return rc;
    if (!ckpt_bytes_printf(to, "first weights\t%s\n", e->init ? "of a checkpoint" : "random"))
        return ckpt_fail_memory(err);
    rc = ag_data(e->data, "--data", o->data, to, err);
    if (rc == CKPT_OK)
        rc = ag_data(e->eval_data, "--eval-data", o->eval_data, to, err);
    if (rc == CKPT_OK)
        rc = ag_prompts(e, to, err);
    if (rc == CKPT_OK)
        rc = ag_tokenizer(e, to, err);
    ok = rc != CKPT_OK ||
         ckpt_bytes_printf(to,
                           "lower case\t%d\nupdates of the run\t%" PRId64 "\nparameters\t%" PRIu64
                           "\ntrained parameters\t%" PRIu64 "\n",
                           e->lower_case, e->total_steps, zt_model_count(e->model, false),
                           zt_model_count(e->model, true));
    return ok ? rc : ckpt_fail_memory(err);
}

int zt_agree_start(const zt_engine *e, ckpt_err *err)
{
    ckpt_bytes lines = {0};

    return e->comm->world == 1 ? CKPT_OK : zt_same(e->comm, &lines, ag_lines(e, &lines, err), err);
}
