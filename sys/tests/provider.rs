//! Opening libraries: the search order and the errors. The libraries are small stand-ins, compiled
//! here by rustc.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "an expectation that fails is the test that fails"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

use hipvit_sys::{Error, Place, Provider, Status, Table};

const ALL: &[&str] = &[
    "hip",
    "hiprtc",
    "rocblas",
    "hipblaslt",
    "hipsparselt",
    "miopen",
    "rccl",
    "amd_smi",
];

/// Compiles a stand-in with the given libraries' functions; its `hipRuntimeGetVersion` says `build`.
fn stand_in(path: &Path, libraries: &[&str], build: i32) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand_in/library.rs");
    let mut rustc = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()));
    rustc.args([
        "--edition=2024",
        "--crate-type=cdylib",
        "--crate-name=stand_in",
        "-Cpanic=abort",
        "-o",
    ]);
    rustc.arg(path).arg(source).env("STAND_IN", build.to_string());
    for library in libraries {
        rustc.args(["--cfg", library]);
    }
    let output = rustc.output().expect("rustc runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A fresh folder for one test's libraries.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("provider-{test}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

fn named(path: &Path) -> Provider {
    Provider::named(path.to_str().expect("a path in UTF-8")).expect("a provider")
}

fn build(provider: &Provider) -> i32 {
    let mut build = 0;
    // SAFETY: `build` is an int that the call may write.
    let status =
        unsafe { provider.hip().expect("HIP").hipRuntimeGetVersion(&mut build) }.expect("the function");
    assert!(status.is_success());
    build
}

/// Calls one function of each table and shows the statuses.
fn statuses(provider: &Provider) -> Result<[String; 8], Error> {
    // SAFETY: the stand-in ignores its arguments.
    unsafe {
        Ok([
            provider.hip()?.hipInit(0)?.to_string(),
            provider
                .hiprtc()?
                .hiprtcDestroyProgram(ptr::null_mut())?
                .to_string(),
            provider
                .rocblas()?
                .rocblas_destroy_handle(ptr::null_mut())?
                .to_string(),
            provider
                .hipblaslt()?
                .hipblasLtDestroy(ptr::null_mut())?
                .to_string(),
            provider
                .hipsparselt()?
                .hipsparseLtDestroy(ptr::null_mut())?
                .to_string(),
            provider.miopen()?.miopenDestroy(ptr::null_mut())?.to_string(),
            provider.rccl()?.ncclGroupStart()?.to_string(),
            provider.amd_smi()?.amdsmi_shut_down()?.to_string(),
        ])
    }
}

const STATUSES: [&str; 8] = [
    "hipErrorNoDevice (100)",
    "HIPRTC_ERROR_INVALID_PROGRAM (4)",
    "rocblas_status_invalid_handle (1)",
    "HIPBLAS_STATUS_INVALID_VALUE (3)",
    "HIPSPARSE_STATUS_NOT_INITIALIZED (1)",
    "miopenStatusUnknownError (7)",
    "ncclInProgress (7)",
    "AMDSMI_STATUS_NOT_SUPPORTED (2)",
];

#[test]
fn one_library_carries_every_table() {
    let path = folder("one").join("provider.so");
    stand_in(&path, ALL, 1);
    let provider = named(&path);
    assert_eq!(statuses(&provider).expect("all tables"), STATUSES);
    assert_eq!(provider.rccl().expect("RCCL").path(), path);
}

#[test]
fn a_folder_carries_rocm_6_or_7() {
    let six = [
        "libamdhip64.so.6",
        "libhiprtc.so.6",
        "librocblas.so.4",
        "libhipblaslt.so.0",
    ];
    let seven = [
        "libamdhip64.so.7",
        "libhiprtc.so.7",
        "librocblas.so.5",
        "libhipblaslt.so.1",
    ];
    let both = [
        "libhipsparselt.so.0",
        "libMIOpen.so.1",
        "librccl.so.1",
        "libamd_smi.so.26",
    ];
    for (name, sonames) in [("six", six), ("seven", seven)] {
        let folder = folder(name);
        for (soname, library) in sonames.iter().chain(&both).zip(ALL) {
            stand_in(&folder.join(soname), &[library], 1);
        }
        assert_eq!(
            statuses(&named(&folder)).expect("all tables"),
            STATUSES,
            "ROCm {name}"
        );
    }
}

#[test]
fn the_newer_abi_goes_first_within_a_place_and_the_first_place_before_all() {
    let (first, second) = (folder("first"), folder("second"));
    stand_in(&first.join("libamdhip64.so.6"), &["hip"], 16);
    stand_in(&second.join("libamdhip64.so.6"), &["hip"], 26);
    stand_in(&second.join("libamdhip64.so.7"), &["hip"], 27);
    assert_eq!(build(&named(&second)), 27);
    let places = vec![Place::Folder(first), Place::Folder(second)];
    assert_eq!(build(&Provider::search(places)), 16);
}

#[test]
fn all_libraries_come_from_the_place_of_the_hip_runtime() {
    let (without, with) = (folder("without-hip"), folder("with-hip"));
    stand_in(&without.join("librocblas.so.5"), &["rocblas"], 1);
    let places = vec![Place::Folder(without.clone()), Place::Folder(with.clone())];
    assert!(
        Provider::search(places.clone()).rocblas().is_ok(),
        "no HIP runtime anywhere"
    );

    stand_in(&with.join("libamdhip64.so.7"), &["hip"], 1);
    let error = Provider::search(places)
        .rocblas()
        .expect_err("rocBLAS is elsewhere")
        .to_string();
    assert_eq!(
        error,
        format!(
            "rocBLAS (librocblas.so.5) was not found; tried {0}/librocblas.so.5 (no such file); {0}/librocblas.so.4 (no such file)",
            with.display()
        )
    );
}

#[test]
fn a_missing_library_names_every_file_tried() {
    let (first, second) = (folder("empty-1"), folder("empty-2"));
    let provider = Provider::search(vec![Place::Folder(first.clone()), Place::Folder(second.clone())]);
    let Error::Library { library, tried } = provider.hip().expect_err("nothing there") else {
        panic!("another error");
    };
    assert_eq!(library, "the HIP runtime");
    let tried: Vec<_> = tried.iter().map(|attempt| attempt.path.clone()).collect();
    let expected: Vec<_> = [first, second]
        .iter()
        .flat_map(|f| [f.join("libamdhip64.so.7"), f.join("libamdhip64.so.6")])
        .collect();
    assert_eq!(tried, expected);
}

#[test]
fn a_bare_file_name_is_in_the_working_folder_not_in_the_loaders() {
    let provider = Provider::search(vec![Place::File("absent.so".into())]);
    let Error::Library { tried, .. } = provider.hip().expect_err("nothing there") else {
        panic!("another error");
    };
    let here = std::env::current_dir().expect("a working folder");
    assert_eq!(tried[0].path, here.join("absent.so"));
}

#[test]
fn a_missing_function_is_named_with_its_file_and_the_rest_works() {
    let path = folder("partial").join("libhip.so");
    stand_in(&path, &["hip"], 1);
    let provider = named(&path);
    let hip = provider.hip().expect("it has some functions");
    let mut count = 0;
    // SAFETY: `count` is an int that the call may write.
    let error = unsafe { hip.hipGetDeviceCount(&mut count) }.expect_err("not exported");
    assert_eq!(
        error.to_string(),
        format!(
            "the HIP runtime has no function hipGetDeviceCount in {}",
            path.display()
        )
    );
    assert!(hip.missing().contains(&"hipGetDeviceCount"));
    assert_eq!(hip.missing().len(), hipvit_sys::Hip::FUNCTIONS.len() - 2);
    assert_eq!(build(&provider), 1);
}

#[test]
fn a_library_without_any_of_the_functions_is_refused() {
    let path = folder("foreign").join("libhip.so");
    stand_in(&path, &["hip"], 1);
    let error = named(&path).miopen().expect_err("no MIOpen in it");
    assert_eq!(
        error.to_string(),
        format!(
            "MIOpen is not in {}: it exports none of the functions",
            path.display()
        )
    );
}

#[test]
fn a_file_that_does_not_load_ends_the_search() {
    let (broken, good) = (folder("broken"), folder("good"));
    let path = broken.join("libamdhip64.so.7");
    fs::write(&path, "not a library").expect("a file");
    stand_in(&good.join("libamdhip64.so.7"), &["hip"], 1);
    let error = Provider::search(vec![Place::Folder(broken), Place::Folder(good)])
        .hip()
        .expect_err("broken");
    let message = error.to_string();
    assert!(
        message.starts_with(&format!(
            "the HIP runtime cannot be opened; tried {} (",
            path.display()
        )),
        "{message}"
    );
    assert!(
        !message.contains("dlopen"),
        "the loader's own words, not that dlopen failed: {message}"
    );
    assert_eq!(message.matches("libamdhip64").count(), 1, "{message}");
}

#[test]
fn a_provider_that_does_not_exist_is_an_error_at_once() {
    let message = |value| Provider::named(value).expect_err("no such provider").to_string();
    assert_eq!(
        message("/nowhere/provider.so"),
        "provider `/nowhere/provider.so`: No such file or directory (os error 2)"
    );
    assert_eq!(
        message("emulated:gfx942"),
        "provider `emulated:gfx942`: no provider is called `emulated`; known: rocm, cuda, emu, or the path of a library or folder"
    );
    assert_eq!(
        message("rocm:7"),
        "provider `rocm:7`: rocm takes no argument, and `7` is one"
    );
    assert!(Provider::named("rocm").is_ok());
    assert!(Provider::named("cuda").is_ok());
    assert!(Provider::named("emu").is_ok());
    assert!(Provider::named("emu:gfx942").is_ok());
}

#[test]
fn threads_share_one_table() {
    let path = folder("threads").join("provider.so");
    stand_in(&path, ALL, 1);
    let provider = named(&path);
    let tables: Vec<usize> = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| ptr::from_ref(provider.rocblas().expect("rocBLAS")).addr()))
            .collect();
        opening
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    assert!(tables.windows(2).all(|pair| pair[0] == pair[1]));
}
