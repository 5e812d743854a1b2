//! Writes safetensors files. The library's own function writes a temporary file of its own, which only the user may read, and which a
//! signal leaves behind.

use std::collections::HashMap;
use std::io::{BufWriter, Write};

use safetensors::SafeTensorError;
use safetensors::tensor::{Metadata, TensorInfo, View};

/// Size of the buffer in bytes.
const BUFFER: usize = 1 << 20;

/// Writes `tensors` to `out`, with the bytes that [`safetensors::serialize`] returns.
///
/// # Errors
///
/// [`SafeTensorError`] if the tensors are not valid, or `out` cannot be written.
pub(crate) fn write<V: View>(
    mut tensors: Vec<(String, V)>,
    metadata: HashMap<String, String>,
    out: impl Write,
) -> Result<(), SafeTensorError> {
    // By descending alignment, then by name.
    tensors.sort_by(|(left_name, left), (right_name, right)| {
        right.dtype().cmp(&left.dtype()).then(left_name.cmp(right_name))
    });
    let mut end = 0;
    let infos = tensors.iter().map(|(name, tensor)| {
        let start = end;
        end += tensor.data_len();
        let info = TensorInfo {
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            data_offsets: (start, end),
        };
        (name.clone(), info)
    });
    let header = Metadata::new(Some(metadata), infos.collect())?;
    let mut header = serde_json::to_vec(&header)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut out = BufWriter::with_capacity(BUFFER, out);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    for (_, tensor) in &tensors {
        out.write_all(&tensor.data())?;
    }
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::TensorView;
    use safetensors::{Dtype, serialize};

    use super::*;

    #[test]
    fn bytes_are_those_of_the_library() {
        let bytes = [7; 24];
        let view = |dtype, shape: &[usize], length: usize| {
            TensorView::new(dtype, shape.to_vec(), &bytes[..length]).unwrap()
        };
        let tensors = vec![
            ("b".to_owned(), view(Dtype::U8, &[3], 3)),
            ("z".to_owned(), view(Dtype::F32, &[2, 3], 24)),
            ("a".to_owned(), view(Dtype::U8, &[], 1)),
            ("empty".to_owned(), view(Dtype::BF16, &[0, 4], 0)),
            ("c".to_owned(), view(Dtype::BF16, &[5], 10)),
        ];
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let mut written = Vec::new();
        write(tensors.clone(), metadata.clone(), &mut written).unwrap();
        assert_eq!(written, serialize(tensors, Some(metadata)).unwrap());
    }
}
