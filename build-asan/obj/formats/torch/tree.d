build-asan/obj/formats/torch/tree.o: formats/torch/tree.c \
 formats/torch/tree.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/map/value.h formats/torch/torch.h libckpt/codec/pickle/pickle.h \
 libckpt/copy/io.h libckpt/format.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h libckpt/copy/listing.h libckpt/base/dtype.h
formats/torch/tree.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
formats/torch/torch.h:
libckpt/codec/pickle/pickle.h:
libckpt/copy/io.h:
libckpt/format.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
libckpt/copy/listing.h:
libckpt/base/dtype.h:
