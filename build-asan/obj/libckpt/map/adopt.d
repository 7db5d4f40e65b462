build-asan/obj/libckpt/map/adopt.o: libckpt/map/adopt.c \
 libckpt/map/adopt.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/map/value.h libckpt/map/state.h
libckpt/map/adopt.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
libckpt/map/state.h:
