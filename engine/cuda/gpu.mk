# SPDX-License-Identifier: Apache-2.0
# The GPU plugin of zerotrain: by nvcc, by g++ on an emulated GPU, and in a bundle for a machine with a GPU.  The Makefile includes
# this file.

PLUGIN   := $(if $(NVCC),$(B)/lib/libzerotrain-cuda.so)
NCCL     := $(filter header:nccl,$(PROBED))
CUDNN    := $(filter header:cudnn,$(PROBED))
GPU_TESTS := $(patsubst tests/gpu/%.c,$(B)/gpu/%,$(sort $(wildcard tests/gpu/test_*.c)))
# programs that print: orders of rounding, times; and a test for the emulated plugin alone
GPU_TESTS += $(B)/gpu/orders $(B)/gpu/times $(B)/gpu/choices
GPU_SRC  := $(sort $(wildcard engine/cuda/*.cu))
# Code for compute capability 8.0 and 9.0, and for ones later than the last what the driver translates.  No fast-math: results
# are compared; what the CPU computes without contraction is compiled without it here too.
GPU_ARCH ?= 80 90
NVFLAGS  := -std=c++17 -O3 -include libckpt/base/tensor.h -I. -Ilibckpt/include \
            $(foreach n,$(GPU_ARCH),-gencode arch=compute_$n,code=sm_$n) \
            -gencode arch=compute_$(lastword $(GPU_ARCH)),code=compute_$(lastword $(GPU_ARCH)) -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra
GPU_OBJ  := $(GPU_SRC:%.cu=$(B)/gpu/%.o)
GPU_HOST := $(B)/gpu/engine/cuda/nccl.o $(B)/gpu/engine/cuda/cudnn.o
# the small pieces of the engine that a plugin has copies of
GPU_C    := engine/device/device.o engine/device/arguments.o engine/device/product.o engine/comm/comm.o engine/comm/process.o

$(B)/gpu/engine/cuda/vector.o: NVFLAGS += -fmad=false

$(B)/gpu/%.o: %.cu
	@mkdir -p $(@D) && echo "  NVCC  $<"
	$(Q)$(NVCC) $(NVFLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(B)/gpu/engine/cuda/nccl.o: engine/cuda/nccl.c | $(B)/needs.build
	$(call compile,$(if $(NCCL),-DZT_HAVE_NCCL) -isystem $(CUDA_DIR)/include)

# Templates of NVIDIA's headers: -O2 takes half as long again and gains nothing, because the work is cuDNN's.
CUDNN_FLAGS = $(if $(CUDNN),-DZT_HAVE_CUDNN $(CUDNN_INCLUDE:%=-isystem %) -isystem $(CUDA_DIR)/include)
$(B)/gpu/engine/cuda/cudnn.o: engine/cuda/cudnn.cpp | $(B)/needs.build
	@mkdir -p $(@D) && echo "  CXX   $<"
	$(Q)$(CXX) -std=c++17 -O1 -include libckpt/base/tensor.h -I. -Ilibckpt/include $(CUDNN_FLAGS) -fPIC -fvisibility=hidden -Wall -Wextra -MMD -MP -c -o $@ $<

$(B)/lib/libzerotrain-cuda.so: $(GPU_OBJ) $(GPU_HOST) $(GPU_C:%=$(B)/obj/%) $(B)/lib/libckpt.a engine/cuda/plugin.map
	$(call say,LINK )
	$(Q)$(NVCC) -shared -o $@ $(filter %.o %.a,$^) -Xlinker --version-script=engine/cuda/plugin.map,-rpath,$(CUDA_DIR)/lib64 \
	    -lcublasLt $(if $(NCCL),-lnccl) $(LDLIBS)

# The same sources for g++, on an emulated GPU: for machines without one.
EMU_SRC  := $(sort $(wildcard tests/gpu/emulate/*.cpp))
EMU_OBJ  := $(GPU_SRC:%.cu=$(B)/emulated/%.o) $(EMU_SRC:%.cpp=$(B)/emulated/%.o)
EMUFLAGS := -std=c++17 -O2 -g -DZT_EMULATED=1 -Itests/gpu/emulate -include libckpt/base/tensor.h -I. -Ilibckpt/include \
            -fPIC -fvisibility=hidden -ffp-contract=off -Wall -Wextra -Wno-unknown-pragmas -pthread
CXX      ?= g++

define emulate
@mkdir -p $(@D) && echo "  EMU   $<"
$(Q)$(CXX) $(EMUFLAGS) -MMD -MP $(1) -c -o $@ $<
endef
$(B)/emulated/%.o: %.cu
	$(call emulate,-x c++)
$(B)/emulated/%.o: %.cpp
	$(call emulate)

$(B)/emulated/nccl.o: engine/cuda/nccl.c | $(B)/needs.build
	$(call compile)

$(B)/emulated/libzerotrain-cuda.so: $(EMU_OBJ) $(B)/emulated/nccl.o $(GPU_C:%=$(B)/obj/%) $(B)/lib/libckpt.a engine/cuda/plugin.map
	$(call say,LINK )
	$(Q)$(CXX) -shared -pthread -o $@ $(filter %.o %.a,$^) -Wl,--version-script=engine/cuda/plugin.map,-z,defs $(LDLIBS)

.PHONY: gpu-emulated gpu-bundle
gpu-emulated: $(B)/emulated/libzerotrain-cuda.so

# For a machine with a GPU and little else: programs, plugin, tests, and the libraries that they need beside CUDA's and the
# compiler's.  They find these by their own path, so that python3 there keeps its own.  Without NCCL, whose library is larger
# than all else: on one GPU nobody needs it.  Open MPI comes along, moved (tests/gpu/mpirun), without the components that two
# processes on one machine never use: networks, batch systems, ssh, MPI's files, OpenSHMEM.  Its libraries look for each
# other where Debian has them, so the program names them all.
MPI_UNUSED := *_ofi *_ucx *_psm* *_openib *_monitoring *_slurm *_flux *_plm_rsh mca_io_* mca_fs_* mca_fbtl_* mca_fcoll_* mca_sharedfp_* \
              mca_topo_* mca_scoll_* mca_spml_* mca_sshmem_* mca_memheap_* mca_atomic_* mca_vprotocol_* mca_crs_* \
              mca_compress_* mca_ras_* mca_btl_tcp mca_coll_adapt mca_coll_han mca_pml_cm mca_filem_*
BUNDLE_LINK = $(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS) -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../deps' -pie
gpu-bundle: programs $(GPU_OBJ) $(B)/emulated/nccl.o $(B)/gpu/engine/cuda/cudnn.o $(GPU_TESTS)
	@rm -rf $(B)/bundle && mkdir -p $(B)/bundle/bin $(B)/bundle/lib $(B)/bundle/gpu $(B)/bundle/deps
	$(Q)$(BUNDLE_LINK) -o $(B)/bundle/bin/zerotrain $(TRAIN_MAIN) $(TRAIN) $(TOOLS) $(ENG_LIBS) $(LDLIBS) \
	    -Wl,--no-as-needed $$(pkg-config --static --libs ompi-c)
	$(Q)for t in $(notdir $(GPU_TESTS)); do \
	    $(BUNDLE_LINK) -o $(B)/bundle/gpu/$$t tests/gpu/$$t.c $(ENG_LIBS) $(LDLIBS) || exit 1; done
	$(Q)$(NVCC) -shared -o $(B)/bundle/lib/libzerotrain-cuda.so $(GPU_OBJ) $(B)/emulated/nccl.o $(B)/gpu/engine/cuda/cudnn.o \
	    $(GPU_C:%=$(B)/obj/%) $(B)/lib/libckpt.a -Xlinker --version-script=engine/cuda/plugin.map -lcublasLt $(LDLIBS)
	@cp tests/gpu/mpirun $(B)/bundle/bin && mkdir -p $(B)/bundle/mpi/bin $(B)/bundle/mpi/lib $(B)/bundle/mpi/share
	@cp -L "$$(command -v orterun)" $(B)/bundle/mpi/bin/mpirun
	@cp "$$(ompi_info --parsable --path pkglibdir | cut -d: -f3)"/mca_*.so $(B)/bundle/mpi/lib
	@cp -r "$$(ompi_info --parsable --path pkgdatadir | cut -d: -f3)" $(B)/bundle/mpi/share
	@cd $(B)/bundle/mpi/lib && rm -f $(MPI_UNUSED:=.so)
	@ldd $(B)/bundle/bin/* $(B)/bundle/gpu/* $(B)/bundle/lib/* $(B)/bundle/mpi/*/* 2>/dev/null | awk '$$3 ~ /^\// {print $$3}' | sort -u | \
	    grep -v '/libc\.so\|/libm\.so\|/libpthread\|/libdl\|/librt\|/libstdc++\|/libgcc_s\|/libcublas\|/libcuda' | \
	    xargs -I{} cp -L {} $(B)/bundle/deps
	@strip $(B)/bundle/bin/* $(B)/bundle/gpu/* $(B)/bundle/lib/* $(B)/bundle/deps/* $(B)/bundle/mpi/*/* 2>/dev/null || true
	@tar -C $(B)/bundle -c bin lib gpu deps mpi | xz -T0 --x86 --lzma2=preset=9 >$(B)/gpu-bundle.tar.xz
	@ls -l $(B)/gpu-bundle.tar.xz

# Plans of cuDNN for GPUs that are not there, and a driver for machines without one.
ABSENT   := $(if $(CUDNN),$(B)/absent/plans $(B)/absent/libcuda.so.1)
$(B)/absent/plans: tests/gpu/absent/plans.cpp $(B)/gpu/engine/cuda/cudnn.o $(B)/lib/libckpt.a
	@mkdir -p $(@D) && echo "  CXX   $<"
	$(Q)$(CXX) -std=c++17 -O1 -include libckpt/base/tensor.h -I. -Ilibckpt/include -Wall -Wextra -MMD -MP -o $@ $(filter %.cpp %.o %.a,$^) $(LDLIBS)
$(B)/absent/libcuda.so.1: tests/gpu/absent/driver.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -O1 -fPIC -shared $(WARN) -o $@ $<

-include $(GPU_OBJ:.o=.d) $(EMU_OBJ:.o=.d) $(GPU_HOST:.o=.d) $(B)/absent/plans.d $(B)/emulated/nccl.d
