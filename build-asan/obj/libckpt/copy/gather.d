build-asan/obj/libckpt/copy/gather.o: libckpt/copy/gather.c \
 libckpt/base/cast.h libckpt/base/dtype.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/base/digest.h libckpt/copy/gather.h \
 libckpt/copy/ledger.h libckpt/copy/feed.h libckpt/copy/io.h \
 libckpt/map/map.h libckpt/base/vec.h libckpt/base/mem.h \
 libckpt/map/value.h libckpt/copy/spool.h libckpt/map/join.h
libckpt/base/cast.h:
libckpt/base/dtype.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/digest.h:
libckpt/copy/gather.h:
libckpt/copy/ledger.h:
libckpt/copy/feed.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/map/value.h:
libckpt/copy/spool.h:
libckpt/map/join.h:
