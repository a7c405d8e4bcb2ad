/* Vectors of a processor, and products of matrices. */

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define VL 16 /* numbers in a vector */
#define MR 8  /* rows of a tile, which has two vectors in each: its sums have to stay in registers */
#elif defined(__AVX__)
#define VL 8
#define MR 6
#elif defined(__aarch64__)
#define VL 4
#define MR 8
#else
#define VL 4
#define MR 6
#endif

typedef float vec __attribute__((vector_size(4 * VL)));
typedef int32_t ivec __attribute__((vector_size(4 * VL)));
typedef float loose __attribute__((vector_size(4 * VL), aligned(4), may_alias));
typedef int64_t i64;

#define INLINE static inline __attribute__((always_inline))
#define APART static __attribute__((noinline))

INLINE vec load(const float *p) { return *(const loose *)p; }
INLINE void store(float *p, vec v) { *(loose *)p = v; }
INLINE vec all(float one) { return one - (vec){0}; }
INLINE i64 filled(i64 count) { return (count + VL - 1) / VL * VL; }
INLINE vec choose(ivec where, vec v) { return (vec)(where & (ivec)v); }

INLINE float sum(vec v) {
    float found = 0;
    for (int i = 0; i < VL; i++) found += v[i];
    return found;
}

/* e to a power of at most zero: 2^n e^r with r within half a log of 2, by its series. */
INLINE vec power(vec x) {
    ivec there = x > -87.0f;
    x = choose(there, x);
    vec n = x * 1.44269504f;
    ivec whole = __builtin_convertvector(n - 0.5f, ivec);
    n = __builtin_convertvector(whole, vec);
    vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    vec found = all(1.0f / 5040);
    found = found * r + 1.0f / 720;
    found = found * r + 1.0f / 120;
    found = found * r + 1.0f / 24;
    found = found * r + 1.0f / 6;
    found = found * r + 0.5f;
    found = found * r + 1.0f;
    found = found * r + 1.0f;
    return choose(there, found * (vec)((whole + 127) << 23));
}

/* ---- matrix products -------------------------------------------------------------------------------------------- */

/* A tile of c[M][N] = or += a[M][K] b[K][N]; `turned`: a is [K][M]. Rows of c begin with `bias`, if there is one. */
INLINE void tile(const int rows, const int wide, const int turned, i64 inner, const float *a, i64 lda, const float *b,
                 i64 ldb, float *c, i64 ldc, const float *bias, int more) {
    vec held[MR][2];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < wide; j++)
            held[i][j] = bias ? all(bias[i]) : more ? load(c + i * ldc + j * VL) : (vec){0};
    for (i64 k = 0; k < inner; k++) {
        vec right[2];
        for (int j = 0; j < wide; j++) right[j] = load(b + k * ldb + j * VL);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            vec left = all(turned ? a[k * lda + i] : a[i * lda + k]);
            for (int j = 0; j < wide; j++) held[i][j] += left * right[j];
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < wide; j++) store(c + i * ldc + j * VL, held[i][j]);
}

#define ROWS(count)                                                                                                     \
    for (; i + count <= rows; i += count)                                                                               \
        tile(count, wide, turned, inner, turned ? a + i : a + i * lda, lda, b, ldb, c + i * ldc, ldc,                  \
             bias ? bias + i : bias, more)

INLINE void panel(const int wide, const int turned, i64 rows, i64 inner, const float *a, i64 lda, const float *b,
                  i64 ldb, float *c, i64 ldc, const float *bias, int more) {
    i64 i = 0;
    ROWS(MR);
#if MR > 4
    ROWS(4);
#endif
    ROWS(2);
    ROWS(1);
}

/* c[M][N] (+)= a b, N a whole number of vectors. */
#define PRODUCT(name, turned)                                                                                          \
    APART void name(i64 rows, i64 columns, i64 inner, const float *a, i64 lda, const float *b, i64 ldb, float *c,      \
                    i64 ldc, const float *bias, int more) {                                                            \
        i64 j = 0;                                                                                                     \
        for (; j + 2 * VL <= columns; j += 2 * VL)                                                                     \
            panel(2, turned, rows, inner, a, lda, b + j, ldb, c + j, ldc, bias, more);                                 \
        if (j < columns) panel(1, turned, rows, inner, a, lda, b + j, ldb, c + j, ldc, bias, more);                    \
    }

PRODUCT(product, 0)
PRODUCT(turned_product, 1)

/* out[C][R] of in[R][C]. */
APART void turn(i64 rows, i64 columns, const float *in, i64 ldi, float *out, i64 ldo) {
    for (i64 i = 0; i < rows; i += 8)
        for (i64 j = 0; j < columns; j += 8)
            if (i + 8 <= rows && j + 8 <= columns)
                for (int p = 0; p < 8; p++)
                    for (int q = 0; q < 8; q++) out[(j + p) * ldo + i + q] = in[(i + q) * ldi + j + p];
            else
                for (i64 p = i; p < rows && p < i + 8; p++)
                    for (i64 q = j; q < columns && q < j + 8; q++) out[q * ldo + p] = in[p * ldi + q];
}

/* ---- dropout ---------------------------------------------------------------------------------------------------- */

/* A vector that is one where bits from column j on are set. */
INLINE ivec set(const uint8_t *row, i64 j) {
#if VL == 16
    int32_t word = row[j / 8] << 8 | row[j / 8 + 1];
    const ivec place = {1 << 15, 1 << 14, 1 << 13, 1 << 12, 1 << 11, 1 << 10, 1 << 9, 1 << 8,
                        1 << 7,  1 << 6,  1 << 5,  1 << 4,  1 << 3,  1 << 2,  1 << 1, 1 << 0};
#elif VL == 8
    int32_t word = row[j / 8];
    const ivec place = {128, 64, 32, 16, 8, 4, 2, 1};
#else
    int32_t word = j % 8 ? row[j / 8] : row[j / 8] >> 4;
    const ivec place = {8, 4, 2, 1};
#endif
    return ((word - (ivec){0}) & place) != 0;
}

typedef struct {
    const uint8_t *bits; /* [H][stride], or */
    const float *mask;   /* [H][B] or, of convolutions, of images that are a stride apart; or neither */
    i64 stride;
    float scale;
} Drop;
