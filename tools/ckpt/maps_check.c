/* SPDX-License-Identifier: Apache-2.0 */
/* maps_check.c: implements ckpt maps check. */
#include "tools/ckpt/maps_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/vec.h"
#include "tools/ckpt/report.h"

/* A tensor that becomes no part of the other layout, or that the way back changes. */
typedef struct mc_tensor {
    char *name, *why;
    unsigned line; /* of the rule that drops it; 0: none */
} mc_tensor;

CKPT_VEC(mc_tensors, mc_tensor);
CKPT_VEC(mc_rules, ckpt_remap_rule);

typedef struct mc_check {
    const maps_check_args *a;
    ckpt_remap *map;
    bool backwards, fits;
    ckpt_map *from, *like; /* the checkpoint, to be changed, and unchanged */
    mc_rules rules;
    mc_tensors left;  /* dropped, and left over */
    mc_tensors other; /* changed by the way back */
    size_t n_left;    /* left over alone */
    size_t n_back;    /* tensors after the way back */
    ckpt_err back;    /* why there is no way back */
} mc_check;

static bool mc_add(mc_tensors *list, const char *name, unsigned line, const char *why)
{
    mc_tensor *t = ckpt_vec_push(list);

    if (t)
        *t = (mc_tensor){strdup(name), strdup(why), line};
    return t && t->name && t->why;
}

static void mc_free(mc_tensors *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->at[i].name);
        free(list->at[i].why);
    }
    ckpt_vec_free(list);
}

/* Callback of the library. */
static int mc_leave(void *ctx, const char *tensor, unsigned line, const char *why)
{
    mc_check *c = ctx;

    c->n_left += line == 0;
    return !mc_add(&c->left, tensor, line, why);
}

static int mc_by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The sorted names of a list, which keeps its order; free them.  NULL: no memory. */
static const char **mc_sorted(const mc_tensors *list)
{
    const char **name = calloc(list->n + 1, sizeof *name);

    for (size_t i = 0; name && i < list->n; i++)
        name[i] = list->at[i].name;
    if (name)
        qsort(name, list->n, sizeof *name, mc_by_name);
    return name;
}

/* ---- checking ---- */

/* Find the map: that of a path, or the first of this name that fits the checkpoint. */
static int mc_choose(mc_check *c, ckpt_err *err)
{
    const maps_check_args *a = c->a;
    const size_t n = strcspn(a->name, ":");
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && !c->fits && i < a->maps->n; i++) {
        ckpt_remap *r = a->maps->at[i].map;
        const char *left = ckpt_remap_side(r, false), *right = ckpt_remap_side(r, true);
        const bool pair = a->name[n] && strlen(left) == n && strncmp(left, a->name, n) == 0 &&
                          strcmp(right, a->name + n + 1) == 0;

        if (!pair && !maps_is_path(a->name) && strcmp(maps_base(a->maps->at[i].path), a->name) != 0)
            continue;
        c->map = r;
        // Hugging Face's names are on the left of most maps, and on the right of some
        c->backwards = a->backwards || (strcmp(left, "hf") != 0 && strcmp(right, "hf") == 0);
        const ckpt_remap_opts opts = {.size = sizeof opts,
                                      .backwards = c->backwards,
                                      .config_text = a->config_text,
                                      .config_name = a->config_name};
        rc = ckpt_remap_matches(c->from, r, &opts, &c->fits, err);
    }
    return rc != CKPT_OK || c->map
               ? rc
               : fail(err, CKPT_EUSAGE, "unknown layout map %s; give the path of its file",
                      a->name);
}

/* Apply the map in one direction. */
static int mc_apply(mc_check *c, bool back, ckpt_err *err)
{
    const ckpt_remap_opts opts = {.size = sizeof opts,
                                  .backwards = c->backwards != back,
                                  .config_text = c->a->config_text,
                                  .config_name = c->a->config_name,
                                  .sizes = c->a->sizes,
                                  .like = c->like,
                                  .left = back ? NULL : mc_leave,
                                  .left_ctx = c};

    return ckpt_map_remap(c->from, c->map, &opts, err);
}

/* Keep the results of the rules, before the way back. */
static int mc_keep_rules(mc_check *c, ckpt_err *err)
{
    ckpt_remap_rule rule, *kept;

    for (size_t i = 0; ckpt_remap_rule_at(c->map, i, &rule); i++) {
        kept = ckpt_vec_push(&c->rules);
        if (!kept)
            return fail(err, CKPT_ELIMIT, "out of memory");
        *kept = rule;
    }
    return CKPT_OK;
}

/* Compare the tensors after the way back with those of the checkpoint. */
static int mc_compare(mc_check *c, ckpt_err *err)
{
    char was[SHAPE_ROOM], is[SHAPE_ROOM], why[2 * SHAPE_ROOM + 32];
    const char **left = mc_sorted(&c->left);
    bool ok = left != NULL;

    c->n_back = ckpt_map_tensor_count(c->from);
    for (size_t i = 0; ok && i < ckpt_map_tensor_count(c->like); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(c->like, i);
        const ckpt_tensor *back = ckpt_map_find(c->from, t->name);

        if (!back && !t->owner && !bsearch(&t->name, left, c->left.n, sizeof *left, mc_by_name))
            ok = mc_add(&c->other, t->name, 0, "is missing");
        if (!back || strcmp(shape_text(was, t), shape_text(is, back)) == 0)
            continue;
        (void)snprintf(why, sizeof why, "becomes %s, was %s", is, was);
        ok = mc_add(&c->other, t->name, 0, why);
    }
    for (size_t i = 0; ok && i < c->n_back; i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(c->from, i);

        // a tied head that the files do not have is no other tensor
        if (!t->owner && !ckpt_map_find(c->like, t->name))
            ok = mc_add(&c->other, t->name, 0, "is new");
    }
    free(left);
    return ok ? CKPT_OK : fail(err, CKPT_ELIMIT, "out of memory");
}

static int mc_open(mc_check *c, ckpt_err *err)
{
    const ckpt_open_opts opts = {.size = sizeof opts, .whole_checkpoint = true};
    int rc = ckpt_open(&c->from, c->a->source, &opts, err);

    return rc == CKPT_OK ? ckpt_open(&c->like, c->a->source, &opts, err) : rc;
}

/* ---- printing ---- */

/* Print a side of a rule: its first pattern, and the number of others. */
static void mc_side(const char *pattern, size_t n)
{
    out_text(pattern ? pattern : "nothing");
    if (n > 1)
        out_printf(" and %zu more", n - 1);
}

static const char *mc_what(const ckpt_remap_rule *r)
{
    return r->what == 'd' ? "drop" : r->what == 't' ? "tie" : r->what == 'f' ? "fill" : "rule";
}

static void mc_rule_text(const ckpt_remap_rule *r)
{
    char n[COUNT_ROOM];

    out_printf("line %u: ", r->line);
    if (r->n_tensors > 0)
        out_printf("%s", count_text(n, r->n_tensors, "tensor"));
    else
        out_printf("nothing%s", r->off ? " (for other models)" : r->optional ? " (optional)" : "");
    out_printf(": ");
    if (r->what == '=') {
        mc_side(r->left, r->n_left);
        out_printf(" = ");
        mc_side(r->right, r->n_right);
    } else {
        out_printf("%s %s ", mc_what(r), r->left ? "left" : "right");
        out_text(r->left ? r->left : r->right);
    }
    out_printf("\n");
}

static void mc_list_text(const mc_tensors *list, const char *way)
{
    for (size_t i = 0; i < list->n; i++) {
        out_printf("%s: ", way ? way : list->at[i].line > 0 ? "dropped" : "left over");
        out_text(list->at[i].name);
        out_printf(way ? " " : ": ");
        out_text(list->at[i].why);
        out_printf("\n");
    }
}

/* True for a rule that takes nothing, though it is for this model. */
static bool mc_is_idle(const mc_check *c, const ckpt_remap_rule *r)
{
    const bool here = r->what == '=' || (r->what == 'd' && (c->backwards ? r->right : r->left));

    return here && r->n_tensors == 0 && !r->off && !r->optional;
}

static void mc_text(const mc_check *c, bool done)
{
    const size_t n = ckpt_map_tensor_count(c->like);
    char count[COUNT_ROOM];
    size_t n_idle = 0;

    for (size_t i = 0; i < c->rules.n; i++) {
        n_idle += mc_is_idle(c, &c->rules.at[i]);
        if (!c->a->cli->quiet)
            mc_rule_text(&c->rules.at[i]);
    }
    mc_list_text(&c->left, NULL);
    if (!c->fits)
        out_printf("not for this model: the map's lines 'when' name others\n");
    if (!done)
        return;
    mc_list_text(&c->other, "way back");
    if (c->back.code != CKPT_OK) {
        out_printf("no way back: ");
        out_text(c->back.text);
        out_printf("\n");
    } else if (c->other.n == 0) {
        out_printf("way back: %s, names and shapes as before\n",
                   count_text(count, c->n_back, "tensor"));
    }
    out_printf("%s: %zu taken, %zu dropped, %zu left over; rules that took nothing: %zu\n",
               count_text(count, n, "tensor"), n - c->left.n, c->left.n - c->n_left, c->n_left,
               n_idle);
}

static void mc_list_json(json_out *j, const char *key, const mc_tensors *list, int dropped)
{
    json_open(j, key, '[');
    for (size_t i = 0; i < list->n; i++) {
        const mc_tensor *t = &list->at[i];

        if (dropped >= 0 && dropped != (t->line > 0))
            continue;
        json_open_flat(j, NULL, '{');
        json_text(j, "name", t->name);
        json_text(j, "why", t->why);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void mc_json(const mc_check *c)
{
    json_out j;

    json_begin(&j);
    json_text(&j, "map", maps_base(c->a->name));
    json_text(&j, "source", c->a->source);
    json_bool(&j, "for_this_model", c->fits);
    json_uint(&j, "tensors", ckpt_map_tensor_count(c->like));
    json_open(&j, "rules", '[');
    for (size_t i = 0; i < c->rules.n; i++) {
        const ckpt_remap_rule *r = &c->rules.at[i];

        json_open_flat(&j, NULL, '{');
        json_uint(&j, "line", r->line);
        json_text(&j, "what", mc_what(r));
        json_text(&j, "left", r->left);
        json_text(&j, "right", r->right);
        json_bool(&j, "optional", r->optional);
        json_bool(&j, "for_this_model", !r->off);
        json_uint(&j, "tensors", r->n_tensors);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    mc_list_json(&j, "dropped", &c->left, 1);
    mc_list_json(&j, "left_over", &c->left, 0);
    mc_list_json(&j, "way_back", &c->other, -1);
    json_text(&j, "no_way_back", c->back.code != CKPT_OK ? c->back.text : NULL);
    json_end(&j);
}

/* ---- the command ---- */

static int mc_run(mc_check *c, ckpt_err *err)
{
    int rc = mc_open(c, err);

    if (rc == CKPT_OK)
        rc = mc_choose(c, err);
    if (rc != CKPT_OK)
        return rc;
    const int applied = mc_apply(c, false, err);
    ckpt_err ignored = {0};

    rc = mc_keep_rules(c, applied == CKPT_OK ? err : &ignored);
    if (applied != CKPT_OK) {
        if (!c->a->cli->json)
            mc_text(c, false);
        return applied;
    }
    if (rc == CKPT_OK && mc_apply(c, true, &c->back) == CKPT_OK)
        rc = mc_compare(c, err);
    if (rc != CKPT_OK)
        return rc;
    if (c->a->cli->json)
        mc_json(c);
    else
        mc_text(c, true);
    return c->n_left > 0 || c->other.n > 0 || c->back.code != CKPT_OK || !c->fits ? CKPT_EDIFFERS
                                                                                  : CKPT_OK;
}

int maps_check(const maps_check_args *a, ckpt_err *err)
{
    mc_check c = {.a = a};
    int rc = mc_run(&c, err);

    ckpt_map_free(c.from);
    ckpt_map_free(c.like);
    ckpt_vec_free(&c.rules);
    mc_free(&c.left);
    mc_free(&c.other);
    return rc;
}
