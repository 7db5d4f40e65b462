build-asan/obj/libckpt/copy/keep.o: libckpt/copy/keep.c \
 libckpt/base/digest.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/copy/dir.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/map/value.h libckpt/copy/keep.h \
 libckpt/copy/crew.h libckpt/copy/journal.h
libckpt/base/digest.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/copy/dir.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/map/value.h:
libckpt/copy/keep.h:
libckpt/copy/crew.h:
libckpt/copy/journal.h:
