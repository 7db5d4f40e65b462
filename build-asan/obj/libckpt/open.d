build-asan/obj/libckpt/open.o: libckpt/open.c libckpt/base/opts.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h libckpt/copy/left.h \
 libckpt/drivers.h libckpt/format.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h libckpt/copy/io.h libckpt/map/map.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/map/value.h \
 libckpt/copy/listing.h
libckpt/base/opts.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/copy/left.h:
libckpt/drivers.h:
libckpt/format.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/map/value.h:
libckpt/copy/listing.h:
