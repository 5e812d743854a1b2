//! Reshapes that split or merge axes which a permutation keeps together.

use std::ops::Range;

use super::layout::Extents;

/// Axes before and after a reshape with as many elements. No smaller groups have.
struct Group {
    from: Range<usize>,
    to: Range<usize>,
}

/// Returns the extents of the reshaped base, and the axis of it that is each axis of the old result. `axes` are those of the base that are
/// the axes of the reshaped value. `None` if the reshape merges axes that are apart in the base.
pub(super) fn permuted(axes: &[usize], from: &Extents, to: &Extents) -> Option<(Extents, Vec<usize>)> {
    let mut groups = groups(from, to)?;
    for group in &groups {
        let inner = group.from.clone().filter(|&axis| from.at_2[axis] != 1);
        let inner: Vec<usize> = inner.map(|axis| axes[axis]).collect();
        let skipped = inner.windows(2).any(|pair| {
            let mut between = (0..axes.len()).filter(|&axis| pair[0] < axes[axis] && axes[axis] < pair[1]);
            pair[0] > pair[1] || between.any(|axis| from.at_2[axis] != 1)
        });
        if skipped {
            return None;
        }
    }
    groups.sort_by_key(|group| {
        let inner = group.from.clone().filter(|&axis| from.at_2[axis] != 1);
        inner.map(|axis| axes[axis]).min().unwrap_or(0)
    });
    let order: Vec<usize> = groups.iter().flat_map(|group| group.to.clone()).collect();
    let mut result = vec![0; order.len()];
    for (place, &axis) in order.iter().enumerate() {
        result[axis] = place;
    }
    Some((to.permuted(&result), result))
}

/// Divides the axes of both shapes into groups of as many elements, at both batch sizes. Axes of 1 belong to the group before them.
fn groups(from: &Extents, to: &Extents) -> Option<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    let (mut i, mut j) = (0, 0);
    let extents = |of: &Extents, axis: usize| [of.at_1[axis], of.at_2[axis]];
    let rank = |of: &Extents| of.at_1.len();
    while i < rank(from) && j < rank(to) {
        let (first, second) = (i, j);
        let (mut a, mut b) = ([1, 1], [1, 1]);
        // At least one axis of each, then more until both have as many elements.
        let take = |product: &mut [usize; 2], of: &Extents, axis: &mut usize| {
            let [at_1, at_2] = extents(of, *axis);
            *product = [product[0] * at_1, product[1] * at_2];
            *axis += 1;
        };
        take(&mut a, from, &mut i);
        take(&mut b, to, &mut j);
        while a != b {
            if a[1] < b[1] && i < rank(from) {
                take(&mut a, from, &mut i);
            } else if b[1] < a[1] && j < rank(to) {
                take(&mut b, to, &mut j);
            } else {
                return None;
            }
        }
        while i < rank(from) && from.at_2[i] == 1 {
            i += 1;
        }
        while j < rank(to) && to.at_2[j] == 1 {
            j += 1;
        }
        groups.push(Group {
            from: first..i,
            to: second..j,
        });
    }
    (i == rank(from) && j == rank(to)).then_some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(at_1: &[usize], at_2: &[usize]) -> Extents {
        Extents {
            at_1: at_1.into(),
            at_2: at_2.into(),
        }
    }

    #[test]
    fn pixels_are_merged_where_they_are_together() {
        // Channels first, stored channels last: [1, 4, 5, 3] is the base.
        let from = extents(&[1, 3, 4, 5], &[2, 3, 4, 5]);
        let to = extents(&[1, 3, 20], &[2, 3, 20]);
        let (base, axes) = permuted(&[0, 3, 1, 2], &from, &to).unwrap();
        assert_eq!(base.at_1, [1, 20, 3]);
        assert_eq!(axes, [0, 2, 1]);
        // The other way.
        let (base, axes) = permuted(&[0, 2, 1], &to, &from).unwrap();
        assert_eq!(base.at_2, [2, 4, 5, 3]);
        assert_eq!(axes, [0, 3, 1, 2]);
        // Channels and rows are apart.
        let to = extents(&[1, 12, 5], &[2, 12, 5]);
        assert!(permuted(&[0, 3, 1, 2], &from, &to).is_none());
    }

    #[test]
    fn axes_of_one_come_and_go() {
        let from = extents(&[1, 7, 1, 1], &[2, 7, 1, 1]);
        let to = extents(&[1, 7], &[2, 7]);
        let (base, axes) = permuted(&[0, 3, 1, 2], &from, &to).unwrap();
        assert_eq!((base.at_1, axes), (vec![1, 7], vec![0, 1]));
    }

    #[test]
    fn a_batch_is_merged_with_what_follows_it() {
        let from = extents(&[1, 2, 3, 4], &[2, 2, 3, 4]);
        let to = extents(&[2, 3, 4], &[4, 3, 4]);
        let (base, axes) = permuted(&[0, 1, 3, 2], &from, &to).unwrap();
        assert_eq!(base.at_2, [4, 4, 3]);
        assert_eq!(axes, [0, 2, 1]);
        assert!(permuted(&[1, 0, 2, 3], &from, &to).is_none());
    }
}
