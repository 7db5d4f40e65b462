/* SPDX-License-Identifier: Apache-2.0 */
/*
 * effects.c: owns what each option needs in order to have an effect.  Whether a format or a source
 * has that is asked from the library; the tables here only say what an option is about.
 */
#include "tools/effects.h"

#include <inttypes.h>
#include <stdio.h>

#define AT(field) offsetof(cli_args, field)

int effects_of_target(const cli_args *a, ckpt_err *err)
{
    static const struct {
        size_t at;
        unsigned needs;
    } option[] = {
        {AT(target.max_shard_size), CKPT_TAKES_LIMIT},
        {AT(no_side_files), CKPT_TAKES_SIDE},
        {AT(order), CKPT_MAKES_TENSORS},
        {AT(target.tag), CKPT_MAKES_TENSORS},
        {AT(target.fresh_optimizer), CKPT_MAKES_TENSORS},
        {AT(target.objects_kept), CKPT_MAKES_TENSORS},
        {AT(target.objects_dropped), CKPT_MAKES_TENSORS},
    };
    unsigned caps = ckpt_format_caps(a->target.format), can;
    const char *name, *note;
    char list[200] = "";
    size_t n = 0;

    for (size_t k = 0; k < sizeof option / sizeof *option; k++) {
        const char *given = cli_given(a, option[k].at);

        if (!given || (caps & option[k].needs))
            continue;
        for (size_t i = 0; ckpt_format_at(i, &name, &note, &can); i++) {
            if ((can & CKPT_CAN_WRITE) && (can & option[k].needs) && n < sizeof list)
                n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", name);
        }
        return fail(err, CKPT_EUSAGE, "--%s means nothing to format %s, only to %s", given,
                    a->target.format, list);
    }
    // training state is that of all ranks, and a shard has one's
    if ((caps & CKPT_MAKES_TENSORS) && cli_given(a, AT(as_file)))
        return fail(err, CKPT_EUSAGE, "--as-file: format %s is made of whole checkpoints",
                    a->target.format);
    return CKPT_OK;
}

void effects_of_source(const cli_args *a, const ckpt_map *map)
{
    static const struct {
        size_t at;
        unsigned needs;
        const char *why;
    } option[] = {
        {AT(open.with_optimizer), CKPT_TOOK_STATE, "there is no optimizer state"},
        {AT(all), CKPT_TOOK_STATE, "there is no optimizer state"},
        {AT(open.no_frozen), CKPT_TOOK_FROZEN, "no parameter is known to be frozen"},
        {AT(open.keep_slices), CKPT_TOOK_SLICES, "no tensor is cut into slices"},
        {AT(slice_rules), CKPT_TOOK_RULES, "no slices are joined"},
        {AT(as_file), CKPT_TOOK_WHOLE, "this is no shard of several files"},
        {AT(open.require_crc), CKPT_TOOK_CRC, "files of this format have no checksums"},
    };
    unsigned took = ckpt_map_effects(map);

    for (size_t k = 0; k < sizeof option / sizeof *option; k++) {
        const char *given = cli_given(a, option[k].at);

        if (given && !(took & option[k].needs))
            say_warning("%s: --%s has no effect: %s", ckpt_map_path(map), given, option[k].why);
    }
}

int effects_strict(const cli_args *a, ckpt_err *err)
{
    uint64_t n = out_warnings();

    if (!a->strict || n == 0)
        return CKPT_OK;
    return fail(err, CKPT_EDOUBT, "--strict: refused because of %s above",
                n == 1 ? "the warning" : "the warnings");
}
