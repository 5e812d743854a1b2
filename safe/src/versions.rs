//! Versions of the driver and of the provider's libraries, as they report them.

use std::ffi::c_char;
use std::ptr;

use crate::device::Device;
use crate::error::Result;
use crate::status::{call, missing};

impl Device {
    /// Returns the version of each library that can be opened and reports one, by its common name.
    ///
    /// Opens all libraries, which is slow.
    #[must_use]
    pub fn library_versions(&self) -> Vec<(&'static str, String)> {
        let versions = [
            (
                "HIP",
                self.runtime().version().map(|v| dotted(v, [10_000_000, 100_000])),
            ),
            ("rocBLAS", self.rocblas_version()),
            ("hipBLASLt", self.hipblaslt_version()),
            ("MIOpen", self.miopen_version()),
            ("RCCL", self.rccl_version()),
        ];
        let known = |(name, version): (_, Result<String>)| Some((name, version.ok()?));
        versions.into_iter().filter_map(known).collect()
    }

    fn rocblas_version(&self) -> Result<String> {
        let table = self.runtime().provider().rocblas().map_err(|e| missing(&e))?;
        let mut text = [0 as c_char; 256];
        // SAFETY: the call writes at most as many characters as its arguments say.
        unsafe {
            call!(
                self,
                table.rocblas_get_version_string(text.as_mut_ptr(), text.len())
            )
        }?;
        let bytes: Vec<u8> = text.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn hipblaslt_version(&self) -> Result<String> {
        let table = self.runtime().provider().hipblaslt().map_err(|e| missing(&e))?;
        self.enter()?;
        let (mut handle, mut version) = (ptr::null_mut(), 0);
        // SAFETY: the call writes one handle. It ends the process if there is no GPU, but the device exists.
        unsafe { call!(self, table.hipblasLtCreate(&mut handle)) }?;
        // SAFETY: the handle is valid, and the call writes one number.
        let read = unsafe { call!(self, table.hipblasLtGetVersion(handle, &mut version)) };
        // SAFETY: destroyed once; it has no other owner.
        unsafe { call!(self, table.hipblasLtDestroy(handle)) }?;
        // AMD's 100202 is 1.2.2. cuBLASLt's 130002 is 13.0.2.
        let cuda = self.properties().target.starts_with("sm_");
        let major = if cuda { 10_000 } else { 100_000 };
        read.map(|()| dotted(version, [major, 100]))
    }

    pub(crate) fn miopen_version(&self) -> Result<String> {
        let table = self.runtime().provider().miopen().map_err(|e| missing(&e))?;
        let [mut major, mut minor, mut patch] = [0; 3];
        // SAFETY: the call writes three numbers.
        unsafe { call!(self, table.miopenGetVersion(&mut major, &mut minor, &mut patch)) }?;
        Ok(format!("{major}.{minor}.{patch}"))
    }

    fn rccl_version(&self) -> Result<String> {
        let table = self.runtime().provider().rccl().map_err(|e| missing(&e))?;
        let mut version = 0;
        // SAFETY: the call writes one number.
        unsafe { call!(self, table.ncclGetVersion(&mut version)) }?;
        Ok(dotted(version, [10_000, 100]))
    }
}

/// Formats a version that is packed into decimal digits. The array has the steps of major and minor.
fn dotted(version: i32, [major, minor]: [i32; 2]) -> String {
    format!(
        "{}.{}.{}",
        version / major,
        version % major / minor,
        version % minor
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_versions_are_written_with_dots() {
        assert_eq!(dotted(70_226_015, [10_000_000, 100_000]), "7.2.26015");
        assert_eq!(dotted(22_707, [10_000, 100]), "2.27.7");
        assert_eq!(dotted(100_202, [100_000, 100]), "1.2.2");
    }
}
