# Every target that needs Python makes .venv first, from constraints.txt, and reuses it while pyproject.toml and
# constraints.txt stay as they are (after a new GPU driver: `make clean`). Choose the interpreter with PYTHON=python3.12,
# the CUDA extra with CUDA_EXTRA=none|cuda12|cuda13, and pass arguments on with ARGS, as in `make test ARGS="-k gate -x"`.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory
# Containers often set it; then each process that a test starts compiles the package's modules again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PY := $(VENV)/bin/python
# A stamp is written last, so an interrupted install is done again. It holds the checkout's path, because an editable
# install in a checkout that moved would run the code at the old place.
USER_STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
usable = $(shell test -x $(PY) && test "$$(cat $(1) 2>/dev/null)" = "$(CURDIR)" && echo yes)
AGAIN := $(if $(and $(wildcard $(USER_STAMP)),$(if $(call usable,$(USER_STAMP)),,no)),again)

# Tests on a GPU that time nothing, and tests that check times by factors only: they can run beside each other.
UNTIMED := $(patsubst %,tests/gpu/test_gpu_%.py,digits emulator exploits instructions rungs sgemm winograd)
LIVE := tests/gpu/test_gpu_notebooks.py
COMMANDS := tests/gpu/test_gpu_commands.py

.PHONY: help article test browser sanitized gpu gpu-code gpu-timing gpu-commands live untimed lab check site stale notebooks
.PHONY: ptx setup-browser chromium clean again

help: ## print this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

article: $(USER_STAMP) ## measure (or, without a GPU, take the recording), draw every figure, print the table
	@$(PY) -m worklog article $(ARGS)
	@$(PY) -m tests.record.readme

lab: $(USER_STAMP) ## open JupyterLab on the notebooks
	@$(PY) -m jupyterlab $(if $(filter 0,$(shell id -u)),--allow-root) $(ARGS) notebooks/

# A GPU's tests would want it for themselves, so where there is one, tests run one after the other.
test: $(DEV_STAMP) ## run the tests; those in tests/gpu/ are skipped where there is no CUDA GPU
	@$(PY) -m pytest $(if $(wildcard /dev/nvidiactl),,-n auto --dist loadfile --no-loadscope-reorder) $(ARGS)

browser: $(DEV_STAMP) ## run the tests in Chromium, with every page and every tile there: some minutes
	@$(PY) -m pytest tests/browser tests/browser/every_tile.py tests/browser/every_page.py $(ARGS)

sanitized: $(DEV_STAMP) ## run the emulator's tests on a core with ASan and UBSan: some minutes
	@$(PY) -m tests.emulator.sanitized $(ARGS)

gpu: $(DEV_STAMP) ## run the tests of a GPU in three parts, with the time of each: code, timing, commands
	@$(MAKE) gpu-code
	@$(MAKE) gpu-timing
	@$(MAKE) gpu-commands

gpu-code: $(DEV_STAMP) ; @$(MAKE) --no-print-directory -j2 live untimed
gpu-timing: $(DEV_STAMP) ; @$(PY) -m pytest tests/gpu $(addprefix --ignore=,$(UNTIMED) $(LIVE) $(COMMANDS)) $(ARGS)
gpu-commands: $(DEV_STAMP) ; @$(PY) -m pytest $(COMMANDS) $(ARGS)

live: $(DEV_STAMP) ; @$(PY) -m pytest -n 6 --maxschedchunk 1 -p no:benchmark $(LIVE) $(ARGS)
untimed: $(DEV_STAMP) ; @$(PY) -m pytest -n auto -p no:benchmark $(UNTIMED) $(ARGS)

check: $(DEV_STAMP) ## check style, formatting and types of Python, C and JavaScript, and which room imports which
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(VENV)/bin/clang-format --dry-run -Werror worklog/emulator/core/*.[ch]
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-logo
	$(PY) -m tests.site.scripts

site: $(DEV_STAMP) ## write the web site into site/, with a viewer that runs kernels: up to a minute
	@$(PY) -m worklog site $(ARGS)

stale: $(DEV_STAMP) ## list the generated files that must be made again, and the command for each
	@$(PY) -m tests.stale

notebooks: $(DEV_STAMP) ## run every notebook on the recording and store its outputs
	WORKLOG_SOURCE=recorded $(PY) -m tests.record.notebooks

ptx: $(DEV_STAMP) ## compile the PTX that the package ships, after a kernel has changed
	$(PY) -m tests.record.ptx

setup-browser: $(DEV_STAMP) chromium ## install a Chromium for tests/browser/, which are skipped without one
	@$(has_chromium) || $(PY) -m playwright install chromium

chromium: ; @-$(has_chromium) || $(apt_chromium)

clean: ## remove .venv, caches and build output; figures/ stays
	rm -rf $(VENV) dist build worklog/emulator/core/*.so worklog/emulator/core/*.wasm .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------------------------------------------- the environment

# Prints the newest Python that runs and is 3.11 or later. A name on PATH is not enough: a version manager's shim may fail.
define find_python
for python in $${PYTHON:-python3.13 python3.12 python3.11 python3}; do \
    if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi; python=; \
done; \
if [ -z "$$python" ]; then \
    echo "make: no Python 3.11 or later found as $${PYTHON:-python3.13, python3.12, python3.11 or python3}:" \
        "install one, or name it: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; \
fi
endef

# CI installs Chromium beside the environment.
APT := flock /var/lib/dpkg apt-get

# Debian ships venv and ensurepip in a package of their own.
define ensure_venv
if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
    package="python$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"; \
    if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
        echo "Installing Debian's $$package, which $$python needs to make $(VENV)"; \
        $(APT) update -qq; \
        DEBIAN_FRONTEND=noninteractive $(APT) install -y -qq "$$package" >/dev/null </dev/null; \
    else \
        echo "make: $$python cannot make a virtual environment: install its venv module" \
            "(Debian, Ubuntu: sudo apt-get install $$package)" >&2; exit 1; \
    fi; \
fi
endef

# Sets `extra` to cuda13, cuda12 or nothing, by the newest CUDA that the driver runs. "CUDA Version: 13.0" is in the
# heading of nvidia-smi's table; newer drivers write "CUDA UMD Version".
define find_cuda
extra=$${CUDA_EXTRA:-}; \
if [ -z "$$extra" ]; then \
    case $$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[A-Z ]*Version: *\([0-9]*\)\..*/\1/p' | head -n 1) in \
        "") ;; 12) extra=cuda12 ;; 1[3-9]) extra=cuda13 ;; \
        *) echo "The GPU driver is older than CUDA 12: going on without the GPU" >&2 ;; \
    esac; \
fi; \
case $$extra in ""|none) extra= ;; cuda12|cuda13) ;; \
    *) echo "make: CUDA_EXTRA=$$extra: none, cuda12 or cuda13 is meant" >&2; exit 1 ;; \
esac
endef

# tests/browser/ takes the Chromium on the path, Debian's where this user can install it, or playwright's own.
has_chromium = command -v chromium chromium-browser google-chrome >/dev/null
define apt_chromium
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
    $(APT) update -qq; \
    DEBIAN_FRONTEND=noninteractive $(APT) install -y -qq --no-install-recommends chromium >/dev/null </dev/null; \
fi
endef

# Quiet, unless it fails; then the end of the log says why.
LOG := $(VENV)/install.log
PIP := $(PY) -m pip --disable-pip-version-check --no-input install
OR_SAY := || { tail -n 20 $(LOG) >&2; echo "make: the installation failed; all of it is in $(LOG)" >&2; exit 1; }

# In a terminal, a line under the message says for how long pip has been at work, and at what.
define show_progress
if [ -t 2 ]; then \
    while sleep 1; do \
        stage=$$(grep -oE '^ *(Collecting [^ (<>=!;[]+|Downloading [^ ]+|Building .*|Installing collected.*)' $(LOG) \
            2>/dev/null | tail -n 1 | sed 's/^ *//'); \
        case $$stage in "Installing collected"*) stage="Installing $$(($$(tr -cd , <<<"$$stage" | wc -c) + 1)) packages" ;; esac; \
        printf '\r\033[K  %d s, packages: %d; %.50s' "$$SECONDS" "$$(grep -c ^Collecting $(LOG) || true)" \
            "$$stage" >&2; \
    done & \
    watcher=$$!; trap "kill $$watcher 2>/dev/null; printf '\r\033[K' >&2" EXIT; \
fi
endef

# Prepares $(VENV), made anew unless it is of this place and of this CUDA, and takes back both stamps. CUDA 12 needs an
# older PyTorch than the pinned one (see pyproject.toml), so that pin is left out there.
define make_venv
$(find_python); $(ensure_venv); $(find_cuda); \
rm -f $(USER_STAMP) $(DEV_STAMP); \
if ! { $(PY) -m pip -V && grep -F "$(CURDIR)/$(PY)" $(VENV)/bin/pip && grep -x "extra=$$extra" $(VENV)/extra; } \
        >/dev/null 2>&1; then \
    "$$python" -m venv --clear $(VENV); echo "extra=$$extra" >$(VENV)/extra; \
fi; \
cp constraints.txt $(VENV)/constraints.txt; \
if [ "$$extra" = cuda12 ]; then sed -i.all '/^torch==/d' $(VENV)/constraints.txt; fi
endef

$(USER_STAMP): pyproject.toml constraints.txt $(AGAIN)
	@$(make_venv); \
	echo "Installing worklog$${extra:+ with $$extra} into $(VENV) for $$($(PY) -V): a minute or more"; \
	rm -f $(LOG); $(show_progress); \
	$(PIP) -c $(VENV)/constraints.txt -e ".$${extra:+[$$extra]}" >$(LOG) 2>&1 $(OR_SAY); \
	echo "$(CURDIR)" >$@

# The packages of constraints.txt first, without solving, by uv while the emulator's core compiles; pip then solves and
# finds them there, as does the build. It reads pip's settings, which uv doesn't: where uv can't install, as behind a
# mirror, pip does it all. Without a GPU, PyTorch's small CPU build will do: a wheel that pip is configured to find
# locally, else PyTorch's own index. Where neither has one, PyPI's build does, with a few GB of CUDA libraries. Most of
# PyTorch's modules are never imported, so Python compiles those that are. Python 3.11 brings a pip of 2023, which takes
# twice as long.
define install_pinned
$(PIP) --no-compile pip==26.3 uv==0.13.9 >$(LOG) 2>&1 || true; \
{ \
    torch=$$(grep '^torch==' constraints.txt); \
    $(PIP) --no-compile --no-deps --no-index "$$torch" || \
    $(PIP) --no-compile --no-deps --retries 1 --index-url https://download.pytorch.org/whl/cpu "$$torch" || true; \
} >>$(LOG) 2>&1 & \
$(PY) -c 'import runpy; b = runpy.run_path("worklog/emulator/core/build.py"); \
    b["compile_core"](b["HERE"], b["fitting"]()[0])' >>$(LOG) 2>&1 & \
grep -v '^#\|^torch==' constraints.txt | $(VENV)/bin/uv pip install --no-cache --python $(PY) --no-deps -r - >>$(LOG) 2>&1 || true; \
wait
endef

$(DEV_STAMP): pyproject.toml constraints.txt $(AGAIN)
	@$(make_venv); \
	echo "Installing worklog$${extra:+ with $$extra} and the tools for tests and checks into $(VENV) for $$($(PY) -V)"; \
	rm -f $(LOG); $(show_progress); \
	if [ -z "$$extra" ] && [ "$$(uname -s)" = Linux ]; then $(install_pinned); fi; \
	with=$$($(PY) -c 'import hatchling' 2>/dev/null && echo --no-build-isolation || true); \
	$(PIP) --no-compile $$with -c $(VENV)/constraints.txt -e ".[dev$${extra:+,$$extra}]" >>$(LOG) 2>&1 $(OR_SAY); \
	echo "$(CURDIR)" | tee $(USER_STAMP) >$@
