// This header multiplies tiles in shared memory on tensor cores. A warpgroup (128 threads) adds the products of 64 and
// N rows to its 64 x N sums. Rows have 32 bytes: 16 half or bfloat16, or 8 float (TF32: tensor cores read the upper 19
// bits).
//
// Tiles are stored in rows of 128 bytes, whose eight vectors of 16 bytes are swizzled. Vector p of row r is at p ^ (r %
// 8). A tile begins at a multiple of 1024 bytes. Sum d[4 * n + i] belongs to row 16 * warp + lane / 4 + i / 2 * 8. Its
// column is 8 * n + lane % 4 * 2 + i % 2. Hopper uses its warpgroup instruction; other devices and -DWARP_INSTRUCTIONS
// use the warp's.
#pragma once
#include <type_traits>

#include "primitives/cp_async.cuh"
#include "primitives/types.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && !defined(MMA_SYNC_ONLY)
#define WGMMA_INSTRUCTIONS 1
#endif

__device__ __forceinline__ const unsigned char* swizzled(const unsigned char* tile, int row, int vector) {
  return tile + row * 128 + (vector ^ (row & 7)) * 16;
}
__device__ __forceinline__ unsigned char* swizzled(unsigned char* tile, int row, int vector) {
  return tile + row * 128 + (vector ^ (row & 7)) * 16;
}

// Rounds a float to the nearest TF32, ties away from zero; tensor cores would truncate it. Other types are unchanged.
template <class E> __device__ __forceinline__ E round_to_tf32(E value) { return value; }
template <> __device__ __forceinline__ float round_to_tf32<float>(float value) {
  constexpr unsigned INFINITE = 0x7f800000u;
  const unsigned bits = __float_as_uint(value), nearest = (bits + 0x1000u) & ~0x1fffu;
  if ((bits & INFINITE) == INFINITE) return value == value ? value : __uint_as_float(0x7fffe000u);
  return __uint_as_float((nearest & INFINITE) == INFINITE ? bits & ~0x1fffu : nearest);
}

#ifdef EMULATED_CUDA
namespace emulated {
// The emulated device computes products as late as the PTX manual allows, at the wait, like asynchronous copies.
struct Product {
  void (*multiply)(const Product& product);
  float* sums;
  const unsigned char *left, *right;
  unsigned registers[4];  // left operand, if it is in registers
  int step;
  races::Request request = races::request_engine_read();
};
inline Queues<Product> products;
inline bool fenced[maximum_threads];  // whether each thread has fenced since its last wait
// Requires that tiles have arrived and begin at multiples of 1024 bytes; else the descriptor addresses another tile.
inline void require_tile(const unsigned char* tile, int rows, Site site) {
  if (reinterpret_cast<uintptr_t>(tile) % 1024)
    fail("%s at %s:%d: a tile at %p, no multiple of 1024", site.operation, base_name(site.file), site.line, tile);
  if (current->lane() == 0) require_arrived(tile, rows * 128, site);
}
}  // namespace emulated
#endif

// Stores four matrices of 8 x 8 elements of 16 bits. Lane 8 * m + r points at row r of matrix m.
__device__ __forceinline__ void stmatrix_x4(const unsigned (&registers)[4], void* row) {
#ifdef EMULATED_CUDA
  emulated::stmatrix(registers, row);
#else
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(registers[0]),
               "r"(registers[1]), "r"(registers[2]), "r"(registers[3])
               : "memory");
#endif
}

// Stores pairs of a warp's sums of 16 rows, converted by store<E>(), as swizzled rows of 128 bytes.
template <class E>
__device__ __forceinline__ void store_swizzled_rows(unsigned char* rows,
                                                    const Vector<E, 2> (&pairs)[16 / sizeof(E)][2]) {
  const int lane = threadIdx.x % 32;
  if constexpr (sizeof(E) == 2) {
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; i++) words[i] = *reinterpret_cast<const unsigned*>(&pairs[n + i / 2][i % 2]);
      stmatrix_x4(words, swizzled(rows, lane % 16, n + lane / 16));
    }
  } else {
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
      for (int part = 0; part < 2; part++)
        reinterpret_cast<Vector<E, 2>*>(swizzled(rows, lane / 4 + part * 8, 2 * n + lane % 4 / 2))[lane % 2] =
            pairs[n][part];
  }
}

// --- instructions of a warp ---

// Loads matrices of 8 x 8 elements of 16 bits. Lane 8 * m + r points at row r of matrix m. TRANSPOSED transposes each.
template <int MATRICES, bool TRANSPOSED = false>
__device__ __forceinline__ void ldmatrix(unsigned (&registers)[MATRICES], const void* row) {
#ifdef EMULATED_CUDA
  emulated::ldmatrix<MATRICES, TRANSPOSED>(registers, row);
#else
  static_assert(MATRICES == 4 || !TRANSPOSED);
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(address)
                 : "memory");
  else if constexpr (MATRICES == 4)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(registers[0]), "=r"(registers[1])
                 : "r"(address)
                 : "memory");
#endif
}

template <class E>
__device__ __forceinline__ void mma_sync(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#ifdef EMULATED_CUDA
  if constexpr (sizeof(E) == 2) emulated::mma_m16n8k16<E>(d, a, b);
  else emulated::mma_m16n8k8_tf32(d, a, b);
#else
#define WARP_PRODUCT(shape)                                                                                 \
  asm volatile("mma.sync.aligned." shape " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                             \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
  if constexpr (std::is_same_v<E, half>) WARP_PRODUCT("m16n8k16.row.col.f32.f16.f16.f32");
  else if constexpr (std::is_same_v<E, bfloat16>) WARP_PRODUCT("m16n8k16.row.col.f32.bf16.bf16.f32");
  else WARP_PRODUCT("m16n8k8.row.col.f32.tf32.tf32.f32");
#endif
}

// Call this before the barrier after which a product or TMA reads this thread's writes to shared memory.
__device__ __forceinline__ void fence_proxy_async() {
#ifdef EMULATED_CUDA
  emulated::races::publish();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Does the inverse of store_swizzled_rows().
template <class E>
__device__ __forceinline__ void load_swizzled_rows(const unsigned char* rows,
                                                   Vector<E, 2> (&pairs)[16 / sizeof(E)][2]) {
  const int lane = threadIdx.x % 32;
  if constexpr (sizeof(E) == 2) {
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      unsigned words[4];
      ldmatrix(words, swizzled(rows, lane % 16, n + lane / 16));
#pragma unroll
      for (int i = 0; i < 4; i++) pairs[n + i / 2][i % 2] = *reinterpret_cast<const Vector<E, 2>*>(&words[i]);
    }
  } else {
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
      for (int part = 0; part < 2; part++)
        pairs[n][part] =
            reinterpret_cast<const Vector<E, 2>*>(swizzled(rows, lane / 4 + part * 8, 2 * n + lane % 4 / 2))[lane % 2];
  }
}

// --- products ---

#ifdef WGMMA_INSTRUCTIONS

// Describes a K-major tile, swizzled by 128 bytes, with 1024 bytes between groups of eight rows.
__device__ __forceinline__ unsigned long long describe_tile(const unsigned char* tile) {
  const unsigned long long address = __cvta_generic_to_shared(tile);
  return (address & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// Describes an MN-major tile of consecutive boxes of 64 columns; the left operand has one box of 64 rows. A box has 64
// rows of 128 bytes, one per k, swizzled like any tile. Strides are 1024 bytes between groups of eight k, and a box
// between groups of 64 columns.
__device__ __forceinline__ unsigned long long describe_mn_major_tile(const unsigned char* tile) {
  const unsigned long long address = __cvta_generic_to_shared(tile);
  return (address & 0x3ffff) >> 4 | 512ull << 16 | 64ull << 32 | 1ull << 62;
}

// These macros list the sums of a product of 64 rows, N / 2 registers per thread. They give them as operands of an
// instruction and by their names in its text.
#define SUMS_16(i)                                                                                            \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7]), "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]), "+f"(d[i + 11]), "+f"(d[i + 12]),      \
      "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15])
#define SUMS_32(i) SUMS_16(i), SUMS_16(i + 16)
#define SUMS_64(i) SUMS_32(i), SUMS_32(i + 32)
#define SUMS_96(i) SUMS_64(i), SUMS_32(i + 64)
#define SUMS_128(i) SUMS_96(i), SUMS_32(i + 96)
#define SUM_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define SUM_NAMES_32 \
  SUM_NAMES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SUM_NAMES_64                                                                                            \
  SUM_NAMES_32                                                                                                  \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SUM_NAMES_96                                                                                            \
  SUM_NAMES_64                                                                                                  \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, " \
  "%85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SUM_NAMES_128                                                                                               \
  SUM_NAMES_96                                                                                                      \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114," \
  " %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// Issues a product with both operands in shared memory. COUNT: number of sums. operands: names of both; add: name of
// `adds`.
#define WGMMA_TILES(N, COUNT, operands, add, shape, transposition)                                        \
  asm volatile("{.reg .pred add; setp.ne.b32 add, " add ", 0; wgmma.mma_async.sync.aligned.m64n" #N shape \
               " {" SUM_NAMES_##COUNT "}, " operands ", add, 1, 1" transposition ";}"                     \
               : SUMS_##COUNT(0)                                                                          \
               : "l"(left), "l"(right), "r"(static_cast<int>(adds)))
#define WGMMA_64(shape, transposition) WGMMA_TILES(64, 32, "%32, %33", "%34", shape, transposition)
#define WGMMA_128(shape, transposition) WGMMA_TILES(128, 64, "%64, %65", "%66", shape, transposition)
#define WGMMA_192(shape, transposition) WGMMA_TILES(192, 96, "%96, %97", "%98", shape, transposition)
#define WGMMA_256(shape, transposition) WGMMA_TILES(256, 128, "%128, %129", "%130", shape, transposition)

#define WGMMA(N)                                                                                              \
  if constexpr (std::is_same_v<E, half> && LEFT_MN_MAJOR && MN_MAJOR) WGMMA_##N("k16.f32.f16.f16", ", 1, 1"); \
  else if constexpr (std::is_same_v<E, bfloat16> && LEFT_MN_MAJOR && MN_MAJOR)                                \
    WGMMA_##N("k16.f32.bf16.bf16", ", 1, 1");                                                                 \
  else if constexpr (std::is_same_v<E, half> && LEFT_MN_MAJOR) WGMMA_##N("k16.f32.f16.f16", ", 1, 0");        \
  else if constexpr (std::is_same_v<E, bfloat16> && LEFT_MN_MAJOR) WGMMA_##N("k16.f32.bf16.bf16", ", 1, 0");  \
  else if constexpr (std::is_same_v<E, half> && MN_MAJOR) WGMMA_##N("k16.f32.f16.f16", ", 0, 1");             \
  else if constexpr (std::is_same_v<E, bfloat16> && MN_MAJOR) WGMMA_##N("k16.f32.bf16.bf16", ", 0, 1");       \
  else if constexpr (std::is_same_v<E, half>) WGMMA_##N("k16.f32.f16.f16", ", 0, 0");                         \
  else if constexpr (std::is_same_v<E, bfloat16>) WGMMA_##N("k16.f32.bf16.bf16", ", 0, 0");                   \
  else WGMMA_##N("k8.f32.tf32.tf32", "")

template <class E, int N, bool MN_MAJOR, bool LEFT_MN_MAJOR>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], unsigned long long left, unsigned long long right, bool adds) {
  if constexpr (N == 64) {
    WGMMA(64);
  } else if constexpr (N == 128) {
    WGMMA(128);
  } else if constexpr (N == 192) {
    WGMMA(192);
  } else {
    static_assert(N == 256);
    WGMMA(256);
  }
}

// Begins sums += left * right over the 128 bytes of a row, or sums = left * right if ADDS is false. wgmma_commit()
// closes a group. wgmma_wait() must precede reads of the sums and writes to the tiles. MN_MAJOR and LEFT_MN_MAJOR: the
// right or left tile is MN-major, for 16-bit types.
template <class E, int N, bool MN_MAJOR = false, bool LEFT_MN_MAJOR = false, bool ADDS = true>
__device__ __forceinline__ void wgmma_mma_async(float (&sums)[N / 2], const unsigned char* left,
                                                const unsigned char* right) {
  static_assert(!(MN_MAJOR || LEFT_MN_MAJOR) || sizeof(E) == 2);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  const unsigned long long a = LEFT_MN_MAJOR ? describe_mn_major_tile(left) : describe_tile(left);
  const unsigned long long b = MN_MAJOR ? describe_mn_major_tile(right) : describe_tile(right);
#pragma unroll
  for (int k = 0; k < 4; k++)
    wgmma<E, N, MN_MAJOR, LEFT_MN_MAJOR>(sums, a + (LEFT_MN_MAJOR ? 128 : 2) * k, b + (MN_MAJOR ? 128 : 2) * k,
                                         ADDS || k > 0);
}
// Does the same over 32 bytes of a row, number `step` of four, with the left operand in registers. The layout is that
// of mma_sync() for the 16 rows of each warp. The registers must not change before wgmma_wait().
#define WGMMA_LEFT(N, COUNT, operands, shape, transposition)                                        \
  asm volatile("{.reg .pred add; setp.ne.b32 add, 1, 0; wgmma.mma_async.sync.aligned.m64n" #N shape \
               " {" SUM_NAMES_##COUNT "}, " operands ", add, 1, 1" transposition ";}"               \
               : SUMS_##COUNT(0)                                                                    \
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right))
#define WGMMA_REGISTERS_32(shape, transposition) WGMMA_LEFT(32, 16, "{%16, %17, %18, %19}, %20", shape, transposition)
#define WGMMA_REGISTERS_64(shape, transposition) WGMMA_LEFT(64, 32, "{%32, %33, %34, %35}, %36", shape, transposition)
#define WGMMA_REGISTERS_128(shape, transposition) WGMMA_LEFT(128, 64, "{%64, %65, %66, %67}, %68", shape, transposition)
#define WGMMA_REGISTERS_192(shape, transposition) \
  WGMMA_LEFT(192, 96, "{%96, %97, %98, %99}, %100", shape, transposition)
#define WGMMA_REGISTERS_256(shape, transposition) \
  WGMMA_LEFT(256, 128, "{%128, %129, %130, %131}, %132", shape, transposition)

#define WGMMA_REGISTERS(N)                                                                                     \
  if constexpr (std::is_same_v<E, half> && MN_MAJOR) WGMMA_REGISTERS_##N("k16.f32.f16.f16", ", 1");            \
  else if constexpr (std::is_same_v<E, bfloat16> && MN_MAJOR) WGMMA_REGISTERS_##N("k16.f32.bf16.bf16", ", 1"); \
  else if constexpr (std::is_same_v<E, half>) WGMMA_REGISTERS_##N("k16.f32.f16.f16", ", 0");                   \
  else if constexpr (std::is_same_v<E, bfloat16>) WGMMA_REGISTERS_##N("k16.f32.bf16.bf16", ", 0");             \
  else WGMMA_REGISTERS_##N("k8.f32.tf32.tf32", "")

template <class E, int N, bool MN_MAJOR>
__device__ __forceinline__ void wgmma_from_registers(float (&d)[N / 2], const unsigned (&left)[4],
                                                     unsigned long long right) {
  if constexpr (N == 32) {
    WGMMA_REGISTERS(32);
  } else if constexpr (N == 64) {
    WGMMA_REGISTERS(64);
  } else if constexpr (N == 128) {
    WGMMA_REGISTERS(128);
  } else if constexpr (N == 192) {
    WGMMA_REGISTERS(192);
  } else {
    WGMMA_REGISTERS(256);
  }
}
template <class E, int N, bool MN_MAJOR = false>
__device__ __forceinline__ void wgmma_mma_async(float (&sums)[N / 2], const unsigned (&left)[4],
                                                const unsigned char* right, int step) {
  // The low bits of a tile's address are zero.
  const unsigned long long tile =
      MN_MAJOR ? describe_mn_major_tile(right) + 128 * step : describe_tile(right) | 2 * step;
  wgmma_from_registers<E, N, MN_MAJOR>(sums, left, tile);
}
// Call this before products whose registers were written since the last products were issued.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most PENDING groups of products are in flight.
template <int PENDING> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// Call this after all products. It keeps the compiler from reading the sums earlier.
template <int COUNT> __device__ __forceinline__ void wgmma_fence_accumulators(float (&sums)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

#else

// Loads from an MN-major right tile the registers that ldmatrix loads from a K-major one. They cover sixteen k, number
// `step` of four, and eight columns.
__device__ __forceinline__ void load_mn_major(unsigned (&registers)[2], const unsigned char* tile, int step, int n) {
  const int lane = threadIdx.x % 32, column = 8 * n + lane / 4;
  const unsigned char* box = tile + column / 64 * 64 * 128;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int k = 16 * step + 8 * i + lane % 4 * 2;
    const auto bits = [&](int row) -> unsigned {
      return reinterpret_cast<const uint16_t*>(swizzled(box, row, column % 64 / 8))[column % 8];
    };
    registers[i] = bits(k) | bits(k + 1) << 16;
  }
}

// Does the same for 16 rows of a left tile from `row` on.
__device__ __forceinline__ void load_mn_major(unsigned (&registers)[4], const unsigned char* tile, int step, int row) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int m = row + lane / 4 + i % 2 * 8, k = 16 * step + i / 2 * 8 + lane % 4 * 2;
    const auto bits = [&](int k) -> unsigned {
      return reinterpret_cast<const uint16_t*>(swizzled(tile, k, m / 8))[m % 8];
    };
    registers[i] = bits(k) | bits(k + 1) << 16;
  }
}

// Adds left * right to the sums of a warp's 16 rows, over 32 bytes of a row, number `step` of four.
template <class E, int N, bool MN_MAJOR = false>
__device__ __forceinline__ void multiply_step(float (&sums)[N / 2], const unsigned (&left)[4],
                                              const unsigned char* right, int step) {
  const int lane = threadIdx.x % 32;
#ifdef EMULATED_CUDA  // One operation for all columns is several times as fast as one for every eight.
  unsigned words[N / 8][2];
  for (int n = 0; n < N / 8; n++) {
    if constexpr (MN_MAJOR) load_mn_major(words[n], right, step, n);
    else
      for (int i = 0; i < 2; i++)
        words[n][i] = reinterpret_cast<const unsigned*>(swizzled(right, 8 * n + lane / 4, 2 * step + i))[lane % 4];
  }
  using Element = std::conditional_t<sizeof(E) == 2, E, emulated::Tf32>;
  emulated::add_products<Element>({left, words[0], sums, N / 8});
#else
#pragma unroll
  for (int n = 0; n < N / 8; n++) {
    unsigned b[2];
    if constexpr (MN_MAJOR) load_mn_major(b, right, step, n);
    else ldmatrix(b, swizzled(right, 8 * n + lane % 8, 2 * step + lane / 8 % 2));
    float d[4] = {sums[4 * n], sums[4 * n + 1], sums[4 * n + 2], sums[4 * n + 3]};
    mma_sync<E>(d, left, b);
#pragma unroll
    for (int i = 0; i < 4; i++) sums[4 * n + i] = d[i];
  }
#endif
}
__device__ __forceinline__ void wgmma_fence() {
#ifdef EMULATED_CUDA
  emulated::fenced[emulated::current->rank] = true;
#endif
}

template <class E, int N, bool MN_MAJOR = false, bool LEFT_MN_MAJOR = false, bool ADDS = true>
__device__ __forceinline__ void multiply_tiles(float (&sums)[N / 2], const unsigned char* left,
                                               const unsigned char* right) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  if constexpr (!ADDS) {
#pragma unroll
    for (int i = 0; i < N / 2; i++) sums[i] = 0;
  }
  for (int k = 0; k < 4; k++) {
    unsigned a[4];
    if constexpr (LEFT_MN_MAJOR) load_mn_major(a, left, k, 16 * warp);
    else ldmatrix(a, swizzled(left, 16 * warp + lane % 16, 2 * k + lane / 16));
    multiply_step<E, N, MN_MAJOR>(sums, a, right, k);
  }
}
#ifdef EMULATED_CUDA
template <class E, int N, bool MN_MAJOR = false, bool LEFT_MN_MAJOR = false, bool ADDS = true>
inline void wgmma_mma_async(float (&sums)[N / 2], const unsigned char* left, const unsigned char* right,
                            EMULATED_SITE_PARAMETERS) {
  wgmma_fence();  // The fence is part of it.
  emulated::require_tile(left, 64, EMULATED_SITE("wgmma"));
  emulated::require_tile(right, N, EMULATED_SITE("wgmma"));
  const auto multiply = [](const emulated::Product& p) {
    multiply_tiles<E, N, MN_MAJOR, LEFT_MN_MAJOR, ADDS>(*reinterpret_cast<float (*)[N / 2]>(p.sums), p.left, p.right);
  };
  emulated::products.add({multiply, sums, left, right});
}
template <class E, int N, bool MN_MAJOR = false>
inline void wgmma_mma_async(float (&sums)[N / 2], const unsigned (&left)[4], const unsigned char* right, int step,
                            EMULATED_SITE_PARAMETERS) {
  emulated::require_tile(right, MN_MAJOR ? 64 : N, EMULATED_SITE("wgmma"));
  if (!emulated::fenced[emulated::current->rank])
    emulated::fail("wgmma at %s:%d: no wgmma_fence() since the last wait", emulated::base_name(file), line);
  const auto multiply = [](const emulated::Product& p) {
    multiply_step<E, N, MN_MAJOR>(*reinterpret_cast<float (*)[N / 2]>(p.sums), p.registers, p.right, p.step);
  };
  emulated::products.add({multiply, sums, nullptr, right, {left[0], left[1], left[2], left[3]}, step});
}
inline void wgmma_commit() { emulated::products.end_group(); }
template <int PENDING> inline void wgmma_wait() {
  emulated::products.finish(PENDING, [](const emulated::Product& product) {
    const emulated::races::ByWarp products(product.request);
    product.multiply(product);
  });
  emulated::fenced[emulated::current->rank] = false;
  emulated::races::acquire_products();
}
#else
template <class E, int N, bool MN_MAJOR = false, bool LEFT_MN_MAJOR = false, bool ADDS = true>
__device__ __forceinline__ void wgmma_mma_async(float (&sums)[N / 2], const unsigned char* left,
                                                const unsigned char* right) {
  multiply_tiles<E, N, MN_MAJOR, LEFT_MN_MAJOR, ADDS>(sums, left, right);
}
template <class E, int N, bool MN_MAJOR = false>
__device__ __forceinline__ void wgmma_mma_async(float (&sums)[N / 2], const unsigned (&left)[4],
                                                const unsigned char* right, int step) {
  multiply_step<E, N, MN_MAJOR>(sums, left, right, step);
}
__device__ __forceinline__ void wgmma_commit() {}
template <int PENDING> __device__ __forceinline__ void wgmma_wait() {}
#endif
template <int COUNT> __device__ __forceinline__ void wgmma_fence_accumulators(float (&)[COUNT]) {}

#endif
