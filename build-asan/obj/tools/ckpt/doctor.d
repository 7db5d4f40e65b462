build-asan/obj/tools/ckpt/doctor.o: tools/ckpt/doctor.c \
 tools/ckpt/report.h tools/cli/json_out.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h tools/cli/out.h tools/ckpt/verbs.h \
 tools/cli/cli.h tools/cli/progress.h
tools/ckpt/report.h:
tools/cli/json_out.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/out.h:
tools/ckpt/verbs.h:
tools/cli/cli.h:
tools/cli/progress.h:
