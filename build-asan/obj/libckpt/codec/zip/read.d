build-asan/obj/libckpt/codec/zip/read.o: libckpt/codec/zip/read.c \
 libckpt/base/digest.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/codec/zip/names.h libckpt/codec/zip/zip.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/copy/io.h libckpt/map/map.h \
 libckpt/map/value.h libckpt/copy/inflate.h
libckpt/base/digest.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/codec/zip/names.h:
libckpt/codec/zip/zip.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/map/value.h:
libckpt/copy/inflate.h:
