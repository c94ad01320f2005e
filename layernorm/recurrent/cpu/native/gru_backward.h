// The gradient of GruForward, from the last step to the first; the gates are computed again from
// the normalized summed inputs that the forward pass has kept.
#pragma once
#include "gru.h"

template <class T> class GruBackward {
 public:
  explicit GruBackward(const Arguments& arguments)
      : a(arguments), team(a, 3, sizeof(T)) {
    for (int s = 0; s < team.sequences.members; ++s) squads.emplace_back(a, team, s, 3);
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
    T *gain_x, *gain_h, *shift_x, *shift_h;
    T *p, *ph;      // gradients of the terms of x and of h, after their norms' gains and biases
    Sums<T> *of_x, *of_h;
    Total<T> dshift_x, dshift_h, dgain_x, dgain_h;
  };
  const Arguments& a;
  const Team team;
  Scratch scratch;
  Barriers barriers{team};
  std::vector<SquadGradients<T>> squads;
  std::vector<Member> members{size_t(team.members())};

  void lay_out() {
    for (int s = 0; s < team.sequences.members; ++s) squads[s].lay_out(scratch, s, false);
    for (int k = 0; k < team.members(); ++k) {
      const int64_t n = team.size(k), sequences = team.rows(k);
      auto take = [&](int64_t count) { return scratch.take<T>(count); };
      auto parts = [&] { return scratch.take<Sums<T>>(kGruNorms * sequences); };
      auto total = [&] { return take_total<T>(scratch, 3 * n); };
      members[k] = {take(3 * a.units * padded<T>(n)), scratch.take<const T*>(3 * a.units),
                    take(3 * n), take(3 * n), take(3 * n), take(3 * n),
                    take(sequences * 3 * n), take(sequences * 3 * n), parts(), parts(),
                    total(), total(), total(), total()};
    }
  }

  void prepare(int k) {
    const Member& m = members[k];
    const Mine<T> mine{team.first(k), team.size(k), a.units};
    const int64_t H = a.units;
    SquadGradients<T>& squad = squads[team.squad(k)];
    squad.pack_weights(team.place(k));
    ordered_rows(m.rows, a.w_hh, H, mine.first, team.units, 3);
    pack_rows(m.w_hh, 3 * H, mine.n, [&](int64_t i) { return m.rows[i]; });
    mine.gather(m.gain_x, a.gain_x, 3, 1);
    mine.gather(m.gain_h, a.gain_h, 3, 1);
    mine.gather(m.shift_x, a.bias_x, 3);
    mine.add(m.shift_x, a.bias, 3);
    mine.gather(m.shift_h, a.bias_h, 3);
    for (const auto& t : {m.dshift_x, m.dshift_h, m.dgain_x, m.dgain_h}) t.clear();
    for (int64_t r = 0; r < team.rows(k); ++r)
      for (int64_t j = 0; j < mine.n; ++j) {
        const int64_t at = squad.steps.sequence(r) * H + mine.first + j;
        squad.dh[r * H + mine.first + j] = a.dh_n ? in<T>(a.dh_n)[at] : 0;
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
        for (int64_t r = 0; r < count; ++r) gates(k, r, offset + r, steps.before(s, r));
        for (const auto& total : {m.dshift_x, m.dshift_h, m.dgain_x, m.dgain_h}) total.flush();
        barrier.wait();
        for (int64_t r = 0; r < count; ++r) summed(k, r, offset + r, place + r);
        barrier.wait();
        multiply<T>({squad.dh_sums + place * 3 * H, 3 * H}, count, m.w_hh, 3 * H,
                    {squad.dh + team.first(k), H}, n, true);
      }
      barrier.wait();
      squad.compute(team.place(k), *block, block != squad.blocks.rbegin());
      barrier.wait();  // the next block writes to what this one reads
    }
    barriers.all.wait();
    finish(k);
  }

  // From dh' through the update and the gates, up to the norms; dh keeps what goes around them.
  void gates(int k, int64_t r, int64_t at, int64_t before) {
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
    for (int q = 0; q < kGruNorms; ++q) {
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
    for (int q = 0; q < kGruNorms; ++q) {
      auto part = [&](Sums<T>* Member::*parts) {
        return means<T>(team.units.members, kGruGates[q] * H, [&](int i) {
          return (members[team.leader(k) + i].*parts)[r * kGruNorms + q];
        });
      };
      const auto of_x = part(&Member::of_x), of_h = part(&Member::of_h);
      const int64_t i = kGruFrom[q] * n, each = kGruGates[q] * n;
      through(squad.dx_sums + to + i, m.p + r * 3 * n + i, m.gain_x + i, in<T>(a.hat_x) + place + i,
              scales[q], of_x, each);
      through(squad.dh_sums + to + i, m.ph + r * 3 * n + i, m.gain_h + i, in<T>(a.hat_h) + place + i,
              scales[kGruNorms + q], of_h, each);
    }
  }

  void finish(int k) {
    const Member& m = members[k];
    const Mine<T> mine{team.first(k), team.size(k), a.units};
    const SquadGradients<T>& squad = squads[team.squad(k)];
    add_up(squads, team, k);
    if (team.squad(k) == 0) {  // of all squads, always in the same order
      for (int other = k + team.units.members; other < team.members(); other += team.units.members)
        for (const auto part : {&Member::dshift_x, &Member::dshift_h, &Member::dgain_x,
                                &Member::dgain_h})
          (m.*part).add(members[other].*part);
      mine.scatter(a.dbias, m.dshift_x.all, 3);
      mine.scatter(a.dbias_n, m.dshift_h.all, 3);
      mine.scatter(a.dgain_x, m.dgain_x.all, 3);
      mine.scatter(a.dgain_h, m.dgain_h.all, 3);
    }
    for (int64_t r = 0; r < team.rows(k); ++r) {
      const int64_t at = squad.steps.sequence(r) * a.units + mine.first;
      std::copy_n(squad.dh + r * a.units + mine.first, mine.n, out<T>(a.dh0) + at);
    }
  }
};
