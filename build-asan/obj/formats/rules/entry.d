build-asan/obj/formats/rules/entry.o: formats/rules/entry.c \
 formats/rules/entry.h libckpt/map/slices.h libckpt/map/map.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/map/value.h
formats/rules/entry.h:
libckpt/map/slices.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
