/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.c: verify a checkpoint and print each warning and error.
 *
 *     ./verify CHECKPOINT
 */
#include <inttypes.h>
#include <stdio.h>

#include <ckpt.h>

static int print_finding(void *ctx, int severity, int code, const char *text)
{
    (void)code;
    if (severity > 0)
        printf("%s: %s\n", severity > 1 ? "error" : "warning", text);
    *(unsigned *)ctx += severity > 0;
    return 0; /* go on */
}

int main(int argc, char **argv)
{
    unsigned n = 0;
    ckpt_err err = {0};
    ckpt_run_report report = {.size = sizeof report};
    ckpt_verify_opts opts = {.finding = print_finding, .finding_ctx = &n};
    int rc = argc == 2 ? ckpt_verify(argv[1], &opts, &report, &err) : CKPT_EUSAGE;

    if (rc == CKPT_OK)
        printf("%" PRIu64 " records have a correct CRC, %u findings\n", report.n_records_checked,
               n);
    else
        fprintf(stderr, "%s\n", err.text[0] ? err.text : ckpt_err_text(rc));
    return ckpt_err_status(rc);
}
