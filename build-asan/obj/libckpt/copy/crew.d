build-asan/obj/libckpt/copy/crew.o: libckpt/copy/crew.c \
 libckpt/copy/crew.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h
libckpt/copy/crew.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
