/* SPDX-License-Identifier: Apache-2.0 */
// llama_quantize.cpp: what llama.cpp's quantizer needs of its common library, for llama.sh: a log that keeps silent, and no
// overrides of keys.
#include <cstdio>
#include <vector>

#include "build-info.h"
#include "common.h"
#include "log.h"

bool string_parse_kv_override(const char *, std::vector<llama_model_kv_override> &)
{
    return false;
}

void llama_print_build_info(const char *, FILE *)
{
}

int common_log_get_verbosity_thold(void)
{
    return -1;
}

struct common_log *common_log_main()
{
    return nullptr;
}

void common_log_add(struct common_log *, enum ggml_log_level, const char *, ...)
{
}
