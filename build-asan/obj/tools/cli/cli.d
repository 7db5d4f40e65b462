build-asan/obj/tools/cli/cli.o: tools/cli/cli.c tools/cli/cli.h \
 libckpt/ckpt.h libckpt/base/ckpt_types.h tools/cli/out.h \
 tools/cli/near.h
tools/cli/cli.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/out.h:
tools/cli/near.h:
