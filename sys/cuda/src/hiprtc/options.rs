//! Translates hipRTC's options, which are clang's, to NVRTC's.

use std::ffi::{CStr, CString};

use crate::library::include_folder;

/// Treats generic lambdas in device code as device code, as hipRTC does. Without this option NVRTC treats them as host functions
/// and rejects them.
const DEVICE_CODE: &str = "--device-as-default-execution-space";

/// The options for NVRTC. `device` is the architecture of the thread's device, if there is one: the default of
/// `--gpu-architecture`.
///
/// # Errors
/// The text for the log: an option asks for an AMD architecture.
pub(super) fn translate(given: &mut [&CStr], device: Option<&str>) -> Result<Vec<CString>, CString> {
    let mut options = vec![DEVICE_CODE.to_owned()];
    let mut arch = None;
    let mut given = given.iter().map(|option| option.to_string_lossy());
    while let Some(option) = given.next() {
        let option = option.as_ref();
        if let Some(value) = one_of(
            option,
            &[
                "--offload-arch=",
                "--gpu-architecture=",
                "-arch=",
                "--cuda-gpu-arch=",
            ],
        ) {
            if value.starts_with("gfx") {
                return Err(text(&format!(
                    "{option}: {value} is an AMD architecture, and this is an NVIDIA device{}; \
                     use an NVIDIA architecture such as sm_90\n",
                    device.map(|device| format!(" ({device})")).unwrap_or_default()
                )));
            }
            arch = Some(value.to_owned());
        } else if let Some(standard) = option.strip_prefix("-std=") {
            // NVRTC has no GNU dialects.
            options.push(format!("--std={}", standard.replace("gnu++", "c++")));
        } else if option == "-ffast-math" {
            options.push("--use_fast_math".into());
        } else if let Some(value) = option.strip_prefix("-ffp-contract=") {
            options.push(format!("--fmad={}", value != "off"));
        } else if option == "-mllvm" || option == "-Xclang" {
            // An internal option of the compiler, and its value.
            given.next();
        } else if !clang_only(option) {
            options.push(option.to_owned());
        }
    }
    if let Some(arch) = arch.as_deref().or(device) {
        // Every GPU of this capability has the instructions of sm_90a, such as wgmma.
        let specific = if arch == "sm_90" { "a" } else { "" };
        options.push(format!("--gpu-architecture={arch}{specific}"));
    }
    if let Some(folder) = include_folder() {
        options.push(format!("-I{}", folder.display()));
    }
    Ok(options.iter().map(|option| text(option)).collect())
}

/// Options for warnings, code generation and optimisation that NVRTC does not have and that do not change results: it
/// always optimises, unless `-G` is given.
fn clang_only(option: &str) -> bool {
    let prefixes = [
        "-O",
        "-W",
        "-m",
        "-f",
        "--hip-",
        "-nogpu",
        "--gpu-max-threads-per-block=",
    ];
    prefixes.iter().any(|prefix| option.starts_with(prefix))
}

fn one_of<'a>(option: &'a str, prefixes: &[&str]) -> Option<&'a str> {
    prefixes.iter().find_map(|prefix| option.strip_prefix(prefix))
}

fn text(text: &str) -> CString {
    // It comes from C strings, which have no zeros inside.
    CString::new(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(given: &[&CStr], device: Option<&str>) -> Result<Vec<String>, String> {
        let shown = |text: &CString| text.to_string_lossy().into_owned();
        translate(&mut given.to_vec(), device)
            .map(|options| {
                options
                    .iter()
                    .map(shown)
                    .filter(|option| !option.starts_with("-I") && option != DEVICE_CODE)
                    .collect()
            })
            .map_err(|message| shown(&message))
    }

    #[test]
    fn options_are_translated() {
        let given = [
            c"--offload-arch=sm_90",
            c"-O3",
            c"-std=gnu++17",
            c"-ffast-math",
            c"-ffp-contract=off",
            c"-mllvm",
            c"-amdgpu-early-inline-all",
            c"-Wall",
            c"-DN=3",
            c"--device-debug",
        ];
        assert_eq!(
            translated(&given, Some("sm_80")),
            Ok([
                "--std=c++17",
                "--use_fast_math",
                "--fmad=false",
                "-DN=3",
                "--device-debug",
                "--gpu-architecture=sm_90a",
            ]
            .map(String::from)
            .to_vec())
        );
    }

    #[test]
    fn definitions_and_include_folders_are_passed_unchanged() {
        let given = [
            c"-DHIPVIT_DTYPE=f16",
            c"-DHIPVIT_HEAD_DIM=64",
            c"-D",
            c"fast=1",
            c"-UNDEBUG",
            c"-include",
            c"config.h",
        ];
        let expected = given.map(|option| option.to_string_lossy().into_owned()).to_vec();
        assert_eq!(translated(&given, None), Ok(expected));
    }

    #[test]
    fn without_an_arch_it_is_the_devices() {
        assert_eq!(
            translated(&[], Some("sm_86")),
            Ok(vec!["--gpu-architecture=sm_86".into()])
        );
        assert_eq!(translated(&[], None), Ok(vec![]));
    }

    #[test]
    fn an_amd_arch_is_rejected_with_the_reason() {
        let message = translated(&[c"--offload-arch=gfx942"], Some("sm_90")).unwrap_err();
        assert_eq!(
            message,
            "--offload-arch=gfx942: gfx942 is an AMD architecture, and this is an NVIDIA device (sm_90); \
             use an NVIDIA architecture such as sm_90\n"
        );
    }
}
