//! Search on a GPU, beside the search on the CPU.

use std::path::Path;

use half::f16;
use hipvit_search::{GpuIndex, Index, Metric, npy};

use crate::support::gpu::{device, gpu};

/// Returns numbers between −1 and 1 that depend on the seed.
fn random(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Writes rows of f16.
fn write(path: &Path, shape: [usize; 2], values: &[f32]) {
    let values = values
        .iter()
        .flat_map(|&value| f16::from_f32(value).to_le_bytes());
    let file = npy::header("<f2", &shape).into_iter().chain(values);
    std::fs::write(path, file.collect::<Vec<u8>>()).unwrap();
}

#[test]
fn a_gpu_finds_the_rows_that_the_cpu_finds() {
    let Some((device, _share)) = device() else { return };
    let device = gpu(device);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.npy");
    for ([rows, width], metric) in [
        ([1, 1], Metric::Cosine),
        ([2049, 64], Metric::InnerProduct),
        ([5000, 72], Metric::Cosine),
        ([4097, 33], Metric::L2),
    ] {
        write(&path, [rows, width], &random(rows * width, 1));
        let index = Index::open(&path).unwrap();
        let mut resident = GpuIndex::new(&index, &device, metric).unwrap();
        for queries in [1, 3, 9] {
            let queries: Vec<f32> = random(queries * width, 2)
                .into_iter()
                .map(|value| f16::from_f32(value).to_f32())
                .collect();
            let expected = index.search(&queries, 10, metric).unwrap();
            assert_eq!(
                resident.search(&queries, 10).unwrap(),
                expected,
                "{rows} × {width}"
            );
        }
        assert!(resident.search(&vec![0.0; width], 0).is_err());
        assert!(resident.search(&vec![0.0; width], 2000).is_err());
    }
}

/// Every part has more candidates than are kept, and more than fit into the memory of a merging block.
#[test]
fn a_gpu_orders_ties_and_rows_that_improve() {
    let Some((device, _share)) = device() else { return };
    let device = gpu(device);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.npy");
    let rows = 20_000;
    let equal = vec![0.5; rows * 2];
    // Halves represent these numbers exactly.
    let rising: Vec<f32> = (0..rows).flat_map(|row| [(row / 16) as f32, 1.0]).collect();
    for values in [equal, rising] {
        write(&path, [rows, 2], &values);
        let index = Index::open(&path).unwrap();
        let mut resident = GpuIndex::new(&index, &device, Metric::InnerProduct).unwrap();
        for (queries, k) in [(1, 10), (5, 300)] {
            let queries = [1.0, 0.0].repeat(queries);
            let expected = index.search(&queries, k, Metric::InnerProduct).unwrap();
            assert_eq!(resident.search(&queries, k).unwrap(), expected);
        }
    }
}
