// Y = A B for matrices of float32 whose shapes and strides are known when this is compiled; one thread, AVX2 or AVX-512.
//
//   A [M, K] at (A0, A1) floats from row to row and column to column, B [K, N] at (B0, B1), Y [M, N] at (Y0, 1)
//
// A panel of B, DEEP rows of WIDE columns, is laid into one piece and stays in the first cache; tiles of at most TALL rows of Y
// pass over it. 2 TALL sums, two pieces of the panel and one number of A are 15 of 16 registers (27 of 32), so that each step is
// two loads, TALL broadcasts and 2 TALL multiply-adds: the multiply-adds are the limit. Every sum is in the order of K, so the
// width of the registers changes no bit.
#ifndef ROOKERY_PRODUCT
#define ROOKERY_PRODUCT
#include <immintrin.h>

namespace rookery {

#if defined(__AVX512F__) && defined(ROOKERY_WIDE)
using Numbers = __m512;
constexpr long LANES = 16, TALL = 12;
inline Numbers zeros() { return _mm512_setzero_ps(); }
inline Numbers all(const float* x) { return _mm512_set1_ps(*x); }
inline Numbers load(const float* x) { return _mm512_loadu_ps(x); }
inline void store(float* x, Numbers n) { _mm512_storeu_ps(x, n); }
inline Numbers plus(Numbers x, Numbers y) { return _mm512_add_ps(x, y); }
inline Numbers plus_product(Numbers sum, Numbers x, Numbers y) { return _mm512_fmadd_ps(x, y, sum); }
#else
using Numbers = __m256;
constexpr long LANES = 8, TALL = 6;
inline Numbers zeros() { return _mm256_setzero_ps(); }
inline Numbers all(const float* x) { return _mm256_broadcast_ss(x); }
inline Numbers load(const float* x) { return _mm256_loadu_ps(x); }
inline void store(float* x, Numbers n) { _mm256_storeu_ps(x, n); }
inline Numbers plus(Numbers x, Numbers y) { return _mm256_add_ps(x, y); }
inline Numbers plus_product(Numbers sum, Numbers x, Numbers y) { return _mm256_fmadd_ps(x, y, sum); }
#endif
constexpr long WIDE = 2 * LANES, DEEP = 256;

// Eight rows of eight numbers, `step` floats apart, become eight columns, WIDE floats apart.
template <long step>
inline void turn(const float* from, float* to) {
  __m256 r[8], t[8];
#pragma GCC unroll 8
  for (int q = 0; q < 8; q++) r[q] = _mm256_loadu_ps(from + q * step);
#pragma GCC unroll 4
  for (int q = 0; q < 8; q += 2) {
    t[q] = _mm256_unpacklo_ps(r[q], r[q + 1]);
    t[q + 1] = _mm256_unpackhi_ps(r[q], r[q + 1]);
  }
#pragma GCC unroll 2
  for (int q = 0; q < 8; q += 4) {
    r[q] = _mm256_shuffle_ps(t[q], t[q + 2], 0x44);
    r[q + 1] = _mm256_shuffle_ps(t[q], t[q + 2], 0xEE);
    r[q + 2] = _mm256_shuffle_ps(t[q + 1], t[q + 3], 0x44);
    r[q + 3] = _mm256_shuffle_ps(t[q + 1], t[q + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int q = 0; q < 4; q++) {
    _mm256_store_ps(to + q * WIDE, _mm256_permute2f128_ps(r[q], r[q + 4], 0x20));
    _mm256_store_ps(to + (q + 4) * WIDE, _mm256_permute2f128_ps(r[q], r[q + 4], 0x31));
  }
}

// `deep` rows and `wide` columns of B, filled up with zeros to LANES or WIDE columns.
template <long B0, long B1>
inline void panel(const float* b, long deep, long wide, float* p) {
  const long filled = wide > LANES ? WIDE : LANES;
  long i = 0;
  if (wide == WIDE && B1 == 1) {
    for (; i < deep; i++) {
      store(p + i * WIDE, load(b + i * B0));
      store(p + i * WIDE + LANES, load(b + i * B0 + LANES));
    }
  } else if (wide == LANES && B1 == 1) {
    for (; i < deep; i++) store(p + i * WIDE, load(b + i * B0));
  } else if (wide == filled && B0 == 1) {
    for (; i + 8 <= deep; i += 8)
      for (long j = 0; j < wide; j += 8) turn<B1>(b + i + j * B1, p + i * WIDE + j);
  }
  for (; i < deep; i++)
    for (long j = 0; j < filled; j++) p[i * WIDE + j] = j < wide ? b[i * B0 + j * B1] : 0.f;
}

// `rows` rows of Y under one panel, of which `parts` (1 or 2) times LANES columns; `more`: they are added to what is there.
template <long rows, long parts, long A0, long A1, long Y0>
inline void tile(const float* __restrict a, const float* __restrict p, long deep, long wide, bool more, float* __restrict y) {
  Numbers sum[rows][parts];
#pragma GCC unroll 16
  for (long i = 0; i < rows; i++)
#pragma GCC unroll 2
    for (long j = 0; j < parts; j++) sum[i][j] = zeros();
  for (long q = 0; q < deep; q++, a += A1, p += WIDE) {
    Numbers b[parts];
#pragma GCC unroll 2
    for (long j = 0; j < parts; j++) b[j] = load(p + j * LANES);
#pragma GCC unroll 16
    for (long i = 0; i < rows; i++) {
      const Numbers x = all(a + i * A0);
#pragma GCC unroll 2
      for (long j = 0; j < parts; j++) sum[i][j] = plus_product(sum[i][j], x, b[j]);
    }
  }
#pragma GCC unroll 16
  for (long i = 0; i < rows; i++, y += Y0) {
    if (wide == parts * LANES) {
#pragma GCC unroll 2
      for (long j = 0; j < parts; j++) {
        if (more) sum[i][j] = plus(sum[i][j], load(y + j * LANES));
        store(y + j * LANES, sum[i][j]);
      }
    } else {
      alignas(64) float t[WIDE];
#pragma GCC unroll 2
      for (long j = 0; j < parts; j++) store(t + j * LANES, sum[i][j]);
      for (long j = 0; j < wide; j++) y[j] = more ? y[j] + t[j] : t[j];
    }
  }
}

// All rows of Y under one panel, in as few tiles as possible and all of nearly one height: `large` of them have `most` rows, the
// others one fewer.
template <long M, long parts, long A0, long A1, long Y0>
inline void column(const float* a, const float* p, long deep, long wide, bool more, float* y) {
  constexpr long tiles = (M + TALL - 1) / TALL, most = (M + tiles - 1) / tiles, large = M - (most - 1) * tiles;
  long i = 0;
  for (long t = 0; t < large; t++, i += most) tile<most, parts, A0, A1, Y0>(a + i * A0, p, deep, wide, more, y + i * Y0);
  if constexpr (most > 1)
    for (; i < M; i += most - 1) tile<most - 1, parts, A0, A1, Y0>(a + i * A0, p, deep, wide, more, y + i * Y0);
}

template <long M, long K, long N, long A0, long A1, long B0, long B1, long Y0>
void product(const float* a, const float* b, float* y) {
  alignas(64) float p[(K < DEEP ? K : DEEP) * WIDE];
  for (long k = 0; k < K; k += DEEP) {
    const long deep = K - k < DEEP ? K - k : DEEP;
    for (long j = 0; j < N; j += WIDE) {
      const long wide = N - j < WIDE ? N - j : WIDE;
      panel<B0, B1>(b + k * B0 + j * B1, deep, wide, p);
      if (wide > LANES)
        column<M, 2, A0, A1, Y0>(a + k * A1, p, deep, wide, k > 0, y + j);
      else
        column<M, 1, A0, A1, Y0>(a + k * A1, p, deep, wide, k > 0, y + j);
    }
  }
}

}  // namespace rookery
#endif
