// This file defines the functions that -fsanitize=thread calls for each access (races.h).
#include "race_state.h"

#define EMULATED_ACCESS(name, bytes, kind)                                              \
  void __tsan_##name(void* address) {                                                   \
    emulated::races::touch(address, bytes, emulated::races::Kind::kind, EMULATED_HERE); \
  }
#define EMULATED_ACCESSES(bytes) EMULATED_ACCESS(read##bytes, bytes, read) EMULATED_ACCESS(write##bytes, bytes, write)
#define EMULATED_UNALIGNED(bytes) \
  EMULATED_ACCESS(unaligned_read##bytes, bytes, read) EMULATED_ACCESS(unaligned_write##bytes, bytes, write)
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void*) {}
// clang-format off
EMULATED_ACCESSES(1) EMULATED_ACCESSES(2) EMULATED_ACCESSES(4) EMULATED_ACCESSES(8) EMULATED_ACCESSES(16)
EMULATED_UNALIGNED(2) EMULATED_UNALIGNED(4) EMULATED_UNALIGNED(8) EMULATED_UNALIGNED(16)
    // clang-format on
    void __tsan_read_range(void* address, size_t bytes) {
  emulated::races::touch(address, bytes, emulated::races::Kind::read, EMULATED_HERE);
}
void __tsan_write_range(void* address, size_t bytes) {
  emulated::races::touch(address, bytes, emulated::races::Kind::write, EMULATED_HERE);
}
__attribute__((visibility("hidden"))) void* memcpy(void* to, const void* from, size_t bytes) noexcept {
  emulated::races::touch(from, bytes, emulated::races::Kind::read, EMULATED_HERE);
  emulated::races::touch(to, bytes, emulated::races::Kind::write, EMULATED_HERE);
  void* const first = to;
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes)::"memory");
  return first;
}
__attribute__((visibility("hidden"))) void* memset(void* to, int byte, size_t bytes) noexcept {
  emulated::races::touch(to, bytes, emulated::races::Kind::write, EMULATED_HERE);
  void* const first = to;
  asm volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(byte) : "memory");
  return first;
}
}
#undef EMULATED_ACCESS
#undef EMULATED_ACCESSES
#undef EMULATED_UNALIGNED
