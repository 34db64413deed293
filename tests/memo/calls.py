"""In front of the programs of these tests: the library as C sees it, with its messages and the counts of its memo."""

import ctypes
import sys

C = ctypes.CDLL(sys.argv[1])
P, Int, F, D = ctypes.c_size_t, ctypes.c_int, ctypes.c_float, ctypes.c_double
ref = ctypes.byref


def said():
    """The message of the last refused call."""
    text = ctypes.create_string_buffer(8192)
    C.cudnnGetLastErrorString(text, P(8192))
    return text.value.decode()


def counts():
    """Return what the memo has done, by name."""
    from dualdnn.api.abi.memo.keeping import COUNTS

    inside = sys.modules["_dualdnn_c"]
    found = inside.ffi.new("unsigned long long[8]")
    inside.lib.memo_counts(found)
    return dict(zip(COUNTS, found, strict=True))


def made(kind):
    """A new handle or descriptor."""
    found = P()
    status = getattr(C, f"cudnnCreate{kind}")(ref(found))
    assert status == 0, (status, said())
    return found


def ints(*values):
    return (Int * len(values))(*values)


def tensor(*dims, data_type=0):
    """A packed tensor descriptor."""
    found = made("TensorDescriptor")
    assert C.cudnnSetTensor4dDescriptor(found, 0, data_type, *dims) == 0, said()
    return found


def device():
    from dualdnn.accelerated.runtime.devices import open_device

    return open_device("emulated")


def placed(values):
    """An array on the emulated device."""
    memory = device().allocate(values.nbytes)
    device().upload(memory.address, values)
    return memory


def contents(memory, dtype):
    import numpy as np

    return np.frombuffer(device().download(memory.address, memory.nbytes), dtype)
