build-asan/obj/libckpt/copy/scrub.o: libckpt/copy/scrub.c \
 libckpt/base/digest.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/copy/crew.h libckpt/base/mem.h libckpt/copy/feed.h \
 libckpt/copy/io.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/map/value.h libckpt/copy/spool.h libckpt/copy/run.h \
 libckpt/copy/ledger.h libckpt/copy/plan.h
libckpt/base/digest.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/copy/crew.h:
libckpt/base/mem.h:
libckpt/copy/feed.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/map/value.h:
libckpt/copy/spool.h:
libckpt/copy/run.h:
libckpt/copy/ledger.h:
libckpt/copy/plan.h:
