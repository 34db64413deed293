"""Tests CUDA contexts on a fake driver: which context serves a call, and that threads end without an abort."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from dualdnn.accelerated.runtime.programs import host_compiler
from forked import Forked

FAKE = Path(__file__).parent / "fake_driver"
OPENED = """
import ctypes, sys, threading
fake = ctypes.CDLL("libcuda.so.1")
fake.fake_push.argtypes = fake.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]
def current():
    found = ctypes.c_void_p()
    fake.cuCtxGetCurrent(ctypes.byref(found))
    return hex(found.value or 0)
{before}
from pathlib import Path
from dualdnn.accelerated.records import KernelStep, Where
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.accelerated.runtime.device import LaunchShape
device = open_device("gpu")
kernel = device._find(device._load_module(Path("module"), b"image"), "kernel")
step = KernelStep(kernel, bytes(8), LaunchShape((1,), (32,)), [Where(0, 0, 0)])
def use():
    "Allocate, copy, launch as a kernel and as a step of a record, make a stream and end it."
    memory = device.allocate(8)
    device.upload(memory.address, b"12345678")
    kernel.launch(bytes(8), (1,), (32,))
    step.bound([memory.address])(None)
    stream = device.new_stream()
    stream.synchronize()
    assert device.download(memory.address, 8) == b"12345678" and stream.done()
"""
C_THREADS = """
import cffi
ffi = cffi.FFI()
ffi.cdef("typedef unsigned long pthread_t; int pthread_create(pthread_t*, void*, void*(*)(void*), void*);"
         "int pthread_join(pthread_t, void**); void fake_worker(void*(*)(void*));")
C = ffi.dlopen(None)
@ffi.callback("void*(void*)")
def export(argument):
    use()
    return argument
"""
THREADS = {
    "a thread of Python": "t = threading.Thread(target=use); t.start(); t.join(); use()",
    "a thread of C that calls an export": C_THREADS
    + 't = ffi.new("pthread_t*"); C.pthread_create(t, ffi.NULL, export, ffi.NULL); C.pthread_join(t[0], ffi.NULL); use()',
    "a worker that ends behind the interpreter": C_THREADS + 'ffi.dlopen("libcuda.so.1").fake_worker(export); use()',
    "a call after finalisation": """
class Late:
    def __del__(self, use=use, print=print, fake=fake): use(); print("late", fake.fake_launches())
late = Late(); use()
import atexit; atexit.register(lambda: print("closed"))
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("driver")
    command = [
        host_compiler(),
        "-shared",
        "-fPIC",
        "-O1",
        FAKE / "driver.cpp",
        "-o",
        made / "libcuda.so.1",
        "-lpthread",
    ]
    subprocess.run(command, check=True)
    (made / "no_pycuda" / "pycuda").mkdir(parents=True)
    (made / "no_pycuda" / "pycuda" / "__init__.py").write_text("raise ImportError('no PyCUDA in this test')")
    return made


@pytest.fixture(scope="module", params=["PyCUDA", "the driver"])
def run(request, folder):
    """Return a function that runs OPENED and then a program, and returns the printed lines."""
    pycuda = FAKE if request.param == "PyCUDA" else folder / "no_pycuda"
    imports = "import cffi, dualdnn.accelerated.records, dualdnn.accelerated.runtime.information"
    forked = Forked(folder, imports, LD_LIBRARY_PATH=str(folder), PYTHONPATH=str(pycuda))

    def run(program, before="", **variables):
        program = OPENED.replace("{before}", before) + program
        return forked.run(program, seconds=60, **variables).split("\n")[:-1]

    run.layer = request.param
    yield run
    forked.close()


@pytest.mark.parametrize("run", ["PyCUDA"], indirect=True)
@pytest.mark.parametrize("kind", THREADS)
def test_no_thread_aborts_the_process_at_its_end(run, kind):
    """PyCUDA aborts the process if a thread ends with a context on its stack."""
    printed = run(THREADS[kind] + "\nprint('end')")
    assert printed[0] == "end"
    if "finalisation" in kind:
        assert printed[1:] == ["closed", "late 4"]


def test_a_thread_keeps_the_context_that_somebody_made_current_meanwhile(run):
    """torch.cuda.set_device does so between two calls. A thread without a context keeps the device's context."""
    program = """
print(current()); use(); print(current())
fake.cuCtxSetCurrent(0x1001)
use(); print(current(), fake.fake_launches())
"""
    assert run(program) == ["0x1000", "0x1000", "0x1001 4"]


def test_a_device_that_is_opened_while_another_one_is_current(run):
    """Each device launches in its own context, even if the context of a third device is current."""
    program = """
other = open_device("gpu", 1)
fake.cuCtxSetCurrent(0x1007)
second = other._find(other._load_module(Path("module"), b"image"), "kernel")
second.launch(bytes(8), (1,), (32,)); use(); print(other.name, current(), fake.fake_launches())
"""
    assert run(program) == ["Fake 1 0x1007 3"]


@pytest.mark.parametrize("run", ["the driver"], indirect=True)
def test_a_second_process_measures_no_time_again(run, tmp_path):
    """Each level of reproducibility has its own times."""
    program = """
from types import SimpleNamespace as Made
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.api.operations import ScaleTensor, TensorSpec
from dualdnn.api.operations.specs import FLOAT
backend, asked = AcceleratedBackend("gpu", "LEVEL"), []
backend.prepare = lambda _: Made(plan=Made(steps=[]), recorded=lambda _: Made(work=0), bound=lambda _: (None, True))
backend._seconds = lambda *_: asked.append(1) or 0.25
found = backend.algorithm_time(ScaleTensor(0.5, TensorSpec.packed(FLOAT, (1, 1, 1, 1))), [], None)
print(found, len(asked))
"""
    levels = ("run", "run", "batch", "run")
    printed = [run(program.replace("LEVEL", level), DUALDNN_CACHE=str(tmp_path)) for level in levels]
    assert printed == [["250.0 1"], ["250.0 0"], ["250.0 1"], ["250.0 0"]]
    assert [path.name for path in (tmp_path / "choices").iterdir()] == ["Fake-0.txt"]


def test_a_context_of_the_caller_is_adopted(run):
    """A current context of the same GPU is adopted, made by PyCUDA or not; a context of another GPU is not."""
    made = "import pycuda.driver as cuda; cuda.init(); context = cuda.Device(0).make_context()"
    end = "\ncontext.pop()" if run.layer == "PyCUDA" else ""
    before = made if run.layer == "PyCUDA" else "fake.cuCtxSetCurrent(0x2000)"
    assert run("use(); print(hex(device.gpu.context), current())" + end, before) == ["0x2000 0x2000"]
    if run.layer != "PyCUDA":
        assert run("use(); print(hex(device.gpu.context), current())", "fake.cuCtxSetCurrent(0x2001)") == [
            "0x1000 0x2001"
        ]


def test_the_gpu_is_described_alike_by_both(run):
    """PyCUDA and the driver describe the GPU alike; the facts about the machine name the source."""
    printed = run(
        "print(device.name, device.architecture, device.multiprocessors, device.shared_bytes_per_block)\n"
        "from dualdnn.accelerated.runtime.information import facts\nprint(facts()['GPU'])"
    )
    by = "PyCUDA of a test" if run.layer == "PyCUDA" else "the driver alone (PyCUDA: no PyCUDA in this test)"
    assert printed == ["Fake 0 sm_90 132 232448", f"Fake 0, sm_90, 132 SMs, by {by}"]


CAPTURED = """
from dualdnn.accelerated.runtime.errors import DeviceError
from dualdnn.accelerated.runtime.timing import Clock
fake.fake_capture.argtypes = [ctypes.c_void_p]
stream, old = device.new_stream(), device.allocate(8)
fake.fake_capture(stream.handle)
def serve(number):
    "Load a module, allocate, copy and launch; free what was outgrown."
    kernel = device._find(device._load_module(Path(str(number)), b"image"), "kernel")
    def work(memory):
        device.upload(memory.address, b"12345678", stream)
        device.fill(memory.address, 8, 0, stream)
        kernel.launch(bytes(8), (1,), (32,), stream=stream)
    device.scratch.lend(stream, 2**20 << number, work)
serve(0); old.free()
t = threading.Thread(target=serve, args=(1,)); t.start(); t.join()
print(fake.fake_launches(), fake.fake_ended(), fake.fake_mode(), [bytes(data) for data in device.captured])
"""


def test_the_device_keeps_what_captured_launches_need(run):
    """A graph reads its modules, memory and copied host bytes each time it runs, so the device keeps them."""
    assert run(CAPTURED) == ["2 0 0 [b'12345678', b'12345678']"]


def test_waiting_for_a_capturing_stream_is_refused_before_the_capture_ends(run):
    program = """
address = device.allocate(8).address
for wait in (stream.synchronize, stream.done, lambda: device.download(address, 8, stream), lambda: Clock(device, stream)):
    try: wait()
    except DeviceError as error: print("is capturing, and nobody can wait" in str(error), fake.fake_ended())
"""
    assert run(CAPTURED + program)[1:] == ["True 0"] * 4


@pytest.mark.parametrize(
    "gpus, index, message", [("0", 0, "finds no GPU"), ("1", 1, "index=1: the number of GPUs is 1")]
)
def test_a_gpu_that_is_not_there(run, gpus, index, message):
    program = f"""
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.accelerated.runtime.errors import DeviceUnavailable
try: open_device("gpu", {index})
except DeviceUnavailable as error: print(error)
raise SystemExit(0)
"""
    assert message in run("", program, FAKE_GPUS=gpus)[0]
