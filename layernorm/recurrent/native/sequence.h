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

// The steps in the order they are computed. Rows of step t lie at offset(t), offset(t) + 1, ...;
// row r of any step belongs to the same sequence.
class Steps {
 public:
  explicit Steps(const Arguments& a) : a_(a), offsets_(a.steps + 1, 0) {
    for (int64_t t = 0; t < a.steps; ++t) offsets_[t + 1] = offsets_[t] + rows(t);
  }
  int64_t time(int64_t s) const { return a_.reverse ? a_.steps - 1 - s : s; }
  int64_t rows(int64_t t) const { return a_.batch_sizes ? a_.batch_sizes[t] : a_.batch; }
  int64_t offset(int64_t t) const { return offsets_[t]; }

  // Where the state before step s of row r lies in an array of all steps; -1: the initial state.
  int64_t before(int64_t s, int64_t r) const {
    if (s == 0) return -1;
    const int64_t t = time(s - 1);
    return r < rows(t) ? offset(t) + r : -1;
  }

  // Consecutive steps are taken together in products with x: steps first..last-1, which are rows
  // begin..end-1, at most `many` if that is more than one step.
  struct Block {
    int64_t first, last, begin, end;
  };
  std::vector<Block> blocks(int64_t many) const {
    std::vector<Block> all;
    for (int64_t first = 0; first < a_.steps;) {
      int64_t last = first, count = 0;
      do count += rows(time(last++));
      while (last < a_.steps && count + rows(time(last)) <= many);
      const int64_t begin = std::min(offset(time(first)), offset(time(last - 1)));
      all.push_back({first, last, begin, begin + count});
      first = last;
    }
    return all;
  }

 private:
  const Arguments& a_;
  std::vector<int64_t> offsets_;
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
// member k's part begins at gates * begin(k). Call work(row, place, count) for every run of weight
// rows row..row+count-1, whose summed inputs are at place..place+count-1.
template <class Work> inline void for_each_run(Shares units, int gates, Work work) {
  for (int k = 0; k < units.members; ++k)
    for (int g = 0; g < gates; ++g)
      work(g * units.total + units.begin(k), gates * units.begin(k) + g * units.size(k),
           units.size(k));
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

// What follows a block of backward steps: from the gradients of its summed inputs (rows, gates * H)
//   dW_hh += dh_sumsᵀ h_before,   dW_ih += dx_sumsᵀ x,   dx = dx_sums W_ih
// Each member of the team computes a share of the weights' rows and of dx's rows.
template <class T> struct BlockGradients {
  const Arguments& a;
  const Steps& steps;
  const Team& team;
  const int gates;
  T *w_ih, *x, *h;  // packed matrices
  const T** rows;   // members' pointers, `most` each
  int64_t most;

  BlockGradients(const Arguments& a, const Steps& steps, const Team& team, int gates)
      : a(a), steps(steps), team(team), gates(gates) {}

  void lay_out(Scratch& scratch, int64_t block_rows) {
    const int64_t wide = gates * a.units;
    w_ih = scratch.take<T>(wide * padded<T>(a.inputs));
    x = scratch.take<T>(block_rows * padded<T>(a.inputs));
    h = scratch.take<T>(block_rows * padded<T>(a.units));
    most = std::max(wide, block_rows);
    rows = scratch.take<const T*>(most * team.members());
  }

  // Member k's part of what all read; a barrier must follow. Once for the weights, once a block.
  void pack_weights(int k) {
    if (!a.dx) return;
    const T** of = rows + most * k;
    ordered_rows(of, a.w_ih, a.inputs, 0, team.units, gates);
    pack_rows(w_ih, gates * a.units, a.inputs, [=](int64_t i) { return of[i]; }, k,
              team.members());
  }
  void pack_block(int k, const Steps::Block& block) {
    const int64_t H = a.units, I = a.inputs, count = block.end - block.begin;
    const T** before = rows + most * k;
    for (int64_t s = block.first; s < block.last; ++s) {
      const int64_t t = steps.time(s), to = steps.offset(t) - block.begin;
      for (int64_t r = 0; r < steps.rows(t); ++r) {
        const int64_t at = steps.before(s, r);
        before[to + r] = at < 0 ? in<T>(a.h0) + r * H : in<T>(a.y) + at * H;
      }
    }
    const T* from = in<T>(a.x) + block.begin * I;
    pack_rows(h, count, H, [=](int64_t i) { return before[i]; }, k, team.members());
    pack_rows(x, count, I, [=](int64_t i) { return from + i * I; }, k, team.members());
  }

  void compute(int k, const Steps::Block& block, bool add, const T* dh_sums, const T* dx_sums) {
    const int64_t H = a.units, I = a.inputs, wide = gates * H, count = block.end - block.begin;
    const Shares mine{team.size(k), team.sequences.members};  // my units are the squads' together
    const int64_t begin = mine.begin(team.squad(k)), n = mine.size(team.squad(k));
    for (int g = 0; g < gates; ++g) {
      const int64_t place = gates * team.first(k) + g * team.size(k) + begin;
      const int64_t row = g * H + team.first(k) + begin;
      multiply<T>({dh_sums + place, 1, wide}, n, h, count, {out<T>(a.dw_hh) + row * H, H}, H, add);
      multiply<T>({dx_sums + place, 1, wide}, n, x, count, {out<T>(a.dw_ih) + row * I, I}, I, add);
    }
    if (!a.dx) return;
    const Shares share{count, team.members()};
    const int64_t from = share.begin(k);
    multiply<T>({dx_sums + from * wide, wide}, share.size(k), w_ih, wide,
                {out<T>(a.dx) + (block.begin + from) * I, I}, I);
  }
};
