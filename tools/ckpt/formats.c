/* SPDX-License-Identifier: Apache-2.0 */
/* formats.c: implements ckpt formats, which lists the formats that can be read and written. */
#include "ckpt_shape.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/maps.h"
#include "tools/cli/options.h"

#include <string.h>

/* The fields of this command. */
typedef struct formats_args {
    cli_args cli; /* first: the parser fills the whole */
    cli_maps maps;
} formats_args;

/* True for a map between model folders and GGUF that is only for certain architectures. */
static bool formats_is_gguf(const ckpt_remap *r)
{
    return strcmp(ckpt_remap_side(r, false), "hf") == 0 &&
           strcmp(ckpt_remap_side(r, true), "gguf") == 0 && ckpt_remap_model(r, false, 0) &&
           ckpt_remap_model(r, true, 0);
}

/* Print the architectures of layout maps as JSON. */
static void formats_maps_json(json_out *j, const cli_maps *maps)
{
    const char *name;

    json_open(j, "gguf_architectures", '[');
    for (size_t i = 0; i < maps->n; i++) {
        const ckpt_remap *r = maps->at[i].map;

        if (!formats_is_gguf(r))
            continue;
        json_open(j, NULL, '{');
        for (unsigned side = 0; side < 2; side++) {
            json_open(j, side ? "general.architecture" : "model_type", '[');
            for (size_t k = 0; (name = ckpt_remap_model(r, side, k)); k++)
                json_text(j, NULL, name);
            json_close(j, ']');
        }
        json_text(j, "map", maps_base(maps->at[i].path));
        json_close(j, '}');
    }
    json_close(j, ']');
}

/* Print the table as JSON. */
static void formats_json(const cli_maps *maps)
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
    formats_maps_json(&j, maps);
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

/* Print the models of one side of a map, separated by blanks; return the width. */
static size_t formats_models(const ckpt_remap *r, bool right)
{
    const char *name;
    size_t width = 0;

    for (size_t k = 0; (name = ckpt_remap_model(r, right, k)); k++) {
        out_printf("%s", k ? " " : "");
        out_text(name);
        width += strlen(name) + (k > 0);
    }
    return width;
}

/* Print a line per layout map between model folders and GGUF. */
static void formats_maps(const cli_maps *maps)
{
    out_printf("\nmodels that layout maps convert to GGUF and back, by model_type in config.json "
               "and general.architecture:\n");
    for (size_t i = 0; i < maps->n; i++) {
        const ckpt_remap *r = maps->at[i].map;

        if (!formats_is_gguf(r))
            continue;
        const size_t width = formats_models(r, false);
        out_printf("%*s", width < 40 ? (int)(42 - width) : 2, "");
        (void)formats_models(r, true);
        out_printf("\n");
    }
}

/* Print a line per format: name, abilities, remark. */
static int formats_run(cli_args *a, ckpt_err *err)
{
    const cli_maps *maps = &((const formats_args *)a)->maps;
    const ckpt_format_info *f;

    (void)err;
    if (a->json) {
        formats_json(maps);
        return CKPT_OK;
    }
    for (size_t i = 0; (f = ckpt_format_at(i)); i++) {
        if (a->quiet)
            out_printf("%s\n", f->name);
        else
            out_printf("%-14s%-6s%-7s%s\n", f->name, f->caps & CKPT_CAN_READ ? "read" : "",
                       f->caps & CKPT_CAN_WRITE ? "write" : "", f->note);
    }
    if (!a->quiet) {
        formats_quantized();
        formats_maps(maps);
    }
    return CKPT_OK;
}

static int formats_read(cli_args *a, ckpt_err *err)
{
    cli_maps *maps = &((formats_args *)a)->maps;
    int rc = maps_read(maps, NULL, err);

    return rc == CKPT_OK ? maps_use_all(maps, err) : rc;
}

static void formats_release(cli_args *a)
{
    maps_free(&((formats_args *)a)->maps);
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
    .summary = "List the supported formats, quantized kinds and GGUF architectures.",
    .options = formats_options,
    .moot = formats_moot,
    .run = formats_run,
    .room = sizeof(formats_args),
    .read = formats_read,
    .release = formats_release,
};
