// A backward pass over blocks of steps, which the LSTM and the GRU share.
#pragma once
#include <array>

#include "sequence.h"

// A squad's backward pass works on blocks of steps. From the gradients of a block's summed inputs
// (rows, gates * H) follow
//   dW_hh += dh_sumsᵀ h_before,   dW_ih += dx_sumsᵀ x,   dx = dx_sums W_ih
// Each squad sums over its own sequences, so that none reads what another has just written: to write
// again where another core has read takes longer than to compute what is written. Each member of a
// squad computes a share of the weights' rows and of dx's rows.
template <class T> struct SquadGradients {
  const Arguments& a;
  const Team& team;
  const int gates;
  const Steps steps;
  const std::vector<Steps::Block> blocks;
  int64_t rows = 0;           // of the largest block
  T *dh, *dh_sums, *dx_sums;  // of a step (sequences, H); of a block (rows, gates * H)
  T *dw_ih, *dw_hh;           // sums over this squad's sequences
  T *w_ih, *x, *h;            // packed matrices
  std::vector<const T**> found;  // members' pointers to rows
  std::vector<T*> copies;        // see multiply_transposed

  SquadGradients(const Arguments& a, const Team& team, int squad, int gates)
      : a(a), team(team), gates(gates),
        steps(a, team.sequences.begin(squad), team.sequences.size(squad)),
        blocks(steps.blocks(kBackwardRows)), found(team.units.members), copies(found.size()) {
    for (const auto& b : blocks) rows = std::max(rows, b.end - b.begin);
  }

  void lay_out(Scratch& scratch, int squad, bool one_term) {
    const int64_t wide = gates * a.units;
    dh = scratch.take<T>(team.sequences.size(squad) * a.units);
    dh_sums = scratch.take<T>(rows * wide + kCopied);
    dx_sums = one_term ? dh_sums : scratch.take<T>(rows * wide + kCopied);
    dw_ih = squad ? scratch.take<T>(wide * a.inputs) : out<T>(a.dw_ih);
    dw_hh = squad ? scratch.take<T>(wide * a.units) : out<T>(a.dw_hh);
    w_ih = scratch.take<T>(wide * padded<T>(a.inputs));
    x = scratch.take<T>(rows * padded<T>(a.inputs));
    h = scratch.take<T>(rows * padded<T>(a.units));
    for (auto& pointers : found) pointers = scratch.take<const T*>(std::max(wide, rows));
    for (auto& copy : copies) copy = scratch.take<T>(rows * kCopied);
  }

  // Member i's part of what the squad reads; a barrier must follow. Once for the weights, once a
  // block.
  void pack_weights(int i) {
    if (!a.dx) return;
    const T** of = found[i];
    ordered_rows(of, a.w_ih, a.inputs, 0, team.units, gates);
    pack_rows(w_ih, gates * a.units, a.inputs, [=](int64_t row) { return of[row]; }, i,
              team.units.members);
  }
  void pack_block(int i, const Steps::Block& block) {
    const int64_t H = a.units, I = a.inputs;
    pack_of_block(h, H, i, block, [&](int64_t s, int64_t r) {
      const int64_t at = steps.before(s, r);
      return at < 0 ? in<T>(a.h0) + steps.sequence(r) * H : in<T>(a.y) + at * H;
    });
    pack_of_block(x, I, i, block, [&](int64_t s, int64_t r) {
      return in<T>(a.x) + (steps.offset(steps.time(s)) + r) * I;
    });
  }
  template <class Row>
  void pack_of_block(T* packed, int64_t columns, int i, const Steps::Block& block, Row row) {
    const T** of = found[i];
    for (int64_t s = block.first; s < block.last; ++s) {
      const int64_t t = steps.time(s), to = steps.place(t) - block.begin;
      for (int64_t r = 0; r < steps.rows(t); ++r) of[to + r] = row(s, r);
    }
    pack_rows(packed, block.end - block.begin, columns, [=](int64_t at) { return of[at]; }, i,
              team.units.members);
  }

  void compute(int i, const Steps::Block& block, bool add) {
    const int64_t H = a.units, I = a.inputs, wide = gates * H, count = block.end - block.begin;
    for_each_run(team.units, gates, i, [&](int64_t row, int64_t place, int64_t n) {
      multiply_transposed<T>(dh_sums + place, wide, n, h, count, {dw_hh + row * H, H}, H, add,
                             copies[i]);
      multiply_transposed<T>(dx_sums + place, wide, n, x, count, {dw_ih + row * I, I}, I, add,
                             copies[i]);
    });
    if (!a.dx) return;
    const Shares share{count, team.units.members};
    const Panels<T> panels(I);
    for (int64_t p = 0; p < panels.count; ++p)
      for_each_stretch(block, share.begin(i), share.begin(i + 1), [&](int64_t from, int64_t at,
                                                                      int64_t n) {
        multiply_panel<T>({dx_sums + from * wide, wide}, n, w_ih, wide,
                          {out<T>(a.dx) + at * I, I}, panels, p);
      });
  }

  // The rows from..to-1 of a block, in stretches that lie together in arrays of all rows as well:
  // work(row in the block, row in such arrays, number of rows).
  template <class Work>
  void for_each_stretch(const Steps::Block& block, int64_t from, int64_t to, Work work) {
    int64_t begin = from, at = 0, n = 0;
    const int64_t first = std::min(steps.time(block.first), steps.time(block.last - 1));
    for (int64_t t = first; t < first + block.last - block.first; ++t) {
      const int64_t place = steps.place(t) - block.begin;
      const int64_t lo = std::max(from, place), hi = std::min(to, place + steps.rows(t));
      if (lo >= hi) continue;
      const int64_t there = steps.offset(t) + lo - place;
      if (n && there == at + n) {
        n += hi - lo;
        continue;
      }
      if (n) work(begin, at, n);
      begin = lo, at = there, n = hi - lo;
    }
    if (n) work(begin, at, n);
  }
};

// When all squads are done: member k's share of the sum over them, always in the same order.
template <class T>
void add_up(const std::vector<SquadGradients<T>>& squads, const Team& team, int k) {
  const SquadGradients<T>& sum = squads[0];
  const int64_t wide = sum.gates * sum.a.units;
  auto add = [&](T* SquadGradients<T>::*part, int64_t count) {
    const Shares share{count, team.members()};
    for (size_t s = 1; s < squads.size(); ++s)
      for (int64_t j = share.begin(k); j < share.begin(k + 1); ++j)
        (sum.*part)[j] += (squads[s].*part)[j];
  };
  add(&SquadGradients<T>::dw_ih, wide * sum.a.inputs);
  add(&SquadGradients<T>::dw_hh, wide * sum.a.units);
}

// Members of every net.
template <class T> struct BackwardMember {
  T* w_hh;
  const T** rows;  // of w_hh, in the order of summed inputs
  T *gain_x, *gain_h;
  T* p;  // of a step: gradients of the summed inputs after their norms
  Sums<T> *of_x, *of_h;
  Total<T> dgain_x, dgain_h;
};

// `Net` derives from this class and adds
//   norms(), one_term()      of a term, in each row; whether both terms have the same gradients
//   kAdd                     whether dh keeps what goes around the product
//   kTotals                  its members' sums over time
//   lay_out(m, n, sequences), prepare(k, mine), scatter(k, mine), finish(k, mine)   of its own parts
//   gates(k, s, rows, offset, barrier)   from dh' up to the norms of the summed inputs, in step s
//   summed(k, r, at, row)    through these norms; `row` of the block
template <class Net, class T, class Member, int Gates> struct Backward {
  const Arguments& a;
  const Team team;
  Scratch scratch;
  Barriers barriers{team};
  std::vector<SquadGradients<T>> squads;
  std::vector<Member> members{size_t(team.members())};

  explicit Backward(const Arguments& arguments) : a(arguments), team(a, Gates, sizeof(T)) {
    for (int s = 0; s < team.sequences.members; ++s) squads.emplace_back(a, team, s, Gates);
  }
  void run() {
    lay_out_all();
    scratch.reserve();
    lay_out_all();
    run_team(team.members(), [this](int k) { run(k); });
  }
  Net& net() { return static_cast<Net&>(*this); }
  T* take(int64_t count) { return scratch.take<T>(count); }
  Total<T> total(int64_t count) { return take_total<T>(scratch, count); }

  void lay_out_all() {
    for (int s = 0; s < team.sequences.members; ++s)
      squads[s].lay_out(scratch, s, net().one_term());
    for (int k = 0; k < team.members(); ++k) {
      Member& m = members[k];
      const int64_t n = team.size(k), sequences = team.rows(k);
      m.w_hh = take(Gates * a.units * padded<T>(n));
      m.rows = scratch.take<const T*>(Gates * a.units);
      m.gain_x = take(Gates * n), m.gain_h = take(Gates * n), m.p = take(sequences * Gates * n);
      for (auto part : {&m.of_x, &m.of_h}) *part = scratch.take<Sums<T>>(net().norms() * sequences);
      m.dgain_x = total(Gates * n), m.dgain_h = total(Gates * n);
      net().lay_out(m, n, sequences);
    }
  }

  void prepare_all(int k) {
    const Member& m = members[k];
    const Mine<T> mine{team.first(k), team.size(k), a.units};
    const int64_t H = a.units;
    SquadGradients<T>& squad = squads[team.squad(k)];
    squad.pack_weights(team.place(k));
    ordered_rows(m.rows, a.w_hh, H, mine.first, team.units, Gates);
    pack_rows(m.w_hh, Gates * H, mine.n, [&](int64_t i) { return m.rows[i]; });
    mine.gather(m.gain_x, a.gain_x, Gates, 1);
    mine.gather(m.gain_h, a.gain_h, Gates, 1);
    for (const auto part : Net::kTotals) (m.*part).clear();
    for (int64_t r = 0; r < team.rows(k); ++r)
      for (int64_t j = mine.first; j < mine.first + mine.n; ++j)
        squad.dh[r * H + j] = a.dh_n ? in<T>(a.dh_n)[squad.steps.sequence(r) * H + j] : 0;
    net().prepare(k, mine);
  }

  void run(int k) {
    prepare_all(k);
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
        net().gates(k, s, count, offset, barrier);
        for (const auto part : Net::kTotals) (m.*part).flush();
        barrier.wait();
        for (int64_t r = 0; r < count; ++r) net().summed(k, r, offset + r, place + r);
        barrier.wait();
        multiply<T>({squad.dh_sums + place * Gates * H, Gates * H}, count, m.w_hh, Gates * H,
                    {squad.dh + team.first(k), H}, n, Net::kAdd);
      }
      barrier.wait();
      squad.compute(team.place(k), *block, block != squad.blocks.rbegin());
      barrier.wait();  // the next block writes to what this one reads
    }
    barriers.all.wait();
    finish_all(k);
  }

  // Number `index` of the squad's sums, of a norm over so many gates.
  Sums<T> sums(int k, Sums<T>* Member::*parts, int64_t index, int64_t gates) const {
    return means<T>(team.units.members, gates * a.units,
                    [&](int i) { return (members[team.leader(k) + i].*parts)[index]; });
  }

  void finish_all(int k) {
    const Member& m = members[k];
    const Mine<T> mine{team.first(k), team.size(k), a.units};
    const SquadGradients<T>& squad = squads[team.squad(k)];
    add_up(squads, team, k);
    if (team.squad(k) == 0) {  // of all squads, always in the same order
      for (int other = k + team.units.members; other < team.members(); other += team.units.members)
        for (const auto part : Net::kTotals) (m.*part).add(members[other].*part);
      mine.scatter(a.dgain_x, m.dgain_x.all, Gates);
      mine.scatter(a.dgain_h, m.dgain_h.all, Gates);
      net().scatter(k, mine);
    }
    for (int64_t r = 0; r < team.rows(k); ++r)
      std::copy_n(squad.dh + r * a.units + mine.first, mine.n,
                  out<T>(a.dh0) + squad.steps.sequence(r) * a.units + mine.first);
    net().finish(k, mine);
  }
};
