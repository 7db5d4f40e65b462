build-asan/obj/libckpt/copy/stage.o: libckpt/copy/stage.c \
 libckpt/copy/crew.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/copy/set.h libckpt/copy/dir.h \
 libckpt/map/map.h libckpt/base/vec.h libckpt/map/value.h \
 libckpt/copy/moves.h libckpt/copy/stage.h libckpt/copy/journal.h \
 libckpt/copy/swap.h
libckpt/copy/crew.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/copy/set.h:
libckpt/copy/dir.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/map/value.h:
libckpt/copy/moves.h:
libckpt/copy/stage.h:
libckpt/copy/journal.h:
libckpt/copy/swap.h:
