build-asan/obj/tools/zerotrain/run.o: tools/zerotrain/run.c \
 tools/zerotrain/zerotrain.h engine/engine.h engine/comm/patience.h \
 engine/comm/process.h libckpt/base/err.h libckpt/base/ckpt_types.h \
 engine/config/hostfile.h libckpt/base/mem.h engine/data/data.h \
 engine/model/model.h engine/device/device.h libckpt/base/dtype.h \
 libckpt/base/vec.h libckpt/map/value.h engine/save/save.h \
 engine/zero/zero.h engine/comm/comm.h engine/config/config.h \
 engine/optim/optim.h
tools/zerotrain/zerotrain.h:
engine/engine.h:
engine/comm/patience.h:
engine/comm/process.h:
libckpt/base/err.h:
libckpt/base/ckpt_types.h:
engine/config/hostfile.h:
libckpt/base/mem.h:
engine/data/data.h:
engine/model/model.h:
engine/device/device.h:
libckpt/base/dtype.h:
libckpt/base/vec.h:
libckpt/map/value.h:
engine/save/save.h:
engine/zero/zero.h:
engine/comm/comm.h:
engine/config/config.h:
engine/optim/optim.h:
