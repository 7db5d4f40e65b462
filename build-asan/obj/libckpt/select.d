build-asan/obj/libckpt/select.o: libckpt/select.c libckpt/ckpt.h \
 libckpt/base/ckpt_types.h libckpt/base/opts.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/map/value.h
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
libckpt/base/opts.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/map/value.h:
