build-asan/obj/libckpt/copy/listing.o: libckpt/copy/listing.c \
 libckpt/copy/listing.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/map/value.h
libckpt/copy/listing.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
