/* SPDX-License-Identifier: Apache-2.0 */
/*
 * models.c: compare models with recorded losses, logits, hidden states and gradients.
 *
 *     models FOLDER NAME...     FOLDER has models.json and model_NAME.safetensors
 *
 * Prints a line per model and dtype; the exit status is 1 if anything is out of its tolerance.
 * fp32: loss 1e-6 relative, gradients 1e-5 of max(|tensor max|, 1e-3 |global max|), logits and
 * hidden states 5e-6; 16 bits: loss 2e-3 (bf16) or 3e-4 (fp16), one unit in the last place where
 * the loss has that dtype; norm of the gradient 5e-3 or 6e-4 (T5 in bf16 2e-2, because its scores
 * are not scaled down and transformers rounds them).
 */
#include "tests/replay/model_check.h"

static bool mg_fp32(const char *name, const mc_result *r)
{
    double loss = fabs(r->loss - r->want_loss) / fabs(r->want_loss);
    bool ok =
        loss <= 1e-6 && r->worst_grad <= 1e-5 && r->worst_logit <= 5e-6 && r->worst_hidden <= 5e-6;

    printf("%-4s %-18s fp32 loss %.8f (rel %.1e) logits %.1e hidden %.1e grad %.1e of %s\n",
           ok ? "ok" : "FAIL", name, r->loss, loss, r->worst_logit, r->worst_hidden, r->worst_grad,
           r->worst_name);
    return ok;
}

static bool mg_low(const mc_case *c, const char *dtype, const mc_result *r)
{
    bool bf16 = strcmp(dtype, "bf16") == 0;
    // the loss of BERT and T5 has that dtype
    bool rounded = strncmp(c->name, "bert", 4) == 0 || strncmp(c->name, "t5", 2) == 0;
    double want = mc_want(c, dtype, "loss");
    double want_norm = mc_want(c, dtype, "gradnorm");
    double ulp = ldexp(1.0, ilogb(want) - (bf16 ? 7 : 10));
    double loss = fabs(r->loss - want);
    double norm = fabs(r->norm - want_norm) / want_norm;
    double most = bf16 ? strncmp(c->name, "t5", 2) == 0 ? 2e-2 : 5e-3 : 6e-4;
    // norms of the branches' outputs enlarge the roundings of transformers' steps
    most *= c->model->config.norm_branch ? 2 : 1;
    bool ok = loss <= (rounded ? ulp : bf16 ? 2e-3 : 3e-4) && norm <= most;

    printf("%-4s %-18s %s loss %.8f (%.1e off) norm %.6f (rel %.1e)\n", ok ? "ok" : "FAIL", c->name,
           dtype, r->loss, loss, r->norm, norm);
    return ok;
}

static bool mg_run(const char *folder, const char *name, const char *dtype)
{
    mc_case c;
    mc_result r;
    bool fp32 = strcmp(dtype, "fp32") == 0;
    bool ok = false;
    int rc = mc_open(&c, folder, name, &(mc_opts){.dtype = ckpt_dtype_parse(dtype)});

    if (rc == CKPT_OK)
        rc = mc_compare(&c, &r);
    if (rc != CKPT_OK)
        printf("FAIL %-18s %s: %s\n", name, dtype, c.err.text);
    else
        ok = fp32 ? mg_fp32(name, &r) : mg_low(&c, dtype, &r);
    mc_close(&c);
    return ok;
}

int main(int argc, char **argv)
{
    static const char *const dtypes[] = {"fp32", "bf16", "fp16"};
    int bad = 0;

    if (argc < 3) {
        fprintf(stderr, "usage: models FOLDER NAME...\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        for (size_t j = 0; j < sizeof dtypes / sizeof *dtypes; j++)
            bad += mg_run(argv[1], argv[i], dtypes[j]) ? 0 : 1;
    }
    printf("models: %d passed, %d failed\n", (argc - 2) * 3 - bad, bad);
    return bad > 0;
}
