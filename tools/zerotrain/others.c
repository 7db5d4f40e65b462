/* SPDX-License-Identifier: Apache-2.0 */
/*
 * others.c: handles options of transformers, torchrun and DeepSpeed's launcher that zerotrain lacks
 * or has in another form: the table of names.c says how each is handled.
 *
 * It works on the words before they are parsed.  Accepted words are kept, in the form that the
 * table of options expects.  All others are removed, with a note if a user may expect an effect, or
 * refused with the alternative.
 */
#include <stdio.h>
#include <string.h>

#include "tools/cli/out.h"
#include "tools/zerotrain/names.h"
#include "tools/zerotrain/zerotrain.h"

static char ow_plain(char c)
{
    return c == '-' ? '_' : c;
}

/* Find the row of a name of n bytes ('-' and '_' are equal); NULL: none. */
static const name_row *ow_find(const char *name, size_t n)
{
    for (size_t i = 0; i < names_count; i++) {
        const char *is = names_table[i].name;
        size_t k = 0;

        while (k < n && is[k] && ow_plain(name[k]) == is[k])
            k++;
        if (k == n && !is[k])
            return &names_table[i];
    }
    return NULL;
}

/* Parse a boolean in the forms of argparse and transformers; 1, 0, or -1: not a boolean. */
static int ow_truth(const char *word)
{
    static const char *const yes[] = {"1", "true", "True", "yes", "y", "t", NULL};
    static const char *const no[] = {"0", "false", "False", "no", "n", "f", NULL};

    for (size_t i = 0; yes[i]; i++) {
        if (strcmp(word, yes[i]) == 0)
            return 1;
        if (strcmp(word, no[i]) == 0)
            return 0;
    }
    return -1;
}

/* True if the value has no effect, because it is in `to`. */
static bool ow_allowed(const name_row *o, const char *value)
{
    const char *at = strstr(o->to, value);
    size_t n = strlen(value);

    return n > 0 && at && at > o->to && at[-1] == '|' && at[n] == '|';
}

static int ow_refuse(const name_row *o, const char *value, ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EUSAGE, "--%s%s%.60s: %s", o->name, value ? " " : "",
                     value ? value : "", o->text);
}

static int ow_note(told *t, const name_row *o, ckpt_err *err)
{
    const char *text =
        !o->text || t->n_notes == TOLD_NOTES
            ? NULL
            : ckpt_arena_printf(t->arena, "--%s has no effect: %s", o->name, o->text);

    if (text)
        t->notes[t->n_notes++] = text;
    return o->text && !text && t->n_notes < TOLD_NOTES ? ckpt_fail_memory(err) : CKPT_OK;
}

/* Handle an option of the table, with its value or NULL. */
static int ow_meet(told *t, const name_row *o, const char *value, ckpt_err *err)
{
    const int truth = value ? ow_truth(value) : 1;

    switch (o->kind) {
    case NAME_FLAG:
    case NAME_SAME:
    case NAME_BARE:
        break;
    case NAME_TRUE:
        if (truth < 0)
            return ckpt_fail(err, CKPT_EUSAGE, "--%s %.60s: expected true or false", o->name,
                             value);
        return truth ? ow_note(t, o, err) : CKPT_OK;
    case NAME_VALUE:
        return value ? ow_note(t, o, err)
                     : ckpt_fail(err, CKPT_EUSAGE, "--%s needs a value", o->name);
    case NAME_SOME:
        return value && ow_allowed(o, value) ? CKPT_OK : ow_refuse(o, value, err);
    case NAME_NO_TRUE:
        return truth == 0 ? CKPT_OK : ow_refuse(o, value, err);
    case NAME_NO:
        return ow_refuse(o, value, err);
    }
    return CKPT_OK;
}

/* Get the value of an option: the text after '=', or the next word. */
static const char *ow_value(const name_row *o, const char *word, const char *next, bool *took)
{
    const char *same = strchr(word, '=');
    bool wants = o->kind == NAME_VALUE || o->kind == NAME_SOME || o->kind == NAME_NO ||
                 o->kind == NAME_BARE || o->kind == NAME_SAME;

    *took = false;
    if (same)
        return same + 1;
    // a switch has a value if the next word looks like a boolean
    *took = next && strncmp(next, "--", 2) != 0 && (wants || ow_truth(next) >= 0);
    return *took ? next : NULL;
}

/*
 * Rewrite one word with its value: *put is the word for the table of options; NULL removes it.
 */
static int ow_word(told *t, const name_row *o, char *word, const char *value, char **put,
                   ckpt_err *err)
{
    const char *same = strchr(word, '=');

    *put = NULL;
    switch ((int)o->kind) {
    case NAME_FLAG:
        if (value && ow_truth(value) < 0)
            return ckpt_fail(err, CKPT_EUSAGE, "--%s %.60s: expected true or false", o->name,
                             value);
        if (value && ow_truth(value) == 0)
            return CKPT_OK;
        *put = ckpt_arena_printf(t->arena, "--%s", o->name);
        break;
    case NAME_BARE:
        if (!value)
            return CKPT_OK;
        *put = word;
        break;
    case NAME_SAME:
        *put = ckpt_arena_printf(t->arena, "--%s%s", o->to, same ? same : "");
        break;
    default:
        return ow_meet(t, o, value, err);
    }
    return *put ? CKPT_OK : ckpt_fail_memory(err);
}

int others_words(told *t, int *argc, char ***argv, ckpt_err *err)
{
    char **out = ckpt_arena_array(t->arena, (uint64_t)*argc + 1, sizeof *out);
    int n = 0, rc = out ? CKPT_OK : ckpt_fail_memory(err);
    bool options = true;

    for (int i = 0; rc == CKPT_OK && i < *argc; i++) {
        char *word = (*argv)[i], *put = word, *next = i + 1 < *argc ? (*argv)[i + 1] : NULL;
        const name_row *o = NULL;
        bool took = false;

        options = options && strcmp(word, "--") != 0;
        if (options && i > 0 && strncmp(word, "--", 2) == 0)
            o = ow_find(word + 2, strcspn(word + 2, "="));
        if (o) {
            const char *value = ow_value(o, word, next, &took);
            rc = ow_word(t, o, word, value, &put, err);
        }
        if (rc == CKPT_OK && put)
            out[n++] = put;
        // a removed option takes its value with it; so does a switch
        if (took && put && o->kind != NAME_FLAG)
            out[n++] = next;
        i += took;
    }
    *argc = n;
    *argv = out;
    return rc;
}

const char *others_ours(const char *name)
{
    const name_row *o = ow_find(name, strlen(name));

    return o && o->kind == NAME_SAME ? o->to : name;
}

bool others_known(const char *name)
{
    return ow_find(name, strlen(name)) != NULL;
}

int others_member(told *t, const char *name, const char *value, bool *known, ckpt_err *err)
{
    const name_row *o = ow_find(name, strlen(name));

    *known = o && o->kind > NAME_SAME;
    return *known ? ow_meet(t, o, value, err) : CKPT_OK;
}

/* Print the values in which an option is accepted: "|no|steps|" as "no, steps". */
static void ow_list(const char *values)
{
    for (const char *at = values + 1; *at; at += strcspn(at, "|") + 1)
        out_printf("%s%.*s", at == values + 1 ? "" : ", ", (int)strcspn(at, "|"), at);
}

void others_list(void)
{
    for (size_t i = 0; i < names_count; i++) {
        const name_row *o = &names_table[i];

        if (o->kind == NAME_FLAG || o->kind == NAME_BARE)
            continue; // --help=all explains it
        out_printf("--%s\t", o->name);
        if (o->kind == NAME_SAME)
            out_printf("same as --%s", o->to);
        else if (o->kind == NAME_TRUE || o->kind == NAME_VALUE)
            out_printf("no effect");
        else
            out_printf("refused");
        if (o->kind == NAME_SOME) {
            out_printf(", except ");
            ow_list(o->to);
        }
        if (o->kind == NAME_NO_TRUE)
            out_printf(", except false");
        out_printf("%s%s\n", o->text ? ": " : "", o->text ? o->text : "");
    }
}

void others_note(told *t, const char *text)
{
    if (t->n_notes < TOLD_NOTES)
        t->notes[t->n_notes++] = text;
}

void others_notes(const told *t)
{
    for (size_t i = 0; i < t->n_notes; i++)
        fprintf(stderr, "note: %s\n", t->notes[i]);
}
