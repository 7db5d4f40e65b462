build-asan/obj/tools/ckpt/job.o: tools/ckpt/job.c tools/ckpt/job.h \
 libckpt/ckpt.h libckpt/base/ckpt_types.h tools/ckpt/report.h \
 tools/cli/json_out.h tools/cli/out.h tools/cli/cli.h \
 tools/cli/progress.h
tools/ckpt/job.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/ckpt/report.h:
tools/cli/json_out.h:
tools/cli/out.h:
tools/cli/cli.h:
tools/cli/progress.h:
