build-asan/obj/libckpt/codec/json/json.o: libckpt/codec/json/json.c \
 libckpt/codec/json/json.h libckpt/base/vec.h libckpt/base/mem.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h libckpt/map/value.h \
 libckpt/copy/io.h libckpt/map/map.h
libckpt/codec/json/json.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
libckpt/copy/io.h:
libckpt/map/map.h:
