build-asan/obj/tools/ckpt/values.o: tools/ckpt/values.c \
 tools/ckpt/values.h tools/ckpt/scalar.h libckpt/ckpt.h \
 libckpt/base/ckpt_types.h tools/cli/json_out.h tools/cli/out.h
tools/ckpt/values.h:
tools/ckpt/scalar.h:
libckpt/ckpt.h:
libckpt/base/ckpt_types.h:
tools/cli/json_out.h:
tools/cli/out.h:
