build-asan/obj/libckpt/map/join.o: libckpt/map/join.c libckpt/map/join.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h libckpt/base/dtype.h \
 libckpt/map/extent.h
libckpt/map/join.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/dtype.h:
libckpt/map/extent.h:
