build-asan/obj/tools/ckpt/elements.o: tools/ckpt/elements.c \
 tools/ckpt/elements.h tools/cli/cli.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h tools/cli/out.h tools/cli/near.h
tools/ckpt/elements.h:
tools/cli/cli.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/out.h:
tools/cli/near.h:
