build-asan/obj/libckpt/codec/pickle/emit.o: libckpt/codec/pickle/emit.c \
 libckpt/codec/pickle/emit.h libckpt/base/index.h libckpt/base/mem.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/codec/pickle/pickle.h libckpt/base/vec.h libckpt/map/map.h \
 libckpt/map/value.h libckpt/base/dtype.h libckpt/codec/pickle/names.h
libckpt/codec/pickle/emit.h:
libckpt/base/index.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/codec/pickle/pickle.h:
libckpt/base/vec.h:
libckpt/map/map.h:
libckpt/map/value.h:
libckpt/base/dtype.h:
libckpt/codec/pickle/names.h:
