build-asan/obj/libckpt/base/cast_int.o: libckpt/base/cast_int.c \
 libckpt/base/cast.h libckpt/base/dtype.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/base/cast_int.h
libckpt/base/cast.h:
libckpt/base/dtype.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/cast_int.h:
