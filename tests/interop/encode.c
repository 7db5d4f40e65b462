/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode.c: prints the tokens of texts, and texts of tokens, for comparisons with other tokenizers.
 *
 *     encode FILE [special | time] < TEXTS
 *     encode --decode FILE < TEXTS
 *     encode --chat TEMPLATE BOS EOS [prompt] < TEXTS
 *
 * TEXTS are a number of bytes, a newline, the bytes, and again.  A line of numbers is printed for
 * each, "!" and a reason if the text is refused; with time only the number of tokens and the
 * processor's seconds for them, for measurements.  With --decode, each text is a line of numbers, and
 * the line is their text as a string in JSON.  With --chat, each text is a list of messages in
 * JSON; the line is the text of the conversation, and those of its answers, as a list in JSON;
 * with `prompt`, it ends with the begin of an answer.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/tokenizer/chat.h"
#include "engine/tokenizer/tokenizer.h"
#include "libckpt/codec/json/json.h"

/* What texts are for: one of these. */
typedef struct job {
    zt_tokenizer *tokenizer;
    bool special, time;
    const zt_chat *chat;
    ckpt_text bos, eos;
    bool prompt;
    zt_ids ids;
    uint64_t n_tokens;
    double seconds;
} job;

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void tokens(job *j, const char *text, size_t n)
{
    const double start = now();
    ckpt_err err = {0};
    int rc;

    j->ids.n = 0;
    rc = zt_tokenizer_encode(j->tokenizer, (ckpt_text){text, n}, j->special, &j->ids, &err);
    j->seconds += now() - start;
    j->n_tokens += j->ids.n;
    if (rc != CKPT_OK)
        printf("! %s", err.text);
    for (size_t i = 0; rc == CKPT_OK && !j->time && i < j->ids.n; i++)
        printf("%s%" PRId32, i ? " " : "", j->ids.at[i]);
    if (!j->time || rc != CKPT_OK)
        printf("\n");
}

static void talk(job *j, const char *text, size_t n)
{
    const ckpt_json_text json = {.name = "messages", .at = text, .n = n, .max = n};
    ckpt_arena *arena = ckpt_arena_new(0);
    zt_talk t = {NULL, j->bos, j->eos, j->prompt};
    ckpt_value *v = NULL;
    ckpt_bytes out = {0}, line = {0};
    zt_spans spans = {0};
    ckpt_err err = {0};
    int rc = ckpt_json_parse(&v, arena, &json, &err);

    t.messages = v;
    if (rc == CKPT_OK)
        rc = zt_chat_write(j->chat, &t, &out, &spans, &err);
    if (rc == CKPT_OK && ckpt_json_string(&line, (const char *)out.at, out.n, true)) {
        for (size_t i = 0; i < spans.n; i++) {
            (void)ckpt_bytes_add(&line, ", ", 2);
            (void)ckpt_json_string(&line, (const char *)out.at + spans.at[i].from,
                                   spans.at[i].to - spans.at[i].from, true);
        }
        printf("[%.*s]\n", (int)line.n, (const char *)line.at);
    } else
        printf("! %s\n", err.text);
    ckpt_vec_free(&out);
    ckpt_vec_free(&line);
    ckpt_vec_free(&spans);
    ckpt_arena_free(arena);
}

static void text_of(job *j, const char *numbers, size_t n)
{
    zt_ids ids = {0};
    ckpt_bytes text = {0}, line = {0};
    ckpt_err err = {0};
    char *end;
    int rc;

    (void)n;
    for (long id = strtol(numbers, &end, 10); end != numbers; id = strtol(numbers, &end, 10)) {
        int32_t *to = ckpt_vec_push(&ids);
        if (to)
            *to = (int32_t)id;
        numbers = end;
    }
    rc = zt_tokenizer_decode(j->tokenizer, ids.at, ids.n, &text, &err);
    if (rc == CKPT_OK && ckpt_json_string(&line, text.n ? (const char *)text.at : "", text.n, true))
        printf("%.*s\n", (int)line.n, (const char *)line.at);
    else
        printf("! %s\n", err.text);
    ckpt_vec_free(&ids);
    ckpt_vec_free(&text);
    ckpt_vec_free(&line);
}

int main(int argc, char **argv)
{
    const bool chat = argc > 4 && strcmp(argv[1], "--chat") == 0;
    const bool decode = argc == 3 && strcmp(argv[1], "--decode") == 0;
    job j = {
        .special = argc > 2, .time = argc == 3 && strcmp(argv[2], "time") == 0, .prompt = argc > 5};
    ckpt_err err = {0};
    unsigned long n;

    if (argc < 2 ||
        (chat ? zt_chat_find(&j.chat, (ckpt_text){argv[2], strlen(argv[2])}, &err)
              : zt_tokenizer_open(&j.tokenizer, argv[decode ? 2 : 1], &err)) != CKPT_OK) {
        fprintf(stderr, "encode: %s\n", err.text);
        return 1;
    }
    if (chat) {
        j.bos = (ckpt_text){argv[3], strlen(argv[3])};
        j.eos = (ckpt_text){argv[4], strlen(argv[4])};
    }
    while (scanf("%lu", &n) == 1 && getchar() == '\n') {
        char *text = malloc(n + 1);

        if (!text || fread(text, 1, n, stdin) != n)
            return 1;
        text[n] = 0;
        (chat ? talk : decode ? text_of : tokens)(&j, text, n);
        free(text);
    }
    if (j.time)
        printf("%" PRIu64 " %.6f\n", j.n_tokens, j.seconds);
    ckpt_vec_free(&j.ids);
    zt_tokenizer_free(j.tokenizer);
    return 0;
}
