// The gradient of GruForward, from the last step to the first; the gates are computed again from
// the normalized summed inputs that the forward pass has kept.
#pragma once
#include "backward.h"
#include "gru.h"

template <class T> struct GruBackwardMember : BackwardMember<T> {
  T *shift_x, *shift_h;
  T* ph;  // gradients of the term of h; p are those of x
  Total<T> dshift_x, dshift_h;
};

template <class T> struct GruBackward : Backward<GruBackward<T>, T, GruBackwardMember<T>, 3> {
  using Member = GruBackwardMember<T>;
  using Base = Backward<GruBackward<T>, T, Member, 3>;
  using Base::Base, Base::a, Base::team, Base::members, Base::squads, Base::take, Base::total;
  using Base::sums;

  static constexpr bool kAdd = true;
  static constexpr std::array<Total<T> Member::*, 4> kTotals{&Member::dshift_x, &Member::dshift_h, &Member::dgain_x,
                                                              &Member::dgain_h};
  int64_t norms() const { return kGruNorms; }
  bool one_term() const { return false; }
  void lay_out(Member& m, int64_t n, int64_t sequences) {
    m.shift_x = take(3 * n), m.shift_h = take(3 * n), m.ph = take(sequences * 3 * n);
    m.dshift_x = total(3 * n), m.dshift_h = total(3 * n);
  }
  void prepare(int k, const Mine<T>& mine) {
    const Member& m = members[k];
    mine.gather(m.shift_x, a.bias_x, 3);
    mine.add(m.shift_x, a.bias, 3);
    mine.gather(m.shift_h, a.bias_h, 3);
  }
  void scatter(int k, const Mine<T>& mine) {
    mine.scatter(a.dbias, members[k].dshift_x.all, 3);
    mine.scatter(a.dbias_n, members[k].dshift_h.all, 3);
  }
  void finish(int, const Mine<T>&) {}

  void gates(int k, int64_t s, int64_t rows, int64_t offset, Barrier&) {
    const Steps& steps = squads[team.squad(k)].steps;
    for (int64_t r = 0; r < rows; ++r) update(k, r, offset + r, steps.before(s, r));
  }

  // From dh' through the update and the gates, up to the norms; dh keeps what goes around them.
  void update(int k, int64_t r, int64_t at, int64_t before) {
    const Member& m = members[k];
    const int64_t n = team.size(k), first = team.first(k), H = a.units;
    const int64_t place = 3 * (at * H + first);
    const T *hat_x = in<T>(a.hat_x) + place, *hat_h = in<T>(a.hat_h) + place;
    T *p = m.p + r * 3 * n, *ph = m.ph + r * 3 * n;
    affine(p, hat_x, m.gain_x, m.shift_x, 3 * n);
    affine(ph, hat_h, m.gain_h, m.shift_h, 3 * n);
    const SquadGradients<T>& squad = squads[team.squad(k)];
    const int64_t sequence = squad.steps.sequence(r);
    const T* h = (before < 0 ? in<T>(a.h0) + sequence * H : in<T>(a.y) + before * H) + first;
    const T* dy = in<T>(a.dy) + at * H + first;
    T* state = squad.dh + r * H + first;
    T *pr = p, *pz = p + n, *pn = p + 2 * n, *hr = ph, *hz = ph + n, *hn = ph + 2 * n;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      const T reset = sigmoid(pr[j] + hr[j]), z = sigmoid(pz[j] + hz[j]);
      const T candidate = tanh_(pn[j] + reset * hn[j]);
      const T grad = dy[j] + state[j];
      const T dn = grad * (1 - z) * (1 - candidate * candidate);
      pr[j] = hr[j] = dn * hn[j] * reset * (1 - reset);
      pz[j] = hz[j] = grad * (h[j] - candidate) * z * (1 - z);
      pn[j] = dn;
      hn[j] = dn * reset;
      state[j] = grad * z;
    }
    if (!a.gain_h)
      for (int64_t j = 0; j < 3 * n; ++j) m.dshift_x.step[j] += p[j], m.dshift_h.step[j] += ph[j];
    for (int q = 0; q < kGruNorms && a.gain_h; ++q) {
      const int64_t i = kGruFrom[q] * n, each = kGruGates[q] * n, index = r * kGruNorms + q;
      T *of_x = m.dgain_x.step + i, *of_h = m.dgain_h.step + i;
      T *shift_x = m.dshift_x.step + i, *shift_h = m.dshift_h.step + i;
      m.of_x[index] = accumulate(hat_x + i, m.gain_x + i, of_x, shift_x, p + i, each);
      m.of_h[index] = accumulate(hat_h + i, m.gain_h + i, of_h, shift_h, ph + i, each);
    }
  }

  void summed(int k, int64_t r, int64_t at, int64_t row) {
    const Member& m = members[k];
    const int64_t n = team.size(k), H = a.units;
    const int64_t place = 3 * (at * H + team.first(k)), to = 3 * (row * H + team.first(k));
    const T* scales = in<T>(a.scales) + at * 2 * kGruNorms;
    const SquadGradients<T>& squad = squads[team.squad(k)];
    if (!a.gain_h) {
      std::copy_n(m.p + r * 3 * n, 3 * n, squad.dx_sums + to);
      std::copy_n(m.ph + r * 3 * n, 3 * n, squad.dh_sums + to);
    }
    for (int q = 0; q < kGruNorms && a.gain_h; ++q) {
      const int64_t index = r * kGruNorms + q;
      const auto of_x = sums(k, &Member::of_x, index, kGruGates[q]);
      const auto of_h = sums(k, &Member::of_h, index, kGruGates[q]);
      const int64_t i = kGruFrom[q] * n, each = kGruGates[q] * n;
      through(squad.dx_sums + to + i, m.p + r * 3 * n + i, m.gain_x + i, in<T>(a.hat_x) + place + i,
              scales[q], of_x, each);
      through(squad.dh_sums + to + i, m.ph + r * 3 * n + i, m.gain_h + i, in<T>(a.hat_h) + place + i,
              scales[kGruNorms + q], of_h, each);
    }
  }
};
