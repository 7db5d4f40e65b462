build-asan/obj/libckpt/map/value.o: libckpt/map/value.c \
 libckpt/map/value.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/base/vec.h
libckpt/map/value.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/vec.h:
