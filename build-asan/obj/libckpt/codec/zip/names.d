build-asan/obj/libckpt/codec/zip/names.o: libckpt/codec/zip/names.c \
 libckpt/codec/zip/names.h libckpt/codec/zip/zip.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/copy/io.h libckpt/map/map.h libckpt/map/value.h
libckpt/codec/zip/names.h:
libckpt/codec/zip/zip.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/map/value.h:
