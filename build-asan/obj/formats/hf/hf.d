build-asan/obj/formats/hf/hf.o: formats/hf/hf.c formats/hf/hf.h \
 libckpt/format.h libckpt/ckpt.h libckpt/base/ckpt_types.h \
 libckpt/copy/io.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/map/value.h libckpt/copy/listing.h libckpt/base/dtype.h \
 libckpt/codec/json/json.h libckpt/map/merge.h
formats/hf/hf.h:
libckpt/format.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
libckpt/copy/listing.h:
libckpt/base/dtype.h:
libckpt/codec/json/json.h:
libckpt/map/merge.h:
