build-asan/obj/libckpt/ask/tree_walk.o: libckpt/ask/tree_walk.c \
 libckpt/ask/tree.h libckpt/ckpt.h libckpt/base/ckpt_types.h \
 libckpt/base/index.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/base/vec.h libckpt/map/value.h
libckpt/ask/tree.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
libckpt/base/index.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/vec.h:
libckpt/map/value.h:
