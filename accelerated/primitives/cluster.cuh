// This header lets the blocks of a cluster access each other's shared memory. On devices without clusters, every block
// is its own cluster.
#pragma once

#ifndef CLUSTER_BLOCKS
#define CLUSTER_BLOCKS 8  // blocks per cluster that every GPU with clusters supports, as in cluster.py
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr unsigned CLUSTER_SIZE = CLUSTER_BLOCKS;
#define CLUSTER_DIMS_X __cluster_dims__(CLUSTER_BLOCKS, 1, 1)
#define CLUSTER_DIMS_Y __cluster_dims__(1, CLUSTER_BLOCKS, 1)
#define SEND(type, value) "st.async.shared::cluster.mbarrier::complete_tx::bytes." #type " [%0], " value ", [%2];"

__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// Writes to the same variable of another block.
__device__ __forceinline__ void store_to_cluster_rank(float* variable, unsigned block, float value) {
  unsigned address = __cvta_generic_to_shared(variable);
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;\n st.shared::cluster.f32 [%0], %2;"
               : "+r"(address)
               : "r"(block), "f"(value)
               : "memory");
}
__device__ __forceinline__ void store_to_cluster_rank(double* variable, unsigned block, double value) {
  unsigned address = __cvta_generic_to_shared(variable);
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;\n st.shared::cluster.f64 [%0], %2;"
               : "+r"(address)
               : "r"(block), "d"(value)
               : "memory");
}

// The first block gathers the data of all blocks in its shared memory. Its mbarrier has one phase, which completes
// after the block's one arrival and all expected bytes. Before its wait for earlier kernels, every block calls
// init_and_expect() with the same bytes and offset. By then all blocks run. Cluster barriers after the reads would take
// 0.25 us longer (H200).
struct alignas(8) ClusterGather {
  unsigned long long barrier;

  // `bytes` counts the data of all blocks. Some may arrive before they are expected, because the phase ends only with
  // the one arrival.
  __device__ __forceinline__ void init_and_expect(unsigned bytes) const {
    const bool leads = (threadIdx.x | cluster_rank()) == 0;
    const unsigned address = __cvta_generic_to_shared(&barrier);
    if (leads)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n fence.mbarrier_init.release.cluster;" ::"r"(address)
                   : "memory");
    cluster_arrive();
    cluster_wait();
    if (leads)
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
  }
  // Sends a value to the same variable in the first block.
  __device__ __forceinline__ void send(float* variable, float value) const {
    asm volatile(SEND(f32, "%1")::"r"(first(variable)), "f"(value), "r"(first(&barrier)) : "memory");
  }
  __device__ __forceinline__ void send(double* variable, double value) const {
    asm volatile(SEND(f64, "%1")::"r"(first(variable)), "d"(value), "r"(first(&barrier)) : "memory");
  }
  // Waits in the first block until all bytes have arrived.
  __device__ __forceinline__ void wait() const {
    unsigned done = 0;
    while (!done)
      asm volatile(
          "{ .reg .pred there; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 there, [%1], 0; selp.u32 %0, "
          "1, 0, there; }"
          : "=r"(done)
          : "r"(static_cast<unsigned>(__cvta_generic_to_shared(&barrier)))
          : "memory");
  }

 private:
  // Returns the shared::cluster address of the same variable in the first block.
  template <class T> static __device__ __forceinline__ unsigned first(const T* variable) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, 0;"
        : "=r"(there)
        : "r"(static_cast<unsigned>(__cvta_generic_to_shared(variable))));
    return there;
  }
};
#else
constexpr unsigned CLUSTER_SIZE = 1;
#define CLUSTER_DIMS_X
#define CLUSTER_DIMS_Y

__device__ __forceinline__ unsigned cluster_rank() { return 0; }
__device__ __forceinline__ void cluster_arrive_relaxed() {}
__device__ __forceinline__ void cluster_arrive() {}
__device__ __forceinline__ void cluster_wait() { __syncthreads(); }
template <class T> __device__ __forceinline__ void store_to_cluster_rank(T* variable, unsigned, T value) {
  *variable = value;
}

struct alignas(8) ClusterGather {
  unsigned long long barrier;

  __device__ __forceinline__ void init_and_expect(unsigned) {}
  template <class T> __device__ __forceinline__ void send(T* variable, T value) { *variable = value; }
  __device__ __forceinline__ void wait() const { __syncthreads(); }
};
#endif
