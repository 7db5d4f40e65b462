build-asan/obj/libckpt/ask/diff.o: libckpt/ask/diff.c libckpt/base/cast.h \
 libckpt/base/dtype.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/base/opts.h libckpt/format.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h libckpt/copy/io.h libckpt/map/map.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/map/value.h \
 libckpt/copy/listing.h
libckpt/base/cast.h:
libckpt/base/dtype.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/opts.h:
libckpt/format.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/map/value.h:
libckpt/copy/listing.h:
