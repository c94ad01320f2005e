// Threads that work through the time steps together, and the memory they share.
//
// The members of a team split the hidden units: each computes its own units of every row, so each
// keeps its part of the weights in its own cache. What a step needs of the other units (moments,
// the new state) is exchanged at barriers.
#pragma once
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(from, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(from, bytes)
#endif

// All members wait for each other. Waiting spins, since a step takes microseconds, and gives the
// processor away when it takes long (another process has it).
class Barrier {
 public:
  explicit Barrier(int members) : members_(members) {}
  void wait() {
    if (members_ == 1) return;
    const int round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == members_ - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
      if (spins > 20000) std::this_thread::yield();
#if defined(__x86_64__)
      else _mm_pause();
#endif
    }
  }

 private:
  const int members_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> round_{0};
};

// libgomp's entry points, handed in by Python where torch has loaded them: sharing torch's threads
// avoids a second pool that would compete with it for the cores.
using GompParallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
using GompCount = int (*)();
inline GompParallel gomp_parallel = nullptr;
inline GompCount gomp_count = nullptr;

// Run work(member) for members 0..members-1, all at the same time. Since they wait for each other,
// none begins before all are there; std::system_error if one cannot be had.
inline void run_team(int members, const std::function<void(int)>& work) {
  struct Shared {
    const std::function<void(int)>& work;
    const int members;
    std::atomic<int> next{0};
    std::atomic<bool> alone{false};
  } shared{work, members};
  if (members > 1 && gomp_parallel && gomp_count) {
    auto enter = [](void* data) {
      auto& s = *static_cast<Shared*>(data);
      if (gomp_count() < s.members) s.alone = true;  // inside another parallel region
      else if (const int i = s.next++; i < s.members) s.work(i);
    };
    gomp_parallel(enter, &shared, unsigned(members), 0);
    if (!shared.alone) return;
  }
  std::vector<std::thread> others;
  std::atomic<int> go{0};  // -1: not all members are there
  auto begin = [&](int i) {
    while (!go) std::this_thread::yield();
    if (go > 0) work(i);
  };
  try {
    for (int i = 1; i < members; ++i) others.emplace_back(begin, i);
  } catch (...) {
    go = -1;
    for (auto& other : others) other.join();
    throw;
  }
  go = 1;
  work(0);
  for (auto& other : others) other.join();
}

// Huge pages for large memory: a fault for each 4 kB costs more than the arithmetic on it.
inline void advise(void* from, size_t bytes) {
#if defined(MADV_HUGEPAGE)
  constexpr uintptr_t page = 4096;
  const uintptr_t begin = (uintptr_t(from) + page - 1) / page * page;
  const uintptr_t end = (uintptr_t(from) + bytes) / page * page;
  if (bytes >= (size_t(1) << 21)) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

// Scratch memory, kept between calls: fresh memory would be faulted in again every time.
class Scratch {
 public:
  Scratch() {
    std::lock_guard<std::mutex> lock(mutex());
    if (!kept().empty()) {
      block_ = kept().back();
      kept().pop_back();
    }
  }
  Scratch(const Scratch&) = delete;
  ~Scratch() {
    std::lock_guard<std::mutex> lock(mutex());
    if (kept().size() < 4) kept().push_back(block_);
    else std::free(block_.data);
  }

  // Count what will be taken, then reserve, then take the same again.
  template <class T> T* take(size_t count) {
    const size_t begin = used_;
    used_ += (count * sizeof(T) + 127) / 64 * 64;
    if (!reserved_) return nullptr;
    ASAN_UNPOISON_MEMORY_REGION(block_.data + begin, count * sizeof(T));
    return reinterpret_cast<T*>(block_.data + begin);
  }
  void reserve() {
    if (used_ > block_.bytes) {
      constexpr size_t huge = size_t(1) << 21;
      std::free(block_.data);
      block_ = {};
      const size_t bytes = (used_ + huge - 1) / huge * huge;
      void* data = std::aligned_alloc(huge, bytes);
      if (!data) throw std::bad_alloc();
      block_ = {static_cast<char*>(data), bytes};
      advise(data, bytes);
    }
    ASAN_POISON_MEMORY_REGION(block_.data, block_.bytes);  // until it is taken
    reserved_ = true;
    used_ = 0;
  }

 private:
  struct Block {
    char* data = nullptr;
    size_t bytes = 0;
  };
  static std::mutex& mutex() {
    static std::mutex m;
    return m;
  }
  static std::vector<Block>& kept() {
    static auto& blocks = *new std::vector<Block>;  // outlives every thread
    return blocks;
  }
  Block block_;
  size_t used_ = 0;
  bool reserved_ = false;
};
