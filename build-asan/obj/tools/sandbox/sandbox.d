build-asan/obj/tools/sandbox/sandbox.o: tools/sandbox/sandbox.c \
 tools/sandbox/sandbox.h tools/cli/cli.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h tools/cli/out.h tools/sandbox/landlock.h \
 tools/sandbox/seccomp.h
tools/sandbox/sandbox.h:
tools/cli/cli.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/out.h:
tools/sandbox/landlock.h:
tools/sandbox/seccomp.h:
