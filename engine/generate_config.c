/* SPDX-License-Identifier: Apache-2.0 */
/*
 * generate_config.c: reads the settings of generation in a model's folder.
 *
 * Source: GenerationConfig.from_pretrained of transformers 5.23: generation_config.json alone, or,
 * if there is none, the keys of config.json; a class' defaults do not count.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>

#include "engine/inside.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/io/listing.h"

/* A file of settings. */
typedef struct gnc_file {
    const ckpt_value *json;
    const char *name;
    uint64_t vocab;
} gnc_file;

/* Settings that change the texts of greedy search, and the number without effect; NAN: none. */
static const struct {
    const char *key;
    double neutral;
} gnc_refused[] = {
    {"repetition_penalty", 1},
    {"encoder_repetition_penalty", 1},
    {"no_repeat_ngram_size", 0},
    {"encoder_no_repeat_ngram_size", 0},
    {"bad_words_ids", (double)NAN},
    {"force_words_ids", (double)NAN},
    {"constraints", (double)NAN},
    {"suppress_tokens", (double)NAN},
    {"begin_suppress_tokens", (double)NAN},
    {"sequence_bias", (double)NAN},
    {"forced_bos_token_id", (double)NAN},
    {"forced_eos_token_id", (double)NAN},
    {"exponential_decay_length_penalty", (double)NAN},
    {"min_length", 0},
    {"min_new_tokens", 0},
    {"max_time", (double)NAN},
    {"stop_strings", (double)NAN},
    {"num_beams", 1},
    {"num_beam_groups", 1},
    {"num_return_sequences", 1},
    {"penalty_alpha", 0},
    {"dola_layers", (double)NAN},
    {"guidance_scale", 1},
    {"watermarking_config", (double)NAN},
    {"token_healing", 0},
    {"remove_invalid_values", 0},
};

static bool gnc_neutral(const ckpt_value *v, double neutral)
{
    double x = (double)NAN;

    if (!v || v->kind == CKPT_V_NONE)
        return true;
    if (v->kind == CKPT_V_LIST || v->kind == CKPT_V_DICT)
        return v->kind == CKPT_V_LIST ? v->as.seq.n == 0 : v->as.map.n == 0;
    if (v->kind == CKPT_V_FLOAT)
        x = v->as.f;
    else if (v->kind == CKPT_V_INT || v->kind == CKPT_V_BOOL)
        x = (double)v->as.i;
    return !(x < neutral || x > neutral) && !isnan(x) && !isnan(neutral);
}

static int gnc_refuse(const gnc_file *f, ckpt_err *err)
{
    for (size_t i = 0; i < sizeof gnc_refused / sizeof *gnc_refused; i++) {
        if (!gnc_neutral(ckpt_value_get(f->json, gnc_refused[i].key), gnc_refused[i].neutral))
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: %s changes the texts that transformers generates, and is not "
                             "supported; set it to null to generate texts without it",
                             f->name, gnc_refused[i].key);
    }
    return CKPT_OK;
}

/* Read a token of the vocabulary. */
static int gnc_token(const gnc_file *f, const char *key, const ckpt_value *v, int32_t *out,
                     ckpt_err *err)
{
    const bool number = v->kind == CKPT_V_INT;
    const char *found = v->kind == CKPT_V_LONG    ? "a larger number"
                        : v->kind == CKPT_V_FLOAT ? "a number with a fraction"
                        : v->kind == CKPT_V_BOOL  ? (v->as.i ? "true" : "false")
                        : v->kind == CKPT_V_STR   ? "a string"
                        : v->kind == CKPT_V_NONE  ? "null"
                        : v->kind == CKPT_V_LIST  ? "a list"
                                                  : "an object";

    *out = 0;
    if (number && v->as.i >= 0 && (uint64_t)v->as.i < f->vocab) {
        *out = (int32_t)v->as.i;
        return CKPT_OK;
    }
    if (number)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: %s: expected a token of the vocabulary of %" PRIu64
                         ", found %" PRId64,
                         f->name, key, f->vocab, v->as.i);
    return ckpt_fail(err, CKPT_EFORMAT,
                     "%s: %s: expected a token of the vocabulary of %" PRIu64 ", found %s", f->name,
                     key, f->vocab, found);
}

/* Read the tokens that end a text: a number, or a list. */
static int gnc_ends(zt_engine *e, const gnc_file *f, ckpt_err *err)
{
    static const char key[] = "eos_token_id";
    const ckpt_value *v = ckpt_value_get(f->json, key);
    const bool many = v && v->kind == CKPT_V_LIST;
    const uint64_t n = !v || v->kind == CKPT_V_NONE ? 0 : many ? v->as.seq.n : 1;
    int rc = CKPT_OK;

    if (many && n == 0)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: %s is an empty list; null is for texts without an end", f->name, key);
    for (uint64_t i = 0; rc == CKPT_OK && i < n; i++) {
        int32_t *to = ckpt_vec_push(&e->ends);

        rc = to ? gnc_token(f, key, many ? v->as.seq.at[i] : v, to, err) : ckpt_fail_memory(err);
    }
    return rc;
}

/* T5: the token that a text begins with; without one, transformers takes bos_token_id. */
static int gnc_start(zt_engine *e, const gnc_file *f, ckpt_err *err)
{
    const char *key = "decoder_start_token_id";
    const ckpt_value *v = ckpt_value_get(f->json, key);
    int32_t token = 0;
    int rc;

    if (!v || v->kind == CKPT_V_NONE) {
        key = "bos_token_id";
        v = ckpt_value_get(f->json, key);
    }
    if (e->model_config.arch != ZT_T5 || !v || v->kind == CKPT_V_NONE)
        return CKPT_OK;
    rc = gnc_token(f, key, v, &token, err);
    if (rc == CKPT_OK)
        e->model_config.decoder_start = (uint64_t)token;
    return rc;
}

int zt_generate_settings(zt_engine *e, ckpt_err *err)
{
    bool named = false;
    const char *folder = zt_model_folder(e, &named);
    gnc_file f = {.vocab = e->model_config.vocab};
    ckpt_value *json = NULL;
    struct stat st;
    int rc;

    f.name = folder ? ckpt_path_join(e->arena, folder, "generation_config.json") : NULL;
    if (!f.name)
        return ckpt_fail_memory(err);
    if (lstat(f.name, &st) != 0 && errno == ENOENT) {
        f.name = named ? ckpt_path_join(e->arena, folder, "config.json") : e->opts->model;
        f.json = e->model_config.json;
        rc = f.name ? gnc_refuse(&f, err) : ckpt_fail_memory(err);
        return rc == CKPT_OK ? gnc_ends(e, &f, err) : rc;
    }
    rc = ckpt_json_read(&json, e->arena, f.name, ZT_JSON_BYTES, err);
    f.json = json;
    if (rc == CKPT_OK && json->kind != CKPT_V_DICT)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: expected an object of settings", f.name);
    if (rc == CKPT_OK)
        rc = gnc_refuse(&f, err);
    if (rc == CKPT_OK)
        rc = gnc_ends(e, &f, err);
    return rc == CKPT_OK ? gnc_start(e, &f, err) : rc;
}
