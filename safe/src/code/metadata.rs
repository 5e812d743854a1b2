//! Kernel parameters that a code object declares.

use std::collections::HashMap;

use object::LittleEndian;
use object::elf::{EM_AMDGPU, EM_CUDA, FileHeader64, NoteType};
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{Object as _, ObjectSection as _};
use serde::Deserialize;

/// A parameter that the caller passes, without those that the compiler adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) offset: u32,
    pub(crate) size: u32,
    pub(crate) kind: Kind,
}

/// Kind of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A number or structure.
    Value,
    /// A pointer to device memory.
    Global,
    /// A parameter that a launch cannot provide, by its name in the metadata.
    Other(String),
    /// Not declared by the code object.
    Unknown,
}

/// Parameters of each kernel, by the kernel's name.
pub(crate) type Kernels = HashMap<String, Vec<Parameter>>;

/// Returns the kernels of an ELF file. Empty if it is damaged, or neither an AMD code object nor a cubin.
pub(super) fn kernels(elf: &[u8]) -> Kernels {
    let Ok(file) = ElfFile64::<LittleEndian>::parse(elf) else {
        return Kernels::new();
    };
    let header: &FileHeader64<LittleEndian> = file.elf_header();
    match header.e_machine(LittleEndian) {
        EM_AMDGPU => amd(&file, elf).unwrap_or_default(),
        EM_CUDA => cubin(&file),
        _ => Kernels::new(),
    }
}

/// LLVM, "User Guide for AMDGPU Backend", code object metadata. The `object` crate lacks this note type.
const NT_AMDGPU_METADATA: NoteType = NoteType(32);

#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "amdhsa.kernels", default)]
    kernels: Vec<KernelMetadata>,
}

#[derive(Deserialize)]
struct KernelMetadata {
    #[serde(rename = ".name")]
    name: String,
    #[serde(rename = ".args", default)]
    arguments: Vec<ArgumentMetadata>,
}

#[derive(Deserialize)]
struct ArgumentMetadata {
    #[serde(rename = ".offset")]
    offset: u32,
    #[serde(rename = ".size")]
    size: u32,
    #[serde(rename = ".value_kind")]
    kind: String,
}

fn amd(file: &ElfFile64<'_, LittleEndian>, elf: &[u8]) -> Option<Kernels> {
    for segment in file.elf_program_headers() {
        let Some(mut notes) = segment.notes(LittleEndian, elf).ok()? else {
            continue;
        };
        while let Some(note) = notes.next().ok()? {
            if note.name() != b"AMDGPU" || note.n_type(LittleEndian) != NT_AMDGPU_METADATA {
                continue;
            }
            let metadata: Metadata = rmp_serde::from_slice(note.desc()).ok()?;
            let kernels = metadata.kernels.into_iter();
            return Some(
                kernels
                    .map(|kernel| (kernel.name, parameters(kernel.arguments)))
                    .collect(),
            );
        }
    }
    None
}

fn parameters(arguments: Vec<ArgumentMetadata>) -> Vec<Parameter> {
    let explicit = arguments
        .into_iter()
        .filter(|argument| !argument.kind.starts_with("hidden_"));
    explicit
        .map(|argument| Parameter {
            offset: argument.offset,
            size: argument.size,
            kind: match argument.kind.as_str() {
                "by_value" => Kind::Value,
                "global_buffer" => Kind::Global,
                _ => Kind::Other(argument.kind),
            },
        })
        .collect()
}

/// Parses a cubin's section `.nv.info.<kernel>`, a list of attributes. Each has a byte for the form, a byte for the attribute, and two for
/// the value or the size of the value that follows. The format of NVRTC 12.9 and 13; NVIDIA does not document it.
fn cubin(file: &ElfFile64<'_, LittleEndian>) -> Kernels {
    let mut kernels = Kernels::new();
    for section in file.sections() {
        let name = section
            .name()
            .ok()
            .and_then(|name| name.strip_prefix(".nv.info."));
        if let (Some(name), Ok(data)) = (name, section.data())
            && let Some(parameters) = cubin_parameters(data)
        {
            kernels.insert(name.to_owned(), parameters);
        }
    }
    kernels
}

/// Returns `None` for an unknown format.
fn cubin_parameters(mut data: &[u8]) -> Option<Vec<Parameter>> {
    const SIZED: u8 = 4;
    const PARAMETER: u8 = 0x17;
    let mut found = Vec::new();
    while !data.is_empty() {
        let (&[form, attribute, low, high], rest) = data.split_first_chunk()?;
        data = rest;
        if form != SIZED {
            continue;
        }
        let (value, rest) = data.split_at_checked(u16::from_le_bytes([low, high]).into())?;
        data = rest;
        if attribute == PARAMETER {
            // An index, then the same fields as below.
            let &[_, _, _, _, n0, n1, o0, o1, w0, w1, w2, w3] = value.first_chunk::<12>()?;
            let parameter = Parameter {
                offset: u16::from_le_bytes([o0, o1]).into(),
                size: u32::from_le_bytes([w0, w1, w2, w3]) >> 18,
                kind: Kind::Unknown,
            };
            found.push((u16::from_le_bytes([n0, n1]), parameter));
        }
    }
    found.sort_by_key(|(ordinal, _)| *ordinal);
    if found.is_empty() {
        // No parameters, or an unknown attribute that declares them.
        return None;
    }
    let complete = found
        .iter()
        .enumerate()
        .all(|(index, (ordinal, _))| index == usize::from(*ordinal));
    complete.then(|| found.into_iter().map(|(_, parameter)| parameter).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_object_states_its_parameters() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/code");
        for name in ["gfx1100", "gfx90a"] {
            let mut elf = std::fs::read(format!("{folder}/{name}.elf")).unwrap();
            let found = kernels(&elf);
            assert_eq!(found.len(), 1, "{found:?}");
            let scale = &found["scale"];
            let pointer = |offset| Parameter {
                offset,
                size: 8,
                kind: Kind::Global,
            };
            assert_eq!(*scale, [pointer(0), pointer(8)]);
            for at in 0..elf.len() {
                elf[at] ^= 0xff;
                kernels(&elf);
                elf[at] ^= 0xff;
            }
        }
        assert!(kernels(b"\x7fELF").is_empty());
    }

    #[test]
    fn what_the_compiler_adds_is_no_parameter() {
        let argument = |offset, size, kind: &str| ArgumentMetadata {
            offset,
            size,
            kind: kind.into(),
        };
        let found = parameters(vec![
            argument(0, 4, "by_value"),
            argument(8, 8, "global_buffer"),
            argument(16, 4, "dynamic_shared_pointer"),
            argument(24, 4, "hidden_block_count_x"),
        ]);
        let kinds: Vec<_> = found.into_iter().map(|parameter| parameter.kind).collect();
        assert_eq!(
            kinds,
            [
                Kind::Value,
                Kind::Global,
                Kind::Other("dynamic_shared_pointer".into())
            ]
        );
    }

    /// The section that NVRTC 12 writes for `(unsigned, float, const float*, float*)`: the last parameter first, between other attributes.
    #[test]
    fn a_cubin_states_offsets_and_sizes() {
        let mut data = vec![4, 0x37, 4, 0, 0x80, 0, 0, 0, 3, 0x1b, 0xff, 0];
        for (ordinal, offset, size) in [(3u16, 16u16, 8u32), (2, 8, 8), (1, 4, 4), (0, 0, 4)] {
            data.extend([4, 0x17, 12, 0, 0, 0, 0, 0]);
            data.extend(ordinal.to_le_bytes());
            data.extend(offset.to_le_bytes());
            data.extend((size << 18 | 0x1f << 12).to_le_bytes());
        }
        let found = cubin_parameters(&data).unwrap();
        let shown: Vec<_> = found.iter().map(|p| (p.offset, p.size)).collect();
        assert_eq!(shown, [(0, 4), (4, 4), (8, 8), (16, 8)]);
        for len in 0..data.len() {
            let _ = cubin_parameters(&data[..len]);
        }
        data.drain(12..28);
        assert_eq!(
            cubin_parameters(&data).unwrap().len(),
            3,
            "the last one cannot be missed"
        );
        data.drain(data.len() - 16..);
        assert_eq!(cubin_parameters(&data), None);
    }
}
