build-asan/obj/tools/compat/ds_to_universal.o: \
 tools/compat/ds_to_universal.c tools/ckpt/effects.h tools/cli/cli.h \
 libckpt/ckpt.h libckpt/base/ckpt_types.h tools/cli/out.h \
 tools/ckpt/job.h tools/ckpt/report.h tools/cli/json_out.h \
 tools/ckpt/training.h tools/ckpt/verbs.h
tools/ckpt/effects.h:
tools/cli/cli.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/out.h:
tools/ckpt/job.h:
tools/ckpt/report.h:
tools/cli/json_out.h:
tools/ckpt/training.h:
tools/ckpt/verbs.h:
