//! Finding clang, running it, and caching its output.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use gcnrun::cache::{Cache, Key};
use hipvit_sys::hiprtc::hiprtcResult;

use super::names;

const PRELUDE: &str = include_str!("prelude.hpp");

/// A program's text and the headers that it may include, by name.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) headers: Vec<(String, String)>,
}

type Failed = (hiprtcResult, String);

/// The compiler: `HIP_EMU_CLANG`, ROCm's, or the newest clang of PATH that knows AMD's processors.
fn compiler() -> Option<&'static Compiler> {
    static FOUND: OnceLock<Option<Compiler>> = OnceLock::new();
    FOUND.get_or_init(Compiler::find).as_ref()
}

struct Compiler {
    path: PathBuf,
    /// The output of `--version`, a part of the cache's key.
    version: Vec<u8>,
}

impl Compiler {
    fn find() -> Option<Self> {
        if let Some(named) = env::var_os("HIP_EMU_CLANG") {
            return Self::try_new(named.into());
        }
        let rocm = PathBuf::from(env::var_os("ROCM_PATH").unwrap_or_else(|| "/opt/rocm".into()));
        let versions = (18..=22).rev().map(|version| format!("clang++-{version}").into());
        [rocm.join("llvm/bin/amdclang++"), "amdclang++".into()]
            .into_iter()
            .chain(versions)
            .chain(["clang++".into()])
            .find_map(Self::try_new)
    }

    fn try_new(path: PathBuf) -> Option<Self> {
        let output = Command::new(&path).arg("--version").output().ok()?;
        let targets = Command::new(&path).arg("--print-targets").output().ok()?;
        let knows = String::from_utf8_lossy(&targets.stdout).contains("amdgcn");
        (output.status.success() && knows).then_some(Self {
            path,
            version: output.stdout,
        })
    }
}

/// The options for clang, mostly the same as hipRTC's. `device` is the target of the thread's device, used unless an option
/// names another.
fn translate(given: &[String], device: Option<&str>) -> Result<Vec<String>, Failed> {
    let mut options: Vec<String> = [
        "-x",
        "hip",
        "-std=c++17",
        "-O3",
        "--cuda-device-only",
        "--no-gpu-bundle-output",
        "-nogpulib",
        "-nogpuinc",
        "-D__HIPCC_RTC__=1",
        // For the properties in the prelude.
        "-fdeclspec",
    ]
    .map(String::from)
    .to_vec();
    let mut target = None;
    for option in given {
        let named = [
            "--offload-arch=",
            "--gpu-architecture=",
            "-arch=",
            "--cuda-gpu-arch=",
        ]
        .iter()
        .find_map(|prefix| option.strip_prefix(prefix));
        match named {
            Some(value) => target = Some(value),
            None if option == "-default-device" || option.starts_with("--hip-version") => {}
            None => options.push(option.clone()),
        }
    }
    match target.or(device) {
        None => {
            let log = "error: no device to compile for: name a processor with --offload-arch=gfx942\n";
            Err((hiprtcResult::HIPRTC_ERROR_INVALID_OPTION, log.into()))
        }
        Some(target) if !target.starts_with("gfx") => {
            let log = format!("error: --offload-arch={target}: {target} is not an AMD processor\n");
            Err((hiprtcResult::HIPRTC_ERROR_INVALID_OPTION, log))
        }
        Some(target) => {
            options.push(format!("--offload-arch={target}"));
            if target.ends_with("-generic") {
                options.push("-mcode-object-version=6".into());
            }
            Ok(options)
        }
    }
}

/// The code object, with the name expressions in it, and the compiler's log; both from the cache if they are there.
pub(super) fn compile(
    source: &Source,
    expressions: &[String],
    given: &[String],
    device: Option<&str>,
) -> Result<(Vec<u8>, String), Failed> {
    let options = translate(given, device)?;
    let text = source.text.clone() + &names::declarations(expressions);
    let compiler = compiler().ok_or_else(|| {
        let log = "error: no clang that targets AMD GPUs was found: install clang-19 and lld-19 (Debian's \
                   packages) or ROCm, or name one in HIP_EMU_CLANG\n";
        (hiprtcResult::HIPRTC_ERROR_COMPILATION, log.to_owned())
    })?;
    let cache = Cache::of_user("hip-emu");
    let [kept_code, kept_log] = ["code", "log"].map(|what| key(what, source, &text, &options, compiler));
    if let (Some(log), Some(code)) = (cache.get(kept_log), cache.get(kept_code)) {
        return Ok((code, String::from_utf8_lossy(&log).into_owned()));
    }
    let (code, log) = run(source, &text, &options, compiler)?;
    cache.put(kept_log, log.as_bytes());
    cache.put(kept_code, &code);
    Ok((code, log))
}

fn run(
    source: &Source,
    text: &str,
    options: &[String],
    compiler: &Compiler,
) -> Result<(Vec<u8>, String), Failed> {
    let internal = |error: std::io::Error| {
        (
            hiprtcResult::HIPRTC_ERROR_INTERNAL_ERROR,
            format!("error: {error}\n"),
        )
    };
    let folder = tempfile::tempdir().map_err(internal)?;
    let write = |name: &str, text: &str| {
        // A header's name may contain folders, but must stay in this one.
        let parts = Path::new(name).components().filter_map(|part| match part {
            std::path::Component::Normal(part) => Some(part),
            _ => None,
        });
        let path = folder.path().join(parts.collect::<PathBuf>());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, text).map(|()| path)
    };
    for (name, text) in &source.headers {
        write(name, text).map_err(internal)?;
    }
    let prelude = write("hip_emu_prelude.hpp", PRELUDE).map_err(internal)?;
    let name = Path::new(&source.name).file_name().unwrap_or("program".as_ref());
    let program = write(&name.to_string_lossy(), text).map_err(internal)?;
    let object = folder.path().join("object");
    let output = Command::new(&compiler.path)
        .args(options)
        .arg("-include")
        .arg(&prelude)
        .arg("-I")
        .arg(folder.path())
        .arg(&program)
        .arg("-o")
        .arg(&object)
        .output()
        .map_err(internal)?;
    // As in hipRTC, the log names the program without its path.
    let log = String::from_utf8_lossy(&output.stderr).replace(&format!("{}/", folder.path().display()), "");
    if !output.status.success() {
        return Err((hiprtcResult::HIPRTC_ERROR_COMPILATION, log));
    }
    let code = fs::read(&object).map_err(internal)?;
    Ok((code, log))
}

/// A key of everything that the code and the log depend on.
fn key(what: &str, source: &Source, text: &str, options: &[String], compiler: &Compiler) -> Key {
    let headers = source.headers.len().to_le_bytes();
    let mut contents = vec![
        what.as_bytes(),
        &headers,
        compiler.path.as_os_str().as_encoded_bytes(),
        &compiler.version,
        PRELUDE.as_bytes(),
        source.name.as_bytes(),
        text.as_bytes(),
    ];
    for (name, text) in &source.headers {
        contents.extend([name.as_bytes(), text.as_bytes()]);
    }
    contents.extend(options.iter().map(String::as_bytes));
    Key::of(&contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(given: &[&str], device: Option<&str>) -> Result<Vec<String>, String> {
        let given: Vec<_> = given.iter().map(|&option| option.to_owned()).collect();
        translate(&given, device).map_err(|(_, log)| log)
    }

    #[test]
    fn the_target_is_an_option_or_the_device() {
        let options = translated(&["-O2", "-arch=gfx90a", "-DN=3"], Some("gfx942")).unwrap();
        assert!(options.ends_with(&["-O2", "-DN=3", "--offload-arch=gfx90a"].map(String::from)));
        let options = translated(&[], Some("gfx942:sramecc+:xnack-")).unwrap();
        assert_eq!(options.last().unwrap(), "--offload-arch=gfx942:sramecc+:xnack-");
    }

    #[test]
    fn unsupported_targets_are_reported() {
        let log = translated(&["--offload-arch=sm_90"], None).unwrap_err();
        assert_eq!(
            log,
            "error: --offload-arch=sm_90: sm_90 is not an AMD processor\n"
        );
        assert!(translated(&[], None).unwrap_err().contains("no device"));
    }
}
