//! A compressed matrix: column after column, the two elements of each four that are kept. Then, for each four in the same order,
//! the places of the two, 2 bits each, so that a byte holds two fours.

use gcnrun::{FaultKind, Memory};

use super::objects::Layout;
use crate::compute::{Element, Matrix, Real as _, read};

/// The bytes of the elements that are kept.
fn elements(of: &Layout) -> usize {
    of.rows * of.columns / 2 * of.element.size()
}

/// The bytes of a compressed matrix.
pub(super) fn bytes(of: &Layout) -> usize {
    elements(of) + of.rows * of.columns / 8
}

/// The bytes of the matrix at `address`, compressed.
pub(super) fn compress(memory: &Memory, address: u64, of: &Layout) -> Result<Vec<u8>, FaultKind> {
    let matrix = Matrix {
        address,
        element: of.element,
        rows: of.rows,
        columns: of.columns,
        leading: of.leading,
    };
    pack(of.element, &matrix.load::<f32>(memory)?).ok_or_else(|| FaultKind::Configuration {
        what: "a matrix to compress has more than two nonzero elements among four".to_owned(),
    })
}

/// `None` if it is not 2:4 sparse.
fn pack(element: Element, values: &[f32]) -> Option<Vec<u8>> {
    let (mut kept, mut places) = (Vec::with_capacity(values.len() / 2), Vec::new());
    for four in values.as_chunks::<4>().0 {
        let mut chosen: Vec<usize> = (0..4).filter(|&place| four[place] != 0.0).collect();
        chosen.extend(
            (0..4)
                .filter(|&place| four[place] == 0.0)
                .take(2_usize.saturating_sub(chosen.len())),
        );
        chosen.sort_unstable();
        let &[first, second] = chosen.as_slice() else {
            return None;
        };
        kept.extend([four[first], four[second]]);
        places.push((first | second << 2) as u8);
    }
    let mut bytes = f32::encode(element, &kept);
    bytes.extend(
        places
            .chunks(2)
            .map(|two| two[0] | two.get(1).copied().unwrap_or_default() << 4),
    );
    Some(bytes)
}

/// The elements of the compressed matrix at `address`, column after column, zeros included.
pub(super) fn expand(memory: &Memory, address: u64, of: &Layout) -> Result<Vec<f32>, FaultKind> {
    let kept = read(memory, address, elements(of))?;
    let places = read(memory, address + elements(of) as u64, bytes(of) - elements(of))?;
    Ok(unpack(&f32::decode(of.element, &kept), &places))
}

fn unpack(kept: &[f32], places: &[u8]) -> Vec<f32> {
    let fours = places.iter().flat_map(|byte| [byte & 0xf, byte >> 4]);
    let mut values = vec![0.0; kept.len() * 2];
    for ((four, two), places) in values.chunks_mut(4).zip(kept.as_chunks::<2>().0).zip(fours) {
        for (value, place) in two.iter().zip([places & 3, places >> 2]) {
            four[usize::from(place)] = *value;
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_back() {
        let values = [
            0.0, 1.0, 0.0, -2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 4.0, 5.0, 0.0, 0.0,
        ];
        let bytes = pack(Element::Bf16, &values).expect("2:4 sparse");
        assert_eq!(bytes.len(), values.len() / 2 * 2 + values.len() / 8);
        let (kept, places) = bytes.split_at(values.len());
        assert_eq!(unpack(&f32::decode(Element::Bf16, kept), places), values);
        assert_eq!(pack(Element::F16, &[1.0, 1.0, 1.0, 0.0]), None);
    }
}
