build-asan/obj/tools/cli/out.o: tools/cli/out.c tools/cli/out.h \
 libckpt/ckpt.h libckpt/base/ckpt_types.h
tools/cli/out.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
