build-asan/obj/formats/dcp/entry.o: formats/dcp/entry.c formats/dcp/dcp.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/format.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h libckpt/copy/io.h libckpt/map/map.h \
 libckpt/map/value.h libckpt/copy/listing.h formats/torch/torch.h \
 libckpt/codec/pickle/pickle.h libckpt/base/dtype.h
formats/dcp/dcp.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/format.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/map/value.h:
libckpt/copy/listing.h:
formats/torch/torch.h:
libckpt/codec/pickle/pickle.h:
libckpt/base/dtype.h:
