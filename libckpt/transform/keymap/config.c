/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c: makes the configuration of the target side, in the terms of the programs that load it.
 */
#include <string.h>

#include "libckpt/transform/keymap/expr.h"

/* True for a value that JSON can express. */
static bool rcfg_plain(const ckpt_value *v, unsigned depth)
{
    const ckpt_seq seq = ckpt_value_seq(v);

    if (v->kind == CKPT_V_INT || v->kind == CKPT_V_FLOAT || v->kind == CKPT_V_BOOL ||
        v->kind == CKPT_V_STR || v->kind == CKPT_V_NONE)
        return true;
    for (uint64_t i = 0; i < seq.n && depth < 8; i++) {
        if (!rcfg_plain(seq.at[i], depth + 1))
            return false;
    }
    return depth < 8 && v->kind == CKPT_V_LIST;
}

static int rcfg_fail(const ckpt_rm_facts *f, const ckpt_rm_line *line, const char *what,
                     ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EUSAGE, "%s:%u: %s: %s", f->r->name, line->line, line->key, what);
}

/* For "rope_scaling.factor": find the dict before the last dot, and create it if it is missing. */
static int rcfg_into(ckpt_value **dict, const char **last, const ckpt_rm_facts *f,
                     const ckpt_rm_line *line, ckpt_err *err)
{
    const char *key = line->key, *dot;

    while ((dot = strchr(key, '.'))) {
        const char *part = ckpt_arena_string(f->arena, key, (size_t)(dot - key));
        ckpt_value *below = NULL;
        for (uint64_t i = 0; part && i < (*dict)->as.map.n; i++) {
            if (ckpt_value_is((*dict)->as.map.at[i].key, part))
                below = (*dict)->as.map.at[i].value;
        }
        if (below && below->kind != CKPT_V_DICT)
            return rcfg_fail(f, line, "a part of this key has a value already", err);
        if (!below) {
            below = ckpt_value_new(f->arena, CKPT_V_DICT);
            if (!part || !below || !ckpt_dict_add_cstr(f->arena, &(*dict)->as.map, part, below))
                return ckpt_fail_memory(err);
        }
        *dict = below;
        key = dot + 1;
    }
    *last = key;
    return CKPT_OK;
}

static int rcfg_put(ckpt_value *root, const ckpt_rm_facts *f, const ckpt_rm_line *line,
                    const ckpt_value *v, ckpt_err *err)
{
    const char *last = NULL;
    ckpt_value *copy = ckpt_arena_copy(f->arena, v, sizeof *v);
    int rc = copy ? rcfg_into(&root, &last, f, line, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK && ckpt_value_get(root, last))
        rc = rcfg_fail(f, line, "the key has a value already", err);
    if (rc == CKPT_OK && !rcfg_plain(v, 0))
        rc = rcfg_fail(f, line,
                       "the value is not a number, a text, true, false, null or a list of these",
                       err);
    if (rc == CKPT_OK && !ckpt_dict_add_cstr(f->arena, &root->as.map, last, copy))
        rc = ckpt_fail_memory(err);
    return rc;
}

/* Add a name to the missing ones, once. */
static int rcfg_miss(ckpt_map_config *c, const ckpt_rm_facts *f, const char *name, ckpt_err *err)
{
    const char *at = c->missing ? strstr(c->missing, name) : NULL;
    size_t n = strlen(name);

    for (; at; at = strstr(at + 1, name)) {
        if ((at == c->missing || at[-1] == ' ') && (!at[n] || at[n] == ','))
            return CKPT_OK;
    }
    c->missing = ckpt_arena_printf(f->arena, "%s%s%s", c->missing ? c->missing : "",
                                   c->missing ? ", " : "", name);
    return c->missing ? CKPT_OK : ckpt_fail_memory(err);
}

static int rcfg_line(ckpt_map_config *c, ckpt_value *root, const ckpt_rm_facts *f,
                     const ckpt_rm_line *line, ckpt_err *err)
{
    const ckpt_value *v = ckpt_rm_in(f->given, line->key); // options override expressions
    bool known;

    if (line->when && !ckpt_rm_holds(f, &f->r->only.at[line->when - 1], &known))
        return CKPT_OK;
    int rc = v ? CKPT_OK : ckpt_rm_expr(&v, f, line, NULL, err);
    if (rc != CKPT_OK)
        return rc;
    if (!v)
        return line->optional ? CKPT_OK : rcfg_miss(c, f, line->key, err);
    return rcfg_put(root, f, line, v, err);
}

/* True if the caller's configuration has everything that the layout map requires. */
static bool rcfg_complete(const ckpt_rm_facts *f, const ckpt_rm_lines *lines)
{
    bool known, all = f->how->text != NULL;

    for (size_t i = 0; all && i < lines->n; i++) {
        const ckpt_rm_line *line = &lines->at[i];
        if (!line->optional &&
            (!line->when || ckpt_rm_holds(f, &f->r->only.at[line->when - 1], &known)))
            all = ckpt_rm_in(f->how->model, line->key) != NULL;
    }
    return all;
}

/*
 * True if values are missing, but the caller's configuration is a config.json of a class that the
 * layout map knows: the class has defaults for all keys that the file does not state.
 */
static bool rcfg_own(const ckpt_map_config *c, const ckpt_rm_facts *f)
{
    const ckpt_value *known = ckpt_value_get(c->value, "model_type");

    return c->missing && f->how->text && known && strcmp(c->file, "config.json") == 0 &&
           ckpt_value_equal(known, ckpt_rm_in(f->how->model, "model_type"), 2);
}

/* Withdraw the warnings about arguments that the layout map carries. */
static void rcfg_withdraw(ckpt_map *map, const ckpt_remap *r)
{
    static const char args[] = "args.";
    size_t kept = 0;

    for (size_t i = 0; i < map->findings.n; i++) {
        const ckpt_finding *f = &map->findings.at[i];
        bool asked = false;
        for (size_t k = 0; f->argument && k < r->asked.n && !asked; k++)
            asked = strncmp(r->asked.at[k], args, sizeof args - 1) == 0 &&
                    strcmp(r->asked.at[k] + sizeof args - 1, f->argument) == 0;
        if (!asked)
            map->findings.at[kept++] = *f;
    }
    map->findings.n = kept;
}

int ckpt_rm_config(ckpt_map *map, const ckpt_rm_facts *f, ckpt_err *err)
{
    unsigned side = f->how->backwards ? 0 : 1;
    const ckpt_rm_lines *lines = &f->r->config[side];
    const char *file = f->r->config_file[side];
    ckpt_map_config c = {0};
    ckpt_value *root;
    int rc = CKPT_OK;

    if (!file)
        return CKPT_OK;
    root = ckpt_value_new(map->arena, CKPT_V_DICT);
    c.file = ckpt_arena_string(map->arena, file, strlen(file));
    if (!root || !c.file)
        return ckpt_fail_memory(err);
    c.value = root;
    for (size_t i = 0; rc == CKPT_OK && i < lines->n; i++)
        rc = rcfg_line(&c, root, f, &lines->at[i], err);
    if (rc == CKPT_OK && (rcfg_complete(f, lines) || rcfg_own(&c, f))) {
        c.missing = NULL;
        c.text = ckpt_arena_string(map->arena, f->how->text, strlen(f->how->text));
        c.value = f->how->model;
        rc = c.text ? CKPT_OK : ckpt_fail_memory(err);
    } else if (rc == CKPT_OK && side == 0 && !f->beside[0]) {
        rc = ckpt_rm_lost(&c.lost, f, root, err);
    }
    if (rc == CKPT_OK && side == 0)
        rcfg_withdraw(map, f->r);
    map->config = rc == CKPT_OK ? c : (ckpt_map_config){0};
    return rc;
}
