build-asan/obj/formats/deepspeed/shard.o: formats/deepspeed/shard.c \
 formats/deepspeed/deepspeed.h libckpt/format.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h libckpt/copy/io.h libckpt/map/map.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/map/value.h libckpt/copy/listing.h \
 libckpt/map/state.h libckpt/map/zero_param.h libckpt/map/zero_flat.h \
 libckpt/base/cast.h libckpt/base/dtype.h libckpt/copy/crew.h \
 libckpt/copy/run.h libckpt/copy/ledger.h libckpt/copy/feed.h \
 libckpt/copy/spool.h libckpt/copy/plan.h libckpt/map/adopt.h
formats/deepspeed/deepspeed.h:
libckpt/format.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
libckpt/copy/io.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
libckpt/copy/listing.h:
libckpt/map/state.h:
libckpt/map/zero_param.h:
libckpt/map/zero_flat.h:
libckpt/base/cast.h:
libckpt/base/dtype.h:
libckpt/copy/crew.h:
libckpt/copy/run.h:
libckpt/copy/ledger.h:
libckpt/copy/feed.h:
libckpt/copy/spool.h:
libckpt/copy/plan.h:
libckpt/map/adopt.h:
