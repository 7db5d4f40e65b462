build-asan/obj/tools/ckpt/training.o: tools/ckpt/training.c \
 tools/ckpt/training.h tools/cli/cli.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h tools/cli/out.h tools/ckpt/job.h
tools/ckpt/training.h:
tools/cli/cli.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/out.h:
tools/ckpt/job.h:
