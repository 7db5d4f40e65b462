build-asan/obj/formats/npz/npz.o: formats/npz/npz.c formats/npz/npz.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/format.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h libckpt/copy/io.h libckpt/map/map.h \
 libckpt/map/value.h libckpt/copy/listing.h libckpt/base/dtype.h \
 libckpt/codec/zip/zip.h libckpt/copy/inflate.h
formats/npz/npz.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/format.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/map/value.h:
libckpt/copy/listing.h:
libckpt/base/dtype.h:
libckpt/codec/zip/zip.h:
libckpt/copy/inflate.h:
