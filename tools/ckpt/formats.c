/* SPDX-License-Identifier: Apache-2.0 */
/* formats.c: implements ckpt formats, which lists the formats that can be read and written. */
#include "ckpt_shape.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"

/* Print the table as JSON. */
static void formats_json(void)
{
    const ckpt_format_info *f;
    const ckpt_quantization *q;
    json_out j;

    json_begin(&j);
    json_open(&j, "formats", '[');
    for (size_t i = 0; (f = ckpt_format_at(i)); i++) {
        json_open(&j, NULL, '{');
        json_text(&j, "name", f->name);
        json_text(&j, "aliases", f->aliases);
        json_text(&j, "suffixes", f->suffixes);
        json_bool(&j, "folder", f->caps & CKPT_IS_FOLDER);
        json_bool(&j, "training", f->caps & (CKPT_READS_STATE | CKPT_WRITES_STATE));
        json_bool(&j, "read", f->caps & CKPT_CAN_READ);
        json_bool(&j, "write", f->caps & CKPT_CAN_WRITE);
        json_text(&j, "note", f->note);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_open(&j, "quantized", '[');
    for (size_t i = 0; (q = ckpt_quantization_at(i)); i++) {
        json_open(&j, NULL, '{');
        json_text(&j, "method", q->method);
        json_text(&j, "format", *q->format ? q->format : NULL);
        json_text(&j, "note", q->note);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_end(&j);
}

/* Print a line per kind of quantized weights. */
static void formats_quantized(void)
{
    const ckpt_quantization *q;

    out_printf("\nquantized weights of model folders that are read as floats, by quant_method and "
               "format in config.json:\n");
    for (size_t i = 0; (q = ckpt_quantization_at(i)); i++)
        out_printf("%-20s%-22s%s\n", q->method, q->format, q->note);
}

/* Print a line per format: name, abilities, remark. */
static int formats_run(cli_args *a, ckpt_err *err)
{
    const ckpt_format_info *f;

    (void)err;
    if (a->json) {
        formats_json();
        return CKPT_OK;
    }
    for (size_t i = 0; (f = ckpt_format_at(i)); i++) {
        if (a->quiet)
            out_printf("%s\n", f->name);
        else
            out_printf("%-14s%-6s%-7s%s\n", f->name, f->caps & CKPT_CAN_READ ? "read" : "",
                       f->caps & CKPT_CAN_WRITE ? "write" : "", f->note);
    }
    if (!a->quiet)
        formats_quantized();
    return CKPT_OK;
}

static const cli_option formats_options[] = {
    OPTION_PRINT_JSON,
    {"quiet", 'q', CLI_FLAG, offsetof(cli_args, quiet), NULL, "print names only"},
    CLI_END,
};

static const cli_moot formats_moot[] = {
    {"quiet", "json", NULL},
    {NULL, NULL, NULL},
};

const cli_verb verb_formats = {
    .name = "formats",
    .command = "ckpt formats",
    .operands = "",
    .summary = "List the formats that can be read and written, and kinds of quantized weights.",
    .options = formats_options,
    .moot = formats_moot,
    .run = formats_run,
};
