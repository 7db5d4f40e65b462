/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete.c: prints completion scripts for bash, zsh and fish from the tables of options.
 *
 * Texts of the tables go between single quotes.  Names from a checkpoint (the tensors of `cat`) are
 * untrusted, so the scripts compare and insert them unchanged, and never let the shell expand them.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "ckpt_extra.h"
#include "tools/cli/out.h"
#include "tools/cli/table.h"

/* The source of completions for a value or an operand. */
typedef enum complete_kind { COMPLETE_NOTHING, COMPLETE_FILES, COMPLETE_WORDS } complete_kind;

/* A program with its commands, or commands that are programs. */
typedef struct complete_set {
    const char *program; /* or NULL */
    const cli_verb *const *commands;
} complete_set;

/* Print text for single quotes, with a backslash before each character in `escaped`. */
static void complete_quoted(const char *text, const char *escaped, const char *quote)
{
    for (; *text; text++) {
        if (*text == '\'')
            out_printf("%s", quote);
        else
            out_printf("%s%c", strchr(escaped, *text) ? "\\" : "", *text);
    }
}

static complete_kind complete_option(const cli_option *o)
{
    switch (o->kind) {
    case CLI_FILE:
    case CLI_SOURCE:
    case CLI_OUTPUT:
    case CLI_RESULT:
    case CLI_MORE:
    case CLI_SOURCES:
        return COMPLETE_FILES;
    case CLI_DTYPE:
    case CLI_DTYPES:
    case CLI_FORMAT:
    case CLI_STATE:
        return COMPLETE_WORDS;
    case CLI_FLAG:
    case CLI_TEXT:
    case CLI_LIST:
    case CLI_SIZE:
    case CLI_COUNT:
    case CLI_COUNT64:
    case CLI_MANY:
    case CLI_WHOLE:
    case CLI_INTEGER:
    case CLI_NUMBER:
    case CLI_REAL:
        break;
    }
    return o->value && strchr(o->value, '|') ? COMPLETE_WORDS : COMPLETE_NOTHING;
}

/* Print "a|b" as "a b". */
static void complete_choices(const char *text)
{
    for (; *text; text++)
        out_printf("%c", *text == '|' ? ' ' : *text);
}

/* Print the floats of 16 bits and more as users write them: fp32 for the library's F32. */
static void complete_dtypes(void)
{
    for (unsigned d = CKPT_DTYPE_NONE + 1; d < CKPT_N_DTYPES; d++) {
        const char *name = ckpt_dtype_name((ckpt_dtype)d);
        char word[32];

        (void)snprintf(word, sizeof word, "fp%s", name + 1);
        if (name[0] == 'F' && !strchr(name, '_') && ckpt_dtype_parse(word) == (ckpt_dtype)d)
            out_printf("%s ", word);
    }
    out_printf("%s", "bf16");
}

/* Print a blank, and words in lower case. */
static void complete_lower(const char *text)
{
    out_printf(" ");
    for (; *text; text++)
        out_printf("%c", tolower((unsigned char)*text));
}

/* Print the types that single formats add: block types, and mixtures of them. */
static void complete_types(void)
{
    const ckpt_format_info *f;

    for (size_t i = 0; (f = ckpt_format_at(i)); i++) {
        for (const ckpt_dtype *d = f->mixtures ? f->dtypes : NULL; d && *d != CKPT_DTYPE_NONE;
             d++) {
            if (ckpt_dtype_block(*d, NULL) > 1)
                complete_lower(ckpt_dtype_name(*d));
        }
        if (f->mixtures)
            complete_lower(f->mixtures);
    }
}

/* Print the words that an option's value may be, separated by blanks. */
static void complete_words(const cli_option *o)
{
    const ckpt_format_info *f;
    const char *between = "";
    unsigned caps = cli_format_caps(o->kind);

    if (o->value && strchr(o->value, '|')) {
        complete_choices(o->value);
        return;
    }
    if (o->kind == CLI_DTYPE || o->kind == CLI_DTYPES)
        complete_dtypes();
    if (o->kind == CLI_DTYPES)
        complete_types();
    for (size_t i = 0; caps && (f = ckpt_format_at(i)); i++) {
        if ((f->caps & caps) == caps) {
            out_printf("%s%s", between, f->name);
            between = " ";
        }
    }
}

/* Print the names of the commands, separated by blanks. */
static void complete_names(const complete_set *set, bool programs)
{
    for (const cli_verb *const *v = set->commands; *v; v++) {
        if (!programs || (*v)->compat)
            out_printf("%s ", (*v)->name);
    }
}

/* ---- bash ---- */

/* Print the options with one kind of value as patterns of a case. */
static void bash_group(const cli_verb *v, complete_kind kind, const char *action)
{
    const cli_option *o;
    const char *between = "    ";

    for (size_t i = 0; (o = cli_option_at(v, i)); i++) {
        if (o->kind == CLI_FLAG || complete_option(o) != kind)
            continue;
        out_printf("%s%s/--%s", between, v->name, o->name);
        if (o->letter)
            out_printf(" | %s/-%c", v->name, o->letter);
        between = " | ";
        if (kind == COMPLETE_WORDS) {
            out_printf(") words='");
            complete_words(o);
            out_printf("' ;;\n");
            between = "    ";
        }
    }
    if (between[1] == '|')
        out_printf(") %s ;;\n", action);
}

/* Print the operands of a command that are not files. */
static void bash_operands(const complete_set *set, const cli_verb *v)
{
    const char *uses = v->uses ? v->uses : "";

    if (strchr(uses, 't')) {
        out_printf("        %s) [ -e \"$prev\" ] && tensors=1 || files=1 ;;\n", v->name);
    } else if (strchr(uses, 'v')) {
        out_printf("        %s) words='", v->name);
        complete_names(set, false);
        out_printf("' ;;\n");
    } else if (strchr(v->operands, '|')) {
        out_printf("        %s) words='", v->name);
        complete_choices(v->operands);
        out_printf("' ;;\n");
    } else if (v->max == 0) {
        out_printf("        %s) ;;\n", v->name);
    }
}

static void bash_head(const complete_set *set, const char *name)
{
    out_printf("# printed from the tables of options by %s\n"
               "_%s() {\n"
               "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
               "    local verb=${COMP_WORDS[0]##*/} words='' files='' tensors='' word\n"
               "    # --name=value is three words here\n"
               "    [ \"$prev\" != = ] || prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
               "    [ \"$cur\" != = ] || cur=\n"
               "    verb=${verb%%.py}\n",
               name, name);
    if (set->program)
        out_printf("    if [ \"$verb\" = %s ]; then\n"
                   "        verb=${COMP_WORDS[1]}\n"
                   "        [ \"$COMP_CWORD\" -gt 1 ] || verb=\n"
                   "    fi\n",
                   set->program);
    out_printf("    case $verb/$prev in\n");
    if (set->program) {
        out_printf("    /*) words='");
        complete_names(set, false);
        out_printf("--help --version' ;;\n");
    }
}

static void bash_tail(const complete_set *set, const char *name)
{
    out_printf("    if [ -n \"$tensors\" ]; then\n"
               "        # names of a checkpoint are quoted like those of files, and not expanded\n"
               "        compopt -o filenames 2>/dev/null\n"
               "        COMPREPLY=()\n"
               "        while IFS= read -r word; do\n"
               "            [[ $word != \"$cur\"* ]] || COMPREPLY+=(\"$word\")\n"
               "        done < <(ckpt ls -q -- \"$prev\" 2>/dev/null)\n"
               "    elif [ -n \"$files\" ]; then\n"
               "        compopt -o filenames 2>/dev/null\n"
               "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
               "    else\n"
               "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
               "    fi\n"
               "}\n"
               "complete -F _%s %s",
               name, set->program ? set->program : "");
    for (const cli_verb *const *v = set->commands; *v; v++) {
        if ((*v)->compat)
            out_printf(" %s %s.py", (*v)->name, (*v)->name);
    }
    out_printf("\n");
}

static void bash_print(const complete_set *set, const char *name)
{
    const cli_verb *const *v;
    const cli_option *o;

    bash_head(set, name);
    for (v = set->commands; *v; v++) {
        bash_group(*v, COMPLETE_WORDS, "");
        bash_group(*v, COMPLETE_FILES, "files=1");
        bash_group(*v, COMPLETE_NOTHING, "");
    }
    out_printf("    */*)\n        case $verb/$cur in\n");
    for (v = set->commands; *v; v++) {
        out_printf("        %s/-*) words='", (*v)->name);
        for (size_t i = 0; (o = cli_option_at(*v, i)); i++)
            out_printf("%s--%s", i ? " " : "", o->name);
        out_printf("' ;;\n");
    }
    out_printf("        */*)\n        case $verb in\n");
    for (v = set->commands; *v; v++)
        bash_operands(set, *v);
    out_printf(
        "        *) files=1 ;;\n        esac\n        ;;\n        esac\n        ;;\n    esac\n");
    bash_tail(set, name);
}

/* ---- zsh ---- */

/* Print the completion of a value for _arguments. */
static void zsh_value(const cli_option *o)
{
    complete_kind kind = complete_option(o);

    out_printf(":");
    complete_quoted(kind == COMPLETE_WORDS ? "value" : o->value ? o->value : "", "[]:\\", "");
    out_printf(":");
    if (kind == COMPLETE_WORDS) {
        out_printf("(");
        complete_words(o);
        out_printf(")");
    } else {
        out_printf("%s", kind == COMPLETE_FILES ? "_files" : " ");
    }
}

/* Print one option for _arguments: '(-l --long)'{-l,--long}'[text]:value:action'. */
static void zsh_option(const cli_option *o)
{
    const char *again = o->kind == CLI_LIST || o->kind == CLI_SOURCES ? "*" : "";
    char room[CLI_HELP_ROOM];

    if (o->letter)
        out_printf("            '%s(-%c --%s)'{-%c,--%s}'[", again, o->letter, o->name, o->letter,
                   o->name);
    else
        out_printf("            '%s--%s[", again, o->name);
    complete_quoted(cli_option_help(o, room), "[]:\\", "'\\''");
    out_printf("]");
    if (o->kind != CLI_FLAG)
        zsh_value(o);
    out_printf("' \\\n");
}

static void zsh_operands(const complete_set *set, const cli_verb *v)
{
    const char *uses = v->uses ? v->uses : "";

    if (strchr(uses, 't')) {
        out_printf("'1:checkpoint:_files' '2:tensor:_ckpt_tensors'");
    } else if (strchr(uses, 'v')) {
        out_printf("'1:command:(");
        complete_names(set, false);
        out_printf(")'");
    } else if (strchr(v->operands, '|')) {
        out_printf("'1:shell:(");
        complete_choices(v->operands);
        out_printf(")'");
    } else if (v->max > 0) {
        out_printf("'*:path:_files'");
    }
}

static void zsh_print(const complete_set *set, const char *name)
{
    const cli_verb *const *v;
    const cli_option *o;

    out_printf("#compdef %s%s", set->program ? set->program : "", set->program ? " " : "");
    complete_names(set, true);
    out_printf("\n\n_ckpt_tensors() {\n"
               "    local -a names\n"
               "    names=(${(f)\"$(ckpt ls -q -- ${line[1]} 2>/dev/null)\"})\n"
               "    compadd -a names\n"
               "}\n\n"
               "_%s() {\n    local verb=${${service:t}%%.py}\n",
               name);
    if (set->program) {
        out_printf("    if [[ $verb == %s ]]; then\n        if (( CURRENT == 2 )); then\n"
                   "            local -a verbs\n            verbs=(\n",
                   set->program);
        for (v = set->commands; *v; v++) {
            out_printf("                '%s:", (*v)->name);
            complete_quoted((*v)->summary, "", "'\\''");
            out_printf("'\n");
        }
        out_printf("            )\n            _describe command verbs\n            return\n"
                   "        fi\n        verb=$words[2]\n        shift words\n"
                   "        (( CURRENT-- ))\n    fi\n");
    }
    out_printf("    case $verb in\n");
    for (v = set->commands; *v; v++) {
        out_printf("    %s)\n        _arguments -s \\\n", (*v)->name);
        for (size_t i = 0; (o = cli_option_at(*v, i)); i++)
            zsh_option(o);
        out_printf("            ");
        zsh_operands(set, *v);
        out_printf(" ;;\n");
    }
    out_printf("    esac\n}\n\n_%s \"$@\"\n", name);
}

/* ---- fish ---- */

/* Print one option of a program after the given verb (NULL: anywhere). */
static void fish_option(const char *program, const char *verb, const cli_option *o)
{
    complete_kind kind = complete_option(o);
    char room[CLI_HELP_ROOM];

    out_printf("complete -c %s", program);
    if (verb)
        out_printf(" -n '__fish_seen_subcommand_from %s'", verb);
    if (o->letter)
        out_printf(" -s %c", o->letter);
    out_printf(" -l %s", o->name);
    if (o->kind != CLI_FLAG)
        out_printf("%s", kind == COMPLETE_FILES ? " -r" : " -x");
    if (kind == COMPLETE_WORDS) {
        out_printf(" -a '");
        complete_words(o);
        out_printf("'");
    }
    out_printf(" -d '");
    complete_quoted(cli_option_help(o, room), "\\", "\\'");
    out_printf("'\n");
}

/* Print a command's options, and completions of its operands if they are not files. */
static void fish_command(const complete_set *set, const cli_verb *v, const char *program,
                         const char *verb)
{
    const cli_option *o;

    for (size_t i = 0; (o = cli_option_at(v, i)); i++)
        fish_option(program, verb, o);
    bool commands = v->uses && strchr(v->uses, 'v'), choices = strchr(v->operands, '|');
    if (v->max > 0 && !commands && !choices)
        return;
    out_printf("complete -c %s", program);
    if (verb)
        out_printf(" -n '__fish_seen_subcommand_from %s'", verb);
    out_printf(" -f");
    if (commands || choices)
        out_printf(" -a '");
    if (commands)
        complete_names(set, false);
    else if (choices)
        complete_choices(v->operands);
    out_printf("%s\n", commands || choices ? "'" : "");
}

static void fish_print(const complete_set *set, const char *name)
{
    out_printf("# printed from the tables of options by %s\n", name);
    if (set->program)
        out_printf("complete -c %s -n __fish_use_subcommand -f -s h -l help\n"
                   "complete -c %s -n __fish_use_subcommand -f -s V -l version\n",
                   set->program, set->program);
    for (const cli_verb *const *v = set->commands; *v; v++) {
        if (set->program) {
            out_printf("complete -c %s -n __fish_use_subcommand -f -a %s -d '", set->program,
                       (*v)->name);
            complete_quoted((*v)->summary, "\\", "\\'");
            out_printf("'\n");
            fish_command(set, *v, set->program, (*v)->name);
        }
        if ((*v)->compat)
            fish_command(set, *v, (*v)->name, NULL);
    }
}

int cli_complete(const char *shell, const char *program, const cli_verb *const *commands,
                 ckpt_err *err)
{
    static const struct {
        const char *shell;
        void (*print)(const complete_set *set, const char *name);
    } known[] = {{"bash", bash_print}, {"zsh", zsh_print}, {"fish", fish_print}};
    const complete_set set = {program, commands};
    const char *name = program ? program : commands[0]->name;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].shell, shell) != 0)
            continue;
        known[i].print(&set, name);
        return CKPT_OK;
    }
    return fail(err, CKPT_EUSAGE, "'%s': completion is printed for bash, zsh and fish", shell);
}
