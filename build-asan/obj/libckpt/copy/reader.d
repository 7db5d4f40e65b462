build-asan/obj/libckpt/copy/reader.o: libckpt/copy/reader.c \
 libckpt/base/cast.h libckpt/base/dtype.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/copy/gather.h libckpt/copy/ledger.h \
 libckpt/copy/feed.h libckpt/copy/io.h libckpt/map/map.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/map/value.h \
 libckpt/copy/spool.h libckpt/copy/job.h libckpt/copy/plan.h \
 libckpt/copy/mean.h libckpt/copy/reader.h libckpt/copy/settle.h
libckpt/base/cast.h:
libckpt/base/dtype.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/copy/gather.h:
libckpt/copy/ledger.h:
libckpt/copy/feed.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/map/value.h:
libckpt/copy/spool.h:
libckpt/copy/job.h:
libckpt/copy/plan.h:
libckpt/copy/mean.h:
libckpt/copy/reader.h:
libckpt/copy/settle.h:
