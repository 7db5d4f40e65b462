# SPDX-License-Identifier: Apache-2.0
# What is given to others, in dist/.  Part of the Makefile, which says what a target is for.

# The architecture that a package is for, by Debian's names, and the Debian that a static program is linked with.
ARCH     ?= $(if $(filter aarch64,$(shell uname -m)),arm64,amd64)
DEBIAN   ?= bookworm
TRIPLET   = $(if $(filter arm64,$(ARCH)),aarch64,x86_64)-linux-gnu
# the time that files in packages have
EPOCH     = $(shell sh tools/packaging/epoch.sh)
# A compiler and linker that see the files of a Debian, $(1), alone: gcc would look for libraries beside itself first.
ROOT      = $(CURDIR)/build/sysroot/$(1)-$(ARCH)
FOREIGN   = $(TRIPLET)-gcc --sysroot=$(ROOT) -B$(ROOT)/usr/lib/$(TRIPLET)/ -L$(ROOT)/usr/lib/$(TRIPLET)
# make with it; $(2): the folder for objects
ABROAD    = $(MAKE) --no-print-directory RELEASE=1 CUDA=no B=$(2) CC="$(FOREIGN)" AR=$(TRIPLET)-ar

.PHONY: tarball static-program source

source:
	@sh tools/packaging/source.sh $(VERSION) dist

# ---- one static program ----------------------------------------------------------------------
# It can load no plugin: none/plugin.o comes before the archive that has the file it stands for.  OpenSSL could load modules of its own, and name
# hosts, of which the linker warns; of OpenSSL only digests are used.
$(B)/static/ckpt: $(CKPT_MAIN) $(B)/obj/libckpt/base/none/plugin.o $(TOOLS) $(MODELS) $(B)/lib/libckpt.a
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -static-pie -o $@ $^ $(LDLIBS) 2>$@.log || { cat $@.log >&2; exit 1; }

# the same of the objects of B, as they are: for tests
static-program:
	+@$(MAKE) --no-print-directory CUDA=no B=$(B) CC="$(call FOREIGN,$(DEBIAN))" AR=$(TRIPLET)-ar $(B)/static/ckpt

tarball:
	@sh tools/packaging/sysroot.sh $(DEBIAN) $(ARCH) build/sysroot/$(DEBIAN)-$(ARCH)
	+@$(call ABROAD,$(DEBIAN),build/static-$(ARCH)) build/static-$(ARCH)/static/ckpt
	@SOURCE_DATE_EPOCH=$(EPOCH) sh tools/packaging/tarball.sh build/static-$(ARCH)/static/ckpt $(VERSION) $(ARCH) \
	    build/sysroot/$(DEBIAN)-$(ARCH)/licences dist

# ---- wheels for any Linux --------------------------------------------------------------------
# Compiled against an older C library, with all else linked in: the wheel has two files of machine code.
MANY_DEBIAN ?= bullseye
MANY_B   ?= build/manylinux-$(ARCH)
OUT      ?= dist
.PHONY: manylinux
manylinux:
	@sh tools/packaging/sysroot.sh $(MANY_DEBIAN) $(ARCH) build/sysroot/$(MANY_DEBIAN)-$(ARCH)
	+@$(call ABROAD,$(MANY_DEBIAN),$(MANY_B)) $(MANY_B)/wheel/ckpt $(MANY_B)/wheel/libckpt.so.$(SOVER)
	@python3 tools/python/wheel.py --library $(MANY_B)/wheel/libckpt.so.$(SOVER) --program $(MANY_B)/wheel/ckpt \
	    --version $(VERSION) --strip $(TRIPLET)-strip --licences build/sysroot/$(MANY_DEBIAN)-$(ARCH)/licences --out $(OUT)

# ---- tests -----------------------------------------------------------------------------------
# what is in dist/, used where nothing else is; FULL=1: all architectures, as it is given away
.PHONY: check-packages
check-packages: programs
	@sh tests/packages/run.sh $(if $(FULL),--full) $(B)/bin

# ---- Debian packages -------------------------------------------------------------------------
.PHONY: deb
deb:
	@sh tools/packaging/deb.sh $(VERSION) dist
