build-asan/obj/libckpt/copy/sink.o: libckpt/copy/sink.c \
 libckpt/copy/keep.h libckpt/copy/crew.h libckpt/base/mem.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h libckpt/copy/journal.h \
 libckpt/map/map.h libckpt/base/vec.h libckpt/map/value.h \
 libckpt/copy/sink.h libckpt/copy/set.h libckpt/copy/dir.h \
 libckpt/copy/moves.h libckpt/copy/stage.h
libckpt/copy/keep.h:
libckpt/copy/crew.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/copy/journal.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/map/value.h:
libckpt/copy/sink.h:
libckpt/copy/set.h:
libckpt/copy/dir.h:
libckpt/copy/moves.h:
libckpt/copy/stage.h:
