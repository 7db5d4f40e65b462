/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_map.hpp: wraps an open checkpoint and its tensors.
 *
 * Programs include ckpt.hpp, which includes this header; it is installed beside it.
 */
#ifndef CKPT_MAP_HPP
#define CKPT_MAP_HPP

#include <initializer_list>
#include <iterator>
#include <optional>

#include "ckpt_types.hpp"

namespace ckpt
{
#if defined(__cpp_lib_span)
inline namespace cxx20
{
#else
inline namespace cxx17
{
#endif

namespace detail
{

/* The C map, and its reader if the caller supplies the bytes. Tensors point to this object and not
 * to the class map, so a map can be moved. */
struct origin {
    ckpt_map *map = nullptr;
    bool owned = true;
    std::unique_ptr<input> bytes;

    origin() = default;
    origin(const origin &) = delete;
    origin &operator=(const origin &) = delete;
    ~origin()
    {
        if (owned)
            ckpt_map_free(map);
    }
    /*
     * Throw an exception if rc is the code of a failure. If the caller's read function threw an
     * exception, throw that one again.
     */
    void check(int rc, const ckpt_err &err, std::string_view tensor = {}) const
    {
        if (rc == CKPT_EIO && bytes)
            bytes->rethrow();
        detail::check(rc, err, view(ckpt_map_path(map)), tensor);
    }
};

struct reader_free {
    void operator()(ckpt_reader *r) const noexcept
    {
        ckpt_reader_free(r);
    }
};

} // namespace detail

class tensor;

/*
 * The location of a piece of a tensor. It has one axis if the piece is contiguous in the tensor,
 * otherwise one for each axis of the tensor (ckpt_extent).
 */
struct piece {
    static constexpr std::uint64_t compressed = std::numeric_limits<std::uint64_t>::max();
    std::string_view path, record; /* record "": the format has no records */
    std::uint64_t at;              /* byte offset in the file, or compressed */
    std::vector<ckpt_axis> axes;
};

/* A part of a tensor, selected by slices. Only the read functions read its values. */
class part
{
  public:
    /* The size of each axis. */
    std::vector<std::uint64_t> shape() const
    {
        std::vector<std::uint64_t> out;
        for (const ckpt_slice &s : slices_)
            out.push_back(s.count);
        return out;
    }
    std::uint64_t size() const
    {
        std::uint64_t n = 1;
        for (const ckpt_slice &s : slices_)
            n *= s.count; /* cannot overflow: at most the tensor's elements */
        return n;
    }
    /* Read the elements of the part in row-major order, converted to T. */
    template <class T> std::vector<T> read() const;
    template <class T> void read_into(span<T> out) const;
    /* Read the part without conversion: the bytes of the tensor's own dtype. */
    std::vector<std::byte> read_bytes() const;

  private:
    friend class tensor;
    friend class reader;
    part(const detail::origin *from, const ckpt_tensor *t, span<const slice> want)
        : from_(from), t_(t)
    {
        if (want.size() > t->ndim)
            throw error(CKPT_EUSAGE, "there are more slices than axes",
                        detail::view(ckpt_map_path(from->map)), t->name);
        for (std::uint32_t i = 0; i < t->ndim; i++)
            slices_.push_back(clip(i < want.size() ? want[i] : slice(), t->shape[i]));
    }
    ckpt_slice clip(const slice &s, std::uint64_t n) const
    {
        std::uint64_t stop = s.stop < n ? s.stop : n;

        if (s.step == 0 || (s.single && s.start >= n))
            throw error(CKPT_EUSAGE,
                        s.step ? "a slice's index is past the end of its axis"
                               : "a slice has step 0",
                        detail::view(ckpt_map_path(from_->map)), t_->name);
        if (s.start >= stop)
            return ckpt_slice{0, 0, 1};
        return ckpt_slice{s.start, (stop - s.start - 1) / s.step + 1, s.step};
    }
    const detail::origin *from_;
    const ckpt_tensor *t_;
    std::vector<ckpt_slice> slices_;
};

/* A tensor of a map, valid as long as the map; only the read functions read its values. */
class tensor
{
  public:
    std::string_view name() const noexcept
    {
        return t_->name;
    }
    ckpt_dtype dtype() const noexcept
    {
        return t_->dtype;
    }
    span<const std::uint64_t> shape() const noexcept
    {
        return {t_->shape, t_->ndim};
    }
    std::uint64_t size() const noexcept
    {
        return t_->n_elems;
    }
    std::uint64_t bytes() const noexcept
    {
        return ckpt_tensor_bytes(t_);
    }
    ckpt_role role() const noexcept
    {
        return static_cast<ckpt_role>(t_->role);
    }
    /* For a tied tensor: the tensor that holds the bytes. */
    std::optional<tensor> owner() const
    {
        return t_->owner ? std::optional<tensor>(tensor(from_, t_->owner)) : std::nullopt;
    }
    /* The C struct with all members (ckpt_types.h). */
    const ckpt_tensor &raw() const noexcept
    {
        return *t_;
    }
    std::vector<piece> pieces() const
    {
        std::vector<piece> out;
        for (std::uint32_t i = 0; i < t_->n_extents; i++) {
            ckpt_box room;
            const ckpt_extent *e = ckpt_tensor_extent(t_, i, &room);
            const char *path = nullptr, *record = nullptr;
            std::uint64_t at = 0;
            if (ckpt_map_locate(from_->map, e, &path, &record, &at))
                out.push_back(piece{detail::view(path), detail::view(record), at,
                                    std::vector<ckpt_axis>(e->axis, e->axis + e->ndim)});
        }
        return out;
    }
    /* Select a part: t({{0, 2}, {}, slice::at(3)}). {} and axes that are not listed are whole. */
    part operator()(std::initializer_list<slice> want) const
    {
        return part(from_, t_, span<const slice>(want.begin(), want.size()));
    }
    part operator()(span<const slice> want) const
    {
        return part(from_, t_, want);
    }
    /* Read all elements in row-major order, converted to T. */
    template <class T> std::vector<T> read() const;
    template <class T> void read_into(span<T> out) const;
    /* Read all elements without conversion: the bytes of the tensor's own dtype. */
    std::vector<std::byte> read_bytes() const;

  private:
    friend class map;
    friend class map_iterator;
    friend class reader;
    friend struct difference_access;
    tensor(const detail::origin *from, const ckpt_tensor *t) noexcept : from_(from), t_(t)
    {
    }
    void read_all(ckpt_dtype dtype, void *out) const
    {
        ckpt_err err = ckpt_err();

        if (size() > 0)
            from_->check(ckpt_tensor_read(from_->map, t_, dtype, out, &err), err, name());
    }
    const detail::origin *from_;
    const ckpt_tensor *t_;
};

/* Iterates over a map's tensors and returns them by value. */
class map_iterator
{
  public:
    using iterator_category = std::input_iterator_tag;
    using iterator_concept = std::forward_iterator_tag;
    using value_type = tensor;
    using difference_type = std::ptrdiff_t;
    using reference = tensor;
    using pointer = void;

    map_iterator() noexcept = default;
    tensor operator*() const
    {
        return tensor(from_, ckpt_map_tensor_at(from_->map, i_));
    }
    map_iterator &operator++() noexcept
    {
        i_++;
        return *this;
    }
    map_iterator operator++(int) noexcept
    {
        map_iterator was = *this;
        i_++;
        return was;
    }
    friend bool operator==(const map_iterator &a, const map_iterator &b) noexcept
    {
        return a.from_ == b.from_ && a.i_ == b.i_;
    }
    friend bool operator!=(const map_iterator &a, const map_iterator &b) noexcept
    {
        return !(a == b);
    }

  private:
    friend class map;
    map_iterator(const detail::origin *from, std::size_t i) noexcept : from_(from), i_(i)
    {
    }
    const detail::origin *from_ = nullptr;
    std::size_t i_ = 0;
};

/* A node of the tree of values. It converts to false if the node does not exist. */
class value
{
  public:
    explicit value(const ckpt_value *v = nullptr) noexcept : v_(v)
    {
    }
    explicit operator bool() const noexcept
    {
        return v_ != nullptr;
    }
    ckpt_kind kind() const noexcept
    {
        return ckpt_value_type(v_);
    }
    std::optional<std::int64_t> to_int() const noexcept
    {
        std::int64_t out = 0;
        return ckpt_value_to_int(v_, &out) ? std::optional<std::int64_t>(out) : std::nullopt;
    }
    std::optional<double> to_float() const noexcept
    {
        double out = 0;
        return ckpt_value_to_float(v_, &out) ? std::optional<double>(out) : std::nullopt;
    }
    /* The bytes of a text or a bytes value. */
    std::optional<std::string_view> to_text() const noexcept
    {
        const char *s = nullptr;
        std::size_t n = 0;
        if (!ckpt_value_to_text(v_, &s, &n))
            return std::nullopt;
        return std::string_view(s, n);
    }
    /* For a list or dict: the number of items, item i and its key, and the item of a text key. */
    std::size_t size() const noexcept
    {
        return ckpt_value_count(v_);
    }
    value item(std::size_t i) const noexcept
    {
        return value(ckpt_value_at(v_, i));
    }
    value key(std::size_t i) const noexcept
    {
        return value(ckpt_value_key_at(v_, i));
    }
    value operator[](std::string_view key) const
    {
        return value(ckpt_value_find(v_, detail::text(key).get()));
    }

  private:
    const ckpt_value *v_;
};

struct file {
    std::string_view path;
    std::uint64_t bytes;
};
struct fact {
    std::string_view key, text;
    bool is_number;
};
/* severity 0: information, 1: warning, 2: error with its code */
struct finding {
    int severity, code;
    std::string_view text;
};
struct metadata {
    std::string_view key, text;
};
struct tree_options {
    ckpt_tree_format format = CKPT_TREE_TEXT;
    std::string path; /* of the sub-tree to print; "": the whole tree */
    unsigned max_depth = 0;
    std::uint64_t max_items = 0;
};

/*
 * An open checkpoint, or a target map. Its texts, spans, tensors and values live as long as it
 * does, and survive a move of it. A map that was moved from is empty.
 */
class map
{
  public:
    map() noexcept = default;

    /* Own a C handle: the destructor frees it. */
    static map adopt(ckpt_map *m)
    {
        return map(m, true);
    }
    /* Use a C handle without owning it. */
    static map borrow(const ckpt_map *m)
    {
        return map(const_cast<ckpt_map *>(m), false);
    }
    /* Create an empty map, for arrays in memory. Messages call it `name`. */
    static map create(std::string_view name)
    {
        ckpt_map *m = nullptr;
        ckpt_err err = ckpt_err();
        const int rc = ckpt_map_new(&m, detail::text(name).get(), &err);

        detail::check(rc, err, name);
        return adopt(m);
    }
    /* The C handle; NULL after a move from this object. */
    ckpt_map *get() const noexcept
    {
        return from_ ? from_->map : nullptr;
    }

    std::string_view path() const noexcept
    {
        return detail::view(ckpt_map_path(get()));
    }
    std::string_view format() const noexcept
    {
        return detail::view(ckpt_map_format(get()));
    }
    /* The CKPT_USED_* flags of the options that had an effect. */
    unsigned used_options() const noexcept
    {
        return ckpt_map_used_options(get());
    }

    std::size_t size() const noexcept
    {
        return ckpt_map_tensor_count(get());
    }
    bool empty() const noexcept
    {
        return size() == 0;
    }
    map_iterator begin() const noexcept
    {
        return map_iterator(from_.get(), 0);
    }
    map_iterator end() const noexcept
    {
        return map_iterator(from_.get(), size());
    }
    std::optional<tensor> find(std::string_view name) const
    {
        const ckpt_tensor *t = ckpt_map_find(get(), detail::text(name).get());
        return t ? std::optional<tensor>(tensor(from_.get(), t)) : std::nullopt;
    }
    /* Errors   CKPT_EMISSING */
    tensor operator[](std::string_view name) const
    {
        if (std::optional<tensor> t = find(name))
            return *t;
        throw error(CKPT_EMISSING, std::string(path()) + ": no tensor '" + std::string(name) + "'",
                    path(), name);
    }

    std::vector<file> files() const
    {
        std::vector<file> out;
        for (std::size_t i = 0; i < ckpt_map_file_count(get()); i++)
            out.push_back(
                file{detail::view(ckpt_map_file_path(get(), i)), ckpt_map_file_size(get(), i)});
        return out;
    }
    std::vector<fact> facts() const
    {
        std::vector<fact> out;
        out.reserve(ckpt_map_fact_count(get()));
        const char *key = nullptr, *text = nullptr;
        bool number = false;
        for (std::size_t i = 0; ckpt_map_fact_at(get(), i, &key, &text, &number); i++)
            out.push_back(fact{key, text, number});
        return out;
    }
    std::vector<finding> findings() const
    {
        std::vector<finding> out;
        out.reserve(ckpt_map_finding_count(get()));
        const char *text = nullptr;
        int severity = 0, code = 0;
        for (std::size_t i = 0; ckpt_map_finding_at(get(), i, &severity, &code, &text); i++)
            out.push_back(finding{severity, code, text});
        return out;
    }
    std::vector<ckpt::metadata> metadata() const
    {
        std::vector<ckpt::metadata> out;
        out.reserve(ckpt_map_metadata_count(get()));
        const char *key = nullptr, *text = nullptr;
        for (std::size_t i = 0; ckpt_map_metadata_at(get(), i, &key, &text); i++)
            out.push_back(ckpt::metadata{key, text});
        return out;
    }
    ckpt_training_info training_info() const noexcept
    {
        ckpt_training_info out = ckpt_training_info();
        out.size = sizeof out;
        ckpt_map_training_info(get(), &out);
        return out;
    }
    /* The root of the tree. */
    value values() const noexcept
    {
        return value(ckpt_map_values(get()));
    }
    /* Print the tree, piece by piece; fn returns false to stop (CKPT_ECANCELED). */
    void print_tree(const tree_options &o, const std::function<bool(std::string_view)> &fn) const;
    std::string tree_text(const tree_options &o = tree_options()) const
    {
        std::string out;
        print_tree(o, [&out](std::string_view s) {
            out += s;
            return true;
        });
        return out;
    }
    /* Throw an exception unless the files have each element exactly once. */
    void check() const
    {
        ckpt_err err = ckpt_err();
        done(ckpt_map_check(get(), &err), err);
    }

    /* For target maps: ckpt_map_output_dir, _folder and _pointer, or "". */
    std::string_view output_dir() const noexcept
    {
        return detail::view(ckpt_map_output_dir(get()));
    }
    std::string_view output_folder() const noexcept
    {
        return detail::view(ckpt_map_output_folder(get()));
    }
    std::string_view output_pointer() const noexcept
    {
        return detail::view(ckpt_map_output_pointer(get()));
    }

    /*
     * Add an array to a map from create(). The caller owns the data and keeps them unchanged until
     * the map is destroyed. Throws CKPT_EUSAGE if shape and data have different numbers of
     * elements.
     */
    template <class T>
    void put(std::string_view name, span<const T> data, span<const std::uint64_t> shape)
    {
        put_bytes(name, dtype_of<T>(), span<const std::byte>(as_bytes(data)), shape);
    }
    void put_bytes(std::string_view name, ckpt_dtype dtype, span<const std::byte> data,
                   span<const std::uint64_t> shape);
    void put_metadata(std::string_view key, std::string_view text)
    {
        ckpt_err err = ckpt_err();
        done(ckpt_map_put_metadata(get(), detail::text(key).get(), detail::text(text).get(), &err),
             err);
    }

    /* For ckpt.hpp: throw an exception if rc is a failure of a call with this map. */
    void done(int rc, const ckpt_err &err, std::string_view name = {}) const
    {
        if (from_)
            from_->check(rc, err, name);
        else
            detail::check(rc, err, {}, name);
    }
    const detail::origin *from() const noexcept
    {
        return from_.get();
    }

  private:
    friend map open(std::string_view, std::uint64_t, read_at_fn, const open_options &);
    map(ckpt_map *m, bool owned) : from_(std::make_unique<detail::origin>())
    {
        from_->map = m;
        from_->owned = owned;
    }
    template <class T> static span<const std::byte> as_bytes(span<const T> data) noexcept
    {
        return {reinterpret_cast<const std::byte *>(data.data()), data.size() * sizeof(T)};
    }
    std::unique_ptr<detail::origin> from_;
};

inline void map::print_tree(const tree_options &o,
                            const std::function<bool(std::string_view)> &fn) const
{
    struct call {
        const std::function<bool(std::string_view)> &fn;
        detail::relay relay;
        static int write(void *ctx, const char *text, std::size_t n) noexcept
        {
            call *c = static_cast<call *>(ctx);
            return c->relay.call([&] { return c->fn(std::string_view(text, n)); });
        }
    } c{fn, {}};
    const detail::text path(o.path);
    ckpt_tree_opts opts = ckpt_tree_opts();
    ckpt_err err = ckpt_err();

    opts.size = sizeof opts;
    opts.format = o.format;
    opts.path = path.or_null();
    opts.max_depth = o.max_depth;
    opts.max_items = o.max_items;
    const int rc = ckpt_tree_print(get(), &opts, call::write, &c, &err);
    c.relay.rethrow();
    done(rc, err);
}

inline void map::put_bytes(std::string_view name, ckpt_dtype dtype, span<const std::byte> data,
                           span<const std::uint64_t> shape)
{
    const detail::text terminated(name);
    ckpt_array array = ckpt_array();
    ckpt_err err = ckpt_err();
    std::uint64_t n = 1;

    for (std::uint64_t axis : shape)
        n = detail::product(n, axis);
    if (detail::bytes_of(dtype, n) != data.size())
        throw error(CKPT_EUSAGE,
                    std::string(name) + ": " + std::to_string(data.size()) +
                        " bytes of data, but its shape needs " +
                        std::to_string(detail::bytes_of(dtype, n)),
                    path(), name);
    array.size = sizeof array;
    array.name = terminated.get();
    array.dtype = dtype;
    array.ndim = static_cast<std::uint32_t>(shape.size());
    array.shape = shape.data();
    array.data = data.data();
    done(ckpt_map_put(get(), &array, &err), err, name);
}

/*
 * Open a checkpoint of any format; it reads only headers.
 *
 * Errors   those of ckpt_open, with the path
 */
inline map open(std::string_view path, const open_options &opts = open_options())
{
    ckpt_map *m = nullptr;
    ckpt_err err = ckpt_err();
    const int rc = ckpt_open(&m, detail::text(path).get(), &opts, &err);

    detail::check(rc, err, path);
    return map::adopt(m);
}

/*
 * Open a file of n_bytes bytes that the function `read` reads. An exception that it throws reaches
 * the caller of the function that needed the bytes.
 */
inline map open(std::string_view name, std::uint64_t n_bytes, read_at_fn read,
                const open_options &opts = open_options())
{
    map out(nullptr, true);
    ckpt_input in = ckpt_input();
    ckpt_err err = ckpt_err();

    out.from_->bytes = std::make_unique<detail::input>(std::move(read));
    in.size = sizeof in;
    in.n_bytes = n_bytes;
    in.read_at = detail::input::read_at;
    in.ctx = out.from_->bytes.get();
    const int rc = ckpt_open_input(&out.from_->map, detail::text(name).get(), &in, &opts, &err);
    if (rc == CKPT_EIO)
        out.from_->bytes->rethrow();
    detail::check(rc, err, name);
    return out;
}

} // namespace cxx17 or cxx20
} // namespace ckpt

#endif
