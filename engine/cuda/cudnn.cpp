/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudnn.cpp: builds and runs plans of cuDNN's fused attention, by NVIDIA's C++ headers
 * (cudnn_frontend.h, which are MIT-licensed).  Part of the CUDA plugin.
 *
 * The libraries are loaded at run time: libcudnn.so.9, and the CUDA runtime as a shared library, by
 * which the headers clear sums in device memory.
 */
#include "engine/cuda/cudnn.h"

#ifndef ZT_HAVE_CUDNN

int cu_dnn_open(cu_dnn **out, void *stream, int capability, ckpt_err *err)
{
    (void)stream;
    (void)capability;
    *out = NULL;
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "the CUDA plugin was built without cuDNN: build it again where cudnn.h and "
                     "cudnn_frontend.h are (make CUDNN_INCLUDE=...)");
}

int cu_dnn_open_absent(cu_dnn **out, const char *properties, int capability, ckpt_err *err)
{
    (void)properties;
    return cu_dnn_open(out, NULL, capability, err);
}

void cu_dnn_close(cu_dnn *c)
{
    (void)c;
}

uint64_t cu_dnn_version(const cu_dnn *c)
{
    (void)c;
    return 0;
}

int cu_dnn_plan_new(cu_dnn_plan **out, cu_dnn *c, const cu_dnn_call *call, uint64_t *n_bytes,
                    ckpt_err *err)
{
    (void)c;
    (void)call;
    *out = NULL;
    *n_bytes = 0;
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "the CUDA plugin was built without cuDNN");
}

int cu_dnn_plan_run(cu_dnn_plan *p, void *const at[CU_DNN_TENSORS], void *room, ckpt_err *err)
{
    (void)p;
    (void)at;
    (void)room;
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "the CUDA plugin was built without cuDNN");
}

void cu_dnn_plan_free(cu_dnn_plan *p)
{
    (void)p;
}

#else

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <exception>
#include <memory>
#include <new>
#include <stdlib.h>
#include <string>
#include <unordered_map>
#include <vector>

#define DN_LIBRARY "libcudnn.so.9"

namespace fe = cudnn_frontend;

/* The headers find the library's functions through this handle. */
namespace cudnn_frontend
{
void *cudnn_dlhandle;
}

struct cu_dnn {
    cudnnHandle_t handle;                         /* NULL: of an absent GPU */
    std::shared_ptr<fe::DeviceProperties> absent; /* empty: of a GPU that is there */
    int capability;
};

struct cu_dnn_plan {
    cu_dnn *library;
    fe::graph::Graph graph;
};

/* ---- opening ---- */

static int dn_status(cudnnStatus_t s, const char *what, ckpt_err *err)
{
    return s == CUDNN_STATUS_SUCCESS
               ? CKPT_OK
               : ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: %s", what, fe::detail::get_error_string(s));
}

static int dn_error(fe::error_t e, int code, const char *what, ckpt_err *err)
{
    return e.is_good() ? CKPT_OK
                       : ckpt_fail(err, code, "%s: %.300s", what, e.get_message().c_str());
}

static int dn_missing(const char *name, ckpt_err *err)
{
    const char *why = dlerror();

    return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s cannot be loaded: %.300s", name,
                     why ? why : "the reason is unknown");
}

/*
 * Load the CUDA runtime of this build's major version, and tell the headers its name; otherwise
 * they prefer another version, if there are several.
 */
static int dn_load_runtime(ckpt_err *err)
{
    const std::string name = "libcudart.so." + std::to_string(CUDART_VERSION / 1000);
    const char *variable = "CUDNN_FRONTEND_CUDART_LIB_NAME", *given = getenv(variable);

    if (!(given && *given) && setenv(variable, name.c_str(), 1) != 0)
        return ckpt_fail_memory(err);
    given = getenv(variable);
    return dlopen(given, RTLD_NOW) ? CKPT_OK : dn_missing(given, err);
}

/* Load the library once; it stays loaded, because other devices may use it. */
static int dn_load(ckpt_err *err)
{
    if (!fe::cudnn_dlhandle)
        fe::cudnn_dlhandle = dlopen(DN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!fe::cudnn_dlhandle)
        return dn_missing(DN_LIBRARY, err);
    const unsigned found = (unsigned)fe::detail::get_backend_version();

    return found >= CU_DNN_LEAST
               ? CKPT_OK
               : ckpt_fail(err, CKPT_EUNSUPPORTED,
                           "%s has version %u.%u.%u, but %u.%u or later is needed", DN_LIBRARY,
                           found / 10000, found / 100 % 100, found % 100, CU_DNN_LEAST / 10000,
                           CU_DNN_LEAST / 100 % 100);
}

/* The headers throw if a function of the library is missing, and if memory is. */
template <typename F> static int dn_caught(F work, ckpt_err *err)
{
    try {
        return work();
    } catch (const std::bad_alloc &) {
        return ckpt_fail_memory(err);
    } catch (const std::exception &e) {
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "cuDNN: %.300s", e.what());
    }
}

/* Open the library with `start` as the last step. */
template <typename F> static int dn_open(cu_dnn **out, F start, ckpt_err *err)
{
    *out = NULL;
    cu_dnn *c = new (std::nothrow) cu_dnn();
    int rc = c ? dn_caught([=]() { return dn_load(err); }, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = dn_caught([=]() { return start(c); }, err);
    if (rc != CKPT_OK) {
        cu_dnn_close(c);
        return rc;
    }
    *out = c;
    return CKPT_OK;
}

int cu_dnn_open(cu_dnn **out, void *stream, int capability, ckpt_err *err)
{
    const auto start = [=](cu_dnn *c) {
        int rc = dn_load_runtime(err);

        c->capability = capability;
        if (rc == CKPT_OK)
            rc = dn_status(fe::detail::create_handle(&c->handle), "cudnnCreate", err);
        return rc == CKPT_OK ? dn_status(fe::detail::set_stream(c->handle, (cudaStream_t)stream),
                                         "cudnnSetStream", err)
                             : rc;
    };

    return dn_open(out, start, err);
}

int cu_dnn_open_absent(cu_dnn **out, const char *properties, int capability, ckpt_err *err)
{
    const auto start = [=](cu_dnn *c) {
        const std::string text = properties;

        c->capability = capability;
        c->absent = std::make_shared<fe::DeviceProperties>();
        // the zero at the end is part of the text
        return dn_error(c->absent->deserialize({text.c_str(), text.c_str() + text.size() + 1}),
                        CKPT_EUNSUPPORTED, "properties of an absent GPU", err);
    };

    return dn_open(out, start, err);
}

void cu_dnn_close(cu_dnn *c)
{
    const auto close = [=]() {
        if (c && c->handle)
            (void)fe::detail::destroy_handle(c->handle);
        return CKPT_OK;
    };

    (void)dn_caught(close, NULL);
    delete c;
}

uint64_t cu_dnn_version(const cu_dnn *c)
{
    (void)c;
    return fe::detail::get_backend_version();
}

/* ---- building ---- */

typedef std::shared_ptr<fe::graph::Tensor_attributes> dn_tensor;

/* The identifier of a tensor within its graph. */
static int64_t dn_id(int which)
{
    return which + 1;
}

static std::vector<int64_t> dn_list(const int64_t (&x)[4])
{
    return {x, x + 4};
}

static fe::DataType_t dn_type(ckpt_dtype dt)
{
    return dt == CKPT_F16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16;
}

/* Set the shape of a tensor of the graph. */
static void dn_shape(fe::graph::Tensor_attributes *t, const cu_dnn_call *call, cu_dnn_which which)
{
    static const char *const names[CU_DNN_TENSORS] = {"q",    "k",  "v",  "o", "lse",
                                                      "dout", "dq", "dk", "dv"};

    t->set_name(names[which])
        .set_uid(dn_id(which))
        .set_dim(dn_list(call->tensor[which].n))
        .set_stride(dn_list(call->tensor[which].stride))
        .set_data_type(which == CU_DNN_LSE ? fe::DataType_t::FLOAT : dn_type(call->dt));
}

static dn_tensor dn_input(cu_dnn_plan *p, const cu_dnn_call *call, cu_dnn_which which)
{
    fe::graph::Tensor_attributes t;

    dn_shape(&t, call, which);
    return p->graph.tensor(t);
}

static void dn_output(const dn_tensor &t, const cu_dnn_call *call, cu_dnn_which which)
{
    dn_shape(t.get(), call, which);
    t->set_output(true);
}

/* Keys from query q's own place on are hidden: the diagonal starts at the first query and key. */
template <typename A> static void dn_mask(A *a, const cu_dnn_call *call)
{
    if (call->causal)
        a->set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
            .set_diagonal_band_right_bound(0);
}

static void dn_forward(cu_dnn_plan *p, const cu_dnn_call *call)
{
    auto a = fe::graph::SDPA_attributes()
                 .set_name("attention")
                 .set_attn_scale(call->scale)
                 .set_generate_stats(true);

    dn_mask(&a, call);
    const auto out = p->graph.sdpa(dn_input(p, call, CU_DNN_Q), dn_input(p, call, CU_DNN_K),
                                   dn_input(p, call, CU_DNN_V), a);

    dn_output(out[0], call, CU_DNN_O);
    dn_output(out[1], call, CU_DNN_LSE);
}

static void dn_backward(cu_dnn_plan *p, const cu_dnn_call *call)
{
    auto a = fe::graph::SDPA_backward_attributes()
                 .set_name("attention_grad")
                 .set_attn_scale(call->scale);

    dn_mask(&a, call);
    const auto out =
        p->graph.sdpa_backward(dn_input(p, call, CU_DNN_Q), dn_input(p, call, CU_DNN_K),
                               dn_input(p, call, CU_DNN_V), dn_input(p, call, CU_DNN_O),
                               dn_input(p, call, CU_DNN_DOUT), dn_input(p, call, CU_DNN_LSE), a);

    dn_output(out[0], call, CU_DNN_DQ);
    dn_output(out[1], call, CU_DNN_DK);
    dn_output(out[2], call, CU_DNN_DV);
}

/* Let cuDNN check the graph, and choose and compile a kernel. */
static fe::error_t dn_compile(cu_dnn_plan *p)
{
    const std::vector<fe::HeurMode_t> modes = {fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK};
    const cudnnHandle_t handle = p->library->handle;
    fe::error_t e = p->graph.validate();

    if (e.is_good())
        e = handle ? p->graph.build_operation_graph(handle) : p->graph.build_operation_graph();
    if (e.is_good())
        e = p->graph.create_execution_plans(modes);
    if (e.is_good())
        e = p->graph.check_support();
    if (e.is_good())
        e = p->graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE);
    return e;
}

static int dn_build(cu_dnn_plan *p, const cu_dnn_call *call, uint64_t *n_bytes, ckpt_err *err)
{
    int64_t n = 0;

    p->graph.set_io_data_type(dn_type(call->dt))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    // otherwise the headers would ask their own CUDA runtime for its current GPU
    p->graph.set_sm_version(p->library->capability);
    if (p->library->absent)
        p->graph.set_device_properties(p->library->absent);
    if (call->backward)
        dn_backward(p, call);
    else
        dn_forward(p, call);
    int rc = dn_error(dn_compile(p), CKPT_EUNSUPPORTED, "cuDNN", err);

    if (rc == CKPT_OK)
        rc = dn_error(p->graph.get_workspace_size(n), CKPT_EUNSUPPORTED, "cuDNN", err);
    if (rc == CKPT_OK && n < 0)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "cuDNN: the size of its device memory is negative");
    *n_bytes = rc == CKPT_OK ? (uint64_t)n : 0;
    return rc;
}

int cu_dnn_plan_new(cu_dnn_plan **out, cu_dnn *c, const cu_dnn_call *call, uint64_t *n_bytes,
                    ckpt_err *err)
{
    const auto build = [=]() {
        std::unique_ptr<cu_dnn_plan> p(new cu_dnn_plan());

        p->library = c;
        const int rc = dn_build(p.get(), call, n_bytes, err);

        *out = rc == CKPT_OK ? p.release() : NULL;
        return rc;
    };

    *out = NULL;
    *n_bytes = 0;
    return dn_caught(build, err);
}

/* ---- running ---- */

int cu_dnn_plan_run(cu_dnn_plan *p, void *const at[CU_DNN_TENSORS], void *room, ckpt_err *err)
{
    const auto run = [=]() {
        std::unordered_map<int64_t, void *> address;

        for (int i = 0; i < CU_DNN_TENSORS; i++) {
            if (at[i])
                address[dn_id(i)] = at[i];
        }
        return dn_error(p->graph.execute(p->library->handle, address, room), CKPT_EIO, "cuDNN",
                        err);
    };

    if (!p->library->handle)
        return ckpt_fail(err, CKPT_EUSAGE, "cuDNN: a plan for an absent GPU cannot run");
    return dn_caught(run, err);
}

void cu_dnn_plan_free(cu_dnn_plan *p)
{
    const auto end = [=]() {
        delete p;
        return CKPT_OK;
    };

    (void)dn_caught(end, NULL);
}

#endif
