// The moments of a layer whose units are split among the members of a team.
#pragma once
#include <limits>
#include <type_traits>

#include "arithmetic.h"

// The mean of one member's part of a row; the error that rounding made in it, which may exceed the
// deviations, if the mean is large; and the sum of squared deviations.
template <class T> struct Moments {
  T mean, error, deviations;
};

template <class T> inline Moments<T> moments(const T* a, int64_t n) {
  const T first = n ? a[0] : T(0);  // rows that vary little beside their mean keep all digits
  const T off = sum_over<T>(n, [=](auto at) { return at(a) - first; }) / T(std::max<int64_t>(n, 1));
  const T mean = first + off, error = first - mean + off;
  return {mean, error, sum_over<T>(n, [=](auto at) {
            const auto off = at(a) - mean - error;
            return off * off;
          })};
}

// What normalizes a row: its mean, the mean's error, and 1/sqrt(var + eps).
template <class T> struct Scale {
  T mean = 0, error = 0, inverse = 1;  // of a row that is not normalized
  T operator()(T a) const { return (a - mean - error) * inverse; }
};

// Put the members' parts together (Chan et al. 1983), always in the same order: part k has
// count(k) of the `total` units. A variance beyond the range of T makes NaN of the row, not zeros.
template <class T, class Part, class Count>
inline Scale<T> together(int members, int64_t total, T eps, Part part, Count count) {
  const T share = 1 / T(total);
  T mean = 0, error = 0, deviations = 0;
  for (int k = 0; k < members; ++k) mean += part(k).mean * T(count(k));
  mean *= share;
  const auto from_mean = [&](int k) { return part(k).mean - mean + part(k).error; };
  for (int k = 0; k < members; ++k) error += from_mean(k) * T(count(k));
  error *= share;
  for (int k = 0; k < members; ++k) {
    const T off = from_mean(k) - error;
    deviations += part(k).deviations + T(count(k)) * off * off;
  }
  const T root = std::sqrt(deviations * share + eps);
  return {mean, error, std::isinf(root) ? std::numeric_limits<T>::quiet_NaN() : 1 / root};
}

// â = (a − μ)/σ to `hat`, and gain â + shift to `to`; any of the arrays may be the same.
template <class T>
inline void normalize(T* to, T* hat, const T* a, Scale<T> s, const T* gain, const T* shift,
                      int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    const T normalized = s(a[j]);
    hat[j] = normalized;
    to[j] = normalized * gain[j] + shift[j];
  }
}

// gain â + shift, unit by unit.
template <class T>
inline void affine(T* to, const T* hat, const T* gain, const T* shift, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) to[j] = hat[j] * gain[j] + shift[j];
}

// Of a term without a norm: what the gradient needs to `kept`, and the shift added in place.
template <class T> inline void keep(T* kept, T* a, const T* shift, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    kept[j] = a[j];
    a[j] += shift[j];
  }
}

// The two sums that a layer norm's backward pass needs, with dâ = gain · dy:
//   da = inverse · (dâ − mean(dâ) − â mean(dâ â))
template <class T> struct Sums {
  T plain = 0, along = 0;
};

template <class T, class Part> inline Sums<T> means(int members, int64_t total, Part part) {
  Sums<T> s;
  for (int k = 0; k < members; ++k) s.plain += part(k).plain, s.along += part(k).along;
  return {s.plain / T(total), s.along / T(total)};
}

// One run of units of a row: the gradients of the gains and, unless dshift is null, of what is
// added to them; and this member's part of both sums.
template <class T>
inline Sums<T> accumulate(const T* hat, const T* gain, T* dgain, T* dshift, const T* dy,
                          int64_t n) {
  T plain = 0, along = 0;
  auto add = [&](auto also_shift) {
#pragma omp simd reduction(+ : plain, along)
    for (int64_t j = 0; j < n; ++j) {
      const T dhat = dy[j] * gain[j];
      dgain[j] += dy[j] * hat[j];
      plain += dhat;
      along += dhat * hat[j];
      if constexpr (decltype(also_shift)::value) dshift[j] += dy[j];
    }
  };
  dshift ? add(std::true_type{}) : add(std::false_type{});
  return {plain, along};
}

// da of one run of units, given both means.
template <class T>
inline void through(T* da, const T* dy, const T* gain, const T* hat, T inverse, Sums<T> means,
                    int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j)
    da[j] = inverse * (dy[j] * gain[j] - means.plain - hat[j] * means.along);
}
