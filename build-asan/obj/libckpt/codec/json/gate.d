build-asan/obj/libckpt/codec/json/gate.o: libckpt/codec/json/gate.c \
 libckpt/codec/json/json.h libckpt/base/vec.h libckpt/base/mem.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h libckpt/map/value.h \
 libckpt/map/map.h
libckpt/codec/json/json.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
libckpt/map/map.h:
