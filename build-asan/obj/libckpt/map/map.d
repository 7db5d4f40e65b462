build-asan/obj/libckpt/map/map.o: libckpt/map/map.c libckpt/map/map.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/map/value.h libckpt/map/state.h \
 libckpt/base/dtype.h libckpt/map/extent.h
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
libckpt/map/state.h:
libckpt/base/dtype.h:
libckpt/map/extent.h:
