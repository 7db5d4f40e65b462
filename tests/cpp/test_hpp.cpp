/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hpp.cpp: ckpt.hpp, used as a program would.  What arrays hold is computed here; real
 * checkpoints come from CKPT_FIXTURES.
 */
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <thread>

#include "ckpt.hpp"

/* of second.cpp, which is compiled as C++17 */
std::size_t second_count(const char *path);
bool second_throws(const char *path, int *code);

namespace fs = std::filesystem;
using std::uint64_t;

static int passed, failed;
static std::string fixtures, scratch;

static void check(bool ok, const char *what, int line)
{
    (ok ? passed : failed)++;
    if (!ok)
        std::printf("FAIL line %d: %s\n", line, what);
}
#define CHECK(x) check((x), #x, __LINE__)

/* The code that a call throws; 1: none. */
template <class F> static int code_of(F &&f)
{
    try {
        f();
    } catch (const ckpt::error &e) {
        return e.code();
    }
    return 1;
}

struct mine : std::runtime_error {
    mine() : std::runtime_error("mine")
    {
    }
};

/* A call lets out what its callback throws. */
template <class F> static bool throws_mine(F &&f)
{
    try {
        f();
    } catch (const mine &) {
        return true;
    } catch (...) {
    }
    return false;
}

static std::string fixture(const char *name)
{
    return fixtures + "/" + name;
}

static std::string place(const char *name)
{
    return scratch + "/" + name;
}

static std::string slurp(const std::string &path)
{
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/* 4 x 6 x 5 elements, each its own index. */
static std::vector<float> numbers()
{
    std::vector<float> out(120);
    std::iota(out.begin(), out.end(), 0.0f);
    return out;
}
static const std::vector<uint64_t> cube = {4, 6, 5};

/* ---- reading ---- */

static void a_map_of_memory_is_written_and_read(void)
{
    const std::vector<float> data = numbers();
    const std::vector<std::int64_t> steps = {-7};
    const std::string out = place("cube.safetensors");
    ckpt::map m = ckpt::map::create("memory");

    m.put<float>("cube", data, cube);
    m.put<std::int64_t>("steps", steps, {});
    m.put_metadata("format", "pt");
    CHECK(m.size() == 2 && !m.empty());
    CHECK(code_of([&] { m.put<float>("cube", data, cube); }) == CKPT_EFORMAT);
    CHECK(code_of([&] { m.put<float>("short", data, std::vector<uint64_t>{121}); }) == CKPT_EUSAGE);
    CHECK(ckpt::target("safetensors", out).path() == out);
    const ckpt_run_report r = ckpt::convert(m, ckpt::target("safetensors", out));
    CHECK(r.n_tensors == 2 && r.n_elems == 121 && r.n_files == 1);

    const ckpt::map back = ckpt::open(out);
    CHECK(back.path() == out && back.format() == "safetensors");
    CHECK(back["cube"].read<float>() == data);
    CHECK(back["steps"].read<std::int64_t>() == steps);
    CHECK(back["steps"].shape().size() == 0 && back["steps"].size() == 1);
    CHECK(back.metadata().size() == 1 && back.metadata()[0].text == "pt");
    CHECK(back.files().size() == 1 && back.files()[0].bytes == fs::file_size(out));
    CHECK(ckpt::diff(m, back));
}

static void slices_are_lazy(void)
{
    const std::vector<float> data = numbers();
    ckpt::map m = ckpt::map::create("memory");
    m.put<float>("cube", data, cube);
    const ckpt::tensor t = m["cube"];
    std::vector<float> want;

    for (unsigned i = 1; i < 3; i++)
        for (unsigned j = 0; j < 6; j += 2)
            for (unsigned k = 4; k < 5; k++)
                want.push_back(data[(i * 6 + j) * 5 + k]);
    const ckpt::part p = t({{1, 3}, {0, ckpt::slice::end, 2}, ckpt::slice::at(4)});
    CHECK((p.shape() == std::vector<uint64_t>{2, 3, 1}) && p.size() == 6);
    CHECK(p.read<float>() == want);
    CHECK(p.read<double>() == std::vector<double>(want.begin(), want.end()));
    CHECK(p.read_bytes().size() == 24 && std::memcmp(p.read_bytes().data(), want.data(), 24) == 0);
    CHECK(t({}).read<float>() == data);
    CHECK(t({ckpt::slice::at(3)}).size() == 30);
    CHECK(t({{2, 99}}).size() == 60);
    CHECK(t({{9, 99}}).size() == 0 && t({{9, 99}}).read<float>().empty());
    CHECK(t({{3, 1}}).size() == 0);
    CHECK(code_of([&] { t({ckpt::slice::at(4)}); }) == CKPT_EUSAGE);
    CHECK(code_of([&] { t({ckpt::slice::at(ckpt::slice::end)}); }) == CKPT_EUSAGE);
    CHECK(code_of([&] { t({{0, 4, 0}}); }) == CKPT_EUSAGE);
    CHECK(code_of([&] { t({{}, {}, {}, {}}); }) == CKPT_EUSAGE);
    std::vector<float> room(5);
    CHECK(code_of([&] { p.read_into(ckpt::span<float>(room)); }) == CKPT_EUSAGE);
    CHECK(code_of([&] { t.read_into(ckpt::span<float>(room)); }) == CKPT_EUSAGE);
    ckpt::reader r(m);
    r.read(t, ckpt::span<float>(room), 115);
    CHECK(std::equal(room.begin(), room.end(), data.begin() + 115));
    CHECK(code_of([&] { r.read(t, ckpt::span<float>(room), 116); }) == CKPT_EUSAGE);
    ckpt::map other = ckpt::map::create("other");
    CHECK(code_of([&] { ckpt::reader(other).read<float>(t); }) == CKPT_EUSAGE);
}

/* A box into a layout of the caller's: columns first, with room between them. */
static void boxes_go_where_they_should(void)
{
    const std::vector<float> data = numbers(), one = {5};
    ckpt::map m = ckpt::map::create("memory");
    m.put<float>("cube", data, cube);
    m.put<float>("one", one, {});
    const ckpt::tensor t = m["cube"];
    const std::vector<uint64_t> start = {1, 2, 0}, count = {2, 3, 5}, none = {2, 0, 5};
    const std::vector<std::int64_t> stride = {8, 16, 56};
    std::vector<double> out(35, -1), dense(30);
    ckpt::reader r(m);

    r.read_box(t, start, count, ckpt::span<double>(out), stride);
    for (unsigned x = 0; x < 7; x++)
        for (unsigned z = 0; z < 5; z++)
            CHECK(out[z * 7 + x] ==
                  (x < 6 ? double(data[((1 + x % 2) * 6 + 2 + x / 2) * 5 + z]) : -1.0));
    r.read_box(t, start, count, ckpt::span<double>(dense));
    CHECK(dense == t({{1, 3}, {2, 5}}).read<double>());
    r.read_box(t, start, none, ckpt::span<double>());
    r.read_box(m["one"], {}, {}, ckpt::span<double>(dense));
    CHECK(dense[0] == 5);

    const auto refused = [&](const std::vector<uint64_t> &n, std::size_t room,
                             const std::vector<std::int64_t> &by) {
        return code_of([&] {
                   r.read_box(t, start, n, ckpt::span<double>(out.data(), room), by);
               }) == CKPT_EUSAGE;
    };
    CHECK(refused(count, 33, stride) && refused(count, 29, {}) && refused({2, 3}, 30, {}));
    CHECK(refused(count, 35, {8, 16}) && refused(count, 35, {-8, 16, 56}));
    CHECK(refused(count, 35, {8, 16, 55 * (std::int64_t(1) << 57)}));
    CHECK(refused({2, 5, 1}, 35, {}) && refused(count, 35, {4, 16, 56}));
    ckpt::map other = ckpt::map::create("other");
    CHECK(code_of([&] {
              ckpt::reader(other).read_box(t, start, count, ckpt::span<double>(out));
          }) == CKPT_EUSAGE);
}

/* Extents, read by hand, hold what read() gives: of a ZeRO-3 run over 5 ranks. */
static void pieces_say_where(void)
{
    const ckpt::map m = ckpt::open(fixture("z3_bf16_w5_odd/ckpt"));
    const ckpt::tensor t = m["emb.weight"];
    std::vector<float> found(t.size(), -1.0f);
    const std::vector<float> read = t.read<float>();

    for (const ckpt::piece &p : t.pieces()) {
        const std::string bytes = slurp(std::string(p.path));
        CHECK(p.axes.size() == 1 && p.at != ckpt::piece::compressed && !p.record.empty());
        for (uint64_t i = 0; i < p.axes[0].count; i++)
            std::memcpy(&found[p.axes[0].start + i], bytes.data() + p.at + i * sizeof(float),
                        sizeof(float));
    }
    CHECK(t.pieces().size() > 1 && found == read);
    CHECK(t.dtype() == CKPT_F32 && t.bytes() == 644 && t.role() == CKPT_ROLE_WEIGHT);
    CHECK(t.shape()[0] == 23 && t.shape()[1] == 7);
    CHECK(!t.owner() && m["out.weight"].owner()->name() == "emb.weight");
    CHECK(m["empty"].read<float>().empty() && m["empty"].read_bytes().empty());
    m.check();
}

static void maps_say_what_they_are(void)
{
    ckpt::open_options o;
    o.with_optimizer = true;
    const ckpt::map m = ckpt::open(fixture("z3_bf16_w5_odd/ckpt"), o);
    std::vector<std::string> names;

    for (const ckpt::tensor t : m)
        names.emplace_back(t.name());
    CHECK(names.size() == m.size());
    CHECK(std::count(names.begin(), names.end(), "exp_avg/emb.weight") == 1);
    CHECK(m.find("exp_avg/emb.weight").has_value() && !m.find("nothing"));
    CHECK(m.training_info().stage == 3 && m.training_info().world == 5 &&
          m.training_info().training);
    const std::vector<ckpt::fact> facts = m.facts();
    CHECK(std::any_of(facts.begin(), facts.end(), [](const ckpt::fact &f) {
        return f.key == "stage" && f.text == "3" && f.is_number;
    }));
    CHECK((m.used_options() & CKPT_USED_STATE) != 0);
    try {
        (void)m["no.such"];
        CHECK(false);
    } catch (const ckpt::error &e) {
        CHECK(e.code() == CKPT_EMISSING && e.status() == 5 && e.tensor() == "no.such");
        CHECK(e.path() == m.path() && std::strstr(e.what(), "no.such"));
    }
    try {
        (void)ckpt::open("/no/such/checkpoint");
        CHECK(false);
    } catch (const ckpt::error &e) {
        const ckpt::error copy = e;
        CHECK(copy.code() == CKPT_EMISSING && copy.path() == "/no/such/checkpoint");
        CHECK(copy.what() == std::string(e.what()) && copy.tensor().empty());
    }
    CHECK(code_of([] { ckpt::open(std::string_view("a\0b", 3)); }) == CKPT_EUSAGE);
#if defined(__cpp_lib_ranges)
    static_assert(std::ranges::forward_range<const ckpt::map>);
#endif
}

static void values_form_a_tree(void)
{
    const ckpt::map m = ckpt::open(fixture("z1_bf16_w3_groups/ckpt"));
    const ckpt::value root = m.values()["model_states"];

    CHECK(root && root.kind() == CKPT_KIND_DICT && root.size() > 3);
    CHECK(root["global_steps"].to_int() == std::int64_t(m.training_info().step));
    CHECK(root["global_steps"].to_float().has_value());
    CHECK(root["ds_version"].to_text().has_value() && !root["ds_version"].to_int());
    CHECK(!root["no such key"] && root["no such key"].kind() == CKPT_KIND_NONE);
    CHECK(root.key(0).to_text() && root.item(0) && !root.item(100000));
    const std::string all = m.tree_text();
    ckpt::tree_options o;
    o.path = "model_states.global_steps";
    CHECK(all.find("ds_version") != std::string::npos && m.tree_text(o).size() < all.size());
    o.path = "no.such.path";
    CHECK(code_of([&] { m.tree_text(o); }) == CKPT_EMISSING);
    CHECK(throws_mine([&] {
        m.print_tree(ckpt::tree_options(), [](std::string_view) -> bool { throw mine(); });
    }));
    CHECK(code_of([&] {
              m.print_tree(ckpt::tree_options(), [](std::string_view) { return false; });
          }) == CKPT_ECANCELED);
}

static void handles_move(void)
{
    ckpt::map a = ckpt::open(fixture("z3_bf16_w5_odd/ckpt"));
    const ckpt::tensor t = a["conv.bias"];
    const ckpt::map b = std::move(a);

    CHECK(t.name() == "conv.bias" && t.read<float>() == b["conv.bias"].read<float>());
    // NOLINTNEXTLINE: what was moved away has nothing, and says so
    CHECK(a.empty() && a.path().empty() && a.begin() == a.end() && !a.find("conv.bias"));
    CHECK(code_of([&] { (void)a["conv.bias"]; }) == CKPT_EMISSING);
    CHECK(code_of([&] { a.check(); }) == CKPT_EUSAGE);
    CHECK(code_of([&] { ckpt::reader r(a); }) == CKPT_EUSAGE);
    CHECK(code_of([&] { ckpt::convert(a, ckpt::target("torch", place("x.pt"))); }) == CKPT_EUSAGE);
    static_assert(!std::is_copy_constructible_v<ckpt::map>);
    static_assert(std::is_nothrow_move_constructible_v<ckpt::map>);
    static_assert(!std::is_copy_constructible_v<ckpt::plan>);
    static_assert(!std::is_copy_constructible_v<ckpt::reader>);
    static_assert(!std::is_copy_constructible_v<ckpt::remap>);
    static_assert(std::is_nothrow_copy_constructible_v<ckpt::error>);
}

static void inputs_of_the_caller(void)
{
    ckpt::map m = ckpt::map::create("memory");
    const std::vector<float> data = numbers();
    m.put<float>("cube", data, cube);
    const std::string path = place("input.safetensors");
    ckpt::convert(m, ckpt::target("safetensors", path));
    const std::string bytes = slurp(path);
    auto bad = std::make_shared<std::atomic<bool>>(false);
    const auto read = [&bytes, bad](ckpt::span<std::byte> into, uint64_t at) {
        if (*bad)
            throw mine();
        std::memcpy(into.data(), bytes.data() + at, into.size());
    };

    ckpt::map in = ckpt::open("in.safetensors", bytes.size(), read);
    CHECK(in["cube"].read<float>() == data);
    *bad = true;
    CHECK(throws_mine([&] { (void)in["cube"].read<float>(); }));
    CHECK(throws_mine([&] { ckpt::convert(in, ckpt::target("torch", place("in.pt"))); }));
    CHECK(throws_mine([&] { ckpt::diff(m, in); }));
    CHECK(!fs::exists(place("in.pt")));
    CHECK(throws_mine([&] { ckpt::open("in.safetensors", bytes.size(), read); }));
}

static void threads_have_readers(void)
{
    const ckpt::map m = ckpt::open(fixture("z1_bf16_w3_groups/ckpt"));
    std::atomic<unsigned> equal{0};
    std::vector<std::thread> threads;
    std::vector<std::vector<std::byte>> want;

    for (const ckpt::tensor t : m)
        want.push_back(t.read_bytes());
    for (int i = 0; i < 3; i++)
        threads.emplace_back([&] {
            ckpt::reader r(m);
            std::size_t k = 0;
            bool same = true;
            r.skip_crc();
            for (const ckpt::tensor t : m)
                same = same && r.read_bytes(t) == want[k++];
            equal += same;
        });
    for (std::thread &t : threads)
        t.join();
    CHECK(equal == 3);
}

/* ---- operations ---- */

static void callbacks_stop_and_throw(void)
{
    const ckpt::map m = ckpt::open(fixture("z3_bf16_w5_odd/ckpt"));
    const ckpt::target to("safetensors", place("stopped.safetensors"));
    ckpt::run_options o;
    uint64_t calls = 0, last = 0;

    o.on_progress = [](uint64_t, uint64_t) -> bool { throw mine(); };
    CHECK(throws_mine([&] { ckpt::convert(m, to, o); }) && !fs::exists(to.path()));
    o.on_progress = [](uint64_t, uint64_t) { return false; };
    CHECK(code_of([&] { ckpt::convert(m, to, o); }) == CKPT_ECANCELED && !fs::exists(to.path()));
    o.on_progress = [&](uint64_t done, uint64_t total) {
        calls++;
        last = done;
        return done <= total;
    };
    ckpt::convert(m, to, o);
    CHECK(calls > 0 && last > 0 && fs::exists(to.path()));
    CHECK(ckpt::diff(m, ckpt::open(to.path())));
    CHECK(code_of([&] { ckpt::convert(m, to, o); }) == CKPT_EUSAGE);

    o = ckpt::run_options();
    o.force = true;
    o.progress = [](void *ctx, uint64_t, uint64_t) {
        return ++*static_cast<int *>(ctx) < 0 ? 1 : 0;
    };
    int plain = 0;
    o.progress_ctx = &plain;
    ckpt::convert(m, to, o);
    CHECK(plain > 0);
}

static void plans_in_steps(void)
{
    const ckpt::map m = ckpt::open(fixture("z3_bf16_w5_odd/ckpt"));
    ckpt::target to("hf", place("hf"));
    to.options.dtype = CKPT_BF16;
    to.check();
    ckpt::map laid = ckpt::layout(m, to);
    ckpt::plan p(m, laid);

    CHECK(laid["emb.weight"].dtype() == CKPT_BF16 && laid.output_dir() == place("hf"));
    CHECK(!laid.files().empty() && laid.output_folder().empty() && laid.output_pointer().empty());
    CHECK(p.sizes().write > 800 && p.sizes().read > p.sizes().write);
    CHECK(throws_mine([&] {
        ckpt::run_options o;
        o.on_progress = [](uint64_t, uint64_t) -> bool { throw mine(); };
        p.run(o);
    }));
    ckpt::map again = ckpt::layout(m, to);
    CHECK(ckpt::plan(m, again).run().n_files > 0);
    CHECK(ckpt::open(place("hf"))["emb.weight"].dtype() == CKPT_BF16);
    CHECK(code_of([] { ckpt::target("nonsense", "x").check(); }) == CKPT_EUSAGE);
    CHECK(code_of([] { ckpt::target(std::string_view("h\0f", 3), "x").check(); }) == CKPT_EUSAGE);
}

/* A view's bytes are those of the files that a run writes. */
static void views_are_what_is_written(void)
{
    const ckpt::map m = ckpt::open(fixture("z3_bf16_w5_odd/ckpt"));
    const ckpt::target to("hf", place("viewed"));
    ckpt::map laid = ckpt::layout(m, to), again = ckpt::layout(m, to);
    ckpt::view_options o;
    o.run.jobs = 2;
    o.check_first = true;
    const ckpt::view v(m, laid, o), streamed(m, again);
    std::size_t found = 0;

    ckpt::convert(m, to);
    for (const ckpt::file &f : v.files()) {
        const std::string want = slurp(place("viewed") + "/" + std::string(f.path));
        const std::size_t i = *v.find(f.path);
        std::vector<std::byte> got(f.bytes), late(f.bytes / 2);
        std::string all;

        v.read(i, ckpt::span<std::byte>(late), f.bytes - late.size());
        v.prefetch(i, f.bytes);
        CHECK(code_of([&] { v.prefetch(i, f.bytes, 1); }) == CKPT_EUSAGE);
        v.read(i, ckpt::span<std::byte>(got));
        streamed.stream(i, [&](ckpt::span<const std::byte> bytes) {
            all.append(reinterpret_cast<const char *>(bytes.data()), bytes.size());
            return true;
        });
        CHECK(want.size() == f.bytes && std::memcmp(got.data(), want.data(), want.size()) == 0);
        CHECK(std::memcmp(late.data(), want.data() + want.size() - late.size(), late.size()) == 0);
        CHECK(all == want);
        CHECK(code_of([&] { v.read(i, ckpt::span<std::byte>(late), f.bytes); }) == CKPT_EUSAGE);
        found++;
    }
    CHECK(found > 0 && found == v.size() && v[0].bytes > 0 && v[found].path.empty());
    CHECK(!v.find("nothing") && v.counts().n_held > 0 && v.counts().n_bad == 0);
    static_assert(!std::is_copy_constructible_v<ckpt::view>);
    const ckpt::map made = v.open(), written = ckpt::open(place("viewed"));
    CHECK(ckpt::diff(made, written) && ckpt::diff_values(made, written));
    std::size_t differ = 0;
    CHECK(!ckpt::diff_values(ckpt::open(fixture("gguf_mixtral/Q5_0.gguf")),
                             ckpt::open(fixture("gguf_bert/F16.gguf")),
                             [&](const ckpt::value_difference &d) {
                                 differ += d.counts && !d.path.empty() && d.a != d.b;
                                 return true;
                             }));
    CHECK(differ > 10);

    ckpt::map other = ckpt::layout(m, to), third = ckpt::layout(m, to);
    const ckpt::view stopped(m, other), threw(m, third);
    CHECK(code_of([&] { stopped.stream(0, [](ckpt::span<const std::byte>) { return false; }); }) ==
          CKPT_ECANCELED);
    CHECK(throws_mine(
        [&] { threw.stream(0, [](ckpt::span<const std::byte>) -> bool { throw mine(); }); }));
}

static void reshards(void)
{
    const std::string from = fixture("z3_bf16_w5_odd/ckpt"), run = place("run");
    ckpt::target to("zero", run);
    to.options.stage = 2;
    to.options.world = 2;
    ckpt::open_options state;
    state.with_optimizer = true;

    CHECK(code_of([&] { ckpt::reshard(from, ckpt::target("hf", run)); }) == CKPT_EUSAGE);
    const ckpt_run_report r = ckpt::reshard(from, to);
    CHECK(r.n_state_carried > 0);
    const ckpt::map a = ckpt::open(from, state), b = ckpt::open(run, state);
    CHECK(b.training_info().world == 2 && b.training_info().stage == 2);
    CHECK(ckpt::diff(a, b));

    std::string tags;
    bool sound = false;
    ckpt::doctor_options o;
    o.on_tag = [&](const ckpt_tag &t) {
        tags += t.name;
        return t.health == CKPT_TAG_WHOLE;
    };
    o.on_health = [&](const ckpt_run_health &h) {
        sound = h.code == CKPT_OK;
        return true;
    };
    ckpt::doctor(run, o);
    CHECK(tags == "global_step4" && sound);
    o.on_tag = [](const ckpt_tag &) -> bool { throw mine(); };
    CHECK(throws_mine([&] { ckpt::doctor(run, o); }));
    std::ofstream(run + "/latest") << "nowhere";
    unsigned problems = 0;
    o.on_tag = nullptr;
    o.on_problem = [&](std::string_view, int, std::string_view) { return ++problems > 0; };
    CHECK(code_of([&] { ckpt::doctor(run, o); }) == CKPT_EMISSING);
    o.fix_latest = true;
    ckpt::doctor(run, o);
    CHECK(slurp(run + "/latest").substr(0, 12) == "global_step4");
}

static void verifies(void)
{
    const std::string sound = fixture("z3_bf16_w5_odd/ckpt"), rotten = fixture("bad/ds/ds_bitflip");
    ckpt::verify_options o;
    std::size_t seen = 0;
    int errors = 0;

    o.open.whole_checkpoint = true;
    o.on_opened = [&](const ckpt::map &m) { seen = m.size(); };
    o.on_finding = [&](const ckpt::finding &f) {
        errors += f.severity == 2;
        return true;
    };
    CHECK(ckpt::verify(sound, o).n_records_checked > 10 && seen > 19 && errors == 0);
    CHECK(code_of([&] { ckpt::verify(rotten, o); }) == CKPT_EFORMAT && errors == 2);
    errors = 0;
    o.on_finding = [&](const ckpt::finding &f) { return (errors += f.severity == 2) == 0; };
    CHECK(code_of([&] { ckpt::verify(rotten, o); }) == CKPT_ECANCELED && errors == 1);
    o.on_finding = [](const ckpt::finding &) -> bool { throw mine(); };
    CHECK(throws_mine([&] { ckpt::verify(rotten, o); }));
    o.on_finding = nullptr;
    o.on_opened = [](const ckpt::map &) { throw mine(); };
    CHECK(throws_mine([&] { ckpt::verify(sound, o); }));
    o.on_opened = nullptr;
    o.run.on_progress = [](uint64_t, uint64_t) -> bool { throw mine(); };
    CHECK(throws_mine([&] { ckpt::verify(sound, o); }));
}

static void diffs(void)
{
    std::vector<float> data = numbers(), other = data;
    ckpt::map a = ckpt::map::create("a"), b = ckpt::map::create("b");
    ckpt::diff_options o;
    std::string found;

    a.put<float>("cube", data, cube);
    a.put<float>("mine", data, cube);
    other[7] += 0.5f;
    b.put<float>("cube", other, cube);
    o.on_difference = [&](const ckpt::difference &d) {
        found += std::string(d.name) + ": " + std::string(d.what) + "; ";
        if (d.what == "values")
            CHECK(d.first == 7 && d.n_different == 1 && d.max_abs == 0.5 && d.a && d.b &&
                  d.a->read<float>()[7] == 7.0f && d.b->read<float>()[7] == 7.5f);
        else
            CHECK(d.a && !d.b);
        return true;
    };
    CHECK(!ckpt::diff(a, b, o));
    CHECK(found == "cube: values; mine: only in A; ");
    o.on_difference = [](const ckpt::difference &) -> bool { throw mine(); };
    CHECK(throws_mine([&] { ckpt::diff(a, b, o); }));
    o.on_difference = nullptr;
    o.on_progress = [](uint64_t, uint64_t) -> bool { throw mine(); };
    const ckpt::map m = ckpt::open(fixture("z3_bf16_w5_odd/ckpt"));
    CHECK(throws_mine([&] { ckpt::diff(m, m, o); }));
    o.on_progress = [](uint64_t, uint64_t) { return false; };
    CHECK(code_of([&] { ckpt::diff(m, m, o); }) == CKPT_ECANCELED);
}

static void cleans(void)
{
    const std::string folder = place("left");
    std::string names;
    ckpt::clean_options o;

    fs::create_directory(folder);
    std::ofstream(folder + "/.m.pt.ckpt-abc123.tmp") << "half";
    o.force = true;
    o.on_leftover = [](const ckpt_leftover &) -> bool { throw mine(); };
    o.dry_run = true;
    CHECK(throws_mine([&] { ckpt::clean(folder, o); }));
    o.on_leftover = [&](const ckpt_leftover &l) {
        names += l.name;
        return true;
    };
    ckpt::clean(folder, o);
    CHECK(names == ".m.pt.ckpt-abc123.tmp" && !fs::is_empty(folder));
    o.dry_run = false;
    ckpt::clean(folder, o);
    CHECK(fs::is_empty(folder));
    CHECK(code_of([&] { ckpt::clean(folder + "/none"); }) == CKPT_EMISSING);
}

static void makes_manifests(void)
{
    const std::string out = place("hashed.npz");
    const ckpt::map m = ckpt::open(fixture("z3_bf16_w5_odd/ckpt"));
    const ckpt::hashes known;
    ckpt::run_options run;
    ckpt::manifest_options o;
    std::string texts;

    CHECK(!ckpt::manifest::find(fixture("z3_bf16_w5_odd/ckpt")));
    run.hashes = known.get();
    ckpt::convert(m, ckpt::target("npz", out), run);
    o.known = &known;
    const ckpt::manifest a = ckpt::manifest::make(out, o);
    o.known = nullptr;
    const ckpt::manifest b = ckpt::manifest::make(out, o);
    CHECK(a && a.equal(b) && a.files().size() == 1 && a.tensors().size() == b.tensors().size());
    CHECK(std::string(a.files()[0].sha256) == b.files()[0].sha256);
    a.write();
    CHECK(a.path() == out + ".manifest.json" && fs::exists(place("hashed.npz.manifest.sha256")));
    ckpt::manifest::find(out).check(out);
    CHECK(ckpt::manifest::hub_check(out) == 0);
    {
        std::fstream f(out, std::ios::in | std::ios::out | std::ios::binary);
        f.seekp(-1, std::ios::end);
        f.put('x');
    }
    o.on_finding = [&](const ckpt::finding &f) {
        texts += f.text;
        return true;
    };
    const ckpt::manifest c = ckpt::manifest::read(out + ".manifest.json");
    CHECK(code_of([&] { c.check(out, o); }) == CKPT_EDIGEST);
    CHECK(texts.find("hashed.npz") != std::string::npos);
    o.on_finding = [](const ckpt::finding &) -> bool { throw mine(); };
    CHECK(throws_mine([&] { c.check(out, o); }));
    ckpt::manifest::remove(out);
    CHECK(!ckpt::manifest::find(out));
    ckpt::manifest::check_place(out);
    std::ofstream(out + ".manifest.json") << "{}";
    CHECK(code_of([&] { ckpt::manifest::check_place(out); }) == CKPT_EUSAGE);
    CHECK(code_of([&] { ckpt::manifest::check_place("", out + ".manifest.json"); }) == CKPT_EUSAGE);
}

static std::string text_of(const std::string &path)
{
    std::ifstream f(path);
    return std::string(std::istreambuf_iterator<char>(f), std::istreambuf_iterator<char>());
}

static void signs(void)
{
    const std::string keys = fixture("model_signing/"), model = place("signed");
    ckpt::sign_options o;
    std::string texts;

    o.signature = keys + "p256.sig";
    o.key = text_of(keys + "p256.pub");
    CHECK(ckpt::check_signature(keys + "model", o).n_files > 0);
    o.key = text_of(keys + "other.pub");
    CHECK(code_of([&] { ckpt::check_signature(keys + "model", o); }) == CKPT_EDIGEST);

    fs::create_directory(model);
    std::ofstream(model + "/a") << "one";
    o.signature = model + "/model.sig";
    o.key = text_of(keys + "p384.key");
    CHECK(ckpt::sign(model, o).n_files == 1);
    CHECK(code_of([&] { ckpt::sign(model, o); }) == CKPT_EUSAGE);
    o.key = text_of(keys + "p384.pub");
    CHECK(ckpt::check_signature(model, o).n_bytes == 3);
    std::ofstream(model + "/a") << "two";
    o.on_finding = [&](const ckpt::finding &f) {
        texts += f.text;
        return true;
    };
    CHECK(code_of([&] { ckpt::check_signature(model, o); }) == CKPT_EDIGEST);
    CHECK(texts.find("a was changed") != std::string::npos);
    o.on_finding = [](const ckpt::finding &) -> bool { throw mine(); };
    CHECK(throws_mine([&] { ckpt::check_signature(model, o); }));
}

static void states_conversions(void)
{
    const std::string in = fixture("z3_bf16_w5_odd/ckpt"), out = place("stated.npz");
    const std::string file = place("stated.json");
    const ckpt::map from = ckpt::open(in);
    const ckpt::target target("npz", out);
    const ckpt_run_report report = ckpt::convert(from, target);
    const ckpt::map to = ckpt::layout(from, target);
    const ckpt_option option = {"to", "npz"};
    ckpt_attest_opts opts = ckpt_attest_opts();

    opts.command = "convert";
    opts.source = in.c_str();
    opts.target = out.c_str();
    opts.options = &option;
    opts.n_options = 1;
    opts.from = from.get();
    opts.to = to.get();
    opts.report = &report;
    ckpt::statement::check_place(file);
    ckpt::statement::write(file, opts);
    CHECK(code_of([&] { ckpt::statement::check_place(file); }) == CKPT_EUSAGE);
    ckpt::statement::check_place(file, true);
    const ckpt::statement s = ckpt::statement::read(file);
    CHECK(s.options().size() == 1 && std::string(s.options()[0].value) == "npz");
    CHECK(s.check(out, from.get()) > 1);
    std::ofstream(out) << "other";
    CHECK(code_of([&] { s.check(out, from.get()); }) == CKPT_EDIGEST);
    CHECK(throws_mine(
        [&] { s.check(out, from.get(), [](const ckpt::finding &) -> bool { throw mine(); }); }));
    CHECK(code_of([] { ckpt::statement::read("no such file"); }) == CKPT_EMISSING);
}

/* ---- shapes ---- */

static void selects_and_remaps(void)
{
    ckpt::map m = ckpt::map::create("memory");
    const std::vector<float> data = numbers();
    const std::vector<uint64_t> shape = {12, 10};
    ckpt::filter f;

    m.put<float>("x.a", data, shape);
    m.put<float>("x.b", data, shape);
    m.put<float>("y", data, shape);
    f.include = {"x.*"};
    f.exclude = {"*.b"};
    f.rename = "x.* z.*\n";
    ckpt::select(m, f);
    CHECK(m.size() == 1 && m.find("z.a"));

    CHECK(code_of([] { ckpt::remap("bad.map", "no rule here at all\n"); }) == CKPT_EUSAGE);
    const ckpt::remap r("t.map", "map left:right\nabout a test\nsizes\n    n = 1\n"
                                 "tensors\n    z.{p*} = q.{p*}\n");
    CHECK(r.side(false) == "left" && r.side(true) == "right" && r.description() == "a test");
    CHECK(r.has_size("n") && !r.has_size("m") && !r.recognizes() && !r.keeps_slices(true));
    CHECK(!r.keeps_blocks(false));
    CHECK(r.matches(m));
    r.apply(m);
    CHECK(m.size() == 1 && m["q.a"].read<float>() == data);
    ckpt::remap_options back;
    back.backwards = true;
    back.sizes = {"n=1"};
    r.apply(m, back);
    CHECK(m["z.a"].read<float>() == data);
    CHECK(code_of([&] { r.apply(m, back); }) == CKPT_EMISMATCH);
    ckpt::map other = ckpt::map::create("other");
    other.put<float>("x", data, shape);
    f = ckpt::filter();
    f.include = {"nothing"};
    CHECK(code_of([&] { ckpt::select(other, f); }) == CKPT_EMISSING);
}

static void quantizes(void)
{
    ckpt::map m = ckpt::open(fixture("gguf_llama_deep/hf"));
    const std::string up = "model.layers.0.mlp.up_proj.weight", out = place("fp8");
    const std::vector<float> was = m[up].read<float>();

    CHECK(!ckpt::is_quantized(m));
    CHECK(ckpt::quantizations().size() > 10 && ckpt_quantization_at(1000) == nullptr);
    ckpt::quantize(m, "fp8-channel", {"*.gate_proj.*"}, CKPT_BF16);
    CHECK(m[up].dtype() == CKPT_F8_E4M3);
    CHECK(m["model.layers.0.mlp.gate_proj.weight"].raw().export_dtype == CKPT_BF16);
    CHECK(code_of([&] { ckpt::quantize(m, "fp9"); }) == CKPT_EUSAGE);
    ckpt::map again = ckpt::open(fixture("gguf_llama_deep/hf"));
    ckpt::quantize(again, "fp8-channel");
    ckpt::target to("hf", out);
    ckpt::convert(again, to);
    ckpt::map back = ckpt::open(out);
    CHECK(ckpt::is_quantized(back) && back[up].dtype() == CKPT_F8_E4M3);
    ckpt::dequantize(back, false);
    ckpt::repack(back, false);
    CHECK(ckpt::dequantize_moments(back) == 0);
    const std::vector<float> is = back[up].read<float>();
    float most = 0, off = 0;
    for (std::size_t i = 0; i < was.size(); i++) {
        most = std::max(most, std::abs(was[i]));
        off = std::max(off, std::abs(was[i] - is[i]));
    }
    // E4M3 has 3 bits of fraction
    CHECK(is.size() == was.size() && off > 0 && off <= most / 16);
}

static void ties_and_vocabularies(void)
{
    ckpt::map m = ckpt::open(fixture("gguf_llama_deep/hf"));
    const std::vector<float> head = m["lm_head.weight"].read<float>(),
                             table = m["model.embed_tokens.weight"].read<float>();

    CHECK(code_of([&] { ckpt::untie(m); }) == CKPT_EUSAGE);
    ckpt::resize_vocab(m, 304, {"lm_head.weight", "model.embed_tokens.weight"});
    const ckpt::tensor grown = m["lm_head.weight"];
    std::vector<float> want = head;
    want.resize(304 * 32, 0.0f);
    CHECK(grown.shape()[0] == 304 && grown.read<float>() == want);
    CHECK(m["model.embed_tokens.weight"]({{0, 300}}).read<float>() == table);

    const std::vector<float> data = numbers();
    const std::vector<uint64_t> shape = {12, 10};
    const std::string out = place("tied.pt");
    ckpt::map two = ckpt::map::create("memory");
    two.put<float>("head", data, shape);
    two.put<float>("table", data, shape);
    ckpt::tie(two, "head=table");
    CHECK(two["head"].owner()->name() == "table");
    ckpt::convert(two, ckpt::target("torch", out));
    ckpt::map tied = ckpt::open(out);
    CHECK(tied["head"].owner() || tied["table"].owner());
    ckpt::untie(tied);
    ckpt::convert(tied, ckpt::target("torch", place("untied.pt")));
    const ckpt::map apart = ckpt::open(place("untied.pt"));
    CHECK(!apart["head"].owner() && !apart["table"].owner() && ckpt::diff(apart, two));
    ckpt::set_model_folder(m, fixture("gguf_llama_deep/hf"));
    CHECK(code_of([&] { ckpt::warm_start(m, ckpt::target("zero", place("warm"))); }) ==
          CKPT_EUSAGE);
}

static void adapts_and_merges(void)
{
    const std::string base = fixture("peft_gpt2_conv1d/base");
    const std::string lora = fixture("peft_gpt2_conv1d/adapter");
    const std::string name = "transformer.h.0.attn.c_attn.weight";
    ckpt::map plain = ckpt::open(base), merged = ckpt::open(base), half = ckpt::open(base);
    const std::vector<float> a = plain[name].read<float>();

    ckpt::merge_adapter(merged, lora);
    const std::vector<float> b = merged[name].read<float>();
    ckpt::diff_options rounded;
    rounded.tolerance = 1e-6;
    CHECK(a.size() == b.size() && a != b);
    CHECK(ckpt::diff(merged, ckpt::open(fixture("peft_gpt2_conv1d/merged")), rounded));
    // it has whole biases beside its updates, which cannot be weighed
    CHECK(code_of([&] { ckpt::merge_adapter(half, lora, 0.5); }) == CKPT_EUNSUPPORTED);
    CHECK(code_of([&] { ckpt::merge_adapter(plain, lora, 0); }) == CKPT_EUSAGE);
    CHECK(code_of([&] { ckpt::keep_adapter(plain, lora + "/adapter_config.json"); }) ==
          CKPT_EMISSING);

    ckpt::merge_options o;
    o.method = "linear";
    o.models = {{base, 1, ""}, {base, 3, ""}};
    CHECK((ckpt::merge_paths(o) == std::vector<std::string>{base, base}));
    const ckpt::map same = ckpt::open_merge(o);
    ckpt::diff_options near;
    near.tolerance = 1e-6;
    CHECK(ckpt::diff(same, ckpt::open(base), near));
    o.method = "nonsense";
    CHECK(code_of([&] { ckpt::open_merge(o); }) == CKPT_EUSAGE);
}

/* ---- the rest ---- */

static void formats_and_dtypes(void)
{
    const auto all = ckpt::formats();
    CHECK(all.size() > 8 && ckpt_format_at(all.size()) == nullptr);
    CHECK(ckpt::format_find("torch") && !ckpt::format_find("nonsense"));
    CHECK(ckpt::format_from_path("a.safetensors") == "safetensors" &&
          ckpt::format_from_path("a.xyz").empty());
    CHECK((ckpt::format_caps("hf") & CKPT_CAN_WRITE) && ckpt::format_caps("nonsense") == 0);
    CHECK(ckpt::dtype_parse("bfloat16") == CKPT_BF16 && ckpt::dtype_name(CKPT_BF16) == "BF16");
    CHECK(ckpt::dtype_parse("nonsense") == CKPT_DTYPE_NONE);
    CHECK(ckpt::dtype_converts(CKPT_F32, CKPT_BF16));
    CHECK(ckpt::version() == CKPT_VERSION);
    ckpt::prepare(CKPT_PREPARE_WRITE);
    static_assert(ckpt::dtype_of<long long>() == CKPT_I64 && ckpt::dtype_of<char>() != CKPT_BOOL);
    int array[] = {1, 2, 3};
    const ckpt::span<int> s(array);
    CHECK(s.size() == 3 && s[2] == 3 && s.subspan(1).size() == 2 && !s.empty());
    CHECK(std::accumulate(s.begin(), s.end(), 0) == 6);
}

/* A team of one; what no launcher started says so. */
static void teams(void)
{
    ckpt_mail mail = ckpt_mail();
    mail.size = sizeof mail;
    CHECK(ckpt::team_launched() == -1 || ckpt::team_launched() > 0);
    CHECK(code_of([&] { ckpt::team t(mail); }) == CKPT_EUSAGE);
}

static void addresses(void)
{
    const ckpt::remote_stop nobody_waits([]() -> bool { throw mine(); });

    CHECK(ckpt::path_is_remote("https://localhost/m.safetensors"));
    CHECK(!ckpt::remote_progress());
    ckpt::output_check("/tmp/m");
    CHECK(code_of([] { ckpt::output_check("s3://bucket/m"); }) == CKPT_EUSAGE);
    CHECK(!ckpt::path_is_remote("https.safetensors") && !ckpt::path_is_remote("/m"));
}

static void other_standards_link(void)
{
    const std::string path = fixture("z3_bf16_w5_odd/ckpt");
    int code = 0;

    CHECK(second_count(path.c_str()) == ckpt::open(path).size());
    CHECK(!second_throws(path.c_str(), &code) && second_throws("/no/such", &code) &&
          code == CKPT_EMISSING);
}

int main(void)
{
    const char *from = std::getenv("CKPT_FIXTURES");
    fixtures = from ? from : "tests/fixtures";
    std::string name = (fs::temp_directory_path() / "ckpt-cpp-XXXXXX").string();
    if (!mkdtemp(name.data()))
        return 1;
    scratch = name;
    try {
        a_map_of_memory_is_written_and_read();
        slices_are_lazy();
        boxes_go_where_they_should();
        pieces_say_where();
        maps_say_what_they_are();
        values_form_a_tree();
        handles_move();
        inputs_of_the_caller();
        threads_have_readers();
        callbacks_stop_and_throw();
        plans_in_steps();
        views_are_what_is_written();
        reshards();
        verifies();
        diffs();
        cleans();
        makes_manifests();
        signs();
        states_conversions();
        selects_and_remaps();
        quantizes();
        ties_and_vocabularies();
        adapts_and_merges();
        formats_and_dtypes();
        teams();
        addresses();
        other_standards_link();
    } catch (const std::exception &e) {
        std::printf("FAIL: %s\n", e.what());
        failed++;
    }
    std::error_code ignored;
    fs::remove_all(scratch, ignored);
    std::printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
