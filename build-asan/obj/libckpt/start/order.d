build-asan/obj/libckpt/start/order.o: libckpt/start/order.c \
 libckpt/start/fresh.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/map/value.h
libckpt/start/fresh.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
