// This kernel calls intrinsics that the host does not have; each input gets one row of results.
struct Arguments {
  const double* input;
  double* output;
  int count;
};

extern "C" __global__ void convert(const Arguments arguments) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= arguments.count) return;
  const double x = arguments.input[i];
  const float f = (float)x;
  double* out = arguments.output + 20 * i;
  out[0] = __float2int_rn(f);
  out[1] = __float2int_rz(f);
  out[2] = __float2int_ru(f);
  out[3] = __float2int_rd(f);
  out[4] = __double2int_rn(x);
  out[5] = __float2uint_rn(f);
  out[6] = (double)__float2ll_rn(f);
  out[7] = (double)__double2ll_rz(x);
  out[8] = rsqrt(x);
  out[9] = rsqrtf(f);
  out[10] = sinpi(x);
  out[11] = cospi(x);
  out[12] = min(x, 1.0);
  out[13] = max(f, 1.0f);
  out[14] = __saturatef(f);
  out[15] = fmaxf(f, 0.0f);
  out[16] = isnan(f) ? 2.0 : isinf(f) ? 1.0 : 0.0;
  out[17] = tanhf(f);
  out[18] = normcdf(x);
  out[19] = __fmul_rn(f, f) + 0.5f;
}

struct BitArguments {
  const unsigned* input;
  unsigned* output;
  int count;
};

extern "C" __global__ void bits(const BitArguments arguments) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= arguments.count) return;
  const unsigned x = arguments.input[i], y = arguments.input[(i + 1) % arguments.count];
  unsigned* out = arguments.output + 12 * i;
  out[0] = __popc(x);
  out[1] = __clz((int)x);
  out[2] = __ffs((int)x);
  out[3] = __brev(x);
  out[4] = __umulhi(x, y);
  out[5] = (unsigned)__mulhi((int)x, (int)y);
  out[6] = __byte_perm(x, y, 0x5140);
  out[7] = __funnelshift_l(x, y, y);
  out[8] = __funnelshift_r(x, y, y);
  out[9] = (unsigned)__dp4a((int)x, (int)y, 3);
  out[10] = __float_as_uint(__uint_as_float(x & 0x7effffffu));
  out[11] = (unsigned)(__umul64hi((unsigned long long)x << 32 | y, (unsigned long long)y << 32 | x) >> 7);
}
