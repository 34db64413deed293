"""Load the library as C sees it, with its messages and memo counts. This text precedes each program of these tests."""

import ctypes
import sys

from dualdnn.conformance.fuzz.c_library import CLibrary

P, Int, F, D = ctypes.c_size_t, ctypes.c_int, ctypes.c_float, ctypes.c_double
ref = ctypes.byref
opened = CLibrary(sys.argv[1])
C, said, counts, made = opened.functions, opened.said, opened.counts, opened.made


def ints(*values):
    return (Int * len(values))(*values)


def tensor(*dims, data_type=0):
    """Return a packed tensor descriptor."""
    found = made("TensorDescriptor")
    assert C.cudnnSetTensor4dDescriptor(found, 0, data_type, *dims) == 0, said()
    return found


def device():
    from dualdnn.accelerated.runtime.devices import open_device

    return open_device("emulated")


def placed(values):
    """Copy an array to the emulated device, and return its memory."""
    memory = device().allocate(values.nbytes)
    device().upload(memory.address, values)
    return memory


def contents(memory, dtype):
    import numpy as np

    return np.frombuffer(device().download(memory.address, memory.nbytes), dtype)
