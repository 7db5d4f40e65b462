/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_types.hpp: defines the types that all of ckpt.hpp shares: errors, spans, slices, options of
 * a run, and the callback for the caller's bytes.
 *
 * Programs include ckpt.hpp, which includes this header; it is installed beside it.
 */
#ifndef CKPT_TYPES_HPP
#define CKPT_TYPES_HPP

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>
#if __has_include(<version>)
#include <version>
#endif
#if defined(__cpp_lib_span)
#include <span>
#endif

#include "ckpt_extra.h"

namespace ckpt
{

/*
 * A failure of a library function.
 *
 * code     CKPT_EFORMAT ...; status() is the exit status of the tools for it
 * sys      errno of the failed call, or 0
 * path     of the checkpoint in question; "": none
 * tensor   name of the tensor in question; "": none
 * what     where, found, expected
 */
class error : public std::runtime_error
{
  public:
    error(int code, const std::string &text, std::string_view path = {},
          std::string_view tensor = {}, int sys = 0)
        : std::runtime_error(text), code_(code), sys_(sys),
          about_(std::make_shared<const about>(about{std::string(path), std::string(tensor)}))
    {
    }
    int code() const noexcept
    {
        return code_;
    }
    int sys() const noexcept
    {
        return sys_;
    }
    int status() const noexcept
    {
        return ckpt_err_status(code_);
    }
    std::string_view path() const noexcept
    {
        return about_->path;
    }
    std::string_view tensor() const noexcept
    {
        return about_->tensor;
    }

  private:
    struct about {
        std::string path, tensor;
    };
    int code_, sys_;
    std::shared_ptr<const about> about_; /* shared, because copying an exception must not throw */
};

/*
 * Receives the number of bytes done, from one thread at a time; false ends the run
 * (CKPT_ECANCELED).
 */
using progress_fn = std::function<bool(std::uint64_t done, std::uint64_t total)>;

/*
 * The names depend on the C++ standard because span does, so that objects compiled for several
 * standards can be linked together.
 */
#if defined(__cpp_lib_span)
inline namespace cxx20
{
template <class T> using span = std::span<T>;
#else
inline namespace cxx17
{
/* The subset of std::span that this header needs: n elements owned by others. */
template <class T> class span
{
  public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;
    using iterator = T *;

    constexpr span() noexcept = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size)
    {
    }
    template <std::size_t N> constexpr span(T (&array)[N]) noexcept : data_(array), size_(N)
    {
    }
    template <class C,
              class = std::enable_if_t<std::is_convertible_v<
                  std::remove_pointer_t<decltype(std::declval<C &>().data())> (*)[], T (*)[]>>>
    constexpr span(C &&c) : data_(c.data()), size_(c.size())
    {
    }
    constexpr T *data() const noexcept
    {
        return data_;
    }
    constexpr std::size_t size() const noexcept
    {
        return size_;
    }
    constexpr bool empty() const noexcept
    {
        return size_ == 0;
    }
    constexpr T &operator[](std::size_t i) const
    {
        return data_[i];
    }
    constexpr T *begin() const noexcept
    {
        return data_;
    }
    constexpr T *end() const noexcept
    {
        return data_ + size_;
    }
    constexpr span subspan(std::size_t at) const
    {
        return span(data_ + at, size_ - at);
    }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};
#endif

/*
 * The dtype of a C++ number: float is CKPT_F32, std::uint8_t CKPT_U8; other types do not compile.
 */
template <class T> constexpr ckpt_dtype dtype_of() noexcept
{
    using U = std::remove_cv_t<T>;
    constexpr bool integer = std::is_integral_v<U> && !std::is_same_v<U, bool>;

    static_assert(integer || std::is_same_v<U, float> || std::is_same_v<U, double>,
                  "no dtype of this type: read_bytes() gives a tensor's own");
    if constexpr (std::is_same_v<U, float>)
        return CKPT_F32;
    else if constexpr (std::is_same_v<U, double>)
        return CKPT_F64;
    else if constexpr (sizeof(U) == 1)
        return std::is_signed_v<U> ? CKPT_I8 : CKPT_U8;
    else if constexpr (sizeof(U) == 2)
        return std::is_signed_v<U> ? CKPT_I16 : CKPT_U16;
    else if constexpr (sizeof(U) == 4)
        return std::is_signed_v<U> ? CKPT_I32 : CKPT_U32;
    else
        return std::is_signed_v<U> ? CKPT_I64 : CKPT_U64;
}

inline std::string_view dtype_name(ckpt_dtype d) noexcept
{
    const char *name = ckpt_dtype_name(d);
    return name ? name : "";
}

/* Elements start, start + step ... before stop of one axis, clipped to its size as in Python. */
struct slice {
    static constexpr std::uint64_t end = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t start, stop, step;
    bool single = false; /* start must be inside the axis */

    constexpr slice(std::uint64_t from = 0, std::uint64_t to = end, std::uint64_t by = 1) noexcept
        : start(from), stop(to), step(by)
    {
    }
    /* One element; the axis stays, with size 1. */
    static constexpr slice at(std::uint64_t i) noexcept
    {
        slice s(i, i == end ? end : i + 1);
        s.single = true;
        return s;
    }
};

/* Options of a run: ckpt_run_opts, and first a progress function. */
struct run_options : ckpt_run_opts {
    progress_fn on_progress;

    run_options() : ckpt_run_opts()
    {
        size = sizeof(ckpt_run_opts);
    }
};

/* Options of opening: ckpt_open_opts; its texts stay the caller's. */
struct open_options : ckpt_open_opts {
    open_options() : ckpt_open_opts()
    {
        size = sizeof(ckpt_open_opts);
    }
};

/*
 * Reads a file outside of the file system: fills all of `into` from offset `at`, or throws. Many
 * threads call it at once.
 */
using read_at_fn = std::function<void(span<std::byte> into, std::uint64_t at)>;

/* ---- for ckpt.hpp itself ---- */

namespace detail
{

/* A C string. It refuses an inner NUL, because C would cut the text there. */
class text
{
  public:
    explicit text(std::string_view s) : s_(s)
    {
        if (s.find('\0') != std::string_view::npos)
            throw error(CKPT_EUSAGE, "a text with a NUL inside: " + std::string(s.data()));
    }
    const char *get() const noexcept
    {
        return s_.c_str();
    }
    /* For options: "" becomes NULL. */
    const char *or_null() const noexcept
    {
        return s_.empty() ? nullptr : s_.c_str();
    }

  private:
    std::string s_;
};

/* A NULL-terminated list for C; the strings stay where they are. */
class texts
{
  public:
    explicit texts(const std::vector<std::string> &from)
    {
        for (const std::string &s : from) {
            if (s.find('\0') != std::string::npos)
                throw error(CKPT_EUSAGE, "a text with a NUL inside: " + std::string(s.c_str()));
            list_.push_back(s.c_str());
        }
        list_.push_back(nullptr);
    }
    const char *const *or_null() const noexcept
    {
        return list_.size() == 1 ? nullptr : list_.data();
    }

  private:
    std::vector<const char *> list_;
};

inline std::string_view view(const char *s) noexcept
{
    return s ? std::string_view(s) : std::string_view();
}

/*
 * Carries an exception of a callback through C code: `call` stores it and makes the callback stop
 * the C function; rethrow throws it after that function has returned. Callbacks of one call never
 * run at the same time.
 */
class relay
{
  public:
    /* f returns true to go on; the result is then 0 */
    template <class F> int call(F &&f) noexcept
    {
        try {
            const std::lock_guard<std::mutex> hold(lock_);
            if (thrown_)
                return 1;
            try {
                return f() ? 0 : 1;
            } catch (...) {
                thrown_ = std::current_exception();
            }
        } catch (...) {
        }
        return 1;
    }
    void rethrow() const
    {
        if (thrown_)
            std::rethrow_exception(thrown_);
    }

  private:
    std::mutex lock_;
    std::exception_ptr thrown_;
};

/* run_options for one call of C. */
class run
{
  public:
    run(relay &r, const run_options &from) : relay_(r), from_(from), opts_(from)
    {
        opts_.progress = progress;
        opts_.progress_ctx = this;
    }
    run(const run &) = delete;
    run &operator=(const run &) = delete;
    const ckpt_run_opts *get() const noexcept
    {
        return &opts_;
    }

  private:
    static int progress(void *ctx, std::uint64_t done, std::uint64_t total) noexcept
    {
        const run *r = static_cast<const run *>(ctx);

        return r->relay_.call([&] {
            if (r->from_.on_progress)
                return r->from_.on_progress(done, total);
            return !r->from_.progress || r->from_.progress(r->from_.progress_ctx, done, total) == 0;
        });
    }
    relay &relay_;
    const run_options &from_;
    ckpt_run_opts opts_;
};

/*
 * The caller's side of ckpt_open_input. It stores an exception of the read function for the C++
 * call that fails because of it.
 */
class input
{
  public:
    explicit input(read_at_fn read) : read_(std::move(read))
    {
    }
    static int read_at(void *ctx, void *buf, std::uint64_t n, std::uint64_t at) noexcept
    {
        input *in = static_cast<input *>(ctx);

        try {
            in->read_(span<std::byte>(static_cast<std::byte *>(buf), static_cast<std::size_t>(n)),
                      at);
            return 0;
        } catch (const std::system_error &e) {
            in->keep();
            return e.code().category() == std::generic_category() && e.code().value() > 0
                       ? e.code().value()
                       : EIO;
        } catch (...) {
            in->keep();
            return EIO;
        }
    }
    void rethrow() const
    {
        const std::lock_guard<std::mutex> hold(lock_);
        if (thrown_)
            std::rethrow_exception(thrown_);
    }

  private:
    void keep() noexcept
    {
        try {
            const std::lock_guard<std::mutex> hold(lock_);
            thrown_ = std::current_exception();
        } catch (...) {
        }
    }
    read_at_fn read_;
    mutable std::mutex lock_;
    std::exception_ptr thrown_;
};

inline void check(int rc, const ckpt_err &err, std::string_view path = {},
                  std::string_view tensor = {})
{
    if (rc != CKPT_OK)
        throw error(rc, err.text[0] ? err.text : ckpt_err_text(rc), path, tensor, err.sys);
}

inline ckpt_run_report new_report() noexcept
{
    ckpt_run_report r = ckpt_run_report();

    r.size = sizeof r;
    return r;
}

/* a * b as a number of elements or bytes; throws if memory cannot have that many. */
inline std::size_t product(std::uint64_t a, std::uint64_t b)
{
    if (b != 0 && a > std::numeric_limits<std::size_t>::max() / 2 / b)
        throw error(CKPT_ELIMIT, "more bytes than memory can have");
    return static_cast<std::size_t>(a * b);
}

/* Bytes of n elements without gaps. */
inline std::size_t bytes_of(ckpt_dtype d, std::uint64_t n)
{
    unsigned bytes = 0, bits = ckpt_dtype_bits(d), block = ckpt_dtype_block(d, &bytes);

    if (bits)
        return (product(n, bits) + 7) / 8;
    if (block == 0 || n % block)
        throw error(CKPT_EUSAGE, "not a whole number of blocks of " + std::string(dtype_name(d)));
    return product(n / block, bytes);
}

} // namespace detail
} // namespace cxx17 or cxx20
} // namespace ckpt

#endif
