// The layer-normalized GRU over a sequence (paper, eqs. 26-28; layernorm.functional.ln_gru_step):
//   (r, z) = LN(W_x x) + LN(W_h h) + b    over both gates' units
//   n = tanh(LN(W x) + b_n + σ(r) LN(U h)),   h' = (1 − σ(z)) n + σ(z) h
// Each row of a term has two norms: of the gates, 2H, and of the candidate, H.
#pragma once
#include "sequence.h"

constexpr int kGruNorms = 2;
constexpr int64_t kGruFrom[] = {0, 2}, kGruGates[] = {2, 1};  // first gate and number, of each norm

template <class T> class GruForward {
 public:
  explicit GruForward(const Arguments& arguments)
      : a(arguments), steps(a), team(a, 3, sizeof(T)), eps(T(a.eps)) {
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
    T *w_ih, *w_hh, *gain_x, *gain_h, *shift_x, *shift_h;
    T *u, *v;  // W_x x of a block of steps; W_h h of one step
    Moments<T> *of_x, *of_h;
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
      const int64_t n = team.size(k), wide = padded<T>(3 * n);
      auto take = [&](int64_t count) { return scratch.take<T>(count); };
      auto parts = [&] { return scratch.take<Moments<T>>(kGruNorms * a.batch); };
      members[k] = {n, take(a.inputs * wide), take(a.units * wide), take(3 * n), take(3 * n),
                    take(3 * n), take(3 * n), take(rows * wide), take(a.batch * wide),
                    parts(), parts()};
    }
  }

  void prepare(int k) {
    const Member& m = members[k];
    const Mine<T> mine{team.first(k), team.size(k), a.units};
    mine.pack_forward(m.w_ih, a.w_ih, a.inputs, 3);
    mine.pack_forward(m.w_hh, a.w_hh, a.units, 3);
    mine.gather(m.gain_x, a.gain_x, 3, 1);
    mine.gather(m.gain_h, a.gain_h, 3, 1);
    mine.gather(m.shift_x, a.bias_x, 3);
    mine.add(m.shift_x, a.bias, 3);
    mine.gather(m.shift_h, a.bias_h, 3);
    for (int64_t r = team.first_row(k); r < team.last_row(k, a.batch); ++r)
      std::copy_n(in<T>(a.h0) + r * a.units + mine.first, mine.n, h + r * a.units + mine.first);
    barriers.squads[team.squad(k)].wait();
  }

  void product_with_x(const Member& m, int64_t first, int64_t count, T* u) {
    const int64_t n = m.n, I = a.inputs;
    multiply<T>({in<T>(a.x) + first * I, I}, count, m.w_ih, I, {u, padded<T>(3 * n)}, 3 * n);
  }

  void run(int k) {
    prepare(k);
    const Member& m = members[k];
    const int64_t n = team.size(k), first = team.first(k), H = a.units;
    const int64_t wide = padded<T>(3 * n), lo = team.first_row(k);
    Barrier& barrier = barriers.squads[team.squad(k)];
    for (const auto& block : steps.blocks(kForwardRows)) {
      const bool alone = team.sequences.members == 1;  // then the block's rows are all mine
      if (alone) product_with_x(m, block.begin, block.end - block.begin, m.u);
      for (int64_t s = block.first; s < block.last; ++s) {
        const int64_t t = steps.time(s), offset = steps.offset(t);
        const int64_t hi = team.last_row(k, steps.rows(t)), count = std::max<int64_t>(hi - lo, 0);
        T* u = m.u + (offset - block.begin) * wide;
        if (!alone) product_with_x(m, offset + lo, count, u + lo * wide);
        multiply<T>({h + lo * H, H}, count, m.w_hh, H, {m.v + lo * wide, wide}, 3 * n);
        for (int64_t r = lo; r < hi; ++r)
          for (int q = 0; q < kGruNorms; ++q) {
            const int64_t at = r * wide + kGruFrom[q] * n;
            m.of_x[r * kGruNorms + q] = moments(u + at, kGruGates[q] * n);
            m.of_h[r * kGruNorms + q] = moments(m.v + at, kGruGates[q] * n);
          }
        barrier.wait();
        for (int64_t r = lo; r < hi; ++r) update(k, r, offset + r, u + r * wide, m.v + r * wide);
        barrier.wait();
      }
    }
    for (int64_t r = team.first_row(k); r < team.last_row(k, a.batch); ++r)
      std::copy_n(h + r * H + first, n, out<T>(a.h_n) + r * H + first);
  }

  Scale<T> scale(int k, Moments<T>* Member::*parts, int64_t r, int q) const {
    return together<T>(
        team.units.members, kGruGates[q] * a.units, eps,
        [&](int i) { return (members[team.leader(k) + i].*parts)[r * kGruNorms + q]; },
        [&](int i) { return kGruGates[q] * team.units.size(i); });
  }

  void update(int k, int64_t r, int64_t at, T* u, T* v) {
    const Member& m = members[k];
    const int64_t n = team.size(k), first = team.first(k);
    const int64_t place = 3 * (at * a.units + first);
    T* hat_x = a.hat_x ? out<T>(a.hat_x) + place : u;
    T* hat_h = a.hat_h ? out<T>(a.hat_h) + place : v;
    for (int q = 0; q < kGruNorms; ++q) {
      const auto of_x = scale(k, &Member::of_x, r, q), of_h = scale(k, &Member::of_h, r, q);
      if (a.scales && team.leads(k)) {
        T* scales = out<T>(a.scales) + at * 2 * kGruNorms;
        scales[q] = of_x.inverse, scales[kGruNorms + q] = of_h.inverse;
      }
      const int64_t i = kGruFrom[q] * n, each = kGruGates[q] * n;
      normalize(u + i, hat_x + i, u + i, of_x, m.gain_x + i, m.shift_x + i, each);
      normalize(v + i, hat_h + i, v + i, of_h, m.gain_h + i, m.shift_h + i, each);
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
