// The layer-normalized LSTM over a sequence (paper, eqs. 20-22; layernorm.functional.ln_lstm_step):
//   (i, f, g, o) = LN(W_x x) + LN(W_h h) + b,   c' = σ(f) c + σ(i) tanh(g),   h' = σ(o) tanh(LN(c'))
// and its variants: one norm on the sum of both terms, a norm for each gate, no norm on the summed
// inputs, the normalized cell as the state; without gain_c, no norm of the cell.
#pragma once
#include "forward.h"

template <class T> struct LstmMember : ForwardMember<T> {
  T *gain_c, *shift, *shift_c;  // shift: all biases together
  T *c, *raw, *kept;  // the state; c' before its norm; the gates, if nothing else keeps them
  Moments<T>* of_c;
};

template <class T> struct LstmForward : Forward<LstmForward<T>, T, LstmMember<T>, 4> {
  using Member = LstmMember<T>;
  using Base = Forward<LstmForward<T>, T, Member, 4>;
  using Base::Base, Base::a, Base::team, Base::members, Base::h, Base::take, Base::scale;

  int64_t norms() const { return a.groups; }
  void lay_out(Member& m) {
    const int64_t n = m.n;
    m.gain_c = take(n), m.shift = take(4 * n), m.shift_c = take(n);
    m.c = take(a.batch * n), m.raw = take(a.batch * n);
    m.kept = take(a.gates ? 0 : a.batch * 4 * n);
    m.of_c = this->scratch.template take<Moments<T>>(a.batch);
  }

  void prepare(int k, const Mine<T>& mine) {
    const Member& m = members[k];
    mine.gather(m.gain_c, a.gain_c, 1, 1);
    mine.gather(m.shift, a.bias, 4);
    mine.add(m.shift, a.bias_x, 4);
    mine.add(m.shift, a.bias_h, 4);
    mine.gather(m.shift_c, a.bias_c, 1);
    for (int64_t r = team.first_row(k); r < team.last_row(k, a.batch); ++r)
      std::copy_n(in<T>(a.c0) + r * a.units + mine.first, mine.n, m.c + r * mine.n);
  }

  void step(int k, int64_t first, int64_t last, int64_t offset, T* u, Barrier& barrier) {
    const int64_t wide = padded<T>(4 * team.size(k));
    T* v = members[k].v;
    for (int64_t r = first; r < last; ++r) measure(k, r, u + r * wide, v + r * wide);
    barrier.wait();  // nobody reads h any more
    for (int64_t r = first; r < last; ++r) gates(k, r, offset + r, u + r * wide, v + r * wide);
    if (a.gain_c) barrier.wait();
    for (int64_t r = first; r < last; ++r) output(k, r, offset + r);
    barrier.wait();
  }

  void finish(int k) {
    const int64_t n = team.size(k);
    for (int64_t r = team.first_row(k); r < team.last_row(k, a.batch); ++r)
      std::copy_n(members[k].c + r * n, n, out<T>(a.c_n) + r * a.units + team.first(k));
  }

  // The moments of this member's summed inputs, of each norm.
  void measure(int k, int64_t r, const T* u, T* v) {
    const Member& m = members[k];
    const int64_t n = team.size(k), each = 4 / a.groups * n;
    if (a.terms < 2)
#pragma omp simd
      for (int64_t j = 0; j < 4 * n; ++j) v[j] += u[j];
    for (int64_t q = 0; q < a.groups && a.terms; ++q) {
      m.of_h[r * a.groups + q] = moments(v + q * each, each);
      if (a.terms == 2) m.of_x[r * a.groups + q] = moments(u + q * each, each);
    }
  }

  // Norms, gates and the new cell. The normalized summed inputs and the gates go to where the
  // backward pass will look for them, or where there is none stay in place.
  void gates(int k, int64_t r, int64_t at, T* u, T* v) {
    const Member& m = members[k];
    const int64_t n = team.size(k), first = team.first(k), each = 4 / a.groups * n;
    const int64_t place = 4 * (at * a.units + first);
    T* hat_h = a.hat_h ? out<T>(a.hat_h) + place : v;
    T* hat_x = a.hat_x ? out<T>(a.hat_x) + place : u;
    T* scales = a.scales && team.leads(k) ? out<T>(a.scales) + at * (2 * a.groups + 3) : nullptr;
    for (int64_t q = 0; q < a.groups && a.terms; ++q) {
      const auto of_h = scale(k, &Member::of_h, r * a.groups + q, 4 / a.groups);
      auto of_x = of_h;
      if (a.terms == 2) of_x = scale(k, &Member::of_x, r * a.groups + q, 4 / a.groups);
      if (scales) scales[q] = of_x.inverse, scales[a.groups + q] = of_h.inverse;
      const int64_t i = q * each;
      normalize(v + i, hat_h + i, v + i, of_h, m.gain_h + i, m.shift + i, each);
      if (a.terms == 2) normalize(v + i, hat_x + i, u + i, of_x, m.gain_x + i, v + i, each);
    }
    if (!a.terms) affine(v, v, m.gain_h, m.shift, 4 * n);
    T* kept = a.gates ? out<T>(a.gates) + place : m.kept + r * 4 * n;
    T *i = kept, *f = kept + n, *g = kept + 2 * n, *o = kept + 3 * n, *c = m.c + r * n;
    T* raw = a.cell ? out<T>(a.cell) + at * a.units + first : m.raw + r * n;
    each_unit<T>(n, [=](int64_t j) {
      const T input = sigmoid(v[j]), forget = sigmoid(v[n + j]), candidate = tanh_(v[2 * n + j]);
      i[j] = input, f[j] = forget, g[j] = candidate;
      o[j] = sigmoid(v[3 * n + j]);
      raw[j] = forget * c[j] + input * candidate;
    });
    if (a.gain_c) m.of_c[r] = moments(raw, n);
  }

  void output(int k, int64_t r, int64_t at) {
    const Member& m = members[k];
    const int64_t n = team.size(k), first = team.first(k);
    const auto s = a.gain_c ? scale(k, &Member::of_c, r, 1) : Scale<T>{};
    if (a.scales && team.leads(k)) {
      T* scales = out<T>(a.scales) + at * (2 * a.groups + 3) + 2 * a.groups;
      scales[0] = s.mean, scales[1] = s.error, scales[2] = s.inverse;
    }
    const T* o = (a.gates ? out<T>(a.gates) + 4 * (at * a.units + first) : m.kept + r * 4 * n) + 3 * n;
    const T* raw = a.cell ? out<T>(a.cell) + at * a.units + first : m.raw + r * n;
    T *c = m.c + r * n, *y = out<T>(a.y) + at * a.units + first, *state = h + r * a.units + first;
    const T *gain = m.gain_c, *shift = m.shift_c;
    const bool carry = a.carry;
    each_unit<T>(n, [=](int64_t j) {
      const T normalized = s(raw[j]) * gain[j] + shift[j];
      c[j] = carry ? normalized : raw[j];
      y[j] = state[j] = o[j] * tanh_(normalized);
    });
  }
};
