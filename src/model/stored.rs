//! A tensor of a weight file.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use safetensors::Dtype;

use crate::error::{Error, Result};
use crate::tensor::{Bytes, DType, Tensor};

/// A tensor of a weight file.
#[derive(Clone)]
pub(super) struct Stored {
    pub(super) file: PathBuf,
    pub(super) bytes: Arc<dyn Bytes>,
    pub(super) range: Range<usize>,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    /// True if the bytes were computed, not read from the file.
    pub(super) computed: bool,
}

impl Stored {
    /// Returns the bytes of the tensor, if they are inside the file.
    pub(super) fn data(&self) -> Option<&[u8]> {
        (*self.bytes).as_ref().get(self.range.clone())
    }

    /// Returns the values of the tensor. `name` is its name in the file, for errors.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Tensor`] if the dtype is not F32, F16 or BF16, or if the number of bytes does not match the
    /// shape.
    pub(super) fn tensor(&self, name: &str) -> Result<Tensor> {
        let wrong = |reason: String| Error::tensor(&self.file, name, reason);
        let dtype = match self.dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            other => {
                return Err(wrong(format!(
                    "has dtype {other}, expected F64, F32, F16 or BF16"
                )));
            }
        };
        let tensor = Tensor::view(self.shape.clone(), dtype, self.bytes.clone(), self.range.clone())
            .ok_or_else(|| wrong("does not have the bytes of its shape".into()))?;
        Ok(if self.computed { tensor.computed() } else { tensor })
    }

    /// Replaces the bytes. The new bytes have the given dtype and the tensor's shape.
    pub(super) fn replace(&mut self, dtype: Dtype, bytes: Vec<u8>) {
        self.range = 0..bytes.len();
        self.bytes = Arc::new(bytes);
        self.dtype = dtype;
        self.computed = true;
    }

    /// Converts F64 to F32, rounding each value to the nearest. The libraries do so when they copy weights into a model
    /// in F32.
    pub(super) fn narrow(&mut self, name: &str) -> Result<()> {
        let Some(data) = self.data().filter(|_| self.dtype == Dtype::F64) else {
            return Ok(());
        };
        let mut narrow = Vec::with_capacity(data.len() / 2);
        for bytes in data.as_chunks().0 {
            let wide = f64::from_le_bytes(*bytes);
            let value = wide as f32;
            if wide.is_finite() && !value.is_finite() {
                let reason = format!("has the value {wide:e}, which exceeds F32");
                return Err(Error::tensor(&self.file, name, reason));
            }
            narrow.extend(value.to_le_bytes());
        }
        self.replace(Dtype::F32, narrow);
        Ok(())
    }
}
