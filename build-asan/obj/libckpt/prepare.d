build-asan/obj/libckpt/prepare.o: libckpt/prepare.c libckpt/base/digest.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h libckpt/copy/spool.h \
 libckpt/base/mem.h libckpt/format.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h libckpt/copy/io.h libckpt/map/map.h \
 libckpt/base/vec.h libckpt/map/value.h libckpt/copy/listing.h
libckpt/base/digest.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/copy/spool.h:
libckpt/base/mem.h:
libckpt/format.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/map/value.h:
libckpt/copy/listing.h:
