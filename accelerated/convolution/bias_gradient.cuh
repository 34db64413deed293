// What the kernels of gradients of a bias (6.2.1) share. Several clusters for a channel are parts of its sum, which
// another launch adds (filter_gradient/sum.cu).
#pragma once
#include "primitives/cluster.cuh"
#include "primitives/dependent_launch.cuh"
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr unsigned THREADS = 256, WARP = 32, WARPS = THREADS / WARP;
constexpr unsigned WIDTH = 16 / sizeof(ELEMENT);
using Elements = Pack<ELEMENT, WIDTH>;
