// Shared by the LSTM and the GRU: the arguments, the order of time steps, a member's units.
#pragma once
#include <algorithm>
#include <deque>
#include <vector>

#include "gemm.h"
#include "norm.h"
#include "team.h"

// All arguments of a call: whole numbers, the rows of each step, a real number, arrays that are read
// and arrays that are written; null: not there. Python asks for names and order (arguments_layout).
#define ARGUMENTS(WHOLE, SIZES, REAL, IN, OUT)                                                       \
  WHOLE(steps) WHOLE(batch) WHOLE(inputs) WHOLE(units) /* T, B, I, H */                              \
  SIZES(batch_sizes)           /* non-increasing; null: always B */                                  \
  WHOLE(threads) WHOLE(reverse)                                                                      \
  WHOLE(terms)  /* how many norms the summed inputs pass: 2 (each term its own), 1 (the sum), 0 */   \
  WHOLE(groups) /* LSTM: norms per row, over all gates (1) or over each gate (4) */                  \
  WHOLE(carry)  /* LSTM: the normalized cell is the state */                                         \
  REAL(eps)                                                                                          \
  IN(x) IN(h0) IN(c0) IN(w_ih) IN(w_hh) IN(bias)                                                     \
  IN(gain_x) IN(bias_x) IN(gain_h) IN(bias_h) IN(gain_c) IN(bias_c)                                  \
  OUT(y) OUT(h_n) OUT(c_n)                                                                           \
  OUT(hat_x) OUT(hat_h) OUT(gates) OUT(cell) OUT(scales) /* for the gradient; null in inference */   \
  IN(dy) IN(dh_n) IN(dc_n)                                                                           \
  OUT(dx) OUT(dh0) OUT(dc0) OUT(dw_ih) OUT(dw_hh) OUT(dbias) OUT(dbias_n)                            \
  OUT(dgain_x) OUT(dgain_h) OUT(dgain_c) OUT(dbias_c)

#define WHOLE(name) int64_t name;
#define SIZES(name) const int64_t* name;
#define REAL(name) double name;
#define IN(name) const void* name;
#define OUT(name) void* name;
struct Arguments {
  ARGUMENTS(WHOLE, SIZES, REAL, IN, OUT)
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

// The sequences in stretches of nearly equally many rows: those of packed sequences, which are sorted
// by length, are fewer in the first stretch than in the last.
struct Stretches {
  const int members;
  std::vector<int64_t> begins;

  Stretches(const Arguments& a, int members) : members(members), begins{0} {
    std::vector<int64_t> rows{0};  // of the sequences before each
    for (int64_t r = 0, length = a.steps; r < a.batch; ++r) {
      while (a.batch_sizes && length && a.batch_sizes[length - 1] <= r) --length;
      rows.push_back(rows.back() + length);
    }
    int64_t r = 0;
    for (int k = 1; k < members; ++k, begins.push_back(r)) {
      const int64_t share = rows.back() * k / members;
      while (r < a.batch && rows[r + 1] - share < share - rows[r]) ++r;
    }
    begins.push_back(a.batch);
  }
  int64_t begin(int k) const { return begins[k]; }
  int64_t size(int k) const { return begins[k + 1] - begins[k]; }
};

// The division of the work. The sequences are divided among squads, which need nothing of each other
// while they step through time; a squad's members divide the units. Small weights, which fit into
// each core's own cache, are best with squads of one: nobody waits. Large weights are divided.
struct Division {
  int squads = 1, each = 1;

  Division(const Arguments& a, size_t weight_bytes) {
    constexpr size_t kCache = size_t(1) << 20;
    constexpr int64_t kFewRows = 8, kFewUnits = 32;
    for (int64_t n = 1; n <= a.threads; ++n) {
      const int64_t many = a.threads / n;
      if (a.threads % n || weight_bytes / n > kCache || a.batch / many < kFewRows) continue;
      if (n > 1 && a.units / n < kFewUnits) continue;
      squads = int(many), each = int(n);
      return;
    }
    each = int(std::clamp<int64_t>(a.units / kFewUnits, 1, a.threads));
  }
};

struct Team {
  Stretches sequences;  // of squads
  Shares units;         // of the members of a squad

  Team(const Arguments& a, int gates, size_t number_bytes)
      : Team(a, Division(a, gates * a.units * a.units * number_bytes)) {}
  Team(const Arguments& a, Division d) : sequences(a, d.squads), units{a.units, d.each} {}

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
