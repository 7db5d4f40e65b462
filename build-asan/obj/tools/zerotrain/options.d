build-asan/obj/tools/zerotrain/options.o: tools/zerotrain/options.c \
 libckpt/codec/json/json.h libckpt/base/vec.h libckpt/base/mem.h \
 libckpt/base/err.h libckpt/base/ckpt_types.h libckpt/map/value.h \
 tools/zerotrain/zerotrain.h engine/engine.h engine/comm/patience.h \
 engine/comm/process.h engine/config/hostfile.h engine/data/data.h \
 engine/model/model.h engine/device/device.h libckpt/base/dtype.h \
 engine/save/save.h engine/zero/zero.h engine/comm/comm.h \
 engine/config/config.h engine/optim/optim.h
libckpt/codec/json/json.h:
libckpt/base/vec.h:
libckpt/base/mem.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
libckpt/map/value.h:
tools/zerotrain/zerotrain.h:
engine/engine.h:
engine/comm/patience.h:
engine/comm/process.h:
engine/config/hostfile.h:
engine/data/data.h:
engine/model/model.h:
engine/device/device.h:
libckpt/base/dtype.h:
engine/save/save.h:
engine/zero/zero.h:
engine/comm/comm.h:
engine/config/config.h:
engine/optim/optim.h:
