//! Code compiled by hipRTC is cached on disk, and recompiled after any of its dependencies has changed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hipvit::hip::Error;
use hipvit::hip::{KernelCache, Rtc, Runtime};
use libloading::{Library, Symbol};

use crate::support::fake::{Fake, Slot};

/// A folder with a HIP runtime and a hipRTC.
struct Provider {
    folder: tempfile::TempDir,
    compiler: PathBuf,
    rtc: Library,
    /// Kept open, so that its settings persist.
    _runtime: Library,
}

impl Provider {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let compiler = folder.path().join("libhiprtc.so.7");
        fs::copy(Fake::compiled(), &compiler).unwrap();
        let runtime = folder.path().join("libamdhip64.so.7");
        fs::copy(Fake::compiled(), &runtime).unwrap();
        // SAFETY: neither has initialisers.
        let open = |path: &Path| unsafe { Library::new(path) }.unwrap();
        let (runtime, rtc) = (open(&runtime), open(&compiler));
        {
            // SAFETY: the function's prototype.
            let set: Symbol<'_, extern "C" fn(usize, u64)> = unsafe { runtime.get("fake_set") }.unwrap();
            set(Slot::Devices as usize, 1);
        }
        Self {
            folder,
            compiler,
            rtc,
            _runtime: runtime,
        }
    }

    fn rtc(&self, cache: &Path) -> Rtc {
        let runtime = Runtime::named(self.folder.path().to_str().unwrap()).unwrap();
        let rtc = Rtc::new(&runtime.device(0).unwrap()).unwrap();
        rtc.with_cache(Some(KernelCache::at(cache)))
    }

    /// Returns the number of compilations since the last call.
    fn compiled(&self, before: &mut u64) -> u64 {
        // SAFETY: the function's prototype.
        let compiled: Symbol<'_, extern "C" fn() -> u64> = unsafe { self.rtc.get("fake_compiled") }.unwrap();
        let now = compiled();
        now - std::mem::replace(before, now)
    }
}

#[test]
fn the_same_is_compiled_once() {
    let provider = Provider::new();
    let cache = tempfile::tempdir().unwrap();
    let rtc = provider.rtc(cache.path());
    let mut before = 0;
    let mut compiled = || provider.compiled(&mut before);
    let headers = [("a.h", "int a;"), ("b.h", "int b;")];
    let first = rtc.compile("k.hip", "kernel", &headers, &["-O3"]).unwrap();
    assert_eq!(compiled(), 1);

    // Another program start.
    let again = provider.rtc(cache.path());
    let code = again.compile("k.hip", "kernel", &headers, &["-O3"]).unwrap();
    assert_eq!(compiled(), 0);
    assert_eq!(code.targets(), first.targets());
    assert_eq!(code.targets(), ["gfx942:sramecc+:xnack-"]);

    for (name, source, headers, options) in [
        ("l.hip", "kernel", &headers[..], &["-O3"][..]),
        ("k.hip", "colonel", &headers, &["-O3"]),
        ("k.hip", "kernel", &headers[..1], &["-O3"]),
        (
            "k.hip",
            "kernel",
            &[("a.h", "int a;"), ("b.h", "int c;")],
            &["-O3"],
        ),
        ("k.hip", "kernel", &headers, &["-O2"]),
        ("k.hip", "kernel", &headers, &[]),
    ] {
        rtc.compile(name, source, headers, options).unwrap();
        assert_eq!(compiled(), 1, "{name} {source} {headers:?} {options:?}");
    }
    assert_eq!(KernelCache::at(cache.path()).usage().unwrap().0, 7);

    // Another build of the compiler.
    let file = File::open(&provider.compiler).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(86_400))
        .unwrap();
    rtc.compile("k.hip", "kernel", &headers, &["-O3"]).unwrap();
    assert_eq!(compiled(), 1);

    let uncached = provider.rtc(cache.path()).with_cache(None);
    uncached.compile("k.hip", "kernel", &headers, &["-O3"]).unwrap();
    assert_eq!(compiled(), 1);
}

#[test]
fn damaged_files_and_errors_are_compiled_again() {
    let provider = Provider::new();
    let cache = tempfile::tempdir().unwrap();
    let rtc = provider.rtc(cache.path());
    let mut before = 0;
    let compile = || rtc.compile("k.hip", "kernel", &[], &[]);
    compile().unwrap();
    let file = fs::read_dir(cache.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, bytes).unwrap();
    let code = compile().unwrap();
    assert_eq!(code.targets(), ["gfx942:sramecc+:xnack-"]);
    assert_eq!(provider.compiled(&mut before), 2);
    compile().unwrap();
    assert_eq!(provider.compiled(&mut before), 0);

    for _ in 0..2 {
        let error = rtc.compile("k.hip", "#error", &[], &[]).unwrap_err();
        assert!(matches!(error, Error::Compile { .. }), "{error}");
        assert_eq!(error.to_string(), "k.hip: k.hip:1:2: error: as asked");
        assert_eq!(provider.compiled(&mut before), 1);
    }

    // A place that cannot be written costs time and nothing else.
    let nowhere = provider.rtc(&file.join("kernels"));
    nowhere.compile("k.hip", "kernel", &[], &[]).unwrap();
    assert_eq!(provider.compiled(&mut before), 1);
}
