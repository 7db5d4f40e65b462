build-asan/obj/libckpt/base/mem.o: libckpt/base/mem.c libckpt/base/mem.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
