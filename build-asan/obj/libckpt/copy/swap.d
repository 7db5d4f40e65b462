build-asan/obj/libckpt/copy/swap.o: libckpt/copy/swap.c \
 libckpt/copy/swap.h
libckpt/copy/swap.h:
