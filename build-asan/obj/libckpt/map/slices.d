build-asan/obj/libckpt/map/slices.o: libckpt/map/slices.c \
 libckpt/map/slices.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/map/value.h libckpt/base/dtype.h libckpt/map/extent.h
libckpt/map/slices.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
libckpt/base/dtype.h:
libckpt/map/extent.h:
