// Y = A B for matrices of float32 whose shapes and strides are known when this is compiled; one thread, AVX2.
//
//   A [M, K] at (A0, A1) floats from row to row and column to column, B [K, N] at (B0, B1), Y [M, N] at (Y0, 1)
//
// A panel of B, DEEP rows of WIDE columns, is laid into one piece and stays in the first cache; tiles of at most TALL rows of Y
// pass over it. 12 sums of 8 numbers, two pieces of the panel and one number of A are 15 of the 16 registers, so that each step
// is two loads, TALL broadcasts and 2 TALL multiply-adds: the multiply-adds are the limit.
#ifndef ROOKERY_PRODUCT
#define ROOKERY_PRODUCT
#include <immintrin.h>

namespace rookery {

constexpr long TALL = 6, WIDE = 16, DEEP = 256;

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

// `deep` rows and `wide` columns of B, filled up with zeros to WIDE columns.
template <long B0, long B1>
inline void panel(const float* b, long deep, long wide, float* p) {
  long i = 0;
  if (wide == WIDE && B1 == 1) {
    for (; i < deep; i++) {
      _mm256_store_ps(p + i * WIDE, _mm256_loadu_ps(b + i * B0));
      _mm256_store_ps(p + i * WIDE + 8, _mm256_loadu_ps(b + i * B0 + 8));
    }
  } else if (wide == WIDE && B0 == 1) {
    for (; i + 8 <= deep; i += 8) {
      turn<B1>(b + i, p + i * WIDE);
      turn<B1>(b + i + 8 * B1, p + i * WIDE + 8);
    }
  }
  for (; i < deep; i++)
    for (long j = 0; j < WIDE; j++) p[i * WIDE + j] = j < wide ? b[i * B0 + j * B1] : 0.f;
}

// `rows` rows of Y under one panel; `more`: they are added to what is there.
template <long rows, long A0, long A1, long Y0>
inline void tile(const float* __restrict a, const float* __restrict p, long deep, long wide, bool more, float* __restrict y) {
  __m256 left[rows], right[rows];
#pragma GCC unroll 8
  for (long i = 0; i < rows; i++) left[i] = right[i] = _mm256_setzero_ps();
  for (long q = 0; q < deep; q++, a += A1, p += WIDE) {
    const __m256 b0 = _mm256_load_ps(p), b1 = _mm256_load_ps(p + 8);
#pragma GCC unroll 8
    for (long i = 0; i < rows; i++) {
      const __m256 x = _mm256_broadcast_ss(a + i * A0);
      left[i] = _mm256_fmadd_ps(x, b0, left[i]);
      right[i] = _mm256_fmadd_ps(x, b1, right[i]);
    }
  }
#pragma GCC unroll 8
  for (long i = 0; i < rows; i++, y += Y0) {
    if (wide == WIDE) {
      if (more) {
        left[i] = _mm256_add_ps(left[i], _mm256_loadu_ps(y));
        right[i] = _mm256_add_ps(right[i], _mm256_loadu_ps(y + 8));
      }
      _mm256_storeu_ps(y, left[i]);
      _mm256_storeu_ps(y + 8, right[i]);
    } else {
      alignas(32) float t[WIDE];
      _mm256_store_ps(t, left[i]);
      _mm256_store_ps(t + 8, right[i]);
      for (long j = 0; j < wide; j++) y[j] = more ? y[j] + t[j] : t[j];
    }
  }
}

template <long M, long K, long N, long A0, long A1, long B0, long B1, long Y0>
void product(const float* a, const float* b, float* y) {
  // as few tiles as possible and all of nearly one height: `large` of them have `most` rows, the others one fewer
  constexpr long tiles = (M + TALL - 1) / TALL, most = (M + tiles - 1) / tiles, large = M - (most - 1) * tiles;
  alignas(64) float p[(K < DEEP ? K : DEEP) * WIDE];
  for (long k = 0; k < K; k += DEEP) {
    const long deep = K - k < DEEP ? K - k : DEEP;
    for (long j = 0; j < N; j += WIDE) {
      const long wide = N - j < WIDE ? N - j : WIDE;
      panel<B0, B1>(b + k * B0 + j * B1, deep, wide, p);
      long i = 0;
      for (long t = 0; t < large; t++, i += most)
        tile<most, A0, A1, Y0>(a + i * A0 + k * A1, p, deep, wide, k > 0, y + i * Y0 + j);
      if constexpr (most > 1)
        for (; i < M; i += most - 1)
          tile<most - 1, A0, A1, Y0>(a + i * A0 + k * A1, p, deep, wide, k > 0, y + i * Y0 + j);
    }
  }
}

}  // namespace rookery
#endif
