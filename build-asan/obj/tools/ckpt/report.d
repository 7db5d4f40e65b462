build-asan/obj/tools/ckpt/report.o: tools/ckpt/report.c \
 tools/ckpt/report.h tools/cli/json_out.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h tools/cli/out.h
tools/ckpt/report.h:
tools/cli/json_out.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/out.h:
