//! Architectures, as far as decoding depends on them.

/// Properties of an architecture that decoding depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arch {
    /// GCN and CDNA: results of 16 bits clear the upper half, `v_cmpx` writes a mask too.
    pub(crate) gfx9: bool,
    pub(crate) gfx11: bool,
    pub(crate) gfx12: bool,
    /// Encoding of 8-bit floats, if there are instructions for them.
    pub(crate) float8: Option<Encoding>,
    pub(crate) lanes: u32,
}

/// The encoding of an architecture's 8-bit floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Fnuz,
    Ocp,
}

impl Encoding {
    /// `None` if the architecture has no 8-bit floats.
    pub(crate) fn of(arch: &str) -> Option<Self> {
        match arch {
            "gfx940" | "gfx941" | "gfx942" => Some(Self::Fnuz),
            "gfx950" => Some(Self::Ocp),
            _ if arch.starts_with("gfx12") => Some(Self::Ocp),
            _ => None,
        }
    }
}
