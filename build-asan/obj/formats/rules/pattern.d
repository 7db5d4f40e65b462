build-asan/obj/formats/rules/pattern.o: formats/rules/pattern.c \
 formats/rules/pattern.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 libckpt/base/index.h libckpt/base/mem.h libckpt/base/vec.h
formats/rules/pattern.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/index.h:
libckpt/base/mem.h:
libckpt/base/vec.h:
