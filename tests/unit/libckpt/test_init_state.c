/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_init_state.c: training state for maps that have none: orders known, listed and stored,
 * groups, roles, and everything that must be refused.
 */
#include "ckpt_extra.h"
#include "libckpt/drivers.h"
#include "libckpt/map/map.h"
#include "libckpt/map/order.h"
#include "libckpt/map/state.h"
#include "tests/unit/unit.h"

enum { MAX_NAMES = 128, LINE_ROOM = 16384 };

static const ckpt_target zero = {.format = "zero", .path = "out", .stage = 2, .world = 2};

/* A map of a file in that format, without tensors. */
static ckpt_map *make(const char *format)
{
    ckpt_map_file file = {.path = "weights", .format = ckpt_driver_find(format)};
    ckpt_map *map = NULL;
    uint32_t index;

    assert_non_null(file.format);
    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    map->path = "weights";
    map->format = format;
    map->in_order = file.format->is.caps & CKPT_KEEPS_ORDER;
    assert_int_equal(ckpt_map_add_file(map, &file, &index, NULL), CKPT_OK);
    return map;
}

static ckpt_tensor *add_as(ckpt_map *map, const char *name, ckpt_dtype dtype, uint64_t n)
{
    const ckpt_tensor like = {.dtype = dtype, .ndim = 1, .shape = &n};
    ckpt_tensor *t = NULL;

    assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
    return t;
}

static ckpt_tensor *add(ckpt_map *map, const char *name)
{
    return add_as(map, name, CKPT_F32, 4);
}

/* Names parted by blanks. */
static void add_all(ckpt_map *map, const char *names)
{
    char copy[1024];

    snprintf(copy, sizeof copy, "%s", names);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        add(map, word);
}

/* The parameters of the state, parted by blanks; groups by '/'. */
static const char *order(const ckpt_map *map)
{
    static char text[4096];
    const ckpt_state *s = map->states.at[0];

    text[0] = 0;
    for (size_t g = 0; g < s->group.n; g++) {
        assert_int_equal(s->group.at[g].n_lanes, 1);
        for (size_t i = 0; i < s->group.at[g].n; i++) {
            size_t n = strlen(text);
            snprintf(text + n, sizeof text - n, "%s%s",
                     i   ? " "
                     : g ? "/"
                         : "",
                     s->param.at[s->group.at[g].first + i]->name);
        }
    }
    return text;
}

/* A warm start that is refused with this code, and whose text holds this; the map stays as it was.
 */
static void refused(ckpt_map *map, const ckpt_target *target, int code, const char *text)
{
    ckpt_err err = {0};

    assert_int_equal(ckpt_map_warm_start(map, target, &err), code);
    if (!strstr(err.text, text))
        fail_msg("expected '%s' in: %s", text, err.text);
    assert_int_equal(map->states.n, 0);
}

static void started(ckpt_map *map, const ckpt_target *target)
{
    ckpt_err err = {0};

    if (ckpt_map_warm_start(map, target, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(map->states.n, 1);
}

static bool noted(const ckpt_map *map, const char *text)
{
    for (size_t i = 0; i < map->findings.n; i++) {
        if (strstr(map->findings.at[i].text, text))
            return true;
    }
    return false;
}

/* ---- known models ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* One model of the list: its names sorted, as safetensors has them, must come out as it gave them.
 */
static void known_model(char *line)
{
    char *wanted[MAX_NAMES], *sorted[MAX_NAMES], *type = strtok(line, " "),
                                                 *arch = strtok(NULL, " ");
    ckpt_map *map = make("safetensors");
    size_t n = 0;
    char *word;

    while ((word = strtok(NULL, " \n")) && strcmp(word, "|") != 0) {
        assert_true(n < MAX_NAMES);
        wanted[n] = sorted[n] = word;
        n++;
    }
    qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 0; i < n; i++)
        add(map, sorted[i]);
    assert_int_equal(ckpt_map_fact(map, NULL, "model type", "%s", type), CKPT_OK);
    assert_int_equal(ckpt_map_fact(map, NULL, "architecture", "%s", arch), CKPT_OK);
    started(map, &zero);
    assert_int_equal(map->states.at[0]->param.n, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(map->states.at[0]->param.at[i]->name, wanted[i]);
    size_t n_tied = 0;
    for (; (word = strtok(NULL, " \n")); n_tied++) {
        char *owner = strchr(word, '=');
        *owner++ = 0;
        const ckpt_tensor *alias = ckpt_map_find(map, word);
        if (!alias || !alias->owner)
            fail_msg("%s: %s is not tied", arch, word);
        assert_string_equal(alias->owner->name, owner);
    }
    assert_int_equal(map->tensors.n, n + n_tied);
    ckpt_map_free(map);
}

static void known_models(void **state)
{
    const char *fixtures = getenv("CKPT_FIXTURES");
    char path[1024], *line = malloc(LINE_ROOM);
    unsigned n = 0;

    (void)state;
    assert_non_null(line);
    snprintf(path, sizeof path, "%s/../unit/libckpt/orders.txt",
             fixtures ? fixtures : "tests/fixtures");
    FILE *list = fopen(path, "r");
    assert_non_null(list);
    while (fgets(line, LINE_ROOM, list)) {
        if (*line == '#')
            continue;
        known_model(line);
        n++;
    }
    assert_true(n > 40);
    fclose(list);
    free(line);
}

static void layers_by_number(void **state)
{
    ckpt_map *map = make("safetensors");

    (void)state;
    add_all(map, "transformer.h.0.ln_1.weight transformer.h.10.ln_1.weight "
                 "transformer.h.2.ln_1.weight transformer.wte.weight");
    assert_int_equal(ckpt_map_fact(map, NULL, "model type", "gpt2"), CKPT_OK);
    started(map, &zero);
    assert_string_equal(order(map), "transformer.wte.weight transformer.h.0.ln_1.weight "
                                    "transformer.h.2.ln_1.weight transformer.h.10.ln_1.weight");
    ckpt_map_free(map);
}

/* Whatever the order is from: a model that ties its head has it tied. */
static void tied(void **state)
{
    ckpt_map *map = make("safetensors");
    ckpt_target target = zero;

    (void)state;
    add_all(map, "transformer.wpe.weight transformer.wte.weight");
    assert_int_equal(ckpt_map_fact(map, NULL, "model type", "gpt2"), CKPT_OK);
    assert_int_equal(ckpt_map_fact(map, NULL, "architecture", "GPT2LMHeadModel"), CKPT_OK);
    target.order_text = "*";
    started(map, &target);
    assert_non_null(ckpt_map_find(map, "lm_head.weight"));
    assert_true(noted(map, "lm_head.weight is tied to transformer.wte.weight"));
    ckpt_map_free(map);
}

/* A tensor that such a model does not have, or has twice, makes the order unknown. */
static void odd_tensors(void **state)
{
    ckpt_map *map = make("safetensors");

    (void)state;
    add_all(map, "transformer.wte.weight transformer.adapter.weight");
    assert_int_equal(ckpt_map_fact(map, NULL, "model type", "gpt2"), CKPT_OK);
    refused(map, &zero, CKPT_EUSAGE, "transformer.adapter.weight is not a parameter");
    ckpt_map_free(map);
    map = make("safetensors");
    add_all(map, "transformer.wte.weight wte.weight");
    assert_int_equal(ckpt_map_fact(map, NULL, "model type", "gpt2"), CKPT_OK);
    refused(map, &zero, CKPT_EUSAGE, "wte.weight is not a parameter");
    ckpt_map_free(map);
    map = make("safetensors");
    add_all(map, "transformer.h.01.ln_1.weight transformer.wte.weight");
    assert_int_equal(ckpt_map_fact(map, NULL, "model type", "gpt2"), CKPT_OK);
    refused(map, &zero, CKPT_EUSAGE, "h.01.ln_1.weight is not a parameter");
    ckpt_map_free(map);
}

static void unknown_models(void **state)
{
    ckpt_map *map = make("safetensors");

    (void)state;
    add_all(map, "b.weight a.weight");
    refused(map, &zero, CKPT_EUSAGE, "no config.json names a model type");
    assert_int_equal(ckpt_map_fact(map, NULL, "model type", "gpt"), CKPT_OK);
    refused(map, &zero, CKPT_EUSAGE, "no order is known for model type gpt;");
    refused(map, &zero, CKPT_EUSAGE, "--order stored");
    ckpt_map_free(map);
}

/* ---- lists ---- */

static void listed(void **state)
{
    ckpt_map *map = make("safetensors");
    ckpt_target target = zero;

    (void)state;
    add_all(map, "a.bias a.weight b.bias b.weight c.weight");
    add_as(map, "count", CKPT_I64, 1);
    ckpt_tensor *alias = add(map, "head.weight");
    alias->owner = ckpt_map_find(map, "c.weight");
    target.order_text = "# decay\n\n  b.weight\r\na.weight\n\n\n# others\na.bias\n\n";
    started(map, &target);
    assert_string_equal(order(map), "b.weight a.weight/a.bias");
    assert_int_equal(ckpt_map_find(map, "a.bias")->role, CKPT_ROLE_WEIGHT);
    assert_int_equal(ckpt_map_find(map, "b.bias")->role, CKPT_ROLE_FROZEN);
    assert_int_equal(ckpt_map_find(map, "head.weight")->role, CKPT_ROLE_FROZEN);
    assert_int_equal(ckpt_map_find(map, "count")->role, CKPT_ROLE_BUFFER);
    assert_true(noted(map, "2 tensors that the order does not list are frozen, such as b.bias"));
    assert_true(noted(map, "3 parameters in 2 groups, in the order of the list"));
    ckpt_map_free(map);
}

static void listed_rest(void **state)
{
    ckpt_map *map = make("safetensors");
    ckpt_target target = zero;

    (void)state;
    add_all(map, "a b c d");
    target.order_text = "d\n*\n\nb";
    started(map, &target);
    assert_string_equal(order(map), "d a c/b");
    ckpt_map_free(map);
}

static void bad_lists(void **state)
{
    static const struct {
        const char *list, *text;
    } bad[] = {
        {"w\nx\n", "line 2: weights has no tensor x"},
        {"w\n# w\nw", "line 3: w is named twice"},
        {"*\nw\n*", "line 3: only one line '*'"},
        {"\ncount", "line 2: count is I64"},
        {"alias", "line 1: alias is tied to w: name that one"},
        {"empty", "line 1: empty has no elements"},
    };
    ckpt_target target = zero;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ckpt_map *map = make("safetensors");
        add(map, "w");
        add_as(map, "count", CKPT_I64, 1);
        add_as(map, "empty", CKPT_F32, 0);
        add(map, "alias")->owner = ckpt_map_find(map, "w");
        target.order_text = bad[i].list;
        refused(map, &target, CKPT_EUSAGE, bad[i].text);
        target.order_text = "# nothing\n\n";
        refused(map, &target, CKPT_EMISSING, "none of its tensors can be trained");
        // what was refused left no trace
        target.order_text = "w";
        started(map, &target);
        ckpt_map_free(map);
    }
}

/* ---- the order of files ---- */

static void stored(void **state)
{
    ckpt_map *map = make("torch");

    (void)state;
    add_all(map, "wte.weight h.0.fc.weight h.0.fc.bias h.0.norm.weight h.0.norm.running_mean");
    add_as(map, "h.0.norm.num_batches_tracked", CKPT_I64, 1);
    add_all(map, "h.1.fc.weight h.1.fc.bias rotary.inv_freq");
    started(map, &zero);
    assert_string_equal(order(map), "wte.weight h.0.fc.weight h.0.fc.bias h.0.norm.weight "
                                    "h.1.fc.weight h.1.fc.bias");
    assert_int_equal(ckpt_map_find(map, "h.0.norm.running_mean")->role, CKPT_ROLE_BUFFER);
    assert_int_equal(ckpt_map_find(map, "rotary.inv_freq")->role, CKPT_ROLE_BUFFER);
    assert_true(noted(map, "3 tensors are taken for buffers"));
    ckpt_map_free(map);
}

/* Orders that no walk of a model gives: by groups, with bias first, sorted. */
static void not_stored(void **state)
{
    static const struct {
        const char *names, *text;
    } bad[] = {
        {"h.0.fc.weight h.1.fc.weight h.0.norm.weight h.1.norm.weight", "(h.0.norm.weight)"},
        {"z.fc.weight z.norm.weight h.fc.weight z.last", "(z.last)"},
        {"z.bias z.weight a.bias a.weight", "(z.bias)"},
        {"a.weight b.weight c.weight", "its names are sorted"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ckpt_map *map = make("torch");
        ckpt_target target = zero;
        add_all(map, bad[i].names);
        refused(map, &zero, CKPT_EUSAGE, bad[i].text);
        target.order_text = "*";
        started(map, &target);
        assert_string_equal(order(map), bad[i].names);
        ckpt_map_free(map);
    }
}

/* A known model's order counts for more than that of the file. */
static void known_before_stored(void **state)
{
    ckpt_map *map = make("torch");

    (void)state;
    add_all(map, "transformer.wpe.weight transformer.wte.weight");
    assert_int_equal(ckpt_map_fact(map, NULL, "model type", "gpt2"), CKPT_OK);
    started(map, &zero);
    assert_string_equal(order(map), "transformer.wte.weight transformer.wpe.weight");
    ckpt_map_free(map);
}

/* ---- the state ---- */

static void entries(void **state)
{
    ckpt_map *map = make("torch");
    ckpt_target target = zero;
    double f = 0;

    (void)state;
    add_all(map, "b a");
    target.dtype = CKPT_BF16;
    target.order_text = "a\n\nb";
    started(map, &target);
    const ckpt_state *s = map->states.at[0];
    assert_string_equal(s->prefix, "");
    assert_null(s->model);
    assert_null(s->optim);
    assert_null(s->version);
    assert_int_equal(s->stage, 0);
    assert_int_equal(s->world, 0);
    assert_int_equal(s->dtype, CKPT_BF16);
    for (size_t g = 0; g < 2; g++) {
        const ckpt_value *fields = s->group.at[g].fields, *entry = s->group.at[g].entry;
        const ckpt_seq params = ckpt_value_seq(ckpt_value_get(fields, "params"));
        int64_t step = -1, number = -1;
        assert_int_equal(params.n, 1);
        assert_true(ckpt_value_as_int(params.at[0], &number));
        assert_int_equal(number, g);
        f = ckpt_value_get(fields, "lr")->as.f;
        assert_true(f > 0.00099 && f < 0.00101);
        assert_int_equal(ckpt_value_seq(ckpt_value_get(fields, "betas")).n, 2);
        assert_int_equal(ckpt_value_map(fields).n, 12);
        assert_true(ckpt_value_as_int(ckpt_value_get(entry, "step"), &step));
        assert_int_equal(step, 0);
        assert_int_equal(ckpt_value_get(entry, "exp_avg")->kind, CKPT_V_NONE);
        assert_int_equal(ckpt_value_get(entry, "exp_avg_sq")->kind, CKPT_V_NONE);
    }
    // the second time there is a state already
    assert_int_equal(ckpt_map_warm_start(map, &zero, NULL), CKPT_OK);
    assert_int_equal(map->states.n, 1);
    assert_int_equal(ckpt_map_warm_start(map, &target, NULL), CKPT_EUSAGE);
    ckpt_map_free(map);
}

static void dtypes(void **state)
{
    ckpt_map *map = make("torch");
    ckpt_target target = zero;

    (void)state;
    add_as(map, "b", CKPT_F16, 2);
    add_as(map, "a", CKPT_F32, 2);
    refused(map, &zero, CKPT_EUSAGE, "b is F16 and a is F32: choose the training dtype");
    target.dtype = CKPT_F64;
    refused(map, &target, CKPT_EUSAGE, "not in F64");
    target.dtype = CKPT_F16;
    started(map, &target);
    ckpt_map_free(map);
    map = make("torch");
    add_as(map, "b", CKPT_F64, 2);
    refused(map, &zero, CKPT_EUSAGE, "not in F64");
    ckpt_map_free(map);
    map = make("torch");
    add_as(map, "b", CKPT_F16, 2);
    started(map, &zero);
    assert_int_equal(map->states.at[0]->dtype, CKPT_F16);
    ckpt_map_free(map);
}

static void refusals(void **state)
{
    ckpt_map *map = make("torch");
    ckpt_target target = zero;

    (void)state;
    add_all(map, "w exp_avg/w");
    refused(map, &zero, CKPT_EUNSUPPORTED, "not its step count");
    ckpt_map_free(map);
    map = make("torch");
    refused(map, &zero, CKPT_EMISSING, "none of its tensors can be trained");
    add(map, "w");
    target.stage = 0;
    refused(map, &target, CKPT_EUSAGE, "--stage");
    target.stage = 1;
    target.world = 0;
    refused(map, &target, CKPT_EUSAGE, "--world");
    map->format = "deepspeed";
    map->known.training = true;
    refused(map, &zero, CKPT_EUNSUPPORTED, "no training state was read");
    map->format = "torch";
    map->known.training = false;
    target.format = "universal";
    target.stage = 0;
    started(map, &target);
    ckpt_map_free(map);
}

/* A run whose state was not read, and whose user wants none of it: its weights begin a new one. */
static void dropped(void **state)
{
    ckpt_map *map = make("torch");
    ckpt_target target = zero;

    (void)state;
    add(map, "w");
    add(map, "exp_avg/w");
    map->tensors.at[1]->role = CKPT_ROLE_STATE;
    add(map, "ema.w");
    map->tensors.at[2]->role = CKPT_ROLE_OTHER;
    map->known.training = true;
    map->no_state = "the optimizer names its parameters by number";
    target.order_text = "*";
    refused(map, &target, CKPT_EUNSUPPORTED, "--drop-optimizer begins a new run");
    target.fresh_optimizer = true;
    started(map, &target);
    assert_int_equal(map->tensors.n, 1);
    assert_int_equal(map->states.at[0]->param.n, 1);
    assert_true(noted(map, "left out the optimizer, with 2 tensors"));
    ckpt_map_free(map);
}

/* Every allocation fails once: a clean refusal, then a clean start. */
static void memory(void **state)
{
    ckpt_target target = zero;

    (void)state;
    for (uint64_t n = 0;; n++) {
        ckpt_map *map = make("torch");
        ckpt_err err = {0};
        add_all(map, "transformer.wpe.weight transformer.wte.weight");
        assert_int_equal(ckpt_map_fact(map, NULL, "model type", "gpt2"), CKPT_OK);
        assert_int_equal(ckpt_map_fact(map, NULL, "architecture", "GPT2LMHeadModel"), CKPT_OK);
        target.order_text = n % 2 ? "*" : NULL;
        ckpt_alloc_fail_at(n / 2);
        int rc = ckpt_map_warm_start(map, &target, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc != CKPT_OK)
            assert_int_equal(rc, CKPT_ELIMIT);
        ckpt_map_free(map);
        if (rc == CKPT_OK && n % 2 == 0)
            break;
        assert_true(n < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_models), cmocka_unit_test(layers_by_number),
        cmocka_unit_test(odd_tensors),  cmocka_unit_test(unknown_models),
        cmocka_unit_test(listed),       cmocka_unit_test(listed_rest),
        cmocka_unit_test(bad_lists),    cmocka_unit_test(stored),
        cmocka_unit_test(not_stored),   cmocka_unit_test(known_before_stored),
        cmocka_unit_test(entries),      cmocka_unit_test(dtypes),
        cmocka_unit_test(refusals),     cmocka_unit_test(memory),
        cmocka_unit_test(tied),         cmocka_unit_test(dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
