// Vectors, and the functions an LSTM needs, written so that the compiler turns loops into vector
// instructions. `Vector` is as wide as the instruction set this file is compiled for.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kTileRows = 8, kTileVectors = 3;  // 32 registers
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32, kTileRows = 6, kTileVectors = 2;  // 16 registers
#else
constexpr int kVectorBytes = 16, kTileRows = 6, kTileVectors = 2;
#endif

template <class T> struct Lanes;
template <> struct Lanes<float> {
  typedef float type __attribute__((vector_size(kVectorBytes)));
};
template <> struct Lanes<double> {
  typedef double type __attribute__((vector_size(kVectorBytes)));
};
template <class T> using Vector = typename Lanes<T>::type;
template <class T> constexpr int kLanes = kVectorBytes / int(sizeof(T));

template <class T> inline Vector<T> load(const T* from) {
  Vector<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
// Of a vector that reaches beyond the end, only the first `count` numbers are read or written.
template <class T> inline Vector<T> load(const T* from, int count) {
  if (count >= kLanes<T>) return load(from);
  Vector<T> v = {};
  std::memcpy(&v, from, count * sizeof(T));
  return v;
}
template <class T> inline void store(T* to, Vector<T> v, int count = kLanes<T>) {
  if (count >= kLanes<T>) std::memcpy(to, &v, sizeof v);
  else std::memcpy(to, &v, count * sizeof(T));
}


// The sum of a vector's numbers, half on half: a sum one by one would wait for every addition.
template <class T, int Bytes> struct Halves {
  typedef T V __attribute__((vector_size(Bytes)));
  typedef T Half __attribute__((vector_size(Bytes / 2)));
  static T sum(V v) {
    Half low, high;
    std::memcpy(&low, &v, sizeof low);
    std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof low, sizeof high);
    return Halves<T, Bytes / 2>::sum(low + high);
  }
};
template <> struct Halves<float, 16> {
  typedef float V __attribute__((vector_size(16)));
  static float sum(V v) { return (v[0] + v[2]) + (v[1] + v[3]); }
};
template <> struct Halves<double, 16> {
  typedef double V __attribute__((vector_size(16)));
  static double sum(V v) { return v[0] + v[1]; }
};
template <class T> inline T sum(Vector<T> v) { return Halves<T, kVectorBytes>::sum(v); }

// The sum over n units of a term, which is written once, for a vector of units as for a single one:
// term(at), where at(p) is p's number or numbers there. It has four parts, so that an addition need
// not wait for the one before.
template <class T> struct AtVector {
  int64_t j;
  Vector<T> operator()(const T* p) const { return load(p + j); }
};
template <class T> struct AtUnit {
  int64_t j;
  T operator()(const T* p) const { return p[j]; }
};
template <class T, class Term> inline T sum_over(int64_t n, Term term) {
  constexpr int L = kLanes<T>;
  Vector<T> part[4] = {};
  T rest = 0;
  int64_t j = 0;
  for (; j + 4 * L <= n; j += 4 * L)
    for (int k = 0; k < 4; ++k) part[k] += term(AtVector<T>{j + k * L});
  for (; j + L <= n; j += L) part[0] += term(AtVector<T>{j});
  for (; j < n; ++j) rest += term(AtUnit<T>{j});
  return sum<T>((part[0] + part[1]) + (part[2] + part[3])) + rest;
}

// 1/1!, 1/2!, 1/3!, ...
template <class T, int N> struct InverseFactorials {
  T of[N];
  constexpr InverseFactorials() : of() {
    double value = 1;
    for (int k = 0; k < N; ++k) of[k] = T(value /= k + 1);
  }
};

// The facts of a number type for exp: where it overflows, how to round, how to make 2^n.
template <class T> struct Exponent;
template <> struct Exponent<float> {
  using Bits = uint32_t;  // wraps around where x is NaN
  static constexpr float largest = 88.0f, round = 0x1.8p23f, high = 0x1.62e4p-1f,
                         low = 0x1.7f7d1cp-20f;  // high + low = ln 2
  static constexpr int bias = 127, mantissa = 23, terms = 7;
};
template <> struct Exponent<double> {
  using Bits = uint64_t;
  static constexpr double largest = 709.0, round = 0x1.8p52, high = 0x1.62e42feep-1,
                          low = 0x1.a39ef35793c76p-33;
  static constexpr int bias = 1023, mantissa = 52, terms = 14;
};

// exp(x) - 1 without loss of digits near 0. With x = n ln 2 + r, |r| <= ln(2)/2, and Taylor's
// series of exp(r) - 1:  exp(x) - 1 = 2^n (exp(r) - 1) + (2^n - 1).
template <class T> inline T expm1(T x) {
  using E = Exponent<T>;
  using Bits = typename E::Bits;
  x = x > E::largest ? E::largest : x;
  x = x < -E::largest ? -E::largest : x;  // comparisons with NaN are false: NaN goes through
  const T rounded = x * T(1.44269504088896340736) + E::round;
  const T n = rounded - E::round;
  const T r = (x - n * E::high) - n * E::low;
  constexpr InverseFactorials<T, E::terms> term;
  T series = term.of[E::terms - 1];  // Horner's scheme
#pragma GCC unroll 16
  for (int k = E::terms - 2; k >= 0; --k) series = series * r + term.of[k];
  series *= r;
  Bits bits, shift;
  std::memcpy(&bits, &rounded, sizeof bits);
  std::memcpy(&shift, &E::round, sizeof shift);
  bits = (bits - shift + E::bias) << E::mantissa;
  T power;
  std::memcpy(&power, &bits, sizeof power);
  return power * series + (power - 1);
}
template <class T> inline T sigmoid(T x) { return 1 / (2 + expm1<T>(-x)); }
template <class T> inline T tanh_(T x) {
  const T e = expm1<T>(2 * std::fabs(x));
  return std::copysign(e / (e + 2), x);
}

// body(j) for j = 0..n-1, in whole vectors: the last one overlaps the one before, since a remainder
// unit by unit would take longer than all the rest where body has an exp. So some units are computed
// twice: body must not overwrite what it reads.
template <class T, class Body> inline void each_unit(int64_t n, Body body) {
  if (n < kLanes<T>) {
    for (int64_t j = 0; j < n; ++j) body(j);
    return;
  }
  for (int64_t first = 0; first < n; first += kLanes<T>) {
    const int64_t begin = std::min(first, n - kLanes<T>);
#pragma omp simd
    for (int64_t j = 0; j < kLanes<T>; ++j) body(begin + j);
  }
}
