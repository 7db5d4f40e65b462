/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_reader.hpp: reads values of a map's tensors, and of parts of them.
 *
 * Programs include ckpt.hpp, which includes this header; it is installed beside it.
 */
#ifndef CKPT_READER_HPP
#define CKPT_READER_HPP

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

/* Reads values of one map, which must outlive it; use one reader per thread. */
class reader
{
  public:
    explicit reader(const map &m) : reader(m.from())
    {
    }
    /* Do not check CRCs of records stored uncompressed: see ckpt_reader_skip_crc. */
    void skip_crc() noexcept
    {
        ckpt_reader_skip_crc(r_.get());
    }

    /*
     * From now on, compare elements that are read with their other copies: see ckpt_reader_compare.
     */
    void compare() noexcept
    {
        ckpt_reader_compare(r_.get());
    }
    /* Read out.size() elements from `first` of the tensor flattened row-major. */
    template <class T> void read(const tensor &t, span<T> out, std::uint64_t first = 0)
    {
        stretch(t, first, out.size(), dtype_of<T>(), out.data());
    }
    template <class T> void read(const part &p, span<T> out)
    {
        if (out.size() != p.size())
            throw error(CKPT_EUSAGE,
                        "the buffer holds " + std::to_string(out.size()) +
                            " elements, but the part has " + std::to_string(p.size()),
                        detail::view(ckpt_map_path(from_->map)), p.t_->name);
        box(p, dtype_of<T>(), out.data());
    }
    template <class T> std::vector<T> read(const tensor &t)
    {
        std::vector<T> out(room<T>(t.size()));
        read(t, span<T>(out));
        return out;
    }
    template <class T> std::vector<T> read(const part &p)
    {
        std::vector<T> out(room<T>(p.size()));
        read(p, span<T>(out));
        return out;
    }
    /*
     * Read elements start[k]..start[k]+count[k]-1 of each axis k into out, as ckpt_reader_read_box:
     * strides are bytes per axis; {}: row-major and dense.
     */
    template <class T>
    void read_box(const tensor &t, span<const std::uint64_t> start, span<const std::uint64_t> count,
                  span<T> out, span<const std::int64_t> stride = {})
    {
        ckpt_err err = ckpt_err();

        mine(t.from_, t.t_->name);
        box_fits(t, start, count, stride, sizeof(T), out.size() * sizeof(T));
        from_->check(ckpt_reader_read_box(r_.get(), t.t_, start.data(), count.data(), dtype_of<T>(),
                                          out.data(), stride.empty() ? nullptr : stride.data(),
                                          &err),
                     err, t.name());
    }
    /* Read without conversion: the bytes of the tensor's own dtype. */
    std::vector<std::byte> read_bytes(const tensor &t)
    {
        std::vector<std::byte> out(detail::bytes_of(t.dtype(), t.size()));
        stretch(t, 0, t.size(), CKPT_DTYPE_NONE, out.data());
        return out;
    }
    std::vector<std::byte> read_bytes(const part &p)
    {
        std::vector<std::byte> out(detail::bytes_of(p.t_->dtype, p.size()));
        box(p, CKPT_DTYPE_NONE, out.data());
        return out;
    }

  private:
    friend class tensor;
    friend class part;
    explicit reader(const detail::origin *from) : from_(from)
    {
        ckpt_reader *r = nullptr;
        ckpt_err err = ckpt_err();
        const int rc = ckpt_reader_new(&r, from ? from->map : nullptr, &err);

        detail::check(rc, err);
        r_.reset(r);
    }
    template <class T> static std::size_t room(std::uint64_t n)
    {
        return detail::product(n, sizeof(T)) / sizeof(T);
    }
    void mine(const detail::origin *from, const char *name) const
    {
        if (from != from_)
            throw error(CKPT_EUSAGE, "the tensor belongs to another map",
                        detail::view(ckpt_map_path(from_->map)), name);
    }
    void stretch(const tensor &t, std::uint64_t first, std::uint64_t n, ckpt_dtype dtype, void *out)
    {
        ckpt_err err = ckpt_err();

        mine(t.from_, t.t_->name);
        if (n == 0)
            return;
        from_->check(ckpt_reader_read(r_.get(), t.t_, first, n, dtype, out, &err), err, t.name());
    }
    /*
     * Throw an exception unless start, count and stride have a number for each axis, and the last
     * element fits into `room` bytes. The C function checks the rest.
     */
    void box_fits(const tensor &t, span<const std::uint64_t> start, span<const std::uint64_t> count,
                  span<const std::int64_t> stride, std::uint64_t wide, std::uint64_t room) const
    {
        const std::size_t n = t.shape().size();
        std::uint64_t end = wide;
        bool fits =
            start.size() == n && count.size() == n && (stride.empty() || stride.size() == n);

        for (std::size_t k = 0; fits && k < n; k++)
            if (count[k] == 0)
                return;
        fits = fits && end <= room;
        for (std::size_t k = n; fits && k-- > 0;) {
            std::uint64_t by = end; /* dense: all elements of the later axes */
            if (!stride.empty())
                by = stride[k] > 0 ? static_cast<std::uint64_t>(stride[k]) : 0;
            fits = by == 0 || (room - end) / by >= count[k] - 1;
            end += by * (count[k] - 1);
        }
        if (!fits)
            throw error(CKPT_EUSAGE,
                        "start, count or stride lacks an axis, or the buffer is too small",
                        detail::view(ckpt_map_path(from_->map)), t.name());
    }
    void box(const part &p, ckpt_dtype dtype, void *out)
    {
        ckpt_err err = ckpt_err();

        mine(p.from_, p.t_->name);
        if (p.size() == 0)
            return;
        from_->check(ckpt_reader_read_slice(r_.get(), p.t_, p.slices_.data(), dtype, out, &err),
                     err, p.t_->name);
    }
    const detail::origin *from_;
    std::unique_ptr<ckpt_reader, detail::reader_free> r_;
};

template <class T> std::vector<T> tensor::read() const
{
    std::vector<T> out(detail::product(size(), sizeof(T)) / sizeof(T));
    read_all(dtype_of<T>(), out.data());
    return out;
}
template <class T> void tensor::read_into(span<T> out) const
{
    if (out.size() != size())
        throw error(CKPT_EUSAGE,
                    "the buffer holds " + std::to_string(out.size()) +
                        " elements, but the tensor has " + std::to_string(size()),
                    detail::view(ckpt_map_path(from_->map)), name());
    read_all(dtype_of<T>(), out.data());
}
inline std::vector<std::byte> tensor::read_bytes() const
{
    std::vector<std::byte> out(detail::bytes_of(dtype(), size()));
    read_all(CKPT_DTYPE_NONE, out.data());
    return out;
}
template <class T> std::vector<T> part::read() const
{
    return reader(from_).read<T>(*this);
}
template <class T> void part::read_into(span<T> out) const
{
    reader(from_).read(*this, out);
}
inline std::vector<std::byte> part::read_bytes() const
{
    return reader(from_).read_bytes(*this);
}

} // namespace cxx17 or cxx20
} // namespace ckpt

#endif
