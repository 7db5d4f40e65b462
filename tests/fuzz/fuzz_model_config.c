/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_model_config.c: any bytes as the config.json of a model; of what is accepted and small the
 * chain of layers is made, with and without adapters.
 */
#include <string.h>

#include "engine/model/model.h"
#include "tests/fuzz/fuzz_help.h"

enum { SMALL = 1 << 16 }; /* elements along an axis, layers x 1024: what takes no time to make */

static zt_device *device;

/* The parameters have names of their own and the sizes that their shapes say. */
static void check(const zt_model *m)
{
    fuzz_require(m->params.n > 0 && m->layers.n > 1);
    for (size_t i = 0; i < m->params.n; i++) {
        const zt_param *p = &m->params.at[i];
        uint64_t n = 1;

        for (uint32_t k = 0; k < p->ndim; k++)
            n *= p->shape[k];
        fuzz_require(p->ndim <= 4 && n == p->n_elems && n > 0 && p->layer < m->layers.n);
        for (size_t k = 0; k < i; k++)
            fuzz_require(strcmp(m->params.at[k].name, p->name) != 0);
    }
    for (size_t i = 0; i < m->layers.n; i++) {
        for (uint32_t k = 0; k < m->layers.at[i].n_params; k++)
            fuzz_require(m->layers.at[i].param[k] < m->params.n);
    }
}

static void make(const zt_model_config *c, const zt_lora *lora)
{
    zt_model *m = NULL;
    ckpt_err err = {0};
    int rc = zt_model_new(&m, device, CKPT_F32, c, lora, &err);
    size_t frozen = 0;
    float drawn[8];

    fuzz_require(rc == CKPT_OK || (err.code == rc && err.text[0] != '\0'));
    if (rc != CKPT_OK)
        return;
    check(m);
    fuzz_require(zt_model_freeze(m, "*weight,*", &frozen, &err) == CKPT_OK);
    zt_model_draw(m, 0, 1, 0, m->params.at[0].n_elems < 8 ? m->params.at[0].n_elems : 8, drawn);
    zt_model_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const zt_lora lora = {.rank = 1 + size % 8, .alpha = 16};
    ckpt_arena *a = ckpt_arena_new(64 << 20);
    ckpt_err err = {0};
    zt_model_config c;
    int rc;

    if (!device)
        fuzz_require(zt_cpu_new(&device, 1, &err) == CKPT_OK);
    if (!a)
        return 0;
    rc = zt_model_config_read(&c, a, fuzz_file("config.json", data, size), &err);
    fuzz_require(rc == CKPT_OK || (err.code == rc && err.text[0] != '\0'));
    if (rc == CKPT_OK && c.layers <= SMALL / 1024 && c.positions <= SMALL && c.hidden <= SMALL &&
        c.vocab <= SMALL && c.head_width <= SMALL) {
        make(&c, NULL);
        make(&c, &lora);
    }
    ckpt_arena_free(a);
    return 0;
}
