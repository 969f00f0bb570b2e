# Two commands: `make demo` and `make test`. Everything else is listed by `make help`.
# Needs Python 3.11 or later with venv; .ci/venv explains how to install what is missing.

SHELL := /bin/bash
BIN := .venv/bin
DEMO := demo
CUDA := 12
OUT := gpu-check
WHEELS :=
NAMES :=
export PIP_NO_INPUT := 1

.PHONY: help demo demo-cluster test pytest test-matrix lint docs bench stress stress-long gpu-check wheel-check clean
.DELETE_ON_ERROR:

help:
	@echo "make demo         install, filter and transform real photographs on all cores and an emulated GPU"
	@echo "make demo-cluster one job over two hosts, two workers of Dask on this machine"
	@echo "make test         install the development tools, run all checks"
	@echo "make test-matrix  the tests as on Intel, as on AMD, and without optional packages"
	@echo "make lint         ruff and mypy only"
	@echo "make docs         the pages of docs/ and a reference of the Python interface, as a site in site/"
	@echo "make wheel-check  build the wheel, install it elsewhere and test it"
	@echo "make bench        all benchmarks, or NAMES=\"warm_job overhead\"; benchmarks/README.md"
	@echo "make stress       all tests, with many seeds, 1,000 examples and faults in real daemons"
	@echo "make stress-long  ten times as many faults, two hours; NAMES=\"soak\" for some; docs/robustness.md"
	@echo "make gpu-check    on a GPU host: OUT=folder for the JSON, WHEELS=folder offline, CUDA=12|13"
	@echo "make clean        remove everything that these commands created"

# One stamp per extra: reinstalled only when pyproject.toml has changed.
.venv/.installed-%: pyproject.toml .ci/venv
	@.ci/venv $*

.venv-minimal/.installed-%: pyproject.toml .ci/venv
	@VENV=.venv-minimal .ci/venv $*

$(DEMO)/photographs.npy: examples/photographs.py | .venv/.installed-demo
	@mkdir -p $(DEMO)
	$(BIN)/python $< $@

ON_PHOTOGRAPHS = fft --input $(DEMO)/photographs.npy
RUN = $(BIN)/hetsched run $(ON_PHOTOGRAPHS) --output $(DEMO)/spectra.npy --force --verify
EMULATED = --config emulated-gpu

demo: .venv/.installed-demo $(DEMO)/photographs.npy
	@echo; echo "== a function of SciPy on a stack of photographs, by hetsched.map"
	$(BIN)/python examples/denoise.py $(DEMO)/photographs.npy $(DEMO)/denoised.png
	@echo; echo "== Fourier transforms on all cores"
	$(RUN)
	@echo; echo "== slowed cores and an emulated GPU behind a 1 GB/s link: all are measured"
	$(RUN) $(EMULATED)
	@echo; echo "== the same again, with shares by the measured speeds"
	$(RUN) $(EMULATED)
	@echo; echo "== pictures"
	$(BIN)/hetsched plan $(ON_PHOTOGRAPHS) $(EMULATED) --plot $(DEMO)/gantt.png > $(DEMO)/plan.txt
	$(BIN)/python examples/spectra.py $(DEMO)/photographs.npy $(DEMO)/spectra.npy $(DEMO)/spectra.png
	@cat examples/next.txt

# Tests wait for their daemons two thirds of the time, so that two cores keep six processes busy.
PROCESSES = 6
PYTEST = pytest --numprocesses=$(PROCESSES) --dist=worksteal

demo-cluster: .venv/.installed-demo .venv/.installed-cluster
	$(BIN)/python examples/hosts.py

test: .venv/.installed-dev
	@$(MAKE) --no-print-directory --jobs=2 lint pytest

pytest: .venv/.installed-dev
	$(BIN)/python -m $(PYTEST)

# As on either vendor's processors, and with the required dependencies only.
test-matrix: .venv/.installed-dev .venv-minimal/.installed-test
	HETSCHED_CPU_VENDOR=GenuineIntel $(BIN)/python -m $(PYTEST)
	HETSCHED_CPU_VENDOR=AuthenticAMD $(BIN)/python -m $(PYTEST)
	.venv-minimal/bin/python -m $(PYTEST)

lint: .venv/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: .venv/.installed-docs
	$(BIN)/mkdocs build --strict

wheel-check: .venv/.installed-dev
	tests/wheel_check.sh

bench: .venv/.installed-bench
	$(BIN)/python -m benchmarks $(NAMES)

# Intel's OpenCL beside PoCL: 700 MB, so not for `make test`. Storms of faults need the cores, too.
stress: PROCESSES = 4
stress: .venv/.installed-dev .venv/.installed-intel
	HETSCHED_TEST_PROFILE=stress $(BIN)/python -m $(PYTEST) -o faulthandler_timeout=1800 -m "stress or not stress"

stress-long: .venv/.installed-dev
	HETSCHED_STRESS=10 $(BIN)/python -m pytest -o faulthandler_timeout=1800 -m stress tests/stress -k "$(NAMES)"

# With WHEELS nothing is installed: the host's Python is used, plus the packages in that folder.
gpu-check: $(if $(WHEELS),,.venv/.installed-cuda$(CUDA))
	$(if $(WHEELS),python3,$(BIN)/python) -m benchmarks.gpu_check --out $(OUT) $(if $(WHEELS),--wheels $(WHEELS))

clean:
	rm -rf .venv .venv-minimal $(DEMO) site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find hetsched workloads tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +
