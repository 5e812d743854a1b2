//! roctx: ranges of each thread, written to the file `FAKE_ROCTX`. Each line has the thread, its depth
//! afterwards, and `push NAME`, `pop` or `mark NAME`. A pop without a push has the depth -1.
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::fs::OpenOptions;
use std::io::Write;

thread_local! {
    static DEPTH: Cell<c_int> = const { Cell::new(0) };
}

fn note(depth: c_int, what: &str) {
    if let Some(path) = std::env::var_os("FAKE_ROCTX") {
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        let line = format!("{:?} {depth} {what}\n", std::thread::current().id());
        file.write_all(line.as_bytes()).unwrap();
    }
}

unsafe fn text<'a>(message: *const c_char) -> &'a str {
    unsafe { CStr::from_ptr(message) }.to_str().unwrap()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn roctxMarkA(message: *const c_char) {
    note(DEPTH.get(), &format!("mark {}", unsafe { text(message) }));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn roctxRangePushA(message: *const c_char) -> c_int {
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    note(depth + 1, &format!("push {}", unsafe { text(message) }));
    depth
}

#[unsafe(no_mangle)]
pub extern "C" fn roctxRangePop() -> c_int {
    let depth = DEPTH.get() - 1;
    DEPTH.set(depth.max(0));
    note(depth, "pop");
    depth
}
