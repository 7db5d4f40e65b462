build-asan/obj/libckpt/map/check.o: libckpt/map/check.c \
 libckpt/base/dtype.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/map/extent.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/map/value.h
libckpt/base/dtype.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/extent.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/map/value.h:
