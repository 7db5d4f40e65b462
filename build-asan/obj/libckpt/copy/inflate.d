build-asan/obj/libckpt/copy/inflate.o: libckpt/copy/inflate.c \
 libckpt/copy/inflate.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/base/mem.h
libckpt/copy/inflate.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/mem.h:
