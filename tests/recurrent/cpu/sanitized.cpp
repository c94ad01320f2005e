// What `make sanitize` runs: the kernels of the fused path, for sanitizers to watch. Every net and
// both types of number; teams and squads of threads; sizes around those of vectors, tiles and
// blocks; sequences that end early; NaN; two callers at once. Each array has memory of its own, of
// exactly its size. Whether the numbers are right is asked by test_operators.py.
#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <type_traits>

#include "../../../layernorm/recurrent/cpu/native/recurrent.cpp"

#ifdef _OPENMP  // torch's threads; ThreadSanitizer does not understand those
extern "C" {
void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);
int omp_get_num_threads();
}
#endif

struct Net {
  const char* name;
  int64_t gates, terms, groups, carry;
  bool norms = true;
};
constexpr Net kNets[] = {{"paper", 4, 2, 1, 0},     {"joint", 4, 1, 1, 0},   {"per_gate", 4, 1, 4, 1},
                         {"cell_only", 4, 0, 1, 0}, {"carried", 4, 2, 1, 1}, {"gru", 3, 2, 2, 0},
                         {"lstm without norms", 4, 0, 1, 0, false},
                         {"gru without norms", 3, 2, 2, 0, false}};

struct Shape {
  std::vector<int64_t> rows;  // of each step
  int64_t inputs, units;
};
const Shape kShapes[] = {
    {{1}, 1, 1},
    {{3, 3, 3}, 50, 17},
    {{9, 9}, 16, 64},
    {{5, 5, 4, 2, 2, 1}, 7, 101},              // members of a team with different shares
    {{26, 26, 20, 11, 9, 3}, 7, 97},           // squads, whose sequences end at different times
    {std::vector<int64_t>(11, 60), 3, 5},      // two blocks of the backward pass
    {{40, 40, 40, 40, 40, 40, 17, 3}, 5, 150}  // squads of several members
};

template <class T> class Arrays {
 public:
  explicit Arrays(unsigned seed) : draw_(seed) {}
  T* take(int64_t count) {
    T* array = (owned_.emplace_back(new T[count])).get();
    std::normal_distribution<T> normal;
    for (int64_t i = 0; i < count; ++i) array[i] = normal(draw_);
    return array;
  }

 private:
  std::mt19937 draw_;
  std::vector<std::unique_ptr<T[]>> owned_;
};

// Forward and backward. Bits of `options`: reverse, without what may be absent, NaN, inference.
template <class T> void run(const Net& net, const Shape& shape, int threads, unsigned options) {
  Arrays<T> arrays(options);
  auto take = [&](int64_t count) { return arrays.take(count); };
  const bool lstm = net.gates == 4, whole = !(options & 2), keep = !(options & 8);
  const int64_t I = shape.inputs, H = shape.units, B = shape.rows[0], wide = net.gates * H;
  int64_t N = 0;
  for (int64_t rows : shape.rows) N += rows;
  Arguments a{};
  a.steps = int64_t(shape.rows.size()), a.batch = B, a.inputs = I, a.units = H;
  a.batch_sizes = N == B * a.steps && whole ? nullptr : shape.rows.data();
  a.threads = threads, a.reverse = options & 1, a.eps = 1e-5;
  a.terms = net.terms, a.groups = net.groups, a.carry = net.carry;
  T* x = take(N * I);
  if (options & 4) x[N * I / 2] = std::numeric_limits<T>::quiet_NaN(), x[0] = 1e30;
  a.x = x, a.h0 = take(B * H), a.w_ih = take(wide * I), a.w_hh = take(wide * H);
  a.bias = whole ? take(wide) : nullptr;
  if (net.norms) {
    if (net.terms == 2) a.gain_x = take(wide), a.bias_x = take(wide);
    if (net.terms) a.gain_h = take(wide), a.bias_h = take(wide);
    if (lstm) a.gain_c = take(H), a.bias_c = take(H);
  }
  if (lstm) a.c0 = take(B * H), a.c_n = take(B * H);
  a.y = take(N * H), a.h_n = take(B * H);
  if (keep) {
    if (net.terms) a.hat_h = take(N * wide);
    else a.gates = take(N * wide);
    if (net.terms == 2) a.hat_x = take(N * wide);
    if (lstm) a.cell = take(N * H);
    a.scales = take(N * (lstm ? 2 * net.groups + 3 : 4));
  }
  bool failed = lstm ? attempt<LstmForward<T>>(&a) : attempt<GruForward<T>>(&a);
  if (keep) {
    a.dy = take(N * H), a.dh_n = whole ? take(B * H) : nullptr;
    if (lstm) a.dc_n = whole ? take(B * H) : nullptr, a.dc0 = take(B * H);
    a.dx = whole ? take(N * I) : nullptr, a.dh0 = take(B * H);
    a.dw_ih = take(wide * I), a.dw_hh = take(wide * H), a.dbias = take(wide);
    if (!lstm) a.dbias_n = take(wide);
    if (net.norms) {
      if (net.terms == 2) a.dgain_x = take(wide);
      if (net.terms) a.dgain_h = take(wide);
      if (lstm) a.dgain_c = take(H), a.dbias_c = take(H);
    }
    failed |= lstm ? attempt<LstmBackward<T>>(&a) : attempt<GruBackward<T>>(&a);
  }
  if (failed) std::puts("no memory"), std::exit(1);
}

void run_all(unsigned turn, int most_threads) {
  for (const Net& net : kNets)
    for (const Shape& shape : kShapes)
      for (int threads = 1; threads <= most_threads; ++threads) {
        turn = (turn + 1) % 16;  // of the options
        run<float>(net, shape, threads, turn);
        run<double>(net, shape, threads, turn);
      }
}

int main() {
  run_all(0, 4);
  std::thread other(run_all, 3, 2);
  run_all(6, 2);
  other.join();
#ifdef _OPENMP
  use_gomp(GOMP_parallel, omp_get_num_threads);
  run_all(9, 3);
#endif
  std::puts("clean");
}
