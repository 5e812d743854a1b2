//! The kernels' device code as `build.rs` embedded it: the sources of `hip/`, for compilation at run time, and code objects for the
//! requested architectures.

use std::io::Read as _;
use std::sync::LazyLock;

use flate2::read::DeflateDecoder;

use crate::hip::generic_target;

include!(concat!(env!("OUT_DIR"), "/device_code.rs"));

/// A kernel file compiled for one architecture.
#[derive(Clone, Copy)]
pub(super) struct CodeObject {
    /// Name of the kernel file without its extension: `attention`.
    pub(super) kernel: &'static str,
    /// Architecture of its GPUs: `gfx942`, `gfx90a:xnack-`, `sm_90`.
    pub(super) arch: &'static str,
    /// An ELF file: an AMD code object, or a cubin.
    pub(super) bytes: &'static [u8],
}

impl CodeObject {
    /// Returns true if the code is for all GPUs of a family.
    pub(super) fn is_generic(&self) -> bool {
        self.arch.ends_with("-generic")
    }
}

impl std::fmt::Debug for CodeObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} for {}, {} bytes", self.kernel, self.arch, self.bytes.len())
    }
}

/// Options of a run-time compiler, besides the architecture and macros.
pub(super) const OPTIONS: &[&str] = &["-std=c++17"];

/// The names of the sources and of the headers, with their texts.
struct Texts {
    sources: Vec<(&'static str, &'static str)>,
    headers: Vec<(&'static str, &'static str)>,
}

/// The texts, decompressed at their first use, which takes a few milliseconds.
static TEXTS: LazyLock<Texts> = LazyLock::new(|| {
    let deflated: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/device_code.deflate"));
    let mut all = String::new();
    let read = DeflateDecoder::new(deflated).read_to_string(&mut all);
    debug_assert!(read.is_ok(), "{read:?}");
    let mut rest: &'static str = all.leak();
    let mut texts = |names: &[(&'static str, usize)]| {
        let text = |&(name, length)| {
            let (text, after) = rest.split_at_checked(length)?;
            rest = after;
            Some((name, text))
        };
        names.iter().map_while(text).collect()
    };
    Texts {
        sources: texts(SOURCES),
        headers: texts(HEADERS),
    }
});

/// Returns the source of a kernel file.
pub(super) fn source(kernel: &str) -> Option<&'static str> {
    TEXTS
        .sources
        .iter()
        .find(|(name, _)| *name == kernel)
        .map(|(_, text)| *text)
}

/// Returns the name of the file with this text, which a generated program may have: `causal_64` in `hip/patterns`.
pub(super) fn file_of(source: &str) -> Option<&'static str> {
    TEXTS
        .sources
        .iter()
        .find(|(_, text)| *text == source)
        .map(|(name, _)| *name)
}

/// Returns the headers that the sources include, with the names that they use.
pub(super) fn headers() -> &'static [(&'static str, &'static str)] {
    &TEXTS.headers
}

/// Returns the architectures that the crate was built for.
pub(super) fn archs() -> std::collections::BTreeSet<&'static str> {
    OBJECTS.iter().map(|object| object.arch).collect()
}

/// Returns the code object of a kernel file for a device of architecture `arch`, which may have features after a colon
/// (`gfx90a:sramecc+:xnack-`). The code is for all features, for some that the device has, or for all GPUs of its family
/// (`gfx11-generic`). A cubin also runs on later devices of the same major capability.
pub(super) fn object(kernel: &str, arch: &str) -> Option<CodeObject> {
    let mut fitting: Vec<_> = OBJECTS
        .iter()
        .filter(|object| object.kernel == kernel && fits(object.arch, arch))
        .collect();
    fitting.sort_by_key(|object| (!object.is_generic(), object.arch.len(), object.arch));
    fitting.last().map(|object| **object)
}

fn fits(built: &str, device: &str) -> bool {
    if let (Some(built), Some(device)) = (built.strip_prefix("sm_"), device.strip_prefix("sm_")) {
        let (Ok(built), Ok(device)) = (built.parse::<u32>(), device.parse::<u32>()) else {
            return built == device; // sm_90a runs on no other
        };
        return built / 10 == device / 10 && built <= device;
    }
    let mut built = built.split(':');
    let (processor, features) = device.split_once(':').unwrap_or((device, ""));
    let target = built.next();
    let fits = target == Some(processor) || target.is_some() && target == generic_target(processor);
    fits && built.all(|feature| features.split(':').any(|has| has == feature))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn code_fits_devices_of_its_architecture_and_features() {
        for (built, device, expected) in [
            ("gfx942", "gfx942:sramecc+:xnack-", true),
            ("gfx90a:xnack-", "gfx90a:sramecc+:xnack-", true),
            ("gfx90a:xnack+", "gfx90a:sramecc+:xnack-", false),
            ("gfx90a", "gfx942", false),
            ("gfx11-generic", "gfx1153", true),
            ("gfx11-generic", "gfx1201", false),
            ("gfx12-generic", "gfx1201", true),
            ("gfx12-generic", "gfx1250", false),
            ("gfx9-4-generic", "gfx942:sramecc+:xnack-", false),
            ("sm_80", "sm_86", true),
            ("sm_86", "sm_80", false),
            ("sm_80", "sm_90", false),
            ("sm_90a", "sm_90", false),
            ("sm_90", "sm_90", true),
        ] {
            assert_eq!(fits(built, device), expected, "{built} on {device}");
        }
    }

    #[test]
    fn every_include_of_a_source_is_embedded() {
        let texts = TEXTS.sources.iter().chain(&TEXTS.headers).map(|(_, text)| text);
        let includes =
            texts.flat_map(|text| text.lines().filter_map(|line| line.strip_prefix("#include \"")));
        let mut count = 0;
        for include in includes {
            let name = include.trim_end_matches('"');
            assert!(headers().iter().any(|(header, _)| *header == name), "{name}");
            count += 1;
        }
        assert!(count > SOURCES.len());
    }

    #[test]
    fn every_text_is_that_of_its_file() {
        let names = [TEXTS.sources.len(), TEXTS.headers.len()];
        assert_eq!(names, [SOURCES.len(), HEADERS.len()]);
        let attention = include_str!("../../hip/attention.hip");
        assert_eq!(source("attention"), Some(attention));
        let last = TEXTS.headers.last().unwrap().0;
        let folders = ["hip", "hip/include"].map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
        let file = folders
            .iter()
            .find_map(|folder| fs::read_to_string(folder.join(last)).ok());
        assert_eq!(TEXTS.headers.last().map(|(_, text)| *text), file.as_deref());
    }
}
