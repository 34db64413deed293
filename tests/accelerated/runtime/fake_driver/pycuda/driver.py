"""Fakes PyCUDA's stack of contexts per thread. A thread that ends with a context on it aborts the process."""

import ctypes

_driver = ctypes.CDLL("libcuda.so.1")


class Error(Exception):
    pass


def init():
    if _driver.cuInit(0):
        raise Error("cuInit failed: no CUDA-capable device is detected")


class Context:
    current = None

    def __init__(self, device, handle):
        self.device, self.handle = device, handle

    @staticmethod
    def get_current():
        return Context.current

    def get_device(self):
        return self.device

    def push(self):
        _driver.fake_push(ctypes.c_void_p(self.handle))
        Context.current = self

    @staticmethod
    def pop():
        if _driver.fake_pop():
            raise Error("cannot pop from empty stack")
        Context.current = None


class device_attribute:
    MULTIPROCESSOR_COUNT, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 16, 97


class Device:
    def __init__(self, index):
        self.index = index

    def __eq__(self, other):
        return self.index == other.index

    @staticmethod
    def count():
        found = ctypes.c_int()
        _driver.cuDeviceGetCount(ctypes.byref(found))
        return found.value

    def name(self):
        return f"Fake {self.index}"

    def compute_capability(self):
        return 9, 0

    def get_attribute(self, attribute):
        found = ctypes.c_int()
        _driver.cuDeviceGetAttribute(ctypes.byref(found), attribute, self.index)
        return found.value

    def retain_primary_context(self):
        return Context(self, 0x1000 + self.index)

    def make_context(self):
        made = Context(self, 0x2000 + self.index)
        made.push()
        return made
