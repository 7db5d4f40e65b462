build-asan/obj/formats/torch/copy.o: formats/torch/copy.c \
 formats/torch/tree.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/map/value.h libckpt/base/dtype.h libckpt/base/index.h \
 libckpt/codec/pickle/names.h
formats/torch/tree.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
libckpt/base/dtype.h:
libckpt/base/index.h:
libckpt/codec/pickle/names.h:
