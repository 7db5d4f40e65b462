build-asan/obj/tools/ckpt/estimate.o: tools/ckpt/estimate.c \
 tools/ckpt/estimate.h libckpt/ckpt.h libckpt/base/ckpt_types.h \
 tools/cli/out.h
tools/ckpt/estimate.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/out.h:
