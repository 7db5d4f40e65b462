build-asan/obj/libckpt/codec/pickle/keys.o: libckpt/codec/pickle/keys.c \
 libckpt/codec/pickle/keys.h libckpt/base/index.h libckpt/base/mem.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h libckpt/map/value.h
libckpt/codec/pickle/keys.h:
libckpt/base/index.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
