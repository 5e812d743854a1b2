//! Device code, compiled at run time by hipRTC, and kept.

mod cache;

use std::ffi::{CString, OsString, c_char};
use std::time::UNIX_EPOCH;
use std::{env, ptr};

use hipvit_sys::hiprtc::hiprtcProgram;
use hipvit_sys::{Hiprtc, Table};

pub use self::cache::KernelCache;
use self::cache::Key;
use crate::code::Code;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::status::{check, missing};

/// Variables by which hipRTC takes options beside those that it is given.
const OPTION_VARIABLES: [&str; 2] = ["HIPRTC_COMPILE_OPTIONS_APPEND", "HIPRTC_LINK_OPTIONS_APPEND"];

/// hipRTC (NVRTC, where the provider is one for CUDA), for one device. What it compiles is kept in a [`KernelCache`],
/// if it is given one.
#[derive(Clone, Debug)]
pub struct Rtc {
    device: Device,
    cache: Option<KernelCache>,
}

impl Rtc {
    /// # Errors
    ///
    /// [`Error::Provider`] if hipRTC cannot be opened.
    pub fn new(device: &Device) -> Result<Self> {
        device
            .runtime()
            .provider()
            .hiprtc()
            .map_err(|error| missing(&error))?;
        Ok(Self {
            device: device.clone(),
            cache: None,
        })
    }

    /// The same with this cache, or none.
    #[must_use]
    pub fn with_cache(self, cache: Option<KernelCache>) -> Self {
        Self { cache, ..self }
    }

    /// Compiles HIP C++ for the device: `source` may include the `headers` (name, contents); `options` are added to
    /// `--offload-arch`. What the same compiler has made of the same before is taken from the cache.
    ///
    /// A cache that cannot be written costs the next start its time and nothing else, so it is no error here;
    /// [`KernelCache::usage`] tells.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`] with the compiler's log.
    pub fn compile(
        &self,
        program: &str,
        source: &str,
        headers: &[(&str, &str)],
        options: &[&str],
    ) -> Result<Code> {
        let rtc = self
            .device
            .runtime()
            .provider()
            .hiprtc()
            .map_err(|error| missing(&error))?;
        let arch = format!("--offload-arch={}", self.device.properties().target);
        let options: Vec<&str> = std::iter::once(arch.as_str())
            .chain(options.iter().copied())
            .collect();
        let cache = self.cache.as_ref();
        let cache = cache.map(|cache| (cache, self.key(rtc, program, source, headers, &options)));
        if let Some(code) = cache.and_then(|(cache, key)| cache.get(key)) {
            return Ok(code);
        }

        let source = c_string(source)?;
        let name = c_string(program)?;
        let names = headers
            .iter()
            .map(|(name, _)| c_string(name))
            .collect::<Result<Vec<_>>>()?;
        let texts = headers
            .iter()
            .map(|(_, text)| c_string(text))
            .collect::<Result<Vec<_>>>()?;
        let options = options.into_iter().map(c_string).collect::<Result<Vec<_>>>()?;

        let mut raw = ptr::null_mut();
        // SAFETY: the call writes one handle; every string ends in a zero, and there are as many as it is told.
        self.check("hiprtcCreateProgram", unsafe {
            rtc.hiprtcCreateProgram(
                &mut raw,
                source.as_ptr(),
                name.as_ptr(),
                headers.len() as i32,
                pointers(&texts).as_ptr(),
                pointers(&names).as_ptr(),
            )
        })?;
        let raw = Program { rtc, raw };
        // SAFETY: the program lives; as many options as it is told.
        let compiled = self.check("hiprtcCompileProgram", unsafe {
            rtc.hiprtcCompileProgram(raw.raw, options.len() as i32, pointers(&options).as_ptr())
        });
        if let Err(error) = compiled {
            let log = self.log(&raw);
            return Err(match log.trim() {
                "" => error,
                log => Error::Compile {
                    program: program.to_owned(),
                    reason: first_error(log).to_owned(),
                    log: log.to_owned(),
                },
            });
        }
        let bytes = self.code(&raw)?;
        let code = Code::new(&bytes)?;
        if let Some((cache, key)) = cache {
            let _ = cache.put(key, &bytes);
        }
        Ok(code)
    }

    /// All that the code depends on: what is compiled, how, and by whom. A version that a library does not tell is no
    /// reason to compile nothing.
    fn key(
        &self,
        rtc: &Hiprtc,
        program: &str,
        source: &str,
        headers: &[(&str, &str)],
        options: &[&str],
    ) -> Key {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the call writes two ints.
        let told = self.check("hiprtcVersion", unsafe {
            rtc.hiprtcVersion(&mut major, &mut minor)
        });
        // Versions do not tell patched builds apart; the file's size and age mostly do.
        let file = rtc.path().metadata().ok();
        let age = file.as_ref().and_then(|file| file.modified().ok());
        let age = age.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let compiler = format!(
            "{} {:?} {age:?} {:?} {:?}",
            rtc.path().display(),
            file.map(|file| file.len()),
            told.ok().map(|()| (major, minor)),
            self.device.runtime().version().ok(),
        );
        let variables =
            OPTION_VARIABLES.map(|name| env::var_os(name).map_or(vec![], OsString::into_encoded_bytes));
        // The counts tell where one list ends and the next begins.
        let counts = [headers.len(), options.len()].map(|n| n as u64);
        let parts = [
            compiler.as_bytes(),
            bytemuck::cast_slice(&counts),
            program.as_bytes(),
            source.as_bytes(),
        ];
        let headers = headers
            .iter()
            .flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]);
        let options = options.iter().map(|option| option.as_bytes());
        let variables = variables.iter().map(Vec::as_slice);
        Key::new(parts.into_iter().chain(headers).chain(options).chain(variables))
    }

    fn code(&self, program: &Program<'_>) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the call writes one size.
        self.check("hiprtcGetCodeSize", unsafe {
            program.rtc.hiprtcGetCodeSize(program.raw, &mut size)
        })?;
        let mut code = vec![0u8; size];
        // SAFETY: the call writes as many bytes as it said.
        self.check("hiprtcGetCode", unsafe {
            program.rtc.hiprtcGetCode(program.raw, code.as_mut_ptr().cast())
        })?;
        Ok(code)
    }

    /// What the compiler said; nothing if it cannot be had.
    fn log(&self, program: &Program<'_>) -> String {
        let mut size = 0;
        // SAFETY: the call writes one size.
        let sized = self.check("hiprtcGetProgramLogSize", unsafe {
            program.rtc.hiprtcGetProgramLogSize(program.raw, &mut size)
        });
        if sized.is_err() || size == 0 {
            return String::new();
        }
        let mut log = vec![0u8; size];
        // SAFETY: the call writes as many bytes as it said.
        let told = self.check("hiprtcGetProgramLog", unsafe {
            program
                .rtc
                .hiprtcGetProgramLog(program.raw, log.as_mut_ptr().cast())
        });
        if told.is_err() {
            return String::new();
        }
        String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned()
    }

    fn check<S: hipvit_sys::Status>(
        &self,
        call: &'static str,
        returned: Result<S, hipvit_sys::Error>,
    ) -> Result<()> {
        check(self.device.name(), call, returned)
    }
}

/// A program of hipRTC, which is destroyed.
struct Program<'a> {
    rtc: &'a Hiprtc,
    raw: hiprtcProgram,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: destroyed once, by its owner. It is host memory: a failure hurts nobody.
        let _ = unsafe { self.rtc.hiprtcDestroyProgram(&mut self.raw) };
    }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| Error::argument("program", error))
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).collect()
}

/// The first line of a compiler's log that says what is wrong.
fn first_error(log: &str) -> &str {
    let mut lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
    let wrong = lines.clone().find(|line| line.contains("error"));
    wrong.or_else(|| lines.next()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_of_a_log_is_found() {
        let log = "a.hip:1:1: warning: odd\n a.hip:2:3: error: no such thing\n2 errors generated.\n";
        assert_eq!(first_error(log), "a.hip:2:3: error: no such thing");
        assert_eq!(first_error("\n gone wrong \n"), "gone wrong");
    }
}
