//! Device code that is compiled at run time by hipRTC, and cached.

mod cache;

use std::ffi::{CStr, CString, OsString, c_char};
use std::time::{Instant, UNIX_EPOCH};
use std::{env, ptr};

use hipvit_sys::hiprtc::hiprtcProgram;
use hipvit_sys::{Hiprtc, Table};

pub use self::cache::{CachedKernel, KernelCache};
use self::cache::{Description, Key};
use crate::code::Code;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::status::{check, missing};

/// Environment variables with additional options of hipRTC, and those that select hip-emu's compiler.
const COMPILER_VARIABLES: [&str; 3] = [
    "HIPRTC_COMPILE_OPTIONS_APPEND",
    "HIPRTC_LINK_OPTIONS_APPEND",
    "HIP_EMU_CLANG",
];

/// hipRTC for one device, or NVRTC with a provider for CUDA. With a [`KernelCache`], compiled code is kept on disk.
#[derive(Clone, Debug)]
pub struct Rtc {
    device: Device,
    cache: Option<KernelCache>,
}

impl Rtc {
    /// Creates the compiler for `device`, without a cache.
    ///
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

    /// Sets or removes the cache.
    #[must_use]
    pub fn with_cache(self, cache: Option<KernelCache>) -> Self {
        Self { cache, ..self }
    }

    /// Compiles HIP C++ for the device. `source` may include the `headers` (name, contents). `options` are added to `--offload-arch`. This
    /// is [`Rtc::program`] in one call.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`] with the compiler's log if the source does not compile; [`Error::Provider`] if hipRTC cannot be opened.
    pub fn compile(
        &self,
        program: &str,
        source: &str,
        headers: &[(&str, &str)],
        options: &[&str],
    ) -> Result<Code> {
        let program = Program {
            headers: headers.to_vec(),
            options: options.to_vec(),
            ..self.program(program, source)
        };
        program.compile()
    }

    /// Starts a program of HIP C++ for the device. `name` is used in messages and in the debugger.
    ///
    /// ```no_run
    /// # fn main() -> hip_safe::Result<()> {
    /// # let device = hip_safe::Runtime::open()?.device(0)?;
    /// # let source = "";
    /// let rtc = hip_safe::Rtc::new(&device)?;
    /// let code = rtc.program("saxpy.hip", source).option("-O3").name("saxpy<float>").compile()?;
    /// let saxpy = hip_safe::Module::load(&device, code)?.function("saxpy<float>")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn program<'a>(&'a self, name: &'a str, source: &'a str) -> Program<'a> {
        Program {
            rtc: self,
            name,
            source,
            headers: Vec::new(),
            options: Vec::new(),
            expressions: Vec::new(),
        }
    }
}

/// A program to compile, from [`Rtc::program`].
#[must_use = "nothing is compiled before `compile`"]
#[derive(Clone, Debug)]
pub struct Program<'a> {
    rtc: &'a Rtc,
    name: &'a str,
    source: &'a str,
    headers: Vec<(&'a str, &'a str)>,
    options: Vec<&'a str>,
    expressions: Vec<&'a str>,
}

impl<'a> Program<'a> {
    /// Adds a header that the source can include by this name.
    pub fn header(mut self, name: &'a str, text: &'a str) -> Self {
        self.headers.push((name, text));
        self
    }

    /// Adds an option of the compiler. `--offload-arch` is set by the device.
    pub fn option(mut self, option: &'a str) -> Self {
        self.options.push(option);
        self
    }

    /// Adds a name expression: a C++ expression that names a kernel, which instantiates a template (`saxpy<float>`), or the address of a
    /// variable (`&nn::scale`). [`Module::function`](crate::Module::function) and [`Module::global`](crate::Module::global) find them by
    /// the same expression. [`Code::lowered_name`] returns the name in the code.
    pub fn name(mut self, expression: &'a str) -> Self {
        self.expressions.push(expression);
        self
    }

    /// Compiles the program, or takes the code from the cache if the same compiler has compiled the same program before.
    ///
    /// A failed write to the cache is not an error here, since it only costs the compile time of the next start. [`KernelCache::usage`]
    /// reports it.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`] with the log of the compiler.
    pub fn compile(&self) -> Result<Code> {
        let device = &self.rtc.device;
        let table = device
            .runtime()
            .provider()
            .hiprtc()
            .map_err(|error| missing(&error))?;
        let arch = format!("--offload-arch={}", device.properties().target);
        let options: Vec<&str> = std::iter::once(arch.as_str())
            .chain(self.options.iter().copied())
            .collect();
        let cache = self.rtc.cache.as_ref();
        let cache = cache.map(|cache| (cache, self.key(table, &options)));
        if let Some(kept) = cache.and_then(|(cache, key)| cache.get(key))
            && let Some(code) = self.unpack(&kept)
        {
            return Ok(code);
        }

        let begun = Instant::now();
        let (bytes, lowered) = self.build(table, &options)?;
        let compile_time = begun.elapsed();
        let code = Code::new(&bytes)?
            .with_lowered_names(self.paired(lowered.clone()))
            .with_compile_time(compile_time);
        if let Some((cache, key)) = cache {
            let description = Description {
                program: self.name,
                target: &device.properties().target,
                options: &self.options,
                compile_time,
            };
            let _ = cache.put(key, &description, &pack(&lowered, bytes));
        }
        Ok(code)
    }

    /// Returns the code, and the lowered name of each expression.
    fn build(&self, table: &Hiprtc, options: &[&str]) -> Result<(Vec<u8>, Vec<String>)> {
        let strings = |texts: &mut dyn Iterator<Item = &str>| texts.map(c_string).collect::<Result<Vec<_>>>();
        let (source, name) = (c_string(self.source)?, c_string(self.name)?);
        let names = strings(&mut self.headers.iter().map(|(name, _)| *name))?;
        let texts = strings(&mut self.headers.iter().map(|(_, text)| *text))?;
        let options = strings(&mut options.iter().copied())?;
        let expressions = strings(&mut self.expressions.iter().copied())?;

        let mut raw = ptr::null_mut();
        // SAFETY: the call writes one handle. Every string is zero-terminated, and there are as many as the count says.
        self.check("hiprtcCreateProgram", unsafe {
            table.hiprtcCreateProgram(
                &mut raw,
                source.as_ptr(),
                name.as_ptr(),
                names.len() as i32,
                pointers(&texts).as_ptr(),
                pointers(&names).as_ptr(),
            )
        })?;
        let raw = Handle { table, raw };
        for expression in &expressions {
            // SAFETY: the program is alive; the string is zero-terminated.
            self.check("hiprtcAddNameExpression", unsafe {
                table.hiprtcAddNameExpression(raw.raw, expression.as_ptr())
            })?;
        }
        // SAFETY: the program is alive; there are as many options as the count says.
        let compiled = self.check("hiprtcCompileProgram", unsafe {
            table.hiprtcCompileProgram(raw.raw, options.len() as i32, pointers(&options).as_ptr())
        });
        if let Err(error) = compiled {
            let log = self.log(&raw);
            return Err(match log.trim() {
                "" => error,
                log => Error::Compile {
                    program: self.name.to_owned(),
                    reason: first_error(log).to_owned(),
                    log: log.to_owned(),
                },
            });
        }
        let lowered = expressions.iter().map(|expression| {
            let mut name = ptr::null();
            // SAFETY: the program is alive; the string is zero-terminated; the call writes one pointer.
            self.check("hiprtcGetLoweredName", unsafe {
                table.hiprtcGetLoweredName(raw.raw, expression.as_ptr(), &mut name)
            })?;
            // SAFETY: a string of the program, which is alive.
            Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
        });
        let lowered = lowered.collect::<Result<_>>()?;
        Ok((self.code(&raw)?, lowered))
    }

    fn paired(&self, lowered: Vec<String>) -> Vec<(String, String)> {
        let expressions = self.expressions.iter().map(|&expression| expression.to_owned());
        expressions.zip(lowered).collect()
    }

    /// Restores an entry that [`pack`] packed, if it is intact.
    fn unpack(&self, kept: &[u8]) -> Option<Code> {
        let (mut names, mut rest) = (Vec::new(), kept);
        for _ in &self.expressions {
            let (size, after) = rest.split_first_chunk()?;
            let (name, after) = after.split_at_checked(u32::from_le_bytes(*size) as usize)?;
            names.push(String::from_utf8(name.to_vec()).ok()?);
            rest = after;
        }
        Some(Code::new(rest).ok()?.with_lowered_names(self.paired(names)))
    }

    /// Returns the hash of everything that the code depends on: source, options and compiler. An unknown version of a library is not an
    /// error.
    fn key(&self, rtc: &Hiprtc, options: &[&str]) -> Key {
        let device = &self.rtc.device;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the call writes two ints.
        let told = self.check("hiprtcVersion", unsafe {
            rtc.hiprtcVersion(&mut major, &mut minor)
        });
        // Versions do not distinguish patched builds, but size and age of the file usually do.
        let file = rtc.path().metadata().ok();
        let age = file.as_ref().and_then(|file| file.modified().ok());
        let age = age.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let compiler = format!(
            "{} {:?} {age:?} {:?} {:?}",
            rtc.path().display(),
            file.map(|file| file.len()),
            told.ok().map(|()| (major, minor)),
            device.runtime().version().ok(),
        );
        let variables =
            COMPILER_VARIABLES.map(|name| env::var_os(name).map_or(vec![], OsString::into_encoded_bytes));
        // The counts separate the lists.
        let counts = [self.headers.len(), options.len()].map(|n| n as u64);
        let parts = [
            compiler.as_bytes(),
            bytemuck::cast_slice(&counts),
            self.name.as_bytes(),
            self.source.as_bytes(),
        ];
        let headers = self
            .headers
            .iter()
            .flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]);
        let options = options.iter().map(|option| option.as_bytes());
        let variables = variables.iter().map(Vec::as_slice);
        let expressions = self.expressions.iter().map(|expression| expression.as_bytes());
        let parts = parts.into_iter().chain(headers).chain(options).chain(variables);
        Key::new(parts.chain(expressions))
    }

    fn code(&self, program: &Handle<'_>) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the call writes one size.
        self.check("hiprtcGetCodeSize", unsafe {
            program.table.hiprtcGetCodeSize(program.raw, &mut size)
        })?;
        let mut code = vec![0u8; size];
        // SAFETY: the call writes as many bytes as the size said.
        self.check("hiprtcGetCode", unsafe {
            program.table.hiprtcGetCode(program.raw, code.as_mut_ptr().cast())
        })?;
        Ok(code)
    }

    /// Returns the compiler's log. Empty if it cannot be read.
    fn log(&self, program: &Handle<'_>) -> String {
        let mut size = 0;
        // SAFETY: the call writes one size.
        let sized = self.check("hiprtcGetProgramLogSize", unsafe {
            program.table.hiprtcGetProgramLogSize(program.raw, &mut size)
        });
        if sized.is_err() || size == 0 {
            return String::new();
        }
        let mut log = vec![0u8; size];
        // SAFETY: the call writes as many bytes as the size said.
        let told = self.check("hiprtcGetProgramLog", unsafe {
            program
                .table
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
        check(self.rtc.device.name(), call, returned)
    }
}

/// A hipRTC program, destroyed on drop.
struct Handle<'a> {
    table: &'a Hiprtc,
    raw: hiprtcProgram,
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: destroyed once, by its owner. Ignoring a failure is safe: it only leaks host memory.
        let _ = unsafe { self.table.hiprtcDestroyProgram(&mut self.raw) };
    }
}

/// Packs an entry of the cache: the lowered names, each after its length, then the code.
fn pack(lowered: &[String], code: Vec<u8>) -> Vec<u8> {
    if lowered.is_empty() {
        return code;
    }
    let mut packed = Vec::new();
    for name in lowered {
        packed.extend((name.len() as u32).to_le_bytes());
        packed.extend(name.as_bytes());
    }
    packed.extend(code);
    packed
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| Error::argument("program", error))
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).collect()
}

/// Returns the first line of a compiler's log that reports an error.
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
