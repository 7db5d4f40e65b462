build-asan/obj/formats/safetensors/safetensors.o: \
 formats/safetensors/safetensors.c formats/safetensors/safetensors.h \
 libckpt/base/dtype.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/format.h libckpt/ckpt.h libckpt/base/ckpt_types.h \
 libckpt/copy/io.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/map/value.h libckpt/copy/listing.h \
 libckpt/codec/json/json.h libckpt/map/extent.h
formats/safetensors/safetensors.h:
libckpt/base/dtype.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/format.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/map/value.h:
libckpt/copy/listing.h:
libckpt/codec/json/json.h:
libckpt/map/extent.h:
