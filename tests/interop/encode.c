/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode.c: prints the tokens of texts, for comparisons with other tokenizers.
 *
 *     encode FILE [special] < TEXTS
 *
 * TEXTS are a number of bytes, a newline, the bytes, and again.  A line of numbers is printed for
 * each, "!" and a reason if the text is refused.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/tokenizer/tokenizer.h"

static void one(zt_tokenizer *t, const char *text, size_t n, bool special)
{
    zt_ids ids = {0};
    ckpt_err err = {0};
    int rc = zt_tokenizer_encode(t, (ckpt_text){text, n}, special, &ids, &err);

    if (rc != CKPT_OK)
        printf("! %s", err.text);
    for (size_t i = 0; rc == CKPT_OK && i < ids.n; i++)
        printf("%s%" PRId32, i ? " " : "", ids.at[i]);
    printf("\n");
    ckpt_vec_free(&ids);
}

int main(int argc, char **argv)
{
    zt_tokenizer *t = NULL;
    ckpt_err err = {0};
    unsigned long n;

    if (argc < 2 || zt_tokenizer_open(&t, argv[1], &err) != CKPT_OK) {
        fprintf(stderr, "encode: %s\n", err.text);
        return 1;
    }
    while (scanf("%lu", &n) == 1 && getchar() == '\n') {
        char *text = malloc(n + 1);

        if (!text || fread(text, 1, n, stdin) != n)
            return 1;
        text[n] = 0;
        one(t, text, n, argc > 2);
        free(text);
    }
    zt_tokenizer_free(t);
    return 0;
}
