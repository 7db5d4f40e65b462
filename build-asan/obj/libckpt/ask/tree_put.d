build-asan/obj/libckpt/ask/tree_put.o: libckpt/ask/tree_put.c \
 libckpt/ask/tree.h libckpt/ckpt.h libckpt/base/ckpt_types.h \
 libckpt/base/index.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/base/vec.h libckpt/map/value.h \
 libckpt/map/map.h
libckpt/ask/tree.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
libckpt/base/index.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/vec.h:
libckpt/map/value.h:
libckpt/map/map.h:
