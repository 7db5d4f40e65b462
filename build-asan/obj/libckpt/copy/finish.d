build-asan/obj/libckpt/copy/finish.o: libckpt/copy/finish.c \
 libckpt/base/digest.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/copy/finish.h libckpt/copy/run.h libckpt/copy/ledger.h \
 libckpt/copy/feed.h libckpt/copy/io.h libckpt/map/map.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/map/value.h \
 libckpt/copy/spool.h libckpt/copy/plan.h libckpt/copy/work.h \
 libckpt/base/cast.h libckpt/base/dtype.h libckpt/copy/crew.h \
 libckpt/copy/gather.h libckpt/copy/sink.h libckpt/copy/journal.h \
 libckpt/copy/set.h libckpt/copy/dir.h libckpt/copy/moves.h
libckpt/base/digest.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/copy/finish.h:
libckpt/copy/run.h:
libckpt/copy/ledger.h:
libckpt/copy/feed.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/map/value.h:
libckpt/copy/spool.h:
libckpt/copy/plan.h:
libckpt/copy/work.h:
libckpt/base/cast.h:
libckpt/base/dtype.h:
libckpt/copy/crew.h:
libckpt/copy/gather.h:
libckpt/copy/sink.h:
libckpt/copy/journal.h:
libckpt/copy/set.h:
libckpt/copy/dir.h:
libckpt/copy/moves.h:
