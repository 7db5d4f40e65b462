/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_ds_config.c: any bytes as a ds_config.json, for several worlds, with and without arguments
 * for "auto"; what is accepted is consistent, and is printed as JSON that means the same.
 */
#include "engine/config/config.h"
#include "tests/fuzz/fuzz_help.h"

/* What every accepted configuration promises. */
static void check(const zt_config *c, int world)
{
    fuzz_require(c->json && c->json->kind == CKPT_V_DICT);
    fuzz_require(c->micro_batch > 0 && c->accumulation > 0 && c->train_batch > 0);
    fuzz_require(c->train_batch / world / c->accumulation == c->micro_batch &&
                 c->train_batch % world == 0);
    fuzz_require(c->stage >= 0 && c->stage <= 3);
    fuzz_require(c->dtype == CKPT_F32 || c->dtype == CKPT_BF16 || c->dtype == CKPT_F16);
    fuzz_require(c->clipping >= 0);
}

/* Printed, it is accepted again and printed the same. */
static void print(const zt_config *c, int world, ckpt_arena *a)
{
    char *text[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    zt_config again;
    ckpt_err err = {0};

    for (int i = 0; i < 2; i++) {
        FILE *f = open_memstream(&text[i], &n[i]);
        ckpt_value *v = NULL;

        fuzz_require(f != NULL);
        fuzz_require(zt_config_print(i ? &again : c, f, &err) == CKPT_OK);
        fuzz_require(fclose(f) == 0);
        if (i)
            break;
        fuzz_require(zt_hjson_parse(&v, a, text[0], n[0], "printed", &err) == CKPT_OK);
        fuzz_require(zt_config_parse(&again, a, v, NULL, world, &err) == CKPT_OK);
    }
    fuzz_require(n[0] == n[1] && memcmp(text[0], text[1], n[0]) == 0);
    free(text[0]);
    free(text[1]);
}

static void read_for(const uint8_t *data, size_t size, int world, const zt_arguments *args)
{
    ckpt_arena *a = ckpt_arena_new(64 << 20);
    ckpt_value *v = NULL;
    ckpt_err err = {0};
    zt_config c;

    if (a && zt_hjson_parse(&v, a, (const char *)data, size, "fuzz", &err) == CKPT_OK) {
        int rc = zt_config_parse(&c, a, v, args, world, &err);

        fuzz_require(rc == CKPT_OK || (err.code == rc && err.text[0] != '\0'));
        if (rc == CKPT_OK) {
            check(&c, world);
            print(&c, world, a);
        }
    }
    ckpt_arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    zt_arguments args;

    zt_arguments_default(&args);
    args.total_steps = 100;
    args.hidden_size = size % 2 ? 64 : 0;
    for (int i = 0; i < ZT_ARG_N; i++)
        args.given[i] = size >> i & 1;
    read_for(data, size, 1, NULL);
    read_for(data, size, 3, &args);
    read_for(data, size, 8, NULL);
    return 0;
}
