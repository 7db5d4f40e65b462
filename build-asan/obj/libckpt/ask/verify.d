build-asan/obj/libckpt/ask/verify.o: libckpt/ask/verify.c \
 libckpt/base/opts.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/claim/claim.h libckpt/copy/reader.h libckpt/map/map.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/map/value.h \
 libckpt/map/state.h libckpt/copy/run.h libckpt/copy/ledger.h \
 libckpt/copy/feed.h libckpt/copy/io.h libckpt/copy/spool.h \
 libckpt/copy/plan.h libckpt/format.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h libckpt/copy/listing.h
libckpt/base/opts.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/claim/claim.h:
libckpt/copy/reader.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/map/value.h:
libckpt/map/state.h:
libckpt/copy/run.h:
libckpt/copy/ledger.h:
libckpt/copy/feed.h:
libckpt/copy/io.h:
libckpt/copy/spool.h:
libckpt/copy/plan.h:
libckpt/format.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
libckpt/copy/listing.h:
