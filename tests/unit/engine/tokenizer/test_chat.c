/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_chat.c: tests chat templates: which are recognised, and what they write.
 * tests/interop/chat_equal.py compares all of them with transformers.
 */
#include "engine/tokenizer/chat.h"
#include "libckpt/codec/json/json.h"
#include "tests/unit/unit.h"

#define BODY                                                                                       \
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
#define CHATML "{% for message in messages %}" BODY "{% endfor %}"
#define MISTRAL                                                                                    \
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != "            \
    "(loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate "              \
    "user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}"          \
    "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"   \
    "{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant "    \
    "roles are supported!') }}{% endif %}{% endfor %}"

static const zt_chat *find(const char *template)
{
    const zt_chat *c = NULL;
    ckpt_err err = {0};
    int rc = zt_chat_find(&c, (ckpt_text){template, strlen(template)}, &err);

    assert_true(rc == (c ? CKPT_OK : CKPT_EUNSUPPORTED));
    return c;
}

static void test_find(void **state)
{
    (void)state;
    assert_non_null(find(CHATML));
    assert_non_null(find(MISTRAL));
    // quotes, blanks inside tags, line ends after blocks
    assert_non_null(
        find("{%- for message in messages -%}\n  {{ \"<|im_start|>\"+message['role'] "
             "+'\\n'+ message[\"content\"] + '<|im_end|>' + '\\n' -}}\n{% endfor %}\n"));
    // what is written differs
    assert_null(find("{% for message in messages %}" BODY " {% endfor %}"));
    assert_null(find("{% for message in messages %}" BODY "\n{% endfor %}"));
    assert_null(find("{% for message in messages %}x" BODY "{% endfor %}"));
    assert_null(find(""));
    assert_null(find("{"));
    assert_null(find("{{ 'x"));
    assert_null(find("{%%}"));
}

/* Write a conversation in JSON, with ' for ". */
static int write_talk(const char *template, const char *messages, ckpt_bytes *out, zt_spans *spans,
                      ckpt_err *err)
{
    char json[1024];
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_json_text text = {.name = "test", .at = json, .max = sizeof json};
    ckpt_value *v = NULL;
    int rc;

    snprintf(json, sizeof json, "%s", messages);
    for (char *at = json; *at; at++)
        *at = *at == '\'' ? '"' : *at;
    text.n = strlen(json);
    assert_int_equal(ckpt_json_parse(&v, arena, &text, err), CKPT_OK);
    const zt_talk talk = {v, {"<s>", 3}, {"</s>", 4}, false};
    rc = zt_chat_write(find(template), &talk, out, spans, err);
    ckpt_arena_free(arena);
    return rc;
}

static void test_write(void **state)
{
    static const char want[] = "<s>[INST] Hi [/INST] yes</s>[INST] b [/INST]c</s>";
    ckpt_bytes out = {0};
    zt_spans spans = {0};
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(write_talk(MISTRAL,
                                "[{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', "
                                "'content': ' yes'}, {'role': 'user', 'content': 'b'}, "
                                "{'role': 'assistant', 'content': 'c'}]",
                                &out, &spans, &err),
                     CKPT_OK);
    assert_int_equal(out.n, sizeof want - 1);
    assert_memory_equal(out.at, want, out.n);
    assert_int_equal(spans.n, 2);
    assert_memory_equal(out.at + spans.at[0].from, " yes</s>", 8);
    assert_int_equal(spans.at[0].to - spans.at[0].from, 8);
    assert_memory_equal(out.at + spans.at[1].from, "c</s>", 5);
    ckpt_vec_free(&out);
    ckpt_vec_free(&spans);
}

static void refused(const char *template, const char *messages, const char *why)
{
    ckpt_bytes out = {0};
    zt_spans spans = {0};
    ckpt_err err = {0};

    assert_int_equal(write_talk(template, messages, &out, &spans, &err), CKPT_EFORMAT);
    if (!strstr(err.text, why))
        fail_msg("'%s' lacks '%s'", err.text, why);
    ckpt_vec_free(&out);
    ckpt_vec_free(&spans);
}

static void test_refused(void **state)
{
    (void)state;
    refused(CHATML, "[]", "is not a list of messages");
    refused(CHATML, "'x'", "is not a list of messages");
    refused(CHATML, "[1]", "is not an object");
    refused(CHATML, "[{'role': 'user', 'content': [1]}]", "is not an object");
    refused(MISTRAL, "[{'role': 'assistant', 'content': 'x'}]", "must alternate");
    refused(MISTRAL, "[{'role': 'system', 'content': 'x'}]", "no role 'system'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
