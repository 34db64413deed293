"""NVIDIA's samples conv_sample and multiHeadAttention of cuDNN 8, unmodified, on the C library: they check their own results.

    python examples/clients/nvidia_samples.py SAMPLES

SAMPLES is a folder that has theirs (cudnn_samples_v8, which comes with cuDNN); no registry has them, so that they are run here and not
shipped. Needs g++, CUDA's headers (pip install 'dualdnn[abi,emulated]'), and for the model of attention that the sample is compared
with ``pip install autograd``.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dualdnn.accelerated.runtime.emulated.toolchain import cuda_headers
from dualdnn.api.abi.build import NAME, build
from dualdnn.api.abi.cuda_runtime import build_runtime

# What the sample's one kernel computes, for machines without a GPU; its own file needs nvcc.
HALF = """
#include "fp16_dev.h"
template <class T> void gpu_float2half_rn(int size, const T *in, half1 *out)
{
    for (int i = 0; i < size; i++) out[i] = __float2half_rn(float(in[i]));
}
template void gpu_float2half_rn<float>(int, const float *, half1 *);
template void gpu_float2half_rn<double>(int, const double *, half1 *);
"""

# Lines of run_conv_sample.sh, without those that only measure: 1.4 to 20 thousand million products each on one processor.
CONVOLUTIONS = """
-c2048 -h7 -w7 -k512 -r1 -s1 -pad_h0 -pad_w0 -u1 -v1
-c512 -h28 -w28 -k128 -r1 -s1 -pad_h0 -pad_w0 -u1 -v1
-c512 -h28 -w28 -k1024 -r1 -s1 -pad_h0 -pad_w0 -u2 -v2
-c512 -h28 -w28 -k256 -r1 -s1 -pad_h0 -pad_w0 -u2 -v2
-c256 -h14 -w14 -k256 -r3 -s3 -pad_h1 -pad_w1 -u1 -v1
-c256 -h14 -w14 -k1024 -r1 -s1 -pad_h0 -pad_w0 -u1 -v1
-c1024 -h14 -w14 -k256 -r1 -s1 -pad_h0 -pad_w0 -u1 -v1
-c1024 -h14 -w14 -k2048 -r1 -s1 -pad_h0 -pad_w0 -u2 -v2
-c1024 -h14 -w14 -k512 -r1 -s1 -pad_h0 -pad_w0 -u2 -v2
-c512 -h7 -w7 -k512 -r3 -s3 -pad_h1 -pad_w1 -u1 -v1
-c512 -h7 -w7 -k2048 -r1 -s1 -pad_h0 -pad_w0 -u1 -v1
-dgrad -c1024 -h14 -w14 -k2048 -r1 -s1 -pad_h0 -pad_w0 -u2 -v2 -fold
-dgrad -c16 -h14 -w11 -k24 -r3 -s3 -pad_h1 -pad_w1 -u2 -v2
-wgrad -c8 -h9 -w7 -k16 -r3 -s3 -pad_h1 -pad_w1 -u2 -v2
-filterFormat1 -n2 -c16 -h7 -w7 -k8 -r3 -s3 -pad_h1 -pad_w1 -u1 -v1
-mathType1 -filterFormat2 -dataType2 -n2 -c32 -h16 -w16 -k32 -r5 -s5 -pad_h0 -pad_w0 -u1 -v1
-mathType1 -filterFormat2 -dataType3 -n5 -c32 -h16 -w16 -k32 -r5 -s5 -pad_h0 -pad_w0 -u1 -v1
"""
ATTENTION = (
    "-attnFileDump1 -attnTrain1 -attnDataType{type} -attnResLink{residual} -attnDataLayout{layout} -attnNumHeads3 -attnBeamSize1"
    " -attnBatchSize1 -attnQsize8 -attnKsize8 -attnVsize8 -attnProjQsize2 -attnProjKsize2 -attnProjVsize2 -attnProjOsize8 -attnSeqLenQ4"
    " -attnSeqLenK10 -attnSmScaler1.0 -attnRandSeed{seed}"
)
ATTENTIONS = [
    {"type": 0, "residual": 0, "layout": 3, "seed": 1234},
    {"type": 0, "residual": 1, "layout": 0, "seed": 7},
    {"type": 1, "residual": 1, "layout": 5, "seed": 99},
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=Path, help="the folder that has conv_sample and multiHeadAttention")
    given = parser.parse_args().samples
    if not (given / "conv_sample" / "conv_sample.cpp").is_file():
        print(f"skipped: {given} has no conv_sample/conv_sample.cpp; NVIDIA's samples of cuDNN 8 are needed")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "abi"
        build(out)
        build_runtime(out)
        failed = convolutions(given, out, Path(folder)) + attentions(given, out, Path(folder))
    print(f"{failed} failed" if failed else "all as they should be")
    return 1 if failed else 0


def compiled(name: str, given: Path, out: Path, folder: Path) -> Path:
    """The sample's folder, copied and compiled there."""
    here = shutil.copytree(given / name, folder / name)
    if name == "conv_sample":
        (here / "half.cpp").write_text(HALF)
    includes = [f"-I{path}" for path in (out / "include", *cuda_headers())]
    sources = sorted(map(str, here.glob("*.cpp")))
    command = [
        "g++",
        "-w",
        "-O2",
        *includes,
        *sources,
        "-o",
        str(here / name),
        f"-L{out}",
        f"-l:{NAME}",
        "-l:libcudart.so.12",
    ]
    subprocess.run(command, check=True)
    return here


def run(here: Path, out: Path, arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(out), "DUALDNN_SHOW_ERRORS": "1"}
    command = [str(here / here.name), *arguments.split()]
    return subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=600)


def convolutions(given: Path, out: Path, folder: Path) -> int:
    """How many of NVIDIA's own comparisons with loops on the processor fail; each line makes two of them, integers in two types one."""
    here, failed = compiled("conv_sample", given, out, folder), 0
    for arguments in CONVOLUTIONS.split("\n")[1:-1]:
        done = run(here, out, arguments)
        right = done.returncode == 0 and done.stdout.count("Test PASSED") == 2 and "FAILED" not in done.stdout
        failed += not right
        print(f"{'passed' if right else 'FAILED'}: conv_sample {arguments}", flush=True)
        if not right:
            print(done.stdout[-1500:] + done.stderr[-1500:])
    for arguments in ("-n1 -c18 -h2 -w2 -transformToNCHW", "-n1 -c18 -h2 -w2 -transformFromNCHW"):
        done = run(here, out, arguments)
        failed += done.returncode != 0
        print(f"{'FAILED' if done.returncode else 'ran'}: conv_sample {arguments}")
    return failed


def attentions(given: Path, out: Path, folder: Path) -> int:
    """How many results of attention differ from those of the model in NumPy that comes with the sample."""
    if not (given / "multiHeadAttention" / "multiHeadAttention.cpp").is_file():
        print(f"skipped: {given} has no multiHeadAttention/multiHeadAttention.cpp")
        return 0
    here, failed = compiled("multiHeadAttention", given, out, folder), 0
    model = importlib.util.find_spec("autograd") is not None
    if not model:
        print("the sample is run, but not compared with its model: pip install autograd")
    # The model is for Python 2, where / of whole numbers is whole.
    text = (here / "attn_ref.py").read_text().replace("np.shape(w)[0] / nheads", "np.shape(w)[0] // nheads")
    (here / "attn_ref.py").write_text(text)
    for options in ATTENTIONS:
        arguments = ATTENTION.format(**options)
        done = run(here, out, arguments)
        right = done.returncode == 0 and "Test DONE" in done.stdout
        said = ""
        if right and model:
            compared = subprocess.run([sys.executable, "attn_ref.py"], cwd=here, capture_output=True, text=True)
            said = compared.stdout
            right = compared.returncode == 0 and said.count("PASS: ") == 8 and "FAIL: " not in said
            done.stderr += compared.stderr
        failed += not right
        print(f"{'passed' if right else 'FAILED'}: multiHeadAttention {options}", flush=True)
        if not right:
            print(done.stdout[-800:] + said[-2500:] + done.stderr[-1500:])
    return failed


if __name__ == "__main__":
    sys.exit(main())
