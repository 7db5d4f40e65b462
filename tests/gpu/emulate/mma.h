/*
 * mma.h: products of 16 x 16 tiles by a warp (nvcuda::wmma) for the emulation.
 *
 * Lane l holds elements 8 l .. 8 l + 7 of a tile in row-major order; real hardware has another
 * order (and keeps elements of A and B twice), so portable code asks num_elements and treats all
 * alike. What the hardware demands of addresses and strides is checked.
 */
#ifndef ZT_EMULATE_MMA_H
#define ZT_EMULATE_MMA_H

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda
{
namespace wmma
{
struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

template <typename T> struct zt_layout; /* is it by columns? */
template <> struct zt_layout<row_major> {
    static const bool columns = false;
};
template <> struct zt_layout<col_major> {
    static const bool columns = true;
};

template <typename Use, int M, int N, int K, typename T, typename Layout = void> struct fragment {
    static_assert(M == 16 && N == 16 && K == 16, "the emulation has one shape of tiles");
    enum { num_elements = 8 };
    T x[num_elements];
};

static inline float zt_value(float x)
{
    return x;
}

static inline float zt_value(__half x)
{
    return __half2float(x);
}

static inline float zt_value(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

template <typename T> static inline void zt_check(const T *p, unsigned ld)
{
    if ((uintptr_t)p % 32 != 0) {
        zt_emu_die("wmma: a tile's address is no multiple of 32 bytes");
    }
    if (ld * sizeof(T) % 16 != 0) {
        zt_emu_die("wmma: a stride is no multiple of 16 bytes");
    }
}

/* Place of this lane's element i. */
static inline unsigned zt_place(unsigned i, unsigned ld, bool columns)
{
    unsigned e = zt_emu_lane() * 8 + i, row = e / 16, column = e % 16;
    return columns ? column * ld + row : row * ld + column;
}

template <typename F, typename T> static inline void fill_fragment(F &f, const T &value)
{
    for (unsigned i = 0; i < 8; i++) {
        f.x[i] = value;
    }
}

template <typename Use, typename T, typename Layout>
static inline void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout> &f, const T *p,
                                    unsigned ld)
{
    zt_check(p, ld);
    __syncwarp();
    for (unsigned i = 0; i < 8; i++) {
        f.x[i] = p[zt_place(i, ld, zt_layout<Layout>::columns)];
    }
}

template <typename T>
static inline void load_matrix_sync(fragment<accumulator, 16, 16, 16, T> &f, const T *p,
                                    unsigned ld, layout_t layout)
{
    zt_check(p, ld);
    __syncwarp();
    for (unsigned i = 0; i < 8; i++) {
        f.x[i] = p[zt_place(i, ld, layout == mem_col_major)];
    }
}

template <typename T>
static inline void store_matrix_sync(T *p, const fragment<accumulator, 16, 16, 16, T> &f,
                                     unsigned ld, layout_t layout)
{
    zt_check(p, ld);
    __syncwarp(); // others may still read what lies there
    for (unsigned i = 0; i < 8; i++) {
        p[zt_place(i, ld, layout == mem_col_major)] = f.x[i];
    }
}

template <typename A, typename B> struct zt_product {
    const A *a;
    const B *b;
    const float *c;
    float *d;
};

template <typename A, typename B> static void zt_multiply(void **args, unsigned mask)
{
    float a[256], b[256], d[256];
    if (mask != 0xffffffffu) {
        zt_emu_die("wmma: not all lanes of the warp are there");
    }
    for (unsigned i = 0; i < 256; i++) {
        const zt_product<A, B> *p = (const zt_product<A, B> *)args[i / 8];
        a[i] = zt_value(p->a[i % 8]);
        b[i] = zt_value(p->b[i % 8]);
        d[i] = p->c[i % 8];
    }
    for (unsigned i = 0; i < 16; i++) {
        for (unsigned k = 0; k < 16; k++) {
            for (unsigned j = 0; j < 16; j++) {
                d[i * 16 + j] += a[i * 16 + k] * b[k * 16 + j];
            }
        }
    }
    for (unsigned i = 0; i < 256; i++) {
        ((const zt_product<A, B> *)args[i / 8])->d[i % 8] = d[i];
    }
}

/* d = a b + c; d may be c. */
template <typename T, typename LA, typename LB>
static inline void mma_sync(fragment<accumulator, 16, 16, 16, float> &d,
                            const fragment<matrix_a, 16, 16, 16, T, LA> &a,
                            const fragment<matrix_b, 16, 16, 16, T, LB> &b,
                            const fragment<accumulator, 16, 16, 16, float> &c)
{
    zt_product<T, T> p = {a.x, b.x, c.x, d.x};
    zt_emu_warp(0xffffffffu, &p, zt_multiply<T, T>);
}
} // namespace wmma
} // namespace nvcuda

#endif
