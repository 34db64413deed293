"""Build C libraries, lists of kernel modules and headers once, for all processes of a test run."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dualdnn.accelerated.runtime.cache import cache_folder, locked
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.api import cudnn
from dualdnn.api.abi.build import build
from dualdnn.api.abi.cuda_runtime import build_runtime
from dualdnn.conformance.kernels import build_ahead


@pytest.fixture
def handle() -> Iterator[Any]:
    """Return a handle of the reference backend. A test module may override this fixture."""
    made = cudnn.cudnnCreate(backend="reference")
    yield made
    cudnn.cudnnDestroy(made)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable garbage collection during collection, a quarter of whose time it takes. Tests need not be walked again."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


LISTS = {"listed", "of_small", "of_h100"}  # fixtures that plan every kernel module, in 10 to 20 s of CPU time


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need the lists of all kernel modules as long, so that only ``make test-long`` runs them."""
    for item in items:
        if LISTS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def folder_of_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all processes of this run of pytest share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def built_library(folder_of_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that copies the C library of a release into a new folder, and returns the library's path.

    Each release is compiled once in a run. runtime: also copy the CUDA runtime for host memory.
    """

    def copied(release: int = 8, runtime: bool = False) -> Path:
        pytest.importorskip("cffi")
        if shutil.which("gcc") is None:
            pytest.skip("no C compiler")
        made = folder_of_run / f"c_library_{release}"
        with locked(folder_of_run / "c_library.lock"):
            library = build(made, release)
            if not (host := folder_of_run / "cuda_runtime").is_dir():
                build_runtime(host)
        out = tmp_path_factory.mktemp("c_library")
        for folder in (made, host)[: 1 + runtime]:
            shutil.copytree(folder, out, symlinks=True, dirs_exist_ok=True)
        return out / library.name

    return copied


@pytest.fixture(scope="session")
def listed(folder_of_run: Path) -> build_ahead.Listed:
    """Return the modules of `dualdnn build` for the emulated device, which are listed without compiling."""
    kept = folder_of_run / "listed.pickle"
    with locked(folder_of_run / "listed.lock"):
        if not kept.is_file():
            device = open_device("emulated")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(device), "function", None)
                kept.write_bytes(pickle.dumps(build_ahead.listed(device)))
    return pickle.loads(kept.read_bytes())


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an empty kernel cache, which shares the precompiled headers of all tests."""
    shared, made = cache_folder() / "headers", tmp_path / "cache"
    shared.mkdir(parents=True, exist_ok=True)
    made.mkdir()
    (made / "headers").symlink_to(shared)
    monkeypatch.setenv("DUALDNN_CACHE", str(made))
    return made
