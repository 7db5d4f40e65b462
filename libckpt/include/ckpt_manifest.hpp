/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_manifest.hpp: wraps the manifests of ckpt_extra.h: the SHA-256 of files and tensors.
 *
 * A part of ckpt.hpp, which includes it; do not include it alone.
 */
#ifndef CKPT_MANIFEST_HPP
#define CKPT_MANIFEST_HPP

#include "ckpt_map.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt
{
#if defined(__cpp_lib_span)
inline namespace cxx20
{
#else
inline namespace cxx17
{
#endif

/* Hashes that a run takes of its output: put get() into its ckpt_run_opts. */
class hashes
{
  public:
    hashes()
    {
        ckpt_hashes *h = nullptr;
        ckpt_err err = ckpt_err();
        detail::check(ckpt_hashes_new(&h, &err), err);
        h_.reset(h);
    }
    ckpt_hashes *get() const noexcept
    {
        return h_.get();
    }

  private:
    struct hashes_free {
        void operator()(ckpt_hashes *h) const noexcept
        {
            ckpt_hashes_free(h);
        }
    };
    std::unique_ptr<ckpt_hashes, hashes_free> h_;
};

struct manifest_options {
    open_options open;
    run_options run;               /* jobs, progress */
    const hashes *known = nullptr; /* of the run that has written the checkpoint */
    std::function<bool(const finding &)> on_finding; /* check(), hub_check() */
};

class manifest
{
  public:
    /* Hash a checkpoint. */
    static manifest make(std::string_view path, const manifest_options &o = manifest_options())
    {
        call c{o, {}};
        const detail::run run(c.relay, o.run);
        const ckpt_manifest_opts opts = options(o, run);
        ckpt_manifest *m = nullptr;
        ckpt_err err = ckpt_err();
        const int rc = ckpt_manifest_make(&m, detail::text(path).get(), &opts, &err);

        c.relay.rethrow();
        detail::check(rc, err, path);
        return manifest(m);
    }
    /* Read the manifest in a file. */
    static manifest read(std::string_view file)
    {
        ckpt_manifest *m = nullptr;
        ckpt_err err = ckpt_err();
        detail::check(ckpt_manifest_read(&m, detail::text(file).get(), &err), err, file);
        return manifest(m);
    }
    /* Read the manifest beside a checkpoint; false: there is none. tag "": the newest of a run. */
    static manifest find(std::string_view path, std::string_view tag = std::string_view())
    {
        const std::string named(tag);
        ckpt_open_opts open = ckpt_open_opts();
        ckpt_manifest_opts opts = ckpt_manifest_opts();
        ckpt_manifest *m = nullptr;
        ckpt_err err = ckpt_err();

        open.size = sizeof open;
        open.tag = named.empty() ? nullptr : named.c_str();
        opts.size = sizeof opts;
        opts.open = &open;
        detail::check(ckpt_manifest_find(&m, detail::text(path).get(), &opts, &err), err, path);
        return manifest(m);
    }
    /* Check that write would replace no other file. file "": beside the checkpoint. */
    static void check_place(std::string_view path, std::string_view file = std::string_view())
    {
        ckpt_err err = ckpt_err();
        detail::check(ckpt_manifest_check_place(detail::text(path).get(),
                                                file.empty() ? nullptr : detail::text(file).get(),
                                                &err),
                      err, path);
    }
    /* Remove the manifest beside a checkpoint. */
    static void remove(std::string_view path)
    {
        ckpt_err err = ckpt_err();
        detail::check(ckpt_manifest_remove(detail::text(path).get(), &err), err, path);
    }
    explicit operator bool() const noexcept
    {
        return m_ != nullptr;
    }
    std::string_view path() const noexcept
    {
        return detail::view(ckpt_manifest_path(m_.get()));
    }
    std::vector<ckpt_hashed> files() const
    {
        std::vector<ckpt_hashed> out;
        for (std::size_t i = 0; i < ckpt_manifest_file_count(m_.get()); i++)
            out.push_back(*ckpt_manifest_file_at(m_.get(), i));
        return out;
    }
    std::vector<ckpt_hashed> tensors() const
    {
        std::vector<ckpt_hashed> out;
        for (std::size_t i = 0; i < ckpt_manifest_tensor_count(m_.get()); i++)
            out.push_back(*ckpt_manifest_tensor_at(m_.get(), i));
        return out;
    }
    /* Write it, and the list for sha256sum; file "": beside the checkpoint. */
    void write(std::string_view file = std::string_view()) const
    {
        ckpt_err err = ckpt_err();
        detail::check(
            ckpt_manifest_write(m_.get(), file.empty() ? nullptr : detail::text(file).get(), &err),
            err, file);
    }
    /* Compare a checkpoint with it; throws CKPT_EDIGEST after all findings. */
    void check(std::string_view path, const manifest_options &o = manifest_options()) const
    {
        call c{o, {}};
        const detail::run run(c.relay, o.run);
        const ckpt_manifest_opts opts = options(o, run);
        ckpt_err err = ckpt_err();
        const int rc =
            ckpt_manifest_check(m_.get(), detail::text(path).get(), &opts, call::found, &c, &err);

        c.relay.rethrow();
        detail::check(rc, err, path);
    }
    /*
     * Compare files with the hub's hashes; returns the number of files that have one, or 0 if a
     * file that the checkpoint is read from has none.
     */
    static std::uint64_t hub_check(std::string_view path,
                                   const manifest_options &o = manifest_options())
    {
        call c{o, {}};
        const detail::run run(c.relay, o.run);
        const ckpt_manifest_opts opts = options(o, run);
        std::uint64_t n = 0;
        ckpt_err err = ckpt_err();
        const int rc = ckpt_hub_check(detail::text(path).get(), &opts, call::found, &c, &n, &err);

        c.relay.rethrow();
        detail::check(rc, err, path);
        return n;
    }
    /*
     * True if all tensors are equal. on_difference gets each difference; a or b is null where a
     * side lacks the tensor; false stops.
     */
    bool equal(const manifest &other,
               const std::function<bool(std::string_view what, const ckpt_hashed *a,
                                        const ckpt_hashed *b)> &on_difference = nullptr) const
    {
        struct each {
            const std::function<bool(std::string_view, const ckpt_hashed *, const ckpt_hashed *)>
                &fn;
            detail::relay relay;
            static int one(void *ctx, const char *what, const ckpt_hashed *a,
                           const ckpt_hashed *b) noexcept
            {
                each *e = static_cast<each *>(ctx);
                return e->relay.call([&] { return !e->fn || e->fn(what, a, b); });
            }
        } e{on_difference, {}};
        ckpt_err err = ckpt_err();
        const int rc = ckpt_manifest_diff(m_.get(), other.m_.get(), each::one, &e, &err);

        e.relay.rethrow();
        if (rc != CKPT_EDIFFERS)
            detail::check(rc, err);
        return rc == CKPT_OK;
    }

  private:
    struct call {
        const manifest_options &o;
        detail::relay relay;
        static int found(void *ctx, int severity, int code, const char *text) noexcept
        {
            call *c = static_cast<call *>(ctx);
            return c->relay.call([&] {
                return !c->o.on_finding || c->o.on_finding(finding{severity, code, text});
            });
        }
    };
    struct manifest_free {
        void operator()(ckpt_manifest *m) const noexcept
        {
            ckpt_manifest_free(m);
        }
    };
    explicit manifest(ckpt_manifest *m) : m_(m)
    {
    }
    static ckpt_manifest_opts options(const manifest_options &o, const detail::run &run)
    {
        ckpt_manifest_opts opts = ckpt_manifest_opts();

        opts.size = sizeof opts;
        opts.open = &o.open;
        opts.run = run.get();
        opts.hashes = o.known ? o.known->get() : nullptr;
        return opts;
    }
    std::unique_ptr<ckpt_manifest, manifest_free> m_;
};

} // namespace cxx17 or cxx20
} // namespace ckpt
#endif
