build-asan/obj/libckpt/codec/zip/write.o: libckpt/codec/zip/write.c \
 libckpt/codec/zip/zip.h libckpt/base/vec.h libckpt/base/mem.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h libckpt/copy/io.h \
 libckpt/map/map.h libckpt/map/value.h
libckpt/codec/zip/zip.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/map/value.h:
