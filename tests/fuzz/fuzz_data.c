/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_data.c: any bytes as training data, or as a vocabulary.  The first byte says what the rest
 * is; the batches of what is accepted hold only what the model can take.
 */
#include "engine/data/data.h"
#include "tests/fuzz/fuzz_help.h"

static const char vocab[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##a\n##b\nab\nw\n\xe5\xa5\xbd\n!\n";
static const char sample[] = "label\ttext\n1\tab a!\n0\tb \xe5\xa5\xbd w\n1\tabba\n";

static const zt_model_config models[] = {
    {.arch = ZT_BERT_CLASSIFIER,
     .class_name = "BertForSequenceClassification",
     .vocab = 400,
     .positions = 16,
     .types = 2,
     .labels = 3},
    {.arch = ZT_GPT2, .class_name = "GPT2LMHeadModel", .vocab = 300, .positions = 8},
    {.arch = ZT_BERT_CLASSIFIER,
     .class_name = "BertForSequenceClassification",
     .vocab = 400,
     .positions = 16,
     .types = 1,
     .labels = 1},
    {.arch = ZT_BERT_MLM,
     .class_name = "BertForMaskedLM",
     .vocab = 400,
     .positions = 16,
     .types = 2},
};

static void check_batch(const zt_batch *b, const zt_model_config *m, uint64_t most, uint64_t seq)
{
    uint64_t sum = 0, n = b->batch * b->seq;

    fuzz_require(b->batch > 0 && b->batch <= most && b->seq > 0 && b->seq <= seq);
    for (uint64_t i = 0; i < n; i++) {
        fuzz_require(b->input_ids[i] >= 0 && (uint64_t)b->input_ids[i] < m->vocab);
        sum += b->attention_mask ? (uint64_t)b->attention_mask[i] : 0;
        fuzz_require(!b->token_type_ids ||
                     (b->token_type_ids[i] >= 0 && (uint64_t)b->token_type_ids[i] < m->types));
    }
    // read to the end
    for (uint64_t i = 0; b->labels && m->arch != ZT_BERT_CLASSIFIER && i < n; i++)
        sum += (uint64_t)b->labels[i];
    for (uint64_t i = 0; b->labels && m->arch == ZT_BERT_CLASSIFIER && i < b->batch; i++)
        fuzz_require(b->labels[i] == ZT_IGNORE ||
                     (b->labels[i] >= 0 && (uint64_t)b->labels[i] < m->labels));
    for (uint64_t i = 0; b->targets && i < b->batch * m->labels; i++)
        sum += b->targets[i] > 0;
    fuzz_require(sum < UINT64_MAX);
}

static void read_all(const zt_data_opts *o)
{
    zt_data *d = NULL;
    ckpt_err err = {0};
    uint64_t most, seq, n;
    int rc = zt_data_open(&d, o, &err);

    fuzz_require(rc == CKPT_OK || (err.code == rc && err.text[0] != '\0'));
    if (rc != CKPT_OK)
        return;
    zt_data_shape(d, &most, &seq);
    n = zt_data_batches(d);
    for (uint64_t i = 0; i < 6; i++) {
        zt_batch b;

        // to train, epochs follow each other
        if (o->evaluate && i >= n)
            break;
        rc = zt_data_batch(d, i == 5 && n > 5 ? n - 1 : i, &b, &err);
        fuzz_require(rc == CKPT_OK || err.text[0] != '\0');
        if (rc != CKPT_OK)
            break;
        check_batch(&b, o->model, most, seq);
    }
    (void)zt_data_class(d, 0);
    (void)zt_data_class(d, 100);
    zt_data_free(d);
}

/* Any text through a tokenizer whose vocabulary is `path`. */
static void encode(const char *path, const uint8_t *data, size_t size)
{
    zt_wordpiece *w = NULL;
    ckpt_err err = {0};
    int32_t id[64];

    if (zt_wordpiece_read(&w, path, size % 2, &err) != CKPT_OK) {
        fuzz_require(err.text[0] != '\0');
        return;
    }
    for (uint64_t max = 2; max <= 64; max *= 2) {
        int64_t n = zt_wordpiece_encode(w, (const char *)data, size, max, id);

        fuzz_require(n >= -1 && n <= (int64_t)max);
        for (int64_t i = 0; i < n; i++)
            fuzz_require(id[i] >= 0 && (uint32_t)id[i] < zt_wordpiece_size(w));
    }
    zt_wordpiece_free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const name[] = {"d.bin", "d.npy", "d.safetensors",
                                       "d.tsv", "d.csv", "d.jsonl"};
    char vocab_path[512], path[512];
    unsigned kind;

    if (size < 2)
        return 0;
    kind = data[0] % 8;
    snprintf(vocab_path, sizeof vocab_path, "%s",
             kind == 6 ? fuzz_file("v.txt", data + 2, size - 2)
                       : fuzz_file("vocab.txt", (const uint8_t *)vocab, sizeof vocab - 1));
    snprintf(path, sizeof path, "%s",
             kind < 6 ? fuzz_file(name[kind], data + 2, size - 2)
                      : fuzz_file("s.tsv", (const uint8_t *)sample, sizeof sample - 1));
    if (kind >= 6)
        encode(vocab_path, data + 2, size - 2);
    if (kind == 7)
        return 0;
    zt_data_opts o = {.path = path,
                      .vocab = vocab_path,
                      .token_dtype = data[1] & 1 ? "uint32" : NULL,
                      .seq = data[1] & 2 ? 4 : 0,
                      .micro_batch = 1 + (data[1] >> 6),
                      .rank = 0,
                      .world = data[1] & 4 ? 2 : 1,
                      .seed = 7,
                      .shuffle = data[1] & 8,
                      .lower_case = true,
                      .model = &models[data[1] >> 4 & 3]};
    read_all(&o);
    o.evaluate = true;
    o.rank = o.world - 1;
    read_all(&o);
    return 0;
}
