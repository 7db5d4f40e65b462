/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_data.c: samples from files: permutations, tokens, recorded inputs, text and its tokenizer.
 */
#include <unistd.h>

#include "engine/data/data.h"
#include "tests/unit/unit.h"

static char folder[] = "/tmp/ckpt_data_XXXXXX";

static const char *path_of(const char *name)
{
    static char path[2][256];
    static int which;

    which = !which;
    snprintf(path[which], sizeof path[which], "%s/%s", folder, name);
    return path[which];
}

static void write_file(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(path_of(name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void write_text(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

static const zt_model_config gpt2 = {
    .arch = ZT_GPT2, .class_name = "GPT2LMHeadModel", .vocab = 300, .positions = 8};
static const zt_model_config bert = {.arch = ZT_BERT_CLASSIFIER,
                                     .class_name = "BertForSequenceClassification",
                                     .vocab = 300,
                                     .positions = 16,
                                     .types = 2,
                                     .labels = 3};

static void test_permutation(void **state)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 100, 1000, 4097};

    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        uint64_t n = sizes[k], moved = 0;
        char *seen = calloc(n, 1);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t x = zt_sample_at(n, i, 7, 3, true);
            assert_true(x < n);
            assert_int_equal(seen[x]++, 0);
            moved += x != zt_sample_at(n, i, 7, 4, true);
            assert_int_equal(zt_sample_at(n, i, 7, 3, false), i);
        }
        assert_true(n < 100 || moved > n / 2); // another epoch, another order
        free(seen);
    }
}

/* The sum of the samples of a file over all ranks. */
static uint64_t sum_of(const char *name, const zt_model_config *model, int world)
{
    uint64_t sum = 0;

    for (int rank = 0; rank < world; rank++) {
        const zt_data_opts o = {.path = path_of(name),
                                .vocab = path_of("vocab.txt"),
                                .micro_batch = 2,
                                .rank = rank,
                                .world = world,
                                .seq = 8,
                                .model = model};
        ckpt_err err = {0};
        zt_data *d = NULL;

        assert_int_equal(zt_data_open(&d, &o, &err), CKPT_OK);
        sum += zt_data_sum(d);
        zt_data_free(d);
    }
    return sum & ((UINT64_C(1) << 48) - 1);
}

/* The sum depends on content and order, and not on the number of ranks. */
static void test_sum(void **state)
{
    static const char *const rows[] = {"0\tgood\n1\tbad\n2\tbad good\n",
                                       "1\tbad\n0\tgood\n2\tbad good\n", // another order
                                       "1\tgood\n1\tbad\n2\tbad good\n", // another label
                                       "0\tgood\n1\tbad\n2\tbad bad\n"}; // another text
    uint16_t tokens[8 * 12];
    uint64_t first, sums[4];

    (void)state;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        tokens[i] = (uint16_t)(i / 8);
    write_file("s.bin", tokens, sizeof tokens);
    first = sum_of("s.bin", &gpt2, 1);
    assert_int_equal(sum_of("s.bin", &gpt2, 5), first);
    tokens[90]++;
    write_file("s.bin", tokens, sizeof tokens);
    assert_int_not_equal(sum_of("s.bin", &gpt2, 1), first);
    write_text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\ngood\nbad\n");
    for (size_t i = 0; i < 4; i++) {
        write_text("s.tsv", rows[i]);
        sums[i] = sum_of("s.tsv", &bert, 1);
        assert_int_equal(sum_of("s.tsv", &bert, 2), sums[i]);
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(sums[k], sums[i]);
    }
    write_text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nbad\ngood\n");
    assert_int_not_equal(sum_of("s.tsv", &bert, 1), sums[3]);
}

/* Every sample once over the ranks of an epoch; a batch does not depend on what was asked before.
 */
static void test_tokens(void **state)
{
    uint16_t tokens[8 * 12 + 3];
    char seen[12] = {0};
    ckpt_err err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        tokens[i] = (uint16_t)(i / 8);
    write_file("t.bin", tokens, sizeof tokens);
    for (int rank = 0; rank < 3; rank++) {
        zt_data_opts o = {.path = path_of("t.bin"),
                          .micro_batch = 2,
                          .rank = rank,
                          .world = 3,
                          .shuffle = true,
                          .model = &gpt2};
        zt_data *d = NULL;
        zt_batch b;
        int32_t first;
        assert_int_equal(zt_data_open(&d, &o, &err), CKPT_OK);
        assert_int_equal(zt_data_count(d), 12);
        assert_int_equal(zt_data_get_unused(d).tokens, 3);
        assert_int_equal(zt_data_batches(d), 2);
        assert_int_equal(zt_data_batch(d, 1, &b, &err), CKPT_OK);
        first = b.input_ids[0];
        for (uint64_t i = 0; i < 2; i++) {
            assert_int_equal(zt_data_batch(d, i, &b, &err), CKPT_OK);
            assert_int_equal(b.batch, 2);
            assert_int_equal(b.seq, 8);
            assert_ptr_equal(b.labels, b.input_ids);
            for (int k = 0; k < 2; k++)
                seen[b.input_ids[8 * k]]++;
        }
        assert_int_equal(b.input_ids[0], first);
        zt_data_free(d);
    }
    for (int i = 0; i < 12; i++)
        assert_int_equal(seen[i], 1);
}

/* The sample of each place of a run of two and a half epochs, seen by `world` ranks. */
static void samples_of(int world, uint64_t micro, int32_t *seen, uint64_t n)
{
    for (int rank = 0; rank < world; rank++) {
        zt_data_opts o = {.path = path_of("o.bin"),
                          .micro_batch = micro,
                          .rank = rank,
                          .world = world,
                          .shuffle = true,
                          .model = &gpt2};
        uint64_t each = micro * (uint64_t)world;
        ckpt_err err = {0};
        zt_data *d = NULL;
        zt_batch b;

        assert_int_equal(zt_data_open(&d, &o, &err), CKPT_OK);
        for (uint64_t i = 0; i < n / each; i++) {
            assert_int_equal(zt_data_batch(d, i, &b, &err), CKPT_OK);
            for (uint64_t k = 0; k < micro; k++)
                seen[i * each + (uint64_t)rank * micro + k] = b.input_ids[8 * k];
        }
        zt_data_free(d);
    }
}

/* The order of samples is that of any number of ranks and any micro batch, over epochs too. */
static void test_order(void **state)
{
    static const int world[] = {2, 3, 4, 1};
    static const uint64_t micro[] = {2, 2, 1, 12};
    uint16_t tokens[8 * 11];
    int32_t one[24], other[24];
    int count[11] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        tokens[i] = (uint16_t)(i / 8);
    write_file("o.bin", tokens, sizeof tokens);
    samples_of(1, 1, one, 24);
    for (size_t i = 0; i < 4; i++) {
        samples_of(world[i], micro[i], other, 24);
        assert_memory_equal(one, other, sizeof one);
    }
    for (size_t i = 0; i < 22; i++)
        count[one[i]]++;
    for (size_t i = 0; i < 11; i++)
        assert_int_equal(count[i], 2);
    assert_memory_not_equal(one, one + 11, 11 * sizeof *one);
}

/* A safetensors file of U8 tensors given one after the other. */
static void write_tensors(const char *name, const char *header, const uint8_t *bytes, size_t n)
{
    uint8_t all[1024] = {0};
    size_t m = strlen(header);

    assert_true(8 + m + n <= sizeof all);
    all[0] = (uint8_t)m;
    all[1] = (uint8_t)(m >> 8);
    memcpy(all + 8, header, m);
    memcpy(all + 8 + m, bytes, n);
    write_file(name, all, 8 + m + n);
}

/* A causal model without labels learns the text, not the padding. */
static void test_padding(void **state)
{
    static const uint8_t bytes[] = {5, 6, 7, 0, 8, 9, 0, 0, 1, 1, 1, 0, 1, 1, 0, 0};
    static const int32_t labels[] = {5, 6, 7, ZT_IGNORE, 8, 9, ZT_IGNORE, ZT_IGNORE};
    zt_data_opts o = {.path = path_of("p.safetensors"), .micro_batch = 2, .world = 1};
    zt_model_config mlm = bert;
    ckpt_err err = {0};
    zt_data *d = NULL;
    zt_batch b;

    (void)state;
    mlm.arch = ZT_BERT_MLM;
    write_tensors("p.safetensors",
                  "{\"attention_mask\":{\"dtype\":\"U8\",\"shape\":[2,4],\"data_offsets\":[8,16]},"
                  "\"input_ids\":{\"dtype\":\"U8\",\"shape\":[2,4],\"data_offsets\":[0,8]}}   ",
                  bytes, sizeof bytes);
    o.model = &gpt2;
    assert_int_equal(zt_data_open(&d, &o, &err), CKPT_OK);
    assert_true(zt_data_labelled(d));
    assert_int_equal(zt_data_batch(d, 0, &b, &err), CKPT_OK);
    assert_memory_equal(b.labels, labels, sizeof labels);
    assert_int_equal(b.input_ids[3], 0);
    zt_data_free(d);
    o.model = &mlm;
    assert_int_equal(zt_data_open(&d, &o, &err), CKPT_EMISSING);
    o.evaluate = true;
    assert_int_equal(zt_data_open(&d, &o, &err), CKPT_OK);
    assert_false(zt_data_labelled(d));
    zt_data_free(d);
}

/* T5: labels are targets of their own length, from which the decoder's input follows. */
static void test_pairs(void **state)
{
    static const uint8_t bytes[] = {5, 6, 7, 0, 8, 9, 0, 0, 4, 3, 2, 1, 0, 0};
    static const int32_t labels[] = {4, 3, 2, 1, 0, 0}, shifted[] = {9, 4, 3, 9, 1, 0};
    zt_data_opts o = {.path = path_of("t.safetensors"), .micro_batch = 2, .world = 1};
    const zt_model_config t5 = {.arch = ZT_T5,
                                .class_name = "T5ForConditionalGeneration",
                                .vocab = 300,
                                .positions = INT32_MAX,
                                .decoder_start = 9};
    ckpt_err err = {0};
    zt_data *d = NULL;
    zt_batch b;

    (void)state;
    write_tensors("t.safetensors",
                  "{\"input_ids\":{\"dtype\":\"U8\",\"shape\":[2,4],\"data_offsets\":[0,8]},"
                  "\"labels\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[8,14]}} ",
                  bytes, sizeof bytes);
    o.model = &t5;
    assert_int_equal(zt_data_open(&d, &o, &err), CKPT_OK);
    assert_int_equal(zt_data_target(d), 3);
    assert_int_equal(zt_data_batch(d, 0, &b, &err), CKPT_OK);
    assert_true(b.batch == 2 && b.seq == 4 && b.decoder_seq == 3);
    assert_memory_equal(b.labels, labels, sizeof labels);
    assert_memory_equal(b.decoder_input_ids, shifted, sizeof shifted);
    zt_data_free(d);
    // for other models labels have the length of their tokens; T5 needs labels
    o.model = &gpt2;
    assert_int_equal(zt_data_open(&d, &o, &err), CKPT_EMISMATCH);
    write_tensors("t.safetensors",
                  "{\"input_ids\":{\"dtype\":\"U8\",\"shape\":[2,4],\"data_offsets\":[0,8]}}     ",
                  bytes, 8);
    o.model = &t5;
    assert_int_equal(zt_data_open(&d, &o, &err), CKPT_EMISSING);
}

/* Classes are not what regression learns; a record must have the micro batch of the run. */
static void test_unsuited(void **state)
{
    static const uint8_t bytes[] = {5, 6, 7, 0, 8, 9, 0, 0, 0, 1};
    zt_data_opts o = {.path = path_of("u.safetensors"), .micro_batch = 2, .world = 1};
    zt_model_config one = bert;
    ckpt_err err = {0};
    zt_data *d = NULL;

    (void)state;
    one.multi_label = true;
    o.model = &one;
    write_tensors("u.safetensors",
                  "{\"input_ids\":{\"dtype\":\"U8\",\"shape\":[2,4],\"data_offsets\":[0,8]},"
                  "\"labels\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[8,10]}} ",
                  bytes, sizeof bytes);
    assert_int_equal(zt_data_open(&d, &o, &err), CKPT_EMISMATCH);
    o.model = &bert;
    assert_int_equal(zt_data_open(&d, &o, &err), CKPT_OK);
    zt_data_free(d);
    o.model = &gpt2;
    write_tensors(
        "u.safetensors",
        "{\"in/input_ids\":{\"dtype\":\"U8\",\"shape\":[1,1,2,4],\"data_offsets\":[0,8]}} ", bytes,
        8);
    assert_int_equal(zt_data_open(&d, &o, &err), CKPT_OK);
    assert_true(zt_data_is_replay(d));
    zt_data_free(d);
    o.micro_batch = 1;
    assert_int_equal(zt_data_open(&d, &o, &err), CKPT_EMISMATCH);
}

static void test_evaluate(void **state)
{
    uint16_t tokens[8 * 5];
    ckpt_err err = {0};
    uint64_t counted = 0;

    (void)state;
    for (size_t i = 0; i < 40; i++)
        tokens[i] = (uint16_t)(i / 8);
    write_file("e.bin", tokens, sizeof tokens);
    for (int rank = 0; rank < 2; rank++) {
        zt_data_opts o = {.path = path_of("e.bin"),
                          .micro_batch = 2,
                          .rank = rank,
                          .world = 2,
                          .evaluate = true,
                          .model = &gpt2};
        zt_data *d = NULL;
        zt_batch b;
        assert_int_equal(zt_data_open(&d, &o, &err), CKPT_OK);
        assert_int_equal(zt_data_batches(d), 2);
        for (uint64_t i = 0; i < 2; i++) {
            assert_int_equal(zt_data_batch(d, i, &b, &err), CKPT_OK);
            assert_int_equal(b.spare, rank == 1 && i == 1);
            counted += b.spare ? 0 : b.batch;
        }
        zt_data_free(d);
    }
    assert_int_equal(counted, 5);
}

static int open_code(const char *name, const zt_model_config *m, const char *vocab)
{
    zt_data_opts o = {.path = path_of(name),
                      .micro_batch = 1,
                      .world = 1,
                      .model = m,
                      .seq = m == &gpt2 ? 4 : 0,
                      .lower_case = true};
    char at[256];
    zt_data *d = NULL;
    zt_batch b;
    ckpt_err err = {0};
    int rc;

    if (vocab) {
        snprintf(at, sizeof at, "%s", path_of(vocab));
        o.vocab = at;
        o.path = path_of(name);
    }
    rc = zt_data_open(&d, &o, &err);
    for (uint64_t i = 0; rc == CKPT_OK && i < zt_data_batches(d); i++)
        rc = zt_data_batch(d, i, &b, &err);
    zt_data_free(d);
    return rc;
}

/* A .npy file of version 1 with this dict and n bytes of 1. */
static void write_npy(const char *name, const char *dict, size_t n)
{
    uint8_t bytes[512] = "\x93NUMPY\x01";
    size_t len = strlen(dict);

    bytes[8] = (uint8_t)len;
    memcpy(bytes + 10, dict, len);
    memset(bytes + 10 + len, 1, n);
    write_file(name, bytes, 10 + len + n);
}

static void test_npy(void **state)
{
    (void)state;
    write_npy("a.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (16,), }\n", 16);
    assert_int_equal(open_code("a.npy", &gpt2, NULL), CKPT_OK);
    write_npy("b.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (4, 4), }\n", 16);
    assert_int_equal(open_code("b.npy", &gpt2, NULL), CKPT_OK);
    write_npy("c.npy", "{'descr': '<u4', 'fortran_order': False, 'shape': (4, 4), }\n", 16);
    assert_int_equal(open_code("c.npy", &gpt2, NULL), CKPT_EFORMAT); // does not fit
    write_npy("d.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }\n", 16);
    assert_int_equal(open_code("d.npy", &gpt2, NULL), CKPT_EUNSUPPORTED);
    write_npy("e.npy",
              "{'descr': '<u2', 'fortran_order': False, 'shape': (9999999999999999999, 9), }\n",
              16);
    assert_int_equal(open_code("e.npy", &gpt2, NULL), CKPT_EFORMAT);
    write_npy("f.npy", "{'descr': '<u2', 'shape': (8,), }\n", 16);
    assert_int_equal(open_code("f.npy", &gpt2, NULL), CKPT_EFORMAT);
    write_npy("g.npy", "{'descr': '<u4', 'fortran_order': False, 'shape': (4,), }\n",
              16); // 0x01010101
    assert_int_equal(open_code("g.npy", &gpt2, NULL), CKPT_EFORMAT);
}

/* The header, as long as one may be, ends where a value should begin. */
static void test_npy_cut(void **state)
{
    enum { N = 4095 };
    static const char head[] = "{'fortran_order': False, 'shape': (0,), ", tail[] = "'descr':";
    uint8_t bytes[10 + N] = "\x93NUMPY\x01";

    (void)state;
    bytes[8] = N & 255;
    bytes[9] = N >> 8;
    memset(bytes + 10, ' ', N);
    memcpy(bytes + 10, head, sizeof head - 1);
    memcpy(bytes + 10 + N - (sizeof tail - 1), tail, sizeof tail - 1);
    write_file("h.npy", bytes, sizeof bytes);
    assert_int_equal(open_code("h.npy", &gpt2, NULL), CKPT_EUNSUPPORTED);
}

static const char vocab[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\nwor\n##ld\n!\n我\n很\n高\n兴\ncafe\n##s\n";

static void test_wordpiece(void **state)
{
    static const struct {
        const char *text;
        int n;
        int32_t id[12];
    } cases[] = {
        {"Hello world!", 6, {2, 4, 5, 6, 7, 3}},
        {"我很高兴!", 7, {2, 8, 9, 10, 11, 7, 3}},
        {"Caf\xc3\xa9s", 4, {2, 12, 13, 3}},
        {"wor\tld", 4, {2, 5, 1, 3}},
        {"hel\x07lo", 3, {2, 4, 3}},
        {"", 2, {2, 3}},
    };
    zt_wordpiece *w = NULL;
    ckpt_err err = {0};
    int32_t id[12];
    char *end;

    (void)state;
    write_text("vocab.txt", vocab);
    assert_int_equal(zt_wordpiece_read(&w, path_of("vocab.txt"), true, &err), CKPT_OK);
    assert_int_equal(zt_wordpiece_size(w), 14);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(zt_wordpiece_encode(w, cases[i].text, strlen(cases[i].text), 12, id),
                         cases[i].n);
        assert_memory_equal(id, cases[i].id, (size_t)cases[i].n * sizeof *id);
    }
    assert_int_equal(zt_wordpiece_encode(w, "hello hello hello", 17, 4, id), 4);
    assert_int_equal(id[3], 3);
    assert_int_equal(zt_wordpiece_encode(w, "\xff", 1, 4, id), -1);
    // no text: nothing is read, not even the byte after it
    end = malloc(2);
    assert_non_null(end);
    assert_int_equal(zt_wordpiece_encode(w, end + 2, 0, 4, id), 2);
    free(end);
    zt_wordpiece_free(w);
    // of equal lines the last one counts
    write_text("twice.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\nhello\nwor\n");
    assert_int_equal(zt_wordpiece_read(&w, path_of("twice.txt"), true, &err), CKPT_OK);
    assert_int_equal(zt_wordpiece_encode(w, "hello wor", 9, 12, id), 4);
    assert_int_equal(id[1], 5);
    assert_int_equal(id[2], 6);
    zt_wordpiece_free(w);
    write_text("bad.txt", "hello\n");
    assert_int_equal(zt_wordpiece_read(&w, path_of("bad.txt"), true, &err), CKPT_EFORMAT);
}

#define MARK "\xef\xbb\xbf" /* byte order mark */

static void test_text(void **state)
{
    zt_model_config two = bert;
    zt_data_opts o = {.micro_batch = 3, .world = 1, .model = &two, .lower_case = true};
    static const char *const names[] = {"a.tsv", "a.csv", "a.jsonl", "b.tsv", "c.csv", "d.csv"};
    char pieces[256];

    (void)state;
    two.labels = 2;
    write_text("vocab.txt", vocab);
    write_text("a.tsv", MARK "joy\thello\nanger\thello world\njoy\t我\n");
    write_text("a.csv",
               MARK "\"text\",label\n\"hello\",joy\n\"hello world\",anger\n\"我\",joy\r\n");
    write_text("a.jsonl", MARK "{\"text\": \"hello\", \"label\": \"joy\"}\n\n{\"text\": \"hello "
                               "world\", \"label\": \"anger\"}\n{\"text\": "
                               "\"\\u6211\", \"label\": \"joy\"}\n");
    write_text("b.tsv", "id\ttext\tlabel\n1\thello\tjoy\n2\thello world\tanger\n3\t我\tjoy\n");
    // the text has no known name, but only one column can be it; names in capitals
    write_text("c.csv", "tweet,label\nhello,joy\nhello world,anger\n我,joy\n");
    write_text("d.csv", "Label,Id,Sentence\njoy,1,hello\nanger,2,hello world\njoy,3,我\n");
    snprintf(pieces, sizeof pieces, "%s", path_of("vocab.txt"));
    o.vocab = pieces;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        static const int32_t ids[] = {2, 4, 3, 0, 0, 2, 4, 5, 6, 3, 2, 8, 3, 0, 0};
        static const int32_t mask[] = {1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0};
        ckpt_err err = {0};
        zt_data *d = NULL;
        zt_batch b;
        o.path = path_of(names[i]);
        assert_int_equal(zt_data_open(&d, &o, &err), CKPT_OK);
        assert_int_equal(zt_data_batch(d, 0, &b, &err), CKPT_OK);
        assert_int_equal(b.seq, 5);
        assert_memory_equal(b.input_ids, ids, sizeof ids);
        assert_memory_equal(b.attention_mask, mask, sizeof mask);
        assert_int_equal(b.labels[0], 1);
        assert_int_equal(b.labels[1], 0);
        assert_string_equal(zt_data_class(d, 0), "anger");
        zt_data_free(d);
    }
}

static void test_bad_text(void **state)
{
    (void)state;
    write_text("vocab.txt", vocab);
    write_text("x.tsv", "7\thello\n");
    assert_int_equal(open_code("x.tsv", &bert, "vocab.txt"), CKPT_EMISMATCH);
    // names of classes without label2id: all of them must be there, or numbers would differ
    write_text("x.tsv", "joy\thello\nanger\thello\n");
    assert_int_equal(open_code("x.tsv", &bert, "vocab.txt"), CKPT_EMISMATCH);
    write_text("x.tsv", "1\thello\n");
    assert_int_equal(open_code("x.tsv", &gpt2, "vocab.txt"), CKPT_EUNSUPPORTED);
    write_text("x.tsv", "1\t\xff\n");
    assert_int_equal(open_code("x.tsv", &bert, "vocab.txt"), CKPT_EFORMAT);
    write_text("x.jsonl", "{\"text\": 1\n");
    assert_int_equal(open_code("x.jsonl", &bert, "vocab.txt"), CKPT_EFORMAT);
    write_text("x.jsonl", "[1]\n");
    assert_int_equal(open_code("x.jsonl", &bert, "vocab.txt"), CKPT_EFORMAT);
    write_text("x.csv", "");
    assert_int_equal(open_code("x.csv", &bert, "vocab.txt"), CKPT_EFORMAT);
    // the first is right, the others would lose text or labels
    static const char *const rows[][2] = {
        {"x.csv", "label,text\n1,\"hello\""},
        {"x.csv", "label,text\n1,\"hello\n2,hello\n"},
        {"x.csv", "label,text\n1,hello,hello\n"},
        {"x.tsv", "1\thello\n1\thello\thello\n"},
        {"x.tsv", "label\ttext\tsentence\n1\thello\thello\n"},
        {"x.csv", "label,class,text\n1,1,hello\n"},
        {"x.csv", "label,TEXT,text\n1,hello,hello\n"},
        {"x.csv", "hello,hello2,label\nhello,hello,1\n"},
        {"x.csv", "label\n1\n"},
        {"x.csv", "text,label\nhello,1\nhello,\n"},
        {"x.jsonl",
         "{\"text\": \"hello\", \"label\": 1}\n{\"text\": \"hello\", \"label\": \"\"}\n"},
        {"x.jsonl", "{\"text\": \"hello\", \"content\": \"hello\", \"label\": 1}\n"},
        {"x.jsonl", "{\"text\": \"hello\", \"class\": 2, \"label\": 1}\n"},
        {"x.jsonl", "{\"text\": 1.1, \"label\": 1}\n"},
        {"x.jsonl", "{\"text\": \"hel\\u0000lo\", \"label\": 1}\n"},
        {"x.jsonl", "{\"text\": \"hello\", \"label\": true}\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_text(rows[i][0], rows[i][1]);
        assert_int_equal(open_code(rows[i][0], &bert, "vocab.txt"), i ? CKPT_EFORMAT : CKPT_OK);
    }
    write_text("x.jsonl", "{\"text\": \"hello\", \"content\": null, \"label\": 1}\n");
    assert_int_equal(open_code("x.jsonl", &bert, "vocab.txt"), CKPT_OK);
    assert_int_equal(open_code("none.csv", &bert, "vocab.txt"), CKPT_EMISSING);
    assert_int_equal(open_code("x.csv", &bert, NULL), CKPT_EUSAGE);
    assert_int_equal(open_code("x.odd", &bert, NULL), CKPT_EUNSUPPORTED);
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    char command[300];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutation), cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_sum),         cmocka_unit_test(test_evaluate),
        cmocka_unit_test(test_npy),         cmocka_unit_test(test_npy_cut),
        cmocka_unit_test(test_wordpiece),   cmocka_unit_test(test_text),
        cmocka_unit_test(test_bad_text),    cmocka_unit_test(test_order),
        cmocka_unit_test(test_pairs),       cmocka_unit_test(test_padding),
        cmocka_unit_test(test_unsuited),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
