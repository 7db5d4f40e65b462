build-asan/obj/libckpt/ask/clean.o: libckpt/ask/clean.c libckpt/ckpt.h \
 libckpt/base/ckpt_types.h libckpt/base/opts.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/base/vec.h libckpt/base/mem.h \
 libckpt/copy/dir.h libckpt/map/map.h libckpt/map/value.h \
 libckpt/copy/left.h libckpt/copy/moves.h
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
libckpt/base/opts.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/copy/dir.h:
libckpt/map/map.h:
libckpt/map/value.h:
libckpt/copy/left.h:
libckpt/copy/moves.h:
