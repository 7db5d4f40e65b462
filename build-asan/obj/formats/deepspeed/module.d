build-asan/obj/formats/deepspeed/module.o: formats/deepspeed/module.c \
 formats/deepspeed/deepspeed.h libckpt/format.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h libckpt/copy/io.h libckpt/map/map.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/map/value.h libckpt/copy/listing.h \
 libckpt/map/state.h libckpt/map/zero_param.h libckpt/map/zero_flat.h \
 libckpt/base/cast.h libckpt/base/dtype.h
formats/deepspeed/deepspeed.h:
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
libckpt/map/state.h:
libckpt/map/zero_param.h:
libckpt/map/zero_flat.h:
libckpt/base/cast.h:
libckpt/base/dtype.h:
