//! Addresses of device memory.

use std::fmt;

/// An address in device memory. The host never follows it.
///
/// It has the layout of a pointer on the device, so a kernel's `#[repr(C)]` argument structure can contain it.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceAddress(u64);

impl DeviceAddress {
    /// The null address, which kernels take for an absent operand.
    pub const NULL: Self = Self(0);

    /// Wraps an address that a library or another framework returned as an integer.
    #[must_use]
    pub const fn from_raw(address: u64) -> Self {
        Self(address)
    }

    pub(crate) fn from_ptr<T>(pointer: *const T) -> Self {
        Self(pointer as u64)
    }

    /// Returns the address as an integer, for an interface that takes one.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Returns the address as a pointer, for a C function that takes one.
    #[must_use]
    pub fn as_mut_ptr<T>(self) -> *mut T {
        self.0 as *mut T
    }

    /// True if this is [`NULL`](Self::NULL).
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Returns the address `bytes` bytes after this one.
    #[must_use]
    pub const fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }

    /// Returns the number of bytes from `base` to this address, or `None` if this address is before `base`.
    #[must_use]
    pub const fn offset_from(self, base: Self) -> Option<u64> {
        self.0.checked_sub(base.0)
    }

    /// True if the address is a multiple of `alignment` bytes.
    #[must_use]
    pub const fn is_aligned_to(self, alignment: usize) -> bool {
        self.0.is_multiple_of(alignment as u64)
    }
}

impl fmt::LowerHex for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// Formats the address as `0x…`.
impl fmt::Debug for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::DeviceAddress;

    #[test]
    fn arithmetic_and_format() {
        let base = DeviceAddress::from_raw(0x1000);
        let part = base.offset(0x20);
        assert_eq!(part.as_u64(), 0x1020);
        assert_eq!(part.offset_from(base), Some(0x20));
        assert_eq!(base.offset_from(part), None);
        assert!(DeviceAddress::NULL.is_null() && !part.is_null());
        assert!(part.is_aligned_to(32) && !part.is_aligned_to(64));
        assert_eq!(format!("{part:?} {part:#x} {part:x}"), "0x1020 0x1020 1020");
    }
}
