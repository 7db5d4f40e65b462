build-asan/obj/tools/ckpt/plan.o: tools/ckpt/plan.c tools/ckpt/plan.h \
 tools/ckpt/job.h libckpt/ckpt.h libckpt/base/ckpt_types.h \
 tools/cli/cli.h tools/cli/out.h tools/ckpt/report.h tools/cli/json_out.h
tools/ckpt/plan.h:
tools/ckpt/job.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/cli.h:
tools/cli/out.h:
tools/ckpt/report.h:
tools/cli/json_out.h:
