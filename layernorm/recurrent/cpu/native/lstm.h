// The layer-normalized LSTM over a sequence (paper, eqs. 20-22; layernorm.functional.ln_lstm_step):
//   (i, f, g, o) = LN(W_x x) + LN(W_h h) + b,   c' = σ(f) c + σ(i) tanh(g),   h' = σ(o) tanh(LN(c'))
// and its variants: one norm on the sum of both terms, a norm for each gate, no norm on the summed
// inputs, the normalized cell as the state.
#pragma once
#include "sequence.h"

template <class T> class LstmForward {
 public:
  explicit LstmForward(const Arguments& arguments)
      : a(arguments), steps(a), team(a, 4, sizeof(T)), eps(T(a.eps)) {
    for (const auto& b : steps.blocks(kForwardRows)) rows = std::max(rows, b.end - b.begin);
    lay_out();
    scratch.reserve();
    lay_out();
  }
  void run() {
    run_team(team.members(), [this](int k) { run(k); });
  }

 private:
  struct Member {
    int64_t n;  // units
    T *w_ih, *w_hh, *gain_x, *gain_h, *gain_c, *shift, *shift_c;  // shift: all biases together
    T *u, *v;      // W_x x of a block of steps; W_h h of one step, then the gates' summed inputs
    T *c, *raw, *kept;  // the state; c' before its norm; the gates, if nothing else keeps them
    Moments<T> *of_x, *of_h, *of_c;
  };
  const Arguments& a;
  const Steps steps;
  const Team team;
  const T eps;
  Scratch scratch;
  Barriers barriers{team};
  std::vector<Member> members{size_t(team.members())};
  T* h;  // (B, H)
  int64_t rows = 0;

  void lay_out() {
    h = scratch.take<T>(a.batch * a.units);
    for (int k = 0; k < team.members(); ++k) {
      const int64_t n = team.size(k), wide = padded<T>(4 * n);
      auto take = [&](int64_t count) { return scratch.take<T>(count); };
      auto parts = [&](int64_t count) { return scratch.take<Moments<T>>(count * a.batch); };
      members[k] = {n, take(a.inputs * wide), take(a.units * wide), take(4 * n), take(4 * n), take(n),
                    take(4 * n), take(n), take(rows * wide), take(a.batch * wide),
                    take(a.batch * n), take(a.batch * n), take(a.gates ? 0 : a.batch * 4 * n),
                    parts(a.groups), parts(a.groups), parts(1)};
    }
  }

  void prepare(int k) {
    const Member& m = members[k];
    const Mine<T> mine{team.first(k), team.size(k), a.units};
    mine.pack_forward(m.w_ih, a.w_ih, a.inputs, 4);
    mine.pack_forward(m.w_hh, a.w_hh, a.units, 4);
    mine.gather(m.gain_x, a.gain_x, 4, 1);
    mine.gather(m.gain_h, a.gain_h, 4, 1);
    mine.gather(m.gain_c, a.gain_c, 1, 1);
    mine.gather(m.shift, a.bias, 4);
    mine.add(m.shift, a.bias_x, 4);
    mine.add(m.shift, a.bias_h, 4);
    mine.gather(m.shift_c, a.bias_c, 1);
    for (int64_t r = team.first_row(k); r < team.last_row(k, a.batch); ++r) {
      std::copy_n(in<T>(a.c0) + r * a.units + mine.first, mine.n, m.c + r * mine.n);
      std::copy_n(in<T>(a.h0) + r * a.units + mine.first, mine.n, h + r * a.units + mine.first);
    }
    barriers.squads[team.squad(k)].wait();
  }

  void product_with_x(const Member& m, int64_t first, int64_t count, T* u) {
    const int64_t n = m.n, I = a.inputs;
    multiply<T>({in<T>(a.x) + first * I, I}, count, m.w_ih, I, {u, padded<T>(4 * n)}, 4 * n);
  }

  void run(int k) {
    prepare(k);
    const Member& m = members[k];
    const int64_t n = team.size(k), first = team.first(k), H = a.units;
    const int64_t wide = padded<T>(4 * n), lo = team.first_row(k);
    Barrier& barrier = barriers.squads[team.squad(k)];
    for (const auto& block : steps.blocks(kForwardRows)) {
      const bool alone = team.sequences.members == 1;  // then the block's rows are all mine
      if (alone) product_with_x(m, block.begin, block.end - block.begin, m.u);
      for (int64_t s = block.first; s < block.last; ++s) {
        const int64_t t = steps.time(s), offset = steps.offset(t);
        const int64_t hi = team.last_row(k, steps.rows(t)), count = std::max<int64_t>(hi - lo, 0);
        T* u = m.u + (offset - block.begin) * wide;
        if (!alone) product_with_x(m, offset + lo, count, u + lo * wide);
        multiply<T>({h + lo * H, H}, count, m.w_hh, H, {m.v + lo * wide, wide}, 4 * n);
        for (int64_t r = lo; r < hi; ++r) measure(k, r, u + r * wide, m.v + r * wide);
        barrier.wait();
        for (int64_t r = lo; r < hi; ++r) gates(k, r, offset + r, u + r * wide, m.v + r * wide);
        barrier.wait();
        for (int64_t r = lo; r < hi; ++r) output(k, r, offset + r);
        barrier.wait();
      }
    }
    for (int64_t r = team.first_row(k); r < team.last_row(k, a.batch); ++r) {
      std::copy_n(h + r * H + first, n, out<T>(a.h_n) + r * H + first);
      std::copy_n(m.c + r * n, n, out<T>(a.c_n) + r * H + first);
    }
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

  Scale<T> scale(int k, Moments<T>* Member::*parts, int64_t index, int64_t per_unit) const {
    return together<T>(
        team.units.members, per_unit * a.units, eps,
        [&](int i) { return (members[team.leader(k) + i].*parts)[index]; },
        [&](int i) { return per_unit * team.units.size(i); });
  }

  // Norms, gates and the new cell. The normalized summed inputs and the gates go to where the
  // backward pass will look for them, or where there is none stay in place.
  void gates(int k, int64_t r, int64_t at, T* u, T* v) {
    const Member& m = members[k];
    const int64_t n = team.size(k), first = team.first(k), each = 4 / a.groups * n;
    const int64_t place = 4 * (at * a.units + first);
    T* hat_h = a.hat_h ? out<T>(a.hat_h) + place : v;
    T* hat_x = a.hat_x ? out<T>(a.hat_x) + place : u;
    T* scales = a.scales && team.leads(k) ? out<T>(a.scales) + at * (2 * a.groups + 2) : nullptr;
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
    m.of_c[r] = moments(raw, n);
  }

  void output(int k, int64_t r, int64_t at) {
    const Member& m = members[k];
    const int64_t n = team.size(k), first = team.first(k);
    const auto s = scale(k, &Member::of_c, r, 1);
    if (a.scales && team.leads(k)) {
      T* scales = out<T>(a.scales) + at * (2 * a.groups + 2) + 2 * a.groups;
      scales[0] = s.mean, scales[1] = s.inverse;
    }
    const T* o = (a.gates ? out<T>(a.gates) + 4 * (at * a.units + first) : m.kept + r * 4 * n) + 3 * n;
    const T* raw = a.cell ? out<T>(a.cell) + at * a.units + first : m.raw + r * n;
    T *c = m.c + r * n, *y = out<T>(a.y) + at * a.units + first, *state = h + r * a.units + first;
    const T *gain = m.gain_c, *shift = m.shift_c;
    const bool carry = a.carry;
    each_unit<T>(n, [=](int64_t j) {
      const T normalized = (raw[j] - s.mean) * s.inverse * gain[j] + shift[j];
      c[j] = carry ? normalized : raw[j];
      y[j] = state[j] = o[j] * tanh_(normalized);
    });
  }
};
