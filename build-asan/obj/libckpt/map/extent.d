build-asan/obj/libckpt/map/extent.o: libckpt/map/extent.c \
 libckpt/map/extent.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/base/mem.h
libckpt/map/extent.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/mem.h:
