// The loop of every element-by-element kernel: out[i] = function(in0[i], in1[i], ...), which may see what out[i] was.
//
// Memory needs some 25 KB on their way to every multiprocessor. Tensors that all operands walk as one row move in
// accesses of 16 bytes, `batch` packs of a thread, of which several are read before the first is used. Rows of whole
// packs move one pack a thread. Rows with gaps behind them, the same in every operand, are read as one row, gaps and all:
// what a thread computes from a gap is not written. Other rows that start anywhere or step over elements move element by
// element, spread so that neighbouring threads touch neighbours. geometry.py chooses.
#pragma once
#include <type_traits>

#include "index.cuh"
#include "types.cuh"

template <class T, int WIDTH>
__device__ __forceinline__ bool packed(const Pack<T, WIDTH>*& pack, const T* pointer) {
  pack = reinterpret_cast<const Pack<T, WIDTH>*>(pointer);
  return reinterpret_cast<uintptr_t>(pointer) % alignof(Pack<T, WIDTH>) == 0;
}

// Reads `count` elements that lie `stride` apart into `values`.
template <class C, int WIDTH, class T>
__device__ __forceinline__ void read_pack(const T* pointer, long long stride, bool vectorised, unsigned count, C (&values)[WIDTH]) {
  const Pack<T, WIDTH>* pack;
  if (vectorised && count == WIDTH && packed<T, WIDTH>(pack, pointer)) {
    Pack<T, WIDTH> loaded = *pack;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) values[i] = load<C>(loaded.item[i]);
  } else if (stride == 0) {
    C value = load<C>(*pointer);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) values[i] = value;
  } else {
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
      if (i < count) values[i] = load<C>(pointer[i * stride]);
  }
}

template <int WIDTH, class C, class T>
__device__ __forceinline__ void write_pack(T* pointer, long long stride, bool vectorised, unsigned count, const C (&values)[WIDTH], C beta) {
  C prior[WIDTH];
  if (beta != C(0)) read_pack<C, WIDTH>(const_cast<const T*>(pointer), stride, vectorised, count, prior);
  const Pack<T, WIDTH>* pack;
  if (vectorised && count == WIDTH && packed<T, WIDTH>(pack, pointer)) {
    Pack<T, WIDTH> stored;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) stored.item[i] = store<T>(beta != C(0) ? values[i] + beta * prior[i] : values[i]);
    *reinterpret_cast<Pack<T, WIDTH>*>(pointer) = stored;
  } else {
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
      if (i < count) pointer[i * stride] = store<T>(beta != C(0) ? values[i] + beta * prior[i] : values[i]);
  }
}

template <class T, int WIDTH>
__device__ __forceinline__ bool aligned(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % alignof(Pack<T, WIDTH>) == 0;
}

// --- packs in their stored type, so that few registers hold them ---

// Reads `count` elements that lie `stride` apart.
template <int N, class T>
__device__ __forceinline__ void read_elements(const T* pointer, int stride, bool vectorised, unsigned count, Pack<T, N>& values) {
  const Pack<T, N>* pack;
  if (vectorised && count == N && packed<T, N>(pack, pointer)) {
    values = *pack;
  } else if (stride == 0) {  // a broadcast: one access
    const T value = *pointer;
#pragma unroll
    for (int i = 0; i < N; i++) values.item[i] = value;
  } else {
#pragma unroll
    for (int i = 0; i < N; i++)
      if (i < count) values.item[i] = pointer[i * stride];
  }
}

template <int N, class T>
__device__ __forceinline__ void write_elements(T* pointer, int stride, bool vectorised, unsigned count, const Pack<T, N>& values) {
  const Pack<T, N>* pack;
  if (vectorised && count == N && packed<T, N>(pack, pointer)) {
    *reinterpret_cast<Pack<T, N>*>(pointer) = values;
  } else {
#pragma unroll
    for (int i = 0; i < N; i++)
      if (i < count) pointer[i * stride] = values.item[i];
  }
}

// Writes the elements of `mask`, in accesses as wide as it has neighbours. The address is that of a pack.
template <int N, class T, int WIDTH> __device__ __forceinline__ void write_masked(T* pointer, unsigned mask, const Pack<T, WIDTH>& values, int first = 0) {
  constexpr unsigned ALL = (1u << N) - 1;
  if ((mask & ALL) == ALL) {
    Pack<T, N> part;
#pragma unroll
    for (int i = 0; i < N; i++) part.item[i] = values.item[first + i];
    *reinterpret_cast<Pack<T, N>*>(pointer) = part;
  } else if constexpr (N > 1) {
    write_masked<N / 2>(pointer, mask, values, first);
    write_masked<N / 2>(pointer + N / 2, mask >> N / 2, values, first + N / 2);
  }
}

// --- the loop ---

constexpr int SPREAD_ITEMS = 8;  // most positions of a spread pack

// What a kernel does to every element. Its function takes packs of the inputs and of the prior values of the output (of
// which it may use nothing where `blends` is false) to the pack that is stored:
//   template <bool BLENDS, int N> Pack<Out, N> operator()(const Pack<In, N>* in, const Pack<Out, N>& prior) const
template <class In, int INPUTS, class Out, class Function> struct Elementwise {
  const In* in[INPUTS == 0 ? 1 : INPUTS];
  Out* out;
  bool blends;
  Function function;
  int reads = INPUTS;  // the inputs that the function needs

  // Packs whose reads are on their way together.
  static constexpr int BATCH = INPUTS == 2 ? 2 : 4;

  // One row, whole packs at multiples of 16 bytes.
  template <int WIDTH> __device__ __forceinline__ void run_flat(unsigned first, unsigned batch, unsigned whole) const {
    for (unsigned done = 0; done < batch; done += BATCH) {
      Pack<In, WIDTH> values[BATCH][INPUTS == 0 ? 1 : INPUTS];
      const unsigned start = first + done * blockDim.x;
#pragma unroll
      for (int u = 0; u < BATCH; u++)
        if (done + u < batch && start + u * blockDim.x < whole)
#pragma unroll
          for (int n = 0; n < INPUTS; n++)
            if (n < reads) values[u][n] = reinterpret_cast<const Pack<In, WIDTH>*>(in[n])[start + u * blockDim.x];
#pragma unroll
      for (int u = 0; u < BATCH; u++)
        if (done + u < batch && start + u * blockDim.x < whole)
          reinterpret_cast<Pack<Out, WIDTH>*>(out)[start + u * blockDim.x] = function.template operator()<false, WIDTH>(values[u], Pack<Out, WIDTH>{});
    }
  }

  template <int WIDTH> __device__ __forceinline__ void run_pack(const Geometry<INPUTS + 1>& geometry, unsigned index, unsigned vectorised) const {
    unsigned offset[INPUTS + 1];
    const unsigned count = geometry.locate(index, offset);
    Pack<In, WIDTH> values[INPUTS == 0 ? 1 : INPUTS] = {};
    Pack<Out, WIDTH> prior = {};
    auto stride = [&](int n) { return geometry.row_stride[n] << geometry.log_spread; };
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
      if (n < reads) read_elements<WIDTH, In>(in[n] + offset[n], stride(n), vectorised >> n & 1, count, values[n]);
    Out* target = out + offset[INPUTS];
    if (blends) read_elements<WIDTH, Out>(target, stride(INPUTS), vectorised >> INPUTS & 1, count, prior);
    write_elements<WIDTH>(target, stride(INPUTS), vectorised >> INPUTS & 1, count, function.template operator()<true, WIDTH>(values, prior));
  }

  // A pack of the output's memory.
  template <int WIDTH> __device__ __forceinline__ void run_over_gaps(const Geometry<INPUTS + 1>& geometry, unsigned index) const {
    const int begin = static_cast<int>(index * WIDTH) - static_cast<int>(reinterpret_cast<uintptr_t>(out) / sizeof(Out) % WIDTH);
    const unsigned first = begin < 0 ? -begin : 0;  // before the output
    if (static_cast<int>(geometry.span) - begin <= 0) return;
    const unsigned end = min(geometry.span - begin, static_cast<unsigned>(WIDTH));
    Pack<In, WIDTH> values[INPUTS == 0 ? 1 : INPUTS] = {};
    Pack<Out, WIDTH> prior = {};
    unsigned mask = 0;
    // Elements of one row: what the operands that are broadcast along it have for them.
    auto meet = [&](unsigned from, unsigned to, const unsigned (&offset)[INPUTS + 1]) {
      const unsigned met = (1u << to) - (1u << from);
      mask |= met;
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
        if (n < reads && !(geometry.vectorised >> n & 1)) {
          const In value = in[n][offset[n]];
#pragma unroll
          for (int i = 0; i < WIDTH; i++)
            if (met >> i & 1) values[n].item[i] = value;
        }
    };
    auto place = geometry.place(begin + first);
    const unsigned pitch = geometry.pitch[0].divisor - place.position;  // to the next row
    if (place.more && geometry.row + pitch >= WIDTH - first) {
      if (place.inside) meet(first, min(first + place.left, end), place.offset);
      if (first + pitch < end) {
#pragma unroll
        for (int n = 0; n < INPUTS; n++) place.offset[n] += geometry.stride[n][0];
        meet(first + pitch, end, place.offset);
      }
    } else {
      for (unsigned at = first;;) {
        const unsigned next = place.left < end - at ? at + place.left : end;
        if (place.inside) meet(at, next, place.offset);
        if ((at = next) == end) break;
        place = geometry.place(begin + at);
      }
    }
    if (mask == 0) return;
    const bool whole = first == 0 && end == WIDTH;  // gaps are read only between elements
    auto read = [&](const auto* pointer, auto& pack) {
      const std::remove_reference_t<decltype(pack)>* aligned;
      if (whole && packed(aligned, pointer)) {
        pack = *aligned;
      } else {
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
          if (mask >> i & 1) pack.item[i] = pointer[i];
      }
    };
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
      if (n < reads && geometry.vectorised >> n & 1) read(in[n] + begin, values[n]);
    if (blends) read(const_cast<const Out*>(out) + begin, prior);
    write_masked<WIDTH>(out + begin, mask, function.template operator()<true, WIDTH>(values, prior));
  }

  // WIDTH: elements of a pack of neighbours.
  template <int WIDTH> __device__ __forceinline__ void run(const Geometry<INPUTS + 1>& geometry) const {
    const unsigned first = blockIdx.x * (blockDim.x * geometry.batch) + threadIdx.x;
    if (geometry.span) {
      if (first < geometry.packs) run_over_gaps<WIDTH>(geometry, first);
      return;
    }
    if (geometry.spread) {
      if (first < geometry.packs) run_pack<SPREAD_ITEMS>(geometry, first, 0);
      return;
    }
    bool flat = !blends && geometry.outer_rank == 0 && geometry.vectorised == (2u << INPUTS) - 1 && aligned<Out, WIDTH>(out);
#pragma unroll
    for (int n = 0; n < INPUTS; n++) flat = flat && aligned<In, WIDTH>(in[n]);
    const unsigned whole = flat ? geometry.row / WIDTH : 0;
    if (flat) run_flat<WIDTH>(first, geometry.batch, whole);
    // What is left: nothing or the end of the one row, or all packs.
    for (unsigned u = 0; u < geometry.batch; u++) {
      const unsigned index = first + u * blockDim.x;
      if (whole <= index && index < geometry.packs) run_pack<WIDTH>(geometry, index, geometry.vectorised);
    }
  }
};
