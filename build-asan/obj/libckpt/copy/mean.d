build-asan/obj/libckpt/copy/mean.o: libckpt/copy/mean.c \
 libckpt/copy/mean.h libckpt/base/dtype.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/base/cast.h
libckpt/copy/mean.h:
libckpt/base/dtype.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/cast.h:
