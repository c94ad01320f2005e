// A forward pass over blocks of steps, which the LSTM and the GRU share.
#pragma once
#include "sequence.h"

// Members of every net.
template <class T> struct ForwardMember {
  int64_t n;  // units
  T *w_ih, *w_hh, *gain_x, *gain_h;
  T *u, *v;  // W_x x of a block of steps; W_h h of one step, then the gates' summed inputs
  Moments<T> *of_x, *of_h;
};

// `Net` derives from this class and adds
//   norms()                  of a term, in each row
//   lay_out(m), prepare(k, mine), finish(k)   of what its own members have
//   step(k, first, last, offset, u, barrier)  all but the products, for rows first..last-1 of a step,
//                            which lie at offset + r in arrays of all rows; W_x x begins at u
template <class Net, class T, class Member, int Gates> struct Forward {
  const Arguments& a;
  const Steps steps;
  const Team team;
  const T eps;
  Scratch scratch;
  Barriers barriers{team};
  std::vector<Member> members{size_t(team.members())};
  T* h;  // (B, H)
  int64_t rows = 0;

  explicit Forward(const Arguments& arguments)
      : a(arguments), steps(a), team(a, Gates, sizeof(T)), eps(T(a.eps)) {
    for (const auto& b : steps.blocks(kForwardRows)) rows = std::max(rows, b.end - b.begin);
  }
  void run() {
    lay_out_all();
    scratch.reserve();
    lay_out_all();
    run_team(team.members(), [this](int k) { run(k); });
  }
  Net& net() { return static_cast<Net&>(*this); }
  T* take(int64_t count) { return scratch.take<T>(count); }

  void lay_out_all() {
    h = take(a.batch * a.units);
    for (int k = 0; k < team.members(); ++k) {
      Member& m = members[k];
      const int64_t n = m.n = team.size(k), wide = padded<T>(Gates * n);
      m.w_ih = take(a.inputs * wide), m.w_hh = take(a.units * wide);
      m.gain_x = take(Gates * n), m.gain_h = take(Gates * n);
      m.u = take(rows * wide), m.v = take(a.batch * wide);
      for (auto part : {&m.of_x, &m.of_h}) *part = scratch.take<Moments<T>>(net().norms() * a.batch);
      net().lay_out(m);
    }
  }

  void prepare_all(int k) {
    const Member& m = members[k];
    const Mine<T> mine{team.first(k), team.size(k), a.units};
    mine.pack_forward(m.w_ih, a.w_ih, a.inputs, Gates);
    mine.pack_forward(m.w_hh, a.w_hh, a.units, Gates);
    mine.gather(m.gain_x, a.gain_x, Gates, 1);
    mine.gather(m.gain_h, a.gain_h, Gates, 1);
    net().prepare(k, mine);
    for (int64_t r = team.first_row(k); r < team.last_row(k, a.batch); ++r)
      std::copy_n(in<T>(a.h0) + r * a.units + mine.first, mine.n, h + r * a.units + mine.first);
    barriers.squads[team.squad(k)].wait();
  }

  void product_with_x(const Member& m, int64_t first, int64_t count, T* u) {
    const int64_t n = m.n, I = a.inputs;
    multiply<T>({in<T>(a.x) + first * I, I}, count, m.w_ih, I, {u, padded<T>(Gates * n)}, Gates * n);
  }

  void run(int k) {
    prepare_all(k);
    const Member& m = members[k];
    const int64_t n = team.size(k), first = team.first(k), H = a.units;
    const int64_t wide = padded<T>(Gates * n), lo = team.first_row(k);
    Barrier& barrier = barriers.squads[team.squad(k)];
    for (const auto& block : steps.blocks(kForwardRows)) {
      const bool alone = team.sequences.members == 1;  // then the block's rows are all mine
      if (alone) product_with_x(m, block.begin, block.end - block.begin, m.u);
      for (int64_t s = block.first; s < block.last; ++s) {
        const int64_t t = steps.time(s), offset = steps.offset(t);
        const int64_t hi = team.last_row(k, steps.rows(t)), count = std::max<int64_t>(hi - lo, 0);
        T* u = m.u + (offset - block.begin) * wide;
        if (!alone) product_with_x(m, offset + lo, count, u + lo * wide);
        multiply<T>({h + lo * H, H}, count, m.w_hh, H, {m.v + lo * wide, wide}, Gates * n);
        net().step(k, lo, hi, offset, u, barrier);
      }
    }
    for (int64_t r = team.first_row(k); r < team.last_row(k, a.batch); ++r)
      std::copy_n(h + r * H + first, n, out<T>(a.h_n) + r * H + first);
    net().finish(k);
  }

  // Number `index` of the squad's moments, of a norm over so many gates.
  Scale<T> scale(int k, Moments<T>* Member::*parts, int64_t index, int64_t gates) const {
    return together<T>(
        team.units.members, gates * a.units, eps,
        [&](int i) { return (members[team.leader(k) + i].*parts)[index]; },
        [&](int i) { return gates * team.units.size(i); });
  }
};
