/* SPDX-License-Identifier: Apache-2.0 */
/* help.c: prints the text of --help from the table of options. */
#include <stdio.h>
#include <string.h>

#include "tools/cli/out.h"
#include "tools/cli/table.h"

enum { HELP_COLUMN = 30 };

unsigned cli_format_caps(cli_kind kind)
{
    return kind == CLI_FORMAT  ? CKPT_CAN_WRITE
           : kind == CLI_STATE ? CKPT_CAN_WRITE | CKPT_WRITES_STATE
                               : 0;
}

const char *cli_formats(char text[CLI_HELP_ROOM], unsigned caps)
{
    const ckpt_format_info *f, *last = NULL;
    size_t n = 0;

    text[0] = 0;
    for (size_t i = 0; (f = ckpt_format_at(i)) && n < CLI_HELP_ROOM; i++) {
        if (!(f->caps & CKPT_CAN_WRITE) || (f->caps & caps) != caps)
            continue;
        if (last)
            n += (size_t)snprintf(text + n, CLI_HELP_ROOM - n, "%s%s", n ? ", " : "", last->name);
        last = f;
    }
    if (last && n < CLI_HELP_ROOM)
        (void)snprintf(text + n, CLI_HELP_ROOM - n, "%s%s", n ? " or " : "", last->name);
    return text;
}

const char *cli_option_help(const cli_option *o, char room[CLI_HELP_ROOM])
{
    unsigned caps = cli_format_caps(o->kind);
    size_t n;

    if (!caps)
        return o->help;
    n = strlen(cli_formats(room, caps));
    if (o->help)
        (void)snprintf(room + n, CLI_HELP_ROOM - n, " %s", o->help);
    return room;
}

/* Print one option: its forms in the left column, its text in the right one or on the next line. */
static void help_option(const cli_option *o)
{
    char left[CLI_HELP_ROOM], formats[CLI_HELP_ROOM];
    int n = snprintf(left, sizeof left, "  %c%c%c --%s%s%s", o->letter ? '-' : ' ',
                     o->letter ? o->letter : ' ', o->letter ? ',' : ' ', o->name,
                     o->value ? " " : "", o->value ? o->value : "");

    if (n >= HELP_COLUMN)
        out_printf("%s\n%*s", left, HELP_COLUMN, "");
    else
        out_printf("%-*s", HELP_COLUMN, left);
    out_printf("%s\n", cli_option_help(o, formats));
}

/* True if the heading contains an option of this name. */
static bool help_lists(const cli_heading *heading, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = heading->options; *at; at += strspn(at, " ")) {
        size_t own = strcspn(at, " ");

        if (own == n && strncmp(at, name, n) == 0)
            return true;
        at += own;
    }
    return false;
}

/* The first heading with an option; the end of the list if there is none. */
static const cli_heading *help_heading_of(const cli_verb *verb, const char *name)
{
    const cli_heading *h = verb->headings;

    while (h->title && !help_lists(h, name))
        h++;
    return h;
}

/*
 * Print a heading's options in the order of the table; for the end of the list, those without a
 * heading.
 */
static void help_heading(const cli_verb *verb, const cli_heading *heading)
{
    const cli_option *o;

    out_printf("%s:\n", heading->title ? heading->title : "Other options");
    for (size_t i = 0; (o = cli_option_at(verb, i)); i++) {
        if (help_heading_of(verb, o->name) == heading)
            help_option(o);
    }
}

/*
 * Help of a command with too many options for one screen: those that most users need, or all of
 * them by heading.
 */
static void help_by_headings(const cli_verb *verb, bool all)
{
    const cli_heading *h = verb->headings;
    size_t n = 0;

    help_heading(verb, h);
    while (all && h->title) {
        out_printf("\n");
        help_heading(verb, ++h);
    }
    while (cli_option_at(verb, n))
        n++;
    if (!all)
        out_printf("\n%s --help=all shows all %zu options.\n", verb->command, n);
}

void cli_help(const cli_verb *verb, bool all)
{
    const cli_option *o;

    out_printf("Usage: %s [options]%s%s\n\n%s\n\n", verb->command, *verb->operands ? " " : "",
               verb->operands, verb->summary);
    if (verb->headings)
        help_by_headings(verb, all);
    else
        out_printf("Options:\n");
    for (size_t i = 0; !verb->headings && (o = cli_option_at(verb, i)); i++)
        help_option(o);
    if (verb->notes)
        out_printf("\n%s\n", verb->notes);
}
