build-asan/obj/libckpt/claim/claim.o: libckpt/claim/claim.c \
 libckpt/claim/claim.h libckpt/copy/reader.h libckpt/map/map.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/map/value.h libckpt/map/state.h \
 libckpt/base/dtype.h
libckpt/claim/claim.h:
libckpt/copy/reader.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
libckpt/map/state.h:
libckpt/base/dtype.h:
