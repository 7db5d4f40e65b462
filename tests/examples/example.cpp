/* SPDX-License-Identifier: Apache-2.0 */
/*
 * example.cpp: open a checkpoint, list and read its tensors, convert it, compare.
 *
 *     c++ -std=c++17 example.cpp $(pkg-config --cflags --libs ckpt) -o example
 *     ./example CHECKPOINT TENSOR OUT.safetensors
 */
#include <cstdio>
#include <iostream>

#include <ckpt.hpp>

static void run(const char *from, const char *name, const char *out)
{
    const ckpt::map model = ckpt::open(from);
    std::cout << model.format() << ": " << model.size() << " tensors\n";
    for (const ckpt::tensor t : model) {
        std::cout << t.name() << ' ' << ckpt::dtype_name(t.dtype());
        for (std::uint64_t n : t.shape())
            std::cout << ' ' << n;
        std::cout << '\n';
    }

    // the second row of a matrix, its first three columns
    std::cout << "slice";
    for (float v : model[name]({ckpt::slice::at(1), {0, 3}}).read<float>()) {
        char text[64];
        std::snprintf(text, sizeof text, " %.6f", static_cast<double>(v));
        std::cout << text;
    }
    std::cout << '\n';

    double sum = 0;
    for (float v : model[name].read<float>())
        sum += static_cast<double>(v);
    char mean[64];
    std::snprintf(mean, sizeof mean, "%.6f", sum / static_cast<double>(model[name].size()));
    std::cout << "mean " << mean << '\n';

    ckpt::run_options options;
    options.on_progress = [](std::uint64_t done, std::uint64_t total) {
        std::cerr << '\r' << (total ? 100 * done / total : 100) << '%';
        return true; // false cancels, and so does an exception
    };
    const ckpt_run_report report = ckpt::convert(model, ckpt::target("safetensors", out), options);
    std::cerr << '\n';
    std::cout << "converted " << report.n_tensors << " tensors, " << report.n_elems
              << " elements\n";
    std::cout << (ckpt::diff(model, ckpt::open(out)) ? "equal" : "different") << '\n';
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        std::cerr << "usage: example CHECKPOINT TENSOR OUT.safetensors\n";
        return 2;
    }
    try {
        run(argv[1], argv[2], argv[3]);
    } catch (const ckpt::error &e) {
        std::cerr << "example: " << e.what() << '\n';
        return e.status();
    }
    return 0;
}
