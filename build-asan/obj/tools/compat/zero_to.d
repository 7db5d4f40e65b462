build-asan/obj/tools/compat/zero_to.o: tools/compat/zero_to.c \
 tools/ckpt/effects.h tools/cli/cli.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h tools/cli/out.h tools/ckpt/job.h \
 tools/ckpt/report.h tools/cli/json_out.h tools/ckpt/verbs.h
tools/ckpt/effects.h:
tools/cli/cli.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/out.h:
tools/ckpt/job.h:
tools/ckpt/report.h:
tools/cli/json_out.h:
tools/ckpt/verbs.h:
