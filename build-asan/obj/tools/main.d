build-asan/obj/tools/main.o: tools/main.c tools/ckpt/effects.h \
 tools/cli/cli.h libckpt/ckpt.h libckpt/base/ckpt_types.h tools/cli/out.h \
 tools/ckpt/verbs.h tools/cli/json_out.h tools/cli/near.h \
 tools/cli/progress.h tools/sandbox/sandbox.h
tools/ckpt/effects.h:
tools/cli/cli.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/out.h:
tools/ckpt/verbs.h:
tools/cli/json_out.h:
tools/cli/near.h:
tools/cli/progress.h:
tools/sandbox/sandbox.h:
