build-asan/obj/libckpt/ask/doctor.o: libckpt/ask/doctor.c \
 libckpt/ask/doctor.h libckpt/format.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h libckpt/copy/io.h libckpt/map/map.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/map/value.h libckpt/copy/listing.h \
 libckpt/base/opts.h libckpt/copy/left.h
libckpt/ask/doctor.h:
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
libckpt/base/opts.h:
libckpt/copy/left.h:
