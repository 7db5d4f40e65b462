/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_hostfile.c: hostfile, include and exclude filters (texts with a NUL between them): what is
 * selected stands in the file, and mpirun is told of it.
 */
#include "engine/config/config.h"
#include "libckpt/base/hostfile.h"
#include "tests/fuzz/fuzz_help.h"

static const ckpt_host *find(const ckpt_hosts *all, const char *name)
{
    for (size_t i = 0; i < all->n; i++) {
        if (strcmp(all->at[i].name, name) == 0)
            return &all->at[i];
    }
    return NULL;
}

/* The slots of a selection are ascending and those of the same host, unless a number was given:
   that is used unseen, as DeepSpeed does. */
static void check(const ckpt_hosts *all, const ckpt_hosts *some, int64_t given)
{
    const uint32_t wanted = given > 0 ? (uint32_t)given : 0;
    uint64_t total = 0;

    fuzz_require(some->n > 0 && some->n <= all->n);
    for (size_t i = 0; i < some->n; i++) {
        const ckpt_host *h = &some->at[i], *whole = find(all, h->name);
        uint32_t most;

        fuzz_require(whole != NULL);
        total += h->n_slots;
        most = whole->n_slots > wanted ? whole->n_slots : wanted;
        for (uint32_t k = 0; k < h->n_slots; k++) {
            fuzz_require(h->slot[k] < most);
            fuzz_require(k == 0 || h->slot[k] > h->slot[k - 1]);
        }
    }
    fuzz_require(total > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[3][4096];
    ckpt_arena *a = ckpt_arena_new(64 << 20);
    ckpt_err err = {0};
    ckpt_hosts all = {0}, some = {0};
    ckpt_host_filter f = {0};
    int rc;

    fuzz_text(text[0], sizeof text[0], &data, &size);
    f.include = fuzz_text(text[1], sizeof text[1], &data, &size);
    f.exclude = fuzz_text(text[2], sizeof text[2], &data, &size);
    f.num_nodes = size > 0 ? (int8_t)data[0] : 0;
    f.num_slots = size > 1 ? (int8_t)data[1] : 0;
    rc = a ? ckpt_hosts_parse(&all, a, text[0], strlen(text[0]), "fuzz", &err) : CKPT_ELIMIT;
    fuzz_require(rc == CKPT_OK || !a || err.text[0] != '\0');
    if (rc == CKPT_OK) {
        rc = ckpt_hosts_filter(&some, a, &all, &f, &err);
        fuzz_require(rc == CKPT_OK || err.text[0] != '\0');
    }
    if (rc == CKPT_OK) {
        check(&all, &some, f.num_slots);
        const char *const *args = ckpt_hosts_mpirun(a, &some);

        fuzz_require(!args || (args[0] && args[1][0] != '0' && args[3][0] != '\0'));
    }
    ckpt_arena_free(a);
    return 0;
}
