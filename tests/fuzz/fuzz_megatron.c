/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_megatron.c: a run folder of Megatron-LM, made of the input: opened with its optimizer
 * state, checked, and its values read.
 */
#include "tests/fuzz/fuzz_run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(data, size);
}
