// The gradient of LstmForward, from the last step to the first. Of each step the forward pass has
// kept the normalized summed inputs, c' and the norms' scales; without such norms, the gates.
#pragma once
#include "sequence.h"

template <class T> class LstmBackward {
 public:
  explicit LstmBackward(const Arguments& arguments)
      : a(arguments), team(a, 4, sizeof(T)) {
    for (int s = 0; s < team.sequences.members; ++s) squads.emplace_back(a, team, s, 4);
    lay_out();
    scratch.reserve();
    lay_out();
  }
  void run() {
    run_team(team.members(), [this](int k) { run(k); });
  }

 private:
  struct Member {
    T* w_hh;
    const T** rows;  // of w_hh, in the order of summed inputs
    T *gain_x, *gain_h, *gain_c, *shift, *shift_c;
    T *p, *opened;  // of a step: gradients of the gates' summed inputs; the gates, if made again
    T *dc, *dhat;   // gradients of the state that goes on and of ĉ
    Sums<T> *of_x, *of_h, *of_c;
    Total<T> dshift, dgain_x, dgain_h, dgain_c, dshift_c;
  };
  const Arguments& a;
  const Team team;
  Scratch scratch;
  Barriers barriers{team};
  std::vector<SquadGradients<T>> squads;
  std::vector<Member> members{size_t(team.members())};

  void lay_out() {
    for (int s = 0; s < team.sequences.members; ++s) squads[s].lay_out(scratch, s, a.terms < 2);
    for (int k = 0; k < team.members(); ++k) {
      const int64_t n = team.size(k), sequences = team.rows(k);
      auto take = [&](int64_t count) { return scratch.take<T>(count); };
      auto parts = [&](int64_t count) { return scratch.take<Sums<T>>(count * sequences); };
      auto total = [&](int64_t count) { return take_total<T>(scratch, count); };
      members[k] = {take(4 * a.units * padded<T>(n)), scratch.take<const T*>(4 * a.units),
                    take(4 * n), take(4 * n), take(n), take(4 * n), take(n),
                    take(sequences * 4 * n), take(a.gates ? 0 : sequences * 4 * n),
                    take(sequences * n), take(sequences * n),
                    parts(a.groups), parts(a.groups), parts(1),
                    total(4 * n), total(4 * n), total(4 * n), total(n), total(n)};
    }
  }

  void prepare(int k) {
    const Member& m = members[k];
    const Mine<T> mine{team.first(k), team.size(k), a.units};
    const int64_t H = a.units;
    SquadGradients<T>& squad = squads[team.squad(k)];
    squad.pack_weights(team.place(k));
    ordered_rows(m.rows, a.w_hh, H, mine.first, team.units, 4);
    pack_rows(m.w_hh, 4 * H, mine.n, [&](int64_t i) { return m.rows[i]; });
    mine.gather(m.gain_x, a.gain_x, 4, 1);
    mine.gather(m.gain_h, a.gain_h, 4, 1);
    mine.gather(m.gain_c, a.gain_c, 1, 1);
    mine.gather(m.shift, a.bias, 4);
    mine.add(m.shift, a.bias_x, 4);
    mine.add(m.shift, a.bias_h, 4);
    mine.gather(m.shift_c, a.bias_c, 1);
    for (const auto& t : {m.dshift, m.dgain_x, m.dgain_h, m.dgain_c, m.dshift_c}) t.clear();
    for (int64_t r = 0; r < team.rows(k); ++r)
      for (int64_t j = 0; j < mine.n; ++j) {
        const int64_t at = squad.steps.sequence(r) * H + mine.first + j;
        squad.dh[r * H + mine.first + j] = a.dh_n ? in<T>(a.dh_n)[at] : 0;
        m.dc[r * mine.n + j] = a.dc_n ? in<T>(a.dc_n)[at] : 0;
      }
  }

  void run(int k) {
    prepare(k);
    const Member& m = members[k];
    const int64_t n = team.size(k), H = a.units;
    SquadGradients<T>& squad = squads[team.squad(k)];
    const Steps& steps = squad.steps;
    Barrier& barrier = barriers.squads[team.squad(k)];
    for (auto block = squad.blocks.rbegin(); block != squad.blocks.rend(); ++block) {
      squad.pack_block(team.place(k), *block);
      for (int64_t s = block->last - 1; s >= block->first; --s) {
        const int64_t t = steps.time(s), offset = steps.offset(t), count = steps.rows(t);
        const int64_t place = steps.place(t) - block->begin;
        for (int64_t r = 0; r < count; ++r) open(k, r, offset + r), output(k, r, offset + r);
        barrier.wait();
        for (int64_t r = 0; r < count; ++r) gates(k, r, offset + r, steps.before(s, r));
        for (const auto& total : {m.dshift, m.dgain_x, m.dgain_h, m.dgain_c, m.dshift_c})
          total.flush();
        barrier.wait();
        for (int64_t r = 0; r < count; ++r) summed(k, r, offset + r, place + r);
        barrier.wait();
        multiply<T>({squad.dh_sums + place * 4 * H, 4 * H}, count, m.w_hh, 4 * H,
                    {squad.dh + team.first(k), H}, n);
      }
      barrier.wait();
      squad.compute(team.place(k), *block, block != squad.blocks.rbegin());
      barrier.wait();  // the next block writes to what this one reads
    }
    barriers.all.wait();
    finish(k);
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

  // From dh' back through h' = o tanh(LN(c')), up to the norm.
  void output(int k, int64_t r, int64_t at) {
    const Member& m = members[k];
    const int64_t n = team.size(k), first = team.first(k), H = a.units;
    const T* scales = in<T>(a.scales) + at * (2 * a.groups + 2) + 2 * a.groups;
    const T mean = scales[0], inverse = scales[1];
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
      const T hat = (cell[j] - mean) * inverse;
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

  Sums<T> sums(int k, Sums<T>* Member::*parts, int64_t index, int64_t per_unit) const {
    return means<T>(team.units.members, per_unit * a.units,
                    [&](int i) { return (members[team.leader(k) + i].*parts)[index]; });
  }

  // Through the cell's norm, the cell and the gates, up to the norms of the summed inputs.
  void gates(int k, int64_t r, int64_t at, int64_t before) {
    const Member& m = members[k];
    const int64_t n = team.size(k), first = team.first(k), H = a.units;
    const int64_t wide = 2 * a.groups + 2;
    const auto s = sums(k, &Member::of_c, r, 1);
    const T* scales = in<T>(a.scales) + at * wide + 2 * a.groups;
    const T mean = scales[0], inverse = scales[1];
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
      const T hat = (cell[j] - mean) * inverse;
      dc[j] = inverse * (dhat[j] - s.plain - hat * s.along) + (1 - carry) * dc[j];
    }
    if (a.carry && before >= 0) {
      const T* of_c = in<T>(a.scales) + before * wide + 2 * a.groups;
      for (int64_t j = 0; j < n; ++j) dhat[j] = (c[j] - of_c[0]) * of_c[1];
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
    const T* scales = in<T>(a.scales) + at * (2 * a.groups + 2);
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

  void finish(int k) {
    const Member& m = members[k];
    const Mine<T> mine{team.first(k), team.size(k), a.units};
    const SquadGradients<T>& squad = squads[team.squad(k)];
    add_up(squads, team, k);
    if (team.squad(k) == 0) {  // of all squads, always in the same order
      for (int other = k + team.units.members; other < team.members(); other += team.units.members)
        for (const auto part : {&Member::dshift, &Member::dgain_x, &Member::dgain_h,
                                &Member::dgain_c, &Member::dshift_c})
          (m.*part).add(members[other].*part);
      mine.scatter(a.dbias, m.dshift.all, 4);
      mine.scatter(a.dgain_h, m.dgain_h.all, 4);
      mine.scatter(a.dgain_x, m.dgain_x.all, 4);
      mine.scatter(a.dgain_c, m.dgain_c.all, 1);
      mine.scatter(a.dbias_c, m.dshift_c.all, 1);
    }
    for (int64_t r = 0; r < team.rows(k); ++r) {
      const int64_t at = squad.steps.sequence(r) * a.units + mine.first;
      std::copy_n(squad.dh + r * a.units + mine.first, mine.n, out<T>(a.dh0) + at);
      std::copy_n(m.dc + r * mine.n, mine.n, out<T>(a.dc0) + at);
    }
  }
};
