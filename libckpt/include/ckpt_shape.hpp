/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_shape.hpp: wraps ckpt_shape.h, which changes a map's tensors between opening and writing.
 *
 * All functions change the map in place and throw ckpt::error with the codes of ckpt_shape.h.
 * Programs include ckpt.hpp, which includes this header; it is installed beside it.
 */
#ifndef CKPT_SHAPE_HPP
#define CKPT_SHAPE_HPP

#include "ckpt_map.hpp"

namespace ckpt
{
#if defined(__cpp_lib_span)
inline namespace cxx20
{
#else
inline namespace cxx17
{
#endif

struct filter {
    std::vector<std::string> include, exclude; /* globs; no include: everything */
    std::string rename;                        /* rules, one per line: PATTERN REPLACEMENT */
    bool skip_state = false;
};

/* Keep and rename tensors. Invalidates tensor objects of the map. */
inline void select(map &m, const filter &f)
{
    const detail::texts include(f.include), exclude(f.exclude);
    const detail::text rename(f.rename);
    ckpt_filter c = ckpt_filter();
    ckpt_err err = ckpt_err();

    c.size = sizeof c;
    c.include = include.or_null();
    c.exclude = exclude.or_null();
    c.rename_text = rename.or_null();
    c.skip_state = f.skip_state;
    m.done(ckpt_map_select(m.get(), &c, &err), err);
}

struct model_options {
    bool keep_names = false;
    bool run = false;                /* the map will become a training run */
    std::string config, config_name; /* text of a config.json, and its name for messages */
    bool keep_others = false;        /* keep tensors that a program saved beside the model */
};

/* Keep only the model, under its own names. Invalidates tensor objects of the map. */
inline void keep_model(map &m, const model_options &o = model_options())
{
    const detail::text text(o.config), name(o.config_name);
    ckpt_model_opts c = ckpt_model_opts();
    ckpt_err err = ckpt_err();

    c.size = sizeof c;
    c.keep_names = o.keep_names;
    c.run = o.run;
    c.config_text = text.or_null();
    c.config_name = name.or_null();
    c.keep_others = o.keep_others;
    m.done(ckpt_map_keep_model(m.get(), &c, &err), err);
}

/* Make averaged weights those of the model: "ema", a path of keys, or "schedule-free". */
inline void take_weights(map &m, std::string_view which)
{
    ckpt_err err = ckpt_err();
    m.done(ckpt_map_take_weights(m.get(), detail::text(which).get(), &err), err);
}

inline void set_model_folder(map &m, std::string_view folder)
{
    ckpt_err err = ckpt_err();
    m.done(ckpt_map_set_model_folder(m.get(), detail::text(folder).get(), &err), err);
}

struct remap_options {
    bool backwards = false;
    std::string config, config_name; /* text of a config.json, and its name for messages */
    std::vector<std::string> sizes;  /* "heads=32" */
};

/* A layout map: the rules that turn the tensors of one layout into those of another. */
class remap
{
  public:
    remap(std::string_view name, std::string_view text)
    {
        ckpt_remap *r = nullptr;
        ckpt_err err = ckpt_err();
        const int rc = ckpt_remap_new(&r, detail::text(name).get(), detail::text(text).get(), &err);

        detail::check(rc, err, name);
        r_.reset(r);
    }
    ckpt_remap *get() const noexcept
    {
        return r_.get();
    }
    std::string_view side(bool right) const noexcept
    {
        return detail::view(ckpt_remap_side(get(), right));
    }
    std::string_view description() const noexcept
    {
        return detail::view(ckpt_remap_description(get()));
    }
    std::vector<std::string_view> models(bool right) const
    {
        std::vector<std::string_view> out;
        while (const char *name = ckpt_remap_model(get(), right, out.size()))
            out.emplace_back(name);
        return out;
    }
    bool has_size(std::string_view name) const
    {
        return ckpt_remap_has_size(get(), detail::text(name).get());
    }
    /* The rules, with their results in the last application. */
    std::vector<ckpt_remap_rule> rules() const
    {
        std::vector<ckpt_remap_rule> out;
        ckpt_remap_rule rule;
        while (ckpt_remap_rule_at(get(), out.size(), &rule))
            out.push_back(rule);
        return out;
    }
    bool recognizes() const noexcept
    {
        return ckpt_remap_recognizes(get());
    }
    bool keeps_slices(bool right) const noexcept
    {
        return ckpt_remap_keeps_slices(get(), right);
    }
    bool keeps_blocks(bool right) const noexcept
    {
        return ckpt_remap_keeps_blocks(get(), right);
    }
    /* True if the map has the architecture that the layout map is for. */
    bool matches(map &m, const remap_options &o = remap_options()) const
    {
        bool yes = false;
        ckpt_err err = ckpt_err();
        const options c(o);

        m.done(ckpt_remap_matches(m.get(), get(), &c.opts, &yes, &err), err);
        return yes;
    }
    /* Turn the map's tensors into those of the other layout. */
    void apply(map &m, const remap_options &o = remap_options()) const
    {
        ckpt_err err = ckpt_err();
        const options c(o);

        m.done(ckpt_map_remap(m.get(), get(), &c.opts, &err), err);
    }

  private:
    struct options {
        explicit options(const remap_options &o)
            : config(o.config), name(o.config_name), sizes(o.sizes), opts()
        {
            opts.size = sizeof opts;
            opts.backwards = o.backwards;
            opts.config_text = config.or_null();
            opts.config_name = name.or_null();
            opts.sizes = sizes.or_null();
        }
        detail::text config, name;
        detail::texts sizes;
        ckpt_remap_opts opts;
    };
    struct remap_free {
        void operator()(ckpt_remap *r) const noexcept
        {
            ckpt_remap_free(r);
        }
    };
    std::unique_ptr<ckpt_remap, remap_free> r_;
};

inline bool is_quantized(const map &m) noexcept
{
    return ckpt_map_is_quantized(m.get());
}

/* The kinds of quantized weights that dequantize reads. */
inline std::vector<const ckpt_quantization *> quantizations()
{
    std::vector<const ckpt_quantization *> out;

    while (const ckpt_quantization *q = ckpt_quantization_at(out.size()))
        out.push_back(q);
    return out;
}

inline void dequantize(map &m, bool rounded)
{
    ckpt_err err = ckpt_err();
    m.done(ckpt_map_dequantize(m.get(), rounded, &err), err);
}

inline void repack(map &m, bool rounded)
{
    ckpt_err err = ckpt_err();
    m.done(ckpt_map_repack(m.get(), rounded, &err), err);
}

/*
 * Convert bitsandbytes' moments to fp32; returns the number of parameters: see
 * ckpt_map_dequantize_moments.
 */
inline std::uint64_t dequantize_moments(map &m)
{
    ckpt_err err = ckpt_err();
    std::uint64_t n = 0;
    m.done(ckpt_map_dequantize_moments(m.get(), &n, &err), err);
    return n;
}

/*
 * form  "fp8-block", "fp8-block:64x64", "fp8-channel", "w4a16:64" ...
 * skip  globs of weights to leave unchanged
 */
inline void quantize(map &m, std::string_view form, const std::vector<std::string> &skip = {},
                     ckpt_dtype dtype = CKPT_DTYPE_NONE)
{
    const detail::text terminated(form);
    const detail::texts stay(skip);
    ckpt_quantize c = ckpt_quantize();
    ckpt_err err = ckpt_err();

    c.size = sizeof c;
    c.form = terminated.get();
    c.skip = stay.or_null();
    c.dtype = dtype;
    m.done(ckpt_map_quantize(m.get(), &c, &err), err);
}

/*
 * rows  number of tokens after the change;  tensors  globs of the tables, or none: by config.json
 */
inline void resize_vocab(map &m, std::uint64_t rows, const std::vector<std::string> &tensors = {},
                         std::string_view config = {}, std::string_view config_name = {})
{
    const detail::texts tables(tensors);
    const detail::text text(config), name(config_name);
    ckpt_vocab_opts c = ckpt_vocab_opts();
    ckpt_err err = ckpt_err();

    c.size = sizeof c;
    c.rows = rows;
    c.tensors = tables.or_null();
    c.config_text = text.or_null();
    c.config_name = name.or_null();
    m.done(ckpt_map_resize_vocab(m.get(), &c, &err), err);
}

/* names  "HEAD=EMBEDDING", "HEAD", or "": by config.json */
inline void tie(map &m, std::string_view names = {})
{
    ckpt_err err = ckpt_err();
    m.done(ckpt_map_tie(m.get(), detail::text(names).or_null(), &err), err);
}

inline void untie(map &m)
{
    ckpt_err err = ckpt_err();
    m.done(ckpt_map_untie(m.get(), &err), err);
}

/* Merge a LoRA adapter of PEFT, a folder, into the weights of its base. */
inline void merge_adapter(map &m, std::string_view path, double weight = 1, bool untie_head = false)
{
    const detail::text terminated(path);
    ckpt_adapter c = ckpt_adapter();
    ckpt_err err = ckpt_err();

    if (weight == 0)
        throw error(CKPT_EUSAGE, "a weight of 0 changes nothing", path);
    c.size = sizeof c;
    c.path = terminated.get();
    c.weight = weight;
    c.untie = untie_head;
    m.done(ckpt_map_merge_adapter(m.get(), &c, &err), err);
}

/*
 * Make a LoRA adapter of a model and its base, which must have the same tensors; base is only read.
 */
inline void extract_lora(map &tuned, map &base, std::uint32_t rank,
                         ckpt_extract_rest rest = CKPT_EXTRACT_REFUSE,
                         ckpt_dtype dtype = CKPT_DTYPE_NONE)
{
    ckpt_extract c = ckpt_extract();
    ckpt_err err = ckpt_err();

    c.size = sizeof c;
    c.rank = rank;
    c.rest = rest;
    c.dtype = dtype;
    tuned.done(ckpt_map_extract_lora(tuned.get(), base.get(), &c, &err), err);
}

/* config  path of the run's adapter_config.json;  name  needed if the run has several adapters */
inline void keep_adapter(map &m, std::string_view config, std::string_view name = {})
{
    const detail::text path(config), one(name);
    ckpt_adapter_only c = ckpt_adapter_only();
    ckpt_err err = ckpt_err();

    c.size = sizeof c;
    c.config = path.or_null();
    c.name = one.or_null();
    m.done(ckpt_map_keep_adapter(m.get(), &c, &err), err);
}

/* config  path of adapter_config.json; "": the one in the folder of the map */
inline void adapter_keys(map &m, std::string_view config = {})
{
    const detail::text path(config);
    ckpt_err err = ckpt_err();

    m.done(ckpt_map_adapter_keys(m.get(), path.or_null(), &err), err);
}

inline void adapter_config(map &m)
{
    ckpt_err err = ckpt_err();

    m.done(ckpt_map_adapter_config(m.get(), &err), err);
}

/* names  "kohya", "diffusers" or "comfyui", perhaps with ":sd", ":sdxl" or ":flux" */
inline void lora_names(map &m, std::string_view names)
{
    const detail::text terminated(names);
    ckpt_err err = ckpt_err();

    m.done(ckpt_map_lora_names(m.get(), terminated.get(), &err), err);
}

struct merge_model {
    std::string path;
    double weight = 1;
    std::string tag; /* of a run, or "" */
};

/* Members as in ckpt_merge; "" means its NULL. */
struct merge_options {
    std::string method;
    std::vector<merge_model> models;
    std::string base;
    double density = 0, lambda = 0, t = 0;
    bool skip_normalize = false;
    std::uint64_t seed = 0;
    std::string config, config_name; /* text of a mergekit configuration instead */
    open_options open;
    bool keep_names = false;
};

namespace detail
{
/* Calls f with the C form of the options, which lives only for that call. */
template <class F> void with_merge(const merge_options &o, F &&f)
{
    const detail::text method(o.method), base(o.base), config(o.config), name(o.config_name);
    std::vector<detail::text> kept;
    std::vector<ckpt_merge_model> models;
    ckpt_merge c = ckpt_merge();

    for (const merge_model &one : o.models) {
        kept.emplace_back(one.path);
        kept.emplace_back(one.tag);
    }
    for (std::size_t i = 0; i < o.models.size(); i++)
        models.push_back({kept[2 * i].get(), kept[2 * i + 1].or_null(), o.models[i].weight});
    c.size = sizeof c;
    c.method = method.or_null();
    c.models = models.empty() ? nullptr : models.data();
    c.n_models = models.size();
    c.base = base.or_null();
    c.density = o.density;
    c.lambda = o.lambda;
    c.t = o.t;
    c.skip_normalize = o.skip_normalize;
    c.keep_names = o.keep_names;
    c.seed = o.seed;
    c.config_text = config.or_null();
    c.config_name = name.or_null();
    c.open = &o.open;
    f(c);
}
} // namespace detail

/* Open several models as the map of their merge. */
inline map open_merge(const merge_options &o)
{
    ckpt_map *m = nullptr;
    ckpt_err err = ckpt_err();

    detail::with_merge(
        o, [&](const ckpt_merge &c) { detail::check(ckpt_merge_open(&m, &c, &err), err, o.base); });
    return map::adopt(m);
}

/* Open several LoRA adapters as the map of one; of the options, method, models and open are used. */
inline map open_adapters(const merge_options &o)
{
    ckpt_map *m = nullptr;
    ckpt_err err = ckpt_err();

    detail::with_merge(o, [&](const ckpt_merge &c) {
        ckpt_adapters set = ckpt_adapters();

        set.size = sizeof set;
        set.method = c.method;
        set.adapters = c.models;
        set.n_adapters = c.n_models;
        set.open = c.open;
        detail::check(ckpt_adapters_open(&m, &set, &err), err, o.method);
    });
    return map::adopt(m);
}

/* The paths of the models that a merge would open, and of its base. */
inline std::vector<std::string> merge_paths(const merge_options &o)
{
    std::vector<std::string> paths;
    ckpt_err err = ckpt_err();
    const auto keep = [](void *to, const char *path) noexcept -> int {
        try {
            static_cast<std::vector<std::string> *>(to)->emplace_back(path);
        } catch (...) {
            return 1;
        }
        return 0;
    };

    detail::with_merge(o, [&](const ckpt_merge &c) {
        detail::check(ckpt_merge_paths(&c, keep, &paths, &err), err, o.base);
    });
    return paths;
}

} // namespace cxx17 or cxx20
} // namespace ckpt

#endif
