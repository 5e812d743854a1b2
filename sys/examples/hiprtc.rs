//! Compiles HIP sources with hipRTC, for a GPU that need not be there:
//!
//! ```sh
//! cargo run -p hipvit-sys --example hiprtc -- FOLDER OUTPUT gfx942 add.hip softmax.hip …
//! ```
//!
//! Every file becomes `OUTPUT/<name>-<GPU>.bin`. It may include the headers in `FOLDER` and its folders by their paths relative
//! to `FOLDER` or `FOLDER/include`.
#![allow(
    clippy::expect_used,
    reason = "a command-line program, which ends at the first error"
)]

use std::error::Error;
use std::ffi::{CString, OsStr, c_char};
use std::path::{Path, PathBuf};
use std::{env, fs, ptr};

use hipvit_sys::hiprtc::hiprtcProgram;
use hipvit_sys::{Hiprtc, Provider, Status};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [folder, output, gpu, sources @ ..] = arguments.as_slice() else {
        return Err("usage: hiprtc FOLDER OUTPUT GPU FILE…".into());
    };
    let provider = Provider::from_env()?;
    let rtc = provider.hiprtc()?;
    let (folder, output) = (Path::new(folder), Path::new(output));
    let mut headers = texts("", &files(folder, &["h", "hpp"])?)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if path.is_dir() {
            let prefix = if name == "include" {
                String::new()
            } else {
                format!("{name}/")
            };
            headers.extend(texts(&prefix, &files(&path, &["h", "hpp"])?)?);
        }
    }
    let sources: Vec<PathBuf> = sources.iter().map(|source| folder.join(source)).collect();
    let sources = texts("", &sources)?;
    if sources.is_empty() {
        return Err("nothing to compile".into());
    }
    fs::create_dir_all(output)?;
    let mut bytes = 0;
    for (name, text) in &sources {
        let code = compile(rtc, (name, text), &headers, gpu)
            .map_err(|error| format!("{} for {gpu}: {error}", name.to_string_lossy()))?;
        let stem = Path::new(name.to_str()?).with_extension("");
        fs::write(output.join(format!("{}-{gpu}.bin", stem.display())), &code)?;
        bytes += code.len();
    }
    println!("{gpu}: {} files, {bytes} bytes of code", sources.len());
    Ok(())
}

/// The files of a folder with one of these extensions, sorted.
fn files(folder: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.retain(|file| {
        file.extension()
            .and_then(OsStr::to_str)
            .is_some_and(|e| extensions.contains(&e))
    });
    files.sort();
    Ok(files)
}

/// Each file's name, after `prefix`, and contents.
fn texts(prefix: &str, files: &[PathBuf]) -> Result<Vec<(CString, CString)>> {
    let text = |file: &PathBuf| {
        let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        Ok((
            CString::new(format!("{prefix}{name}"))?,
            CString::new(fs::read(file)?)?,
        ))
    };
    files.iter().map(text).collect()
}

fn compile(
    rtc: &Hiprtc,
    (name, text): (&CString, &CString),
    headers: &[(CString, CString)],
    gpu: &str,
) -> Result<Vec<u8>> {
    let options = [
        CString::new(format!("--offload-arch={gpu}"))?,
        c"-std=c++17".to_owned(),
    ];
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let (names, texts): (Vec<_>, Vec<_>) = headers
        .iter()
        .map(|(name, text)| (name.as_ptr(), text.as_ptr()))
        .unzip();
    let mut program: hiprtcProgram = ptr::null_mut();
    // SAFETY: one handle is written; the strings end in zeros and outlive the program; the counts are those of the arrays.
    unsafe {
        rtc.hiprtcCreateProgram(
            &mut program,
            text.as_ptr(),
            name.as_ptr(),
            i32::try_from(headers.len())?,
            texts.as_ptr(),
            names.as_ptr(),
        )
    }?
    .ok()?;
    // SAFETY: the program lives; the array has the given number of options.
    let compiled =
        unsafe { rtc.hiprtcCompileProgram(program, i32::try_from(options.len())?, options.as_ptr()) }?;
    let code = match compiled.ok() {
        // SAFETY: each call writes what its name says, into a buffer of the size that the library returned.
        Ok(()) => unsafe {
            let mut size = 0;
            rtc.hiprtcGetCodeSize(program, &mut size)?.ok()?;
            let mut code = vec![0u8; size];
            rtc.hiprtcGetCode(program, code.as_mut_ptr().cast())?.ok()?;
            Ok(code)
        },
        // SAFETY: as above.
        Err(status) => unsafe {
            let mut size = 0;
            rtc.hiprtcGetProgramLogSize(program, &mut size)?.ok()?;
            let mut log = vec![0u8; size];
            rtc.hiprtcGetProgramLog(program, log.as_mut_ptr().cast())?.ok()?;
            Err(format!(
                "{status}\n{}",
                String::from_utf8_lossy(&log).trim_end_matches('\0')
            ))
        },
    };
    // SAFETY: made above, destroyed once.
    unsafe { rtc.hiprtcDestroyProgram(&mut program) }?.ok()?;
    Ok(code?)
}
