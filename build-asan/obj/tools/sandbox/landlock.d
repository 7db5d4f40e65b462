build-asan/obj/tools/sandbox/landlock.o: tools/sandbox/landlock.c \
 tools/sandbox/landlock.h
tools/sandbox/landlock.h:
