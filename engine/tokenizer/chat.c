/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chat.c: recognises chat templates, and writes conversations as they do.
 *
 * Sources of the templates: the tokenizer_config.json of Qwen1.5, Qwen2, SmolLM, Meta-Llama-3,
 * Mistral-7B-Instruct and gemma-it, and Alpaca's prompt as a template.
 */
#include "engine/tokenizer/chat.h"
#include <assert.h>

#include <inttypes.h>
#include <string.h>

typedef enum tpl_kind { TPL_CHATML, TPL_LLAMA3, TPL_MISTRAL, TPL_GEMMA, TPL_ALPACA } tpl_kind;

struct zt_chat {
    const char *name, *template;
    tpl_kind kind;
    const char *system;  /* CHATML: the system message of a conversation without one */
    const char *after;   /* text after an answer and its end token */
    const char *prompt;  /* begin of an answer, where one is requested */
    bool prompt_follows; /* LLAMA3: it is always written */
};

#define TPL_CHATML_BODY                                                                            \
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "             \
    "'\n'}}{% endfor %}"
#define TPL_CHATML_ANSWER "<|im_start|>assistant\n"
#define TPL_LLAMA3_ANSWER "<|start_header_id|>assistant<|end_header_id|>\n\n"
#define TPL_CHATML_PROMPT "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
#define TPL_CHATML_FIRST(text)                                                                     \
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"         \
    "{{ '<|im_start|>system\n" text                                                                \
    "<|im_end|>\n' }}{% endif %}" TPL_CHATML_BODY TPL_CHATML_PROMPT
#define TPL_SMOL "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
#define TPL_QWEN "You are a helpful assistant."
#define TPL_ALTERNATE                                                                              \
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception("            \
    "'Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
#define TPL_LLAMA3_BODY                                                                            \
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "        \
    "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | "     \
    "trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"       \
    "{% endif %}{{ content }}{% endfor %}"
#define TPL_LLAMA3_PROMPT "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
#define TPL_MISTRAL(answer)                                                                        \
    "{{ bos_token }}{% for message in messages %}" TPL_ALTERNATE                                   \
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"          \
    "{% elif message['role'] == 'assistant' %}{{ " answer " }}{% else %}{{ raise_exception("       \
    "'Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"

static const zt_chat tpl_known[] = {
    {.name = "ChatML",
     .kind = TPL_CHATML,
     .prompt = TPL_CHATML_ANSWER,
     .template = "{% for message in messages %}" TPL_CHATML_BODY TPL_CHATML_PROMPT},
    {.name = "ChatML",
     .kind = TPL_CHATML,
     .template = "{% for message in messages %}" TPL_CHATML_BODY},
    {.name = "ChatML of Qwen2",
     .kind = TPL_CHATML,
     .system = TPL_QWEN,
     .prompt = TPL_CHATML_ANSWER,
     .template = TPL_CHATML_FIRST(TPL_QWEN)},
    {.name = "ChatML of SmolLM",
     .kind = TPL_CHATML,
     .system = TPL_SMOL,
     .prompt = TPL_CHATML_ANSWER,
     .template = TPL_CHATML_FIRST(TPL_SMOL)},
    {.name = "Llama-3",
     .kind = TPL_LLAMA3,
     .prompt = TPL_LLAMA3_ANSWER,
     .template = TPL_LLAMA3_BODY "{% if add_generation_prompt %}" TPL_LLAMA3_PROMPT "{% endif %}"},
    {.name = "Llama-3 with a prompt",
     .kind = TPL_LLAMA3,
     .prompt = TPL_LLAMA3_ANSWER,
     .prompt_follows = true,
     .template = TPL_LLAMA3_BODY TPL_LLAMA3_PROMPT},
    {.name = "Mistral",
     .kind = TPL_MISTRAL,
     .after = "",
     .template = TPL_MISTRAL("message['content'] + eos_token")},
    {.name = "Mistral with blanks",
     .kind = TPL_MISTRAL,
     .after = " ",
     .template = TPL_MISTRAL("message['content'] + eos_token + ' '")},
    {.name = "Gemma",
     .kind = TPL_GEMMA,
     .prompt = "<start_of_turn>model\n",
     .template =
         "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role "
         "not supported') }}{% endif %}{% for message in messages %}" TPL_ALTERNATE
         "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = "
         "message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | "
         "trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}"
         "{{'<start_of_turn>model\n'}}{% endif %}"},
    {.name = "Alpaca",
     .kind = TPL_ALPACA,
     .prompt = "### Response:\n", // only after a message of the user
     .template =
         "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set "
         "system_message = messages[0]['content'].strip() + '\n\n' %}{% else %}{% set "
         "loop_messages = messages %}{% set system_message = '' %}{% endif %}{{ bos_token + "
         "system_message }}{% for message in loop_messages %}" TPL_ALTERNATE
         "{% if message['role'] == 'user' %}{{ '### Instruction:\n' + message['content'].strip() + "
         "'\n\n' }}{% elif message['role'] == 'assistant' %}{{ '### Response:\n' + "
         "message['content'].strip() + eos_token + '\n\n' }}{% endif %}{% if loop.last and "
         "message['role'] == 'user' and add_generation_prompt %}{{ '### Response:\n' }}{% endif %}"
         "{% endfor %}"},
};

enum { TPL_KNOWN = sizeof tpl_known / sizeof *tpl_known };

/* ---- comparing templates ---- */

static bool tpl_space(char c)
{
    return c == ' ' || (c >= 9 && c <= 13);
}

/*
 * Append the text between two tags, as Jinja writes it with trim_blocks and lstrip_blocks: no line
 * end after a block, no indentation before one, no white space beside a '-'.
 *
 * before, after  the characters of the tags beside it: '%', '}', '#', '{', '-'; 'x' and 0 at the
 *                template's begin and end
 */
static bool tpl_text(ckpt_bytes *out, ckpt_text s, char before, char after)
{
    size_t from = 0, to = s.n, line;

    while (before == '-' && from < to && tpl_space(s.at[from]))
        from++;
    if ((before == '%' || before == '#') && from < to && s.at[from] == '\n')
        from++;
    while ((after == '-' || after == 0) && to > from && tpl_space(s.at[to - 1]))
        to--;
    if (after == '%' || after == '#') {
        for (line = to; line > from && (s.at[line - 1] == ' ' || s.at[line - 1] == '\t'); line--)
            ;
        if (line == 0 ? before == 'x' : s.at[line - 1] == '\n')
            to = line;
    }
    return ckpt_bytes_add(out, s.at + from, to - from);
}

/*
 * Append a tag from s[at], which begins with "{%" or "{{", without blanks outside texts, with texts
 * in single quotes and with line ends for "\n".  Returns the end of the tag, or 0: it has no end.
 */
static size_t tpl_tag(ckpt_bytes *out, ckpt_text s, size_t at, bool *ok)
{
    const char close = s.at[at + 1] == '{' ? '}' : s.at[at + 1];
    char quote = 0;

    *ok = ckpt_bytes_add(out, s.at + at, 2);
    for (size_t i = at + 2; *ok && i < s.n; i++) {
        const char c = s.at[i];
        const bool escape = quote && c == '\\' && i + 1 < s.n;

        if (!quote && c == close && i + 1 < s.n && s.at[i + 1] == '}') {
            if (out->at[out->n - 1] == '-')
                out->n--;
            *ok = *ok && ckpt_bytes_add(out, s.at + i, 2);
            return i + 2;
        }
        if (escape) {
            *ok = s.at[i + 1] == 'n' ? ckpt_bytes_add(out, "\n", 1)
                                     : ckpt_bytes_add(out, s.at + i, 2);
            i++;
        } else if (quote ? c == quote : c == '\'' || c == '"') {
            quote = quote ? 0 : c;
            *ok = ckpt_bytes_add(out, "'", 1);
        } else if (quote || !tpl_space(c)) {
            const bool trims = !quote && c == '-' && i == at + 2;
            *ok = trims || ckpt_bytes_add(out, &c, 1);
        }
    }
    return 0;
}

/* Append a template without differences that do not change its output. */
static bool tpl_plain(ckpt_bytes *out, ckpt_text s)
{
    char before = 'x';
    size_t at = 0;
    bool ok = true;

    while (ok && at < s.n) {
        size_t tag = at;
        char after = 0;

        while (tag + 2 < s.n && !(s.at[tag] == '{' && strchr("%{#", s.at[tag + 1])))
            tag++;
        if (tag + 2 < s.n)
            after = s.at[tag + 2] == '-' ? '-' : s.at[tag + 1];
        else
            tag = s.n;
        ok = tpl_text(out, (ckpt_text){s.at + at, tag - at}, before, after);
        if (!ok || tag == s.n)
            break;
        at = s.at[tag + 1] == '#' ? 0 : tpl_tag(out, s, tag, &ok);
        if (at == 0) // a comment, or a tag without an end: no known template has one
            return ok && ckpt_bytes_add(out, "?", 1);
        before = s.at[at - 3] == '-' ? '-' : s.at[at - 2];
    }
    return ok;
}

int zt_chat_find(const zt_chat **out, ckpt_text template, ckpt_err *err)
{
    assert(out);
    ckpt_bytes have = {0}, known = {0};
    bool ok = tpl_plain(&have, template);

    *out = NULL;
    for (size_t i = 0; ok && i < TPL_KNOWN && !*out; i++) {
        known.n = 0;
        ok = tpl_plain(&known, (ckpt_text){tpl_known[i].template, strlen(tpl_known[i].template)});
        if (ok && have.n == known.n && have.n && memcmp(have.at, known.at, have.n) == 0)
            *out = &tpl_known[i];
    }
    ckpt_vec_free(&have);
    ckpt_vec_free(&known);
    if (!ok)
        return ckpt_fail_memory(err);
    if (*out)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "the chat template '%.60s...' is not one of those that zerotrain knows "
                     "(ChatML, Llama-3, Mistral, Gemma, Alpaca); write text with "
                     "apply_chat_template(..., tokenize=False) of transformers as \"text\"",
                     template.at);
}

/* ---- writing ---- */

/* The output of a template. */
typedef struct tpl_out {
    ckpt_bytes *text;
    bool ok;
} tpl_out;

static void tpl_add(tpl_out *o, const char *s, size_t n)
{
    o->ok = o->ok && ckpt_bytes_add(o->text, s, n);
}

static void tpl_put(tpl_out *o, const char *s)
{
    tpl_add(o, s, strlen(s));
}

/* White space of Python's str.strip() that is one byte, or U+0085, U+00A0, U+1680, U+2000... */
static size_t tpl_blank(const char *s, size_t n)
{
    const uint8_t *p = (const uint8_t *)s;

    if (n > 0 && (tpl_space(s[0]) || (p[0] >= 0x1c && p[0] <= 0x1f)))
        return 1;
    if (n > 1 && p[0] == 0xc2 && (p[1] == 0x85 || p[1] == 0xa0))
        return 2;
    if (n > 2 && p[0] == 0xe2 && p[1] == 0x80 &&
        ((p[2] >= 0x80 && p[2] <= 0x8a) || p[2] == 0xa8 || p[2] == 0xa9 || p[2] == 0xaf))
        return 3;
    if (n > 2 && (memcmp(s, "\xe2\x81\x9f", 3) == 0 || memcmp(s, "\xe3\x80\x80", 3) == 0 ||
                  memcmp(s, "\xe1\x9a\x80", 3) == 0))
        return 3;
    return 0;
}

static ckpt_text tpl_strip(ckpt_text s)
{
    size_t n;

    while ((n = tpl_blank(s.at, s.n)) > 0) {
        s.at += n;
        s.n -= n;
    }
    for (;;) {
        size_t last = s.n;
        do
            last -= last > 0;
        while (last > 0 && ((uint8_t)s.at[last] & 0xc0) == 0x80);
        if (s.n == 0 || tpl_blank(s.at + last, s.n - last) != s.n - last)
            return s;
        s.n = last;
    }
}

typedef struct tpl_message {
    ckpt_text role, content;
    bool answer;
} tpl_message;

/* Write the text before the content of a message. */
static void tpl_before(const zt_chat *c, const tpl_message *m, tpl_out *o)
{
    switch (c->kind) {
    case TPL_CHATML:
        tpl_put(o, "<|im_start|>");
        tpl_add(o, m->role.at, m->role.n);
        tpl_put(o, "\n");
        break;
    case TPL_LLAMA3:
        tpl_put(o, "<|start_header_id|>");
        tpl_add(o, m->role.at, m->role.n);
        tpl_put(o, "<|end_header_id|>\n\n");
        break;
    case TPL_MISTRAL:
        tpl_put(o, m->answer ? "" : "[INST] ");
        break;
    case TPL_GEMMA:
        tpl_put(o, "<start_of_turn>");
        tpl_put(o, m->answer ? "model" : "user");
        tpl_put(o, "\n");
        break;
    case TPL_ALPACA:
        tpl_put(o, m->answer ? "### Response:\n" : "### Instruction:\n");
    }
}

/* Write the content and the token that ends it; the rest is for tpl_after. */
static void tpl_content(const zt_chat *c, const tpl_message *m, const zt_talk *talk, tpl_out *o)
{
    const bool whole = c->kind == TPL_CHATML || c->kind == TPL_MISTRAL;
    const ckpt_text content = whole ? m->content : tpl_strip(m->content);

    tpl_add(o, content.at, content.n);
    if (c->kind == TPL_CHATML)
        tpl_put(o, "<|im_end|>");
    else if (c->kind == TPL_LLAMA3)
        tpl_put(o, "<|eot_id|>");
    else if (c->kind == TPL_GEMMA)
        tpl_put(o, "<end_of_turn>");
    else if (m->answer)
        tpl_add(o, talk->eos.at, talk->eos.n);
}

static void tpl_after(const zt_chat *c, const tpl_message *m, tpl_out *o)
{
    if (c->kind == TPL_CHATML || c->kind == TPL_GEMMA)
        tpl_put(o, "\n");
    else if (c->kind == TPL_MISTRAL)
        tpl_put(o, m->answer ? c->after : " [/INST]");
    else if (c->kind == TPL_ALPACA)
        tpl_put(o, "\n\n");
}

/* Read message i, and check its role against the template's rules. */
static int tpl_read(const zt_chat *c, const ckpt_value *v, uint64_t turn, tpl_message *m,
                    ckpt_err *err)
{
    const ckpt_value *role = ckpt_value_get(v, "role"), *content = ckpt_value_get(v, "content");
    const bool strict = c->kind == TPL_MISTRAL || c->kind == TPL_GEMMA || c->kind == TPL_ALPACA;

    if (!role || role->kind != CKPT_V_STR || !content || content->kind != CKPT_V_STR)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "a message is not an object with the texts \"role\" "
                         "and \"content\"");
    *m = (tpl_message){role->as.text, content->as.text, ckpt_value_is(role, "assistant")};
    if (!strict)
        return CKPT_OK;
    if (!m->answer && !ckpt_value_is(role, "user"))
        return ckpt_fail(err, CKPT_EFORMAT, "the chat template %s has no role '%.40s' here",
                         c->name, m->role.at);
    if (m->answer != (turn % 2 == 1))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "with the chat template %s, roles must alternate, user first", c->name);
    return CKPT_OK;
}

/* Write the text before the first message; *first: the number of messages that it contains. */
static void tpl_begin(const zt_chat *c, const zt_talk *talk, uint64_t *first, tpl_out *o)
{
    const ckpt_seq list = ckpt_value_seq(talk->messages);
    const ckpt_value *role = ckpt_value_get(list.at[0], "role");
    const ckpt_value *content = ckpt_value_get(list.at[0], "content");
    const bool system = role && ckpt_value_is(role, "system");

    *first = 0;
    if (c->kind != TPL_CHATML)
        tpl_add(o, talk->bos.at, talk->bos.n);
    if (c->system && !system) {
        tpl_put(o, "<|im_start|>system\n");
        tpl_put(o, c->system);
        tpl_put(o, "<|im_end|>\n");
    }
    if (c->kind == TPL_ALPACA && system && content && content->kind == CKPT_V_STR) {
        const ckpt_text text = tpl_strip(content->as.text);
        tpl_add(o, text.at, text.n);
        tpl_put(o, "\n\n");
        *first = 1;
    }
}

int zt_chat_write(const zt_chat *c, const zt_talk *talk, ckpt_bytes *text, zt_spans *answers,
                  ckpt_err *err)
{
    assert(c && talk && text && answers);
    const ckpt_seq list = ckpt_value_seq(talk->messages);
    tpl_out o = {text, true};
    uint64_t first = 0;
    bool answered = false;
    int rc = CKPT_OK;

    if (list.n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "\"messages\" is not a list of messages");
    tpl_begin(c, talk, &first, &o);
    for (uint64_t i = first; rc == CKPT_OK && o.ok && i < list.n; i++) {
        tpl_message m = {0};
        zt_span span, *to;

        rc = tpl_read(c, list.at[i], i - first, &m, err);
        if (rc != CKPT_OK)
            break;
        tpl_before(c, &m, &o);
        span.from = text->n;
        tpl_content(c, &m, talk, &o);
        span.to = text->n;
        tpl_after(c, &m, &o);
        to = m.answer ? ckpt_vec_push(answers) : NULL;
        if (to)
            *to = span;
        o.ok = o.ok && (to || !m.answer);
        answered = m.answer;
    }
    if (c->prompt && (talk->prompt ? c->kind != TPL_ALPACA || !answered : c->prompt_follows))
        tpl_put(&o, c->prompt);
    return rc == CKPT_OK && !o.ok ? ckpt_fail_memory(err) : rc;
}
