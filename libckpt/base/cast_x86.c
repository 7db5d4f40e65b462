/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_x86.c: has AVX2 and F16C bodies of the most frequent conversions, of the search for values
 * that are not finite and of the count of zeros.
 *
 * Every body gives the same bits as the portable one in any floating point mode of the thread: F32
 * <-> BF16 is integer code; VCVTPH2PS ignores "denormals are zero"; VCVTPS2PH gets its rounding
 * mode as an operand, ignores "flush to zero", and the inputs that "denormals are zero" could
 * change (an F32 below 2^-126) are zero in F16 anyway. Pointers need no alignment. Source: Intel
 * SDM, volume 2.
 */
#include "libckpt/base/cast_x86.h"

#if defined(__x86_64__) || defined(__i386__)

#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>

#define X86_BODY   __attribute__((target("avx2,f16c")))
#define X86_INLINE static inline __attribute__((always_inline, target("avx2,f16c")))

/* CPUID leaf 1, register ECX: VCVTPS2PH and VCVTPH2PS exist (compilers differ in knowing "f16c").
 */
#define X86_F16C (1u << 29)

/* The size of one loop iteration: elements of a conversion, bytes of a search. */
#define X86_STEP   16u
#define X86_SEARCH 128u

/*
 * True if this processor can run the bodies below. The answer is cached, because CPUID traps in a
 * virtual machine and takes microseconds. Two threads that compute it at once get the same answer.
 */
bool ckpt_x86_usable(void)
{
    static atomic_int answer; // 0: not known yet, 1: yes, -1: no
    int known = atomic_load_explicit(&answer, memory_order_relaxed);

    if (known == 0) {
        unsigned a, b, c = 0, d;

        __builtin_cpu_init();
        // "avx2" also means that the system saves the wide registers
        known = __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
                        (c & X86_F16C) != 0
                    ? 1
                    : -1;
        atomic_store_explicit(&answer, known, memory_order_relaxed);
    }
    return known > 0;
}

/* Convert the last elements, fewer than one loop iteration. */
static void x86_tail(ckpt_dtype to, ckpt_dtype from, unsigned char *dst, const unsigned char *src,
                     size_t n)
{
    if (n > 0)
        ckpt_cast_find_portable(to, from)(dst, src, n);
}

/* Eight F32 as eight BF16 in the lower halves of 32-bit lanes. */
X86_INLINE __m256i x86_bf16_lanes(__m256i u)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    const __m256i inf = _mm256_set1_epi32(0x7f800000);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x00400000));
    __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(u, magnitude), inf);

    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}

X86_BODY
static void x86_f32_bf16(void *restrict dst, const void *restrict src, size_t n)
{
    const unsigned char *s = src;
    unsigned char *d = dst;

    for (; n >= X86_STEP; n -= X86_STEP, s += 64, d += 32) {
        __m256i lo = x86_bf16_lanes(_mm256_loadu_si256((const __m256i *)(const void *)s));
        __m256i hi = x86_bf16_lanes(_mm256_loadu_si256((const __m256i *)(const void *)(s + 32)));
        // packing works within 128-bit halves, so put the quarters back in order
        __m256i mixed = _mm256_packus_epi32(lo, hi);

        _mm256_storeu_si256((__m256i *)(void *)d, _mm256_permute4x64_epi64(mixed, 0xd8));
    }
    x86_tail(CKPT_BF16, CKPT_F32, d, s, n);
}

X86_BODY
static void x86_bf16_f32(void *restrict dst, const void *restrict src, size_t n)
{
    const unsigned char *s = src;
    unsigned char *d = dst;

    for (; n >= X86_STEP; n -= X86_STEP, s += 32, d += 64) {
        __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)s));
        __m256i hi =
            _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(s + 16)));

        _mm256_storeu_si256((__m256i *)(void *)d, _mm256_slli_epi32(lo, 16));
        _mm256_storeu_si256((__m256i *)(void *)(d + 32), _mm256_slli_epi32(hi, 16));
    }
    x86_tail(CKPT_F32, CKPT_BF16, d, s, n);
}

X86_BODY
static void x86_f32_f16(void *restrict dst, const void *restrict src, size_t n)
{
    const unsigned char *s = src;
    unsigned char *d = dst;

    for (; n >= X86_STEP; n -= X86_STEP, s += 64, d += 32) {
        __m256 lo = _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)(const void *)s));
        __m256 hi =
            _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)(const void *)(s + 32)));

        _mm_storeu_si128((__m128i *)(void *)d, _mm256_cvtps_ph(lo, _MM_FROUND_TO_NEAREST_INT));
        _mm_storeu_si128((__m128i *)(void *)(d + 16),
                         _mm256_cvtps_ph(hi, _MM_FROUND_TO_NEAREST_INT));
    }
    x86_tail(CKPT_F16, CKPT_F32, d, s, n);
}

X86_BODY
static void x86_f16_f32(void *restrict dst, const void *restrict src, size_t n)
{
    const unsigned char *s = src;
    unsigned char *d = dst;

    for (; n >= X86_STEP; n -= X86_STEP, s += 32, d += 64) {
        __m256 lo = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)s));
        __m256 hi = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(s + 16)));

        _mm256_storeu_si256((__m256i *)(void *)d, _mm256_castps_si256(lo));
        _mm256_storeu_si256((__m256i *)(void *)(d + 32), _mm256_castps_si256(hi));
    }
    x86_tail(CKPT_F32, CKPT_F16, d, s, n);
}

X86_BODY
static void x86_f16_bf16(void *restrict dst, const void *restrict src, size_t n)
{
    const unsigned char *s = src;
    unsigned char *d = dst;

    for (; n >= X86_STEP; n -= X86_STEP, s += 32, d += 32) {
        __m256 lo = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)s));
        __m256 hi = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(s + 16)));
        // packing works within 128-bit halves, so put the quarters back in order
        __m256i mixed = _mm256_packus_epi32(x86_bf16_lanes(_mm256_castps_si256(lo)),
                                            x86_bf16_lanes(_mm256_castps_si256(hi)));

        _mm256_storeu_si256((__m256i *)(void *)d, _mm256_permute4x64_epi64(mixed, 0xd8));
    }
    x86_tail(CKPT_BF16, CKPT_F16, d, s, n);
}

/*
 * All ones in each lane of `bytes` bytes (a constant after inlining) that has all bits of full set.
 */
X86_INLINE __m256i x86_full(const unsigned char *p, __m256i full, unsigned bytes)
{
    __m256i v = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)p), full);

    switch (bytes) {
    case 8:
        return _mm256_cmpeq_epi64(v, full);
    case 4:
        return _mm256_cmpeq_epi32(v, full);
    case 2:
        return _mm256_cmpeq_epi16(v, full);
    default:
        return _mm256_cmpeq_epi8(v, full);
    }
}

/* Bytes before the first block that contains such a lane. */
X86_INLINE size_t x86_search(const unsigned char *p, size_t n_bytes, long long mask, unsigned bytes)
{
    const __m256i full = _mm256_set1_epi64x(mask);
    size_t at = 0;

    // four registers per iteration keep memory busy
    for (; n_bytes - at >= X86_SEARCH; at += X86_SEARCH) {
        __m256i a = x86_full(p + at, full, bytes);
        __m256i b = x86_full(p + at + 32, full, bytes);
        __m256i c = x86_full(p + at + 64, full, bytes);
        __m256i d = x86_full(p + at + 96, full, bytes);
        __m256i any = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));

        if (!_mm256_testz_si256(any, any))
            break;
    }
    return at;
}

/*
 * A value that is not finite has these bits set (a full exponent; in E4M3 a full fraction too), and
 * no finite value has all of them.
 */
X86_BODY
/*
 * Elements before the first one with all exponent bits set (infinite or NaN), in whole blocks. 0
 * for dtypes without such a pattern: the caller then examines each element.
 */
static size_t x86_finite(ckpt_dtype d, const unsigned char *p, size_t n)
{
    switch ((int)d) {
    case CKPT_F64:
        return x86_search(p, n * 8, 0x7ff0000000000000, 8) / 8;
    case CKPT_F32:
        return x86_search(p, n * 4, 0x7f8000007f800000, 4) / 4;
    case CKPT_F16:
        return x86_search(p, n * 2, 0x7c007c007c007c00, 2) / 2;
    case CKPT_BF16:
        return x86_search(p, n * 2, 0x7f807f807f807f80, 2) / 2;
    case CKPT_F8_E4M3:
        return x86_search(p, n, 0x7f7f7f7f7f7f7f7f, 1);
    case CKPT_F8_E5M2:
        return x86_search(p, n, 0x7c7c7c7c7c7c7c7c, 1);
    default:
        return 0;
    }
}

/* Registers whose zeros are counted before the counters of 16 bits could overflow. */
#define X86_COUNTED 32767u

/* All ones in each lane of `bytes` bytes (a constant after inlining) that is +0 or -0. */
X86_INLINE __m256i x86_zero(const unsigned char *p, unsigned bytes)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)p);

    if (bytes == 4)
        return _mm256_cmpeq_epi32(_mm256_and_si256(v, _mm256_set1_epi32(0x7fffffff)), zero);
    return _mm256_cmpeq_epi16(_mm256_and_si256(v, _mm256_set1_epi16(0x7fff)), zero);
}

/* Add up the lanes, each of which is at most X86_COUNTED. */
X86_INLINE uint64_t x86_sum(__m256i lanes, unsigned bytes)
{
    uint32_t part[8];
    uint64_t sum = 0;

    if (bytes == 2)
        lanes = _mm256_madd_epi16(lanes, _mm256_set1_epi16(1));
    _mm256_storeu_si256((__m256i *)(void *)part, lanes);
    for (unsigned i = 0; i < 8; i++)
        sum += part[i];
    return sum;
}

/* Count the zeros of n registers. */
X86_INLINE uint64_t x86_zeros(const unsigned char *p, size_t n, unsigned bytes)
{
    uint64_t found = 0;

    while (n > 0) {
        size_t some = n < X86_COUNTED ? n : X86_COUNTED;
        __m256i lanes = _mm256_setzero_si256();

        // a lane with a zero is -1
        for (size_t i = 0; i < some; i++, p += 32) {
            __m256i zero = x86_zero(p, bytes);

            lanes = bytes == 4 ? _mm256_sub_epi32(lanes, zero) : _mm256_sub_epi16(lanes, zero);
        }
        found += x86_sum(lanes, bytes);
        n -= some;
    }
    return found;
}

X86_BODY
static uint64_t x86_zeros_4(const unsigned char *p, size_t n)
{
    return x86_zeros(p, n, 4);
}

X86_BODY
static uint64_t x86_zeros_2(const unsigned char *p, size_t n)
{
    return x86_zeros(p, n, 2);
}

size_t ckpt_zeros_x86(unsigned bits, const void *p, size_t n_elems, uint64_t *found)
{
    const unsigned lanes = bits == 32 ? 8 : 16;

    if ((bits != 32 && bits != 16) || n_elems < lanes || !ckpt_x86_usable())
        return 0;
    *found += bits == 32 ? x86_zeros_4(p, n_elems / lanes) : x86_zeros_2(p, n_elems / lanes);
    return n_elems / lanes * lanes;
}

ckpt_cast_fn ckpt_cast_find_x86(ckpt_dtype to, ckpt_dtype from)
{
    ckpt_cast_fn fn = NULL;

    if (to == CKPT_BF16 && from == CKPT_F32)
        fn = x86_f32_bf16;
    else if (to == CKPT_BF16 && from == CKPT_F16)
        fn = x86_f16_bf16;
    else if (to == CKPT_F32 && from == CKPT_BF16)
        fn = x86_bf16_f32;
    else if (to == CKPT_F16 && from == CKPT_F32)
        fn = x86_f32_f16;
    else if (to == CKPT_F32 && from == CKPT_F16)
        fn = x86_f16_f32;
    return fn && ckpt_x86_usable() ? fn : NULL;
}

size_t ckpt_finite_prefix_x86(ckpt_dtype d, const void *p, size_t n_elems)
{
    return ckpt_x86_usable() ? x86_finite(d, p, n_elems) : 0;
}

#else

bool ckpt_x86_usable(void)
{
    return false;
}

ckpt_cast_fn ckpt_cast_find_x86(ckpt_dtype to, ckpt_dtype from)
{
    (void)to;
    (void)from;
    return NULL;
}

size_t ckpt_finite_prefix_x86(ckpt_dtype d, const void *p, size_t n_elems)
{
    (void)d;
    (void)p;
    (void)n_elems;
    return 0;
}

size_t ckpt_zeros_x86(unsigned bits, const void *p, size_t n_elems, uint64_t *found)
{
    (void)bits;
    (void)p;
    (void)n_elems;
    (void)found;
    return 0;
}

#endif
