// Vectors, and the functions an LSTM needs, written so that the compiler turns loops into vector
// instructions. `Vector` is as wide as the instruction set this file is compiled for.
#pragma once
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
template <class T> inline void store(T* to, Vector<T> v, int count = kLanes<T>) {
  if (count >= kLanes<T>) std::memcpy(to, &v, sizeof v);
  else std::memcpy(to, &v, count * sizeof(T));
}

// What exp needs to know of a number type: where it overflows, how to round, how to make 2^n.
template <class T> struct Exponent;
template <> struct Exponent<float> {
  using Int = int32_t;
  static constexpr float largest = 88.0f, round = 0x1.8p23f, high = 0x1.62e4p-1f,
                         low = 0x1.7f7d1cp-20f;  // high + low = ln 2
  static constexpr int bias = 127, mantissa = 23, terms = 8;
};
template <> struct Exponent<double> {
  using Int = int64_t;
  static constexpr double largest = 709.0, round = 0x1.8p52, high = 0x1.62e42feep-1,
                          low = 0x1.a39ef35793c76p-33;
  static constexpr int bias = 1023, mantissa = 52, terms = 14;
};

// exp(x) - 1 without loss of digits near 0. With x = n ln 2 + r, |r| <= ln(2)/2, and Taylor's
// series of exp(r) - 1:  exp(x) - 1 = 2^n (exp(r) - 1) + (2^n - 1).
template <class T> inline T expm1(T x) {
  using E = Exponent<T>;
  using Int = typename E::Int;
  x = x > E::largest ? E::largest : x;
  x = x < -E::largest ? -E::largest : x;  // comparisons with NaN are false: NaN goes through
  const T rounded = x * T(1.44269504088896340736) + E::round;
  const T n = rounded - E::round;
  const T r = (x - n * E::high) - n * E::low;
  T series = r / E::terms + 1;  // Horner: 1 + r/2 (1 + r/3 (1 + ...))
#pragma GCC unroll 16
  for (int k = E::terms - 1; k >= 2; --k) series = r * (T(1) / k) * series + 1;
  series *= r;
  Int bits, shift;
  std::memcpy(&bits, &rounded, sizeof bits);
  std::memcpy(&shift, &E::round, sizeof shift);
  bits = (bits - shift + E::bias) << E::mantissa;
  T power;
  std::memcpy(&power, &bits, sizeof power);
  return power * series + (power - 1);
}
template <class T> inline T sigmoid(T x) { return 1 / (2 + expm1(-x)); }
template <class T> inline T tanh_(T x) {
  const T e = expm1(2 * std::fabs(x));
  return std::copysign(e / (e + 2), x);
}
