//! The kernels' metadata: MessagePack in a note of the ELF.

use object::read::elf::SectionHeader;
use object::{LittleEndian, elf};
use serde::Deserialize;

use super::error::{LoadError, damaged};
use super::image::Elf;

// A number of LLVM's guide that the `object` crate lacks.
const NT_AMDGPU_METADATA: elf::NoteType = elf::NoteType(32);

#[derive(Deserialize)]
pub(super) struct Metadata {
    #[serde(rename = "amdhsa.target")]
    pub(super) target: String,
    #[serde(rename = "amdhsa.kernels", default)]
    pub(super) kernels: Vec<KernelMetadata>,
}

#[derive(Deserialize)]
pub(super) struct KernelMetadata {
    #[serde(rename = ".name")]
    pub(super) name: String,
    #[serde(rename = ".symbol")]
    pub(super) symbol: String,
    #[serde(rename = ".args", default)]
    pub(super) arguments: Vec<ArgumentMetadata>,
    #[serde(rename = ".kernarg_segment_size")]
    pub(super) kernarg_size: u32,
    #[serde(rename = ".group_segment_fixed_size")]
    pub(super) lds: u32,
    #[serde(rename = ".private_segment_fixed_size")]
    pub(super) scratch: u32,
    #[serde(rename = ".uses_dynamic_stack", default)]
    pub(super) dynamic_stack: bool,
    #[serde(rename = ".wavefront_size")]
    pub(super) wave_size: u32,
    #[serde(rename = ".sgpr_count")]
    pub(super) sgprs: u32,
    #[serde(rename = ".vgpr_count")]
    pub(super) vgprs: u32,
    #[serde(rename = ".agpr_count", default)]
    pub(super) agprs: u32,
    #[serde(rename = ".sgpr_spill_count", default)]
    pub(super) spilled_sgprs: u32,
    #[serde(rename = ".vgpr_spill_count", default)]
    pub(super) spilled_vgprs: u32,
    #[serde(rename = ".max_flat_workgroup_size", default = "most")]
    pub(super) max_block: u32,
}

fn most() -> u32 {
    1024
}

#[derive(Deserialize)]
pub(super) struct ArgumentMetadata {
    #[serde(rename = ".offset")]
    pub(super) offset: u32,
    #[serde(rename = ".size")]
    pub(super) size: u32,
    #[serde(rename = ".value_kind")]
    pub(super) kind: String,
}

/// The kernels' metadata, from the note that holds it.
pub(super) fn metadata(file: &Elf<'_>, data: &[u8]) -> Result<Metadata, LoadError> {
    for section in file.elf_section_table().iter() {
        let Some(mut notes) = section.notes(LittleEndian, data).map_err(damaged)? else {
            continue;
        };
        while let Some(note) = notes.next().map_err(damaged)? {
            if note.name() == b"AMDGPU" && note.n_type(LittleEndian) == NT_AMDGPU_METADATA {
                return rmp_serde::from_slice(note.desc()).map_err(damaged);
            }
        }
    }
    Err(damaged("it has no metadata note of AMDGPU"))
}
