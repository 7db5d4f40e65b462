build-asan/obj/libckpt/base/digest.o: libckpt/base/digest.c \
 libckpt/base/digest.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/base/mem.h
libckpt/base/digest.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/mem.h:
