# SPDX-License-Identifier: Apache-2.0
# The tests, with the programs that they need.  The Makefile includes this file; `make help` describes the targets.
#
# check-NAME is a part of `make check`, rest-NAME one of `make check-rest`, which takes longer; check-interop, check-fuzz and
# check-packages run alone.

# ---- all suites ------------------------------------------------------------------------------
.PHONY: demo run-demo check check-rest check-all run-check run-rest
# These three install the packages that the machine lacks; with NO_DEPS=1 they only print their names.
demo:
	@sh tools/deps.sh build demo
	@$(MAKE) --no-print-directory run-demo

# Suites run side by side, each with its output in one piece; a failed one does not keep the others from running.
JOBS     ?= $(shell nproc 2>/dev/null || echo 2)
# PMIx of Debian 12 keeps what ranks tell mpirun under a lock in shared memory, and hangs now and then when one ends
# (openpmix issue 1233); zerotrain --num_gpus asks for the same
export PMIX_MCA_gds := $(or $(PMIX_MCA_gds),hash)
SUITES    = TMPDIR=$$(sh tests/fast_tmp.sh) $(MAKE) --no-print-directory -k -O $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(JOBS))

check:
	@sh tools/deps.sh build check
	@$(SUITES) run-check

# What `check` leaves out because it takes longer: every case, on ../shared where that is.
check-rest:
	@sh tools/deps.sh build check
	@$(SUITES) run-rest

check-all: check
	@$(MAKE) --no-print-directory check-rest

run-demo: programs
	@sh tests/demo.sh $(B)

# the longest first
run-check: check-engine check-fault check-mpi check-machines check-golden check-unit check-cli check-bad check-simulate check-python check-remote check-report \
           check-view check-mount check-cpp check-examples check-doc $(LIBS)
	@echo "all checks passed"

# in three parts, which CI runs beside each other: several processes; runs, and failures on purpose; files
REST_RANKS = rest-comm rest-mpi rest-machines
REST_RUNS  = rest-fault rest-refusals rest-runs
REST_FILES = rest-reshard rest-golden rest-bad rest-remote rest-report rest-view rest-mount
.PHONY: run-rest-ranks run-rest-runs run-rest-files
run-rest-ranks: $(REST_RANKS)
run-rest-runs: $(REST_RUNS)
run-rest-files: $(REST_FILES)
run-rest: $(REST_RANKS) $(REST_RUNS) $(REST_FILES)
	@echo "all of the rest passed"

# ---- one unit --------------------------------------------------------------------------------
# Tests of one unit are compiled plainly: the compiler's time is most of theirs.
UNIT_SRC := $(sort $(wildcard tests/unit/*/test_*.c tests/unit/*/*/test_*.c))
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(B)/unit/%)
$(UNIT_BIN): private CFLAGS := -O0 -g
# lld links the whole library in a third of the time, and gold, which a sanitizer's symbols are too many for, in half of it
FAST_LD := $(or $(and $(shell command -v ld.lld),-fuse-ld=lld),$(if $(SAN),,$(and $(shell command -v ld.gold),-fuse-ld=gold)))
$(UNIT_BIN): private LDFLAGS += $(FAST_LD)
$(UNIT_BIN): private OWN_CPPFLAGS := $(filter-out -D_FORTIFY_SOURCE=%,$(OWN_CPPFLAGS))
$(B)/unit/%: tests/unit/%.c $(TRAIN) $(TOOLS) $(ENGINE) $(B)/lib/libckpt.a
	$(call program,-MMD -MP,-lcmocka $(TRAIN) $(TOOLS) $(ENG_LIBS) $(LDLIBS))

.PHONY: check-unit unit-programs
unit-programs: $(UNIT_BIN)
check-unit: $(UNIT_BIN)
	@sh tests/unit/run.sh $(UNIT_BIN)

# ---- programs of the tests -------------------------------------------------------------------
# golden_map prints the SHA-256 of every tensor of a checkpoint, with optimizer state and 16-bit copies.  view_files compares the
# files of a view with written ones.  gen_zero writes valid ZeRO checkpoints of any size and number of ranks.  fault_alloc fails
# allocations.
ON_LIBRARY := $(B)/golden_map $(B)/view_files $(B)/gen_zero $(B)/fault_alloc
$(B)/golden_map: tests/golden/golden_map.c
$(B)/view_files: tests/view/view_files.c
$(B)/gen_zero: tests/bench/gen_zero.c
$(B)/fault_alloc: tests/fault/alloc.c
# many machines on a clock, with the real plans
$(B)/simulate: tests/bench/simulate.c tests/bench/clock.c tests/bench/clock.h
$(ON_LIBRARY) $(B)/simulate: $(B)/lib/libckpt.a
	$(call program,,$(B)/lib/libckpt.a $(LDLIBS))

# tokens of texts, for comparisons with other tokenizers
$(B)/encode: tests/interop/encode.c $(ENGINE) $(B)/lib/libckpt.a
	$(call program,,$(ENG_LIBS) $(LDLIBS))

# a mounted file whose bytes cost nothing
$(B)/null_mount: tests/bench/null_mount.c tools/mount/tree.c tools/mount/tree.h tools/mount/plugin.h
	$(call program,,-ldl)

# preloaded libraries: one fails system calls, one is code that a hostile file would start
$(B)/ioshim.so: tests/fault/ioshim.c
$(B)/plant.so: tests/hostile/plant.c
$(B)/ioshim.so $(B)/plant.so:
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -O2 -g -fPIC -shared $(WARN) -o $@ $< $(if $(findstring ioshim,$@),-ldl)

# several processes, recorded models, and a plugin whose path they take: the real and the emulated one alike
ON_ENGINE = $(call program,-MMD -MP,$(ENG_LIBS) $(LDLIBS))
$(B)/comm/%: tests/comm/%.c $(ENGINE) $(B)/lib/libckpt.a
	$(ON_ENGINE)
$(B)/replay/%: tests/replay/%.c $(ENGINE) $(B)/lib/libckpt.a
	$(ON_ENGINE)
$(GPU_TESTS): $(B)/gpu/%: tests/gpu/%.c $(ENGINE) $(B)/lib/libckpt.a
	$(ON_ENGINE)

# A plugin that computes on the processor in memory that the host cannot reach.
FAR_FLAGS := -Wl,--version-script=engine/cuda/plugin.map
$(B)/far_device.so: tests/gpu/far_device.c $(ENGINE) $(B)/lib/libckpt.a
	$(call say,LINK )
	$(call program,-MMD -MP -shared,$(FAR_FLAGS) $(ENG_LIBS) $(LDLIBS))

# ---- ckpt ------------------------------------------------------------------------------------
.PHONY: check-cli check-man check-sandbox check-golden check-bad rest-golden rest-bad rest-reshard
check-cli: programs check-man check-sandbox
	@sh tests/cli/run.sh $(B)/bin
	@python3 tests/cli/readme.py --bin $(B)/bin

check-man: programs
	@sh tests/cli/man_options.sh $(B)/bin
	@python3 tests/cli/trainer_names.py --bin $(B)/bin

check-sandbox: programs $(B)/plant.so
	@sh tests/hostile/sandbox.sh $(B)/bin $(B)/plant.so tests/fixtures
	@CC="$(CC)" sh tests/hostile/plugin.sh $(B)/bin

# ../shared holds all the fixtures, and those here are taken from it
SHARED   := $(wildcard ../shared)
FIXTURES := $(if $(SHARED),$(SHARED)/fixtures,tests/fixtures)

check-golden: programs $(B)/golden_map $(B)/gen_zero $(LIBS)
	@python3 tests/golden/run.py --bin $(B)/bin tests/fixtures
	@python3 tests/golden/npz.py --bin $(B)/bin tests/fixtures
	@python3 tests/golden/gguf.py --bin $(B)/bin tests/fixtures
	$(if $(SAN),,@python3 tests/golden/quantized_memory.py --bin $(B)/bin)
	@python3 tests/golden/manifest.py --flips 160 --bin $(B)/bin tests/fixtures
	@python3 tests/golden/maps.py --bin $(B)/bin tests/fixtures
	@python3 tests/golden/dcp.py --some --bin $(B)/bin tests/fixtures
	@python3 tests/golden/megatron.py --some --bin $(B)/bin tests/fixtures
	@python3 tests/golden/peft.py --bin $(B)/bin tests/fixtures
	@python3 tests/golden/diff.py --some --bin $(B)/bin tests/fixtures
	@python3 tests/golden/reshard.py --some --bin $(B)/bin --golden $(B)/golden_map --gen $(B)/gen_zero tests/fixtures
	@python3 tests/golden/universal.py --bin $(B)/bin --map $(B)/golden_map tests/fixtures
	@python3 tests/golden/run_doctor.py --bin $(B)/bin $(if $(SHARED),--more $(SHARED)/fixtures) tests/fixtures

check-bad: programs
	@python3 tests/hostile/run_bad.py --bin $(B)/bin tests/fixtures/bad
	@python3 tests/hostile/megatron_bad.py --bin $(B)/bin tests/fixtures
	@python3 tests/hostile/dcp_bad.py --bin $(B)/bin
	@python3 tests/hostile/incomplete.py --some --bin $(B)/bin tests/fixtures

rest-reshard: programs $(B)/golden_map $(B)/gen_zero
	@python3 tests/golden/reshard.py --bin $(B)/bin --golden $(B)/golden_map --gen $(B)/gen_zero $(FIXTURES)

rest-golden: programs $(B)/golden_map $(LIBS)
	@python3 tests/golden/manifest.py --bin $(B)/bin tests/fixtures
ifneq ($(SHARED),)
	@python3 tests/golden/diff.py --bin $(B)/bin tests/fixtures
	@python3 tests/golden/run.py --bin $(B)/bin $(SHARED)/fixtures
	@python3 tests/golden/universal.py --bin $(B)/bin --map $(B)/golden_map $(SHARED)/fixtures
	@python3 tests/golden/dcp.py --bin $(B)/bin $(SHARED)/fixtures
	@python3 tests/golden/megatron.py --bin $(B)/bin $(SHARED)/fixtures
	@python3 tests/golden/maps.py --bin $(B)/bin $(SHARED)/fixtures
	@python3 tests/golden/peft.py --bin $(B)/bin $(SHARED)/fixtures
	@python3 tests/golden/compare_expected.py $(B)/golden_map $(SHARED)
	@python3 tests/golden/compare_grid.py $(B)/golden_map $(SHARED)
endif

rest-bad: programs
	@python3 tests/hostile/planted.py --bin $(B)/bin tests/fixtures
ifneq ($(SHARED),)
	@python3 tests/hostile/run_bad.py --bin $(B)/bin $(SHARED)/bad
	@python3 tests/hostile/incomplete.py --thin --bin $(B)/bin $(SHARED)/fixtures
endif

# ---- reports, views, mounts ------------------------------------------------------------------
.PHONY: check-report rest-report report-pictures check-view rest-view check-mount rest-mount
# pages of `ckpt report`, without a browser
check-report: programs $(B)/gen_zero
	@python3 tests/report/run.py --bin $(B)/bin --gen $(B)/gen_zero tests/fixtures

# the same pages in Chromium, where it is; the pictures of README, made anew
rest-report: programs $(B)/gen_zero
	@python3 tests/report/browser.py --bin $(B)/bin --gen $(B)/gen_zero tests/fixtures

report-pictures: programs $(B)/gen_zero
	@python3 tests/report/screenshots.py --bin $(B)/bin --gen $(B)/gen_zero tests/fixtures

# files of views beside written ones; `rest` takes every fixture and format
check-view: programs $(B)/view_files
	@python3 tests/view/run.py --some --ranges 300 --bin $(B)/bin --view $(B)/view_files tests/fixtures
	@python3 tests/view/made_from.py --flips 24 --bin $(B)/bin tests/fixtures

rest-view: programs $(B)/view_files
	@python3 tests/view/run.py --bin $(B)/bin --view $(B)/view_files $(or $(SHARED:%=%/fixtures),tests/fixtures)
	@python3 tests/view/made_from.py --flips 1000 --bin $(B)/bin tests/fixtures

# what a file system adds to them
check-mount: programs $(B)/gen_zero
	@python3 tests/mount/run.py --some --bin $(B)/bin --gen $(B)/gen_zero tests/fixtures

rest-mount: programs $(B)/gen_zero
	@python3 tests/mount/run.py --bin $(B)/bin --gen $(B)/gen_zero tests/fixtures

# ---- the engine ------------------------------------------------------------------------------
.PHONY: check-engine check-comm check-runs check-refusals rest-comm rest-runs rest-refusals
# the engine: collectives between processes; recorded runs of DeepSpeed replayed; what must not change a run; what is refused
check-engine: check-comm check-runs check-refusals

check-comm: programs $(B)/comm/comm_mpi
	@sh tests/comm/run_comm.sh --some $(B)/comm/comm_mpi
	@python3 tests/comm/wires.py --some --bin $(B)/bin

.PHONY: check-mpi check-machines rest-mpi rest-machines
# ckpt under mpirun; KILLS is how often a rank is killed at a random moment, MPI_SOME= takes all fixtures
KILLS    ?= 10
MPI_SOME ?= dcp_mesh2d_w4 dcp_hf_sharded_w2 fsdp2_mp_w2 k_lora_z3 mcore_llama_distopt_dp2 mlegacy_gpt2_tp2_pp2 moe_ep2_z1_w4 moe_ep2_z2_w2 old0126_z2_fp16_w3 \
            pipe2_z1_w4_tied rl_verl_fsdp1_w2 tp2_pp2_z1_w4 titan_llama3_fused_w3 z0_fp16_w2_fused z1_bf16_w2_tags z2_bf16_w2_emptyparam z2_bf16_w2_muon
check-mpi: programs $(B)/ioshim.so $(B)/gen_zero
	@python3 tests/mpi/run_mpi.py --some --ranks 2,3 --bin $(B)/bin tests/fixtures z3_bf16_w5_odd z1_bf16_w3_groups fsdp2_mp_w2
	@python3 tests/mpi/local.py --gen $(B)/gen_zero --bin $(B)/bin tests/fixtures z3_bf16_w5_odd
	@python3 tests/mpi/spread.py --kills 1 --gen $(B)/gen_zero --shim $(B)/ioshim.so --bin $(B)/bin tests/fixtures z1_bf16_w3_groups
	@python3 tests/mpi/fault.py --some --kills 4 --bin $(B)/bin --gen $(B)/gen_zero --shim $(B)/ioshim.so

# namespaces as machines
check-machines: programs
	@python3 tests/machines/run.py --some --bin $(B)/bin tests/fixtures z3_bf16_w5_odd

rest-machines: programs
	@python3 tests/machines/run.py --bin $(B)/bin tests/fixtures z1_bf16_w3_groups rl_verl_fsdp1_w2

rest-mpi: programs $(B)/ioshim.so $(B)/gen_zero
	@python3 tests/mpi/run_mpi.py --some --ranks 2,3,4 --bin $(B)/bin tests/fixtures $(MPI_SOME)
	@python3 tests/mpi/local.py --machines 2 --bin $(B)/bin tests/fixtures z1_bf16_w3_groups rl_verl_fsdp1_w2 dcp_mesh2d_w4
	@python3 tests/mpi/spread.py --machines 2 --kills $(KILLS) --gen $(B)/gen_zero --shim $(B)/ioshim.so --bin $(B)/bin tests/fixtures z3_bf16_w5_odd rl_verl_fsdp1_w2
	@python3 tests/mpi/fault.py --kills $(KILLS) --seed 17 --bin $(B)/bin --gen $(B)/gen_zero --shim $(B)/ioshim.so

check-runs: programs
	@python3 tests/replay/deepspeed.py --bin $(B)/bin --golden tests/fixtures/golden --resume
	@python3 tests/replay/deepspeed.py --bin $(B)/bin --golden tests/fixtures/golden/decoders
	@python3 tests/replay/deepspeed.py --bin $(B)/bin --golden tests/fixtures/golden/t5 --resume
	@python3 tests/replay/equal.py --some --bin $(B)/bin
	@python3 tests/replay/formats.py --bin $(B)/bin
	@python3 tests/replay/generate.py --some --bin $(B)/bin

check-refusals: programs
	@python3 tests/hostile/engine_bad.py --some --bin $(B)/bin

rest-comm: programs $(B)/comm/comm_mpi
	@sh tests/comm/run_comm.sh $(B)/comm/comm_mpi
	@python3 tests/comm/wires.py --bin $(B)/bin

rest-runs: programs $(B)/replay/models
	@python3 tests/replay/equal.py --bin $(B)/bin
	@python3 tests/replay/generate.py --bin $(B)/bin
	@$(B)/replay/models tests/fixtures/models qwen2 qwen2_tied qwen3 mistral qwen2_windows opt opt_after opt_gelu neox neox_serial bloom bloom_untied \
		olmo2 olmo2_bias gemma2 gemma2_full gemma3 gemma3_linear phi3 phi4
	@$(B)/replay/models tests/fixtures/models_t5 t5 t5_gated
ifneq ($(SHARED),)
	@$(B)/replay/models $(SHARED)/golden bert_cls bert_mlm bert_reg gpt2 gpt2_masked llama3_tied_bias llama_gqa
	@python3 tests/replay/deepspeed.py --bin $(B)/bin --golden $(SHARED)/golden --resume
	@python3 tests/replay/formats.py --bin $(B)/bin $(SHARED)/fixtures
endif

rest-refusals: programs
	@python3 tests/hostile/engine_bad.py --bin $(B)/bin

# the GPU's kernels without a GPU, and everything above them on a device that is far from the host
.PHONY: check-gpu gpu-tests gpu-compiled
gpu-tests: $(GPU_TESTS)

# all that the tests need
gpu-compiled: programs $(PLUGIN) $(B)/far_device.so gpu-emulated $(GPU_TESTS) $(ABSENT)

check-gpu: gpu-compiled
	@python3 tests/gpu/far.py --bin $(B)/bin --plugin $(B)/far_device.so
	@sh tests/gpu/emulated.sh $(B)
	@sh tests/gpu/absent/plans.sh $(B) $(CUDNN_INCLUDE)

# ---- failures --------------------------------------------------------------------------------
.PHONY: check-fault rest-fault
check-fault: programs $(B)/ioshim.so $(B)/fault_alloc $(B)/gen_zero
	@python3 tests/fault/run.py --some --bin $(B)/bin --shim $(B)/ioshim.so --alloc $(B)/fault_alloc --gen $(B)/gen_zero tests/fixtures
	@python3 tests/fault/page_cache.py --bin $(B)/bin --gen $(B)/gen_zero --work $(B)

# all in memory, and some on a disk
rest-fault: programs $(B)/ioshim.so $(B)/fault_alloc $(B)/gen_zero
	@env -u TMPDIR python3 tests/fault/run.py --some --bin $(B)/bin --shim $(B)/ioshim.so --alloc $(B)/fault_alloc --gen $(B)/gen_zero tests/fixtures
	@python3 tests/fault/run.py --bin $(B)/bin --shim $(B)/ioshim.so --alloc $(B)/fault_alloc --gen $(B)/gen_zero tests/fixtures

# ---- bindings, pages, other programs ---------------------------------------------------------
.PHONY: check-python check-remote rest-remote check-cpp check-examples doc check-doc check-simulate check-interop check-fuzz check-packages bench lint
# the Python package: what needs python3 alone, and numpy, torch, DeepSpeed where this python3 has them
check-python: programs $(LIBS) $(B)/gen_zero $(WHEEL)
	@python3 tests/python/run.py --bin $(B)/bin

# checkpoints by address, from servers on this machine
check-remote: programs
	@python3 tests/remote/run.py --some --bin $(B)/bin tests/fixtures

rest-remote: programs
	@python3 tests/remote/run.py --bin $(B)/bin tests/fixtures

# ckpt.hpp, by each C++ compiler that is here; with a sanitizer by the one that the library was built with
check-cpp: $(if $(SAN),$(B)/lib/libckpt.a,$(LIBS))
ifeq ($(SAN),)
	@sh tests/cpp/run.sh $(B) tests/fixtures
else
	@CXXS=$(if $(findstring clang,$(CC)),clang++,g++) CXXFLAGS="-fsanitize=$(SAN) -fno-sanitize-recover=all" LDLIBS="$(LDLIBS)" \
	    sh tests/cpp/run.sh $(B) tests/fixtures
endif

# a program in each language whose compiler is here (`sh tools/deps.sh examples` installs them)
check-examples: $(LIBS)
	@CC="$(CC)" CXX="$(CXX)" sh tests/examples/run.sh $(B) tests/fixtures

# the manual pages as a site of static pages
doc:
	@sh tools/site.sh $(B)/doc
	@echo "made: $(B)/doc/index.html"

# tutorials do what they show, pages refer to pages that are there
check-doc: programs $(LIBS)
	@python3 tests/doc/run.py --build $(B)

check-simulate: $(B)/simulate $(B)/gen_zero
	@python3 tests/bench/simulate.py --check --simulate $(B)/simulate --gen $(B)/gen_zero

# Everything that loads our files with the real frameworks; what is absent is skipped and said so.
check-interop: programs
	@bash tests/interop/run.sh $(B)/bin

FUZZ_SECONDS ?= 60
check-fuzz:
	@bash tests/fuzz/run.sh $(FUZZ_SECONDS)

# The packages of dist/ in systems without other software; FULL=1: packages of all architectures, as published.
check-packages: programs
	@sh tests/packages/run.sh $(if $(FULL),--full) $(B)/bin

bench: programs
	@bash tests/bench/run.sh $(B)/bin

lint:
	@sh tests/lint/run.sh

-include $(UNIT_BIN:=.d) $(GPU_TESTS:=.d)
