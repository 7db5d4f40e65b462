build-asan/obj/libckpt/base/index.o: libckpt/base/index.c \
 libckpt/base/index.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h
libckpt/base/index.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
