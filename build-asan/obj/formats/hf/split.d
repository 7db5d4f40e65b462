build-asan/obj/formats/hf/split.o: formats/hf/split.c formats/hf/split.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h libckpt/base/mem.h
formats/hf/split.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/base/mem.h:
