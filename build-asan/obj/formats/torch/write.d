build-asan/obj/formats/torch/write.o: formats/torch/write.c \
 formats/torch/torch.h libckpt/codec/pickle/pickle.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/map/map.h libckpt/map/value.h libckpt/copy/io.h libckpt/format.h \
 libckpt/ckpt.h libckpt/base/ckpt_types.h libckpt/copy/listing.h \
 libckpt/base/digest.h libckpt/base/dtype.h libckpt/codec/zip/zip.h
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
libckpt/base/digest.h:
libckpt/base/dtype.h:
libckpt/codec/zip/zip.h:
