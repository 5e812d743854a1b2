//! A module's image in memory: an ELF file or a clang offload bundle. Callers pass only its address.

use std::slice;

use hipvit_sys::hip::hipError_t;

use crate::parts::Part;

const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED: &[u8] = b"CCOB";
const ELF: &[u8] = b"\x7fELF";

/// The code object for `part` within an image, or why there is none.
///
/// # Safety
/// `image` points to a whole ELF file or bundle.
pub(super) unsafe fn code_object<'a>(
    image: *const u8,
    part: &Part,
) -> Result<&'a [u8], (hipError_t, String)> {
    // SAFETY: the caller's image is longer than its magic number, and each further read stays within the structure that
    // the ones before it described.
    unsafe {
        if starts_with(image, ELF) {
            Ok(slice::from_raw_parts(image, elf_length(image)))
        } else if starts_with(image, BUNDLE) {
            from_bundle(image, part)
        } else if starts_with(image, COMPRESSED) {
            let reason = "compressed bundles are not supported: compile with --no-offload-compress";
            Err((hipError_t::hipErrorInvalidImage, reason.into()))
        } else {
            let reason = "the image is neither an ELF file nor an offload bundle";
            Err((hipError_t::hipErrorInvalidImage, reason.into()))
        }
    }
}

/// # Safety
/// `image` has as many bytes as `magic`, or differs from it before its end.
unsafe fn starts_with(image: *const u8, magic: &[u8]) -> bool {
    // SAFETY: as the caller says; the comparison ends with the first difference.
    magic
        .iter()
        .enumerate()
        .all(|(at, &byte)| unsafe { image.add(at).read() } == byte)
}

/// The little-endian number of `N` bytes at `at`.
///
/// # Safety
/// The bytes are there.
unsafe fn number<const N: usize>(image: *const u8, at: usize) -> usize {
    let mut wide = [0; 8];
    // SAFETY: as the caller says.
    let bytes = unsafe { image.add(at).cast::<[u8; N]>().read_unaligned() };
    wide[..N].copy_from_slice(&bytes);
    u64::from_le_bytes(wide) as usize
}

/// The length of an ELF64 file: the end of its tables, segments and sections.
///
/// # Safety
/// `image` is a whole ELF64 file.
unsafe fn elf_length(image: *const u8) -> usize {
    const NOBITS: usize = 8;
    // SAFETY: the header, and then entries of the tables that it describes.
    unsafe {
        let (segments, segment_size, segment_count) = (
            number::<8>(image, 32),
            number::<2>(image, 54),
            number::<2>(image, 56),
        );
        let (sections, section_size, section_count) = (
            number::<8>(image, 40),
            number::<2>(image, 58),
            number::<2>(image, 60),
        );
        let of_segments = (0..segment_count).map(|index| {
            let entry = segments + index * segment_size;
            number::<8>(image, entry + 8) + number::<8>(image, entry + 32)
        });
        let of_sections = (0..section_count).map(|index| {
            let entry = sections + index * section_size;
            match number::<4>(image, entry + 4) {
                NOBITS => 0,
                _ => number::<8>(image, entry + 24) + number::<8>(image, entry + 32),
            }
        });
        let tables = [
            segments + segment_count * segment_size,
            sections + section_count * section_size,
        ];
        of_segments.chain(of_sections).chain(tables).max().unwrap_or(0)
    }
}

/// The bundle's entry for the part.
///
/// # Safety
/// `image` is a whole bundle.
unsafe fn from_bundle<'a>(image: *const u8, part: &Part) -> Result<&'a [u8], (hipError_t, String)> {
    let mut targets = Vec::new();
    let mut at = BUNDLE.len() + 8;
    // SAFETY: a count, then for each entry offset, size and name, as the count and the lengths say.
    unsafe {
        for _ in 0..number::<8>(image, BUNDLE.len()) {
            let (offset, size, name_len) = (
                number::<8>(image, at),
                number::<8>(image, at + 8),
                number::<8>(image, at + 16),
            );
            let name = slice::from_raw_parts(image.add(at + 24), name_len);
            let name = String::from_utf8_lossy(name);
            if name.starts_with("hip")
                && let Some((_, target)) = name.split_once("--")
            {
                if fits(target, part) {
                    return Ok(slice::from_raw_parts(image.add(offset), size));
                }
                targets.push(target.to_owned());
            }
            at += 24 + name_len;
        }
    }
    let reason = format!(
        "the bundle has code for {}, not for {}",
        targets.join(", "),
        part.target
    );
    Err((hipError_t::hipErrorNoBinaryForGpu, reason))
}

/// True if code for `target` runs on the part: same processor, or generic code of its family, and all its features present.
pub(super) fn fits(target: &str, part: &Part) -> bool {
    let mut words = target.split(':');
    let processor = words.next();
    (processor == Some(part.arch) || processor.is_some() && processor == generic(part.arch))
        && words.all(|feature| part.target.split(':').any(|has| has == feature))
}

/// The target of code that runs on all processors of a family. LLVM, "User Guide for AMDGPU Backend", generic processors.
fn generic(arch: &str) -> Option<&'static str> {
    match arch {
        _ if arch.starts_with("gfx103") => Some("gfx10-3-generic"),
        _ if arch.starts_with("gfx110") || arch.starts_with("gfx115") => Some("gfx11-generic"),
        _ if arch.starts_with("gfx120") => Some("gfx12-generic"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::find;

    /// A bundle with these targets, whose code is their names.
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
    fn a_bundle_gives_the_code_for_the_part() {
        let bytes = bundle(&["gfx90a:xnack+", "gfx90a:xnack-", "gfx1100"]);
        let part = find("gfx90a").unwrap();
        // SAFETY: a whole bundle.
        let found = unsafe { code_object(bytes.as_ptr(), part) };
        assert_eq!(found.unwrap(), b"gfx90a:xnack-");
        let part = find("gfx942").unwrap();
        // SAFETY: as above.
        let (status, reason) = unsafe { code_object(bytes.as_ptr(), part) }.unwrap_err();
        assert_eq!(status, hipError_t::hipErrorNoBinaryForGpu);
        assert!(reason.contains("gfx1100, not for gfx942"), "{reason}");
    }

    #[test]
    fn the_length_of_an_elf_file() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        // SAFETY: a whole ELF file.
        assert_eq!(unsafe { elf_length(program.as_ptr()) }, program.len());
    }
}
