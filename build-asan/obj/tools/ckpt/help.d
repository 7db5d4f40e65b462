build-asan/obj/tools/ckpt/help.o: tools/ckpt/help.c tools/ckpt/verbs.h \
 tools/cli/cli.h libckpt/ckpt.h libckpt/base/ckpt_types.h tools/cli/out.h \
 tools/sandbox/sandbox.h
tools/ckpt/verbs.h:
tools/cli/cli.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/out.h:
tools/sandbox/sandbox.h:
