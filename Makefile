# SPDX-License-Identifier: Apache-2.0
# Build, test and install the checkpoint suite.  `make help` lists the targets.
#
# Everything is built under build/.  Optional tools are found when they are needed; what a build or a
# test run lacks is installed by tools/deps.sh, which `make demo` and `make check` call first.

VERSION  := 0.1.0
SOVER    := 0
PREFIX   ?= /usr/local
# where the libraries go: Debian's packages have a folder for each architecture
LIBDIR   ?= $(PREFIX)/lib
DESTDIR  ?=
CC       ?= cc
# Asserts watch over what only our own mistakes could break.  Every build has them but RELEASE=1, which is what
# `make install` builds and installs; it has a folder of its own, so that neither build undoes the other.
RELEASE  ?= $(filter install,$(MAKECMDGOALS))
B        ?= $(if $(RELEASE),build/release,build)
# None of make's own rules is of use here, and make searches them for each file.
MAKEFLAGS += --no-builtin-rules
# V=1 shows whole command lines
Q        := $(if $(V),,@)

# ---- flags -----------------------------------------------------------------------------------
# Results must equal the frameworks' bit for bit: no -ffast-math, no contraction.
WARN     := -Wall -Wextra -Wpedantic $(if $(WERROR),-Werror) -Wshadow -Wconversion -Wstrict-prototypes \
            -Wmissing-prototypes -Wcast-qual -Wvla -Wformat=2 -Wundef -Wwrite-strings \
            -Wswitch-enum -Wpointer-arith -Wdouble-promotion
# CPPFLAGS, CFLAGS and LDFLAGS belong to the caller (environment or command line); ALL_* add the flags that the build needs.
# The caller's CPPFLAGS come before OWN_CPPFLAGS, whose -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=N replaces a distribution's value.
ALL_CPPFLAGS = -D_POSIX_C_SOURCE=200809L -D_FILE_OFFSET_BITS=64 -I. -Ilibckpt -Ilibckpt/base $(if $(RELEASE),-DNDEBUG) \
             $(CPPFLAGS) $(OWN_CPPFLAGS)
CFLAGS   ?= -O2 -g
# A release does not know in which folder it was built: the same source makes the same bytes.
REPRO    := $(if $(RELEASE),-ffile-prefix-map=$(CURDIR)=.)
ALL_CFLAGS = -std=c11 $(CFLAGS) $(REPRO) -ffp-contract=off -fvisibility=hidden -fstack-protector-strong \
             -fPIC -pthread $(WARN)
# The GPU plugin is built if nvcc is installed, except with CUDA=no.  A sanitizer's runtime and CUDA's do not mix.
CUDA     ?=
NVCC     := $(if $(SAN)$(filter no,$(CUDA)),,$(shell command -v nvcc 2>/dev/null))
CUDA_DIR := $(if $(NVCC),$(abspath $(dir $(realpath $(NVCC)))/..))
# What the compiler and the libraries here offer; $(call found,KIND) lists the answers of one kind.
REMOTE   ?=
MOUNT    ?=
PROBED   := $(shell CC="$(CC)" SAN="$(SAN)" REMOTE="$(REMOTE)" MOUNT="$(MOUNT)" CUDA_DIR="$(CUDA_DIR)" sh tools/probe.sh)
found     = $(patsubst $(1):%,%,$(filter $(1):%,$(PROBED)))
ifeq ($(SAN),)
OWN_CPPFLAGS := -U_FORTIFY_SOURCE $(call found,fortify)
ALL_CFLAGS += $(call found,harden)
OWN_LDFLAGS := -Wl,-z,relro,-z,now,-z,noexecstack
else
ALL_CFLAGS += -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer
OWN_LDFLAGS := -fsanitize=$(SAN)
endif
ALL_LDFLAGS = $(OWN_LDFLAGS) $(LDFLAGS)
LDLIBS   := -lzip -ldeflate -lz -lcrypto -lcjson -lpcre2-8 -lyaml -lpthread -ldl -lm

# ---- sources ---------------------------------------------------------------------------------
LIB_SRC  := $(sort $(wildcard libckpt/base/*.c libckpt/map/*.c libckpt/copy/*.c libckpt/remote/*.c libckpt/codec/*/*.c libckpt/*.c libckpt/claim/*.c libckpt/ask/*.c libckpt/start/*.c libckpt/remap/*.c libckpt/blend/*.c formats/*.c formats/*/*.c formats/*/*/*.c))
TOOL_SRC := $(filter-out tools/mpi/mail.c tools/mount/fuse.c,$(sort $(wildcard tools/*.c tools/*/*.c)))
ENG_SRC  := $(filter-out engine/cuda/nccl.c,$(sort $(wildcard engine/*.c engine/*/*.c)))
UNIT_SRC := $(sort $(wildcard tests/unit/*/test_*.c tests/unit/*/*/test_*.c))
FUZZ_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))
LIB_OBJ  := $(LIB_SRC:%.c=$(B)/obj/%.o)
TOOL_OBJ := $(TOOL_SRC:%.c=$(B)/obj/%.o)
ENG_OBJ  := $(ENG_SRC:%.c=$(B)/obj/%.o)
CKPT_MAIN := $(B)/obj/tools/main.o
TRAIN_MAIN := $(B)/obj/tools/zerotrain/main.o
# what is behind a main.c, for its program and for tests: of zerotrain, and of ckpt (whose table of options zerotrain uses)
TRAIN    := $(B)/obj/zerotrain.a
TOOLS    := $(B)/obj/tools.a
# the engine's lists of parameters: ckpt mem knows a model by its config.json, too
MODELS   := $(B)/obj/models.a
# without what draws weights, because ckpt is built without Random123
MODEL_OBJ := $(filter-out $(B)/obj/engine/model/init.o,$(filter $(B)/obj/engine/model/%,$(ENG_OBJ))) $(B)/obj/engine/device/device.o
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(B)/unit/%)
PROGRAMS := $(B)/bin/ckpt $(B)/bin/zero_to_fp32 $(B)/bin/zero_to_torch $(B)/bin/ds_to_universal \
            $(B)/bin/zerotrain
LIBS     := $(B)/lib/libckpt.a $(B)/lib/libckpt.so
# the engine: matrix products by oneDNN where Debian's has code for the processor, else by OpenBLAS
SGEMM    ?= $(if $(filter machine:x86_64,$(PROBED)),dnnl,openblas)
SGEMM_LIBS := $(if $(filter dnnl,$(SGEMM)),-ldnnl -lgomp,-lopenblas)
OWN_CPPFLAGS += $(if $(filter dnnl,$(SGEMM)),-DZT_ONEDNN)
ENGINE   := $(B)/lib/libzerotrain.a
# MPI where it is installed.  Without it zerotrain trains on one process and says so, and ckpt works alone; the part of ckpt for
# mpirun is a library of its own, so that ckpt starts where there is no MPI.
MPI_CFLAGS := $(call found,mpi_cflags)
MPI_LIBS := $(call found,mpi_libs)
comma    := ,
MAIL     = $(if $(MPI_LIBS),$(B)/lib/libckpt-mpi.so)
# reading addresses by libcurl, where its headers are; REMOTE=no does without
FETCH    := $(if $(filter header:curl,$(PROBED)),$(B)/lib/libckpt-remote.so)
# file systems of views by libfuse, where its headers are; MOUNT=no does without
FUSE_CFLAGS := $(call found,fuse_cflags)
FUSE_LIBS := $(call found,fuse_libs)
FUSE     := $(if $(FUSE_LIBS),$(B)/lib/libckpt-mount.so)
PLUGIN   := $(if $(NVCC),$(B)/lib/libzerotrain-cuda.so)
GPU_SRC  := $(sort $(wildcard engine/cuda/*.cu))
NCCL     := $(filter header:nccl,$(PROBED))
ENG_LIBS := $(ENGINE) $(B)/lib/libckpt.a -Wl,--as-needed $(SGEMM_LIBS) -lunistring $(MPI_LIBS)

.PHONY: all demo check check-rest check-all check-unit check-cli check-golden check-bad check-engine check-fault \
        check-man check-python check-remote rest-remote check-report check-sandbox check-simulate check-comm check-mpi check-runs check-refusals check-machines rest-comm rest-machines rest-mpi rest-runs rest-refusals rest-fault rest-reshard \
        rest-golden rest-bad run-rest check-interop check-fuzz check-gpu gpu-emulated gpu-tests gpu-bundle bench lint fmt install clean help deps run-demo run-check \
        programs ckpt

all: $(PROGRAMS) $(LIBS) $(MAIL) $(FETCH) $(FUSE) $(PLUGIN) summary

# the checkpoint tools and their library alone: without MPI, oneDNN, libunistring, Random123
ckpt: $(filter-out %/zerotrain,$(PROGRAMS)) $(LIBS) $(MAIL) $(FETCH) $(FUSE)
	@echo "built: $(B)/bin/ckpt (also as zero_to_fp32, zero_to_torch, ds_to_universal), $(B)/lib/libckpt.a, libckpt.so.$(SOVER)"

programs: $(PROGRAMS) $(MAIL) $(FETCH) $(FUSE)

# ---- the two commands of the README: install what is missing, then go -------------------------
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
run-check: check-engine check-fault check-mpi check-machines check-golden check-unit check-cli check-bad check-simulate check-python check-remote check-report $(LIBS)
	@echo "all checks passed"

run-rest: rest-comm rest-mpi rest-machines rest-fault rest-refusals rest-runs rest-reshard rest-golden rest-bad rest-remote
	@echo "all of the rest passed"

# ---- build -----------------------------------------------------------------------------------
# What is missing is told before the compiler does, by name of package.
$(B)/needs.ckpt $(B)/needs.build: tools/needs.sh
	@mkdir -p $(@D)
	@CC="$(CC)" MPI="$(MPI_LIBS)" SGEMM="$(SGEMM)" sh tools/needs.sh $(subst .,,$(suffix $@))
	@touch $@

# MPI came or went: its file is compiled again.
MPI_MARK := $(B)/mpi.$(if $(MPI_LIBS),on,off)
$(MPI_MARK):
	@mkdir -p $(@D)
	@rm -f $(B)/mpi.on $(B)/mpi.off
	@touch $@
$(B)/obj/engine/comm/mpi.o: $(MPI_MARK)

# The same of the plugin, for the text of the program that misses it.
CUDA_MARK := $(B)/cuda.$(if $(NVCC),on,off)
$(CUDA_MARK):
	@mkdir -p $(@D)
	@rm -f $(B)/cuda.on $(B)/cuda.off
	@touch $@
$(B)/obj/engine/cuda/load.o: $(CUDA_MARK)

$(filter-out $(MODEL_OBJ),$(ENG_OBJ)): | $(B)/needs.build
$(B)/obj/%.o: %.c | $(B)/needs.ckpt
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# the page of `ckpt report`: its style and program as strings
REPORT_PAGE := picture.css page.css page.js
$(B)/gen/tools/report/style.inc: tools/report/style.sh $(REPORT_PAGE:%=tools/report/%)
	@mkdir -p $(@D)
	$(Q)sh tools/report/style.sh tools/report > $@.part && mv $@.part $@
$(B)/obj/tools/report/style.o: $(B)/gen/tools/report/style.inc
$(B)/obj/tools/report/style.o: OWN_CPPFLAGS += -I$(B)/gen

# The kernels' loops are written to be vectorised: roots and choices too, for which nobody may look at errno or traps.
$(B)/obj/engine/device/%.o: CFLAGS := $(CFLAGS) -O3 -fno-math-errno -fno-trapping-math
$(B)/obj/engine/comm/%.o: CFLAGS := $(CFLAGS) -O3
# arithmetic on whole tensors: loops that are worth wide registers
$(B)/obj/libckpt/blend/ops.o $(B)/obj/formats/peft/lora.o $(B)/obj/libckpt/copy/mean.o: CFLAGS := $(CFLAGS) -O3
$(B)/obj/engine/comm/mpi.o: OWN_CPPFLAGS += $(if $(MPI_LIBS),-DZT_HAVE_MPI $(MPI_CFLAGS))

$(B)/obj/engine/cuda/load.o: OWN_CPPFLAGS += $(if $(NVCC),-DZT_HAVE_CUDA)

# ---- the GPU plugin --------------------------------------------------------------------------
# Code for compute capability 8.0 and 9.0, and for ones later than the last what the driver translates.  No fast-math: results
# are compared; what the CPU computes without contraction is compiled without it here too.
GPU_ARCH ?= 80 90
NVFLAGS  := -std=c++17 -O3 -I. -Ilibckpt -Ilibckpt/base $(foreach n,$(GPU_ARCH),-gencode arch=compute_$n,code=sm_$n) \
            -gencode arch=compute_$(lastword $(GPU_ARCH)),code=compute_$(lastword $(GPU_ARCH)) -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra
GPU_OBJ  := $(GPU_SRC:%.cu=$(B)/gpu/%.o)
# the small pieces of the engine that a plugin has copies of
GPU_C    := engine/device/device.o engine/device/arguments.o engine/device/product.o engine/comm/comm.o engine/comm/process.o

$(B)/gpu/engine/cuda/vector.o: NVFLAGS += -fmad=false

$(B)/gpu/%.o: %.cu
	@mkdir -p $(@D)
	@echo "  NVCC  $<"
	$(Q)$(NVCC) $(NVFLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(B)/gpu/engine/cuda/nccl.o: engine/cuda/nccl.c | $(B)/needs.build
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(if $(NCCL),-DZT_HAVE_NCCL) -isystem $(CUDA_DIR)/include -MMD -MP -c -o $@ $<

$(B)/lib/libzerotrain-cuda.so: $(GPU_OBJ) $(B)/gpu/engine/cuda/nccl.o $(GPU_C:%=$(B)/obj/%) $(B)/lib/libckpt.a engine/cuda/plugin.map
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(NVCC) -shared -o $@ $(filter %.o %.a,$^) -Xlinker --version-script=engine/cuda/plugin.map,-rpath,$(CUDA_DIR)/lib64 \
	    -lcublasLt $(if $(NCCL),-lnccl) $(LDLIBS)

# The same sources for g++, on an emulated GPU: for machines without one.
EMU_SRC  := $(sort $(wildcard tests/gpu/emulate/*.cpp))
EMU_OBJ  := $(GPU_SRC:%.cu=$(B)/emulated/%.o) $(EMU_SRC:%.cpp=$(B)/emulated/%.o)
EMUFLAGS := -std=c++17 -O2 -g -DZT_EMULATED=1 -Itests/gpu/emulate -I. -Ilibckpt -Ilibckpt/base -fPIC -fvisibility=hidden \
            -ffp-contract=off -Wall -Wextra -Wno-unknown-pragmas -pthread
CXX      ?= g++

$(B)/emulated/%.o: %.cu
	@mkdir -p $(@D)
	@echo "  EMU   $<"
	$(Q)$(CXX) $(EMUFLAGS) -MMD -MP -x c++ -c -o $@ $<

$(B)/emulated/%.o: %.cpp
	@mkdir -p $(@D)
	@echo "  EMU   $<"
	$(Q)$(CXX) $(EMUFLAGS) -MMD -MP -c -o $@ $<

$(B)/emulated/nccl.o: engine/cuda/nccl.c | $(B)/needs.build
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(B)/emulated/libzerotrain-cuda.so: $(EMU_OBJ) $(B)/emulated/nccl.o $(GPU_C:%=$(B)/obj/%) $(B)/lib/libckpt.a engine/cuda/plugin.map
	@echo "  LINK  $@"
	$(Q)$(CXX) -shared -pthread -o $@ $(filter %.o %.a,$^) -Wl,--version-script=engine/cuda/plugin.map,-z,defs $(LDLIBS)

gpu-emulated: $(B)/emulated/libzerotrain-cuda.so

# A plugin that computes on the processor in memory that the host cannot reach.
$(B)/far_device.so: tests/gpu/far_device.c $(ENGINE) $(B)/lib/libckpt.a
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP $(ALL_LDFLAGS) -shared -o $@ $< -Wl,--version-script=engine/cuda/plugin.map $(ENG_LIBS) $(LDLIBS)

# Tests of a plugin take its path: the real and the emulated one alike.
$(B)/gpu/test_%: tests/gpu/test_%.c $(ENGINE) $(B)/lib/libckpt.a
	$(TEST_PROGRAM)

$(ENGINE): $(ENG_OBJ)
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)$(AR) rcsD $@ $^

$(B)/bin/zerotrain: $(TRAIN_MAIN) $(TRAIN) $(TOOLS) $(ENGINE) $(B)/lib/libckpt.a
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -pie -o $@ $(TRAIN_MAIN) $(TRAIN) $(TOOLS) $(ENG_LIBS) $(LDLIBS)

$(B)/lib/libckpt.a: $(LIB_OBJ)
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)$(AR) rcsD $@ $^

$(B)/lib/libckpt.so.$(SOVER): $(LIB_OBJ) libckpt/libckpt.map
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -shared -Wl,-soname,libckpt.so.$(SOVER) \
	    -Wl,--version-script=libckpt/libckpt.map -Wl,--no-undefined -o $@ $(LIB_OBJ) $(LDLIBS)

$(B)/lib/libckpt.so: $(B)/lib/libckpt.so.$(SOVER)
	$(Q)ln -sf libckpt.so.$(SOVER) $@

$(B)/lib/libckpt-mpi.so: tools/mpi/mail.c tools/mpi/mail.h libckpt/ckpt_team.h $(MPI_MARK)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(MPI_CFLAGS) $(ALL_LDFLAGS) -shared -o $@ $< $(if $(SAN),,-Wl$(comma)-z$(comma)defs) $(MPI_LIBS)

$(B)/lib/libckpt-remote.so: libckpt/remote/curl/curl.c libckpt/remote/wire.h | $(B)/needs.ckpt
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS) -shared -o $@ $< $(if $(SAN),,-Wl$(comma)-z$(comma)defs) -lcurl

# libfuse ends its threads by pthread_cancel, for which the C library would load libgcc_s when nothing can be opened any more
$(B)/lib/libckpt-mount.so: tools/mount/fuse.c tools/mount/tree.c tools/mount/plugin.h tools/mount/tree.h | $(B)/needs.ckpt
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(FUSE_CFLAGS) $(ALL_LDFLAGS) -shared -o $@ $(filter %.c,$^) $(if $(SAN),,-Wl$(comma)-z$(comma)defs) $(FUSE_LIBS) -Wl$(comma)--no-as-needed -lgcc_s

# The layout maps are part of the program: it needs no files beside it.
MAPS     := $(sort $(wildcard tools/share/maps/*.map))
$(B)/gen/maps.c: tools/embed.sh $(MAPS)
	@mkdir -p $(@D)
	$(Q)sh tools/embed.sh $(MAPS) >$@.tmp && mv $@.tmp $@

# a string may be longer than what ISO C promises
$(B)/gen/maps.o: $(B)/gen/maps.c tools/cli/maps.h | $(B)/needs.ckpt
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -Wno-overlength-strings -c -o $@ $<

$(TRAIN): $(filter-out $(TRAIN_MAIN),$(filter $(B)/obj/tools/zerotrain/%,$(TOOL_OBJ)))
$(TOOLS): $(filter-out $(CKPT_MAIN) $(B)/obj/tools/zerotrain/%,$(TOOL_OBJ)) $(B)/gen/maps.o
$(MODELS): $(MODEL_OBJ)
$(TRAIN) $(TOOLS) $(MODELS):
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)$(AR) rcsD $@ $^

$(B)/bin/ckpt: $(CKPT_MAIN) $(TOOLS) $(MODELS) $(B)/lib/libckpt.a
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -pie -o $@ $^ $(LDLIBS)

$(B)/bin/zero_to_fp32 $(B)/bin/zero_to_torch $(B)/bin/ds_to_universal: $(B)/bin/ckpt
	$(Q)ln -sf ckpt $@

# The library and the program as they lie in the Python package's wheel: the libraries that they need are beside them.
WHEEL_LD := -Wl,--disable-new-dtags,-rpath,'$$ORIGIN'
WHEEL    := $(B)/wheel/libckpt.so.$(SOVER) $(B)/wheel/ckpt
$(B)/wheel/libckpt.so.$(SOVER): $(LIB_OBJ) libckpt/libckpt.map
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(WHEEL_LD) -shared -Wl,-soname,libckpt.so.$(SOVER) \
	    -Wl,--version-script=libckpt/libckpt.map -Wl,--no-undefined -o $@ $(LIB_OBJ) $(LDLIBS)

$(B)/wheel/ckpt: $(CKPT_MAIN) $(TOOLS) $(MODELS) $(B)/lib/libckpt.a
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(WHEEL_LD) -pie -o $@ $^ $(LDLIBS)

.PHONY: wheel
wheel: $(WHEEL)
	@python3 tools/python/wheel.py --library $(B)/wheel/libckpt.so.$(SOVER) --program $(B)/wheel/ckpt --version $(VERSION) --out dist

.PHONY: summary
summary: $(PROGRAMS) $(LIBS)
	@echo "built: $(B)/bin/ckpt (also as zero_to_fp32, zero_to_torch, ds_to_universal), $(B)/bin/zerotrain, $(B)/lib/libckpt.a, libckpt.so.$(SOVER)"
	@echo "$(if $(PLUGIN),built: $(PLUGIN)$(if $(NCCL),, without NCCL (nccl.h was not found): one rank a GPU is not faster than through the host),built without CUDA: zerotrain computes on the processor ($(if $(SAN),SAN is set,$(if $(filter no,$(CUDA)),CUDA=no,nvcc is not on PATH))))"
	@echo "$(if $(FETCH),built: $(FETCH),built without libckpt-remote.so: addresses (https://, hf://, s3://) are not read ($(if $(filter no,$(REMOTE)),REMOTE=no,no curl/curl.h: Debian's libcurl4-openssl-dev has it)))"
	@echo "$(if $(FUSE),built: $(FUSE),built without libckpt-mount.so: ckpt mount is not there ($(if $(filter no,$(MOUNT)),MOUNT=no,no libfuse 3.12 or later: Debian's libfuse3-dev and pkg-config have it)))"

# ---- packages --------------------------------------------------------------------------------
include tools/packaging/packages.mk

# ---- tests -----------------------------------------------------------------------------------
# Tests of one unit are compiled plainly: the compiler's time is most of theirs.
$(UNIT_BIN): private CFLAGS := -O0 -g
$(UNIT_BIN): private OWN_CPPFLAGS := $(filter-out -D_FORTIFY_SOURCE=%,$(OWN_CPPFLAGS))
$(B)/unit/%: tests/unit/%.c $(TRAIN) $(TOOLS) $(ENGINE) $(B)/lib/libckpt.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP $(ALL_LDFLAGS) -o $@ $< -lcmocka $(TRAIN) $(TOOLS) $(ENG_LIBS) $(LDLIBS)

# and those that want several processes, or recorded models
TEST_PROGRAM = $(Q)mkdir -p $(@D) && $(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP $(ALL_LDFLAGS) -o $@ $< $(ENG_LIBS) $(LDLIBS)
$(B)/comm/%: tests/comm/%.c $(ENGINE) $(B)/lib/libckpt.a
	$(TEST_PROGRAM)

$(B)/replay/%: tests/replay/%.c $(ENGINE) $(B)/lib/libckpt.a
	$(TEST_PROGRAM)

check-unit: $(UNIT_BIN)
	@sh tests/unit/run.sh $(UNIT_BIN)

check-cli: programs check-man check-sandbox
	@sh tests/cli/run.sh $(B)/bin
	@python3 tests/cli/readme.py --bin $(B)/bin

check-man: programs
	@sh tests/cli/man_options.sh $(B)/bin

check-sandbox: programs $(B)/plant.so
	@sh tests/hostile/sandbox.sh $(B)/bin $(B)/plant.so tests/fixtures
	@CC="$(CC)" sh tests/hostile/plugin.sh $(B)/bin

# prints every tensor of a checkpoint with its SHA-256, optimizer state and 16-bit copies too
$(B)/golden_map: tests/golden/golden_map.c $(B)/lib/libckpt.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $< $(B)/lib/libckpt.a $(LDLIBS)

# holds the files of a view against written ones
$(B)/view_files: tests/view/view_files.c $(B)/lib/libckpt.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $< $(B)/lib/libckpt.a $(LDLIBS)

# ../shared holds all the fixtures, and those here are taken from it
SHARED   := $(wildcard ../shared)
FIXTURES := $(if $(SHARED),$(SHARED)/fixtures,tests/fixtures)

check-golden: programs $(B)/golden_map $(B)/gen_zero
	@python3 tests/golden/run.py --bin $(B)/bin tests/fixtures
	@python3 tests/golden/npz.py --bin $(B)/bin tests/fixtures
	@python3 tests/golden/gguf.py --bin $(B)/bin tests/fixtures
	@python3 tests/golden/maps.py --bin $(B)/bin tests/fixtures
	@python3 tests/golden/dcp.py --some --bin $(B)/bin tests/fixtures
	@python3 tests/golden/megatron.py --some --bin $(B)/bin tests/fixtures
	@python3 tests/golden/peft.py --bin $(B)/bin tests/fixtures
	@python3 tests/golden/reshard.py --some --bin $(B)/bin --golden $(B)/golden_map --gen $(B)/gen_zero tests/fixtures
	@python3 tests/golden/universal.py --bin $(B)/bin --map $(B)/golden_map tests/fixtures
	@python3 tests/golden/run_doctor.py --bin $(B)/bin $(if $(SHARED),--more $(SHARED)/fixtures) tests/fixtures

# pages of `ckpt report`, without a browser
check-report: programs $(B)/gen_zero
	@python3 tests/report/run.py --bin $(B)/bin --gen $(B)/gen_zero tests/fixtures

# the same pages in Chromium, where it is; the pictures of README, made anew
.PHONY: rest-report report-pictures
run-rest: rest-report
rest-report: programs $(B)/gen_zero
	@python3 tests/report/browser.py --bin $(B)/bin --gen $(B)/gen_zero tests/fixtures

report-pictures: programs $(B)/gen_zero
	@python3 tests/report/screenshots.py --bin $(B)/bin --gen $(B)/gen_zero tests/fixtures

# files of views beside written ones; `rest` takes every fixture and format
.PHONY: check-view rest-view
run-check: check-view
check-view: programs $(B)/view_files
	@python3 tests/view/run.py --some --ranges 300 --bin $(B)/bin --view $(B)/view_files tests/fixtures

run-rest: rest-view
rest-view: programs $(B)/view_files
	@python3 tests/view/run.py --bin $(B)/bin --view $(B)/view_files $(or $(SHARED:%=%/fixtures),tests/fixtures)

# what a file system adds to them
.PHONY: check-mount rest-mount
run-check: check-mount
check-mount: programs $(B)/gen_zero
	@python3 tests/mount/run.py --some --bin $(B)/bin --gen $(B)/gen_zero tests/fixtures

run-rest: rest-mount
rest-mount: programs $(B)/gen_zero
	@python3 tests/mount/run.py --bin $(B)/bin --gen $(B)/gen_zero tests/fixtures

check-bad: programs
	@python3 tests/hostile/run_bad.py --bin $(B)/bin tests/fixtures/bad
	@python3 tests/hostile/megatron_bad.py --bin $(B)/bin tests/fixtures
	@python3 tests/hostile/dcp_bad.py --bin $(B)/bin
	@python3 tests/hostile/incomplete.py --some --bin $(B)/bin tests/fixtures

rest-reshard: programs $(B)/golden_map $(B)/gen_zero
	@python3 tests/golden/reshard.py --bin $(B)/bin --golden $(B)/golden_map --gen $(B)/gen_zero $(FIXTURES)

rest-golden: programs $(B)/golden_map
ifneq ($(SHARED),)
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
ifneq ($(SHARED),)
	@python3 tests/hostile/run_bad.py --bin $(B)/bin $(SHARED)/bad
	@python3 tests/hostile/incomplete.py --thin --bin $(B)/bin $(SHARED)/fixtures
endif

# the engine: collectives between processes; recorded runs of DeepSpeed replayed; what must not change a run; what is refused
check-engine: check-comm check-runs check-refusals

check-comm: programs $(B)/comm/comm_mpi
	@sh tests/comm/run_comm.sh --some $(B)/comm/comm_mpi
	@python3 tests/comm/wires.py --some --bin $(B)/bin

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
	@python3 tests/replay/equal.py --some --bin $(B)/bin
	@python3 tests/replay/formats.py --bin $(B)/bin

check-refusals: programs
	@python3 tests/hostile/engine_bad.py --some --bin $(B)/bin

rest-comm: programs $(B)/comm/comm_mpi
	@sh tests/comm/run_comm.sh $(B)/comm/comm_mpi
	@python3 tests/comm/wires.py --bin $(B)/bin

rest-runs: programs $(B)/replay/models
	@python3 tests/replay/equal.py --bin $(B)/bin
	@$(B)/replay/models tests/fixtures/models qwen2 qwen2_tied qwen3 mistral qwen2_windows
ifneq ($(SHARED),)
	@$(B)/replay/models $(SHARED)/golden bert_cls bert_mlm bert_reg gpt2 gpt2_masked llama3_tied_bias llama_gqa
	@python3 tests/replay/deepspeed.py --bin $(B)/bin --golden $(SHARED)/golden --resume
	@python3 tests/replay/formats.py --bin $(B)/bin $(SHARED)/fixtures
endif

rest-refusals: programs
	@python3 tests/hostile/engine_bad.py --bin $(B)/bin

# the GPU's kernels without a GPU, and everything above them on a device that is far from the host
GPU_TESTS := $(patsubst tests/gpu/%.c,$(B)/gpu/%,$(sort $(wildcard tests/gpu/test_*.c)))
gpu-tests: $(GPU_TESTS)

# For a machine with a GPU and little else: programs, plugin, tests, and the libraries that they need beside CUDA's and the
# compiler's.  They find these by their own path, so that python3 there keeps its own.  Without NCCL, whose library is larger
# than all else: on one GPU nobody needs it.  Open MPI comes along, moved (tests/gpu/mpirun), without what wants the libraries of a
# network, a batch system or ssh; its libraries look for each other where Debian has them, so the program names them all.
BUNDLE_LINK = $(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS) -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../deps' -pie
gpu-bundle: programs $(GPU_OBJ) $(B)/emulated/nccl.o $(GPU_TESTS)
	@rm -rf $(B)/bundle && mkdir -p $(B)/bundle/bin $(B)/bundle/lib $(B)/bundle/gpu $(B)/bundle/deps
	$(Q)$(BUNDLE_LINK) -o $(B)/bundle/bin/zerotrain $(TRAIN_MAIN) $(TRAIN) $(TOOLS) $(ENG_LIBS) $(LDLIBS) \
	    -Wl,--no-as-needed $$(pkg-config --static --libs ompi-c)
	$(Q)for t in $(notdir $(GPU_TESTS)); do \
	    $(BUNDLE_LINK) -o $(B)/bundle/gpu/$$t tests/gpu/$$t.c $(ENG_LIBS) $(LDLIBS) || exit 1; done
	$(Q)$(NVCC) -shared -o $(B)/bundle/lib/libzerotrain-cuda.so $(GPU_OBJ) $(B)/emulated/nccl.o $(GPU_C:%=$(B)/obj/%) \
	    $(B)/lib/libckpt.a -Xlinker --version-script=engine/cuda/plugin.map -lcublasLt $(LDLIBS)
	@cp tests/gpu/mpirun $(B)/bundle/bin && mkdir -p $(B)/bundle/mpi/bin $(B)/bundle/mpi/lib $(B)/bundle/mpi/share
	@cp -L "$$(command -v orterun)" $(B)/bundle/mpi/bin/mpirun
	@cp "$$(ompi_info --parsable --path pkglibdir | cut -d: -f3)"/mca_*.so $(B)/bundle/mpi/lib
	@cp -r "$$(ompi_info --parsable --path pkgdatadir | cut -d: -f3)" $(B)/bundle/mpi/share
	@cd $(B)/bundle/mpi/lib && rm -f *_ofi.so *_ucx.so *_psm*.so *_openib.so *_monitoring.so *_slurm.so *_flux.so *_plm_rsh.so
	@ldd $(B)/bundle/bin/* $(B)/bundle/gpu/* $(B)/bundle/lib/* $(B)/bundle/mpi/*/* 2>/dev/null | awk '$$3 ~ /^\// {print $$3}' | sort -u | \
	    grep -v '/libc\.so\|/libm\.so\|/libpthread\|/libdl\|/librt\|/libstdc++\|/libgcc_s\|/libcublas\|/libcuda' | \
	    xargs -I{} cp -L {} $(B)/bundle/deps
	@strip $(B)/bundle/bin/* $(B)/bundle/gpu/* $(B)/bundle/lib/* $(B)/bundle/deps/* $(B)/bundle/mpi/*/* 2>/dev/null || true
	@tar -C $(B)/bundle -cJf $(B)/gpu-bundle.tar.xz bin lib gpu deps mpi
	@ls -l $(B)/gpu-bundle.tar.xz

check-gpu: programs $(PLUGIN) $(B)/far_device.so gpu-emulated $(GPU_TESTS)
	@python3 tests/gpu/far.py --bin $(B)/bin --plugin $(B)/far_device.so
	@sh tests/gpu/emulated.sh $(B)

$(B)/ioshim.so: tests/fault/ioshim.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -O2 -g -fPIC -shared $(WARN) -o $@ $< -ldl

$(B)/plant.so: tests/hostile/plant.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -O2 -g -fPIC -shared $(WARN) -o $@ $<

$(B)/fault_alloc: tests/fault/alloc.c $(B)/lib/libckpt.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $< $(B)/lib/libckpt.a $(LDLIBS)

check-fault: programs $(B)/ioshim.so $(B)/fault_alloc $(B)/gen_zero
	@python3 tests/fault/run.py --some --bin $(B)/bin --shim $(B)/ioshim.so --alloc $(B)/fault_alloc --gen $(B)/gen_zero tests/fixtures
	@python3 tests/fault/page_cache.py --bin $(B)/bin --gen $(B)/gen_zero --work $(B)

# all in memory, and some on a disk
rest-fault: programs $(B)/ioshim.so $(B)/fault_alloc $(B)/gen_zero
	@env -u TMPDIR python3 tests/fault/run.py --some --bin $(B)/bin --shim $(B)/ioshim.so --alloc $(B)/fault_alloc --gen $(B)/gen_zero tests/fixtures
	@python3 tests/fault/run.py --bin $(B)/bin --shim $(B)/ioshim.so --alloc $(B)/fault_alloc --gen $(B)/gen_zero tests/fixtures

# writes valid ZeRO checkpoints of any size and world, for benchmarks and interop tests
$(B)/gen_zero: tests/bench/gen_zero.c $(B)/lib/libckpt.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $< $(B)/lib/libckpt.a $(LDLIBS)

# a mounted file whose bytes cost nothing
$(B)/null_mount: tests/bench/null_mount.c tools/mount/tree.c tools/mount/tree.h tools/mount/plugin.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $(filter %.c,$^) -ldl

# many machines on a clock, with the real plans
$(B)/simulate: tests/bench/simulate.c tests/bench/clock.c tests/bench/clock.h $(B)/lib/libckpt.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $(filter %.c,$^) $(B)/lib/libckpt.a $(LDLIBS)

# the Python package: what needs python3 alone, and numpy, torch, DeepSpeed where this python3 has them
check-python: programs $(LIBS) $(B)/gen_zero $(WHEEL)
	@python3 tests/python/run.py --bin $(B)/bin

# checkpoints by address, from servers on this machine
check-remote: programs
	@python3 tests/remote/run.py --some --bin $(B)/bin tests/fixtures

rest-remote: programs
	@python3 tests/remote/run.py --bin $(B)/bin tests/fixtures

# ckpt.hpp, by each C++ compiler that is here; with a sanitizer by the one that the library was built with
# (run-check has them besides those in its list)
.PHONY: check-cpp
run-check: check-cpp
check-cpp: $(if $(SAN),$(B)/lib/libckpt.a,$(LIBS))
ifeq ($(SAN),)
	@sh tests/cpp/run.sh $(B) tests/fixtures
else
	@CXXS=$(if $(findstring clang,$(CC)),clang++,g++) CXXFLAGS="-fsanitize=$(SAN) -fno-sanitize-recover=all" LDLIBS="$(LDLIBS)" \
	    sh tests/cpp/run.sh $(B) tests/fixtures
endif

# a program in each language whose compiler is here (`sh tools/deps.sh examples` installs them)
.PHONY: check-examples
run-check: check-examples
check-examples: $(LIBS)
	@CC="$(CC)" CXX="$(CXX)" sh tests/examples/run.sh $(B) tests/fixtures

# the manual pages as a site of static pages
.PHONY: doc check-doc
doc:
	@sh tools/site.sh $(B)/doc
	@echo "made: $(B)/doc/index.html"

# tutorials do what they show, pages refer to pages that are there
run-check: check-doc
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

bench: programs
	@bash tests/bench/run.sh $(B)/bin

lint:
	@sh tests/lint/run.sh

fmt:
	clang-format -i $$(git ls-files '*.c' '*.h' '*.hpp' '*.cu' '*.cpp')

deps:
	@sh tools/deps.sh build check lint

# ---- install ---------------------------------------------------------------------------------
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/ckpt $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include \
	    $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man3 \
	    $(DESTDIR)$(PREFIX)/share/man/man5 $(DESTDIR)$(PREFIX)/share/man/man7 $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
	    $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d \
	    $(DESTDIR)$(PREFIX)/share/doc/ckpt
	install -m 755 $(B)/bin/ckpt $(B)/bin/zerotrain $(DESTDIR)$(PREFIX)/bin
	$(Q)ln -sf ckpt $(DESTDIR)$(PREFIX)/bin/zero_to_fp32
	$(Q)ln -sf ckpt $(DESTDIR)$(PREFIX)/bin/zero_to_torch
	$(Q)ln -sf ckpt $(DESTDIR)$(PREFIX)/bin/ds_to_universal
	install -m 644 $(B)/lib/libckpt.a $(DESTDIR)$(LIBDIR)
	install -m 755 $(B)/lib/libckpt.so.$(SOVER) $(DESTDIR)$(LIBDIR)
	$(Q)ln -sf libckpt.so.$(SOVER) $(DESTDIR)$(LIBDIR)/libckpt.so
	$(if $(PLUGIN),install -m 755 $(PLUGIN) $(DESTDIR)$(PREFIX)/lib/ckpt)
	$(if $(MAIL),install -m 755 $(MAIL) $(DESTDIR)$(PREFIX)/lib/ckpt)
	$(if $(FETCH),install -m 755 $(FETCH) $(DESTDIR)$(PREFIX)/lib/ckpt)
	$(if $(FUSE),install -m 755 $(FUSE) $(DESTDIR)$(PREFIX)/lib/ckpt)
	install -m 644 libckpt/ckpt.h libckpt/ckpt_shape.h libckpt/ckpt_team.h libckpt/base/ckpt_types.h $(DESTDIR)$(PREFIX)/include
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' libckpt/ckpt.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/ckpt.pc
	install -m 644 libckpt/ckpt.hpp libckpt/ckpt_types.hpp libckpt/ckpt_map.hpp libckpt/ckpt_shape.hpp $(DESTDIR)$(PREFIX)/include
	install -m 644 LICENSE NOTICE README.md CHANGELOG.md SECURITY.md $(DESTDIR)$(PREFIX)/share/doc/ckpt
	install -m 644 man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 man/*.3 $(DESTDIR)$(PREFIX)/share/man/man3
	install -m 644 man/*.5 $(DESTDIR)$(PREFIX)/share/man/man5
	install -m 644 man/*.7 $(DESTDIR)$(PREFIX)/share/man/man7
	$(B)/bin/ckpt completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/ckpt
	$(B)/bin/ckpt completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_ckpt
	$(B)/bin/ckpt completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/ckpt.fish
	$(B)/bin/zerotrain --completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/zerotrain
	$(B)/bin/zerotrain --completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_zerotrain
	$(B)/bin/zerotrain --completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/zerotrain.fish
	$(Q)for n in zero_to_fp32 zero_to_torch ds_to_universal; do \
	    ln -sf ckpt $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$n; \
	    ln -sf ckpt.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$n.fish; done

clean:
	rm -rf $(B)

help:
	@echo "make               build build/bin/ckpt, its drop-ins (zero_to_fp32 ...), build/bin/zerotrain and the libraries"
	@echo "make ckpt          the same without zerotrain: needs no MPI, oneDNN, libunistring, Random123"
	@echo "make demo          install what is missing, build, consolidate a real checkpoint, show it"
	@echo "make wheel         the Python package with library and programs: dist/libckpt-*.whl"
	@echo "make tarball       one static ckpt, with its pages: dist/ckpt-*-linux-ARCH.tar.xz; ARCH=arm64 by cross building"
	@echo "make deb           Debian packages: dist/*.deb"
	@echo "make manylinux     the wheel for older Linux too (against Debian 11's C library); ARCH=arm64 by cross building"
	@echo "make source        the tree as it is: dist/ckpt-VERSION.tar.xz"
	@echo "make check         install what is missing, build, run the tests (JOBS at a time: the number of processors)"
	@echo "make check-all     the same, then every case of the long suites (make check-rest: those alone)"
	@echo "make check-interop load what we wrote with the real torch, safetensors, transformers, DeepSpeed"
	@echo "make gpu-emulated  the GPU plugin for an emulated GPU: build/emulated/libzerotrain-cuda.so"
	@echo "make gpu-bundle    what tests/gpu/run.sh needs on a bare machine with a GPU, in one file"
	@echo "make check-gpu     tests of the GPU's code on machines without one (with one: tests/gpu/run.sh)"
	@echo "make check-python  tests of the Python package in tools/python"
	@echo "make check-packages tests of what is in dist/ (FULL=1: on all architectures)"
	@echo "make check-cpp     tests of ckpt.hpp, with the C++ compilers that are here"
	@echo "make check-examples  example programs in C, C++, Rust and Go, where their compilers are"
	@echo "make check-fuzz    run every fuzz target FUZZ_SECONDS (60) each"
	@echo "make bench         measure beside cp and DeepSpeed's script; figures are printed"
	@echo "make doc           the manual pages and tutorials as a small site: build/doc/index.html"
	@echo "make check-doc     run what the tutorials show, check the site's links"
	@echo "make lint | fmt    static checks | clang-format"
	@echo "make install       build in build/release, without asserts, and install to DESTDIR and PREFIX ($(PREFIX))"
	@echo "make clean         remove build/"
	@echo "variables          CC, CPPFLAGS, CFLAGS, LDFLAGS, WERROR=1 (warnings are errors), NO_DEPS=1 (install no packages, name what is missing)"
	@echo "                   SAN=address,undefined or thread, CUDA=no, REMOTE=no, MOUNT=no, RELEASE=1 (no asserts), B=build folder"

-include $(GPU_OBJ:.o=.d) $(EMU_OBJ:.o=.d) $(B)/gpu/engine/cuda/nccl.d $(B)/emulated/nccl.d $(GPU_TESTS:=.d)
-include $(LIB_OBJ:.o=.d) $(TOOL_OBJ:.o=.d) $(ENG_OBJ:.o=.d) $(UNIT_BIN:=.d)
