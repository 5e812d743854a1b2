//! Device code as bytes. It is checked before a driver reads it, because drivers take an address without a length.

pub(crate) mod metadata;
mod waves;

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use crate::error::{Error, Result};

/// A code object: an ELF file, clang's bundle of several, CUDA's fat binary, or PTX. Its outer structure is within its bytes.
#[derive(Clone)]
pub struct Code {
    /// Words of 8 bytes, because headers are read in place.
    words: Vec<u64>,
    bytes: usize,
    targets: Vec<String>,
    /// Byte ranges of the code of each target.
    entries: Vec<Range<usize>>,
    /// Name expressions with the compiler's names.
    lowered: Vec<(String, String)>,
    compile_time: Option<Duration>,
}

const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED: &[u8] = b"CCOB";
const FATBIN: [u8; 4] = 0xba55_ed50u32.to_le_bytes();

impl Code {
    /// Copies a code object and checks that its parts are within its bytes. [`Module::load`](crate::Module::load) checks that it
    /// fits a GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the format is unknown, or if the bytes end before their structure does.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        let wrong = |reason: &str| Error::argument("code", reason);
        let short = || wrong("the code object is cut short");
        let (mut targets, mut entries) = (Vec::new(), Vec::new());
        if bytes.starts_with(b"\x7fELF") {
            check_elf(bytes).ok_or_else(short)?;
        } else if bytes.starts_with(BUNDLE) {
            (targets, entries) = check_bundle(bytes).ok_or_else(short)?;
        } else if bytes.starts_with(COMPRESSED) {
            check_compressed(bytes).ok_or_else(short)?;
        } else if bytes.starts_with(&FATBIN) {
            check_fatbin(bytes).ok_or_else(short)?;
        } else if !is_ptx(bytes) {
            return Err(wrong("is not an ELF file, a bundle of them, a fat binary or PTX"));
        }
        let mut words = vec![0u64; bytes.len() / 8 + 1];
        // The last word ends with at least one zero, which terminates PTX.
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Ok(Self {
            words,
            bytes: bytes.len(),
            targets,
            entries,
            lowered: Vec::new(),
            compile_time: None,
        })
    }

    /// Returns the targets of a bundle, such as `gfx90a:xnack-`. Empty if the code is not a bundle, or a compressed one.
    #[must_use]
    pub fn targets(&self) -> &[String] {
        &self.targets
    }

    /// Returns the name in the code for a [name expression](crate::Program::name): `_Z5saxpyIfEvjT_PKS0_PS0_` for `saxpy<float>`.
    /// [`Module::function`](crate::Module::function) uses it automatically.
    #[must_use]
    pub fn lowered_name(&self, expression: &str) -> Option<&str> {
        let mut lowered = self.lowered.iter();
        lowered.find_map(|(known, name)| (known == expression).then_some(name.as_str()))
    }

    pub(crate) fn with_lowered_names(self, lowered: Vec<(String, String)>) -> Self {
        Self { lowered, ..self }
    }

    /// Returns the time that the run-time compiler took. `None` for code that was not compiled by this process.
    #[must_use]
    pub fn compile_time(&self) -> Option<Duration> {
        self.compile_time
    }

    pub(crate) fn with_compile_time(self, compile_time: Duration) -> Self {
        Self {
            compile_time: Some(compile_time),
            ..self
        }
    }

    /// Returns the kernels for GPUs of `arch`, with the wave size that each was compiled for. Empty on CUDA, where kernels have no choice,
    /// and for a compressed bundle.
    #[must_use]
    pub fn wave_sizes(&self, arch: &str) -> Vec<(String, u32)> {
        self.objects(arch)
            .into_iter()
            .flat_map(waves::wave_sizes)
            .collect()
    }

    /// Returns the kernels' parameters that the code for GPUs of `arch` declares. Empty for a compressed bundle, a fat binary and PTX.
    pub(crate) fn kernels(&self, arch: &str) -> metadata::Kernels {
        self.objects(arch)
            .into_iter()
            .flat_map(metadata::kernels)
            .collect()
    }

    /// Returns the code objects for GPUs of `arch`: those for this architecture, or the generic ones.
    fn objects(&self, arch: &str) -> Vec<&[u8]> {
        let bytes = self.as_bytes();
        if self.targets.is_empty() {
            return vec![bytes];
        }
        let of = |arch: &str| -> Vec<&[u8]> {
            let targets = self.targets.iter().map(|target| target.split(':').next());
            let entries = targets.zip(&self.entries);
            entries
                .filter(|(target, _)| *target == Some(arch))
                .map(|(_, entry)| &bytes[entry.clone()])
                .collect()
        };
        let exact = of(arch);
        match generic_target(arch).filter(|_| exact.is_empty()) {
            Some(generic) => of(generic),
            None => exact,
        }
    }

    /// Returns the bytes as they are loaded, for hashing.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    pub(crate) fn as_ptr(&self) -> *const std::ffi::c_void {
        self.words.as_ptr().cast()
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code")
            .field("bytes", &self.bytes)
            .field("targets", &self.targets)
            .finish()
    }
}

/// Returns the little-endian number of `N` bytes at `at`.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    usize::try_from(u64::from_le_bytes(wide)).ok()
}

/// Returns `None` if the range exceeds `bytes`.
fn lies_within(bytes: &[u8], start: usize, len: usize) -> Option<()> {
    (start.checked_add(len)? <= bytes.len()).then_some(())
}

/// Checks an ELF64 file: the header, the tables of segments and sections, and the ranges in their entries.
fn check_elf(bytes: &[u8]) -> Option<()> {
    const NOBITS: usize = 8;
    let (segments, segment_size, segment_count) = (
        number::<8>(bytes, 32)?,
        number::<2>(bytes, 54)?,
        number::<2>(bytes, 56)?,
    );
    let (sections, section_size, section_count) = (
        number::<8>(bytes, 40)?,
        number::<2>(bytes, 58)?,
        number::<2>(bytes, 60)?,
    );
    for index in 0..segment_count {
        let entry = segments.checked_add(index * segment_size)?;
        lies_within(
            bytes,
            number::<8>(bytes, entry.checked_add(8)?)?,
            number::<8>(bytes, entry.checked_add(32)?)?,
        )?;
    }
    for index in 0..section_count {
        let entry = sections.checked_add(index * section_size)?;
        if number::<4>(bytes, entry.checked_add(4)?)? != NOBITS {
            let (start, len) = (entry.checked_add(24)?, entry.checked_add(32)?);
            lies_within(bytes, number::<8>(bytes, start)?, number::<8>(bytes, len)?)?;
        }
    }
    lies_within(bytes, segments, segment_count * segment_size)?;
    lies_within(bytes, sections, section_count * section_size)
}

/// Parses clang's bundle: a count, then for each entry offset, size, and a name such as `hipv4-amdgcn-amd-amdhsa--gfx90a`.
fn check_bundle(bytes: &[u8]) -> Option<(Vec<String>, Vec<Range<usize>>)> {
    let (mut targets, mut entries) = (Vec::new(), Vec::new());
    let mut at = BUNDLE.len() + 8;
    for _ in 0..number::<8>(bytes, BUNDLE.len())? {
        let (offset, size, name_len) = (
            number::<8>(bytes, at)?,
            number::<8>(bytes, at + 8)?,
            number::<8>(bytes, at + 16)?,
        );
        lies_within(bytes, offset, size)?;
        let name = bytes.get(at + 24..(at + 24).checked_add(name_len)?)?;
        let name = String::from_utf8_lossy(name);
        if name.starts_with("hip")
            && let Some((_, target)) = name.split_once("--")
        {
            targets.push(target.to_owned());
            entries.push(offset..offset + size);
        }
        at += 24 + name_len;
    }
    Some((targets, entries))
}

/// Checks clang's compressed bundle. From version 2 on it has its size after version and method.
fn check_compressed(bytes: &[u8]) -> Option<()> {
    let size = match number::<2>(bytes, 4)? {
        1 => return Some(()),
        2 => number::<4>(bytes, 8)?,
        _ => number::<8>(bytes, 8)?,
    };
    lies_within(bytes, 0, size)
}

/// Checks CUDA's fat binary: magic, version, size of the header, size of the rest.
fn check_fatbin(bytes: &[u8]) -> Option<()> {
    lies_within(bytes, number::<2>(bytes, 6)?, number::<8>(bytes, 8)?)
}

/// Returns true for PTX: text with a `.version` line before any code.
fn is_ptx(bytes: &[u8]) -> bool {
    let text = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    std::str::from_utf8(text).is_ok_and(|text| {
        !text.contains('\0')
            && text
                .lines()
                .any(|line| line.trim_start().starts_with(".version "))
    })
}

/// Returns the target of code that runs on all RDNA GPUs of the same family as `arch`: `gfx11-generic` for `gfx1151`. `None` for other GPUs.
///
/// ROCm 7 loads such code. It need not know the GPUs that come after it. See generic processors in LLVM's "User Guide for AMDGPU Backend".
#[must_use]
pub fn generic_target(arch: &str) -> Option<&'static str> {
    let families = [
        ("gfx103", "gfx10-3-generic"),
        ("gfx110", "gfx11-generic"),
        ("gfx115", "gfx11-generic"),
        ("gfx120", "gfx12-generic"),
    ];
    let (_, generic) = families
        .into_iter()
        .find(|(family, _)| arch.starts_with(family))?;
    Some(generic)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a bundle with these targets, whose code is their names.
    fn bundle(targets: &[&str]) -> Vec<u8> {
        let names: Vec<String> = targets
            .iter()
            .map(|t| format!("hipv4-amdgcn-amd-amdhsa--{t}"))
            .collect();
        let mut offset = 32 + names.iter().map(|n| 24 + n.len()).sum::<usize>();
        let mut bytes = BUNDLE.to_vec();
        bytes.extend((names.len() as u64).to_le_bytes());
        for (name, target) in names.iter().zip(targets) {
            for number in [offset, target.len(), name.len()] {
                bytes.extend((number as u64).to_le_bytes());
            }
            bytes.extend(name.as_bytes());
            offset += target.len();
        }
        bytes.extend(targets.concat().as_bytes());
        bytes
    }

    #[test]
    fn a_bundle_tells_its_targets() {
        let code = Code::new(&bundle(&["gfx90a:xnack-", "gfx1100"])).unwrap();
        assert_eq!(code.targets(), ["gfx90a:xnack-", "gfx1100"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_very_program_is_an_elf_file_and_no_part_of_it_is() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        Code::new(&program).unwrap();
        for len in [0, 4, 63, 64, 4096, program.len() - 1] {
            let error = Code::new(&program[..len]).unwrap_err().to_string();
            assert!(error.starts_with("code: "), "{len}: {error}");
        }
    }

    #[test]
    fn text_is_ptx_if_it_says_so() {
        Code::new(b"// by nvcc\n.version 8.0\n.target sm_90\n").unwrap();
        Code::new(b"__global__ void f() {}").unwrap_err();
    }

    proptest! {
        /// The check does not panic for any bytes, and rejects a truncated bundle.
        #[test]
        fn no_bytes_panic(kind in 0usize..5, tail in prop::collection::vec(any::<u8>(), 0..120), cut in 1usize..100) {
            let magic: &[u8] = [b"\x7fELF".as_slice(), BUNDLE, COMPRESSED, &FATBIN, b""][kind];
            let _ = Code::new(&[magic, &tail].concat());
            let whole = bundle(&["gfx942"]);
            prop_assert!(Code::new(&whole[..whole.len().saturating_sub(cut)]).is_err());
        }
    }
}
