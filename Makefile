# make setup    .venv with everything for development; fast where nothing has changed
# make quick    the tests that start no server and no process and take less than a second each
# make test     all tests, three processes side by side
# make lint     ruff, mypy, import layers, hadolint, cargo fmt, clippy; the site
# make demo     deltacompact demo              make bench    rates of the kernels
# make wheel    dist/*.whl for any Linux since glibc 2.28, tried in a fresh environment
# make release VERSION=0.2.0    checks that tree, version and changelog agree, builds the wheel, tags v0.2.0
# make clean    removes what was built, .venv too
# make help     these lines

PYTHON ?= python3
BIN := .venv/bin
CRATE := deltacompact/kernels
KERNELS := deltacompact/_kernels.abi3.so
RUST := $(CRATE)/Cargo.toml $(CRATE)/Cargo.lock $(shell find $(CRATE)/src -name '*.rs')

# Each by its name: maturin 1.16 asks an index for what `all` refers to, which is this package.
EXTRAS := test,bench,openlineage,opentelemetry,plot,sessions,spark
DEVELOP := $(BIN)/maturin develop --release --quiet --extras $(EXTRAS)
# Three processes on two cores, because tests wait: one has all tests of Spark, one all of Ray, and what is left goes to whoever
# is free, module by module. Those of `make quick` do not wait, and each process takes 15 s of CPU to collect all tests.
PYTEST := $(BIN)/pytest --dist loadgroup --no-loadscope-reorder --numprocesses
# Images of Python set it. The tests start hundreds of processes, and each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
export PIP_QUIET := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DELETE_ON_ERROR:
.PHONY: setup quick test demo wheel release releasable lint bench clean help tools

setup: tools .venv/.installed $(KERNELS)

# One line for the first thing that is missing.
tools:
	@fail() { echo "make: $$1" >&2; exit 1; }; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || fail "Python 3.11 or newer is missing: install it (Debian: apt-get install python3 python3-venv) or set PYTHON=..."; \
	version=$$(cargo --version 2>/dev/null | sed -nE 's/^cargo 1\.([0-9]+).*/\1/p'); \
	[ "$${version:-0}" -ge 89 ] \
	  || fail "cargo 1.89 or newer is missing: install Rust (https://rustup.rs) and put ~/.cargo/bin on PATH"; \
	command -v cc >/dev/null \
	  || fail "a C compiler is missing: install one (Debian: apt-get install gcc libc6-dev)"; \
	java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | sed -nE '1,5s/.*version "([0-9]+).*/\1/p'); \
	[ "$${version:-0}" -ge 17 ] \
	  || fail "Java 17 or newer is missing: install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"

.venv/bin/python: | tools
	$(PYTHON) -m venv .venv

# The package, editable, and what it depends on. uv takes a quarter of pip's time; where it cannot reach an index that only
# pip's configuration names, pip does the work.
.venv/.installed: pyproject.toml | .venv/bin/python
	@echo "make: installing into .venv and building the kernels takes a few minutes" >&2
	$(BIN)/python -m pip install 'maturin>=1.9,<2' uv
	$(DEVELOP) --uv 2>.venv/uv.log || $(DEVELOP)
	@touch $(KERNELS) $@

# Environments of their own: readers of some years ago and DuckDB, which read what we write; orchestrators, by which the
# examples in deploy/ are run. uv makes them in an eighth of pip's time.
.venv/.installed-readers: tests/tabular/old_readers.txt
.venv/.installed-duckdb: tests/publication/duckdb.txt
.venv/.installed-dagster: tests/deploy/dagster.txt
.venv/.installed-airflow: tests/deploy/airflow.txt
WHEELS = --only-binary :all: --requirement $<
$(addprefix .venv/.installed-, readers duckdb dagster airflow): .venv/.installed-%: | .venv/.installed
	{ $(BIN)/uv venv --clear --python $(BIN)/python .venv/$* \
	  && $(BIN)/uv pip install --python .venv/$*/bin/python $(WHEELS); } 2>.venv/uv.log \
	  || { $(PYTHON) -m venv --clear .venv/$* && .venv/$*/bin/python -m pip install $(WHEELS); }
	@touch $@

# Prometheus's own judge of the alerts: it takes minutes to build, so only with DELTACOMPACT_TEST_EVERYTHING=1.
.venv/.installed-promtool: | .venv/bin/python
	rm -rf .venv/promtool && mkdir .venv/promtool
	cd .venv/promtool && go mod init promtool && go get github.com/prometheus/prometheus/cmd/promtool@v0.309.1 \
	  && GOBIN="$$PWD" go install github.com/prometheus/prometheus/cmd/promtool
	@touch $@

# What builds the site.
.venv/.installed-docs: pyproject.toml | .venv/.installed
	$(BIN)/python -m pip install $$($(BIN)/python -c 'import tomllib; \
	  print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	@touch $@

# The kernels alone, after a change to them.
$(KERNELS): $(RUST) | .venv/.installed
	$(BIN)/maturin develop --release --quiet --skip-install
	@touch $@

quick: setup
	DELTACOMPACT_EXAMPLES=quick $(PYTEST) 2 -q -m "not processes and not slow"

test: setup $(addprefix .venv/.installed-, readers duckdb dagster airflow $(if $(DELTACOMPACT_TEST_EVERYTHING),promtool))
	$(PYTEST) 3 --durations=20 -rfER

demo: setup
	$(BIN)/deltacompact demo

bench: setup
	$(BIN)/pytest benchmarks --benchmark-sort=name --benchmark-columns=min,median,rounds

lint: setup .venv/.installed-docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint deploy/Dockerfile benchmarks/ec2/Dockerfile
	$(BIN)/pytest -q tests/house/test_named_files.py tests/house/test_circles.py
	cargo fmt --manifest-path $(CRATE)/Cargo.toml --check
	PYO3_PYTHON=$(CURDIR)/$(BIN)/python cargo clippy --manifest-path $(CRATE)/Cargo.toml --release -- --deny warnings
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: setup
	$(BIN)/python -m pip install 'ziglang>=0.13'
	rm -rf dist
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/maturin build --release --zig --compatibility manylinux_2_28 --out dist
	@! $(BIN)/python -m zipfile --list dist/*.whl | grep -E '\.rs |/target/|Cargo\.' \
	  || { echo "make: the wheel has sources of the kernels in it" >&2; exit 1; }
	$(PYTHON) -m venv --clear dist/fresh
	dist/fresh/bin/python -m pip install dist/*.whl
	dist/fresh/bin/deltacompact --help >/dev/null
	cd dist && fresh/bin/python -c "import pyarrow, deltacompact._kernels as k; \
	  assert k.key_digests([pyarrow.array([42])], [1], 1).tobytes().hex() == 'c2f02f50cc9cc36ab6cede615016cb575a416c3c'; \
	  print('the wheel works in a fresh environment, SHA-1 by', k.sha1_backend())"
	rm -rf dist/fresh

# Nothing is pushed: look at dist/ and the tag, then git push --follow-tags.
release: releasable wheel
	git tag --annotate --message "deltacompact $(VERSION)" "v$(VERSION)"

releasable:
	@$(PYTHON) deploy/release.py "$(VERSION)"

help:
	@sed -n 's/^# make/make/p' Makefile

clean:
	rm -rf .venv dist site $(CRATE)/target $(KERNELS) .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
