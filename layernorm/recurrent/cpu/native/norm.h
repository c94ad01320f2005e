// The moments of a layer whose units are split among the members of a team.
#pragma once
#include <type_traits>

#include "arithmetic.h"

// Mean and sum of squared deviations of one member's part of a row.
template <class T> struct Moments {
  T mean, deviations;
};

template <class T> inline Moments<T> moments(const T* a, int64_t n) {
  const T mean = n ? sum_over<T>(n, [=](auto at) { return at(a); }) / T(n) : T(0);
  return {mean, sum_over<T>(n, [=](auto at) {
            const auto off = at(a) - mean;
            return off * off;
          })};
}

// 1/sqrt(var + eps) beside the mean: what normalizes a row.
template <class T> struct Scale {
  T mean, inverse;
};

// Put the members' parts together (Chan et al. 1983), always in the same order: part k has
// count(k) of the `total` units.
template <class T, class Part, class Count>
inline Scale<T> together(int members, int64_t total, T eps, Part part, Count count) {
  T mean = 0, deviations = 0;
  for (int k = 0; k < members; ++k) mean += part(k).mean * T(count(k));
  mean /= T(total);
  for (int k = 0; k < members; ++k) {
    const T off = part(k).mean - mean;
    deviations += part(k).deviations + T(count(k)) * off * off;
  }
  return {mean, 1 / std::sqrt(deviations / T(total) + eps)};
}

// â = (a − μ)/σ to `hat`, and gain â + shift to `to`; any of the arrays may be the same.
template <class T>
inline void normalize(T* to, T* hat, const T* a, Scale<T> s, const T* gain, const T* shift,
                      int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    const T normalized = (a[j] - s.mean) * s.inverse;
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

// The two sums that a layer norm's backward pass needs, with dâ = gain · dy:
//   da = inverse · (dâ − mean(dâ) − â mean(dâ â))
template <class T> struct Sums {
  T plain, along;
};

template <class T, class Part> inline Sums<T> means(int members, int64_t total, Part part) {
  Sums<T> s{0, 0};
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
