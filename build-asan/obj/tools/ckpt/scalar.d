build-asan/obj/tools/ckpt/scalar.o: tools/ckpt/scalar.c \
 tools/ckpt/scalar.h libckpt/ckpt.h libckpt/base/ckpt_types.h
tools/ckpt/scalar.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
