// Call a program's log callback. C++ exceptions end here, because they cannot pass through an interpreter.
#include <cstdint>
#include <cxxabi.h>

extern "C" int dualdnn_caught(void (*function)(int, std::uintptr_t, const void*, const char*), int severity,
                              std::uintptr_t udata, const void* record, const char* text) {
  try {
    function(severity, udata, record, text);
    return 0;
  } catch (abi::__forced_unwind&) {  // The thread is being cancelled.
    throw;
  } catch (...) {
    return 1;
  }
}
