build-asan/obj/libckpt/copy/feed.o: libckpt/copy/feed.c \
 libckpt/base/digest.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/copy/feed.h libckpt/copy/io.h libckpt/map/map.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/map/value.h \
 libckpt/copy/spool.h libckpt/copy/inflate.h
libckpt/base/digest.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/copy/feed.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/map/value.h:
libckpt/copy/spool.h:
libckpt/copy/inflate.h:
