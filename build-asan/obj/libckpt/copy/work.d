build-asan/obj/libckpt/copy/work.o: libckpt/copy/work.c \
 libckpt/base/cast.h libckpt/base/dtype.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/base/digest.h libckpt/copy/job.h \
 libckpt/copy/plan.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/map/value.h libckpt/copy/mean.h \
 libckpt/copy/work.h libckpt/copy/crew.h libckpt/copy/gather.h \
 libckpt/copy/ledger.h libckpt/copy/feed.h libckpt/copy/io.h \
 libckpt/copy/spool.h libckpt/copy/sink.h libckpt/copy/journal.h \
 libckpt/copy/set.h libckpt/copy/dir.h libckpt/copy/moves.h
libckpt/base/cast.h:
libckpt/base/dtype.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/digest.h:
libckpt/copy/job.h:
libckpt/copy/plan.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/map/value.h:
libckpt/copy/mean.h:
libckpt/copy/work.h:
libckpt/copy/crew.h:
libckpt/copy/gather.h:
libckpt/copy/ledger.h:
libckpt/copy/feed.h:
libckpt/copy/io.h:
libckpt/copy/spool.h:
libckpt/copy/sink.h:
libckpt/copy/journal.h:
libckpt/copy/set.h:
libckpt/copy/dir.h:
libckpt/copy/moves.h:
