build-asan/obj/tools/sandbox/seccomp.o: tools/sandbox/seccomp.c \
 tools/sandbox/seccomp.h
tools/sandbox/seccomp.h:
