build-asan/obj/tools/cli/json_out.o: tools/cli/json_out.c \
 tools/cli/json_out.h libckpt/ckpt.h libckpt/base/ckpt_types.h \
 tools/cli/out.h
tools/cli/json_out.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/out.h:
