build-asan/obj/libckpt/codec/pickle/node.o: libckpt/codec/pickle/node.c \
 libckpt/codec/pickle/node.h libckpt/base/index.h libckpt/base/mem.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/codec/pickle/names.h libckpt/map/value.h \
 libckpt/codec/pickle/pickle.h libckpt/base/vec.h libckpt/map/map.h \
 libckpt/base/dtype.h libckpt/codec/pickle/keys.h
libckpt/codec/pickle/node.h:
libckpt/base/index.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/codec/pickle/names.h:
libckpt/map/value.h:
libckpt/codec/pickle/pickle.h:
libckpt/base/vec.h:
libckpt/map/map.h:
libckpt/base/dtype.h:
libckpt/codec/pickle/keys.h:
