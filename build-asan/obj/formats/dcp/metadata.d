build-asan/obj/formats/dcp/metadata.o: formats/dcp/metadata.c \
 formats/dcp/dcp.h libckpt/base/vec.h libckpt/base/mem.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h libckpt/format.h \
 libckpt/ckpt.h libckpt/base/ckpt_types.h libckpt/copy/io.h \
 libckpt/map/map.h libckpt/map/value.h libckpt/copy/listing.h \
 libckpt/base/dtype.h libckpt/base/index.h libckpt/codec/pickle/pickle.h
formats/dcp/dcp.h:
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
libckpt/base/index.h:
libckpt/codec/pickle/pickle.h:
