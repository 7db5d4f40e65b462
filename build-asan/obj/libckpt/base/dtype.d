build-asan/obj/libckpt/base/dtype.o: libckpt/base/dtype.c \
 libckpt/base/dtype.h libckpt/base/err.h libckpt/base/ckpt_types.h
libckpt/base/dtype.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
