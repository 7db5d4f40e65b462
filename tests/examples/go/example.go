// SPDX-License-Identifier: Apache-2.0

// example.go: open a checkpoint, list and read its tensors, convert it, compare.
//
//	CGO_CFLAGS="$(pkg-config --cflags ckpt)" CGO_LDFLAGS="$(pkg-config --libs ckpt)" go build -o example .
//	./example CHECKPOINT TENSOR OUT.safetensors
package main

/*
#include <stdlib.h>
#include <ckpt.h>

int goProgress(void *ctx, uint64_t done, uint64_t total);
*/
import "C"

import (
	"fmt"
	"os"
	"unsafe"
)

// failure is the library's code and its line of text.
type failure struct {
	code C.int
	text string
}

func (f *failure) Error() string { return f.text }

// check is the outcome of a call that has filled err.
func check(rc C.int, err *C.ckpt_err) error {
	if rc == C.CKPT_OK {
		return nil
	}
	return &failure{rc, C.GoString(&err.text[0])}
}

// checkpoint is one that is open; close frees it.
type checkpoint struct{ m *C.ckpt_map }

func open(path string) (*checkpoint, error) {
	var m *C.ckpt_map
	var err C.ckpt_err
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	rc := C.ckpt_open(&m, p, nil, &err)
	return &checkpoint{m}, check(rc, &err)
}

func (c *checkpoint) close() { C.ckpt_map_free(c.m) }

func (c *checkpoint) list() {
	fmt.Printf("%s: %d tensors\n", C.GoString(C.ckpt_map_format(c.m)), C.ckpt_map_tensor_count(c.m))
	for i := C.size_t(0); i < C.ckpt_map_tensor_count(c.m); i++ {
		t := C.ckpt_map_tensor_at(c.m, i)
		fmt.Printf("%s %s", C.GoString(t.name), C.GoString(C.ckpt_dtype_name(t.dtype)))
		for _, n := range unsafe.Slice(t.shape, t.ndim) {
			fmt.Printf(" %d", n)
		}
		fmt.Println()
	}
}

// slice reads the second row of a matrix, its first three columns.
func (c *checkpoint) slice(name string) ([3]float32, error) {
	var out [3]float32
	var reader *C.ckpt_reader
	var err C.ckpt_err
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	t := C.ckpt_map_find(c.m, n)
	if t == nil || t.ndim != 2 {
		return out, &failure{C.CKPT_EMISSING, name + ": not a matrix of this checkpoint"}
	}
	rc := C.ckpt_reader_new(&reader, c.m, &err)
	defer func() { C.ckpt_reader_free(reader) }()
	if rc == C.CKPT_OK {
		part := [2]C.ckpt_slice{{start: 1, count: 1}, {start: 0, count: 3}}
		rc = C.ckpt_reader_read_slice(reader, t, &part[0], C.CKPT_F32, unsafe.Pointer(&out[0]), &err)
	}
	return out, check(rc, &err)
}

// mean reads all elements of a tensor as float32.
func (c *checkpoint) mean(name string) (float64, error) {
	var err C.ckpt_err
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	t := C.ckpt_map_find(c.m, n)
	if t == nil || t.n_elems == 0 {
		return 0, &failure{C.CKPT_EMISSING, name + ": not a tensor with elements of this checkpoint"}
	}
	out := make([]float32, t.n_elems)
	rc := C.ckpt_tensor_read(c.m, t, C.CKPT_F32, unsafe.Pointer(&out[0]), &err)
	sum := 0.0
	for _, v := range out {
		sum += float64(v)
	}
	return sum / float64(len(out)), check(rc, &err)
}

//export goProgress
func goProgress(_ unsafe.Pointer, done, total C.uint64_t) C.int {
	percent := C.uint64_t(100)
	if total > 0 {
		percent = 100 * done / total
	}
	fmt.Fprintf(os.Stderr, "\r%3d%%", percent)
	return 0 // anything else cancels
}

func (c *checkpoint) convert(out string) (C.ckpt_run_report, error) {
	var err C.ckpt_err
	target := C.ckpt_target{format: C.CString("safetensors"), path: C.CString(out)}
	target.size = C.size_t(unsafe.Sizeof(target))
	defer C.free(unsafe.Pointer(target.format))
	defer C.free(unsafe.Pointer(target.path))
	opts := C.ckpt_run_opts{progress: C.ckpt_progress_fn(C.goProgress)}
	opts.size = C.size_t(unsafe.Sizeof(opts))
	report := C.ckpt_run_report{}
	report.size = C.size_t(unsafe.Sizeof(report))
	rc := C.ckpt_convert(c.m, &target, &opts, &report, &err)
	fmt.Fprintln(os.Stderr)
	return report, check(rc, &err)
}

func (c *checkpoint) equals(other *checkpoint) (bool, error) {
	var err C.ckpt_err
	rc := C.ckpt_diff(c.m, other.m, nil, nil, nil, &err)
	if rc == C.CKPT_EDIFFERS {
		return false, nil
	}
	return true, check(rc, &err)
}

func run(from, name, out string) error {
	model, err := open(from)
	if err != nil {
		return err
	}
	defer model.close()
	model.list()
	v, err := model.slice(name)
	if err != nil {
		return err
	}
	fmt.Printf("slice %.6f %.6f %.6f\n", v[0], v[1], v[2])
	mean, err := model.mean(name)
	if err != nil {
		return err
	}
	fmt.Printf("mean %.6f\n", mean)
	report, err := model.convert(out)
	if err != nil {
		return err
	}
	fmt.Printf("converted %d tensors, %d elements\n", report.n_tensors, report.n_elems)
	written, err := open(out)
	if err != nil {
		return err
	}
	defer written.close()
	same, err := model.equals(written)
	if err == nil {
		fmt.Println(map[bool]string{true: "equal", false: "different"}[same])
	}
	return err
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: example CHECKPOINT TENSOR OUT.safetensors")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(int(C.ckpt_err_status(err.(*failure).code)))
	}
}
