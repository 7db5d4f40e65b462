build-asan/obj/formats/rules/rules.o: formats/rules/rules.c \
 formats/rules/entry.h libckpt/map/slices.h libckpt/map/map.h \
 libckpt/base/vec.h libckpt/base/mem.h libckpt/base/err.h \
 libckpt/base/ckpt_types.h libckpt/map/value.h formats/rules/pattern.h \
 formats/rules/rules.h libckpt/base/index.h libckpt/codec/json/json.h
formats/rules/entry.h:
libckpt/map/slices.h:
libckpt/map/map.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
formats/rules/pattern.h:
formats/rules/rules.h:
libckpt/base/index.h:
libckpt/codec/json/json.h:
