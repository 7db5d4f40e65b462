build-asan/obj/libckpt/codec/pickle/names.o: libckpt/codec/pickle/names.c \
 libckpt/codec/pickle/names.h libckpt/map/value.h libckpt/base/mem.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h libckpt/base/dtype.h
libckpt/codec/pickle/names.h:
libckpt/map/value.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/dtype.h:
