build-asan/obj/libckpt/map/zero_flat.o: libckpt/map/zero_flat.c \
 libckpt/map/zero_flat.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/base/mem.h
libckpt/map/zero_flat.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/mem.h:
