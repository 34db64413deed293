"""Test that `dualdnn build --wheel` makes a wheel of kernels that pip installs, and a stopped build goes on."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from collections import defaultdict
from itertools import product
from pathlib import Path

import pytest
from dualdnn import __version__
from dualdnn.accelerated.plans import AlignedPlan, Launch, plan
from dualdnn.accelerated.reproducible import at_level, level_of
from dualdnn.accelerated.runtime import fallbacks, shipped
from dualdnn.accelerated.runtime.errors import CompileError, NotBuilt
from dualdnn.accelerated.runtime.listing import Listing
from dualdnn.accelerated.runtime.nvcc import ShippingNvcc
from dualdnn.accelerated.runtime.sources import KERNELS, flatten, module
from dualdnn.api.operations import Unsupported
from dualdnn.api.operations.backend import BATCH, DEVICE, RUN
from dualdnn.conformance import bits
from dualdnn.conformance.bench.networks import networks
from dualdnn.conformance.bench.rows import batch_training, rows
from dualdnn.conformance.cases.reproducible import EVERY_ALONE, EVERY_OVER
from dualdnn.conformance.command_line import main
from dualdnn.conformance.domains import DOMAINS, operations
from dualdnn.conformance.kernels import build_ahead, kernel_sweeps, kernel_wheel
from dualdnn.conformance.kernels import command as build_command
from dualdnn.conformance.kernels.build_ahead import with_workspace
from dualdnn.conformance.kernels.warm_up import modules_of, with_room
from dualdnn.conformance.suite.files import CASES, case_files
from hypothesis import HealthCheck, Phase, given, seed, settings

SOURCE = "tensor_arithmetic/tensor_arithmetic.cu"
MODULES = [(SOURCE, (("COMPUTE", "float"), ("ELEMENT", element))) for element in ("float", "half", "double")]
H100 = kernel_wheel.TARGETS["sm_90a"][1][0]
SMALL = kernel_wheel.TARGETS["sm_80"][1][1]  # the GPU with the least shared memory that wheels serve
# Above level RUN, LRN and recurrent networks add in the order of kernels for their windows and sizes.
MAY_BE_REFUSED = {"convolution", "normalization", "pooling", "rnn"}
GUARDED = re.compile(r"#if [^\n]*__CUDA_ARCH__ >= 900.*?#endif", re.DOTALL)


class Launched(Listing):
    """List modules, and compare the shared memory of each launch with the device's limit per block."""

    def function(self, source, kernel, definitions=()):
        made = super().function(source, kernel, definitions)
        made.name, made.device = kernel, self
        return made


@pytest.fixture(scope="module")
def of_small():
    """Return the modules that ``dualdnn build`` has for SMALL, and the launches that need too much shared memory."""
    too_large, begun = [], Launch.__init__

    def begin(self, *arguments, **named):
        begun(self, *arguments, **named)
        if self.shared_bytes > SMALL.shared_bytes_per_block:
            too_large.append(self.function.name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Launch, "__init__", begin)
        patch.setattr(build_ahead, "Listing", Launched)
        return build_ahead.wanted_modules(SMALL), too_large


@pytest.fixture(scope="module")
def of_h100():
    """Return the modules of some parts of the wheel for H100."""
    return {
        module
        for part in (kernel_wheel.BUILT, "convolutions", "depthwise_convolution", "multi_head_attention")
        for module in kernel_wheel.listed(H100, part)
    }


@pytest.fixture
def compilations(monkeypatch):
    """Stand in for a compiler that writes a module's definitions as its binary, and refuses those in a set."""
    asked: list[str] = []
    refused: set[str] = set()

    def run(self, unit, output):
        text = unit.read_text().partition("#include")[0]
        asked.append(text)
        failed = any(word in text for word in refused)
        output.write_bytes(text.encode() * 10)
        return subprocess.CompletedProcess([], int(failed), "", "refused")

    monkeypatch.setattr(ShippingNvcc, "run", run)
    return asked, refused


def built(out, modules=MODULES):
    return kernel_wheel.build("sm_90a", modules, out, 2, lambda *_: None)


def test_a_build_that_failed_or_was_stopped_goes_on(tmp_path, compilations, capsys):
    asked, refused = compilations
    refused.add("double")
    with pytest.raises(CompileError, match="refused"):
        built(tmp_path)
    assert len(asked) == 3 and not list(tmp_path.glob("*.whl"))
    assert "ELEMENT=double: " in capsys.readouterr().err
    refused.clear()
    first = built(tmp_path).read_bytes()
    assert len(asked) == 4 and "double" in asked[-1]
    assert built(tmp_path).read_bytes() == first and len(asked) == 4  # The same modules make the same wheel.
    damaged = next((tmp_path / "build-sm_90a").glob("*.cubin"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert built(tmp_path).read_bytes() == first and len(asked) == 5
    assert re.search(r"dualdnn_kernels_sm90-\S+\.whl: 3 modules, 0\.0 MB, in \d+ s", capsys.readouterr().out)


LISTING = """
import os, time
from dualdnn.conformance.command_line import main
from dualdnn.conformance.kernels import command, kernel_wheel
def listed(gpu, part):
    os.write(1, b"listing\\n")
    time.sleep(60)
if __name__ == "__main__":
    kernel_wheel.listed, command.find_nvcc = listed, lambda: "nvcc"
    raise SystemExit(main(["build", "--wheel", "--arch", "sm_90a", "--jobs", "2"]))
"""


def test_an_interrupt_ends_the_listing_of_modules_at_once(tmp_path):
    (program := tmp_path / "listing.py").write_text(LISTING)
    began, pipes = time.monotonic(), {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, program], cwd=tmp_path, start_new_session=True, **pipes) as running:
        assert running.stdout.readline() == "listing\n"
        os.killpg(running.pid, signal.SIGINT)  # The terminal sends it to all processes.
        assert running.communicate()[1].splitlines()[-1] == "dualdnn build: interrupted"
    assert running.returncode == 130 and time.monotonic() - began < 50


def test_pip_installs_the_wheel_and_its_modules_are_found(tmp_path, compilations):
    path = built(tmp_path)
    site = tmp_path / "site"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        "--target",
        str(site),
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(site / shipped.PACKAGE / "sm_90a.zip") as archive:
        assert len(archive.namelist()) == 3
        for source, definitions in MODULES:
            wanted = module(source, definitions)
            key = shipped.key_of(wanted, flatten(wanted.source))
            assert shipped.unsealed("sm_90a", key, archive.read(key)) == wanted.preamble.encode() * 10


def test_a_wheel_that_is_too_large_is_an_error(tmp_path, compilations, monkeypatch):
    monkeypatch.setattr(kernel_wheel, "MAX_WHEEL", 100)
    with pytest.raises(ValueError, match="at most 100"):
        built(tmp_path)


def test_the_extra_gpu_takes_all_wheels_of_this_version():
    wanted = {f"dualdnn-kernels-{name}=={__version__}" for name, _ in kernel_wheel.TARGETS.values()}
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["optional-dependencies"]["gpu"]) == wanted and project["version"] == __version__


def test_sweeps_close_the_batches_of_a_network():
    """Layers with batch 24 or 100 need the modules of batches that are powers of two, and at most one other."""
    swept = set()
    for operation in kernel_sweeps.batch_normalization():
        if operation.x.dims[1:] == (256, 56, 56):
            swept |= {*modules_of([with_room(operation, H100)], H100)}
    held_out = [
        batch_training(kind, (n, 256, 56, 56), layout) for kind, layout in kernel_sweeps.STORED for n in (24, 100)
    ]
    wanted = {*modules_of(held_out, H100)}
    assert len(wanted) > 4 and len(wanted - swept) <= 1


@pytest.mark.long
def test_tiles_of_networks_are_in_the_sweep_of_convolutions():
    """The sweep has none of their layers. Planes of 35 x 35 and strides need kernels of their own."""
    rows = [row for network in networks() if network.name in ("inception_v3", "resnet18") for _, row in network.rows()]
    found = [row.operation for row in rows if row.family in ("convolution", "data gradient", "filter gradient")]
    wanted = modules_of([with_room(operation, H100) for operation in found], H100)
    tiles = {made for made in wanted if made[0] == "convolution/implicit_gemm/tma.cu"}
    assert len(tiles) > 5 and tiles <= set(kernel_wheel.listed(H100, "convolutions"))


@pytest.mark.parametrize("part", kernel_sweeps.PARTS)
def test_the_first_operations_of_every_sweep_are_planned(part):
    operations = [operation for operation, _ in zip(kernel_sweeps.PARTS[part](), range(40), strict=False)]
    assert len(operations) == 40 and modules_of([with_room(operation, H100) for operation in operations], H100)


def test_targets_and_parts_that_are_not_there(tmp_path, capsys, monkeypatch):
    assert main(["build", "--wheel", "--arch", "sm_70", "--out", str(tmp_path)]) == 2
    assert "--arch sm_70: expected one of sm_80, sm_90a, sm_100f" in capsys.readouterr().err
    assert main(["build", "--arch", "sm_90a"]) == 2
    assert "only wheels" in capsys.readouterr().err
    monkeypatch.setattr(kernel_wheel, "wanted_modules", lambda *_: MODULES)
    monkeypatch.setattr(build_command, "find_nvcc", lambda: "nvcc")
    assert main(["build", "--wheel", "--arch", "sm_90a", "-k", "nosuch/", "--out", str(tmp_path)]) == 2
    assert "-k nosuch/" in capsys.readouterr().err


def test_launches_fit_the_smallest_gpu(of_small):
    modules, too_large = of_small
    assert modules and not set(too_large)


class Offline(Launched):
    """Stand in for a device with the modules of a wheel and no compiler."""

    def __init__(self, device, modules):
        super().__init__(device)
        self.shipped = set(modules)

    def obstacle(self):
        return "no compiler"

    def function(self, source, kernel, definitions=()):
        if (source, tuple(definitions)) not in self.shipped:
            raise NotBuilt(f"{source} {definitions}")
        return super().function(source, kernel, definitions)

    function_when_ready = function

    def optional_function(self, *wanted):
        with contextlib.suppress(NotBuilt):
            return self.function(*wanted)


def refusal(operation, device):
    """Return why a level refuses an operation; empty where it is planned, for unaligned operands, too."""
    try:
        made = plan(with_workspace(operation, device), device)
    except Unsupported as error:
        return str(error)
    if isinstance(made, AlignedPlan):
        with contextlib.nullcontext() if level_of(device) == RUN else contextlib.suppress(Unsupported):
            made.fallback()
    return ""


@pytest.mark.parametrize("family", DOMAINS)
def test_without_a_compiler_the_wheel_serves_every_operation(family, of_small, of_h100, tmp_path, monkeypatch, caplog):
    """The wheel lacks modules for some operations. A generic solver of their family serves these, also for unaligned
    operands, and logs it. A level refuses a call only if none has the order of its sums."""
    monkeypatch.setenv("DUALDNN_CACHE", str(tmp_path))
    fallbacks._noted.clear()
    wheels = Offline(SMALL, of_small[0]), Offline(H100, of_h100)

    @seed(4)
    @settings(
        max_examples=12, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(operations(DOMAINS[family]))
    def look(drawn):
        for operation, device in product(drawn.steps, wheels):
            assert not refusal(operation, device)
            seen = at_level(device, DEVICE)
            if reason := refusal(operation, seen):
                lacks = family in MAY_BE_REFUSED and "has its kernels" in reason
                assert lacks or refusal(operation, at_level(Listing(device.device), DEVICE))

    look()
    assert {note.split(" instead")[0] for note in fallbacks.notes()} == {
        record.getMessage().split(" serves")[0] for record in caplog.records if "serves instead" in record.getMessage()
    }


@pytest.mark.parametrize("level", [BATCH, DEVICE])
def test_without_a_compiler_a_level_takes_what_it_takes_with_one(level, of_h100, tmp_path, monkeypatch):
    """The wheel has the kernels whose order a level asks for in its cases, for a few images."""
    monkeypatch.setenv("DUALDNN_CACHE", str(tmp_path))  # Notes on fallbacks must not reach this machine's cache.
    wheel, compiled = Offline(H100, of_h100), Listing(H100)
    for name, operation in {**EVERY_ALONE, **EVERY_OVER}.items():
        operation = bits.with_images(operation, bits.IMAGES) if name in EVERY_ALONE else operation
        assert not refusal(operation, at_level(wheel, level)) or refusal(operation, at_level(compiled, level)), name


def test_kernels_that_are_empty_without_wgmma_are_planned_on_9_x_alone():
    """On other GPUs these kernels do nothing, so that other kernels must compute what an H100 computes by them."""
    guard = "defined(EMULATED_CUDA) || defined(WGMMA_INSTRUCTIONS)"
    texts = {path: path.read_text() for path in KERNELS.rglob("*.cu*")}
    parts = {str(path.relative_to(KERNELS)) for path, text in texts.items() if guard in text}
    guarded = parts | {
        str(path.relative_to(KERNELS)) for path, text in texts.items() if any(f'"{part}"' in text for part in parts)
    }
    of_each = {row.family: row.operation for row in rows() if " half" in row.name or " TF32" in row.name}
    operations = [with_room(operation, H100) for operation in of_each.values()]
    assert {source for source, _ in modules_of(operations, H100)} & guarded
    gpu = kernel_wheel.TARGETS["sm_100f"][1][0]
    assert not {source for source, _ in modules_of([with_room(o, gpu) for o in of_each.values()], gpu)} & guarded


def test_every_definition_that_makes_variants_has_its_reason(of_h100):
    """docs/performance/variants.md names each definition, except for data types and constants with one value. Some modules
    of a source may lack a definition that others have, and kernels of levels have definitions of their own."""
    page = (Path(__file__).parents[2] / "docs/performance/variants.md").read_text()
    values, of_source = defaultdict(set), defaultdict(list)
    for source, definitions in of_h100:
        of_source[source].append(dict(definitions))
    for source, variants in of_source.items():
        for name in set().union(*variants):
            values[source, name] = {each.get(name) for each in variants}
    several = (
        {name for (_, name), found in values.items() if len(found) > 1}
        - build_ahead.TYPE_DEFINITIONS
        - {build_ahead.ONE_KERNEL}
    )
    ranges = {f"{letter}{axis}" for letter in "KSP" for axis in range(3)}
    assert several - ranges <= set(re.findall(r"`([A-Z]\w+)`", page))


def test_modules_for_sm_80_set_up_no_barriers_of_sm_90(of_small):
    """The assembler for 8.0 refuses the barriers that kernels with TMA wait for. A source may have them under a guard
    for its architecture."""
    for source in sorted({source for source, _ in of_small[0]}):
        assert "mbarrier_init(" not in GUARDED.sub("", (KERNELS / source).read_text()), source


@pytest.mark.long
def test_without_a_compiler_the_wheel_serves_every_case_of_the_standard_tier(tmp_path):
    """No kernel is compiled or run. An imagined H100 has the modules of the wheel by their names."""
    report, options = tmp_path / "report.txt", ["--subject", "accelerated:emulated", "--tier", "standard", "--tb=no"]
    plugins = ("no:cacheprovider", "no:hypothesispytest", "imagined_gpu", "dualdnn.conformance.plugin")
    command = [sys.executable, "-m", "pytest", *(word for name in plugins for word in ("-p", name)), *options]
    environment = {
        **os.environ,
        "IMAGINED_REPORT": str(report),
        "PYTHONPATH": str(Path(__file__).parent),
        "DUALDNN_CACHE": str(tmp_path / "cache"),  # The notes on fallbacks must not reach this machine's cache.
    }
    subprocess.run(
        [*command, "--rootdir", str(CASES), "-c", os.devnull, *map(str, case_files())],
        env=environment,
        capture_output=True,
    )
    *refused, plans = report.read_text(encoding="utf-8").splitlines()
    assert not refused
    assert int(plans.removesuffix(" plans")) > 500
