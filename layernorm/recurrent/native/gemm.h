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

template <class T> constexpr int kPanel = kTileVectors * kLanes<T>;
template <class T> inline int64_t padded(int64_t columns) {
  return (columns + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}

// The panel that begins at column `first` of a packed matrix (k rows, `columns` columns).
template <class T> inline int panel_width(int64_t columns, int64_t first) {
  return int(std::min<int64_t>(kPanel<T>, padded<T>(columns - first)));
}

// Pack B's rows 0..k and columns 0..columns at column `first` of `packed`, which has room for
// k * padded(all columns). `first` must be a multiple of the panel, or the columns one of many
// pieces: `pack_piece` below.
template <class T, class Element>
inline void pack(T* packed, int64_t k, int64_t columns, Element element) {
  for (int64_t first = 0; first < columns; first += kPanel<T>) {
    const int width = panel_width<T>(columns, first);
    const int valid = int(std::min<int64_t>(width, columns - first));
    T* panel = packed + first * k;
    for (int64_t begin = 0; begin < k; begin += 16) {  // blocks that stay in the first cache
      const int64_t end = std::min(begin + 16, k);
      for (int j = 0; j < valid; ++j)
        for (int64_t i = begin; i < end; ++i) panel[i * width + j] = element(i, first + j);
      for (int j = valid; j < width; ++j)
        for (int64_t i = begin; i < end; ++i) panel[i * width + j] = 0;
    }
  }
}

// Rows x Vectors sums kept in registers over the whole of k.
template <class T, int Rows, int Vectors>
void tile(Matrix<const T> a, const T* b, int64_t k, Matrix<T> c, int columns, bool add) {
  Vector<T> sum[Rows][Vectors] = {};
  for (int64_t i = 0; i < k; ++i, b += Vectors * kLanes<T>) {
    Vector<T> row[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) row[v] = load(b + v * kLanes<T>);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const T value = a.data[r * a.row + i * a.column];
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sum[r][v] += value * row[v];
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) {
      const int count = std::min(kLanes<T>, columns - v * kLanes<T>);
      T* to = c.data + r * c.row + v * kLanes<T>;
      Vector<T> old = {};
      if (add) std::memcpy(&old, to, count * sizeof(T));
      store(to, sum[r][v] + old, count);
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
    default: return tile<T, kTileRows, Vectors>(a, b, k, c, columns, add);
  }
}

// C = A · B with a packed B; `columns` is how many of C's columns there are (the padding beyond
// them is not written).
template <class T>
void multiply(Matrix<const T> a, int64_t m, const T* packed, int64_t k, Matrix<T> c,
              int64_t columns, bool add = false) {
  const int64_t tiles = (m + kTileRows - 1) / kTileRows;  // of nearly equal height
  for (int64_t first = 0; first < columns; first += kPanel<T>) {
    const T* panel = packed + first * k;
    const int valid = int(std::min<int64_t>(kPanel<T>, columns - first));
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t begin = m * t / tiles, rows = m * (t + 1) / tiles - begin;
      const Matrix<const T> part{a.data + begin * a.row, a.row, a.column};
      const Matrix<T> out{c.data + begin * c.row + first, c.row};
      switch (panel_width<T>(columns, first) / kLanes<T>) {
        case 1: tile_rows<T, 1>(int(rows), part, panel, k, out, valid, add); break;
        case 2: tile_rows<T, 2>(int(rows), part, panel, k, out, valid, add); break;
#if defined(__AVX512F__)
        case 3: tile_rows<T, 3>(int(rows), part, panel, k, out, valid, add); break;
        default: tile_rows<T, 4>(int(rows), part, panel, k, out, valid, add);
#else
        default: break;
#endif
      }
    }
  }
}
