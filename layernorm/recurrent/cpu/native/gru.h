// The layer-normalized GRU over a sequence (paper, eqs. 26-28; layernorm.functional.ln_gru_step):
//   (r, z) = LN(W_x x) + LN(W_h h) + b    over both gates' units
//   n = tanh(LN(W x) + b_n + σ(r) LN(U h)),   h' = (1 − σ(z)) n + σ(z) h
// Each row of a term has two norms: of the gates, 2H, and of the candidate, H; without gains, none.
#pragma once
#include "forward.h"

constexpr int kGruNorms = 2;
constexpr int64_t kGruFrom[] = {0, 2}, kGruGates[] = {2, 1};  // first gate and number, of each norm

template <class T> struct GruMember : ForwardMember<T> {
  T *shift_x, *shift_h;
};

template <class T> struct GruForward : Forward<GruForward<T>, T, GruMember<T>, 3> {
  using Member = GruMember<T>;
  using Base = Forward<GruForward<T>, T, Member, 3>;
  using Base::Base, Base::a, Base::team, Base::members, Base::h, Base::take, Base::scale;

  int64_t norms() const { return kGruNorms; }
  void lay_out(Member& m) { m.shift_x = take(3 * m.n), m.shift_h = take(3 * m.n); }
  void prepare(int k, const Mine<T>& mine) {
    const Member& m = members[k];
    mine.gather(m.shift_x, a.bias_x, 3);
    mine.add(m.shift_x, a.bias, 3);
    mine.gather(m.shift_h, a.bias_h, 3);
  }
  void finish(int) {}

  void step(int k, int64_t first, int64_t last, int64_t offset, T* u, Barrier& barrier) {
    const Member& m = members[k];
    const int64_t n = team.size(k), wide = padded<T>(3 * n);
    for (int64_t r = first; r < last && a.gain_h; ++r)
      for (int q = 0; q < kGruNorms; ++q) {
        const int64_t at = r * wide + kGruFrom[q] * n;
        m.of_x[r * kGruNorms + q] = moments(u + at, kGruGates[q] * n);
        m.of_h[r * kGruNorms + q] = moments(m.v + at, kGruGates[q] * n);
      }
    barrier.wait();  // nobody reads h any more
    for (int64_t r = first; r < last; ++r) update(k, r, offset + r, u + r * wide, m.v + r * wide);
    barrier.wait();
  }

  void update(int k, int64_t r, int64_t at, T* u, T* v) {
    const Member& m = members[k];
    const int64_t n = team.size(k), first = team.first(k);
    const int64_t place = 3 * (at * a.units + first);
    T* hat_x = a.hat_x ? out<T>(a.hat_x) + place : u;
    T* hat_h = a.hat_h ? out<T>(a.hat_h) + place : v;
    for (int q = 0; q < kGruNorms && a.gain_h; ++q) {
      const int64_t index = r * kGruNorms + q;
      const auto of_x = scale(k, &Member::of_x, index, kGruGates[q]);
      const auto of_h = scale(k, &Member::of_h, index, kGruGates[q]);
      if (a.scales && team.leads(k)) {
        T* scales = out<T>(a.scales) + at * 2 * kGruNorms;
        scales[q] = of_x.inverse, scales[kGruNorms + q] = of_h.inverse;
      }
      const int64_t i = kGruFrom[q] * n, each = kGruGates[q] * n;
      normalize(u + i, hat_x + i, u + i, of_x, m.gain_x + i, m.shift_x + i, each);
      normalize(v + i, hat_h + i, v + i, of_h, m.gain_h + i, m.shift_h + i, each);
    }
    if (!a.gain_h) {
      keep(hat_x, u, m.shift_x, 3 * n);
      keep(hat_h, v, m.shift_h, 3 * n);
    }
    const T *xr = u, *xz = u + n, *xn = u + 2 * n, *hr = v, *hz = v + n, *hn = v + 2 * n;
    T *state = h + r * a.units + first, *y = out<T>(a.y) + at * a.units + first;
    each_unit<T>(n, [=](int64_t j) {
      const T z = sigmoid(xz[j] + hz[j]);
      const T candidate = tanh_(xn[j] + sigmoid(xr[j] + hr[j]) * hn[j]);
      y[j] = (1 - z) * candidate + z * state[j];
    });
    std::copy_n(y, n, state);
  }
};
