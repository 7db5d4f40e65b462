build-asan/obj/tools/ckpt/cat.o: tools/ckpt/cat.c tools/ckpt/effects.h \
 tools/cli/cli.h libckpt/ckpt.h libckpt/base/ckpt_types.h tools/cli/out.h \
 tools/ckpt/elements.h tools/ckpt/report.h tools/cli/json_out.h \
 tools/ckpt/values.h tools/ckpt/scalar.h tools/ckpt/verbs.h
tools/ckpt/effects.h:
tools/cli/cli.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/out.h:
tools/ckpt/elements.h:
tools/ckpt/report.h:
tools/cli/json_out.h:
tools/ckpt/values.h:
tools/ckpt/scalar.h:
tools/ckpt/verbs.h:
