build-asan/obj/libckpt/copy/dir.o: libckpt/copy/dir.c libckpt/copy/dir.h \
 libckpt/map/map.h libckpt/base/vec.h libckpt/base/mem.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h libckpt/map/value.h
libckpt/copy/dir.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
