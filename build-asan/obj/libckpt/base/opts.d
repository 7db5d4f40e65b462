build-asan/obj/libckpt/base/opts.o: libckpt/base/opts.c \
 libckpt/base/opts.h libckpt/base/err.h libckpt/base/ckpt_types.h
libckpt/base/opts.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
