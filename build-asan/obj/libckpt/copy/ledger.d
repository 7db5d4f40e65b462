build-asan/obj/libckpt/copy/ledger.o: libckpt/copy/ledger.c \
 libckpt/base/digest.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/copy/ledger.h libckpt/copy/feed.h libckpt/copy/io.h \
 libckpt/map/map.h libckpt/base/vec.h libckpt/base/mem.h \
 libckpt/map/value.h libckpt/copy/spool.h
libckpt/base/digest.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/copy/ledger.h:
libckpt/copy/feed.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/map/value.h:
libckpt/copy/spool.h:
