/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_run.c: llama.cpp as a judge of GGUF files: what a model says, how a text is cut into tokens,
 * and its own quantizer.
 *
 *     llama_run say FILE N TOKEN...       N tokens, the most likely one each time, after these
 *     llama_run adapt FILE ADAPTER TOKEN...   the logits after these, with a LoRA adapter
 *     llama_run embed FILE TOKEN...       the embedding of the last token
 *     llama_run tokens FILE TEXT...       a line of token numbers for each text
 *     llama_run quantize FILE OUT FTYPE   FTYPE: a number of llama.h's llama_ftype
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llama.h>

enum { MOST = 256 };

static void quiet(enum ggml_log_level level, const char *text, void *errors)
{
    (void)errors;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "llama_run: %s\n", what);
    exit(1);
}

static struct llama_context *open_context(struct llama_model *model, bool embed)
{
    struct llama_context_params params = llama_context_default_params();
    struct llama_context *ctx;

    params.n_ctx = MOST;
    params.n_batch = params.n_ubatch = MOST;
    params.n_threads = params.n_threads_batch = 1;
    params.embeddings = embed;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    ctx = llama_init_from_model(model, params);
    if (!ctx)
        die("no context");
    return ctx;
}

static llama_token likeliest(const float *logits, int32_t n)
{
    int32_t best = 0;

    for (int32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void say(struct llama_model *model, int n_more, llama_token *token, int n)
{
    struct llama_context *ctx = open_context(model, false);
    int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    llama_token next;

    for (int i = 0; i < n_more; i++) {
        if (llama_decode(ctx, llama_batch_get_one(token, n)))
            die("decode failed");
        next = likeliest(llama_get_logits_ith(ctx, -1), n_vocab);
        printf("%d\n", next);
        token = &next;
        n = 1;
    }
    llama_free(ctx);
}

static void adapt(struct llama_model *model, const char *path, llama_token *token, int n)
{
    struct llama_adapter_lora *adapter = llama_adapter_lora_init(model, path);
    struct llama_context *ctx = open_context(model, false);
    float scale = 1;

    if (!adapter || llama_set_adapters_lora(ctx, &adapter, 1, &scale))
        die("the adapter cannot be loaded");
    if (llama_decode(ctx, llama_batch_get_one(token, n)))
        die("decode failed");
    for (int32_t i = 0; i < llama_vocab_n_tokens(llama_model_get_vocab(model)); i++)
        printf("%.9g\n", (double)llama_get_logits_ith(ctx, -1)[i]);
    llama_free(ctx);
}

static void embed(struct llama_model *model, llama_token *token, int n)
{
    struct llama_context *ctx = open_context(model, true);
    const float *x;

    if (llama_encode(ctx, llama_batch_get_one(token, n)))
        die("encode failed");
    x = llama_get_embeddings_seq(ctx, 0);
    x = x ? x : llama_get_embeddings_ith(ctx, -1);
    for (int i = 0; x && i < llama_model_n_embd(model); i++)
        printf("%.9g\n", (double)x[i]);
    llama_free(ctx);
}

static void cut(const struct llama_model *model, char **text, int n)
{
    for (int i = 0; i < n; i++) {
        llama_token token[4096];
        int32_t many = llama_tokenize(llama_model_get_vocab(model), text[i],
                                      (int32_t)strlen(text[i]), token, 4096, true, true);
        for (int32_t k = 0; k < many; k++)
            printf(k ? " %d" : "%d", token[k]);
        printf("\n");
    }
}

static int quantize(const char *from, const char *to, int ftype)
{
    struct llama_model_quantize_params params = llama_model_quantize_default_params();

    params.ftype = (enum llama_ftype)ftype;
    params.nthread = 1;
    return llama_model_quantize(from, to, &params) ? 1 : 0;
}

int main(int argc, char **argv)
{
    llama_token token[MOST];
    const bool adapted = argc > 3 && strcmp(argv[1], "adapt") == 0;
    int n = 0, first = argc > 3 && (adapted || strcmp(argv[1], "say") == 0) ? 4 : 3;

    if (argc < 4)
        die("say|adapt|embed|tokens|quantize FILE ...");
    llama_log_set(quiet, NULL);
    if (strcmp(argv[1], "quantize") == 0)
        return argc == 5 ? quantize(argv[2], argv[3], atoi(argv[4])) : 2;
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = strcmp(argv[1], "tokens") == 0;
    struct llama_model *model = llama_model_load_from_file(argv[2], params);
    if (!model)
        die("the file cannot be loaded");
    for (int i = first; i < argc && n < MOST / 2; i++)
        token[n++] = atoi(argv[i]);
    if (params.vocab_only)
        cut(model, argv + 3, argc - 3);
    else if (adapted)
        adapt(model, argv[3], token, n);
    else if (strcmp(argv[1], "embed") == 0)
        embed(model, token, n);
    else
        say(model, atoi(argv[3]), token, n);
    llama_model_free(model);
    return 0;
}
