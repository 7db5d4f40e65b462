/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_fsdp_ranks.c: FSDP's files of two ranks, made of the input: opened with the optimizer's
 * state, checked, and their values read.
 *
 * Input: files one after the other: a byte that says which (its kind, and the rank); a byte with
 * the number of storages, two with the bytes of each; three with the length of the pickle; the
 * pickle.  Storages are zeros, and checksums hold, so that the pickles are what is fuzzed.
 */
#include "libckpt/base/digest.h"
#include "tests/fuzz/fuzz_run.h"

static uint8_t archive[1 << 22], directory[1 << 16];
static const uint8_t zeros[1 << 16];
static size_t n_archive, n_directory;

/* The lowest n bytes of a number, little-endian. */
static void number(uint8_t *to, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

/* A stored record, and its entry of the directory. */
static void record(const char *name, const uint8_t *bytes, size_t n)
{
    uint8_t *local = archive + n_archive, *entry = directory + n_directory;
    size_t n_name = strlen(name);
    uint32_t crc = ckpt_crc32(0, bytes, n);

    if (n_archive + 30 + n_name + n > sizeof archive / 2 ||
        n_directory + 46 + n_name > sizeof directory)
        return;
    memset(local, 0, 30);
    memcpy(local, "PK\3\4\24", 5);
    number(local + 14, crc, 4);
    number(local + 18, n, 4);
    number(local + 22, n, 4);
    number(local + 26, n_name, 2);
    memcpy(local + 30, name, n_name);
    memcpy(local + 30 + n_name, bytes, n);
    memset(entry, 0, 46);
    memcpy(entry, "PK\1\2\24\0\24", 7);
    memcpy(entry + 16, local + 14, 12); // CRC and sizes
    number(entry + 28, n_name, 2);
    number(entry + 42, n_archive, 4);
    memcpy(entry + 46, name, n_name);
    n_archive += 30 + n_name + n;
    n_directory += 46 + n_name;
}

/* One file of the input, as the archive that torch.save would write. */
static void file(const uint8_t **data, size_t *size)
{
    static const char *const kinds[] = {"model", "optim", "extra_state", "model"};
    uint8_t which = (*data)[0], n_storages = *size > 1 ? (*data)[1] : 0;
    size_t head = 2 + (size_t)n_storages * 2 + 3, n;
    char name[80];

    if (*size < head) {
        *data += *size;
        *size = 0;
        return;
    }
    const uint8_t *sizes = *data + 2, *length = *data + head - 3;
    n = (size_t)(length[0] | length[1] << 8 | length[2] << 16);
    n = n < *size - head ? n : *size - head;
    n_archive = n_directory = 0;
    record("a/data.pkl", *data + head, n);
    for (unsigned i = 0; i < n_storages; i++) {
        snprintf(name, sizeof name, "a/data/%u", i);
        record(name, zeros, (size_t)(sizes[2 * i] | sizes[2 * i + 1] << 8));
    }
    record("a/version", (const uint8_t *)"3\n", 2);
    uint8_t *end = archive + n_archive + n_directory;
    memcpy(archive + n_archive, directory, n_directory);
    memset(end, 0, 22);
    memcpy(end, "PK\5\6", 4);
    number(end + 8, (uint64_t)n_storages + 2, 2);
    number(end + 10, (uint64_t)n_storages + 2, 2);
    number(end + 12, n_directory, 4);
    number(end + 16, n_archive, 4);
    snprintf(name, sizeof name, "run/%s_world_size_2_rank_%d.pt", kinds[which & 3], which >> 2 & 1);
    (void)fuzz_file(name, archive, n_archive + n_directory + 22);
    *data += head + n;
    *size -= head + n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_run_begin();
    while (size > 0)
        file(&data, &size);
    return fuzz_run_open(size % 2);
}
