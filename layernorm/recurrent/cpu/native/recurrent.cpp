// The entry points that Python calls (layernorm/recurrent/cpu/binding.py), for float and double.
#include "gru_backward.h"
#include "lstm.h"
#include "lstm_backward.h"

#include <system_error>

// The arguments' names and kinds, as Python's `struct` calls them.
#define IS_WHOLE(name) #name " q "
#define IS_REAL(name) #name " d "
#define IS_POINTER(name) #name " P "

template <class Work> int attempt(const Arguments* arguments) {
  try {
    Work(*arguments).run();
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  } catch (const std::system_error&) {  // no more threads
    return 2;
  }
}

extern "C" {
void use_gomp(GompParallel parallel, GompCount count) { gomp_parallel = parallel, gomp_count = count; }
void use_huge_pages(void* from, int64_t bytes) { advise(from, size_t(bytes)); }
const char* arguments_layout() {
  return ARGUMENTS(IS_WHOLE, IS_POINTER, IS_REAL, IS_POINTER, IS_POINTER);
}
int arguments_size() { return int(sizeof(Arguments)); }

int gru_forward_float(const Arguments* a) { return attempt<GruForward<float>>(a); }
int gru_forward_double(const Arguments* a) { return attempt<GruForward<double>>(a); }
int gru_backward_float(const Arguments* a) { return attempt<GruBackward<float>>(a); }
int gru_backward_double(const Arguments* a) { return attempt<GruBackward<double>>(a); }
int lstm_forward_float(const Arguments* a) { return attempt<LstmForward<float>>(a); }
int lstm_forward_double(const Arguments* a) { return attempt<LstmForward<double>>(a); }
int lstm_backward_float(const Arguments* a) { return attempt<LstmBackward<float>>(a); }
int lstm_backward_double(const Arguments* a) { return attempt<LstmBackward<double>>(a); }
}
