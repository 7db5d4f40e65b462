build-asan/obj/libckpt/base/err.o: libckpt/base/err.c libckpt/base/err.h \
 libckpt/base/ckpt_types.h
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
