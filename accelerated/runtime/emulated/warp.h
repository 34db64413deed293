// This header defines barriers, warp operations and tensor-core instructions under CUDA's names.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "races.h"

#define EMULATED_INLINE inline __attribute__((always_inline))
// A template function instantiates the templates that it calls only in modules that use it.
#define EMULATED_LAZY template <int = 0> EMULATED_INLINE
#define EMULATED_SITE_PARAMETERS const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define EMULATED_SITE(operation) (emulated::Site{operation, file, line})

namespace emulated {

// The last lane to arrive calls one of these for all lanes. They are defined in warp_operations.cpp, compiled once.
void exchange_values(Thread* warp, unsigned lanes);
void exchange_votes(Thread* warp, unsigned lanes);
template <class Element> void multiply(Thread* warp, unsigned lanes);
template <int matrices, bool transposed> void load_matrices(Thread* warp, unsigned lanes);
void store_matrices(Thread* warp, unsigned lanes);

template <class Action> inline void for_each_lane(unsigned lanes, Action action) {
  for (; lanes; lanes &= lanes - 1) action(__builtin_ctz(lanes));
}

template <class Value> inline Value shuffle(Site site, unsigned mask, Value value, int source) {
  static_assert(sizeof(Value) <= sizeof Thread::result);
  Thread& self = *current;
  memcpy(self.value, static_cast<const void*>(&value), sizeof value);
  self.source = source;
  warp_operation(site, mask, exchange_values);
  memcpy(static_cast<void*>(&value), self.result, sizeof value);
  return value;
}

inline unsigned ballot(Site site, unsigned mask, bool predicate) {
  Thread& self = *current;
  self.value[0] = predicate;
  warp_operation(site, mask, exchange_votes);
  unsigned votes;
  memcpy(&votes, self.result, sizeof votes);
  return votes;
}

template <class Combine, class Value> inline Value reduce(Site site, unsigned mask, Value value) {
  static_assert(std::is_integral_v<Value> && sizeof(Value) == 4);
  Thread& self = *current;
  memcpy(self.value, &value, sizeof value);
  warp_operation(site, mask, [](Thread* warp, unsigned lanes) {
    Value total;
    memcpy(&total, warp[__builtin_ctz(lanes)].value, sizeof total);
    for_each_lane(lanes & (lanes - 1), [&](int lane) {
      Value other;
      memcpy(&other, warp[lane].value, sizeof other);
      total = Combine()(total, other);
    });
    for_each_lane(lanes, [=](int lane) { memcpy(warp[lane].result, &total, sizeof total); });
  });
  memcpy(&value, self.result, sizeof value);
  return value;
}

struct Sum {
  template <class T> T operator()(T a, T b) const { return T(unsigned(a) + unsigned(b)); }
};
struct Smallest {
  template <class T> T operator()(T a, T b) const { return b < a ? b : a; }
};
struct Largest {
  template <class T> T operator()(T a, T b) const { return a < b ? b : a; }
};
struct BitAnd {
  unsigned operator()(unsigned a, unsigned b) const { return a & b; }
};
struct BitOr {
  unsigned operator()(unsigned a, unsigned b) const { return a | b; }
};
struct BitXor {
  unsigned operator()(unsigned a, unsigned b) const { return a ^ b; }
};

struct Tf32 {};
struct Factors {  // They are a thread's registers in the PTX manual's layout, for `tiles` products with one left tile.
  const unsigned *left, *right;
  float* sums;
  int tiles;
};
static_assert(sizeof(Factors) <= sizeof Thread::value);

// Adds left * right to sums in float, as a warp of 32 lanes with exact products: mma.sync.m16n8k16.row.col for __half
// and __nv_bfloat16, mma.sync.m16n8k8 for Tf32, which drops the lower 13 bits.
template <class Element> inline void add_products(const Factors& factors, EMULATED_SITE_PARAMETERS) {
  memcpy(current->value, &factors, sizeof factors);
  warp_operation(EMULATED_SITE("mma"), ~0u, multiply<Element>);
}
template <class Element>
inline void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], EMULATED_SITE_PARAMETERS) {
  static_assert(sizeof(Element) == 2);
  add_products<Element>({a, b, d, 1}, file, line);
}
EMULATED_LAZY void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                    EMULATED_SITE_PARAMETERS) {
  add_products<Tf32>({a, b, d, 1}, file, line);
}

// Executes ldmatrix.sync.m8n8.xN(.trans).b16; lane 8 * m + r points at row r of matrix m.
template <int matrices, bool transposed = false>
inline void ldmatrix(unsigned (&registers)[matrices], const void* row, EMULATED_SITE_PARAMETERS) {
  static_assert(matrices == 1 || matrices == 2 || matrices == 4);
  Thread& self = *current;
  if (self.lane() < 8 * matrices && reinterpret_cast<uintptr_t>(row) % 16)
    fail("ldmatrix at %s:%d: the row address %p is no multiple of 16", base_name(file), line, row);
  memcpy(self.value, &row, sizeof row);
  if (self.lane() < 8 * matrices) races::read(row, 16);
  warp_operation(EMULATED_SITE("ldmatrix"), ~0u, load_matrices<matrices, transposed>);
  memcpy(registers, self.result, sizeof registers);
}

// Executes stmatrix.sync.m8n8.x4.b16; lane 8 * m + r points at row r of matrix m.
inline void stmatrix(const unsigned (&registers)[4], void* row, EMULATED_SITE_PARAMETERS) {
  Thread& self = *current;
  if (reinterpret_cast<uintptr_t>(row) % 16)
    fail("stmatrix at %s:%d: the row address %p is no multiple of 16", base_name(file), line, row);
  memcpy(self.value, &row, sizeof row);
  memcpy(self.value + sizeof row, registers, sizeof registers);
  races::write(row, 16);
  warp_operation(EMULATED_SITE("stmatrix"), ~0u, store_matrices);
}

}  // namespace emulated

// --- barriers ---

inline void __syncthreads(EMULATED_SITE_PARAMETERS) { emulated::barrier(EMULATED_SITE("__syncthreads"), false); }
inline int __syncthreads_count(int predicate, EMULATED_SITE_PARAMETERS) {
  return emulated::barrier(EMULATED_SITE("__syncthreads_count"), predicate);
}
inline int __syncthreads_or(int predicate, EMULATED_SITE_PARAMETERS) {
  return emulated::barrier(EMULATED_SITE("__syncthreads_or"), predicate) != 0;
}
inline int __syncthreads_and(int predicate, EMULATED_SITE_PARAMETERS) {
  return emulated::barrier(EMULATED_SITE("__syncthreads_and"), !predicate) == 0;
}
inline void __syncwarp(unsigned mask = ~0u, EMULATED_SITE_PARAMETERS) {
  emulated::warp_operation(EMULATED_SITE("__syncwarp"), mask, emulated::races::order_lanes);
  emulated::follow_others();
}
inline void __threadfence() { emulated::races::fence(); }
inline void __threadfence_block() {}
inline void __threadfence_system() { emulated::races::fence(); }

// --- warp votes, shuffles and reductions ---

inline unsigned __activemask() { return emulated::block.warp[emulated::current->rank / emulated::warp_lanes].live; }
inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATED_SITE_PARAMETERS) {
  return emulated::ballot(EMULATED_SITE("__ballot_sync"), mask, predicate);
}
inline int __any_sync(unsigned mask, int predicate, EMULATED_SITE_PARAMETERS) {
  return emulated::ballot(EMULATED_SITE("__any_sync"), mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate, EMULATED_SITE_PARAMETERS) {
  return emulated::ballot(EMULATED_SITE("__all_sync"), mask, !predicate) == 0;
}

template <class T> inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMULATED_SITE_PARAMETERS) {
  const int lane = emulated::current->lane();
  return emulated::shuffle(EMULATED_SITE("__shfl_sync"), mask, value, (lane & -width) | (source & (width - 1)));
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, EMULATED_SITE_PARAMETERS) {
  const int lane = emulated::current->lane(), source = lane - int(distance);
  return emulated::shuffle(EMULATED_SITE("__shfl_up_sync"), mask, value, source >= (lane & -width) ? source : lane);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, EMULATED_SITE_PARAMETERS) {
  const int lane = emulated::current->lane(), source = lane + int(distance);
  return emulated::shuffle(EMULATED_SITE("__shfl_down_sync"), mask, value,
                           source < (lane & -width) + width ? source : lane);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, EMULATED_SITE_PARAMETERS) {
  const int lane = emulated::current->lane(), source = lane ^ lanes;
  return emulated::shuffle(EMULATED_SITE("__shfl_xor_sync"), mask, value,
                           source < (lane & -width) + width ? source : lane);
}

#define EMULATED_REDUCTION(name, Combine, Type)                                    \
  EMULATED_LAZY Type name(unsigned mask, Type value, EMULATED_SITE_PARAMETERS) {   \
    return emulated::reduce<emulated::Combine>(EMULATED_SITE(#name), mask, value); \
  }
EMULATED_REDUCTION(__reduce_add_sync, Sum, int)
EMULATED_REDUCTION(__reduce_add_sync, Sum, unsigned)
EMULATED_REDUCTION(__reduce_min_sync, Smallest, int)
EMULATED_REDUCTION(__reduce_min_sync, Smallest, unsigned)
EMULATED_REDUCTION(__reduce_max_sync, Largest, int)
EMULATED_REDUCTION(__reduce_max_sync, Largest, unsigned)
EMULATED_REDUCTION(__reduce_and_sync, BitAnd, unsigned)
EMULATED_REDUCTION(__reduce_or_sync, BitOr, unsigned)
EMULATED_REDUCTION(__reduce_xor_sync, BitXor, unsigned)
#undef EMULATED_REDUCTION
