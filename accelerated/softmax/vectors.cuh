// This header accesses the vectors of a row, or of neighbouring strided rows (softmax/staged.cu,
// softmax/register_resident.cu). Every kind of row supports three steps.
//   1. It loads a group asynchronously (the vectors first, first + size, ...) to shared memory with stride `pitch`.
//   2. It reads the group's values from there; missing elements are neutral.
//   3. It writes the group's results, blended with the output.
#pragma once
#include "softmax/reduce.cuh"

// This type moves vectors of 16 bytes. Neighbours along a row (of vectors, for strided rows) are contiguous.
template <class Rule, bool STRIDED, int VECTORS> struct RowVectors {
  static constexpr int INPUTS = Rule::INPUTS, WIDE = WIDTH, HELD = VECTORS, ROWS = STRIDED ? WIDE : 1;
  using Access = Elements<WIDE>;
  const Arguments<INPUTS>* a;
  const ELEMENT* input[INPUTS];  // vector 0, which may begin before the row so that vectors are aligned
  ELEMENT* output;
  unsigned vectors, width;            // width: rows per vector of strided rows
  unsigned lead;                      // elements of vector 0 that precede the row
  unsigned first_full, full_vectors;  // full_vectors vectors from first_full on are full and aligned in all operands

  __device__ __forceinline__ RowVectors(const Arguments<INPUTS>& arguments, unsigned index) : a(&arguments) {
    unsigned offset[INPUTS + 1];
    width = a->rows.locate(index, offset);
    begin_at(offset);
  }
  // Lets vectors begin with the row; none of them counts as full.
  __device__ __forceinline__ void begin_with_row() {
#pragma unroll
    for (int n = 0; n < INPUTS; n++) input[n] += lead;
    output += lead;
    vectors = (a->along.row + WIDE - 1) / WIDE;
    full_vectors = first_full = lead = 0;
  }
  __device__ __forceinline__ void end_for_good() { vectors = full_vectors = 0; }
  __device__ __forceinline__ void begin_at(const unsigned (&offset)[INPUTS + 1]) {
    output = a->output + offset[INPUTS];
    lead = misplaced(output);
    bool together = true;
#pragma unroll
    for (int n = 0; n < INPUTS; n++) {
      input[n] = a->input[n] + offset[n];
      together &= misplaced(input[n]) == lead;
    }
    if (STRIDED) {
      vectors = a->along.row, first_full = 0, full_vectors = together && lead == 0 && width == WIDE ? vectors : 0;
    } else {
      if (!together) lead = 0;
      output -= lead;
#pragma unroll
      for (int n = 0; n < INPUTS; n++) input[n] -= lead;
      vectors = (a->along.row + lead + WIDE - 1) / WIDE, first_full = lead != 0;
      full_vectors = together ? (a->along.row + lead) / WIDE : 0;
      full_vectors -= min(full_vectors, first_full);
    }
  }
  // Returns by how many elements a pointer misses vector alignment.
  static __device__ __forceinline__ unsigned misplaced(const ELEMENT* pointer) {
    return unsigned(reinterpret_cast<uintptr_t>(pointer) / sizeof(ELEMENT)) % WIDE;
  }
  __device__ __forceinline__ size_t offset(unsigned vector, int operand) const {
    return STRIDED ? size_t(vector) * unsigned(a->along.row_stride[operand]) : vector * WIDE;
  }
  __device__ __forceinline__ bool is_full(unsigned vector) const { return vector - first_full < full_vectors; }
  __device__ __forceinline__ bool are_full(unsigned first, unsigned size) const {
    return is_full(first) && is_full(first + (HELD - 1) * size);
  }
  __device__ __forceinline__ bool exists(unsigned vector, unsigned i) const {
    return STRIDED ? i < width : vector * WIDE + i - lead < a->along.row;
  }

  // Copies a full vector.
  __device__ __forceinline__ void load_full_async(unsigned vector, Access* address, unsigned pitch) const {
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
      copy(address + n * pitch, reinterpret_cast<const Access*>(input[n] + offset(vector, n)));
  }
  // Prefetches a group into L2 before the wait (primitives/dependent_launch.cuh).
  __device__ __forceinline__ void prefetch(unsigned first, unsigned size) const {
#pragma unroll
    for (int k = 0; k < HELD; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
        if (first + k * size < vectors) prefetch_l2(input[n] + offset(first + k * size, n));
  }
  __device__ __forceinline__ void load_async(unsigned first, unsigned size, Access* address, unsigned pitch) const {
#pragma unroll
    for (int k = 0; k < HELD; k++)
      if (is_full(first + k * size)) load_full_async(first + k * size, address + k * INPUTS * pitch, pitch);
    if (are_full(first, size)) return;
    Access nothing;
#pragma unroll
    for (int i = 0; i < WIDE; i++) nothing.item[i] = store<ELEMENT>(Rule::neutral());
#pragma unroll 1
    for (int k = 0; k < HELD; k++, first += size, address += INPUTS * pitch)
      if (!is_full(first))
#pragma unroll
        for (int n = 0; n < INPUTS; n++) {
          address[n * pitch] = nothing;
          if (first < vectors)
#pragma unroll 1
            for (int i = 0; i < WIDE; i++)
              if (exists(first, i)) address[n * pitch].item[i] = (input[n] + offset(first, n))[i];
        }
  }
  // Reads a vector; missing elements are neutral.
  __device__ __forceinline__ Access read(unsigned vector, int n) const {
    Access some;
#pragma unroll
    for (int i = 0; i < WIDE; i++) {
      some.item[i] = store<ELEMENT>(Rule::neutral());
      if (vector < vectors && exists(vector, i)) some.item[i] = (input[n] + offset(vector, n))[i];
    }
    return some;
  }

  __device__ __forceinline__ void take(unsigned, unsigned, const Access* address, unsigned pitch,
                                       COMPUTE (&values)[INPUTS][HELD * WIDE]) const {
#pragma unroll
    for (int k = 0; k < HELD; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++) unpack(address + (k * INPUTS + n) * pitch, &values[n][k * WIDE]);
  }
  __device__ __forceinline__ void write(const Rule& rule, const OnlineState (&state)[ROWS], unsigned first,
                                        unsigned size, const Access* address, unsigned pitch) const {
    if (are_full(first, size)) {
#pragma unroll
      for (int k = 0; k < HELD; k++)
        write_vector(rule, state, first + k * size, true, address + k * INPUTS * pitch, pitch);
    } else {
#pragma unroll 1
      for (int k = 0; k < HELD && first < vectors; k++, first += size, address += INPUTS * pitch)
        write_vector(rule, state, first, is_full(first), address, pitch);
    }
  }
  __device__ __forceinline__ void write_vector(const Rule& rule, const OnlineState (&state)[ROWS], unsigned index,
                                               bool as_full, const Access* address, unsigned pitch) const {
    COMPUTE values[INPUTS][WIDE], result[WIDE];
#pragma unroll
    for (int n = 0; n < INPUTS; n++) unpack(address + n * pitch, values[n]);
    rule.results(state, values, result);
    write_results(index, as_full, result);
  }
  __device__ __forceinline__ void write_results(unsigned index, bool as_full, COMPUTE (&result)[WIDE]) const {
    ELEMENT* target = output + offset(index, INPUTS);
    if (as_full) {
      if (a->beta != COMPUTE(0)) {
        COMPUTE prior[WIDE];
        unpack(reinterpret_cast<const Access*>(target), prior);
#pragma unroll
        for (int i = 0; i < WIDE; i++) result[i] += a->beta * prior[i];
      }
      pack(result, reinterpret_cast<Access*>(target));
    } else {
#pragma unroll
      for (int i = 0; i < WIDE; i++)
        if (exists(index, i))
          target[i] =
              store<ELEMENT>(a->beta != COMPUTE(0) ? result[i] + a->beta * load<COMPUTE>(target[i]) : result[i]);
    }
  }
};

template <class Rule, bool STRIDED> using VectorRow = RowVectors<Rule, STRIDED, HELD<WIDTH>>;

// This type moves single elements at any alignment.
template <class Rule, bool STRIDED> struct ScalarRow {
  static constexpr int INPUTS = Rule::INPUTS, HELD = ::HELD<1>, ROWS = 1;
  using Access = Elements<1>;
  const Arguments<INPUTS>& a;
  const ELEMENT* input[INPUTS];
  ELEMENT* output;
  unsigned vectors;

  __device__ __forceinline__ ScalarRow(const Arguments<INPUTS>& arguments, unsigned index)
      : a(arguments), vectors(a.along.vectors) {
    unsigned offset[INPUTS + 1];
    a.rows.locate(index, offset);
    output = a.output + offset[INPUTS];
#pragma unroll
    for (int n = 0; n < INPUTS; n++) input[n] = a.input[n] + offset[n];
  }
  __device__ __forceinline__ void locate(unsigned vector, unsigned (&offset)[INPUTS + 1]) const {
    if (a.along.outer_rank != 0) {
      a.along.locate(vector, offset);
    } else {
#pragma unroll
      for (int n = 0; n <= INPUTS; n++) offset[n] = vector * a.along.row_stride[n];
    }
  }

  __device__ __forceinline__ void load_async(unsigned first, unsigned size, Access* address, unsigned pitch) const {
    // Elements that copy() cannot move go through registers, some at a time.
    constexpr bool COPIES = sizeof(ELEMENT) >= MIN_COPY;
    constexpr int BATCH = COPIES ? 1 : HELD / INPUTS;
#pragma unroll 1
    for (int batch = 0; batch < HELD && first < vectors;
         batch += BATCH, first += BATCH * size, address += BATCH * INPUTS * pitch) {
      ELEMENT element[BATCH][INPUTS];
#pragma unroll
      for (int k = 0; k < BATCH; k++) {
        unsigned offset[INPUTS + 1];
        locate(min(first + k * size, vectors - 1), offset);
#pragma unroll
        for (int n = 0; n < INPUTS; n++) {
          if constexpr (COPIES) copy(address + n * pitch, reinterpret_cast<const Access*>(input[n] + offset[n]));
          else element[k][n] = input[n][offset[n]];
        }
      }
      if constexpr (!COPIES)
#pragma unroll
        for (int k = 0; k < BATCH; k++)
#pragma unroll
          for (int n = 0; n < INPUTS; n++) address[(k * INPUTS + n) * pitch].item[0] = element[k][n];
    }
  }
  __device__ __forceinline__ void take(unsigned first, unsigned size, const Access* address, unsigned pitch,
                                       COMPUTE (&values)[INPUTS][HELD]) const {
#pragma unroll
    for (int k = 0; k < HELD; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
        values[n][k] =
            first + k * size < vectors ? load<COMPUTE>(address[(k * INPUTS + n) * pitch].item[0]) : Rule::neutral();
  }
  __device__ __forceinline__ void write(const Rule& rule, const OnlineState (&state)[ROWS], unsigned first,
                                        unsigned size, const Access* address, unsigned pitch) const {
#pragma unroll 2
    for (int k = 0; k < HELD; k++, first += size, address += INPUTS * pitch) {
      if (first >= vectors) break;
      COMPUTE values[INPUTS][1], result[1];
#pragma unroll
      for (int n = 0; n < INPUTS; n++) values[n][0] = load<COMPUTE>(address[n * pitch].item[0]);
      rule.results(state, values, result);
      unsigned offset[INPUTS + 1];
      locate(first, offset);
      ELEMENT* target = output + offset[INPUTS];
      *target = store<ELEMENT>(a.beta != COMPUTE(0) ? result[0] + a.beta * load<COMPUTE>(*target) : result[0]);
    }
  }
};
