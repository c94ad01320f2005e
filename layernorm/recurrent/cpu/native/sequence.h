// What the LSTM and the GRU share: the arguments, the order of time steps, a member's units.
#pragma once
#include <algorithm>
#include <deque>
#include <vector>

#include "gemm.h"
#include "norm.h"
#include "team.h"

// Filled in by Python (layernorm/recurrent/fused.py has the same list). Null: not there.
struct Arguments {
  int64_t steps, batch, inputs, units;  // T, B, I, H
  const int64_t* batch_sizes;           // rows of each step, non-increasing; null: always B
  int64_t threads, reverse;
  int64_t terms;   // how many norms the summed inputs pass: 2 (each term its own), 1 (the sum), 0
  int64_t groups;  // LSTM: norms per row, over all gates (1) or over each gate (4)
  int64_t carry;   // LSTM: the normalized cell is the state
  double eps;
  const void *x, *h0, *c0, *w_ih, *w_hh, *bias;
  const void *gain_x, *bias_x, *gain_h, *bias_h, *gain_c, *bias_c;
  void *y, *h_n, *c_n;
  void *hat_x, *hat_h, *gates, *cell, *scales;  // kept for the backward pass; null in inference
  const void *dy, *dh_n, *dc_n;
  void *dx, *dh0, *dc0, *dw_ih, *dw_hh, *dbias, *dbias_n, *dgain_x, *dgain_h, *dgain_c, *dbias_c;
};

// Rows that products with x take at once.
constexpr int64_t kForwardRows = 128;   // W_x x of a block stays in the cache until it is used
constexpr int64_t kBackwardRows = 512;  // long sums for the weights' gradients

// The steps in the order they are computed, for some of the sequences: `many` from `first` on. In
// arrays of all rows, these sequences' rows of step t lie at offset(t), offset(t) + 1, ...; row r of
// any step belongs to the same sequence. Among these sequences' rows alone they begin at place(t).
class Steps {
 public:
  explicit Steps(const Arguments& a) : Steps(a, 0, a.batch) {}
  Steps(const Arguments& a, int64_t first, int64_t many)
      : a_(a), first_(first), many_(many), offsets_(a.steps + 1, 0), places_(a.steps + 1, 0) {
    for (int64_t t = 0; t < a.steps; ++t) {
      offsets_[t + 1] = offsets_[t] + all(t);
      places_[t + 1] = places_[t] + rows(t);
    }
  }
  int64_t time(int64_t s) const { return a_.reverse ? a_.steps - 1 - s : s; }
  int64_t rows(int64_t t) const { return std::clamp<int64_t>(all(t) - first_, 0, many_); }
  int64_t offset(int64_t t) const { return offsets_[t] + first_; }
  int64_t place(int64_t t) const { return places_[t]; }
  int64_t sequence(int64_t r) const { return first_ + r; }

  // Where the state before step s of row r lies in an array of all steps; -1: the initial state.
  int64_t before(int64_t s, int64_t r) const {
    if (s == 0) return -1;
    const int64_t t = time(s - 1);
    return r < rows(t) ? offset(t) + r : -1;
  }

  // Consecutive steps are taken together in products with x: steps first..last-1, whose rows have
  // the places begin..end-1, at most `many` if that is more than one step.
  struct Block {
    int64_t first, last, begin, end;
  };
  std::vector<Block> blocks(int64_t many) const {
    std::vector<Block> all;
    for (int64_t first = 0; first < a_.steps;) {
      int64_t last = first, count = 0;
      do count += rows(time(last++));
      while (last < a_.steps && count + rows(time(last)) <= many);
      const int64_t begin = std::min(place(time(first)), place(time(last - 1)));
      all.push_back({first, last, begin, begin + count});
      first = last;
    }
    return all;
  }

 private:
  const Arguments& a_;
  int64_t first_, many_;
  std::vector<int64_t> offsets_, places_;
  int64_t all(int64_t t) const { return a_.batch_sizes ? a_.batch_sizes[t] : a_.batch; }
};

// `members` shares of a range, as equal as can be.
struct Shares {
  int64_t total;
  int members;
  int64_t begin(int k) const { return total * k / members; }
  int64_t size(int k) const { return begin(k + 1) - begin(k); }
};

// Who computes what. The sequences are divided among squads, which need nothing of each other
// while they step through time; a squad's members divide the units. Small weights, which fit into
// each core's own cache, are best with squads of one: nobody waits. Large weights are divided.
struct Team {
  Shares sequences, units;  // of squads; of the members of a squad

  Team(const Arguments& a, int gates, size_t number_bytes)
      : sequences{a.batch, 1}, units{a.units, 1} {
    constexpr size_t kCache = size_t(1) << 20;
    constexpr int64_t kFewRows = 8, kFewUnits = 32;
    const size_t weights = gates * a.units * a.units * number_bytes;
    for (int64_t each = 1; each <= a.threads; ++each) {
      const int64_t squads = a.threads / each;
      if (a.threads % each || weights / each > kCache || a.batch / squads < kFewRows) continue;
      if (each > 1 && a.units / each < kFewUnits) continue;
      sequences.members = int(squads), units.members = int(each);
      return;
    }
    units.members = int(std::clamp<int64_t>(a.units / kFewUnits, 1, a.threads));
  }
  int members() const { return sequences.members * units.members; }
  int leader(int k) const { return k - k % units.members; }  // the first of k's squad
  bool leads(int k) const { return k % units.members == 0; }
  int squad(int k) const { return k / units.members; }
  int place(int k) const { return k % units.members; }  // in the squad
  int64_t first(int k) const { return units.begin(k % units.members); }
  int64_t size(int k) const { return units.size(k % units.members); }
  int64_t first_row(int k) const { return sequences.begin(squad(k)); }
  int64_t rows(int k) const { return sequences.size(squad(k)); }
  int64_t last_row(int k, int64_t count) const { return std::min(first_row(k) + rows(k), count); }
};

// One barrier for each squad, one for everyone.
struct Barriers {
  explicit Barriers(const Team& team) : all(team.members()) {
    for (int s = 0; s < team.sequences.members; ++s) squads.emplace_back(team.units.members);
  }
  Barrier all;
  std::deque<Barrier> squads;
};

// One member's units in arrays of `gates` blocks of H: a copy with the gates side by side.
template <class T> struct Mine {
  int64_t first, n, units;
  void gather(T* to, const void* from, int gates, T otherwise = 0) const {
    for (int g = 0; g < gates; ++g)
      for (int64_t j = 0; j < n; ++j)
        to[g * n + j] = from ? static_cast<const T*>(from)[g * units + first + j] : otherwise;
  }
  void add(T* to, const void* from, int gates) const {
    if (from)
      for (int g = 0; g < gates; ++g)
        for (int64_t j = 0; j < n; ++j)
          to[g * n + j] += static_cast<const T*>(from)[g * units + first + j];
  }
  void scatter(void* to, const T* from, int gates) const {
    if (to)
      for (int g = 0; g < gates; ++g)
        std::copy_n(from + g * n, n, static_cast<T*>(to) + g * units + first);
  }
  // Weights (gates * H, K) as a packed matrix (K, gates * n) for x Wᵀ.
  void pack_forward(T* to, const void* weights, int64_t k, int gates) const {
    const T* w = static_cast<const T*>(weights);
    pack_columns(to, k, gates * n,
                 [=, this](int64_t j) { return w + (j / n * units + first + j % n) * k; });
  }
};

// Sums over time are made of each step's sum, as in the definition: it keeps float32 as exact.
template <class T> struct Total {
  T *step, *all;
  int64_t n;
  void clear() const { std::fill_n(step, n, T(0)), std::fill_n(all, n, T(0)); }
  void flush() const {
    for (int64_t j = 0; j < n; ++j) all[j] += step[j], step[j] = 0;
  }
  void add(const Total& other) const {
    for (int64_t j = 0; j < n; ++j) all[j] += other.all[j];
  }
};

template <class T> Total<T> take_total(Scratch& scratch, int64_t n) {
  return {scratch.take<T>(n), scratch.take<T>(n), n};
}
template <class T> const T* in(const void* p) { return static_cast<const T*>(p); }
template <class T> T* out(void* p) { return static_cast<T*>(p); }

// In arrays of summed inputs (rows, gates * H) each member's units lie together, gate by gate:
// member i's part begins at gates * begin(i). Call work(row, place, count) for every run of weight
// rows row..row+count-1, whose summed inputs are at place..place+count-1; of one member, or of all.
template <class Work> inline void for_each_run(Shares units, int gates, int i, Work work) {
  for (int g = 0; g < gates; ++g)
    work(g * units.total + units.begin(i), gates * units.begin(i) + g * units.size(i),
         units.size(i));
}
template <class Work> inline void for_each_run(Shares units, int gates, Work work) {
  for (int i = 0; i < units.members; ++i) for_each_run(units, gates, i, work);
}

// The weights' rows, from column `first` on, in the order of summed inputs.
template <class T>
void ordered_rows(const T** rows, const void* weights, int64_t stride, int64_t first, Shares units,
                  int gates) {
  for_each_run(units, gates, [&](int64_t row, int64_t place, int64_t count) {
    for (int64_t j = 0; j < count; ++j)
      rows[place + j] = in<T>(weights) + (row + j) * stride + first;
  });
}

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
    dh_sums = scratch.take<T>(rows * wide);
    dx_sums = one_term ? dh_sums : scratch.take<T>(rows * wide);
    dw_ih = squad ? scratch.take<T>(wide * a.inputs) : out<T>(a.dw_ih);
    dw_hh = squad ? scratch.take<T>(wide * a.units) : out<T>(a.dw_hh);
    w_ih = scratch.take<T>(wide * padded<T>(a.inputs));
    x = scratch.take<T>(rows * padded<T>(a.inputs));
    h = scratch.take<T>(rows * padded<T>(a.units));
    for (auto& pointers : found) pointers = scratch.take<const T*>(std::max(wide, rows));
    for (auto& copy : copies) copy = scratch.take<T>(rows * kTileRows);
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
