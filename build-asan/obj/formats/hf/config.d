build-asan/obj/formats/hf/config.o: formats/hf/config.c \
 formats/hf/config.h libckpt/base/ckpt_types.h libckpt/base/vec.h \
 libckpt/base/mem.h libckpt/base/err.h libckpt/base/ckpt_types.h
formats/hf/config.h:
libckpt/base/ckpt_types.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
