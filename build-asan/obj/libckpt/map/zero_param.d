build-asan/obj/libckpt/map/zero_param.o: libckpt/map/zero_param.c \
 libckpt/map/zero_param.h libckpt/map/zero_flat.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h
libckpt/map/zero_param.h:
libckpt/map/zero_flat.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
