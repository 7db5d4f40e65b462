build-asan/obj/tools/ckpt/convert.o: tools/ckpt/convert.c \
 tools/ckpt/effects.h tools/cli/cli.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h tools/cli/out.h tools/ckpt/job.h \
 tools/ckpt/plan.h tools/ckpt/report.h tools/cli/json_out.h \
 tools/ckpt/training.h tools/ckpt/verbs.h
tools/ckpt/effects.h:
tools/cli/cli.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/out.h:
tools/ckpt/job.h:
tools/ckpt/plan.h:
tools/ckpt/report.h:
tools/cli/json_out.h:
tools/ckpt/training.h:
tools/ckpt/verbs.h:
