build-asan/obj/formats/universal/model.o: formats/universal/model.c \
 formats/universal/universal.h formats/deepspeed/deepspeed.h \
 libckpt/format.h libckpt/ckpt.h libckpt/base/ckpt_types.h \
 libckpt/copy/io.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/map/value.h libckpt/copy/listing.h libckpt/map/state.h \
 libckpt/map/zero_param.h libckpt/map/zero_flat.h \
 formats/deepspeed/write/write.h formats/torch/tree.h \
 formats/rules/rules.h libckpt/map/slices.h libckpt/base/dtype.h \
 libckpt/base/index.h
formats/universal/universal.h:
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
formats/deepspeed/write/write.h:
formats/torch/tree.h:
formats/rules/rules.h:
libckpt/map/slices.h:
libckpt/base/dtype.h:
libckpt/base/index.h:
