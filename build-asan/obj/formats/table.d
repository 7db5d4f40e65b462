build-asan/obj/formats/table.o: formats/table.c formats/npz/npz.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/format.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h libckpt/copy/io.h libckpt/map/map.h \
 libckpt/map/value.h libckpt/copy/listing.h \
 formats/safetensors/safetensors.h libckpt/base/dtype.h \
 formats/torch/torch.h libckpt/codec/pickle/pickle.h libckpt/drivers.h
formats/npz/npz.h:
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
formats/safetensors/safetensors.h:
libckpt/base/dtype.h:
formats/torch/torch.h:
libckpt/codec/pickle/pickle.h:
libckpt/drivers.h:
