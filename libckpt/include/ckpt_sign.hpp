/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_sign.hpp: wraps the signatures and the statements about conversions of ckpt_extra.h.
 *
 * A part of ckpt.hpp, which includes it; do not include it alone.
 */
#ifndef CKPT_SIGN_HPP
#define CKPT_SIGN_HPP

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

/* As ckpt_sign_opts: PEM texts, and their names for messages; "": not given. */
struct sign_options {
    std::string signature, key, key_name = "key", cert, cert_name = "certificate";
    bool follow_links = false;
    run_options run;                                 /* jobs, force, progress */
    std::function<bool(const finding &)> on_finding; /* check_signature() */
};

struct sign_report {
    std::uint64_t n_files, n_bytes;
    std::string signer;
};

namespace detail
{
/* Receives the findings of a check. */
struct findings {
    const std::function<bool(const finding &)> &fn;
    detail::relay relay;
    static int found(void *ctx, int severity, int code, const char *text) noexcept
    {
        findings *f = static_cast<findings *>(ctx);
        return f->relay.call([&] { return !f->fn || f->fn(finding{severity, code, text}); });
    }
};

inline const char *given(const std::string &text) noexcept
{
    return text.empty() ? nullptr : text.c_str();
}

inline sign_report signing(decltype(ckpt_sign) &fn, std::string_view path, const sign_options &o)
{
    findings c{o.on_finding, {}};
    const detail::run run(c.relay, o.run);
    ckpt_sign_opts opts = ckpt_sign_opts();
    ckpt_sign_report report = ckpt_sign_report();
    ckpt_err err = ckpt_err();

    opts.size = sizeof opts;
    opts.signature = given(o.signature);
    opts.key = given(o.key);
    opts.key_name = o.key_name.c_str();
    opts.cert = given(o.cert);
    opts.cert_name = o.cert_name.c_str();
    opts.follow_links = o.follow_links;
    opts.run = run.get();
    opts.finding = findings::found;
    opts.finding_ctx = &c;
    report.size = sizeof report;
    const int rc = fn(text(path).get(), &opts, &report, &err);

    c.relay.rethrow();
    check(rc, err, path);
    return sign_report{report.n_files, report.n_bytes, report.signer};
}
} // namespace detail

/* Sign a model: a folder with all files below it, or one file. */
inline sign_report sign(std::string_view path, const sign_options &o)
{
    return detail::signing(ckpt_sign, path, o);
}

/* Check a signature and compare the files; throws CKPT_EDIGEST after all findings. */
inline sign_report check_signature(std::string_view path, const sign_options &o)
{
    return detail::signing(ckpt_signature_check, path, o);
}

/* A statement about a conversion. */
class statement
{
  public:
    /* Write one; the texts and maps of opts are borrowed. */
    static void write(std::string_view file, ckpt_attest_opts opts)
    {
        ckpt_err err = ckpt_err();

        opts.size = sizeof opts;
        detail::check(ckpt_attest_write(detail::text(file).get(), &opts, &err), err, file);
    }
    /* Check that write would replace no file, or with force no file but an older statement. */
    static void check_place(std::string_view file, bool force = false)
    {
        ckpt_err err = ckpt_err();

        detail::check(ckpt_attest_check_place(detail::text(file).get(), force, &err), err, file);
    }
    static statement read(std::string_view file)
    {
        ckpt_attested *a = nullptr;
        ckpt_err err = ckpt_err();

        detail::check(ckpt_attest_read(&a, detail::text(file).get(), &err), err, file);
        return statement(a);
    }
    /* The options of the command; the texts live as long as the statement. */
    std::vector<ckpt_option> options() const
    {
        std::vector<ckpt_option> out;
        const ckpt_option *o = nullptr;

        while ((o = ckpt_attest_option_at(a_.get(), out.size())) != nullptr)
            out.push_back(*o);
        return out;
    }
    /*
     * Compare its hashes with the files of the result and of the source's map; returns their number,
     * and throws CKPT_EDIGEST after all findings.
     */
    std::uint64_t check(std::string_view target, const ckpt_map *from,
                        const std::function<bool(const finding &)> &on_finding = nullptr) const
    {
        detail::findings c{on_finding, {}};
        ckpt_verify_opts opts = ckpt_verify_opts();
        std::uint64_t n = 0;
        ckpt_err err = ckpt_err();

        opts.size = sizeof opts;
        opts.finding = detail::findings::found;
        opts.finding_ctx = &c;
        const int rc =
            ckpt_attest_check(a_.get(), detail::text(target).get(), from, &opts, &n, &err);

        c.relay.rethrow();
        detail::check(rc, err, target);
        return n;
    }

  private:
    struct attested_free {
        void operator()(ckpt_attested *a) const noexcept
        {
            ckpt_attest_free(a);
        }
    };
    explicit statement(ckpt_attested *a) : a_(a)
    {
    }
    std::unique_ptr<ckpt_attested, attested_free> a_;
};

} // namespace cxx17 or cxx20
} // namespace ckpt
#endif
