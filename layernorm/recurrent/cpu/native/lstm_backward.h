// The gradient of LstmForward, from the last step to the first. Of each step the forward pass has
// kept the normalized summed inputs, c' and the norms' scales; without such norms, the gates.
#pragma once
#include "backward.h"

template <class T> struct LstmBackwardMember : BackwardMember<T> {
  T *gain_c, *shift, *shift_c;
  T *opened, *dc, *dhat;  // the gates, if made again; gradients of the state that goes on and of ĉ
  Sums<T>* of_c;
  Total<T> dshift, dgain_c, dshift_c;
};

template <class T> struct LstmBackward : Backward<LstmBackward<T>, T, LstmBackwardMember<T>, 4> {
  using Member = LstmBackwardMember<T>;
  using Base = Backward<LstmBackward<T>, T, Member, 4>;
  using Base::Base, Base::a, Base::team, Base::members, Base::squads, Base::take, Base::total;
  using Base::sums;

  static constexpr bool kAdd = false;
  static constexpr std::array<Total<T> Member::*, 5> kTotals{&Member::dshift, &Member::dgain_x, &Member::dgain_h,
                                                              &Member::dgain_c, &Member::dshift_c};
  int64_t norms() const { return a.groups; }
  bool one_term() const { return a.terms < 2; }
  void lay_out(Member& m, int64_t n, int64_t sequences) {
    m.gain_c = take(n), m.shift = take(4 * n), m.shift_c = take(n);
    m.opened = take(a.gates ? 0 : sequences * 4 * n);
    m.dc = take(sequences * n), m.dhat = take(sequences * n);
    m.of_c = this->scratch.template take<Sums<T>>(sequences);
    m.dshift = total(4 * n), m.dgain_c = total(n), m.dshift_c = total(n);
  }

  void prepare(int k, const Mine<T>& mine) {
    const Member& m = members[k];
    mine.gather(m.gain_c, a.gain_c, 1, 1);
    mine.gather(m.shift, a.bias, 4);
    mine.add(m.shift, a.bias_x, 4);
    mine.add(m.shift, a.bias_h, 4);
    mine.gather(m.shift_c, a.bias_c, 1);
    for (int64_t r = 0; r < team.rows(k); ++r)
      for (int64_t j = 0; j < mine.n; ++j)
        m.dc[r * mine.n + j] = a.dc_n ? in<T>(a.dc_n)[sequence(k, r) * a.units + mine.first + j] : 0;
  }
  int64_t sequence(int k, int64_t r) const { return squads[team.squad(k)].steps.sequence(r); }

  void gates(int k, int64_t s, int64_t rows, int64_t offset, Barrier& barrier) {
    for (int64_t r = 0; r < rows; ++r) open(k, r, offset + r), output(k, r, offset + r);
    barrier.wait();
    const Steps& steps = squads[team.squad(k)].steps;
    for (int64_t r = 0; r < rows; ++r) cell_and_gates(k, r, offset + r, steps.before(s, r));
  }

  // The gates of a row, as the forward pass had them. To compute them again from the normalized
  // summed inputs, which are read anyway, takes less time than to write them and read them back.
  void open(int k, int64_t r, int64_t at) {
    if (a.gates) return;
    const Member& m = members[k];
    const int64_t n = team.size(k), place = 4 * (at * a.units + team.first(k));
    const T *hat_h = in<T>(a.hat_h) + place, *hat_x = in<T>(a.hat_x) + place;
    const T *gain_h = m.gain_h, *gain_x = m.gain_x, *shift = m.shift;
    T *i = m.opened + r * 4 * n, *f = i + n, *g = f + n, *o = g + n;
    const auto all = [=](auto summed) {
      each_unit<T>(n, [=](int64_t j) {
        i[j] = sigmoid(summed(j)), f[j] = sigmoid(summed(n + j));
        g[j] = tanh_(summed(2 * n + j)), o[j] = sigmoid(summed(3 * n + j));
      });
    };
    const auto with_h = [=](int64_t j) { return hat_h[j] * gain_h[j] + shift[j]; };
    if (a.terms == 2)
      all([=](int64_t j) { return hat_x[j] * gain_x[j] + with_h(j); });
    else
      all(with_h);
  }

  // The four gates of a row, each of n units.
  const T* opened(int k, int64_t r, int64_t at) const {
    const int64_t n = team.size(k);
    return a.gates ? in<T>(a.gates) + 4 * (at * a.units + team.first(k))
                   : members[k].opened + r * 4 * n;
  }

  // How the forward pass normalized the cell.
  Scale<T> cell_scale(int64_t at) const {
    const T* s = in<T>(a.scales) + at * (2 * a.groups + 3) + 2 * a.groups;
    return {s[0], s[1], s[2]};
  }

  // From dh' back through h' = o tanh(LN(c')), up to the norm.
  void output(int k, int64_t r, int64_t at) {
    const Member& m = members[k];
    const int64_t n = team.size(k), first = team.first(k), H = a.units;
    const Scale<T> of_c = cell_scale(at);
    const T *cell = in<T>(a.cell) + at * H + first, *dy = in<T>(a.dy) + at * H + first;
    const T *dh_next = squads[team.squad(k)].dh + r * H + first, *dc = m.dc + r * n;
    const T* o = opened(k, r, at) + 3 * n;
    T* dp = m.p + (r * 4 + 3) * n;
    const T *gain_c = m.gain_c, *shift_c = m.shift_c;
    T *dhat = m.dhat + r * n, *dgain_c = m.dgain_c.step, *dshift_c = m.dshift_c.step;
    const T carry = a.carry ? 1 : 0;
    T plain = 0, along = 0;
#pragma omp simd reduction(+ : plain, along)
    for (int64_t j = 0; j < n; ++j) {
      const T hat = of_c(cell[j]);
      const T q = tanh_(hat * gain_c[j] + shift_c[j]);
      const T grad = dy[j] + dh_next[j];
      dp[j] = grad * q * o[j] * (1 - o[j]);
      const T dq = grad * o[j] * (1 - q * q) + carry * dc[j];
      dgain_c[j] += dq * hat;
      dshift_c[j] += dq;
      dhat[j] = dq * gain_c[j];
      plain += dhat[j];
      along += dhat[j] * hat;
    }
    m.of_c[r] = {plain, along};
  }

  // Through the cell's norm, the cell and the gates, up to the norms of the summed inputs.
  void cell_and_gates(int k, int64_t r, int64_t at, int64_t before) {
    const Member& m = members[k];
    const int64_t n = team.size(k), first = team.first(k), H = a.units;
    const auto s = a.gain_c ? sums(k, &Member::of_c, r, 1) : Sums<T>{};
    const Scale<T> of_c = cell_scale(at);
    const T* cell = in<T>(a.cell) + at * H + first;
    const int64_t sequence = squads[team.squad(k)].steps.sequence(r);
    const T* c = (before < 0 ? in<T>(a.c0) + sequence * H : in<T>(a.cell) + before * H) + first;
    const int64_t place = 4 * (at * H + first);
    const T *i = opened(k, r, at), *f = i + n, *g = f + n;
    T *p = m.p + r * 4 * n, *pi = p, *pf = p + n, *pg = p + 2 * n;
    T *dc = m.dc + r * n, *dhat = m.dhat + r * n;  // dhat's place is then c's, the state before
    const T carry = a.carry ? 1 : 0;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      const T hat = of_c(cell[j]);
      dc[j] = of_c.inverse * (dhat[j] - s.plain - hat * s.along) + (1 - carry) * dc[j];
    }
    if (a.carry && before >= 0) {
      const Scale<T> of_before = cell_scale(before);
      for (int64_t j = 0; j < n; ++j) dhat[j] = of_before(c[j]);
      affine(dhat, dhat, m.gain_c, m.shift_c, n);
      c = dhat;
    }
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      pi[j] = dc[j] * g[j] * i[j] * (1 - i[j]);
      pf[j] = dc[j] * c[j] * f[j] * (1 - f[j]);
      pg[j] = dc[j] * i[j] * (1 - g[j] * g[j]);
      dc[j] *= f[j];
    }
    // Gains, biases, and what the norms' backward needs.
    const int64_t each = 4 / a.groups * n;
    const T *hat_h = in<T>(a.hat_h) + place, *hat_x = in<T>(a.hat_x) + place;
    T* dshift = m.dshift.step;
    for (int64_t q = 0; q < a.groups && a.terms; ++q) {
      const int64_t i = q * each, index = r * a.groups + q;
      T *of_h = m.dgain_h.step + i, *of_x = m.dgain_x.step + i;
      m.of_h[index] = accumulate(hat_h + i, m.gain_h + i, of_h, dshift + i, p + i, each);
      if (a.terms == 2)
        m.of_x[index] = accumulate<T>(hat_x + i, m.gain_x + i, of_x, nullptr, p + i, each);
    }
    if (!a.terms)
      for (int64_t j = 0; j < 4 * n; ++j) dshift[j] += p[j];
  }

  // Through the norms of the summed inputs.
  void summed(int k, int64_t r, int64_t at, int64_t row) {
    const Member& m = members[k];
    const int64_t n = team.size(k), each = 4 / a.groups * n, H = a.units;
    const int64_t place = 4 * (at * H + team.first(k)), to = 4 * (row * H + team.first(k));
    const T* scales = in<T>(a.scales) + at * (2 * a.groups + 3);
    const T* p = m.p + r * 4 * n;
    T *dh_sums = squads[team.squad(k)].dh_sums, *dx_sums = squads[team.squad(k)].dx_sums;
    if (!a.terms) std::copy_n(p, 4 * n, dh_sums + to);
    for (int64_t q = 0; q < a.groups && a.terms; ++q) {
      const int64_t i = q * each, index = r * a.groups + q, per_unit = 4 / a.groups;
      through(dh_sums + to + i, p + i, m.gain_h + i, in<T>(a.hat_h) + place + i,
              scales[a.groups + q], sums(k, &Member::of_h, index, per_unit), each);
      if (a.terms == 2)
        through(dx_sums + to + i, p + i, m.gain_x + i, in<T>(a.hat_x) + place + i, scales[q],
                sums(k, &Member::of_x, index, per_unit), each);
    }
  }

  void scatter(int k, const Mine<T>& mine) {
    const Member& m = members[k];
    mine.scatter(a.dbias, m.dshift.all, 4);
    mine.scatter(a.dgain_c, m.dgain_c.all, 1);
    mine.scatter(a.dbias_c, m.dshift_c.all, 1);
  }
  void finish(int k, const Mine<T>& mine) {
    for (int64_t r = 0; r < team.rows(k); ++r)
      std::copy_n(members[k].dc + r * mine.n, mine.n,
                  out<T>(a.dc0) + sequence(k, r) * a.units + mine.first);
  }
};
