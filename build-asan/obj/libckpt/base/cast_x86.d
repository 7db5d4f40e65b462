build-asan/obj/libckpt/base/cast_x86.o: libckpt/base/cast_x86.c \
 libckpt/base/cast_x86.h libckpt/base/cast.h libckpt/base/dtype.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h
libckpt/base/cast_x86.h:
libckpt/base/cast.h:
libckpt/base/dtype.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
