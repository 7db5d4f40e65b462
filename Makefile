# SPDX-License-Identifier: Apache-2.0
# Build, test and install the checkpoint suite.  `make help` lists the targets.
#
# This file has the build and the installation.  The tests are in tests/tests.mk, the GPU plugin in engine/cuda/gpu.mk, the
# packages in tools/packaging/packages.mk.  All products are under build/.

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
# libckpt/base/tensor.h shows all members of a tensor; `make lint` compiles ckpt and report without it.
ALL_CPPFLAGS = -include libckpt/base/tensor.h -D_POSIX_C_SOURCE=200809L -D_FILE_OFFSET_BITS=64 -I. -Ilibckpt/include \
             $(if $(RELEASE),-DNDEBUG) $(CPPFLAGS) $(OWN_CPPFLAGS)
CFLAGS   ?= -O2 -g
# A release does not know in which folder it was built: the same source makes the same bytes.
REPRO    := $(if $(RELEASE),-ffile-prefix-map=$(CURDIR)=.)
ALL_CFLAGS = -std=c11 $(CFLAGS) $(REPRO) -ffp-contract=off -fvisibility=hidden -fstack-protector-strong \
             -fPIC -pthread $(WARN)
# What the compiler and the libraries here offer; $(call found,KIND) lists the answers of one kind.
# SAN names sanitizers.  CUDA=no, REMOTE=no and MOUNT=no leave out the plugins for a GPU, addresses and mounts.
# CUDNN_INCLUDE names folders with cudnn.h and cudnn_frontend.h, beside those that the compiler and CUDA know.
CUDA     ?=
CUDNN_INCLUDE ?=
REMOTE   ?=
MOUNT    ?=
NVCC     := $(if $(SAN)$(filter no,$(CUDA)),,$(shell command -v nvcc 2>/dev/null))
CUDA_DIR := $(if $(NVCC),$(abspath $(dir $(realpath $(NVCC)))/..))
PROBED   := $(shell CC="$(CC)" SAN="$(SAN)" REMOTE="$(REMOTE)" MOUNT="$(MOUNT)" CUDA_DIR="$(CUDA_DIR)" CUDNN_INCLUDE="$(CUDNN_INCLUDE)" sh tools/probe.sh)
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
# These patterns match neither libckpt/remote/curl, which is a plugin, nor libckpt/base/none, which only the static program has.
LIB_SRC  := $(sort $(wildcard libckpt/*.c libckpt/*/*.c libckpt/codec/*/*.c libckpt/dist/*/*.c libckpt/transform/*/*.c formats/*.c formats/*/*.c formats/*/*/*.c))
TOOL_SRC := $(filter-out tools/mpi/mail.c tools/mount/fuse.c,$(sort $(wildcard tools/*.c tools/*/*.c)))
ENG_SRC  := $(filter-out engine/cuda/nccl.c,$(sort $(wildcard engine/*.c engine/*/*.c)))
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
LINKS    := zero_to_fp32 zero_to_torch ds_to_universal
PROGRAMS := $(B)/bin/ckpt $(LINKS:%=$(B)/bin/%) $(B)/bin/zerotrain
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
MAIL     = $(if $(MPI_LIBS),$(B)/lib/libckpt-mpi.so)
# reading addresses by libcurl, where its headers are; REMOTE=no does without
FETCH    := $(if $(filter header:curl,$(PROBED)),$(B)/lib/libckpt-remote.so)
# file systems of views by libfuse, where its headers are; MOUNT=no does without
FUSE_CFLAGS := $(call found,fuse_cflags)
FUSE_LIBS := $(call found,fuse_libs)
FUSE     := $(if $(FUSE_LIBS),$(B)/lib/libckpt-mount.so)
ENG_LIBS := $(ENGINE) $(B)/lib/libckpt.a -Wl,--as-needed $(SGEMM_LIBS) -lunistring $(MPI_LIBS)

# the first target, which `make` alone makes
.PHONY: all ckpt programs summary install clean help deps fmt
all:
include engine/cuda/gpu.mk

all: $(PROGRAMS) $(LIBS) $(MAIL) $(FETCH) $(FUSE) $(PLUGIN) summary

# the checkpoint tools and their library alone: without MPI, oneDNN, libunistring, Random123
ckpt: $(filter-out %/zerotrain,$(PROGRAMS)) $(LIBS) $(MAIL) $(FETCH) $(FUSE)
	@echo "built: $(B)/bin/ckpt (also as zero_to_fp32, zero_to_torch, ds_to_universal), $(B)/lib/libckpt.a, libckpt.so.$(SOVER)"

programs: $(PROGRAMS) $(MAIL) $(FETCH) $(FUSE)

# ---- build -----------------------------------------------------------------------------------
# $(call say,WORD): make the target's folder and print what is done
say       = @mkdir -p $(@D) && echo "  $(1) $@"
# the prerequisite to an object, with further flags $(1)
define compile
@mkdir -p $(@D) && echo "  CC    $<"
$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(1) -MMD -MP -c -o $@ $<
endef
# objects and libraries $(2) to the target, with further flags $(1)
define link
$(call say,LINK )
$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(1) -o $@ $(2)
endef
# the sources among the prerequisites to a program, with further flags $(1) and libraries $(2)
define program
@mkdir -p $(@D)
$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(1) $(ALL_LDFLAGS) -o $@ $(filter %.c,$^) $(2)
endef
# the same to a plugin, which has all symbols that it needs
define plugin
$(call say,LINK )
$(call program,$(1) -shared $(NO_UNDEFINED),$(2))
endef
NO_UNDEFINED := $(if $(SAN),,-Wl,-z,defs)
define archive
@mkdir -p $(@D) && rm -f $@
$(Q)$(AR) rcsD $@ $^
endef

# The build prints the names of missing packages before the compiler prints those of headers.
$(B)/needs.ckpt $(B)/needs.build: tools/needs.sh
	@mkdir -p $(@D)
	@CC="$(CC)" MPI="$(MPI_LIBS)" SGEMM="$(SGEMM)" sh tools/needs.sh $(subst .,,$(suffix $@))
	@touch $@

# $(B)/NAME.on or NAME.off: objects that depend on it are compiled again after MPI, CUDA or cuDNN was installed or removed.
MPI_MARK := $(B)/mpi.$(if $(MPI_LIBS),on,off)
CUDA_MARK := $(B)/cuda.$(if $(NVCC),on,off)
CUDNN_MARK := $(B)/cudnn.$(if $(CUDNN),on,off)
$(MPI_MARK) $(CUDA_MARK) $(CUDNN_MARK):
	@mkdir -p $(@D) && rm -f $(basename $@).on $(basename $@).off && touch $@
$(B)/obj/engine/comm/mpi.o: $(MPI_MARK)
$(B)/obj/engine/cuda/load.o: $(CUDA_MARK)
$(B)/gpu/engine/cuda/cudnn.o: $(CUDNN_MARK)

$(filter-out $(MODEL_OBJ),$(ENG_OBJ)): | $(B)/needs.build
$(B)/obj/%.o: %.c | $(B)/needs.ckpt
	$(call compile)

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
$(B)/obj/libckpt/transform/merge/ops.o $(B)/obj/formats/peft/lora.o $(B)/obj/formats/peft/product.o $(B)/obj/formats/peft/rotation.o $(B)/obj/formats/peft/update.o $(B)/obj/formats/peft/truncate.o $(B)/obj/formats/peft/symmetric.o $(B)/obj/libckpt/transform/dequant_words.o $(B)/obj/libckpt/transform/requant_codes.o $(B)/obj/libckpt/transform/requant_group.o $(B)/obj/libckpt/copy/mean.o: CFLAGS := $(CFLAGS) -O3
$(B)/obj/engine/comm/mpi.o: OWN_CPPFLAGS += $(if $(MPI_LIBS),-DZT_HAVE_MPI $(MPI_CFLAGS))
$(B)/obj/engine/cuda/load.o: OWN_CPPFLAGS += $(if $(NVCC),-DZT_HAVE_CUDA)

$(ENGINE): $(ENG_OBJ)
$(B)/lib/libckpt.a: $(LIB_OBJ)
$(TRAIN): $(filter-out $(TRAIN_MAIN),$(filter $(B)/obj/tools/zerotrain/%,$(TOOL_OBJ)))
$(TOOLS): $(filter-out $(CKPT_MAIN) $(B)/obj/tools/zerotrain/%,$(TOOL_OBJ)) $(B)/gen/maps.o
$(MODELS): $(MODEL_OBJ)
$(ENGINE) $(B)/lib/libckpt.a $(TRAIN) $(TOOLS) $(MODELS):
	$(call archive)

$(B)/bin/zerotrain: $(TRAIN_MAIN) $(TRAIN) $(TOOLS) $(ENGINE) $(B)/lib/libckpt.a
	$(call link,-pie,$(TRAIN_MAIN) $(TRAIN) $(TOOLS) $(ENG_LIBS) $(LDLIBS))

$(B)/bin/ckpt: $(CKPT_MAIN) $(TOOLS) $(MODELS) $(B)/lib/libckpt.a
	$(call link,-pie,$^ $(LDLIBS))

$(LINKS:%=$(B)/bin/%): $(B)/bin/ckpt
	$(Q)ln -sf ckpt $@

SHARED_FLAGS := -shared -Wl,-soname,libckpt.so.$(SOVER) -Wl,--version-script=libckpt/libckpt.map -Wl,--no-undefined
$(B)/lib/libckpt.so.$(SOVER): $(LIB_OBJ) libckpt/libckpt.map
	$(call link,$(SHARED_FLAGS),$(LIB_OBJ) $(LDLIBS))

$(B)/lib/libckpt.so: $(B)/lib/libckpt.so.$(SOVER)
	$(Q)ln -sf libckpt.so.$(SOVER) $@

$(B)/lib/libckpt-mpi.so: tools/mpi/mail.c tools/mpi/mail.h libckpt/include/ckpt_team.h $(MPI_MARK)
	$(call plugin,$(MPI_CFLAGS),$(MPI_LIBS))

$(B)/lib/libckpt-remote.so: libckpt/remote/curl/curl.c libckpt/remote/wire.h | $(B)/needs.ckpt
	$(call plugin,,-lcurl)

# libfuse ends its threads by pthread_cancel, for which the C library loads libgcc_s, when no file can be opened any more.
FUSE_KEEP := -Wl,--no-as-needed -lgcc_s
$(B)/lib/libckpt-mount.so: tools/mount/fuse.c tools/mount/tree.c tools/mount/plugin.h tools/mount/tree.h | $(B)/needs.ckpt
	$(call plugin,$(FUSE_CFLAGS),$(FUSE_LIBS) $(FUSE_KEEP))

# The layout maps are part of the program: it needs no files beside it.
MAPS     := $(sort $(wildcard tools/share/maps/*.map))
# the folder, too: a renamed map keeps its time
$(B)/gen/maps.c: tools/embed.sh $(MAPS) tools/share/maps
	@mkdir -p $(@D)
	$(Q)sh tools/embed.sh $(MAPS) >$@.tmp && mv $@.tmp $@

# a string may be longer than what ISO C promises
$(B)/gen/maps.o: $(B)/gen/maps.c tools/cli/maps.h | $(B)/needs.ckpt
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -Wno-overlength-strings -c -o $@ $<

summary: $(PROGRAMS) $(LIBS)
	@echo "built: $(B)/bin/ckpt (also as zero_to_fp32, zero_to_torch, ds_to_universal), $(B)/bin/zerotrain, $(B)/lib/libckpt.a, libckpt.so.$(SOVER)"
	@echo "$(if $(PLUGIN),built: $(PLUGIN)$(if $(NCCL),, without NCCL (nccl.h was not found): one rank a GPU is not faster than through the host),built without CUDA: zerotrain computes on the processor ($(if $(SAN),SAN is set,$(if $(filter no,$(CUDA)),CUDA=no,nvcc is not on PATH))))"
	@echo "$(if $(FETCH),built: $(FETCH),built without libckpt-remote.so: addresses (https://, hf://, s3://) are not read ($(if $(filter no,$(REMOTE)),REMOTE=no,no curl/curl.h: Debian's libcurl4-openssl-dev has it)))"
	@echo "$(if $(FUSE),built: $(FUSE),built without libckpt-mount.so: ckpt mount is not there ($(if $(filter no,$(MOUNT)),MOUNT=no,no libfuse 3.12 or later: Debian's libfuse3-dev and pkg-config have it)))"

include tools/packaging/packages.mk
include tests/tests.mk

fmt:
	clang-format -i $$(git ls-files '*.c' '*.h' '*.hpp' '*.cu' '*.cpp')

deps:
	@sh tools/deps.sh build check lint

# ---- install ---------------------------------------------------------------------------------
SHARE     = $(DESTDIR)$(PREFIX)/share
BASH_DIR  = $(SHARE)/bash-completion/completions
ZSH_DIR   = $(SHARE)/zsh/site-functions
FISH_DIR  = $(SHARE)/fish/vendor_completions.d
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/ckpt $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include \
	    $(SHARE)/man/man1 $(SHARE)/man/man3 $(SHARE)/man/man5 $(SHARE)/man/man7 $(BASH_DIR) $(ZSH_DIR) $(FISH_DIR) $(SHARE)/doc/ckpt
	install -m 755 $(B)/bin/ckpt $(B)/bin/zerotrain $(DESTDIR)$(PREFIX)/bin
	$(Q)for n in $(LINKS); do ln -sf ckpt $(DESTDIR)$(PREFIX)/bin/$$n; done
	install -m 644 $(B)/lib/libckpt.a $(DESTDIR)$(LIBDIR)
	install -m 755 $(B)/lib/libckpt.so.$(SOVER) $(DESTDIR)$(LIBDIR)
	$(Q)ln -sf libckpt.so.$(SOVER) $(DESTDIR)$(LIBDIR)/libckpt.so
	$(if $(PLUGIN)$(MAIL)$(FETCH)$(FUSE),install -m 755 $(PLUGIN) $(MAIL) $(FETCH) $(FUSE) $(DESTDIR)$(PREFIX)/lib/ckpt)
	install -m 644 libckpt/include/*.h libckpt/include/*.hpp $(DESTDIR)$(PREFIX)/include
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' libckpt/ckpt.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/ckpt.pc
	install -m 644 LICENSE NOTICE README.md CHANGELOG.md SECURITY.md $(SHARE)/doc/ckpt
	for n in 1 3 5 7; do install -m 644 man/*.$$n $(SHARE)/man/man$$n || exit 1; done
	$(B)/bin/ckpt completion bash > $(BASH_DIR)/ckpt
	$(B)/bin/ckpt completion zsh > $(ZSH_DIR)/_ckpt
	$(B)/bin/ckpt completion fish > $(FISH_DIR)/ckpt.fish
	$(B)/bin/zerotrain --completion bash > $(BASH_DIR)/zerotrain
	$(B)/bin/zerotrain --completion zsh > $(ZSH_DIR)/_zerotrain
	$(B)/bin/zerotrain --completion fish > $(FISH_DIR)/zerotrain.fish
	$(Q)for n in $(LINKS); do ln -sf ckpt $(BASH_DIR)/$$n && ln -sf ckpt.fish $(FISH_DIR)/$$n.fish || exit 1; done

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
	@echo "                   CUDNN_INCLUDE=folders with cudnn.h and cudnn_frontend.h, for ZEROTRAIN_ATTENTION=cudnn"

-include $(LIB_OBJ:.o=.d) $(TOOL_OBJ:.o=.d) $(ENG_OBJ:.o=.d)
