/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plans.cpp: builds plans of cuDNN's attention for GPUs that are not there: does cuDNN accept our
 * descriptions of the engine's calls, and has it a kernel for each?
 *
 *     plans [--list]     --list: print each plan and the device memory of its runs
 *
 * cuDNN compiles the kernels, but does not run them.  Needs libcudnn.so.9 and, without an NVIDIA
 * driver, driver.c's libcuda.so.1 (plans.sh arranges both).
 */
#include <stdio.h>
#include <string.h>

#include "engine/cuda/cudnn.h"

/* A GPU: what cuDNN asks of it.  Sizes are NVIDIA's, of the H100 SXM and the A100. */
typedef struct gpu {
    const char *name;
    int capability, multiprocessors, shared;
    long l2;
} gpu;

static const gpu gpus[] = {{"H100", 90, 132, 232448, 52428800},
                           {"A100", 80, 108, 166912, 41943040}};

/* Calls of the engine.  packed: q, k, v are columns of one matrix; otherwise matrices of their
 * own. */
typedef struct shape {
    const char *name;
    uint64_t batch, queries, seq, heads, kv_heads, width;
    bool causal, packed;
} shape;

static const shape shapes[] = {
    {"GPT-2 124M, as measured", 16, 0, 1024, 12, 12, 64, true, true},
    {"GPT-2 1.3B, as measured", 8, 0, 1024, 16, 16, 128, true, true},
    {"BERT-base, as measured", 128, 0, 128, 12, 12, 64, false, true},
    {"Llama 3.2 1B", 4, 0, 2048, 32, 8, 64, true, false},
    {"Llama 3 8B", 4, 0, 2048, 32, 8, 128, true, true},
    {"Qwen2.5 0.5B", 16, 0, 1024, 14, 2, 64, true, false},
    {"heads of 96", 2, 0, 200, 4, 2, 96, true, true},
    {"heads of 80, an odd length", 2, 0, 131, 3, 1, 80, true, true},
    {"heads of 8", 1, 0, 17, 2, 2, 8, false, true},
    {"the first queries alone, causal", 2, 70, 150, 2, 1, 64, true, false},
    {"one query of each sequence", 64, 1, 128, 12, 12, 64, false, false},
    {"another sequence, longer", 2, 130, 70, 4, 4, 64, false, false},
};

static unsigned n_passed, n_failed;

static const char *properties_of(const gpu *g, char (&text)[1200])
{
    snprintf(text, sizeof text,
             "{\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,\"deviceName\":\"%s\","
             "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
             "\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"smCountOrigin\":0,"
             "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
             "\"maxSharedMemoryPerBlockOptin\":%d,\"reservedSharedMemoryPerBlock\":1024,"
             "\"oversizedSharedMemoryPerBlock\":0,\"maxRegistersPerSM\":65536,"
             "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,"
             "\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,"
             "\"totalGlobalMem\":85000000000,\"smClockRateKHz\":1410000,"
             "\"memClockRateKHz\":1215000,\"l2CacheSize\":%ld}",
             g->capability * 10, g->name, g->multiprocessors, g->shared, g->l2);
    return text;
}

static cu_dnn_call call_of(const shape *s, ckpt_dtype dt, bool backward)
{
    const uint64_t row = (s->heads + 2 * s->kv_heads) * s->width;
    zt_attention_grad g = {};
    cu_dnn_call c;

    g.fw.batch = s->batch;
    g.fw.queries = s->queries;
    g.fw.seq = s->seq;
    g.fw.heads = s->heads;
    g.fw.kv_heads = s->kv_heads;
    g.fw.width = s->width;
    g.fw.ldq = g.fw.ldk = g.fw.ldv = s->packed ? row : 0;
    g.fw.scale = 0.125F;
    g.fw.causal = s->causal;
    cu_dnn_describe(&c, dt, &g.fw, backward ? &g : NULL);
    return c;
}

static void check(cu_dnn *library, const gpu *g, const shape *s, ckpt_dtype dt, bool backward,
                  bool list)
{
    const cu_dnn_call call = call_of(s, dt, backward);
    const char *pass = backward ? "backward" : "forward";
    cu_dnn_plan *p = NULL;
    uint64_t n_bytes = 0;
    ckpt_err err = {};
    const bool ok = cu_dnn_plan_new(&p, library, &call, &n_bytes, &err) == CKPT_OK;

    n_passed += ok;
    n_failed += !ok;
    if (!ok)
        printf("FAIL %s, %s, %s, %s: %s\n", g->name, s->name, ckpt_dtype_name(dt), pass, err.text);
    else if (list)
        printf("%s, %s, %s, %s: %llu bytes\n", g->name, s->name, ckpt_dtype_name(dt), pass,
               (unsigned long long)n_bytes);
    cu_dnn_plan_free(p);
}

/* cuDNN refuses what no kernel computes, and the refusal is an error, no crash. */
static void refused(cu_dnn *library)
{
    shape s = shapes[0];
    cu_dnn_plan *p = NULL;
    uint64_t n_bytes = 0;
    ckpt_err err = {};

    s.width = 12;
    s.packed = false;
    const cu_dnn_call call = call_of(&s, CKPT_BF16, false);
    const bool ok = cu_dnn_plan_new(&p, library, &call, &n_bytes, &err) == CKPT_EUNSUPPORTED &&
                    !p && err.text[0] != '\0';

    n_passed += ok;
    n_failed += !ok;
    if (!ok)
        printf("FAIL heads of 12 are not refused: %s\n", err.text);
    cu_dnn_plan_free(p);
}

int main(int argc, char **argv)
{
    const bool list = argc == 2 && strcmp(argv[1], "--list") == 0;

    for (const gpu &g : gpus) {
        char text[1200];
        cu_dnn *library = NULL;
        ckpt_err err = {};

        if (cu_dnn_open_absent(&library, properties_of(&g, text), g.capability, &err) != CKPT_OK) {
            const bool missing = strstr(err.text, "cannot be loaded") != NULL;

            printf("%s: plans of cuDNN: %s\n", missing ? "skipped" : "FAIL", err.text);
            return !missing;
        }
        if (&g == gpus)
            printf("cuDNN %llu\n", (unsigned long long)cu_dnn_version(library));
        for (const shape &s : shapes) {
            // older GPUs get the measured shapes only, because each plan takes half a second
            if (g.capability < 90 && &s - shapes >= 6)
                break;
            check(library, &g, &s, CKPT_BF16, false, list);
            check(library, &g, &s, CKPT_BF16, true, list);
        }
        check(library, &g, shapes, CKPT_F16, false, list);
        check(library, &g, shapes, CKPT_F16, true, list);
        refused(library);
        cu_dnn_close(library);
    }
    printf("gpu plans: %u passed, %u failed\n", n_passed, n_failed);
    return n_failed != 0;
}
