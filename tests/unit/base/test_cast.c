/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cast.c: conversions against an oracle that shares no code with them, the processor's own
 * bodies against the portable ones, and the searches and fixes of cast.h.
 *
 * The oracle for a narrow format is a sorted table of all its values, made with ldexp: the nearest
 * one is found by bisection, ties go to the even pattern.
 */
#include <math.h>

#include "libckpt/base/cast.h"
#include "tests/unit/unit.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

static const ckpt_dtype floats[] = {CKPT_F64,  CKPT_F32,     CKPT_F16,
                                    CKPT_BF16, CKPT_F8_E4M3, CKPT_F8_E5M2};
enum { N_FLOATS = sizeof floats / sizeof *floats };

/* A narrow format as the oracle sees it. */
typedef struct narrow {
    ckpt_dtype dtype;
    unsigned bytes, exponent, fraction; /* bits */
    unsigned n_finite;                  /* non-negative finite values: patterns 0..n_finite-1 */
    bool inf;
    double *value; /* of each of these patterns, ascending */
} narrow;

static narrow narrows[] = {
    {CKPT_F16, 2, 5, 10, 0x7c00, true, NULL},
    {CKPT_BF16, 2, 8, 7, 0x7f80, true, NULL},
    {CKPT_F8_E4M3, 1, 4, 3, 0x7f, false, NULL},
    {CKPT_F8_E5M2, 1, 5, 2, 0x7c, true, NULL},
};
enum { N_NARROWS = sizeof narrows / sizeof *narrows };

static int make_tables(void **state)
{
    (void)state;
    for (int i = 0; i < N_NARROWS; i++) {
        narrow *f = &narrows[i];
        int bias = (1 << (f->exponent - 1)) - 1;

        f->value = malloc((f->n_finite + 1) * sizeof *f->value);
        for (unsigned k = 0; k <= f->n_finite; k++) {
            // one more than there are: what the next value would be, for the overflow bound
            int e = (int)(k >> f->fraction);
            unsigned m = k & ((1u << f->fraction) - 1);

            f->value[k] = e == 0 ? ldexp(m, 1 - bias - (int)f->fraction)
                                 : ldexp(m + (1u << f->fraction), e - bias - (int)f->fraction);
        }
    }
    return 0;
}

static int free_tables(void **state)
{
    (void)state;
    for (int i = 0; i < N_NARROWS; i++)
        free(narrows[i].value);
    return 0;
}

/* Pattern of the value of f nearest to x, which is not NaN. */
static unsigned oracle(const narrow *f, double x)
{
    double a = fabs(x);
    unsigned sign = signbit(x) ? 1u << (8 * f->bytes - 1) : 0;
    unsigned low = 0, high = f->n_finite; // the answer is one of the two, in the end
    double to_low, to_high;

    if (a >= f->value[high]) {
        return sign | (f->inf ? high : high - 1); // infinity, or the largest where there is none
    }
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;

        if (f->value[middle] <= a)
            low = middle;
        else
            high = middle;
    }
    to_low = a - f->value[low]; // exact where it decides: neighbours differ by a power of two
    to_high = f->value[high] - a;
    if (to_low == to_high)
        high = low % 2 == 0 ? low : high;
    else if (to_low < to_high)
        high = low;
    return sign | (!f->inf && high == f->n_finite ? high - 1 : high);
}

static uint64_t load(const void *p, size_t i, unsigned bytes)
{
    uint64_t v = 0;

    memcpy(&v, (const unsigned char *)p + i * bytes, bytes); // little-endian, as all our hosts
    return v;
}

static unsigned bytes_of(ckpt_dtype d)
{
    return ckpt_dtype_get(d)->bits / 8u;
}

static bool is_nan(ckpt_dtype d, uint64_t v)
{
    switch ((int)d) {
    case CKPT_F64:
        return (v & INT64_MAX) > 0x7ffull << 52;
    case CKPT_F32:
        return (v & INT32_MAX) > 0x7f800000u;
    case CKPT_F16:
        return (v & 0x7fff) > 0x7c00;
    case CKPT_BF16:
        return (v & 0x7fff) > 0x7f80;
    case CKPT_F8_E4M3:
        return (v & 0x7f) == 0x7f;
    default:
        return (v & 0x7f) > 0x7c;
    }
}

/* Both ways of a conversion, compared; the result is static. */
static const void *convert(ckpt_dtype to, ckpt_dtype from, const void *src, size_t n)
{
    static unsigned char fast[1 << 20], plain[1 << 20];

    assert_true(n * bytes_of(to) <= sizeof fast);
    ckpt_cast_find(to, from)(fast, src, n);
    ckpt_cast_find_portable(to, from)(plain, src, n);
    assert_memory_equal(fast, plain, n * bytes_of(to));
    return plain;
}

/* Compare the conversions of n elements to every narrow format with the oracle. */
static void check_narrowing(ckpt_dtype from, const void *src, size_t n)
{
    static double x[1 << 17];

    memcpy(x, convert(CKPT_F64, from, src, n), n * sizeof *x);
    for (int t = 0; t < N_NARROWS; t++) {
        const narrow *f = &narrows[t];
        const void *out;

        if (f->dtype == from)
            continue;
        out = convert(f->dtype, from, src, n);
        for (size_t i = 0; i < n; i++) {
            uint64_t bits = load(src, i, bytes_of(from)), got = load(out, i, f->bytes);

            if (is_nan(from, bits)) {
                assert_true(is_nan(f->dtype, got));
                assert_int_equal(got >> (8 * f->bytes - 1), bits >> (8 * bytes_of(from) - 1));
                continue;
            }
            if (got != oracle(f, x[i]))
                fail_msg("%s %.17g: %x, not %x", ckpt_dtype_name(f->dtype), x[i], (unsigned)got,
                         oracle(f, x[i]));
        }
    }
}

static void found_for_floats_and_ints_to_f32(void **state)
{
    (void)state;
    for (int to = -1; to <= CKPT_N_DTYPES; to++) {
        for (int from = -1; from <= CKPT_N_DTYPES; from++) {
            if (ckpt_dtype_get((ckpt_dtype)to)->bits == 0 &&
                ckpt_dtype_get((ckpt_dtype)from)->bits == 0)
                assert_null(ckpt_cast_find((ckpt_dtype)to, (ckpt_dtype)from));
            if (to >= CKPT_Q4_0 || from >= CKPT_Q4_0)
                continue; // test_quant.c
            bool ints = to == CKPT_F32 && from >= CKPT_I64 && from <= CKPT_BOOL;
            bool both = ints || (to >= CKPT_F64 && to <= CKPT_F8_E5M2 && from >= CKPT_F64 &&
                                 from <= CKPT_F8_E5M2);

            assert_int_equal(ckpt_cast_find((ckpt_dtype)to, (ckpt_dtype)from) != NULL, both);
            assert_int_equal(ckpt_cast_find_portable((ckpt_dtype)to, (ckpt_dtype)from) != NULL,
                             both);
        }
    }
}

static void ints_round_once(void **state)
{
    const int64_t wide[] = {0, -1, 16777217, INT64_MAX, INT64_MIN, 33554435};
    const float want[] = {0, -1, 16777216, 0x1p63f, -0x1p63f, 33554436};
    const uint8_t flags[] = {0, 1, 255};
    float got[6];

    (void)state;
    ckpt_cast_find(CKPT_F32, CKPT_I64)(got, wide, 6);
    assert_memory_equal(got, want, sizeof want);
    ckpt_cast_find(CKPT_F32, CKPT_BOOL)(got, flags, 3);
    assert_true(got[0] == 0.0f && got[1] == 1.0f && got[2] == 255.0f);
    ckpt_cast_find(CKPT_F32, CKPT_I8)(got, flags, 3);
    assert_true(got[2] == -1.0f);
    ckpt_cast_find(CKPT_F32, CKPT_U64)(got, &wide[4], 1);
    assert_true(got[0] == 0x1p63f);
}

/* What a conversion loses, counted once in a block of zeros and small numbers, at any place. */
static void losses_are_counted(void **state)
{
    static const struct {
        ckpt_dtype to;
        uint64_t n_over, n_zero;
    } cases[] = {
        {CKPT_F16, 3, 4},     // 7e4, 1e30, 3.4e38; 1e-8, 1e-30, 1e-41, -1e-41
        {CKPT_BF16, 1, 2},    // 3.4028235e38; 1e-41 twice
        {CKPT_F8_E4M3, 5, 5}, // 465, 7e4, 1e30, 3.4e38 and infinity; 1e-5 as well
        {CKPT_F8_E5M2, 3, 4}, {CKPT_F64, 0, 0}, {CKPT_F32, 0, 0}, {CKPT_I32, 0, 0},
    };
    static const float some[] = {464.0f,   465.0f,  7e4f,  1e30f, 3.4028235e38f,
                                 INFINITY, NAN,     1e-5f, 1e-8f, 1e-30f,
                                 1e-41f,   -1e-41f, 0.0f,  -0.0f, 1.0f};
    enum { N = sizeof some / sizeof *some, ROOM = 300 };
    float src[ROOM];
    double dst[ROOM];

    (void)state;
    for (size_t at = 0; at + N <= ROOM; at += 57) {
        memset(src, 0, sizeof src);
        memcpy(src + at, some, sizeof some);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            ckpt_cast_fn cast = ckpt_cast_find(cases[i].to, CKPT_F32);
            ckpt_lost lost = {.n_over = 1, .n_zero = 1};

            if (cast)
                cast(dst, src, ROOM);
            ckpt_count_lost(&lost, cases[i].to, CKPT_F32, dst, src, ROOM);
            assert_int_equal(lost.n_over, cases[i].n_over + 1);
            assert_int_equal(lost.n_zero, cases[i].n_zero + 1);
        }
    }
}

/* Values that become 0, at any length and address, and more than 16 bits can count. */
static void zeros_are_counted(void **state)
{
    enum { SHORT = 70, LONG = 1100003 };
    float *src = malloc((LONG + 1) * sizeof *src);
    uint16_t *dst = malloc((LONG + 1) * sizeof *dst);

    (void)state;
    assert_non_null(src);
    assert_non_null(dst);
    for (size_t n = 0; n < SHORT; n++) {
        for (size_t at = 0; at < 2; at++) {
            ckpt_lost lost = {0};
            uint64_t want = 0;

            for (size_t i = 0; i < n; i++) {
                src[at + i] = i % 3 == 0 ? (i % 2 ? -0.0f : 0.0f) : i % 3 == 1 ? -1e-41f : 1.0f;
                want += i % 3 == 1;
            }
            ckpt_cast_find(CKPT_BF16, CKPT_F32)(dst + at, src + at, n);
            ckpt_count_lost(&lost, CKPT_BF16, CKPT_F32, dst + at, src + at, n);
            assert_int_equal(lost.n_zero, want);
        }
    }
    for (size_t i = 0; i < LONG; i++)
        src[i] = i % 2 ? 1e-41f : -1e-41f;
    ckpt_lost lost = {0};
    ckpt_cast_find(CKPT_BF16, CKPT_F32)(dst, src, LONG);
    ckpt_count_lost(&lost, CKPT_BF16, CKPT_F32, dst, src, LONG);
    assert_int_equal(lost.n_zero, LONG);
    free(src);
    free(dst);
}

static void equal_dtypes_are_copied(void **state)
{
    unsigned char src[512], dst[512];

    (void)state;
    for (size_t i = 0; i < sizeof src; i++) {
        src[i] = (unsigned char)(i * 37 + 255); // signalling NaNs of every format among them
    }
    for (int i = 0; i < N_FLOATS; i++) {
        memset(dst, 0, sizeof dst);
        ckpt_cast_find(floats[i], floats[i])(dst, src, 512 / bytes_of(floats[i]));
        assert_memory_equal(dst, src, sizeof src);
    }
}

/* Every pattern of every narrow format, widened: the table says the value; then back again. */
static void every_narrow_pattern(void **state)
{
    static unsigned char all[2 * 65536];
    static double wide[65536];
    static unsigned char back[65536 * 8];

    (void)state;
    for (int t = 0; t < N_NARROWS; t++) {
        const narrow *f = &narrows[t];
        unsigned n = 1u << (8 * f->bytes), sign = n / 2;

        for (unsigned k = 0; k < n; k++)
            memcpy(all + k * f->bytes, &k, f->bytes);
        memcpy(wide, convert(CKPT_F64, f->dtype, all, n), n * sizeof *wide);
        for (unsigned k = 0; k < n; k++) {
            unsigned a = k & (sign - 1);
            double want = a < f->n_finite ? f->value[a] : HUGE_VAL;

            assert_int_equal(signbit(wide[k]) != 0, k >= sign);
            if (a < f->n_finite || (f->inf && a == f->n_finite))
                assert_true(fabs(wide[k]) == want);
            else
                assert_true(isnan(wide[k]));
        }
        // through every format that holds all its values, and back: the same bits, NaN made quiet
        for (int w = 0; w < 2; w++) {
            memcpy(back, convert(floats[w], f->dtype, all, n), n * bytes_of(floats[w]));
            const unsigned char *again = convert(f->dtype, floats[w], back, n);

            for (unsigned k = 0; k < n; k++) {
                uint64_t want = k, got = load(again, k, f->bytes);

                if (is_nan(f->dtype, k) && f->inf)
                    want |= 1u << (f->fraction - 1);
                assert_int_equal(got, want);
            }
        }
        check_narrowing(f->dtype, all, n);
    }
}

/* Each value of each narrow format, each tie between two, and the nearest neighbours of both. */
static void ties_and_their_neighbours(void **state)
{
    enum { ROOM = 80000 };
    static double x[ROOM];
    static float y[ROOM];

    (void)state;
    for (int t = 0; t < N_NARROWS; t++) {
        const narrow *f = &narrows[t];
        unsigned step = f->n_finite > 4096 ? 7 : 1; // the ends of the table are always there
        size_t n = 0;

        for (unsigned k = 0; k<f->n_finite; k += k + 300> f->n_finite || k < 2100 ? 1 : step) {
            double tie = (f->value[k] + f->value[k + 1]) / 2;

            assert_true(n + 12 < ROOM);
            for (int s = -1; s <= 1; s += 2) {
                x[n++] = s * f->value[k];
                x[n++] = s * nextafter(f->value[k], HUGE_VAL);
                x[n++] = s * nextafter(tie, 0);
                x[n++] = s * tie;
                x[n++] = s * nextafter(tie, HUGE_VAL);
            }
        }
        check_narrowing(CKPT_F64, x, n);
        for (size_t i = 0; i < n; i++) {
            y[i] = (float)x[i]; // a neighbour in F64 falls on the tie itself: fine, then
            if (i % 5 == 2)
                y[i] = nextafterf(y[i], 0);
            else if (i % 5 == 4)
                y[i] = nextafterf(y[i], y[i] > 0 ? INFINITY : -INFINITY);
        }
        check_narrowing(CKPT_F32, y, n);
    }
}

static void known_bits(void **state)
{
    static const struct {
        ckpt_dtype to, from;
        uint64_t in, out;
    } cases[] = {
        {CKPT_BF16, CKPT_F32, 0x3f808000, 0x3f80},            // tie to even, down
        {CKPT_BF16, CKPT_F32, 0x3f818000, 0x3f82},            // tie to even, up
        {CKPT_BF16, CKPT_F32, 0x7f7fffff, 0x7f80},            // overflow
        {CKPT_BF16, CKPT_F32, 0x7f800001, 0x7fc0},            // signalling NaN, payload cut off
        {CKPT_BF16, CKPT_F32, 0xffa10000, 0xffe1},            // payload kept, sign kept
        {CKPT_BF16, CKPT_F32, 0x00000001, 0x0000},            // subnormal
        {CKPT_BF16, CKPT_F32, 0x00008001, 0x0001},            // subnormal, rounded up
        {CKPT_F16, CKPT_F32, 0x477fefff, 0x7bff},             // just below the overflow bound
        {CKPT_F16, CKPT_F32, 0x477ff000, 0x7c00},             // 65520: overflow
        {CKPT_F16, CKPT_F32, 0x33000000, 0x0000},             // half the smallest: tie to zero
        {CKPT_F16, CKPT_F32, 0x33000001, 0x0001},             // just above
        {CKPT_F16, CKPT_F32, 0x387fffff, 0x0400},             // subnormal rounds to normal
        {CKPT_F16, CKPT_F32, 0xff802001, 0xfe01},             // NaN
        {CKPT_F32, CKPT_F16, 0x7c01, 0x7fc02000},             // signalling becomes quiet
        {CKPT_F32, CKPT_F16, 0x8001, 0xb3800000},             // subnormal
        {CKPT_F32, CKPT_BF16, 0xff81, 0xff810000},            // shift only
        {CKPT_F8_E4M3, CKPT_F32, 0x43e00000, 0x7e},           // 448, the largest
        {CKPT_F8_E4M3, CKPT_F32, 0x43e80000, 0x7e},           // 464: tie to 448
        {CKPT_F8_E4M3, CKPT_F32, 0xc3e80001, 0xfe},           // beyond: the largest
        {CKPT_F8_E4M3, CKPT_F32, 0x7f800000, 0x7e},           // infinity: the largest
        {CKPT_F8_E4M3, CKPT_F32, 0xffc00000, 0xff},           // NaN stays NaN
        {CKPT_F8_E5M2, CKPT_F32, 0x47700000, 0x7c},           // 61440: tie to infinity
        {CKPT_F8_E5M2, CKPT_F32, 0x476fffff, 0x7b},           // 57344, the largest
        {CKPT_F32, CKPT_F64, 0x3690000000000000, 0x00000000}, // 2^-150: tie to zero
        {CKPT_F32, CKPT_F64, 0x3690000000000001, 0x00000001},
        {CKPT_F32, CKPT_F64, 0xc7efffffefffffff, 0xff7fffff}, // below the overflow bound
        {CKPT_F32, CKPT_F64, 0xc7effffff0000000, 0xff800000}, // overflow
        {CKPT_F32, CKPT_F64, 0x000fffffffffffff, 0x00000000}, // subnormal F64
        {CKPT_F64, CKPT_F32, 0x00000001, 0x36a0000000000000}, // smallest subnormal F32
        {CKPT_F64, CKPT_F32, 0x7f800001, 0x7ff8000020000000}, // NaN, quiet
        // once, not twice: through F32 this would become a tie, and 0x3f80
        {CKPT_BF16, CKPT_F64, 0x3ff0100000000001, 0x3f81},
        {CKPT_F16, CKPT_F64, 0x3ff0020000000001, 0x3c01},
        {CKPT_F8_E5M2, CKPT_F8_E4M3, 0x01, 0x18}, // 2^-9, exact
        {CKPT_F8_E4M3, CKPT_F8_E5M2, 0x01, 0x00}, // 2^-16: below half of 2^-9
        {CKPT_F8_E4M3, CKPT_F8_E5M2, 0xfc, 0xfe},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const void *out = convert(cases[i].to, cases[i].from, &cases[i].in, 1);

        if (load(out, 0, bytes_of(cases[i].to)) != cases[i].out)
            fail_msg("case %zu: %llx", i, (unsigned long long)load(out, 0, bytes_of(cases[i].to)));
    }
}

/* F32 patterns a prime apart, all signs and exponents many times: fast == portable == oracle. */
static void f32_over_its_range(void **state)
{
    enum { STRIDE = 1021, BLOCK = 8192 };
    static uint32_t x[BLOCK];
    uint64_t at = 0;

    (void)state;
    for (unsigned turn = 0; at < 1ull << 32; turn++) {
        size_t n = 0;

        for (; n < BLOCK && at < 1ull << 32; n++, at += STRIDE)
            x[n] = (uint32_t)at;
        for (int to = 0; to < N_FLOATS; to++)
            convert(floats[to], CKPT_F32, x, n);
        if (turn % 16 == 0) {
            check_narrowing(CKPT_F32, x, n); // bisection is slow
        }
    }
}

/* F64 to F32 and back against the processor's own instructions, in their default mode. */
static void f64_against_the_processor(void **state)
{
    enum { BLOCK = 8192, TURNS = 100 };
    static uint64_t x[BLOCK];
    uint64_t seed = 88172645463325252ull;

    (void)state;
    for (int turn = 0; turn < TURNS; turn++) {
        const void *out;

        for (size_t i = 0; i < BLOCK; i++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            // half of them where F32 is subnormal, near its ends, or just halfway between two
            x[i] = i % 2 ? seed : (seed & ~(0x7ffull << 52)) | (870 + (seed >> 20) % 290) << 52;
            x[i] = i % 8 == 4 ? (x[i] & ~0x1fffffffull) | 1u << 28 : x[i];
        }
        out = convert(CKPT_F32, CKPT_F64, x, BLOCK);
        for (size_t i = 0; i < BLOCK; i++) {
            double d;
            float f;
            uint32_t bits;

            memcpy(&d, &x[i], 8);
            f = (float)d;
            memcpy(&bits, &f, 4);
            assert_int_equal(load(out, i, 4), bits);
        }
        if (turn % 16 == 0)
            check_narrowing(CKPT_F64, x, BLOCK);
    }
}

/* Lengths around the width of the registers, from every alignment; nothing outside is touched. */
static void odd_lengths_and_addresses(void **state)
{
    unsigned char src[8 * 80], dst[8 * 80], want[8 * 80];

    (void)state;
    for (size_t i = 0; i < sizeof src; i++)
        src[i] = (unsigned char)(i * 101 + i / 7);
    for (int to = 0; to < N_FLOATS; to++) {
        for (int from = 0; from < N_FLOATS; from++) {
            unsigned wide = bytes_of(floats[to]);

            for (size_t n = 0; n <= 67; n++) {
                size_t shift = n % 9;

                memset(dst, 0xa5, sizeof dst);
                memset(want, 0xa5, sizeof want);
                ckpt_cast_find(floats[to], floats[from])(dst + shift, src + 9 - shift, n);
                ckpt_cast_find_portable(floats[to], floats[from])(want + shift, src + 9 - shift, n);
                assert_memory_equal(dst, want, sizeof dst);
                assert_int_equal(dst[shift + n * wide], 0xa5);
            }
        }
    }
}

/* A thread that flushes subnormals to zero, or rounds otherwise, gets the same bits. */
static void floating_point_mode_does_not_matter(void **state)
{
#if defined(__SSE2__)
    static uint32_t x[4096];
    static unsigned char normal[N_FLOATS][8 * 4096];
    unsigned mode = _mm_getcsr();

    (void)state;
    for (uint32_t i = 0; i < 4096; i++) {
        // subnormals of F32, and numbers that are subnormal in F16
        x[i] = i % 2 ? i * 4093 : 0x33000000u + i * 20011;
    }
    for (int to = 0; to < N_FLOATS; to++)
        memcpy(normal[to], convert(floats[to], CKPT_F32, x, 4096), 4096 * bytes_of(floats[to]));
    _mm_setcsr(mode | 0x8040 | 0x6000); // flush to zero, denormals are zero, round towards zero
    for (int to = 0; to < N_FLOATS; to++) {
        const void *out = convert(floats[to], CKPT_F32, x, 4096);

        _mm_setcsr(mode);
        assert_memory_equal(out, normal[to], 4096 * bytes_of(floats[to]));
        _mm_setcsr(mode | 0x8040 | 0x6000);
    }
    // and the way back: F16 subnormals are there
    for (int back = CKPT_F16; back <= CKPT_BF16; back++) {
        uint32_t again[64];

        memcpy(again, convert(CKPT_F32, (ckpt_dtype)back, "\1\0\2\0\377\3\1\200", 4), 16);
        _mm_setcsr(mode);
        assert_memory_equal(again, convert(CKPT_F32, (ckpt_dtype)back, "\1\0\2\0\377\3\1\200", 4),
                            16);
        _mm_setcsr(mode | 0x8040 | 0x6000);
    }
    _mm_setcsr(mode);
#else
    (void)state;
    skip();
#endif
}

static void assert_count(ckpt_dtype d, const void *p, size_t n, uint64_t nan, uint64_t inf)
{
    uint64_t n_nan = 1000, n_inf = 2000; // added to

    ckpt_count_nonfinite(d, p, n, &n_nan, &n_inf);
    assert_int_equal(n_nan - 1000, nan);
    assert_int_equal(n_inf - 2000, inf);
}

/* MXFP4 counts as its elements do after the conversion to F32. */
static void counts_over_exponents(void **state)
{
    const ckpt_cast_fn to_f32 = ckpt_cast_find(CKPT_F32, CKPT_MXFP4);
    unsigned char block[17];
    float f[32];

    (void)state;
    for (unsigned i = 0; i < 16; i++)
        block[1 + i] = (unsigned char)(i << 4 | (15 - i));
    for (unsigned e = 0; e < 256; e++) {
        uint64_t n_nan = 0, n_inf = 0;

        block[0] = (unsigned char)e;
        to_f32(f, block, 32);
        ckpt_count_nonfinite(CKPT_F32, f, 32, &n_nan, &n_inf);
        assert_true(e < 253 ? n_inf == 0 : n_inf > 0);
        assert_count(CKPT_MXFP4, block, 32, n_nan, n_inf);
    }
}

/* All elements of a block count if one of its scales is not finite. */
static void counts_over_scales(void **state)
{
    static const struct {
        ckpt_dtype dtype;
        unsigned at[2];
    } cases[] = {{CKPT_Q4_0, {0, 0}},     {CKPT_Q4_1, {0, 2}},   {CKPT_Q5_0, {0, 0}},
                 {CKPT_Q5_1, {0, 2}},     {CKPT_Q8_0, {0, 0}},   {CKPT_Q2_K, {80, 82}},
                 {CKPT_Q3_K, {108, 108}}, {CKPT_Q4_K, {0, 2}},   {CKPT_Q5_K, {0, 2}},
                 {CKPT_Q6_K, {208, 208}}, {CKPT_IQ4_NL, {0, 0}}, {CKPT_TQ1_0, {52, 52}},
                 {CKPT_TQ2_0, {64, 64}}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ckpt_dtype_info *info = ckpt_dtype_get(cases[i].dtype);
        unsigned char two[2 * 256] = {0};
        float numbers[512] = {1};
        ckpt_lost lost = {0};

        assert_count(cases[i].dtype, two, 2u * info->per, 0, 0);
        for (unsigned k = 0; k < 2; k++) {
            memset(two, 0, sizeof two);
            two[info->bytes + cases[i].at[k] + 1] = 0x7c; // infinity in F16
            assert_count(cases[i].dtype, two, 2u * info->per, 0, info->per);
            two[info->bytes + cases[i].at[k]] = 1;
            assert_count(cases[i].dtype, two, 2u * info->per, info->per, 0);
        }
        ckpt_count_lost(&lost, cases[i].dtype, CKPT_F32, two, numbers, 2u * info->per);
        assert_int_equal(lost.n_over, info->per);
        // the first block is 0, its first number is 1; the second one has no number but 0
        assert_int_equal(lost.n_void, info->per);
        assert_int_equal(lost.n_live_before, 1);
        numbers[0] = 0x1p-20f;
        memset(two, 0, sizeof two);
        lost = (ckpt_lost){0};
        ckpt_count_lost(&lost, cases[i].dtype, CKPT_F32, two, numbers, 2u * info->per);
        assert_int_equal(lost.n_void + lost.n_over + lost.n_live, 0);
        assert_int_equal(lost.n_live_before, 1);
        two[info->bytes + cases[i].at[0] + 1] = 0x7c;
        lost = (ckpt_lost){.n_over = info->per};
        numbers[info->per] = NAN; // the source's NaN is no loss
        ckpt_count_lost(&lost, cases[i].dtype, CKPT_F32, two, numbers, 2u * info->per);
        assert_int_equal(lost.n_over, info->per);
    }
}

/* Every pattern of the formats of one and two bytes. */
static void counts_over_all_patterns(void **state)
{
    static uint16_t all[65536];
    static unsigned char bytes[256];

    (void)state;
    for (unsigned i = 0; i < 65536; i++) {
        all[i] = (uint16_t)i;
        bytes[i % 256] = (unsigned char)i;
    }
    assert_count(CKPT_F16, all, 65536, 2 * 1023, 2);
    assert_count(CKPT_BF16, all, 65536, 2 * 127, 2);
    assert_count(CKPT_F8_E4M3, bytes, 256, 2, 0);
    assert_count(CKPT_F8_E5M2, bytes, 256, 6, 2);
    assert_count(CKPT_F8_E4M3FNUZ, bytes, 256, 1, 0);
    assert_count(CKPT_F8_E5M2FNUZ, bytes, 256, 1, 0);
    assert_count(CKPT_F8_E4M3FNUZ, "\x80", 1, 1, 0);
    assert_count(CKPT_F8_E4M3FNUZ, "\x7f\x81\xff", 3, 0, 0);
    assert_count(CKPT_F8_E8M0, bytes, 256, 1, 0);
    assert_count(CKPT_F4, bytes, 512, 0, 0);
    assert_count(CKPT_F6_E2M3, bytes, 64, 0, 0);
    assert_count(CKPT_I16, all, 65536, 0, 0);
    assert_count(CKPT_BOOL, bytes, 256, 0, 0);
    assert_count(CKPT_DTYPE_NONE, bytes, 256, 0, 0);
}

/* One NaN or infinity at each place of an array longer than the fast search's step. */
static void counts_at_every_place(void **state)
{
    enum { N = 200 };
    unsigned char raw[8 * N + 1];

    (void)state;
    for (int i = 0; i < 4; i++) {
        ckpt_dtype d = floats[i];
        unsigned w = bytes_of(d);
        uint64_t top = d == CKPT_F16 ? 0x7c00 : 0x7f80;
        uint64_t inf = w == 2 ? top : w == 4 ? 0x7f800000 : 0x7ffull << 52;
        uint64_t max = inf - 1, nan = inf + 1, minus_inf = inf | 1ull << (8 * w - 1);

        for (size_t n = 0; n <= N; n += n < 70 ? 1 : 13) {
            unsigned char *x = raw + n % 2;

            for (size_t k = 0; k < N; k++) {
                memcpy(x + k * w, k < n ? &max : &nan, w); // what lies behind must not be counted
            }
            assert_count(d, x, n, 0, 0);
            for (size_t k = 0; k < n; k++) {
                memcpy(x + k * w, &nan, w);
                assert_count(d, x, n, 1, 0);
                memcpy(x + k * w, &minus_inf, w);
                assert_count(d, x, n, 0, 1);
                memcpy(x + k * w, &max, w);
            }
        }
        for (size_t k = 0; k < N; k++)
            memcpy(raw + k * w, k % 2 ? &nan : &inf, w);
        assert_count(d, raw, N, N / 2, N / 2);
    }
}

static void counts_complex_elements(void **state)
{
    float c[2 * 150] = {0};
    double z[8] = {nan(""), 1, HUGE_VAL, -HUGE_VAL, 0, nan(""), 1, 2};

    (void)state;
    c[2 * 64] = NAN;
    c[2 * 64 + 1] = INFINITY; // one element: NaN wins
    c[2 * 65 + 1] = -INFINITY;
    c[2 * 149 + 1] = NAN;
    assert_count(CKPT_C64, c, 150, 2, 1);
    assert_count(CKPT_C128, z, 4, 2, 1);
    assert_count(CKPT_C32, "\0\x7c\0\x3c\1\x7c\0\0", 2, 1, 1);
}

static void bytes_are_swapped_in_groups(void **state)
{
    static const struct {
        unsigned unit;
        const char *want;
    } cases[] = {
        {1, "abcdefghijklmnopq"},
        {2, "badcfehgjilknmpoq"},
        {4, "dcbahgfelkjiponmq"},
        {8, "hgfedcbaponmlkjiq"},
    };

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        char text[] = "abcdefghijklmnopq"; // 17: the last byte is no whole group

        ckpt_swap_bytes(text, 17, cases[i].unit);
        assert_string_equal(text, cases[i].want);
    }
}

static void signs_are_flipped(void **state)
{
    float f[3] = {1.5f, -0.0f, NAN};
    double z[4] = {1, 2, -3, 0};
    int16_t i[3] = {5, -7, INT16_MIN};
    unsigned char fnuz[4] = {0x00, 0x80, 0x11, 0x91}, flags[2] = {0, 1};
    uint16_t h[4] = {0x3c00, 0x3c00, 0x0000, 0xbc00};

    (void)state;
    ckpt_negate(CKPT_F32, f, 3);
    assert_true(f[0] == -1.5f && f[1] == 0.0f && !signbit(f[1]) && isnan(f[2]) && signbit(f[2]));
    ckpt_negate(CKPT_C128, z, 2);
    assert_true(z[0] == -1 && z[1] == -2 && z[2] == 3 && signbit(z[3]));
    ckpt_conjugate(CKPT_C128, z, 2);
    assert_true(z[0] == -1 && z[1] == 2 && z[2] == 3 && z[3] == 0 && !signbit(z[3]));
    ckpt_conjugate(CKPT_C32, h, 2);
    assert_true(h[0] == 0x3c00 && h[1] == 0xbc00 && h[2] == 0 && h[3] == 0x3c00);
    ckpt_negate(CKPT_I16, i, 3);
    assert_true(i[0] == -5 && i[1] == 7 && i[2] == INT16_MIN);
    ckpt_negate(CKPT_F8_E4M3FNUZ, fnuz, 4);
    assert_memory_equal(fnuz, "\x00\x80\x91\x11", 4);
    ckpt_negate(CKPT_BOOL, flags, 2);
    assert_memory_equal(flags, "\0\1", 2);
    ckpt_conjugate(CKPT_F32, f, 3); // real numbers are their own conjugates
    assert_true(f[0] == -1.5f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_for_floats_and_ints_to_f32),
        cmocka_unit_test(ints_round_once),
        cmocka_unit_test(losses_are_counted),
        cmocka_unit_test(zeros_are_counted),
        cmocka_unit_test(equal_dtypes_are_copied),
        cmocka_unit_test(every_narrow_pattern),
        cmocka_unit_test(ties_and_their_neighbours),
        cmocka_unit_test(known_bits),
        cmocka_unit_test(f32_over_its_range),
        cmocka_unit_test(f64_against_the_processor),
        cmocka_unit_test(odd_lengths_and_addresses),
        cmocka_unit_test(floating_point_mode_does_not_matter),
        cmocka_unit_test(counts_over_scales),
        cmocka_unit_test(counts_over_exponents),
        cmocka_unit_test(counts_over_all_patterns),
        cmocka_unit_test(counts_at_every_place),
        cmocka_unit_test(counts_complex_elements),
        cmocka_unit_test(bytes_are_swapped_in_groups),
        cmocka_unit_test(signs_are_flipped),
    };

    return cmocka_run_group_tests(tests, make_tables, free_tables);
}
