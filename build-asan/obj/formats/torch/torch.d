build-asan/obj/formats/torch/torch.o: formats/torch/torch.c \
 formats/torch/torch.h libckpt/codec/pickle/pickle.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/map/map.h libckpt/map/value.h libckpt/copy/io.h libckpt/format.h \
 libckpt/ckpt.h libckpt/base/ckpt_types.h libckpt/copy/listing.h \
 libckpt/base/dtype.h libckpt/codec/zip/zip.h
formats/torch/torch.h:
libckpt/codec/pickle/pickle.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/map.h:
libckpt/map/value.h:
libckpt/copy/io.h:
libckpt/format.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
libckpt/copy/listing.h:
libckpt/base/dtype.h:
libckpt/codec/zip/zip.h:
