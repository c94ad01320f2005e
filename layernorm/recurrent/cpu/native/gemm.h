// Matrix products against a packed matrix: C (M, N) = A (M, K) · B (K, N), or C += A · B.
// A packed matrix lies in panels of kTileVectors vectors of columns, row after row, so that the
// innermost loop reads it from beginning to end.
#pragma once
#include <algorithm>
#include <cstddef>

#include "arithmetic.h"

// A matrix seen through strides: element (i, j) is at data[i * row + j * column].
template <class T> struct Matrix {
  T* data;
  ptrdiff_t row, column = 1;
};

template <class T> inline int64_t padded(int64_t columns) {
  return (columns + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}

// The panels of a packed matrix: of nearly equal width, none wider than kTileVectors vectors.
template <class T> struct Panels {
  explicit Panels(int64_t columns)
      : columns(columns), vectors(padded<T>(columns) / kLanes<T>),
        count((vectors + kTileVectors - 1) / kTileVectors) {}
  const int64_t columns, vectors, count;
  int64_t first(int64_t p) const { return vectors * p / count * kLanes<T>; }
  int width(int64_t p) const { return int(first(p + 1) - first(p)); }
  int valid(int64_t p) const { return int(std::min(first(p + 1), columns) - first(p)); }
};

// Pack a matrix whose rows are contiguous: row(i) points to the first of its `columns` elements.
// Of several members that pack one matrix together, each takes its share of the panels.
template <class T, class Row>
inline void pack_rows(T* packed, int64_t k, int64_t columns, Row row, int member = 0,
                      int members = 1) {
  const Panels<T> panels(columns);
  for (int64_t p = member; p < panels.count; p += members) {
    const int width = panels.width(p), valid = panels.valid(p);
    T* to = packed + panels.first(p) * k;
    for (int64_t i = 0; i < k; ++i, to += width) {
      std::memcpy(to, row(i) + panels.first(p), valid * sizeof(T));
      std::fill_n(to + valid, width - valid, T(0));
    }
  }
}

// Pack a matrix whose columns are contiguous, as weights are in x Wᵀ: column(j) points to k elements.
// A vector's columns are read side by side, each from beginning to end. (What the padding multiplies
// is never written: it repeats the last column.)
template <class T, class Column>
inline void pack_columns(T* packed, int64_t k, int64_t columns, Column column) {
  const Panels<T> panels(columns);
  for (int64_t p = 0; p < panels.count; ++p) {
    const int width = panels.width(p), valid = panels.valid(p);
    for (int j = 0; j < width; j += kLanes<T>) {
      const T* from[kLanes<T>];
      for (int q = 0; q < kLanes<T>; ++q)
        from[q] = column(panels.first(p) + std::min(j + q, valid - 1));
      T* to = packed + panels.first(p) * k + j;
      for (int64_t i = 0; i < k; ++i, to += width)
        for (int q = 0; q < kLanes<T>; ++q) to[q] = from[q][i];
    }
  }
}

// Rows x Vectors sums kept in registers over the whole of k: all loops over them are unrolled, since
// the compiler keeps an array that it cannot see through in memory. An addition takes four cycles and
// two begin in each: few sums are split into kChains parts, so that none waits for the one before.
template <class T, int Rows, int Vectors>
void tile(Matrix<const T> a, const T* b, int64_t k, Matrix<T> c, int columns, bool add) {
  constexpr int kChains = Rows * Vectors > 4 ? 1 : Rows * Vectors > 2 ? 2 : 4;
  Vector<T> sum[kChains][Rows][Vectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
#pragma GCC unroll 4
      for (int s = 0; s < kChains; ++s) sum[s][r][v] = Vector<T>{};
      __builtin_prefetch(c.data + r * c.row + v * kLanes<T>, 1);
    }
  int64_t i = 0;
  const auto add_row = [&](auto& to) __attribute__((always_inline)) {
    Vector<T> row[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      row[v] = load(b + v * kLanes<T>);
      __builtin_prefetch(b + (20 * Vectors + v) * kLanes<T>);
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const T value = a.data[r * a.row + i * a.column];
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) to[r][v] += value * row[v];
    }
    ++i, b += Vectors * kLanes<T>;
  };
  while (i + kChains <= k)
#pragma GCC unroll 4
    for (int s = 0; s < kChains; ++s) add_row(sum[s]);
  while (i < k) add_row(sum[0]);
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      Vector<T> all = sum[0][r][v];
#pragma GCC unroll 4
      for (int s = 1; s < kChains; ++s) all += sum[s][r][v];
      const int count = columns - v * kLanes<T>;
      T* to = c.data + r * c.row + v * kLanes<T>;
      store(to, add ? all + load(to, count) : all, count);
    }
}

template <class T, int Vectors>
void tile_rows(int rows, Matrix<const T> a, const T* b, int64_t k, Matrix<T> c, int columns,
               bool add) {
  switch (rows) {
    case 1: return tile<T, 1, Vectors>(a, b, k, c, columns, add);
    case 2: return tile<T, 2, Vectors>(a, b, k, c, columns, add);
    case 3: return tile<T, 3, Vectors>(a, b, k, c, columns, add);
    case 4: return tile<T, 4, Vectors>(a, b, k, c, columns, add);
    case 5: return tile<T, 5, Vectors>(a, b, k, c, columns, add);
#if defined(__AVX512F__)
    case 6: return tile<T, 6, Vectors>(a, b, k, c, columns, add);
    case 7: return tile<T, 7, Vectors>(a, b, k, c, columns, add);
#endif
    default: return tile<T, kTileRows, Vectors>(a, b, k, c, columns, add);
  }
}

// A tile of C; `columns` is how many of the panel's columns there are (the padding beyond them is not
// written).
template <class T>
void multiply_tile(int rows, Matrix<const T> a, const T* panel, int64_t k, Matrix<T> c, int width,
                   int columns, bool add) {
  switch (width / kLanes<T>) {
    case 1: return tile_rows<T, 1>(rows, a, panel, k, c, columns, add);
    case 2: return tile_rows<T, 2>(rows, a, panel, k, c, columns, add);
    default: return tile_rows<T, kTileVectors>(rows, a, panel, k, c, columns, add);
  }
}

// The rows of A in tiles of nearly equal height: work(first row, number of rows).
template <class Work> inline void for_each_tile(int64_t m, Work work) {
  const int64_t tiles = (m + kTileRows - 1) / kTileRows;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t begin = m * t / tiles;
    work(begin, int(m * (t + 1) / tiles - begin));
  }
}

// Panel p of C = A · B with a packed B of so many columns.
template <class T>
void multiply_panel(Matrix<const T> a, int64_t m, const T* packed, int64_t k, Matrix<T> c,
                    const Panels<T>& panels, int64_t p, bool add = false) {
  const T* panel = packed + panels.first(p) * k;
  for_each_tile(m, [&](int64_t begin, int rows) {
    multiply_tile<T>(rows, {a.data + begin * a.row, a.row, a.column}, panel, k,
                     {c.data + begin * c.row + panels.first(p), c.row}, panels.width(p),
                     panels.valid(p), add);
  });
}

template <class T>
void multiply(Matrix<const T> a, int64_t m, const T* packed, int64_t k, Matrix<T> c,
              int64_t columns, bool add = false) {
  const Panels<T> panels(columns);
  for (int64_t p = 0; p < panels.count; ++p) multiply_panel(a, m, packed, k, c, panels, p, add);
}

// C = Aᵀ · B, or C += Aᵀ · B: A has k rows, `stride` apart, of m columns. A tile's columns are
// first copied to `copy` (kCopied * k numbers): where they are, each row has them in another
// cache line, and all of those would have to be fetched again for every panel. Always kCopied
// numbers are copied, a move or two instead of a call of memcpy: A has so many behind its last.
constexpr int kCopied = 8;
static_assert(kTileRows <= kCopied, "a tile's columns are copied together");

template <class T>
void multiply_transposed(const T* a, int64_t stride, int64_t m, const T* packed, int64_t k,
                         Matrix<T> c, int64_t columns, bool add, T* copy) {
  const Panels<T> panels(columns);
  for_each_tile(m, [&](int64_t begin, int rows) {
    const T* from = a + begin;
    for (int64_t i = 0; i < k; ++i)
      std::memcpy(copy + i * kCopied, from + i * stride, kCopied * sizeof(T));
    for (int64_t p = 0; p < panels.count; ++p)
      multiply_tile<T>(rows, {copy, 1, kCopied}, packed + panels.first(p) * k, k,
                       {c.data + begin * c.row + panels.first(p), c.row}, panels.width(p),
                       panels.valid(p), add);
  });
}
