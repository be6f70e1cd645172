# A thin front for CMake: every target is a few commands you could type yourself.

PREFIX ?= /usr/local
SECONDS ?= 600
# Options of ctest for make asan: -R NAME, -LE mpi
TESTS ?=
JOBS ?= $(shell nproc)
# Used for a new build directory; one that exists keeps what it was made with.
export CMAKE_GENERATOR ?= $(if $(shell command -v ninja),Ninja,Unix Makefiles)

MAKEFLAGS += --no-print-directory

build = cmake --preset $(1) && cmake --build --preset $(1) -j $(JOBS)

.NOTPARALLEL: # CMake runs the jobs
.PHONY: all demo test bench peers test-peers test-report wheel test-python lint format install install-library fuzz asan tsan test-mpich test-hosts deps clean help

all: ## build everything into build/; the tool is build/bin/muonctl
	$(call build,release)

demo: deps all ## install what is missing, build, and train a language model on two ranks
	scripts/demo

test: deps all ## install what is missing, build, and run all tests
	scripts/run-tests release

bench: all ## measure this machine: JSON lines
	build/bin/muonctl bench

peers: all ## beside PyTorch on the same tensors: agreement and times
	scripts/test-peers

test-peers: all ## only the agreement with PyTorch, as a test
	scripts/test-peers --check

wheel: ## build the Python package: build/dist/libmuon-*.whl
	scripts/wheel

test-python: ## build the wheel, install it beside PyTorch, and test it
	scripts/test-python

lint: ## check format, static analysis, layers and scripts
	scripts/install-deps lint
	scripts/lint

format: ## reformat all C files
	scripts/lint --format

install: all ## install to PREFIX (default /usr/local), below DESTDIR if given
	cmake --install build --prefix "$(PREFIX)"

install-library: ## build and install only the libraries and headers: no tool, no tests
	$(call build,library)
	cmake --install build/library --prefix "$(PREFIX)"

fuzz: ## fuzz each hostile-input parser for SECONDS (default 600)
	scripts/install-deps fuzz
	$(call build,fuzz)
	scripts/fuzz $(SECONDS)

asan: deps ## tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(call build,asan)
	scripts/run-tests asan $(TESTS)

tsan: deps ## tests where threads meet, under ThreadSanitizer
	$(call build,tsan)
	scripts/run-tests tsan

test-report: all ## the pages of train and plan in a real browser
	scripts/check-report

test-mpich: deps ## the tests on several ranks once more, over MPICH (make test has Open MPI)
	scripts/install-deps mpich
	$(call build,mpich)
	scripts/run-tests mpich

test-hosts: all ## on several hosts that are network namespaces of this machine
	scripts/install-deps hosts
	scripts/test-hosts || test $$? = 77 # no namespaces here: skipped

deps: ## install the Debian packages that are missing
	scripts/install-deps

clean: ## remove build/
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z][a-z -]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18
