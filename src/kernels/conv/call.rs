//! A convolution as a call.

use hipvit_graph::op::Activation;

use crate::graph::plan::ALIGNMENT;
use crate::hip::DeviceAddress;
use crate::kernels::KernelError;
use crate::kernels::bindings::{BiasActivationArgs, DEPTHWISE_TAPS, WindowGeometry};
use crate::tensor::DType;

/// Computes `activation(x ∗ weight + bias) + residual`. `bias` and `residual` may be null. `residual` may be `out`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ConvCall {
    pub(crate) windows: WindowGeometry,
    /// Padding below and to the right.
    pub(crate) after: [usize; 2],
    /// Channels of the result.
    pub(crate) features: usize,
    pub(crate) groups: usize,
    pub(crate) x: DeviceAddress,
    pub(crate) weight: DeviceAddress,
    pub(crate) bias: DeviceAddress,
    pub(crate) residual: DeviceAddress,
    pub(crate) out: DeviceAddress,
    /// Memory of [`scratch_bytes`](Self::scratch_bytes).
    pub(crate) scratch: DeviceAddress,
    pub(crate) activation: Option<Activation>,
    pub(crate) dtype: DType,
}

/// Way of the builtin kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `depthwise_conv`.
    Depthwise,
    /// `direct_conv`.
    Direct,
    /// `conv_patches`, then a linear layer.
    Linear,
    /// `conv_patches`, then a GEMM of each group.
    Groups,
}

/// Maximum bytes of the patches of several images. The patches of one image may be larger.
const PATCH_BYTES: usize = 64 << 20;

/// Minimum channels of a group of the result whose GEMM is faster than `direct_conv`, which reads each weight for each pixel.
const GEMM_FEATURES: usize = 8;

impl ConvCall {
    pub(super) fn form(&self) -> Form {
        let channels = self.windows.channels as usize;
        if self.groups == 1 {
            Form::Linear
        } else if self.groups == channels
            && self.features == channels
            && self.taps() <= DEPTHWISE_TAPS as usize
        {
            Form::Depthwise
        } else if self.features / self.groups >= GEMM_FEATURES {
            Form::Groups
        } else {
            Form::Direct
        }
    }

    /// Returns true if a GEMM of several groups, which rocBLAS computes, is part of the builtin way.
    pub(crate) fn has_group_gemm(&self) -> bool {
        self.form() == Form::Groups
    }

    fn taps(&self) -> usize {
        self.windows.taps() as usize
    }

    /// Returns the elements of a window in one group.
    pub(super) fn length(&self) -> usize {
        self.taps() * self.windows.channels as usize / self.groups.max(1)
    }

    pub(super) fn pixels_of_image(&self) -> usize {
        self.windows.rows as usize * self.windows.columns as usize
    }

    /// Returns the number of images whose patches are in memory at once: a divisor of the batch, so that all GEMMs have the same rows.
    pub(super) fn images_at_once(&self) -> usize {
        let images = self.windows.images as usize;
        let most = (PATCH_BYTES / self.patch_bytes(1).max(1)).clamp(1, images.max(1));
        let mut divisors = (1..=most).rev().filter(|&number| images.is_multiple_of(number));
        divisors.next().unwrap_or(1)
    }

    /// Returns the bytes of the patches of some images.
    fn patch_bytes(&self, images: usize) -> usize {
        match self.form() {
            Form::Depthwise | Form::Direct => 0,
            Form::Linear | Form::Groups => {
                images * self.pixels_of_image() * self.length() * self.groups * self.dtype.size()
            }
        }
    }

    /// Returns the elements of the result.
    pub(crate) fn result_elements(&self) -> usize {
        self.windows.pixels() as usize * self.features
    }

    /// Returns true if the residual is in the memory of the result.
    pub(crate) fn is_in_place(&self) -> bool {
        !self.residual.is_null() && self.residual == self.out
    }

    /// Returns the offset of the sums in the scratch memory.
    pub(super) fn sums_at(&self) -> usize {
        self.patch_bytes(self.images_at_once())
            .next_multiple_of(ALIGNMENT)
    }

    /// Returns the memory for sums that a residual in place must not be overwritten by, or the result.
    pub(crate) fn sums(&self) -> DeviceAddress {
        if self.is_in_place() {
            self.scratch.offset(self.sums_at())
        } else {
            self.out
        }
    }

    /// Returns the scratch memory that any way needs.
    pub(crate) fn scratch_bytes(&self, in_place: bool) -> usize {
        let sums = self.result_elements() * self.dtype.size();
        self.sums_at() + if in_place { sums } else { 0 }
    }

    /// Returns the kernel that completes sums without bias, if one is needed.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn finish(&self) -> Result<Option<BiasActivationArgs>, KernelError> {
        if self.bias.is_null() && self.residual.is_null() && self.activation.is_none() {
            return Ok(None);
        }
        let addresses = [self.sums(), self.bias, self.residual, self.out];
        let extents = [self.windows.pixels() as usize, self.features];
        BiasActivationArgs::new(addresses, extents, self.activation).map(Some)
    }
}
