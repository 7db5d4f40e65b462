build-asan/obj/tools/ckpt/mem.o: tools/ckpt/mem.c tools/ckpt/estimate.h \
 libckpt/ckpt.h libckpt/base/ckpt_types.h tools/ckpt/verbs.h \
 tools/cli/cli.h tools/cli/out.h tools/cli/json_out.h
tools/ckpt/estimate.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/ckpt/verbs.h:
tools/cli/cli.h:
tools/cli/out.h:
tools/cli/json_out.h:
