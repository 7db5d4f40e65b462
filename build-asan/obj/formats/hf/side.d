build-asan/obj/formats/hf/side.o: formats/hf/side.c formats/hf/side.h \
 libckpt/format.h libckpt/ckpt.h libckpt/base/ckpt_types.h \
 libckpt/copy/io.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/map/value.h libckpt/copy/listing.h formats/deepspeed/deepspeed.h \
 libckpt/map/state.h libckpt/map/zero_param.h libckpt/map/zero_flat.h \
 formats/hf/config.h libckpt/base/ckpt_types.h formats/hf/hf.h
formats/hf/side.h:
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
formats/deepspeed/deepspeed.h:
libckpt/map/state.h:
libckpt/map/zero_param.h:
libckpt/map/zero_flat.h:
formats/hf/config.h:
libckpt/base/ckpt_types.h:
formats/hf/hf.h:
