build-asan/obj/libckpt/copy/left.o: libckpt/copy/left.c \
 libckpt/copy/left.h
libckpt/copy/left.h:
