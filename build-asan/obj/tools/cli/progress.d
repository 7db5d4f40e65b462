build-asan/obj/tools/cli/progress.o: tools/cli/progress.c \
 tools/cli/progress.h libckpt/ckpt.h libckpt/base/ckpt_types.h \
 tools/cli/out.h
tools/cli/progress.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/out.h:
