/* SPDX-License-Identifier: Apache-2.0 */
/*
 * effects.c: defines the conditions under which options have an effect.  The library answers
 * whether a format or a source meets a condition; the tables here list the options with their
 * conditions.
 */
#include "tools/ckpt/effects.h"
#include "ckpt_extra.h"
#include "tools/ckpt/report.h"

#include <inttypes.h>
#include <stdio.h>

#define AT(field) offsetof(write_args, field)

int effects_of_target(const write_args *a, ckpt_err *err)
{
    static const struct {
        size_t at;
        unsigned needs;
    } option[] = {
        {AT(target.max_shard_size), CKPT_TAKES_SHARD_SIZE},
        {AT(skip_side_files), CKPT_TAKES_SIDE_FILES},
        {AT(order), CKPT_WRITES_STATE},
        {AT(target.tag), CKPT_WRITES_STATE},
        {AT(target.stage), CKPT_WRITES_STATE},
        {AT(target.fresh_optimizer), CKPT_WRITES_STATE},
        {AT(moments), CKPT_WRITES_STATE},
        {AT(target.keep_objects), CKPT_WRITES_STATE},
        {AT(target.drop_objects), CKPT_WRITES_STATE},
        {AT(target.deflate), CKPT_TAKES_DEFLATE},
        {AT(target.layout), CKPT_TAKES_LAYOUT},
        {AT(target.world), CKPT_TAKES_WORLD},
        {AT(target.pp_size), CKPT_TAKES_GRID},
        {AT(join), CKPT_WRITES_STATE},
    };
    unsigned caps = ckpt_format_caps(a->target.format);
    char list[CLI_HELP_ROOM];

    for (size_t k = 0; k < sizeof option / sizeof *option; k++) {
        const char *given = cli_given(&a->cli.line, option[k].at);

        if (!given || (caps & option[k].needs))
            continue;
        // the state that schedule-free weights are computed from may need the order, too
        if (option[k].at == AT(order) && cli_has(&a->cli.line, "weights"))
            continue;
        return fail(err, CKPT_EUSAGE, "--%s does not apply to format %s, only to %s", given,
                    a->target.format, cli_formats(list, option[k].needs));
    }
    // a target with training state needs all ranks, and a shard has the state of one
    if ((caps & CKPT_WRITES_STATE) && cli_has(&a->cli.line, "as-file"))
        return fail(err, CKPT_EUSAGE, "--as-file: format %s needs a whole checkpoint",
                    a->target.format);
    return CKPT_OK;
}

void effects_of_options(const cli_args *a)
{
    const cli_moot *m = a->line.verb->moot;

    for (; m && m->option; m++) {
        if (!cli_has(&a->line, m->option))
            continue;
        if (m->with && cli_has(&a->line, m->with))
            say_warning("--%s has no effect with --%s", m->option, m->with);
        if (m->without && !cli_has(&a->line, m->without))
            say_warning("--%s has no effect without --%s", m->option, m->without);
    }
}

/* The condition of an option, and the text of the warning if it is not met. */
typedef struct effect {
    size_t at;          /* offset of the option's field, if option is NULL */
    const char *option; /* the option's name, if commands keep it in different structs */
    unsigned needs;     /* 0: end of the table */
    const char *why;
} effect;

#define FIELD(field)       offsetof(cli_args, field), NULL
#define WRITE_FIELD(field) offsetof(write_args, field), NULL
#define NAMED(name)        0, name

/* The name of the row's option, if it was given, or NULL. */
static const char *effects_given(const cli_line *line, const effect *e)
{
    if (!e->option)
        return cli_given(line, e->at);
    return cli_has(line, e->option) ? e->option : NULL;
}

/* Warn about each given option that does not meet its condition. */
static void effects_say(const cli_args *a, const effect *e, const ckpt_map *map, unsigned took)
{
    for (; e->needs; e++) {
        const char *given = effects_given(&a->line, e);

        if (given && !(took & e->needs))
            say_warning("%s: --%s has no effect: %s", ckpt_map_path(map), given, e->why);
    }
}

void effects_of_source(const cli_args *a, const ckpt_map *map)
{
    static const effect option[] = {
        {FIELD(open.with_optimizer), CKPT_USED_STATE, "the source has no optimizer state"},
        {FIELD(open.skip_frozen), CKPT_USED_FROZEN, "no parameter is known to be frozen"},
        {FIELD(open.keep_slices), CKPT_USED_SLICES, "no tensor is cut into slices"},
        {NAMED("join"), CKPT_USED_SLICES, "no tensor is cut into slices"},
        {FIELD(slice_rules), CKPT_USED_RULES, "no slices are joined"},
        {NAMED("as-file"), CKPT_USED_WHOLE, "the source is not a shard of several files"},
        {FIELD(open.ignore_copies), CKPT_USED_COPIES,
         "the source has no 16-bit copies of its fp32 masters"},
        {FIELD(open.require_crc), CKPT_USED_CRC, "files of this format have no checksums"},
        {FIELD(keep_names), CKPT_USED_NAMES, "the names have no wrapper prefix to keep"},
        {NAMED("no-crc"), CKPT_USED_CRC, "files of this format have no checksums"},
        {0},
    };

    effects_say(a, option, map, ckpt_map_used_options(map));
    if (a->open.weights_only && !map_fact(map, "weights"))
        say_warning("%s: --weights-only has no effect: only runs of DeepSpeed store weights and "
                    "optimizer state in separate files",
                    ckpt_map_path(map));
}

void effects_of_layout(const write_args *a, const ckpt_map *from, const ckpt_map *to)
{
    static const effect option[] = {
        {WRITE_FIELD(target.keep_objects), CKPT_USED_OBJECTS,
         "the source has no objects of unknown classes"},
        {WRITE_FIELD(target.drop_objects), CKPT_USED_OBJECTS,
         "the source has no objects of unknown classes"},
        {WRITE_FIELD(target.sub_group_size), CKPT_USED_SUB_GROUPS, "only stage 3 has sub-groups"},
        {0},
    };

    effects_say(&a->cli, option, from, ckpt_map_used_options(to));
}

int effects_strict(const cli_args *a, ckpt_err *err)
{
    uint64_t n = out_warnings();

    if (!a->strict || n == 0)
        return CKPT_OK;
    return fail(err, CKPT_EDOUBT, "--strict: refused because of %s above",
                n == 1 ? "the warning" : "the warnings");
}
