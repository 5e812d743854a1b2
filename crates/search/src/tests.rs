use std::fs;
use std::path::{Path, PathBuf};

use half::f16;
use tempfile::TempDir;

use crate::{Description, Error, Hit, Index, Kind, Metric, npy};

const METRICS: [Metric; 3] = [Metric::Cosine, Metric::InnerProduct, Metric::L2];

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

fn described(shard: Option<(usize, usize)>) -> Description {
    Description {
        model: "TinyViT32".into(),
        source: None,
        digest: "d".into(),
        kind: Kind::Image,
        normalized: false,
        shard,
    }
}

fn write(folder: &Path, name: &str, shape: [usize; 2], values: &[f32]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, npy::bytes(shape, values)).unwrap();
    path
}

/// Returns the nearest rows by scores in f64, sorted.
fn expected(rows: &[f32], query: &[f32], k: usize, metric: Metric) -> Vec<Hit> {
    let score = |(row, values): (usize, &[f32])| {
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
        };
        let score = match metric {
            Metric::InnerProduct => dot(values, query),
            Metric::Cosine => dot(values, query) / (dot(values, values) * dot(query, query)).sqrt(),
            Metric::L2 => (dot(values, values) - 2.0 * dot(values, query) + dot(query, query)).sqrt(),
        };
        Hit { row, score }
    };
    let mut hits: Vec<Hit> = rows.chunks(query.len()).enumerate().map(score).collect();
    let sign = if metric == Metric::L2 { 1.0 } else { -1.0 };
    hits.sort_by(|a, b| {
        (sign * a.score)
            .total_cmp(&(sign * b.score))
            .then(a.row.cmp(&b.row))
    });
    hits.truncate(k);
    hits
}

fn check(index: &Index, rows: &[f32], queries: &[f32], k: usize) {
    for metric in METRICS {
        let found = index.search(queries, k, metric).unwrap();
        assert_eq!(found.len(), queries.len() / index.width());
        for (hits, query) in found.iter().zip(queries.chunks(index.width())) {
            let expected = expected(rows, query, k, metric);
            assert_eq!(hits.len(), expected.len());
            for (hit, expected) in hits.iter().zip(&expected) {
                assert_eq!(hit.row, expected.row, "{metric:?}");
                assert!((hit.score - expected.score).abs() < 1e-9, "{hit:?} {expected:?}");
            }
        }
    }
}

#[test]
fn search_finds_what_all_scores_in_f64_say() {
    let folder = tempfile::tempdir().unwrap();
    for (rows, width) in [(1, 1), (5, 3), (777, 65), (4099, 7), (300, 768)] {
        let values = random(rows * width, 1);
        let index = Index::open(write(folder.path(), "a.npy", [rows, width], &values)).unwrap();
        for queries in [1, 2, 3, 5, 70] {
            check(&index, &values, &random(queries * width, 2), 10);
        }
    }
}

#[test]
fn shards_count_on_and_names_follow() {
    let folder = tempfile::tempdir().unwrap();
    let values = random(30 * 4, 3);
    for (shard, rows) in [0..13, 13..13, 13..30].into_iter().enumerate() {
        let path = write(
            folder.path(),
            &format!("e-{shard}.npy"),
            [rows.len(), 4],
            &values[rows.start * 4..rows.end * 4],
        );
        let names: String = rows.map(|row| format!("photos/{row}\\n.png\n")).collect();
        fs::write(path.with_extension("names.txt"), names).unwrap();
        fs::write(
            path.with_extension("index.json"),
            described(Some((shard, 3))).to_json(),
        )
        .unwrap();
    }
    let index = Index::open(folder.path()).unwrap();
    assert_eq!((index.len(), index.width()), (30, 4));
    assert_eq!(index.name(13), "photos/13\n.png");
    assert_eq!(index.description().unwrap().model, "TinyViT32");
    check(&index, &values, &random(8, 4), 30);
    check(&index, &values, &random(8, 4), 100);
    let mut row = Vec::new();
    index.copy_row(29, &mut row);
    assert_eq!(row, values[29 * 4..]);

    fs::remove_file(folder.path().join("e-2.npy")).unwrap();
    let error = Index::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("is shard 1 of 3, but file 1 of 2"), "{error}");
    write(folder.path(), "e-2.npy", [1, 5], &[0.0; 5]);
    let error = Index::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("e-2.npy: has 1 rows, but 17 names"), "{error}");
    fs::remove_file(folder.path().join("e-2.names.txt")).unwrap();
    let error = Index::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("in the length of its rows"), "{error}");
}

#[test]
fn halves_are_searched_as_their_values() {
    let folder = tempfile::tempdir().unwrap();
    let halves: Vec<f16> = random(500 * 33, 5).into_iter().map(f16::from_f32).collect();
    let path = folder.path().join("h.npy");
    let bytes = halves.iter().flat_map(|value| value.to_le_bytes());
    let file = npy::header("<f2", &[500, 33]).into_iter().chain(bytes);
    fs::write(&path, file.collect::<Vec<u8>>()).unwrap();
    let values: Vec<f32> = halves.iter().map(|value| value.to_f32()).collect();
    let index = Index::open(&path).unwrap();
    for queries in [1, 9] {
        check(&index, &values, &random(queries * 33, 6), 7);
    }
}

#[test]
fn equal_rows_are_ordered_and_nan_is_never_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut values: Vec<f32> = [1.0, 2.0].repeat(1000);
    values[2 * 17] = f32::NAN;
    let index = Index::open(write(folder.path(), "a.npy", [1000, 2], &values)).unwrap();
    for queries in [1, 8] {
        for metric in METRICS {
            for hits in index.search(&[0.5, 0.25].repeat(queries), 20, metric).unwrap() {
                let rows: Vec<usize> = hits.iter().map(|hit| hit.row).collect();
                assert_eq!(rows, (0..21).filter(|row| *row != 17).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn duplicates_are_all_pairs_above_the_threshold() {
    let folder = tempfile::tempdir().unwrap();
    let width = 9;
    let mut values = random(1300 * width, 7);
    // Copies that differ a little, within a block and across blocks, one of them scaled.
    for (from, to, factor) in [(3, 4, 1.0), (10, 1200, 3.0), (600, 1299, 1.0)] {
        for column in 0..width {
            values[to * width + column] = factor * (values[from * width + column] + 0.01 * column as f32);
        }
    }
    values[50 * width..51 * width].fill(0.0);
    let index = Index::open(write(folder.path(), "a.npy", [1300, width], &values)).unwrap();
    let cosine = |a: usize, b: usize| {
        let row = |row: usize| {
            values[row * width..][..width]
                .iter()
                .map(|&value| f64::from(value))
        };
        let dot = |a, b| row(a).zip(row(b)).map(|(a, b)| a * b).sum::<f64>();
        dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
    };
    for threshold in [0.9, 0.99] {
        let mut pairs = Vec::new();
        for first in 0..1300 {
            pairs.extend(
                (first + 1..1300)
                    .filter(|&second| cosine(first, second) >= threshold)
                    .map(|second| (first, second)),
            );
        }
        assert!(pairs.len() >= 3);
        let found = index.duplicates(threshold, 1_000_000).unwrap();
        let found: Vec<_> = found.iter().map(|pair| (pair.first, pair.second)).collect();
        assert_eq!(found, pairs);
    }
    assert!(matches!(index.duplicates(0.9, 1), Err(Error::Argument { .. })));
    assert!(matches!(index.duplicates(0.0, 1), Err(Error::Argument { .. })));
}

fn refusal(folder: &TempDir, name: &str, bytes: &[u8]) -> String {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    Index::open(&path).unwrap_err().to_string()
}

#[test]
fn files_that_are_no_index_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let whole = npy::bytes([2, 2], &[0.0; 4]);
    let cases: [(&str, &[u8], &str); 9] = [
        (
            "a.npy",
            &whole[..whole.len() - 1],
            "is shorter than its header says",
        ),
        ("b.npy", b"\x93NUMPY", "is not a NumPy file"),
        ("c.npy", &npy::header("<f8", &[0, 2]), "dtype `<f8`"),
        ("d.npy", &npy::header("<f4", &[2, 0]), "rows without values"),
        ("e.npy", &npy::header("<f4", &[3]), "not a matrix"),
        (
            "f.npy",
            &npy::header("<f4", &[usize::MAX, 2]),
            "is shorter than its header says",
        ),
        ("g.parquet", b"PAR1", "Parquet is compressed"),
        (
            "h.safetensors",
            b"\xff\xff\xff\xff\xff\xff\xff\xff",
            "is not a safetensors file",
        ),
        ("i.txt", b"", "not a file of embeddings"),
    ];
    for (name, bytes, reason) in cases {
        let error = refusal(&folder, name, bytes);
        assert!(error.contains(reason), "{name}: {error}");
    }
    let empty = tempfile::tempdir().unwrap();
    assert!(
        Index::open(empty.path())
            .unwrap_err()
            .to_string()
            .contains("has no .npy")
    );
    let index = Index::open(write(folder.path(), "j.npy", [2, 2], &[0.0; 4])).unwrap();
    assert!(index.search(&[1.0], 1, Metric::Cosine).is_err());
    assert!(index.search(&[f32::NAN, 0.0], 1, Metric::Cosine).is_err());
    assert!(index.search(&[1.0, 0.0], 0, Metric::Cosine).is_err());
}
