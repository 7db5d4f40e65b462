// SPDX-License-Identifier: Apache-2.0
//! example.rs: open a checkpoint, list and read its tensors, convert it, compare.
//!
//!     bindgen ckpt.h --allowlist-function 'ckpt_.*' --allowlist-var 'CKPT_.*' -o ckpt_sys.rs
//!     CKPT_SYS=$PWD/ckpt_sys.rs rustc example.rs -l ckpt
//!     ./example CHECKPOINT TENSOR OUT.safetensors

#[allow(non_camel_case_types, non_upper_case_globals, non_snake_case, dead_code, improper_ctypes, deref_nullptr)]
#[allow(unused, clippy::all)]
mod sys {
    include!(env!("CKPT_SYS"));
}

use std::ffi::{c_void, CStr, CString};
use std::mem::size_of;
use std::os::raw::{c_char, c_int};
use std::ptr::{null, null_mut};

/// A failure: the library's code and its line of text.
struct Error(c_int, String);

/// The outcome of a call that has filled err.
fn check(rc: c_int, err: &sys::ckpt_err) -> Result<(), Error> {
    match rc {
        0 => Ok(()),
        _ => Err(Error(rc, text(err.text.as_ptr()))),
    }
}

fn text(s: *const c_char) -> String {
    unsafe { CStr::from_ptr(s) }.to_string_lossy().into_owned()
}

fn c(s: &str) -> CString {
    CString::new(s).expect("a text without NUL")
}

/// All members zero, which is what the library's structures begin with.
fn zeroed<T>() -> T {
    unsafe { std::mem::zeroed() }
}

/// A checkpoint that is open; closed when it goes.
struct Map(*mut sys::ckpt_map);

impl Drop for Map {
    fn drop(&mut self) {
        unsafe { sys::ckpt_map_free(self.0) }
    }
}

impl Map {
    fn open(path: &str) -> Result<Map, Error> {
        let (mut map, mut err) = (null_mut(), zeroed());
        let rc = unsafe { sys::ckpt_open(&mut map, c(path).as_ptr(), null(), &mut err) };
        check(rc, &err).map(|()| Map(map))
    }

    fn tensors(&self) -> impl Iterator<Item = &sys::ckpt_tensor> + '_ {
        let n = unsafe { sys::ckpt_map_tensor_count(self.0) };
        (0..n).map(move |i| unsafe { &*sys::ckpt_map_tensor_at(self.0, i) })
    }

    /// The second row of a matrix, its first three columns.
    fn slice(&self, name: &str) -> Result<[f32; 3], Error> {
        let t = unsafe { sys::ckpt_map_find(self.0, c(name).as_ptr()).as_ref() };
        let t = match t {
            Some(t) if t.ndim == 2 => t,
            _ => return Err(Error(sys::CKPT_EMISSING as c_int, format!("{name}: not a matrix of this checkpoint"))),
        };
        let part = [
            sys::ckpt_slice { start: 1, count: 1, step: 1 },
            sys::ckpt_slice { start: 0, count: 3, step: 1 },
        ];
        let (mut reader, mut err, mut out) = (null_mut(), zeroed(), [0f32; 3]);
        let mut rc = unsafe { sys::ckpt_reader_new(&mut reader, self.0, &mut err) };
        if rc == 0 {
            let to = out.as_mut_ptr() as *mut c_void;
            rc = unsafe { sys::ckpt_reader_read_slice(reader, t, part.as_ptr(), sys::ckpt_dtype_CKPT_F32, to, &mut err) };
        }
        unsafe { sys::ckpt_reader_free(reader) };
        check(rc, &err).map(|()| out)
    }

    /// The mean of all elements, read as f32.
    fn mean(&self, name: &str) -> Result<f64, Error> {
        let t = unsafe { sys::ckpt_map_find(self.0, c(name).as_ptr()).as_ref() };
        let t = t.ok_or_else(|| Error(sys::CKPT_EMISSING as c_int, format!("{name}: not a tensor of this checkpoint")))?;
        let (mut out, mut err) = (vec![0f32; t.n_elems as usize], zeroed());
        let to = out.as_mut_ptr() as *mut c_void;
        let rc = unsafe { sys::ckpt_tensor_read(self.0, t, sys::ckpt_dtype_CKPT_F32, to, &mut err) };
        check(rc, &err).map(|()| out.iter().map(|&v| v as f64).sum::<f64>() / out.len() as f64)
    }

    fn convert(&self, out: &str) -> Result<sys::ckpt_run_report, Error> {
        let (format, path) = (c("safetensors"), c(out));
        let mut target: sys::ckpt_target = zeroed();
        target.size = size_of::<sys::ckpt_target>() as _;
        target.format = format.as_ptr();
        target.path = path.as_ptr();
        let mut opts: sys::ckpt_run_opts = zeroed();
        opts.size = size_of::<sys::ckpt_run_opts>() as _;
        opts.progress = Some(progress);
        let mut report: sys::ckpt_run_report = zeroed();
        report.size = size_of::<sys::ckpt_run_report>() as _;
        let mut err = zeroed();
        let rc = unsafe { sys::ckpt_convert(self.0, &target, &opts, &mut report, &mut err) };
        eprintln!();
        check(rc, &err).map(|()| report)
    }

    fn equals(&self, other: &Map) -> Result<bool, Error> {
        let mut err = zeroed();
        let rc = unsafe { sys::ckpt_diff(self.0, other.0, null(), None, null_mut(), &mut err) };
        if rc == sys::CKPT_EDIFFERS as c_int {
            return Ok(false);
        }
        check(rc, &err).map(|()| true)
    }
}

/// Anything but 0 cancels the run.
unsafe extern "C" fn progress(_ctx: *mut c_void, done: u64, total: u64) -> c_int {
    eprint!("\r{:3}%", if total > 0 { 100 * done / total } else { 100 });
    0
}

fn run(from: &str, name: &str, out: &str) -> Result<(), Error> {
    let model = Map::open(from)?;
    println!("{}: {} tensors", text(unsafe { sys::ckpt_map_format(model.0) }), model.tensors().count());
    for t in model.tensors() {
        print!("{} {}", text(t.name), text(unsafe { sys::ckpt_dtype_name(t.dtype) }));
        for i in 0..t.ndim as usize {
            print!(" {}", unsafe { *t.shape.add(i) });
        }
        println!();
    }
    let v = model.slice(name)?;
    println!("slice {:.6} {:.6} {:.6}", v[0], v[1], v[2]);
    println!("mean {:.6}", model.mean(name)?);
    let report = model.convert(out)?;
    println!("converted {} tensors, {} elements", report.n_tensors, report.n_elems);
    println!("{}", if model.equals(&Map::open(out)?)? { "equal" } else { "different" });
    Ok(())
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.len() != 4 {
        eprintln!("usage: example CHECKPOINT TENSOR OUT.safetensors");
        std::process::exit(2);
    }
    if let Err(Error(code, said)) = run(&args[1], &args[2], &args[3]) {
        eprintln!("example: {said}");
        std::process::exit(unsafe { sys::ckpt_err_status(code) });
    }
}
