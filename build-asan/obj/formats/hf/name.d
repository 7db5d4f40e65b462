build-asan/obj/formats/hf/name.o: formats/hf/name.c formats/hf/hf.h \
 libckpt/format.h libckpt/ckpt.h libckpt/base/ckpt_types.h \
 libckpt/copy/io.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/map/value.h libckpt/copy/listing.h
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
