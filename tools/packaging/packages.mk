# SPDX-License-Identifier: Apache-2.0
# Targets that make the packages in dist/.  The Makefile includes this file; `make help` describes the targets.

# The architecture of a package, by Debian's name, and the Debian release with which a static program is linked.
ARCH     ?= $(if $(filter aarch64,$(shell uname -m)),arm64,amd64)
DEBIAN   ?= bookworm
TRIPLET   = $(if $(filter arm64,$(ARCH)),aarch64,x86_64)-linux-gnu
# modification time for files in packages
EPOCH     = $(shell sh tools/packaging/epoch.sh)
# A compiler and linker that use only the files of the Debian release $(1).  -B and -L precede the folders of gcc itself.
ROOT      = $(CURDIR)/build/sysroot/$(1)-$(ARCH)
FOREIGN   = $(TRIPLET)-gcc --sysroot=$(ROOT) -B$(ROOT)/usr/lib/$(TRIPLET)/ -L$(ROOT)/usr/lib/$(TRIPLET)
# make with that compiler; $(2): the folder for objects
ABROAD    = $(MAKE) --no-print-directory RELEASE=1 CUDA=no B=$(2) CC="$(FOREIGN)" AR=$(TRIPLET)-ar

.PHONY: tarball static-program source

source:
	@sh tools/packaging/source.sh $(VERSION) dist

# ---- one static program ----------------------------------------------------------------------
# The static program can load no plugin: none/plugin.o replaces base/plugin.o, because it precedes the archive.  The linker
# warns that OpenSSL could load modules and look up hosts; the program is not affected, because it uses only digests.
$(B)/static/ckpt: $(CKPT_MAIN) $(B)/obj/libckpt/base/none/plugin.o $(TOOLS) $(MODELS) $(B)/lib/libckpt.a
	$(call say,LINK )
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -static-pie -o $@ $^ $(LDLIBS) 2>$@.log || { cat $@.log >&2; exit 1; }

# the static program from the objects of B, for tests
static-program:
	+@$(MAKE) --no-print-directory CUDA=no B=$(B) CC="$(call FOREIGN,$(DEBIAN))" AR=$(TRIPLET)-ar $(B)/static/ckpt

tarball:
	@sh tools/packaging/sysroot.sh $(DEBIAN) $(ARCH) build/sysroot/$(DEBIAN)-$(ARCH)
	+@$(call ABROAD,$(DEBIAN),build/static-$(ARCH)) build/static-$(ARCH)/static/ckpt
	@SOURCE_DATE_EPOCH=$(EPOCH) sh tools/packaging/tarball.sh build/static-$(ARCH)/static/ckpt $(VERSION) $(ARCH) \
	    build/sysroot/$(DEBIAN)-$(ARCH)/licences dist

# ---- the Python package ----------------------------------------------------------------------
# The library and the program as they lie in the Python package's wheel: the libraries that they need are beside them.
WHEEL_LD := -Wl,--disable-new-dtags,-rpath,'$$ORIGIN'
WHEEL    := $(B)/wheel/libckpt.so.$(SOVER) $(B)/wheel/ckpt
$(B)/wheel/libckpt.so.$(SOVER): $(LIB_OBJ) libckpt/libckpt.map
	$(call link,$(WHEEL_LD) $(SHARED_FLAGS),$(LIB_OBJ) $(LDLIBS))

$(B)/wheel/ckpt: $(CKPT_MAIN) $(TOOLS) $(MODELS) $(B)/lib/libckpt.a
	$(call link,$(WHEEL_LD) -pie,$^ $(LDLIBS))

.PHONY: wheel
wheel: $(WHEEL)
	@python3 tools/python/wheel.py --library $(B)/wheel/libckpt.so.$(SOVER) --program $(B)/wheel/ckpt --version $(VERSION) --out dist

# ---- wheels for any Linux --------------------------------------------------------------------
# Compiled against an older C library, with all other libraries linked statically: the wheel has two files of machine code.
MANY_DEBIAN ?= bullseye
MANY_B   ?= build/manylinux-$(ARCH)
OUT      ?= dist
.PHONY: manylinux
manylinux:
	@sh tools/packaging/sysroot.sh $(MANY_DEBIAN) $(ARCH) build/sysroot/$(MANY_DEBIAN)-$(ARCH)
	+@$(call ABROAD,$(MANY_DEBIAN),$(MANY_B)) $(MANY_B)/wheel/ckpt $(MANY_B)/wheel/libckpt.so.$(SOVER)
	@python3 tools/python/wheel.py --library $(MANY_B)/wheel/libckpt.so.$(SOVER) --program $(MANY_B)/wheel/ckpt \
	    --version $(VERSION) --strip $(TRIPLET)-strip --licences build/sysroot/$(MANY_DEBIAN)-$(ARCH)/licences --out $(OUT)

# ---- Debian packages -------------------------------------------------------------------------
.PHONY: deb
deb:
	@sh tools/packaging/deb.sh $(VERSION) dist
