/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requantize.c: quantizes the matrices of linear layers, in the form that the caller names.
 *
 * Embeddings, heads, norms and routers are not quantized, because the programs that make such
 * models do not quantize them (MLX does quantize embeddings and heads), nor are matrices that
 * blocks do not divide.
 */
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/number.h"
#include "libckpt/base/opts.h"
#include "libckpt/map/quantized.h"
#include "libckpt/map/savepoint.h"
#include "libckpt/transform/requant.h"

enum {
    RQ_GLOBS = 64,     /* limit of patterns of unchanged weights */
    RQ_SIDE_MAX = 9999 /* limit of rows or columns of a block */
};

static const ckpt_requant_form rq_forms[] = {
    {"fp8-block", 2, {128, 128}, 8, false, ckpt_requant_fp8, ckpt_requant_fp8_block_config},
    {"fp8-channel", 0, {0, 0}, 8, false, ckpt_requant_fp8, ckpt_requant_fp8_channel_config},
    {"w4a16", 1, {1, 128}, 4, false, ckpt_requant_int, ckpt_requant_int_config},
    {"w8a16", 1, {1, 128}, 8, false, ckpt_requant_int, ckpt_requant_int_config},
    {"nvfp4a16", 0, {1, 16}, 4, false, ckpt_requant_nvfp4, ckpt_requant_nvfp4_config},
    {"mxfp4a16", 0, {1, 32}, 4, false, ckpt_requant_mxfp4, ckpt_requant_mxfp4_config},
    {"mlx4", 1, {1, 64}, 4, true, ckpt_requant_mlx, ckpt_requant_mlx_config},
    {"mlx8", 1, {1, 64}, 8, true, ckpt_requant_mlx, ckpt_requant_mlx_config},
};

/* ---- choosing the tensors ---- */

/* True for matrices that a form never quantizes: heads, embeddings, routers. */
static bool rq_is_left(const ckpt_requant *w, const char *name)
{
    // the weights of all but linear layers of transformers' classes are among them, but for Conv1D
    // (tests/cli/convert/quantize_names.sh)
    static const char *const heads[] = {"*embed*",        "*lm_head*",  "*wte*",
                                        "*shared.weight", "*.w.weight", "*_emb.*",
                                        "*codebook*",     "*_token.*",  "*_tokens.*"};
    static const char *const left[] = {
        "*wpe*",
        "*norm*",
        "*.gate.*",
        "*router*",
        "*score*",
        "*_gate.*",
        "*pooler*",
        "*classifier*",
        "query.weight",
        "*relative_attention_bias*",
        "*query_feat*",
        "*queries_features*",
        "*reference_points*",
    };
    bool is = false;

    for (size_t i = 0; !w->form->mlx && i < sizeof heads / sizeof *heads; i++)
        is = is || fnmatch(heads[i], name, 0) == 0;
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        is = is || fnmatch(left[i], name, 0) == 0;
    return is;
}

/* True if blocks divide a matrix. */
static bool rq_is_whole(const ckpt_requant *w, const ckpt_tensor *t)
{
    return !w->block[0] || (t->shape[0] % w->block[0] == 0 && t->shape[1] % w->block[1] == 0);
}

/* True if a pattern of unchanged weights matches. */
static bool rq_is_skipped(ckpt_requant *w, const char *name)
{
    bool skipped = false;

    for (size_t i = 0; w->opts.skip && w->opts.skip[i]; i++) {
        if (fnmatch(w->opts.skip[i], name, 0) != 0)
            continue;
        skipped = true;
        if (i < RQ_GLOBS)
            w->matched |= UINT64_C(1) << i;
    }
    return skipped;
}

/* Check that each pattern has matched a matrix. */
static int rq_check_skip(const ckpt_requant *w)
{
    for (size_t i = 0; w->opts.skip && w->opts.skip[i]; i++) {
        if (i >= RQ_GLOBS || !(w->matched >> i & 1))
            return ckpt_fail(w->err, CKPT_EUSAGE,
                             i >= RQ_GLOBS
                                 ? "quantize: more than 64 patterns of weights that stay ('%.200s')"
                                 : "quantize: '%.200s' matches no matrix of a linear layer",
                             w->opts.skip[i]);
    }
    return CKPT_OK;
}

static bool rq_ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n > m && strcmp(name + n - m, end) == 0;
}

/* True for a floating matrix with the name of a layer's weight. */
static bool rq_is_matrix(const ckpt_tensor *t)
{
    return t->ndim == 2 && t->n_elems > 0 && t->role != CKPT_ROLE_STATE && !t->owner &&
           rq_ends(t->name, ".weight") && ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT &&
           ckpt_dtype_converts(CKPT_F32, t->dtype);
}

/* Add a module of a name of n bytes to the configuration's list of unquantized modules. */
static int rq_list(ckpt_requant *w, const char *name, size_t n)
{
    bool more = w->skipped.n > 0;

    if (memchr(name, '"', n) || memchr(name, '\\', n))
        return ckpt_fail(
            w->err, CKPT_EUNSUPPORTED,
            "quantize: the name %.*s.weight has a quote or a backslash, which ckpt does "
            "not write into config.json: rename the tensor first",
            (int)(n < 200 ? n : 200), name);
    if (!ckpt_bytes_add(&w->skipped, more ? ", \"" : "\"", more ? 3 : 1) ||
        !ckpt_bytes_add(&w->skipped, name, n) || !ckpt_bytes_add(&w->skipped, "\"", 1))
        return ckpt_fail_memory(w->err);
    return CKPT_OK;
}

static int rq_skip(ckpt_requant *w, const ckpt_tensor *t)
{
    w->n_skipped++;
    return rq_list(w, t->name, strlen(t->name) - strlen(".weight"));
}

/*
 * Add the head to the list if the map has no matrix for it.  A head that is the embedding has none,
 * but programs make a linear layer of it, and would look for its quantized weight.
 */
static int rq_tied_head(ckpt_requant *w)
{
    static const char head[] = "lm_head";
    size_t at = ckpt_map_index(w->map, "lm_head.weight", strlen("lm_head.weight"));
    const ckpt_tensor *t = at == SIZE_MAX ? NULL : w->map->tensors.at[at];

    return t && rq_is_matrix(t) ? CKPT_OK : rq_list(w, head, strlen(head));
}

/* ---- all tensors ---- */

static int rq_all(ckpt_requant *w)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->map->tensors.n; i++) {
        ckpt_tensor *t = w->map->tensors.at[i];
        bool matrix = rq_is_matrix(t);
        bool stays =
            matrix && (rq_is_skipped(w, t->name) || rq_is_left(w, t->name) || !rq_is_whole(w, t));

        rc = ckpt_requant_push(w, t);
        if (rc == CKPT_OK && matrix && !stays) {
            rc = w->form->weight(w, t);
            w->n_made++;
            continue;
        }
        if (rc == CKPT_OK && stays)
            rc = rq_skip(w, t);
        if (t->ndim > 2 && !t->owner && ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT)
            w->more = w->n_more++ == 0 ? t->name : w->more;
        if (w->opts.dtype != CKPT_DTYPE_NONE && ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT)
            t->export_dtype = w->opts.dtype;
    }
    return rc;
}

/* True for a possible number of a block's rows or columns. */
static bool rq_side(uint64_t n)
{
    return n > 0 && n <= RQ_SIDE_MAX;
}

/* True for columns of a group: a power of two, so that words of numbers are full; MLX computes with
 * three of them only. */
static bool rq_group(const ckpt_requant *w, uint64_t n)
{
    uint64_t least = w->form->mlx ? 32 : 16, most = w->form->mlx ? 128 : CKPT_REQUANT_GROUP;

    return n >= least && n <= most && (n & (n - 1)) == 0;
}

/* Parse the sizes after a form's name: "", ":64", ":64x128". */
static bool rq_sizes(ckpt_requant *w, const char *text)
{
    memcpy(w->block, w->form->block, sizeof w->block);
    if (!*text)
        return true;
    if (*text != ':' || w->form->sizes == 0)
        return false;
    if (w->form->sizes == 1)
        return ckpt_parse_u64(text + 1, &w->block[1]) && rq_group(w, w->block[1]);
    text = ckpt_scan_u64(text + 1, &w->block[0]);
    return text && *text == 'x' && ckpt_parse_u64(text + 1, &w->block[1]) && rq_side(w->block[0]) &&
           rq_side(w->block[1]);
}

/* Parse the form: "fp8-channel", "fp8-block:64x128", "w4a16:64". */
static int rq_take(ckpt_requant *w)
{
    const char *text = w->opts.form ? w->opts.form : "";
    size_t n = strcspn(text, ":");

    for (size_t i = 0; i < sizeof rq_forms / sizeof *rq_forms; i++) {
        if (strlen(rq_forms[i].name) == n && memcmp(rq_forms[i].name, text, n) == 0)
            w->form = &rq_forms[i];
    }
    if (w->form && rq_sizes(w, text + n))
        return CKPT_OK;
    return ckpt_fail(
        w->err, CKPT_EUSAGE,
        "quantize: '%.60s' is none of fp8-block[:ROWSxCOLUMNS], fp8-channel, "
        "w4a16[:GROUP], w8a16[:GROUP], nvfp4a16, mxfp4a16, mlx4[:GROUP], mlx8[:GROUP]; "
        "a group is a power of two of columns, 16 to 1024, for MLX 32 to 128",
        text);
}

/* Describe the numbers for config.json. */
static int rq_config(ckpt_requant *w)
{
    const char *list = ckpt_arena_printf(w->map->arena, "%.*s", (int)w->skipped.n,
                                         w->skipped.n ? (const char *)w->skipped.at : "");

    return list ? w->form->config(w, list) : ckpt_fail_memory(w->err);
}

/* Report tensors that are not quantized because they are no matrices. */
static int rq_say_more(const ckpt_requant *w)
{
    if (w->n_more == 0)
        return CKPT_OK;
    return ckpt_map_note(w->map, CKPT_INFO, w->err,
                         "quantize: tensors of more than two axes stay floats: %" PRIu64
                         ", such as %.200s",
                         w->n_more, w->more);
}

/* Add a fact for the closing line. */
static int rq_say(const ckpt_requant *w)
{
    return ckpt_map_fact(w->map, w->err, "quantized to",
                         "%.40s: %" PRIu64 " %s of linear layers; %" PRIu64
                         " left unquantized (%srouters, shapes that blocks do not divide)",
                         w->opts.form, w->n_made, w->n_made == 1 ? "matrix" : "matrices",
                         w->n_skipped, w->form->mlx ? "" : "heads, embeddings, ");
}

/* Replace the map's tensors; a failure leaves the map half changed. */
static int rq_change(ckpt_requant *w)
{
    int rc = rq_all(w);

    if (rc == CKPT_OK)
        rc = rq_check_skip(w);
    if (rc == CKPT_OK)
        rc = rq_tied_head(w);
    if (rc == CKPT_OK && w->n_made == 0)
        rc = ckpt_fail(w->err, CKPT_EMISMATCH,
                       "%s: quantize: no tensor is a matrix of a linear layer (a name that ends in "
                       "'.weight'%s): nothing would be quantized",
                       w->map->path, w->block[0] ? ", of rows and columns that blocks divide" : "");
    if (rc == CKPT_OK) {
        ckpt_vec_free(&w->map->tensors);
        w->map->tensors = w->made;
        w->made = (ckpt_tensors){0};
        rc = ckpt_map_reindex(w->map, w->err);
    }
    if (rc == CKPT_OK)
        rc = rq_config(w);
    if (rc == CKPT_OK)
        rc = rq_say_more(w);
    return rc == CKPT_OK ? rq_say(w) : rc;
}

int ckpt_map_quantize(ckpt_map *map, const ckpt_quantize *opts, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_requant w = {.map = map, .err = err};
    ckpt_savepoint *saved = NULL;
    int rc = ckpt_opts_take(&w.opts, sizeof w.opts, opts, "ckpt_quantize", err);

    if (rc == CKPT_OK && !map)
        rc = ckpt_fail(err, CKPT_EUSAGE, "no map to quantize");
    if (rc == CKPT_OK)
        rc = rq_take(&w);
    if (rc == CKPT_OK)
        rc = ckpt_quantized_refuse(map, "quantizing them again", err);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_new(&saved, map, err);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_end(saved, rq_change(&w));
    ckpt_vec_free(&w.made);
    ckpt_vec_free(&w.skipped);
    return rc;
}
