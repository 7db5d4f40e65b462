build-asan/obj/libckpt/copy/spool.o: libckpt/copy/spool.c \
 libckpt/copy/spool.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h
libckpt/copy/spool.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
