build-asan/obj/formats/hf/write.o: formats/hf/write.c formats/hf/hf.h \
 libckpt/format.h libckpt/ckpt.h libckpt/base/ckpt_types.h \
 libckpt/copy/io.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/map/value.h libckpt/copy/listing.h formats/hf/side.h \
 formats/hf/split.h formats/safetensors/safetensors.h \
 libckpt/base/dtype.h formats/torch/torch.h libckpt/codec/pickle/pickle.h \
 libckpt/codec/json/json.h
formats/hf/hf.h:
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
formats/hf/side.h:
formats/hf/split.h:
formats/safetensors/safetensors.h:
libckpt/base/dtype.h:
formats/torch/torch.h:
libckpt/codec/pickle/pickle.h:
libckpt/codec/json/json.h:
