build-asan/obj/tools/ckpt/effects.o: tools/ckpt/effects.c \
 tools/ckpt/effects.h tools/cli/cli.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h tools/cli/out.h
tools/ckpt/effects.h:
tools/cli/cli.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/out.h:
