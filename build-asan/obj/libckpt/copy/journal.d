build-asan/obj/libckpt/copy/journal.o: libckpt/copy/journal.c \
 libckpt/base/digest.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/copy/dir.h libckpt/map/map.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/map/value.h libckpt/copy/journal.h
libckpt/base/digest.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/copy/dir.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/map/value.h:
libckpt/copy/journal.h:
