# The entry point: `make help` lists the targets. CMake builds (CMakePresets.json) and
# CTest runs the tests. Targets first install what they need, or print the command (tools/setup.sh).
# JOBS=n limits the parallelism.

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

JOBS ?= $(shell nproc)
export JOBS
export PATH := $(CURDIR)/build/tools/bin:$(PATH)
PEERS ?= all
PYTHON := python3 -B
BUILD := cmake --build --preset release -j $(JOBS)
# A configured tree keeps its settings unless new ones are given.
CONFIGURE := test -f build/build.ninja || cmake --preset release -DHAK_TESTS=OFF
RINGS := $(if $(L2_RING),-DHAK_L2_RING=$(L2_RING)) $(if $(L25_RING),-DHAK_L25_RING=$(L25_RING))

.PHONY: all run test check bench bench-peers bench-validate results ring-sweep asan tsan ubsan clang aarch64 musl model fuzz soak outside mutation orders profile budget layout pgo docs \
        phase7-bench systems format format-check clean help configure setup-build

## all [L2_RING=n L25_RING=n, kept until others are given]: libraries and benchmarks (build/libhakmem.so, .a, -secure.so, build/bench/)
all: configure
	$(BUILD)

setup-build:
	@tools/setup.sh build

configure: setup-build
	@$(CONFIGURE)
ifneq ($(strip $(RINGS)),)
	@cmake --preset release $(RINGS)
endif

## run [CMD="prog args"]: a real program on the system allocator and on HAKMEM, side by side
run: configure
	@$(BUILD) --target hakmem launch
	@./hakmem run $(CMD)

## test: everything: all tests, then unit, stress and fuzz under asan, ubsan, tsan, a clang build, aarch64, musl
test:
	@tools/setup.sh test
	@$(PYTHON) tools/check.py

# The build tree keeps HAK_TESTS=ON, so a later plain make builds the tests as well.
## check [R=unit.front L=unit V=1]: the tests of the release build, or those whose name (R) or kind (L) matches
check:
	@tools/setup.sh test
	@cmake --preset release -DHAK_TESTS=ON -DHAK_BENCH=ON >/dev/null
	@$(BUILD)
	ctest --test-dir build --no-tests=error --output-on-failure -j $(JOBS) \
	  $(if $(R),-R "$(R)") $(if $(L),-L "$(L)") $(if $(V),-V)

## asan, ubsan, tsan: build that preset, run its unit, stress and fuzz tests
asan ubsan tsan:
	@tools/setup.sh test
	@$(PYTHON) tools/check.py $@

## aarch64, musl: cross-build for AArch64 and run its tests under qemu-user; the same with musl (docs/platforms.md)
aarch64 musl:
	@tools/setup.sh test
	@$(PYTHON) tools/check.py $@

## clang: build everything with clang, warnings are errors
clang:
	@tools/setup.sh test
	@$(PYTHON) tools/check.py clang

## model: the checked models of the lock-free protocols
model: configure
	@tools/setup.sh test
	@cmake --preset release -DHAK_TESTS=ON
	@$(BUILD)
	ctest --test-dir build -L model --output-on-failure --no-tests=error -j $(JOBS)

## bench [MINUTES=n]: core and cases against the system allocator; writes build/bench-results/
bench: MINUTES ?= 15
bench: all
	@tools/setup.sh bench
	$(PYTHON) bench/compare.py --suite core,cases --budget $(MINUTES) --out build/bench-results

## bench-peers [MINUTES=n PEERS=a,b]: all suites against every other allocator that can be had, likewise
bench-peers: MINUTES ?= 45
bench-peers: all
	@tools/setup.sh peers
	$(PYTHON) bench/compare.py --suite all --peers $(PEERS) --budget $(MINUTES) --out build/bench-results

## bench-validate: does every benchmark notice the flaws and the differences that it exists to show?
bench-validate: all
	@tools/setup.sh peers
	$(PYTHON) bench/peers.py mimalloc snmalloc jemalloc rpmalloc hardened || test $$? = 1
	$(PYTHON) bench/validate.py
	$(PYTHON) bench/standard/validate.py

## ring-sweep: bench_mid_large_mt and random_mixed over sizes of the L2 and L2.5 rings: table, CSV, chart
ring-sweep: configure
	@tools/setup.sh bench
	$(PYTHON) bench/ring_sweep.py

## results [MINUTES=n PEERS=a,b]: measure all suites against the peers, write docs/results and README's figures
results: MINUTES ?= 45
results: all
	@tools/setup.sh peers
	@$(PYTHON) bench/deps.py matplotlib
	@mkdir -p docs/results
	@rm -f build/full.json
	$(PYTHON) bench/compare.py --allocators hakmem,system --suite all --net --peers $(PEERS) --budget $(MINUTES) \
	  --compact --json build/full.json --html build/results.html || test $$? = 1
	@test -s build/full.json
	@mv build/full.json docs/results/full.json
	$(PYTHON) bench/readme.py docs/results/full.json

## bench_random_mixed_hakmem, *_hakmem: build one benchmark (build/bench/)
%_hakmem: configure
	$(BUILD) --target $@

## fuzz [T=300]: the fuzzers, so many seconds for all variants together (docs/fuzzing.md)
fuzz:
	@tools/setup.sh fuzz
	$(PYTHON) test/fuzz/run.py --time $(or $(T),300)

## soak [T=600 OUT=build]: real programs, the stress tests and a long-lived process for so many seconds (docs/soak.md)
soak: OUT ?= build
soak: configure
	@tools/setup.sh soak
	@cmake --preset release -DHAK_TESTS=ON >/dev/null
	@$(BUILD)
	$(PYTHON) test/soak/run.py --time $(or $(T),600) --json $(OUT)/soak.json --chart $(OUT)/soak.svg

## outside [CHECKS="a b"]: other people's checks of malloc, on the system's and on ours (docs/outside.md)
outside: configure
	@tools/setup.sh outside
	@$(BUILD) --target hakmem hakmem-secure
	$(PYTHON) test/outside/run.py --lib build/libhakmem.so --lib build/libhakmem-secure.so $(CHECKS)

## mutation [NAMES="a b"]: break one mechanism after the other; the tests that guard it must fail (CONTRIBUTING.md)
mutation: configure
	@tools/setup.sh test
	$(PYTHON) test/mutation/run.py $(NAMES)

## orders [PLACES="slab.c remote.c:75"]: weaken one memory order after the other under TSan (docs/decisions/0042-orders.md)
orders: configure
	@tools/setup.sh test
	$(PYTHON) test/mutation/orders.py $(PLACES)

## profile [CMD="prog args"]: where the time of the benchmarks (or a program) goes, by layer (build/profile/)
profile: all
	@tools/setup.sh profile
	$(PYTHON) tools/profile.py $(if $(CMD),-- $(CMD))

## budget [UPDATE=1]: instructions and page faults of fixed workloads against bench/budgets.json, or write them anew
budget: configure
	@tools/setup.sh test
	@cmake --preset release -DHAK_TESTS=ON >/dev/null
	@$(BUILD)
	$(PYTHON) test/budget/run.py $(if $(UPDATE),--update)

## layout: write src/layout.txt anew, what the linker places first (docs/decisions/0044-layout.md)
layout: all
	@tools/setup.sh test
	$(PYTHON) tools/layout.py

## pgo: the profile-guided build (build/pgo/libhakmem.so), compared with the plain one
pgo: all
	@tools/setup.sh bench
	$(PYTHON) tools/pgo.py

## systems [ROWS=S2,S3]: what each mechanism does and costs, with its variable on and off (docs/systems.md)
systems: all
	$(PYTHON) bench/systems.py $(if $(ROWS),--rows $(ROWS))

## phase7-bench: random_mixed at 128 to 1024 bytes and larson against the system allocator, in per cent
phase7-bench: all
	$(PYTHON) bench/phase7.py

## format, format-check: clang-format on src and include, or only look
format:
	@tools/setup.sh test
	find src include -name '*.[ch]' -print0 | xargs -0 clang-format-19 -i

format-check:
	@tools/setup.sh test
	find src include -name '*.[ch]' -print0 | xargs -0 clang-format-19 --dry-run --Werror

## docs: the generated tables of options and counters in docs/
docs:
	$(PYTHON) tools/gen_docs.py

## clean: remove what was built (all presets)
clean:
	rm -rf build

## help: this list
help:
	@sed -n 's/^## /  /p' $(firstword $(MAKEFILE_LIST))
