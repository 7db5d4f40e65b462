/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt.hpp: wraps ckpt.h for C++17 and later; headers only.
 *
 *     ckpt::map model = ckpt::open("run/checkpoint-500");
 *     for (ckpt::tensor t : model)
 *         std::cout << t.name() << ' ' << t.size() << '\n';
 *     std::vector<float> rows = model["lm_head.weight"]({{10, 20}}).read<float>();
 *     ckpt::convert(model, ckpt::target("hf", "out"));
 *
 * Conventions: ckpt.h documents the functions; this header documents their C++ form. Handles are
 * move-only and free their resources. Failures throw ckpt::error. Texts are std::string_view: the
 * library copies arguments for the call unless a member is a const char *; returned texts live as
 * long as their map. Callbacks are std::function: one that returns false ends the call with
 * CKPT_ECANCELED, and an exception of a callback leaves the call after the library has returned and
 * cleaned up. Threads: as in ckpt.h; link a program with several threads with -pthread.
 */
#ifndef CKPT_HPP
#define CKPT_HPP

#include "ckpt_manifest.hpp"
#include "ckpt_map.hpp"
#include "ckpt_reader.hpp"
#include "ckpt_shape.hpp"
#include "ckpt_sign.hpp"

namespace ckpt
{

inline std::string_view version() noexcept
{
    return ckpt_version();
}

#if defined(__cpp_lib_span)
inline namespace cxx20
{
#else
inline namespace cxx17
{
#endif

/* CKPT_PREPARE_READ, CKPT_PREPARE_WRITE: call it before the program drops privileges. */
inline void prepare(unsigned flags)
{
    ckpt_err err = ckpt_err();
    detail::check(ckpt_prepare(flags, &err), err);
}

/* True for a remote address instead of a path on this machine: see ckpt-remote(7). */
inline bool path_is_remote(std::string_view path)
{
    return ckpt_path_is_remote(detail::text(path).get());
}

/* Throws error (CKPT_EUSAGE) for a path that cannot be an output: an address, a device, a pipe. */
inline void output_check(std::string_view path)
{
    ckpt_err err{};
    detail::check(ckpt_output_check(detail::text(path).get(), &err), err);
}

/*
 * While the library fetches the headers of remote files: the number of those that have arrived, and
 * the number of all.
 */
[[nodiscard]] inline std::optional<std::pair<std::uint64_t, std::uint64_t>> remote_progress()
{
    std::uint64_t n_open = 0, n_all = 0;
    if (!ckpt_remote_progress(&n_open, &n_all))
        return std::nullopt;
    return std::pair{n_open, n_all};
}

/*
 * While an object lives, a wait for another machine ends (CKPT_ECANCELED) soon after `stop` returns
 * true or throws; any waiting thread calls it. Only one object at a time.
 */
class remote_stop
{
  public:
    explicit remote_stop(std::function<bool()> stop) : stop_(std::move(stop))
    {
        ckpt_remote_set_stop(ask, this);
    }
    remote_stop(const remote_stop &) = delete;
    remote_stop &operator=(const remote_stop &) = delete;
    ~remote_stop()
    {
        ckpt_remote_set_stop(nullptr, nullptr);
    }

  private:
    static bool ask(void *ctx) noexcept
    {
        try {
            return static_cast<remote_stop *>(ctx)->stop_();
        } catch (...) {
            return true;
        }
    }
    std::function<bool()> stop_;
};

/* CKPT_DTYPE_NONE: unknown. */
inline ckpt_dtype dtype_parse(std::string_view s)
{
    return ckpt_dtype_parse(detail::text(s).get());
}

inline bool dtype_converts(ckpt_dtype to, ckpt_dtype from) noexcept
{
    return ckpt_dtype_converts(to, from);
}

/* ---- formats ---- */

/* The table of formats, files before folders.  Its texts live as long as the program. */
inline std::vector<const ckpt_format_info *> formats()
{
    std::vector<const ckpt_format_info *> out;

    out.reserve(ckpt_format_count());
    while (const ckpt_format_info *f = ckpt_format_at(out.size()))
        out.push_back(f);
    return out;
}

/* The format with this name or alias; NULL: unknown. */
inline const ckpt_format_info *format_find(std::string_view name)
{
    return ckpt_format_find(detail::text(name).get());
}

/* The format to write to a file of this name; "": no format has its suffix. */
inline std::string_view format_from_path(std::string_view path)
{
    return detail::view(ckpt_format_from_path(detail::text(path).get()));
}

inline unsigned format_caps(std::string_view name)
{
    return ckpt_format_caps(detail::text(name).get());
}

/* ---- converting ---- */

/*
 * A target: the members of ckpt_target. It owns format and path; all other texts stay the caller's.
 */
class target
{
  public:
    ckpt_target options;

    target(std::string_view format, std::string_view path) : options(), format_(format), path_(path)
    {
        options.size = sizeof options;
    }
    std::string_view path() const noexcept
    {
        return path_;
    }
    std::string_view format() const noexcept
    {
        return format_;
    }
    /* The C struct, valid while this object lives. */
    ckpt_target get() const
    {
        ckpt_target out = options;

        if (path_.find('\0') != std::string::npos || format_.find('\0') != std::string::npos)
            throw error(CKPT_EUSAGE, "a text with a NUL inside", path_);
        out.format = format_.c_str();
        out.path = path_.c_str();
        return out;
    }
    /* Throws if the target cannot be written; call it before opening a source to fail sooner. */
    void check() const
    {
        const ckpt_target c = get();
        ckpt_err err = ckpt_err();
        detail::check(ckpt_target_check(&c, &err), err, path_);
    }

  private:
    std::string format_, path_;
};

/* A target map: names, dtypes, files and offsets; nothing is written.  `from` outlives it. */
inline map layout(const map &from, const target &to)
{
    const ckpt_target c = to.get();
    ckpt_map *m = nullptr;
    ckpt_err err = ckpt_err();

    from.done(ckpt_layout(&m, from.get(), &c, &err), err);
    return map::adopt(m);
}

struct plan_sizes {
    std::uint64_t read, write, jobs;
};

/* A plan of the copy from a map to a target map; both must outlive it. */
class plan
{
  public:
    plan(const map &from, map &to, const run_options &opts = run_options()) : from_(from.from())
    {
        ckpt_plan *p = nullptr;
        ckpt_err err = ckpt_err();

        from.done(ckpt_plan_new(&p, from.get(), to.get(), &opts, &err), err);
        p_.reset(p);
    }
    plan_sizes sizes() const noexcept
    {
        plan_sizes s = plan_sizes();
        ckpt_plan_sizes(p_.get(), &s.read, &s.write, &s.jobs);
        return s;
    }
    /*
     * Write the target map's files, which appear complete or not at all. Call it once, because a
     * run adds its findings and counts to the target map.
     */
    ckpt_run_report run(const run_options &opts = run_options())
    {
        detail::relay relay;
        const detail::run call(relay, opts);
        ckpt_run_report report = detail::new_report();
        ckpt_err err = ckpt_err();
        const int rc = ckpt_plan_run(p_.get(), call.get(), &report, &err);

        relay.rethrow();
        if (from_)
            from_->check(rc, err);
        else
            detail::check(rc, err);
        return report;
    }

  private:
    struct plan_free {
        void operator()(ckpt_plan *p) const noexcept
        {
            ckpt_plan_free(p);
        }
    };
    const detail::origin *from_;
    std::unique_ptr<ckpt_plan, plan_free> p_;
};

struct view_options {
    run_options run; /* memory, jobs, allow_overflow, strict */
    /* read each record completely and compare its CRC before returning its first byte */
    bool check_first = false;
};

/*
 * A view of the files of a target map, readable at any offset without writing them; both maps must
 * outlive it. Any number of threads may read.
 */
class view
{
  public:
    view(const map &from, map &to, const view_options &o = view_options()) : from_(from.from())
    {
        ckpt_run_opts run = o.run;
        ckpt_view_opts opts = ckpt_view_opts();
        ckpt_view *v = nullptr;
        ckpt_err err = ckpt_err();

        run.progress = nullptr; /* reads have no progress */
        opts.size = sizeof opts;
        opts.run = &run;
        opts.check_first = o.check_first;
        from.done(ckpt_view_new(&v, from.get(), to.get(), &opts, &err), err);
        v_.reset(v);
    }
    /* Number of files. */
    std::size_t size() const noexcept
    {
        return ckpt_view_file_count(v_.get());
    }
    file operator[](std::size_t i) const noexcept
    {
        return file{detail::view(ckpt_view_file_path(v_.get(), i)),
                    ckpt_view_file_size(v_.get(), i)};
    }
    std::vector<file> files() const
    {
        std::vector<file> out;
        for (std::size_t i = 0; i < size(); i++)
            out.push_back((*this)[i]);
        return out;
    }
    /* The index of the file with this path, relative to the target's folder. */
    std::optional<std::size_t> find(std::string_view path) const noexcept
    {
        for (std::size_t i = 0; i < size(); i++)
            if (detail::view(ckpt_view_file_path(v_.get(), i)) == path)
                return i;
        return std::nullopt;
    }
    /* Read out.size() bytes of file i from offset `at`. */
    void read(std::size_t i, span<std::byte> out, std::uint64_t at = 0) const
    {
        ckpt_err err = ckpt_err();
        done(ckpt_view_read(v_.get(), i, out.data(), out.size(), at, &err), err);
    }
    /* Read ahead: prepare n bytes from `at` while the caller works on earlier ones. */
    void prefetch(std::size_t i, std::uint64_t n, std::uint64_t at = 0) const
    {
        ckpt_err err = ckpt_err();
        done(ckpt_view_prefetch(v_.get(), i, n, at, &err), err);
    }
    /*
     * Stream file i in order, with all checksums, before any read of it; `write` returns false to
     * stop.
     */
    void stream(std::size_t i, const std::function<bool(span<const std::byte>)> &write) const
    {
        struct call {
            const std::function<bool(span<const std::byte>)> &write;
            detail::relay relay;
            static int give(void *ctx, const void *bytes, std::uint64_t n, ckpt_err *) noexcept
            {
                call *c = static_cast<call *>(ctx);
                const std::byte *at = static_cast<const std::byte *>(bytes);
                const int rc = c->relay.call([&] {
                    return c->write(span<const std::byte>(at, static_cast<std::size_t>(n)));
                });
                return rc == 0 ? CKPT_OK : CKPT_ECANCELED;
            }
        } c{write, {}};
        ckpt_err err = ckpt_err();
        const int rc = ckpt_view_stream(v_.get(), i, call::give, &c, &err);

        c.relay.rethrow();
        done(rc, err);
    }
    /* The files as a checkpoint, which the view must outlive. */
    map open(const open_options &o = open_options()) const
    {
        ckpt_map *m = nullptr;
        ckpt_err err = ckpt_err();
        done(ckpt_view_open(&m, v_.get(), &o, &err), err);
        return map::adopt(m);
    }
    /* The records read so far, by the result of their CRC. */
    ckpt_view_counts counts() const noexcept
    {
        ckpt_view_counts out = ckpt_view_counts();
        ckpt_view_get_counts(v_.get(), &out);
        return out;
    }

  private:
    struct view_free {
        void operator()(ckpt_view *v) const noexcept
        {
            ckpt_view_free(v);
        }
    };
    void done(int rc, const ckpt_err &err) const
    {
        if (from_)
            from_->check(rc, err);
        else
            detail::check(rc, err);
    }
    const detail::origin *from_;
    std::unique_ptr<ckpt_view, view_free> v_;
};

/* Layout, plan and run in one. */
inline ckpt_run_report convert(const map &from, const target &to,
                               const run_options &opts = run_options())
{
    detail::relay relay;
    const detail::run call(relay, opts);
    const ckpt_target c = to.get();
    ckpt_run_report report = detail::new_report();
    ckpt_err err = ckpt_err();
    const int rc = ckpt_convert(from.get(), &c, call.get(), &report, &err);

    relay.rethrow();
    from.done(rc, err);
    return report;
}

/*
 * Add the training state of a run before its first step to a map that has only weights: see
 * ckpt_map_warm_start.
 */
inline void warm_start(map &m, const target &to)
{
    const ckpt_target c = to.get();
    ckpt_err err = ckpt_err();

    m.done(ckpt_map_warm_start(m.get(), &c, &err), err);
}

/*
 * Write training state for another stage or number of ranks: open the source with its optimizer,
 * keep model-parallel slices apart if the target has ranks, and convert.
 */
inline ckpt_run_report reshard(std::string_view from, const target &to,
                               const run_options &opts = run_options(),
                               open_options opening = open_options())
{
    if (!(format_caps(to.format()) & CKPT_WRITES_STATE))
        throw error(CKPT_EUSAGE, "'" + std::string(to.format()) + "' holds no training state",
                    to.path());
    opening.with_optimizer = true;
    if (format_caps(to.format()) & CKPT_HAS_RANKS)
        opening.keep_slices = true;
    map m = open(from, opening);
    warm_start(m, to);
    return convert(m, to, opts);
}

/* ---- checking ---- */

struct verify_options {
    open_options open;
    run_options run;
    std::function<bool(const finding &)> on_finding;
    /*
     * called after the map's structure has passed its checks; the map and its texts end with the
     * call
     */
    std::function<void(const map &)> on_opened;
};

/* Verify a checkpoint; after all findings it throws the code of the most severe problem. */
inline ckpt_run_report verify(std::string_view path, const verify_options &o = verify_options())
{
    struct call {
        const verify_options &o;
        detail::relay relay;
        static int found(void *ctx, int severity, int code, const char *text) noexcept
        {
            call *c = static_cast<call *>(ctx);
            return c->relay.call([&] {
                return !c->o.on_finding || c->o.on_finding(finding{severity, code, text});
            });
        }
        static void opened(void *ctx, const ckpt_map *m) noexcept
        {
            call *c = static_cast<call *>(ctx);
            (void)c->relay.call([&] {
                if (c->o.on_opened)
                    c->o.on_opened(map::borrow(m));
                return true;
            });
        }
    } c{o, {}};
    const detail::run run(c.relay, o.run);
    ckpt_verify_opts opts = ckpt_verify_opts();
    ckpt_run_report report = detail::new_report();
    ckpt_err err = ckpt_err();

    opts.size = sizeof opts;
    opts.open = &o.open;
    opts.run = run.get();
    opts.finding = call::found;
    opts.finding_ctx = &c;
    opts.opened = call::opened;
    const int rc = ckpt_verify(detail::text(path).get(), &opts, &report, &err);
    c.relay.rethrow();
    detail::check(rc, err, path);
    return report;
}

struct difference {
    std::string_view name, what; /* as in ckpt_difference */
    std::optional<tensor> a, b;
    std::uint64_t n_different, first;
    double max_abs;
};

struct diff_options {
    double tolerance = 0;
    bool ignore_dtype = false;
    progress_fn on_progress;
    std::function<bool(const difference &)> on_difference;
};

/* Gives diff access to tensor's constructor, to wrap C tensors. */
struct difference_access {
    static std::optional<tensor> see(const map &m, const ckpt_tensor *t)
    {
        return t ? std::optional<tensor>(tensor(m.from(), t)) : std::nullopt;
    }
};

/* Compare two maps by name and value; true if they are equal. */
inline bool diff(const map &a, const map &b, const diff_options &o = diff_options())
{
    struct call {
        const map &a, &b;
        const diff_options &o;
        detail::relay relay;
        static int progress(void *ctx, std::uint64_t done, std::uint64_t total) noexcept
        {
            call *c = static_cast<call *>(ctx);
            return c->relay.call(
                [&] { return !c->o.on_progress || c->o.on_progress(done, total); });
        }
        static int differs(void *ctx, const ckpt_difference *d) noexcept
        {
            call *c = static_cast<call *>(ctx);
            return c->relay.call([&] {
                return !c->o.on_difference ||
                       c->o.on_difference(difference{detail::view(d->name), detail::view(d->what),
                                                     difference_access::see(c->a, d->a),
                                                     difference_access::see(c->b, d->b),
                                                     d->n_different, d->first, d->max_abs});
            });
        }
    } c{a, b, o, {}};
    ckpt_diff_opts opts = ckpt_diff_opts();
    ckpt_err err = ckpt_err();

    opts.size = sizeof opts;
    opts.tolerance = o.tolerance;
    opts.ignore_dtype = o.ignore_dtype;
    opts.progress = call::progress;
    opts.progress_ctx = &c;
    const int rc = ckpt_diff(a.get(), b.get(), &opts, call::differs, &c, &err);
    c.relay.rethrow();
    if (rc == CKPT_EDIFFERS)
        return false;
    if (rc == CKPT_EIO && b.from() && b.from()->bytes)
        b.from()->bytes->rethrow();
    a.done(rc, err);
    return true;
}

/* The texts end with the call that gets them; "" on a side without the value. */
struct value_difference {
    std::string_view path, a, b; /* as in ckpt_value_difference */
    bool counts;
};

/* Compare the values of two maps beside their tensors; true if no difference counts. */
inline bool diff_values(const map &a, const map &b,
                        const std::function<bool(const value_difference &)> &on_difference = {})
{
    struct call {
        const std::function<bool(const value_difference &)> &fn;
        detail::relay relay;
        static int differs(void *ctx, const ckpt_value_difference *d) noexcept
        {
            call *c = static_cast<call *>(ctx);
            return c->relay.call([&] {
                return !c->fn || c->fn(value_difference{detail::view(d->path), detail::view(d->a),
                                                        detail::view(d->b), d->counts});
            });
        }
    } c{on_difference, {}};
    ckpt_err err = ckpt_err();
    const int rc = ckpt_diff_values(a.get(), b.get(), call::differs, &c, &err);

    c.relay.rethrow();
    if (rc == CKPT_EDIFFERS)
        return false;
    a.done(rc, err);
    return true;
}

/* ---- runs ---- */

/* The strings that the callbacks get end with the call; tag "": the run itself. */
struct doctor_options {
    bool deep = false, fix_latest = false;
    run_options run;
    std::function<bool(const ckpt_tag &)> on_tag;
    std::function<bool(std::string_view tag, int code, std::string_view text)> on_problem;
    std::function<bool(const ckpt_run_health &)> on_health;
};

/* Examine every tag of a run; after all callbacks it throws the problem of the run's pointer. */
inline void doctor(std::string_view path, const doctor_options &o = doctor_options())
{
    struct call {
        const doctor_options &o;
        detail::relay relay;
        static int tag(void *ctx, const ckpt_tag *t) noexcept
        {
            call *c = static_cast<call *>(ctx);
            return c->relay.call([&] { return !c->o.on_tag || c->o.on_tag(*t); });
        }
        static int problem(void *ctx, const char *tag, int code, const char *text) noexcept
        {
            call *c = static_cast<call *>(ctx);
            return c->relay.call([&] {
                return !c->o.on_problem ||
                       c->o.on_problem(detail::view(tag), code, detail::view(text));
            });
        }
        static int health(void *ctx, const ckpt_run_health *h) noexcept
        {
            call *c = static_cast<call *>(ctx);
            return c->relay.call([&] { return !c->o.on_health || c->o.on_health(*h); });
        }
    } c{o, {}};
    const detail::run run(c.relay, o.run);
    ckpt_doctor_opts opts = ckpt_doctor_opts();
    ckpt_err err = ckpt_err();

    opts.size = sizeof opts;
    opts.deep = o.deep;
    opts.fix_latest = o.fix_latest;
    opts.run = run.get();
    opts.tag = call::tag;
    opts.problem = call::problem;
    opts.health = call::health;
    opts.ctx = &c;
    const int rc = ckpt_doctor(detail::text(path).get(), &opts, &err);
    c.relay.rethrow();
    detail::check(rc, err, path);
}

struct clean_options {
    bool dry_run = false, force = false;
    std::function<bool(const ckpt_leftover &)> on_leftover;
};

/* Remove the left-overs of interrupted runs in a folder. */
inline void clean(std::string_view folder, const clean_options &o = clean_options())
{
    struct call {
        const clean_options &o;
        detail::relay relay;
        static int leftover(void *ctx, const ckpt_leftover *l) noexcept
        {
            call *c = static_cast<call *>(ctx);
            return c->relay.call([&] { return !c->o.on_leftover || c->o.on_leftover(*l); });
        }
    } c{o, {}};
    ckpt_clean_opts opts = ckpt_clean_opts();
    ckpt_err err = ckpt_err();

    opts.size = sizeof opts;
    opts.dry_run = o.dry_run;
    opts.force = o.force;
    opts.leftover = call::leftover;
    opts.ctx = &c;
    const int rc = ckpt_clean(detail::text(folder).get(), &opts, &err);
    c.relay.rethrow();
    detail::check(rc, err, folder);
}

/* ---- several processes ---- */

inline long team_launched() noexcept
{
    return ckpt_team_launched();
}

/*
 * One of several processes, as long as this object lives: see ckpt_team.h. A process that destroys
 * it without leave(), for example by an exception, makes the others fail too.
 */
class team
{
  public:
    explicit team(const ckpt_mail &mail, unsigned limit = 0)
    {
        ckpt_err err = ckpt_err();
        detail::check(ckpt_team_join(&mail, limit, &err), err);
    }
    team(const team &) = delete;
    team &operator=(const team &) = delete;
    ~team()
    {
        ckpt_err err = ckpt_err();

        if (left_)
            return;
        err.code = CKPT_ECANCELED;
        static_cast<void>(ckpt_team_leave(CKPT_ECANCELED, &err));
    }
    /* Leave after successful work; throws if another process failed. */
    void leave()
    {
        ckpt_err err = ckpt_err();

        left_ = true;
        detail::check(ckpt_team_leave(CKPT_OK, &err), err);
    }
    unsigned size() const noexcept
    {
        return ckpt_team_size();
    }
    unsigned rank() const noexcept
    {
        return ckpt_team_rank();
    }
    void same(std::string_view label, std::string_view text) const
    {
        ckpt_err err = ckpt_err();
        detail::check(ckpt_team_same(detail::text(label).get(), detail::text(text).get(), &err),
                      err);
    }
    void local(bool on) noexcept
    {
        ckpt_team_local(on);
    }
    /*
     * hosts: the machine of each rank of the output; empty: ranks are divided evenly over the
     * processes
     */
    void spread(const std::vector<std::string> &hosts = {})
    {
        const detail::texts names(hosts);
        ckpt_err err = ckpt_err();
        detail::check(ckpt_team_spread(names.or_null(), hosts.size(), &err), err);
    }
    void hostfile(std::string_view path)
    {
        ckpt_err err = ckpt_err();
        detail::check(ckpt_team_hostfile(detail::text(path).get(), &err), err, path);
    }
    std::optional<ckpt_team_member> member(unsigned rank) const noexcept
    {
        ckpt_team_member m = ckpt_team_member();
        return ckpt_team_member_at(rank, &m) ? std::optional<ckpt_team_member>(m) : std::nullopt;
    }

  private:
    bool left_ = false;
};

} // namespace cxx17 or cxx20
} // namespace ckpt

#endif
