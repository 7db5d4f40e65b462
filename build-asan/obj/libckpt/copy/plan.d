build-asan/obj/libckpt/copy/plan.o: libckpt/copy/plan.c \
 libckpt/base/cast.h libckpt/base/dtype.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/copy/job.h libckpt/copy/plan.h \
 libckpt/map/map.h libckpt/base/vec.h libckpt/base/mem.h \
 libckpt/map/value.h libckpt/copy/mean.h libckpt/copy/settle.h \
 libckpt/map/extent.h
libckpt/base/cast.h:
libckpt/base/dtype.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/copy/job.h:
libckpt/copy/plan.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/map/value.h:
libckpt/copy/mean.h:
libckpt/copy/settle.h:
libckpt/map/extent.h:
