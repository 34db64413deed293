# The two commands of a fresh machine are `make conformance` and `make test`; both set everything up first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet
JOBS ?= $(shell nproc)
EVERY ?= 1
SUBJECTS ?= # both backends, the recorded calls, and NVIDIA's library where it is installed
# NVIDIA's own library, judged on its descriptor calls. Its dependency cuBLAS is only needed to compute on a GPU.
VENDOR := nvidia-cudnn-cu12==8.9.7.29
# Tests start hundreds of processes, and each would compile all Python files again.
unexport PYTHONDONTWRITEBYTECODE

KERNELS = $(shell find accelerated tests/accelerated -name '*.cu' -o -name '*.cuh' -o -name '*.h' -o -name '*.cpp')

.PHONY: help docs conformance abi-conformance clients clients-gpu prove prove-clauses prove-clauses-accelerated races races-all fuzz test standard-tests test-long lint stubs kernel-wheels bench clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

# NVIDIA's library, more than a gigabyte, is unpacked beside the rest. Editors and mypy find the packages in build/types, under
# the names by which they are imported (pyproject.toml).
$(BIN)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip
	($(INSTALL) --no-deps '$(VENDOR)' || echo "without NVIDIA's library: $(VENDOR) could not be installed") & \
	$(INSTALL) --editable '.[emulated,test,lint,examples,port,abi,jit]'; status=$$?; wait; exit $$status
	mkdir -p build/types/dualdnn
	for part in package/__init__.py api reference accelerated conformance; do ln -sfn ../../../$$part build/types/dualdnn/; done
	touch $@

# smoke, standard (conformance-report-standard) or full (conformance-report)
TIER ?= standard
conformance: $(BIN)/.ready ## judge both backends, write conformance-report-standard/report.html; TIER=full: by every case
	$(BIN)/dualdnn conformance --jobs $(JOBS) $(addprefix --subject ,$(SUBJECTS)) --solvers all --tier $(TIER)

abi-conformance: export DUALDNN_MEMO = check
abi-conformance: $(BIN)/.ready ## the C library, judged by the suite as any library is; its memo is held to what Python says; PART=3/10: a tenth of the cases
	$(BIN)/dualdnn abi --out build/abi
	$(BIN)/dualdnn conformance --jobs $(JOBS) --subject library:build/abi/libcudnn.so.8 --shard $(PART) --out abi-conformance-report
	DUALDNN_BACKEND=accelerated DUALDNN_DEVICE=emulated DUALDNN_EMULATION_FOREIGN=1 $(BIN)/dualdnn conformance --jobs $(JOBS) --subject library:build/abi/libcudnn.so.8 --shard $(PART) --out abi-conformance-report/emulated
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) -m "not long" tests/c_library/test_c_library.py tests/c_library/test_c_library_bad_input.py

clients: $(BIN)/.ready ## CuPy's cuDNN module, unmodified, on the C library
	$(BIN)/python examples/clients/run_cupy.py

# The interpreter that has PyTorch and PyCUDA; `make clients-gpu TORCH=python3`
TORCH ?= $(BIN)/python
clients-gpu: $(BIN)/.ready ## PyTorch, unmodified, on this library beside NVIDIA's, on a GPU; the table goes to build/pytorch
	$(TORCH) examples/clients/run_pytorch.py --kernels build/kernels

# The table of a full run where there is one; the standard tier launches every kernel, too.
KERNEL_TABLE = $(firstword $(wildcard conformance-report/kernels.json) conformance-report-standard/kernels.json)
races: $(KERNEL_TABLE) ## every kernel in one case at least, every race in memory an error
	DUALDNN_EMULATION_RACES=1 $(BIN)/dualdnn conformance --jobs $(JOBS) --subject accelerated:emulated --solvers all --covering $< --out races-report

docs: $(BIN)/.ready ## the site, a page for each function and type: build/site/index.html
	$(INSTALL) --editable '.[docs]'
	$(BIN)/python -m sphinx -q -W -j $(JOBS) docs build/site

prove: $(BIN)/.ready ## every case under every fault that it must notice; EVERY=10: a tenth of them
	$(BIN)/dualdnn conformance --jobs $(JOBS) --subject reference --prove --every $(EVERY) --out prove-report

# Another seed each day, which the command prints
SECONDS ?= 60
SEED ?= $(shell date +%Y%m%d)
fuzz: $(BIN)/.ready ## drawn operations on both backends, judged: SECONDS= how long, SEED= which
	$(BIN)/dualdnn fuzz --jobs $(JOBS) --seconds $(SECONDS) --seed $(SEED)

# 3/20: the third of twenty parts; a CI takes another part each day
PART ?= 1/1
prove-clauses: $(BIN)/.ready ## the cases of each clause under breaks of it; PART=3/20: of a twentieth of the clauses
	$(BIN)/dualdnn conformance --jobs $(JOBS) --subject reference --prove-clauses $(PART) --out prove-clauses-report

# By the proofs of the reference: the same cases under the same breaks, on the emulated device
prove-clauses-accelerated: prove-clauses ## the clauses that prove-clauses has proven, proven on the accelerated backend; PART= as there
	$(BIN)/dualdnn conformance --jobs $(JOBS) --subject accelerated:emulated --prove-clauses $(PART) --proofs prove-clauses-report/proofs.json --out prove-clauses-report/accelerated

races-all: $(BIN)/.ready ## judge the accelerated backend with every race in memory an error
	DUALDNN_EMULATION_RACES=1 $(BIN)/dualdnn conformance --jobs $(JOBS) --subject accelerated:emulated --solvers all --out races-report

conformance-report-standard/kernels.json:
	$(MAKE) conformance

# mypy runs on one core, beside the tests.
test: $(BIN)/.ready ## lint, types, tests of our own machinery; without those that take long
	$(MAKE) --no-print-directory -j2 lint standard-tests

standard-tests: $(BIN)/.ready
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations=10 --durations-min=3 -m "not long" tests

test-long: $(BIN)/.ready ## the tests that make test leaves out
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m long tests

lint: $(BIN)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(KERNELS)
	$(BIN)/mypy

# sm_100f needs nvcc 12.9 or later; binaries of a 12.x run on drivers from 525 on, those of a 13.x from 580 on
WHEELS ?= sm_80 sm_90a sm_100f
kernel-wheels: $(BIN)/.ready ## compiled kernels for a release, in wheels/; goes on where it was stopped, needs nvcc and no GPU
	for target in $(WHEELS); do $(BIN)/dualdnn build --wheel --arch $$target --jobs $(JOBS) $(addprefix --choices ,$(wildcard reports/choices/*.txt)) --out wheels || exit; done

stubs: $(BIN)/.ready ## write the type stubs of the documented calls
	$(BIN)/python -m dualdnn.conformance.pages.stubs
	$(BIN)/ruff format api/cudnn/__init__.pyi api/miopen/__init__.pyi

clean: ## remove the environment and what was made
	rm -rf $(VENV) conformance-report conformance-report-* prove-report prove-clauses-report races-report fuzz-report build *.egg-info
