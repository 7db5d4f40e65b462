build-asan/obj/libckpt/claim/tree.o: libckpt/claim/tree.c \
 libckpt/claim/claim.h libckpt/copy/reader.h libckpt/map/map.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/map/value.h libckpt/map/state.h
libckpt/claim/claim.h:
libckpt/copy/reader.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
libckpt/map/state.h:
