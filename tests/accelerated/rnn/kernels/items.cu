// This kernel writes the items of each block of a persistent launch: the slice, the group, and whether the next item
// goes on with its states.
#include "rnn/persistent_items.cuh"

constexpr int MAX_ITEMS = 64;  // per block

struct Arguments {
  int* found;
  int of_part, parts, groups, steps;
};

extern "C" __global__ void rnn_items(const Arguments a) {
  if (threadIdx.x > 0) return;
  const Items items(a.of_part, a.parts, a.groups, a.steps, 1);
  int* to = a.found + blockIdx.x * MAX_ITEMS * 3;
  for (Item item = items.first(); items.has(item); to += 3) {
    const Item behind = items.behind(item);
    to[0] = item.slice, to[1] = item.group, to[2] = items.goes_on(item, behind);
    item = behind;
  }
}
